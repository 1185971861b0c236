"""Mini-batches in proportion to the sizes of the tasks, in an order of its own for each repetition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


def generators(seeds: np.ndarray, *stream: int) -> list[np.random.Generator]:
    """One generator for each repetition; streams of one seed are independent."""
    return [np.random.default_rng([int(seed) & (2**64 - 1), *stream]) for seed in seeds]


@dataclass(frozen=True)
class Plan:
    """How an epoch is cut. The rows of the blocks (one for each set of points) lie one below the other.

    Attributes:
        sizes: points of each block.
        layout: ``(N,)``, rows, batch after batch and within a batch block after block.
        counts: for each batch the number of rows of each block.
    """

    sizes: tuple[int, ...]
    layout: np.ndarray
    counts: tuple[tuple[int, ...], ...]

    def batches(self) -> Iterator[slice]:
        """The places of each batch in ``layout``."""
        for begin, end in pairwise(np.cumsum([0, *map(sum, self.counts)]).tolist()):
            yield slice(begin, end)

    def order(self, rngs: Sequence[np.random.Generator], shuffle: bool) -> np.ndarray:
        """Rows of one epoch, ``(R, N)``. Blocks of one size are shuffled alike, as in the published code."""
        if not shuffle:
            return np.tile(self.layout, (len(rngs), 1))
        start = np.cumsum([0, *self.sizes])[:-1]
        alike = len(set(self.sizes)) == 1
        drawn = [[rng.permutation(size) for size in (self.sizes[:1] if alike else self.sizes)] for rng in rngs]
        if alike:
            rows = (np.array(drawn) + start[:, None]).reshape(len(rngs), -1)
        else:
            rows = np.array([np.concatenate([a + b for a, b in zip(start, each, strict=True)]) for each in drawn])
        return rows[:, self.layout]


def plan(sizes: Sequence[int], batch: int, reference: int) -> Plan:
    """Batches of ``batch`` points of a block of ``reference`` points, and of the other blocks in proportion.

    Where ``batch`` times the ratio is not whole, batches are cut so that an epoch still sees every point once. The
    last batch may be short.
    """
    steps = -(-reference // batch)
    cuts = np.array([[min(k * batch * size // reference, size) for k in range(steps)] + [size] for size in sizes])
    start = np.cumsum([0, *sizes])[:-1]
    layout = [
        np.arange(cut[k], cut[k + 1]) + first for k in range(steps) for first, cut in zip(start, cuts, strict=True)
    ]
    counts = tuple(tuple(int(count) for count in row) for row in np.diff(cuts, axis=1).T)
    return Plan(tuple(sizes), np.concatenate(layout), counts)
