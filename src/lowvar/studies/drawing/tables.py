"""Which rows of a table a figure draws; what is selected here is also what is saved beside the picture."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeAlias

from lowvar.errors import UserError, unknown_name
from lowvar.studies.variational.noises import first_noise

Table: TypeAlias = Any  # a pandas.DataFrame, whose own types are too loose to check

DECOMPOSITION = ("problem", "method", "block", "source", "variance", "low", "high")
CONVERGENCE = ("problem", "method", "backend", "step_size",
               *(f"{y}_{part}" for y in ("gap", "elbo") for part in ("mean", "low", "high")))  # fmt: skip
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
    decomposition = first_noise(decomposition)
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
    blocks, decomposition = list(blocks), first_noise(decomposition)
    floor = (decomposition["method"] == "naive") & decomposition["source"].isin(["subsampling", "monte_carlo"])
    rows = decomposition[decomposition["block"].isin(blocks) & ((decomposition["source"] == "total") | floor)]
    if not len(rows):
        raise UserError(f"decomposition table: no total variance for any of the blocks {', '.join(blocks)}")
    return rows.reset_index(drop=True)


def split_of_naive(decomposition: Table) -> Table:
    """The rows that `split_along` draws: naive's total and its parts, and the total of one other on each problem.

    That is ``joint`` where it was measured, else the one with the least variance at the end.

    Args:
        decomposition: the table of components.

    Raises:
        UserError: a column is missing, or there is no ``naive``.
    """
    require(decomposition, (*DECOMPOSITION, "iteration", "end"), "decomposition")
    rows = first_noise(decomposition)
    rows = rows[rows["block"] == "all"]
    if not (rows["method"] == "naive").any():
        raise UserError("decomposition table: no method 'naive', whose variance is to be split")
    others = rows[(rows["method"] != "naive") & (rows["source"] == "total")]
    chosen = {name: "joint" if (here["method"] == "joint").any() else _lowest(here)
              for name, here in others.groupby("problem", sort=False)}  # fmt: skip
    other = (rows["method"] == rows["problem"].map(chosen)) & (rows["source"] == "total")
    return rows[(rows["method"] == "naive") | other].reset_index(drop=True)


def _lowest(rows: Table) -> str:
    ends = rows[rows["end"].eq(True)].sort_values("variance")
    return str((ends if len(ends) else rows)["method"].iloc[0])


def by_scheme(schemes: Table) -> Table:
    """The rows that `schemes` draws: totals of the block ``all``, where there are as many independent points.

    Args:
        schemes: the variance under each way of drawing noise.

    Raises:
        UserError: a column is missing, or there is only independent noise.
    """
    needed = ("problem", "eps", "samples", "method", "block", "source", "variance",
              "to_iid", "to_iid_low", "to_iid_high")  # fmt: skip
    require(schemes, needed, "schemes")
    rows = schemes[(schemes["block"] == "all") & (schemes["source"] == "total") & (schemes["eps"] != "iid")]
    if not len(rows):
        raise UserError("schemes table: only independent noise, so there is nothing to compare")
    return rows.reset_index(drop=True)


def on_envelope(convergence: Table, x: str = "passes") -> Table:
    """The rows that `convergence` draws: every method at the step size that was best at each epoch.

    A method that has none at its end (every one diverged) keeps the end of its smallest, so that it is reported.

    Args:
        convergence: the table of ELBOs and gaps.
        x: the horizontal axis, one of ``passes``, ``iteration``, ``oracles``, ``seconds``, ``epoch``.

    Raises:
        UserError: a column is missing, or ``x`` is no axis.
    """
    if x not in AXES:
        raise unknown_name("axis", x, AXES)
    require(convergence, (*CONVERGENCE, *FATE, "envelope", "epoch", x), "convergence")
    runs = [convergence[name] for name in ("problem", "method", "backend")]
    envelope = convergence["envelope"].eq(True)
    end = convergence["epoch"] == convergence["epoch"].groupby(runs, dropna=False).transform("max")
    smallest = convergence["step_size"] == convergence["step_size"].groupby(runs, dropna=False).transform("min")
    without = ~(envelope & end).groupby(runs, dropna=False).transform("any")
    rows = convergence[envelope | (without & end & smallest)]
    return rows.sort_values([*("problem", "method", "backend"), x], kind="stable", key=_kept_order).reset_index(
        drop=True
    )


def at_last_iteration(convergence: Table) -> Table:
    """The rows that `steps` draws: the last row of every method and step size.

    Args:
        convergence: the table of ELBOs and gaps.

    Raises:
        UserError: a column is missing.
    """
    require(convergence, (*CONVERGENCE, *FATE, "iteration"), "convergence")
    runs = [convergence[name] for name in ("problem", "method", "backend", "step_size")]
    rows = convergence.loc[convergence["iteration"].groupby(runs, dropna=False).idxmax()]
    return rows.sort_index().reset_index(drop=True)


def _kept_order(column):
    """Sort text by first appearance, numbers by size."""
    import pandas as pd

    return pd.Series(pd.factorize(column)[0], column.index) if column.dtype.kind not in "iuf" else column
