"""The input of integrators: points, scores and values, for several repetitions at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

UNITS = 8  # rounding allowed to the calculation of a number, in units in the last place, in either precision
_FEW_BITS = 16  # numbers of no more significant bits, as halves, are taken as exact


@dataclass(frozen=True)
class Samples:
    """Points of ``T`` tasks, for ``R`` independent repetitions. All arrays are float64.

    Attributes:
        points: for each task ``(R, m_t, d)``, drawn from the task's own target.
        scores: for each task ``(R, m_t, d)``, gradients of the log density of the task's own target at its points.
        values: for each task ``(R, m_t)``, values of the task's integrand.
        shared: whether the tasks have one target and the same points: all entries of ``points`` (``scores``) are equal.
        cross_scores: for each task ``(R, m_t, T, d)``, the scores of all targets at the task's points; None if not
            computed, and unnecessary with one target.
        chain: whether the points of a task are successive states of a Markov chain.
    """

    points: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...]
    values: tuple[np.ndarray, ...]
    shared: bool = False
    cross_scores: tuple[np.ndarray, ...] | None = None
    chain: bool = False

    @property
    def tasks(self) -> int:
        """``T``."""
        return len(self.values)

    @property
    def repetitions(self) -> int:
        """``R``."""
        return self.values[0].shape[0]

    @property
    def dim(self) -> int:
        """``d``."""
        return self.points[0].shape[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """``m_t`` of each task."""
        return tuple(values.shape[-1] for values in self.values)

    @property
    def rounding(self) -> np.ndarray:
        """Relative rounding of each task's numbers, ``(R, T)``: ``UNITS`` units in the last place of their precision.

        Single where the task's values, points or scores are: numbers say in which precision they were calculated, since
        those of single precision are often converted to double before they come here.
        """
        sets = slice(1 if self.shared else None)
        own = [[_single(of) for of in arrays] for arrays in (self.points[sets], self.scores[sets], self.values)]
        single = np.logical_or.reduce(np.broadcast_arrays(*(np.stack(rows, axis=1) for rows in own)))
        return UNITS * np.where(single, np.finfo(np.float32).eps, np.finfo(float).eps)

    def of_tasks(self, tasks: Sequence[int]) -> "Samples":
        """Only these tasks, in this order."""
        cross = None
        if self.cross_scores is not None:
            cross = tuple(self.cross_scores[t][:, :, list(tasks)] for t in tasks)
        points, scores, values = (tuple(of[t] for t in tasks) for of in (self.points, self.scores, self.values))
        return replace(self, points=points, scores=scores, values=values, cross_scores=cross)

    def first(self, sizes: Sequence[int]) -> "Samples":
        """The first ``sizes[t]`` points of each task."""

        def cut(arrays):
            return tuple(array[:, :m] for array, m in zip(arrays, sizes, strict=True))

        return self._with(cut)

    def repetition(self, chosen: slice | np.ndarray) -> "Samples":
        """Only these repetitions: a slice, or their indices."""

        def pick(arrays):
            return tuple(array[chosen] for array in arrays)

        return self._with(pick)

    def _with(self, change: Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]) -> "Samples":
        cross = None if self.cross_scores is None else change(self.cross_scores)
        points, scores, values = (change(of) for of in (self.points, self.scores, self.values))
        return replace(self, points=points, scores=scores, values=values, cross_scores=cross)


def _single(array: np.ndarray) -> np.ndarray:
    """Whether the numbers of each repetition are of single precision, ``(R,)``.

    All fit in it, and one needs more than a few of its bits. Whole numbers that single precision counts need none.
    """
    rows = array.reshape(len(array), -1)
    with np.errstate(over="ignore", under="ignore"):
        single = rows.astype(np.float32)
    mantissa = np.finfo(np.float32).nmant
    fits = (single == rows).all(axis=1)
    if not fits.any():
        return fits
    counted = (single == np.rint(single)) & (np.abs(single) < 2 ** (mantissa + 1))
    last = single.view(np.uint32) & (2 ** (mantissa + 1 - _FEW_BITS) - 1)
    return fits & ((last != 0) & ~counted).any(axis=1)
