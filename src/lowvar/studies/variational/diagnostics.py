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

from collections.abc import Mapping

import numpy as np

from lowvar.analysis.intervals import mean_interval, ratio_of_means
from lowvar.studies.base import Table, columns
from lowvar.studies.variational.gathering import COUNTS, KEYS, LINE, PROGRESS, looks_at, models, rows

RATIOS = ("snr_conditional", "snr_true", "snr_conditional_1", "snr_true_1")
POSITIVE = ("variance", "squared_error", "signal", "mean2", *RATIOS)
QUANTITIES = (*POSITIVE, "particles", "test_log_likelihood")
PARTS = {
    **{name: {name: 1.0} for name in ("variance", "squared_error", "signal", "mean2")},
    "snr_conditional": {"mean2": 1.0, "variance": -0.5},
    "snr_true": {"signal": 1.0, "squared_error": -0.5},
    "snr_conditional_1": {"mean2": 0.5, "variance": -0.5},
    "snr_true_1": {"signal": 0.5, "squared_error": -0.5},
}
"""What every positive quantity is a product of, and their powers."""
REALISED = ("squared_error", "signal", "snr_true", "snr_true_1")  # of which means are arithmetic, ratios those of means
_MEASURED = ("particles", "test_log_likelihood", "variance", "mean2", "squared_error", "signal", "reference_error")
_RUN = list(KEYS)
_LINE = [*_RUN, "step_size"]
_RESOLUTION = 0.1  # parts of a correction's own error below which a corrected number is not told from 0
_DRAWS = 100  # what stands for the number of draws, which tables do not have, in the error of ``mean2``
_LEAST = 1e-3  # parts of a mean of positive values below which its interval does not reach


def measured(traces, convergence):
    """Every repetition at every stop, with signal-to-noise ratios.

    Args:
        traces: the traces of all runs in one table; columns that a run did not measure may be missing or NaN.
        convergence: what ``convergence`` gave, for its ``best``.
    """
    complete = traces.assign(**{name: np.nan for name in _MEASURED if name not in traces})
    best = convergence[[*_LINE, "best"]].drop_duplicates()
    table = complete.merge(best, on=_LINE, how="left", validate="many_to_one")
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
    return MEASURED.frame(table.assign(unresolved=low))


MEASURED = Table(
    "measured",
    "Where runs measure errors of gradients, have a schedule or test rows: every repetition at every stop and step "
    "size. Claims about gradients are judged by it. Columns that a run did not measure are NaN. `squared_error` and "
    "`signal` are corrected for the noise of the reference gradient, `mean2` for that of a mean over draws, and can "
    "come out near or below zero. They are then the resolution, a tenth of that noise, and `unresolved` is true.",
    columns(LINE, """
    best | bool | | whether `step_size` is the best step
    repetition | int64 | | from 0
    epoch | int64 | epochs | epochs done
    iteration | int64 | updates | updates done
    gradients | int64 | data rows | gradients so far
    hvps | int64 | data rows | Hessian-vector products so far
    elbo | float64 | nats | ELBO
    particles | int64 | | particles of the next step
    test_log_likelihood | float64 | nats per row | as in the trace
    variance | float64 | nats^2 | conditional variance
    mean2 | float64 | nats^2 | squared norm of the mean given the past, at least a thousandth of `variance`
    squared_error | float64 | nats^2 | true squared error, at least a tenth of `reference_error`
    signal | float64 | nats^2 | squared norm of the exact gradient, at least a tenth of `reference_error`
    reference_error | float64 | nats^2 | trace of the variance of the reference gradient
    snr_conditional | float64 | nats | `mean2 / sqrt(variance)`; NaN where either is not above 0, as the ratios below
    snr_true | float64 | nats | `signal / sqrt(squared_error)`
    snr_conditional_1 | float64 | | `sqrt(mean2 / variance)`
    snr_true_1 | float64 | | `sqrt(signal / squared_error)`
    unresolved | bool | | whether a corrected value was below its resolution
    status | string | | `ok` or `diverged`, as in the trace
    """),
    lambda gathered: measured(gathered.traces, gathered["convergence"]),
    when=looks_at(),
)  # fmt: skip


def diagnostics(measures):
    """Means over repetitions, in long form: a row for each line, epoch and quantity that was measured.

    Args:
        measures: what ``measured`` gave.
    """
    out = []
    names = [name for name in QUANTITIES if measures[name].notna().any()]
    for key, group in measures.groupby([*_LINE, "best", "epoch"], sort=False):
        lost = _lost(group)
        head = dict(zip((*_LINE, "best", "epoch"), key, strict=True)) | _at(group, lost)
        for name in names:
            if group[name].isna().all() and not lost:
                continue
            mean, low, high, count = _mean(name, group, lost)
            out.append({**head, "quantity": name, "mean": mean, "low": low, "high": high, "repetitions": count})
    return DIAGNOSTICS.frame(out)


DIAGNOSTICS = Table(
    "diagnostics",
    "Where `measured` is: its means over repetitions, a row for each problem, method, backend, step size, epoch and "
    "quantity. Means of `variance`, `mean2`, `snr_conditional` and `snr_conditional_1` are geometric, their "
    "intervals t-intervals of the logarithm. Those of `squared_error`, `signal`, `particles` and `test_log_likelihood` "
    "are arithmetic; the interval of the first two ends at a thousandth of the mean. `snr_true` and `snr_true_1` are "
    "ratios of the means of `signal` and `squared_error`, their intervals the jackknife's of the logarithm.",
    columns(LINE, "best | bool | | whether `step_size` is the best step", PROGRESS, """
    gradients | float64 | data rows | gradients so far, mean over repetitions
    particles | float64 | | particles of the next step, mean over repetitions
    quantity | string | | a column of `measured`: `variance`, `squared_error`, `signal`, `particles`, a ratio, ...
    mean.. | float64 | the quantity's | its mean; NaN if a repetition diverged
    repetitions | int64 | | repetitions in the mean; those where a positive quantity is 0 are left out
    diverged | int64 | | how many diverged
    unresolved | int64 | | how many are `unresolved`
    """),
    lambda gathered: diagnostics(gathered["measured"]),
    when=looks_at(),
)  # fmt: skip


