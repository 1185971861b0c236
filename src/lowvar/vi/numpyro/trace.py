"""A user's NumPyro model and data: conversion, a first trace, and the sites."""

import copy
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.distributions.util import sum_rightmost
from numpyro.primitives import Messenger

from lowvar.core.precision import rounded
from lowvar.core.rows import USE_OF_PARQUET, Parquet, native, of_numbers
from lowvar.errors import UserError, kind_of, one_line

RUNNING = threading.RLock()  # held while a model runs: NumPyro's handlers are one stack for all threads


def sites_of(handled, /, **data):
    """The sites of one run of a model under handlers; it waits for runs in other threads."""
    with RUNNING:
        return handlers.trace(handled).get_trace(**data)


class FixedIndex(Messenger):
    """Substitutes ``index`` for the data plate's random index; other plates return the indices of all their rows."""

    def __init__(self, fn, plate, index):
        self.plate, self.index = plate, index
        super().__init__(fn)

    def process_message(self, msg):
        """Replaces the plate's index."""
        if msg["type"] == "plate" and msg["name"] == self.plate:
            size, _ = msg["args"]
            msg["args"] = (size, self.index.shape[0])
            msg["value"] = self.index
        elif msg["type"] == "plate" and msg["args"][1] not in (None, msg["args"][0]):
            _whole(msg)


def plain(model):
    """The function inside ``jax.jit``, whose sites NumPyro's handlers would not see."""
    while isinstance(model, jax.stages.Wrapped) and hasattr(model, "__wrapped__"):
        model = model.__wrapped__
    return model


class AllRows(Messenger):
    """The model without subsampling: plates return the indices of all their rows."""

    def process_message(self, msg):
        """Replaces the size of a subsample and its random indices."""
        if msg["type"] == "plate":
            _whole(msg)


def _whole(plate):
    """Replaces the size of a plate's subsample and its random indices."""
    size, _ = plate["args"]
    plate["args"], plate["value"] = (size, size), jnp.arange(size)


def converted(model, data, name) -> dict[str, Any]:
    """The keyword arguments of a model with JAX arrays.

    Raises:
        UserError: not a function, not a mapping, or an entry that is no array of numbers.
    """
    if not callable(model):
        raise UserError(f"{name}: the model must be a function, not {type(model).__name__}")
    if isinstance(data, Parquet):
        raise UserError(f"{name}: rows of a Parquet are for lowvar.fit alone; give arrays, of a sample of the rows")
    if not isinstance(data, Mapping):
        raise UserError(f"{name}: data must be a dict of the model's keyword arguments, not {type(data).__name__}")
    return {
        key: each(lambda name, leaf: as_array(name, leaf) if isinstance(leaf, np.ndarray) else leaf, key, value)
        if isinstance(value, dict | tuple)
        else as_array(key, value)
        for key, value in data.items()
    }


def each(function, name, value):
    """``value`` with ``function(name, leaf)`` in place of the leaves of its dicts, tuples and lists."""
    if isinstance(value, dict):
        parts = copy.copy(value)
        parts.update({key: each(function, f"{name}[{key!r}]", one) for key, one in value.items()})
        return parts
    if isinstance(value, tuple | list):
        parts = [each(function, f"{name}[{k}]", one) for k, one in enumerate(value)]
        return parts if isinstance(value, list) else value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return function(name, value)


