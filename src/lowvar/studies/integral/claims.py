"""Claims about integrals: how large errors are, who has smaller ones, how estimates spread, whether intervals cover.

* ``error``: the mean absolute error against a published one. Holds where they differ by at most ``tolerance_se``
  standard errors, ours and the published one's combined (and the truth's), else fails; undecided where these are not
  known, or so large that an error of zero would agree as well.
* ``error_below``: the mean absolute error, with its t-interval, widened by the truth's error. Holds where that lies
  below ``below``, fails where it lies above.
* ``beats``: the ratio of mean absolute (or root mean square) errors to the nearest rival, with a bootstrap interval
  over pairs of repetitions. Holds where all intervals lie below ``below``, fails where one lies above; undecided
  where both errors are not above twice the truth's own.
* ``sum_error``, ``sum_below``, ``sum_beats``: the same three of the sum over tasks of absolute errors.
* ``spread``: the standard deviation of estimates over repetitions, with its chi-square interval. Holds where that lies
  below ``below``, or within ``tolerance`` (relative) of ``published``; fails where none of it does.
* ``truth``: what an integral is, by our own computation, with its interval. Holds where that lies within ``tolerance``
  (absolute) of ``published``, fails where none of it does.
* ``no_gain``: the ratio of mean absolute errors at the sizes ``more`` to those at ``sizes``, with a bootstrap interval
  over pairs of repetitions. Holds where that lies above ``1 - margin`` (more points, of another task, bring less than
  this), fails where it lies below; undecided where errors are not above twice the truth's own.
* ``coverage``: the share of repetitions in which the method's own 95 % interval contains the truth, with Clopper and
  Pearson's interval. Holds where that lies above ``at_least``, fails where it lies below; undecided where the truth is
  not known better than the estimates.

Sizes and repetitions are said in the claim's note. A failed repetition makes a mean error infinite.
"""

import math
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.intervals import FEWEST
from lowvar.errors import UserError
from lowvar.studies.integral.errors import NORMAL, paired_ratio, sum_of_errors
from lowvar.studies.verdicts import Strict, all_below, look_up, within

_KNOWN = 0.3  # the truth's error, in standard errors of the estimates, up to which coverage can be measured

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Sizes = Annotated[str, pydantic.BeforeValidator(lambda sizes: str(sizes) if type(sizes) is int else sizes)]
Rivals = Annotated[tuple[str, ...], Field(min_length=1)]


class _Sums(Strict):
    """A method on a problem, from so many points: ``20``, or ``40/20`` where tasks have different numbers."""

    problem: str
    method: str
    sizes: Sizes
    backend: str = "torch"


class _Task(_Sums):
    """The same, and one of the problem's tasks."""

    task: str


class _Published(Strict):
    published: Positive
    published_se: NotNegative | Literal["ours"] = Field(0.0, description="ours: it was not published, take ours")
    tolerance_se: Positive = 2.0


class ErrorTest(_Task, _Published):
    """The mean absolute error agrees with a published one."""

    kind: Literal["error"]


class ErrorBelowTest(_Task):
    """The mean absolute error is below a bound."""

    kind: Literal["error_below"]
    below: Positive


class BeatsTest(_Task):
    """The mean absolute error is smaller than that of all others, from as many points."""

    kind: Literal["beats"]
    others: Rivals
    of: Literal["mae", "rmse"] = "mae"
    below: Positive = 1.0


class SumErrorTest(_Sums, _Published):
    """The sum over tasks of mean absolute errors agrees with a published one."""

    kind: Literal["sum_error"]


class SumBelowTest(_Sums):
    """The sum over tasks of mean absolute errors is below a bound."""

    kind: Literal["sum_below"]
    below: Positive


class SumBeatsTest(_Sums):
    """The sum over tasks of mean absolute errors is smaller than that of all others, from as many points."""

    kind: Literal["sum_beats"]
    others: Rivals
    below: Positive = 1.0


class SpreadTest(_Task):
    """The standard deviation of estimates over repetitions is below a bound, or about as published."""

    kind: Literal["spread"]
    published: Positive | None = None
    tolerance: Positive = 0.5
    below: Positive | None = None

    @pydantic.model_validator(mode="after")
    def _one_of_them(self):
        if (self.published is None) == (self.below is None):
            raise ValueError("exactly one of published and below must be given")
        return self


