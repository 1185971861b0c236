"""How evaluations grow with the dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.style import FAINT, INK, SMALL, searchers, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.search.figures.search_tables import by_dimension

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def scaling(table: Table, target: float = 1e-10, of: str = "mean", backend: str | None = None) -> Figure:
    """Draws median evaluations to a target against the dimension, with 95 % intervals and fitted exponents.

    Functions are taken from problems called ``{function}_{dim}``. An open triangle stands at the budget where no
    more than half of the repetitions met the target; it is no part of the fit.

    Args:
        table: as for `effort`, with ``dim``.
        target: precision above the optimum, one of the table's.
        of: ``mean`` (f at the distribution's mean) or ``best`` (best evaluated point).
        backend: which backend's runs; if None, each method's first.

    Returns:
        A figure with one panel for each function.

    Raises:
        UserError: a column is missing, a name is unknown, or no function was searched in several dimensions.
    """
    from matplotlib.lines import Line2D

    rows = by_dimension(table, target, of, backend)
    names = list(rows["function"].drop_duplicates())
    looks = searchers(rows["method"])
    fig, axes = panels.grid(len(names), height=2.9)
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        _panel(ax, rows[rows["function"] == name], looks)
    panels.label(axes, "dimension d", f"evaluations to {target:g}")
    keys = [Line2D([], [], **lines.kind(look), label=look.label) for look in looks.values()]
    keys.append(
        Line2D([], [], ls="", marker="^", ms=8, mfc="none", mew=1.4, color=FAINT, label="not within this budget")
    )
    keys.append(Line2D([], [], ls="", marker="$d^{\\,a}$", ms=12, color=INK, mew=0.3, label="fitted exponent"))
    lines.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Table, looks: dict) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid()
    dims = np.unique(rows["dim"].to_numpy(float))
    ends = []
    for method, look in looks.items():
        line = rows[rows["method"] == method].sort_values("dim")
        if not len(line):
            continue
        dim, middle = line["dim"].to_numpy(float), line["evaluations_median"].to_numpy(float)
        known = np.isfinite(middle)
        ax.plot(dim[known], middle[known], label=method, **lines.kind(look))
        low, high = (line[f"evaluations_{part}"].to_numpy(float) for part in ("low", "high"))
        sure = known & np.isfinite(low) & np.isfinite(high)
        ax.vlines(dim[sure], low[sure], high[sure], color=look.colour, lw=2.5, alpha=0.6, label=f"{method}: 95 %")
        if not known.all():
            style = {"marker": "^", "ms": 9, "mfc": "none", "mew": 1.6, "color": look.colour, "ls": ""}
            ax.plot(dim[~known], line["budget"].to_numpy(float)[~known], label=f"{method}: not within", **style)
        exponent = float(line["exponent"].iloc[0])
        if np.isfinite(exponent):
            ends.append((middle[known][-1], dim[known][-1], f"$d^{{\\,{exponent:.2f}}}$", look.colour))
    ax.set_xlim(dims[0] / 1.25, dims[-1] * (dims[-1] / dims[0]) ** 0.24)
    ax.set_xticks(dims, [f"{dim:g}" for dim in dims])
    ax.minorticks_off()
    _powers(ax)
    last = -np.inf
    for height, _, words, colour in sorted(ends):  # names at the right edge, kept apart by a line's height
        _, place = ax.transAxes.inverted().transform(ax.transData.transform((dims[-1], height)))
        last = max(place, last + 0.085)
        style = {"va": "center", "ha": "right", "fontsize": SMALL + 1, "color": colour}
        ax.text(1.0, last, words, transform=ax.transAxes, **style)


def _powers(ax: Axes) -> None:
    low, high = np.log10(ax.get_ylim())
    powers = [int(power) for power in range(int(np.ceil(low)), int(np.floor(high)) + 1)]
    if len(powers) > 1:
        ax.set_yticks([10.0**power for power in powers], [f"$10^{{{power}}}$" for power in powers])
