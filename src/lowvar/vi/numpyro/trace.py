"""A user's NumPyro model and data: their conversion, traces, and the densities as functions of the latent vector."""

import copy
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.distribution import COERCIONS
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.util import _unconstrain_reparam
from numpyro.primitives import Messenger

from lowvar.core.jax import array as own_array
from lowvar.core.jax import compiled, unraveled
from lowvar.core.rows import USE_OF_PARQUET, Parquet, float32_merges_rows, native, numeric_array
from lowvar.errors import UserError, kind_of, one_line
from lowvar.vi.descent import Rows

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


def jax_arguments(model, data, name) -> dict[str, Any]:
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
        key: map_leaves(lambda name, leaf: as_array(name, leaf) if isinstance(leaf, np.ndarray) else leaf, key, value)
        if isinstance(value, dict | tuple)
        else as_array(key, value)
        for key, value in data.items()
    }


def map_leaves(function, name, value):
    """``value`` with ``function(name, leaf)`` in place of the leaves of its dicts, tuples and lists."""
    if isinstance(value, dict):
        parts = copy.copy(value)
        parts.update({key: map_leaves(function, f"{name}[{key!r}]", one) for key, one in value.items()})
        return parts
    if isinstance(value, tuple | list):
        parts = [map_leaves(function, f"{name}[{k}]", one) for k, one in enumerate(value)]
        return parts if isinstance(value, list) else value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return function(name, value)


