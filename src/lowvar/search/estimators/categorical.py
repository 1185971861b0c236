"""The search gradient of independent categorical variables."""

from lowvar.search.estimators.search_estimator import SearchEstimator, SearchProperties
from lowvar.search.estimators.shaping import check_baseline
from lowvar.search.estimators.shaping import weights as shaped


def categorical(backend, baseline: str = "mean", normalise: bool = True) -> SearchEstimator:
    """``sum_i w_i 1(x_i = j) / P_j``, with respect to ``P (d, K)``, as if unconstrained.

    The gradients along the simplex are its differences within a row, and a softmax of natural parameters depends on
    these alone. The draws of ``estimate`` are the points ``x (N, d)``, integers; params are
    ``P``; the gradient is ``(d, K)``.

    Args:
        backend: backend of the arrays.
        baseline: ``none`` or ``mean``, see ``shaping.weights``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: unknown baseline.

    References:
        Lyu and Tsang, Appendix A: ``H_ij = 1(x_i = j) / P_ij``.
    """
    check_baseline(baseline, ("none", "mean"))
    xp = backend.xp

    def estimate(draws, values, params, at_centre=None):
        w = shaped(backend, values, baseline=baseline, normalise=normalise, at_centre=at_centre, like=params)
        choices = backend.asarray(range(params.shape[-1]))
        hit = xp.astype(draws[:, :, None] == choices[None, None, :], params.dtype)  # (N, d, K)
        return xp.sum(w[:, None, None] * hit, axis=0) / params

    return SearchEstimator("categorical", backend, SearchProperties(unbiased=not normalise), estimate)
