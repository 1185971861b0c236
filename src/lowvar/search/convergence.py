"""Checks of a search that has stopped moving: whether it has, and whether it ended at a minimum."""

import math
from collections import deque
from typing import Literal

import numpy as np

from lowvar.search.evaluator import Evaluator
from lowvar.search.noise import DIGITS, deviation, interquartile, median
from lowvar.search.searcher import Searcher

_FLAT = 20  # consecutive generations whose values are all equal
_DECADES = 14  # maximum number of distances in `Look.around`
_SCALES = (1e-8, 1e-5, 1e-2)  # of the steps of a slope, relative to the first standard deviation
_VISIBLE = 1e-10  # relative to a value, the change above which rounding leaves six digits of a slope
_KINKED = 1.25  # power of the distance; at a kink, f rises more slowly
_ROUNDS = 10  # slopes at all scales followed before a search continues
_FINE = 1e-5  # relative to the largest difference, the steps that are the last digits of f
_CUTS = 5  # searches along a slope, the later ones between the neighbours of the best point

Verdict = Literal["converged", "stalled"]


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
        self.width = 0.0  # of the last generation's values, without outliers

    def points(self, points: np.ndarray) -> bool:
        """Whether the points ``(n, dim)`` of a generation no longer differ."""
        size, spread = np.abs(points).max(axis=0), np.ptp(points, axis=0)
        return bool((spread <= np.maximum(1e-14 * size, 1e-20 * self._size)).all())

    def values(self, values: np.ndarray, coarse: float = 0.0) -> bool:
        """Whether the search has stopped moving, given a generation's finite values.

        Args:
            values: ``(n,)``.
            coarse: the range within which all values of the first condition may lie, whether or not they improve.
        """
        if not len(values):
            return False
        low, high = float(values.min()), float(values.max())
        self.medians.append(median(values))
        self.spreads.append(deviation(values))
        self.width = interquartile(values)
        self._flat = self._flat + 1 if len(values) > 1 and low == high else 0
        self._window.append((low, high))
        if self._flat >= _FLAT:
            return True
        if len(self._window) < (self._window.maxlen or 0):
            return False
        seen = np.array(self._window)
        lows, half = seen[:, 0], len(seen) // 2
        width = seen[:, 1].max() - lows.min()
        equal = width <= DIGITS * np.abs(seen).max() and lows[half:].min() >= lows[:half].min()
        return bool(equal or width <= coarse)

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


