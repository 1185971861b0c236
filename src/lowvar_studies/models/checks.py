"""Checks of the arrays that models take."""

import numpy as np

from lowvar.errors import UserError


def features(x, name: str) -> np.ndarray:
    """Features, a floating matrix.

    Raises:
        UserError: not a floating matrix.
    """
    x = np.asarray(x)
    if x.ndim != 2 or x.dtype.kind != "f" or not x.size:
        raise UserError(f"{name}: x must be a floating array (N, d), not {x.dtype} of shape {x.shape}")
    return x


def responses(y, x, name: str) -> np.ndarray:
    """Measurements as a vector of the type of ``x``.

    Raises:
        UserError: not one number for each row of ``x``.
    """
    y = np.asarray(y)
    if y.shape not in ((len(x),), (len(x), 1)) or y.dtype.kind not in "fiu":
        raise UserError(
            f"{name}: y is {y.dtype} of shape {y.shape}; it must have one number for each of the {len(x)} rows of x"
        )
    return y.reshape(-1).astype(x.dtype)


def numbers(values, rows: int, count: int, name: str, key: str) -> np.ndarray:
    """Labels, players or users, counted from 0, as int32.

    Args:
        values: ``(rows,)``.
        rows: number of rows.
        count: number of classes, players or users.
        name: name of the problem in reports.
        key: name of the array in reports.

    Raises:
        UserError: not one whole number below ``count`` for each row.
    """
    values = np.asarray(values)
    if values.shape != (rows,):
        raise UserError(f"{name}: {key} has shape {values.shape}; it must be ({rows},), a number for each row")
    wrong = values[(values != np.floor(values)) | (values < 0) | (values >= count)]
    if wrong.size:
        raise UserError(f"{name}: {key} has {wrong[0]}; it must have whole numbers from 0 to {count - 1}")
    return values.astype(np.int32)


def count_classes(arrays) -> int:
    """``"classes"``; if not given, one more than the largest label of ``y`` and of ``test_y``."""
    if "classes" in arrays:
        return int(arrays["classes"])
    return max(int(np.max(arrays[key])) for key in ("y", "test_y") if np.size(arrays.get(key, ()))) + 1
