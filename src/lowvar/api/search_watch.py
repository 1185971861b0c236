"""Checks of ``minimize`` during a search: whether ``f`` is noisy, and whether the search has stopped moving."""

import math
from collections import deque

import numpy as np
import scipy.stats

from lowvar.api.searcher import Searcher
from lowvar.problems.blackbox.evaluator import Evaluator

_DIGITS = 1e-11  # relative difference below which values count as equal
_ULPS, _VISIBLE = 64 * np.finfo(float).eps, 1e-2  # but not repeated values above both of these: see `Noise`
_FLAT = 20  # consecutive generations whose values are all equal
_SEEN, _MATTERS = 1e-9, 0.3  # noise is detected above these fractions of the first and current spread
# Noise overwhelms a search if its share of the variance of a generation's values is above 0.8 on average over 8 checks.
# With 8 points of normal values and a constant share of 0.5, this happens in 14 % of runs of 300 generations; where all
# is noise, in 50 % within 10 generations and in 90 % within 100 (1000 simulated runs).
_MOSTLY, _CHECKS = 0.8, 8
_FEW = 8  # deviations, to tell heavy tails
_DECADES = 14  # maximum number of distances in `around`


class Noise:
    """Detects whether repeated evaluations of a point differ, and whether noise is most of what a search sees.

    Points are re-evaluated after generations 1 (two points), 2, 4, 8 and so on (one point). The values are noisy if
    they differ by more than 1e-9 of the standard deviation of the first generation's values, or by 0.3 of that of the
    current ones; smaller differences count as rounding, and those below 1e-11 of a value unless they exceed 64 units in
    the last place and 1e-2 of the first standard deviation, as with a large constant in ``f``. From then on, if
    ``share`` is set, half of the points of some generations are re-evaluated: the next check comes after a quarter of
    the generations so far. Noise that a generation shares does not count in the share, as it leaves the ranks alone.

    Attributes:
        known: whether ``f`` is noisy: True, False, or None while undetected.
        asked: whether to check at all.
        share: whether to measure the noise's share of a generation's variance.
        overwhelms: whether this share was above 0.8, on average over the last eight checks.
    """

    def __init__(self, noisy: bool | None, share: bool = False):
        self.known, self.asked, self.share, self.overwhelms = noisy, noisy is not False, share, False
        self._repeated: list[float] = []  # standard deviations of a point's values
        self._first = 0.0  # standard deviation of the first generation's values
        self._due = 1
        self._shares: list[float] = []
        self._scaled: list[float] = []  # differences of a point's values, in standard deviations of their generation

    @property
    def sd(self) -> float:
        """Standard deviation of repeated evaluations of a point; 0 if they agree, NaN if there are none."""
        if not self.asked or (self._repeated and not self.known):
            return 0.0
        values = np.array(self._repeated)
        return float(np.hypot(deviation(values), average(values))) if self._repeated else math.nan

    def look(self, evaluator: Evaluator, iteration: int, points: np.ndarray, values: np.ndarray) -> None:
        """Re-evaluates some points, if due."""
        measures = self.share and self.known
        if not self.asked or iteration < self._due:
            return
        finite = np.flatnonzero(np.isfinite(values))
        ranked = finite[np.argsort(values[finite])]
        chosen = ranked[::2] if measures else ranked[[0, -1][: min(2 if iteration == 1 else 1, len(ranked))]]
        if not len(chosen) or evaluator.remaining < len(chosen) + len(points):
            return
        self._due = iteration + max(1, iteration // 4) if measures else 2 * iteration
        spread = deviation(values[finite])
        self._first = spread if iteration == 1 else self._first
        again = evaluator(points[chosen])
        with np.errstate(invalid="ignore", over="ignore"):
            differences = again - values[chosen]
        differences = differences[np.isfinite(differences)]
        self._repeated += list(np.abs(differences) / math.sqrt(2))
        if spread > 0:
            self._scaled += list(np.abs(differences / spread))
        if measures and len(differences) > 1:
            n = len(finite)  # for normal values, E 1 / spread^2 is n / (n - 3) times 1 / variance
            ratio = deviation(differences, 1) / spread if spread > 0 else 0.0
            self._shares.append(min(min(ratio, 4.0) ** 2 / 2 * max(n - 3, 0) / n, 2.0))
            self.overwhelms = len(self._shares) >= _CHECKS and float(np.mean(self._shares[-_CHECKS:])) > _MOSTLY
        elif self.known is None and (np.abs(differences) > self._least(spread, values[finite])).any():
            self.known = True
            self._due = iteration + 1 if self.share else self._due

    def _least(self, spread: float, values: np.ndarray) -> float:
        """The difference above which two values of a point are noise."""
        return max(min(_SEEN * self._first, _MATTERS * spread), self._rounding(values))

    def _rounding(self, values: np.ndarray) -> float:
        """The difference between repeated values that rounding may explain."""
        size = float(np.abs(values).max())
        return min(_DIGITS * size, max(_ULPS * size, _VISIBLE * self._first))

    def tails(self) -> str:
        """Words on one repeated evaluation that differs far more than the others do; or ``""``."""
        if not dominated(np.array(self._scaled)):
            return ""
        return (
            f"one of {len(self._scaled)} repeated evaluations makes up most of the noise: its tails are heavy, and "
            "mean_fun_se may be far too small"
        )

    def lucky(self, evaluator: Evaluator, point: np.ndarray, value: float) -> bool:
        """Whether a re-evaluation of the best point differs, if no noise was detected before."""
        if self.known is not None or not self.asked or evaluator.remaining < 1:
            return False
        again = float(evaluator(point[None, :])[0])
        if abs(again - value) <= _SEEN * max(self._first, abs(value)):
            return False
        self._repeated.append(abs(again - value) / math.sqrt(2) if math.isfinite(again) else 0.0)
        self.known = True
        return True

    def measured(self, values: np.ndarray) -> None:
        """Uses evaluations ``(n,)`` of one point to estimate the noise, unless they differ by rounding alone."""
        if np.ptp(values) > self._rounding(values):
            self._repeated = [deviation(values, 1)]
        elif not self._repeated:
            self._repeated = [0.0]


class Rest:
    """Detects whether a search has stopped moving: its points or values no longer differ or improve.

    One of three conditions holds. Over ``10 + 30 d / N`` generations all values agree to a relative 1e-11, and the
    later half has none better than the earlier half. Or, in each of 20 consecutive generations, all values are equal.
    Or the points of a generation agree, in every coordinate, to 1e-14 of their size or 1e-20 of the first spread.
    """

    def __init__(self, searcher: Searcher):
        first, dim = searcher.ask(), searcher.domain.dim
        self._window: deque[tuple[float, float]] = deque(maxlen=10 + math.ceil(30 * dim / len(first)))
        self._size = np.ptp(first, axis=0) if searcher.domain.kind == "real" else np.zeros(dim)
        self._flat = 0
        self._best, self._count, self._since = math.inf, 0, 0
        self.medians: list[float] = []
        self.spreads: list[float] = []

    def points(self, points: np.ndarray) -> bool:
        """Whether the points ``(n, dim)`` of a generation no longer differ."""
        least = np.maximum(1e-14 * np.abs(points).max(axis=0), 1e-20 * self._size)
        return bool((np.ptp(points, axis=0) <= least).all())

    def values(self, values: np.ndarray) -> bool:
        """Whether the search has stopped moving, given a generation's finite values."""
        if not len(values):
            return False
        low, high = float(values.min()), float(values.max())
        self.medians.append(float(np.median(values)))
        self.spreads.append(deviation(values))
        self._flat = self._flat + 1 if len(values) > 1 and low == high else 0
        self._window.append((low, high))
        if self._flat >= _FLAT:
            return True
        if len(self._window) < (self._window.maxlen or 0):
            return False
        seen = np.array(self._window)
        lows, half = seen[:, 0], len(seen) // 2
        equal = seen[:, 1].max() - lows.min() <= _DIGITS * np.abs(seen).max()
        return bool(equal and lows[half:].min() >= lows[:half].min())

    def idle(self, best: float) -> bool:
        """For a discrete search: whether half of its generations, 50 or more, have not improved ``best``; checked again
        after as many."""
        self._count += 1
        if best < self._best:
            self._best, self._since = best, self._count
        is_idle = self._count - self._since >= max(50, self._count // 2)
        self._since = self._count if is_idle else self._since
        return is_idle

    def stuck(self) -> bool:
        """Whether the last quarter of the generations made hardly any progress.

        Their median value fell by less than a tenth of its fall between the first twentieth and the last quarter, and
        the spread within a generation stayed above half of its earlier level; a converging search reduces it.
        """
        n = len(self.medians)
        if n < 80:
            return False
        few = max(5, n // 40)
        at = (n // 20, 3 * n // 4, n - few)
        early, late, end = (float(np.median(self.medians[t : t + few])) for t in at)
        before, now = (float(np.median(self.spreads[t : t + few])) for t in at[1:])
        return late - end < 0.1 * max(early - late, 0.0) and now > 0.5 * before


def average(values: np.ndarray) -> float:
    """The mean of ``(n,)`` values, whose sum may overflow."""
    size = _size(values)
    return size * float(np.mean(values / size))


def deviation(values: np.ndarray, ddof: int = 0) -> float:
    """The standard deviation of ``(n,)`` values, whose squares may overflow or vanish; ``ddof`` as in NumPy."""
    size = _size(values)
    return size * float(np.std(values / size, ddof=ddof))


def error_of_mean(values: np.ndarray, batched: bool) -> float:
    """Standard error of the average of ``(calls, positions)`` values of one point; NaN where it is unknown.

    From the averages of the calls. If ``batched``, the noise has a part that the values of a call share and a part that
    those of a position share: a two-way layout with random effects. Values that are not finite are missing.
    """
    seen = np.isfinite(values)
    centre = average(values[seen])
    rows, columns = (
        np.array([average(one[finite]) for one, finite in zip(of, at, strict=True) if finite.any()])
        for of, at in ((values, seen), (values.T, seen.T))
    )
    if len(rows) < 2 or (batched and len(columns) < 2):
        return math.nan
    by_call = deviation(rows, 1) / math.sqrt(len(rows))
    if not batched:
        return by_call
    by_position = deviation(columns, 1) / math.sqrt(len(columns))
    largest = max(by_call, by_position)
    if not largest or not seen.all():
        return math.hypot(by_call, by_position)
    left = (values - centre) - (rows - centre)[:, None] - (columns - centre)
    both = deviation(left) / math.sqrt((len(rows) - 1) * (len(columns) - 1))
    parts = np.array([by_call, by_position, both]) / largest
    return largest * math.sqrt(max(1.0, parts**2 @ [1, 1, -1]))


def dominated(off: np.ndarray) -> bool:
    """Whether one of ``(n,)`` absolute deviations has most of the sum of their squares.

    That is half of it or, for few, more than one of a thousand samples of normal values has (Cochran's test).
    """
    off = off[np.isfinite(off)]
    n = len(off)
    if n < _FEW or not off.max() > 0:
        return False
    limit = float(scipy.stats.f.isf(1e-3 / n, 1, n - 1))
    return 1 / float(((off / off.max()) ** 2).sum()) > max(0.5, limit / (limit + n - 1))


def _size(values: np.ndarray) -> float:
    size = float(np.abs(values).max())
    return size if size > 1e150 or 0 < size < 1e-150 else 1.0


def around(searcher: Searcher, sigma0: float, best_at: np.ndarray, most: int) -> np.ndarray:
    """Points ``(n, dim)`` to distinguish a minimum from other places where a search stops; at most ``most``.

    For a real search: two points at each of the distances ``sigma0``, ``sigma0 / 10`` and so on, down to ten times its
    current standard deviation, and the best point with each of its integers one lower and one higher. For a discrete
    one: all changes of one coordinate of the best point, or none if there are more than ``most``.
    """
    domain = searcher.domain
    if domain.kind == "real":
        least, n = max(10 * searcher.sigma, sigma0 * 10.0**-_DECADES), len(searcher.ask())
        distances = [sigma0 * 10.0**-k for k in range(_DECADES) if k == 0 or sigma0 * 10.0**-k >= least]
        points = [searcher.around(distance)[[2 * k % n, (2 * k + 1) % n]] for k, distance in enumerate(distances)]
        return np.concatenate([searcher.neighbours(best_at), *points])[:most]
    changed = [
        np.where(np.arange(domain.dim) == i, (best_at + step) % domain.choices, best_at)
        for i in range(domain.dim)
        for step in range(1, domain.choices)
    ]
    return np.array(changed if len(changed) <= most else changed[:0]).reshape(-1, domain.dim)
