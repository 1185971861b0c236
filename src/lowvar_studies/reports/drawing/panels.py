"""Shared code of figures: grids of panels, axes along a run, formatted numbers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from lowvar.core.drawing import FAINT, SMALL, Axes, Picture, cells, figure, say
from lowvar_studies.reports.declarations import Frame
from lowvar_studies.reports.drawing.style import Estimator


def outer(axes: list[Axes], columns: int, x: str = "", y: str = "") -> None:
    """Labels the outer panels of a grid: ``y`` at the left, ``x`` at the bottom of each column."""
    for rank, ax in enumerate(axes):
        if y and rank % columns == 0:
            ax.set_ylabel(y)
        if x and rank + columns >= len(axes):
            ax.set_xlabel(x)


def grid(count: int, x: str = "", y: str = "", height: float = 2.8) -> tuple[Picture, list[Axes]]:
    """A figure with ``count`` equal panels, two in a row, with outer labels."""
    fig = figure(height * math.ceil(count / min(count, 2)))
    axes = cells(fig, count, min(count, 2))
    outer(axes, 2, x, y)
    fig.align_ylabels(axes[::2])
    return fig, axes


def each(rows: Frame, draw: Callable[[Axes, Frame], Any], x: str, y: str, *, by: str = "problem", height: float = 2.8,
         title: Callable[[Any], str] = str) -> Picture:  # fmt: skip
    """A figure with a panel for each value of the column ``by``; ``draw(panel, rows)`` draws the rows of a value."""
    values = list(rows[by].drop_duplicates())
    fig, axes = grid(len(values), x, y, height)
    for value, ax in zip(values, axes, strict=True):
        ax.set_title(title(value))
        draw(ax, rows[rows[by] == value])
    return fig


def ready(ax: Axes, rows: Frame, why: str, log: str = "y") -> bool:
    """Sets a grid and makes the axes of ``log`` logarithmic; without rows, writes ``why`` and returns False."""
    if not len(rows):
        say(ax, why)
        return False
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log")
    ax.grid()
    return True


def short(looks: dict[str, Estimator], width: int = 22) -> list[str]:
    """Labels of methods, shortened to fit beside a panel."""
    return [textwrap.shorten(look.label, width, placeholder="...") for look in looks.values()]


def decades(ax: Axes, axis: str = "x", most: int = 99, ends: tuple[float, float] | None = None) -> None:
    """Sets ticks at powers of ten, or at round numbers between them if the axis has fewer than two.

    Args:
        ax: the panel.
        axis: ``x`` or ``y``, logarithmic.
        most: maximum number of powers.
        ends: range of exponents; by default that of the axis.
    """
    low, high = ends or (math.log10(end) for end in getattr(ax, f"get_{axis}lim")())
    inside = list(range(math.ceil(low), math.floor(high) + 1))
    ticks = {10.0**power: f"$10^{{{power}}}$" for power in inside[:: max(1, math.ceil(len(inside) / most))]}
    if len(inside) < 2:
        digits = (
            digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in (1, 2, 3, 5)
        )
        ticks = {value: f"{value:g}" for value in digits if low <= math.log10(value) <= high}
    getattr(ax, f"set_{axis}ticks")(list(ticks), list(ticks.values()))
    ax.minorticks_off()


def run_axis(ax: Axes, values: np.ndarray) -> None:
    """Scales the horizontal axis along a run: logarithmic for more than a decade, with room for a 0."""
    values = np.unique(np.asarray(values, float)[np.isfinite(values)])
    positive = values[values > 0]
    if len(values) == 1:
        ax.set_xticks(values, [f"{values[0]:g}"])
    if positive.size == 0 or positive[-1] < 12 * positive[0]:
        if len(values) > 1 and (values == np.round(values)).all():  # iterations, epochs: none between two of them
            ax.locator_params(axis="x", integer=True)
        return
    powers = 10.0 ** np.arange(math.floor(math.log10(positive[0])), math.ceil(math.log10(positive[-1])) + 1)
    inside = powers[(powers >= positive[0]) & (powers <= positive[-1])]
    powers = inside if len(inside) + (values[0] <= 0) > 2 else np.sort(np.concatenate([powers, 3 * powers]))
    powers = powers[(powers >= positive[0]) & (powers <= positive[-1])]
    if len(powers) > 6:
        powers = powers[(len(powers) - 1) % 2 :: 2]
    if values[0] <= 0:
        ax.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
        ax.set_xlim(-0.15 * positive[0], positive[-1] * 1.35)
        powers = np.concatenate([[0.0], powers])
    else:
        ax.set_xscale("log")
    ax.set_xticks(powers, [_power(value) for value in powers])
    ax.minorticks_off()


def amortised(runs: Iterable[float]) -> str:
    r"""The label, in two lines, of the time of one run of a job that computes several together.

    >>> amortised([50, 50]), amortised([8, 50]), amortised([1])
    ('seconds, amortised over\n50 vectorised runs', 'seconds, amortised over\n8 to 50 vectorised runs', 'seconds')
    """
    numbers = sorted({int(one) for one in runs if math.isfinite(one)})
    if not numbers or numbers[-1] == 1:
        return "seconds"
    ends = " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
    return f"seconds, amortised over\n{ends} vectorised runs"


def one_place(ax: Axes, value: float) -> None:
    """A horizontal axis of methods side by side at their only value: one tick that names it, and no scale."""
    ax.set_xticks([value], [f"all at {value:.3g}"])
    ax.minorticks_off()


def note(ax: Axes, text: str) -> None:
    """Writes a remark about missing lines between a panel and its title, no wider than the panel."""
    ax.set_title(ax.get_title(loc="left"), pad=20)
    place = ax.get_subplotspec()
    beside = place.get_gridspec().ncols if place is not None else 1
    text = textwrap.shorten(text, {1: 50, 2: 36}.get(beside, 26), placeholder=" ...")
    ax.text(0, 1.02, text, transform=ax.transAxes, va="bottom", fontsize=SMALL, color=FAINT)


def labels(looks: dict[str, Estimator], methods: Container[str]) -> list[str]:
    """The labels of ``methods``, in the figure's order."""
    return [look.label for method, look in looks.items() if method in methods]


def notes(ax: Axes, fates: dict[str, list[str]]) -> None:
    """Writes the labels of the methods of each fate, such as ``diverged``, if there are any."""
    if any(fates.values()):
        note(ax, "; ".join(f"{fate}: {', '.join(labels)}" for fate, labels in fates.items() if labels))


def frame(ax: Axes, low: np.ndarray, middle: np.ndarray, high: np.ndarray) -> None:
    """Sets the limits of a logarithmic axis: intervals are shown up to a factor of 5 beyond the outermost means."""
    ends = [np.nanmin(middle), np.nanmax(middle)]
    ends[0] = max(ends[0] / 5, np.nanmin(np.append(low[low > 0], ends[0])))
    ends[1] = min(ends[1] * 5, np.nanmax(np.append(high[np.isfinite(high)], ends[1])))
    room = (ends[1] / ends[0]) ** 0.05 * 1.02
    ax.set_ylim(ends[0] / room, ends[1] * room)


def _power(value: float) -> str:
    if value == 0 or 0.01 <= value < 1e4:
        return f"{value:g}"
    digit, power = f"{value:.0e}".split("e")
    return f"$10^{{{int(power)}}}$" if digit == "1" else f"${digit}\\times 10^{{{int(power)}}}$"
