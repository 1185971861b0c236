"""JAX: transformations of ``jax``, arrays of ``jax.numpy``."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr, Jaxpr

from lowvar.core.compiled import compiled

_HELD = 2**22  # maximum length of an array in a group of mapped calls
_CALLS = 1009  # a prime: other lengths are seldom its multiples
_KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}  # implementations by dtype


def _is_key(leaf) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


class _Jax:
    name = "jax"
    xp = jnp
    optimizers = optax
    grad = staticmethod(jax.grad)
    jvp = staticmethod(jax.jvp)
    erf = staticmethod(jax.lax.erf)
    relu = staticmethod(lambda x: jnp.where(x > 0, x, jnp.zeros_like(x)))
    vmap = staticmethod(jax.vmap)
    compile = staticmethod(jax.jit)
    jit = staticmethod(compiled)
    stop_gradient = staticmethod(jax.lax.stop_gradient)
    tree_map = staticmethod(jax.tree.map)

    @staticmethod
    def solve_triangular(factor, right, transposed=False):
        return jax.scipy.linalg.solve_triangular(factor, right, trans=int(transposed), lower=True)

    @staticmethod
    def take(tree, index):
        # indices are in range by construction: no bounds handling in the inner loop
        return jax.tree.map(lambda rows: rows.at[index].get(mode="promise_in_bounds"), tree)

    @staticmethod
    def set_rows(tree, index, rows):
        if jnp.ndim(index) == 0:  # a slice, not a scatter: written in place inside a scan
            return jax.tree.map(lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, index, 0), tree, rows)
        return jax.tree.map(lambda old, new: old.at[index].set(new, mode="promise_in_bounds"), tree, rows)

    @staticmethod
    def add_rows(array, index, rows):
        return array.at[index].add(rows, mode="promise_in_bounds")

    @staticmethod
    def scan_or_loop(body, carry, xs, part=None):
        if part is None:
            return jax.lax.scan(lambda carry, x: (body(carry, x), None), carry, xs)[0]
        at = partial(jax.lax.dynamic_index_in_dim, axis=0, keepdims=False)
        first, end = part
        return jax.lax.fori_loop(first, end, lambda i, carry: body(carry, jax.tree.map(lambda x: at(x, i), xs)), carry)

    @staticmethod
    def repeat(turn, draw):
        @partial(jax.jit, donate_argnums=0)
        def run(states, keys, first, count):
            def body(i, states):
                return jax.vmap(lambda state, key: turn(state, draw(key, i)))(states, keys)

            return jax.lax.fori_loop(first, first + count, body, states)

        return run

    @staticmethod
    def state_bytes(function, *shapes):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(function, *shapes)))

    @staticmethod
    def map(function, xs, together=1):
        if together == 1:
            return jax.lax.map(function, xs)
        closed, out = jax.make_jaxpr(function, return_shape=True)(jax.tree.map(lambda leaf: leaf[0], xs))

        def one(x):
            values = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *jax.tree.leaves(x))
            return jax.tree.unflatten(jax.tree.structure(out), values)

        if together * max(_lengths(closed.jaxpr), default=1) > _HELD:
            together = min(together, max(1, _HELD // _widest_of_one(one, xs)))
        group = _group(len(jax.tree.leaves(xs)[0]), together)
        return jax.lax.map(one, xs, batch_size=None if group == 1 else group)

    @staticmethod
    def wait(tree):
        jax.block_until_ready(tree)

    @staticmethod
    def form(function):
        return jax.eval_shape(function)

    @staticmethod
    def leaves(tree):
        plain = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)
        return jax.tree.leaves(_Jax.to_numpy(plain))

    @staticmethod
    def shapes(tree):
        plain = (jax.eval_shape(jax.random.key_data, one) if _is_key(one) else one for one in jax.tree.leaves(tree))
        return [(one.shape, one.dtype) for one in plain]

    @staticmethod
    def rebuilt(leaves, like):
        own, tree = jax.tree.flatten(like)
        arrays = [jnp.asarray(np.array(leaf)) for leaf in leaves]
        return jax.tree.unflatten(
            tree,
            [
                jax.random.wrap_key_data(array, impl=_KEYS[str(one.dtype)]) if _is_key(one) else array
                for array, one in zip(arrays, own, strict=True)
            ],
        )

    @staticmethod
    def asarray(value, like=None):
        value = jnp.asarray(value)
        if like is not None and jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(like.dtype)
        return value

    @staticmethod
    def from_jax(tree):
        return tree

    @staticmethod
    def to_numpy(tree):
        return jax.tree.map(np.asarray, jax.device_get(tree))


def _group(count: int, most: int) -> int:
    """How many of ``count`` calls to map at once: a divisor of it if a large one exists, which needs no remainder."""
    divisor = next(size for size in range(min(count, most), 0, -1) if count % size == 0)
    return divisor if 4 * divisor >= min(count, most) else most


def _widest_of_one(function, xs) -> int:
    """The length of the longest array that a call of a mapped function has for itself.

    Arrays that do not depend on ``xs``, such as the rows of a chunk, are there once for all calls that are mapped at
    once. The lengths of the others are multiples of the number of calls. A function of which no two calls can be mapped
    at once, such as a callback, counts as one of the longest allowed.
    """
    many = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((_CALLS, *leaf.shape[1:]), leaf.dtype), xs)
    try:
        lengths = _lengths(jax.make_jaxpr(jax.vmap(function))(many).jaxpr)
    except NotImplementedError:
        return _HELD
    return max((length // _CALLS for length in lengths if length % _CALLS == 0), default=1)


def _lengths(jaxpr: Jaxpr) -> list[int]:
    """The lengths of all arrays that a trace computes."""
    found = []
    for eqn in jaxpr.eqns:
        found += [math.prod(getattr(var.aval, "shape", ())) for var in eqn.outvars]
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr)):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            found += _lengths(inner) if isinstance(inner, Jaxpr) else []
    return found


BACKEND = _Jax()
