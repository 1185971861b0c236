"""Lines and their legends: what the look of each estimator and backend becomes in a figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lowvar.studies.drawing.style import BAND, INK, SMALL, Estimator

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def band(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Estimator, label: str, part=1.0) -> None:
    """An interval along a line: a band, or an upright bar where the line is one point."""
    if len(x) > 1:
        ax.fill_between(x, low, high, color=look.colour, alpha=BAND * part, lw=0, label=label)
    else:
        ax.vlines(x, low, high, color=look.colour, lw=2.5, alpha=0.6, label=label)


def legend(fig: Figure, handles: list) -> None:
    """One legend above all panels, in as many columns as have room; the figure grows by its height."""
    from matplotlib.textpath import TextPath

    size = SMALL + 0.5
    beside = 4.6 * size  # a handle, its distance to the text, and the gap between columns
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


def kind(look: Estimator, rank: int = 0) -> dict[str, Any]:
    """How a line is drawn: full for the first backend; for the others open markers on a thin dashed line."""
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker}
    if rank == 0:
        return style | {"ls": look.dash, "lw": look.width, "ms": look.size}
    return style | {"ls": (0, (3, 2)), "lw": 1.0, "ms": look.size + 4, "mfc": "none", "mew": 1.2}


def keys(looks: dict[str, Estimator], backends: list[str] | tuple = ()) -> list:
    """Legend entries: a line for each estimator, and what tells the backends apart if there are two."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries = [Line2D([], [], **kind(look), label=look.label) for look in looks.values()]
    if len(backends) > 1:
        plain = Estimator("", INK, "o")
        entries.append(Line2D([], [], **kind(plain), label=f"filled, line: {backends[0]}"))
        entries.append(Line2D([], [], **kind(plain, 1), label=f"open, dashed: {', '.join(backends[1:])}"))
    return [*entries, Patch(color=INK, alpha=BAND, lw=0, label="95 % interval")]
