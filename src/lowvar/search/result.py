"""The argument of ``minimize``'s callback, and its result."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from lowvar.search.searcher import Searcher

Status = Literal["target", "converged", "stalled", "budget", "callback", "interrupted", "failed"]


class Generation(NamedTuple):
    """The argument of a callback after each generation.

    Attributes:
        iteration: generations so far.
        evaluations: evaluations so far.
        x: the best point so far, ``(dim,)``, or None before there is one.
        fun: its value, infinite before there is one.
        points: points of this generation, ``(n, dim)``.
        values: their values, ``(n,)``; NaN where ``f`` failed.
        searcher: the search, for its ``mean``, ``sigma`` and ``condition``.
    """

    iteration: int
    evaluations: int
    x: np.ndarray | None
    fun: float
    points: np.ndarray
    values: np.ndarray
    searcher: Searcher


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The result of ``minimize``, under SciPy's names where they exist.

    Attributes:
        x: the best evaluated point, ``(dim,)``.
        fun: its value; if ``f`` is noisy, the smallest of many noisy values, which is biased low.
        success: whether the target was reached or, without a target, the search converged. False does not mean that
            ``x`` is bad: when the budget ends a search, its quality is unknown.
        status: reason for the end: ``target``; ``converged``: no point that was looked at around ``x`` is better, or
            every point of a discrete domain was evaluated; ``stalled``, away from a minimum, on a plateau or at a kink;
            ``budget``, ``callback``, ``interrupted`` (Ctrl-C) or ``failed``. The exceptions of Ctrl-C, of a failing
            ``f`` and of a callback have it as their ``result``.
        message: the same in a sentence.
        nfev: evaluations of ``f``.
        nit: generations.
        mean: the search's estimate of the minimum, ``(dim,)``: if ``f`` is noisy, a better answer than ``x``, whose
            value benefits from selection.
        sigma: geometric mean of the standard deviations at the end.
        condition: condition number of the covariance at the end.
        failures: evaluations that gave no finite value.
        notes: remarks on the choice of settings, also issued as warnings; and, if a search made no progress, what to
            try.
        method: the search.
        trace: table with columns ``iteration, evaluations, f, best, sigma, condition``, a row for each of the
            first generations and ever fewer of the later ones. ``f`` is the median of the generation's values.
        mean_fun: ``f`` at ``mean``, the average of several evaluations where ``f`` is noisy; NaN if the budget left
            none, or if the callback or a failure ended the search.
        mean_fun_se: its standard error, from the averages of up to 20 calls and, if ``f`` is batched, of two or more
            positions in a call; 0 if ``f`` is not noisy, or is said not to be, and NaN if unknown.
        noise: standard deviation of repeated evaluations of a point; 0 if they agree or with ``noisy=False``, NaN if no
            point was evaluated twice.
    """

    x: np.ndarray
    fun: float
    success: bool
    status: Status
    message: str
    nfev: int
    nit: int
    mean: np.ndarray = field(repr=False)
    sigma: float
    condition: float
    failures: int
    notes: tuple[str, ...]
    method: str
    trace: Any = field(repr=False)
    mean_fun: float = np.nan
    mean_fun_se: float = np.nan
    noise: float = np.nan

    def __repr__(self) -> str:
        x, mean = (np.array2string(one, precision=6, threshold=8, edgeitems=3) for one in (self.x, self.mean))
        failed = f", {self.failures} of them failed" if self.failures else ""
        noisy = [
            f"  fun      {self.fun:.8g} at x, the smallest of noisy values",
            f"  mean_fun {self.mean_fun:.6g} +- {self.mean_fun_se:.2g} at mean; noise {self.noise:.3g}",
            f"  mean     {mean}",
        ]
        return "\n".join(
            [
                f"SearchResult of {self.method}: {self.message}",
                f"  success  {self.success}",
                *(noisy if self.noise > 0 else [f"  fun      {self.fun:.8g}"]),
                f"  x        {x}, dim {len(self.x)}",
                f"  nfev     {self.nfev} in {self.nit} generations{failed}",
                f"  sigma    {self.sigma:.3g}, condition {self.condition:.3g}",
                *(f"  note     {note}" for note in self.notes),
            ]
        )