def leaves(data: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of ``data`` by name, such as ``d['y']`` for those of a dict ``d``."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        map_leaves(found.__setitem__, key, value)
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
    value = numeric_array(where, key, value)
    if isinstance(value, Parquet):
        raise UserError(f"{where}: {key!r} is a Parquet, which takes the place of all rows: {USE_OF_PARQUET}")
    try:
        array = jnp.asarray(value) if isinstance(value, list | jax.Array) else value
        array = own_array(value) if isinstance(value, np.ndarray) else array
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
    """See ``rows.float32_merges_rows``; None for data of JAX, which the user rounded, and in double precision."""
    wide = isinstance(array, jax.Array) and array.dtype.itemsize > 4
    return None if wide or not isinstance(value, np.ndarray | list) else float32_merges_rows(value)


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
        return transform(own_array(rng.uniform(-0.1, 0.1, shape)))

    return value


def _in_one_program(run: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The sites of ``run``, a model's, from one program: outside of one, JAX compiles each operation.

    Distributions have no values there, as wherever a model is traced. NumPyro checks parameters that have values; here
    the program does.

    Returns:
        None where the model has to run outside of a program: it fails or a parameter is out of range, which JAX and
        NumPyro say there; or values are needed, those of ``numpyro.param`` sites, of supports, and of imputed sites.
    """
    found: dict[str, Any] = {}

    def program():
        with _parameters() as valid:
            found.update(run())
        return {key: site["value"] for key, site in found.items()}, valid

    try:
        values, valid = compiled(program, brief=True)()
        supports = jax.tree.leaves([site["fn"].support for site in found.values() if is_latent(site)])
    except Exception:
        return None
    if (
        not all(valid)
        or any(site["type"] == "param" or key.endswith("_unobserved") for key, site in found.items())
        or not all(isinstance(bound, int | float | np.ndarray | np.generic) for bound in supports)
    ):
        return None
    return {key: {**site, "value": values[key]} for key, site in found.items()}


@contextmanager
def _parameters():
    """Yields a list, to which every distribution that this thread makes adds whether its parameters are in range."""
    valid, thread = [], threading.get_ident()

    def made(cls, args, kwargs):
        if threading.get_ident() != thread:
            return None
        fn = type.__call__(cls, *args, **kwargs)
        if getattr(fn, "_validate_args", False):
            for name, value in fn.get_args().items():
                if not constraints.is_dependent(constraint := fn.arg_constraints[name]):
                    valid.append(jnp.all(constraint(value)))
        return fn

    with RUNNING:
        COERCIONS.append(made)
        try:
            yield valid
        finally:
            COERCIONS.remove(made)


def prototype(model, data, name, init=None, key=None):
    """One trace of the model, with latent values from ``init``, or near 0 in their unconstrained space."""

    def run():
        seeded = handlers.seed(model, jax.random.key(0) if key is None or init is None else key)
        started = handlers.substitute(seeded, substitute_fn=init or _near_zero())  # type: ignore[arg-type]
        return sites_of(started, **data)

    with run_on(name, data):
        trace = (None if init else _in_one_program(run)) or run()
    for site in trace.values():
        if isinstance(site["value"], jax.core.Tracer):
            raise UserError(_HIDDEN.format(name=name, what=f"site {site['name']!r}"))
        if site["type"] == "sample" and site["is_observed"] and _is_complex(site):
            raise UserError(
                f"{name}: site {site['name']!r} observes complex numbers, or its distribution has complex parameters"
                f"{_complex(data)}: give real ones, such as the real and imaginary parts as two arguments"
            )
    return trace


def _is_complex(site) -> bool:
    """Whether a site of a distribution of NumPyro's, all of which are real, has complex values or parameters."""
    family = site["fn"]
    while hasattr(family, "base_dist"):
        family = family.base_dist
    if not type(family).__module__.startswith("numpyro."):
        return False
    return any(map(jnp.iscomplexobj, jax.tree.leaves((site["value"], site["fn"]))))


def _complex(data) -> str:
    """The arguments that are complex, in brackets; empty if there are none."""
    each_of = leaves(data) if isinstance(data, Mapping) else {}
    found = [f"{key!r} is {value.dtype}" for key, value in each_of.items() if jnp.iscomplexobj(value)]
    return f" (data: {', '.join(found)})" if found else ""


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
            known = ", ".join(data) or "none"
            raise UserError(f"{name}: the model does not accept these data ({known}): {error}") from error
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
        sentence: its sentence; the argument has the numbers of rows that are a sample, see ``missing``.
    """

    def __init__(self, sentence: Callable[[Mapping[str, np.ndarray]], str]):
        super().__init__(sentence({}))
        self.sentence = sentence


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
    return f"{name}: the model cannot be run on these data: {one_line(error)}{hint}{_complex(data)}"


class Layout:
    """Where the sites lie in ``z`` and in the vector of a batch, see ``Rows``.

    Args:
        free: unconstrained values by site, a tree, those of all rows.
        local: the latent sites in the data plate, with the axis of their values that has the rows, negative.
        N: number of rows.
    """

    def __init__(self, free: Mapping[str, Any], local: Mapping[str, int], N: int):
        shared_sites = {site: value for site, value in free.items() if site not in local}
        self._unravel = unraveled(shared_sites)
        coordinates, offset, own = [], 0, [np.zeros((N, 0), np.int32)]
        self._parts: list[tuple[str, slice, tuple[int, ...], int]] = []
        for site in sorted(free):  # the order of ravel_pytree
            size = sum(leaf.size for leaf in jax.tree.leaves(free[site]))
            where = np.arange(offset, offset + size, dtype=np.int32)
            offset += size
            if site not in local:
                coordinates.append(where)
                continue
            rows = np.moveaxis(where.reshape(free[site].shape), local[site], 0)
            before = sum(part.shape[1] for part in own)
            own.append(rows.reshape(N, -1))
            self._parts.append((site, slice(before, before + own[-1].shape[1]), rows.shape[1:], local[site]))
        self.rows = Rows(np.concatenate([np.zeros(0, np.int32), *coordinates]), np.concatenate(own, axis=1))

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The latent sites in the data plate, with the shape of one row's values in R^d."""
        return {site: shape for site, _, shape, _ in self._parts}

    def batch(self, z, index):
        """The part of ``z`` that the rows ``index (B,)`` concern."""
        return z[self.rows.coordinates(index)] if self._parts else z

    def among(self, z, places):
        """The same for the rows at some ``places`` of a batch with the vector ``z``."""
        if not self._parts:
            return z
        return self.rows.joined(self.rows.shared_of(z), self.rows.own_of(z)[places])

    def free(self, z) -> dict[str, Any]:
        """Unconstrained values by site, from the vector of a batch."""
        values = dict(self._unravel(self.rows.shared_of(z)))
        for site, columns, shape, axis in self._parts:
            rows = self.rows.own_of(z)[:, columns].reshape(-1, *shape)
            values[site] = jnp.moveaxis(rows, 0, axis)
        return values


class Densities:
    """The log densities of a model as functions of the latent vector, nats; for data in any precision.

    Where ``z`` is the vector of a batch, see ``Rows``, the name of a function says so.

    Args:
        model: with its keyword arguments ``data``.
        data: see ``model``.
        plate: name of the data plate, of ``N`` rows.
        N: see ``plate``.
        transforms: the bijections from R^d to the supports, by site.
        dtype: the precision of results.
        local: the latent sites in the data plate, with the axis of their values in R^d that has the rows.
        free: unconstrained values by site, a tree.
        other: whether the data have another precision than ``dtype``.

    Attributes:
        layout: where the variables are.
    """

    def __init__(self, model, data, plate, N, transforms, dtype, local, free, other=False):
        self.model, self.data, self.plate, self.N = model, data, plate, N
        self.transforms, self.dtype, self.local = transforms, dtype, local
        self._free, self._other, self.layout = free, other, Layout(free, local, N)

    def cast(self, dtype) -> "Densities":
        """The same with floating data in another precision.

        They are cast where they are read, inside of a program: a copy of all rows would cost more than a few of them.
        """
        free = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), self._free)
        return Densities(self.model, self.data, self.plate, self.N, self.transforms, dtype, self.local, free, True)

    def traced(self, z, index, watch=lambda model: model) -> dict[str, Any]:
        """The sites of a batch; ``watch`` puts handlers around the model."""
        return self._traced(self.layout.batch(z, index), index, watch)

    def log_joint(self, z, index):
        """``((B,), ())``: log-likelihoods, with the densities of local latent variables, and the log prior, in one run.

        Args:
            z: ``(dim,)``.
            index: rows, ``(B,)``.
        """
        return self._joint(self.layout.batch(z, index), index)

    def log_likelihood(self, z, index):
        """The first part of ``log_joint``, ``(B,)``."""
        return self.log_joint(z, index)[0]

    def log_prior(self, z, index):
        """The second part of ``log_joint``."""
        return self._of_prior(self.traced(z, index))

    def likelihood_of_batch(self, z, index):
        """As ``log_likelihood``, of the vector of the batch."""
        return self._joint(z, index)[0]

    def prior_of_batch(self, z):
        """As ``log_prior``, of the vector of a batch."""
        first = np.zeros(1, np.int32)
        return self._of_prior(self._traced(self.layout.among(z, first), jnp.asarray(first)))

    def in_order(self, z):
        """As ``log_joint`` of all rows of the data, as they stand."""
        return self._in_order(z, jnp.arange(self.N))

    def _traced(self, z, index, watch=lambda model: model):
        free, jacobians = self.layout.free(z), {}

        def substitute(site):
            if site["name"] in self.local:
                return _constrained(site, free, jacobians)
            if site["type"] == "param" and site["name"] in free:
                return self.transforms[site["name"]](free[site["name"]])
            return _unconstrain_reparam(free, site)

        substituted = handlers.substitute(self.model, substitute_fn=substitute)
        seeded = handlers.seed(FixedIndex(watch(substituted), self.plate, index), jax.random.key(0))
        data = self.data
        if self._other:
            data = {key: map_leaves(lambda _, leaf: _cast(self.dtype, leaf), key, value) for key, value in data.items()}
        trace = sites_of(seeded, **data)
        return {key: {**site, "jacobian": jacobians.get(key, 0.0)} for key, site in trace.items()}

    def _joint(self, z, index):
        rows, N = index.shape[0], self.N
        if self.plate and rows == N > 1:
            # with all N rows numpyro.subsample does not subsample: two halves, as one mapped program; every other row
            # each, since devices share the rows in order
            def halves(rows):
                return jnp.append(rows, rows[: N % 2]).reshape(-1, 2)

            def of_half(places, index):
                return self._joint(self.layout.among(z, places), index)

            mapped = jax.vmap(of_half, in_axes=1, out_axes=(1, 0))
            likelihood, prior = mapped(halves(jnp.arange(N)), halves(index))
            return likelihood.reshape(-1)[:N], prior[0]
        return self._in_order(z, index)

    def _in_order(self, z, index):
        sites, rows = self._traced(z, index), index.shape[0]
        likelihood = self._of_rows(sites, rows) if self.plate else jnp.broadcast_to(self._of_data(sites), index.shape)
        return self._cast(likelihood), self._of_prior(sites)

    def _of_rows(self, sites, rows):
        total = jnp.zeros(rows, self.dtype)
        for site in sites.values():
            frame = frame_of(site, self.plate)
            if site["type"] == "sample" and frame is not None:
                # the model's own scale of the site, without the plate's N / B
                scale = 1.0 if site["scale"] is None else site["scale"] * (rows / self.N)
                total = total + by_row((log_prob_of(site) + site["jacobian"]) * scale, frame.dim, rows)
        return total

    def _of_data(self, sites):
        """Of a model without a plate, whose rows are one."""
        observed = (site for site in sites.values() if site["type"] == "sample" and not is_latent(site))
        return sum((_total(site) for site in observed), jnp.zeros((), self.dtype))

    def _of_prior(self, sites):
        # XLA drops the data plate's sites, which are traced too
        total, plate = jnp.zeros((), self.dtype), self.plate
        for site in sites.values():
            if site["type"] == "sample" and frame_of(site, plate) is None and (plate or is_latent(site)):
                total = total + _total(site)
        return self._cast(total)

    def _cast(self, value):
        """Some log densities of NumPyro are float64 for data in float32; complex ones stay, to be refused."""
        return value.astype(self.dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value


def _constrained(site, free, jacobians):
    """The batch's values of a latent site in the plate; notes the logarithm of the Jacobian."""
    point, onto = free[site["name"]], biject_to(site["fn"].support)
    value = onto(point)
    jacobian = onto.log_abs_det_jacobian(point, value)
    jacobians[site["name"]] = sum_rightmost(jacobian, jacobian.ndim - len(site["fn"].batch_shape))
    return value


def _total(site):
    """A site's log density, nats, with its scale."""
    return jnp.sum(log_prob_of(site)) * (1.0 if site["scale"] is None else site["scale"])


def _cast(dtype, value):
    floating = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)
    return value.astype(dtype) if floating else value
