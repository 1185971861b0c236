"""The multilevel gradient with ``z`` projected onto a convex set."""

from dataclasses import replace

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator, variational
from lowvar.vi.estimators.mlmc import mlmc
from lowvar.vi.within import Ball, Box, within


def mlmc_prox(problem, batches=None, particles=None, schedule=None, restart=None, ball=None, box=None) -> Estimator:
    """``mlmc`` with ``z = P_S(mu + sigma eps)`` in place of ``mu + sigma eps``, for a ball or a box ``S``.

    The projection is the proximal operator of the indicator of ``S``. It bounds the transform, as the theorems assume.
    Gradients are taken through it: a clipped coordinate has gradient zero. The entropy remains that of the Gaussian.
    All points outside ``S`` move to its border, so the gradient is biased for the ELBO itself.

    Args:
        problem: an objective with a guide.
        batches: as for ``mlmc``.
        particles: as for ``mlmc``.
        schedule: as for ``mlmc``.
        restart: as for ``mlmc``.
        ball: radius of a ball around 0 in unconstrained ``z``, instead of the box.
        box: ``[low, high]`` for every coordinate of unconstrained ``z``; [-10, 10] if neither is given.

    Raises:
        UserError: as ``mlmc``; the problem has no guide, or the set is empty.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, Appendix C, Algorithm 2.
    """
    problem = variational(problem, "mlmc_prox")
    if ball is not None and box is not None:
        raise UserError("mlmc_prox: give a ball or a box, not both")
    try:
        onto = Box(*_numbers(*(box if box is not None else (-10, 10)))) if ball is None else Ball(*_numbers(ball))
    except (TypeError, ValueError) as error:
        wanted = f"box = {box!r}; give [low, high], two numbers" if ball is None else f"ball = {ball!r}; give a number"
        raise UserError(f"mlmc_prox: {wanted}") from error
    bounded = within(problem, onto)
    return replace(mlmc(bounded, batches, particles, schedule, restart=restart), name="mlmc_prox", problem=problem)


def _numbers(*values):
    if any(isinstance(value, bool | str) for value in values):
        raise TypeError("no numbers")
    return [float(value) for value in values]
