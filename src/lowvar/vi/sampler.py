"""Batches and base noise together: the input of one call of an estimator."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lowvar.core.gaussian import Gaussian
from lowvar.vi.batches import Batches

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
    gaussian: Gaussian
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

    def drawn(self, batch: "Plan | Noise") -> Noise:
        """The noise of one batch of a plan; a ``Noise`` is returned unchanged."""
        if isinstance(batch, Noise):
            return batch
        eps = self.gaussian.draw(batch.key, self.dim, self.dtype)
        return Noise(batch.index, batch.weight, batch.rows, eps, batch.position)

    def epoch(self, key: jax.Array) -> Noise:
        """The noise of one epoch: every array has a leading axis of ``batches.steps``."""
        plan = self.plan(key)
        if self.batches.steps > 1:
            return jax.vmap(self.drawn)(plan)
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


def sampler(batches: Batches, gaussian: Gaussian, dim: int, dtype: Any = None) -> Sampler:
    """A sampler of ``dim``-dimensional noise in ``dtype`` (JAX's default floating type if not given)."""
    dtype = jax.dtypes.canonicalize_dtype(jnp.zeros(0).dtype if dtype is None else dtype)
    return Sampler(batches, gaussian, dim, dtype)
