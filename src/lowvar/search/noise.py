"""Whether ``f`` is noisy, and how much of a search's values is noise."""

import math

import numpy as np
import scipy.stats

from lowvar.search.evaluator import Evaluator

DIGITS = 1e-11  # relative difference below which values count as equal
_ULPS, _VISIBLE = 64 * np.finfo(float).eps, 1e-2  # but not repeated values above both of these: see `Noise`
_SEEN, _MATTERS = 1e-9, 0.3  # noise is detected above these fractions of the first and current spread
# Noise overwhelms a search if its share of the variance of a generation's values is above 0.8 on average over 8 checks.
# With 8 points of normal values and a constant share of 0.5, this happens in 14 % of runs of 300 generations; where all
# is noise, in 50 % within 10 generations and in 90 % within 100 (1000 simulated runs).
_MOSTLY, _CHECKS = 0.8, 8
_VOTES = 5  # evaluations of the best point of a noisy f, most of which must agree
_FEW = 8  # deviations, to tell heavy tails
_BY_CHANCE = 1e-4  # of an order in time, by Kendall's test: values that are as ordered drift


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
        return min(DIGITS * size, max(_ULPS * size, _VISIBLE * self._first))

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
        if not math.isfinite(again):
            return False
        self._repeated.append(abs(again - value) / math.sqrt(2))
        if abs(again - value) <= self._same(value):
            return False
        self.known = True
        return True

    def hides(self, evaluator: Evaluator, point: np.ndarray, value: float) -> bool:
        """Whether the best point usually has another value when it is evaluated again."""
        if not self.known and not self.lucky(evaluator, point, value):
            return False
        again = evaluator(np.repeat(point[None, :], _VOTES, axis=0))
        return bool(2 * (np.abs(again - value) <= self._same(value)).sum() <= _VOTES)

    def _same(self, value: float) -> float:
        """The difference from the best value below which another value of its point agrees."""
        return _SEEN * max(self._first, abs(value))

    def measured(self, values: np.ndarray) -> None:
        """Uses evaluations ``(n,)`` of one point to estimate the noise, unless they differ by rounding alone."""
        if np.ptp(values) > self._rounding(values):
            self._repeated = [deviation(values, 1)]
        elif not self._repeated:
            self._repeated = [0.0]


def average(values: np.ndarray) -> float:
    """The mean of ``(n,)`` values, whose sum may overflow."""
    size = _size(values)
    return size * float(np.mean(values / size))


def median(values: np.ndarray) -> float:
    """The median of finite ``(n,)`` values, the middle two of which may have a sum that overflows."""
    size, n = _size(values), len(values)
    return size * float(np.mean(np.sort(values / size)[(n - 1) // 2 : n // 2 + 1]))


def deviation(values: np.ndarray, ddof: int = 0) -> float:
    """The standard deviation of ``(n,)`` values, whose squares may overflow or vanish; ``ddof`` as in NumPy."""
    size = _size(values)
    return size * float(np.std(values / size, ddof=ddof))


def interquartile(values: np.ndarray) -> float:
    """Distance between the quartiles of finite ``(n,)`` values: a few outliers leave it alone."""
    size, last = _size(values), len(values) - 1
    low, high = np.interp((0.25 * last, 0.75 * last), np.arange(last + 1), np.sort(values / size))
    return size * float(high - low)


def error_of_mean(values: np.ndarray, batched: bool) -> tuple[float, float]:
    """Standard error of the average of ``(calls, positions)`` values of one point, and its degrees of freedom.

    From the averages of the calls. If ``batched``, the noise has a part that the values of a call share and a part that
    those of a position share: a two-way layout with random effects, and the degrees of freedom are Satterthwaite's.
    Values that are not finite are missing. NaN where they are unknown.
    """
    seen = np.isfinite(values)
    centre = average(values[seen])
    rows, columns = (
        np.array([average(one[finite]) for one, finite in zip(of, at, strict=True) if finite.any()])
        for of, at in ((values, seen), (values.T, seen.T))
    )
    if len(rows) < 2 or (batched and len(columns) < 2):
        return math.nan, math.nan
    by_call, last = deviation(rows, 1) / math.sqrt(len(rows)), len(rows) - 1
    if not batched:
        return by_call, last
    by_position = deviation(columns, 1) / math.sqrt(len(columns))
    largest = max(by_call, by_position)
    if not largest:
        return 0.0, last
    parts, shared = (np.array([by_call, by_position]) / largest) ** 2, 0.0
    if seen.all():
        left = (values - centre) - (rows - centre)[:, None] - (columns - centre)
        shared = (deviation(left) / math.sqrt(last * (len(columns) - 1)) / largest) ** 2
    square = max(1.0, float(parts.sum()) - shared)
    return largest * math.sqrt(square), square**2 / float((parts**2 / [last, len(columns) - 1]).sum())


def drift(calls: np.ndarray) -> float:
    """By how much the values ``(calls,)`` of one point rise from call to call; 0 where their order may be chance.

    The median of the slopes of all pairs (Theil and Sen), which a few outliers leave alone.
    """
    calls = calls[np.isfinite(calls)]
    if len(calls) < 3 or not scipy.stats.kendalltau(np.arange(len(calls)), calls).pvalue < _BY_CHANCE:
        return 0.0
    return float(scipy.stats.theilslopes(calls).slope)


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
