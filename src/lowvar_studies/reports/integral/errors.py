"""Errors of integrals over repetitions: tables made from traces.

An error is an estimate less the truth. A repetition has failed if its estimate is not finite; a method with a failed
repetition has an infinite mean error, and no other statistics.

**A truth that is not exact has an error**, with standard error ``truth_error``. This error is the same in all
repetitions, so it does not average out. It enters as follows:

* the squared bias is estimated without bias by ``mean_error^2 - sd^2 / R - truth_error^2``, which can be negative;
* ``truth_error^2`` is subtracted from a mean squared error that is split, which then is the sum of its parts;
* the interval of the bias adds those of the mean error and of the truth in quadrature;
* mean absolute errors are not corrected. Below about ``truth_error``, methods are indistinguishable from each other and
  from an exact one; ``resolved`` says whether the mean absolute error is above twice ``truth_error``.

Intervals are 95 %: t-intervals of means, chi-square intervals of standard deviations, Clopper and Pearson's of shares,
and studentised bootstrap intervals over repetitions of root mean squares and ratios. Methods share the points of a
repetition, so bootstraps resample pairs.
"""

import numpy as np

from lowvar.core.intervals import NORMAL, mean_interval, mean_of_squares, share_interval, spread_interval
from lowvar_studies.reports.declarations import RUN, Table, columns
from lowvar_studies.reports.effect import compare
from lowvar_studies.reports.integral.estimates import (
    ESTIMATES,
    KEYS,
    TRUTH,
    joined,
    last_task,
    of_traces,
    signed_errors,
    standard_error,
    sum_of_errors,
)
from lowvar_studies.reports.integral.gathering import PLACE, SIZES

BASELINE = "monte_carlo"


def errors(traces, truth):
    """Errors by problem, task, method, backend and sizes, over repetitions.

    Args:
        traces: as for ``estimates``.
        truth: as for ``estimates``.

    Returns:
        Rows. ``to_mc`` is the root mean square divided by that of ``monte_carlo`` at the same sizes, over pairs of
        repetitions. A repetition without a standard error counts as not covered, unless the method never has one.

    Raises:
        UserError: a task of the traces has no truth.
    """

    groups = list(_groups(joined(traces, truth)))
    plain = {_place(key): _by_repetition(rows) for key, rows in groups if key["method"] == BASELINE}
    out = []
    for key, rows in groups:
        error, te = signed_errors(rows), float(rows["truth_error"].iloc[0])
        mae, mse, sd = _mean(np.abs(error)), mean_of_squares(error**2), spread_interval(rows["value"])
        to_mc = (np.nan,) * 3
        if _place(key) in plain:
            ratio = compare(_by_repetition(rows) ** 2, plain[_place(key)] ** 2, "means")
            to_mc = np.sqrt([ratio.value, ratio.low, ratio.high])
        out.append(
            key
            | {"repetitions": len(rows), "failed": _failed(error), "mae": mae[0], "mae_se": standard_error(error)}
            | {"mae_low": mae[1], "mae_high": mae[2]}
            | _named("rmse", np.sqrt(mse))
            | _named("bias", _bias(error, te))
            | _named("sd", sd)
            | _named("to_mc", to_mc)
            | _coverage(rows)
            | {"flagged": float((rows["flags"].fillna("") != "").mean()), "truth": float(rows["truth"].iloc[0]),
               "truth_error": te, "resolved": bool(mae[0] > 2 * te), "derived": bool(rows["derived"].iloc[0])}
        )  # fmt: skip
    return ERRORS.frame(out)


