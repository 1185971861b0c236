"""Estimates of integrals beside the truth, and errors by repetition: tables made from traces.

An error is an estimate less the truth. A repetition has failed if its estimate is not finite; a method with a failed
repetition has an infinite mean error, and no other statistics.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.reports.declarations import RUN, Table, columns
from lowvar_studies.reports.integral.gathering import SIZES, problems, samples

KEYS = ["problem", "method", "backend", "sizes"]


def with_derived(traces, problems: Mapping[str, Any]):
    """Adds quantities that are derived from several integrals, such as a log evidence, to the traces as tasks.

    Args:
        traces: the traces of all runs in one table; see ``estimates``.
        problems: integral problems by name; problems of the traces that are missing have no derived quantities.

    Returns:
        The traces with a column ``derived``, followed by a row per derived quantity, repetition, method, backend and
        sizes: ``m`` is ``points``, there is no standard error, and the flags are those of all tasks. A derived quantity
        has failed if one of its integrals has.
    """
    import pandas as pd

    out = [traces.assign(derived=False)]
    for problem, rows in traces.groupby("problem", sort=False):
        source = problems.get(str(problem))
        if source is None or not source.derived:
            continue
        for _, group in rows.groupby([*KEYS, "points"], sort=False):
            wide = group.pivot(index="repetition", columns="task", values="value").reindex(columns=list(source.tasks))
            first = group.drop_duplicates("repetition").set_index("repetition").loc[wide.index].reset_index()
            flags = group.groupby("repetition")["flags"].agg(_all_flags).loc[wide.index].to_numpy()
            failed = group.assign(bad=group["status"] != "ok").groupby("repetition")["bad"].any().to_numpy()
            for name, derive in source.derived.items():
                value = np.where(failed, np.nan, np.asarray(derive(wide.to_numpy(float)), float))
                out.append(
                    first.assign(task=name, m=first["points"], value=value, standard_error=np.nan, flags=flags,
                                 status=np.where(np.isfinite(value), "ok", "failed"), derived=True)
                )  # fmt: skip
    return pd.concat(out, ignore_index=True)


def _all_flags(texts) -> str:
    """The flags of several tasks, in order of first appearance."""
    return ",".join(dict.fromkeys(flag for text in texts for flag in text.split(",") if flag))


def joined(traces, truth):
    """The traces with the truth, in the order of problems, tasks, methods and points."""
    import pandas as pd

    truths = truth.set_index(["problem", "task"])
    pairs = pd.MultiIndex.from_frame(traces[["problem", "task"]])
    place = truths.index.get_indexer(pairs)
    if (place < 0).any():
        problem, task = pairs[int(np.argmax(place < 0))]
        raise UserError(f"truth table: no row for task {task!r} of {problem!r}, which the traces have")
    columns = {name: truths[name].to_numpy()[place] for name in ("truth", "truth_error")}
    derived = traces.get("derived", False)
    rows = traces.assign(**columns, derived=derived, place=place)
    rows["error"] = rows["value"] - rows["truth"]
    ranks = {name: pd.factorize(rows[name])[0] for name in ("problem", "method", "backend")}
    order = np.lexsort([rows["repetition"], pd.factorize(rows["sizes"])[0], rows["points"], ranks["backend"],
                        ranks["method"], rows["place"], ranks["problem"]])  # fmt: skip
    return rows.iloc[order].reset_index(drop=True)


def estimates(traces, truth):
    """Every estimate beside the truth: a row per repetition and task.

    Args:
        traces: the traces of all runs in one table, columns ``problem, method, backend, sizes, points, repetition,
            task, m, value, standard_error, flags, status``, and ``derived`` if they come from ``with_derived``.
        truth: columns ``problem, task, truth, truth_error``; tasks keep its order.

    Raises:
        UserError: a task of the traces has no truth.
    """
    return ESTIMATES.frame(joined(traces, truth))


def _traces(gathered):
    return with_derived(gathered.traces, gathered.once(problems))


def of_traces(make):
    """A ``Table.make`` from a function of the traces and the truth."""
    return lambda gathered: make(gathered.once(_traces), gathered["truth"])


ESTIMATES = Table(
    "estimates",
    "A row for every estimate, with the truth. Repetitions of the same number share points across methods, so errors "
    "can be compared in pairs.",
    columns(RUN, SIZES, """
    repetition | int64 | | from 0
    task | string | | as in the trace, or a derived quantity
    m | int64 | points | as in the trace
    derived | bool | | whether the task is derived from others
    value | float64 | f's | the estimate
    standard_error | float64 | f's | the method's own
    truth | float64 | f's | true value
    truth_error | float64 | f's | its standard error
    error | float64 | f's | `value - truth`
    status | string | | `ok` or `failed`, as in the trace
    """),
    of_traces(estimates),
)  # fmt: skip


def _truth(gathered):
    import pandas as pd

    drawn = gathered.once(samples)
    return pd.concat([pd.DataFrame(one.truth).assign(problem=name) for name, one in drawn.items()], ignore_index=True)


TRUTH = Table(
    "truth",
    "A row for each integral, and for each quantity derived from several.",
    columns("""
    problem | string | | the experiment's name for the problem
    task | string | | the problem's name for the integral, or for a derived quantity
    truth | float64 | f's | true value
    truth_error | float64 | f's | its standard error; 0 if exact
    how | string | | method of computation: the rule, its nodes or draws
    """),
    _truth,
)  # fmt: skip


def last_task(table):
    """The rows of each problem's last task, the one of interest, such as the high fidelity or the evidence."""
    last = {problem: group["task"].iloc[-1] for problem, group in _tasks(table).groupby("problem", sort=False)}
    return table[table["task"] == table["problem"].map(last)].reset_index(drop=True)


def _tasks(table):
    """Unique pairs of problem and task, in order of first appearance."""
    return table[["problem", "task"]].drop_duplicates()


def sum_of_errors(estimates):
    """The sum over tasks of absolute errors, by repetition; infinite if a task failed or is missing.

    Args:
        estimates: rows of one problem, method, backend and sizes, columns ``task, repetition, error, status``.

    Returns:
        A pandas series by repetition.
    """
    wide = estimates.assign(error=signed_errors(estimates)).pivot(index="repetition", columns="task", values="error")
    return wide.abs().fillna(np.inf).sum(axis=1).sort_index()


def standard_error(error) -> float:
    """The standard error of the mean of absolute values; NaN for a single value, or if one is not finite."""
    error = np.abs(np.asarray(error, float))
    if len(error) < 2 or not np.isfinite(error).all():
        return np.nan
    return float(error.std(ddof=1) / np.sqrt(len(error)))


def signed_errors(rows):
    """Errors, infinite for failed repetitions."""
    error = rows["error"].to_numpy(float)
    return np.where(np.isfinite(error) & (rows["status"] == "ok").to_numpy(), error, np.inf)
