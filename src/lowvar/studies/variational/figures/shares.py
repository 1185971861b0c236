"""Gradient variance of each estimator at the end of a run, by source."""

from __future__ import annotations

import textwrap

import numpy as np

from lowvar.errors import UserError
from lowvar.studies.declarations import Figure, Frame
from lowvar.studies.drawing import lines, panels
from lowvar.studies.drawing.panels import Axes, Picture
from lowvar.studies.drawing.rows import problems, require
from lowvar.studies.drawing.style import FAINT, INK, SMALL, SOURCES, estimators, styled
from lowvar.studies.variational.gathering import first_setting

DECOMPOSITION = ("problem", "method", "block", "source", "variance", "low", "high")  # columns that its figures read
_BAR = 0.56  # height of a bar; rows are 1 apart
_LEVEL = {"subsampling": 0.335, "monte_carlo": 0.405, "interaction": 0.475}  # heights of the whiskers under a bar
_DECADES = 2.5  # below the smallest total, down to which components are drawn to scale


def select(decomposition: Frame) -> Frame:
    """Every estimator at the last moment of the run, over all parameters."""
    require(decomposition, (*DECOMPOSITION, "end", "share", "share_low", "share_high"), "decomposition")
    decomposition = first_setting(decomposition)
    rows = decomposition[decomposition["end"].eq(True) & (decomposition["block"] == "all")]
    if not len(rows):
        raise UserError("decomposition table: no row with end = True and block = 'all'")
    return rows.reset_index(drop=True)


@styled
def draw(rows: Frame) -> Picture:
    """A row of two panels for each problem: stacked bars of shares, and points of variances.

    Bars cannot be stacked on a logarithmic axis, and a linear axis hides estimators with a much smaller variance. So
    bars show shares, which add up to 100 %, and points show the total and its parts on a logarithmic axis. A whisker
    below a bar is the interval of a share, at the position of its segment.
    """
    names = problems(rows)
    looks = estimators(rows["method"])
    counts = [rows.loc[rows["problem"] == name, "method"].nunique() for name in names]
    heights = [0.46 * count + 0.85 for count in counts]
    fig = panels.figure(sum(heights) + 0.3)
    axes = fig.subplots(len(names), 2, squeeze=False, gridspec_kw={"height_ratios": heights, "width_ratios": [1.15, 1]})
    for name, (left, right) in zip(names, axes, strict=True):
        problem = rows[rows["problem"] == name]
        methods = [method for method in looks if method in set(problem["method"])]
        sizes = problem["batch_size"].dropna().unique() if "batch_size" in problem else []
        batch = f", batches of {sizes[0]:g}" if len(sizes) == 1 else ""
        left.set_title(f"{name}{batch}")
        left.set_yticks(range(len(methods)), [textwrap.fill(looks[method].label, 14) for method in methods])
        right.set_yticks(range(len(methods)), [""] * len(methods))
        for ax in (left, right):
            panels.lanes(ax, len(methods))
            ax.set_ylim(top=-0.5)
        by = problem.drop_duplicates(["method", "source"]).set_index(["method", "source"])
        _composition(left, by, methods)
        _amounts(right, by, methods)
    axes[-1, 0].set_xlabel("share of the variance (%)")
    axes[-1, 1].set_xlabel("gradient variance (trace, nats²)")
    keys = [lines.patch(look.label, color=look.colour, lw=1.0) for look in SOURCES.values()]
    keys.append(lines.entry("total", color=INK, marker="D", ls=""))
    keys.append(lines.entry("95 % interval", color=FAINT, marker="|", ms=6, lw=1.6))
    if any(line.get_marker() == "<" for ax in axes[:, 1] for line in ax.lines):
        keys.append(lines.entry("too small for the axis", color=FAINT, marker="<", ls=""))
    fig.align_xlabels(axes[-1])
    lines.legend(fig, keys)
    return fig


SHARES = Figure(
    "shares", "decomposition", select, draw,
    caption="Variance of each gradient estimator by source: subsampling of the data, Monte Carlo noise, and their "
    "interaction. All are measured at the end of one run, that of the leader (the experiment's "
    "`decomposition.leader`). Left: shares. Right: total and parts. Whiskers are 95 % intervals.",
    answer="variance of the gradient by source and estimator, all at the end of the same run. Left: shares; right: "
    "totals and parts, with 95 % intervals.",
)  # fmt: skip


def _composition(ax: Axes, by: Frame, methods: list[str]) -> None:
    """Stacked bars; negative estimates have no length, and the others are scaled to 100 %."""
    ax.set_xlim(0, 100)
    ax.set_xticks([0, 25, 50, 75, 100])
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
            ends = (100 - high, 100 - low) if source == "interaction" else (start + low, start + high)
            if np.isfinite(ends).all():
                style = {"color": look.colour, "lw": 1.6, "marker": "|", "ms": 4}
                ax.plot(np.clip(ends, 0, 100), [y + _LEVEL[source]] * 2, **style)
            start += width


def _amounts(ax: Axes, by: Frame, methods: list[str]) -> None:
    """Total and components on a logarithmic axis, with the total as text at the right."""
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
    return "≈ naive" if mine_low <= high and low <= mine_high else panels.times(reference / value)


def _interval(by: Frame, method: str, source: str) -> tuple[float, float, float]:
    return tuple(_get(by, method, source, key) for key in ("variance", "low", "high"))  # pyright: ignore


def _get(by: Frame, method: str, source: str, key: str) -> float:
    return float(by.loc[(method, source), key]) if (method, source) in by.index else np.nan  # pyright: ignore
