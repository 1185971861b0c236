"""Cost of iterations: elapsed time against iterations."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import Axes, Picture, styled
from lowvar.errors import UserError
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import one_backend, require
from lowvar_studies.reports.drawing.style import estimators
from lowvar_studies.reports.variational.figures.timed import WARMED, warmed
from lowvar_studies.reports.variational.gathering import looks_at

_COLUMNS = ["problem", "method", "backend", "epoch", "iteration", "seconds"]


def select(seconds: Frame) -> Frame:
    """Each method's times after the warm-up, equal for all its step sizes."""
    require(seconds, _COLUMNS, "seconds")
    rows = one_backend(seconds)[_COLUMNS]
    rows = warmed(rows[np.isfinite(rows["seconds"])]).drop_duplicates(["problem", "method", "epoch"])
    if not len(rows):
        raise UserError("seconds table: no times, so there is nothing to draw")
    return rows.reset_index(drop=True)


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each problem; times have no intervals."""
    looks = estimators(rows["method"])

    def panel(ax: Axes, rows: Frame) -> None:
        drawn = rows[(rows["seconds"] > 0) & (rows["iteration"] > 0)]
        if not panels.ready(ax, drawn, "not timed"):
            return
        lines.draw(ax, drawn, looks, "iteration", "seconds", markers=8)
        panels.run_axis(ax, drawn["iteration"].to_numpy())
        panels.frame(ax, *[drawn["seconds"].to_numpy(float)] * 3)

    fig = panels.each(rows, panel, "iteration", "seconds of a job / its runs")
    drawing.legend(fig, lines.entries(looks))
    return fig


COST = Figure(
    "cost", "seconds", select, draw,
    caption="Elapsed time of one run against its iterations, without compilation, on the machine that made this "
    "report: the time of a job divided by the number of its runs, which it computes together; a single run would take "
    "longer. A falling slope: cheaper steps."
    + WARMED,
    when=looks_at("particles"),
)  # fmt: skip
