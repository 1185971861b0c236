"""The loop: advance, evaluate, checkpoint, and go on from a checkpoint as if nothing had happened."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lowvar.errors import UserError
from lowvar.files import sweep
from lowvar.runs import artifact

_CHUNK_SECONDS = 2.0  # between chances to write a checkpoint; does not change the results


@dataclass(frozen=True)
class Result:
    """What a run gives.

    Attributes:
        trace: a row per (step size, repetition, evaluated epoch); see docs/results-schema.md.
        timing: a row per evaluated epoch: seconds.
        params: final parameters, ``{"mu": (step sizes, repetitions, dim), ...}``.
        state: final state of the solver, for all runs.
    """

    trace: "object"
    timing: "object"
    params: dict[str, np.ndarray]
    state: "object"


def evaluation_epochs(epochs: int, per_decade: int = 12) -> list[int]:
    """Epochs at which runs are evaluated: the start, the end, and a geometric grid between.

    >>> evaluation_epochs(20, per_decade=3)
    [0, 1, 2, 5, 10, 20]
    """
    grid = np.round(10 ** np.arange(0, np.log10(max(epochs, 1)) + 1 / per_decade, 1 / per_decade)).astype(int)
    return sorted({0, epochs, *(int(e) for e in grid if e < epochs)})


def run(engine, *, progress=None, checkpoint: Path | None = None, mark=None, every: float = 10.0) -> Result:
    """Runs all epochs of ``engine``.

    Args:
        engine: the runs.
        progress: called with the number of epochs just done.
        checkpoint: a file to keep the state in, removed at the end. If it is there and carries ``mark``, the
            run goes on from it and ends with the same bytes as one never interrupted.
        mark: the artifact stamp that ties a checkpoint to its spec and data.
        every: least time between checkpoints, seconds.
    """
    import pandas as pd

    solver = engine.solver
    stops = evaluation_epochs(solver.epochs)
    clock = _Clock()
    state, done, values, errors = None, 0, [], []
    if checkpoint is not None:
        sweep(checkpoint.parent, checkpoint.name)
        state, done, values, errors = _resume(engine, checkpoint, mark, clock)
    if state is None:
        state = engine.init()
    with clock.compiling():
        state = engine.advance(state, done, 0)  # compiles, and moves nothing
        _wait(engine, state)
    if progress and done:
        progress(done)
    saved = time.monotonic()
    chunk = 1
    for stop in stops[len(values) :]:
        while done < stop:
            count = min(chunk, stop - done)
            with clock.running():
                state = engine.advance(state, done, count)
                _wait(engine, state)
            done += count
            chunk = clock.chunk(chunk)
            if progress:
                progress(count)
            if checkpoint is not None and done < stop and time.monotonic() - saved > every:
                _save(engine, checkpoint, mark, state, done, values, errors, clock)
                saved = time.monotonic()
        value, error = engine.elbos(state)
        values.append(value)
        errors.append(error)
        clock.lap()
        if checkpoint is not None and done < solver.epochs and time.monotonic() - saved > every:
            _save(engine, checkpoint, mark, state, done, values, errors, clock)
            saved = time.monotonic()
    trace = _trace(engine, stops, np.array(values), np.array(errors))
    runs = len(solver.step_sizes) * solver.repetitions
    timing = pd.DataFrame({"epoch": stops, "seconds": clock.laps, "seconds_per_run": np.array(clock.laps) / runs})
    timing["compile_seconds"] = clock.compile
    params = {name: np.asarray(leaf) for name, leaf in engine.backend.to_numpy(state.params).items()}
    return Result(trace, timing, params, state)


def _trace(engine, stops, values, errors):
    import pandas as pd

    solver, problem = engine.solver, engine.problem
    shape = values.shape
    epoch, step, repetition = (axis.ravel() for axis in np.indices(shape))
    epochs = np.asarray(stops)[epoch]
    rows_per_epoch = problem.N if engine.sampler.batches.covers else engine.steps * solver.batch_size
    oracles = engine.estimator.oracles_of_run(epochs, rows_per_epoch, solver.samples)
    ok = np.isfinite(values.ravel())
    return pd.DataFrame(
        {
            "step_size": np.asarray(solver.step_sizes)[step],
            "repetition": repetition,
            "epoch": epochs,
            "iteration": epochs * engine.steps,
            "gradients": oracles.gradients,
            "hvps": oracles.hvps,
            "elbo": values.ravel(),
            "elbo_se": errors.ravel(),
            "status": np.where(ok, "ok", "diverged"),
        }
    )


def _wait(engine, state):
    if engine.backend.name == "jax":
        import jax

        jax.block_until_ready(state)


def _save(engine, path, mark, state, done, values, errors, clock):
    leaves = {f"leaf{i}": leaf for i, leaf in enumerate(engine.flatten(state))}
    shape = (len(values), len(engine.solver.step_sizes), engine.solver.repetitions)
    artifact.write_arrays(
        path,
        {
            "done": np.array(done),
            "values": np.array(values).reshape(shape),
            "errors": np.array(errors).reshape(shape),
            "clock": np.array([clock.total, clock.compile]),
            "laps": np.array(clock.laps),
            **leaves,
        },
        mark,
    )


def _resume(engine, path, mark, clock):
    """The state of a checkpoint; nothing if there is none, or if another spec, other data or versions made it."""
    if not path.is_file():
        return None, 0, [], []
    fresh = engine.flatten(engine.init())
    try:
        arrays, found = artifact.read_arrays(path)
        leaves = [arrays[f"leaf{i}"] for i in range(sum(name.startswith("leaf") for name in arrays))]
        if found != mark or [(a.shape, a.dtype) for a in leaves] != [(a.shape, a.dtype) for a in fresh]:
            raise UserError(f"{path}: of another run")
    except (UserError, KeyError):
        path.unlink()
        return None, 0, [], []
    clock.restore(*arrays["clock"], list(arrays["laps"]))
    return engine.unflatten(leaves), int(arrays["done"]), list(arrays["values"]), list(arrays["errors"])


class _Clock:
    """Seconds spent advancing, and apart from them those spent compiling."""

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
        """Epochs for the next call, so that one takes about ``_CHUNK_SECONDS``."""
        if self.last > _CHUNK_SECONDS:
            return max(1, chunk // 2)
        return chunk * 2 if self.last < _CHUNK_SECONDS / 2 else chunk
