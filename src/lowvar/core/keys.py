"""Random keys derived from names: two methods share noise exactly if they use the same names."""

import hashlib

import jax
import numpy as np

_WORD = 2**32 - 1
_PARITY = 0x1BD11BDA  # of Threefry's key schedule, as are its rotations
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def named_key(seed: int, *names: object) -> jax.Array:
    """The key of ``names`` under ``seed``.

    Args:
        seed: the experiment's seed.
        names: purpose of the key, e.g. ``"sonar", "noise", 3``, without the method if methods share noise.

    Returns:
        A typed JAX key, the same on every machine.

    >>> a, b = named_key(0, "sonar", "noise", 1), named_key(0, "sonar", "noise", 2)
    >>> bool((jax.random.key_data(a) == jax.random.key_data(b)).all())
    False
    """
    digest = hashlib.sha256("\x1f".join([str(int(seed)), *map(str, names)]).encode()).digest()
    word, second = (int.from_bytes(digest[i : i + 4], "big") for i in (0, 4))
    return jax.random.wrap_key_data(jax.device_put(_folded_in(word, second)), impl="threefry2x32")


def _folded_in(seed: int, data: int) -> np.ndarray:
    """``fold_in(key(seed), data)`` of ``jax.random``, which compiles two programs for it, a twentieth of a first fit.

    Threefry with 20 rounds (Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3), of which the counter is
    ``(0, data)`` and the key ``(0, seed)``.
    """
    keys = 0, seed, seed ^ _PARITY
    x, y = 0, (data + seed) & _WORD
    for group in range(5):
        for shift in _ROTATIONS[group % 2]:
            x = (x + y) & _WORD
            y = ((y << shift | y >> (32 - shift)) & _WORD) ^ x
        x, y = (x + keys[(group + 1) % 3]) & _WORD, (y + keys[(group + 2) % 3] + group + 1) & _WORD
    return np.array([x, y], np.uint32)


def numpy_generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator with a JAX key as its seed: its draws compile no program, which takes JAX half a second.

    >>> key = jax.random.key(0)
    >>> bool(numpy_generator(key).random() == numpy_generator(key).random())
    True
    """
    typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    return np.random.default_rng(np.asarray(jax.random.key_data(key) if typed else key))
