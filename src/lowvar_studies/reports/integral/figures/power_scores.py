"""Scores of power posteriors along a ladder of temperatures."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, SMALL, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing.rows import whole

_MAP = "viridis_r"  # from the prior (light) to the posterior (dark)
_NAMED = 5  # temperatures labelled on the colour bar


@styled
def draw(rows: Frame) -> Picture:
    """One panel; colours show the position in the ladder, because most temperatures are near 0."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    ladder = rows[["target", "temperature"]].drop_duplicates().sort_values("temperature").reset_index(drop=True)
    shades = matplotlib.colormaps[_MAP](np.linspace(0.05, 1.0, len(ladder)))
    fig = drawing.figure(3.4)
    ax = fig.subplots()
    ax.grid()
    ax.axhline(0, color=INK, lw=0.9, zorder=1)
    for place, target in enumerate(ladder["target"]):
        line = rows[rows["target"] == target].sort_values("x")
        ends = place in (0, len(ladder) - 1)
        ax.plot(line["x"], line["score"], color=shades[place], lw=2.4 if ends else 1.2, label=str(target))
    ax.set(xlabel="x", ylabel="score: d log density / dx")
    ax.margins(x=0.01)
    ax.set_ylim(*_span(rows))
    norm = BoundaryNorm(np.arange(len(ladder) + 1) - 0.5, len(ladder))
    bar = fig.colorbar(ScalarMappable(norm, ListedColormap(list(shades))), ax=ax, aspect=24, pad=0.02)
    chosen = np.unique(np.round(np.linspace(0, len(ladder) - 1, _NAMED)).astype(int))
    names = [_temperature(float(t)) for t in ladder["temperature"].iloc[chosen]]
    bar.set_ticks(list(chosen), labels=names)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=SMALL, length=3)
    bar.ax.set_title("temperature", fontsize=SMALL, weight="normal")
    bar.outline.set_visible(False)  # pyright: ignore
    return fig


def _span(rows: Frame) -> tuple[float, float]:
    """The range of nearly all scores, which are unbounded towards the ends of the support."""
    scores = rows["score"].to_numpy(float)
    scores = scores[np.isfinite(scores)]
    if not len(scores):
        return -1.0, 1.0
    low, high = np.quantile(scores, [0.01, 0.99])
    room = 0.06 * max(high - low, 1e-12)
    return float(low - room), float(high + room)


def _temperature(value: float) -> str:
    """A temperature as text.

    >>> [_temperature(t) for t in (0.0, 1.0, 0.03125, 0.0009765)]
    ['0 (prior)', '1 (posterior)', '0.031', '9.8e-4']
    """
    if value in (0.0, 1.0):
        return "0 (prior)" if value == 0 else "1 (posterior)"
    if value >= 1e-3:
        return f"{value:.2g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e{int(power)}"


POWER_SCORES = Figure(
    "power_scores", "scores", whole("scores", "target", "temperature", "x", "score"), draw,
    caption="Scores of the power posteriors along the ladder of temperatures, from the prior to the posterior. If "
    "neighbours are similar, estimates at one temperature can borrow information from the next.",
    answer="scores of power posteriors along the ladder of temperatures.",
)  # fmt: skip
