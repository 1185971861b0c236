"""What the mean squared error of integrals is made of: squared bias and variance, beside Monte Carlo's."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, INK, SMALL, integrators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.integral.figures.errors import title
from lowvar.studies.integral.figures.integral_tables import of_split

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {"bias2": ("bias²", "#D55E00", "D"), "variance": ("variance", "#0072B2", "o")}
_PLACE = {"bias2": -0.16, "variance": 0.16}  # of a dot in its row, which has height 1
_BASELINE = "monte_carlo"
_REACH = 1e-3  # of the smallest variance: what is smaller is not drawn to scale


@styled
def split(table: Table, task: str | None = None, sizes: str | tuple[str, ...] | None = None) -> Figure:
    """Draws squared bias and variance of each method's estimates over repetitions, with 95 % intervals.

    A logarithmic axis cannot be stacked, so the two stand one below the other: the one farther to the right is the
    larger. Where the bias cannot be told from 0 there is no dot, and an arrow begins at its upper limit. Words say how
    the mean squared error compares with Monte Carlo's, whose variance is the line.

    Args:
        table: columns ``problem, task, method, backend, sizes, points`` and, each with ``_low`` and ``_high``, ``mse,
            bias2, variance``.
        task: which task; if None, each problem's last.
        sizes: which; if None, the fewest and the most points of each problem.

    Returns:
        A figure with a panel for each problem and sizes, a row for each method.

    Raises:
        UserError: a column is missing, or a name is unknown.
    """
    from matplotlib.lines import Line2D

    rows = of_split(table, task, sizes)
    groups = [(name, size) for name in tables.problems(rows)
              for size in rows.loc[rows["problem"] == name, "sizes"].drop_duplicates()]  # fmt: skip
    looks = integrators(rows["method"])
    columns = min(len(groups), 2)
    height = math.ceil(len(groups) / columns)
    fig = panels.figure(height * (0.38 * len(looks) + 0.8) + 0.25)
    axes = list(fig.subplots(height, columns, squeeze=False).flat)
    for spare in axes[len(groups) :]:
        spare.remove()
    names = [textwrap.shorten(look.label, 22, placeholder="...") for look in looks.values()]
    for rank, ((name, size), ax) in enumerate(zip(groups, axes, strict=False)):
        here = rows[rows["problem"] == name]
        ax.set_title(title(name, here["task"].iloc[0], size))
        _panel(ax, here[here["sizes"] == size].set_index("method"), list(looks), _ends(here))
        ax.set_yticks(range(len(looks)), names if rank % columns == 0 else [""] * len(looks))
        if rank + columns >= len(groups):
            ax.set_xlabel("part of the mean squared error")
    keys: list = [Line2D([], [], color=colour, marker=marker, mec=INK, mew=0.6, lw=1.8, label=f"{words}, 95 % interval")
                  for words, colour, marker in PARTS.values()]  # fmt: skip
    keys.append(Line2D([], [], color=PARTS["bias2"][1], marker="<", ms=6, lw=1.8, label="bias² at most"))
    keys.append(Line2D([], [], color=INK, lw=1.1, ls=(0, (1, 2)), label="variance of Monte Carlo"))
    lines.legend(fig, keys)
    return fig


def _ends(rows: Table) -> tuple[float, float]:
    """The axis of a problem, the same for all of its sizes."""
    parts = rows[["variance", "variance_high", "bias2_high"]].to_numpy(float)
    parts = np.where(np.isfinite(parts) & (parts > 0), parts, np.nan)
    if np.isnan(parts).all():
        return 0.1, 10.0
    least = np.nanmin(parts)
    if not np.isnan(parts[:, 0]).all():
        least = max(least, _REACH * np.nanmin(parts[:, 0]))
    most = np.nanmax(parts)
    return least * (least / most) ** 0.08 / 2, most * 1.6


def _panel(ax: Axes, by: Table, methods: list[str], ends: tuple[float, float]) -> None:
    ax.set_xscale("log")
    ax.set_xlim(*ends)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    _ticks(ax)
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
    if part == "bias2" and np.isfinite(high) and (value <= 0 or low <= 0):  # it cannot be told from 0
        arrow = edge * (ax.get_xlim()[1] / edge) ** 0.02  # clear of the method's name
        ax.plot(
            [arrow, max(high, arrow)], [y, y], color=colour, lw=1.8, alpha=0.45, zorder=2, label=f"{label}, at most"
        )
        ax.plot([arrow], [y], color=colour, marker="<", ms=6, ls="", zorder=3)
        ax.plot([max(high, arrow)], [y], color=colour, marker="|", ms=7, mew=1.8, ls="", zorder=3)
        return
    if value <= 0:
        return
    if np.isfinite([low, high]).all():
        ax.plot([max(low, edge), high], [y, y], color=colour, lw=1.8, zorder=2, label=f"{label}, 95 %")
    ax.plot([max(value, edge)], [y], color=colour, marker=marker, ms=6, mec=INK, mew=0.6, ls="", zorder=4, label=label)


def _against(base: tuple[float, float, float], mine: tuple[float, float, float], method: str) -> str:
    """How a mean squared error compares with Monte Carlo's."""
    if not np.isfinite(mine[0]):
        return "failed"
    if method == _BASELINE or mine[0] <= 0 or not np.isfinite([*base, *mine]).all():
        return ""
    return "undecided" if mine[1] <= base[2] and base[1] <= mine[2] else panels.times(base[0] / mine[0])


def _interval(by: Table, method: str, name: str) -> tuple[float, float, float]:
    if method not in by.index:
        return np.nan, np.nan, np.nan
    return tuple(float(by.loc[method, f"{name}{end}"]) for end in ("", "_low", "_high"))  # pyright: ignore


def _ticks(ax: Axes) -> None:
    low, high = (math.log10(end) for end in ax.get_xlim())
    inside = list(range(math.ceil(low), math.floor(high) + 1))
    if len(inside) > 1:
        chosen = inside[:: math.ceil(len(inside) / 5)]
        ax.set_xticks([10.0**power for power in chosen], [f"$10^{{{power}}}$" for power in chosen])
        ax.minorticks_off()
