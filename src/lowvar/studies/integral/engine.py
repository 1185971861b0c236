"""All estimates of one method on one problem: every size, every repetition. A position is a chunk of repetitions."""

import itertools
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.estimators.integral.base import FLAGS, Integrals, Integrator
from lowvar.estimators.integral.options import make
from lowvar.noise import named_key
from lowvar.problems.integrals.samples import Samples
from lowvar.runs.loop import Engine
from lowvar.studies.integral.samples import Drawn

_ROWS = ("value", "standard_error")  # what is measured for each task; the rest for each repetition


class IntegralEngine(Engine):
    """The estimates of one integrator.

    Batched linear algebra may round differently for another number of matrices. So all chunks of a job have the same
    number of repetitions, the last one filled up with its last repetition, and each chunk is computed whole: results
    do not depend on where a run was interrupted, to the byte. Jobs with other chunks agree to rounding, and to the
    tolerance of searches.

    Args:
        integrator: the method.
        drawn: points of all repetitions, at least as many as the largest size.
        sizes: for each size the points of each task, ``(T,)``.
        repetitions: how many of the drawn ones.
        chunk: repetitions that are computed at once, at most; chunks are of one size, with as little filling as may be.
        seeds: ``(repetitions,)`` integers, for methods that draw.
    """

    def __init__(self, integrator: Integrator, drawn: Drawn, sizes, repetitions: int, chunk: int, seeds):
        self.integrator, self.drawn, self.sizes, self.seeds = integrator, drawn, sizes, seeds
        self.runs = repetitions
        self.chunk = -(-repetitions // -(-repetitions // chunk))
        starts = range(0, repetitions, self.chunk)
        self.work_list = [(s, start) for s in range(len(sizes)) for start in starts]
        self.stops = list(range(1, len(self.work_list) + 1))
        self._last: dict[str, np.ndarray] = {}
        self._learnt: dict[str, np.ndarray] | None = None  # what is learnt in a repetition, for its names and shapes

    def init(self):
        """Nothing done."""
        return np.array(0)

    def advance(self, state, first: int, count: int):
        """The next ``count`` chunks; measured is the last of them."""
        for position in range(first, first + count):
            s, start = self.work_list[position]
            chosen = np.minimum(np.arange(start, start + self.chunk), self.runs - 1)
            samples = self.drawn.samples.first(self.sizes[s]).repetition(chosen)
            self._last = self._estimate(samples, self.seeds[chosen], self.sizes[s])
        return np.array(first + count)

    def _estimate(self, samples: Samples, seeds, sizes) -> dict[str, np.ndarray]:
        """All tasks, those of a group together if the method transfers between tasks."""
        everything = (tuple(range(samples.tasks)),)
        groups = self.drawn.groups if self.integrator.properties.transfers and self.drawn.groups else everything
        repetitions, tasks = samples.repetitions, samples.tasks
        found: dict[str, np.ndarray] = {name: np.full((repetitions, tasks), np.nan) for name in _ROWS}
        found |= {"condition": np.full(repetitions, np.nan)}
        found |= {f"flag_{name}": np.zeros(repetitions, bool) for name in FLAGS}
        found["refused"] = np.zeros(repetitions, bool)
        for group in groups:
            try:
                fewest = self.integrator.properties.fewest
                if min(sizes[t] for t in group) < fewest:
                    raise UserError(f"sizes {label(sizes)}: {self.integrator.name} needs {fewest} points of a task")
                part = self.integrator.integrate(samples.of_tasks(group), seeds)
            except UserError:
                if sum(sizes) == max(map(sum, self.sizes)):
                    raise
                found["refused"][:] = True  # too few points for this method: a row, not a gap
                continue
            self._enter(found, part, list(group), alone=len(groups) == 1)
        self._complete(found, len(groups) == 1)
        return found

    def _complete(self, found, alone: bool) -> None:
        """NaN for what would have been learnt, where all was refused: chunks have the same arrays."""
        learnt = {name: array[0] for name, array in found.items() if name.startswith("info_")}
        if not found["refused"].any():
            self._learnt = learnt
        elif alone:
            if self._learnt is None:  # asked of the largest size, where nothing is refused
                s = max(range(len(self.sizes)), key=lambda s: sum(self.sizes[s]))
                one = slice(0, 1)
                self._estimate(self.drawn.samples.first(self.sizes[s]).repetition(one), self.seeds[one], self.sizes[s])
            for name, array in (self._learnt or {}).items():
                found[name] = np.full((len(found["refused"]), *np.shape(array)), np.nan)

    @staticmethod
    def _enter(found, part: Integrals, group, *, alone: bool) -> None:
        found["value"][:, group], found["standard_error"][:, group] = part.value, part.standard_error
        found["condition"] = np.fmax(found["condition"], part.condition)
        for name, flag in part.flags.items():
            found[f"flag_{name}"] |= flag
        if alone:
            found |= {f"info_{name}": np.asarray(array) for name, array in part.info.items()}

    def measure(self, state, position: int) -> dict[str, np.ndarray]:
        """Estimates of the chunk just computed."""
        return self._last

    def trace(self, stops, measured):
        """A row per size, repetition and task."""
        import pandas as pd

        whole, tasks = self._whole(measured), self.drawn.tasks
        rows = []
        for s, sizes in enumerate(self.sizes):
            one = {name: array[s] for name, array in whole.items()}
            repetition, task = (axis.ravel() for axis in np.indices(one["value"].shape))
            flagged = np.array([one[f"flag_{name}"] for name in FLAGS])
            flags = [
                "refused" if refused else ",".join(itertools.compress(FLAGS, column))
                for refused, column in zip(one["refused"], flagged.T, strict=True)
            ]
            value = one["value"].ravel()
            rows.append(
                pd.DataFrame(
                    {
                        "sizes": label(sizes),
                        "points": sizes[0] if self.drawn.samples.shared else sum(sizes),
                        "repetition": repetition,
                        "task": np.array(tasks)[task],
                        "m": np.array(sizes)[task],
                        "value": value,
                        "standard_error": one["standard_error"].ravel(),
                        "condition": one["condition"][repetition],
                        "flags": np.array(flags, dtype=object)[repetition],
                        "status": np.where(np.isfinite(value), "ok", "failed"),
                    }
                )
            )
        return pd.concat(rows, ignore_index=True)

    def _whole(self, measured):
        """Measured arrays ``(chunks, chunk, ...)`` as ``(sizes, repetitions, ...)``, without what fills up the last."""
        sizes = len(self.sizes)

        def join(array):
            return array.reshape(sizes, -1, *array.shape[2:])[:, : self.runs]

        return {name: join(array) for name, array in measured.items()}

    def work(self, stops) -> dict[str, Any]:
        """Size and repetitions done."""
        done = [self.work_list[stop - 1] for stop in stops]
        return {
            "sizes": [label(self.sizes[s]) for s, _ in done],
            "points": [self.sizes[s][0] if self.drawn.samples.shared else sum(self.sizes[s]) for s, _ in done],
            "repetitions": [min(start + self.chunk, self.runs) for _, start in done],
        }

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """What was learnt, ``(sizes, repetitions, ...)``: lengthscales, nuggets, B, by the names of each method."""
        whole = self._whole(measured)
        learnt = {name.removeprefix("info_"): array for name, array in whole.items() if name.startswith("info_")}
        return {"sizes": np.array(self.sizes), **learnt}

    def flatten(self, state) -> list[np.ndarray]:
        """The number of chunks done: what they gave is in the measurements."""
        return [np.asarray(state)]

    def unflatten(self, leaves):
        """The inverse of ``flatten``."""
        return leaves[0]


def label(sizes) -> str:
    """The name of a size: ``"20"``, or ``"40/20"`` where tasks differ.

    >>> label((20, 20)), label((40, 20))
    ('20', '40/20')
    """
    return str(sizes[0]) if len(set(sizes)) == 1 else "/".join(map(str, sizes))


def seeds_of(spec, repetitions: int) -> np.ndarray:
    """An integer for each repetition, by name."""
    import jax

    keys = [named_key(spec.seed, spec.name, "integrator", r) for r in range(repetitions)]
    return np.array([int(jax.random.randint(key, (), 1, 2**30)) for key in keys])


def build(spec, drawn: Drawn) -> IntegralEngine:
    """The engine of an ``IntegralRunSpec``.

    Raises:
        UserError: options that the integrator does not take, or points that it cannot use.
    """
    integrator, drawn = make(spec.method.integrator, spec.method.options), drawn.within(spec.tasks)
    sizes = [every_task(one, drawn.samples.tasks, f"sizes of {spec.name}") for one in spec.sizes]
    for one in sizes:
        if any(asked > there for asked, there in zip(one, drawn.samples.sizes, strict=True)):
            raise UserError(f"sizes of {spec.name}: {list(one)} are asked for, {list(drawn.samples.sizes)} were drawn")
    if integrator.properties.random:
        seeds = seeds_of(spec, spec.repetitions)
    else:
        seeds = np.zeros(spec.repetitions, np.int64)
    return IntegralEngine(integrator, drawn, sizes, spec.repetitions, spec.chunk, seeds)


def every_task(sizes, tasks: int, what: str) -> tuple[int, ...]:
    """Points of each task.

    Raises:
        UserError: a list of another length than there are tasks.
    """
    if isinstance(sizes, int):
        return (sizes,) * tasks
    if len(sizes) != tasks:
        raise UserError(f"{what}: {list(sizes)} has {len(sizes)} numbers, there are {tasks} tasks")
    return tuple(sizes)
