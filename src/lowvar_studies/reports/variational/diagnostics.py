"""Errors of gradients along runs and predictions of held-out rows: tables made from traces with diagnostics.

An estimator with carryover has two errors. The conditional variance, ``variance``, is that of the fresh noise, given
the past. The true squared error, ``squared_error``, is the expected squared distance to the exact gradient and includes
the carried error. Without carryover the two are equal.

Signal-to-noise ratios are as in Fujisawa and Sato (2021), Section 4.2: the squared norm of the gradient over a standard
deviation. ``snr_conditional_1`` and ``snr_true_1`` are dimensionless: norms over standard deviations. Conditional
ratios use ``mean2`` and ``variance``, true ones from ``signal`` and ``squared_error``.

The squared carried error of one run is a single draw of a random variable: only its mean over repetitions is comparable
with an expected square. Means of ``squared_error`` and ``signal`` are therefore arithmetic, and true ratios are ratios
of such means. A geometric mean would be too low.
"""

from collections.abc import Mapping

import numpy as np

from lowvar.core.intervals import mean_interval, ratio_of_means
from lowvar_studies.reports.declarations import KEYS, Table, columns
from lowvar_studies.reports.variational.gathering import COUNTS, LINE, PROGRESS, looks_at, models, rows

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
"""Every positive quantity as a product of columns: their powers."""
REALISED = ("squared_error", "signal", "snr_true", "snr_true_1")  # arithmetic means, and ratios of means
_ERRORS = ("variance", "mean2", "squared_error", "signal", "reference_error")
_MEASURED = ("particles", "state_bytes", "test_log_likelihood", *_ERRORS)
_LINE = [*KEYS, "step_size"]
_RESOLUTION = 0.1  # fraction of a correction's error below which a corrected value is indistinguishable from 0
_DRAWS = 100  # nominal number of draws in the error of ``mean2``: the tables lack the actual one
_LEAST = 1e-3  # fraction of a positive mean at which its interval is cut off


