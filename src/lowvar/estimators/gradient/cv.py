"""A Taylor control variate against Monte Carlo noise."""

from lowvar.estimators.gradient.base import (
    Estimator,
    Properties,
    plus_mean_part,
    reparameterisation_gradient,
    stateless,
)


def cv(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps) + E_xi grad f~(w; B, xi) - grad f~(w; B, eps)``, for the ``mu`` part.

    ``f~`` is the second-order Taylor expansion of ``k_n`` around ``z0 = mu``:
    ``grad_mu f~(w; n, eps) = grad k_n(mu) + hess k_n(mu) (sigma eps)``, whose mean over ``eps`` is
    ``grad k_n(mu)``. The two gradients at ``mu`` cancel, so one Hessian-vector product is all it costs. It
    removes Monte Carlo noise only: its variance is never below subsampling's, ``V_n``.

    References:
        Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", 2017;
        "cv" in Wang, Geffner and Domke.
    """
    xp = problem.backend.xp

    def gradient(params, noise):
        step = xp.exp(params["log_sigma"]) * xp.mean(noise.eps, axis=0)  # the correction is linear in eps
        _, curvature = problem.gradient_and_hvp(params["mu"], step, noise.index, noise.weight)
        return plus_mean_part(reparameterisation_gradient(problem, params, noise), -curvature)

    return stateless("cv", problem, Properties(unbiased=True, hvps=1), gradient)
