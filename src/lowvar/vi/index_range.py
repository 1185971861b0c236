"""Rows whose log-likelihood reads an array beyond its ends, where JAX takes another entry without a word.

Groups that are numbered from 1, and the -1 by which pandas codes a missing category, are such indices. The program of
the log-likelihoods is run with NaN for these entries: a row that uses one is then not finite, and a row whose model
replaces it, as by ``jnp.where``, is.
"""

from collections.abc import Callable, Iterable
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
        if name == "select_n" and _counts_from_end(eqn, made) and _depends(eqn.invars[1], sources, made):
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


def _depends(var, sources, made) -> bool:
    """Whether an index is made of some of ``sources``."""
    pending, seen = [var], set()
    while pending:
        one = pending.pop()
        if isinstance(one, Literal) or one in seen:
            continue
        if one in sources:
            return True
        seen.add(one)
        pending += made[one].invars if one in made else []
    return False
