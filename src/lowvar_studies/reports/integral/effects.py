"""Effects on integrals: ratios of errors, and the coverage of intervals.

Errors are absolute: of one task, or without ``task`` the sum over all tasks except derived ones. ``sizes`` has the
format of the tables: ``20``, or ``40/20`` if tasks have different numbers of points. A mean error with a failed
repetition is infinite.
"""

import math
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import pydantic

from lowvar.core.intervals import FEWEST, LEVEL
from lowvar_studies.reports.effect import Declared, Effect, Effects, about, compare, rows
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


def _errors(tables, problem, method, sizes, task, backend):
    """The row of a task, or of the sum over tasks."""
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend}
    return (rows(tables, "sums", **wanted) if task is None else rows(tables, "errors", **wanted, task=task)).iloc[0]


def _of_repetitions(tables, problem, method, sizes, task, backend):
    """Absolute errors by repetition; infinite for failed ones."""
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend}
    wanted |= {"derived": False} if task is None else {"task": task}
    return sum_of_errors(rows(tables, "estimates", **wanted))
