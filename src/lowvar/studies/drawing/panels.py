"""What the figures share: grids of panels, axes along a run, legends, numbers in words."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing.style import FAINT, SMALL, WIDTH
from lowvar.studies.drawing.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REACH = 1e3  # of an axis of ELBOs: the largest distance shown over the smallest


def figure(height: float) -> Figure:
    """An empty figure of the common width, outside pyplot; ``height`` in inches, without the legend."""
    from matplotlib.figure import Figure

    new = Figure(figsize=(WIDTH, height), layout="constrained")
    new.get_layout_engine().set(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)  # pyright: ignore
    return new


def grid(count: int, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` equal panels, two in a row."""
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    new = figure(height * rows)
    axes = list(new.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.remove()
    return new, axes[:count]


def label(axes: list[Axes], x: str, y: str) -> None:
    """Labels a grid's panels: ``y`` at the left ones, ``x`` at the lowest of each column."""
    for rank, ax in enumerate(axes):
        if rank % 2 == 0:
            ax.set_ylabel(y)
        if rank + 2 >= len(axes):
            ax.set_xlabel(x)
    axes[0].get_figure().align_ylabels(axes[::2])  # pyright: ignore


def run_axis(ax: Axes, values: np.ndarray) -> None:
    """Scales the horizontal axis along a run: logarithmic where that pays, with room for a 0."""
    values = np.unique(np.asarray(values, float)[np.isfinite(values)])
    positive = values[values > 0]
    if len(values) == 1:
        ax.set_xticks(values, [f"{values[0]:g}"])
    if positive.size == 0 or positive[-1] < 12 * positive[0]:
        return
    powers = 10.0 ** np.arange(math.floor(math.log10(positive[0])), math.ceil(math.log10(positive[-1])) + 1)
    inside = powers[(powers >= positive[0]) & (powers <= positive[-1])]
    powers = inside if len(inside) > 2 else np.sort(np.concatenate([powers, 3 * powers]))
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


def say(ax: Axes, text: str) -> None:
    """Says in an empty panel why it is empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=FAINT)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)


def note(ax: Axes, text: str) -> None:
    """Writes a remark about missing lines between a panel and its title."""
    ax.set_title(ax.get_title(loc="left"), pad=20)
    text = textwrap.shorten(text, 50, placeholder=" ...")
    ax.text(0, 1.02, text, transform=ax.transAxes, va="bottom", fontsize=SMALL, color=FAINT)


def frame(ax: Axes, low: np.ndarray, middle: np.ndarray, high: np.ndarray) -> None:
    """Limits of a logarithmic axis: intervals are shown up to a factor of 5 beyond the outermost means."""
    ends = [np.nanmin(middle), np.nanmax(middle)]
    ends[0] = max(ends[0] / 5, np.nanmin(np.append(low[low > 0], ends[0])))
    ends[1] = min(ends[1] * 5, np.nanmax(np.append(high[np.isfinite(high)], ends[1])))
    room = (ends[1] / ends[0]) ** 0.05 * 1.02
    ax.set_ylim(ends[0] / room, ends[1] * room)


def quantity(rows: Table) -> str:
    """What a panel of a convergence table shows: ``"gap"`` where the optimum is known, else ``"elbo"``."""
    return "elbo" if rows["gap_mean"].isna().all() and np.isfinite(rows["elbo_mean"]).any() else "gap"


def elbo_axis(ax: Axes, drawn: Table) -> float:
    """Scales an axis of ELBOs: logarithmic in the distance to a little above the best, with ELBOs at its ticks.

    How little: a tenth of naive's distance to the best, by their best means (of the worst method's, where naive is the
    best or is not there), or the half width of the best one's interval, so that no line leaves the panel because it is
    the best itself. A thousand times that is shown.

    Args:
        ax: the panel.
        drawn: finite rows of a convergence table.

    Returns:
        The lowest ELBO that is shown.
    """
    best = drawn.groupby("method")["elbo_mean"].max()
    top, values = float(best.max()), drawn["elbo_mean"].to_numpy(float)
    apart = top - best.get("naive", top)
    apart = apart if apart > 0 else (top - best.min()) or (top - values.min()) / 10 or 1e-3 * abs(top) or 1.0
    room = np.nan_to_num(float(drawn.loc[drawn["elbo_mean"].idxmax(), "elbo_high"]) - top)
    least = max(0.1 * apart, min(1.1 * room, apart))
    ceiling = top + least
    lowest = max(values.min(), ceiling - _REACH * least)

    def forward(elbo):
        return -np.log10(np.maximum(ceiling - np.asarray(elbo, float), 1e-6 * least))

    ax.set_yscale("function", functions=(forward, lambda height: ceiling - 10.0 ** -np.asarray(height, float)))
    farthest = (ceiling - lowest) * 1.15
    ax.set_ylim(ceiling - farthest, ceiling - 0.4 * least)
    size = max(abs(top), abs(lowest))
    power = 0 if size < 1e4 else 3 * int(math.log10(size) // 3)
    ticks = _elbo_ticks(ceiling, least, farthest)
    ax.set_yticks(ticks, [f"{tick / 10**power:.10g}" for tick in ticks])
    ax.minorticks_off()
    unit = {0: "nats", 3: "1000 nats", 6: "million nats"}.get(power, f"$10^{{{power}}}$ nats")
    ax.set_ylabel(f"ELBO ({unit})")
    return ceiling - farthest


def _elbo_ticks(ceiling: float, least: float, most: float) -> list[float]:
    """Round ELBOs at about geometric distances below ``ceiling``, five or so."""
    decades = math.log10(most / least)
    ticks: list[float] = []
    for part in np.linspace(0.02, 0.97, 5):
        distance = least * 10 ** (part * decades)
        unit = 10.0 ** math.floor(math.log10(distance / 2))
        tick = round((ceiling - distance) / unit) * unit
        if 0.4 * least < ceiling - tick < most and (not ticks or ceiling - tick > 1.4 * (ceiling - ticks[-1])):
            ticks.append(tick)
    return ticks


def lost(rows: Table) -> Table:
    """Which rows belong to a line that ends without a mean, because repetitions diverged."""
    lines = [rows[name] for name in ("problem", "method", "backend", "step_size")]
    known = np.isfinite(rows["gap_mean"]) | np.isfinite(rows.get("elbo_mean", np.nan))
    dead = (rows["diverged"] > 0) & ~known
    return dead.groupby(lines, dropna=False).transform("any")


def why_empty(rows: Table) -> str:
    """The reason why rows of a convergence table leave nothing to draw."""
    if not len(rows):
        return "no runs"
    if lost(rows).all():
        whole = (rows["diverged"] >= rows["repetitions"])[rows["diverged"] > 0].all()
        return "all runs diverged" if whole else "some runs diverged\nat every step size"
    return "nothing finite to draw"


def number(value: float) -> str:
    """Two digits, as the command line prints them.

    >>> number(40412.0), number(3.14159), number(0.00012), number(float("nan"))
    ('4.0e4', '3.1', '1.2e-4', 'n/a')
    """
    if not math.isfinite(value):
        return "n/a"
    if value == 0 or 0.095 <= abs(value) < 995:
        return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e{int(power)}"


def times(value: float) -> str:
    """A factor in words.

    >>> times(1.94), times(27.3), times(0.5), times(31234.0), times(1.04)
    ('1.9× less', '27× less', '2.0× more', '3.1e4× less', '4 % less')
    """
    if not math.isfinite(value) or value <= 0:
        return "n/a"
    if 1 / 1.1 < value < 1.1:
        return f"{100 * abs(1 - 1 / value):.0f} % {'less' if value >= 1 else 'more'}"
    return f"{number(max(value, 1 / value))}× {'less' if value >= 1 else 'more'}"


def _power(value: float) -> str:
    if value == 0 or 0.01 <= value < 1e4:
        return f"{value:g}"
    digit, power = f"{value:.0e}".split("e")
    return f"$10^{{{int(power)}}}$" if digit == "1" else f"${digit}\\times 10^{{{int(power)}}}$"
