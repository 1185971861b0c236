"""PyTorch: transformations of ``torch.func``, arrays of ``array_api_compat.torch``."""

import warnings

import array_api_compat.torch as xp
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from lowvar.core import torch_optimizers
from lowvar.core.torch_graph import program
from lowvar.errors import UserError, one_line

_DRAWN = 64  # turns whose noise is drawn at once


def _jvp_by_vjp(function, primals, tangents):
    """As ``torch.func.jvp``, in reverse mode alone: the vector-Jacobian product is linear in the vector, and its
    transpose is the Jacobian-vector product."""
    value, pull = torch.func.vjp(function, *primals)  # type: ignore[misc]

    def along(cotangent):
        pulled = zip(pytree.tree_leaves(pull(cotangent)), pytree.tree_leaves(tangents), strict=True)
        return sum((one * tangent).sum() for one, tangent in pulled)

    return value, torch.func.grad(along)(pytree.tree_map(torch.zeros_like, value))


def _rows(axis, arg):
    """The lengths of the mapped axes in ``arg``."""
    if axis is None:
        return []
    if axis == 0:
        return [leaf.shape[0] for leaf in pytree.tree_leaves(arg)]
    return [rows for part, of in zip(arg, axis, strict=True) for rows in _rows(of, part)]


def _only(axis, arg):
    """``arg`` at the one index of its mapped axes."""
    if axis is None:
        return arg
    if axis == 0:
        return pytree.tree_map(lambda leaf: leaf[0], arg)
    return type(arg)(*(_only(of, part) for part, of in zip(arg, axis, strict=True)))


