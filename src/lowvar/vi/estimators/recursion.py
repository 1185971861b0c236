"""Recursive estimates: the common part of the multilevel estimator and its variants.

    G_0 = g(w_0; xi_0),   G_t = g(w_t; xi_t) + carryover (G_{t-1} - g(w_{t-1}; xi_t)),

with both gradients of a step on the same rows and base noise ``xi_t``. ``G_0`` needs only one; programs compute the
second too, and multiply it by 0, but it is not counted. The error ``e_t = G_t - grad f(w_t)`` obeys
``E[e_t | past] = carryover e_{t-1}``: the carried error is a bias that fresh samples cannot reveal.
"""

import importlib
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known, whole
from lowvar.vi.estimators.base import Estimator, Oracles, Properties, Schedule, schedule_of

BASES = ("naive", "stl", "cv")  # estimators without memory, whose gradients can be differenced


def recursive(
    name: str,
    problem,
    batches,
    *,
    carryover: float,
    base: str = "naive",
    restart: int | None = None,
    particles: Callable[[int, Any], int] | None = None,
) -> Estimator:
    """The recursion over the gradients of another estimator.

    Args:
        name: name of the estimator.
        problem: the objective.
        batches: how rows are drawn.
        carryover: the fraction of the previous error that remains, in [0, 1].
        base: the estimator whose gradients are used.
        restart: steps between restarts of ``G``; never if not given.
        particles: see ``Estimator``.

    Raises:
        UserError: an unknown base, or a restart that is not at the start of an epoch.
    """
    gradient = base_of(problem, batches, base)
    backend, xp = problem.backend, problem.backend.xp
    integral = isinstance(restart, Integral) and not isinstance(restart, bool)
    if restart is not None and (not integral or restart < 1 or restart % batches.steps):
        raise UserError(
            f"{name}: restart = {restart!r}; it must be a number of steps that fills whole epochs, a multiple of "
            f"{batches.steps}"
        )

    def init(params):
        count = xp.sum(xp.zeros_like(next(iter(params.values()))))  # steps taken: a floating scalar, exact to 2^24
        return {"G": backend.tree_map(xp.zeros_like, params), "params": params, "step": count}

    def estimate(state, params, noise):
        now, before = gradient.at(params, noise), gradient.at(state["params"], noise)
        carried = carryover * xp.astype(state["step"] > 0, state["step"].dtype)
        G = backend.tree_map(lambda now, G, before: now + carried * (G - before), now, state["G"], before)
        step = state["step"] + 1
        step = step if restart is None else step * xp.astype(step != restart, step.dtype)
        return G, {"G": G, "params": params, "step": step}

    spared = gradient.spared(batches, particles and particles(0, None), restart)
    return Estimator(name, problem, gradient.declared(carryover), init, estimate, particles=particles, spared=spared)


class Base:
    """Another estimator's gradient as a function of parameters and noise."""

    def __init__(self, estimator: Estimator):
        self.estimator = estimator

    def at(self, params, noise):
        """The gradient."""
        return self.estimator.estimate((), params, noise)[0]

    def declared(self, carryover: float) -> Properties:
        """The properties of a recursion with this carryover."""
        properties = self.estimator.properties
        return Properties(
            unbiased=False, carryover=carryover, gradients=2 * properties.gradients, hvps=2 * properties.hvps,
            backends=properties.backends,
        )  # fmt: skip

    def spared(self, batches, first: int | None = None, restart: int | None = None) -> Callable[[Any, int], Oracles]:
        """``Estimator.spared`` of a recursion: the second gradient of its first step, and of the step after a restart.

        Args:
            batches: how rows are drawn.
            first: particles of those steps; without it, those of all steps.
            restart: see ``recursive``.
        """
        steps, rows = (batches.steps, batches.size) if batches else (1, self.estimator.problem.N)
        properties = self.estimator.properties

        def of(epochs, particles):
            starts = -(-np.asarray(epochs) * steps // restart) if restart else np.sign(epochs)
            return Oracles(starts * rows * (first or particles) * properties.gradients, starts * rows * properties.hvps)

        return of


def differences(gradient: "Base", before, params, noise, later):
    """The mean over particles of ``g(params) - later g(before)``, and the variance of one particle's difference.

    Args:
        gradient: ``base_of`` a problem.
        before: the previous parameters.
        params: the current ones.
        noise: a batch's, with its particles.
        later: 1, or 0 for the gradient itself: a number of the backend.

    Returns:
        ``(mean, V)``: a gradient, and the sum over coordinates of the variances between particles; 0 for a single one.
    """
    backend, xp = gradient.estimator.problem.backend, gradient.estimator.problem.backend.xp

    def change(eps):
        alone = noise._replace(eps=eps[None])
        now, then = gradient.at(params, alone), gradient.at(before, alone)
        return backend.tree_map(lambda now, then: now - later * then, now, then)

    count = noise.eps.shape[0]
    changes = backend.vmap(change)(noise.eps)
    mean = backend.tree_map(lambda leaf: xp.mean(leaf, axis=0), changes)
    return mean, sum(xp.sum((changes[block] - mean[block][None, :]) ** 2) for block in mean) / max(1, count - 1)


def base_of(problem, batches, base: str) -> Base:
    """The gradients of the estimator called ``base``.

    Raises:
        UserError: no estimator without memory has that name.
    """
    check_known("base", base, BASES)
    return Base(getattr(importlib.import_module(f"lowvar.vi.estimators.{base}"), base)(problem, batches))


def checked_schedule(name: str, particles: int | None, given) -> tuple[int | None, Schedule | None]:
    """``N_0`` and the schedule, from a ``Schedule`` or a mapping of its settings.

    Raises:
        UserError: ``N_0`` is not a whole number above 0, or the schedule is invalid.
    """
    if particles is not None:
        whole(f"{name}: particles", particles, 1)
    if given is None or isinstance(given, Schedule):
        return particles, given
    return particles, schedule_of(given, f"{name}: schedule")


def scheduled(particles: int | None, plan: Schedule | None, steps: int, restart: int | None = None):
    """``Estimator.particles`` of a schedule: ``N_t`` at the middle step of an epoch, and ``N_0`` at each restart."""
    if particles is None or plan is None:
        return None if particles is None else lambda epoch, state: particles

    def at(epoch: int, state) -> int:
        t = epoch * steps
        return particles if not t or (restart and t % restart == 0) else plan.particles(t + steps // 2, particles)

    return at
