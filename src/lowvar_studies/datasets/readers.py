"""Strict readers of raw files: nothing is guessed, skipped or imputed."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import UserError


class Table(NamedTuple):
    """A reader's result: the arrays of a model, and the names of their columns.

    Attributes:
        arrays: keyword of the model -> array, in the order of writing. The first array has a row for each of the N data
            points. Scalings apply to ``x`` (N, d), the features, and leave the others unchanged. Most tables have ``x``
            in float64 and ``y``, (N,) int64 for classes or (N, k) float64 for k measurements.
        names: names of the d features; empty without ``x``.
        notes: further information, as JSON values.
    """

    arrays: Mapping[str, np.ndarray]
    names: tuple[str, ...] = ()
    notes: Mapping[str, Any] = MappingProxyType({})


def table(
    raw: str | Path,
    name: str,
    *,
    separator: str,
    columns: Sequence[str],
    labels: Mapping[str, int],
    rows: int,
) -> Table:
    """Reads a text file of numbers with one row per line and the label in the last column.

    Args:
        raw: the folder of raw files.
        name: the file's path below ``raw``.
        separator: the character between two fields.
        columns: names of the d number columns, which precede the label.
        labels: allowed entry of the label column -> its class.
        rows: required number of rows.

    Raises:
        UserError: the file is missing, or a row or field is not as described; the message has file, line and
            column, both counted from 1.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("0.5,2,yes\\n-1,3e2,no\\n")
    >>> table(folder, "a.csv", separator=",", columns=["u", "v"], labels={"no": 0, "yes": 1}, rows=2).arrays["y"]
    array([1, 0])
    """
    path = Path(raw) / name
    body = lines(path)
    if len(body) != rows:
        raise UserError(f"{path}: found {len(body)} rows; it should have {rows}")
    x = np.empty((rows, len(columns)))
    y = np.empty(rows, dtype=np.int64)
    for i, line in enumerate(body):
        fields = line.split(separator)
        if len(fields) != len(columns) + 1:
            raise UserError(
                f"{path}, line {i + 1}: found {len(fields)} fields; a row should have {len(columns) + 1} "
                f"({len(columns)} numbers and a label, with {separator!r} between two)"
            )
        for j, field in enumerate(fields[:-1]):
            x[i, j] = _number(field, path, i + 1, j + 1, columns[j])
        if fields[-1] not in labels:
            raise UserError(
                f"{path}, line {i + 1}, column {len(fields)} (label): found {fields[-1]!r}; "
                f"it should be one of {', '.join(map(repr, labels))}"
            )
        y[i] = labels[fields[-1]]
    return Table({"x": x, "y": y}, tuple(columns))


def series(
    raw: str | Path,
    name: str,
    *,
    header: str,
    separator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    rows: int,
    comments: int = 0,
) -> Table:
    """Reads a text file of numbers with one header line: first the inputs, then the measurements.

    Args:
        raw: the folder of raw files.
        name: the file's path below ``raw``.
        header: the required header line.
        separator: the separator of fields.
        inputs: names of the d columns of ``x``.
        outputs: names of the k columns of ``y``, which follow.
        rows: required number of rows below the header.
        comments: number of lines before the header, each starting with ``#``.

    Raises:
        UserError: the file is missing, or a line or field is not as described; the message has file, line and
            column, both counted from 1.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("time,u\\n0,1.5\\n1,-2\\n")
    >>> made = series(folder, "a.csv", header="time,u", separator=",", inputs=["time"], outputs=["u"], rows=2)
    >>> made.arrays["y"]
    array([[ 1.5],
           [-2. ]])
    """
    path = Path(raw) / name
    text_lines = lines(path)
    for i, line in enumerate(text_lines[:comments]):
        if not line.startswith("#"):
            raise UserError(f"{path}, line {i + 1}: found {line!r}; it should be a comment, which starts with '#'")
    first = text_lines[comments] if len(text_lines) > comments else ""
    if first != header:
        raise UserError(f"{path}, line {comments + 1}: found {first!r}; it should be the header {header!r}")
    body = text_lines[comments + 1 :]
    if len(body) != rows:
        raise UserError(f"{path}: found {len(body)} rows below the header; it should have {rows}")
    names = (*inputs, *outputs)
    values = np.empty((rows, len(names)))
    for i, line in enumerate(body):
        number, fields = i + comments + 2, line.split(separator)
        if len(fields) != len(names):
            raise UserError(
                f"{path}, line {number}: found {len(fields)} fields; a row should have {len(names)} numbers, "
                f"with {separator!r} between two"
            )
        values[i] = [_number(field, path, number, j + 1, names[j]) for j, field in enumerate(fields)]
    x, y = np.split(values, [len(inputs)], axis=1)
    return Table({"x": x.copy(), "y": y.copy()}, tuple(inputs))


def breast_cancer(raw: str | Path) -> Table:
    """Scikit-learn's copy of the Wisconsin diagnostic data; ``raw`` is not used.

    >>> cells = breast_cancer("data/raw")
    >>> cells.arrays["x"].shape, int(cells.arrays["y"].sum()), cells.names[0]
    ((569, 30), 357, 'mean radius')
    """
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    x, y = np.asarray(data.data, dtype=np.float64), np.asarray(data.target, dtype=np.int64)
    return Table({"x": x, "y": y}, tuple(map(str, data.feature_names)))


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """The file's lines without their ends; the last may or may not have one.

    Raises:
        UserError: the file cannot be read, or does not have this encoding.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it should be a readable text file") from error
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise UserError(
            f"{path}, line {line}, character {column}: found byte 0x{content[error.start]:02x}; it should be UTF-8 text"
        ) from error
    text_lines = text.replace("\r\n", "\n").split("\n")
    return text_lines[:-1] if text_lines[-1] == "" else text_lines


def _number(field: str, path: Path, line: int, column: int, name: str) -> float:
    """The field as a finite number."""
    try:
        if "_" in field or field != field.strip():  # Python accepts "1_000" and " 1"
            raise ValueError
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        text = repr(field) if field else "an empty field"
        raise UserError(f"{path}, line {line}, column {column} ({name}): found {text}; it should be a finite number")
    return value
