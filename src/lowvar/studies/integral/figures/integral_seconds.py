"""What integrals cost: time by number of points, and the error that it buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, integrators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.integral.figures.errors import places, powers
from lowvar.studies.integral.figures.integral_tables import of_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def integral_seconds(table: Table) -> Figure:
    """Draws the time of a repetition against the number of points, and the mean absolute error against that time.

    Args:
        table: columns ``problem, method, backend, sizes, points, seconds_per_repetition, task, mae, mae_low,
            mae_high``.

    Returns:
        A figure with one row of two panels for each problem: the lower and the farther to the left, the better.

    Raises:
        UserError: a column is missing.
    """
    from matplotlib.lines import Line2D

    rows = of_seconds(table)
    names = tables.problems(rows)
    looks = integrators(rows["method"])
    fig = panels.figure(2.9 * len(names) + 0.2)
    axes = fig.subplots(len(names), 2, squeeze=False)
    for name, (left, right) in zip(names, axes, strict=True):
        here = rows[rows["problem"] == name]
        left.set_title(name)
        right.set_title(f"error of {here['task'].iloc[0]}")
        _time(left, here, looks)
        _worth(right, here, looks)
        left.set_ylabel("seconds per repetition")
        right.set_ylabel("mean absolute error")
    axes[-1, 0].set_xlabel("points of all tasks")
    axes[-1, 1].set_xlabel("seconds per repetition")
    keys: list = [Line2D([], [], **lines.kind(look), label=look.label) for look in looks.values()]
    keys.append(Line2D([], [], color=FAINT, lw=2.5, alpha=0.6, label="95 % interval"))
    lines.legend(fig, keys)
    return fig


def _time(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[rows["seconds_per_repetition"] > 0]
    if not len(drawn):
        panels.say(ax, "not timed")
        return
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid()
    for method, look in looks.items():
        line = drawn[drawn["method"] == method].sort_values("points")
        ax.plot(line["points"], line["seconds_per_repetition"], label=method, **lines.kind(look))
    places(ax, drawn["points"].to_numpy(float))
    seconds = drawn["seconds_per_repetition"].to_numpy(float)
    panels.frame(ax, seconds, seconds, seconds)
    powers(ax)


def _worth(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[(rows["seconds_per_repetition"] > 0) & np.isfinite(rows["mae"]) & (rows["mae"] > 0)]
    if not len(drawn):
        panels.say(ax, "no finite error")
        return
    ax.set_yscale("log")
    ax.grid()
    for method, look in looks.items():
        line = drawn[drawn["method"] == method].sort_values("points")
        seconds, middle, low, high = (line[name].to_numpy(float)
                                      for name in ("seconds_per_repetition", "mae", "mae_low", "mae_high"))  # fmt: skip
        ax.plot(seconds, middle, label=method, **lines.kind(look))
        low = np.where(low > 0, low, 1e-3 * middle)
        ax.vlines(seconds, low, high, color=look.colour, lw=2.5, alpha=0.6, label=f"{method}: 95 %")
    panels.frame(ax, *(drawn[name].to_numpy(float) for name in ("mae_low", "mae", "mae_high")))
    panels.run_axis(ax, drawn["seconds_per_repetition"].to_numpy())
    powers(ax)
