"""Evaluations of each search to one target: for all problems and methods, and against the dimension."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture
from lowvar.errors import UserError
from lowvar_studies.jobs.search.spec import TARGET
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import by_hue, log_slopes, one_backend, problems
from lowvar_studies.reports.drawing.style import searchers
from lowvar_studies.reports.search import progress as tables
from lowvar_studies.reports.search.figures.curves import centre
from lowvar_studies.reports.search.gathering import solved

_COLUMNS = 3
_DIM = r"_\d+$"  # the dimension at the end of a problem's name
_EVALUATIONS = ("evaluations_median", "evaluations_low", "evaluations_high")


def select(targets: Frame, target: float = TARGET) -> Frame:
    """The rows of one target of f at the mean."""
    rows = targets[tables.same_target(targets["target"], target) & (targets["of"] == "mean")]
    if not len(rows):
        raise UserError(f"targets table: no target {target:g}; there are 1e4 to 1e-10 in steps of 0.2 decades")
    return one_backend(rows)


def draw(rows: Frame, target: float = TARGET) -> Picture:
    """A panel for each problem, a row for each method."""
    names, looks = problems(rows), searchers(rows["method"])
    columns = min(len(names), _COLUMNS)
    fig = drawing.figure(math.ceil(len(names) / columns) * (0.235 * len(looks) + 0.75) + 0.25)
    axes = drawing.cells(fig, len(names), columns)
    ends = _ends(rows)
    for rank, (name, ax) in enumerate(zip(names, axes, strict=True)):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], looks, ends)
        if rank % columns == 0:
            ax.set_yticks(range(len(looks)), charts.short(looks))
    charts.outer(axes, columns, "evaluations")
    keys = [
        drawing.entry(
            f"median until f({centre(looks)}) − f* ≤ {target:g}", ls="", marker="o", color=FAINT, mec=INK, mew=0.6
        ),
        drawing.entry("95 % interval", marker="|", ms=6, lw=1.6, color=FAINT),
        drawing.entry("not within this budget", ls="", marker=">", ms=7, mfc="none", mew=1.4, color=FAINT),
        drawing.entry("runs that met it", ls="", marker="$n/m$", ms=16, color=FAINT, mew=0.3),
    ]
    drawing.legend(fig, keys)
    return fig


def _ends(rows: Frame) -> tuple[float, float]:
    values = rows[[*_EVALUATIONS, "budget"]].to_numpy(float)
    values = values[np.isfinite(values) & (values > 0)]
    low, high = math.log10(values.min()), math.log10(values.max())
    if math.floor(high) - math.ceil(low) < 1:  # the axis needs two powers of ten
        low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    room = 0.07 * max(high - low, 0.5)
    return low - room, high + room


def _panel(ax: Axes, rows: Frame, looks: dict, ends: tuple[float, float]) -> None:
    ax.set_xscale("log")
    span = ends[1] - ends[0]
    ax.set_xlim(10 ** ends[0], 10 ** (ends[1] + 0.36 * span))  # room for the counts at the right
    drawing.lanes(ax, len(looks))
    ax.set_yticks(range(len(looks)), [""] * len(looks))
    ax.grid(axis="x")
    count: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": SMALL}
    for y, (method, look) in enumerate(looks.items()):
        ax.axhline(y, color="#F0F0F0", lw=6, zorder=0)
        mine = rows[rows["method"] == method]
        if not len(mine):
            ax.text(0.98, y, "not run", transform=ax.get_yaxis_transform(), color=FAINT, **count)
            continue
        row = mine.iloc[0]
        middle, low, high = (float(row[f"evaluations_{part}"]) for part in ("median", "low", "high"))
        budget = float(row["budget"])
        if np.isfinite(low):
            right = high if np.isfinite(high) else budget
            style = {"color": look.colour, "lw": 1.8, "marker": "|", "ms": 7, "zorder": 2}
            ax.plot([low, right], [y, y], label=f"{method}: 95 %", **style)
        if np.isfinite(middle):
            ax.plot(max(middle, 1.0), y, ls="", color=look.colour, marker=look.marker, ms=7, mec=INK, mew=0.6,
                    label=method, zorder=3)  # fmt: skip
        else:
            style = {"marker": ">", "ms": 8, "mfc": "white", "mew": 1.6, "zorder": 3}
            ax.plot(budget, y, ls="", color=look.colour, label=f"{method}: not within", **style)
        words = f"{int(row['reached'])}/{int(row['repetitions'])}"
        weight = "bold" if row["reached"] == row["repetitions"] else "normal"
        ax.text(0.99, y, words, transform=ax.get_yaxis_transform(), color=INK, weight=weight, **count)


EFFORT = Figure(
    "effort", tables.TARGETS, select, draw,
    caption="Evaluations of f until f at the distribution's mean first met the target: medians over the repetitions "
    "with intervals of at least 95 %, and the number of repetitions that met it. An open triangle marks the budget if "
    "at most half of them did.",
    answer="evaluations of each search to the target, median over repetitions with its 95 % interval, and the number "
    "of repetitions that met it.",
    settings=solved,
)  # fmt: skip


def select_dims(targets: Frame, target: float = TARGET) -> Frame:
    """The rows of functions with several dimensions, with fitted exponents.

    A problem's name is ``{function}_{dim}``. ``exponent`` is the least-squares slope of log evaluations against log
    dimension, over the dimensions with a finite median; NaN for fewer than two of them.
    """
    rows = select(targets, target)
    rows = rows.assign(function=rows["problem"].str.replace(_DIM, "", regex=True))
    several = rows.groupby("function")["dim"].transform("nunique") > 1
    rows = rows[several].sort_values("dim", kind="stable").reset_index(drop=True)
    if not len(rows):
        raise UserError("targets table: no function in several dimensions; name their problems function_dim")
    return rows.assign(exponent=log_slopes(rows, ["function", "method", "backend"], "dim", "evaluations_median"))


def draw_dims(rows: Frame, target: float = TARGET) -> Picture:
    """A panel for each function."""
    looks = searchers(rows["method"])
    panel = partial(_against_dim, looks=looks)
    fig = charts.each(rows, panel, "dimension d", f"evaluations to {target:g}", by="function", height=2.9)
    keys = charts.entries(looks)
    keys.append(drawing.entry("not within this budget", ls="", marker="^", ms=8, mfc="none", mew=1.4, color=FAINT))
    keys.append(drawing.entry("fitted exponent", ls="", marker="$d^{\\,a}$", ms=12, color=INK, mew=0.3))
    drawing.legend(fig, keys)
    return fig


def _against_dim(ax: Axes, rows: Frame, looks: dict) -> None:
    charts.ready(ax, rows, "not measured", "xy")
    dims, ends = np.unique(rows["dim"].to_numpy(float)), []
    met = rows[np.isfinite(rows["evaluations_median"])]
    met = met.assign(**met[["evaluations_low", "evaluations_high"]].replace(np.inf, np.nan))
    charts.draw(ax, met, looks, "dim", *_EVALUATIONS, mark="bars")
    for method, line in by_hue(rows, looks, order="dim"):
        look, late = looks[method], line[~np.isfinite(line["evaluations_median"])]
        if len(late):
            style = {"marker": "^", "ms": 9, "mfc": "none", "mew": 1.6, "color": look.colour, "ls": ""}
            ax.plot(late["dim"], late["budget"], label=f"{method}: not within", **style)
        exponent = float(line["exponent"].iloc[0])
        if np.isfinite(exponent):
            last = line.loc[np.isfinite(line["evaluations_median"]), "evaluations_median"].iloc[-1]
            ends.append((last, f"$d^{{\\,{exponent:.2f}}}$", look.colour))
    ax.set_xlim(dims[0] / 1.25, dims[-1] * (dims[-1] / dims[0]) ** 0.24)
    ax.set_xticks(dims, [f"{dim:g}" for dim in dims])
    ax.minorticks_off()
    charts.ends(ax, ends)


SCALING = Figure(
    "scaling", tables.TARGETS, select_dims, draw_dims,
    caption="Evaluations until f at the distribution's mean met the target, against the dimension: medians over the "
    "repetitions with intervals of at least 95 %, and exponents fitted by least squares. An open triangle marks the "
    "budget if at most half of the repetitions met the target; the fit excludes it.",
    answer="evaluations of each search to the target against the dimension.",
    settings=solved,
)  # fmt: skip
