"""Checks of a search that has stopped moving: whether it has, and whether it ended at a minimum."""

import math
from collections import deque
from typing import Literal

import numpy as np

from lowvar.api.search_watch import DIGITS, deviation, interquartile
from lowvar.api.searcher import Searcher
from lowvar.problems.blackbox.evaluator import Evaluator

_FLAT = 20  # consecutive generations whose values are all equal
_ROWS = 800  # maximum number of recent points whose longest axis is computed
_COARSE = 1e-9  # relative to the mean, the spread of points below which rounding may turn their axes
_DECADES = 14  # maximum number of distances in `Look.around`
_SCALES = (1e-8, 1e-5, 1e-2)  # of the steps of a slope, relative to the first standard deviation
_VISIBLE = 1e-10  # relative to a value, the change above which rounding leaves six digits of a slope
_KINKED = 1.25  # power of the distance; at a kink, f rises more slowly
_ROUNDS = 10  # slopes at all scales followed before a search continues
_HIGHER = 2  # searches from a point that have to end higher before it counts as stalled
_EDGES, _HALVINGS, _FINE = 3, 12, 1e-5  # of `Look.on_a_step`
_NARROWER = 4  # times that the bracket of a minimum along a slope is cut to a fifth or less

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
        self._recent: deque[np.ndarray] = deque(maxlen=math.ceil(min(4 * dim, _ROWS) / len(first)))
        self._flat = 0
        self._best, self._count, self._since = math.inf, 0, 0
        self.medians: list[float] = []
        self.spreads: list[float] = []
        self.width = 0.0  # of the last generation's values, without outliers

    def points(self, points: np.ndarray) -> bool:
        """Whether the points ``(n, dim)`` of a generation no longer differ."""
        size, spread = np.abs(points).max(axis=0), np.ptp(points, axis=0)
        if spread.max() > _COARSE * size.max():
            self._recent.append(points)
        return bool((spread <= np.maximum(1e-14 * size, 1e-20 * self._size)).all())

    def long_axes(self) -> np.ndarray:
        """The direction in which recent points differ most, and that in which their mean moved, ``(k, dim)``."""
        if not self._recent:
            return np.zeros((0, len(self._size)))
        steps = [points - points.mean(axis=0) for points in self._recent]
        rows = np.concatenate([step / np.abs(step).max() for step in steps])
        path = self._recent[-1].mean(axis=0) - self._recent[0].mean(axis=0)
        axes = np.stack([np.linalg.svd(rows, full_matrices=False)[2][0], path / (np.linalg.norm(path) or 1.0)])
        return axes[axes.any(axis=1)]

    def values(self, values: np.ndarray) -> bool:
        """Whether the search has stopped moving, given a generation's finite values."""
        if not len(values):
            return False
        low, high = float(values.min()), float(values.max())
        self.medians.append(float(np.median(values)))
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
        equal = seen[:, 1].max() - lows.min() <= DIGITS * np.abs(seen).max()
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