class TruthTest(Strict):
    """An integral is what was published."""

    kind: Literal["truth"]
    problem: str
    task: str
    published: float
    tolerance: Positive


class NoGainTest(_Task):
    """More points of another task do not make the error smaller."""

    kind: Literal["no_gain"]
    more: Sizes
    margin: Share = 0.1


class CoverageTest(_Task):
    """The method's own 95 % intervals contain the truth at least so often."""

    kind: Literal["coverage"]
    at_least: Share = 0.9


IntegralTest = (
    ErrorTest | ErrorBelowTest | BeatsTest | SumErrorTest | SumBelowTest | SumBeatsTest | SpreadTest | TruthTest
    | NoGainTest | CoverageTest
)  # fmt: skip


def _error(test, tables):
    return _agrees(test, _row(tables, "errors", test), "mae")


def _sum_error(test, tables):
    return _agrees(test, _row(tables, "sums", test), "sum_mae")


def _agrees(test, row, name: str):
    ours, mine = float(row[name]), float(row[f"{name}_se"])
    theirs = mine if test.published_se == "ours" else test.published_se
    combined = math.hypot(mine, theirs, float(row["truth_error"]))
    apart, allowed = abs(ours - test.published), test.tolerance_se * combined
    verdict = "holds" if apart <= allowed else "fails"
    if math.isinf(ours):
        verdict = "fails"
    elif row["repetitions"] < FEWEST or math.isnan(combined) or (verdict == "holds" and allowed >= test.published):
        verdict = "undecided"
    note = f"{apart / combined:.2g} combined standard errors apart; {said(row)}" if combined > 0 else said(row)
    return {"published": test.published, "ours": ours, "low": float(row[f"{name}_low"]),
            "high": float(row[f"{name}_high"]), "verdict": verdict, "note": note}  # fmt: skip


def _error_below(test, tables):
    return _below(test, _row(tables, "errors", test), "mae")


def _sum_below(test, tables):
    return _below(test, _row(tables, "sums", test), "sum_mae")


