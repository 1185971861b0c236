"""A Taylor control variate with a coefficient."""

from lowvar.vi.estimators.base import Estimator, Properties, plus, stateless


def damped_cv(problem, batches=None, coefficient: float = 0.5) -> Estimator:
    """``grad f(w; B, eps) - a (grad f~(w; B, eps) - E_xi grad f~(w; B, xi))``: ``cv`` with a coefficient ``a``.

    Args:
        problem: the objective.
        batches: how rows are drawn; not used, since there is no memory.
        coefficient: ``a``; 0 gives ``naive`` and 1 gives ``cv``.

    References:
        Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", 2017.
    """

    def gradient(params, noise):
        _, deviation = problem.approximation(problem.point(params), noise)
        return plus(problem.objective_gradient(params, noise), deviation, -coefficient)

    return stateless("damped_cv", problem, Properties(unbiased=True, hvps=1), gradient)
