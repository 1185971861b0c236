"""Random keys derived from names: two methods share noise exactly if they use the same names."""

import hashlib

import jax


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
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    word = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    second = int.from_bytes(hashlib.sha256(text.encode()).digest()[4:8], "big")
    return jax.random.fold_in(jax.random.key(word, impl="threefry2x32"), second)
