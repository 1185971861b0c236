"""Which share of all targets a search has met after so many evaluations per dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, searchers, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.search.figures.search_tables import of_profiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def profiles(table: Table, of: str = "mean", backend: str | None = None) -> Figure:
    """Draws empirical distributions of running times, as COCO does, but without simulated restarts.

    The first panel pools all problems, for the methods that were run on all of them. A line ends in a cross where
    its budget does: what it did not meet by then counts as not met.

    Args:
        table: columns ``problem, method, backend, of, evaluations_per_dim, share, targets, budget_per_dim``.
        of: ``mean`` (f at the distribution's mean) or ``best`` (best evaluated point).
        backend: which backend's runs; if None, each method's first.

    Returns:
        A figure with one panel for all problems and one for each.

    Raises:
        UserError: a column is missing, or a name is unknown.
    """
    from matplotlib.lines import Line2D

    rows = of_profiles(table, of, backend)
    names = tables.problems(rows)
    looks = searchers(rows["method"])
    fig, axes = _grid(names)
    for name, ax in zip(names, axes, strict=True):
        ax.set_title("all problems" if name == "all" else name)
        _panel(ax, rows[rows["problem"] == name], looks)
    keys = [Line2D([], [], **lines.kind(look), label=look.label) for look in looks.values()]
    keys.append(Line2D([], [], ls="", color=FAINT, marker="x", ms=7, mew=1.8, label="budget"))
    lines.legend(fig, keys)
    return fig


def _grid(names: list[str]) -> tuple[Figure, list[Axes]]:
    """A wide panel for all problems, and below it one for each, up to three in a row."""
    wide = names[0] == "all"
    each = names[wide:]
    columns = max(min(len(each), 3), 1)
    count = math.ceil(len(each) / columns)
    heights = [2.6] * wide + [2.0 if columns == 3 else 2.4] * count
    fig = panels.figure(sum(heights) + 0.2)
    cells = fig.add_gridspec(len(heights), columns, height_ratios=heights)
    axes = [fig.add_subplot(cells[0, :])] if wide else []
    for rank in range(len(each)):
        axes.append(fig.add_subplot(cells[wide + rank // columns, rank % columns]))
    for rank, ax in enumerate(axes):
        place = rank - wide
        if place < 0 or place % columns == 0:
            ax.set_ylabel("targets met (%)")
        if place < 0 or place + columns >= len(each):
            ax.set_xlabel("evaluations / dimension")
    return fig, axes


def _panel(ax: Axes, rows: Table, looks: dict) -> None:
    ax.grid()
    for rank, (method, look) in enumerate(looks.items()):
        line = rows[rows["method"] == method].sort_values("evaluations_per_dim")
        if not len(line):
            continue
        x, y = line["evaluations_per_dim"].to_numpy(float), 100 * line["share"].to_numpy(float)
        every = max(1, len(line) // 7)
        style: dict[str, Any] = lines.kind(look) | {"ms": 0.8 * look.size}
        ax.plot(x, y, label=method, markevery=(rank % every, every), **style)
        ax.plot(x[-1], y[-1], marker="x", ms=7, mew=1.8, color=look.colour, label=f"{method}: end", zorder=5)
    place = rows["evaluations_per_dim"].to_numpy(float)
    panels.run_axis(ax, place)
    started = rows.loc[rows["share"] > 0, "evaluations_per_dim"]
    ax.set_xlim((float(started.min()) if len(started) else place.min()) / 1.1, place.max() * 1.4)
    ax.set_ylim(-2, 103)
    ax.set_yticks(np.arange(0, 101, 25))
