"""Tasks in groups that do not know of each other, and the matrix ``B`` as a user gives it."""

from collections.abc import Callable, Sequence

import numpy as np

from lowvar.errors import UserError
from lowvar.integrals.base import Integrals
from lowvar.integrals.exact.verdicts import together
from lowvar.integrals.samples import Samples


def by_groups(
    samples: Samples,
    group: int | Sequence[Sequence[int]] | None,
    integrate: Callable[[Samples, Sequence[int]], Integrals],
) -> Integrals:
    """Each group of tasks by itself; what was learnt then has an axis of tasks, and ``B`` is zero between groups.

    Args:
        samples: of all tasks.
        group: how many neighbours, or lists of tasks; None is one group.
        integrate: ``(samples of a group, its tasks) -> Integrals``.

    Raises:
        UserError: a group is empty, or the groups leave out a task or have one twice.
    """
    tasks = list(range(samples.tasks))
    if group is None:
        return integrate(samples, tasks)
    if isinstance(group, int):
        if group < 1:
            raise UserError(f"group {group}: it must be a positive number of tasks")
        groups = [tasks[first : first + group] for first in range(0, len(tasks), group)]
    else:
        try:
            groups = [[int(t) for t in one] for one in group]
        except (TypeError, ValueError) as error:
            raise UserError(f"group {group!r}: it must be a number of tasks, or lists of them") from error
    if sorted(t for one in groups for t in one) != tasks or not all(groups):
        raise UserError(f"group {group}: each of the tasks 0 to {len(tasks) - 1} must be in one group")
    return together([integrate(samples.of_tasks(one), one) for one in groups], groups)


def relation(B: Sequence[Sequence[float]] | None) -> np.ndarray | None:
    """A user's ``B``, checked.

    Raises:
        UserError: it is not symmetric and positive semi-definite.
    """
    if B is None:
        return None
    try:
        matrix = np.asarray(B, float)
    except (TypeError, ValueError) as error:
        raise UserError(f"B {B!r}: it must be a square matrix of numbers") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise UserError(f"B of shape {matrix.shape}: it must be a square matrix of numbers")
    size = np.abs(matrix).max()
    if size == 0 or not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix)[0] < -1e-10 * size:
        raise UserError("B: it must be symmetric and positive semi-definite, and not zero")
    return matrix
