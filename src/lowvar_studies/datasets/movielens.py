"""Reader of MovieLens 100K: users, genres of the rated films, and ratings."""

import re
from pathlib import Path

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.datasets.readers import Table, lines

_RATING_FIELDS, _WHOLE = 4, re.compile("[0-9]{1,9}")
_ITEM_FIELDS = 5  # of u.item before the genres: number, title, two dates, address


def movielens(raw: str | Path, *, data: str, items: str, genres: str) -> Table:
    """Read the ratings with the genres of what was rated.

    Args:
        raw: the folder of raw files, with the bytes that their hashes say.
        data: path of ``u.data`` below ``raw``: user, item, rating and time, with tabs between.
        items: path of ``u.item`` below ``raw``: item, title, two dates, address, and a flag for each genre, with ``|``.
        genres: path of ``u.genre`` below ``raw``: genre and its number, with ``|``; the first is ``unknown``.

    Returns:
        ``user`` (N,) int32, counted from 0; ``x`` (N, number of genres but the first) float64, 1 for a genre of the
        item and else 0; ``y`` (N,) int64, the rating less 1; ``users``, how many there are. A movie may have several
        genres, and one whose only genre is ``unknown`` has none here.

    Raises:
        UserError: a file is missing, or a line is not as described; the message has file and line.

    References:
        Harper and Konstan (2015), The MovieLens datasets: history and context, ACM TiiS 5(4).
    """
    folder = Path(raw)
    names = [line.split("|")[0] for line in lines(folder / genres) if line]  # the file ends in an empty line
    flags = [line.split("|")[_ITEM_FIELDS:] for line in lines(folder / items, encoding="iso-8859-1")]
    for i, found in enumerate(flags):
        if len(found) != len(names) or not set(found) <= {"0", "1"}:
            raise UserError(f"{folder / items}, line {i + 1}: found {found}; it should have {len(names)} flags")
    ratings = [line.split("\t") for line in lines(folder / data)]
    for i, found in enumerate(ratings):
        if len(found) != _RATING_FIELDS or not all(map(_WHOLE.fullmatch, found)):
            raise UserError(f"{folder / data}, line {i + 1}: found {found}; it should be user, item, rating, time")
    user, item, rating, _ = np.array(ratings, dtype=object).reshape(-1, _RATING_FIELDS).astype(np.int64).T
    wrong = np.flatnonzero((user < 1) | (item < 1) | (item > len(flags)) | (rating < 1) | (rating > 5))
    if wrong.size or not len(user):
        where = f", line {wrong[0] + 1}: found {ratings[wrong[0]]}" if wrong.size else ": found no rating"
        raise UserError(f"{folder / data}{where}; numbers are from 1, items to {len(flags)}, ratings to 5")
    arrays = {
        "user": (user - 1).astype(np.int32),
        "x": np.array(flags).astype(np.float64)[item - 1, 1:],
        "y": rating - 1,
        "users": np.array(user.max(), dtype=np.int64),
    }
    return Table(arrays, tuple(names[1:]))
