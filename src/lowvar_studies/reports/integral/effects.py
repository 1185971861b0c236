"""Effects on integrals: ratios of errors, sides of the truth, and the coverage of intervals.

Errors are absolute: of one task, or without ``task`` the sum over all tasks except derived ones. ``sizes`` has the
format of the tables: ``20``, or ``40/20`` if tasks have different numbers of points. A mean error with a failed
repetition is infinite.
"""

import math
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import pydantic

from lowvar.core.intervals import FEWEST, LEVEL, share_interval
from lowvar.errors import UserError
from lowvar_studies.reports.effect import Declared, Effect, Effects, about, centre, compare, rows
from lowvar_studies.reports.integral.errors import sum_of_errors

EFFECTS = Declared()
Sizes = Annotated[str, pydantic.BeforeValidator(lambda sizes: str(sizes) if type(sizes) is int else sizes)]

_KNOWN = 0.3  # largest error of the truth, in standard errors of the estimates, at which coverage is decided


@EFFECTS.effect
def error_ratio(tables, problem: str, method: str, sizes: Sizes, others: tuple[str, ...] = (),
                more: Sizes | None = None, task: str | None = None, of: Literal["mae", "rmse"] = "mae",
                backend: str = "torch"):  # fmt: skip
    """The mean absolute or root mean square error divided by each rival's, with a bootstrap interval over pairs.

    It has no interval if neither error is above twice ``truth_error``. With sizes ``more``, the mean absolute error at
    these is divided by the method's own at ``sizes``; it is undecided if either is at most twice ``truth_error``.
    """
    if more is not None:
        if others or of != "mae":
            raise UserError("error_ratio: more compares a method's mean absolute errors: leave out others and of")
        return _size_ratio(tables, problem, method, sizes, more, task, backend)
    truth_error = float(_errors(tables, problem, method, sizes, task, backend)["truth_error"])
    mine = _of_repetitions(tables, problem, method, sizes, task, backend)
    power, each, notes = {"mae": 1, "rmse": 2}[of], [], []
    for other in others:
        rival = _of_repetitions(tables, problem, other, sizes, task, backend)
        ratio = compare(mine**power, rival**power, "means")
        value, low, high = (end ** (1 / power) for end in (ratio.value, ratio.low, ratio.high))
        if max(mine.mean(), rival.mean()) <= 2 * truth_error:
            low, high = np.nan, np.nan
            notes.append(f"{other}: errors are at most twice the truth's error, {truth_error:.1e}")
        if failed := int((~np.isfinite(rival)).sum()):
            notes.append(f"{other} failed in {failed} of {len(rival)} repetitions")
        each.append(Effect(value, low, high, rank=-1.0 if math.isnan(value) else None))
    if len(mine) < FEWEST:
        notes.append(f"fewer than {FEWEST} repetitions, so no interval")
    failed = int((~np.isfinite(mine)).sum())
    after = about({"sizes": sizes, "repetitions": len(mine), "failed": failed})
    return Effects(each, before=notes, after=[after])


@EFFECTS.effect
def gain_ratio(tables, problem: str, method: str, other: str, sizes: Sizes, beside: str, paired: bool = False,
               task: str | None = None, backend: str = "torch"):  # fmt: skip
    """The mean absolute error divided by that of ``other``, divided by the same ratio on the problem ``beside``.

    Below 1, the method gains more on ``problem``. If the draws of two problems are independent, the interval has, on
    either side, the distances of both ratios from their own limits, in logarithms, added in quadrature (Zou and Donner,
    2008). If they are the same, as of one problem within another, they are ``paired``: it is then the t interval of the
    logarithm to first order, over repetitions. It has none if an error there is at most twice ``truth_error``.
    """
    here, there = (_log_gain(tables, name, method, other, sizes, task, backend) for name in (problem, beside))
    if paired and np.isfinite([*here, *there]).all():
        errors = [_of_repetitions(tables, name, one, sizes, task, backend)
                  for name in (problem, beside) for one in (method, other)]  # fmt: skip
        if any(not one.index.equals(errors[0].index) for one in errors):
            raise UserError(f"paired: {problem} and {beside} have other repetitions")
        a, b, c, d = (one / one.mean() for one in errors)  # deviations of the four means, repetition by repetition
        _, low, high = centre(here[0] - there[0] + a - b - c + d)
        ends = (math.exp(end) for end in (here[0] - there[0], low, high))
        return Effect.from_interval(ends, note=f"{problem} and {beside}, sizes {sizes}, the same draws")
    value, below, above = here[0] - there[0], here[0] - here[1], here[2] - here[0]
    low, high = value - math.hypot(below, there[2] - there[0]), value + math.hypot(above, there[0] - there[1])
    ends = (math.exp(end) for end in (value, low, high))
    return Effect.from_interval(ends, note=f"{problem} and {beside}, sizes {sizes}")