def leaves(data: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of ``data`` by name, such as ``d['y']`` for those of a dict ``d``."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        each(found.__setitem__, key, value)
    return found


def as_array(key, value, where="data"):
    """``value`` as a JAX array, if it is an array or a list; 0-dimensional integers as Python's."""
    if not isinstance(value, np.ndarray | list | tuple | jax.Array | np.generic):
        try:
            if hasattr(value, "to_numpy"):
                value = value.to_numpy()  # pandas, polars, xarray
            elif hasattr(value, "__array__"):
                value = np.asarray(value)  # torch
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"{where}: {key!r} is {kind_of(value)} that NumPy cannot read: {one_line(error)}"
            ) from error
    if type(value).__module__.startswith("scipy.sparse"):
        raise UserError(
            f"{where}: {key!r} is a sparse matrix of SciPy, which JAX cannot index; give it dense, with .toarray(), or "
            "as jax.experimental.sparse.BCOO"
        )
    if isinstance(value, np.ndarray | jax.Array | np.generic) and value.ndim == 0 and value.dtype.kind in "iub":
        return value.item()  # a size, stored in an npz file as an array
    value = of_numbers(where, key, value)
    if isinstance(value, Parquet):
        raise UserError(f"{where}: {key!r} is a Parquet, which takes the place of all rows: {USE_OF_PARQUET}")
    try:
        array = jnp.asarray(value) if isinstance(value, np.ndarray | list | jax.Array) else value
        if isinstance(array, jax.Array) and array.dtype in (jnp.float16, jnp.bfloat16):
            array = array.astype(jnp.float32)  # without loss; log densities need the precision
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {key!r} is not an array of numbers: {error}") from error
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and not np.array_equal(array, value):
        raise UserError(f"{where}: {key!r} has integers beyond 32 bits; renumber its values, or enable jax_enable_x64")
    if (loss := _rounded(value, array)) and loss[0] and not _is_whole(array):
        raise UserError(
            f"{where}: {key!r} loses what distinguishes its rows: {loss[1]}: subtract a constant before, such as the "
            "mean, or enable jax_enable_x64"
        )
    return array


def _rounded(value, array) -> tuple[bool, str] | None:
    """See ``precision.rounded``; None for data of JAX, which the user rounded, and in double precision."""
    wide = isinstance(array, jax.Array) and array.dtype.itemsize > 4
    return None if wide or not isinstance(value, np.ndarray | list) else rounded(value)


def _is_whole(array) -> bool:
    """Whether an array has integers, which stay exact unless the model computes with them as floats."""
    return isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jnp.integer)


