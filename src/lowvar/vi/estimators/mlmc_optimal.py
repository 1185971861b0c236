"""The multilevel gradient with the numbers of particles of Theorem 1, from variances that a pilot run has measured."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lowvar.errors import UserError
from lowvar.vi.estimators.base import rounded_to
from lowvar.vi.estimators.recursion import checked_schedule, recursive


def mlmc_optimal(
    problem, batches=None, particles=None, variances=None, epochs=None, pilot=100, base="naive", pilot_taken=0
):
    """``mlmc`` whose ``N_t`` minimise ``V_0 / N_0 + sum_t V_t / N_t`` at the cost of a run with ``particles`` each.

    With costs ``C_0 = 1`` and ``C_t = 2`` gradients for each particle, ``T`` differences and the budget
    ``M = (2 T + 1) particles``:

        N_t = M sqrt(V_t / C_t) / (sqrt(V_0) + sqrt(2) sum_s sqrt(V_s)).

    Most particles go to the first steps, whose differences vary most; there ``N_t`` may be far above ``particles``.
    Each number is rounded to the nearest of five sizes a decade, since each size needs a compiled program, so the cost
    is the budget's to some 10 %. Where an epoch has several steps, they all take the number of the middle one.

    ``N_t`` depends on ``V_s`` of all later steps, so a pilot run measures them first, in ``lowvar.fit`` and in
    experiments: a run of ``mlmc_adaptive`` with ``pilot`` particles at its start, with noise of its own. Its gradients
    count as the run's. A pilot run with fresh gradients would not do: its parameters keep moving in their noise, where
    those of a multilevel run come to rest, so that it overestimates ``V_t`` of late steps by orders of magnitude.

    Args:
        problem: an objective.
        batches: how rows are drawn; those of a step are the same for both gradients.
        particles: what a run of the same cost would take at every step; in experiments ``solver.particles``.
        variances: ``V_t`` as pairs ``(t, V_t)`` with ``t`` ascending from 0; log-log interpolated between them. If
            not given, the pilot run's; without one, ``N_t = particles``.
        epochs: length of the run; in experiments ``solver.epochs``.
        pilot: particles of the pilot run's first steps, at least 2.
        base: the estimator whose gradients are differenced: ``"naive"`` or ``"stl"``.
        pilot_taken: particles that the pilot run took in all its steps; each cost two gradients, in the first step one.

    Raises:
        UserError: a number below 1, a pilot of one particle, another base, or variances that are not such pairs.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, Theorem 1.
    """
    first, _ = checked_schedule("mlmc_optimal", particles, None)
    if isinstance(pilot, bool) or not isinstance(pilot, int) or pilot < 2:
        raise UserError(f"mlmc_optimal: pilot = {pilot!r}; a variance needs a whole number of particles, 2 or more")
    if base == "cv":
        raise UserError("mlmc_optimal: base = 'cv' would need a Hessian-vector product for every point; use 'naive'")
    if first is None or variances is None or epochs is None:
        return recursive("mlmc_optimal", problem, batches, carryover=1.0, base=base)
    steps, size = (batches.steps, batches.size) if batches else (1, problem.N)
    counts = allocated(variances, epochs, steps, first)
    made = recursive(
        "mlmc_optimal", problem, batches, carryover=1.0, base=base,
        particles=lambda epoch, state: counts[min(epoch, epochs - 1)],
    )  # fmt: skip
    rows = problem.N if not batches or batches.covers else steps * size  # of an epoch
    passes = (2 * pilot_taken * rows / steps - pilot * size) / problem.N if pilot_taken else 0.0
    return replace(made, properties=replace(made.properties, full_passes_at_start=passes))


def allocated(variances: Sequence[tuple[int, float]], epochs: int, steps: int, particles: int) -> list[int]:
    """``N_t`` of each epoch by Theorem 1, rounded; see ``mlmc_optimal``.

    >>> allocated([(0, 8.0), (1, 1.0), (4, 1.0)], epochs=5, steps=1, particles=10)  # exactly 30.0, 7.5, 7.5, ...
    [25, 6, 6, 6, 6]

    Raises:
        UserError: the variances are not pairs of ascending steps from 0 and of numbers above 0.
    """
    try:
        at, V = np.asarray(variances, float).reshape(-1, 2).T
    except (TypeError, ValueError):
        at, V = np.array([np.nan]), np.array([np.nan])
    if not len(at) or at[0] != 0 or (np.diff(at) <= 0).any() or not (np.isfinite(V) & (V > 0)).all():
        raise UserError("mlmc_optimal: variances must be pairs (t, V_t), t ascending from 0, every V_t above 0")
    t = np.arange(epochs * steps)
    V_t = np.exp(np.interp(np.log1p(t), np.log1p(at), np.log(V)))
    cost = np.where(t == 0, 1.0, 2.0)
    budget = cost.sum() * particles
    N_t = budget * np.sqrt(V_t / cost) / np.sqrt(V_t * cost).sum()
    middle = [min(epoch * steps + steps // 2, len(t) - 1) if epoch or steps > 1 else 0 for epoch in range(epochs)]
    return [rounded_to(N_t[step]) for step in middle]
