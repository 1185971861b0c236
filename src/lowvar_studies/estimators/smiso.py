"""Stochastic MISO: an incremental solver that averages base noise out along the run."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import UserError, check_known
from lowvar.vi.batches import Noise, Plan, Sampler
from lowvar.vi.estimators.base import Oracles

TABLES = ("rows", "batches")


class SmisoState(NamedTuple):
    """The state of a run.

    Attributes:
        params: the mean ``w_bar`` of the table, by data rows.
        table: the iterates ``w_n``, with a leading axis of rows, or of the batches of the previous epoch.
        place: position of a row's batch in the table, ``(N,)`` integers; empty for a table of rows.
        written: the iterates of this epoch's batches, within an epoch. A table that a loop both reads and writes
            would be copied at every step.
    """

    params: Any
    table: Any
    place: Any = ()
    written: Any = ()


@dataclass(frozen=True)
class Smiso:
    """A solver made of pure functions with the interface of ``Descent``; its methods can be vectorised over runs."""

    problem: Any
    sampler: Sampler
    step_size: Any
    alpha: float
    by_batch: bool

    def init(self, params) -> SmisoState:
        """The state before the first epoch: all iterates at ``params``."""
        backend, slots = self.problem.backend, self.slots
        table = backend.tree_map(lambda leaf: backend.xp.broadcast_to(leaf, (slots, *leaf.shape)), params)
        return SmisoState(params, table, backend.asarray(np.zeros(self.problem.N, np.int32)) if self.by_batch else ())

    def begin_epoch(self, state: SmisoState) -> SmisoState:
        """Prepares an epoch."""
        if not self.by_batch:
            return state
        return state._replace(written=self.problem.backend.tree_map(self.problem.backend.xp.zeros_like, state.table))

    def end_epoch(self, state: SmisoState, index) -> SmisoState:
        """Closes an epoch whose batches were ``index (steps, B)``.

        Recomputes the mean from the table, so that rounding does not accumulate.
        """
        backend, xp, batches = self.problem.backend, self.problem.backend.xp, self.sampler.batches
        if not self.by_batch:
            return state._replace(params=backend.tree_map(lambda leaf: xp.mean(leaf, axis=0), state.table))
        step = backend.asarray(np.repeat(np.arange(batches.steps, dtype=np.int32), batches.size))
        rows = np.minimum(batches.size, batches.N - batches.size * np.arange(batches.steps))  # the last may be short
        share = backend.asarray((rows / batches.N).astype(self.problem.dtype))
        mean = backend.tree_map(lambda leaf: share @ leaf, state.written)
        return SmisoState(mean, state.written, backend.set_rows(state.place, xp.reshape(index, (-1,)), step))

    def step(self, state: SmisoState, noise: Noise):
        """One update."""
        return (self._of_batch if self.by_batch else self._of_rows)(state, noise)

    def epoch(self, state: SmisoState, noise: Noise | Plan) -> SmisoState:
        """The updates of an epoch with noise ``sampler.epoch(key)`` or its plan, in a scan or a loop."""
        state = self.problem.backend.scan_or_loop(
            lambda state, batch: self.step(state, self.sampler.with_noise(batch)), self.begin_epoch(state), noise
        )
        return self.end_epoch(state, noise.index)

    def oracles_of_run(self, epochs, rows: int, points: int) -> Oracles:
        """Oracle calls of a run's first ``epochs`` epochs, see ``Estimator``."""
        return Oracles(epochs * rows * points, epochs * 0)

    @property
    def slots(self) -> int:
        """Iterates in the table."""
        return self.sampler.batches.steps if self.by_batch else self.problem.N

    @property
    def table_bytes(self) -> int:
        """Bytes of the table."""
        return self.slots * sum(self.problem.blocks.values()) * np.dtype(self.problem.dtype).itemsize

    def _averaged(self, old, mean, gradient):
        """The update of an iterate (eq. 18)."""
        alpha, step = self.alpha, self.step_size
        return self.problem.backend.tree_map(
            lambda old, mean, g: (1 - alpha) * old + alpha * (mean - step * g), old, mean, gradient
        )

    def _of_batch(self, state, noise):
        backend, share = self.problem.backend, noise.rows / self.problem.N
        old = backend.take(state.table, backend.take(state.place, noise.index[0]))
        new = self._averaged(old, state.params, self.problem.objective_gradient(state.params, noise))
        mean = backend.tree_map(lambda mean, new, old: mean + share * (new - old), state.params, new, old)
        return state._replace(params=mean, written=backend.set_rows(state.written, noise.position, new))

    def _of_rows(self, state, noise):
        backend, xp, share = self.problem.backend, self.problem.backend.xp, noise.rows / self.problem.N

        def of_row(row):
            alone = noise._replace(index=row[None], weight=xp.ones_like(noise.weight[:1]))
            return self.problem.objective_gradient(state.params, alone)

        old, gradients = backend.take(state.table, noise.index), backend.vmap(of_row)(noise.index)
        current = backend.tree_map(lambda leaf: leaf[None, :], state.params)
        new = self._averaged(old, current, gradients)
        # padding repeats the batch's first row, so writes to both must agree
        new = backend.tree_map(lambda new: xp.where((noise.weight > 0)[:, None], new, new[:1]), new)
        mean = backend.tree_map(
            lambda mean, new, old: mean + share * (noise.weight @ (new - old)), state.params, new, old
        )
        return state._replace(params=mean, table=backend.set_rows(state.table, noise.index, new))


