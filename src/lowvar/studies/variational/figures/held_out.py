"""What runs predict on rows that were held out: along iterations, and against how many rows they learnt from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.style import estimators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.variational.figures.diagnostic_tables import of_fractions, of_tests

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORDS = "test log-likelihood\n(nats per row)"


@styled
def held_out(table: Table, sizes: str = "best", task: str | None = None) -> Figure:
    """Draws the test log-likelihood along runs, means over repetitions with 95 % bands.

    The axis is logarithmic in the distance to a little above the best.

    Args:
        table: columns ``problem, method, backend, step_size, best, epoch, iteration, quantity, mean, low, high,
            diverged``; of its quantities ``test_log_likelihood``.
        sizes: ``best``, each method at its best step size; or ``each``, a panel for each step size of one problem.
        task: the problem of ``each``; the table's first if None.

    Returns:
        A figure with one panel for each problem, or for each step size.

    Raises:
        UserError: a column is missing, a name is unknown, or no rows were held out.
    """
    rows = of_tests(table, sizes, task)
    by = "problem" if sizes == "best" else "step_size"
    groups = list(rows[by].drop_duplicates())
    groups = groups if sizes == "best" else sorted(groups, reverse=True)
    looks = estimators(rows["method"])
    fig, axes = panels.grid(len(groups))
    for group, ax in zip(groups, axes, strict=True):
        ax.set_title(group if sizes == "best" else f"{rows['problem'].iloc[0]}, first step {group:g}")
        _along(ax, rows[rows[by] == group], looks)
    panels.label(axes, "iteration", _WORDS)
    for ax in axes[1::2]:
        ax.set_ylabel("")
    lines.legend(fig, lines.keys(looks))
    return fig


@styled
def sizes(table: Table) -> Figure:
    """Draws the test log-likelihood at the end against the part of the training rows that was learnt from.

    Args:
        table: columns ``task, problem, method, backend, best, rows, fraction, mean, low, high, diverged``.

    Returns:
        A figure with one panel for each model and dataset.

    Raises:
        UserError: a column is missing.
    """
    rows = of_fractions(table)
    tasks = list(rows["task"].drop_duplicates())
    looks = estimators(rows["method"])
    fig, axes = panels.grid(len(tasks), height=3.1)
    for task, ax in zip(tasks, axes, strict=True):
        ax.set_title(task.replace("_", " "))
        _against_fractions(ax, rows[rows["task"] == task], looks)
    panels.label(axes, "training rows used (%)", _WORDS)
    lines.legend(fig, lines.keys(looks))
    return fig


def _along(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[np.isfinite(rows["mean"])]
    if not len(drawn):
        panels.say(ax, "all runs diverged")
        return
    ax.grid()
    for method, look in looks.items():
        line = drawn[drawn["method"] == method].sort_values("iteration")
        if len(line):
            x, middle, low, high = (line[name].to_numpy(float) for name in ("iteration", "mean", "low", "high"))
            lines.band(ax, x, low, high, look, f"{method}: 95 %")
            ax.plot(x, middle, label=method, markevery=max(1, len(line) // 8), **lines.kind(look))
    panels.run_axis(ax, drawn["iteration"].to_numpy())
    floor = panels.elbo_axis(ax, drawn.rename(columns={"mean": "elbo_mean", "high": "elbo_high"}))
    ax.set_ylabel("")
    last = rows["iteration"] == rows.groupby("method")["iteration"].transform("max")
    lost = set(rows.loc[last & (rows["diverged"] > 0), "method"])
    highest = drawn.groupby("method")["mean"].max()
    below = set(highest[highest < floor].index)
    notes = [f"{word}: {', '.join(look.label for method, look in looks.items() if method in found)}"
             for word, found in (("diverged", lost), ("below", below - lost)) if found]  # fmt: skip
    if notes:
        panels.note(ax, "; ".join(notes))


def _against_fractions(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[np.isfinite(rows["mean"])]
    if not len(drawn):
        panels.say(ax, "all runs diverged")
        return
    ax.grid()
    here = [method for method in looks if (drawn["method"] == method).any()]
    apart = 1.2 * (np.arange(len(here)) - (len(here) - 1) / 2)  # so that whiskers stand side by side, in per cent
    for method, beside in zip(here, apart, strict=True):
        line, look = drawn[drawn["method"] == method].sort_values("fraction"), looks[method]
        x = 100 * line["fraction"].to_numpy(float) + beside
        middle, low, high = (line[name].to_numpy(float) for name in ("mean", "low", "high"))
        ax.vlines(x, low, high, color=look.colour, lw=2.5, alpha=0.6, label=f"{method}: 95 %")
        ax.plot(x, middle, label=method, **lines.kind(look))
    ends = drawn["mean"].min(), drawn["mean"].max()
    room = 0.12 * (ends[1] - ends[0]) or 1e-3
    low = min(max(np.nanmin(drawn["low"].to_numpy(float), initial=ends[0]), ends[0] - 4 * room), ends[0])
    high = max(min(np.nanmax(drawn["high"].to_numpy(float), initial=ends[1]), ends[1] + 4 * room), ends[1])
    ax.set_ylim(low - room, high + room)
    parts = sorted({round(100 * part) for part in drawn["fraction"]})
    ax.set_xticks(parts, [f"{part:g}" for part in parts])
    ax.set_xlim(min(parts) - 5, max(parts) + 5)
    lost = rows[rows["diverged"] > 0]
    if len(lost):
        names = [look.label for method, look in looks.items() if (lost["method"] == method).any()]
        panels.note(ax, f"diverged: {', '.join(names)}")
