"""The pictures of a fit, its ELBO along the steps, and of a decomposition, its shares by source."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import BAND, FAINT, INK, SMALL, Axes, Picture, with_style

_COLOUR = "#0072B2"
_END = 0.1  # the second panel begins at this share of the steps
_ROOM = 0.08  # of the height, above and below the second panel's values
_BAR = 0.56  # height of a bar; rows are 1 apart
_LEVEL = {"subsampling": 0.33, "monte_carlo": 0.41, "interaction": 0.49}  # heights of the whiskers under a bar
_MOST = 125.0  # percent that an axis of shares shows, for intervals that reach beyond 100
_DECADES = 2.5  # below the smallest total, down to which components are drawn to scale


class Source(NamedTuple):
    """Label and colours of a source of noise; ``ink`` is the colour of text on it."""

    label: str
    colour: str
    ink: str


SOURCES = {  # label, colour, and colour of text on it; three of Tol's muted colours with different lightness
    "subsampling": Source("subsampling", "#332288", "#FFFFFF"),
    "monte_carlo": Source("Monte Carlo", "#44AA99", "#000000"),
    "interaction": Source("interaction", "#DDCC77", "#000000"),
}


@with_style
def elbo_figure(fit, stem: str | os.PathLike | None = None) -> Picture:
    """The ELBO of a ``Fit`` with its standard error; see ``Fit.plot``."""
    rows = fit.elbo[np.isfinite(fit.elbo["elbo"])].reset_index(drop=True)
    last = int(rows["iteration"].iloc[-1])
    late = rows[rows["iteration"] >= _END * last]
    both = 0 < late["iteration"].iloc[0] < last
    fig = drawing.figure(2.9)
    axes = drawing.cells(fig, 2 if both else 1, 2)
    _lines(axes[0], rows, "all steps" if both else "")
    if last > 10:
        axes[0].set_xscale("symlog", linthresh=1, linscale=0.4)
        _decades(axes[0], last)
    for ax in axes:
        ax.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes[0].set_ylabel("ELBO (nats)")
    if both:
        _lines(axes[1], late, f"from step {int(late['iteration'].iloc[0]):,}")
        low = (late["elbo"] - late["elbo_se"].fillna(0)).min()
        high = (late["elbo"] + late["elbo_se"].fillna(0)).max()
        room = _ROOM * (high - low) or 1.0
        axes[1].set_ylim(low - room, high + room)
    axes[-1].legend(loc="lower right")
    if stem is not None:
        drawing.save(fig, stem, rows)
    return fig


def _lines(ax: Axes, rows, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    steps, elbo, error = (rows[name].to_numpy(float) for name in ("iteration", "elbo", "elbo_se"))
    ax.fill_between(steps, elbo - error, elbo + error, color=_COLOUR, alpha=BAND, lw=0, label="± standard error")
    ax.plot(steps, elbo, color=_COLOUR, marker="o", ms=3, lw=1.4, label="ELBO")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=3))
    ax.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=3))
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.set_xlabel("step")
    ax.set_title(title, fontsize="medium")
    ax.grid(True)


def _decades(ax: Axes, last: int) -> None:
    """Ticks at 0 and at powers of ten, at most six."""
    from matplotlib.ticker import FixedLocator, NullLocator

    powers = np.arange(0, np.floor(np.log10(last)) + 1)
    powers = powers[:: int(np.ceil(len(powers) / 5))]
    ax.xaxis.set_major_locator(FixedLocator([0, *10**powers]))
    ax.xaxis.set_minor_locator(NullLocator())


@with_style
def shares(rows: Any, labels: Mapping[str, str]) -> Picture:
    """A row of two panels for each problem: stacked bars of shares, and points of variances.

    Bars cannot be stacked on a logarithmic axis, and a linear axis hides estimators with a much smaller variance. So
    bars show shares, which add up to 100 %, and points show the total and its parts on a logarithmic axis. A thin line
    below a bar begins where a segment begins, and ends in a whisker: the interval of the segment's length.

    Args:
        rows: the rows of a decomposition with ``block == "all"``, with the column ``problem``.
        labels: the estimators in the order of the picture, and their labels.
    """
    names = list(rows["problem"].drop_duplicates())
    counts = [rows.loc[rows["problem"] == name, "method"].nunique() for name in names]
    heights = [0.46 * count + 0.85 for count in counts]
    fig = drawing.figure(sum(heights) + 0.3)
    axes = fig.subplots(len(names), 2, squeeze=False, gridspec_kw={"height_ratios": heights, "width_ratios": [1.15, 1]})
    for name, (left, right) in zip(names, axes, strict=True):
        problem = rows[rows["problem"] == name]
        methods = [method for method in labels if method in set(problem["method"])]
        sizes = problem["batch_size"].dropna().unique() if "batch_size" in problem else []
        batch = f", batches of {sizes[0]:g}" if len(sizes) == 1 else ""
        left.set_title(f"{name}{batch}")
        left.set_yticks(range(len(methods)), [textwrap.fill(labels[method], 14) for method in methods])
        right.set_yticks(range(len(methods)), [""] * len(methods))
        for ax in (left, right):
            drawing.lanes(ax, len(methods))
            ax.set_ylim(top=-0.5)
        by = problem.drop_duplicates(["method", "source"]).set_index(["method", "source"])
        _composition(left, by, methods)
        _amounts(right, by, methods)
    axes[-1, 0].set_xlabel("share of the variance (%)")
    axes[-1, 1].set_xlabel("gradient variance (trace, nats²)")
    keys = [drawing.patch(look.label, color=look.colour, lw=1.0) for look in SOURCES.values()]
    keys.append(drawing.entry("total", color=INK, marker="D", ls=""))
    keys.append(drawing.entry("95 % interval; left: of a part's length", color=FAINT, marker="|", ms=6, lw=1.6))
    if any(line.get_marker() == "<" for ax in axes[:, 1] for line in ax.lines):
        keys.append(drawing.entry("too small for the axis", color=FAINT, marker="<", ls=""))
    fig.align_xlabels(axes[-1])
    drawing.legend(fig, keys)
    return fig


def _composition(ax: Axes, by: Any, methods: list[str]) -> None:
    """Stacked bars; negative estimates have no length, and the others are scaled to 100 %."""
    ends = [100.0]
    for y, method in enumerate(methods):
        part = {source: _get(by, method, source, "share") for source in SOURCES}
        length = {source: max(np.nan_to_num(share), 0.0) for source, share in part.items()}
        total = sum(length.values())
        if total == 0:
            ax.text(50, y, "no finite variance", ha="center", va="center", color=FAINT, fontsize=SMALL)
            continue
        start = 0.0
        for source, look in SOURCES.items():
            width = 100 * length[source] / total
            bar = ax.barh(y, width, _BAR, left=start, color=look.colour, lw=0)
            bar.set_label(source)
            if width >= 7:
                words = f"{width:.0f} %" if width >= 16 else f"{width:.0f}"
                style = {"ha": "center", "va": "center", "fontsize": SMALL}
                ax.text(start + width / 2, y, words, color=look.ink, **style)
            low, high = (100 * _get(by, method, source, key) / total for key in ("share_low", "share_high"))
            if np.isfinite([low, high]).all():
                level, low = y + _LEVEL[source], max(low, 0.0)
                ax.plot([start, start + low], [level] * 2, color=look.colour, lw=0.7)
                ax.plot([start + low, start + high], [level] * 2, color=look.colour, lw=1.8, marker="|", ms=5)
                ends.append(start + high)
            start += width
    ax.set_xlim(0, min(max(ends), _MOST))
    ax.set_xticks([0, 25, 50, 75, 100])


def _amounts(ax: Axes, by: Any, methods: list[str]) -> None:
    """Total and components on a logarithmic axis, with the total as text at the right."""
    total = {method: _interval(by, method, "total") for method in methods}
    positive = [value[0] for value in total.values() if np.isfinite(value[0]) and value[0] > 0]
    if not positive:
        drawing.say(ax, "no finite variance")
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
        for place, words in ((1.04, drawing.number(total[method][0])), (1.28, _against(total, method))):
            ax.text(place, y, words, transform=ax.get_yaxis_transform(), va="center", fontsize=SMALL)
    for place, words in ((1.04, "total"), (1.28, "vs naive" if "naive" in total else "")):
        style = {"va": "bottom", "color": FAINT, "fontsize": SMALL}
        ax.text(place, -0.6, words, transform=ax.get_yaxis_transform(), **style)


def _point(ax: Axes, y: float, interval: tuple[float, float, float], colour: str, marker: str, edge: float) -> None:
    value, low, high = interval
    if not np.isfinite(value):
        return
    if np.isfinite([low, high]).all() and high > edge:
        ax.plot([max(low, edge), high], [y, y], color=colour, lw=1.4, zorder=2)
    marker, size = (marker, 6) if value > edge else ("<", 7)
    style = {"color": colour, "mec": INK, "mew": 0.6, "zorder": 3, "clip_on": False}
    ax.plot(max(value, edge), y, marker=marker, ms=size, **style)


def _against(total: dict, method: str) -> str:
    """A total compared with naive's: a factor, or ``≈ naive`` if the intervals overlap."""
    if method == "naive" or "naive" not in total or not np.isfinite(total[method][0]):
        return ""
    (reference, low, high), (value, mine_low, mine_high) = total["naive"], total[method]
    return "≈ naive" if mine_low <= high and low <= mine_high else drawing.times(reference / value)


def _interval(by: Any, method: str, source: str) -> tuple[float, float, float]:
    return tuple(_get(by, method, source, key) for key in ("variance", "low", "high"))  # pyright: ignore


def _get(by: Any, method: str, source: str, key: str) -> float:
    return float(by.loc[(method, source), key]) if (method, source) in by.index else np.nan  # pyright: ignore
