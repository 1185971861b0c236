"""NumPy's random numbers from JAX's keys."""

import jax
import numpy as np


def numpy_generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator with a JAX key as its seed: its draws compile no program, which takes JAX half a second.

    >>> key = jax.random.key(0)
    >>> bool(numpy_generator(key).random() == numpy_generator(key).random())
    True
    """
    typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    return np.random.default_rng(np.asarray(jax.random.key_data(key) if typed else key))
