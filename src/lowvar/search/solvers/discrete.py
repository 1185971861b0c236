"""Common parts of the discrete searches: noise, population, and checks of settings."""

import math

import jax
import jax.numpy as jnp

from lowvar.errors import UserError


def default_population(dim: int) -> int:
    """``20 + 4 floor(3 + floor(3 ln d) / 2)`` (Lyu and Tsang, Appendix A).

    >>> default_population(100)
    56
    """
    return 20 + 4 * math.floor(3 + math.floor(3 * math.log(dim)) / 2)


def uniforms(population: int, dim: int):
    """``key -> (N, d)`` uniform numbers in [0, 1)."""
    return lambda key: jax.random.uniform(key, (population, dim), jnp.zeros(0).dtype)


def check_share(name: str, value: float, below: float) -> None:
    """Rejects a setting that is not between 0 and ``below``."""
    if not 0 < value < below:
        raise UserError(f"{name} {value}: it must lie between 0 and {below}")
