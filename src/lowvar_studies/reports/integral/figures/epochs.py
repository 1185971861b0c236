"""Errors of stochastic methods along the epochs of their optimiser, beside methods without epochs."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import SMALL, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import by_method, numbers, positive, require
from lowvar_studies.reports.drawing.style import Estimator, integrators


def select(epochs: Frame) -> Frame:
    """All rows, by ``epoch``, or by ``part`` (fraction of all epochs) if methods differ in their numbers of epochs."""
    require(epochs, ("problem", "method", "part" if "part" in epochs else "epoch", "mae", "low", "high"), "epochs")
    return epochs


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each problem; methods without epochs are horizontal lines with a marker at the end."""
    parts = "part" in rows
    rows = rows.assign(epoch=100 * rows["part"]) if parts else rows
    looks = integrators(rows["method"])
    words = "share of all epochs (%)" if parts else "epoch"
    fig = panels.each(rows, partial(_panel, looks=looks), words, "mean absolute error", height=3.0)
    keys = []
    for method, look in looks.items():
        level = rows.loc[rows["method"] == method, "epoch"].isna().all()
        keys.append(drawing.entry(look.label, **(_level(look) if level else _line(look))))
    drawing.legend(fig, [*keys, drawing.patch("95 % interval", color="#888888", alpha=0.3)])
    return fig


def _line(look: Estimator) -> dict:
    return {"color": look.colour, "ls": look.dash, "lw": look.width + 0.4}


def _level(look: Estimator) -> dict:
    style = {"color": look.colour, "marker": look.marker, "ms": look.size, "lw": 1.2}
    return style | {"ls": (0, (6, 2)), "markevery": [-1]}


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows, "mae")
    if not panels.ready(ax, drawn, "no finite error"):
        return
    last = float(drawn["epoch"].max()) if drawn["epoch"].notna().any() else 1.0
    for method, line in by_method(drawn, looks, "epoch"):
        look = looks[method]
        none = line["epoch"].isna().all()
        x = np.array([0.0, last]) if none else line["epoch"].to_numpy(float)
        middle, low, high = numbers(line, "mae", "low", "high")
        if none:
            middle, low, high = (np.repeat(values[:1], 2) for values in (middle, low, high))
        lines.band(ax, x, np.where(low > 0, low, 1e-3 * middle), high, look, f"{method}: 95 %", 0.6 if none else 1.0)
        ax.plot(x, middle, label=method, **(_level(look) if none else _line(look)))
    panels.frame(ax, *numbers(drawn, "low", "mae", "high"))
    panels.decades(ax, "y", 7)
    ax.tick_params(labelsize=SMALL)
    ax.set_xlim(0, last * 1.04)


EPOCHS = Figure(
    "epochs", "epochs", select, draw,
    caption="Mean absolute error of stochastic methods along their epochs: means over the repetitions, bands are 95 % "
    "intervals. A line that still falls at the end was stopped before convergence. Horizontal lines are methods "
    "without epochs.",
    answer="mean absolute error of stochastic methods of integration along their epochs.",
)  # fmt: skip