ERRORS = Table(
    "errors",
    "A row for each problem, task, method, backend and sizes, over the repetitions.",
    columns(PLACE, """
    repetitions | int64 | | repetitions in the row
    failed | int64 | | repetitions that failed
    mae | float64 | f's | mean absolute error; infinite if a repetition failed
    mae_se | float64 | f's | its standard error over repetitions
    mae_low | float64 | f's | lower end of its 95 % interval
    mae_high | float64 | f's | upper end
    rmse.. | float64 | f's | root mean squared error, including the truth's error
    bias.. | float64 | f's | mean error
    sd.. | float64 | f's | standard deviation of the estimates over repetitions
    to_mc.. | float64 | | `rmse` divided by that of the method `monte_carlo` at the same sizes; NaN if there is none
    coverage.. | float64 | | share of repetitions whose own 95 % interval contains the truth; NaN without intervals
    standard_error_median | float64 | f's | median of the method's standard errors
    flagged | float64 | | share of repetitions with a flag
    truth | float64 | f's | true value
    truth_error | float64 | f's | its standard error
    resolved | bool | | whether `mae` is above twice `truth_error`
    derived | bool | | whether the task is derived from others
    """),
    of_traces(errors),
)  # fmt: skip


def decomposition(traces, truth):
    """The mean squared error split into squared bias and variance, by problem, task, method, backend and sizes.

    Args:
        traces: as for ``estimates``.
        truth: as for ``estimates``.

    Raises:
        UserError: a task of the traces has no truth.
    """

    out = []
    for key, rows in _groups(joined(traces, truth)):
        error, n = signed_errors(rows), len(rows)
        te = float(rows["truth_error"].iloc[0])
        mse = np.array(mean_of_squares(error**2)) - te**2
        sd = spread_interval(rows["value"])
        bias, low, high = _bias(error, te)
        ends = sorted(np.square([low, high]))
        bias2 = (bias**2 - sd[0] ** 2 / n - te**2, 0.0 if low <= 0 <= high else ends[0], ends[1])
        out.append(
            key
            | {"repetitions": n, "truth_error": te}
            | _named("mse", mse)
            | _named("bias2", bias2)
            | _named("variance", np.square(sd))
        )
    return DECOMPOSITION.frame(out)


DECOMPOSITION = Table(
    "decomposition",
    "Mean squared errors of the runs, split into squared bias and variance. A row for each problem, task, method, "
    "backend and sizes. With a failed repetition, `mse` is infinite and its parts are NaN.",
    columns(PLACE, """
    repetitions | int64 | | repetitions in the row
    truth_error | float64 | f's | standard error of the truth
    mse.. | float64 | f's^2 | mean of squared errors less `truth_error^2`: the sum of `bias2` and `variance`
    bias2 | float64 | f's^2 | unbiased estimate of the squared bias
    bias2_low | float64 | f's^2 | lower end of its 95 % interval; 0 if the interval of the bias contains 0
    bias2_high | float64 | f's^2 | upper end
    variance.. | float64 | f's^2 | of the estimates over repetitions
    """),
    of_traces(decomposition),
)  # fmt: skip


def sums(traces, truth):
    """Errors summed over tasks except derived ones, by problem, method, backend and sizes, over repetitions.

    Args:
        traces: as for ``estimates``.
        truth: as for ``estimates``.

    Raises:
        UserError: a task of the traces has no truth.
    """

    rows = joined(traces, truth)
    rows = rows[~rows["derived"]]
    out = []
    for key, group in rows.groupby([*KEYS, "points"], sort=False):
        absolute = sum_of_errors(group)
        te = float(group.groupby("task")["truth_error"].first().sum())
        total = _mean(absolute)
        out.append(
            dict(zip([*KEYS, "points"], key, strict=True))
            | {"tasks": group["task"].nunique(), "repetitions": len(absolute), "failed": _failed(absolute)}
            | _named("sum_mae", total)
            | {"sum_mae_se": standard_error(absolute)}
            | {"truth_error": te, "resolved": bool(total[0] > 2 * te)}
        )  # fmt: skip
    return SUMS.frame(out)


SUMS = Table(
    "sums",
    "Errors summed over the tasks of a problem, except derived quantities. A row for each problem, method, backend and "
    "sizes.",
    columns(RUN, SIZES, """
    tasks | int64 | | number of tasks
    repetitions | int64 | | repetitions in the row
    failed | int64 | | repetitions that failed in any task
    sum_mae.. | float64 | f's | mean over repetitions of the sum of absolute errors
    sum_mae_se | float64 | f's | its standard error over repetitions
    truth_error | float64 | f's | sum over tasks of the truth's standard errors
    resolved | bool | | whether `sum_mae` is above twice `truth_error`
    """),
    of_traces(sums),
)  # fmt: skip


