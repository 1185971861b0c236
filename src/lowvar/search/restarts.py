"""Where and with how many points searches start again, IPOP and BIPOP, and where they ended."""

import math
from typing import Any, Literal

import numpy as np

from lowvar.errors import UserError, check_known
from lowvar.search.searcher import Searcher

Kind = Literal["auto", "ipop", "bipop"]
_FAR = 100  # bounds farther apart than this many sigma0 stand for none: a start is drawn around x0
_SMALL = 1e-2  # a small search of BIPOP has between this fraction of sigma0 and all of it
_DIGITS = 1e3  # of the rounding of a start, the least standard deviation
_NEAR = 1e-3  # of sigma0, the distance of two points up to which a value that is lower by rounding alone is no new one


class Restarts:
    """The starts of searches after the first one, and the best of the points where searches ended.

    ``ipop`` doubles the population from search to search. ``bipop`` does so too, but lets searches with small
    populations and standard deviations take turns with them, so that both have about the same number of evaluations.

    Args:
        kind: ``ipop``, ``bipop``, ``auto``, or None for no restarts.
        first: the first search.
        start: its ``x0``: a mean, or probabilities, from which searches of discrete points start again.
        sigma0: its standard deviation.
        seed: seed of the starts.

    Attributes:
        asked: whether restarts were asked for.
        count: searches after the first one.
        population: of the last of them; None for that of the first search.
        verdict: status and message of the search that ended at the best point; None before one has ended.
        value: the best value; infinite before a search has ended.
        close: the difference from it below which another search came back to it.

    Raises:
        UserError: an unknown kind, or BIPOP of discrete points.

    References:
        Auger and Hansen, "A restart CMA evolution strategy with increasing population size", CEC 2005; Hansen,
        "Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed", GECCO 2009.
    """

    def __init__(self, kind: Kind | None, first: Searcher, start: np.ndarray, sigma0: float | None, seed: int):
        if kind is False or (isinstance(kind, str) and kind.lower() in ("none", "no", "off", "false", "")):
            raise UserError(f"restarts {kind!r}: give restarts=None for one search")
        if kind is not None:
            check_known("restarts", kind, ("auto", "ipop", "bipop"))
        self.kind, self.asked = kind, kind not in (None, "auto")
        self.count, self.population = 0, None
        self.verdict: Any = None
        self.value, self.close = math.inf, 0.0
        self._at: np.ndarray | None = None
        self._ends: list[float] = []  # the values at which searches ended
        self._begun = 0  # evaluations before the last search
        self._real = first.domain.kind == "real"
        if kind == "bipop" and not self._real:
            raise UserError(
                f"restarts 'bipop': a {first.domain.kind} search has no standard deviation to vary; use 'ipop'"
            )
        self._first, self._start = first.population, start
        self._sigma0: Any = sigma0 if sigma0 is None else float(sigma0)  # None for discrete points
        self._low, self._high = first.limits
        self._rng = np.random.default_rng([seed, 1])
        self._doubled = 0
        self._large: bool | None = None  # the last search; None for the first one
        self._spent = {True: 0, False: 0}  # evaluations of large and of small searches

    def new(self, value: float, at: np.ndarray) -> bool:
        """Whether a point ``(dim,)`` with its value is better than the best one of the searches that have ended."""
        near = self._at is not None and self._real and np.abs(at - self._at).max() <= _NEAR * self._sigma0
        return value < self.value - (self.close if near else 0.0)

    def ended(self, value: float, at: np.ndarray | None = None, close: float = 0.0, verdict: Any = None) -> None:
        """Records the value at which a search ended; with its point and the rest, where that is the best one."""
        self._ends.append(value)
        if at is not None:
            self.value, self._at, self.close, self.verdict = value, at.copy(), close, verdict

    def back(self, best: float) -> int:
        """The number of searches that ended at the best value."""
        return sum(value <= best + self.close for value in self._ends)

    def words(self, best: float) -> str:
        """For a message: where the searches ended."""
        if not self.count:
            return ""
        same = self.back(best)
        ends = {"at this value": same, "higher": len(self._ends) - same}
        told = " and ".join(f"{number} ended {where}" for where, number in ends.items() if number)
        return f"; it is the best of {self.count + 1} searches from different starts" + (told and f": {told}")

    def next(self, evaluations: int) -> tuple[np.ndarray, float | None]:
        """Start and standard deviation of the next search, None for discrete points; its population is ``population``.

        Args:
            evaluations: of all searches so far.
        """
        if self._large is not None:
            self._spent[self._large] += evaluations - self._begun
        self._begun, self.count = evaluations, self.count + 1
        self._large = self.kind != "bipop" or self._spent[False] >= self._spent[True]
        start = self._elsewhere()
        if self._large:
            self._doubled += 1
            self.population = self._first * 2**self._doubled
            return start, self._sigma0
        wide, many = self._rng.uniform(size=2)
        population = int(self._first * (2**self._doubled / 2) ** (many**2))
        self.population = max(self._first, population // 2 * 2)  # some searches need an even one
        least = _DIGITS * float(np.spacing(np.abs(start).max()))
        return start, min(self._sigma0, max(least, self._sigma0 * _SMALL**wide))

    def _elsewhere(self) -> np.ndarray:
        """A start: uniform between bounds, and around ``x0`` where there are none."""
        if not self._real:
            return self._start
        low, high = self._low, self._high
        with np.errstate(over="ignore"):
            boxed = high - low <= _FAR * self._sigma0
        around = self._start + self._sigma0 * self._rng.standard_normal(len(self._start))
        share = self._rng.uniform(size=len(self._start))
        return np.where(boxed, np.where(boxed, low, 0.0) + share * np.where(boxed, high - low, 0.0),
                        np.clip(around, low, high))  # fmt: skip
