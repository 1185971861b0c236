"""Whether the rows of a batch interact: batches evaluated jointly, and their rows alone.

A mini-batch estimates a sum over rows if the log-likelihood of a row does not depend on the other rows of its batch.
Rows may interact within a group only (a lag of the same subject, a mean of the group), and two random rows of many are
rarely of one group. So the batches have all rows where these are few; else neighbours, and rows that are near one
another in a column of the data.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

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

    def told(self, advice: str) -> str:
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


def interaction(
    evaluate: Callable[[np.ndarray, np.ndarray, bool], tuple[np.ndarray, np.ndarray]],
    found: list[np.ndarray], start: np.ndarray,
) -> Interaction | None:  # fmt: skip
    """The first rows that interact near a point; None if there are none.

    Args:
        evaluate: ``(z (dim,), rows (B,), alone) -> (P, B), (P, ...)``: ``P`` quantities of each row, the first of them
            its log-likelihood in nats, with the rows as one batch, or each ``alone``; and those of the part that all
            rows share, for each batch.
        found: from ``batches``.
        start: the point, ``(dim,)``.
    """
    rng = np.random.default_rng(0)
    tries = [start + spread * rng.normal(size=start.size) for spread in _SPREADS]
    signs = rng.choice([-1.0, 1.0], size=(3, start.size))
    for parts in (slice(None), slice(0, 1)):  # values alone where derivatives are not finite
        for z in tries:
            z = z.astype(start.dtype)
            together = [evaluate(z, rows, False) for rows in found]
            if all(np.isfinite(values[parts]).all() for values, _ in together):
                return _compared(evaluate, found, z, together, signs, parts)
    return None  # the check of the density rejects such a start


def _compared(evaluate, found, z, together, signs, parts) -> Interaction | None:
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
