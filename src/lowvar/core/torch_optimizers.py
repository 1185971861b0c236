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
    """Adam (Kingma and Ba, 2015); the state holds the powers of ``b1`` and ``b2``, in the parameters' dtype.

    The moments of all parameters are one vector.
    """

    def init(params):
        zeros = torch.zeros_like(_joined(params))
        one = torch.ones_like(zeros.sum())
        return {"m": zeros, "v": zeros.clone(), "b1^t": one, "b2^t": one.clone()}

    def update(updates, state, params=None):
        g = _joined(updates)
        m = b1 * state["m"] + (1 - b1) * g
        v = b2 * state["v"] + (1 - b2) * g * g
        power1, power2 = state["b1^t"] * b1, state["b2^t"] * b2
        step = -step_size * (m / (1 - power1)) / (torch.sqrt(v / (1 - power2)) + eps)
        return _parted(step, updates), {"m": m, "v": v, "b1^t": power1, "b2^t": power2}

    return optax.GradientTransformation(init, update)


def _joined(tree):
    """The leaves of a tree as one vector, which takes as many operations as one of them."""
    leaves = [leaf.reshape(-1) for leaf in pytree.tree_leaves(tree)]
    return torch.cat(leaves) if len(leaves) > 1 else leaves[0]


def _parted(vector, like):
    """The tree whose leaves ``_joined`` joins, with the structure and shapes of ``like``."""
    leaves, structure = pytree.tree_flatten(like)
    parts = vector.split([leaf.numel() for leaf in leaves])
    leaves = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return pytree.tree_unflatten(leaves, structure)