def with_seconds(timings, errors):
    """Seconds per repetition, beside the error of each problem's last task.

    Args:
        timings: columns ``problem, method, backend, sizes, repetitions, seconds``, in the order of computation:
            repetitions of these sizes so far, and seconds of the job so far.
        errors: the table ``errors``.
    """
    counts = errors[~errors["derived"]].groupby(KEYS)["task"].nunique().rename("tasks").reset_index()
    kept = [*KEYS, "points", "task", "mae", "mae_low", "mae_high"]
    table = last_task(errors)[kept].merge(counts, on=KEYS, how="left", validate="one_to_one")
    ends = timings.groupby(KEYS, sort=False)[["repetitions", "seconds"]].last().reset_index()
    before = ends.groupby(KEYS[:-1], sort=False)["seconds"].shift(fill_value=0.0)
    ends["seconds_per_repetition"] = (ends["seconds"] - before) / ends["repetitions"]
    return SECONDS.frame(table.merge(ends, on=KEYS, how="inner", validate="one_to_one"))


SECONDS = Table(
    "seconds",
    "Times and errors. A row for each problem, method, backend and sizes.",
    columns(RUN, SIZES, """
    tasks | int64 | | number of integrals that are estimated together
    seconds_per_repetition | float64 | s | time for all tasks: the time at these sizes divided by the repetitions
    repetitions | int64 | | repetitions in the row
    task | string | | the problem's last task, whose errors the row has
    mae.. | float64 | f's | its mean absolute error
    """),
    lambda gathered: with_seconds(gathered.timings, gathered["errors"]),
    timed=True,
)  # fmt: skip


def _groups(rows):
    """Keys and repetitions of every problem, task, method, backend and sizes."""
    names = ["problem", "task", "method", "backend", "sizes", "m", "points"]
    for key, group in rows.groupby(names, sort=False):
        yield dict(zip(names, key, strict=True)), group


def _place(key) -> tuple:
    return tuple(key[name] for name in ("problem", "task", "backend", "sizes"))


def _failed(errors) -> int:
    return int((~np.isfinite(errors)).sum())


def _mean(errors) -> tuple[float, float, float]:
    """The mean and its t-interval; infinite if an error is."""
    return mean_interval(errors) if np.isfinite(errors).all() else (np.inf, np.nan, np.nan)


def _by_repetition(rows):
    import pandas as pd

    return pd.Series(signed_errors(rows), index=rows["repetition"].to_numpy())


def _bias(error, truth_error: float) -> tuple[float, float, float]:
    """The mean error and its interval, including the truth's error."""
    if not np.isfinite(error).all():
        return np.nan, np.nan, np.nan
    mean, low, high = mean_interval(error)
    half = float(np.hypot((high - low) / 2, NORMAL * truth_error))
    return mean, mean - half, mean + half


def _coverage(rows) -> dict[str, float]:
    deviation = rows["standard_error"].to_numpy(float)
    finite = np.isfinite(deviation)
    if not finite.any():
        return dict.fromkeys(("coverage", "coverage_low", "coverage_high", "standard_error_median"), np.nan)
    covered = finite & (np.abs(signed_errors(rows)) <= NORMAL * np.where(finite, deviation, 0.0))
    low, high = share_interval(int(covered.sum()), len(rows))
    return {"coverage": float(covered.mean()), "coverage_low": float(low), "coverage_high": float(high),
            "standard_error_median": float(np.median(deviation[finite]))}  # fmt: skip


def _named(name: str, values) -> dict[str, float]:
    return {f"{name}{end}": float(value) for end, value in zip(("", "_low", "_high"), values, strict=True)}


TABLES = (TRUTH, ERRORS, SUMS, ESTIMATES, DECOMPOSITION)
