"""The multilevel gradient with its points kept in a convex set."""

from dataclasses import replace

from lowvar.errors import UserError
from lowvar.estimators.gradient.base import Estimator, variational
from lowvar.estimators.gradient.mlmc import mlmc
from lowvar.problems.within import Ball, Box, within


def mlmc_prox(
    problem, batches=None, points=None, schedule=None, restart=None, ball=None, box=(-10.0, 10.0)
) -> Estimator:
    """``mlmc`` with ``z = P_S(mu + sigma eps)`` in place of ``mu + sigma eps``, for a ball or a box ``S``.

    The projection is the proximal operator of the indicator of ``S``; with it the transform is bounded, which the
    theorems assume. Gradients go through it: where a coordinate is cut off, it does not count. The entropy stays that
    of the Gaussian. Points outside ``S`` all move to its border, so for the ELBO itself this is biased.

    Args:
        problem: an objective with a guide.
        batches: as for ``mlmc``.
        points: as for ``mlmc``.
        schedule: as for ``mlmc``.
        restart: as for ``mlmc``.
        ball: radius of a ball around 0 in unconstrained ``z``, instead of the box.
        box: ``[low, high]`` for every coordinate of unconstrained ``z``.

    Raises:
        UserError: as ``mlmc``; the problem has no guide, or the set is empty.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, Appendix C, Algorithm 2.
    """
    problem = variational(problem, "mlmc_prox")
    if ball is None and (not isinstance(box, list | tuple) or len(box) != 2):
        raise UserError(f"mlmc_prox: box = {box!r}; give [low, high]")
    bounded = within(problem, Box(*box) if ball is None else Ball(ball))
    return replace(mlmc(bounded, batches, points, schedule, restart=restart), name="mlmc_prox", problem=problem)
