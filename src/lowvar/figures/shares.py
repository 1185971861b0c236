"""Where the noise comes from, and which estimator removes it: components of the variance at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.figures import panels, tables
from lowvar.figures.style import FAINT, INK, SMALL, SOURCES, WIDTH, estimators, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

_BAR = 0.56  # height of a bar; rows are 1 apart
_LEVEL = {"subsampling": 0.335, "monte_carlo": 0.405, "interaction": 0.475}  # whiskers lie under the bar
_DECADES = 2.5  # how far below the smallest total a component is still drawn to scale


@styled
def shares(decomposition: DataFrame) -> Figure:
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
    fig = panels.figure(sum(heights) + 0.75, WIDTH)
    axes = fig.subplots(
        len(names), 2, squeeze=False, gridspec_kw={"height_ratios": heights, "width_ratios": [1.15, 1]}
    )
    for name, (left, right) in zip(names, axes, strict=True):
        here = rows[rows["problem"] == name]
        methods = [method for method in looks if method in set(here["method"])]
        batch = f", batches of {here['batch_size'].iloc[0]:g}" if "batch_size" in here else ""
        left.set_title(f"{name}{batch}")
        left.set_yticks(range(len(methods)), [looks[method].label for method in methods])
        right.set_yticks(range(len(methods)), [""] * len(methods))
        for ax in (left, right):
            ax.set_ylim(len(methods) - 0.4, -0.5)
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
        by = here.drop_duplicates(["method", "source"]).set_index(["method", "source"])
        _composition(left, by, methods)
        _amounts(right, by, methods)
    axes[-1, 0].set_xlabel("share of the estimator's own variance (%)")
    axes[-1, 1].set_xlabel("gradient variance (trace)")
    keys = [Patch(color=look.colour, label=look.label) for look in SOURCES.values()]
    keys.append(Line2D([], [], color=INK, marker="D", ls="-", lw=1.2, label="total"))
    if any(line.get_marker() == "<" for ax in axes[:, 1] for line in ax.lines):
        keys.append(Line2D([], [], color=FAINT, marker="<", ls="", label="too small for the axis"))
    fig.align_xlabels(axes[-1])
    panels.legend(fig, keys)
    return fig


def _composition(ax: Axes, by: DataFrame, methods: list[str]) -> None:
    """Stacked bars; a slightly negative estimate has no length, and the rest is scaled to 100 %."""
    ax.set_xlim(0, 100)
    ax.set_xticks([0, 25, 50, 75, 100])
    for y, method in enumerate(methods):
        part = {source: _get(by, method, source, "share") for source in SOURCES}
        length = {source: max(np.nan_to_num(share), 0.0) for source, share in part.items()}
        whole = sum(length.values())
        if whole == 0:
            ax.text(50, y, "no finite variance", ha="center", va="center", color=FAINT, fontsize=SMALL)
            continue
        start = 0.0
        for source, look in SOURCES.items():
            width = 100 * length[source] / whole
            bar = ax.barh(y, width, _BAR, left=start, color=look.colour, lw=0)
            bar.set_label(source)
            if width >= 8:
                ax.text(
                    start + width / 2,
                    y,
                    f"{width:.0f} %",
                    ha="center",
                    va="center",
                    color=look.ink,
                    fontsize=SMALL,
                )
            low, high = (100 * _get(by, method, source, key) / whole for key in ("share_low", "share_high"))
            ends = (100 - high, 100 - low) if source == "interaction" else (start + low, start + high)
            if np.isfinite(ends).all():
                ax.plot(
                    np.clip(ends, 0, 100),
                    [y + _LEVEL[source]] * 2,
                    color=look.colour,
                    lw=1.6,
                    marker="|",
                    ms=4,
                )
            start += width


def _amounts(ax: Axes, by: DataFrame, methods: list[str]) -> None:
    """Total and components on a logarithmic axis, and the total in words at the right."""
    total = {method: _interval(by, method, "total") for method in methods}
    positive = [value[0] for value in total.values() if np.isfinite(value[0]) and value[0] > 0]
    if not positive:
        panels.say(ax, "no finite variance")
        return
    edge = min(positive) / 10**_DECADES
    parts = [_interval(by, method, source)[0] for method in methods for source in SOURCES]
    edge = max(edge, 0.5 * min([value for value in parts if value > edge], default=edge))
    top = max([*positive, *(value[2] for value in total.values() if np.isfinite(value[2]))])
    ax.set_xscale("log")
    ax.set_xlim(edge, top * 1.6)
    ax.grid(axis="x")
    for y, method in enumerate(methods):
        for source, look in SOURCES.items():
            _point(ax, y + 0.2, _interval(by, method, source), look.colour, "o", edge)
        _point(ax, y - 0.12, total[method], INK, "D", edge)
        for place, words in ((1.04, panels.number(total[method][0])), (1.28, _against(total, method))):
            ax.text(place, y, words, transform=ax.get_yaxis_transform(), va="center", fontsize=SMALL)
    for place, words in ((1.04, "total"), (1.28, "vs naive" if "naive" in total else "")):
        ax.text(
            place, -0.6, words, transform=ax.get_yaxis_transform(), va="bottom", color=FAINT, fontsize=SMALL
        )


def _point(
    ax: Axes, y: float, interval: tuple[float, float, float], colour: str, marker: str, edge: float
) -> None:
    value, low, high = interval
    if not np.isfinite(value):
        return
    if np.isfinite([low, high]).all() and high > edge:
        ax.plot([max(low, edge), high], [y, y], color=colour, lw=1.4, zorder=2)
    marker, size = (marker, 6) if value > edge else ("<", 7)
    ax.plot(
        max(value, edge), y, color=colour, marker=marker, ms=size, mec=INK, mew=0.6, zorder=3, clip_on=False
    )


def _against(total: dict, method: str) -> str:
    """How a total compares with naive's: a factor, or that the two intervals overlap."""
    if method == "naive" or "naive" not in total or not np.isfinite(total[method][0]):
        return ""
    (reference, low, high), (value, mine_low, mine_high) = total["naive"], total[method]
    return "≈ naive" if mine_low <= high and low <= mine_high else panels.times(reference / value)


def _interval(by: DataFrame, method: str, source: str) -> tuple[float, float, float]:
    return tuple(_get(by, method, source, key) for key in ("variance", "low", "high"))  # pyright: ignore


def _get(by: DataFrame, method: str, source: str, key: str) -> float:
    return float(by.loc[(method, source), key]) if (method, source) in by.index else np.nan  # pyright: ignore
