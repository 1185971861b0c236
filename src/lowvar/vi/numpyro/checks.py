"""Checks before a fit that a NumPyro model permits mini-batches.

The objective is a sum over rows, estimated from a batch. This requires that the log-likelihood of a row does not depend
on the other rows of its batch, nor the prior on the batch. Both are evaluated at a random point, for several rows
jointly and one by one.
"""

import contextlib
import math
import warnings
from functools import partial

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.util import _unconstrain_reparam
from numpyro.primitives import Messenger

from lowvar.errors import RECODE, UserError, one_line
from lowvar.vi.drawn_start import saddle_sites
from lowvar.vi.index_range import strict
from lowvar.vi.numpyro.trace import (
    RUNNING,
    FixedIndex,
    InRows,
    LengthMismatch,
    each,
    frame_of,
    is_latent,
    leaves,
    log_prob_of,
    missing,
    sites_of,
)
from lowvar.vi.row_independence import batches, interaction, some_rows
from lowvar.vi.variational import prior_of


def check(problem, functions, free, centre, near) -> list[str]:
    """Rejects a model that does not permit mini-batches, or whose density is not finite at the start.

    Args:
        problem: the model as a problem.
        functions: its densities, for data in any precision.
        free: unconstrained values by site, a tree.
        centre: the start without its random part, ``(dim,)``.
        near: the sites that have one.

    Returns:
        The sites of which the centre is a saddle point, see ``saddle_sites``.

    Raises:
        UserError: see ``from_numpyro``.
    """
    start = _start(problem)
    _check_traceable(problem, start)
    check_density(problem, functions.of(free).traced)
    _check_sites(problem, functions.of(free), start)
    if problem.plate:
        _check_lengths(problem, free, functions.local)
    _check_indices(problem, start)
    if not problem.plate:  # all rows count as one, in the program of `check_density`
        values, only = problem.backend.jit(problem.log_likelihood), np.zeros(1, np.int32)
        return saddle_sites(lambda z: values(jnp.asarray(z, problem.dtype), only), problem.sites, centre, near)
    try:
        with jax.enable_x64(True):
            return _examined(problem, functions.cast(np.dtype("float64")), free, start, centre, near)
    except UserError:
        raise
    except Exception:  # the model contains arrays in a fixed precision
        return _examined(problem, functions, free, start, centre, near)


def _check_traceable(problem, z):
    """Checks that the model accepts a batch of several rows, and of one."""
    index = some_rows(problem.N).astype(np.int32)
    for rows in (index, index[:1]):
        try:
            shape = jax.eval_shape(problem.log_likelihood, z, jnp.asarray(rows))
        except jax.errors.ConcretizationTypeError as error:
            raise UserError(
                f"{problem.name}: the model branches in Python on a value that JAX traces; use jnp.where or "
                f"jax.lax.cond ({one_line(error, 60)})"
            ) from error
        except UserError:
            raise
        except Exception as error:
            if rows is not index:
                raise UserError(
                    f"{problem.name}: the model fails on a batch of one row: {one_line(error)}; a possible cause is "
                    "a squeeze() that also removes the axis of the rows"
                ) from error
            numpy = isinstance(error, jax.errors.TracerArrayConversionError)
            message = _NUMPY if numpy else _NOT_INDEXED if problem.plate else "{name}: the model fails"
            message = message.format(name=problem.name, plate=problem.plate)
            raise UserError(f"{message} ({one_line(error)})") from error
        if not jnp.issubdtype(shape.dtype, jnp.floating):
            raise UserError(f"{problem.name}: the log-likelihood is {shape.dtype}; it must be real: are data complex?")


def _start(problem):
    """The means of all coordinates at the start, ``(dim,)``: an amortised guide computes those of the rows."""
    if not problem.guide.amortised:
        return jnp.asarray(problem.start["mu"], problem.dtype)
    params = {block: jnp.asarray(value, problem.dtype) for block, value in problem.start.items()}
    return problem.guide.point(params)["mu"]


