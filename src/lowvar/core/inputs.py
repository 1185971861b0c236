"""A user's arrays: labels of pandas objects, and numbers that single precision does not distinguish."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError


def names_in(values: Any) -> list[str] | None:
    """The names of the integrands, where ``values`` has them: a data frame's columns, or a series' name."""
    if _is_frame(values):
        columns = getattr(values, "columns", None)
        if columns is not None:
            return [str(column) for column in columns]
        return None if values.name is None else [str(values.name)]
    if isinstance(values, (list, tuple)) and values and all(_is_frame(one) and _named(one) for one in values):
        return [str(one.name) for one in values]
    return None


def check_order(samples: Any, scores: Any, values: Any) -> None:
    """Rejects rows, and columns of scores, whose labels do not match; NumPy would pair them by position.

    Default row numbers, as in a new frame, match labels of any other kind.

    Raises:
        UserError: the labels of two of them differ, or are in another order.
    """
    inputs = {"samples": samples, "scores": scores, "values": values}
    if all(isinstance(item, (list, tuple)) for item in inputs.values()):
        for t, row in enumerate(zip(*inputs.values(), strict=False)):
            _check({f"{name}[{t}]": item for name, item in zip(inputs, row, strict=True)})
    else:
        _check(inputs)


def _check(inputs: dict[str, Any]) -> None:
    first = next((name for name, item in inputs.items() if _is_frame(item)), "")
    for name, item in inputs.items():
        if _is_frame(item) and name.startswith("scores") and first.startswith("samples"):
            _check_columns(name, item, first, inputs[first])
    check_index(inputs)


def check_index(inputs: Mapping[str, Any]) -> None:
    """Rejects objects of pandas of one length, by name, whose rows have other labels or another order.

    Raises:
        UserError: see ``check_order``.
    """
    frames = {name: item.index for name, item in inputs.items() if _is_frame(item)}
    for (first, other), (name, own) in itertools.combinations(frames.items(), 2):
        if len(own) != len(other) or own.equals(other):
            continue
        shuffled = own.is_unique and len(own.difference(other)) == 0
        if shuffled or not (_numbered(own) or _numbered(other)):
            raise UserError(
                f"{name}: its index has another order than that of {first}; give {name}.loc[{first}.index]"
                if shuffled
                else f"{name}: its index differs from that of {first}; give matching rows, or .to_numpy()"
            )


def _check_columns(name: str, scores: Any, first: str, samples: Any) -> None:
    """Rejects scores with the samples' columns in another order; other names are no mistake."""
    own, other = (list(getattr(one, "columns", ())) for one in (scores, samples))
    if own != other and len(own) == len(other) and set(own) == set(other):
        raise UserError(f"{name}: its columns have another order than those of {first}; give {name}[{first}.columns]")


def _numbered(index: Any) -> bool:
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _is_frame(one: Any) -> bool:
    return hasattr(one, "iloc") and hasattr(one, "index")


def _named(one: Any) -> bool:
    return getattr(one, "name", None) is not None


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
