"""The run of a fit: its settings and state, and a hook for callback, stopping rule, Ctrl-C and copies of the state."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import jax
import numpy as np

from lowvar.core.loop import Hook, Record
from lowvar.core.optimizers import answer
from lowvar.errors import UserError, kind_of, positive
from lowvar.vi.judgement import LATE
from lowvar.vi.run.engine import VariationalEngine
from lowvar.vi.run.settings import Method, Settings

_STEPS = 1000  # minimum number of steps
_WINDOW = 4  # the line is fitted from this fraction of the steps on: two doublings
_POINTS = 7  # minimum number of evaluations in the window
_LEVEL = 0.995  # of the one-sided bound on the slope
# length of the run after the first copy of its state: at least epochs, steps, and 1 / share of the run
_EPOCHS_AFTER, _STEPS_AFTER, _SHARE_AFTER = 3, 200, 10
_MARGIN, _ROUNDING = 0.01, 1e-6  # nats, and relative: a smaller difference of two ELBOs decides nothing
Ended = Literal["budget", "converged", "stuck", "callback", "interrupted"]  # stuck: at fixed draws alone
ENDED = {
    "converged": ["stop: the ELBO no longer rises"],
    "callback": ["the callback ended the fit"],
}


@dataclass(frozen=True)
class FitRun:
    """The settings of a fit and its estimator's memory, from which ``decompose`` and ``Fit.resume`` continue.

    Attributes:
        method: the estimator with its options.
        settings: optimizer, noise and length.
        num_steps: updates.
        seed: seed of its noise.
        name: name under which its noise was drawn.
        khat_samples: draws for k-hat, as given to ``fit``.
        epochs: ``(early, whole)``: epochs at which the state was copied, see ``Watch``.
        copies: the copies, ``{epoch: state of the engine}``.
        stops: the positions that were measured, ascending, up to the end of the run; none before it begins.
        measured: the measurements there, arrays by name, with the stops as leading axis.
        ended: why it ended: ``budget`` (all steps), ``converged`` (``stop``), ``callback`` or ``interrupted`` (Ctrl-C).
    """

    method: Method
    settings: Settings
    num_steps: int
    seed: int
    name: str
    khat_samples: int | None = None
    epochs: tuple[int, int] = (0, 0)
    copies: Mapping[int, Any] = field(default_factory=dict)
    stops: tuple[int, ...] = ()
    measured: Mapping[str, np.ndarray] = field(default_factory=dict)
    ended: Ended = "budget"

    @property
    def memory(self):
        """The estimator's state at the end of the last whole epoch."""
        return jax.tree.map(lambda leaf: leaf[0, 0], self.copies[self.epochs[1]][0].estimator)


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


def call_back(callback: Callable[[Evaluation], Any] | None, evaluation: Evaluation) -> bool:
    """Calls a fit's callback, if there is one; returns whether it ends the fit."""
    if callback is None:
        return False
    try:
        answer = callback(evaluation)
    except StopIteration:
        return True
    scalar = getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")) in ("bool", "torch.bool")
    if not (scalar or isinstance(answer, bool | None)):
        raise UserError(
            f"callback: it returned {kind_of(answer)}; return True to end the fit, and None or False to continue"
        )
    return bool(answer)