def check_density(problem, traced):
    """Checks that the density is finite at the start for every row; ``traced`` as in ``Densities``."""
    z, backend, chunks = _start(problem), problem.backend, problem.chunks["index"]
    prior = float(problem.compiled(prior_of)(z))
    if not np.isfinite(prior):
        raise UserError(
            f"{problem.name}: the log prior is {prior} at the start; check the priors' parameters, or start elsewhere: "
            "init"
        )
    values = np.ravel(backend.to_numpy(problem.log_likelihoods(z)))
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        row = int(chunks.ravel()[bad[0]])
        suspect = problem.data if bad.size == values.size else _missing_at(row, problem)
        outside = _outside(*(traced(at, jnp.asarray([row], jnp.int32)) for at in (z, z + 1)))

        def told(rows):
            number = next(iter(rows.values()))[row] if rows else row
            return (
                f"{problem.name}: the log-likelihood of row {number} is {values[bad[0]]} at the start; "
                f"{missing(suspect, rows) or outside or _ELSEWHERE}"
            )

        raise InRows(told)


def _outside(sites, elsewhere) -> str:
    """A sentence on an observation outside the support of its distribution; empty if there is none.

    Args:
        sites: those of a row at the start.
        elsewhere: the same at another point, where a support that depends on latent variables is another one.
    """
    for site in sites.values():
        if site["type"] != "sample" or is_latent(site):
            continue
        fn, value = site["fn"], jnp.asarray(site["value"])
        entries = value.reshape(*value.shape[: value.ndim - fn.event_dim], -1)
        with RUNNING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPyro's own, which names no site
            wrong = np.argwhere(np.asarray(~fn.support(value) & ~jnp.isfinite(log_prob_of(site))))
        if len(wrong):
            one = np.asarray(entries[tuple(wrong[0][: entries.ndim - 1])]).squeeze()
            one = np.array2string(one, threshold=6, edgeitems=2)
            kind = type(getattr(fn, "base_dist", fn)).__name__
            fixed = fn.support == elsewhere[site["name"]]["fn"].support
            way = f"{RECODE} the data, or choose another distribution" if fixed else _ELSEWHERE
            return f"{site['name']!r} is {one}, outside the support of {kind}, {fn.support}: {way}"
    return ""


def _check_indices(problem, z):
    """Checks that no row reads an array beyond its ends: JAX would take another entry."""
    arrays, chunks = leaves(problem.data), problem.chunks["index"]
    if (run := strict(problem.log_likelihood, z, chunks[0], arrays.values())) is None:
        return
    values = problem.backend.jit(lambda z: problem.backend.map(lambda index: run(z, index), chunks))(z)
    bad = np.flatnonzero(np.isnan(problem.backend.to_numpy(values)))
    if not bad.size:
        return
    row = int(chunks.ravel()[bad[0]])
    whole = {
        key: np.asarray(one[row])
        for key, one in arrays.items()
        if isinstance(one, jax.Array) and one.shape == (problem.N,) and jnp.issubdtype(one.dtype, jnp.integer)
    }
    there = " and ".join(f"{key!r} is {one}" for key, one in whole.items())
    where = f" of row {row}" + (f", where {there}," if there else "") if problem.plate else ""
    raise UserError(
        f"{problem.name}: the log-likelihood{where} reads an array at an index that is negative or beyond its end, for "
        "which JAX takes another entry without a word; number groups from 0, give a missing category (-1 in pandas) a "
        "number of its own, and replace by jnp.where what a first or last row lacks"
    )


def _missing_at(row, problem):
    """The data but for those that have an entry for each row and are finite in this one."""

    def finite(value):
        rows = isinstance(value, jax.Array) and value.ndim and len(value) == problem.N
        return rows and np.isfinite(value[row]).all()

    return {key: value for key, value in leaves(problem.data).items() if not finite(value)}


def _check_lengths(problem, free, local):
    """Checks that arrays indexed by the plate have N rows.

    JAX would silently repeat the last row of a shorter one, and pair the first rows of a longer one.
    """
    free = {site: value for site, value in free.items() if site not in local}  # those have values for all rows
    arrays = leaves(problem.data)
    fewer = any(np.ndim(value) and len(value) < problem.N for value in arrays.values())  # else `_check_indices` sees it
    if fewer and (error := too_short(problem.model, problem.plate, problem.N, problem.data, free)) is not None:
        lengths = ", ".join(f"{key} {np.shape(value)[0]}" for key, value in arrays.items() if np.ndim(value))
        raise UserError(
            f"{problem.name}: the plate {problem.plate!r} has {problem.N} rows, but an array has fewer: {lengths}"
        ) from error
    for key, value in leaves(problem.data).items():
        if isinstance(value, jax.Array) and value.ndim and len(value) > problem.N and _is_paired(problem, free, key):
            raise LengthMismatch(
                f"{problem.name}: the plate {problem.plate!r} has {problem.N} rows, but {key!r}, which its index "
                f"reads, has {len(value)}; give matching rows",
                key,
                len(value),
            )


