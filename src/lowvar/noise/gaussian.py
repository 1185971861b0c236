"""Base noise ``eps ~ N(0, I)`` for a guide, a set of points at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lowvar.errors import UserError


@dataclass(frozen=True)
class Gaussian:
    """A way of drawing ``samples`` points of ``N(0, I)``, each with that marginal law.

    Attributes:
        name: as in specs.
        samples: points per draw, ``S``.
        draw: ``(key, dim, dtype) -> eps (S, dim)``.
    """

    name: str
    samples: int
    draw: Callable[..., jax.Array]


def independent(samples: int = 1) -> Gaussian:
    """Independent points.

    >>> independent(2).draw(jax.random.key(0), 3, jnp.float32).shape
    (2, 3)
    """
    if samples < 1:
        raise UserError(f"samples {samples}: it must be at least 1")
    return Gaussian("iid", samples, lambda key, dim, dtype: jax.random.normal(key, (samples, dim), dtype))


def antithetic(samples: int = 2) -> Gaussian:
    """Pairs ``eps, -eps``: odd functions of ``eps`` are averaged without error.

    >>> float(jnp.abs(antithetic(4).draw(jax.random.key(0), 3, jnp.float32).sum()))
    0.0
    """
    if samples < 2 or samples % 2:
        raise UserError(f"antithetic samples {samples}: it must be an even number, 2 or more")

    def draw(key, dim, dtype):
        half = jax.random.normal(key, (samples // 2, dim), dtype)
        return jnp.concatenate([half, -half])

    return Gaussian("antithetic", samples, draw)


GAUSSIAN = {"iid": independent, "antithetic": antithetic}
