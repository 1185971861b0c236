"""Batches of rows that are read from files: shuffled in blocks, and read ahead."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from lowvar.core.rows import MappedArrays, Parquet


class Window(NamedTuple):
    """Successive batches of rows.

    Attributes:
        rows: ``{name: (most * size, ...)}``, of the same shape in all windows. A short batch is padded with its first
            row, and what lies behind the last batch is not meant to be used.
        length: rows.
        steps: batches, of which only the last of all windows may be short.
    """

    rows: dict[str, np.ndarray]
    length: int
    steps: int


def windows(
    source: MappedArrays | Parquet, size: int, rng: np.random.Generator | None = None,
    checked: Callable[[dict[str, np.ndarray], int], dict[str, np.ndarray]] = lambda rows, first: rows,
) -> Iterator[Window]:  # fmt: skip
    """All rows once, in windows of whole batches, read one window ahead in a thread.

    With ``rng``, blocks are read in random order, and the rows of a window are shuffled. Let a row's gradient have
    variance ``V``. The mean over a window of ``w`` out of ``n`` blocks has variance ``(1 - w / n) V / w`` at most, that
    of blocks with equal rows. A batch's mean then has ``1 + (1 - w / n) size / w`` times the variance
    ``V / size`` of rows drawn at random. See ``inflation``.

    Args:
        source: the rows.
        size: rows of a batch.
        rng: the order; that of the files if not given.
        checked: applied to the columns of every block, and the number of its first row.
    """
    return ahead(_windows(source, size, rng, checked))


def inflation(source: MappedArrays | Parquet, size: int) -> float:
    """The largest factor by which block shuffling raises the variance of a batch's mean, see ``windows``."""
    number, blocks = _number(source, size), len(source.sizes)
    together = max(1.0, blocks / number)
    return 1 + (1 - together / blocks) * size / together


def _number(source: MappedArrays | Parquet, size: int) -> int:
    """Windows that the rows are cut into, all of about the same size: a small one would be shuffled less."""
    return -(-source.N // max(source.window, size))


def _windows(source, size, rng, checked) -> Iterator[Window]:
    order = np.arange(len(source.sizes)) if rng is None else rng.permutation(len(source.sizes))
    starts, number = np.cumsum(source.sizes) - source.sizes, _number(source, size)
    cuts = np.searchsorted(np.cumsum(source.sizes[order]), source.N * np.arange(1, number) / number, side="right")
    ends = np.unique(np.append(cuts[cuts > 0], len(order)))
    most = source.N // number + 1 + source.sizes.max() + size  # rows of a window, with those that the last one left
    held, left = min(-(-source.N // size), -(-most // size)) * size, None
    for at, end in zip(np.append(0, ends), ends, strict=False):
        parts = [checked(source.read(int(block)), int(starts[block])) for block in order[at:end]]
        rows = _joined([left, *parts] if left else parts)
        n = len(next(iter(rows.values())))
        length = n if end == len(order) else n // size * size
        index = np.arange(n) if rng is None else rng.permutation(n)
        left = {name: of[index[length:]] for name, of in rows.items()} if length < n else None
        if length:
            steps = -(-length // size)
            padded = np.append(index[:length], np.repeat(index[(steps - 1) * size], held - length))
            yield Window({name: of[padded] for name, of in rows.items()}, length, steps)


def _joined(parts):
    return parts[0] if len(parts) == 1 else {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The items, of which one is made in a thread while the caller works with the one before."""
    source, done = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, done)
        while (item := coming.result()) is not done:
            coming = pool.submit(next, source, done)
            yield item