def _below(test, row, name: str):
    ours, te = float(row[name]), float(row["truth_error"])
    low, high = (ours, ours) if math.isinf(ours) else (float(row[f"{name}_{end}"]) for end in ("low", "high"))
    low, high = max(low - NORMAL * te, 0.0), high + NORMAL * te
    verdict = all_below([(low, high)], test.below)
    return {"published": test.below, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": said(row)}


def _beats(test, tables):
    truth_error = float(_row(tables, "errors", test)["truth_error"])
    return _against(test, lambda method: _of_repetitions(tables, test, method, test.sizes), test.of, truth_error)


def _sum_beats(test, tables):
    def sums(method):
        rows = _found(look_up(tables, "estimates"), "estimates", test, method, test.sizes, task=None)
        return sum_of_errors(rows[~rows["derived"]])

    return _against(test, sums, "mae", float(_row(tables, "sums", test)["truth_error"]))


def _against(test, of_method, what: str, truth_error: float):
    mine, notes, found = of_method(test.method), [], []
    for other in test.others:
        rival = of_method(other)
        ratio = paired_ratio(mine, rival, what)
        if max(mine.mean(), rival.mean()) <= 2 * truth_error:  # neither can be told from the truth
            ratio = (ratio[0], np.nan, np.nan)
            notes.append(f"{other}: errors are not above twice the truth's own, {truth_error:.1e}")
        found.append(ratio)
        if not np.isfinite(rival).all():
            notes.append(f"{other} failed in {int((~np.isfinite(rival)).sum())} of {len(rival)} repetitions")
    if len(mine) < FEWEST:
        notes.append(f"fewer than {FEWEST} repetitions, so no interval")
    ours, low, high = max(found, key=lambda ratio: -1.0 if math.isnan(ratio[0]) else ratio[0])
    verdict = all_below(((low, high) for _, low, high in found), test.below)
    failed = int((~np.isfinite(mine)).sum())
    notes.append(said({"sizes": test.sizes, "repetitions": len(mine), "failed": failed}))
    return {"published": np.nan, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": "; ".join(notes)}


def _spread(test, tables):
    row = _row(tables, "errors", test)
    ours, low, high = (float(row[name]) for name in ("sd", "sd_low", "sd_high"))
    if row["failed"]:
        ours = low = high = np.inf
    if test.below is not None:
        verdict, published = all_below([(low, high)], test.below), test.below
    else:
        verdict, published = within(low, high, test.published, test.tolerance), test.published
    return {"published": published, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": said(row)}


def _truth(test, tables):
    truth = look_up(tables, "truth")
    rows = truth[(truth["problem"] == test.problem) & (truth["task"] == test.task)]
    if len(rows) != 1:
        raise UserError(f"a claim speaks of task {test.task} of {test.problem}, which the table 'truth' does not have")
    ours, half = float(rows["truth"].iloc[0]), NORMAL * float(rows["truth_error"].iloc[0])
    low, high = ours - half, ours + half
    least, most = test.published - test.tolerance, test.published + test.tolerance
    verdict = "holds" if least <= low and high <= most else "fails" if high < least or low > most else "undecided"
    return {"published": test.published, "ours": ours, "low": low, "high": high, "verdict": verdict}


def _no_gain(test, tables):
    few, more = (_of_repetitions(tables, test, test.method, sizes) for sizes in (test.sizes, test.more))
    ours, low, high = paired_ratio(more, few)
    bound = 1 - test.margin
    verdict = "holds" if low > bound else "fails" if high < bound else "undecided"
    note = f"sizes {test.more} against {test.sizes}, {len(more.index.intersection(few.index))} repetitions"
    errors = [_found(look_up(tables, "errors"), "errors", test, test.method, sizes, test.task).iloc[0]
              for sizes in (test.sizes, test.more)]  # fmt: skip
    if not all(row["resolved"] for row in errors):
        verdict = "undecided"
        note = f"errors are not above twice the truth's own, {errors[0]['truth_error']:.1e}; {note}"
    return {"published": np.nan, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


def _coverage(test, tables):
    row = _row(tables, "errors", test)
    ours, low, high = (float(row[name]) for name in ("coverage", "coverage_low", "coverage_high"))
    verdict = "holds" if low >= test.at_least else "fails" if high < test.at_least else "undecided"
    note, te, usual = said(row), float(row["truth_error"]), float(row["standard_error_median"])
    if math.isnan(ours):
        note = f"{test.method} gives no standard errors; {note}"
    elif te > _KNOWN * usual:
        verdict = "undecided"
        note = f"the truth is known to {te:.1e} only, where standard errors are {usual:.1e}; {note}"
    return {"published": test.at_least, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


def _row(tables, name: str, test):
    """The one row of a table that a test speaks of."""
    rows = _found(look_up(tables, name), name, test, test.method, test.sizes, getattr(test, "task", None))
    return rows.iloc[0]


def _of_repetitions(tables, test, method: str, sizes: str):
    """Absolute errors by repetition; infinite where one failed."""
    rows = _found(look_up(tables, "estimates"), "estimates", test, method, sizes, test.task)
    return sum_of_errors(rows)


def _found(table, name: str, test, method: str, sizes: str, task: str | None):
    here = (table["problem"] == test.problem) & (table["method"] == method) & (table["sizes"] == sizes)
    if task is not None:
        here &= table["task"] == task
    rows = table[here & (table["backend"] == test.backend)]
    if not len(rows):
        what = f"{method} on {f'task {task} of ' if task is not None else ''}{test.problem} at sizes {sizes}"
        raise UserError(f"a claim speaks of {what}, which the table {name!r} does not have")
    return rows


def said(row) -> str:
    """Sizes and repetitions in words.

    >>> said({"sizes": "40/20", "repetitions": 100, "failed": 2})
    'sizes 40/20, 100 repetitions (2 failed)'
    """
    failed = f" ({row['failed']} failed)" if row["failed"] else ""
    return f"sizes {row['sizes']}, {row['repetitions']} repetitions{failed}"


JUDGES = {
    "error": _error,
    "error_below": _error_below,
    "beats": _beats,
    "sum_error": _sum_error,
    "sum_below": _sum_below,
    "sum_beats": _sum_beats,
    "spread": _spread,
    "truth": _truth,
    "no_gain": _no_gain,
    "coverage": _coverage,
}
