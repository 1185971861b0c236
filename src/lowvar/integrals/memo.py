"""What was found for the last points: the fits of all tasks ask for the same."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

Found = TypeVar("Found")


def of_last_points(function: Callable[[np.ndarray, np.ndarray], Found]) -> Callable[[np.ndarray, np.ndarray], Found]:
    """The same function of ``(points, scores)``, which keeps its last result while it is given the same arrays."""
    last: list = []

    def remembered(points: np.ndarray, scores: np.ndarray) -> Found:
        if not (last and last[0] is points and last[1] is scores):
            last[:] = points, scores, function(points, scores)
        return last[2]

    return remembered
