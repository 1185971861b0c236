"""Share of targets that each search has met against evaluations per dimension."""

from __future__ import annotations

import math

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import by_hue, numbers, one_backend, problems
from lowvar_studies.reports.drawing.style import searchers
from lowvar_studies.reports.search import progress as tables


def select(profiles: Frame, of: str = "mean") -> Frame:
    """The rows for f at the mean or for the best point, every method on one backend."""
    return one_backend(profiles[profiles["of"] == of])


def draw(rows: Frame) -> Picture:
    """A wide panel that pools all problems, for the methods that ran on all of them, and a panel for each problem."""
    names, looks = problems(rows), searchers(rows["method"])
    fig, axes = _grid(names)
    for name, ax in zip(names, axes, strict=True):
        ax.set_title("all problems" if name == "all" else name)
        _panel(ax, rows[rows["problem"] == name], looks)
    budget = drawing.entry("budget", ls="", color=FAINT, marker="x", ms=7, mew=1.8)
    drawing.legend(fig, [*charts.entries(looks), budget])
    return fig


def _grid(names: list[str]) -> tuple[Picture, list[Axes]]:
    """A wide panel for all problems, and below it a panel for each, up to three in a row."""
    wide = names[0] == "all"
    each = names[wide:]
    columns = max(min(len(each), 3), 1)
    count = math.ceil(len(each) / columns)
    heights = [2.6] * wide + [2.0 if columns == 3 else 2.4] * count
    fig = drawing.figure(sum(heights) + 0.2)
    cells = fig.add_gridspec(len(heights), columns, height_ratios=heights)
    top = [fig.add_subplot(cells[0, :])] if wide else []
    axes = [fig.add_subplot(cells[wide + rank // columns, rank % columns]) for rank in range(len(each))]
    for line, width in ((top, 1), (axes, columns)):
        charts.outer(line, width, "evaluations / dimension", "targets met (%)")
    return fig, [*top, *axes]


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    ax.grid()
    drawn = rows.assign(percent=100 * rows["share"])
    charts.draw(ax, drawn, looks, "evaluations_per_dim", "percent", markers=7, style=charts.small)
    for method, line in by_hue(drawn, looks, order="evaluations_per_dim"):
        at, share = numbers(line, "evaluations_per_dim", "percent")
        style = {"marker": "x", "ms": 7, "mew": 1.8, "color": looks[method].colour, "zorder": 5}
        ax.plot(at[-1], share[-1], label=f"{method}: end", **style)
    place = rows["evaluations_per_dim"].to_numpy(float)
    charts.run_axis(ax, place)
    started = rows.loc[rows["share"] > 0, "evaluations_per_dim"]
    ax.set_xlim((float(started.min()) if len(started) else place.min()) / 1.1, place.max() * 1.4)
    ax.set_ylim(-2, 103)
    ax.set_yticks(np.arange(0, 101, 25))


PROFILES = Figure(
    "profiles", tables.PROFILES, select, draw,
    caption="Share of targets (gaps from 10^2 to 10^-8, in every repetition) met against evaluations per dimension, as "
    "in COCO but without simulated restarts. The first panel pools all problems. A line ends at its budget; targets "
    "missed by then count as not met.",
    answer="share of targets met against evaluations per dimension.",
)  # fmt: skip
GROUPS = Figure(
    "groups", tables.GROUPS, select, draw,
    caption="Share of targets (gaps from 10^2 to 10^-8, in every repetition) met by the best evaluated point against "
    "evaluations per dimension, as in COCO but without simulated restarts: all problems, and groups of them. A line "
    "ends at its budget; targets missed by then count as not met.",
    answer="share of targets met against evaluations per dimension, by group of problems.",
    options={"of": "best"},
)  # fmt: skip
