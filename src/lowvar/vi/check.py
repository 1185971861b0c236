"""Whether a fit of a model can begin: finite densities, indices that are in range, and rows that do not interact.

The objective is a sum over rows, estimated from a batch. This requires that the log-likelihood of a row does not depend
on the other rows of its batch, nor the prior on the batch.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.lax import GatherScatterMode

from lowvar.errors import UserError
from lowvar.vi.guides.forms import NEAR, saddle_sites
from lowvar.vi.variational import prior_of

ELSEWHERE = "check that row and the likelihood's support, or start elsewhere: init"


class Check:
    """The check of a problem before its fit.

    A library's subclass supplies the words of the hints, and the few checks that its models alone need.

    Attributes:
        index: how an index can be wrong without an error in this library, and which entry it takes.
        where: the library's function that replaces entries.
        advice: the way out where rows depend on one another.
    """

    index = ""
    where = ""
    advice = ""

    def __call__(self, problem, centre: np.ndarray, near: Iterable[str]) -> list[str]:
        """Rejects a model that does not permit mini-batches, or whose density is not finite at the start.

        Args:
            problem: the model as a problem.
            centre: the start without its random part, ``(dim,)``.
            near: the sites that have one.

        Returns:
            The sites of which the centre is a saddle point, see ``saddle_sites``.

        Raises:
            UserError: see ``from_numpyro`` and ``TorchModel.problem``.
        """
        z = start_of(problem)
        self.shapes(problem, z)
        self.random(problem, z)
        self.density(problem)
        self.indices(problem, z)
        self.derivatives(problem, z)
        return self.rows(problem, z, centre, near)

    # --- the checks of all models -------------------------------------------------------------------------------------

    def shapes(self, problem, z) -> None:
        """Checks that the model runs on several rows, and on one, and returns real numbers of the right shapes."""
        several = some_rows(problem.N).astype(np.int32)
        for name, rows in ("log_likelihood", several), ("log_likelihood", several[:1]), ("log_prior", None):
            if (function := self.functions(problem).get(name)) is None:
                continue
            args, shape = ((z,), ()) if rows is None else ((z, problem.backend.asarray(rows)), (len(rows),))
            try:
                value = problem.backend.form(function, *args)
            except UserError:
                raise
            except Exception as error:
                words = self.failed(problem, name, rows, rows is not several, error)
                raise UserError(f"{problem.name}: {words}") from error
            self.value(problem, name, value)
            if tuple(value.shape) != shape:
                given = f"{tuple(value.shape)} for {shape[0]} rows" if shape else tuple(value.shape)
                wanted = f"value for each of the rows `index`, shape ({shape[0]},)" if shape else "number: sum it"
                raise UserError(f"{problem.name}: {name} returned shape {given}; it must return one {wanted}")

    def value(self, problem, name: str, value) -> None:
        """Checks the type of what a function returned."""
        if not problem.backend.xp.isdtype(value.dtype, "real floating"):
            raise UserError(
                f"{problem.name}: {name} returned {value.dtype}; it must be real floating numbers: are data complex?"
            )

    def density(self, problem) -> None:
        """Checks that the density is finite at the start for every row."""
        z = start_of(problem)
        prior = float(problem.compiled(prior_of)(z))
        if not np.isfinite(prior):
            raise UserError(
                f"{problem.name}: the log prior is {prior} at the start; check the priors' parameters, or start "
                "elsewhere: init"
            )
        values = np.ravel(problem.backend.to_numpy(problem.log_likelihoods(z)))
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            whole = bad.size == values.size
            raise self.not_finite(problem, z, _row_at(problem, bad[0]), float(values[bad[0]]), whole)

    def indices(self, problem, z) -> None:
        """Checks that no row reads an array beyond its ends, where the library would take another entry."""
        if not (runs := self.strict(problem, z)):
            return
        bad = np.flatnonzero(~np.isfinite(runs[0](z)))
        if len(runs) > 1 and not bad.size:  # off the start, where effects may be zero
            moved = z + problem.backend.asarray(NEAR * np.random.default_rng(0).normal(size=problem.dim), like=z)
            low, high = (run(moved) for run in runs[1:])
            other = np.abs(high - low) > _TOLERANCE * (1 + np.abs(low))
            bad = np.flatnonzero(other | (np.isfinite(low) != np.isfinite(high)))
        if bad.size:
            raise UserError(
                f"{problem.name}: the log-likelihood{self.row_of(problem, _row_at(problem, bad[0]))} reads an array at "
                f"an index that is {self.index}; number groups from 0, give a missing category (-1 in pandas) a number "
                f"of its own, and replace by {self.where} what a first or last row lacks"
            )

    def rows(self, problem, z, centre: np.ndarray, near: Iterable[str]) -> list[str]:
        """Checks that rows do not interact; returns the sites at a saddle point."""
        evaluate, columns, z = self.evaluator(problem, z)
        found = check_rows(problem.name, problem.N, evaluate, columns, z, lambda meeting: self.words(problem, meeting))
        some = some_rows(problem.N)
        rows = np.append(some, found[1][len(some) :]).astype(found[1].dtype)
        return saddle_sites(lambda z: evaluate(z, rows, False)[0][0][: len(some)], problem.sites, centre, near)

    # --- what a library supplies --------------------------------------------------------------------------------------

    def functions(self, problem) -> Mapping[str, Callable]:
        """The functions whose results are checked: ``log_likelihood``, and ``log_prior`` if a user writes it."""
        return {"log_likelihood": problem.log_likelihood}

    def failed(self, problem, name: str, rows: np.ndarray | None, alone: bool, error: Exception) -> str:
        """Words on an error of the function ``name``, with some ``rows``, or a row ``alone`` after several ran."""
        raise NotImplementedError

    def random(self, problem, z) -> None:
        """Checks that the model draws no random numbers of its own."""
        raise NotImplementedError

    def not_finite(self, problem, z, row: int, value: float, whole: bool) -> UserError:
        """The refusal of a row whose log-likelihood is not finite; ``whole``: nor is that of any other."""
        return UserError(f"{problem.name}: the log-likelihood of row {row} is {value} at the start; {ELSEWHERE}")

    def strict(self, problem, z) -> list[Callable[[Any], np.ndarray]]:
        """``z -> log-likelihoods`` of all rows, in the order of ``chunks``, with NaN for entries beyond arrays' ends.

        Integers have no NaN: they get a negative number, so that where they are indices in turn, the next entry is NaN.
        With an array of integers there are two further functions, which put 0 and 1 there. A row that uses such an
        entry is not finite, or differs between those two. Without such entries there is no function.
        """
        raise NotImplementedError

    def row_of(self, problem, row: int) -> str:
        """Words that name a row."""
        return f" of row {row}"

    def derivatives(self, problem, z) -> None:
        """Checks derivatives, where a library cannot take those of all functions."""

    def evaluator(self, problem, z) -> tuple[Callable[..., Any], Mapping[str, Any], np.ndarray]:
        """``evaluate`` of ``check_rows``, ``columns`` of ``batches``, and the point in NumPy, ``(dim,)``."""
        raise NotImplementedError

    def words(self, problem, meeting: "Interaction") -> str:
        """Words on rows that interact."""
        return meeting.sentence(self.advice)


def pairing(site: str, value: tuple[int, ...], fn: Any, log_prob: tuple[int, ...]) -> str:
    """Words on observed values that broadcast with their distribution; empty if they do not.

    Args:
        site: its name.
        value: the shape of its values.
        fn: its distribution.
        log_prob: the shape of the log densities.
    """
    given = math.prod(value[: len(value) - len(fn.event_shape)])
    paired = math.prod(log_prob) > max(given, math.prod(fn.batch_shape))
    return words_on_pairs(site, value, fn, log_prob) if paired else ""


def words_on_pairs(site: str, value: tuple[int, ...], fn: Any, log_prob: tuple[int, ...]) -> str:
    """See ``pairing``."""
    return (
        f"site {site!r}: its values have shape {tuple(value)} and its distribution {tuple(fn.shape())}, which "
        f"broadcast to {tuple(log_prob)}, every entry with every other; give both the same shape, one entry for each "
        "row, such as y[:, 0] in place of a y of shape (N, 1)"
    )


def start_of(problem):
    """The means of all coordinates at the start, ``(dim,)``: an amortised guide computes those of the rows."""
    start = {block: problem.backend.asarray(np.asarray(of, problem.dtype)) for block, of in problem.start.items()}
    return problem.guide.point(start)["mu"] if problem.guide.amortised else start["mu"]


def _row_at(problem, place) -> int:
    return int(np.ravel(problem.backend.to_numpy(problem.chunks["index"]))[place])


# --- rows of a batch that interact ------------------------------------------------------------------------------------
#
# A mini-batch estimates a sum over rows if the log-likelihood of a row does not depend on the other rows of its batch:
# batches are evaluated jointly, and their rows alone. Rows may interact within a group only (a lag of the same subject,
# a mean of the group), and two random rows of many are rarely of one group. So the batches have all rows where these
# are few; else neighbours, and rows that are near one another in a column of the data.

FEW = 7  # rows that a batch has at least, and with which a batch of random rows begins
_MOST, _NUMBERS = 512, 2**24  # most rows of a batch, and most numbers that its rows alone may read
_NEAR, _RARE, _ENDS = 12, 8, 4  # rows of a batch for each column: alike in it, of a rare value, and its extremes
_COLUMNS, _READ, _SEEN = 128, 2**22, 2**14  # most columns, most of their entries, entries among which values are rare
_SPREADS = (0.3, 0.03, 0.0)  # of random points around the start; the next one where densities are not finite
_TOLERANCE = 1e-5  # relative difference attributed to rounding
_LAGS = 3  # different log-likelihoods among copies of a row, above which they depend on the place
_SHIFT, _ROUNDING = 1e-6, 50  # relative change of the point, and the multiple of its effect that counts as rounding


class Interaction(NamedTuple):
    """Rows that interact.

    Attributes:
        z: the point.
        batch: the rows, ``(B,)``.
        worst: the place in it of the row that differs most; None if the part that all rows share differs.
        alone: the log-likelihood of that row alone, nats.
        among: the same in the batch.
        by_place: whether copies of that row alone differ by their place in a batch.
    """

    z: np.ndarray
    batch: np.ndarray
    worst: int | None
    alone: float
    among: float
    by_place: bool = False

    def sentence(self, advice: str) -> str:
        """A sentence on the row, with ``advice``."""
        where = f"row {int(self.batch[self.worst or 0])}"
        if np.isfinite(self.among) and not np.isfinite(self.alone):
            found = f"{where} is not finite alone, but finite among others"
        else:
            found = f"{where} has {self.alone:.6g} alone and {self.among:.6g} among {len(self.batch)} rows"
        if self.by_place:
            advice = (
                "copies of that row differ by their place in the batch: index rows by the plate's index, x[index] and "
                "obs=y[index], not by their number, as y[:len(index)] does; ranks and cumulative sums need all the "
                "data, before the plate"
            )
        return f"the log-likelihood of a row depends on the other rows of its batch: {found}; {advice}"


def some_rows(N: int) -> np.ndarray:
    """A few random rows, fewer than ``N``: with all rows, NumPyro and Pyro would not subsample."""
    return np.random.default_rng(0).choice(N, min(FEW, max(1, N - 1)), replace=False)


def batches(N: int, dim: int, columns: Mapping[str, Any]) -> list[np.ndarray]:
    """Batches of one size in which rows that may interact come together.

    Args:
        N: number of rows.
        dim: numbers that every row reads; with those of a row of the columns, they limit the size.
        columns: arrays, of which those with ``N`` entries along their first axis are read.

    Returns:
        Neighbours, all but one if the rows are few; random rows, one of them twice; and, if there are more, rows that
        are alike in a column.
    """
    rng = np.random.default_rng(0)
    width = dim + sum(math.prod(np.shape(one)[1:]) for one in columns.values())
    size = int(np.clip(_NUMBERS // max(1, width), FEW, min(_MOST, max(FEW, N - 1))))
    size = min(size, max(1, N - 1))
    first = int(rng.integers(N - size + 1))
    drawn = some_rows(N)
    rest = np.setdiff1d(rng.choice(N, min(N, size + FEW), replace=False), drawn)
    shuffled = np.concatenate([drawn, rng.permutation(rest)])[:size]
    if size > 1:
        shuffled[-1] = shuffled[0]
    found = [np.arange(first, first + size), shuffled]
    if size < N - 1:
        alike = list(_alike(N, columns, rng))
        each = _NEAR + _RARE + 2 * _ENDS
        by_batch = max(1, size // each)
        for start in range(0, len(alike), by_batch):
            rows = np.unique(np.concatenate(alike[start : start + by_batch]))[:size]
            found.append(np.concatenate([rows, np.setdiff1d(shuffled, rows)])[:size])
            if len(found[-1]) < size:
                found[-1] = np.resize(found[-1], size)
    return [rows.astype(np.int32) for rows in found]


def check_rows(
    name: str, N: int, evaluate: Callable[[np.ndarray, np.ndarray, bool], tuple[np.ndarray, np.ndarray]],
    columns: Mapping[str, Any], start: np.ndarray, words: Callable[[Interaction], str],
) -> list[np.ndarray]:  # fmt: skip
    """Checks that rows do not interact near a point; returns the batches that it compares.

    Args:
        name: of the model.
        N: number of rows.
        evaluate: ``(z (dim,), rows (B,), alone) -> (P, B), (P, ...)``: ``P`` quantities of each row, the first of them
            its log-likelihood in nats, with the rows as one batch, or each ``alone``; and those of the part that all
            rows share, for each batch.
        columns: see ``batches``.
        start: the point, ``(dim,)``.
        words: on rows that interact.

    Raises:
        UserError: rows do.
    """
    found, rng = batches(N, start.size, columns), np.random.default_rng(0)
    tries = [start + spread * rng.normal(size=start.size) for spread in _SPREADS]
    signs = rng.choice([-1.0, 1.0], size=(3, start.size))
    for parts in (slice(None), slice(0, 1)):  # values alone where derivatives are not finite
        for z in tries:
            z = z.astype(start.dtype)
            together = [evaluate(z, rows, False) for rows in found]
            if all(np.isfinite(values[parts]).all() for values, _ in together):
                if (meeting := _compared(evaluate, found, z, together, signs, parts)) is not None:
                    raise UserError(f"{name}: {words(meeting)}")
                return found
    return found  # the check of the density rejects such a start


def _compared(evaluate, found, z, together, signs, parts) -> Interaction | None:
    """The first rows that interact at a point; None if there are none."""
    shared = []
    for rows, (values, common) in zip(found, together, strict=True):
        alone, common_alone = (one[parts].astype(float) for one in evaluate(z, rows, True))
        values, common = values[parts].astype(float), common[parts].astype(float)
        if not np.isfinite(alone).all():
            worst = int(np.argmin(np.isfinite(alone).all(axis=0)))
            return Interaction(z, rows, worst, float("nan"), float(values[0, worst]))
        moved = [evaluate((z * (1 + _SHIFT * sign)).astype(z.dtype), rows, False) for sign in signs]
        rounding = _ROUNDING * np.max([np.abs(one[parts] - values) for one, _ in moved], axis=0)
        size = np.abs(alone)
        tolerance = _TOLERANCE * (size + 0.1 * np.median(size, axis=1, keepdims=True)) + rounding + 1e-300
        off = (np.abs(values - alone) / tolerance).max(axis=0)
        if off.max() > 1:
            worst = int(np.argmax(off))
            copies, _ = evaluate(z, np.full_like(rows, rows[worst]), False)
            # a lag differs at the first or the last place alone
            by_place = len(np.unique(np.round(copies[0] / tolerance[0, worst]))) > _LAGS
            return Interaction(z, rows, worst, float(alone[0, worst]), float(values[0, worst]), by_place)
        if common.size:
            drift = _ROUNDING * np.max([np.abs(one[parts] - common) for _, one in moved], axis=0)
            shared.append((rows, common.reshape(len(common), -1), common_alone.reshape(len(common), -1), drift))
    for rows, common, alone, drift in shared:
        reference = shared[0][1][:, :1]
        tolerance = _TOLERANCE * np.abs(reference) + drift.reshape(len(reference), -1).max(axis=1, keepdims=True)
        off = np.abs(np.concatenate([common, alone], axis=1) - reference) > tolerance + 1e-300
        if off.any():
            return Interaction(z, rows, None, float(reference[0, 0]), float(common[0, 0]))
    return None


def _alike(N: int, columns: Mapping[str, Any], rng) -> Iterator[np.ndarray]:
    """For each column, rows near a random one, rows of a rare value, and those of the extremes."""
    read = list(islice(_one_dimensional(N, columns), max(1, min(_COLUMNS, _READ // N))))
    for k, values in enumerate(read):
        row, other = int(rng.integers(N)), read[(k + 1) % len(read)]
        seen, where, count = np.unique(values[:_SEEN], return_index=True, return_counts=True)
        several = np.flatnonzero(count > 1)
        if len(several):  # a value that rows share, and the rarest of these
            row = int(rng.choice(where[several]))
        near = _nearest(values, row, _NEAR)
        near = near[np.argsort(np.abs(other[near] - other[row]), kind="stable")][:_NEAR]  # alike in the next one too
        ends = [np.argpartition(by, min(_ENDS, N - 1))[:_ENDS] for by in (values, -values)]
        rare = np.zeros(0, int)
        if len(several):
            rare = np.flatnonzero(values == seen[several[np.argmin(count[several])]])[:_RARE]
        yield np.unique(np.concatenate([near, rare, *ends]))


def _nearest(values: np.ndarray, row: int, count: int) -> np.ndarray:
    """The ``count`` rows nearest to a row in a column, and all others that are as near."""
    apart = np.abs(values - values[row])
    return np.flatnonzero(apart <= np.partition(apart, min(count, len(apart)) - 1)[count - 1])


def _one_dimensional(N: int, columns: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """The columns of arrays with ``N`` rows as real numbers, integers first."""
    arrays = []
    for array in columns.values():
        array = array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)
        if array.ndim and len(array) == N and array.dtype.kind in "biuf":
            arrays.append(array.reshape(N, -1)[:, :_COLUMNS])
    for array in sorted(arrays, key=lambda array: (array.dtype.kind == "f", array.shape[1])):
        for column in array.T:
            if (values := np.nan_to_num(column.astype(float))).min() < values.max():
                yield values


def tensors_of(thing: Any, depth: int = 4) -> dict[str, Any]:
    """The arrays that a function reads from its closure, its module and the functions that it calls."""
    found: dict[str, Any] = {}

    def visit(one, depth, label):
        if hasattr(one, "shape") and hasattr(one, "dtype"):
            found.setdefault(label, one)
        elif depth and isinstance(one, Mapping):
            visit_all(one.items(), depth, label)
        elif depth and isinstance(one, list | tuple) and len(one) < _COLUMNS:
            visit_all(enumerate(one), depth, label)
        elif depth and (inspect.isfunction(one) or inspect.ismethod(one)):
            if inspect.ismethod(one):
                visit_all(getattr(one.__self__, "__dict__", {}).items(), depth, label)
                one = one.__func__
            try:
                names = inspect.getclosurevars(one)
            except (TypeError, ValueError):  # a name that is not bound yet
                return
            visit_all({**names.globals, **names.nonlocals}.items(), depth, label)

    def visit_all(pairs: Iterable[tuple[Any, Any]], depth, label):
        for key, one in pairs:
            visit(one, depth - 1, f"{label}.{key}")

    visit(thing, depth, "")
    return found


# --- rows that read an array beyond its ends --------------------------------------------------------------------------
#
# There JAX takes another entry without a word. Groups that are numbered from 1, and the -1 by which pandas codes a
# missing category, are such indices. The program of the log-likelihoods is run with NaN for these entries: a row that
# uses one is then not finite, and a row whose model replaces it, as by ``jnp.where``, is. The same program tells which
# arrays are read by the row numbers themselves.


def strict(
    function: Callable[[Any, Any], Any], z: Any, index: Any, data: Iterable[Any]
) -> list[Callable[[Any, Any], Any]]:
    """``function`` with other values in place of entries beyond the ends of arrays, see ``Check.strict``.

    Args:
        function: of a point and of row numbers.
        z: such a point.
        index: such row numbers, all in range.
        data: the arrays that it may close over; indices made of other constants, as in ``x[:, [0, -1]]``, are meant.

    Returns:
        No function if only row numbers are its indices.
    """
    closed = _inlined(jax.make_jaxpr(function)(z, index), z, index)
    made = {out: eqn for eqn in closed.jaxpr.eqns for out in eqn.outvars}
    rows = closed.jaxpr.invars[-1]
    known = {id(one) for one in data}
    sources = {rows, *(v for v, one in zip(closed.jaxpr.constvars, closed.consts, strict=True) if id(one) in known)}
    put, eqns, found, whole = {}, ([], [], []), False, False
    for eqn in closed.jaxpr.eqns:
        name = eqn.primitive.name
        if name == "select_n" and _counts_from_end(eqn, made) and _origins(eqn.invars[1], made) & sources:
            put[eqn.outvars[0]] = eqn.invars[1]  # the index as the user wrote it
            found = found or eqn.invars[1] is not rows
            continue
        given = [one if isinstance(one, Literal) else put.get(one, one) for one in eqn.invars]
        params = [eqn.params] * 3
        if name == "gather" and _is_written_plainly(eqn.params):
            dtype = eqn.outvars[0].aval.dtype
            params = [
                {**eqn.params, "mode": GatherScatterMode.FILL_OR_DROP, "fill_value": gone} for gone in _gone(dtype)
            ]
            whole = whole or not (jnp.issubdtype(dtype, jnp.inexact) or _is_rows(eqn.invars[1], rows, made))
        for some, one in zip(eqns, params, strict=True):
            some.append(eqn.replace(invars=given, params=one))
    programs = [jaxpr_as_fun(ClosedJaxpr(closed.jaxpr.replace(eqns=some), closed.consts)) for some in eqns]
    return [lambda z, index, run=run: run(z, index)[0] for run in programs[: 3 if whole else 1]] if found else []


def _inlined(closed: ClosedJaxpr, *arguments) -> ClosedJaxpr:
    """A program with those of jitted functions written out, such as ``jnp.take`` and a user's own."""
    if not any(eqn.primitive.name in _JITTED for eqn in closed.jaxpr.eqns):
        return closed

    def run(closed, arguments):
        jaxpr = closed.jaxpr
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arguments), strict=True))
        for eqn in jaxpr.eqns:
            given = [one.val if isinstance(one, Literal) else values[one] for one in eqn.invars]
            if eqn.primitive.name in _JITTED:
                out = run(eqn.params["jaxpr"], given)
            else:
                bound = eqn.primitive.get_bind_params(eqn.params)
                functions, params = bound if isinstance(bound, tuple) else ((), bound)  # of an older JAX, and a newer
                out = eqn.primitive.bind(*functions, *given, **params)
                out = out if eqn.primitive.multiple_results else [out]
            values.update(zip(eqn.outvars, out, strict=True))
        return [one.val if isinstance(one, Literal) else values[one] for one in jaxpr.outvars]

    return jax.make_jaxpr(lambda *arguments: run(closed, arguments))(*arguments)


_JITTED = ("jit", "pjit")


def _is_written_plainly(params) -> bool:
    """Whether a gather is that of ``x[i]``; under ``vmap``, it is a slice that is moved in and loses no axis."""
    moved = params["mode"] == GatherScatterMode.CLIP and not params["dimension_numbers"].collapsed_slice_dims
    return moved or params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS


def _gone(dtype) -> tuple[Any, Any, Any]:
    """NaN; for integers and booleans a number that is beyond the ends of an array too, then 0 and 1."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.nan, jnp.nan, jnp.nan
    if not jnp.issubdtype(dtype, jnp.signedinteger):
        return 0, 0, 1
    return max(jnp.iinfo(dtype).min, jnp.iinfo(jnp.int32).min), 0, 1  # JAX cuts indices to 32 bits


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
