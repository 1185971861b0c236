"""Observed series under the posterior: means, bands, observations."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import BAND, INK, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing.rows import whole

_COLOUR = "#0072B2"
_TASK = "#D55E00"


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each series; a column ``task`` marks times at which the mean is an integral to estimate."""
    from matplotlib.ticker import MaxNLocator

    names = list(rows["series"].drop_duplicates())
    fig = drawing.figure(2.2 * len(names) + 0.3)
    axes = list(fig.subplots(len(names), 1, squeeze=False, sharex=True).flat)
    marked = False
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(str(name))
        marked |= _panel(ax, rows[rows["series"] == name].sort_values("time"))
        ax.set_ylabel("abundance")
    axes[-1].set_xlabel("time")
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    fig.align_ylabels(axes)
    keys = [
        drawing.entry("posterior mean", color=_COLOUR, lw=2),
        drawing.patch("95 % band", color=_COLOUR, alpha=BAND),
        drawing.entry("observed", ls="", marker="o", ms=5, color=INK),
    ]
    if marked:
        keys.append(drawing.entry("times of the integrals", ls="", marker="|", ms=10, mew=2, color=_TASK))
    drawing.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Frame) -> bool:
    """Draws a series; returns whether it marks times of integrals."""
    time = rows["time"].to_numpy(float)
    ax.grid()
    ax.fill_between(time, rows["low"], rows["high"], color=_COLOUR, alpha=BAND, lw=0, label="95 %")
    ax.plot(time, rows["mean"], color=_COLOUR, lw=2, label="mean")
    seen = rows["observed"].notna().to_numpy()
    ax.plot(time[seen], rows["observed"].to_numpy(float)[seen], ls="", marker="o", ms=5, color=INK, label="observed")
    ax.set_ylim(bottom=0 if (rows["low"] >= 0).all() else None)
    ax.margins(x=0.02)
    tasks = rows["task"].fillna(False).astype(bool).to_numpy() if "task" in rows else np.zeros(len(rows), bool)
    if not tasks.any():
        return False
    ax.plot(time[tasks], rows["mean"].to_numpy(float)[tasks], ls="", marker="|", ms=11, mew=2, color=_TASK,
            label="tasks", zorder=4)  # fmt: skip
    return True


PREDICTIVE = Figure(
    "predictive", "predictive", whole("predictive", "series", "time", "mean", "low", "high", "observed"), draw,
    caption="Posterior mean and 95 % band of the observed series, from the samples of the first repetition, and the "
    "observations. Ticks mark the times at which the mean is an integral to estimate.",
    answer="observed series under the posterior.",
)  # fmt: skip
