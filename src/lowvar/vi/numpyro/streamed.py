"""A NumPyro model whose rows stay in files: a batch is the rows themselves in place of their numbers.

The model is called with the arrays of a batch, so its plate has the batch's size, and its index is ``0 .. B - 1``. Each
row's log-likelihood still counts ``N / B`` times, for all ``N`` rows of the files.

A random sample of rows is held in memory. The model is checked on it, as a model in memory is on all rows, and the ELBO
is that of the sample, scaled: its standard error has a part for the rows. Only full passes read all rows.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger

from lowvar.core.jax import compiled
from lowvar.core.rows import MappedArrays, Parquet
from lowvar.core.windows import inflation, windows
from lowvar.errors import UserError
from lowvar.vi.check import by_rows, check_rows, some_rows
from lowvar.vi.numpyro.model import NumPyroProblem, from_numpyro
from lowvar.vi.numpyro.trace import Densities, InRows, LengthMismatch

_SAMPLE = 2**15  # rows held in memory
_CHUNK = 2**13  # rows of a full pass evaluated at once
_GROUP = 64  # draws evaluated at once
_NEIGHBOURS = 2**12  # rows that follow one another in the files, among which interactions are looked for


@dataclass(frozen=True, eq=False)
class Streamed(NumPyroProblem):
    """A ``NumPyroProblem`` whose batches are rows, ``{name: (B, ...)}``, wherever another's are row numbers.

    Attributes:
        source: all rows.
        sample: the problem of the rows in memory, of which ``data`` has the columns.
    """

    source: MappedArrays | Parquet = None  # type: ignore[assignment]
    sample: NumPyroProblem = None  # type: ignore[assignment]
    program = "stream"

    @property
    def in_memory(self) -> bool:
        """As in ``VariationalProblem``."""
        return False

    @property
    def rows_of_pass(self) -> int:
        """As in ``NumPyroProblem``."""
        return self.N * self.sample.rows_of_pass // self.sample.N

    @property
    def elbo_rows(self) -> int:
        """As in ``VariationalProblem``."""
        return self.sample.N

    @property
    def elbo_cost(self) -> int:
        """As in ``VariationalProblem``."""
        return self.sample.rows_of_pass

    def elbo(self, params, eps: Any = None):
        """As in ``VariationalProblem``, from the sample of rows; the standard error is that of draws and rows."""
        rows, N, M = self.sample, self.N, self.sample.N
        chunks = rows.chunks

        def of_draw(eps):
            z = self.guide.transform(params, eps)
            return jax.lax.map(lambda index: rows.log_likelihood(z, index), chunks["index"]), rows.log_prior(z)

        likelihood, prior = self.backend.map(of_draw, eps, _GROUP)
        weight, draws = chunks["weight"], len(eps)
        values = N * jnp.einsum("scr,cr->s", likelihood, weight) + prior
        by_row = jnp.mean(likelihood, axis=0)
        spread = jnp.sum(weight * (by_row - jnp.sum(weight * by_row)) ** 2)
        of_rows = N**2 * (1 - M / N) * spread / max(1, M - 1)
        error = jnp.sqrt(jnp.var(values) / (draws - 1) + of_rows)
        return jnp.mean(values) + self.guide.entropy(params), error

    def full_gradient(self, z):
        """As in ``VariationalProblem``, in a pass over the files.

        A compiled program cannot make one. Solvers make theirs between programs; elsewhere the result is not a number.
        """
        if isinstance(z, jax.core.Tracer):
            return jnp.full_like(z, jnp.nan)
        return self._summed(self._add_gradient, self._prior_gradient(z), z)

    def log_weights(self, params, eps):
        """See ``judgement.log_weights``: a single pass over the files for all draws."""
        return self._summed(self._add_weights, self._start_weights(params, eps), params, eps)

    @cached_property
    def _prior_gradient(self):
        return compiled(self.prior_gradient)

    @cached_property
    def _add_gradient(self):
        def add(total, rows, real, z):
            return total - jax.grad(lambda z: jnp.sum(jnp.where(real, self.log_likelihood(z, rows), 0)))(z)

        return compiled(add)

    @cached_property
    def _start_weights(self):
        def start(params, eps):
            def of_draw(eps):
                z = self.guide.transform(params, eps)
                return self.log_prior(z) - self.log_prior(params["mu"]) - self.guide.log_density(params, eps)

            return self.backend.map(of_draw, eps, _GROUP)

        return compiled(start)

    @cached_property
    def _add_weights(self):
        def add(totals, rows, real, params, eps):
            base = self.log_likelihood(params["mu"], rows)

            def of_draw(eps):
                value = self.log_likelihood(self.guide.transform(params, eps), rows)
                return jnp.sum(jnp.where(real, value - base, 0))

            return totals + self.backend.map(of_draw, eps, _GROUP)

        return compiled(add)

    def _summed(self, add, total, *args):
        """``total`` after ``add(total, rows, real (B,), *args)`` for chunks that cover all rows."""
        size = min(_CHUNK, self.N)
        for window in windows(self.source, size, checked=self.checked):
            for first in range(0, window.length, size):
                rows = {name: of[first : first + size] for name, of in window.rows.items()}
                total = add(total, rows, np.arange(first, first + size) < window.length, *args)
            jax.block_until_ready(total)  # no window waits in the queue of the device
        return total

    def checked(self, rows: dict[str, np.ndarray], first: int) -> dict[str, np.ndarray]:
        """Columns in the types of the sample, of which ``first`` is the number of the first row.

        Raises:
            UserError: an entry that is not finite, where the sample has none, or an integer beyond 32 bits.
        """
        return {name: self._checked(name, of, first) for name, of in rows.items()}

    def _checked(self, name, given, first):
        known, finite = self._types[name]
        with np.errstate(over="ignore"):
            column = given.astype(known, copy=False)
        bad = ~np.isfinite(column) if finite else np.False_ if column.dtype.kind == "f" else column != given
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            what = "has integers beyond 32 bits" if given.dtype.kind in "iu" else f"is {given[row]}"
            raise UserError(
                f"{self.name}: data: {name!r} {what} in row {first + row}: remove this row and others like it, which "
                f"are rare: none is among {self.sample.N} rows drawn at random"
            )
        return column

    @cached_property
    def _types(self) -> dict[str, tuple[np.dtype, bool]]:
        """The type of each column, and whether its entries are floating and finite in the sample."""
        columns = {name: np.asarray(of) for name, of in self.data.items()}
        floating = {name: of.dtype.kind == "f" for name, of in columns.items()}
        return {name: (of.dtype, floating[name] and bool(np.isfinite(of).all())) for name, of in columns.items()}

    def accept(self, estimator, batches) -> None:
        """Rejects estimators that need more of the rows than a batch, and a pass over all of them in an epoch.

        Raises:
            UserError: a table by row number, passes in every step, or a number of particles that changes.
        """
        declared, name = estimator.properties, estimator.name
        if declared.needs_epochs or (declared.table_rows >= batches.steps and not declared.local):
            length = sum(list(self.blocks.values())[: declared.table_blocks])
            vectors, bytes_of = declared.table_rows, np.dtype(self.dtype).itemsize
            what = (
                f"keeps {vectors:,} vectors of {length:,} numbers of {bytes_of} bytes, "
                f"{vectors * length * bytes_of / 1e9:.3g} GB, and finds them by row number, which rows from files lack"
                if vectors
                else "keeps something for each row, by its number, which rows from files lack"
            )
        elif declared.full_gradients_per_call or declared.full_hvps_per_call:
            what = f"passes over all {self.N:,} rows in every step, and these are in files"
        elif estimator.particles is not None:
            what = "changes its number of particles along the run, which fits of rows in files do not"
        elif declared.full_passes_at_start > declared.full_passes:
            what = "passes over all rows before the run, which fits of rows in files do at the start of an epoch alone"
        else:
            return
        raise UserError(
            f"{self.name}: estimator {name!r} {what}: use naive, stl, cv, joint_svrg or joint_adaptive, or load the "
            "rows: numpy.array(x)"
        )

    def notes(self, size: int | None) -> list[str]:
        """Sentences for the user on the order of the rows."""
        found, factor = super().notes(size), inflation(self.source, size or self.N)
        if factor > 1:
            found.append(
                f"{self.name}: rows are shuffled in blocks, as they are read: in the worst case, equal rows side "
                f"by side, the subsampling variance of a batch is {factor:.3g} times that of a full shuffle"
            )
        return found


def from_files(model: Callable, source: MappedArrays | Parquet, others: Mapping[str, Any], **given) -> Streamed:
    """The negative ELBO of a model whose rows are in files.

    Args:
        model: a NumPyro model, see ``from_numpyro``; its plate has the length of its arrays.
        source: the rows, as columns by keyword argument of the model.
        others: further keyword arguments, the same for all rows.
        given: see ``from_numpyro``.

    Raises:
        UserError: as there; or the model's plate has a size of its own, a computation uses all rows at once, or rows
            have latent variables of their own.
    """
    N = source.N
    index = np.sort(np.random.default_rng(0).choice(N, min(N, _SAMPLE), replace=False, shuffle=False))
    held = source.take(index)
    try:
        sample = from_numpyro(_sized(model, next(iter(held)), N), {**others, **held}, **given)
    except InRows as error:
        raise UserError(error.sentence(dict.fromkeys(held, index))) from error.__cause__
    except LengthMismatch as error:
        name = str(given.get("name") or getattr(model, "__name__", "model"))
        raise _disagreeing(name, error.key, error.length, next(iter(held)), N) from None
    except UserError as error:
        cause, about = error.__cause__, source.about()
        if not about or not isinstance(cause, TypeError | ValueError | IndexError):  # those of wrong shapes
            raise
        raise UserError(f"{error}; {about}") from cause
    if not sample.plate:
        # wrong columns may fit the model by accident if rows are few, and no batch of it
        columns = f" ({about})" if (about := source.about()) else ""
        raise UserError(f"{sample.remarks[0]}; to use all rows in every step, load the arrays: numpy.array(x){columns}")
    if sample.densities is not None:
        raise UserError(
            f"{sample.name}: the plate {sample.plate!r} has latent variables, whose parameters grow with the number of "
            "rows; rows that are read from files cannot have any: load the arrays, numpy.array(x)"
        )
    free = sample.unravel(jnp.zeros(sample.dim, sample.dtype))
    fixed = {name: value for name, value in sample.data.items() if name not in held}

    def log_joint(z, rows):
        count = len(next(iter(rows.values())))
        data = {**fixed, **rows}
        batch = Densities(sample.model, data, sample.plate, count, sample.transforms, sample.dtype, {}, free)
        return batch.in_order(z)

    own = {one.name: getattr(sample, one.name) for one in fields(sample)}
    columns = {name: sample.data[name] for name in held}
    own |= {"N": N, "data": columns, "log_joint": log_joint, "log_likelihood": lambda z, rows: log_joint(z, rows)[0]}
    problem = Streamed(**own, source=source, sample=sample)
    _check_batches(problem, fixed)
    return problem


def _sized(model, column: str, N: int):
    """The model, which raises a ``UserError`` if a plate has the size of all rows where it is given others."""

    @functools.wraps(model)
    def sized(**data):
        with _Plates(N, len(data[column])):
            return model(**data)

    return sized


class _Plates(Messenger):
    """Rejects plates of ``N`` rows in a model that is given ``rows``."""

    def __init__(self, N: int, rows: int):
        self._N, self._rows = N, rows
        super().__init__()

    def process_message(self, msg):
        """Reads the size of a plate."""
        if msg["type"] == "plate" and msg["args"][0] == self._N != self._rows:
            raise UserError(
                f"the plate {msg['name']!r} has {self._N} rows, whatever the model is given, which is the rows of one "
                f"batch at a time: take the size from an array, as in numpyro.plate({msg['name']!r}, x.shape[0])"
            )


def _check_batches(problem: Streamed, fixed: Mapping[str, Any]) -> None:
    """Checks that rows have the same densities alone as in a batch, given as the model is given it from files.

    Raises:
        UserError: they have not, or an array that is the same for all rows is indexed by the row.
    """
    sample = problem.sample
    arrays = {key: one for key, one in fixed.items() if isinstance(one, jax.Array) and one.ndim}
    some = jnp.asarray(some_rows(sample.N), jnp.int32)
    indexed, _ = by_rows(sample.log_likelihood, jnp.asarray(sample.start["mu"], sample.dtype), some, arrays)
    if key := next(iter(sorted(indexed)), None):
        raise _disagreeing(problem.name, key, len(arrays[key]), next(iter(problem.data)), problem.N)
    count = min(_NEIGHBOURS, problem.N)  # as they lie in the files, among which the sample has few
    pool = problem.checked(problem.source.take(np.arange(count) + (problem.N - count) // 2), 0)
    joint = compiled(problem.log_joint)
    each = compiled(lambda z, rows: jax.lax.map(lambda row: problem.log_joint(z, jax.tree.map(_one, row)), rows))

    def evaluate(z, index, alone):
        likelihood, prior = (each if alone else joint)(z, {name: of[index] for name, of in pool.items()})
        return np.ravel(likelihood)[None], np.reshape(prior, (1, -1))

    start = np.asarray(sample.start["mu"], sample.dtype)
    check_rows(problem.name, count, evaluate, pool, start, lambda meeting: _FROM_A_BATCH)


_FROM_A_BATCH = (
    "the model computes from all rows (a mean, a scale, their number) or from neighbours (a lag), and is given those "
    "of one batch at a time, from files: compute such statistics before, and give them as further data"
)


def _one(row):
    return row[None]


def _disagreeing(name: str, key: str, length: int, column: str, N: int) -> UserError:
    return UserError(
        f"{name}: the model indexes {key!r} by the row: it has {length} entries, and {column!r}, which is read "
        f"from a file, {N}; they must agree"
    )