def _is_paired(problem, free, key) -> bool:
    """Whether the plate's index itself reads the leaf ``key`` of the data, which has more than N rows.

    Row N, beyond the plate, is a copy of row 0 in arrays of N rows. What another index reads, as of groups, is the same
    in both rows; a neighbour of the row, as in a time series, lies beyond row N.
    """
    N, given = problem.N, leaves(problem.data)
    value = np.asarray(given[key])
    arrays = {name: np.asarray(one) for name, one in given.items() if isinstance(one, jax.Array) and one.ndim}
    copied = {name: np.concatenate([one, one[:1]]) for name, one in arrays.items() if len(one) == N}

    def fails(row, length):
        put = {**copied, key: value[:length]}
        data = {name: each(lambda leaf, was: put.get(leaf, was), name, one) for name, one in problem.data.items()}
        return too_short(problem.model, problem.plate, row + 1, data, free) is not None

    return fails(N, N) and not fails(N, N + 1) and not fails(0, N)


def too_short(model, plate, N, data, free) -> IndexError | None:
    """The error of a model that indexes an array of fewer than ``N`` rows by its plate; None without one."""

    def numpy(_, leaf):
        return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf

    data = {key: each(numpy, key, value) for key, value in data.items()}
    last = jnp.full(1, N - 1, jnp.int32)

    def run(free):
        start = handlers.substitute(model, substitute_fn=partial(_unconstrain_reparam, free))
        sites_of(handlers.seed(FixedIndex(start, plate, last), jax.random.key(0)), **data)

    try:
        with RUNNING, warnings.catch_warnings(), validation_enabled(False):  # these two are of all threads
            warnings.simplefilter("ignore")  # NumPyro has already issued them, and checked parameters
            # the index has a value, without which NumPy would not refuse one that is too large
            with contextlib.suppress(Exception):
                jax.eval_shape(run, free)  # nothing is compiled
                return None
            run(free)  # for a model that computes with the index; and this tells what is wrong
    except IndexError as error:
        return error
    except Exception:  # a model that needs JAX arrays cannot be checked with NumPy's
        return None
    return None


class _Asked(Messenger):
    """Records that a model requests random keys: ``numpyro.prng_key`` leaves no site in a trace."""

    def __init__(self, fn, keys):
        self.keys = keys
        super().__init__(fn)

    def process_message(self, msg):
        if msg["type"] == "prng_key":
            self.keys.append(msg["type"])


def _check_sites(problem, densities, z):
    """Checks that all random numbers belong to latent sites: others would be drawn once and stay fixed.

    Without a data plate, also that no observed values are paired with all entries of their distribution.
    """
    keys: list[str] = []

    def run(z):
        sites = densities.traced(z, jnp.zeros(1, jnp.int32), lambda model: _Asked(model, keys))
        if not problem.plate:
            for site in sites.values():
                _check_pairs(problem, site)
        return z

    jax.eval_shape(run, z)
    if keys:
        raise UserError(
            f"{problem.name}: the model draws random numbers outside latent sites (numpyro.prng_key, dropout), "
            "which would be the same at every step; make them latent sites, or remove them"
        )


def _check_pairs(problem, site):
    if site["type"] != "sample" or is_latent(site):
        return
    batch, event = site["fn"].batch_shape, site["fn"].event_shape
    value, log_prob = jnp.shape(site["value"]), jnp.shape(log_prob_of(site))
    given = math.prod(value[: len(value) - len(event)])
    if math.prod(log_prob) > max(given, math.prod(batch)):
        raise UserError(
            f"{problem.name}: site {site['name']!r}: its values have shape {value} and its distribution "
            f"{(*batch, *event)}, which broadcast to {log_prob}, every entry with every other; give both the same "
            "shape, such as y[:, 0] in place of a y of shape (N, 1)"
        )


