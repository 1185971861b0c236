"""The search gradient of a Gaussian, in the coordinates in which it is standard normal."""

from typing import Any, NamedTuple

from lowvar.search.estimators.search_estimator import SearchEstimator, SearchProperties
from lowvar.search.estimators.shaping import check_baseline
from lowvar.search.estimators.shaping import weights as shaped


class GaussianGradient(NamedTuple):
    """The gradient of ``E f(mu + A z)`` with respect to ``mu`` and ``Sigma = A A'``, without any ``d x d`` matrix.

    With ``s`` = ``mean``: ``grad_mu = A^-T s``, ``grad_Sigma = 1/2 A^-T M A^-1`` and
    ``M = Z' diag(w) Z - trace I``.

    Attributes:
        weights: ``w``, ``(N,)``.
        mean: ``s = Z' w``, ``(d,)``.
        trace: ``sum w``, a scalar; zero with the generation's mean as baseline.
    """

    weights: Any
    mean: Any
    trace: Any

    def diagonal(self, z: Any) -> Any:
        """The diagonal of ``M``, ``(d,)``, for the draws ``z (N, d)`` that the gradient was estimated with."""
        return self.weights @ (z * z) - self.trace


def gaussian(backend, baseline: str = "mean", normalise: bool = True) -> SearchEstimator:
    """``s = sum_i w_i z_i`` and ``M = sum_i w_i (z_i z_i' - I)``, with weights from the values ``f(mu + A z_i)``.

    The draws of ``estimate`` are the base noise ``z (N, d)``; params are not needed.

    Args:
        backend: backend of the arrays.
        baseline: ``none``, ``mean`` or ``centre``, see ``shaping.weights``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: unknown baseline.

    References:
        Lyu and Tsang, eqs. (12) and (13), estimated as in (16) to (19); Algorithm 1; Appendix H for the baseline
        ``f(mu)``.
    """
    check_baseline(baseline)

    def estimate(draws, values, params=None, at_centre=None):
        w = shaped(backend, values, baseline=baseline, normalise=normalise, at_centre=at_centre, like=draws)
        return GaussianGradient(w, w @ draws, backend.xp.sum(w))  # (eqs. 12, 13), in whitened coordinates

    properties = SearchProperties(unbiased=not normalise, evaluations_beside=int(baseline == "centre"))
    return SearchEstimator("gaussian", backend, properties, estimate)
