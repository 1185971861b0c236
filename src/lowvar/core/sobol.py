"""Scrambled Sobol points as 32-bit binary fractions, in compilable operations.

The scramble is SciPy's: a random lower triangular matrix for every coordinate (random linear scrambling) and a
random digital shift. Two points have the same joint distribution as under Owen's nested uniform scrambling, so every
integrand has the same variance, and each point alone is uniform. Only the first ``log2 N`` columns of a matrix affect
the first ``N`` points, so a set costs ``1 + log2 N`` random words for each coordinate, against ``N`` or more for
independent points.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError

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


def scrambled(key: jax.Array, particles: int, dim: int) -> jax.Array:
    """``particles`` Sobol points under the scramble of ``key``, ``(particles, dim)`` unsigned 32-bit integers.

    References:
        Matousek (1998), "On the L2-discrepancy for anchored boxes" (the scramble);
        Owen (2003), "Variance with alternative scramblings of digital nets" (the variance is that of nested
        uniform scrambling).

    >>> x = scrambled(jax.random.key(0), 4, 2)
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
