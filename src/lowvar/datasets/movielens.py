"""Reader of MovieLens 100K: users, genres of the rated films, and ratings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lowvar.datasets.readers import Table, lines
from lowvar.errors import UserError

_UNKNOWN = "unknown"  # the first genre, for items without one
_ITEM_FIELDS = 5  # fields of u.item before the genres: number, title, two dates, address
_FIVE = 5  # the highest rating


def movielens(
    raw: str | Path,
    *,
    data: str,
    items: str,
    genres: str,
    names: Sequence[str],
    users: int,
    movies: int,
    ratings: int,
) -> Table:
    """Reads the ratings with the genres of the rated items.

    Args:
        raw: the folder of raw files.
        data: path of ``u.data`` below ``raw``: user, item, rating and time, separated by tabs.
        items: path of ``u.item`` below ``raw``: item, title, two dates, address, a flag for each genre, separated by
            ``|``.
        genres: path of ``u.genre`` below ``raw``: genre and its number, separated by ``|``.
        names: names of the genres except the first, ``unknown``, in the required order of ``u.genre``.
        users: number of users, numbered from 1 in the file.
        movies: required number of items, numbered from 1 in the file.
        ratings: required number of rows of ``u.data``.

    Returns:
        ``user`` (N,) int32, counted from 0; ``x`` (N, number of names) float64, 1 for a genre of the item and else 0;
        ``y`` (N,) int64, the rating minus 1; ``users``, the number of users. A movie may have several genres; one whose
        only genre is ``unknown`` has a row of zeros.

    Raises:
        UserError: a file is missing, has wrong counts, or a field is not as described.

    References:
        Harper and Konstan (2015), The MovieLens datasets: history and context, ACM TiiS 5(4).
    """
    folder = Path(raw)
    _check_genres(folder / genres, (_UNKNOWN, *names))
    flags = _flags(folder / items, movies, (_UNKNOWN, *names))
    path = folder / data
    body = lines(path)
    if len(body) != ratings:
        raise UserError(f"{path}: found {len(body)} ratings; it should have {ratings}")
    limits = (("user", 1, users), ("item", 1, movies), ("rating", 1, _FIVE), ("time", 0, None))
    values = np.empty((ratings, len(limits)), dtype=np.int64)
    for i, line in enumerate(body):
        fields = line.split("\t")
        if len(fields) != len(limits):
            raise UserError(
                f"{path}, line {i + 1}: found {len(fields)} fields; a row should have {len(limits)}, with tabs between"
            )
        for j, (field, (name, low, high)) in enumerate(zip(fields, limits, strict=True)):
            values[i, j] = _integer(field, low, high, f"{path}, line {i + 1}, column {j + 1} ({name})")
    user, item, rating, _ = values.T
    arrays = {
        "user": (user - 1).astype(np.int32),
        "x": flags[item - 1, 1:],
        "y": rating - 1,
        "users": np.array(users, dtype=np.int64),
    }
    return Table(arrays, tuple(names))


def _check_genres(path: Path, names: tuple[str, ...]) -> None:
    """Rejects other genres, or another order."""
    body = [line for line in lines(path) if line]  # the file ends in an empty line
    if len(body) != len(names):
        raise UserError(f"{path}: found {len(body)} genres; it should have {len(names)}")
    for i, (line, name) in enumerate(zip(body, names, strict=True)):
        if line != f"{name}|{i}":
            raise UserError(f"{path}, line {i + 1}: found {line!r}; it should be {f'{name}|{i}'!r}")


def _flags(path: Path, movies: int, names: tuple[str, ...]) -> np.ndarray:
    """Indicators of the genres of each item, (movies, number of names)."""
    body = lines(path, encoding="iso-8859-1")
    if len(body) != movies:
        raise UserError(f"{path}: found {len(body)} items; it should have {movies}")
    flags = np.empty((movies, len(names)))
    for i, line in enumerate(body):
        fields = line.split("|")
        if len(fields) != _ITEM_FIELDS + len(names):
            raise UserError(
                f"{path}, line {i + 1}: found {len(fields)} fields; a row should have {_ITEM_FIELDS} + {len(names)}, "
                f"the latter for the genres, with '|' between two"
            )
        if fields[0] != str(i + 1):
            raise UserError(f"{path}, line {i + 1}, column 1 (item): found {fields[0]!r}; it should be {i + 1}")
        for j, (field, name) in enumerate(zip(fields[_ITEM_FIELDS:], names, strict=True)):
            flags[i, j] = _integer(field, 0, 1, f"{path}, line {i + 1}, column {_ITEM_FIELDS + j + 1} ({name})")
    return flags


def _integer(field: str, low: int, high: int | None, where: str) -> int:
    """The field as a whole number from ``low`` to ``high``."""
    value = int(field) if field.isascii() and field.isdigit() and len(field) < 19 else -1
    if value < low or (high is not None and value > high):
        wanted = f"from {low} to {high}" if high is not None else f"of at least {low}"
        text = repr(field) if field else "an empty field"
        raise UserError(f"{where}: found {text}; it should be a whole number {wanted}")
    return value