class Look:
    """Points around the best one of a real search, to tell a minimum from other places where a search stops.

    The best point follows every improvement.

    Args:
        searcher: the search.
        evaluator: of the function, with the best point.
        sigma0: its first standard deviation.
        least: difference from the best value below which a value is no better.

    Attributes:
        count: points evaluated.
        seen: whether any of them has a value.
        changed: whether any value differs from the best one by more than ``least``.
        rounded: whether any differs by less.
        flat: the axes along which ``f`` does not change at all, ``(k, dim)``: by small steps along any axis, or by
            larger ones along some.
    """

    def __init__(self, searcher: Searcher, evaluator: Evaluator, sigma0: float, least: float):
        assert evaluator.best_at is not None
        self._searcher, self._evaluator, self._sigma0, self._least = searcher, evaluator, sigma0, least
        self._first, self._start = evaluator.best, evaluator.best_at.copy()
        self.count, self.seen, self.changed, self.rounded = 0, False, False, False
        self.flat = np.zeros((0, searcher.domain.dim))
        self._even: list[np.ndarray] = []  # by distance, the part of each axis' differences that both sides share
        free = np.ones(searcher.domain.dim, bool) if searcher.integers is None else ~searcher.integers
        self._axes = np.eye(len(free))[free]

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
        self.count += len(points)
        finite = np.isfinite(values)
        self.seen |= bool(finite.any())
        off = np.abs(values[finite] - self._first)
        self.changed |= bool((off > self._least).any())
        self.rounded |= bool((off > 0).any())
        return np.where(finite, values, np.inf)

    def around(self, axes: np.ndarray) -> None:
        """A point at each of the distances ``sigma0``, ``sigma0 / 10`` and so on, down to ten times the search's
        present standard deviation, in turn on both sides along ``axes (k, dim)`` and in directions of the search's own
        points; and neighbours in single integers.
        """
        x, searcher, sigma0 = self._at, self._searcher, self._sigma0
        ways = np.concatenate([axes * math.sqrt(len(x)), -axes * math.sqrt(len(x)), searcher.directions()[:2]])
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
            before, self.flat, self._even = self._evaluator.best, self.flat[:0], []
            for scale in _SCALES:
                self._follow(scale * self._sigma0)
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

    def verdict(self, ends: str) -> tuple[Verdict, str, list[str]]:
        """Status, message (with a place for the rule that ended the search) and advice.

        Args:
            ends: how further searches from a plateau or a kink ended, ``higher`` or ``same``; or ``""`` without them.
        """
        count = f"{self.count} points around it"
        mixed = self._searcher.integers is not None
        near = ", its neighbours in single integers among them" if mixed else ""
        restart = "restart at x with a larger sigma0 or a larger population"
        if self.better:
            return "stalled", f"{{}}, but one of {count} is better: x is not a minimum", [restart]
        if not self.seen:
            return "stalled", f"{{}}; f gave no value at {count}: a minimum cannot be told from a plateau", []
        if not self.changed:
            advice = ["start elsewhere or with a larger sigma0: f does not change here"]
            words = f"{{}}, and {count} have the same value to 11 digits: f is constant or has a plateau here"
            if self.rounded:
                advice.append("subtract a large constant from f, if one hides its differences")
                words += ", or a large constant hides its differences"
            return "stalled", words, advice
        kinked = self.kinked
        place, has = ("at a kink", "kinks") if kinked else ("on a plateau", "steps")
        if ends == "higher":
            words = f"{{}}, {place} of f: {count} are no better{near}, but searches from there ended higher"
            return "stalled", f"{words}, so there may be a lower point", [f"{restart}: f has {has}"]
        if ends:
            near += f"; x lies {place} of f, to whose value a search from there came back"
        elif kinked:
            near += "; f has a kink at x, where a narrow way down may be missed"
        return (
            "converged",
            f"converged to a minimum, which may be a local one: {{}}, and {count} are no better{near}",
            [],
        )

    def on_a_step(self) -> bool:
        """Whether the edge of a plateau around the best point is a large step.

        That is more than 1e-5 of the difference between values in the distance ``sigma0``, beyond the edge, and the
        best one. Smaller steps are the last digits of ``f``.
        """
        x, value = self._at, self._evaluator.best
        for axis in self.flat[:_EDGES]:
            near, far = _SCALES[0], 1.0
            height = fall = abs(float(self.values(self._searcher.beside(x, self._sigma0 * axis[None, :]))[0]) - value)
            for _ in range(_HALVINGS if fall > self._least else 0):
                middle = math.sqrt(near * far)
                step = abs(
                    float(self.values(self._searcher.beside(x, middle * self._sigma0 * axis[None, :]))[0]) - value
                )
                near, far, height = (near, middle, step) if step > 0 else (middle, far, height)
            if height > _FINE * fall > 0 and height > self._least:
                return True
        return False

    def _follow(self, scale: float) -> None:
        """Evaluates ``f`` along its slope at the best point, from opposite points at the distance ``scale``."""
        x, value, axes = self._at.copy(), self._evaluator.best, self._axes
        up, down = np.split(self.values(self._searcher.beside(x, scale * np.concatenate([axes, -axes]))), 2)
        least = max(self._least, _VISIBLE * abs(value))
        with np.errstate(invalid="ignore"):
            visible = np.maximum(np.abs(up - value), np.abs(down - value)) > least
            slope = np.where(visible & np.isfinite(up - down), up - down, 0.0) @ axes
        even = np.abs((up - value) + (down - value))
        self._even.append(np.where(even > least, even, 0.0))
        same = (up == value) & (down == value)
        if same.all() or (scale == self._sigma0 * _SCALES[-1] and not len(self.flat)):
            self.flat = axes[same]
        size = float(np.abs(slope).max(initial=0.0))
        if not size:
            return
        way = -slope / size / np.linalg.norm(slope / size)
        steps = np.geomspace(scale, 10 * self._sigma0, 2 + round(math.log10(10 * self._sigma0 / scale)))
        along = self.values(self._searcher.beside(x, steps[:, None] * way))
        k = int(np.argmin(along))
        if along[k] < value - self._least:
            low, high = steps[k - 1] if k else 0.0, steps[min(k + 1, len(steps) - 1)]
            for _ in range(_NARROWER):
                between = np.linspace(low, high, 10)
                along = self.values(self._searcher.beside(x, between[1:-1, None] * way))
                k = 1 + int(np.argmin(along))
                low, high = between[k - 1], between[k + 1]


