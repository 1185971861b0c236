"""What ``minimize`` tells its callback, and what it returns."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from lowvar.api.searcher import Searcher

Status = Literal["target", "converged", "stalled", "budget", "callback", "interrupted", "failed"]


class Generation(NamedTuple):
    """What a callback is told after each generation.

    Attributes:
        iteration: generations so far.
        evaluations: evaluations so far.
        x: the best point so far, ``(dim,)``, or None before there is one.
        fun: its value, infinite before there is one.
        points: of this generation, ``(n, dim)``.
        values: at them, ``(n,)``; NaN where ``f`` failed.
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
    """What ``minimize`` returns, under SciPy's names where it has them.

    Attributes:
        x: the best of all points that were evaluated, ``(dim,)``.
        fun: its value; where ``f`` is noisy, the smallest of many noisy values, which is too low.
        success: whether the target was reached or, without a target, the search converged. False does not mean that
            ``x`` is bad: a budget that ends a search leaves the question open.
        status: why it ended: ``target``; ``converged``, to a minimum that need not be the global one; ``stalled``, at a
            place that is no minimum, or on a plateau; ``budget``, ``callback``, ``interrupted`` (Ctrl-C) or ``failed``.
        message: the same in a sentence.
        nfev: evaluations of ``f``.
        nit: generations.
        mean: where the search believes the minimum to be, ``(dim,)``: where ``f`` is noisy, a better answer than
            ``x``, whose value was lucky.
        sigma: geometric mean of the standard deviations at the end.
        condition: condition number of the covariance at the end.
        failures: evaluations that gave no finite value.
        notes: what you should know of the choice of settings, issued as warnings, too; and of a search that made no
            progress, what to try.
        method: which search it was.
        trace: table with the columns ``iteration, evaluations, f, best, sigma, condition``, a row for each of the
            first generations and ever fewer of the later ones. ``f`` is the median of the generation's values.
        mean_fun: ``f`` at ``mean``, the average of several evaluations where ``f`` is noisy; NaN if the budget left
            none.
        mean_fun_se: its standard error; 0 where ``f`` is not noisy, NaN where it is not known.
        noise: standard deviation of evaluations of one point; 0 if they did not differ.
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
    noise: float = 0.0

    def __repr__(self) -> str:
        x = np.array2string(self.x, precision=6, threshold=8, edgeitems=3)
        failed = f", {self.failures} of them failed" if self.failures else ""
        noisy = [
            f"  fun      {self.fun:.8g}, the smallest of noisy values",
            f"  mean_fun {self.mean_fun:.6g} +- {self.mean_fun_se:.2g} at the mean; noise {self.noise:.3g}",
        ]
        return "\n".join(
            [
                f"SearchResult of {self.method}: {self.message}",
                f"  success  {self.success}",
                *(noisy if self.noise else [f"  fun      {self.fun:.8g}"]),
                f"  x        {x}, dim {len(self.x)}",
                f"  nfev     {self.nfev} in {self.nit} generations{failed}",
                f"  sigma    {self.sigma:.3g}, condition {self.condition:.3g}",
                *(f"  note     {note}" for note in self.notes),
            ]
        )
