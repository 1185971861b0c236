"""JAX: transformations of ``jax``, arrays of ``jax.numpy``, and ``compiled`` in place of ``jax.jit``.

``jax.jit`` compiles each function object. The programs of a fit close over its data, so a second fit on data of the
same shapes would compile everything again. Here a function is traced, the arrays that it closes over become arguments,
and equal traces share a program. All Python code of the function runs at every trace: a model that reads a changed
global variable gives another trace, or another argument.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.flatten_util import ravel_pytree

from lowvar.core.lapack import bound_batches

bound_batches()

_HELD = 2**22  # maximum length of an array in a group of mapped calls
_CALLS = 1009  # a prime: other lengths are seldom its multiples
_KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}  # implementations by dtype


def _is_key(leaf) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


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
    return [math.prod(getattr(var.aval, "shape", ())) for eqn in _equations(jaxpr) for var in eqn.outvars]


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """The equations of a trace, with those of the functions that it calls."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr)):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            if isinstance(inner, Jaxpr):
                yield from _equations(inner)


_MOST = 2**14  # equations of all programs in memory: a model's fit has 1500 of them, which hold some 25 MB
# settings of JAX that change the trace of a function
_SETTINGS = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_rank_promotion", "jax_numpy_dtype_promotion",
)  # fmt: skip
_PROGRAMS: OrderedDict[Any, tuple[Callable, int]] = OrderedDict()  # with their numbers of equations
_DERIVATIVES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")  # their rules are not executed


def compiled(function: Callable, donate_argnums: int | tuple[int, ...] = (), *, brief: bool = False) -> Callable:
    """``function`` as a compiled one that shares its program with equal functions.

    Args:
        function: of trees of arrays and numbers, all traced.
        donate_argnums: positions of arguments whose memory the program may reuse, see ``jax.jit``.
        brief: whether the program is for a few calls: XLA compiles it faster, and it runs slower.
    """
    options = _brief_options() if brief else None
    if jax.config.jax_use_simplified_jaxpr_constants:  # type: ignore[attr-defined]  # arrays are literals of a trace
        return jax.jit(function, donate_argnums=donate_argnums, compiler_options=options)
    donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
    traced: dict[Any, tuple] = {}

    def call(*args):
        leaves, tree = jax.tree.flatten(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return jax.jit(function)(*args)
        key = tree, tuple(map(_type_of, leaves)), tuple(getattr(jax.config, name) for name in _SETTINGS)
        if key not in traced:
            closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
            sizes = [len(jax.tree.leaves(arg)) for arg in args]
            given = [i for i, size in enumerate(sizes) for _ in range(size)]
            where = tuple(k for k, i in enumerate(given) if i in donated)
            traced[key] = _program(closed.jaxpr, where, function, options), closed.consts, jax.tree.structure(out)
        program, consts, out = traced[key]
        return jax.tree.unflatten(out, program(consts, *leaves))

    return call


@lru_cache
def _brief_options() -> dict[str, Any] | None:
    """What tells XLA to compile fast; None where it knows no such option, and beside a GPU."""
    if jax.default_backend() != "cpu":
        return None
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    while options:
        try:
            jax.jit(lambda: jnp.zeros(()), compiler_options=dict(options)).lower().compile()
            return options
        except Exception:  # of another version, which may lack the last one
            options.popitem()
    return None


def _type_of(leaf) -> Any:
    """The type of an argument for a trace, as a key; ``jax.typeof`` takes many times as long for other arrays."""
    if isinstance(leaf, jax.Array) and isinstance(leaf.dtype, np.dtype):
        return leaf.aval
    return (leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array | np.ndarray | np.generic) else type(leaf)


def _program(jaxpr: Jaxpr, donated: tuple[int, ...], function: Callable, options: dict[str, Any] | None) -> Callable:
    """The program of a function's trace, ``(constants, *arguments) -> results``; the same one for equal traces."""
    key = _form(jaxpr), donated, options is None
    if key in _PROGRAMS:
        _PROGRAMS.move_to_end(key)
    else:

        def run(consts, *args):
            return jax.core.eval_jaxpr(jaxpr, consts, *args)

        run.__name__ = getattr(function, "__name__", "run")  # for JAX's logs
        program = jax.jit(run, donate_argnums=tuple(1 + k for k in donated), compiler_options=options)
        _PROGRAMS[key] = program, sum(1 for _ in _equations(jaxpr))
        while len(_PROGRAMS) > 1 and sum(size for _, size in _PROGRAMS.values()) > _MOST:
            _PROGRAMS.popitem(last=False)
    return _PROGRAMS[key][0]


class _Same:
    """An object that equals only itself; keeping it keeps its identity from being reused."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return id(self.value)

    def __eq__(self, other):
        return isinstance(other, _Same) and self.value is other.value


def _form(jaxpr: Jaxpr) -> tuple:
    """All that determines a trace's results, as a key: variables are numbered in order of appearance."""
    numbers: dict[Any, int] = {}

    def atom(one):
        if isinstance(one, Literal):
            return one.aval, _plain(one.val)
        return numbers.setdefault(one, len(numbers))

    inputs = tuple((atom(var), var.aval) for var in (*jaxpr.constvars, *jaxpr.invars))
    steps = tuple(
        (
            eqn.primitive.name,
            tuple(map(atom, eqn.invars)),
            tuple((atom(var), var.aval) for var in eqn.outvars),
            tuple((name, _plain(eqn.params[name])) for name in sorted(eqn.params) if _matters(eqn, name)),
        )
        for eqn in jaxpr.eqns
    )
    return inputs, steps, tuple(map(atom, jaxpr.outvars))


def _matters(eqn, name: str) -> bool:
    """Whether a parameter of an operation can change its result."""
    if eqn.primitive.name in _DERIVATIVES:
        return isinstance(eqn.params[name], ClosedJaxpr | Jaxpr | int | bool)
    return True


def _plain(value) -> Any:
    """A parameter as a key."""
    if isinstance(value, ClosedJaxpr):
        return _form(value.jaxpr), tuple(map(_plain, value.consts))
    if isinstance(value, Jaxpr):
        return _form(value)
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_plain, value))
    if isinstance(value, dict):
        return dict, tuple((name, _plain(value[name])) for name in sorted(value, key=str))
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return str(value.dtype), _plain(jax.random.key_data(value))  # type: ignore[arg-type]
        array = np.asarray(value)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(value, float):
        return float, value.hex()  # 0.0 equals -0.0
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return type(value), value


