"""Which rows of a table a figure draws; what is selected here is also what is saved beside the picture."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeAlias

from lowvar.errors import UserError, unknown_name

Table: TypeAlias = Any  # a pandas.DataFrame, whose own types are too loose to check

DECOMPOSITION = ("problem", "method", "block", "source", "variance", "low", "high")
CONVERGENCE = ("problem", "method", "backend", "step_size", "gap_mean", "gap_low", "gap_high")
FATE = ("repetitions", "diverged")
AXES = {
    "passes": "passes over the data",
    "iteration": "iteration",
    "oracles": "gradient evaluations (data rows)",
    "seconds": "time (seconds)",
    "epoch": "epoch",
}


def require(table: Table, columns: Iterable[str], what: str) -> None:
    """Raises UserError unless ``table`` has every one of ``columns``, and at least one row.

    Args:
        table: what was given.
        columns: what the figure reads.
        what: the table's name, for the message.
    """
    missing = [name for name in columns if name not in table.columns]
    if missing:
        near = difflib.get_close_matches(missing[0], [str(name) for name in table.columns], n=1, cutoff=0.7)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UserError(f"{what} table: no column {', '.join(map(repr, missing))}{hint}; see docs/results-schema.md")
    if not len(table):
        raise UserError(f"{what} table: no rows, so there is nothing to draw")


def problems(table: Table) -> list[str]:
    """The problems of a table, in the order in which they first appear."""
    return list(table["problem"].drop_duplicates())


def at_end(decomposition: Table) -> Table:
    """The rows that `shares` draws: every estimator at the run's last moment, over all parameters.

    Args:
        decomposition: the table of components; see docs/results-schema.md.

    Raises:
        UserError: a column is missing, or no row is of the end and of block ``"all"``.
    """
    require(decomposition, (*DECOMPOSITION, "end", "share", "share_low", "share_high"), "decomposition")
    rows = decomposition[decomposition["end"].eq(True) & (decomposition["block"] == "all")]
    if not len(rows):
        raise UserError("decomposition table: no row with end = True and block = 'all'")
    return rows.reset_index(drop=True)


def along_run(decomposition: Table, blocks: Iterable[str] = ("all", "mu")) -> Table:
    """The rows that `along` draws: totals of every estimator, and the two floors, which are naive's parts.

    Args:
        decomposition: the table of components.
        blocks: which parameter blocks; those that the table lacks are left out.

    Raises:
        UserError: a column is missing, or none of the blocks was measured.
    """
    require(decomposition, (*DECOMPOSITION, "iteration"), "decomposition")
    blocks = list(blocks)
    floor = (decomposition["method"] == "naive") & decomposition["source"].isin(["subsampling", "monte_carlo"])
    rows = decomposition[decomposition["block"].isin(blocks) & ((decomposition["source"] == "total") | floor)]
    if not len(rows):
        raise UserError(f"decomposition table: no total variance for any of the blocks {', '.join(blocks)}")
    return rows.reset_index(drop=True)


def at_best_step(convergence: Table, x: str = "passes") -> Table:
    """The rows that `convergence` draws: every method at its best step size.

    A method without a best step (every one diverged) is kept at its smallest, so that it is reported.

    Args:
        convergence: the table of gaps.
        x: the horizontal axis, one of ``passes``, ``iteration``, ``oracles``, ``seconds``, ``epoch``.

    Raises:
        UserError: a column is missing, or ``x`` is no axis.
    """
    if x not in AXES:
        raise unknown_name("axis", x, AXES)
    require(convergence, (*CONVERGENCE, *FATE, "best", x), "convergence")
    best = convergence["best"].eq(True)
    runs = [convergence[name] for name in ("problem", "method", "backend")]
    smallest = convergence["step_size"] == convergence["step_size"].groupby(runs, dropna=False).transform("min")
    rows = convergence[best | (~best.groupby(runs, dropna=False).transform("any") & smallest)]
    return rows.sort_values([*("problem", "method", "backend"), x], kind="stable", key=_kept_order).reset_index(
        drop=True
    )


def at_last_iteration(convergence: Table) -> Table:
    """The rows that `steps` draws: the last row of every method and step size.

    Args:
        convergence: the table of gaps.

    Raises:
        UserError: a column is missing.
    """
    require(convergence, (*CONVERGENCE, *FATE, "iteration", "elbo_mean", "elbo_low", "elbo_high"), "convergence")
    runs = [convergence[name] for name in ("problem", "method", "backend", "step_size")]
    rows = convergence.loc[convergence["iteration"].groupby(runs, dropna=False).idxmax()]
    return rows.sort_index().reset_index(drop=True)


def _kept_order(column):
    """Sort text by first appearance, numbers by size."""
    import pandas as pd

    return pd.Series(pd.factorize(column)[0], column.index) if column.dtype.kind not in "iuf" else column