def measured(traces, convergence):
    """Every repetition at every evaluated epoch, with signal-to-noise ratios.

    Args:
        traces: the traces of all runs in one table; columns that a run did not measure may be missing or NaN.
        convergence: the table ``convergence``, for its column ``best``.
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
    "If runs measure errors of gradients, have a schedule or test rows: a row for every repetition, step size and "
    "evaluated epoch. It decides claims about gradients. Columns that a run did not measure are NaN. `squared_error` "
    "and `signal` are corrected for the noise of the reference gradient, `mean2` for that of a mean over draws; they "
    "can be near or below zero. They are then set to the resolution, a tenth of that noise, and `unresolved` is true.",
    columns(LINE, """
    best | bool | | whether `step_size` is the best step size
    repetition | int64 | | from 0
    epoch | int64 | epochs | epochs done
    iteration | int64 | updates | updates done
    gradients | int64 | data rows | gradients so far
    hvps | int64 | data rows | Hessian-vector products so far
    elbo | float64 | nats | ELBO
    particles | int64 | | particles of the next step
    state_bytes | float64 | bytes | as in the trace
    test_log_likelihood | float64 | nats per row | as in the trace
    variance | float64 | nats^2 | conditional variance
    mean2 | float64 | nats^2 | squared norm of the conditional mean, at least a thousandth of `variance`
    squared_error | float64 | nats^2 | true squared error, at least a tenth of `reference_error`
    signal | float64 | nats^2 | squared norm of the exact gradient, at least a tenth of `reference_error`
    reference_error | float64 | nats^2 | trace of the variance of the reference gradient
    snr_conditional | float64 | nats | `mean2 / sqrt(variance)`; NaN where either is not positive, as below
    snr_true | float64 | nats | `signal / sqrt(squared_error)`
    snr_conditional_1 | float64 | | `sqrt(mean2 / variance)`
    snr_true_1 | float64 | | `sqrt(signal / squared_error)`
    unresolved | bool | | whether a corrected value was below the resolution
    status | string | | `ok` or `diverged`, as in the trace
    """),
    lambda gathered: measured(gathered.traces, gathered["convergence"]),
    when=looks_at(),
)  # fmt: skip


def diagnostics(measures):
    """Means over repetitions in long form: a row for each run, step size, epoch and measured quantity.

    Args:
        measures: the table ``measured``.
    """
    out = []
    names = [name for name in QUANTITIES if measures[name].notna().any()]
    for key, group in measures.groupby([*_LINE, "best", "epoch"], sort=False):
        lost = _lost(group)
        head = dict(zip((*_LINE, "best", "epoch"), key, strict=True)) | _at(group, lost)
        for name in names:
            if group[name].isna().all() and not lost:
                continue
            scheduled = name == "particles"  # known also where the ELBO is lost
            mean, low, high, count = _mean(name, group, 0 if scheduled else lost)
            out.append({**head, "quantity": name, "mean": mean, "low": low, "high": high, "repetitions": count})
    return DIAGNOSTICS.frame(out)


DIAGNOSTICS = Table(
    "diagnostics",
    "If there is a table `measured`: its means over repetitions. A row for each problem, method, backend, step size, "
    "epoch and quantity. Means of `variance`, `mean2`, `snr_conditional` and `snr_conditional_1` are geometric, with "
    "t-intervals of the logarithm. Means of `squared_error`, `signal`, `particles` and `test_log_likelihood` are "
    "arithmetic; intervals of the first two are cut off below at a thousandth of the mean. `snr_true` and `snr_true_1` "
    "are ratios of the means of `signal` and `squared_error`, with jackknife intervals of the logarithm.",
    columns(LINE, "best | bool | | whether `step_size` is the best step size", PROGRESS, """
    gradients | float64 | data rows | gradients so far, mean over repetitions
    particles | float64 | | particles of the next step, mean over repetitions
    quantity | string | | a column of `measured`: `variance`, `squared_error`, `signal`, `particles`, a ratio, ...
    mean.. | float64 | the quantity's | its mean; NaN if a repetition diverged, but for `particles`
    repetitions | int64 | | repetitions in the mean, without those where a positive quantity is 0
    diverged | int64 | | repetitions that diverged
    unresolved | int64 | | repetitions that are `unresolved`
    """),
    lambda gathered: diagnostics(gathered["measured"]),
    when=looks_at(),
)  # fmt: skip


def fractions(measures, problems: Mapping, rows: Mapping[str, int]):
    """The final test log-likelihood against the number of training rows.

    Args:
        measures: the table ``measured``.
        problems: ``{name: ModelSpec}``: problems with the same model, dataset and guide are one task.
        rows: training rows of each problem.

    Returns:
        A row for each problem with test rows, method, backend and step size.
    """
    task = {
        name: f"{model.model} on {model.dataset}" + (f" ({model.family})" if model.guide else "")
        for name, model in problems.items()
    }
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
    "If problems train one model on several shares of a dataset's rows: the final test log-likelihood. A row for each "
    "problem with test rows, method, backend and step size.",
    columns("task | string | | model and dataset: `{model} on {dataset} ({guide})`, if it has one", LINE, """
    best | bool | | whether `step_size` is the best step size
    rows | int64 | rows | training rows
    fraction | float64 | | `rows` divided by the task's largest
    mean.. | float64 | nats per row | test log-likelihood, mean over repetitions; NaN if one diverged
    """, COUNTS),
    lambda gathered: fractions(gathered["measured"], models(gathered), rows(gathered)),
    when=looks_at("fractions"),
)  # fmt: skip
TABLES = (MEASURED, DIAGNOSTICS, FRACTIONS)


def _lost(group) -> int:
    return int((group["status"] != "ok").sum())


def _at(group, lost: int) -> dict[str, float]:
    """Progress of a group of repetitions, and how many diverged or are unresolved."""
    return {"iteration": int(group["iteration"].iloc[0]), "gradients": float(group["gradients"].mean()),
            "particles": float(group["particles"].mean()), "diverged": lost,
            "unresolved": int(group["unresolved"].sum())}  # fmt: skip


def _of_means(parts, rows, lost):
    """``ratio_of_means`` of columns with their powers, and the number of repetitions that have all columns."""
    values = rows[list(parts)].to_numpy(float)
    values = values[np.isfinite(values).all(1)]
    if lost or not len(values):
        return np.nan, np.nan, np.nan, len(values)
    return *ratio_of_means(zip(parts.values(), values.T, strict=True)), len(values)


def _mean(name, rows, lost):
    """Mean, interval and count of a column's finite values; NaN if repetitions diverged."""
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
    with np.errstate(over="ignore", invalid="ignore"):  # errors of diverged runs can overflow
        mean, low, high = mean_interval(values)
    return mean, max(low, _LEAST * mean) if name in REALISED else low, high, len(values)
