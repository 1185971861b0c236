"""Samples of all tasks as one set of standardised arrays, and the linear algebra of many of them at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import blas, lapack

from lowvar.integrals.base import Samples, evenly


class Batched:
    """A dataclass whose arrays begin with an axis of repetitions, but for those of the fields ``one_for_all``."""

    one_for_all: ClassVar[tuple[str, ...]] = ()

    def pick(self, which: np.ndarray | slice) -> Self:
        """These repetitions alone."""
        return _each_array(lambda array: array[which], self)

    def put(self, which: np.ndarray, some: Self) -> Self:
        """A copy with repetitions ``which`` replaced by ``some``."""
        return _each_array(lambda array, other: replaced(array, which, other), self, some)

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """The repetitions of all, one after the other."""
        return _each_array(lambda *arrays: np.concatenate(arrays), *several)


def _each_array(function: Callable[..., np.ndarray], first: Any, *others: Any) -> Any:
    """``function`` of corresponding arrays; of all else the first."""
    if isinstance(first, Batched) and is_dataclass(first):
        names = [field.name for field in fields(first) if field.name not in first.one_for_all]
        changed = {name: _each_array(function, *(getattr(one, name) for one in (first, *others))) for name in names}
        return replace(first, **changed)
    if isinstance(first, dict):
        return {name: _each_array(function, *(one[name] for one in (first, *others))) for name in first}
    return function(first, *others) if isinstance(first, np.ndarray) else first


def replaced(array: np.ndarray, which: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A copy with the rows ``which`` replaced."""
    array = array.copy()
    array[which] = other
    return array


@dataclass(frozen=True)
class Stacked(Batched):
    """Points of all tasks one after the other, in units of their spread.

    Tasks with points of their own are rows: ``S = 1``, ``q = T``. Tasks that share their points are columns: ``S = T``,
    ``q = 1``, and ``M`` is the number of points.

    Attributes:
        x: ``(R, M, d)``; the points are ``x_shift + x_scale x``.
        scores: ``(R, M, d)``, with respect to ``x``.
        y: ``(R, M, S)``; the values of task ``t`` are ``y_shift[t] + y_scale[t] y``.
        member: ``(M, q)``, one where a row belongs to the task, else zero: the design of the constants.
        x_shift: ``(R, d)``.
        x_scale: ``(R, d)``.
        y_shift: ``(R, T)``.
        y_scale: ``(R, T)``.
        ridge: ``(M,)``, a noise variance of each row that is given, in the unit of ``y^2``; zero unless a penalty is.
    """

    one_for_all = ("member", "ridge")

    x: np.ndarray
    scores: np.ndarray
    y: np.ndarray
    member: np.ndarray
    x_shift: np.ndarray
    x_scale: np.ndarray
    y_shift: np.ndarray
    y_scale: np.ndarray
    ridge: np.ndarray

    @property
    def repetitions(self) -> int:
        """``R``."""
        return self.y.shape[0]

    @property
    def rows(self) -> int:
        """``M``."""
        return self.y.shape[1]

    @property
    def tasks(self) -> int:
        """``T``."""
        return self.y_shift.shape[1]

    def thin(self, rows: int) -> "Stacked":
        """About ``rows`` of the rows, spread evenly over every task; no task keeps fewer than three."""
        if rows >= self.rows:
            return self
        kept = []
        for column in self.member.T:
            own = np.flatnonzero(column)
            kept.append(own[evenly(min(len(own), max(3, round(rows * len(own) / self.rows))), len(own))])
        keep = np.concatenate(kept)
        thinned = {name: getattr(self, name)[:, keep] for name in ("x", "scores", "y")}
        return replace(self, member=self.member[keep], ridge=self.ridge[keep], **thinned)

    def columns(self, number: int) -> "Stacked":
        """About ``number`` of the columns of values, spread evenly."""
        if number >= self.y.shape[2]:
            return self
        return replace(self, y=self.y[:, :, evenly(number, self.y.shape[2])])

    def standardised(self, B: np.ndarray) -> np.ndarray:
        """A root ``(R, T, T)`` of ``B (T, T)``, of the values' own unit, for standardised values."""
        scale = _inverse(self.y_scale)
        values, vectors = np.linalg.eigh(B * scale[:, :, None] * scale[:, None])
        return vectors * np.sqrt(np.maximum(values, 0))[:, None]

    def points(self, points: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Other points ``(R, n, d)`` and scores in these units."""
        return (points - self.x_shift[:, None]) / self.x_scale[:, None], scores * self.x_scale[:, None]


def stack(samples: Samples, standardise: bool = True, shared: bool = False, penalty: float | None = None) -> Stacked:
    """All tasks as one problem.

    Args:
        samples: points, scores and values.
        standardise: subtract the mean of the points and divide by their standard deviation, input by input, over all
            tasks; scores are multiplied by it. Values are standardised, task by task, unless there is a penalty.
        shared: tasks as columns; the samples must be shared.
        penalty: ``lambda`` of eq. (8), not with ``shared``: values keep their unit, and task ``t`` the ridge
            ``lambda m_t``.

    Returns:
        Arrays. An input that does not vary is divided by one; an integrand that does not has ``y = y_scale = 0``.
    """
    one = 1 if shared else samples.tasks
    x, scores = (np.concatenate(of[:one], axis=1) for of in (samples.points, samples.scores))
    y = np.concatenate(samples.values, axis=1)
    if shared:
        y = np.stack(samples.values, axis=2)
        member, sizes = np.ones_like(y[0, :, :1]), float(y.shape[1])
        y_shift, square = y.mean(axis=1), np.sqrt((y * y).mean(axis=1))
        y = y - y_shift[:, None]
        y_scale = _spread(np.sqrt((y * y).sum(axis=1) / (sizes - 1)), square)
        y = y * _inverse(y_scale)[:, None]
    else:
        task = np.repeat(np.arange(samples.tasks), samples.sizes)
        member = 1.0 * (task[:, None] == np.arange(samples.tasks))
        sizes = member.sum(axis=0)
        own = y[:, :, None] * member  # (R, M, T)
        y_shift, square = own.sum(axis=1) / sizes, np.sqrt((own * own).sum(axis=1) / sizes)
        own = (own - y_shift[:, None]) * member
        y_scale = _spread(np.sqrt((own * own).sum(axis=1) / (sizes - 1)), square)
        if penalty is not None:
            y_scale = np.ones_like(y_scale)
        y = (own * _inverse(y_scale)[:, None]).sum(axis=2, keepdims=True)
    x_shift, x_scale = np.zeros_like(x[:, 0]), np.ones_like(x[:, 0])
    if standardise:
        x_shift = x.mean(axis=1)
        x_scale = _spread(x.std(axis=1, ddof=1), x_shift)
        x_scale = np.where(x_scale > 0, x_scale, 1.0)
        x, scores = (x - x_shift[:, None]) / x_scale[:, None], scores * x_scale[:, None]
    ridge = (0.0 if penalty is None else penalty) * (member @ member.sum(axis=0))
    return Stacked(x, scores, y, member, x_shift, x_scale, y_shift, y_scale, ridge)


def _spread(deviation: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Standard deviations; zero where they are nothing but rounding."""
    return np.where(deviation > 1e-13 * np.abs(size), deviation, 0.0)


def _inverse(scale: np.ndarray) -> np.ndarray:
    """Zero of zero."""
    return np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)


