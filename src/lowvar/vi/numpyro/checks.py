"""The checks of a NumPyro model before its fit, and the words of their hints.

Rows are evaluated at a random point, several jointly and one by one, with derivatives.
"""

import warnings

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger

from lowvar.core.jax import array, compiled
from lowvar.errors import RECODE, UserError, one_line
from lowvar.vi.check import ELSEWHERE, Check, by_rows, pairing, some_rows, strict, words_on_pairs
from lowvar.vi.guides.forms import saddle_sites
from lowvar.vi.numpyro.trace import (
    RUNNING,
    InRows,
    LengthMismatch,
    frame_of,
    is_latent,
    leaves,
    log_prob_of,
    missing,
)


class NumPyroCheck(Check):
    """The checks of a NumPyro model.

    Args:
        densities: of the model.
    """

    index = "negative or beyond its end, for which JAX takes another entry without a word"
    where = "jnp.where"
    advice = (
        "compute statistics of several rows (a mean, a standard deviation, a sum, their number, a lag) from all the "
        "data, before the plate"
    )

    def __init__(self, densities):
        self._densities = densities

    def failed(self, problem, name, rows, alone, error):
        """As in ``Check``; JAX says itself how Python or NumPy met a value that it traces."""
        words = "the model fails on a batch of one row" if alone else "the model fails"
        if problem.plate and not alone and not isinstance(error, jax.errors.JAXTypeError):
            words = _NOT_INDEXED.format(plate=problem.plate)
        return f"{words} ({one_line(error)})"

    def random(self, problem, z):
        """Checks that all random numbers belong to latent sites: others would be drawn once and stay fixed.

        Also that arrays have a row for each of the plate, and that no observed values are paired with all entries of
        their distribution: without the plate's index, those of all rows would count in each.
        """
        keys: list[str] = []

        def run(z):
            sites = self._densities.traced(z, jnp.zeros(2, jnp.int32), lambda model: _Asked(model, keys))
            for site in sites.values():
                if site["type"] == "sample" and not is_latent(site) and (words := pairing(*_shapes(site))):
                    batch = "in a batch of two rows, " if problem.plate else ""
                    raise UserError(f"{problem.name}: {batch}{words}")
            return z

        jax.eval_shape(run, z)
        if keys:
            raise UserError(
                f"{problem.name}: the model draws random numbers outside latent sites (numpyro.prng_key, dropout), "
                "which would be the same at every step; make them latent sites, or remove them"
            )
        if problem.plate:
            _check_lengths(problem, z)

    def not_finite(self, problem, z, row, value, whole):
        """As in ``Check``, with the data that are missing or outside of a support."""
        suspect = problem.data if whole else _missing_at(row, problem)
        outside = _outside(*(self._densities.traced(at, jnp.asarray([row], jnp.int32)) for at in (z, z + 1)))

        def sentence(rows):
            number = next(iter(rows.values()))[row] if rows else row
            return (
                f"{problem.name}: the log-likelihood of row {number} is {value} at the start; "
                f"{missing(suspect, rows) or outside or ELSEWHERE}"
            )

        return InRows(sentence)

    def strict(self, problem, z):
        """As in ``Check``."""
        chunks, backend = problem.chunks["index"], problem.backend

        def of_rows(run):
            program = compiled(lambda z: backend.map(lambda index: run(z, index), chunks), brief=True)
            return lambda z: np.ravel(backend.to_numpy(program(z)))

        return [of_rows(run) for run in strict(problem.log_likelihood, z, chunks[0], leaves(problem.data).values())]

    def row_of(self, problem, row):
        """As in ``Check``, with the row's integers."""
        if not problem.plate:
            return ""
        there = " and ".join(
            f"{key!r} is {np.asarray(one[row])}"
            for key, one in leaves(problem.data).items()
            if isinstance(one, jax.Array) and one.shape == (problem.N,) and jnp.issubdtype(one.dtype, jnp.integer)
        )
        return super().row_of(problem, row) + (f", where {there}," if there else "")

    def rows(self, problem, z, centre, near):
        """As in ``Check``, in double precision where that is possible."""
        if not problem.plate:  # all rows count as one
            values = lambda z: np.ravel(problem.log_likelihoods(array(z, problem.dtype)))  # noqa: E731
            return saddle_sites(values, problem.sites, centre, near)
        try:
            with jax.enable_x64(True):
                return NumPyroCheck(self._densities.cast(np.dtype("float64")))._rows(problem, z, centre, near)
        except UserError:
            raise
        except Exception:  # the model contains arrays in a fixed precision
            return self._rows(problem, z, centre, near)

    def _rows(self, *args):
        return super().rows(*args)

    def evaluator(self, problem, z):
        """As in ``Check``."""
        dtype = self._densities.dtype
        evaluate = _evaluator(problem.backend, self._densities.log_joint, problem.dim, dtype)
        return evaluate, leaves(problem.data), np.asarray(z, dtype)

    def words(self, problem, meeting):
        """As in ``Check``, with the site and its shapes where they reveal the mistake."""
        if meeting.worst is None:
            return (
                f"the log density outside the plate {problem.plate!r} changes with the rows of the batch; move what "
                "depends on the batch (numpyro.factor, numpyro.sample with obs) into the plate, with a value for each "
                "row"
            )
        rows, found = len(meeting.batch), []

        def run(z):
            for site in self._densities.traced(z, jnp.asarray(meeting.batch)).values():
                if site["type"] == "sample" and frame_of(site, problem.plate) is not None:
                    log_prob, batch = jnp.shape(log_prob_of(site)), site["fn"].batch_shape
                    if log_prob.count(rows) > batch.count(rows) or batch.count(rows) > 1:
                        found.append(words_on_pairs(*_shapes(site)))
            return 0.0

        jax.eval_shape(run, jnp.asarray(meeting.z))
        return found[0] if found else super().words(problem, meeting)


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
            way = f"{RECODE} the data, or choose another distribution" if fixed else ELSEWHERE
            return f"{site['name']!r} is {one}, outside the support of {kind}, {fn.support}: {way}"
    return ""


