"""Readers of raw files, whose bytes are as the catalogue's hashes say: ``read(raw, ...) -> Table``."""

import gzip
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
    inputs: Sequence[str],
    outputs: Sequence[str] = (),
    labels: Mapping[str, int] | None = None,
    rows: int,
    skip: int = 0,
) -> Table:
    """Reads a text file of numbers: first the inputs, then the measurements, or a label.

    Args:
        raw: the folder of raw files.
        name: the file's path below ``raw``.
        separator: the character between two fields.
        inputs: names of the d columns of ``x``.
        outputs: names of the k columns of ``y``, which follow.
        labels: in place of ``outputs``: entry of the last column -> its class.
        rows: required number of rows.
        skip: number of lines above the first row, such as a header.

    Raises:
        UserError: the file is not as described; the message has file, row and column.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("0.5,2,yes\\n-1,3e2,no\\n")
    >>> table(folder, "a.csv", separator=",", inputs=["u", "v"], labels={"no": 0, "yes": 1}, rows=2).arrays["y"]
    array([1, 0])
    """
    path, d = Path(raw) / name, len(inputs)
    last: Any = {} if labels is None else {d: labels.__getitem__}
    try:
        read = np.loadtxt(path, delimiter=separator, skiprows=skip, comments=None, converters=last, ndmin=2)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if read.shape != (rows, columns := d + len(outputs) + len(last)):
        raise UserError(f"{path} has shape {read.shape}; it should have {rows} rows of {columns} columns")
    x, y = read[:, :d].copy(), read[:, d:].copy()
    return Table({"x": x, "y": y if labels is None else y[:, 0].astype(np.int64)}, tuple(inputs))


def wisconsin(raw: str | Path, name: str, *, inputs: Sequence[str], rows: int, complete: int) -> Table:
    """Reads the original Wisconsin breast cancer data: an id, features, and a class of 2 (0 here) or 4 (1 here).

    Rows in which a feature is missing (``?``) are left out.

    Args:
        raw: the folder of raw files.
        name: the file's path below ``raw``.
        inputs: names of the d features.
        rows: required number of rows.
        complete: required number of rows without a missing feature.

    Raises:
        UserError: the file is not as described.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "w.data").write_text("7,5,1,2\\n8,?,3,4\\n9,2,4,4\\n")
    >>> wisconsin(folder, "w.data", inputs=["u", "v"], rows=3, complete=2).arrays["y"]
    array([0, 1])
    """
    path, missing = Path(raw) / name, -1.0
    try:
        read = np.genfromtxt(path, delimiter=",", missing_values="?", filling_values=missing, ndmin=2)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    whole = read[(read[:, 1:] != missing).all(axis=1), 1:]
    if read.shape != (rows, len(inputs) + 2) or len(whole) != complete or not np.isin(whole[:, -1], (2, 4)).all():
        raise UserError(f"{path} has shape {read.shape} and {len(whole)} complete rows of classes 2 and 4; "
                        f"it should have {rows} rows of {len(inputs) + 2} columns, {complete} complete")  # fmt: skip
    return Table({"x": whole[:, :-1].copy(), "y": (whole[:, -1] == 4).astype(np.int64)}, tuple(inputs))


def idx(raw: str | Path, *, images: str, labels: str) -> Table:
    """Reads a pair of gzipped idx files, the form of MNIST: one of images, one of labels.

    Args:
        raw: the folder of raw files.
        images: path of the images' file below ``raw``.
        labels: path of the labels' file below ``raw``.

    Returns:
        ``x`` (rows, height * width) uint8 and ``y`` (rows,) int64.

    References:
        LeCun, Cortes and Burges (1998), The MNIST database of handwritten digits: the file format.
    """
    x, y = (_array(Path(raw) / name) for name in (images, labels))
    names = tuple(f"pixel_{i}_{j}" for i in range(x.shape[1]) for j in range(x.shape[2]))
    return Table({"x": x.reshape(len(y), -1), "y": y.astype(np.int64)}, names)


def _array(path: Path) -> np.ndarray:
    """One idx file: two zeros, 8 for bytes, the number of dimensions, their sizes, the content."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">u4", offset=4, count=dimensions)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def movielens(raw: str | Path, *, data: str, items: str, genres: str) -> Table:
    """Reads the ratings of MovieLens 100K with the genres of the rated films.

    Args:
        raw: the folder of raw files.
        data: path of ``u.data`` below ``raw``: user, item, rating and time, with tabs between.
        items: path of ``u.item`` below ``raw``: item, title, two dates, address, and a flag for each genre, with ``|``.
        genres: path of ``u.genre`` below ``raw``: genre and its number, with ``|``; the first is ``unknown``.

    Returns:
        ``user`` (N,) int32, counted from 0; ``x`` (N, number of genres but the first) float64, 1 for a genre of the
        item and else 0; ``y`` (N,) int64, the rating less 1; ``users``, how many there are. A movie may have several
        genres, and one whose only genre is ``unknown`` has none here.

    References:
        Harper and Konstan (2015), The MovieLens datasets: history and context, ACM TiiS 5(4).
    """
    folder = Path(raw)
    names = [line.split("|")[0] for line in (folder / genres).read_text().split()]
    columns = range(5, 5 + len(names))
    flags = np.loadtxt(folder / items, delimiter="|", usecols=columns, comments=None, encoding="iso-8859-1", ndmin=2)
    user, item, rating, _ = np.loadtxt(folder / data, dtype=np.int64, ndmin=2).T
    arrays = {
        "user": (user - 1).astype(np.int32),
        "x": flags[item - 1, 1:],
        "y": rating - 1,
        "users": np.array(user.max(), dtype=np.int64),
    }
    return Table(arrays, tuple(names[1:]))
