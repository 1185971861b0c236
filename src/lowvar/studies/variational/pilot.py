"""Pilot runs: the variances ``V_t`` of gradient differences along a descent, for estimators that ask for them.

An estimator asks by the options ``variances=None``, ``pilot`` and ``base``. If a method does not state its variances, a
pilot run measures them before its own run.
"""

import inspect

import numpy as np

from lowvar.errors import UserError
from lowvar.estimators import GRADIENT
from lowvar.estimators.gradient.base import Estimator
from lowvar.estimators.gradient.recursion import base_of, differences
from lowvar.studies.variational.methods import descents

_RATE = 0.1  # of the running mean of the differences' variance
_PER_DECADE = 12  # moments at which it is read


def with_pilot(method, problem, solver, build):
    """The method, with the ``variances`` that its estimator asks for.

    Args:
        method: a ``MethodSpec``.
        problem: an objective.
        solver: the run's ``SolverSpec``.
        build: ``(make_solver, solver) -> engine``, with a start and noise of the pilot's own.

    A pilot that diverges has measured what came before.

    Raises:
        UserError: several step sizes, whose variances would differ.
    """
    stated = {name: one.default for name, one in inspect.signature(GRADIENT.get(method.factory)).parameters.items()}
    stated |= method.options
    if stated.get("variances", ()) is not None:  # it does not ask for them, or has them
        return method
    if len(solver.step_sizes) > 1:
        raise UserError(
            f"{method.estimator}: {len(solver.step_sizes)} step sizes; its pilot run measures the variances of one. "
            "Give one step size, or a method for each"
        )
    alone = {"particles": stated["pilot"], "noise": "iid", "repetitions": 1, "diagnostics": None}
    settings = solver.model_copy(update={**alone, "per_decade": _PER_DECADE})

    def make_solver(problem, sampler):
        return descents(measuring(problem, sampler.batches, stated["base"]), settings, sampler)

    pilot = build(make_solver, settings)
    state, done, found = pilot.init(), 0, []
    for stop in [1, *(one for one in pilot.stops if one > 1)]:
        state, done = pilot.advance(state, done, stop - done), stop
        measured = pilot.backend.to_numpy(state[0].estimator)
        if done == 1:
            found.append((0, float(measured["V_0"].mean())))
        if (step := done * pilot.steps - 1) > 0:
            found.append((step, float(measured["V"].mean())))
    lost = next((n for n, (_, V) in enumerate(found) if not (np.isfinite(V) and V > 0)), len(found))
    if lost < 2:  # the run that follows will be a row that says so
        return method
    return method.model_copy(update={"options": {**method.options, "variances": found[:lost]}})


def measuring(problem, batches, base: str) -> Estimator:
    """Fresh gradients, with ``V_0`` and a running mean of ``V_t`` in the state."""
    gradient = base_of(problem, batches, base)
    xp = problem.backend.xp

    def init(params):
        zero = xp.sum(xp.zeros_like(next(iter(params.values()))))
        return {"params": params, "step": zero, "V_0": zero, "V": zero}

    def estimate(state, params, noise):
        later = xp.astype(state["step"] > 0, state["step"].dtype)
        _, V = differences(gradient, state["params"], params, noise, later)
        rate = xp.where(state["step"] > 1, _RATE * later, later)
        kept = {"V_0": xp.where(state["step"] == 0, V, state["V_0"]), "V": state["V"] + rate * (V - state["V"])}
        return gradient.of(params, noise), {"params": params, "step": state["step"] + 1, **kept}

    return Estimator("pilot", problem, gradient.declared(0.0), init, estimate)
