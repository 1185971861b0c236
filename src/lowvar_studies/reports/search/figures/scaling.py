"""Evaluations to the target against the dimension."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, Axes, Picture, styled
from lowvar.errors import UserError
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import by_method, numbers, require
from lowvar_studies.reports.drawing.style import searchers
from lowvar_studies.reports.search.figures import effort
from lowvar_studies.reports.search.gathering import solved

_DIM = r"_\d+$"  # the dimension at the end of a problem's name


def select(targets: Frame, target: float = effort.TARGET) -> Frame:
    """The rows of functions with several dimensions, with fitted exponents.

    A problem's name is ``{function}_{dim}``. ``exponent`` is the least-squares slope of log evaluations against log
    dimension, over the dimensions with a finite median; NaN for fewer than two of them.
    """
    rows = effort.select(targets, target)
    require(rows, ("dim",), "targets")
    rows = rows.assign(function=rows["problem"].str.replace(_DIM, "", regex=True))
    several = rows.groupby("function")["dim"].transform("nunique") > 1
    rows = rows[several].sort_values("dim", kind="stable").reset_index(drop=True)
    if not len(rows):
        raise UserError("targets table: no function in several dimensions; name their problems function_dim")
    slopes = {key: _slope(group) for key, group in rows.groupby(["function", "method", "backend"], sort=False)}
    keys = zip(rows["function"], rows["method"], rows["backend"], strict=True)
    return rows.assign(exponent=[slopes[key] for key in keys])


def _slope(rows: Frame) -> float:
    finite = rows[np.isfinite(rows["evaluations_median"]) & (rows["evaluations_median"] > 0)]
    if finite["dim"].nunique() < 2:
        return float("nan")
    return float(np.polyfit(np.log(finite["dim"].to_numpy(float)), np.log(finite["evaluations_median"]), 1)[0])


@styled
def draw(rows: Frame, target: float = effort.TARGET) -> Picture:
    """A panel for each function."""
    looks = searchers(rows["method"])
    panel = partial(_panel, looks=looks)
    fig = panels.each(rows, panel, "dimension d", f"evaluations to {target:g}", by="function", height=2.9)
    keys = lines.entries(looks)
    keys.append(drawing.entry("not within this budget", ls="", marker="^", ms=8, mfc="none", mew=1.4, color=FAINT))
    keys.append(drawing.entry("fitted exponent", ls="", marker="$d^{\\,a}$", ms=12, color=INK, mew=0.3))
    drawing.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    panels.ready(ax, rows, "not measured", "xy")
    dims = np.unique(rows["dim"].to_numpy(float))
    ends = []
    for method, line in by_method(rows, looks, "dim"):
        look = looks[method]
        dim, middle, low, high = numbers(line, "dim", "evaluations_median", "evaluations_low", "evaluations_high")
        finite = np.isfinite(middle)
        ax.plot(dim[finite], middle[finite], label=method, **lines.kind(look))
        bounded = finite & np.isfinite(low) & np.isfinite(high)
        lines.bars(ax, dim[bounded], low[bounded], high[bounded], look, f"{method}: 95 %")
        if not finite.all():
            style = {"marker": "^", "ms": 9, "mfc": "none", "mew": 1.6, "color": look.colour, "ls": ""}
            ax.plot(dim[~finite], line["budget"].to_numpy(float)[~finite], label=f"{method}: not within", **style)
        exponent = float(line["exponent"].iloc[0])
        if np.isfinite(exponent):
            ends.append((middle[finite][-1], f"$d^{{\\,{exponent:.2f}}}$", look.colour))
    ax.set_xlim(dims[0] / 1.25, dims[-1] * (dims[-1] / dims[0]) ** 0.24)
    ax.set_xticks(dims, [f"{dim:g}" for dim in dims])
    ax.minorticks_off()
    panels.decades(ax, "y")
    lines.ends(ax, ends, 0.085)


SCALING = Figure(
    "scaling", "targets", select, draw,
    caption="Evaluations until f at the distribution's mean met the target, against the dimension: medians over the "
    "repetitions with intervals of at least 95 %, and exponents fitted by least squares. An open triangle marks the "
    "budget if at most half of the repetitions met the target; the fit excludes it.",
    answer="evaluations of each search to the target against the dimension.",
    settings=solved,
)  # fmt: skip