def array(value: Any, dtype=None) -> jax.Array:
    """``jnp.asarray`` of numbers of NumPy, for which JAX compiles a program for every shape; this needs none."""
    return jax.device_put(np.array(value, dtype))  # of a copy: JAX may read from its memory later


def unraveled(tree) -> Callable[[Any], Any]:
    """The function of ``ravel_pytree(tree)``, from the shapes alone; vectors of NumPy become arrays of NumPy."""
    leaves, form = jax.tree.flatten(tree)
    ends, found = np.cumsum([leaf.size for leaf in leaves]), []
    jax.eval_shape(lambda tree: found.append(ravel_pytree(tree)[1]), tree)

    def unravel(z):
        if not isinstance(z, np.ndarray):
            return found[0](z)
        parts = np.split(z, ends[:-1]) if leaves else []
        return form.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])

    return unravel


class _Jax:
    name = "jax"
    xp = jnp
    optimizers = optax
    grad = staticmethod(jax.grad)
    value_and_grad = staticmethod(jax.value_and_grad)
    jvp = staticmethod(jax.jvp)
    erf = staticmethod(jax.lax.erf)
    relu = staticmethod(lambda x: jnp.where(x > 0, x, jnp.zeros_like(x)))
    vmap = staticmethod(jax.vmap)
    compile = staticmethod(compiled)
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
    def form(function, *arguments):
        return jax.eval_shape(function, *arguments)

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
        value = array(value) if isinstance(value, np.ndarray) else jnp.asarray(value)
        if like is not None and jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(like.dtype)
        return value

    @staticmethod
    def from_jax(tree):
        return tree

    @staticmethod
    def to_numpy(tree):
        return jax.tree.map(np.asarray, jax.device_get(tree))


BACKEND: Any = _Jax()
