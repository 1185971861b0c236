"""Random numbers of a problem, by name."""

import hashlib

import numpy as np

from lowvar.errors import UserError


def generator(seed: int, *names: object) -> np.random.Generator:
    """The random stream of ``names`` under ``seed``, for a problem's definition; searches draw from other streams.

    Args:
        seed: the problem's seed.
        names: purpose of the numbers, e.g. ``"rotation", 100``.

    Raises:
        UserError: the seed is not a whole number.

    >>> a, b = generator(0, "shift", 2), generator(0, "shift", 3)
    >>> bool(a.random() == b.random())
    False
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise UserError(f"seed {seed!r}: it must be a whole number")
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))
