"""How evaluations grow with the dimension."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.errors import UserError
from lowvar.studies.base import Figure, Frame
from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.panels import Axes, Picture
from lowvar.studies.drawing.rows import by_method, numbers, require
from lowvar.studies.drawing.style import FAINT, INK, SMALL, searchers, styled
from lowvar.studies.search.figures import effort
from lowvar.studies.search.gathering import solved

_DIM = r"_\d+$"  # the end of a problem's name that says its dimension


def select(targets: Frame, target: float = effort.TARGET, of: str = "mean", backend: str | None = None) -> Frame:
    """Functions that were searched in several dimensions, with the fitted exponents.

    A problem is called ``{function}_{dim}``. ``exponent`` is the slope of log evaluations against log dimension by
    least squares, over the dimensions in which the median is known; NaN where those are fewer than two.
    """
    rows = effort.select(targets, target, of, backend)
    require(rows, ("dim",), "targets")
    rows = rows.assign(function=rows["problem"].str.replace(_DIM, "", regex=True))
    several = rows.groupby("function")["dim"].transform("nunique") > 1
    rows = rows[several].sort_values("dim", kind="stable").reset_index(drop=True)
    if not len(rows):
        raise UserError("targets table: no function in several dimensions; their problems are called function_dim")
    slopes = {key: _slope(group) for key, group in rows.groupby(["function", "method", "backend"], sort=False)}
    keys = zip(rows["function"], rows["method"], rows["backend"], strict=True)
    return rows.assign(exponent=[slopes[key] for key in keys])


def _slope(rows: Frame) -> float:
    known = rows[np.isfinite(rows["evaluations_median"]) & (rows["evaluations_median"] > 0)]
    if known["dim"].nunique() < 2:
        return float("nan")
    return float(np.polyfit(np.log(known["dim"].to_numpy(float)), np.log(known["evaluations_median"]), 1)[0])


@styled
def draw(rows: Frame, target: float = effort.TARGET) -> Picture:
    """A panel for each function."""
    looks = searchers(rows["method"])
    panel = partial(_panel, looks=looks)
    fig = panels.each(rows, panel, "dimension d", f"evaluations to {target:g}", by="function", height=2.9)
    keys = lines.entries(looks)
    keys.append(lines.entry("not within this budget", ls="", marker="^", ms=8, mfc="none", mew=1.4, color=FAINT))
    keys.append(lines.entry("fitted exponent", ls="", marker="$d^{\\,a}$", ms=12, color=INK, mew=0.3))
    lines.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    panels.ready(ax, rows, "not measured", "xy")
    dims = np.unique(rows["dim"].to_numpy(float))
    ends = []
    for method, line in by_method(rows, looks, "dim"):
        look = looks[method]
        dim, middle, low, high = numbers(line, "dim", "evaluations_median", "evaluations_low", "evaluations_high")
        known = np.isfinite(middle)
        ax.plot(dim[known], middle[known], label=method, **lines.kind(look))
        sure = known & np.isfinite(low) & np.isfinite(high)
        lines.bars(ax, dim[sure], low[sure], high[sure], look, f"{method}: 95 %")
        if not known.all():
            style = {"marker": "^", "ms": 9, "mfc": "none", "mew": 1.6, "color": look.colour, "ls": ""}
            ax.plot(dim[~known], line["budget"].to_numpy(float)[~known], label=f"{method}: not within", **style)
        exponent = float(line["exponent"].iloc[0])
        if np.isfinite(exponent):
            ends.append((middle[known][-1], dim[known][-1], f"$d^{{\\,{exponent:.2f}}}$", look.colour))
    ax.set_xlim(dims[0] / 1.25, dims[-1] * (dims[-1] / dims[0]) ** 0.24)
    ax.set_xticks(dims, [f"{dim:g}" for dim in dims])
    ax.minorticks_off()
    panels.decades(ax, "y")
    last = -np.inf
    for height, _, words, colour in sorted(ends):  # names at the right edge, kept apart by a line's height
        _, place = ax.transAxes.inverted().transform(ax.transData.transform((dims[-1], height)))
        last = max(place, last + 0.085)
        style = {"va": "center", "ha": "right", "fontsize": SMALL + 1, "color": colour}
        ax.text(1.0, last, words, transform=ax.transAxes, **style)


SCALING = Figure(
    "scaling", "targets", select, draw,
    caption="Evaluations until f at the distribution's mean came within the target precision of the optimum, against "
    "the number of variables: medians over the repetitions with intervals of at least 95 %, and exponents fitted by "
    "least squares. An open triangle stands at the budget where no more than half of the repetitions came there; it is "
    "no part of the fit.",
    answer="evaluations that each search needs to come within the target precision of the optimum against the number "
    "of variables.",
    settings=solved,
)  # fmt: skip
