"""Raw file -> arrays. Strict: nothing is guessed, skipped or filled in."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import UserError


class Table(NamedTuple):
    """What a reader returns: ``x`` (N, d) float64, ``y`` (N,) int64 and the d feature names."""

    x: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]


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
    >>> table(folder, "a.csv", separator=",", columns=["u", "v"], labels={"no": 0, "yes": 1}, rows=2).y
    array([1, 0])
    """
    path = Path(raw) / name
    lines = _lines(path)
    if len(lines) != rows:
        raise UserError(f"{path}: found {len(lines)} rows; it should have {rows}")
    x = np.empty((rows, len(columns)))
    y = np.empty(rows, dtype=np.int64)
    for i, line in enumerate(lines):
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
    return Table(x, y, tuple(columns))


def breast_cancer(raw: str | Path) -> Table:
    """Scikit-learn's copy of the Wisconsin diagnostic data; ``raw`` is not looked at.

    >>> x, y, names = breast_cancer("data/raw")
    >>> x.shape, int(y.sum()), names[0]
    ((569, 30), 357, 'mean radius')
    """
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    x, y = np.asarray(data.data, dtype=np.float64), np.asarray(data.target, dtype=np.int64)
    return Table(x, y, tuple(map(str, data.feature_names)))


def _lines(path: Path) -> list[str]:
    """The file's lines without their ends; the last may or may not have one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it should be a readable text file") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise UserError(
            f"{path}, line {line}, character {column}: found byte 0x{content[error.start]:02x}; it should be UTF-8 text"
        ) from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


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
