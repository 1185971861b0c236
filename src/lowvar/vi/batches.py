"""Mini-batches of row numbers, an epoch at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError
from lowvar.vi.permutation import permutation

_SORTED = 2**19  # maximum number of rows to shuffle by sorting random keys: 1 us a row and epoch at 1e7 rows


@dataclass(frozen=True)
class Batches:
    """A scheme for drawing mini-batches.

    Attributes:
        name: as in specs.
        N: number of data rows.
        size: batch size ``B``.
        steps: batches in an epoch, ``ceil(N / B)``.
        covers: whether an epoch visits every row exactly once.
        draw: ``key -> index (steps, B)``.
        same: whether all epochs have the same batches, in another order.
        rows: number of real entries among the ``B`` of each batch, ``(steps,)``. The padding after them repeats
            the batch's first row, so that a write to it changes nothing, and has weight zero.
    """

    name: str
    N: int
    size: int
    covers: bool
    draw: Callable[[jax.Array], jax.Array]
    same: bool = False

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-self.N // self.size)

    @property
    def rows(self) -> jax.Array:
        """Real rows of each batch of an epoch, ``(steps,)``."""
        full = jnp.full(self.steps, self.size)
        return full.at[-1].set(self.N - (self.steps - 1) * self.size) if self.covers else full


def iid(N: int, size: int) -> Batches:
    """Every entry of every batch drawn uniformly from the ``N`` rows, with replacement.

    >>> iid(7, 3).draw(jax.random.key(0)).shape
    (3, 3)
    """
    _check(N, size)
    steps = -(-N // size)
    return Batches("iid", N, size, False, lambda key: jax.random.randint(key, (steps, size), 0, N, jnp.int32))


def reshuffled(N: int, size: int) -> Batches:
    """A fresh permutation of the rows each epoch, cut into batches; the last may be short.

    A single batch of all rows keeps their order.

    >>> batches = reshuffled(7, 3)
    >>> batches.rows.tolist()
    [3, 3, 1]
    """
    _check(N, size)
    steps = -(-N // size)

    def draw(key):
        order = jnp.arange(N, dtype=jnp.int32)
        if size < N:
            order = permutation(key, N) if N > _SORTED else jax.random.permutation(key, order)
        short = (steps - 1) * size  # where the last, perhaps short, batch starts
        padding = jnp.full(steps * size - N, order[short])
        return jnp.concatenate([order, padding]).reshape(steps, size)

    return Batches("reshuffled", N, size, True, draw)


def fixed(N: int, size: int) -> Batches:
    """The rows split once into random batches, the same for all keys; each epoch visits them in a fresh order.

    If ``size`` does not divide ``N``, one batch is short and comes last.

    >>> batches = fixed(7, 3)
    >>> first, second = (batches.draw(jax.random.key(k)).tolist() for k in (0, 1))
    >>> first[-1] == second[-1], sorted(first) == sorted(second), batches.rows.tolist()
    (True, True, [3, 3, 1])
    """
    _check(N, size)
    steps, full = -(-N // size), N // size
    order = np.random.default_rng(0).permutation(N).astype(np.int32)
    short = order[(steps - 1) * size]
    cut = np.concatenate([order, np.full(steps * size - N, short, np.int32)]).reshape(steps, size)

    def draw(key):
        first = jax.random.permutation(key, jnp.arange(full, dtype=jnp.int32))
        return jnp.asarray(cut)[jnp.concatenate([first, jnp.arange(full, steps, dtype=jnp.int32)])]

    return Batches("fixed", N, size, True, draw, same=True)


BATCHES = {"iid": iid, "reshuffled": reshuffled, "fixed": fixed}


def _check(N: int, size: int) -> None:
    if not 1 <= size <= N:
        raise UserError(f"batch size {size}: it must be between 1 and the number of rows, {N}")
