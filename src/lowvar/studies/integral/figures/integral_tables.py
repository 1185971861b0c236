"""Which rows of the tables of integrals a figure draws, and is saved with."""

from __future__ import annotations

import numpy as np

from lowvar.errors import UserError, unknown_name
from lowvar.studies.drawing.tables import Table, require

RUN = ("problem", "method", "backend", "sizes")
OF = {
    "error": "error of the estimate",
    "value": "estimate",
    "absolute": "sum of absolute errors",
    "squared": "sum of squared errors",
}
AXES = {"m": "points m of the task", "points": "points of all tasks"}


def of_errors(errors: Table, task: str | None = None, x: str | None = None) -> Table:
    """The rows that `errors` draws: one task of each problem, with the horizontal axis in a column ``axis``.

    Args:
        errors: the table of errors.
        task: which; if None, each problem's last. Problems without it are left out.
        x: ``m`` (points of the task) or ``points`` (of all tasks); if None, ``m`` where it says all of the sizes.

    Raises:
        UserError: a column is missing, a name is unknown, or nothing is left.
    """
    if x is not None and x not in AXES:
        raise unknown_name("axis", x, AXES)
    require(errors, (*RUN, "task", "m", "points", "mae", "mae_low", "mae_high", "failed", "truth_error"), "errors")
    rows = _of_task(_one_backend(errors), task, "errors")
    several = rows.groupby("problem")["sizes"].transform("nunique")
    own = rows.groupby("problem")["m"].transform("nunique") == several
    return rows.assign(axis=np.where(own, "m", "points") if x is None else x)


def of_estimates(
    estimates: Table, task: str | None = None, of: str | None = None, sizes: str | tuple[str, ...] | None = None
) -> Table:
    """The rows that `boxes` draws, with what it draws in a column ``drawn``, and what that is in ``of``.

    Args:
        estimates: the table of estimates.
        task: which; if None, each problem's last. Sums are over all tasks that are not derived from others.
        of: ``error`` or ``value`` of one task, or sums over tasks, ``absolute`` or ``squared``. If None, values where
            the tasks are derived from others, such as a log evidence, else errors.
        sizes: which; if None, all.

    Raises:
        UserError: a column is missing, a name is unknown, or nothing is left.
    """
    if of is not None and of not in OF:
        raise unknown_name("quantity", of, OF)
    needed = ("task", "m", "points", "repetition", "derived", "value", "error", "truth", "truth_error", "status")
    require(estimates, (*RUN, *needed), "estimates")
    rows = _of_sizes(_one_backend(estimates), sizes, "estimates")
    of = of or _natural(rows, task)
    failed = (rows["status"] != "ok") | ~np.isfinite(rows["error"])
    rows = rows.assign(drawn=rows["value" if of == "value" else "error"].where(~failed, np.nan), of=of)
    if of in ("error", "value"):
        return _of_task(rows, task, "estimates")
    rows = rows[~rows["derived"].astype(bool)]
    summed = rows.assign(drawn=rows["drawn"].abs() ** {"absolute": 1, "squared": 2}[of])
    summed = summed.groupby([*RUN, "points", "repetition", "of"], sort=False)["drawn"]
    return summed.agg(lambda errors: errors.sum(skipna=False)).reset_index()


def of_split(decomposition: Table, task: str | None = None, sizes: str | tuple[str, ...] | None = None) -> Table:
    """The rows that `split` draws: one task of each problem, from its fewest and its most points.

    Args:
        decomposition: mean squared errors, split.
        task: which; if None, each problem's last.
        sizes: which, in place of the fewest and the most.

    Raises:
        UserError: a column is missing, a name is unknown, or nothing is left.
    """
    parts = [f"{name}{end}" for name in ("mse", "bias2", "variance") for end in ("", "_low", "_high")]
    require(decomposition, (*RUN, "task", "points", *parts), "decomposition")
    rows = _of_task(_one_backend(decomposition), task, "decomposition")
    if sizes is not None:
        return _of_sizes(rows, sizes, "decomposition")
    points = rows.groupby("problem")["points"]
    ends = (rows["points"] == points.transform("min")) | (rows["points"] == points.transform("max"))
    return rows[ends].reset_index(drop=True)


def of_fits(fits: Table, task: str | None = None) -> Table:
    """The rows that `fits` draws: all, or those of one task.

    Raises:
        UserError: a column is missing, or the task is not in the table.
    """
    require(fits, ("problem", "task", "method", "x", "f", "fitted", "kind"), "fits")
    return fits if task is None else _of_task(fits, task, "fits")


def of_kernels(kernels: Table) -> Table:
    """The rows that `stein_kernels` draws: all.

    Raises:
        UserError: a column is missing.
    """
    require(kernels, ("kernel", "x", "y", "value"), "kernels")
    return kernels


def of_scores(scores: Table) -> Table:
    """The rows that `power_scores` draws: all.

    Raises:
        UserError: a column is missing.
    """
    require(scores, ("target", "temperature", "x", "score"), "scores")
    return scores


def of_predictive(predictive: Table) -> Table:
    """The rows that `predictive` draws: all.

    Raises:
        UserError: a column is missing.
    """
    require(predictive, ("series", "time", "mean", "low", "high", "observed"), "predictive")
    return predictive


def of_epochs(epochs: Table) -> Table:
    """The rows that `epochs` draws: all.

    Raises:
        UserError: a column is missing.
    """
    require(epochs, ("problem", "method", "part" if "part" in epochs else "epoch", "mae", "low", "high"), "epochs")
    return epochs


def of_seconds(seconds: Table) -> Table:
    """The rows that `integral_seconds` draws: every method on one backend.

    Raises:
        UserError: a column is missing.
    """
    require(seconds, (*RUN, "points", "seconds_per_repetition", "task", "mae", "mae_low", "mae_high"), "seconds")
    return _one_backend(seconds)


def _natural(estimates: Table, task: str | None) -> str:
    """What of the estimates of a task is drawn unless somebody says."""
    return "value" if _of_task(estimates, task, "estimates")["derived"].astype(bool).all() else "error"


def _one_backend(table: Table) -> Table:
    """Every method on the first backend that it has."""
    first = table.groupby(["problem", "method"], sort=False)["backend"].transform("first")
    return table[table["backend"] == first].reset_index(drop=True)


def _of_task(table: Table, task: str | None, what: str) -> Table:
    if task is None:
        chosen = table.groupby("problem", sort=False)["task"].transform("last")
    elif task in set(table["task"]):
        chosen = task
    else:
        raise unknown_name("task", task, set(table["task"]), where=f"{what} table")
    return table[table["task"] == chosen].reset_index(drop=True)


def _of_sizes(table: Table, sizes: str | tuple[str, ...] | None, what: str) -> Table:
    if sizes is None:
        return table
    wanted = [sizes] if isinstance(sizes, str) else list(sizes)
    rows = table[table["sizes"].isin(wanted)].reset_index(drop=True)
    if not len(rows):
        known = ", ".join(table["sizes"].drop_duplicates())
        raise UserError(f"{what} table: no rows of sizes {', '.join(wanted)}; there are {known}")
    return rows
