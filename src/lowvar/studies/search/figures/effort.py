"""How many evaluations each search needs for one target: all problems and methods at one glance."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, INK, SMALL, searchers, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.search.figures.search_tables import OF, at_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


@styled
def effort(table: Table, target: float = 1e-10, of: str = "mean", backend: str | None = None) -> Figure:
    """Draws median evaluations to a target, with 95 % intervals, and how many repetitions met it.

    Where no more than half of the repetitions met the target, an open triangle stands at the budget.

    Args:
        table: columns ``problem, method, backend, of, target, reached, repetitions, evaluations_median,
            evaluations_low, evaluations_high, budget``.
        target: precision above the optimum, one of the table's.
        of: ``mean`` (f at the distribution's mean) or ``best`` (best evaluated point).
        backend: which backend's runs; if None, each method's first.

    Returns:
        A figure with one panel for each problem, a row for each method.

    Raises:
        UserError: a column is missing, a name is unknown, or the target is not in the table.
    """
    from matplotlib.lines import Line2D

    rows = at_target(table, target, of, backend)
    names = tables.problems(rows)
    looks = searchers(rows["method"])
    columns = min(len(names), _COLUMNS)
    height = math.ceil(len(names) / columns)
    fig = panels.figure(height * (0.235 * len(looks) + 0.75) + 0.25)
    axes = list(fig.subplots(height, columns, squeeze=False).flat)
    for spare in axes[len(names) :]:
        spare.remove()
    ends = _ends(rows)
    for rank, (name, ax) in enumerate(zip(names, axes, strict=False)):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], looks, ends)
        if rank % columns == 0:
            words = [textwrap.shorten(look.label, 22, placeholder="...") for look in looks.values()]
            ax.set_yticks(range(len(looks)), words)
        if rank + columns >= len(names):
            ax.set_xlabel("evaluations")
    keys: list = [
        Line2D([], [], ls="", marker="o", color=FAINT, mec=INK, mew=0.6, label=f"median to {target:g}, {OF[of]}"),
        Line2D([], [], marker="|", ms=6, lw=1.6, color=FAINT, label="95 % interval"),
        Line2D([], [], ls="", marker=">", ms=7, mfc="none", mew=1.4, color=FAINT, label="not within this budget"),
        Line2D([], [], ls="", marker="$n/m$", ms=16, color=FAINT, mew=0.3, label="runs that met it"),
    ]
    lines.legend(fig, keys)
    return fig


def _ends(rows: Table) -> tuple[float, float]:
    known = rows[["evaluations_median", "evaluations_low", "evaluations_high", "budget"]].to_numpy(float)
    known = known[np.isfinite(known) & (known > 0)]
    low, high = math.log10(known.min()), math.log10(known.max())
    if math.floor(high) - math.ceil(low) < 1:  # two powers of ten, for two ticks
        low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    room = 0.07 * max(high - low, 0.5)
    return low - room, high + room


def _panel(ax: Axes, rows: Table, looks: dict, ends: tuple[float, float]) -> None:
    ax.set_xscale("log")
    span = ends[1] - ends[0]
    ax.set_xlim(10 ** ends[0], 10 ** (ends[1] + 0.36 * span))  # room for the counts at the right
    powers = [10.0**power for power in range(math.ceil(ends[0]), math.floor(ends[1]) + 1)]
    if len(powers) > 1:
        ax.set_xticks(powers, [f"$10^{{{round(math.log10(power))}}}$" for power in powers])
        ax.minorticks_off()
    ax.set_ylim(len(looks) - 0.4, -0.6)
    ax.set_yticks(range(len(looks)), [""] * len(looks))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    count: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": SMALL}
    for y, (method, look) in enumerate(looks.items()):
        ax.axhline(y, color="#F0F0F0", lw=6, zorder=0)
        here = rows[rows["method"] == method]
        if not len(here):
            ax.text(0.98, y, "not run", transform=ax.get_yaxis_transform(), color=FAINT, **count)
            continue
        row = here.iloc[0]
        middle, low, high = (float(row[f"evaluations_{part}"]) for part in ("median", "low", "high"))
        budget = float(row["budget"])
        if np.isfinite(low):
            right = high if np.isfinite(high) else budget
            style = {"color": look.colour, "lw": 1.8, "marker": "|", "ms": 7, "zorder": 2}
            ax.plot([low, right], [y, y], label=f"{method}: 95 %", **style)
        if np.isfinite(middle):
            ax.plot(max(middle, 1.0), y, ls="", color=look.colour, marker=look.marker, ms=7, mec=INK, mew=0.6,
                    label=method, zorder=3)  # fmt: skip
        else:
            style = {"marker": ">", "ms": 8, "mfc": "white", "mew": 1.6, "zorder": 3}
            ax.plot(budget, y, ls="", color=look.colour, label=f"{method}: not within", **style)
        words = f"{int(row['reached'])}/{int(row['repetitions'])}"
        weight = "bold" if row["reached"] == row["repetitions"] else "normal"
        ax.text(0.99, y, words, transform=ax.get_yaxis_transform(), color=INK, weight=weight, **count)
