"""Pilot runs: the variances ``V_t`` of gradient differences along a multilevel run, for estimators that need them.

Such an estimator has the options ``variances=None``, ``pilot``, ``base`` and ``pilot_taken``. If a method does not
set ``variances``, a pilot run of ``mlmc_adaptive`` measures them first; ``pilot_taken`` is the number of its particles.
"""

import inspect
from dataclasses import replace

import numpy as np

from lowvar.errors import UserError
from lowvar.vi.estimators import GRADIENT, OWN
from lowvar.vi.run.methods import descents

_PER_DECADE = 12  # moments at which it is read


def with_pilot(method, problem, solver, build):
    """The method, with the ``variances`` that its estimator needs; if the pilot diverges, those from before.

    Args:
        method: a ``Method``.
        problem: an objective.
        solver: the run's ``Settings``.
        build: ``(make_solver, solver) -> engine``, with a start and noise of the pilot's own.

    Raises:
        UserError: several step sizes, whose variances would differ.
    """
    if method.factory in OWN:
        return method
    stated = {name: one.default for name, one in inspect.signature(GRADIENT.get(method.factory)).parameters.items()}
    stated |= method.options
    if stated.get("variances", ()) is not None:  # it does not need them, or has them
        return method
    if len(solver.step_sizes) > 1:
        raise UserError(
            f"{method.estimator}: {len(solver.step_sizes)} step sizes; its pilot run measures the variances of one. "
            "Give one step size, or a method for each"
        )
    if isinstance(stated["pilot"], bool) or not isinstance(stated["pilot"], int) or stated["pilot"] < 2:
        return method  # the estimator rejects it
    alone = {"particles": stated["pilot"], "noise": "iid", "repetitions": 1, "diagnostics": None}
    settings = replace(solver, **alone, per_decade=_PER_DECADE)

    def make_solver(problem, sampler):
        adaptive = GRADIENT.get("mlmc_adaptive")
        return descents(adaptive(problem, sampler.batches, stated["pilot"], stated["base"]), settings, sampler)

    pilot = build(make_solver, settings)
    state, done, found, taken = pilot.init(), 0, [], 0.0
    for stop in [1, *(one for one in pilot.stops if one > 1)]:
        state, done = pilot.advance(state, done, stop - done), stop
        measured = {name: float(value.mean()) for name, value in pilot.backend.to_numpy(state[0].estimator).items()
                    if name in ("V_0", "spread", "taken")}  # fmt: skip
        taken = measured["taken"]
        if done == 1:
            found.append((0, measured["V_0"]))
        if (step := done * pilot.steps - 1) > 0:
            found.append((step, measured["spread"]))  # of this step alone: a running mean would lag behind the fall
    lost = next((n for n, (_, V) in enumerate(found) if not (np.isfinite(V) and V > 0)), len(found))
    if lost < 2:  # the run itself will diverge, and its trace will say so
        return method
    options = {**method.options, "variances": found[:lost], "pilot_taken": round(taken)}
    return replace(method, options=options)
