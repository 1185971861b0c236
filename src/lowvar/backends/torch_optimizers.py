"""optax's ``sgd`` and ``adam`` for trees of tensors, with optax's protocol and defaults."""

import optax
import torch
from torch.utils import _pytree as pytree


def sgd(step_size) -> optax.GradientTransformation:
    """Gradient descent."""

    def update(updates, state, params=None):
        return pytree.tree_map(lambda g: -step_size * g, updates), state

    return optax.GradientTransformation(lambda params: (), update)


def adam(step_size, b1=0.9, b2=0.999, eps=1e-8) -> optax.GradientTransformation:
    """Adam (Kingma and Ba, 2015); the state holds the powers of ``b1`` and ``b2``, in the parameters' dtype."""

    def init(params):
        zeros, ones = pytree.tree_map(torch.zeros_like, params), torch.ones_like(next(iter(params.values())).sum())
        return {"m": zeros, "v": zeros, "b1^t": ones, "b2^t": ones.clone()}

    def update(updates, state, params=None):
        m = pytree.tree_map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], updates)
        v = pytree.tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], updates)
        power1, power2 = state["b1^t"] * b1, state["b2^t"] * b2
        updates = pytree.tree_map(
            lambda m, v: -step_size * (m / (1 - power1)) / (torch.sqrt(v / (1 - power2)) + eps), m, v
        )
        return updates, {"m": m, "v": v, "b1^t": power1, "b2^t": power2}

    return optax.GradientTransformation(init, update)
