"""Maps of one-dimensional matrix-valued Stein kernels."""

from __future__ import annotations

import math

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, SMALL, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import panels
from lowvar_studies.reports.drawing.rows import whole

_LEVELS = 20
_SHOWN = 0.9  # quantile of absolute values at the end of the colours: polynomials are unbounded


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each kernel with its own colour scale, with arrows at its ends if values exceed it."""
    names = list(rows["kernel"].drop_duplicates())
    columns = min(len(names), 3)
    fig = drawing.figure(2.9 * math.ceil(len(names) / columns) if columns > 1 else 3.6)
    axes = drawing.cells(fig, len(names), columns)
    panels.outer(axes, columns, "x", "y")
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(str(name).replace(", ", "\n"), fontsize=SMALL + 0.5)
        _panel(ax, rows[rows["kernel"] == name])
    return fig


def _panel(ax: Axes, rows: Frame) -> None:
    wide = rows.pivot(index="y", columns="x", values="value").sort_index().sort_index(axis=1)
    values = wide.to_numpy(float)
    size = np.abs(values[np.isfinite(values)])
    if not len(size) or size.max() == 0:
        drawing.say(ax, "zero everywhere")
        return
    top = _round_up(float(np.quantile(size, _SHOWN)) or float(size.max()))
    levels = np.linspace(-top, top, _LEVELS + 1)
    x, y = wide.columns.to_numpy(float), wide.index.to_numpy(float)
    style = {"levels": levels, "cmap": "RdBu_r", "extend": "both"}
    drawn = ax.contourf(x, y, values, **style)  # paths, so that the svg has no pixels
    ax.contour(x, y, values, levels=[0.0], colors=INK, linewidths=0.8)
    ax.set_aspect("equal")
    bar = ax.get_figure().colorbar(drawn, ax=ax, location="bottom", shrink=0.95, aspect=16, pad=0.03)  # pyright: ignore
    bar.set_ticks([-top, 0.0, top], labels=[f"{-top:g}".replace("-", "−"), "0", f"{top:g}"])
    bar.ax.tick_params(labelsize=SMALL, length=3)
    bar.outline.set_visible(False)  # pyright: ignore


def _round_up(value: float) -> float:
    """The value rounded up to one significant digit.

    >>> [_round_up(value) for value in (0.012, 3.0, 7.2, 140.0)]
    [0.02, 3.0, 8.0, 200.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(round(value / power, 9)) * power:.6g}")


STEIN_KERNELS = Figure(
    "stein_kernels", "kernels", whole("kernels", "kernel", "x", "y", "value"), draw,
    caption="The sum of all entries of three matrix-valued Stein kernels, 1' K0(x, y) 1, for a standard normal target "
    "and one of variance 1.25: red above zero, blue below. Every function in the span has mean zero under its target.",
    answer="matrix-valued Stein kernels, whose functions have mean zero.",
)  # fmt: skip
