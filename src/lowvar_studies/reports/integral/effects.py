"""Effects on integrals: errors, ratios of errors, standard deviations over repetitions, coverage, and true values.

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
from lowvar_studies.reports.effect import Count, Declared, Effect, Effects, Rivals, compare, row, rows
from lowvar_studies.reports.integral.errors import NORMAL, sum_of_errors

EFFECTS = Declared()
Sizes = Annotated[str, pydantic.BeforeValidator(lambda sizes: str(sizes) if type(sizes) is int else sizes)]

_KNOWN = 0.3  # largest error of the truth, in standard errors of the estimates, at which coverage is decided


@EFFECTS.effect
def error(tables, problem: str, method: str, sizes: Sizes, task: str | None = None,
          published_repetitions: Count | None = None, backend: str = "torch"):  # fmt: skip
    """The mean absolute error, with its standard error and the truth's.

    With ``published_repetitions``, for a published mean of so many repetitions without a standard error (``ours``), the
    standard error is such that two of it add up, in quadrature, to ours and to ours over that many repetitions.
    """
    one, name = _errors(tables, problem, method, sizes, task, backend)
    errors = (float(one[f"{name}_se"]), float(one["truth_error"]))
    if published_repetitions is not None:
        more = float(one["repetitions"]) / published_repetitions
        errors = (errors[0] * math.sqrt((1 + more) / 2), errors[1])
    return Effect.read(one, name, pairs=one["repetitions"], note=points(one), errors=errors)


@EFFECTS.effect
def error_range(tables, problem: str, method: str, sizes: Sizes, task: str | None = None, backend: str = "torch"):
    """The mean absolute error, with its interval widened by that of the truth."""
    one, name = _errors(tables, problem, method, sizes, task, backend)
    value, half = float(one[name]), NORMAL * float(one["truth_error"])
    low, high = (value, value) if math.isinf(value) else (float(one[f"{name}_low"]), float(one[f"{name}_high"]))
    return Effect(value, max(low - half, 0.0), high + half, note=points(one))


@EFFECTS.effect
def error_ratio(tables, problem: str, method: str, others: Rivals, sizes: Sizes, task: str | None = None,
                of: Literal["mae", "rmse"] = "mae", backend: str = "torch"):  # fmt: skip
    """The mean absolute or root mean square error divided by each rival's, with a bootstrap interval over pairs.

    It has no interval if neither error is above twice ``truth_error``.
    """
    truth_error = float(_errors(tables, problem, method, sizes, task, backend)[0]["truth_error"])
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
    after = points({"sizes": sizes, "repetitions": len(mine), "failed": failed})
    return Effects(each, before=notes, after=[after])


@EFFECTS.effect
def size_error_ratio(tables, problem: str, method: str, sizes: Sizes, more: Sizes, task: str, backend: str = "torch"):
    """The mean absolute error at sizes ``more`` divided by that at ``sizes``, with a bootstrap interval over pairs.

    It is undecided if an error is at most twice ``truth_error``.
    """
    few, many = (_of_repetitions(tables, problem, method, one, task, backend) for one in (sizes, more))
    ratio = compare(many, few, "means")
    note = f"sizes {more} against {sizes}, {ratio.pairs} repetitions"
    errors = [_errors(tables, problem, method, one, task, backend)[0] for one in (sizes, more)]
    if all(one["resolved"] for one in errors):
        return replace(ratio, note=note)
    note = f"errors are at most twice the truth's error, {errors[0]['truth_error']:.1e}; {note}"
    return replace(ratio, note=note, bounds=(np.nan, np.nan))


@EFFECTS.effect
def spread(tables, problem: str, method: str, sizes: Sizes, task: str, backend: str = "torch"):
    """The standard deviation of estimates over repetitions, with its chi-square interval."""
    one, _ = _errors(tables, problem, method, sizes, task, backend)
    return Effect.of((np.inf,) * 3, note=points(one)) if one["failed"] else Effect.read(one, "sd", note=points(one))


@EFFECTS.effect
def coverage(tables, problem: str, method: str, sizes: Sizes, task: str, backend: str = "torch"):
    """The share of repetitions in which the method's own 95 % interval contains the truth.

    Its standard error is the binomial one of a share of 0.95, what such intervals promise. It is undecided if
    ``truth_error`` is above 0.3 median standard errors.
    """
    one, _ = _errors(tables, problem, method, sizes, task, backend)
    note, truth_error, median = points(one), float(one["truth_error"]), float(one["standard_error_median"])
    count = int(one["repetitions"])
    if math.isnan(one["coverage"]):
        return Effect(np.nan, pairs=count, note=f"{method} gives no standard errors; {note}", errors=(np.nan,))
    if truth_error > _KNOWN * median:
        note = f"the truth's error, {truth_error:.1e}, is too large for standard errors of {median:.1e}; {note}"
        return Effect.read(one, "coverage", pairs=count, note=note, bounds=(np.nan, np.nan), errors=(np.nan,))
    error, excess = math.sqrt(LEVEL * (1 - LEVEL) / count), float(one["coverage"]) - LEVEL
    if abs(excess) > 2 * error:
        note = f"intervals are too {'wide' if excess > 0 else 'narrow'}; {note}"
    return Effect.read(one, "coverage", pairs=count, note=note, errors=(error,))


@EFFECTS.effect
def truth(tables, problem: str, task: str):
    """The true integral, computed by us."""
    one = row(tables, "truth", problem=problem, task=task)
    value, half = float(one["truth"]), NORMAL * float(one["truth_error"])
    return Effect(value, value - half, value + half)


def _errors(tables, problem, method, sizes, task, backend):
    """The row of a task, or of the sum over tasks, and the column of its mean error."""
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend}
    if task is None:
        return rows(tables, "sums", **wanted).iloc[0], "sum_mae"
    return rows(tables, "errors", **wanted, task=task).iloc[0], "mae"


def _of_repetitions(tables, problem, method, sizes, task, backend):
    """Absolute errors by repetition; infinite for failed ones."""
    wanted = {"problem": problem, "method": method, "sizes": sizes, "backend": backend}
    wanted |= {"derived": False} if task is None else {"task": task}
    return sum_of_errors(rows(tables, "estimates", **wanted))


def points(one) -> str:
    """Sizes and repetitions as text.

    >>> points({"sizes": "40/20", "repetitions": 100, "failed": 2})
    'sizes 40/20, 100 repetitions (2 failed)'
    """
    failed = f" ({one['failed']} failed)" if one["failed"] else ""
    return f"sizes {one['sizes']}, {one['repetitions']} repetitions{failed}"
