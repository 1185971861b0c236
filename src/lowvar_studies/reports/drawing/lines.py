"""Lines, bands and legends in the style of each method and backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lowvar.core.drawing import BAND, FAINT, INK, SMALL, Axes, entry, patch
from lowvar_studies.reports.declarations import Frame
from lowvar_studies.reports.drawing.rows import by_method, numbers
from lowvar_studies.reports.drawing.style import Estimator

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


def draw(
    ax: Axes,
    rows: Frame,
    looks: dict[str, Estimator],
    x: str,
    y: str,
    low: str = "",
    high: str = "",
    *,
    mark: str = "band",
    markers: int = 0,
    name: str = "{}",
    style: Callable[..., dict] | None = None,
) -> None:
    """A line for each method with rows, in the figure's order, from columns of tidy rows.

    Args:
        ax: the panel; on a logarithmic axis, an interval that reaches 0 leaves the panel at its lower end.
        rows: those of the panel; they may lack methods.
        looks: the style of each method.
        x: column of the horizontal axis, by which a line is sorted.
        y: column of the values.
        low: column of the lower ends of intervals; none without it.
        high: column of the upper ends.
        mark: of intervals: ``band``, or ``bars``; ``beside``: bands, or bars side by side for many methods.
        markers: about how many markers a line has; by default one at each value.
        name: the label of a line, with the method's name in braces.
        style: ``style(look)``: of the line, by default ``kind``.
    """
    for method, line in by_method(rows, looks, x):
        look, label = looks[method], name.format(method)
        at, middle = numbers(line, x, y)
        if low:
            bottom, top = numbers(line, low, high)
            if ax.get_yscale() == "log":
                bottom = np.maximum(bottom, 1e-3 * middle)
            interval_of = f"{label}: 95 %"
            if mark == "bars":
                bars(ax, at, bottom, top, look, interval_of)
            elif mark == "beside" and len(looks) > BANDS:
                beside(ax, at, bottom, top, look, interval_of, list(looks).index(method), len(looks))
            else:
                band(ax, at, bottom, top, look, interval_of)
        every = max(1, len(line) // markers) if markers else None
        ax.plot(at, middle, label=label, markevery=every, **(style or kind)(look))


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
