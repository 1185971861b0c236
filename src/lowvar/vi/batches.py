"""Mini-batches of row numbers, an epoch at a time; with base noise, the input of one call of an estimator."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import BaseNoise
from lowvar.errors import UserError

_RANKED = 64  # maximum number of rows to shuffle by the ranks of random numbers, each compared with all others


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
        order = permutation(key, N) if size < N else jnp.arange(N, dtype=jnp.int32)
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


_HELD = 2**21  # maximum number of base noise values held for an epoch


class Noise(NamedTuple):
    """The randomness of one estimate (or of many, with leading axes).

    Attributes:
        index: data rows, ``(B,)`` integers.
        weight: their weights in the batch's mean, ``(B,)``; they sum to one, and padding has zero.
        rows: number of real rows, a floating scalar.
        eps: base noise, ``(S, dim)``; all rows of a batch share it.
        position: the batch's place in its epoch, an integer scalar; None if the estimator needs none.
    """

    index: Any
    weight: Any
    rows: Any
    eps: Any
    position: Any


class Plan(NamedTuple):
    """The randomness of an epoch before its base noise is drawn: as ``Noise``, with a key for each batch's ``eps``."""

    index: Any
    weight: Any
    rows: Any
    key: Any
    position: Any


@dataclass(frozen=True)
class Sampler:
    """Draws ``Noise``, an epoch at a time, from a key."""

    batches: Batches
    gaussian: BaseNoise
    dim: int
    dtype: Any

    @property
    def wide(self) -> bool:
        """Whether the base noise of an epoch is too large to hold, and should be drawn batch by batch."""
        return self.batches.steps * self.gaussian.particles * self.dim > _HELD

    def plan(self, key: jax.Array) -> Plan:
        """An epoch whose base noise is not drawn yet: every array has a leading axis of ``batches.steps``."""
        size = self.batches.size
        for_rows, for_eps = jax.random.split(key)
        rows = self.batches.rows
        weight = jnp.where(jnp.arange(size)[None, :] < rows[:, None], 1 / rows[:, None], 0)
        return Plan(
            index=self.batches.draw(for_rows),
            weight=weight.astype(self.dtype),
            rows=rows.astype(self.dtype),
            key=jax.random.split(for_eps, self.batches.steps),
            position=jnp.arange(self.batches.steps),
        )

    def with_noise(self, batch: "Plan | Noise") -> Noise:
        """The noise of one batch of a plan; a ``Noise`` is returned unchanged."""
        if isinstance(batch, Noise):
            return batch
        eps = self.gaussian.draw(batch.key, self.dim, self.dtype)
        return Noise(batch.index, batch.weight, batch.rows, eps, batch.position)

    def epoch(self, key: jax.Array) -> Noise:
        """The noise of one epoch: every array has a leading axis of ``batches.steps``."""
        plan = self.plan(key)
        if self.batches.steps > 1:
            return jax.vmap(self.with_noise)(plan)
        eps = _apart(lambda key: self.gaussian.draw(key, self.dim, self.dtype), plan.key[0])
        return Noise(plan.index, plan.weight, plan.rows, eps[None], plan.position)


def _apart(draw, key: jax.Array) -> jax.Array:
    """``draw(key)``, materialised: keeps XLA from fusing the draw into its consumers.

    With several steps in an epoch, a loop runs over the noise, which is therefore an array. With a single step, XLA
    would fuse the draw into every operation that reads it and repeat it in each; a step then takes three times as
    long. A loop of one iteration, whose trip count depends on data and so is unknown to the compiler, prevents this.
    """
    like = jax.eval_shape(draw, key)
    turns = jnp.maximum(1, jax.random.key_data(key).ravel()[-1] >> 31).astype(jnp.int32)
    return jax.lax.fori_loop(0, turns, lambda i, eps: draw(key), jnp.zeros(like.shape, like.dtype))


