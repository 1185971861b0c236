"""Base noise ``eps ~ N(0, I)`` for a guide, one set of points at a time.

Quasi-random points are scrambled Sobol points, as 32-bit binary fractions in compilable operations. The scramble is
SciPy's: a random lower triangular matrix for every coordinate (random linear scrambling) and a random digital shift.
Two points have the same joint distribution as under Owen's nested uniform scrambling, so every integrand has the same
variance, and each point alone is uniform. Only the first ``log2 N`` columns of a matrix affect the first ``N`` points,
so a set costs ``1 + log2 N`` random words for each coordinate, against ``N`` or more for independent points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from lowvar.errors import UserError


@dataclass(frozen=True)
class BaseNoise:
    """A scheme for drawing ``particles`` points, each with marginal ``N(0, I)``.

    All schemes are symmetric: ``-eps`` has the joint distribution of ``eps``. Random bits are drawn for single
    precision and widened. For an estimate, 24 bits are as good as 53 and take half the time, and both precisions see
    the same noise.

    Attributes:
        name: as in specs.
        particles: points per draw, ``S``.
        draw: ``(key, dim, dtype) -> eps (S, dim)``.
    """

    name: str
    particles: int
    draw: Callable[..., jax.Array]


def independent(particles: int = 1) -> BaseNoise:
    """Independent points.

    >>> independent(2).draw(jax.random.key(0), 3, jnp.float32).shape
    (2, 3)
    """
    _check(particles)
    return BaseNoise("iid", particles, lambda key, dim, dtype: _standard(key, (particles, dim), dtype))


def antithetic(particles: int = 2) -> BaseNoise:
    """Pairs ``eps, -eps``: odd functions of ``eps`` average to exactly zero.

    >>> eps = antithetic(4).draw(jax.random.key(0), 3, jnp.float32)
    >>> bool(jnp.abs(eps.sum(0)).max() < 1e-6)
    True
    """
    if particles < 2 or particles % 2:
        raise UserError(f"num_particles {particles}: antithetic noise needs an even number, 2 or more")

    def draw(key, dim, dtype):
        half = _standard(key, (particles // 2, dim), dtype)
        return jnp.concatenate([half, -half])

    return BaseNoise("antithetic", particles, draw)


def orthogonal(particles: int = 1) -> BaseNoise:
    """Orthogonal points: their directions are orthonormal, their lengths independent and chi distributed.

    More points than dimensions form independent blocks of ``dim``; the last may be short. Directions and
    lengths are the ``Q`` of a Gaussian matrix and the lengths of its columns. The two are independent, as the
    lengths are those of the columns of ``R``, and ``Q`` has the Haar law once the diagonal of ``R`` is positive.

    References:
        Choromanski, Rowland, Sindhwani, Turner and Weller (2018), "Structured evolution with compact
        architectures for scalable policy optimization"; Lyu and Tsang, Appendix H (where ``Z' Z = I`` in Lemma 8
        is impossible: each point would have length one, unlike points of ``N(0, I)``).

    >>> eps = orthogonal(2).draw(jax.random.key(0), 3, jnp.float32)
    >>> bool(jnp.abs(eps[0] @ eps[1]) < 1e-5)
    True
    """
    _check(particles)

    def draw(key, dim, dtype):
        blocks, size = -(-particles // dim), min(particles, dim)
        columns = _standard(key, (blocks, dim, size), dtype)
        q, r = jnp.linalg.qr(columns)
        sign = jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1).astype(dtype)
        length = jnp.sqrt(jnp.sum(columns * columns, axis=-2))
        eps = q * (sign * length)[:, None, :]
        return jnp.swapaxes(eps, 1, 2).reshape(blocks * size, dim)[:particles]

    return BaseNoise("orthogonal", particles, draw)


def rqmc(particles: int = 1) -> BaseNoise:
    """Randomised quasi-Monte Carlo: Sobol points under a fresh scramble for each key, through ``Phi^-1``.

    Means of smooth functions of low effective dimension have far less variance than over independent points.
    Powers of two are best: other numbers of points are less balanced. At most 21201 dimensions.

    References:
        Owen (1997), "Scrambled net variance for integrals of smooth functions"; see also ``scrambled_sobol``.

    >>> eps = rqmc(4).draw(jax.random.key(0), 3, jnp.float32)
    >>> (eps > 0).sum(0).tolist()  # half of the points on either side, in every coordinate
    [2, 2, 2]
    """
    _check(particles)
    return BaseNoise("rqmc", particles, lambda key, dim, dtype: _normal(scrambled_sobol(key, particles, dim), dtype))


GAUSSIAN = {"iid": independent, "antithetic": antithetic, "orthogonal": orthogonal, "rqmc": rqmc}


def _standard(key: jax.Array, shape, dtype) -> jax.Array:
    """Independent standard normal numbers, from single-precision bits."""
    return jax.random.normal(key, shape, jnp.float32).astype(dtype)


def _normal(x: jax.Array, dtype) -> jax.Array:
    """``Phi^-1((x + 1/2) / 2^32)`` of unsigned integers, computed on the half-line: finite and odd in any precision."""
    upper = x >> 31 > 0
    tail = jnp.where(upper, ~x, x).astype(jnp.int32).astype(dtype)  # 0 .. 2^31 - 1, from the far end inwards
    z = ndtri((tail + 0.5) * 2.0**-32)
    return jnp.where(upper, -z, z)


def _check(particles: int) -> None:
    if particles < 1:
        raise UserError(f"particles {particles}: it must be at least 1")


MAX_DIM = 21201  # coordinates with known direction numbers (Joe and Kuo, as in SciPy)
_BITS = 32


@lru_cache(maxsize=16)
def directions(dim: int, count: int) -> np.ndarray:
    """The first ``count`` direction numbers of every coordinate, ``(count, dim)`` unsigned 32-bit integers.

    The sequence in Gray-code order, as SciPy gives it, has direction number ``k`` at place ``2^(k+1) - 1``.

    Raises:
        UserError: more coordinates than available direction numbers.

    References:
        Joe and Kuo (2008), "Constructing Sobol sequences with better two-dimensional projections".

    >>> [f"{int(v):032b}"[:4] for v in directions(2, 3)[:, 1]]
    ['1000', '1100', '1010']
    """
    if dim > MAX_DIM:
        raise UserError(f"rqmc noise in {dim} dimensions: Sobol points are known up to dimension {MAX_DIM}")
    from scipy.stats import qmc  # slow to import, and only needed here

    sequence = qmc.Sobol(dim, scramble=False)
    numbers = np.empty((count, dim), np.uint32)
    for k in range(count):
        sequence.fast_forward(2 ** (k + 1) - 1 - sequence.num_generated)
        numbers[k] = np.ldexp(sequence.random(1)[0], _BITS).astype(np.uint32)
    numbers.flags.writeable = False
    return numbers


def points(numbers: jax.Array, particles: int, shift: jax.Array) -> jax.Array:
    """The first ``particles`` points of direction numbers ``(count, dim)``, with the digital shift ``shift (dim,)``.

    Point ``i`` is the exclusive or of the numbers at the binary digits of ``i``, and of the shift. Each point is
    computed independently: doubling the set takes fewer operations, but XLA cannot fuse it with ``Phi^-1``.
    """
    index = np.arange(particles, dtype=np.uint32)[:, None]
    digits = jnp.broadcast_to(shift[None, :], (particles, shift.shape[0]))
    for k, number in enumerate(numbers):
        chosen = np.uint32(0) - (index >> np.uint32(k) & np.uint32(1))  # all digits, or none
        digits = digits ^ (chosen & number[None, :])
    return digits


def scrambled_sobol(key: jax.Array, particles: int, dim: int) -> jax.Array:
    """``particles`` Sobol points under the scramble of ``key``, ``(particles, dim)`` unsigned 32-bit integers.

    References:
        Matousek (1998), "On the L2-discrepancy for anchored boxes" (the scramble);
        Owen (2003), "Variance with alternative scramblings of digital nets" (the variance is that of nested
        uniform scrambling).

    >>> x = scrambled_sobol(jax.random.key(0), 4, 2)
    >>> jnp.sort(x >> 30, axis=0).tolist()  # one point in each quarter, in every coordinate
    [[0, 0], [1, 1], [2, 2], [3, 3]]
    """
    count = (particles - 1).bit_length()
    plain = directions(dim, count)
    words = jax.random.bits(key, (count + 1, dim), jnp.uint32)
    numbers = jnp.zeros((count, dim), jnp.uint32)
    for j in range(count):  # column j of the matrices: zeros above the diagonal, one on it, random below
        column = (words[j] | np.uint32(1 << (_BITS - 1))) >> np.uint32(j)
        digit = (plain >> np.uint32(_BITS - 1 - j)) & np.uint32(1) > 0
        numbers = numbers ^ jnp.where(digit, column[None, :], np.uint32(0))
    return points(numbers, particles, words[count])
