"""Cost of iterations: elapsed time against iterations."""

from __future__ import annotations

import numpy as np

from lowvar.errors import UserError
from lowvar.studies.declarations import Figure, Frame
from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.panels import Axes, Picture
from lowvar.studies.drawing.rows import by_method, one_backend, require
from lowvar.studies.drawing.style import estimators, styled
from lowvar.studies.variational.figures.timed import WARMED, warmed
from lowvar.studies.variational.gathering import looks_at

_COLUMNS = ["problem", "method", "backend", "epoch", "iteration", "seconds"]


def select(seconds: Frame) -> Frame:
    """Each method's times after the warm-up, equal for all its step sizes."""
    require(seconds, _COLUMNS, "seconds")
    rows = one_backend(seconds, "seconds")[_COLUMNS]
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
        for method, line in by_method(drawn, looks, "iteration"):
            sparse = max(1, len(line) // 8)
            ax.plot(line["iteration"], line["seconds"], label=method, markevery=sparse, **lines.kind(looks[method]))
        panels.run_axis(ax, drawn["iteration"].to_numpy())
        panels.frame(ax, *[drawn["seconds"].to_numpy(float)] * 3)

    fig = panels.each(rows, panel, "iteration", "elapsed seconds,\namortised over a job's runs")
    lines.legend(fig, lines.entries(looks))
    return fig


COST = Figure(
    "cost", "seconds", select, draw,
    caption="Elapsed time of one run against its iterations, without compilation, on the machine that made this "
    "report: the time of a job divided by the number of its runs, which it computes together; a single run would take "
    "longer. A falling slope: cheaper steps."
    + WARMED,
    when=looks_at("particles"),
)  # fmt: skip
