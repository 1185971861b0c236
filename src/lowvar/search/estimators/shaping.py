"""Converts values of a generation to weights of its points in a search gradient."""

from typing import Any

from lowvar.errors import check_known

BASELINES = ("none", "mean", "centre")
_HUGE, _SHRINK = 1e100, 1e-200  # values beyond _HUGE are multiplied by _SHRINK, so that squares do not overflow


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
    check_baseline(baseline)
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
    centre = {"none": lambda: xp.zeros_like(mean), "mean": lambda: mean, "centre": lambda: at_centre}[baseline]()
    if baseline == "centre":  # without a finite f at the centre, there is no baseline
        centre = xp.where(xp.isfinite(centre), centre, mean)
    difference = values - centre
    if normalise:
        spread = xp.sqrt(xp.mean((values - mean) ** 2))
        flat = (xp.max(values) == xp.min(values)) | (spread <= 0)  # no information: zero rather than rounding errors
        return xp.where(flat, xp.zeros_like(difference), difference / xp.where(flat, xp.ones_like(spread), spread)) / n
    return difference / (n - 1 if baseline == "mean" and n > 1 else n)


def check_baseline(baseline: str, known: tuple[str, ...] = BASELINES) -> None:
    """Rejects a baseline that an estimator does not support."""
    check_known("baseline", baseline, known)


def usable(backend, values: Any) -> Any:
    """``values`` with those that are not finite replaced by the worst finite one, or by zero if there is none."""
    xp = backend.xp
    finite = xp.isfinite(values)
    worst = xp.max(xp.where(finite, values, -xp.inf))
    return xp.where(finite, values, xp.where(xp.isfinite(worst), worst, xp.zeros_like(worst)))
