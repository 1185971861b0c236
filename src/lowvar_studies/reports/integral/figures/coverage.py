"""How often the methods' own 95 % intervals contain the truth."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import by_hue, problems
from lowvar_studies.reports.drawing.style import integrators
from lowvar_studies.reports.integral.errors import ERRORS
from lowvar_studies.reports.integral.figures import errors
from lowvar_studies.reports.integral.figures.common import title

_PROMISED = 0.95
_APART = 0.8  # part of the room of a size that its methods take, side by side


def draw(rows: Frame) -> Picture:
    """A panel for each problem, with a place for each number of points and its methods side by side."""
    names, looks = problems(rows), integrators(rows["method"])
    fig, axes = charts.grid(len(names), height=3.0)
    lowest = float(np.nanmin(np.append(rows["coverage_low"].to_numpy(float), 0.85)))
    for rank, (name, ax) in enumerate(zip(names, axes, strict=True)):
        problem = rows[rows["problem"] == name]
        ax.set_title(title(name, problem["task"].iloc[0]))
        _panel(ax, problem, looks)
        ax.set_ylim(lowest - 0.03, 1.015)
        ax.set_xlabel(errors.AXES[problem["axis"].iloc[0]])
        if rank % 2 == 0:
            ax.set_ylabel("share of intervals\nthat contain the truth")
    keys = charts.keys(looks, interval="bars", style=charts.points)
    drawing.legend(fig, [*keys, drawing.entry("the promised share, 0.95", color=INK, lw=1.2, ls=(0, (4, 2)))])
    return fig


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = rows[np.isfinite(rows["coverage"])]
    if not charts.ready(ax, drawn, "no method states an interval", ""):
        return
    sizes = np.unique(drawn[drawn["axis"].iloc[0]].to_numpy(float))
    methods = [method for method, _ in by_hue(drawn, looks)]
    apart = {method: _APART * ((rank + 0.5) / len(methods) - 0.5) for rank, method in enumerate(methods)}
    place = np.searchsorted(sizes, drawn[drawn["axis"].iloc[0]]) + drawn["method"].map(apart)
    ends = ("coverage_low", "coverage_high")
    charts.draw(ax, drawn.assign(place=place), looks, "place", "coverage", *ends, mark="bars", style=charts.points)
    ax.axhline(_PROMISED, color=INK, lw=1.2, ls=(0, (4, 2)), zorder=1, label="promised")
    ax.set_xticks(range(len(sizes)), [f"{size:g}" for size in sizes])
    ax.set_xlim(-0.6, len(sizes) - 0.4)
    ax.grid(axis="x", visible=False)
    silent = set(rows["method"]) - set(methods)
    charts.notes(ax, {"without intervals": charts.labels(looks, silent)})


COVERAGE = Figure(
    "coverage", ERRORS, errors.select, draw,
    caption="Share of the repetitions in which the method's own 95 % interval contains the truth, for each number of "
    "points, with Clopper and Pearson's 95 % interval over the repetitions. The dashed line is the share that the "
    "intervals promise. A method that states no standard error is named above its panel.",
    answer="how often the 95 % intervals of each method of integration contain the truth.",
)  # fmt: skip
