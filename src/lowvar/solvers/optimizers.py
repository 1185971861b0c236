"""Optimizers by name: optax's for JAX, the same formulas in the array API for the other backends.

All follow optax's protocol: ``init(params) -> state`` and ``update(gradient, state, params) -> (updates, state)``.
A step size may be a traced scalar, so one program runs a whole grid of them.
"""

import math

import optax

from lowvar.errors import UserError
from lowvar.registry import Registry


def _sgd(backend, step_size):
    def update(updates, state, params=None):
        return backend.tree_map(lambda g: -step_size * g, updates), state

    return optax.GradientTransformation(lambda params: (), update)


def _scheduled(backend, inner, schedule):
    """``inner`` with its updates multiplied by ``eta_t``; updates of lowvar's optimizers are proportional to it."""
    xp = backend.xp

    def init(params):
        return {"of": inner.init(params), "t": xp.sum(xp.zeros_like(_any_leaf(params)))}

    def update(updates, state, params=None):
        updates, of = inner.update(updates, state["of"], params)
        eta = schedule.eta(state["t"], xp)
        return backend.tree_map(lambda u: eta * u, updates), {"of": of, "t": state["t"] + 1}

    return optax.GradientTransformation(init, update)


def _adam(backend, step_size, b1=0.9, b2=0.999, eps=1e-8):
    xp = backend.xp

    def init(params):
        zeros = backend.tree_map(xp.zeros_like, params)
        return {
            "m": zeros,
            "v": zeros,
            "b1^t": xp.ones_like(_any_leaf(params)),
            "b2^t": xp.ones_like(_any_leaf(params)),
        }

    def update(updates, state, params=None):
        m = backend.tree_map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], updates)
        v = backend.tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], updates)
        power1, power2 = state["b1^t"] * b1, state["b2^t"] * b2
        updates = backend.tree_map(
            lambda m, v: -step_size * (m / (1 - power1)) / (xp.sqrt(v / (1 - power2)) + eps), m, v
        )
        return updates, {"m": m, "v": v, "b1^t": power1, "b2^t": power2}

    return optax.GradientTransformation(init, update)


def _cast(backend, transformation):
    """``transformation`` with updates cast to the gradient's dtype: an optax schedule may promote them to float64."""

    def update(updates, state, params=None):
        raw, state = transformation.update(updates, state, params)
        return backend.tree_map(lambda u, g: backend.asarray(u, like=g), raw, updates), state

    return optax.GradientTransformation(transformation.init, update)


def _any_leaf(params):
    return next(iter(params.values()))


def _sgd_of(backend, step_size):
    return optax.sgd(step_size) if backend.name == "jax" else _sgd(backend, step_size)


def _adam_of(backend, step_size):
    return optax.adam(step_size) if backend.name == "jax" else _adam(backend, step_size)


OPTIMIZERS = Registry("optimizer", {"sgd": _sgd_of, "adam": _adam_of}, given=("backend", "step_size"))


def optimizer(
    name: str | optax.GradientTransformation, step_size, backend, schedule=None
) -> optax.GradientTransformation:
    """The optimizer called ``name`` with ``step_size``, for arrays of ``backend``.

    Args:
        name: as in specs; or an optax transformation, which has its own step size.
        step_size: a number, or a traced scalar.
        backend: the backend of the arrays.
        schedule: a ``Schedule`` that multiplies the updates; constant if not given.

    Raises:
        UserError: unknown name, a step size that is not positive, or an optax transformation for another backend.
    """
    if not isinstance(name, str) and backend.name != "jax":
        raise UserError("optimizer: an optax transformation is for JAX; for a model in PyTorch give 'adam' or 'sgd'")
    if (
        isinstance(name, str)
        and isinstance(step_size, int | float)
        and not (step_size > 0 and math.isfinite(step_size))
    ):
        raise UserError(f"step size {step_size}: it must be positive")
    transformation = OPTIMIZERS.get(name)(backend, step_size) if isinstance(name, str) else _cast(backend, name)
    return transformation if schedule is None else _scheduled(backend, transformation, schedule)
