"""The loop of a run with its hooks, and the runs of a job: measured, saved, and resumed with identical results."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lowvar.core import artifact
from lowvar.core.files import sweep

_SAVING = 20  # seconds of work for each second of saving
_CHUNK_SECONDS = 2.0  # between opportunities to write a checkpoint; does not affect the results


class Hook:
    """What accompanies a run, between its steps; a subclass has the methods that it needs.

    A position ``at`` is an epoch, an iteration, or another count.
    """

    def on_compile(self, at: int, seconds: float) -> None:
        """The run's programs were compiled; it begins at a position."""

    def on_advance(self, at: int, count: int, seconds: float) -> None:
        """The run passed ``count`` positions, in so many seconds, and stands at ``at``."""

    def halts(self) -> bool:
        """Whether the run is to end where it stands; asked every few seconds."""
        return False

    def on_stop(self, state: Any, at: int, halted: bool) -> None:
        """The run is at a stop, or ``halted`` between stops."""

    def ends(self, state: Any, at: int) -> bool:
        """Whether the run is to end at this stop; asked once ``on_stop`` of all hooks was called."""
        return False

    def rests(self, state: Any, at: int) -> None:
        """The run goes on from here."""


def run(
    step: Callable[[Any, int, int], Any], state: Any, stops: Sequence[int], hooks: Sequence[Hook], at: int | None = None
) -> tuple[Any, int]:
    """Advances a state from stop to stop, to the last one or to where a hook ends the run.

    Args:
        step: ``(state, first, count) -> state`` at ``first + count``, once it is computed; it may reuse the memory of
            the state that it is given. A count of 0 compiles and changes nothing.
        state: the first one.
        stops: positions, ascending.
        hooks: called in this order.
        at: the position of ``state``, of which a stop has passed; None for a run that begins.

    Returns:
        The last state, and its position.
    """
    done, chunk, timed = at or 0, 1, _timed(step)
    state, seconds = timed(state, done, 0)
    for hook in hooks:
        hook.on_compile(done, seconds)
    for stop in stops:
        if at is not None and stop <= at:
            continue
        while done < stop and not any(hook.halts() for hook in hooks):
            count = min(chunk, stop - done)
            state, seconds = timed(state, done, count)
            done += count
            if seconds > _CHUNK_SECONDS:
                chunk = max(1, chunk // 2)
            elif seconds < _CHUNK_SECONDS / 2:
                chunk *= 2
            for hook in hooks:
                hook.on_advance(done, count, seconds)
            if done < stop:
                for hook in hooks:
                    hook.rests(state, done)
        for hook in hooks:
            hook.on_stop(state, done, done < stop)
        if done < stop or any(hook.ends(state, done) for hook in hooks):
            break
        if done < stops[-1]:
            for hook in hooks:
                hook.rests(state, done)
    return state, done


def _timed(step):
    """``step``, which also returns the seconds that it took."""

    def timed(*args):
        start = time.perf_counter()
        state = step(*args)
        return state, time.perf_counter() - start

    return timed


def geometric(end: int, per_decade: int = 12) -> list[int]:
    """Positions at which runs are measured: the start, the end, and a geometric grid between.

    >>> geometric(20, per_decade=3)
    [0, 1, 2, 5, 10, 20]
    """
    grid = np.round(10 ** np.arange(0, np.log10(max(end, 1)) + 1 / per_decade, 1 / per_decade)).astype(int)
    return sorted({0, end, *(int(e) for e in grid if e < end)})


# --- hooks -----------------------------------------------------------------------------------------------------------


class Record(Hook):
    """Measurements at stops, and the seconds of the steps up to there.

    Args:
        measure: ``(state, position) -> arrays by name``, of fixed shapes.
        stops: the positions that are measured, besides the one where a run halts.
        finished: ``state -> bool``: whether the run can end at this stop.

    Attributes:
        at: the positions that were measured, ascending.
        measured: the measurements there.
        laps: seconds of all steps up to there.
        total: seconds of all steps.
        compile: seconds of compilation.
    """

    def __init__(self, measure, stops: Sequence[int], finished: Callable[[Any], bool] = lambda state: False):
        self._measure, self._stops, self._finished = measure, frozenset(stops), finished
        self.at: list[int] = []
        self.measured: list[dict[str, np.ndarray]] = []
        self.laps: list[float] = []
        self.total, self.compile = 0.0, 0.0

    def on_compile(self, at, seconds):
        """Adds the seconds."""
        self.compile += seconds

    def on_advance(self, at, count, seconds):
        """Adds the seconds."""
        self.total += seconds

    def on_stop(self, state, at, halted):
        """Measures, once at each position."""
        if (halted or at in self._stops) and (not self.at or at > self.at[-1]):
            self.measured.append(self._measure(state, at))
            self.at.append(at)
            self.laps.append(self.total)

    def ends(self, state, at):
        """Whether the run is finished."""
        return self._finished(state)

    def stacked(self) -> dict[str, np.ndarray]:
        """The measurements by name, with the positions as leading axis."""
        return {name: np.array([one[name] for one in self.measured]) for name in self.measured[0]}

    def restore(self, at: list[int], stacked: dict[str, np.ndarray], laps=None, total=0.0, compile=0.0) -> None:
        """Continues the record of another run."""
        self.at = list(at)
        self.measured = [{name: array[i] for name, array in stacked.items()} for i in range(len(at))]
        self.laps = [0.0] * len(at) if laps is None else [float(lap) for lap in laps]
        self.total, self.compile = float(total), float(compile)


class Progress(Hook):
    """Calls ``tick`` with the number of positions just passed."""

    def __init__(self, tick: Callable[[int], Any]):
        self._tick = tick

    def on_compile(self, at, seconds):
        """Passes on where a resumed run begins."""
        if at:
            self._tick(at)

    def on_advance(self, at, count, seconds):
        """Passes on the count."""
        self._tick(count)


class Checkpoint(Hook):
    """A file with the state of a job's runs, from which a killed job continues and ends with the same bytes.

    Args:
        path: the file.
        mark: the artifact stamp that ties it to its spec and data.
        every: minimum time between two writes, in seconds.
        runs: the ``Runs``.
        record: of the measurements, which the file has too.
    """

    def __init__(self, path: Path, mark, every: float, runs: "Runs", record: Record):
        self._path, self._mark, self._every, self._runs, self._record = path, mark, every, runs, record
        self._saved, self._pause = time.monotonic(), every

    def read(self) -> tuple[Any, int] | None:
        """The state and its position; None if there is no file, or if its spec, data or versions differ."""
        sweep(self._path.parent, self._path.name)
        if (arrays := artifact.read_checkpoint(self._path, self._mark)) is None:
            return None
        fresh = self._runs.flatten(self._runs.init())
        leaves = [arrays[name] for i in range(len(arrays)) if (name := f"leaf{i}") in arrays]
        fits = fresh is not None and [(a.shape, a.dtype) for a in leaves] == [(a.shape, a.dtype) for a in fresh]
        if not fits or not _of_a_run(arrays, self._runs.stops):
            self._path.unlink()  # of another layout, as another commit of lowvar may have written it
            return None
        done, prefix = int(arrays["done"]), "measured_"
        measured = {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}
        passed = [stop for stop in self._runs.stops if stop <= done]
        self._record.restore(passed, measured, arrays["laps"], *arrays["clock"])
        return self._runs.unflatten(leaves), done

    def on_compile(self, at, seconds):
        """Counts the time from here."""
        self._saved = time.monotonic()

    def rests(self, state, at):
        """Writes the file if it is time: a large state is saved less often."""
        if (start := time.monotonic()) - self._saved > self._pause:
            self.save(state, at)
            self._saved = time.monotonic()
            self._pause = self._every and max(self._every, _SAVING * (self._saved - start))

    def save(self, state, at) -> None:
        """Writes the file, unless the state cannot be stored."""
        if (leaves := self._runs.flatten(state)) is None:
            return
        record = self._record
        clock = np.array([record.total, record.compile])
        arrays = {"done": np.array(at), "clock": clock, "laps": np.array(record.laps)}
        arrays |= {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
        arrays |= {f"measured_{name}": array for name, array in record.stacked().items()}
        artifact.write_arrays(self._path, arrays, self._mark)


def _of_a_run(arrays, stops) -> bool:
    """Whether the arrays of a checkpoint, besides the state, are those of a run with these stops."""
    forms = {"done": ((), "iu"), "clock": ((2,), "f"), "laps": (arrays.get("laps", np.zeros(0)).shape[:1], "f")}
    for name, (shape, kinds) in forms.items():
        if name not in arrays or arrays[name].shape != shape or arrays[name].dtype.kind not in kinds:
            return False
    measured = [array for name, array in arrays.items() if name.startswith("measured_")]
    passed = sum(stop <= arrays["done"] for stop in stops)
    return 0 <= arrays["done"] <= stops[-1] and all(one.shape[:1] == (passed,) for one in (arrays["laps"], *measured))


# --- the runs of a job -----------------------------------------------------------------------------------------------


class Runs(Protocol):
    """Many simultaneous runs of one method, as the jobs of experiments have them.

    Attributes:
        stops: positions at which the runs are measured, ascending; the last is the end.
        runs: number of runs.
        backend: of the state's arrays, for ``flatten``.
    """

    stops: list[int]
    runs: int
    backend: Any = None

    def init(self) -> Any:
        """The state of all runs at position 0."""
        ...

    def advance(self, state: Any, first: int, count: int) -> Any:
        """The ``step`` of the loop ``run``."""
        ...

    def measure(self, state: Any, position: int) -> dict[str, np.ndarray]:
        """The trace's measurements at a stop, as arrays of fixed shapes."""
        ...

    def finished(self, state: Any) -> bool:
        """Whether the run can end at this stop because further steps would add no information."""
        return False

    def close(self) -> None:
        """Frees what the programs hold open: the run has ended."""

    def trace(self, stops: list[int], measured: dict[str, np.ndarray]) -> Any:
        """The trace, from the stacked measurements at ``stops``."""
        ...

    def work(self, stops: list[int]) -> dict[str, Any]:
        """Columns of the timing with the work done by each of ``stops``."""
        ...

    def params(self, state: Any, measured: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Final parameters of the runs, from the last state and the stacked measurements."""
        ...

    def flatten(self, state: Any) -> list[np.ndarray] | None:
        """The state's arrays in a fixed order, or None if the state cannot be stored."""
        return self.backend.leaves(state)

    def unflatten(self, leaves: list[np.ndarray]) -> Any:
        """The state with the arrays ``leaves``."""
        return self.backend.rebuilt(leaves, self.init())


@dataclass(frozen=True)
class Result:
    """The result of a job's runs.

    Attributes:
        trace: a row per run and stop; see: lowvar schema --page.
        timing: a row per stop: seconds.
        params: final parameters of the runs, arrays by name.
        state: their final state.
    """

    trace: Any
    timing: Any
    params: dict[str, np.ndarray]
    state: Any


def complete(
    runs: Runs, *, progress: Callable[[int], Any] | None = None, checkpoint: Path | None = None, mark=None,
    every: float = 10.0,
) -> Result:  # fmt: skip
    """Runs a job to its end.

    Args:
        runs: the job's runs.
        progress: called with the number of positions just passed.
        checkpoint: file for the state, which the caller removes at the end. If it exists and carries ``mark``, the run
            resumes from it and ends with the same bytes as an uninterrupted one.
        mark: the artifact stamp that ties a checkpoint to its spec and data.
        every: minimum time between checkpoints, in seconds.
    """
    import pandas as pd

    record = Record(runs.measure, runs.stops, runs.finished)
    hooks: list[Hook] = [record, *([Progress(progress)] if progress else [])]
    saved = None
    with contextlib.closing(runs):
        if checkpoint is not None:
            hooks.append(saving := Checkpoint(checkpoint, mark, every, runs, record))
            saved = saving.read()
        state, at = saved or (runs.init(), None)
        state, _ = run(runs.advance, state, runs.stops, hooks, at)
    stacked, seconds = record.stacked(), np.array(record.laps)
    timing = pd.DataFrame({**runs.work(record.at), "seconds": seconds, "seconds_per_run": seconds / runs.runs})
    timing["compile_seconds"] = record.compile
    return Result(runs.trace(record.at, stacked), timing, runs.params(state, stacked), state)