def _examined(problem, functions, free, start, centre, near):
    """Checks that rows do not interact, in the precision of ``functions``; returns the sites at a saddle point."""
    traced, log_joint, *_ = functions.of(jax.tree.map(lambda leaf: jnp.asarray(leaf, functions.dtype), free))
    direction = jnp.asarray(np.random.default_rng(0).normal(size=start.size), functions.dtype)

    def forward(z, index):
        return jax.jvp(lambda z: log_joint(z, index), (z,), (direction,))

    def reverse(z, index):
        slopes = jax.jacrev(lambda z: log_joint(z, index))(z)
        return log_joint(z, index), jax.tree.map(lambda slope: slope @ direction, slopes)

    def each(way):
        def of_row(z, row):
            (value, slope) = way(z, row[None])
            return jax.tree.map(lambda leaf: leaf.reshape(()), (value, slope))

        return lambda z, index: jax.lax.map(lambda row: of_row(z, row), index)

    ways = [[problem.backend.jit(of(way)) for way in (forward, reverse)] for of in (lambda way: way, each)]

    def likelihood_and_prior(z, index, alone=False):
        """Both, ``(2, B)`` and ``(2, ...)``: values, and derivatives along a direction.

        The derivatives drop terms that do not depend on ``z``.
        """
        at = jnp.asarray(z, functions.dtype), jnp.asarray(index)
        try:
            pair = ways[alone][0](*at)
        except TypeError:  # a part of the model has reverse mode alone, as a solver of differential equations
            pair = ways[alone][1](*at)
        return jax.tree.map(lambda *leaves: np.stack(leaves).astype(float), *pair)

    start = np.asarray(start, functions.dtype)
    width = problem.dim + sum(math.prod(np.shape(one)[1:]) for one in leaves(problem.data).values())
    found = batches(problem.N, width, leaves(problem.data))
    if (meeting := interaction(likelihood_and_prior, found, start)) is not None:
        raise UserError(f"{problem.name}: {_words(traced, problem, meeting)}")
    some, drawn = len(some_rows(problem.N)), found[1].copy()
    drawn[:some] = some_rows(problem.N)
    return saddle_sites(lambda z: likelihood_and_prior(z, drawn)[0][0][:some], problem.sites, centre, near)


def _words(traced, problem, meeting):
    """The error message for interacting rows, with the site and its shapes where they reveal it."""
    if meeting.worst is None:
        return (
            f"the log density outside the plate {problem.plate!r} changes with the rows of the batch; move what "
            "depends on the batch (numpyro.factor, numpyro.sample with obs) into the plate, with a value for each row"
        )
    index, rows, shapes = meeting.batch, len(meeting.batch), []

    def run(z):
        for site in traced(z, jnp.asarray(index)).values():
            frame = frame_of(site, problem.plate)
            if site["type"] == "sample" and frame is not None:
                shapes.append(
                    (site["name"], jnp.shape(site["value"]), site["fn"].batch_shape, site["fn"].event_shape,
                     jnp.shape(log_prob_of(site)), frame.dim)
                )  # fmt: skip
        return 0.0

    jax.eval_shape(run, jnp.asarray(meeting.z))
    for name, value, batch, event, log_prob, _ in shapes:
        if log_prob.count(rows) > batch.count(rows) or batch.count(rows) > 1:
            return (
                f"site {name!r}: in a batch of {rows} rows its values have shape {value} and its distribution "
                f"{(*batch, *event)}, which broadcast to {log_prob}, every row with every other; give both one entry "
                "for each row, such as y[:, 0] in place of a y of shape (N, 1)"
            )
    return meeting.told(
        "compute statistics of several rows (a mean, a standard deviation, a sum, their number, a lag) from all the "
        "data, before the plate"
    )


_ELSEWHERE = "check that row and the likelihood's support, or start elsewhere: init"
_NUMPY = (
    "{name}: NumPy is given a value that JAX traces: by a NumPy function, for which use that of jax.numpy; or as the "
    "index of a NumPy array that is not in data, as of functools.partial or a global variable: give it in data, or as "
    "jax.numpy.asarray(...)"
)
_NOT_INDEXED = (
    "{name}: the data are not indexed by the plate {plate!r}; write "
    "`with numpyro.plate({plate!r}, N, subsample_size=batch_size) as index:` and use `x[index]`, `obs=y[index]`"
)