def smiso(problem, sampler: Sampler, step_size, alpha: float = 0.9, table: str | None = None) -> Smiso:
    """``w_n <- (1 - alpha) w_n + alpha (w_bar - gamma grad f(w_bar; n, eps))``, with ``w_bar`` the mean of all ``w_n``.

    For a batch, all its rows are updated, each with its own gradient and with the ``eps`` that they share. One step
    moves ``w_bar`` as a step of ``alpha B gamma / N`` of stochastic gradient descent would. It contains
    no estimator for other optimizers: the control ``w_bar - w_n`` has mean zero only under these updates.

    If ``N`` iterates are too many, the data are split once into batches (``vi.batches.fixed``). The mean of a
    batch's iterates then suffices for the same ``w_bar``.

    Args:
        problem: an objective.
        sampler: from ``lowvar.vi.batches``, with batches that cover an epoch.
        step_size: ``gamma``.
        alpha: weight of the new term in an iterate; 1 is MISO without averaging.
        table: ``"rows"`` (``N`` iterates), or ``"batches"`` (``ceil(N / B)``; needs fixed batches, and is the
            default for them).

    Raises:
        UserError: a step size or ``alpha`` out of range, an unknown table, or one that the batches do not allow.

    References:
        Bietti and Mairal, "Stochastic optimization with variance reduction for infinite datasets with finite-sum
        structure", 2017; Wang, Geffner and Domke, 2024, eqs. 18, 19 and 24.
    """
    batches = sampler.batches
    table = table or ("batches" if batches.same else "rows")
    check_known("table", table, TABLES)
    if table == "batches" and not batches.same:
        raise UserError(f"smiso: table 'batches' needs fixed batches, not {batches.name!r}; use table='rows'")
    if not batches.covers:
        raise UserError(f"smiso: {batches.name!r} batches; they must cover an epoch: 'reshuffled' or 'fixed'")
    if not 0 < alpha <= 1:
        raise UserError(f"smiso: alpha = {alpha}; it must be above 0 and at most 1")
    if isinstance(step_size, int | float) and not (step_size > 0 and math.isfinite(step_size)):
        raise UserError(f"step size {step_size}: it must be positive")
    return Smiso(problem, sampler, step_size, alpha, table == "batches")
