"""Where and with how many points searches start again: IPOP and BIPOP."""

from typing import Literal

import numpy as np

from lowvar.errors import UserError, check_known
from lowvar.search.searcher import Searcher

Kind = Literal["auto", "ipop", "bipop"]
_FAR = 100  # bounds farther apart than this many sigma0 stand for none: a start is drawn around x0
_SMALL = 1e-2  # a small search of BIPOP has between this fraction of sigma0 and all of it
_DIGITS = 1e3  # of the rounding of a start, the least standard deviation


class Restarts:
    """The starts of searches after the first one.

    ``ipop`` doubles the population from search to search. ``bipop`` does so too, but lets searches with small
    populations and standard deviations take turns with them, so that both have about the same number of evaluations.

    Args:
        kind: ``ipop``, ``bipop`` or ``auto``.
        first: the first search.
        start: its ``x0``: a mean, or probabilities, from which searches of discrete points start again.
        sigma0: its standard deviation.
        seed: seed of the starts.

    Raises:
        UserError: an unknown kind, or BIPOP of discrete points.

    References:
        Auger and Hansen, "A restart CMA evolution strategy with increasing population size", CEC 2005; Hansen,
        "Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed", GECCO 2009.
    """

    def __init__(self, kind: Kind, first: Searcher, start: np.ndarray, sigma0: float | None, seed: int):
        check_known("restarts", kind, ("auto", "ipop", "bipop"))
        self.kind, self.asked = kind, kind != "auto"
        self._real = first.domain.kind == "real"
        if kind == "bipop" and not self._real:
            raise UserError(
                f"restarts 'bipop': a {first.domain.kind} search has no standard deviation to vary; use 'ipop'"
            )
        self._first, self._start, self._sigma0 = first.population, start, float(sigma0 or 1.0)
        self._low, self._high = first.limits
        self._rng = np.random.default_rng([seed, 1])
        self._doubled = 0
        self._large: bool | None = None  # the last search; None for the first one
        self._spent = {True: 0, False: 0}  # evaluations of large and of small searches

    def next(self, spent: int) -> tuple[np.ndarray, float, int]:
        """Start, standard deviation and population of the next search.

        Args:
            spent: evaluations of the last one.
        """
        if self._large is not None:
            self._spent[self._large] += spent
        self._large = self.kind != "bipop" or self._spent[False] >= self._spent[True]
        start = self._elsewhere()
        if self._large:
            self._doubled += 1
            return start, self._sigma0, self._first * 2**self._doubled
        wide, many = self._rng.uniform(size=2)
        population = int(self._first * (2**self._doubled / 2) ** (many**2))
        population = max(self._first, population // 2 * 2)  # some searches need an even one
        least = _DIGITS * float(np.spacing(np.abs(start).max()))
        return start, min(self._sigma0, max(least, self._sigma0 * _SMALL**wide)), population

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
