"""What the figures share: grids of panels, axes along a run, legends, numbers in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.figures.style import BAND, FAINT, INK, SMALL, WIDTH, Estimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


def figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of its own, outside pyplot; sizes in inches."""
    from matplotlib.figure import Figure

    new = Figure(figsize=(width, height), layout="constrained")
    new.get_layout_engine().set(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)  # pyright: ignore
    return new


def grid(count: int, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` equal panels, two in a row."""
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    new = figure(height * rows + 0.6, WIDTH * (0.8 if columns == 1 else 1.0))
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


def run_axis(ax: Axes, values: np.ndarray) -> None:
    """Scales the horizontal axis along a run: logarithmic where that pays, with room for 0 where 0 is drawn."""
    values = np.unique(np.asarray(values, float)[np.isfinite(values)])
    positive = values[values > 0]
    if len(values) == 1:
        ax.set_xticks(values, [f"{values[0]:g}"])
    if positive.size == 0 or positive[-1] < 12 * positive[0]:
        return
    powers = 10.0 ** np.arange(math.ceil(math.log10(positive[0])), math.floor(math.log10(positive[-1])) + 1)
    if values[0] <= 0:
        ax.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
        ax.set_xlim(-0.15 * positive[0], positive[-1] * 1.35)
        powers = np.concatenate([[0.0], powers])
    else:
        ax.set_xscale("log")
    ax.set_xticks(powers, [_power(value) for value in powers])
    ax.minorticks_off()


def band(
    ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Estimator, label: str, part=1.0
) -> None:
    """An interval along a line: a band, or an upright bar where the line is one point."""
    if len(x) > 1:
        ax.fill_between(x, low, high, color=look.colour, alpha=BAND * part, lw=0, label=label)
    else:
        ax.vlines(x, low, high, color=look.colour, lw=2.5, alpha=0.6, label=label)


def say(ax: Axes, text: str) -> None:
    """Says in an empty panel why it is empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=FAINT)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)


def note(ax: Axes, text: str) -> None:
    """Writes a remark about missing lines above a panel, at its right end."""
    ax.set_title(text, loc="right", fontsize=SMALL, fontweight="normal", color=FAINT)


def why_empty(rows: DataFrame) -> str:
    """The reason why rows of a convergence table leave nothing to draw on a logarithmic axis."""
    if not len(rows):
        return "no runs"
    if (rows["diverged"] >= rows["repetitions"]).groupby(rows["method"]).any().all():
        return "all runs diverged"
    if not np.isfinite(rows["gap_mean"]).any():
        return "the optimum is not known,\nso there is no gap to draw"
    return "no positive gap to draw"


def legend(fig: Figure, handles: list) -> None:
    """One legend above all panels, where it covers no data, with as many columns as its texts leave room for."""
    words = [len(handle.get_label().replace("$", "").replace("\\varepsilon", "e")) for handle in handles]

    def needed(columns: int) -> float:
        rows = math.ceil(len(words) / columns)
        tops = [max(words[at : at + rows]) for at in range(0, len(words), rows)]
        return sum(0.078 * top + 0.62 for top in tops)

    fits = [n for n in range(1, len(words) + 1) if needed(n) <= fig.get_figwidth()]
    fig.legend(handles=handles, loc="outside upper left", ncols=max(fits, default=1), columnspacing=1.4)


def kind(look: Estimator, rank: int = 0) -> dict[str, Any]:
    """How a line is drawn: full for the first backend; for the others open markers on a thin dashed line."""
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker}
    if rank == 0:
        return style | {"lw": look.width, "ms": look.size}
    return style | {"ls": (0, (3, 2)), "lw": 1.0, "ms": look.size + 4, "mfc": "none", "mew": 1.2}


def keys(looks: dict[str, Estimator], backends: list[str] | tuple = ()) -> list:
    """Legend entries: a line for each estimator, and what tells the backends apart if there are two."""
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], **kind(look), label=look.label) for look in looks.values()]
    if len(backends) > 1:
        plain = Estimator("", INK, "o")
        entries.append(Line2D([], [], **kind(plain), label=f"filled, line: {backends[0]}"))
        entries.append(Line2D([], [], **kind(plain, 1), label=f"open, dashed: {', '.join(backends[1:])}"))
    return entries


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

    >>> times(1.94), times(27.3), times(0.5), times(31234.0)
    ('1.9× less', '27× less', '2.0× more', '3.1e4× less')
    """
    if not math.isfinite(value) or value <= 0:
        return "n/a"
    return f"{number(max(value, 1 / value))}× {'less' if value >= 1 else 'more'}"


def _power(value: float) -> str:
    return f"{value:g}" if 0.01 <= value <= 1000 or value == 0 else f"$10^{{{math.log10(value):.0f}}}$"
