"""The loop: advance, measure, checkpoint, and resume from a checkpoint with identical results."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lowvar.core import artifact
from lowvar.core.files import sweep

_SAVING = 20  # seconds of work for each second of saving
_CHUNK_SECONDS = 2.0  # between opportunities to write a checkpoint; does not affect the results


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        trace: a row per run and stop; see: lowvar schema --page.
        timing: a row per stop: seconds.
        params: final parameters of the runs, arrays by name.
        state: final state of the solver, for all runs.
        reached: where the run stands, from which another one can continue.
    """

    trace: Any
    timing: Any
    params: dict[str, np.ndarray]
    state: Any
    reached: "Reached"


@dataclass(frozen=True)
class Reached:
    """The measured part of a run.

    Attributes:
        stops: the positions that were measured, ascending; the last is the end of the run.
        measured: the measurements there, arrays by name, with the stops as leading axis.
    """

    stops: list[int]
    measured: dict[str, np.ndarray]

    def up_to(self, position: int, stops: list[int]) -> "Reached":
        """The measurements at those of ``stops`` that are not behind ``position``."""
        kept = [i for i, stop in enumerate(self.stops) if stop <= position and stop in stops]
        return Reached([self.stops[i] for i in kept], {name: of[kept] for name, of in self.measured.items()})


class Engine(Protocol):
    """Interface of the loop to many simultaneous runs of one method; a position is an epoch or an iteration.

    Attributes:
        stops: positions at which runs are measured, ascending; the last is the end.
        runs: number of runs.
    """

    stops: list[int]
    runs: int

    def init(self) -> Any:
        """The state of all runs at position 0."""
        ...

    def advance(self, state: Any, first: int, count: int) -> Any:
        """The state at ``first + count``; a count of 0 compiles and leaves the state unchanged."""
        ...

    def wait(self, state: Any) -> None:
        """Returns when ``state`` has been computed: immediately, for NumPy arrays."""

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
        ...

    def unflatten(self, leaves: list[np.ndarray]) -> Any:
        """The state with the arrays ``leaves``."""
        ...


class ArrayEngine(Engine, Protocol):
    """An engine whose state is a tree of a backend's arrays."""

    backend: Any

    def wait(self, state) -> None:
        """Returns when ``state`` has been computed."""
        self.backend.wait(state)

    def flatten(self, state) -> list[np.ndarray]:
        """The state's arrays as NumPy, in a fixed order; ``unflatten`` is the inverse."""
        return self.backend.leaves(state)

    def unflatten(self, leaves):
        """The state whose arrays are ``leaves``."""
        return self.backend.rebuilt(leaves, self.init())


def geometric(end: int, per_decade: int = 12) -> list[int]:
    """Positions at which runs are measured: the start, the end, and a geometric grid between.

    >>> geometric(20, per_decade=3)
    [0, 1, 2, 5, 10, 20]
    """
    grid = np.round(10 ** np.arange(0, np.log10(max(end, 1)) + 1 / per_decade, 1 / per_decade)).astype(int)
    return sorted({0, end, *(int(e) for e in grid if e < end)})


def run(
    engine: Engine,
    *,
    progress=None,
    checkpoint: Path | None = None,
    mark=None,
    every: float = 10.0,
    begun: tuple[Any, int, Reached] | None = None,
    halt: Callable[[], bool] = lambda: False,
) -> Result:
    """Runs ``engine`` to its end.

    Args:
        engine: the runs.
        progress: called with the number of positions just passed.
        checkpoint: file for the state, removed at the end. If it exists and carries ``mark``, the run resumes from it
            and ends with the same bytes as an uninterrupted one.
        mark: the artifact stamp that ties a checkpoint to its spec and data.
        every: minimum time between checkpoints, in seconds.
        begun: a state to continue from, its position, and the measurements up to there.
        halt: asked every few seconds; True ends the run where it stands, which is then measured.
    """
    with contextlib.closing(engine):
        return _run(engine, progress, checkpoint, mark, every, begun, halt)