def repair(measures):
    """The error that is left at the end, and the result: a row for each run at its best step size.

    Args:
        measures: what ``measured`` gave.
    """
    out = []
    for key, run in measures.groupby(_RUN, sort=False):
        mine = run[run["best"]] if run["best"].any() else run[run["step_size"] == run["step_size"].min()]
        end = mine[mine["epoch"] == mine["epoch"].max()]
        lost = _lost(end)
        row = dict(zip(_RUN, key, strict=True)) | _at(end, lost)
        row |= {"step_size": float(end["step_size"].iloc[0]), "epoch": int(end["epoch"].iloc[0]),
                "repetitions": len(end)}  # fmt: skip
        statistics = {"ratio": _of_means({"squared_error": 1.0, "variance": -1.0}, end, lost)}
        statistics |= {name: _mean(name, end, lost) for name in _AT_THE_END}
        for name, values in statistics.items():
            row |= dict(zip((f"{name}_mean", f"{name}_low", f"{name}_high"), values[:3], strict=True))
        out.append(row)
    return REPAIR.frame(out)


_AT_THE_END = ("variance", "squared_error", "snr_true", "snr_true_1", "elbo", "test_log_likelihood")
REPAIR = Table(
    "repair",
    "Where `measured` is: the error that is left at the end, and the result. A row for each problem, method and "
    "backend, at the best step (the smallest where every one diverged, with means of NaN). Means and intervals are "
    "as in `diagnostics`. `ratio_mean` is the ratio of arithmetic means, its interval the jackknife's of the "
    "logarithm.",
    columns(LINE, PROGRESS, """
    gradients | float64 | data rows | gradients of the run
    particles | float64 | | particles of a step at the end
    ratio_mean.. | float64 | | mean true squared error divided by mean conditional variance; 1 without carryover
    variance_mean.. | float64 | nats^2 | conditional variance
    squared_error_mean.. | float64 | nats^2 | true squared error
    snr_true_mean.. | float64 | nats | true signal-to-noise ratio, the paper's
    snr_true_1_mean.. | float64 | | the same without a unit
    elbo_mean.. | float64 | nats | ELBO
    test_log_likelihood_mean.. | float64 | nats per row | test log-likelihood
    """, COUNTS, "unresolved | int64 | | how many are `unresolved`"),
    lambda gathered: repair(gathered["measured"]),
    when=looks_at(),
)  # fmt: skip


def fractions(measures, problems: Mapping, rows: Mapping[str, int]):
    """The test log-likelihood at the end against the number of training rows.

    Args:
        measures: what ``measured`` gave.
        problems: ``{name: ModelSpec}``, for ``split.train`` and to tell which problems differ in nothing else.
        rows: data rows that each problem learns from.

    Returns:
        A row for each line (problem, method, backend, step size) of problems with test rows.
    """
    task = {name: f"{model.model} on {model.dataset}" for name, model in problems.items()}
    most = {one: max(rows[name] for name in problems if task[name] == one) for one in task.values()}
    tested = measures[measures["test_log_likelihood"].notna() | (measures["status"] != "ok")]
    out = []
    for key, run in tested.groupby([*_LINE, "best"], sort=False):
        name = key[0]
        if measures.loc[measures["problem"] == name, "test_log_likelihood"].isna().all():
            continue
        end = run[run["epoch"] == run["epoch"].max()]
        lost = _lost(end)
        mean, low, high, count = _mean("test_log_likelihood", end, lost)
        out.append({"task": task[name], **dict(zip((*_LINE, "best"), key, strict=True)), "rows": rows[name],
                    "fraction": rows[name] / most[task[name]], "mean": mean, "low": low, "high": high,
                    "repetitions": count, "diverged": lost})  # fmt: skip
    return FRACTIONS.frame(out)


FRACTIONS = Table(
    "fractions",
    "Where problems are one model and dataset learnt from several shares of its rows: the test log-likelihood at the "
    "end, a row for each problem with test rows, method, backend and step size.",
    columns("task | string | | model and dataset: `{model} on {dataset}`", LINE, """
    best | bool | | whether `step_size` is the best step
    rows | int64 | rows | training rows
    fraction | float64 | | `rows` divided by the most of the task
    mean.. | float64 | nats per row | test log-likelihood, mean over repetitions; NaN if one diverged
    """, COUNTS),
    lambda gathered: fractions(gathered["measured"], models(gathered), rows(gathered)),
    when=looks_at("fractions"),
)  # fmt: skip
TABLES = (MEASURED, DIAGNOSTICS, REPAIR, FRACTIONS)


def _lost(group) -> int:
    return int((group["status"] != "ok").sum())


def _at(group, lost: int) -> dict[str, float]:
    """Where along their runs the repetitions of a group are, and what is wrong with them."""
    return {"iteration": int(group["iteration"].iloc[0]), "gradients": float(group["gradients"].mean()),
            "particles": float(group["particles"].mean()), "diverged": lost,
            "unresolved": int(group["unresolved"].sum())}  # fmt: skip


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