def _missing_at(row, problem):
    """The data but for those that have an entry for each row and are finite in this one."""

    def finite(value):
        rows = isinstance(value, jax.Array) and value.ndim and len(value) == problem.N
        return rows and np.isfinite(value[row]).all()

    return {key: value for key, value in leaves(problem.data).items() if not finite(value)}


def _check_lengths(problem, z):
    """Checks that arrays whose entries the plate's index selects have N of them.

    JAX would silently repeat the last row of a shorter one, and pair the first rows of a longer one.
    """
    arrays = {key: one for key, one in leaves(problem.data).items() if isinstance(one, jax.Array) and one.ndim}
    if not (arrays := {key: one for key, one in arrays.items() if len(one) != problem.N}):
        return
    themselves, others = by_rows(problem.log_likelihood, z, jnp.asarray(some_rows(problem.N), jnp.int32), arrays)
    for key, one in arrays.items():
        if key in themselves and (len(one) < problem.N or key not in others):
            raise LengthMismatch(
                f"{problem.name}: the plate {problem.plate!r} has {problem.N} rows, but {key!r}, which its index "
                f"reads, has {len(one)}; give matching rows",
                key,
                len(one),
            )


class _Asked(Messenger):
    """Records that a model requests random keys: ``numpyro.prng_key`` leaves no site in a trace."""

    def __init__(self, fn, keys):
        self.keys = keys
        super().__init__(fn)

    def process_message(self, msg):
        if msg["type"] == "prng_key":
            self.keys.append(msg["type"])


def _shapes(site):
    """What ``pairing`` reads of a site."""
    return site["name"], jnp.shape(site["value"]), site["fn"], jnp.shape(log_prob_of(site))


def _evaluator(backend, log_joint, dim, dtype):
    """``evaluate`` of ``check_rows``, from ``log_joint``: both parts, and their derivatives along a direction.

    The derivatives drop terms that do not depend on ``z``.
    """
    direction = array(np.random.default_rng(0).normal(size=dim), dtype)

    def forward(z, rows):
        return jax.jvp(lambda z: log_joint(z, rows), (z,), (direction,))

    def reverse(z, rows):
        slopes = jax.jacrev(lambda z: log_joint(z, rows))(z)
        return log_joint(z, rows), jax.tree.map(lambda slope: slope @ direction, slopes)

    def each(way):
        def of_row(z, row):
            return jax.tree.map(lambda leaf: leaf.reshape(()), way(z, row[None]))

        return lambda z, rows: jax.lax.map(lambda row: of_row(z, row), rows)

    ways = [[compiled(of(way), brief=True) for way in (forward, reverse)] for of in (lambda way: way, each)]

    def evaluate(z, rows, alone):
        at = array(z, dtype), array(rows)
        try:
            pair = ways[alone][0](*at)
        except TypeError:  # a part of the model has reverse mode alone, as a solver of differential equations
            pair = ways[alone][1](*at)
        return jax.tree.map(lambda *leaves: np.stack(leaves).astype(float), *pair)

    return evaluate


_NOT_INDEXED = (
    "the data are not indexed by the plate {plate!r}; write "
    "`with numpyro.plate({plate!r}, N, subsample_size=batch_size) as index:` and use `x[index]`, `obs=y[index]`"
)
