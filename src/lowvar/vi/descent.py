"""Stochastic gradient descent from three independent choices: estimator, sampler, optimizer."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError
from lowvar.vi.batches import Noise, Plan, Sampler
from lowvar.vi.estimators.base import Estimator, Oracles
from lowvar.vi.rows import OfBatch, rows_of


class DescentState(NamedTuple):
    """The state of a descent.

    Attributes:
        params: the guide's parameters.
        estimator: the estimator's state.
        optimizer: the optimizer's state.
    """

    params: Any
    estimator: Any
    optimizer: Any


@dataclass(frozen=True)
class Descent:
    """A solver made of pure functions; its methods can be vectorised over runs."""

    estimator: Estimator
    sampler: Sampler
    optimizer: Any

    def init(self, params) -> DescentState:
        """The state before the first epoch."""
        return DescentState(params, self.estimator.init(params), self.optimizer.init(params))

    def idle(self, params) -> DescentState:
        """The same, complete only once the first epoch has begun, see ``Estimator``."""
        start = self.estimator.idle or self.estimator.init
        return DescentState(params, start(params), self.optimizer.init(params))

    def begin_epoch(self, state: DescentState) -> DescentState:
        """Prepares an epoch."""
        return state._replace(estimator=self.estimator.begin_epoch(state.estimator, state.params))

    def end_epoch(self, state: DescentState, index) -> DescentState:
        """Closes an epoch whose batches were ``index (steps, B)``."""
        return state._replace(estimator=self.estimator.end_epoch(state.estimator, index))

    def step(self, state: DescentState, noise: Noise):
        """One update."""
        gradient, estimator = self.estimator.estimate(state.estimator, state.params, noise)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        params = self.estimator.problem.backend.tree_map(lambda p, u: p + u, state.params, updates)
        return DescentState(params, estimator, optimizer)

    def epoch(self, state: DescentState, noise: Noise | Plan) -> DescentState:
        """The updates of an epoch with noise ``sampler.epoch(key)`` or its plan, in a scan or a loop."""
        return self.end_epoch(self.steps(self.begin_epoch(state), noise), noise.index)

    def steps(self, state: DescentState, noise: Noise | Plan, part: Any = None) -> DescentState:
        """Successive updates, or those of ``part = (first, end)``, numbers that JAX may trace."""
        scan = self.estimator.problem.backend.scan_or_loop
        return scan(lambda state, batch: self.step(state, self.sampler.drawn(batch)), state, noise, part)

    def oracles_of_run(self, epochs, rows: int, points: int) -> Oracles:
        """Oracle calls of a run's first ``epochs`` epochs, see ``Estimator``."""
        return self.estimator.oracles_of_run(epochs, rows, points, self.sampler.batches.steps)

    @property
    def table_bytes(self) -> int:
        """Bytes of the estimator's table of parameter vectors."""
        problem, declared = self.estimator.problem, self.estimator.properties
        length = sum(list(problem.blocks.values())[: declared.table_blocks])
        return declared.table_rows * length * np.dtype(problem.dtype).itemsize


class RowDescent(Descent):
    """A solver whose steps compute with the rows of their batch only; its estimator is of an ``OfBatch``.

    States have the coordinates of all rows: every vector of that length, such as a moment, is divided by rows.

    An epoch visits each row once. The state of the rows, in the order of the epoch's batches, is therefore the
    input of a loop, and their new state its output: the work of a step does not depend on the number of rows.

    **Convention.** The gradient is unbiased for that of the whole ELBO: a batch's rows count ``N / B`` times, all
    others have gradient zero. ``adam`` moves a row at its visits, which it counts row by row, see ``row_adam``.
    With a transformation of optax, the convention is that of PyTorch's ``SparseAdam``: averages of a row's
    gradients change at its visits only, while the count of steps, which corrects their bias and drives schedules,
    is that of the run. Rows that are visited a few dozen times then move far less than under dense Adam.
    """

    @property
    def _problem(self) -> OfBatch:
        return self.estimator.problem  # type: ignore[return-value]

    def step(self, state: DescentState, noise: Noise) -> DescentState:
        """One update."""
        return self.steps(state, jax.tree.map(lambda leaf: leaf[None], noise))

    def steps(self, state: DescentState, noise: Noise | Plan, part: Any = None) -> DescentState:
        """Successive updates, or those of ``part``, see ``Descent``."""
        rows, backend = self._problem.rows, self._problem.backend
        leaves, tree = jax.tree.flatten(state)
        local = [leaf.shape == (rows.dim,) for leaf in leaves]
        shared, own = jnp.asarray(rows.shared), jnp.asarray(rows.own)[noise.index]  # (D,), (steps, B, d)

        def body(carried, batch):
            (carried, mine), (t, noise) = carried, batch
            before = iter(mine)
            here = [
                rows.joined(leaf, next(before)[t]) if one else leaf for one, leaf in zip(local, carried, strict=True)
            ]
            moved = self._moved(jax.tree.unflatten(tree, here), self.sampler.drawn(noise))
            pairs = list(zip(local, jax.tree.leaves(moved), strict=True))
            after = [rows.own_of(v) for one, v in pairs if one]
            return [rows.shared_of(v) if one else v for one, v in pairs], backend.set_rows(mine, t, after)

        carried = [leaf[shared] if one else leaf for one, leaf in zip(local, leaves, strict=True)]
        mine = [leaf[own] for one, leaf in zip(local, leaves, strict=True) if one]
        times = jnp.arange(len(noise.index))
        carried, mine = backend.scan_or_loop(body, (carried, mine), (times, noise), part)
        # padding repeats a row that the batch has already: it is not written
        to, mine = jnp.where((noise.weight > 0)[..., None], own, rows.dim), iter(mine)
        moved = [
            old.at[shared].set(new).at[to].set(next(mine), mode="drop") if one else new
            for one, old, new in zip(local, leaves, carried, strict=True)
        ]
        return jax.tree.unflatten(tree, moved)

    def _moved(self, state: DescentState, noise: Noise) -> DescentState:
        """One update of the state of a batch."""
        problem = self._problem
        gradient, estimator = self.estimator.estimate(state.estimator, state.params, noise)
        counted = problem.rows.by_row(problem.N * noise.weight)
        gradient = jax.tree.map(lambda g: g * counted, gradient)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        params = jax.tree.map(lambda p, u: p + u, state.params, updates)
        return DescentState(params, estimator, optimizer)


def descend(estimator: Estimator, sampler: Sampler, optimizer) -> Descent:
    """A solver that passes ``estimator``'s gradients under ``sampler``'s noise to ``optimizer``.

    Args:
        estimator: from ``lowvar.vi.estimators``.
        sampler: from ``lowvar.vi.batches``.
        optimizer: an optax gradient transformation (JAX), or one of ``solvers.optimizer``.

    Raises:
        UserError: the estimator's table, or latent variables of the rows, need batches that cover an epoch, and the
            sampler's do not.
    """
    rows = rows_of(estimator.problem) is not None
    if (estimator.properties.needs_epochs or rows) and not sampler.batches.covers:
        raise UserError(f"{estimator.name}, built for reshuffled batches, cannot use {sampler.batches.name!r} ones")
    if rows:
        return RowDescent(estimator, sampler, optimizer)
    return Descent(estimator, sampler, optimizer)
