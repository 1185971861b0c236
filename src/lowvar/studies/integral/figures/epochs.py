"""How errors of stochastic methods fall with the epochs of their optimiser, beside the methods that need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import SMALL, Estimator, integrators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.integral.figures.errors import powers
from lowvar.studies.integral.figures.integral_tables import of_epochs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def epochs(table: Table) -> Figure:
    """Draws the mean absolute error against epochs, a line with its 95 % band for each method.

    Methods without epochs are level lines with a marker at their end.

    Args:
        table: columns ``problem, method, mae, low, high`` and ``epoch``, or ``part`` (of all epochs, from 0 to 1) where
            methods have different numbers of them; NaN for a method that has none.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = of_epochs(table)
    parts = "part" in rows
    rows = rows.assign(epoch=100 * rows["part"]) if parts else rows
    names = tables.problems(rows)
    looks = integrators(rows["method"])
    fig, axes = panels.grid(len(names), height=3.0)
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], looks)
    panels.label(axes, "part of all epochs (%)" if parts else "epoch", "mean absolute error")
    keys: list = []
    for method, look in looks.items():
        style = _level(look) if rows.loc[rows["method"] == method, "epoch"].isna().all() else _line(look)
        keys.append(Line2D([], [], label=look.label, **style))
    keys.append(Patch(color="#888888", alpha=0.3, lw=0, label="95 % interval"))
    lines.legend(fig, keys)
    return fig


def _line(look: Estimator) -> dict:
    return {"color": look.colour, "ls": look.dash, "lw": look.width + 0.4}


def _level(look: Estimator) -> dict:
    return {
        "color": look.colour,
        "marker": look.marker,
        "ms": look.size,
        "lw": 1.2,
        "ls": (0, (6, 2)),
        "markevery": [-1],
    }


def _panel(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[np.isfinite(rows["mae"]) & (rows["mae"] > 0)]
    if not len(drawn):
        panels.say(ax, "no finite error")
        return
    ax.set_yscale("log")
    ax.grid()
    last = float(drawn["epoch"].max()) if drawn["epoch"].notna().any() else 1.0
    for method, look in looks.items():
        line = drawn[drawn["method"] == method].sort_values("epoch")
        if not len(line):
            continue
        none = line["epoch"].isna().all()
        x = np.array([0.0, last]) if none else line["epoch"].to_numpy(float)
        middle, low, high = (line[name].to_numpy(float) for name in ("mae", "low", "high"))
        if none:
            middle, low, high = (np.repeat(values[:1], 2) for values in (middle, low, high))
        lines.band(ax, x, np.where(low > 0, low, 1e-3 * middle), high, look, f"{method}: 95 %", 0.6 if none else 1.0)
        ax.plot(x, middle, label=method, **(_level(look) if none else _line(look)))
    panels.frame(ax, *(drawn[name].to_numpy(float) for name in ("low", "mae", "high")))
    powers(ax)
    ax.tick_params(labelsize=SMALL)
    ax.set_xlim(0, last * 1.04)