def sampler(batches: Batches, gaussian: BaseNoise, dim: int, dtype: Any = None) -> Sampler:
    """A sampler of ``dim``-dimensional noise in ``dtype`` (JAX's default floating type if not given)."""
    dtype = jax.dtypes.canonicalize_dtype(jnp.zeros(0).dtype if dtype is None else dtype)
    return Sampler(batches, gaussian, dim, dtype)


_ROUNDS = 12


def permutation(key: jax.Array, N: int) -> jax.Array:
    """A random permutation of ``0 .. N - 1``, ``(N,)`` int32, in time and memory proportional to ``N``.

    Few numbers are ranked by random bits: all permutations are equally likely. Many are permuted by a generalised
    Feistel network, pseudo-randomly. It permutes the pairs ``(l, r)``, ``l < a`` and ``r < b``, of which ``l b + r`` is
    the number: its rounds add a keyed hash of one to the other, modulo ``a`` or ``b``. A number that comes to lie in
    ``N .. a b - 1`` is permuted again until it is below ``N`` (cycle walking). With ``a`` and ``b`` near the root of
    ``N``, these are about one in the root of ``N``. A sort of random keys takes fifteen to fifty times as long.

    References:
        Black and Rogaway, "Ciphers with arbitrary finite domains", 2002 (the network, and cycle walking);
        Mitchell, Stokes, Frank and Holmes, "Bandwidth-optimal random shuffling for GPUs", 2022 (such shuffles);
        Appleby, "MurmurHash3", 2011 (the hash: its 32-bit finaliser).

    >>> sorted(permutation(jax.random.key(0), 7).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    return _ranks(key, N) if N <= _RANKED else _network(key, N)


def _ranks(key: jax.Array, N: int) -> jax.Array:
    """Ranks of random bits."""
    bits, number = jax.random.bits(key, (1, N), jnp.uint32), jnp.arange(N)[None, :]
    earlier = (bits == bits.T) & (number < number.T)  # of equal bits
    return jnp.sum((bits < bits.T) | earlier, axis=1, dtype=jnp.int32)


def _network(key: jax.Array, N: int) -> jax.Array:
    """The permutation of a Feistel network."""
    a = math.isqrt(N - 1) + 1
    b = -(-N // a)
    keys = jax.random.bits(key, (_ROUNDS,), jnp.uint32)

    def turn(number):
        left, right = number // b, number % b
        for k in range(0, _ROUNDS, 2):
            left = _sum(left, _below(a, right, keys[k]), a)
            right = _sum(right, _below(b, left, keys[k + 1]), b)
        return left * b + right

    def back(number):
        left, right = number // b, number % b
        for k in range(_ROUNDS - 2, -1, -2):
            right = _sum(right, b - _below(b, left, keys[k + 1]), b)
            left = _sum(left, a - _below(a, right, keys[k]), a)
        return left * b + right

    order = turn(jnp.arange(N, dtype=jnp.uint32))
    # A walk passes through numbers of N .. a b - 1, which are few. So walks are found from the preimages of these
    # numbers: a preimage below N is the start of a walk; another one lies on a walk, or on a cycle beyond N.
    beyond = jnp.arange(N, a * b, dtype=jnp.uint32)
    start = back(beyond)
    end = jnp.where(start < N, turn(beyond), 0)
    end = jax.lax.while_loop(lambda at: jnp.any(at >= N), lambda at: jnp.where(at < N, at, turn(at)), end)
    return order.at[start].set(end, mode="drop").astype(jnp.int32)


def _below(bound: int, number, key):
    """A hash of ``number`` under ``key``, from ``0 .. bound - 1``, for bounds up to ``2^16``."""
    h = number * jnp.uint32(0x9E3779B1) + key
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    h = h ^ (h >> 16)
    return ((h >> 16) * jnp.uint32(bound)) >> 16


def _sum(one, other, bound: int):
    """The sum of two numbers below ``bound``, modulo ``bound``."""
    total = one + other
    return jnp.where(total < bound, total, total - jnp.uint32(bound))
