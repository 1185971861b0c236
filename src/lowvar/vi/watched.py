"""A run of ``fit`` as it is watched: callback, stopping rule, Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lowvar.core.keys import named_key, numpy_generator
from lowvar.core.loop import Reached, Result
from lowvar.core.optimizers import answer
from lowvar.errors import UserError, kind_of
from lowvar.vi.draws import elbo
from lowvar.vi.run.exact import ExactRun
from lowvar.vi.stopping import LATE

_MARGIN, _ROUNDING = 0.01, 1e-6  # nats, and relative: a smaller difference of two ELBOs decides nothing
Ended = Literal["budget", "converged", "callback", "interrupted"]


@dataclass(frozen=True)
class Evaluation:
    """The argument of a fit's callback, at each evaluation of the ELBO.

    Attributes:
        iteration: updates so far.
        elbo: the ELBO there, nats.
        elbo_se: its standard error, nats.
    """

    iteration: int
    elbo: float
    elbo_se: float
    _params: Callable[[], dict[str, Any]]

    @cached_property
    def params(self) -> dict[str, Any]:
        """The parameters there, as ``Fit.params`` has them."""
        return self._params()


class WatchedRun(ExactRun):
    """One run that may end before its last step.

    It keeps copies of its state at the last two evaluations: the end of the run, wherever that is, and a place before
    it from which other estimators can follow, see ``ExactRun``.

    Args:
        args: as for ``ExactRun``.
        num_steps: updates.
        named: ``parameters of the guide -> Fit.params``, for the callback.
        callback: called with an ``Evaluation``; the run ends if it returns True or raises ``StopIteration``.
        rule: ``(iterations, ELBOs, standard errors) -> bool``: whether the run has converged.
        begun: ``(kept states by epoch, (early, whole), measurements)`` of a run to continue.

    Attributes:
        ended: why the run ended.
    """

    def __init__(
        self,
        *args,
        num_steps: int,
        named: Callable[[Any], dict[str, Any]],
        callback: Callable[[Evaluation], Any] | None = None,
        rule: Callable[[np.ndarray, np.ndarray, np.ndarray], bool] | None = None,
        begun: tuple[dict[int, Any], tuple[int, int], Reached] | None = None,
    ):
        super().__init__(*args, num_steps=num_steps)
        self.ended: Ended = "budget"
        self._named, self._callback, self._rule = named, callback, rule
        self._recent: dict[int, Any] = {}
        self._trail: list[tuple[int, float, float]] = []
        self._late: tuple[int, float, float] | None = None  # as in `_trail`
        self.begun = None
        if begun is not None:
            kept, (early, at), reached = begun
            reached = reached.up_to(at, self.stops)
            self.begun = self.copied(kept[at]), at, reached
            self.early = early if self.early < at else self.early  # its own has passed
            self.kept = {epoch: state for epoch, state in kept.items() if epoch in (self.early, self.whole)}
            self._recent = {at: kept[at]}
            self._trail = [self._row(stop, reached.measured, i) for i, stop in enumerate(reached.stops)]

    def _row(self, position: int, measured, i: Any = ...) -> tuple[int, float, float]:
        value, error = (float(np.squeeze(measured[name][i])) for name in ("elbo", "elbo_se"))
        return min(position * self.steps, self.num_steps), value, error

    def elbo_noise(self, shape) -> np.ndarray:
        """As in ``VariationalEngine``, drawn by NumPy: a program for it would be a tenth of a first fit's time."""
        return (
            numpy_generator(named_key(0, "elbo", self.problem.name)).standard_normal(shape).astype(self.problem.dtype)
        )

    def _make_elbos(self):
        """As in ``VariationalEngine``, by a program that k-hat shares."""
        value, eps = elbo(self.problem), (self.solver.elbo_samples, self.problem.noise_dim)
        eps = self.backend.asarray(self.elbo_noise(eps))

        def of(state):
            return at(state[0].params)

        def at(params):
            params = self.backend.tree_map(lambda leaf: leaf[0, 0], params)
            return tuple(np.full((1, 1), one) for one in value(params, eps))

        self._elbo_at = at
        return of

    def advance(self, state, first: int, count: int):
        """As in ``ExactRun``; the ELBO of a run of one epoch or less is also computed late in it, for ``late_rise``."""
        late = int(LATE * self.num_steps)
        if not count or self.solver.epochs > 1 or not late:
            return super().advance(state, first, count)
        self.keep(state, 0)
        state = self.part(state, 0, 0, late)
        self._late = late, *(float(np.squeeze(one)) for one in self._elbos(state)[:2])
        state = self.part(state, 0, late, self.num_steps)
        self.keep(state, 1)
        return state

    def measure(self, state, position: int):
        """As in ``VariationalEngine``; keeps a copy of the state."""
        values = super().measure(state, position)
        self._trail.append(self._row(position, values))
        if position <= self.whole:
            last = dict(list(self._recent.items())[-1:])
            self._recent = last | {position: self.copied(state)}
        return values

    def finished(self, state) -> bool:
        """Whether the callback or the rule ends the run at this evaluation."""
        iteration, value, error = self._trail[-1]
        final = {block: self.backend.to_numpy(leaf)[0, 0] for block, leaf in state[0].params.items()}
        if self._told(Evaluation(iteration, value, error, lambda: self._named(final))):
            self.ended = "callback"
        elif self._rule is not None and iteration < self.num_steps and self._rule(*np.array(self._trail).T):
            self.ended = "converged"
        return self.ended != "budget"

    def _told(self, evaluation: Evaluation) -> bool:
        """Calls the callback; returns whether it ends the run."""
        if self._callback is None:
            return False
        try:
            answer = self._callback(evaluation)
        except StopIteration:
            return True
        scalar = getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")) in ("bool", "torch.bool")
        if not (scalar or isinstance(answer, bool | None)):
            raise UserError(
                f"callback: it returned {kind_of(answer)}; return True to end the fit, and None or False to continue"
            )
        return bool(answer)

    def better(self, result: Result) -> Result:
        """``result`` with the average of the iterates, unless its ELBO is below that of the last iterate.

        It is below where the average still contains the way to the optimum. The trace is that of the iterates, up to
        the last row, which is about the result.
        """
        state, trace = result.state[0], result.trace.copy()
        if (average := answer(state)) is state.params:
            return result
        value, error = (float(np.squeeze(one)) for one in self._elbo_at(average))
        last = float(trace["elbo"].iloc[-1])
        if not value >= last - max(_MARGIN, _ROUNDING * abs(last)):
            return replace(result, params=self.backend.to_numpy(state.params))
        trace.loc[trace.index[-1], ["elbo", "elbo_se"]] = value, error
        return replace(result, params=self.backend.to_numpy(average), trace=trace)

    def trace(self, stops, measured):
        """As in ``ExactRun``; for a run that ended early, its last step becomes that of the engine."""
        if stops[-1] < self.stops[-1]:
            self.whole, self.num_steps = stops[-1], stops[-1] * self.steps
            known = self._recent | self.kept
            self.early = self.early if self.early in self.kept and self.early < self.whole else min(self._recent)
            self.kept = {epoch: known[epoch] for epoch in (self.early, self.whole)}
        import pandas as pd

        trace = super().trace(stops, measured)
        if self._late is None:
            return trace
        iteration, value, error = self._late
        late = trace.iloc[-1:].assign(iteration=iteration, elbo=value, elbo_se=error)
        return pd.concat([trace.iloc[:-1], late, trace.iloc[-1:]], ignore_index=True)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C was pressed; a second Ctrl-C raises ``KeyboardInterrupt``.

    Python's own handler is replaced only in the main thread, and only where it is in place: a program with a handler of
    its own keeps it.
    """
    pressed: list[int] = []
    own = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not own:
        yield lambda: False
        return

    def first(number, frame):
        pressed.append(number)
        signal.signal(signal.SIGINT, own)

    signal.signal(signal.SIGINT, first)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, own)


ENDED = {
    "converged": ["stop: the ELBO no longer rises"],
    "callback": ["the callback ended the fit"],
}
