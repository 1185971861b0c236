"""The input of integrators: points, scores and values, for several repetitions at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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

    def of_tasks(self, tasks: Sequence[int]) -> "Samples":
        """Only these tasks, in this order."""
        cross = None
        if self.cross_scores is not None:
            cross = tuple(self.cross_scores[t][:, :, list(tasks)] for t in tasks)
        points, scores, values = (tuple(of[t] for t in tasks) for of in (self.points, self.scores, self.values))
        return Samples(points, scores, values, self.shared, cross, self.chain)

    def first(self, sizes: Sequence[int]) -> "Samples":
        """The first ``sizes[t]`` points of each task."""

        def cut(arrays):
            return tuple(array[:, :m] for array, m in zip(arrays, sizes, strict=True))

        cross = None if self.cross_scores is None else cut(self.cross_scores)
        return Samples(cut(self.points), cut(self.scores), cut(self.values), self.shared, cross, self.chain)

    def repetition(self, chosen: slice | np.ndarray) -> "Samples":
        """Only these repetitions: a slice, or their indices."""

        def pick(arrays):
            return tuple(array[chosen] for array in arrays)

        cross = None if self.cross_scores is None else pick(self.cross_scores)
        return Samples(pick(self.points), pick(self.scores), pick(self.values), self.shared, cross, self.chain)
