"""``jax.jit`` for functions that are made anew at every call of the library, such as those of a fit.

``jax.jit`` compiles each function object. The programs of a fit close over its data, so a second fit on data of the
same shapes would compile everything again. Here a function is traced, the arrays that it closes over become arguments,
and equal traces share a program. All Python code of the function runs at every trace: a model that reads a changed
global variable gives another trace, or another argument.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

_MOST = 128  # programs that are kept
_PROGRAMS: OrderedDict[Any, Callable] = OrderedDict()
_DERIVATIVES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")  # their rules are not executed


def compiled(function: Callable, donate_argnums: int | tuple[int, ...] = ()) -> Callable:
    """``function`` as a compiled one that shares its program with equal functions.

    Args:
        function: of trees of arrays and numbers, all traced.
        donate_argnums: positions of arguments whose memory the program may reuse, see ``jax.jit``.
    """
    if jax.config.jax_use_simplified_jaxpr_constants:  # type: ignore[attr-defined]  # arrays are literals of a trace
        return jax.jit(function, donate_argnums=donate_argnums)
    donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
    traced: dict[Any, tuple] = {}

    def call(*args):
        leaves, tree = jax.tree.flatten(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return jax.jit(function)(*args)
        key = tree, tuple(map(jax.typeof, leaves)), jax.config.jax_enable_x64  # type: ignore[attr-defined]
        if key not in traced:
            closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
            sizes = [len(jax.tree.leaves(arg)) for arg in args]
            given = [i for i, size in enumerate(sizes) for _ in range(size)]
            where = tuple(k for k, i in enumerate(given) if i in donated)
            traced[key] = _program(closed.jaxpr, where, function), closed.consts, jax.tree.structure(out)
        program, consts, out = traced[key]
        return jax.tree.unflatten(out, program(consts, *leaves))

    return call


def _program(jaxpr: Jaxpr, donated: tuple[int, ...], function: Callable) -> Callable:
    """The program of a function's trace, ``(constants, *arguments) -> results``; the same one for equal traces."""
    key = _form(jaxpr), donated
    if key in _PROGRAMS:
        _PROGRAMS.move_to_end(key)
    else:

        def run(consts, *args):
            return jax.core.eval_jaxpr(jaxpr, consts, *args)

        run.__name__ = getattr(function, "__name__", "run")  # for JAX's logs
        _PROGRAMS[key] = jax.jit(run, donate_argnums=tuple(1 + k for k in donated))
        if len(_PROGRAMS) > _MOST:
            _PROGRAMS.popitem(last=False)
    return _PROGRAMS[key]


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
