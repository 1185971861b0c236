"""Raw file -> arrays. Strict: nothing is guessed, skipped or filled in."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import UserError


class Table(NamedTuple):
    """What a reader returns: the arrays of a model, and what their columns are called.

    Attributes:
        arrays: keyword of the model -> array, in the order in which they are written. ``x`` (N, d), where there is one,
            holds the features, which a scaling applies to; the others stay as they are. The first array has a row for
            each of the N data points. Of the usual table they are ``x`` (N, d) float64 and ``y``, which is (N,) int64
            where it says which class a row belongs to, and (N, k) float64 where it is k measurements.
        names: of the d features; none where there is no ``x``.
        notes: what else is worth knowing, as JSON takes it.
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
    """Read a text file of numbers with one row per line and the label in the last column.

    Args:
        raw: the folder of raw files.
        name: the file's path below ``raw``.
        separator: the one character between two fields.
        columns: names of the d number columns; the label comes after them.
        labels: what the label column may hold, and the class that it stands for.
        rows: how many rows the file must have.

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
    """Read a text file of numbers under one header line: inputs first, then the measurements.

    Args:
        raw: the folder of raw files.
        name: the file's path below ``raw``.
        header: the header line as it must be.
        separator: what stands between two fields.
        inputs: names of the d columns of ``x``.
        outputs: names of the k columns of ``y``, which come after them.
        rows: how many rows the file must have below the header.
        comments: how many lines, each starting with ``#``, come before the header.

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
    found = lines(path)
    for i, line in enumerate(found[:comments]):
        if not line.startswith("#"):
            raise UserError(f"{path}, line {i + 1}: found {line!r}; it should be a comment, which starts with '#'")
    first = found[comments] if len(found) > comments else ""
    if first != header:
        raise UserError(f"{path}, line {comments + 1}: found {first!r}; it should be the header {header!r}")
    body = found[comments + 1 :]
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
    """Scikit-learn's copy of the Wisconsin diagnostic data; ``raw`` is not looked at.

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
        UserError: the file cannot be read, or is not UTF-8 where it should be.
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
    found = text.replace("\r\n", "\n").split("\n")
    return found[:-1] if found[-1] == "" else found


def _number(field: str, path: Path, line: int, column: int, name: str) -> float:
    """The field as a finite number."""
    try:
        if "_" in field or field != field.strip():  # Python would take "1_000" and " 1"
            raise ValueError
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        found = repr(field) if field else "an empty field"
        raise UserError(f"{path}, line {line}, column {column} ({name}): found {found}; it should be a finite number")
    return value
