"""All estimates of one method on one problem: all sizes and repetitions. A position is a chunk of repetitions."""

import itertools
from typing import Any

import numpy as np

from lowvar.core.keys import named_key
from lowvar.core.loop import Runs
from lowvar.errors import UserError
from lowvar.integrals.base import FLAGS, Integrals, Integrator, Samples, make
from lowvar_studies.jobs.integral.samples import Drawn
from lowvar_studies.jobs.integral.spec import label

_ROWS = ("value", "standard_error")  # measured for each task; all other arrays for each repetition


class IntegralEngine(Runs):
    """The estimates of one integrator.

    Rounding in batched linear algebra depends on the number of matrices. So all chunks of a job have the same number of
    repetitions (the last chunk is padded with its last repetition), and a chunk is never interrupted: a resumed run
    gives the same bytes. Jobs with another chunk size agree up to rounding and the searches' tolerance.

    Args:
        integrator: the method.
        drawn: points of all repetitions, at least as many as the largest size.
        sizes: for each size the numbers of points of the tasks, ``(T,)``.
        repetitions: number of repetitions to use.
        chunk: maximum number of repetitions computed at once; chunks have equal size, with minimal padding.
        seeds: integers ``(repetitions,)``, for stochastic methods.
    """

    def __init__(self, integrator: Integrator, drawn: Drawn, sizes, repetitions: int, chunk: int, seeds):
        self.integrator, self.drawn, self.sizes, self.seeds = integrator, drawn, sizes, seeds
        self.runs = repetitions
        self.chunk = -(-repetitions // -(-repetitions // chunk))
        starts = range(0, repetitions, self.chunk)
        self.work_list = [(s, start) for s in range(len(sizes)) for start in starts]
        self.stops = list(range(1, len(self.work_list) + 1))
        self._last: dict[str, np.ndarray] = {}
        self._learnt: dict[str, np.ndarray] | None = None  # of one repetition, for names and shapes

    def init(self):
        """The number of finished chunks, 0."""
        return np.array(0)

    def advance(self, state, first: int, count: int):
        """Computes the next ``count`` chunks; ``measure`` gives the last of them."""
        for position in range(first, first + count):
            s, start = self.work_list[position]
            chosen = np.minimum(np.arange(start, start + self.chunk), self.runs - 1)
            samples = self.drawn.samples.first(self.sizes[s]).repetition(chosen)
            self._last = self._estimate(samples, self.seeds[chosen], self.sizes[s])
        return np.array(first + count)

    def _estimate(self, samples: Samples, seeds, sizes) -> dict[str, np.ndarray]:
        """Estimates of all tasks; tasks of a group are estimated together if the method transfers between tasks."""
        all_tasks = (tuple(range(samples.tasks)),)
        groups = self.drawn.groups if self.integrator.properties.transfers and self.drawn.groups else all_tasks
        repetitions, tasks = samples.repetitions, samples.tasks
        results: dict[str, np.ndarray] = {name: np.full((repetitions, tasks), np.nan) for name in _ROWS}
        results |= {"condition": np.full(repetitions, np.nan)}
        results |= {f"flag_{name}": np.zeros(repetitions, bool) for name in FLAGS}
        results["refused"] = np.zeros(repetitions, bool)
        for group in groups:
            try:
                fewest = self.integrator.properties.fewest
                if min(sizes[t] for t in group) < fewest:
                    raise UserError(f"sizes {label(sizes)}: {self.integrator.name} needs {fewest} points per task")
                part = self.integrator.integrate(samples.of_tasks(group), seeds)
            except UserError:
                if sum(sizes) == max(map(sum, self.sizes)):
                    raise
                results["refused"][:] = True  # too few points for the method: the trace has failed rows
                continue
            self._enter(results, part, list(group), alone=len(groups) == 1)
        self._complete(results, len(groups) == 1)
        return results

    def _complete(self, results, alone: bool) -> None:
        """Fills learnt arrays with NaN if the points were refused, so that all chunks have the same arrays."""
        learnt = {name: array[0] for name, array in results.items() if name.startswith("info_")}
        if not results["refused"].any():
            self._learnt = learnt
        elif alone:
            if self._learnt is None:  # the largest size, which is never refused, gives names and shapes
                s = max(range(len(self.sizes)), key=lambda s: sum(self.sizes[s]))
                one = slice(0, 1)
                self._estimate(self.drawn.samples.first(self.sizes[s]).repetition(one), self.seeds[one], self.sizes[s])
            for name, array in (self._learnt or {}).items():
                results[name] = np.full((len(results["refused"]), *np.shape(array)), np.nan)

    @staticmethod
    def _enter(results, part: Integrals, group, *, alone: bool) -> None:
        results["value"][:, group], results["standard_error"][:, group] = part.value, part.standard_error
        results["condition"] = np.fmax(results["condition"], part.condition)
        for name, flag in part.flags.items():
            results[f"flag_{name}"] |= flag
        if alone:
            results |= {f"info_{name}": np.asarray(array) for name, array in part.info.items()}

    def measure(self, state, position: int) -> dict[str, np.ndarray]:
        """Estimates of the last computed chunk."""
        return self._last

    def trace(self, stops, measured):
        """A row per size, repetition and task."""
        import pandas as pd

        arrays, tasks = self._joined(measured), self.drawn.tasks
        rows = []
        for s, sizes in enumerate(self.sizes):
            one = {name: array[s] for name, array in arrays.items()}
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

    def _joined(self, measured):
        """Measured arrays ``(chunks, chunk, ...)`` as ``(sizes, repetitions, ...)``, without padding."""
        sizes = len(self.sizes)

        def join(array):
            return array.reshape(sizes, -1, *array.shape[2:])[:, : self.runs]

        return {name: join(array) for name, array in measured.items()}

    def work(self, stops) -> dict[str, Any]:
        """Sizes and repetitions done."""
        done = [self.work_list[stop - 1] for stop in stops]
        return {
            "sizes": [label(self.sizes[s]) for s, _ in done],
            "points": [self.sizes[s][0] if self.drawn.samples.shared else sum(self.sizes[s]) for s, _ in done],
            "repetitions": [min(start + self.chunk, self.runs) for _, start in done],
        }

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """Learnt parameters such as lengthscales and B, ``(sizes, repetitions, ...)``, by the method's names."""
        arrays = self._joined(measured)
        learnt = {name.removeprefix("info_"): array for name, array in arrays.items() if name.startswith("info_")}
        return {"sizes": np.array(self.sizes), **learnt}

    def flatten(self, state) -> list[np.ndarray]:
        """The number of finished chunks; the measurements hold their estimates."""
        return [np.asarray(state)]

    def unflatten(self, leaves):
        """The inverse of ``flatten``."""
        return leaves[0]


def seeds_of(spec, repetitions: int) -> np.ndarray:
    """An integer for each repetition, derived by name."""
    import jax

    keys = [named_key(spec.seed, spec.name, "integrator", r) for r in range(repetitions)]
    return np.array([int(jax.random.randint(key, (), 1, 2**30)) for key in keys])


def build(spec, drawn: Drawn) -> IntegralEngine:
    """The engine of an ``IntegralRunSpec``.

    Raises:
        UserError: invalid options of the integrator, or more points than were drawn.
    """
    integrator, drawn = make(spec.method.integrator, spec.method.options), drawn.within(spec.tasks)
    sizes = [every_task(one, drawn.samples.tasks, f"sizes of {spec.name}") for one in spec.sizes]
    for one in sizes:
        if any(size > available for size, available in zip(one, drawn.samples.sizes, strict=True)):
            raise UserError(f"sizes of {spec.name}: {list(one)}, but only {list(drawn.samples.sizes)} were drawn")
    if integrator.properties.random:
        seeds = seeds_of(spec, spec.repetitions)
    else:
        seeds = np.zeros(spec.repetitions, np.int64)
    return IntegralEngine(integrator, drawn, sizes, spec.repetitions, spec.chunk, seeds)


def every_task(sizes, tasks: int, what: str) -> tuple[int, ...]:
    """The number of points of each task.

    Raises:
        UserError: the length of a list is not the number of tasks.
    """
    if isinstance(sizes, int):
        return (sizes,) * tasks
    if len(sizes) != tasks:
        raise UserError(f"{what}: {list(sizes)} has {len(sizes)} numbers, but there are {tasks} tasks")
    return tuple(sizes)
