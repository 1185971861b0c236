"""Labels of a user's pandas objects: names of columns, and the order of rows; and tables as text."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError

ROUNDING = ("auto",)  # the values of `round_to` beside None


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


def rounded_text(table: Any, errors: Mapping[str, str]) -> Any:
    """A table with the digits that its errors justify, as text.

    Args:
        table: a data frame of numbers.
        errors: column -> the column of its errors, to the place of whose first digit it is shown; all other columns
            have two digits.
    """

    def short(number: float) -> str:
        return np.format_float_positional(number, precision=2, fractional=False, trim="-")

    def to_place(number: float, error: float) -> str:
        if not (np.isfinite(error) and error > 0):
            return f"{number:.6g}"
        places = -int(np.floor(np.log10(error)))
        return f"{round(number, places):.{max(places, 0)}f}"

    text = table.map(short)
    for name, error in errors.items():
        text[name] = [to_place(*pair) for pair in zip(table[name], table[error], strict=True)]
    return text


def _is_frame(one: Any) -> bool:
    return hasattr(one, "iloc") and hasattr(one, "index")


def _named(one: Any) -> bool:
    return getattr(one, "name", None) is not None