def roundings(given: Mapping[str, Any], data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Notes on data whose rounding to single precision might matter, and may not.

    Args:
        given: the user's data.
        data: the same, converted.
        name: of the model.
    """
    arrays, found = leaves(data), []
    given = {key: np.array(one) if isinstance(one, list) and key in arrays else one for key, one in given.items()}
    for key, value in leaves(given).items():
        value = value.to_numpy() if hasattr(value, "to_numpy") else value
        if isinstance(value, np.ndarray) and (loss := _rounded(native(value), arrays.get(key))):
            when = "where the model computes with it as floats, " if _is_whole(arrays.get(key)) else ""
            found.append(
                f"{name}: {key!r} is rounded: {when}{loss[1]}; if smaller differences matter, subtract a constant "
                "before, or enable jax_enable_x64"
            )
    return tuple(found)


def is_latent(site):
    """Whether a site is a latent variable."""
    return site["type"] == "sample" and not site["is_observed"]


def frame_of(site, plate):
    """The frame of a plate around a site, or None."""
    return next((f for f in site.get("cond_indep_stack", ()) if f.name == plate), None)


def log_prob_of(site):
    """The log density of a site's value, entry by entry."""
    return site["fn"].log_prob(site["value"]) if not site["intermediates"] else site["fn"].log_prob(
        site["value"], site["intermediates"]
    )  # fmt: skip


def by_row(log_prob, dim, rows):
    """Sums a site's log density over everything but the plate's axis ``dim`` (negative)."""
    log_prob = jnp.moveaxis(log_prob, dim, 0)
    if log_prob.shape[0] != rows:
        log_prob = jnp.broadcast_to(log_prob, (rows, *log_prob.shape[1:]))
    return sum_rightmost(log_prob, log_prob.ndim - 1)


def _near_zero():
    """NumPyro's ``init_to_uniform(radius=0.1)`` with numbers of NumPy, which need no compilation."""
    from numpyro.infer.util import helpful_support_errors

    rng = np.random.default_rng(0)

    def value(site):
        if not is_latent(site) or site["fn"].support.is_discrete:
            return None
        with helpful_support_errors(site):
            transform = biject_to(site["fn"].support)
        shape = site["kwargs"].get("sample_shape", ()) + transform.inverse_shape(site["fn"].shape())
        return transform(jnp.asarray(rng.uniform(-0.1, 0.1, shape), float))

    return value


def prototype(model, data, name, init=None, key=None):
    """One trace of the model, with latent values from ``init``, or near 0 in their unconstrained space."""

    def run():
        seeded = handlers.seed(model, jax.random.key(0) if key is None or init is None else key)
        started = handlers.substitute(seeded, substitute_fn=init or _near_zero())  # type: ignore[arg-type]
        return sites_of(started, **data)

    with run_on(name, data):
        trace = run()
    for site in trace.values():
        if isinstance(site["value"], jax.core.Tracer):
            raise UserError(_HIDDEN.format(name=name, what=f"site {site['name']!r}"))
    return trace


@contextmanager
def run_on(name, data: Any = ()):
    """Turns errors of a model into UserErrors.

    Args:
        name: of the model.
        data: its keyword arguments, or their names.
    """
    try:
        yield
    except UserError:
        raise
    except jax.errors.UnexpectedTracerError as error:
        raise UserError(_HIDDEN.format(name=name, what="a sample statement")) from error
    except TypeError as error:
        if "argument" in str(error):
            raise UserError(f"{name}: the model does not accept these data ({', '.join(data)}): {error}") from error
        sequences = [key for key in data if isinstance(data, Mapping) and isinstance(data[key], tuple | range)]
        hint = f"; {sequences[0]!r} is {kind_of(data[sequences[0]])}: give an array" if sequences else ""
        raise UserError(_raised(name, data, error) + hint) from error
    except ValueError as error:
        if "got invalid" in str(error):  # NumPyro's own check of a distribution's parameters
            invalid = f"{name}: {error} "
            raise InRows(lambda rows: invalid + (missing(data, rows) or "Check the priors and the data.")) from error
        raise UserError(_raised(name, data, error)) from error
    except Exception as error:
        raise UserError(_raised(name, data, error)) from error


class InRows(UserError):
    """A mistake in rows of the data.

    Attributes:
        told: its sentence; the argument has the numbers of rows that are a sample, see ``missing``.
    """

    def __init__(self, told: Callable[[Mapping[str, np.ndarray]], str]):
        super().__init__(told({}))
        self.told = told


class LengthMismatch(UserError):
    """The plate's index reads an array of another number of rows, ``length``, whose name is ``key``."""

    def __init__(self, message: str, key: str, length: int):
        super().__init__(message)
        self.key, self.length = key, length


def missing(data, rows: Mapping[str, np.ndarray] = MappingProxyType({})) -> str:
    """A sentence on the first entry of the data with missing values; empty if there are none.

    Args:
        data: arrays by name.
        rows: for arrays that are a sample of rows, the numbers of these among all rows.
    """
    for key, value in leaves(data).items() if isinstance(data, Mapping) else ():
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating):
            array = np.asarray(value)
            for gone, what, way in (
                (np.argwhere(np.isnan(array)), "NaN", "remove these rows, or make the missing values latent variables"),
                (np.argwhere(np.isinf(array)), "infinite", "remove or correct these rows"),
            ):
                if len(gone):
                    row = gone[0][0] if value.ndim else 0
                    if key in rows:
                        return f"{key!r} is {what} at least in row {rows[key][row]}: {way}."
                    return f"{key!r} is {what} in {len(gone)} places, the first in row {row}: {way}."
    return ""


_HIDDEN = (
    "{name}: {what} lies inside a function under jax.jit, jax.vmap or jax.lax.scan, where NumPyro cannot see it; call "
    "the plain function, or use a plate or numpyro.contrib.control_flow.scan"
)


def _raised(name, data, error) -> str:
    """The message for an error of a model."""
    shapes = {key: getattr(one, "shape", ()) for key, one in data.items()} if isinstance(data, Mapping) else {}
    arrays = {key: shape for key, shape in shapes.items() if shape}
    empty = [f"{key!r} has shape {shape}" for key, shape in arrays.items() if not shape[0]]
    if empty and len(empty) == len(arrays):
        return f"{name}: there are no rows: {', '.join(empty)}"
    hint = f"; {', '.join(empty)}" if empty else ""
    return f"{name}: the model cannot be run on these data: {one_line(error)}{hint}"
