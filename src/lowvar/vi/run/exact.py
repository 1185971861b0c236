"""A run with a given number of steps that keeps copies of its state."""

from functools import partial

import numpy as np

from lowvar.vi.run.engine import VariationalEngine

_EPOCHS, _STEPS, _SHARE = 3, 200, 10  # length after the first copy: at least epochs, steps, and 1 / share of the run


class ExactRun(VariationalEngine):
    """One run whose last epoch may be partial.

    An estimator's memory is complete only between epochs. The state is therefore copied after the last complete epoch,
    and once some epochs earlier, from where other estimators can follow the run.

    Args:
        problem: as for ``VariationalEngine``.
        make_solver: as for ``VariationalEngine``.
        solver: one step size, one repetition, and as many epochs as ``num_steps`` begin.
        keys: as for ``VariationalEngine``.
        starts: as for ``VariationalEngine``.
        num_steps: updates.

    Attributes:
        whole: number of complete epochs.
        early: epoch of the first copy.
        kept: the copies, ``{epoch: state}``, at ``early`` and ``whole`` after a run.
    """

    cuts = True

    def __init__(self, problem, make_solver, solver, keys, starts, *, num_steps: int):
        super().__init__(problem, make_solver, solver, keys, starts)
        self.num_steps, self.whole = num_steps, num_steps // self.steps
        self._rest = num_steps - self.whole * self.steps
        self.early = max(0, self.whole - max(_EPOCHS, -(-_STEPS // self.steps), self.whole // _SHARE))
        self.kept = {}

    def first(self, solver):
        """As in ``VariationalEngine``, without what the beginning of an epoch computes anew."""
        return getattr(solver, "idle", solver.init)

    def advance(self, state, first: int, count: int):
        """As in ``VariationalEngine``."""
        if count == 0:
            return super().advance(state, first, 0) if self.whole else state
        end = first + count
        self.keep(state, first)
        for stop in sorted({self.early, min(end, self.whole)}):
            if first < stop <= end:
                state = super().advance(state, first, stop - first)
                first = stop
                self.keep(state, first)
        return self.part(state, self.whole, 0, self._rest) if end > self.whole else state

    def keep(self, state, epoch: int):
        """Copies the state, if the epoch is one of ``early`` and ``whole``."""
        if epoch in (self.early, self.whole):
            self.kept[epoch] = self.copied(state)

    def copied(self, state):
        """A copy of a state, whose own memory the loop reuses."""
        return self.backend.tree_map(partial(self.backend.xp.asarray, copy=True), state)

    def part(self, state, epoch: int, first: int, last: int):
        """The state after the steps ``first`` to ``last - 1`` of an epoch."""
        moved = []
        for part, (sizes, repetitions) in zip(state, self.parts, strict=True):
            program = self._program(self.particles(epoch, part))
            moved.append(program.cut(part, self._settings(sizes), self.keys[repetitions], epoch, first, last))
        return moved

    def trace(self, stops, measured):
        """As in ``VariationalEngine``."""
        trace = super().trace(stops, measured)
        return trace.assign(iteration=np.minimum(trace["iteration"], self.num_steps))
