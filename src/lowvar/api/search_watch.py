"""What ``minimize`` watches in a search: whether ``f`` is noisy, whether the search has come to rest, and where."""

import math
from collections import deque

import numpy as np

from lowvar.api.searcher import Searcher
from lowvar.problems.blackbox.evaluator import Evaluator

_DIGITS = 1e-11  # relative: values that differ by less are taken for equal
_FLAT = 20  # generations in a row without any difference between their values
_SEEN, _MATTERS = 1e-9, 0.3  # of the spread of the first and of the present generation: noise beyond
_DECADES = 14  # of distances at which a look around is taken, at most


class Noise:
    """Whether another evaluation of a point gives another value.

    Points are evaluated again after generations 1 (two points), 2, 4, 8 and so on (one point). The values are noisy
    where they differ by more than 1e-9 of the standard deviation of the first generation's values, or by 0.3 of that of
    the present ones; less is taken for rounding.

    Attributes:
        known: whether it is: True, False, or None while nothing was seen.
        asked: whether to look at all.
    """

    def __init__(self, noisy: bool | None):
        self.known, self.asked = noisy, noisy is not False
        self._squares: list[float] = []
        self._first = 0.0  # standard deviation of the first generation's values

    @property
    def sd(self) -> float:
        """Standard deviation of evaluations of one point, 0 where they are not noisy or nobody looked."""
        return math.sqrt(sum(self._squares) / len(self._squares)) if self.known and self._squares else 0.0

    def look(self, evaluator: Evaluator, iteration: int, points: np.ndarray, values: np.ndarray) -> bool:
        """Evaluates some points again, if that is due; whether noise was found that was not known."""
        if not self.asked or iteration & (iteration - 1):
            return False
        finite = np.flatnonzero(np.isfinite(values))
        count = min(2 if iteration == 1 else 1, len(finite))
        if not count or evaluator.remaining < count + len(points):
            return False
        spread = float(np.std(values[finite]))
        self._first = spread if iteration == 1 else self._first
        chosen = finite[np.argsort(values[finite])[[0, -1][:count]]]  # the best and the worst
        again = evaluator(points[chosen])
        with np.errstate(invalid="ignore"):
            differences = np.abs(again - values[chosen])
        differences = differences[np.isfinite(differences)]
        self._squares += list(differences**2 / 2)
        if self.known is None and (differences > min(_SEEN * self._first, _MATTERS * spread)).any():
            self.known = True
            return True
        return False

    def lucky(self, evaluator: Evaluator, point: np.ndarray, value: float) -> bool:
        """Whether another evaluation of the best point gives another value, where nothing was seen before."""
        if self.known is not None or not self.asked or evaluator.remaining < 1:
            return False
        again = float(evaluator(point[None, :])[0])
        if abs(again - value) <= _SEEN * max(self._first, abs(value)):
            return False
        self._squares.append((again - value) ** 2 / 2 if math.isfinite(again) else 0.0)
        self.known = True
        return True

    def measured(self, values: np.ndarray) -> None:
        """Takes evaluations ``(n,)`` of one point for its standard deviation."""
        self._squares = [float(np.var(values, ddof=1))]


class Rest:
    """Whether a search has come to rest: its points or its values no longer differ, and get no better.

    Over ``10 + 30 d / N`` generations all values agree to a relative 1e-11 and the later half of them has none better
    than the earlier half; or the values of 20 generations are one number each; or the points of a generation agree, in
    every coordinate, to 1e-14 of their size or 1e-20 of the first generation's spread.
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
        """Whether the search rests, after a generation's finite values."""
        if not len(values):
            return False
        low, high = float(values.min()), float(values.max())
        self.medians.append(float(np.median(values)))
        self.spreads.append(float(np.std(values * 1e-100) * 1e100 if abs(high) > 1e150 else np.std(values)))
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
        """Of a discrete search: whether half of its generations, 50 or more, have not improved ``best``; then again
        after as many."""
        self._count += 1
        if best < self._best:
            self._best, self._since = best, self._count
        found = self._count - self._since >= max(50, self._count // 2)
        self._since = self._count if found else self._since
        return found

    def stuck(self) -> bool:
        """Whether the last quarter of the generations made hardly any progress.

        Their values fell by less than a tenth of what they had fallen since the first twentieth, and differ within a
        generation by no less than half of what they did at its start; in a search that converges they differ ever less.
        """
        n = len(self.medians)
        if n < 80:
            return False
        few = max(5, n // 40)
        at = (n // 20, 3 * n // 4, n - few)
        early, late, end = (float(np.median(self.medians[t : t + few])) for t in at)
        before, now = (float(np.median(self.spreads[t : t + few])) for t in at[1:])
        return late - end < 0.1 * max(early - late, 0.0) and now > 0.5 * before


def around(searcher: Searcher, sigma0: float, best_at: np.ndarray, most: int) -> np.ndarray:
    """Points ``(n, dim)`` by which to tell a minimum from another place where a search rests; at most ``most``.

    Of a real search: two points at each of the distances ``sigma0``, ``sigma0 / 10`` and so on, down to ten times its
    present standard deviation. Of a discrete one: the best point with one coordinate changed, in all ways, or none if
    that are more than ``most``.
    """
    domain = searcher.domain
    if domain.kind == "real":
        least, n = max(10 * searcher.sigma, sigma0 * 10.0**-_DECADES), len(searcher.ask())
        distances = [sigma0 * 10.0**-k for k in range(_DECADES) if k == 0 or sigma0 * 10.0**-k >= least]
        found = [searcher.around(distance)[[2 * k % n, (2 * k + 1) % n]] for k, distance in enumerate(distances)]
        return np.concatenate(found)[:most]
    changed = [
        np.where(np.arange(domain.dim) == i, (best_at + step) % domain.choices, best_at)
        for i in range(domain.dim)
        for step in range(1, domain.choices)
    ]
    return np.array(changed if len(changed) <= most else changed[:0]).reshape(-1, domain.dim)
