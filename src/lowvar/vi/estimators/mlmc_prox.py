"""The multilevel gradient with ``z`` projected onto a convex set."""

import math
from dataclasses import dataclass, replace
from typing import Any

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator, variational
from lowvar.vi.estimators.mlmc import mlmc
from lowvar.vi.guides.interface import Guide
from lowvar.vi.variational import VariationalProblem


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


@dataclass(frozen=True)
class Ball:
    """``||z|| <= radius``."""

    radius: float

    def project(self, xp, z):
        """The nearest point of the set, ``(dim,)``."""
        norm = xp.sqrt(xp.sum(z * z))
        return z * xp.where(norm > self.radius, self.radius / norm, xp.ones_like(norm))

    def pull_back(self, xp, z, gradient):
        """The gradient for ``z`` from one for its projection."""
        norm = xp.sqrt(xp.sum(z * z))
        across = gradient - z * (xp.sum(z * gradient) / (norm * norm))
        return xp.where(norm > self.radius, self.radius / norm * across, gradient)


@dataclass(frozen=True)
class Box:
    """``low <= z_i <= high``; see ``Ball``."""

    low: float
    high: float

    def project(self, xp, z):
        """The nearest point of the set, ``(dim,)``."""
        return xp.clip(z, self.low, self.high)

    def pull_back(self, xp, z, gradient):
        """The gradient in ``z`` from that in its projection: zero in coordinates that are clipped."""
        inside = (z > self.low) & (z < self.high)
        return xp.where(inside, gradient, xp.zeros_like(gradient))


@dataclass(frozen=True)
class _Projected:
    """A guide whose points are projected; all else is the guide's."""

    guide: Guide
    onto: Any

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.guide, name)

    def transform(self, params, eps):
        """See ``Guide``."""
        return self.onto.project(self.guide.backend.xp, self.guide.transform(params, eps))

    def pull_back(self, params, eps, gradient):
        """See ``Guide``."""
        z = self.guide.transform(params, eps)
        return self.guide.pull_back(params, eps, self.onto.pull_back(self.guide.backend.xp, z, gradient))


def within(problem: VariationalProblem, onto: Ball | Box) -> VariationalProblem:
    """``problem`` with the guide's points projected onto a set; the entropy is still that of the Gaussian.

    Raises:
        UserError: the set is empty, or a bound is not a number.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, Appendix C.
    """
    if isinstance(onto, Ball) and not 0 < onto.radius < math.inf:
        raise UserError(f"ball = {onto.radius}: its radius must be a positive number")
    if isinstance(onto, Box) and not onto.low < onto.high:
        raise UserError(f"box = [{onto.low}, {onto.high}]: the first must be below the second")
    projected: Any = _Projected(problem.guide, onto)
    return VariationalProblem(
        problem.name, problem.backend, problem.N, problem.dim, problem.log_likelihood, problem.log_prior,
        sites=problem.sites, dtype=problem.dtype, noiseless=problem.noiseless, family=lambda bounded: projected,
    )  # fmt: skip
