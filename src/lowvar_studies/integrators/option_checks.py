"""Checks of the options of integrators."""

from collections.abc import Sequence

import numpy as np

from lowvar.errors import UserError


def relation(name: str, value: float | Sequence, tasks: int | None = None) -> np.ndarray:
    """A task relationship ``B (T, T)``, checked.

    Args:
        name: of the option, for messages.
        value: a number ``b`` for ``b I``, a pair ``(diagonal, off-diagonal)``, or ``T`` rows.
        tasks: ``T``; None where only the value is to be checked.

    Raises:
        UserError: it has another shape, or is not symmetric positive definite.
    """
    try:
        given = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(0, np.nan)
    tasks = tasks or (len(given) if given.ndim == 2 else 2)
    if given.shape == ():
        given = given * np.eye(tasks)
    elif given.shape == (2,):
        given = given[1] + (given[0] - given[1]) * np.eye(tasks)
    if given.shape != (tasks, tasks):
        raise UserError(f"{name}: a number, [diagonal, off-diagonal] or {tasks} rows of {tasks}, one for each task")
    if not np.isfinite(given).all() or np.abs(given - given.T).max() > 1e-12 * np.abs(given).max():
        raise UserError(f"{name}: it must be symmetric, of finite numbers")
    if np.linalg.eigvalsh(given)[0] <= 0:
        raise UserError(f"{name}: it must be positive definite; its smallest eigenvalue is not positive")
    return given
