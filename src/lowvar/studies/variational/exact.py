"""A run of exactly so many steps, which keeps copies of its state to look at later."""

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.studies.variational import programs
from lowvar.studies.variational.engine import VariationalEngine

_EPOCHS, _STEPS, _SHARE = 3, 200, 10  # of the end of a run: epochs and steps at least, and one part in so many


class ExactRun(VariationalEngine):
    """One run in JAX whose last epoch may be cut short.

    A memory is complete between epochs only. So the state is kept at the end of the last whole epoch; and once more
    some epochs earlier, so that other estimators can run along from there.

    Args:
        problem: as of ``VariationalEngine``.
        make_solver: the same.
        solver: the same; one step size, one repetition, and as many epochs as ``num_steps`` begin.
        keys: the same.
        starts: the same.
        num_steps: updates.

    Attributes:
        whole: epochs that are complete.
        early: the epoch at which the state is kept for the first time.
        kept: the states, ``{epoch: state}``; ``early`` and ``whole`` after a run.
    """

    def __init__(self, problem, make_solver, solver, keys, starts, *, num_steps: int):
        super().__init__(problem, make_solver, solver, keys, starts)
        self.num_steps, self.whole = num_steps, num_steps // self.steps
        self._rest = num_steps - self.whole * self.steps
        self.early = max(0, self.whole - max(_EPOCHS, -(-_STEPS // self.steps), self.whole // _SHARE))
        self.kept = {}

    def advance(self, state, first: int, count: int):
        """As of ``VariationalEngine``."""
        if count == 0:
            return super().advance(state, first, 0) if self.whole else state
        end = first + count
        self._keep(state, first)
        for stop in sorted({self.early, min(end, self.whole)}):
            if first < stop <= end:
                state = super().advance(state, first, stop - first)
                first = stop
                self._keep(state, first)
        return self._cut(state) if end > self.whole else state

    def _keep(self, state, epoch):
        if epoch in (self.early, self.whole):
            self.kept[epoch] = jax.tree.map(jnp.copy, state)  # the loop's own are given away

    def _cut(self, state):
        """The first steps of an epoch that is not completed."""
        moved = []
        for part, (sizes, repetitions) in zip(state, self.parts, strict=True):
            sampler = self.sampler_of(self.particles(self.whole, part))
            at = self._make_solver(sampler)

            def some(setting, state, noise, at=at):
                return at(setting).some(state, jax.tree.map(lambda leaf: leaf[: self._rest], noise))

            mapped = programs.mapped(self.backend, some, programs.RUNS, programs.noise_axes(sampler))
            noise = programs.draw(sampler, self.keys[repetitions], self.whole)
            moved.append(jax.jit(mapped)(self._settings(sizes), part, noise))
        return moved

    def trace(self, stops, measured):
        """As of ``VariationalEngine``."""
        found = super().trace(stops, measured)
        return found.assign(iteration=np.minimum(found["iteration"], self.num_steps))
