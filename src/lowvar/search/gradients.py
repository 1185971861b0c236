"""Search gradients: gradients of ``E_p f`` with respect to the parameters of ``p``, from the values of a generation."""

from typing import Any, NamedTuple

BASELINES = ("none", "mean", "centre")
_HUGE, _SHRINK = 1e100, 1e-200  # values beyond _HUGE are multiplied by _SHRINK, so that squares do not overflow


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


def gaussian(backend, z: Any, values: Any, *, at_centre: Any = None, **shaping: Any) -> GaussianGradient:
    """``s = sum_i w_i z_i`` and ``M = sum_i w_i (z_i z_i' - I)``, with weights from the values ``f(mu + A z_i)``.

    Args:
        backend: backend of the arrays.
        z: the base noise, ``(N, d)``.
        values: ``(N,)``.
        at_centre: ``f(mu)``, a scalar, for the baseline ``centre``.
        **shaping: ``baseline`` and ``normalise`` of ``weights``.

    References:
        Lyu and Tsang, eqs. (12) and (13), estimated as in (16) to (19); Algorithm 1; Appendix H for the baseline
        ``f(mu)``.
    """
    w = weights(backend, values, at_centre=at_centre, like=z, **shaping)
    return GaussianGradient(w, w @ z, backend.xp.sum(w))  # (eqs. 12, 13), in whitened coordinates


def bernoulli(backend, points: Any, values: Any, p: Any, **shaping: Any) -> Any:
    """``sum_i w_i (x_i - p) / (p (1 - p))``, the gradient of ``E f`` with respect to the probabilities ``p (d,)``.

    Args:
        backend: backend of the arrays.
        points: ``x``, zeros and ones, ``(N, d)``.
        values: ``(N,)``.
        p: the probabilities of a one, ``(d,)``.
        **shaping: ``baseline`` (``none`` or ``mean``) and ``normalise`` of ``weights``.

    References:
        Lyu and Tsang, Appendix A: ``h_i = 1(x_i = 1) / p_i - 1(x_i = 0) / (1 - p_i)``.
    """
    xp = backend.xp
    w = weights(backend, values, like=p, **shaping)
    return (w @ xp.astype(points, p.dtype) - xp.sum(w) * p) / (p * (1 - p))


def categorical(backend, points: Any, values: Any, p: Any, **shaping: Any) -> Any:
    """``sum_i w_i 1(x_i = j) / P_j``, with respect to ``P (d, K)``, as if unconstrained.

    The gradients along the simplex are its differences within a row, and a softmax of natural parameters depends on
    these alone.

    Args:
        backend: backend of the arrays.
        points: ``x``, whole numbers below ``K``, ``(N, d)``.
        values: ``(N,)``.
        p: ``P``, ``(d, K)``.
        **shaping: ``baseline`` (``none`` or ``mean``) and ``normalise`` of ``weights``.

    References:
        Lyu and Tsang, Appendix A: ``H_ij = 1(x_i = j) / P_ij``.
    """
    xp = backend.xp
    w = weights(backend, values, like=p, **shaping)
    choices = backend.asarray(range(p.shape[-1]))
    hit = xp.astype(points[:, :, None] == choices[None, None, :], p.dtype)  # (N, d, K)
    return xp.sum(w[:, None, None] * hit, axis=0) / p


def weights(
    backend, values: Any, *, baseline: str = "mean", normalise: bool = True, at_centre: Any = None, like: Any = None
) -> Any:
    """``w_i`` such that ``sum_i w_i score(x_i)`` estimates the gradient of ``E f`` (over ``std f`` if normalised).

    A value that is not finite counts as the worst finite one of its generation.

    Args:
        backend: backend of the arrays.
        values: ``f(x_i)``, ``(N,)``.
        baseline: subtracted from the values: ``none``; ``mean``, of the generation (without ``normalise`` the
            weights correct for the ``1 / N`` of each point in its own baseline, so the estimate is unbiased);
            ``centre``, ``f`` at the distribution's mean, which costs an evaluation.
        normalise: divide by the generation's standard deviation, so that steps do not depend on the scale of
            ``f``; the estimate is then of a scaled gradient, and no longer unbiased.
        at_centre: ``f(mu)``, a scalar, for the baseline ``centre``.
        like: a floating array whose dtype is used for the values, which may be integers.

    Returns:
        Weights ``(N,)``; zero if all values are equal.

    References:
        Lyu and Tsang, section 4.1 (``h``); Appendix H (``f(mu)``).
    """
    xp = backend.xp
    n = values.shape[0]
    if like is not None:
        values = xp.astype(values, like.dtype)
        at_centre = None if at_centre is None else xp.astype(at_centre, like.dtype)
    values = usable(backend, values)
    if normalise:
        scale = xp.where(xp.max(xp.abs(values)) > _HUGE, _SHRINK, xp.ones_like(values[0]))
        values, at_centre = values * scale, None if at_centre is None else at_centre * scale
    mean = xp.mean(values)
    centre = {"none": xp.zeros_like(mean), "mean": mean, "centre": at_centre}[baseline]
    if baseline == "centre":  # without a finite f at the centre, there is no baseline
        centre = xp.where(xp.isfinite(centre), centre, mean)
    difference = values - centre
    if normalise:
        spread = xp.sqrt(xp.mean((values - mean) ** 2))
        flat = (xp.max(values) == xp.min(values)) | (spread <= 0)  # no information: zero rather than rounding errors
        return xp.where(flat, xp.zeros_like(difference), difference / xp.where(flat, xp.ones_like(spread), spread)) / n
    return difference / (n - 1 if baseline == "mean" and n > 1 else n)


def usable(backend, values: Any) -> Any:
    """``values`` with those that are not finite replaced by the worst finite one, or by zero if there is none."""
    xp = backend.xp
    finite = xp.isfinite(values)
    worst = xp.max(xp.where(finite, values, -xp.inf))
    return xp.where(finite, values, xp.where(xp.isfinite(worst), worst, xp.zeros_like(worst)))
