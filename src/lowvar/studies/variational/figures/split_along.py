"""The variance of the plain gradient along a run, split by source, and what a control variate leaves of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import SOURCES, Estimator, estimators, styled
from lowvar.studies.drawing.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {"subsampling": "s", "monte_carlo": "^", "interaction": "v"}


@styled
def split_along(decomposition: Table) -> Figure:
    """Draws the parts of naive's variance along the run, and the total of joint, with 95 % bands.

    Args:
        decomposition: columns ``problem, method, block, source, variance, low, high, iteration, end``. Where joint was
            not measured, the method with the least variance at the end takes its place.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or there is no method ``naive``.
    """
    rows = tables.split_of_naive(decomposition)
    names = tables.problems(rows)
    looks = estimators(rows["method"])
    parts = {source: Estimator(f"naive: {look.label}", look.colour, _MARKERS[source], 1.6)
             for source, look in SOURCES.items()}  # fmt: skip
    fig, axes = panels.grid(len(names))
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], looks, parts)
    panels.label(axes, "iteration", "gradient variance (trace, nats²)")
    totals = {name: Estimator(f"{look.label}: total", look.colour, look.marker, look.width, look.dash)
              for name, look in looks.items()}  # fmt: skip
    lines.legend(fig, lines.keys({**totals, **parts}))
    return fig


def _panel(ax: Axes, rows: Table, looks: dict, parts: dict) -> None:
    drawn = rows[np.isfinite(rows["variance"]) & (rows["variance"] > 0)]
    if not len(drawn):
        panels.say(ax, "not measured" if not len(rows) else "no finite variance")
        return
    ax.set_yscale("log")
    ax.grid()
    for source, look in {**parts, "total": None}.items():
        for method in looks:
            line = drawn[(drawn["source"] == source) & (drawn["method"] == method)].sort_values("iteration")
            if not len(line):
                continue
            style = look or looks[method]
            x, middle = line["iteration"].to_numpy(), line["variance"].to_numpy(float)
            low = np.maximum(line["low"].to_numpy(float), 1e-3 * middle)
            lines.band(ax, x, low, line["high"].to_numpy(float), style, f"{method}, {source}: 95 %")
            ax.plot(x, middle, label=f"{method}, {source}", **lines.kind(style))
    panels.frame(ax, *(drawn[name].to_numpy(float) for name in ("low", "variance", "high")))
    panels.run_axis(ax, drawn["iteration"].to_numpy())
