"""How far estimates of integrals lie from the truth: tables out of traces, over repetitions.

An error is an estimate less the truth. A repetition has failed where its estimate is not finite; a method with a
failed repetition has an infinite mean error, and no other statistics.

**The truth has an error of its own** wherever it is not exact (``truth_error``, a standard error). It is the same in
all repetitions, so that more of them do not average it away. Here is where it enters:

* the squared bias is unbiased: ``mean_error^2 - sd^2 / R - truth_error^2``, and can come out below zero;
* a mean squared error that is split has ``truth_error^2`` taken off, so that it is the sum of its parts;
* the interval of the bias is that of the mean error and that of the truth, added in quadrature;
* mean absolute errors are as measured. Below about ``truth_error`` two methods cannot be told apart, nor one from
  a perfect one; ``resolved`` says whether the mean absolute error is above twice that.

Intervals are 95 %: of means by t, of standard deviations by chi-square, of shares by Clopper and Pearson, of root
mean squares and of ratios by the (studentised) bootstrap over repetitions. All bootstraps resample the same
repetitions, because methods share the points of a repetition: ratios are of pairs.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.analysis.decomposition import mean_interval
from lowvar.errors import UserError
from lowvar.studies.search.progress import share_interval

KEYS = ["problem", "method", "backend", "sizes"]
BASELINE = "monte_carlo"
FEWEST = 5  # repetitions of a bootstrap
NORMAL = 1.959964  # the 97.5 % point of N(0, 1)
_RESAMPLES = 4000
_LEVEL = 0.95


def with_derived(traces, problems: Mapping[str, Any]):
    """The traces with quantities that are made of several integrals, such as a log evidence, as tasks of their own.

    Args:
        traces: the traces of all runs in one table; see ``estimates``.
        problems: integral problems by name. Those of the traces that are not among them derive nothing.

    Returns:
        The traces, with a column ``derived`` and, below them, a row per derived quantity, repetition, method, backend
        and sizes: ``m`` is the number of all points, there is no standard error, and the flags are those of any task.
        It has failed where one of the integrals has.
    """
    import pandas as pd

    out = [traces.assign(derived=False)]
    for problem, rows in traces.groupby("problem", sort=False):
        made = problems.get(str(problem))
        if made is None or not made.derived:
            continue
        for _, group in rows.groupby([*KEYS, "points"], sort=False):
            wide = group.pivot(index="repetition", columns="task", values="value").reindex(columns=list(made.tasks))
            first = group.drop_duplicates("repetition").set_index("repetition").loc[wide.index].reset_index()
            flags = group.groupby("repetition")["flags"].agg(_all_flags).loc[wide.index].to_numpy()
            failed = group.assign(bad=group["status"] != "ok").groupby("repetition")["bad"].any().to_numpy()
            for name, derive in made.derived.items():
                value = np.where(failed, np.nan, np.asarray(derive(wide.to_numpy(float)), float))
                out.append(
                    first.assign(task=name, m=first["points"], value=value, standard_error=np.nan, flags=flags,
                                 status=np.where(np.isfinite(value), "ok", "failed"), derived=True)
                )  # fmt: skip
    return pd.concat(out, ignore_index=True)


def estimates(traces, truth):
    """Every estimate beside the truth: a row per repetition and task.

    Args:
        traces: the traces of all runs in one table, columns ``problem, method, backend, sizes, points, repetition,
            task, m, value, standard_error, flags, status``, and ``derived`` if ``with_derived`` has been there.
        truth: columns ``problem, task, truth, truth_error``. Its order of tasks is kept.

    Returns:
        A table with columns ``problem, method, backend, sizes, points, repetition, task, m, derived, value,
        standard_error, truth, truth_error, error, status``.

    Raises:
        UserError: a task of the traces has no truth.
    """
    columns = [*KEYS, "points", "repetition", "task", "m", "derived", "value", "standard_error", "truth",
               "truth_error", "error", "status"]  # fmt: skip
    return _joined(traces, truth)[columns]


def errors(traces, truth):
    """Errors by problem, task, method, backend and sizes, over repetitions.

    Args:
        traces: as for ``estimates``.
        truth: as for ``estimates``.

    Returns:
        A table; see ``docs/results-schema.md`` and the top of this module. ``to_mc`` is the ratio of root mean
        squares to that of ``monte_carlo`` at the same sizes, over pairs of repetitions. ``coverage`` is the share of
        repetitions in which ``value +- 1.96 standard_error`` contains the truth; a method that has standard errors is
        not covered where it gave none.

    Raises:
        UserError: a task of the traces has no truth.
    """
    import pandas as pd

    groups = list(_groups(_joined(traces, truth)))
    plain = {_place(key): _by_repetition(rows) for key, rows in groups if key["method"] == BASELINE}
    out = []
    for key, rows in groups:
        error, te = _errors(rows), float(rows["truth_error"].iloc[0])
        mae, mse, sd = _mean(np.abs(error)), mean_of_squares(error**2), spread_interval(rows["value"])
        to_mc = (np.nan,) * 3
        if _place(key) in plain:
            to_mc = paired_ratio(_by_repetition(rows), plain[_place(key)], "rmse")
        out.append(
            key
            | {"repetitions": len(rows), "failed": _failed(error), "mae": mae[0], "mae_se": standard_error(error)}
            | {"mae_low": mae[1], "mae_high": mae[2]}
            | _named("rmse", np.sqrt(mse))
            | _named("bias", _bias(error, te))
            | _named("sd", sd)
            | {"variance_share": _share(sd[0] ** 2, mse[0] - te**2)}
            | _named("to_mc", to_mc)
            | _coverage(rows)
            | {"flagged": float((rows["flags"].fillna("") != "").mean()), "truth": float(rows["truth"].iloc[0]),
               "truth_error": te, "resolved": bool(mae[0] > 2 * te), "derived": bool(rows["derived"].iloc[0])}
        )  # fmt: skip
    return pd.DataFrame(out)


def decomposition(traces, truth):
    """The mean squared error split into squared bias and variance, by problem, task, method, backend and sizes.

    Args:
        traces: as for ``estimates``.
        truth: as for ``estimates``.

    Returns:
        A table with columns ``problem, task, method, backend, sizes, m, points, repetitions, truth_error`` and, each
        with ``_low`` and ``_high``, ``mse, bias2, variance``. ``mse`` is ``bias2 + variance``: the mean of squared
        errors less ``truth_error^2``. The interval of ``bias2`` is the range of squares of that of the bias: it begins
        at 0 where the bias cannot be told from 0, and the estimate may then lie below it. With a failed repetition
        ``mse`` is infinite and its parts are NaN.

    Raises:
        UserError: a task of the traces has no truth.
    """
    import pandas as pd

    out = []
    for key, rows in _groups(_joined(traces, truth)):
        error, n = _errors(rows), len(rows)
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
    return pd.DataFrame(out)


def sums(traces, truth):
    """Errors summed over an experiment's tasks, by problem, method, backend and sizes, over repetitions.

    Derived quantities are left out.

    Args:
        traces: as for ``estimates``.
        truth: as for ``estimates``.

    Returns:
        A table. ``sum_mae`` is the mean over repetitions of the sum over tasks of absolute errors, ``sum_se`` that of
        squared errors (its interval is a bootstrap's). ``truth_error`` is the sum over tasks: ``sum_mae`` is known to
        no better than that; ``resolved`` says whether it is above twice as much.

    Raises:
        UserError: a task of the traces has no truth.
    """
    import pandas as pd

    rows = _joined(traces, truth)
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
            | _named("sum_se", mean_of_squares(sum_of_errors(group, power=2)))
            | {"truth_error": te, "resolved": bool(total[0] > 2 * te)}
        )  # fmt: skip
    return pd.DataFrame(out)


def with_seconds(timings, errors):
    """Time beside error: seconds per repetition, and the error of each problem's last task.

    Args:
        timings: columns ``problem, method, backend, sizes, repetitions, seconds``, rows in the order in which a job did
            its sizes one after the other, some repetitions at a time: repetitions of this size so far, and seconds of
            the whole job so far.
        errors: what ``errors`` gave.

    Returns:
        A table with columns ``problem, method, backend, sizes, points, tasks, seconds_per_repetition, repetitions,
        task, mae, mae_low, mae_high``; a row per timed job and sizes. ``tasks`` leaves derived quantities out.
    """
    counts = errors[~errors["derived"]].groupby(KEYS)["task"].nunique().rename("tasks").reset_index()
    kept = [*KEYS, "points", "task", "mae", "mae_low", "mae_high"]
    table = last_task(errors)[kept].merge(counts, on=KEYS, how="left", validate="one_to_one")
    ends = timings.groupby(KEYS, sort=False)[["repetitions", "seconds"]].last().reset_index()
    before = ends.groupby(KEYS[:-1], sort=False)["seconds"].shift(fill_value=0.0)
    ends["seconds_per_repetition"] = (ends["seconds"] - before) / ends["repetitions"]
    table = table.merge(ends, on=KEYS, how="inner", validate="one_to_one")
    return table[[*KEYS, "points", "tasks", "seconds_per_repetition", "repetitions", "task", "mae", "mae_low",
                  "mae_high"]]  # fmt: skip


def metrics(errors) -> dict[str, dict[str, dict[str, float | None]]]:
    """Numbers to watch from one version to the next; None stands for what is not finite.

    Args:
        errors: what ``errors`` gave.

    Returns:
        By problem ``mae``, ``to_mc`` and ``coverage`` of its last task at the largest sizes, by ``{method}-{backend}``.
    """
    rows = last_task(errors)
    rows = rows.loc[rows.groupby(["problem", "method", "backend"], sort=False)["points"].idxmax()]
    out: dict[str, dict[str, dict[str, float | None]]] = {}
    for row in rows.to_dict("records"):
        found = out.setdefault(row["problem"], {})
        for name in ("mae", "to_mc", "coverage"):
            value = float(row[name]) if np.isfinite(row[name]) else None
            found.setdefault(name, {})[f"{row['method']}-{row['backend']}"] = value
    return out


def last_task(table):
    """The rows of each problem's last task: the one that it is about, such as the high fidelity or the evidence."""
    last = {problem: group["task"].iloc[-1] for problem, group in _tasks(table).groupby("problem", sort=False)}
    return table[table["task"] == table["problem"].map(last)].reset_index(drop=True)


def sum_of_errors(estimates, power: int = 1):
    """The sum over tasks of absolute errors, of every repetition; infinite where one failed or is not there.

    Args:
        estimates: rows of one problem, method, backend and sizes, columns ``task, repetition, error, status``.
        power: 1, or 2 for squared errors.

    Returns:
        A pandas series by repetition.
    """
    wide = estimates.assign(error=_errors(estimates)).pivot(index="repetition", columns="task", values="error")
    return (wide.abs().fillna(np.inf) ** power).sum(axis=1).sort_index()


def paired_ratio(mine, rival, of: str = "mae") -> tuple[float, float, float]:
    """The ratio of two mean errors over the repetitions that both have, and its bootstrap interval.

    Args:
        mine: errors by repetition, a pandas series, infinite where a repetition failed.
        rival: the same.
        of: ``mae`` or ``rmse``.

    Returns:
        Ratio and ends; infinite where mine failed, 0 where the rival did, NaN where both did. The ends are NaN for
        fewer than five repetitions.
    """
    power = {"mae": 1, "rmse": 2}[of]
    shared = mine.index.intersection(rival.index)
    a, b = (np.abs(series.loc[shared].to_numpy(float)) ** power for series in (mine, rival))
    lost = not np.isfinite(a).all(), not np.isfinite(b).all()
    if not len(shared) or all(lost):
        return np.nan, np.nan, np.nan
    if any(lost):
        bound = np.inf if lost[0] else 0.0
        return bound, bound, bound
    ratio, low, high = (value ** (1 / power) for value in _ratio_interval(a, b))
    return ratio, low, high


def mean_of_squares(squares) -> tuple[float, float, float]:
    """The mean of independent values that are not negative and its bootstrap interval; infinite where one is."""
    squares = np.asarray(squares, float)
    if not np.isfinite(squares).all():
        return np.inf, np.nan, np.nan
    return _ratio_interval(squares, np.ones_like(squares))


def spread_interval(sample) -> tuple[float, float, float]:
    """The standard deviation of independent normal values and its chi-square interval; NaN where one is not finite.

    >>> [round(v, 3) for v in spread_interval(np.array([1.0, 2.0, 3.0]))]
    [1.0, 0.521, 6.285]
    """
    from scipy.stats import chi2

    sample = np.asarray(sample, float)
    free = len(sample) - 1
    if free < 1 or not np.isfinite(sample).all():
        return np.nan, np.nan, np.nan
    sd = float(sample.std(ddof=1))
    low, high = (sd * np.sqrt(free / chi2.ppf(tail, free)) for tail in (0.5 + _LEVEL / 2, 0.5 - _LEVEL / 2))
    return sd, float(low), float(high)


def standard_error(error) -> float:
    """The standard error of the mean of absolute values; NaN for one of them, or where one is not finite."""
    error = np.abs(np.asarray(error, float))
    if len(error) < 2 or not np.isfinite(error).all():
        return np.nan
    return float(error.std(ddof=1) / np.sqrt(len(error)))


@functools.lru_cache(maxsize=4)
def _weights(n: int):
    """How often each of ``n`` repetitions is in each resample, divided by ``n``: ``(resamples, n)``."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n


def _ratio_interval(a, b) -> tuple[float, float, float]:
    """The ratio of two means of pairs and its interval: the bootstrap, studentised, of the logarithm.

    Percentiles of resampled ratios would be too narrow: of skewed values, such as squares, they cover 88 % at twenty
    repetitions, where this covers 94 %.

    References:
        Efron and Tibshirani, An introduction to the bootstrap, 1993, chapter 12.
    """
    n = len(a)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = float(a.mean() / b.mean())
        if n < FEWEST:
            return ratio, np.nan, np.nan
        if not 0 < ratio < np.inf:
            return ratio, ratio, ratio
        log, spread = _log_ratio(np.full((1, n), 1 / n), a, b)
        logs, spreads = _log_ratio(_weights(n), a, b)
        t = np.nan_to_num((logs - log) / spreads, nan=0.0, posinf=np.inf, neginf=-np.inf)
        tail = (1 - _LEVEL) / 2
        low, high = np.quantile(t, [tail, 1 - tail], method="inverted_cdf")
        return ratio, float(np.exp(log - high * spread)[0]), float(np.exp(log - low * spread)[0])


def _log_ratio(weights, a, b):
    """The logarithm of the ratio of weighted means, and its standard deviation to first order."""
    columns = np.stack([a, b, a * a, b * b, a * b], axis=1)
    a, b, aa, bb, ab = np.einsum("bn,nk->kb", weights, columns)  # in a fixed order of summation, unlike BLAS
    variance = aa / a**2 + bb / b**2 - 2 * ab / (a * b)
    return np.log(a / b), np.sqrt(np.maximum(variance, 1e-24))  # pairs in one proportion have none but rounding


def _joined(traces, truth):
    """The traces with the truth, in the order of problems, tasks, methods and points."""
    import pandas as pd

    known = truth.set_index(["problem", "task"])
    asked = pd.MultiIndex.from_frame(traces[["problem", "task"]])
    place = known.index.get_indexer(asked)
    if (place < 0).any():
        problem, task = asked[int(np.argmax(place < 0))]
        raise UserError(f"truth table: no row for task {task!r} of {problem!r}, which the traces have")
    columns = {name: known[name].to_numpy()[place] for name in ("truth", "truth_error")}
    derived = traces.get("derived", False)
    rows = traces.assign(**columns, derived=derived, place=place)
    rows["error"] = rows["value"] - rows["truth"]
    ranks = {name: pd.factorize(rows[name])[0] for name in ("problem", "method", "backend")}
    order = np.lexsort([rows["repetition"], pd.factorize(rows["sizes"])[0], rows["points"], ranks["backend"],
                        ranks["method"], rows["place"], ranks["problem"]])  # fmt: skip
    return rows.iloc[order].reset_index(drop=True)


def _groups(rows):
    """The repetitions of every problem, task, method, backend and sizes, with what identifies them."""
    names = ["problem", "task", "method", "backend", "sizes", "m", "points"]
    for key, group in rows.groupby(names, sort=False):
        yield dict(zip(names, key, strict=True)), group


def _place(key) -> tuple:
    return tuple(key[name] for name in ("problem", "task", "backend", "sizes"))


def _errors(rows):
    """Errors, infinite where a repetition failed."""
    error = rows["error"].to_numpy(float)
    return np.where(np.isfinite(error) & (rows["status"] == "ok").to_numpy(), error, np.inf)


def _all_flags(texts) -> str:
    """Flags that any of several tasks has, in the order in which they first appear."""
    return ",".join(dict.fromkeys(flag for text in texts for flag in text.split(",") if flag))


def _failed(errors) -> int:
    return int((~np.isfinite(errors)).sum())


def _mean(errors) -> tuple[float, float, float]:
    """Their mean and its t-interval; infinite where one is."""
    return mean_interval(errors) if np.isfinite(errors).all() else (np.inf, np.nan, np.nan)


def _by_repetition(rows):
    import pandas as pd

    return pd.Series(_errors(rows), index=rows["repetition"].to_numpy())


def _bias(error, truth_error: float) -> tuple[float, float, float]:
    """The mean error and its interval, the truth's own error included."""
    if not np.isfinite(error).all():
        return np.nan, np.nan, np.nan
    mean, low, high = mean_interval(error)
    half = float(np.hypot((high - low) / 2, NORMAL * truth_error))
    return mean, mean - half, mean + half


def _share(variance: float, mse: float) -> float:
    """The part of an unbiased mean squared error that is variance, at most 1."""
    return float(min(variance / mse, 1.0)) if np.isfinite(mse) and mse > 0 else np.nan


def _coverage(rows) -> dict[str, float]:
    deviation = rows["standard_error"].to_numpy(float)
    known = np.isfinite(deviation)
    if not known.any():
        return dict.fromkeys(("coverage", "coverage_low", "coverage_high", "standard_error_median"), np.nan)
    covered = known & (np.abs(_errors(rows)) <= NORMAL * np.where(known, deviation, 0.0))
    low, high = share_interval(int(covered.sum()), len(rows))
    return {"coverage": float(covered.mean()), "coverage_low": float(low), "coverage_high": float(high),
            "standard_error_median": float(np.median(deviation[known]))}  # fmt: skip


def _named(name: str, values) -> dict[str, float]:
    return {f"{name}{end}": float(value) for end, value in zip(("", "_low", "_high"), values, strict=True)}


def _tasks(table):
    """Problems and tasks, once each, in the order in which they first appear."""
    return table[["problem", "task"]].drop_duplicates()
