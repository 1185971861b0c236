"""Squared bias and variance of integrals, compared with Monte Carlo's mean squared error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import one_backend
from lowvar_studies.reports.drawing.style import integrators
from lowvar_studies.reports.integral.errors import DECOMPOSITION
from lowvar_studies.reports.integral.estimates import last_task
from lowvar_studies.reports.integral.figures.common import by_sizes, compared, in_series, title

PARTS = {"bias2": ("bias²", "#D55E00", "D"), "variance": ("variance", "#0072B2", "o")}
_PLACE = {"bias2": -0.16, "variance": 0.16}  # of a dot in its row of height 1
_BASELINE = "monte_carlo"
_REACH = 1e-3  # relative to the smallest variance: smaller values are not drawn to scale


def select(decomposition: Frame) -> Frame:
    """The last task of each problem at its fewest and its most points."""
    rows = last_task(one_backend(decomposition))
    points = rows.groupby("problem")["points"]
    ends = (rows["points"] == points.transform("min")) | (rows["points"] == points.transform("max"))
    return rows[ends].reset_index(drop=True)


def draw(rows: Frame) -> Picture:
    """A panel for each problem with Monte Carlo and another method, and sizes; a row for each method.

    The two parts are below each other, because bars cannot be stacked on a logarithmic axis. Text at the right compares
    the mean squared error with Monte Carlo's.
    """
    rows = in_series(compared(rows))
    based = rows["method"].eq(_BASELINE).groupby(rows["problem"]).transform("any")
    rows = rows[based] if based.any() else rows
    groups, looks = by_sizes(rows), integrators(rows["method"])
    columns = min(len(groups), 2)
    fig = drawing.figure(math.ceil(len(groups) / columns) * (0.38 * len(looks) + 0.8) + 0.25)
    axes = drawing.cells(fig, len(groups), columns)
    charts.outer(axes, columns, "part of the mean squared error")
    for rank, ((name, size), ax) in enumerate(zip(groups, axes, strict=True)):
        problem = rows[rows["problem"] == name]
        ax.set_title(title(name, problem["task"].iloc[0], size))
        _panel(ax, problem[problem["sizes"] == size].set_index("method"), list(looks), _ends(problem))
        ax.set_yticks(range(len(looks)), charts.short(looks) if rank % columns == 0 else [""] * len(looks))
    keys = [drawing.entry(f"{words}, 95 % interval", color=colour, marker=marker, mec=INK, mew=0.6, lw=1.8)
            for words, colour, marker in PARTS.values()]  # fmt: skip
    keys.append(drawing.entry("upper limit of bias²", color=PARTS["bias2"][1], marker="<", ms=6, lw=1.8))
    keys.append(drawing.entry("variance of Monte Carlo", color=INK, lw=1.1, ls=(0, (1, 2))))
    keys.append(drawing.entry("mean squared error, compared with Monte Carlo's", ls="", marker=r"$n\!\times$", ms=16,
                            color=INK, mew=0.3))  # fmt: skip
    drawing.legend(fig, keys)
    return fig


def _ends(rows: Frame) -> tuple[float, float]:
    """The limits of a problem's axis, the same for all its sizes."""
    parts = rows[["variance", "variance_high", "bias2_high"]].to_numpy(float)
    parts = np.where(np.isfinite(parts) & (parts > 0), parts, np.nan)
    if np.isnan(parts).all():
        return 0.1, 10.0
    least = np.nanmin(parts)
    if not np.isnan(parts[:, 0]).all():
        least = max(least, _REACH * np.nanmin(parts[:, 0]))
    most = np.nanmax(parts)
    return least * (least / most) ** 0.08 / 2, most * 1.6


def _panel(ax: Axes, by: Frame, methods: list[str], ends: tuple[float, float]) -> None:
    ax.set_xscale("log")
    ax.set_xlim(*ends)
    drawing.lanes(ax, len(methods))
    ax.grid(axis="x")
    word: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": SMALL}
    base = _interval(by, _BASELINE, "mse")
    if _BASELINE in by.index:
        ax.axvline(_interval(by, _BASELINE, "variance")[0], color=INK, lw=1.1, ls=(0, (1, 2)), zorder=1)
    if np.isfinite(by["mse"]).any() and not np.isfinite(by["variance"]).any():
        ax.text(0.5, 0.5, "one repetition, no variance", transform=ax.transAxes, ha="center", color=FAINT)
    for y, method in enumerate(methods):
        ax.axhspan(y - 0.36, y + 0.36, color="#F5F5F5", lw=0, zorder=0)
        if method not in by.index:
            ax.text(1.02, y, "not run", color=FAINT, **word)
            continue
        ax.text(1.02, y, _against(base, _interval(by, method, "mse"), method), **word)
        for part in PARTS:
            _dot(ax, y + _PLACE[part], _interval(by, method, part), part, f"{method}: {part}")


def _dot(ax: Axes, y: float, interval: tuple[float, float, float], part: str, label: str) -> None:
    _, colour, marker = PARTS[part]
    value, low, high = interval
    edge = ax.get_xlim()[0]
    if not np.isfinite(value):
        return
    if part == "bias2" and np.isfinite(high) and (value <= 0 or low <= 0):  # indistinguishable from 0
        arrow = edge * (ax.get_xlim()[1] / edge) ** 0.02  # right of the method's name
        ax.plot(
            [arrow, max(high, arrow)], [y, y], color=colour, lw=1.8, alpha=0.45, zorder=2, label=f"{label}, at most"
        )
        ax.plot([arrow], [y], color=colour, marker="<", ms=6, ls="", zorder=3)
        ax.plot([max(high, arrow)], [y], color=colour, marker="|", ms=7, mew=1.8, ls="", zorder=3)
        return
    if value > 0:
        charts.dot(ax, y, interval, colour, marker, label, edge)


def _against(base: tuple[float, float, float], mine: tuple[float, float, float], method: str) -> str:
    """A mean squared error compared with Monte Carlo's: a factor, or ``undecided`` if the intervals overlap."""
    if not np.isfinite(mine[0]):
        return "failed"
    if method == _BASELINE or mine[0] <= 0 or not np.isfinite([*base, *mine]).all():
        return ""
    return "undecided" if mine[1] <= base[2] and base[1] <= mine[2] else drawing.times(base[0] / mine[0])


def _interval(by: Frame, method: str, name: str) -> tuple[float, float, float]:
    if method not in by.index:
        return np.nan, np.nan, np.nan
    return tuple(float(by.loc[method, f"{name}{end}"]) for end in ("", "_low", "_high"))  # pyright: ignore


SPLIT = Figure(
    "split", DECOMPOSITION, select, draw,
    caption="Mean squared error over repetitions, less the truth's error, split into squared bias and variance, with "
    "95 % intervals. An arrow in place of a dot starts at the upper limit of a bias that is indistinguishable from 0. "
    "The line is the variance of plain Monte Carlo from the same points. At the right: by which factor the mean "
    "squared error is less, or more, than Monte Carlo's; `undecided` if their intervals overlap.",
    answer="mean squared error of each method of integration, split into squared bias and variance.",
)  # fmt: skip