class Look:
    """Points around the best one of a search, to tell a minimum from other places where a search stops.

    The best point follows every improvement.

    Args:
        searcher: the search.
        evaluator: of the function, with the best point.
        sigma0: its first standard deviation.
        least: difference from the best value below which a value is no better.
    """

    def __init__(self, searcher: Searcher, evaluator: Evaluator, sigma0: float, least: float):
        assert evaluator.best_at is not None
        self._searcher, self._evaluator, self._sigma0, self._least = searcher, evaluator, sigma0, least
        self._first, self._start = evaluator.best, evaluator.best_at.copy()
        self._off: list[np.ndarray] = []  # differences from the best value
        self._even: list[np.ndarray] = []  # by distance, the part of each axis' differences that both sides share
        self._flat = False  # whether f does not change at all by small steps along any axis, or larger ones along some
        free = np.ones(searcher.domain.dim, bool) if searcher.integers is None else ~searcher.integers
        self._axes = np.eye(len(free))[free]

    @property
    def count(self) -> int:
        """Points evaluated."""
        return sum(map(len, self._off))

    @property
    def _at(self) -> np.ndarray:
        """The best point, ``(dim,)``."""
        assert self._evaluator.best_at is not None
        return self._evaluator.best_at

    @property
    def better(self) -> bool:
        """Whether a point is better than the best one of the search."""
        return self._evaluator.best < self._first - self._least

    @property
    def way(self) -> float:
        """Distance of the best point from that of the search."""
        return float(np.linalg.norm(self._at - self._start))

    def values(self, points: np.ndarray) -> np.ndarray:
        """Values ``(n,)``; infinite where there is none."""
        values = self._evaluator(points)
        self._off.append(np.abs(values - self._first))
        return np.where(np.isfinite(values), values, np.inf)

    def changes(self) -> None:
        """All changes of one coordinate of a discrete point."""
        domain, x = self._searcher.domain, self._at
        steps = np.kron(np.eye(domain.dim, dtype=int), np.arange(1, domain.choices)[:, None])
        self.values((x + steps) % domain.choices)

    def around(self) -> None:
        """Neighbours in single integers, and points on the line of a point of the search at distances from ``sigma0``
        down to ten times the search's present standard deviation, in turn on both sides and along another line.
        """
        x, searcher, sigma0 = self._at, self._searcher, self._sigma0
        with np.errstate(divide="ignore", invalid="ignore"):
            ways = searcher.directions()[:2]
        ways = np.where(np.isfinite(ways), ways, 1.0)  # the squares of tiny steps are 0
        ways = np.concatenate([ways, -ways])
        distances = sigma0 * 10.0 ** -np.arange(_DECADES)
        distances = distances[(distances >= 10 * searcher.sigma) | (distances == sigma0)]
        steps = distances[:, None] * ways[np.arange(len(distances)) % len(ways)]
        self.values(np.concatenate([searcher.neighbours(x), searcher.beside(x, steps)]))

    def downhill(self) -> None:
        """Follows the slope from the best point, as differences of small, larger and large steps show it.

        On the ridge of a function that is not smooth, hardly any direction leads down. But its kinks are about the same
        on both sides, so that differences between opposite points have the slope along the ridge alone.
        """
        for _ in range(_ROUNDS):
            before, self._flat, self._even = self._evaluator.best, False, []
            for scale in _SCALES:
                self._follow(scale)
            if before - self._evaluator.best <= max(self._least, 1e-2 * (self._first - self._evaluator.best)):
                break

    @property
    def kinked(self) -> bool:
        """Whether ``f`` rises from the best point along an axis like the distance, and not like its square.

        Between the two smallest distances at which its change is visible.
        """
        near, middle, far = np.array(self._even[:3])
        near, far = np.where(near > 0, (near, middle), (middle, far))
        return bool(((far > 0) & (far < near * (_SCALES[1] / _SCALES[0]) ** _KINKED)).any())

    @property
    def stepped(self) -> bool:
        """Whether ``f`` has a plateau at the best point, and steps that are not its last digits."""
        off = np.concatenate(self._off)
        off = off[off > 0]
        return self._flat and len(off) > 0 and bool(off.min() > max(_FINE * off.max(), self._least))

    def verdict(self, place: str, ends: str) -> tuple[Verdict, str, list[str]]:
        """Status, message (with a place for the rule that ended the search) and advice.

        Args:
            place: ``kink`` or ``plateau``, if further searches started there.
            ends: how they ended, ``higher`` or ``same``.
        """
        off = np.concatenate(self._off)
        off = off[np.isfinite(off)]
        is_real = self._searcher.domain.kind == "real"
        wider = "a larger sigma0 or a larger population" if is_real else "a larger population"
        points = f"{self.count} points around it" if is_real else f"all {self.count} changes of one coordinate"
        if self.better:
            return "stalled", f"{{}}, but one of {points} is better: x is not a minimum", [f"restart at x with {wider}"]
        if not len(off):
            return "stalled", f"{{}}; f gave no value at {points}: a minimum cannot be told from a plateau", []
        if (off <= self._least).all():
            advice = [f"start elsewhere or with {wider}: f does not change here"]
            words = f"{{}}, and {points} have the same value to 11 digits: f is constant or has a plateau here"
            if off.any():
                advice.append("subtract a large constant from f, if one hides its differences")
                words += ", or a large constant hides its differences"
            return "stalled", words, advice
        near = ", its neighbours in single integers among them" if self._searcher.integers is not None else ""
        if ends == "higher":
            words = f"{{}}, at a {place} of f: {points} are no better, but searches from there ended higher"
            return "stalled", f"{words}, so there may be a lower point", [f"restart at x with {wider}: f has {place}s"]
        if ends:
            near = f"; x lies at a {place} of f, to whose value a search from there came back"
        elif is_real and self.kinked:
            near += "; f has a kink at x, where a narrow way down may be missed"
        words = f"converged to a minimum, which may be a local one: {{}}, and {points} are no better{near}"
        return "converged", words, []

    def _follow(self, scale: float) -> None:
        """Evaluates ``f`` along its slope at the best point, from opposite points at ``scale`` times ``sigma0``."""
        x, value, axes, size = self._at.copy(), self._evaluator.best, self._axes, scale * self._sigma0
        up, down = np.split(self.values(self._searcher.beside(x, size * np.concatenate([axes, -axes]))), 2)
        least = max(self._least, _VISIBLE * abs(value))
        with np.errstate(invalid="ignore"):
            visible = np.maximum(np.abs(up - value), np.abs(down - value)) > least
            slope = np.where(visible & np.isfinite(up - down), up - down, 0.0) @ axes
        even = np.abs((up - value) + (down - value))
        self._even.append(np.where(even > least, even, 0.0))
        same = (up == value) & (down == value)
        self._flat |= bool(same.all() or (scale == _SCALES[-1] and same.any()))
        if not slope.any():
            return
        slope /= np.abs(slope).max()
        way = -slope / np.linalg.norm(slope)
        steps = np.append(0.0, np.geomspace(size, 10 * self._sigma0, 3 - round(math.log10(scale))))
        for _ in range(_CUTS):
            along = self.values(self._searcher.beside(x, steps[1:, None] * way))
            k = 1 + int(np.argmin(along))
            if along[k - 1] >= value - self._least:
                return
            steps = np.linspace(steps[k - 1], steps[min(k + 1, len(steps) - 1)], 10)
