"""Batches and base noise together: what one call of an estimator consumes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lowvar.noise.batches import Batches
from lowvar.noise.gaussian import Gaussian


class Noise(NamedTuple):
    """The randomness of one estimate (or of many, with leading axes).

    Attributes:
        index: data rows, ``(B,)`` integers.
        weight: their weights in the batch's mean, ``(B,)``; they sum to one, and padding has zero.
        rows: number of real rows, a floating scalar.
        eps: base noise, ``(S, dim)``; all rows of a batch share it.
        position: the batch's place in its epoch, an integer scalar.
    """

    index: Any
    weight: Any
    rows: Any
    eps: Any
    position: Any


@dataclass(frozen=True)
class Sampler:
    """Draws ``Noise``, an epoch at a time, from a key."""

    batches: Batches
    gaussian: Gaussian
    dim: int
    dtype: Any

    def epoch(self, key: jax.Array) -> Noise:
        """The noise of one epoch: every array has a leading axis of ``batches.steps``."""
        steps, size = self.batches.steps, self.batches.size
        for_rows, for_eps = jax.random.split(key)
        rows = self.batches.rows
        weight = jnp.where(jnp.arange(size)[None, :] < rows[:, None], 1 / rows[:, None], 0)
        eps = jax.vmap(lambda key: self.gaussian.draw(key, self.dim, self.dtype))(jax.random.split(for_eps, steps))
        return Noise(
            index=self.batches.draw(for_rows),
            weight=weight.astype(self.dtype),
            rows=rows.astype(self.dtype),
            eps=eps,
            position=jnp.arange(steps),
        )


def sampler(batches: Batches, gaussian: Gaussian, dim: int, dtype: Any = None) -> Sampler:
    """A sampler of ``dim``-dimensional noise in ``dtype`` (JAX's default floating type if not given)."""
    return Sampler(batches, gaussian, dim, jnp.zeros(0, dtype).dtype)
