"""Lines, bands and legends in the style of each method and backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowvar.studies.drawing.panels import Axes, Picture
from lowvar.studies.drawing.style import BAND, FAINT, INK, SMALL, Estimator

BANDS = 3  # most lines of a panel whose intervals are bands
_APART = 2.0  # points between the bars of two lines


def band(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Estimator, label: str, part=1.0) -> None:
    """Intervals along a line: a band, or a vertical bar if the line has one point."""
    if len(x) > 1:
        ax.fill_between(x, low, high, color=look.colour, alpha=BAND * part, lw=0, label=label)
    else:
        bars(ax, x, low, high, look, label)


def bars(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Estimator, label: str) -> None:
    """A vertical bar for each interval."""
    ax.vlines(x, low, high, color=look.colour, lw=2.5, alpha=0.6, label=label)


def beside(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Estimator, label: str, rank: int,
           count: int) -> None:  # fmt: skip
    """A vertical bar for each interval, a few points beside those of ``count`` other lines: bands would hide them."""
    from matplotlib.transforms import ScaledTranslation

    shift = ScaledTranslation(_APART * (rank - (count - 1) / 2) / 72, 0, ax.figure.dpi_scale_trans)
    ax.vlines(x, low, high, color=look.colour, lw=1.4, alpha=0.7, label=label, transform=ax.transData + shift)


def in_band(ax: Axes, x: np.ndarray, interval: list[np.ndarray], look: Estimator, label: str,
            place: tuple[int, int] = (0, 1), **style: Any) -> None:  # fmt: skip
    """A line of means on a logarithmic axis with its intervals; ``interval`` is mean, low and high.

    They are a band, or bars if ``place``, the line's number and that of the panel's lines, has more than ``BANDS``.
    """
    middle, low, high = interval
    low, label_of = np.maximum(low, 1e-3 * middle), f"{label}: 95 %"
    if place[1] > BANDS:
        beside(ax, x, low, high, look, label_of, *place)
    else:
        band(ax, x, low, high, look, label_of)
    ax.plot(x, middle, label=label, **style)


def ends(ax: Axes, labels: list[tuple[float, str, str]], apart: float) -> None:
    """Writes ``(height, words, colour)`` at the right edge, ``apart`` of the panel's height or more from each other."""
    last = -np.inf
    for height, words, colour in sorted(labels):
        _, place = ax.transAxes.inverted().transform(ax.transData.transform((ax.get_xlim()[1], height)))
        last = max(place, last + apart)
        style = {"va": "center", "ha": "right", "fontsize": SMALL + 1, "color": colour}
        ax.text(1.0, last, words, transform=ax.transAxes, **style)


def kind(look: Estimator, rank: int = 0) -> dict[str, Any]:
    """The style of a line: solid for the first backend; thin and dashed with open markers for others."""
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker}
    if rank == 0:
        return style | {"ls": look.dash, "lw": look.width, "ms": look.size}
    return style | {"ls": (0, (3, 2)), "lw": 1.0, "ms": look.size + 4, "mfc": "none", "mew": 1.2}


def entry(label: str, **style: Any) -> Any:
    """A legend entry: a line, or a marker if the style has ``ls=""``."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def patch(label: str, lw: float = 0, **style: Any) -> Any:
    """A legend entry: an area."""
    from matplotlib.patches import Patch

    return Patch(label=label, lw=lw, **style)


def entries(looks: dict[str, Estimator]) -> list:
    """A legend entry for each method."""
    return [entry(look.label, **kind(look)) for look in looks.values()]


def interval() -> Any:
    """The legend entry of vertical bars."""
    return entry("95 % interval", color=FAINT, lw=2.5, alpha=0.6)


def keys(looks: dict[str, Estimator], backends: list[str] | tuple = (), bars: bool = False) -> list:
    """Legend entries of lines in bands, or with bars: one for each method, and the styles of several backends."""
    handles = entries(looks)
    if len(backends) > 1:
        plain = Estimator("", INK, "o")
        handles.append(entry(f"filled, solid: {backends[0]}", **kind(plain)))
        handles.append(entry(f"open, dashed: {', '.join(backends[1:])}", **kind(plain, 1)))
    return [*handles, interval() if bars else patch("95 % interval", color=INK, alpha=BAND)]


def legend(fig: Picture, handles: list) -> None:
    """One legend above all panels, with as many columns as fit; the figure grows by its height."""
    from matplotlib.textpath import TextPath

    size = SMALL + 0.5
    beside = 4.6 * size  # width of a handle, its distance to the text, and the gap between columns
    words = [TextPath((0, 0), handle.get_label(), size=size).get_extents().width for handle in handles]

    def needed(columns: int) -> float:
        rows = math.ceil(len(words) / columns)
        tops = [max(words[at : at + rows]) for at in range(0, len(words), rows)]
        return sum(top + beside for top in tops) / 72

    columns = max((n for n in range(1, len(words) + 1) if needed(n) <= fig.get_figwidth()), default=1)
    columns = math.ceil(len(words) / math.ceil(len(words) / columns))
    fig.set_figheight(fig.get_figheight() + 0.22 * math.ceil(len(words) / columns))
    place = {"loc": "outside upper left", "ncols": columns, "fontsize": size}
    fig.legend(handles=handles, handlelength=2, handletextpad=0.8, columnspacing=1.4, **place)
