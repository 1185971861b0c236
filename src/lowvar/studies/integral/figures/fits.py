"""What functions the methods fit to an integrand on the line, beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.style import INK, integrators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.integral.figures.errors import title
from lowvar.studies.integral.figures.integral_tables import of_fits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INTEGRAND = "#B5B5B5"
_DENSITY = "#EFEFEF"


@styled
def fits(table: Table, task: str | None = None) -> Figure:
    """Draws integrands, the functions that methods fitted to them, and the points that these were fitted to.

    The integral of a fitted function is known, so what lies between it and the integrand is what is left to estimate,
    weighted by the density of the points, whose shape is shaded.

    Args:
        table: columns ``problem, task, method, x, f, fitted, kind``: rows of kind ``curve`` and of kind ``point``
            (whose ``fitted`` is not read); and ``density``, where it is known.
        task: which task; if None, all.

    Returns:
        A figure with one panel for each problem and task.

    Raises:
        UserError: a column is missing, or the task is not in the table.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = of_fits(table, task)
    groups = list(rows[["problem", "task"]].drop_duplicates().itertuples(index=False, name=None))
    curves = rows[(rows["kind"] == "curve") & rows["fitted"].notna()]
    looks = integrators(curves["method"])
    fig, axes = panels.grid(len(groups), height=2.9)
    for (name, which), ax in zip(groups, axes, strict=True):
        ax.set_title(title(name, which))
        _panel(ax, rows[(rows["problem"] == name) & (rows["task"] == which)], looks)
    panels.label(axes, "x", "f and fits")
    keys: list = [Line2D([], [], color=_INTEGRAND, lw=5, label="integrand f")]
    keys += [
        Line2D([], [], color=look.colour, lw=look.width, ls=look.dash, label=look.label) for look in looks.values()
    ]
    keys.append(Line2D([], [], ls="", marker="o", ms=4, color=INK, label="sample"))
    if "density" in rows and rows["density"].notna().any():
        keys.append(Patch(color=_DENSITY, lw=0, label="density of the target"))
    lines.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Table, looks: dict) -> None:
    curves, points = rows[rows["kind"] == "curve"], rows[rows["kind"] == "point"].drop_duplicates("x")
    ax.grid()
    f = curves.drop_duplicates("x").sort_values("x")
    if len(f):
        ax.plot(f["x"], f["f"], color=_INTEGRAND, lw=5, label="f", zorder=1.5, solid_capstyle="butt")
    for method, look in looks.items():
        line = curves[curves["method"] == method].sort_values("x")
        if len(line):
            ax.plot(line["x"], line["fitted"], color=look.colour, lw=look.width, ls=look.dash, label=method)
    ax.plot(
        points["x"], points["f"], ls="", marker="o", ms=3.6, color=INK, mec="white", mew=0.3, label="sample", zorder=4
    )
    low, high = _span(rows)
    room = 0.06 * (high - low)
    ax.set_ylim(low - room, high + room)
    if "density" in f and f["density"].notna().any():
        height = f["density"] / f["density"].max() * 0.3 * (high - low + 2 * room)
        ax.fill_between(f["x"], low - room, low - room + height, color=_DENSITY, lw=0, zorder=0.5, label="density")


def _span(rows: Table) -> tuple[float, float]:
    """From the integrand and the fits; a fit that leaves far beyond the integrand is cut."""
    f = rows["f"].to_numpy(float)
    f = f[np.isfinite(f)]
    low, high = (float(f.min()), float(f.max())) if len(f) else (0.0, 1.0)
    wide = max(high - low, 1e-12)
    fitted = rows["fitted"].to_numpy(float)
    fitted = fitted[np.isfinite(fitted)]
    if len(fitted):
        low, high = max(min(low, fitted.min()), low - 0.5 * wide), min(max(high, fitted.max()), high + 0.5 * wide)
    return low, high
