"""Errors of searches against generations, with fitted slopes and the rate of the theorems."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import by_hue, log_slopes, one_backend, part, positive
from lowvar_studies.reports.drawing.style import searchers
from lowvar_studies.reports.search.rates import REGRET, fits

_OF = {"average": "average of all generations", "last": "last generation"}
_MARKS = 6  # markers on a line


def select(regret: Frame) -> Frame:
    """All errors, with ``slope``: of the log of the mean error against log generations, over the fitted ones."""
    rows = one_backend(regret)
    fitted = rows.assign(gap_mean=rows["gap_mean"].where(rows["fitted"]))
    return rows.assign(slope=log_slopes(fitted, ["problem", "method", "of"], "iteration", "gap_mean"))


def draw(rows: Frame) -> Picture:
    """A row of panels for each problem: the average error at the left, the last one at the right."""
    names, looks = list(rows["problem"].drop_duplicates()), searchers(rows["method"])
    fig = drawing.figure(2.9 * len(names))
    axes = drawing.cells(fig, 2 * len(names), 2)
    charts.outer(axes, 2, "iterations T (generations)", "mean gap of f at the mean")
    for rank, ax in enumerate(axes):
        problem, of = names[rank // 2], ("average", "last")[rank % 2]
        ax.set_title(f"{problem}\n{_OF[of]}")
        _panel(ax, part(rows, problem=problem, of=of), looks, bound=of == "average")
    keys = charts.keys(looks)
    keys.append(drawing.entry("log T / T, the theorems' rate", color=INK, ls=(0, (1, 2)), lw=1.4))
    keys.append(drawing.entry("fitted rate", ls="", marker="$T^{\\,a}$", ms=14, color=INK, mew=0.3))
    keys.append(drawing.entry("fitted from here on", color=FAINT, lw=1))
    drawing.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Frame, looks: dict, bound: bool) -> None:
    drawn = positive(rows, "gap_mean")
    if not charts.ready(ax, drawn, "no finite errors", "xy"):
        return
    charts.draw(ax, drawn, looks, "iteration", "gap_mean", "gap_low", "gap_high", markers=_MARKS)
    ends = []
    for method, line in by_hue(drawn, looks, order="iteration"):
        value = float(line["slope"].iloc[0])
        if np.isfinite(value):
            ends.append((line["gap_mean"].iloc[-1], f"$T^{{\\,{value:.2f}}}$", looks[method].colour))
    fitted = drawn[drawn["fitted"]]
    if len(fitted):
        at = np.unique(fitted["iteration"].to_numpy(float))
        if bound:
            top = float(fitted.loc[fitted["iteration"] == at[0], "gap_mean"].max())
            shape = np.log(at) / at
            ax.plot(at, 2 * top * shape / shape[0], color=INK, ls=(0, (1, 2)), lw=1.4, label="log T / T")
        ax.axvline(at[0], color=FAINT, lw=1, zorder=0)
    at = drawn["iteration"].to_numpy(float)
    ax.set_xlim(max(at.min(), 1) / 1.3, at.max() * 30)  # room for the rates at the right
    charts.ends(ax, ends, 0.1)


RATES = Figure(
    "rates", REGRET, select, draw,
    caption="Gap of f at the distribution's mean, averaged over all generations so far (the error of the theorems) and "
    "at the last generation: means over the repetitions with 95 % intervals, and exponents fitted by least squares "
    "from the vertical line on. The dotted line has the theorems' rate of the average, log T / T.",
    answer="mean error against generations, with fitted exponents and the rate that the theorems promise.",
    when=fits,
)  # fmt: skip
