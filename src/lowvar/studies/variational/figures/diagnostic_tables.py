"""Which rows figures of gradients along runs, of held-out rows and of settings draw, and save beside the picture."""

from __future__ import annotations

import numpy as np

from lowvar.errors import UserError, unknown_name
from lowvar.studies.drawing.tables import Table, require

DIAGNOSTICS = ("problem", "method", "backend", "step_size", "best", "epoch", "iteration", "quantity", "mean", "low",
               "high", "diverged")  # fmt: skip
RATIOS = {"paper": ("snr_true", "snr_conditional"), "plain": ("snr_true_1", "snr_conditional_1")}
SIZES = ("best", "each")
_BACKENDS = ("jax", "torch")


def of_variances(diagnostics: Table) -> Table:
    """The rows that `variance` draws: true and conditional errors at each method's best step size.

    Args:
        diagnostics: the table of quantities along runs; see docs/results-schema.md.

    Raises:
        UserError: a column is missing, or gradients were not measured.
    """
    return _at_best(diagnostics, ("squared_error", "variance"))


def of_ratios(diagnostics: Table, of: str = "paper") -> Table:
    """The rows that `snr` draws, at each method's best step size.

    Args:
        diagnostics: the table of quantities along runs.
        of: ``paper`` or ``plain``; see `snr`.

    Raises:
        UserError: as `of_variances`, or ``of`` is neither.
    """
    if of not in RATIOS:
        raise unknown_name("signal-to-noise ratio", of, RATIOS)
    return _at_best(diagnostics, RATIOS[of])


def of_points(diagnostics: Table) -> Table:
    """The rows that `points` draws, at each method's best step size.

    Args:
        diagnostics: the table of quantities along runs.

    Raises:
        UserError: a column is missing, or no method counts its points.
    """
    return _at_best(diagnostics, ("points",))


def of_tests(diagnostics: Table, sizes: str = "best", task: str | None = None) -> Table:
    """The rows that `test` draws.

    Args:
        diagnostics: the table of quantities along runs.
        sizes: ``best`` (each method at its best step size) or ``each`` (all step sizes of one problem).
        task: the problem of ``each``; the table's first if None.

    Raises:
        UserError: a column is missing, a name is unknown, or no rows were held out.
    """
    if sizes not in SIZES:
        raise unknown_name("choice of step sizes", sizes, SIZES)
    if sizes == "best":
        return _at_best(diagnostics, ("test_log_likelihood",))
    rows = _chosen(diagnostics, ("test_log_likelihood",))
    names = list(rows["problem"].drop_duplicates())
    if task is not None and task not in names:
        raise unknown_name("problem", task, names)
    return rows[rows["problem"] == (task or names[0])].reset_index(drop=True)


def of_cost(seconds: Table) -> Table:
    """The rows that `cost` draws: each method's times, which all its step sizes share.

    Args:
        seconds: the table of convergence with seconds.

    Raises:
        UserError: a column is missing, or nothing was timed.
    """
    require(seconds, ("problem", "method", "backend", "epoch", "iteration", "seconds"), "seconds")
    rows = _first_backend(seconds)[["problem", "method", "backend", "epoch", "iteration", "seconds"]]
    rows = rows[np.isfinite(rows["seconds"])].drop_duplicates(["problem", "method", "epoch"])
    if not len(rows):
        raise UserError("seconds table: no times, so there is nothing to draw")
    return rows.reset_index(drop=True)


def of_fractions(fractions: Table) -> Table:
    """The rows that `sizes` draws: the end of each method at its best step size.

    Args:
        fractions: the table of test log-likelihoods by how many rows were learnt from.

    Raises:
        UserError: a column is missing, or a table without rows.
    """
    columns = ("task", "problem", "method", "backend", "best", "rows", "fraction", "mean", "low", "high", "diverged")
    require(fractions, columns, "fractions")
    rows = _first_backend(fractions)
    return rows[_best_or_first(rows)].sort_values(["task", "method", "fraction"], kind="stable").reset_index(drop=True)


def of_settings(sensitivity: Table) -> Table:
    """The rows that `sensitivity` draws: all of one backend.

    Args:
        sensitivity: the table of ELBOs by step size and schedule.

    Raises:
        UserError: a column is missing, or a table without rows.
    """
    columns = ("problem", "backend", "step_size", "beta", "r", "below", "elbo_mean", "elbo_low", "elbo_high")
    require(sensitivity, columns, "sensitivity")
    return _first_backend(sensitivity).reset_index(drop=True)


def _chosen(table: Table, quantities: tuple[str, ...]) -> Table:
    require(table, DIAGNOSTICS, "diagnostics")
    rows = _first_backend(table[table["quantity"].isin(quantities)])
    if not len(rows):
        raise UserError(f"diagnostics table: {' and '.join(quantities)} were not measured in any run")
    return rows.reset_index(drop=True)


def _at_best(table: Table, quantities: tuple[str, ...]) -> Table:
    rows = _chosen(table, quantities)
    rows = rows[_best_or_first(rows)]
    return rows.sort_values(["problem", "method", "quantity", "iteration"], kind="stable", key=_kept).reset_index(
        drop=True
    )


def _best_or_first(rows: Table) -> Table:
    """The best step size, or the smallest where every one diverged."""
    runs = [rows[name] for name in ("problem", "method", "backend")]
    none = ~rows["best"].eq(True).groupby(runs).transform("any")
    smallest = rows["step_size"] == rows["step_size"].groupby(runs).transform("min")
    return rows["best"].eq(True) | (none & smallest)


def _first_backend(rows: Table) -> Table:
    """Of each problem and method the first backend that it ran in."""
    if not len(rows):
        return rows
    order = rows["backend"].map(lambda name: _BACKENDS.index(name) if name in _BACKENDS else len(_BACKENDS))
    return rows[order == order.groupby([rows["problem"], rows["method"]]).transform("min")]


def _kept(column):
    """Sort text by first appearance, numbers by size."""
    import pandas as pd

    return pd.Series(pd.factorize(column)[0], column.index) if column.dtype.kind not in "iuf" else column
