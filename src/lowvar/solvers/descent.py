"""Stochastic gradient descent from three independent choices: estimator, sampler, optimizer."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import UserError
from lowvar.estimators.gradient.base import Estimator, Oracles
from lowvar.noise import Noise, Plan, Sampler
from lowvar.problems.rows import rows_of


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


def descend(estimator: Estimator, sampler: Sampler, optimizer) -> Descent:
    """A solver that passes ``estimator``'s gradients under ``sampler``'s noise to ``optimizer``.

    Args:
        estimator: from ``lowvar.estimators.gradient``.
        sampler: from ``lowvar.noise``.
        optimizer: an optax gradient transformation (JAX), or one of ``solvers.optimizer``.

    Raises:
        UserError: the estimator's table, or latent variables of the rows, need batches that cover an epoch, and the
            sampler's do not.
    """
    rows = rows_of(estimator.problem) is not None
    if (estimator.properties.needs_epochs or rows) and not sampler.batches.covers:
        raise UserError(f"{estimator.name}, built for reshuffled batches, cannot use {sampler.batches.name!r} ones")
    if rows:
        from lowvar.solvers.descent_rows import RowDescent

        return RowDescent(estimator, sampler, optimizer)
    return Descent(estimator, sampler, optimizer)
