"""Share of targets that each search has met against evaluations per dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import numbers, one_backend, problems, require
from lowvar_studies.reports.drawing.style import searchers
from lowvar_studies.reports.search.figures.curves import RUN


def select(profiles: Frame, of: str = "mean") -> Frame:
    """The rows for f at the mean or for the best point, every method on one backend."""
    require(profiles, (*RUN, "of", "evaluations_per_dim", "share", "targets", "budget_per_dim"), "profiles")
    return one_backend(profiles[profiles["of"] == of])


@styled
def draw(rows: Frame) -> Picture:
    """A wide panel that pools all problems, for the methods that ran on all of them, and a panel for each problem."""
    names, looks = problems(rows), searchers(rows["method"])
    fig, axes = _grid(names)
    for name, ax in zip(names, axes, strict=True):
        ax.set_title("all problems" if name == "all" else name)
        _panel(ax, rows[rows["problem"] == name], looks)
    budget = drawing.entry("budget", ls="", color=FAINT, marker="x", ms=7, mew=1.8)
    drawing.legend(fig, [*lines.entries(looks), budget])
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
        panels.outer(line, width, "evaluations / dimension", "targets met (%)")
    return fig, [*top, *axes]


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    ax.grid()
    for rank, (method, look) in enumerate(looks.items()):
        line = rows[rows["method"] == method].sort_values("evaluations_per_dim")
        if not len(line):
            continue
        x, share = numbers(line, "evaluations_per_dim", "share")
        every = max(1, len(line) // 7)
        style: dict[str, Any] = lines.kind(look) | {"ms": 0.8 * look.size}
        ax.plot(x, 100 * share, label=method, markevery=(rank % every, every), **style)
        ax.plot(x[-1], 100 * share[-1], marker="x", ms=7, mew=1.8, color=look.colour, label=f"{method}: end", zorder=5)
    place = rows["evaluations_per_dim"].to_numpy(float)
    panels.run_axis(ax, place)
    started = rows.loc[rows["share"] > 0, "evaluations_per_dim"]
    ax.set_xlim((float(started.min()) if len(started) else place.min()) / 1.1, place.max() * 1.4)
    ax.set_ylim(-2, 103)
    ax.set_yticks(np.arange(0, 101, 25))


PROFILES = Figure(
    "profiles", "profiles", select, draw,
    caption="Share of targets (gaps from 10^2 to 10^-8, in every repetition) met against evaluations per dimension, as "
    "in COCO but without simulated restarts. The first panel pools all problems. A line ends at its budget; targets "
    "missed by then count as not met.",
    answer="share of targets met against evaluations per dimension.",
)  # fmt: skip
GROUPS = Figure(
    "groups", "groups", select, draw,
    caption="Share of targets (gaps from 10^2 to 10^-8, in every repetition) met by the best evaluated point against "
    "evaluations per dimension, as in COCO but without simulated restarts: all problems, and groups of them. A line "
    "ends at its budget; targets missed by then count as not met.",
    answer="share of targets met against evaluations per dimension, by group of problems.",
    options={"of": "best"},
)  # fmt: skip