class Return:
    """Counts the searches that start again from a plateau or a kink and come to rest."""

    def __init__(self):
        self._value, self._same, self._higher = math.inf, 0, 0

    def ends(self, best: float, own: float, close: float, enough: int) -> Literal["", "same", "higher"]:
        """``same`` if enough searches came back to the value, ``higher`` if two ended higher, else ``""``.

        Args:
            best: the best value of all searches.
            own: that of the last one.
            close: a smaller difference is none.
            enough: number of searches that have to come back.
        """
        if best < self._value - close:
            self._value, self._same, self._higher = best, 0, 0
        elif own <= best + close:
            self._same += 1
        else:
            self._higher += 1
        return "same" if self._same >= enough else "higher" if self._higher >= _HIGHER else ""


def unchanged(searcher: Searcher, evaluator: Evaluator) -> tuple[Verdict, str, list[str]]:
    """Status, message and advice on the best point of a discrete search, from all changes of one coordinate."""
    if not evaluator.unseen:
        return "converged", "converged to the minimum: {}", []
    domain, best_at, best = searcher.domain, evaluator.best_at, evaluator.best
    count = domain.dim * (domain.choices - 1)
    assert best_at is not None
    if count > evaluator.remaining:
        words = (
            "{}; the budget does not pay for all changes of one coordinate, which would show whether it is a minimum"
        )
        return "stalled", words, []
    changed = [
        np.where(np.arange(domain.dim) == i, (best_at + step) % domain.choices, best_at)
        for i in range(domain.dim)
        for step in range(1, domain.choices)
    ]
    values = evaluator(np.array(changed))
    values = values[np.isfinite(values)]
    least = DIGITS * abs(best)
    if not len(values):
        return "stalled", "{}; f gave no value at any change of one coordinate", []
    if (values < best - least).any():
        words = "{}, but a change of one coordinate is better: x is not a minimum"
        return "stalled", words, ["restart at x with a larger population"]
    if (np.abs(values - best) <= least).all():
        words = f"{{}}, and all {count} changes of one coordinate have the same value to 11 digits: a plateau"
        return "stalled", words, ["start elsewhere: f does not change here"]
    words = "converged to a minimum, which may be a local one: {}, and no change of one coordinate improves it"
    return "converged", words, []
