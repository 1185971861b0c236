"""What a posterior says of observed series: means, bands, observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.style import BAND, INK, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.integral.figures.integral_tables import of_predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR = "#0072B2"
_TASK = "#D55E00"


@styled
def predictive(table: Table) -> Figure:
    """Draws posterior means and 95 % bands of series over time, with the observations.

    Times at which a mean is an integral to estimate are marked, where the table says which they are.

    Args:
        table: columns ``series, time, mean, low, high, observed`` (NaN where nothing was observed), and perhaps
            ``task`` (whether it is such a time).

    Returns:
        A figure with one panel for each series, one below the other.

    Raises:
        UserError: a column is missing.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    rows = of_predictive(table)
    names = list(rows["series"].drop_duplicates())
    fig = panels.figure(2.2 * len(names) + 0.3)
    axes = list(fig.subplots(len(names), 1, squeeze=False, sharex=True).flat)
    marked = False
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(str(name))
        marked |= _panel(ax, rows[rows["series"] == name].sort_values("time"))
        ax.set_ylabel("abundance")
    axes[-1].set_xlabel("time")
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    fig.align_ylabels(axes)
    keys: list = [
        Line2D([], [], color=_COLOUR, lw=2, label="posterior mean"),
        Patch(color=_COLOUR, alpha=BAND, lw=0, label="95 % band"),
        Line2D([], [], ls="", marker="o", ms=5, color=INK, label="observed"),
    ]
    if marked:
        keys.append(Line2D([], [], ls="", marker="|", ms=10, mew=2, color=_TASK, label="times of the integrals"))
    lines.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Table) -> bool:
    """Draws a series; returns whether any of its times is one of an integral."""
    time = rows["time"].to_numpy(float)
    ax.grid()
    ax.fill_between(time, rows["low"], rows["high"], color=_COLOUR, alpha=BAND, lw=0, label="95 %")
    ax.plot(time, rows["mean"], color=_COLOUR, lw=2, label="mean")
    seen = rows["observed"].notna().to_numpy()
    ax.plot(time[seen], rows["observed"].to_numpy(float)[seen], ls="", marker="o", ms=5, color=INK, label="observed")
    ax.set_ylim(bottom=0 if (rows["low"] >= 0).all() else None)
    ax.margins(x=0.02)
    tasks = rows["task"].fillna(False).astype(bool).to_numpy() if "task" in rows else np.zeros(len(rows), bool)
    if not tasks.any():
        return False
    ax.plot(time[tasks], rows["mean"].to_numpy(float)[tasks], ls="", marker="|", ms=11, mew=2, color=_TASK,
            label="tasks", zorder=4)  # fmt: skip
    return True
