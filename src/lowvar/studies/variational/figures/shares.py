"""Where the noise comes from, and which estimator removes it: the variance by source at the end of a run."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, INK, SOURCES, estimators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.variational.figures import bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def shares(decomposition: Table) -> Figure:
    """Draws each estimator's variance by source: shares on the left, amounts on the right, rows aligned.

    A logarithmic axis cannot be stacked, and a linear one hides an estimator that is a hundred times better.
    So the bars show what the rest of each estimator's noise is made of (they add up to 100 %; a whisker under
    a bar is the 95 % interval of one share, from the end at which that source's segment lies), and the points
    show total and parts on a common logarithmic axis, with the factor to naive in words.

    Args:
        decomposition: columns ``problem, method, block, source, variance, low, high, end, share, share_low,
            share_high``, and ``batch_size`` if known.

    Returns:
        A figure with one row of two panels for each problem.

    Raises:
        UserError: a column is missing, or there are no rows of the end.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = tables.at_end(decomposition)
    names = tables.problems(rows)
    looks = estimators(rows["method"])
    counts = [rows.loc[rows["problem"] == name, "method"].nunique() for name in names]
    heights = [0.46 * count + 0.85 for count in counts]
    fig = panels.figure(sum(heights) + 0.3)
    axes = fig.subplots(len(names), 2, squeeze=False, gridspec_kw={"height_ratios": heights, "width_ratios": [1.15, 1]})
    for name, (left, right) in zip(names, axes, strict=True):
        here = rows[rows["problem"] == name]
        methods = [method for method in looks if method in set(here["method"])]
        sizes = here["batch_size"].dropna().unique() if "batch_size" in here else []
        batch = f", batches of {sizes[0]:g}" if len(sizes) == 1 else ""
        left.set_title(f"{name}{batch}")
        left.set_yticks(range(len(methods)), [textwrap.fill(looks[method].label, 14) for method in methods])
        right.set_yticks(range(len(methods)), [""] * len(methods))
        for ax in (left, right):
            ax.set_ylim(len(methods) - 0.4, -0.5)
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
        by = here.drop_duplicates(["method", "source"]).set_index(["method", "source"])
        bars.composition(left, by, methods)
        bars.amounts(right, by, methods)
    axes[-1, 0].set_xlabel("share of the variance (%)")
    axes[-1, 1].set_xlabel("gradient variance (trace, nats²)")
    keys: list = [Patch(color=look.colour, label=look.label) for look in SOURCES.values()]
    keys.append(Line2D([], [], color=INK, marker="D", ls="", label="total"))
    keys.append(Line2D([], [], color=FAINT, marker="|", ms=6, lw=1.6, label="95 % interval"))
    if any(line.get_marker() == "<" for ax in axes[:, 1] for line in ax.lines):
        keys.append(Line2D([], [], color=FAINT, marker="<", ls="", label="too small for the axis"))
    fig.align_xlabels(axes[-1])
    lines.legend(fig, keys)
    return fig
