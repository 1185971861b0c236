"""Stochastic recursive momentum: the multilevel recursion with a leak."""

from numbers import Real

from lowvar.errors import UserError
from lowvar.estimators.gradient.base import Estimator
from lowvar.estimators.gradient.recursion import recursive


def storm(problem, batches=None, a=0.1, base="naive") -> Estimator:
    """``G_t = g(w_t; eps) + (1 - a) (G_{t-1} - g(w_{t-1}; eps))``.

    The share ``a`` of every error is forgotten at each step, so that errors do not add up as they do in ``mlmc``
    (``a = 0``); ``a = 1`` is the plain gradient. All steps take the sampler's number of points: with few of them the
    fresh part, ``a g(w_t; eps)``, is noise.

    Args:
        problem: an objective.
        batches: how rows are drawn; those of a step are the same for both gradients.
        a: share that is forgotten, in (0, 1].
        base: whose gradients are compared: ``"naive"``, ``"stl"`` or ``"cv"``.

    Raises:
        UserError: ``a`` out of range, or an unknown base.

    References:
        Cutkosky and Orabona, "Momentum-based variance reduction in non-convex SGD", 2019, eq. 2.
    """
    if isinstance(a, bool) or not isinstance(a, Real) or not 0 < a <= 1:
        raise UserError(f"storm: a = {a!r}; it must be a number above 0 and at most 1")
    return recursive("storm", problem, batches, keep=1.0 - float(a), base=base)