@EFFECTS.effect
def same_side(tables, problem: str, method: str, sizes: Sizes, task: str, backend: str = "torch"):
    """The larger of the shares of estimates above and below the truth, with Clopper and Pearson's interval.

    Above 0.75, an interval with the central half of the estimates excludes the truth. It is undecided if
    ``truth_error`` is above 0.3 median absolute errors.
    """
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend, "task": task}
    found, one = rows(tables, "estimates", **wanted), _errors(tables, problem, method, sizes, task, backend)
    error, truth_error = found["error"].to_numpy(float), float(one["truth_error"])
    n, note = len(error), about(one)
    number = max(int((error > 0).sum()), int((error < 0).sum()))
    low, high = (float(end) for end in share_interval(number, n))
    if not np.isfinite(error).all() or truth_error > _KNOWN * np.median(np.abs(error)):
        note = f"the truth's error, {truth_error:.1e}, is too large, or a repetition failed; {note}"
        return Effect(number / n, low, high, pairs=n, note=note, bounds=(np.nan, np.nan))
    half = (n + 1) // 2  # the larger share is a half or more
    reach = float(share_interval(n, n)[0]), float(share_interval(half, n)[1])
    return Effect(number / n, low, high, pairs=n, counted=True, reach=reach, note=f"{number} on one side; {note}")


@EFFECTS.effect
def coverage(tables, problem: str, method: str, sizes: Sizes, task: str, backend: str = "torch"):
    """The share of repetitions in which the method's own 95 % interval contains the truth.

    Its standard error is the binomial one of a share of 0.95, what such intervals promise. It is undecided if
    ``truth_error`` is above 0.3 median standard errors.
    """
    one = _errors(tables, problem, method, sizes, task, backend)
    note, truth_error, median = about(one), float(one["truth_error"]), float(one["standard_error_median"])
    count, interval = int(one["repetitions"]), one[["coverage", "coverage_low", "coverage_high"]]
    if math.isnan(one["coverage"]):
        return Effect(np.nan, pairs=count, note=f"{method} gives no standard errors; {note}", errors=(np.nan,))
    if truth_error > _KNOWN * median:
        note = f"the truth's error, {truth_error:.1e}, is too large for standard errors of {median:.1e}; {note}"
        return Effect.from_interval(interval, pairs=count, note=note, bounds=(np.nan, np.nan), errors=(np.nan,))
    error, excess = math.sqrt(LEVEL * (1 - LEVEL) / count), float(one["coverage"]) - LEVEL
    if abs(excess) > 2 * error:
        note = f"intervals are too {'wide' if excess > 0 else 'narrow'}; {note}"
    return Effect.from_interval(interval, pairs=count, note=note, errors=(error,))


def _size_ratio(tables, problem, method, sizes, more, task, backend):
    few, many = (_of_repetitions(tables, problem, method, one, task, backend) for one in (sizes, more))
    ratio = compare(many, few, "means")
    note = f"sizes {more} against {sizes}, {ratio.pairs} repetitions"
    errors = [_errors(tables, problem, method, one, task, backend) for one in (sizes, more)]
    if all(one["resolved"] for one in errors):
        return replace(ratio, note=note)
    note = f"errors are at most twice the truth's error, {errors[0]['truth_error']:.1e}; {note}"
    return replace(ratio, note=note, bounds=(np.nan, np.nan))


def _log_gain(tables, problem, method, other, sizes, task, backend):
    """The logarithm of a ratio of mean errors and of its interval's ends; NaN if the truth hides an error."""
    mine, rival = (_of_repetitions(tables, problem, name, sizes, task, backend) for name in (method, other))
    ratio = compare(mine, rival, "means")
    known = all(_errors(tables, problem, name, sizes, task, backend)["resolved"] for name in (method, other))
    ends = (ratio.value, ratio.low, ratio.high) if known else (ratio.value, np.nan, np.nan)
    with np.errstate(divide="ignore"):
        return tuple(float(end) for end in np.log(ends))


def _errors(tables, problem, method, sizes, task, backend):
    """The row of a task, or of the sum over tasks."""
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend}
    return (rows(tables, "sums", **wanted) if task is None else rows(tables, "errors", **wanted, task=task)).iloc[0]


def _of_repetitions(tables, problem, method, sizes, task, backend):
    """Absolute errors by repetition; infinite for failed ones."""
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend}
    wanted |= {"derived": False} if task is None else {"task": task}
    return sum_of_errors(rows(tables, "estimates", **wanted))
