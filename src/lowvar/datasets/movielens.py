"""Reader of MovieLens 100K: users, genres of the rated films, and ratings."""

from pathlib import Path

import numpy as np

from lowvar.datasets.readers import Table, lines

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

    References:
        Harper and Konstan (2015), The MovieLens datasets: history and context, ACM TiiS 5(4).
    """
    folder = Path(raw)
    names = [line.split("|")[0] for line in lines(folder / genres) if line]  # the file ends in an empty line
    flags = [line.split("|")[_ITEM_FIELDS:] for line in lines(folder / items, encoding="iso-8859-1")]
    user, item, rating, _ = np.array([line.split("\t") for line in lines(folder / data)]).astype(np.int64).T
    arrays = {
        "user": (user - 1).astype(np.int32),
        "x": np.array(flags).astype(np.float64)[item - 1, 1:],
        "y": rating - 1,
        "users": np.array(user.max(), dtype=np.int64),
    }
    return Table(arrays, tuple(names[1:]))
