"""The search gradient of independent coin flips."""

from lowvar.search.estimators.search_estimator import SearchEstimator, SearchProperties
from lowvar.search.estimators.shaping import check_baseline
from lowvar.search.estimators.shaping import weights as shaped


def bernoulli(backend, baseline: str = "mean", normalise: bool = True) -> SearchEstimator:
    """``sum_i w_i (x_i - p) / (p (1 - p))``, the gradient of ``E f`` with respect to the probabilities ``p (d,)``.

    The draws of ``estimate`` are the points ``x (N, d)``, zeros and ones; params are ``p``; the gradient is ``(d,)``.

    Args:
        backend: backend of the arrays.
        baseline: ``none`` or ``mean``, see ``shaping.weights``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: unknown baseline.

    References:
        Lyu and Tsang, Appendix A: ``h_i = 1(x_i = 1) / p_i - 1(x_i = 0) / (1 - p_i)``.
    """
    check_baseline(baseline, ("none", "mean"))
    xp = backend.xp

    def estimate(draws, values, params, at_centre=None):
        w = shaped(backend, values, baseline=baseline, normalise=normalise, at_centre=at_centre, like=params)
        x = xp.astype(draws, params.dtype)
        return (w @ x - xp.sum(w) * params) / (params * (1 - params))

    return SearchEstimator("bernoulli", backend, SearchProperties(unbiased=not normalise), estimate)
