"""The loss of a user's numbers by conversion to single precision."""

from typing import Any

import numpy as np

_LOST, _NOTED = 1e-3, 2e-5  # rounding errors, in standard deviations of a column: refused, and told
_TIES, _OFFSET = 0.1, 2e-7  # rows that become equal to another one, in columns far from 0 for their spread
_CONSTANT = 1e-12  # a smaller spread, relative to the values, is rounding of a constant in double precision
_MOST, _NEIGHBOURS = 2**22, 1000  # most entries whose errors are computed; contiguous rows that are told apart


def rounded(given: Any) -> tuple[bool, str] | None:
    """Whether float32 loses what distinguishes the rows of an array.

    A column is a position in the row. Data of any size and spread around 0 lose nothing: their errors are 3e-8 standard
    deviations. Errors that are larger come from an offset, as of dates, large identifiers and coordinates.

    Args:
        given: an array of numbers, ``(rows, ...)``.

    Returns:
        ``(whether it is lost, the values in words)`` of the worst column; None if the errors are negligible.
    """
    value = np.asarray(given)
    if value.ndim == 0 or len(value) < 2 or value.dtype.kind not in "iuf" or np.finfo(np.float32).nmant >= _bits(value):
        return None
    table = value.reshape(len(value), -1)
    rows = max(_NEIGHBOURS, _MOST // max(1, table.shape[1]))
    some = table[:: -(-len(table) // rows)].astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        single = some.astype(np.float32).astype(float)
        known = np.isfinite(single)  # other checks are about entries that are not
        error = np.where(known, some - single, 0.0)
        count = np.maximum(known.sum(axis=0), 1)  # a column may have no finite entry
        centred = np.where(known, some - np.sum(some, axis=0, where=known) / count, 0.0)
        spread = np.sqrt(np.sum(centred**2, axis=0) / count)
        varies = spread > _CONSTANT * np.max(np.abs(some), axis=0, where=known, initial=0)
        relative = np.sqrt(np.mean(error**2, axis=0)) / np.where(varies, spread, np.inf)
    relative = np.nan_to_num(relative)
    for column in np.argsort(-relative)[:50]:
        ratio = relative[column]
        lost = ratio > _LOST or (ratio > _OFFSET and _ties(table[:, column]) > _TIES)
        if not lost and ratio <= _NOTED:
            continue
        row = int(np.abs(error[:, column]).argmax())
        place = f"column {column} of the array: " if table.shape[1] > 1 else ""
        return bool(lost), (
            f"{place}{float(some[row, column])!r} becomes {float(single[row, column])!r} in single precision, and the "
            f"standard deviation is {spread[column]:.3g}"
        )
    return None


def _bits(value: np.ndarray) -> int:
    """The bits of a type's numbers: the values of small types are exact in single precision."""
    return np.finfo(value.dtype).nmant if value.dtype.kind == "f" else 8 * value.dtype.itemsize


def _ties(column: np.ndarray) -> float:
    """The largest share of distinct numbers that become equal to another one, among neighbouring rows."""
    shares = []
    for first in {0, max(0, len(column) // 2 - _NEIGHBOURS // 2), max(0, len(column) - _NEIGHBOURS)}:
        some = np.unique(column[first : first + _NEIGHBOURS].astype(float))
        shares.append(1 - len(np.unique(some.astype(np.float32))) / len(some))
    return max(shares)