def cholesky(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower factors of matrices ``(R, M, M)``, and which have none, ``(R,)``: in its place is the identity."""
    factor, failed = np.empty_like(matrix), np.zeros(len(matrix), bool)
    for r, one in enumerate(matrix):
        upper, info = lapack.dpotrf(one.T)  # in LAPACK's order of entries the transpose takes no copy
        failed[r] = info != 0 or not np.isfinite(upper).all()
        factor[r] = np.eye(len(one)) if failed[r] else upper.T
    return factor, failed


def solve_each(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``A^-1 right``, for matrices ``A (R, M, M)`` and ``right (R, M, S)``; NaN where ``A`` is singular."""
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:  # of one of them, but it is said of all
        if len(matrix) > 1:
            return np.concatenate([solve_each(matrix[r : r + 1], right[r : r + 1]) for r in range(len(matrix))])
        return np.full_like(right, np.nan)


def solve_lower(factor: np.ndarray, right: np.ndarray, transposed: bool = False) -> np.ndarray:
    """``L^-1 right``, or ``L'^-1 right``, for factors ``L (R, M, M)`` and ``right (R, M, S)``."""
    pairs = zip(factor, np.broadcast_to(right, (len(factor), *right.shape[1:])), strict=True)
    return np.stack([blas.dtrsm(1.0, one.T, of.T, side=1, trans_a=int(transposed)).T for one, of in pairs])


def inverse(factor: np.ndarray) -> np.ndarray:
    """``(L L')^-1`` for factors ``L (R, M, M)``."""
    eye = np.eye(factor.shape[-1])
    # `dpotri` takes half as long on one thread, but of a small matrix up to a hundred times as long on several
    return np.stack([lapack.dpotrs(one.T, eye)[0] for one in factor])


def diagonal(matrix: np.ndarray) -> np.ndarray:
    """``(R, M)`` of ``(R, M, M)``."""
    return np.diagonal(matrix, axis1=-2, axis2=-1)
