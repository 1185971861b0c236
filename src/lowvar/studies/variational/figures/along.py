"""The variance along a run, against the floors that a one-sided estimator cannot pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import INK, SMALL, block_label, estimators, styled
from lowvar.studies.drawing.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOORS = {
    "subsampling": ("$V_n$", "$V_n$: naive, subsampling", (0, (1, 1))),
    "monte_carlo": (r"$V_\varepsilon$", r"$V_\varepsilon$: naive, Monte Carlo", (0, (1, 3))),
}


@styled
def along(decomposition: Table, blocks: Iterable[str] = ("all", "mu")) -> Figure:
    """Draws the total variance along the run, a line with its 95 % band for each estimator.

    Dotted: ``V_n``, below which no estimator gets that controls Monte Carlo noise alone, and ``V_eps``, below
    which none gets that controls subsampling alone.

    Args:
        decomposition: columns ``problem, method, block, source, variance, low, high, iteration``.
        blocks: parameter blocks, a column of panels each; those that were not measured are left out.

    Returns:
        A figure with one row of panels for each problem.

    Raises:
        UserError: a column is missing, or none of the blocks was measured.
    """
    from matplotlib.lines import Line2D

    rows = tables.along_run(decomposition, blocks)
    names = tables.problems(rows)
    blocks = [block for block in blocks if (rows["block"] == block).any()]
    looks = estimators(rows["method"])
    fig = panels.figure(2.5 * len(names) + 0.3)
    axes = fig.subplots(len(names), len(blocks), squeeze=False)
    for name, line in zip(names, axes, strict=True):
        for block, ax in zip(blocks, line, strict=True):
            ax.set_title(f"{name}: {block_label(block)}")
            _panel(ax, rows[(rows["problem"] == name) & (rows["block"] == block)], looks)
        line[0].set_ylabel("gradient variance (trace, nats²)")
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
    fig.align_ylabels(axes[:, 0])
    keys = lines.keys(looks)
    if (rows["source"] != "total").any():
        keys += [Line2D([], [], color=INK, ls=dots, label=text) for _, text, dots in FLOORS.values()]
    lines.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[np.isfinite(rows["variance"]) & (rows["variance"] > 0)]
    totals = drawn[drawn["source"] == "total"]
    if not len(totals):
        panels.say(ax, "not measured" if not len(rows) else "no finite variance")
        return
    ax.set_yscale("log")
    ax.grid()
    for method, look in looks.items():
        line = totals[totals["method"] == method].sort_values("iteration")
        if not len(line):
            continue
        x, middle = line["iteration"].to_numpy(), line["variance"].to_numpy()
        low = np.maximum(line["low"].to_numpy(float), 1e-3 * middle)
        lines.band(ax, x, low, line["high"].to_numpy(float), look, f"{method}: 95 %")
        ax.plot(x, middle, color=look.colour, marker=look.marker, lw=look.width, ms=look.size, label=method)
    ends = {}
    for source, (symbol, _, dots) in FLOORS.items():
        floor = drawn[drawn["source"] == source].sort_values("iteration")
        if len(floor):
            x, height = floor["iteration"].to_numpy(float), floor["variance"].to_numpy()
            if len(x) == 1:
                x, height = x[0] + np.array([-0.5, 0.0, 0.5]), np.repeat(height, 3)
            ax.plot(x, height, color=INK, ls=dots, lw=1.8, zorder=4, label=source)
            ends[symbol] = height[-1]
    panels.frame(ax, *(drawn[name].to_numpy(float) for name in ("low", "variance", "high")))
    panels.run_axis(ax, totals["iteration"].to_numpy())
    _name_at_end(ax, ends)


def _name_at_end(ax: Axes, ends: dict[str, float]) -> None:
    """Names the floors beside the right edge, at their last value, kept apart by a line's height."""
    last = -np.inf
    for symbol, value in sorted(ends.items(), key=lambda item: item[1]):
        _, height = ax.transAxes.inverted().transform(ax.transData.transform((ax.get_xlim()[1], value)))
        last = max(height, last + 0.08, 0.0)
        ax.text(1.02, last, symbol, transform=ax.transAxes, va="center", fontsize=SMALL + 1)
