"""PyTorch: transformations of ``torch.func``, arrays of ``array_api_compat.torch``."""

import warnings

import array_api_compat.torch as xp
import numpy as np
import torch
from torch.utils import _pytree as pytree

# torch resizes an output of its own when a Hessian-vector product is mapped twice, and warns of it
warnings.filterwarnings("ignore", message="An output with one or more elements was resized")


def _axes(in_axes):
    return tuple(in_axes) if isinstance(in_axes, list) else in_axes


class _Torch:
    name = "torch"
    xp = xp
    grad = staticmethod(torch.func.grad)
    jvp = staticmethod(torch.func.jvp)
    tree_map = staticmethod(pytree.tree_map)

    @staticmethod
    def value_and_grad(function):
        swapped = torch.func.grad_and_value(function)

        def value_and_grad(*args):
            gradient, value = swapped(*args)
            return value, gradient

        return value_and_grad

    @staticmethod
    def vmap(function, in_axes=0):
        return torch.func.vmap(function, in_dims=_axes(in_axes))

    @staticmethod
    def stop_gradient(tree):
        return pytree.tree_map(torch.Tensor.detach, tree)

    @staticmethod
    def take(tree, index):
        return pytree.tree_map(lambda rows: rows[index], tree)

    @staticmethod
    def set_rows(tree, index, rows):
        def replace(old, new):
            where = index.reshape(-1)
            new = new.expand(*where.shape, *old.shape[1:]) if new.ndim < old.ndim or where.ndim else new
            return old.index_put((where,), new.to(old.dtype))

        return pytree.tree_map(replace, tree, rows)

    @staticmethod
    def scan_or_loop(body, carry, xs):
        leaves, structure = pytree.tree_flatten(xs)
        for row in zip(*leaves, strict=True):
            carry = body(carry, pytree.tree_unflatten(list(row), structure))
        return carry

    @staticmethod
    def asarray(value, like=None):
        if not isinstance(value, torch.Tensor):
            value = torch.from_numpy(np.array(value))
        if like is not None:
            value = value.to(like.device, like.dtype if value.is_floating_point() else None)
        return value

    @staticmethod
    def to_numpy(tree):
        return pytree.tree_map(lambda leaf: leaf.detach().cpu().numpy(), tree)


BACKEND = _Torch()
