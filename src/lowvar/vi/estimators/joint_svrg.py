"""The joint control variate in its SVRG form: one snapshot and a full pass per epoch, no table."""

from lowvar.vi.estimators.base import Estimator, Properties, minus, plus


def joint_svrg(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps) + g_bar - grad f~(w~; B, eps)``.

    ``w~`` are the parameters at the beginning of the epoch and ``g_bar`` is ``E_m E_xi grad f~(w~; m, xi)``.

    References:
        Wang, Geffner and Domke, 2024, Appendix B, Algorithm 2.
    """

    def snapshot(params):
        point = problem.point(params)
        return {"point": point, "mean": problem.full_approximation_mean(point)}

    def estimate(state, params, noise):
        old, deviation = problem.approximation(state["point"], noise)
        control = minus(minus(state["mean"], old), deviation)
        gradient = plus(problem.objective_gradient(params, noise), control)
        return minus(gradient, problem.first_order(params, noise.eps, old)), state

    properties = Properties(unbiased=True, hvps=1, full_passes=1, full_passes_at_start=1, table_rows=1, local=True)
    return Estimator(
        "joint_svrg",
        problem,
        properties,
        snapshot,
        estimate,
        begin_epoch=lambda state, params: snapshot(params),
    )