class Watch(Hook):
    """What ends the run of a fit before its last step, and copies of its state.

    An estimator's memory is complete only between epochs. The state is therefore copied after the last complete epoch,
    and once some epochs earlier, from where other estimators can follow the run; and at the last two evaluations, of
    which one is the end of a run that ends early.

    Args:
        engine: of the run, with ``num_steps``.
        run: the run, whose state it continues.
        named: ``parameters of the guide -> Fit.params``, for the callback.
        callback: called with an ``Evaluation``; the run ends if it returns True or raises ``StopIteration``.
        rule: ``(iterations, ELBOs, standard errors) -> bool``: whether the run has converged.
        pressed: whether Ctrl-C was pressed.

    Attributes:
        record: the measurements.
        origin: state and position to begin from.
        stops: positions at which the run is measured or its state is copied.
        num_steps: updates, those made once the run has ended.
        whole: number of complete epochs.
        early: epoch of the first copy.
        copies: the copies, ``{epoch: state}``, at ``early`` and ``whole`` after a run.
        ended: why the run ended.
    """

    def __init__(
        self, engine: VariationalEngine, run: FitRun, named: Callable[[Any], dict[str, Any]],
        callback: Callable[[Evaluation], Any] | None = None,
        rule: Callable[[np.ndarray, np.ndarray, np.ndarray], bool] | None = None,
        pressed: Callable[[], bool] = lambda: False,
    ):  # fmt: skip
        self._engine, self._named, self._callback, self._rule, self._pressed = engine, named, callback, rule, pressed
        self.num_steps, self.whole, steps = run.num_steps, run.num_steps // engine.steps, engine.steps
        self.early = max(0, self.whole - max(_EPOCHS_AFTER, -(-_STEPS_AFTER // steps), self.whole // _SHARE_AFTER))
        self.ended: Ended = "budget"
        self.copies: dict[int, Any] = {}
        self._recent: dict[int, Any] = {}
        self._late: list[tuple[int, float, float]] = []  # iteration, ELBO and its standard error
        measure = np.errstate(invalid="ignore")(engine.measure)  # of ELBOs that are not finite, which the trace shows
        self.record = Record(measure, engine.stops)
        self.origin: tuple[Any, int | None]
        if not run.stops:
            self.origin = engine.init(), None
        else:
            early, at = run.epochs
            self.origin = self._copied(run.copies[at]), at
            self.early = early if self.early < at else self.early  # its own has passed
            self.copies = {epoch: state for epoch, state in run.copies.items() if epoch in (self.early, self.whole)}
            self._recent = {at: run.copies[at]}
            passed = [i for i, stop in enumerate(run.stops) if stop <= at and stop in engine.stops]
            measured = {name: array[passed] for name, array in run.measured.items()}
            self.record.restore([run.stops[i] for i in passed], measured)
        self.stops = sorted({*engine.stops, self.early, self.whole})

    def _copied(self, state):
        """A copy of a state, whose own memory the loop reuses."""
        backend = self._engine.backend
        return backend.tree_map(partial(backend.xp.asarray, copy=True), state)

    def step(self, state, first: int, count: int):
        """As the engine's ``advance``; the ELBO of a run of one epoch or less is also computed late in it."""
        late = int(LATE * self.num_steps)
        if not count or self._engine.settings.epochs > 1 or not late:
            return self._engine.advance(state, first, count)
        state = self._engine.cut(state, 0, 0, late)
        self._late = [(late, *self._elbo(state[0].params))]
        return self._engine.cut(state, 0, late, self.num_steps)

    def _elbo(self, params) -> tuple[float, float]:
        """The ELBO and its standard error."""
        value, error = (float(np.squeeze(one)) for one in self._engine.elbos(params))
        return value, error

    def halts(self):
        """Whether Ctrl-C was pressed."""
        return self._pressed()

    def on_stop(self, state, at, halted):
        """Copies the state."""
        if at in (self.early, self.whole):
            self.copies[at] = self._copied(state)
        if at == self.record.at[-1] and at <= self.whole and at not in self._recent:
            last = dict(list(self._recent.items())[-1:])
            self._recent = last | {at: self._copied(state)}

    def ends(self, state, at):
        """Whether the callback or the rule ends the run at this evaluation."""
        if at != self.record.at[-1]:  # nothing was measured, the state was copied
            return False
        iteration, value, error = (rows := self._rows())[-1]
        final = {block: self._engine.backend.to_numpy(leaf)[0, 0] for block, leaf in state[0].params.items()}
        if call_back(self._callback, Evaluation(iteration, value, error, lambda: self._named(final))):
            self.ended = "callback"
        elif self._rule is not None and iteration < self.num_steps and self._rule(*np.array(rows).T):
            self.ended = "converged"
        return self.ended != "budget"

    def _rows(self) -> list[tuple[int, float, float]]:
        """Iteration, ELBO and its standard error at each evaluation."""
        steps, record = self._engine.steps, self.record
        return [
            (min(at * steps, self.num_steps), float(np.squeeze(one["elbo"])), float(np.squeeze(one["elbo_se"])))
            for at, one in zip(record.at, record.measured, strict=True)
        ]

    def close(self, at: int) -> None:
        """Settles where the run ended: if early, its last step becomes that of the run."""
        if at == self._engine.stops[-1]:
            return
        if self._pressed():
            self.ended = "interrupted"
        self.whole, self.num_steps = at, at * self._engine.steps
        copies = self._recent | self.copies
        self.early = self.early if self.early in self.copies and self.early < self.whole else min(self._recent)
        self.copies = {epoch: copies[epoch] for epoch in (self.early, self.whole)}

    def trace(self):
        """The ELBOs of the iterates: a table with columns ``iteration, elbo, elbo_se``."""
        import pandas as pd

        rows = self._rows()
        return pd.DataFrame([*rows[:-1], *self._late, rows[-1]], columns=["iteration", "elbo", "elbo_se"])

    def result(self, state) -> tuple[dict[str, np.ndarray], Any]:
        """The parameters of the guide by block, and the trace, whose last row is about them.

        They are the average of the iterates, unless its ELBO is below that of the last iterate, as where the average
        still contains the way to the optimum.
        """
        (state,), trace, backend = state, self.trace(), self._engine.backend
        if (params := answer(state)) is not state.params:
            value, error = self._elbo(params)
            last = float(trace["elbo"].iloc[-1])
            if value >= last - max(_MARGIN, _ROUNDING * abs(last)):
                trace.loc[trace.index[-1], ["elbo", "elbo_se"]] = value, error
            else:
                params = state.params
        return {block: leaf[0, 0] for block, leaf in backend.to_numpy(params).items()}, trace


@dataclass(frozen=True)
class Plateau:
    """Whether a doubling of the steps would raise the ELBO by less than can be told from its noise.

    A straight line in ``log2`` of the steps is fitted to the evaluations of the last two doublings, from a quarter of
    the steps on. The trace has reached a plateau if the upper 99.5 % bound of its slope, by Student's t on the
    residuals, is below ``rise``. The residuals contain the fluctuations of the iterates, so where these are large the
    rule does not stop: a smaller or decaying step size is then the remedy. A trace that rises again after a plateau of
    two doublings, as from a saddle point, is stopped there; docs/life-of-a-fit.md counts such stops.

    Attributes:
        rise: nats for a doubling of the steps; the standard error of the last ELBO if not given.
    """

    rise: float | None = None

    def __call__(self, iterations: np.ndarray, elbo: np.ndarray, elbo_se: np.ndarray) -> bool:
        """Whether the trace ``(n,)`` has reached a plateau at its last evaluation."""
        from scipy import stats

        last = iterations[-1]
        inside = iterations >= last / _WINDOW
        n = int(inside.sum())
        if last < _STEPS or n < _POINTS or not np.isfinite(elbo[inside]).all():
            return False
        x, y = np.log2(iterations[inside]), elbo[inside]
        x = x - x.mean()
        slope = x @ y / (x @ x)
        residuals = y - y.mean() - slope * x
        error = np.sqrt(residuals @ residuals / (n - 2) / (x @ x))
        most = elbo_se[-1] if self.rise is None else self.rise
        return bool(slope + stats.t.ppf(_LEVEL, n - 2) * error < most)


def rule_of(stop: bool | float | None) -> Plateau | None:
    """The rule of ``fit``'s argument ``stop``; None without one.

    Raises:
        UserError: neither True nor False, nor a positive number.
    """
    if stop is None or isinstance(stop, bool | np.bool_):
        return Plateau() if stop else None
    if callable(stop) or isinstance(stop, str):
        raise UserError(
            f"stop = {stop!r}: give True, False, or the rise in nats that still counts; for a rule of your own, "
            "use callback"
        )
    return Plateau(positive("stop", stop))


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
