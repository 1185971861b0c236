"""A Taylor control variate against Monte Carlo noise."""

from lowvar.vi.estimators.base import Estimator, Properties, minus, stateless


def cv(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps) + E_xi grad f~(w; B, xi) - grad f~(w; B, eps)``.

    In variational inference ``f~`` is the second-order Taylor expansion of ``k_n`` around ``z0 = mu``, for the
    ``mu`` part: ``grad_mu f~(w; n, eps) = grad k_n(mu) + hess k_n(mu) (sigma eps)``, whose mean over ``eps`` is
    ``grad k_n(mu)``. The two gradients at ``mu`` cancel, so the only cost is one Hessian-vector product. It
    removes Monte Carlo noise only: its variance is never below that of subsampling, ``V_n``. With guides other than
    mean-field, the first-order expansion controls the scale parameters, at no cost, see ``Guide.first_order``.

    References:
        Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", 2017;
        "cv" in Wang, Geffner and Domke.
    """

    def gradient(params, noise):
        mean, deviation = problem.approximation(problem.point(params), noise)
        gradient = minus(problem.objective_gradient(params, noise), deviation)
        return minus(gradient, problem.first_order(params, noise.eps, mean))

    return stateless("cv", problem, Properties(unbiased=True, hvps=1, local=True), gradient)
