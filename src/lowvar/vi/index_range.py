"""Rows whose log-likelihood reads an array beyond its ends, where JAX takes another entry without a word.

Groups that are numbered from 1, and the -1 by which pandas codes a missing category, are such indices. The program of
the log-likelihoods is run with NaN for these entries: a row that uses one is then not finite, and a row whose model
replaces it, as by ``jnp.where``, is. The same program tells which arrays are read by the row numbers themselves.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.lax import GatherScatterMode


def strict(
    function: Callable[[Any, Any], Any], z: Any, index: Any, data: Iterable[Any]
) -> Callable[[Any, Any], Any] | None:
    """``function`` with NaN in place of entries beyond the ends of arrays; None if only row numbers are its indices.

    Args:
        function: of a point and of row numbers.
        z: such a point.
        index: such row numbers, all in range.
        data: the arrays that it may close over; indices made of other constants, as in ``x[:, [0, -1]]``, are meant.
    """
    closed = jax.make_jaxpr(function)(z, index)
    made = {out: eqn for eqn in closed.jaxpr.eqns for out in eqn.outvars}
    rows = closed.jaxpr.invars[-1]
    known = {id(one) for one in data}
    sources = {rows, *(v for v, one in zip(closed.jaxpr.constvars, closed.consts, strict=True) if id(one) in known)}
    put, eqns, found = {}, [], False
    for eqn in closed.jaxpr.eqns:
        name = eqn.primitive.name
        if name == "select_n" and _counts_from_end(eqn, made) and _origins(eqn.invars[1], made) & sources:
            put[eqn.outvars[0]] = eqn.invars[1]  # the index as the user wrote it
            found = found or eqn.invars[1] is not rows
            continue
        given = [one if isinstance(one, Literal) else put.get(one, one) for one in eqn.invars]
        params = eqn.params
        if name == "gather" and _is_written_plainly(params):
            params = {**params, "mode": GatherScatterMode.FILL_OR_DROP, "fill_value": _gone(eqn.outvars[0].aval.dtype)}
        eqns.append(eqn.replace(invars=given, params=params))
    if not found:
        return None
    run = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts))
    return lambda z, index: run(z, index)[0]


def _is_written_plainly(params) -> bool:
    """Whether a gather is that of ``x[i]``; under ``vmap``, it is a slice that is moved in and loses no axis."""
    moved = params["mode"] == GatherScatterMode.CLIP and not params["dimension_numbers"].collapsed_slice_dims
    return moved or params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS


def _gone(dtype) -> float | int:
    """NaN, or a whole number that is beyond the ends of an array too."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return float("nan")
    return jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.signedinteger) else 0


def _counts_from_end(eqn, made) -> bool:
    """Whether this is ``select_n(index < 0, index, index + n)``, by which JAX counts negative ones from the end."""
    which, index, moved = eqn.invars[:3]
    below, plus = (None if isinstance(one, Literal) else made.get(one) for one in (which, moved))
    if below is None or plus is None or isinstance(index, Literal):
        return False
    ours = (below.primitive.name, plus.primitive.name) == ("lt", "add") and jnp.issubdtype(
        index.aval.dtype, jnp.integer
    )
    return bool(ours and below.invars[0] is index and plus.invars[0] is index)


def _origins(var, made) -> set:
    """The arguments and constants that a variable is made of."""
    pending, seen, found = [var], set(), set()
    while pending:
        one = pending.pop()
        if isinstance(one, Literal) or one in seen:
            continue
        seen.add(one)
        if one in made:
            pending += made[one].invars
        else:
            found.add(one)
    return found


def by_rows(function: Callable[[Any, Any], Any], z: Any, index: Any, data: Mapping[str, Any]) -> tuple[set, set]:
    """The arrays whose entries the row numbers themselves select, and those that others, made of them, do.

    Entry ``i`` of an array in the first set alone belongs to row ``i``: it is no neighbour, nor that of a group.

    Args:
        function: of a point and of row numbers.
        z: such a point.
        index: such row numbers, fewer than there are.
        data: arrays by name.
    """
    closed = jax.make_jaxpr(function)(z, index)
    made = {out: eqn for eqn in closed.jaxpr.eqns for out in eqn.outvars}
    rows, pairs = closed.jaxpr.invars[-1], list(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    names = {var: key for key, one in data.items() for var, const in pairs if const is one}
    themselves, others = set(), set()
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name != "gather" or rows not in _origins(eqn.invars[1], made):
            continue
        array = eqn.invars[0]
        lengths = {array.aval.shape[axis] for axis in eqn.params["dimension_numbers"].start_index_map}
        read = {names[one] for one in _origins(array, made) if one in names and len(data[names[one]]) in lengths}
        (themselves if _is_rows(eqn.invars[1], rows, made) else others).update(read)
    return themselves, others


def _is_rows(var, rows, made) -> bool:
    """Whether an index has the row numbers themselves, in any shape, for an axis of the array."""
    if var is rows or isinstance(var, Literal) or var not in made:
        return var is rows
    eqn = made[var]
    if eqn.primitive.name == "select_n" and _counts_from_end(eqn, made):
        return _is_rows(eqn.invars[1], rows, made)
    return eqn.primitive.name in _SHAPES and any(_is_rows(one, rows, made) for one in eqn.invars)


_SHAPES = ("broadcast_in_dim", "reshape", "concatenate", "convert_element_type", "squeeze", "copy")