class _Torch:
    name = "torch"
    xp = xp
    optimizers = torch_optimizers
    grad = staticmethod(torch.func.grad)
    erf = staticmethod(torch.erf)
    relu = staticmethod(torch.relu)  # `where` on as many numbers takes twenty times as long
    stop_gradient = staticmethod(torch.Tensor.detach)
    tree_map = staticmethod(pytree.tree_map)

    @staticmethod
    def value_and_grad(function):
        both = torch.func.grad_and_value(function)
        return lambda *args: both(*args)[::-1]

    @staticmethod
    def jvp(function, primals, tangents):
        # PyTorch gives the tangents of some scalars in float64, which indexed gradients of float32 refuse
        try:
            value, tangent = torch.func.jvp(function, primals, tangents)  # type: ignore[misc]
        except NotImplementedError as error:
            raise UserError(
                "PyTorch cannot differentiate the functions of this model twice, as an estimator with control variates "
                f"does; 'naive', 'stl' and 'mlmc' do not ({one_line(error)})"
            ) from error
        except RuntimeError as error:
            if "dtypes match" not in str(error):
                raise
            return _jvp_by_vjp(function, primals, tangents)
        return value, pytree.tree_map(lambda slope, of: slope.to(of.dtype), tangent, value)

    @staticmethod
    def vmap(function, in_axes=0):
        mapped = torch.func.vmap(function, in_dims=in_axes)

        def call(*args):
            axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
            if max(rows for axis, arg in zip(axes, args, strict=True) for rows in _rows(axis, arg)) > 1:
                return mapped(*args)
            # a single row needs no vmap, whose overhead is as large as small arithmetic
            result = function(*(_only(axis, arg) for axis, arg in zip(axes, args, strict=True)))
            return pytree.tree_map(lambda leaf: leaf[None], result)

        return call

    @staticmethod
    def solve_triangular(factor, right, transposed=False):
        return torch.linalg.solve_triangular(factor.mT if transposed else factor, right, upper=transposed)

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
    def add_rows(array, index, rows):
        return array.index_put((index,), rows, accumulate=True)

    @staticmethod
    def scan_or_loop(body, carry, xs, part=None):
        leaves, structure = pytree.tree_flatten(xs)
        for row in zip(*(leaf[slice(*(part or (None,)))] for leaf in leaves), strict=True):
            carry = body(carry, pytree.tree_unflatten(list(row), structure))
        return carry

    @staticmethod
    def compile(function):
        programs = {}

        def call(*args):
            leaves, structure = pytree.tree_flatten(args)
            leaves = [_Torch.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
            # dicts with another key order have their leaves in another order, possibly with the same shapes
            form = str(structure), tuple((leaf.shape, leaf.dtype) for leaf in leaves)
            if form not in programs:
                programs[form] = _program(function, leaves, structure)
            run, result = programs[form]
            # programs are traced for contiguous arrays
            return pytree.tree_unflatten(run(*(leaf.contiguous() for leaf in leaves)), result)

        return call

    @staticmethod
    def jit(function):
        return function

    @staticmethod
    def repeat(turn, draw):
        one = _Torch.compile(_Torch.vmap(turn))

        @jax.jit
        def drawn(keys, first):
            block = jax.vmap(lambda key: jax.vmap(lambda t: draw(key, first + t))(jnp.arange(_DRAWN)))(keys)
            return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), block)

        def run(states, keys, first, count):
            if count == 0:  # traces the program by a turn whose result is discarded
                run(states, keys, first, 1)
                return states
            for start in range(first - first % _DRAWN, first + count, _DRAWN):
                block = _Torch.from_jax(drawn(keys, start))
                for t in range(max(start, first), min(start + _DRAWN, first + count)):
                    states = one(states, pytree.tree_map(lambda leaf: leaf[t - start], block))
            return states

        return run

    @staticmethod
    def state_bytes(function, *shapes):
        return 0

    @staticmethod
    def map(function, xs, together=1):
        leaves, structure = pytree.tree_flatten(xs)
        count = len(leaves[0])
        if together > 1:
            groups = [pytree.tree_map(lambda leaf: leaf[i : i + together], xs) for i in range(0, count, together)]
            parts = [_Torch.vmap(function)(group) for group in groups]
            return pytree.tree_map(lambda *found: torch.cat(found), *parts)
        rows = (pytree.tree_unflatten([leaf[i] for leaf in leaves], structure) for i in range(count))
        parts = [function(row) for row in rows]
        return pytree.tree_map(lambda *found: torch.stack(found), *parts)

    @staticmethod
    def wait(tree):
        pass

    @staticmethod
    def form(function, *arguments):
        return function(*arguments)

    @staticmethod
    def leaves(tree):
        return pytree.tree_leaves(_Torch.to_numpy(tree))

    @staticmethod
    def shapes(tree):
        return [(one.shape, one.dtype) for one in _Torch.leaves(tree)]

    @staticmethod
    def rebuilt(leaves, like):
        arrays = [_Torch.asarray(np.array(leaf)) for leaf in leaves]
        return pytree.tree_unflatten(arrays, pytree.tree_structure(like))

    @staticmethod
    def asarray(value, like=None):
        if not isinstance(value, torch.Tensor):
            value = torch.from_numpy(np.array(value)).to(torch.get_default_device())
        if like is not None:
            value = value.to(like.device, like.dtype if value.is_floating_point() else None)
        return value

    @staticmethod
    def from_jax(tree):
        return jax.tree.map(_Torch.asarray, tree)

    @staticmethod
    def to_numpy(tree):
        return pytree.tree_map(lambda leaf: leaf.detach().cpu().numpy(), tree)


def trace_program(function, leaves):
    """``function`` of tensors, which returns several, as a program for tensors of the shapes of ``leaves``.

    Derivatives and ``vmap`` are traced into plain operations, and operations in place into others: an unused one is
    then seen to be unused.
    """
    # make_fx notes the shape of every result; without a mode to note them in, it makes one, with its stack, for each
    noted, examples = tracing(TracingContext(FakeTensorMode())), _examples(leaves)
    with torch.no_grad(), warnings.catch_warnings(), noted:
        warnings.simplefilter("ignore")
        pure = torch.func.functionalize(lambda *leaves: tuple(function(*leaves)), remove="mutations")
        return program(make_fx(pure)(*examples), examples)


def _examples(leaves):
    # the same tensor passed twice would be traced as a single input
    return tuple(leaf.clone(memory_format=torch.contiguous_format) for leaf in leaves)


def _program(function, leaves, structure):
    """``function`` compiled at these shapes, and the structure of its result."""
    result = []

    def flat(*leaves):
        results, spec = pytree.tree_flatten(function(*pytree.tree_unflatten(list(leaves), structure)))
        result.append(spec)
        return results

    return trace_program(flat, leaves), result[0]


BACKEND = _Torch()