def _run(engine, progress, checkpoint, mark, every, begun, halt) -> Result:
    import pandas as pd

    stops = engine.stops
    clock = _Clock()
    state, done, measured = None, 0, []
    if checkpoint is not None:
        sweep(checkpoint.parent, checkpoint.name)
        state, done, measured = _resume(engine, checkpoint, mark, clock)
    if begun is not None:
        state, done, before = begun
        measured = _separate(before.measured, len(before.stops))
        clock.restore(0.0, 0.0, [0.0] * len(measured))
    if state is None:
        state = engine.init()
    with clock.compiling():
        state = engine.advance(state, done, 0)  # compiles without advancing
        engine.wait(state)
    if progress and done:
        progress(done)
    saved, pause = time.monotonic(), every

    def save():
        nonlocal saved, pause
        if checkpoint is not None and (start := time.monotonic()) - saved > pause:
            _save(engine, checkpoint, mark, state, done, measured, clock)
            saved = time.monotonic()
            pause = every and max(every, _SAVING * (saved - start))  # a large state is saved less often

    chunk, reached = 1, stops[: len(measured)]
    for stop in stops[len(measured) :]:
        while done < stop and not halt():
            count = min(chunk, stop - done)
            with clock.running():
                state = engine.advance(state, done, count)
                engine.wait(state)
            done += count
            chunk = clock.chunk(chunk)
            if progress:
                progress(count)
            if done < stop:
                save()
        if not reached or done > reached[-1]:
            measured.append(engine.measure(state, done))
            reached.append(done)
            clock.lap()
        if done < stop or engine.finished(state):
            break
        if done < stops[-1]:
            save()
    stops = reached
    stacked = {name: np.array([one[name] for one in measured]) for name in measured[0]}
    timing = pd.DataFrame(
        {**engine.work(stops), "seconds": clock.laps, "seconds_per_run": np.array(clock.laps) / engine.runs}
    )
    timing["compile_seconds"] = clock.compile
    return Result(engine.trace(stops, stacked), timing, engine.params(state, stacked), state, Reached(stops, stacked))


def _save(engine, path, mark, state, done, measured, clock):
    leaves = engine.flatten(state)
    if leaves is None:
        return
    arrays = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
    for name in measured[0]:
        arrays[f"measured_{name}"] = np.array([one[name] for one in measured])
    artifact.write_arrays(
        path,
        {
            "done": np.array(done),
            "clock": np.array([clock.total, clock.compile]),
            "laps": np.array(clock.laps),
            **arrays,
        },
        mark,
    )


def _resume(engine, path, mark, clock):
    """The state of a checkpoint; None if there is none, or if its spec, data or versions differ."""
    if (arrays := artifact.read_checkpoint(path, mark)) is None:
        return None, 0, []
    fresh = engine.flatten(engine.init())
    leaves = [arrays[name] for i in range(len(arrays)) if (name := f"leaf{i}") in arrays]
    fits = fresh is not None and [(a.shape, a.dtype) for a in leaves] == [(a.shape, a.dtype) for a in fresh]
    if not fits or not _of_a_run(arrays, engine.stops):
        path.unlink()  # of another layout, as another commit of lowvar may have written it
        return None, 0, []
    state, laps = engine.unflatten(leaves), list(arrays["laps"])
    stored = {name.removeprefix("measured_"): of for name, of in arrays.items() if name.startswith("measured_")}
    measured = _separate(stored, len(laps))
    done, spent = int(arrays["done"]), arrays["clock"]
    clock.restore(*spent, laps)
    return state, done, measured


def _of_a_run(arrays, stops) -> bool:
    """Whether the arrays of a checkpoint, besides the state, are those of a run with these stops."""
    forms = {"done": ((), "iu"), "clock": ((2,), "f"), "laps": (arrays.get("laps", np.zeros(0)).shape[:1], "f")}
    for name, (shape, kinds) in forms.items():
        if name not in arrays or arrays[name].shape != shape or arrays[name].dtype.kind not in kinds:
            return False
    measured = [of for name, of in arrays.items() if name.startswith("measured_")]
    passed = sum(stop <= arrays["done"] for stop in stops)
    return 0 <= arrays["done"] <= stops[-1] and all(of.shape[:1] == (passed,) for of in (arrays["laps"], *measured))


def _separate(stacked, count):
    """The measurements of each of ``count`` stops."""
    return [{name: of[i] for name, of in stacked.items()} for i in range(count)]


class _Clock:
    """Seconds spent advancing, and separately those spent compiling."""

    def __init__(self):
        self.total, self.compile, self.laps, self.last = 0.0, 0.0, [], 0.0

    def restore(self, total, compile, laps):
        self.total, self.compile, self.laps = float(total), float(compile), [float(lap) for lap in laps]

    @contextlib.contextmanager
    def compiling(self):
        start = time.perf_counter()
        yield
        self.compile += time.perf_counter() - start

    @contextlib.contextmanager
    def running(self):
        start = time.perf_counter()
        yield
        self.last = time.perf_counter() - start
        self.total += self.last

    def lap(self):
        self.laps.append(self.total)

    def chunk(self, chunk):
        """Number of positions for the next call, so that it takes about ``_CHUNK_SECONDS``."""
        if self.last > _CHUNK_SECONDS:
            return max(1, chunk // 2)
        return chunk * 2 if self.last < _CHUNK_SECONDS / 2 else chunk
