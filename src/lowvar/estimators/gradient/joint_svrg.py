"""The joint control variate in its SVRG form: one snapshot and a full pass per epoch, no table."""

from lowvar.estimators.gradient.base import Estimator, Properties, plus_mean_part, reparameterisation_gradient


def joint_svrg(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps) + g_bar - grad f~(w~; B, eps)``, for the ``mu`` part.

    ``w~`` are the parameters at the beginning of the epoch and ``g_bar = grad k(mu~)`` the full gradient there.

    References:
        Wang, Geffner and Domke, 2024, Appendix B, Algorithm 2.
    """
    xp = problem.backend.xp

    def snapshot(params):
        return {**params, "mean": problem.full_gradient(params["mu"])}

    def estimate(state, params, noise):
        step = xp.exp(state["log_sigma"]) * xp.mean(noise.eps, axis=0)
        old, curvature = problem.gradient_and_hvp(state["mu"], step, noise.index, noise.weight)
        gradient = reparameterisation_gradient(problem, params, noise)
        return plus_mean_part(gradient, state["mean"] - (old + curvature)), state, made.oracles(noise)

    properties = Properties(unbiased=True, hvps=1, full_passes=1, full_passes_at_start=1, table_rows=1)
    made = Estimator(
        "joint_svrg",
        problem,
        properties,
        snapshot,
        estimate,
        begin_epoch=lambda state, params: snapshot(params),
    )
    return made
