"""Lines, bands and legends in the style of each method and backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowvar.core.drawing import BAND, FAINT, INK, SMALL, Axes, entry, patch
from lowvar.studies.drawing.style import Estimator

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
