"""How good gradients are along a run: tables out of traces with diagnostics, and of runs on held-out rows.

An estimator that carries its past has two errors. Given the past, only fresh noise is random: that variance is
``variance``, the conditional one. What it has summed up since its first step is an error too: ``squared_error`` is the
expected squared distance to the gradient itself, the true one. For an estimator without a past they are the same.

Signal-to-noise ratios are as in Fujisawa and Sato (2021), Section 4.2, the squared norm of the gradient over a standard
deviation; ``snr_conditional_1`` and ``snr_true_1`` are norms over standard deviations, which have no unit. Conditional
ones are of ``mean2`` and ``variance``, true ones of ``signal`` and ``squared_error``.

The square of the error that a run's past has left is one value of a random number, of which only the mean over
repetitions is comparable with an expected square: means of ``squared_error`` and ``signal`` are arithmetic, and true
ratios are those of the means. A geometric mean of such values lies below what is expected.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from lowvar.analysis.decomposition import mean_interval
from lowvar.studies.variational import published

RATIOS = ("snr_conditional", "snr_true", "snr_conditional_1", "snr_true_1")
POSITIVE = ("variance", "squared_error", "signal", "mean2", *RATIOS)
QUANTITIES = (*POSITIVE, "points", "test_log_likelihood")
PARTS = {
    **{name: {name: 1.0} for name in ("variance", "squared_error", "signal", "mean2")},
    "snr_conditional": {"mean2": 1.0, "variance": -0.5},
    "snr_true": {"signal": 1.0, "squared_error": -0.5},
    "snr_conditional_1": {"mean2": 0.5, "variance": -0.5},
    "snr_true_1": {"signal": 0.5, "squared_error": -0.5},
}
"""What every positive quantity is a product of, and their powers."""
REALISED = ("squared_error", "signal", "snr_true", "snr_true_1")  # of which means are arithmetic, ratios those of means
_MEASURED = ("points", "test_log_likelihood", "variance", "mean2", "squared_error", "signal", "reference_error")
_RUN = ["problem", "method", "backend"]
_LINE = [*_RUN, "step_size"]
_RESOLUTION = 0.1  # parts of a correction's own error below which a corrected number is not told from 0
_DRAWS = 100  # what stands for the number of draws, which tables do not have, in the error of ``mean2``
_LEAST = 1e-3  # parts of a mean of positive values below which its interval does not reach


def measured(traces, convergence):
    """Every repetition at every stop, with signal-to-noise ratios: what claims about gradients are judged by.

    Args:
        traces: the traces of all runs in one table; columns that a run did not measure may be missing or NaN.
        convergence: what ``convergence`` gave, for its ``best``.

    Returns:
        A table; see ``docs/results-schema.md``. ``squared_error`` and ``signal`` are corrected for the noise of the
        reference gradient and can come out near or below zero. They are then a tenth of ``reference_error``, the
        resolution, and ``unresolved`` is true. So it is with ``mean2``, which is corrected for the noise of a mean
        over draws: it is at least a tenth of a hundredth of ``variance``.
    """
    known = traces.assign(**{name: np.nan for name in _MEASURED if name not in traces})
    best = convergence[[*_LINE, "best"]].drop_duplicates()
    table = known.merge(best, on=_LINE, how="left", validate="many_to_one")
    of_reference, of_draws = table["reference_error"].clip(lower=0), table["variance"].clip(lower=0) / _DRAWS
    low = np.zeros(len(table), bool)
    for name, error in {"squared_error": of_reference, "signal": of_reference, "mean2": of_draws}.items():
        least = _RESOLUTION * error
        low |= table[name] < least
        table[name] = table[name].where(~(table[name] < least), least)
    for kind, (top, bottom) in {"conditional": ("mean2", "variance"), "true": ("signal", "squared_error")}.items():
        squared, noise = table[top].where(table[top] > 0), table[bottom].where(table[bottom] > 0)
        table[f"snr_{kind}"] = squared / np.sqrt(noise)
        table[f"snr_{kind}_1"] = np.sqrt(squared / noise)
    columns = ["best", "repetition", "epoch", "iteration", "gradients", "hvps", "elbo", *_MEASURED, *RATIOS]
    return table.assign(unresolved=low)[[*_LINE, *columns, "unresolved", "status"]]


def diagnostics(measures):
    """Means over repetitions, in long form: a row for each line, epoch and quantity that was measured.

    Args:
        measures: what ``measured`` gave.

    Returns:
        A table; see ``docs/results-schema.md``. Means of ``variance``, ``mean2`` and conditional ratios are geometric,
        their intervals t-intervals of the logarithm; zeros are left out of ``repetitions``. True ratios are those of
        arithmetic means, their intervals the jackknife's; all other means are arithmetic. Where any repetition
        diverged, means are NaN.
    """
    import pandas as pd

    out = []
    there = [name for name in QUANTITIES if measures[name].notna().any()]
    for key, group in measures.groupby([*_LINE, "best", "epoch"], sort=False):
        lost = int((group["status"] != "ok").sum())
        head = dict(zip((*_LINE, "best", "epoch"), key, strict=True))
        head |= {"iteration": int(group["iteration"].iloc[0]), "gradients": float(group["gradients"].mean()),
                 "points": float(group["points"].mean())}  # fmt: skip
        for name in there:
            if group[name].isna().all() and not lost:
                continue
            mean, low, high, count = _mean(name, group, lost)
            out.append({**head, "quantity": name, "mean": mean, "low": low, "high": high, "repetitions": count,
                        "diverged": lost, "unresolved": int(group["unresolved"].sum())})  # fmt: skip
    columns = [*_LINE, "best", "epoch", "iteration", "gradients", "points", "quantity", "mean", "low", "high",
               "repetitions", "diverged", "unresolved"]  # fmt: skip
    return pd.DataFrame(out, columns=columns)


def repair(measures):
    """What is left of the error at the end, and what came of it: a row for each run at its best step size.

    A method that diverged at every step size has the row of its smallest, with means of NaN.

    Args:
        measures: what ``measured`` gave.

    Returns:
        A table; see ``docs/results-schema.md``. ``ratio`` is the mean true squared error divided by the mean
        conditional variance, 1 but for noise where the estimator keeps no past.
    """
    import pandas as pd

    out = []
    for key, run in measures.groupby(_RUN, sort=False):
        mine = run[run["best"]] if run["best"].any() else run[run["step_size"] == run["step_size"].min()]
        end = mine[mine["epoch"] == mine["epoch"].max()]
        lost = int((end["status"] != "ok").sum())
        row = {**dict(zip(_RUN, key, strict=True)), "step_size": float(end["step_size"].iloc[0]),
               "epoch": int(end["epoch"].iloc[0]), "iteration": int(end["iteration"].iloc[0]),
               "gradients": float(end["gradients"].mean()), "points": float(end["points"].mean())}  # fmt: skip
        found = {name: _mean(name, end, lost)[:3] for name in ("variance", "squared_error", "snr_true", "snr_true_1",
                                                               "elbo", "test_log_likelihood")}  # fmt: skip
        ratio = _of_means({"squared_error": 1.0, "variance": -1.0}, end, lost)[:3]
        for name, ends in {"ratio": ratio, **found}.items():
            row |= dict(zip((f"{name}_mean", f"{name}_low", f"{name}_high"), ends, strict=True))
        out.append({**row, "repetitions": len(end), "diverged": lost, "unresolved": int(end["unresolved"].sum())})
    return pd.DataFrame(out)


def fractions(measures, problems: Mapping, rows: Mapping[str, int]):
    """The test log-likelihood at the end against how many rows were learnt from.

    Args:
        measures: what ``measured`` gave.
        problems: ``{name: ModelSpec}``, for ``split.train`` and to tell which problems are the same but for it.
        rows: data rows that each problem learns from.

    Returns:
        A table; see ``docs/results-schema.md``: a row for each line (problem, method, backend, step size) of
        problems with a test part. ``fraction`` is of the largest of the problems of one model and dataset.
    """
    import pandas as pd

    task = {name: f"{model.model} on {model.dataset}" for name, model in problems.items()}
    most = {one: max(rows[name] for name in problems if task[name] == one) for one in task.values()}
    tested = measures[measures["test_log_likelihood"].notna() | (measures["status"] != "ok")]
    out = []
    for key, run in tested.groupby([*_LINE, "best"], sort=False):
        name = key[0]
        if measures.loc[measures["problem"] == name, "test_log_likelihood"].isna().all():
            continue
        end = run[run["epoch"] == run["epoch"].max()]
        lost = int((end["status"] != "ok").sum())
        mean, low, high, count = _mean("test_log_likelihood", end, lost)
        out.append({"task": task[name], **dict(zip((*_LINE, "best"), key, strict=True)), "rows": rows[name],
                    "fraction": rows[name] / most[task[name]], "mean": mean, "low": low, "high": high,
                    "repetitions": count, "diverged": lost})  # fmt: skip
    columns = ["task", *_LINE, "best", "rows", "fraction", "mean", "low", "high", "repetitions", "diverged"]
    return pd.DataFrame(out, columns=columns)


def sensitivity(convergence, schedules: Mapping):
    """The ELBO at the end over first step sizes and settings of the step schedule.

    Args:
        convergence: what ``convergence`` gave.
        schedules: ``{(problem, method, backend): ScheduleSpec or None}``; only those of kind ``step`` are taken.

    Returns:
        A table; see ``docs/results-schema.md``. ``below`` is how far the mean ELBO is below the best of its problem.
    """
    last = convergence["epoch"] == convergence.groupby(_RUN)["epoch"].transform("max")
    rows = convergence[last].reset_index(drop=True)
    plans = [schedules.get(key) for key in rows[_RUN].itertuples(index=False, name=None)]
    kept = [plan for plan in plans if plan is not None and plan.kind == "step"]
    rows = rows[[plan is not None and plan.kind == "step" for plan in plans]]
    rows = rows.assign(beta=[float(plan.beta) for plan in kept], r=[int(plan.r) for plan in kept])
    top = rows["elbo_mean"].where(np.isfinite(rows["elbo_mean"])).groupby(rows["problem"]).transform("max")
    rows = rows.assign(below=(top - rows["elbo_mean"]).where(np.isfinite(rows["elbo_mean"]), np.inf))
    columns = [*_LINE, "beta", "r", "epoch", "iteration", "elbo_mean", "elbo_low", "elbo_high", "below", "repetitions",
               "diverged"]  # fmt: skip
    return rows[columns].reset_index(drop=True)


def selected(convergence, schedules: Mapping, problems: Mapping):
    """Step sizes and schedules that were chosen, beside the published ones (Table 3 of Fujisawa and Sato).

    Args:
        convergence: what ``convergence`` gave.
        schedules: ``{(problem, method, backend): ScheduleSpec or None}``.
        problems: ``{name: ModelSpec}``.

    Returns:
        A table; see ``docs/results-schema.md``: a row for each run, at its best step size (NaN where every one
        diverged).
    """
    import pandas as pd

    out = []
    for key, run in convergence.groupby(_RUN, sort=False):
        name, method, _ = key
        model, plan = problems[name], schedules.get(key)
        chosen = run.loc[run["best"], "step_size"]
        said = published.of(published.SELECTED, model.model, model.dataset).get(method, {})
        ours = {"step_size": float(chosen.iloc[0]) if len(chosen) else np.nan,
                "beta": _number(plan, "beta"), "r": _number(plan, "r")}  # fmt: skip
        theirs = {f"published_{column}": float(said.get(column, np.nan)) for column in ours}
        schedule = "" if plan is None else plan.kind
        out.append({**dict(zip(_RUN, key, strict=True)), "schedule": schedule, **ours, **theirs})
    return pd.DataFrame(out)


def pace(measures, timings):
    """Seconds of a step in every stretch between measurements: what claims about falling times are judged by.

    Args:
        measures: what ``measured`` gave.
        timings: of the runs that were timed here; None if none was.

    Returns:
        A table; see ``docs/results-schema.md``. Seconds are of one run: the job's, shared out evenly. It has no rows
        of runs that were not timed.
    """
    import pandas as pd

    kinds = {**dict.fromkeys(_RUN, "str"), **dict.fromkeys(("epoch", "iteration", "steps"), int), "points": float,
             "seconds": float}  # fmt: skip
    if timings is None:
        return pd.DataFrame(columns=list(kinds)).astype(kinds)
    stops = measures.groupby([*_RUN, "epoch"], sort=False)[["iteration", "points"]].mean().reset_index()
    both = stops.merge(timings[[*_RUN, "epoch", "seconds_per_run"]], on=[*_RUN, "epoch"], validate="one_to_one")
    out = []
    for key, run in both.groupby(_RUN, sort=False):
        run = run.sort_values("epoch")
        steps, seconds = np.diff(run["iteration"]), np.diff(run["seconds_per_run"])
        moved = steps > 0
        part = pd.DataFrame({"epoch": run["epoch"].to_numpy()[1:], "iteration": run["iteration"].to_numpy(int)[1:],
                             "points": run["points"].to_numpy(float)[:-1], "steps": steps.astype(int)})  # fmt: skip
        part = part[moved].assign(seconds=seconds[moved] / steps[moved])
        out.append(part.assign(**dict(zip(_RUN, key, strict=True))))
    return pd.concat(out, ignore_index=True)[list(kinds)] if out else pd.DataFrame(columns=list(kinds)).astype(kinds)


def ratio_of_means(parts: Iterable) -> tuple[float, float, float]:
    """A product of powers of arithmetic means over the same repetitions, and its 95 % interval.

    The interval is the jackknife's of the logarithm, over repetitions.

    Args:
        parts: pairs of a power and values that are not negative, ``(repetitions,)``, or ``(repetitions, iterations)``:
            then the logarithm of the mean is averaged over iterations. All have the same repetitions.

    Returns:
        The product and the ends of its interval; NaN where a mean is zero, or without two repetitions.

    >>> [round(v, 3) for v in ratio_of_means([(1, [1.0, 2.0, 3.0]), (-1, [1.0, 1.0, 1.0])])]
    [2.0, 0.56, 7.138]
    """
    parts = [(power, np.asarray(values, float)) for power, values in parts]
    count = len(parts[0][1])

    def logarithm(*left_out):
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            means = [(power, np.delete(values, list(left_out), 0).mean(0)) for power, values in parts]
            return sum(power * np.log(mean).mean() for power, mean in means)

    whole = logarithm() if count else np.nan
    if count < 2 or not np.isfinite(whole):
        return float(np.exp(whole)) if np.isfinite(whole) else np.nan, np.nan, np.nan
    with np.errstate(invalid="ignore"):
        _, low, high = mean_interval(count * whole - (count - 1) * np.array([logarithm(at) for at in range(count)]))
    half = (high - low) / 2
    return float(np.exp(whole)), float(np.exp(whole - half)), float(np.exp(whole + half))


def _of_means(parts, rows, lost):
    """``ratio_of_means`` of columns, given with their powers, and the count of repetitions that have them all."""
    values = rows[list(parts)].to_numpy(float)
    values = values[np.isfinite(values).all(1)]
    if lost or not len(values):
        return np.nan, np.nan, np.nan, len(values)
    return *ratio_of_means(zip(parts.values(), values.T, strict=True)), len(values)


def _mean(name, rows, lost):
    """Mean, interval and count of a column's finite values; NaN where repetitions were lost."""
    if name in REALISED and len(PARTS[name]) > 1:
        return _of_means(PARTS[name], rows, lost)
    values = rows[name].to_numpy(float)
    values = values[np.isfinite(values)]
    geometric = name in POSITIVE and name not in REALISED
    if geometric:
        values = values[values > 0]
    if lost or not len(values):
        return np.nan, np.nan, np.nan, len(values)
    if geometric:
        return *(float(np.exp(v)) for v in mean_interval(np.log(values))), len(values)
    with np.errstate(over="ignore", invalid="ignore"):  # errors of runs that are lost can be as large as numbers go
        mean, low, high = mean_interval(values)
    return mean, max(low, _LEAST * mean) if name in REALISED else low, high, len(values)


def _number(plan, name):
    value = getattr(plan, name, None)
    return np.nan if value is None else float(value)
