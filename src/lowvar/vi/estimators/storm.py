"""Stochastic recursive momentum: the multilevel recursion with a leak."""

from numbers import Real

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.estimators.recursion import recursive


def storm(problem, batches=None, a=0.1, base="naive") -> Estimator:
    """``G_t = g(w_t; eps) + (1 - a) (G_{t-1} - g(w_{t-1}; eps))``.

    Each step drops a fraction ``a`` of the carried error, so errors do not accumulate as in ``mlmc`` (``a = 0``);
    ``a = 1`` is the plain gradient. All steps use the sampler's number of particles: with few of them, the fresh
    part, ``a g(w_t; eps)``, is noisy.

    Args:
        problem: an objective.
        batches: how rows are drawn; those of a step are the same for both gradients.
        a: fraction of the carried error that each step drops, in (0, 1].
        base: the estimator whose gradients are differenced: ``"naive"``, ``"stl"`` or ``"cv"``.

    Raises:
        UserError: ``a`` out of range, or an unknown base.

    References:
        Cutkosky and Orabona, "Momentum-based variance reduction in non-convex SGD", 2019, eq. 2.
    """
    if isinstance(a, bool) or not isinstance(a, Real) or not 0 < a <= 1:
        raise UserError(f"storm: a = {a!r}; it must be a number above 0 and at most 1")
    return recursive("storm", problem, batches, carryover=1.0 - float(a), base=base)
