"""Gap to the optimum of black-box searches against evaluations or seconds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import BAND, FAINT, INK, SMALL, Axes, Picture
from lowvar.errors import check_known
from lowvar_studies.jobs.search.spec import TARGET
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import by_hue, numbers, one_backend, problems
from lowvar_studies.reports.drawing.style import searchers
from lowvar_studies.reports.search import progress as tables

AXES = {"evaluations": "evaluations", "iteration": "iteration", "seconds": "seconds"}
_CENTRES = {"ingo_binary": "mode", "ingo_categorical": "mode", "pymoo_ga": "best point"}  # of others, the mean
_LEAST = 2e-11  # smaller gaps are drawn at this value: runs end slightly below the target
_RISE = 1e3  # lines leave the panel where gaps exceed this multiple of the start's
_MARKS = 7  # markers on a line, besides its end
_END = {
    "spent": {"marker": "o", "ms": 9, "mfc": "none", "mew": 1.3},
    "met": {"marker": "o", "ms": 7, "mec": INK, "mew": 1.0},
    "lost": {"marker": "x", "ms": 10, "mew": 2.6},
    "above": {"marker": "^", "ms": 8, "mfc": "none", "mew": 1.6},
}


def select(curves: Frame, x: str = "evaluations") -> Frame:
    """Every method on one backend, if possible the same for all."""
    check_known("axis", x, [one for one in AXES if one in curves])
    return one_backend(curves)


def draw(rows: Frame, x: str = "evaluations") -> Picture:
    """A panel for each problem; without a known optimum (policies) it shows the return, -f."""
    names, looks = problems(rows), searchers(rows["method"])
    words = {False: f"gap: f({centre(rows['method'])}) − f*", True: "return at the mean (−f)"}
    returns = [bool(rows.loc[rows["problem"] == name, "optimum"].isna().all()) for name in names]
    label = charts.amortised(rows["repetitions"]) if x == "seconds" else AXES[x]
    fig, axes = charts.grid(len(names), label, words[returns[0]], height=2.65)
    for rank, (name, ax) in enumerate(zip(names, axes, strict=True)):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], x, looks, returns[rank])
        if returns[rank] != returns[rank - rank % 2] or (rank % 2 == 0):
            ax.set_ylabel(words[returns[rank]])
    drawing.legend(fig, _keys(looks, rows))
    return fig


def centre(methods: Iterable[str]) -> str:
    """The points at which f is shown for these methods: all but a few have a distribution with a mean.

    >>> centre(["ingo", "pycma"]), centre(["ingo_binary_fast", "pymoo_ga"])
    ('mean', 'mode or best point')
    """
    names = [next((word for start, word in _CENTRES.items() if name.startswith(start)), "mean") for name in methods]
    return " or ".join(sorted(set(names), key=["mean", *_CENTRES.values()].index))


def _keys(looks: dict, rows: Frame) -> list:
    keys = [*charts.entries(looks), drawing.patch("quartiles", color=INK, alpha=BAND)]
    kinds = {_fate(line) for _, line in rows.groupby(["problem", "method"], sort=False)}
    kinds |= {"above"} if _rises(rows) else set()
    fates = {"spent": "budget spent", "met": "all at the target", "lost": "some diverged", "above": "above the panel"}
    for fate, words in fates.items():
        if fate in kinds:
            keys.append(drawing.entry(words, ls="", color=FAINT, **_END[fate]))
    return keys


def _rises(rows: Frame) -> bool:
    """Whether a line may leave its panel."""
    ends = rows.groupby(["problem", "method"], sort=False)["f_median"].agg(["first", "last"])
    return bool((ends["last"] > _RISE * ends["first"]).any() and not rows["optimum"].isna().all())


def _fate(line: Frame) -> str:
    """The end of a line: ``lost`` (some diverged), ``met`` (all met the last target) or ``spent`` (at the budget)."""
    last = line.iloc[-1]
    if last["diverged"] > 0:
        return "lost"
    generation = last["evaluations"] / max(last["iteration"], 1)
    early = last["evaluations"] + generation < last["budget"]
    met = np.isfinite(last["optimum"]) and (early or last["f_high"] <= TARGET)
    return "met" if met else "spent"


def _panel(ax: Axes, rows: Frame, x: str, looks: dict, returns: bool) -> None:
    import pandas as pd

    drawn = rows[np.isfinite(rows["f_median"]) & np.isfinite(rows[x])]
    if not len(drawn):
        drawing.say(ax, "all runs diverged" if len(rows) else "no runs")
        return
    floor = _scale(ax, drawn, returns)
    ax.grid()
    top = np.inf if returns else ax.get_ylim()[1]
    cut, ends = [], {}
    for method, line in by_hue(drawn, looks):
        line, left = _cut(line, floor, top, returns)
        fate = _fate(rows[rows["method"] == method])
        cut.append(line)
        ends[method] = "above" if left and fate != "lost" else fate
    shown = pd.concat(cut)
    charts.draw(ax, shown, looks, x, "middle", "low", "high", markers=_MARKS, style=charts.small)
    for method, line in by_hue(shown, looks):
        style = _END[ends[method]]
        ax.plot(line[x].iloc[-1], line["middle"].iloc[-1], color=looks[method].colour, label=f"{method}: end", zorder=5,
                **style)  # fmt: skip
    charts.run_axis(ax, drawn[x].to_numpy())
    last = rows.groupby("method")["f_median"].last()
    charts.notes(ax, {"diverged": charts.labels(looks, last.index[~np.isfinite(last)])})


def _cut(line: Frame, floor: float, top: float, returns: bool) -> tuple[Frame, bool]:
    """A line in the columns ``middle``, ``low`` and ``high`` up to where it leaves the panel, and whether it does."""
    middle, low, high = numbers(line, "f_median", "f_low", "f_high")
    if returns:
        return line.assign(middle=-middle, low=-high, high=-low), False
    inside = np.flatnonzero(np.maximum(middle, floor) <= top)
    many = min(len(line), int(inside[-1]) + 2 if len(inside) else 1)  # the first point outside, too
    left = many < len(line)
    ends = {"low": np.maximum(low, floor), "high": np.where(np.isfinite(high), np.maximum(high, floor), 1e3 * top)}
    return line.assign(middle=np.clip(middle, floor, top if left else np.inf), **ends).iloc[:many], left


def _scale(ax: Axes, rows: Frame, returns: bool) -> float:
    """Sets the vertical axis; returns the height at which gaps of zero are drawn."""
    middle = rows["f_median"].to_numpy(float)
    if returns:
        ends = -rows.groupby("method")["f_median"].last()
        best, start = float(np.max(-middle)), float(np.median(-rows.groupby("method")["f_median"].first()))
        room = max(best - min(start, float(ends.min())), 1e-9)
        if np.min(-middle) < best - 2 * room:
            ax.set_ylim(best - 2 * room, best + 0.08 * room)
        return -np.inf
    ax.set_yscale("log")
    positive = middle[middle > 0]
    if not len(positive):
        ax.set_ylim(1e-1, 1)
        return 1e-1
    starts = rows.groupby("method")["f_median"].first()
    least, top = float(positive.min()), float(positive.max())
    if (highest := float(starts.max())) > 0:
        top = min(top, _RISE * highest)
    discrete = bool((middle <= 0).any()) and least > 1e-6
    floor = 10.0 ** (np.floor(np.log10(least)) - 1) if discrete else _LEAST
    bottom = floor if discrete else max(least, floor)
    room = max((top / bottom) ** 0.05, 1.2)
    ax.set_ylim(bottom / room, top * room)
    if discrete:
        powers = np.arange(np.floor(np.log10(floor)) + 1, np.floor(np.log10(top * room)) + 1)
        powers = powers[:: max(1, len(powers) // 4)]
        ax.set_yticks([floor, *10.0**powers], ["0", *(charts.word(10.0**power) for power in powers)])
        ax.minorticks_off()
    if bottom < 10 * TARGET < top and not discrete:
        ax.axhline(TARGET, color=INK, lw=1.1, ls=(0, (1, 2)), label="target", zorder=1)
        style = {"va": "bottom", "ha": "left", "fontsize": SMALL, "color": FAINT}
        ax.text(0.01, TARGET, "target", transform=ax.get_yaxis_transform(), **style)
    return floor


_ENDS = (
    "f(mean) is f at the mean of the search's distribution, or at its mode if that is discrete; the genetic algorithm "
    "has no distribution, but a best point so far. f* is the optimum. Lines are medians over the repetitions, "
    "bands quartiles. A line ends with a ring if its budget was spent, with a rimmed dot if all repetitions had met "
    "the last target, and with a cross if some had diverged. If gaps become exactly zero, the axis has a zero below "
    "its last decade. A line leaves the panel, at a triangle, where gaps exceed a thousand times the start's. If the "
    "optimum is unknown, the figure shows the return."
)
CURVES = Figure(
    "curves", tables.CURVES, select, draw,
    caption="Gap between f at the distribution's mean and the optimum against evaluations of f. " + _ENDS,
    answer="gap to the optimum against evaluations, median and quartiles over repetitions; if the optimum is unknown, "
    "the return.",
)  # fmt: skip
SECONDS = Figure(
    "seconds", tables.SECONDS, select, draw,
    caption="Gap between f at the distribution's mean and the optimum against the wall time of one run on the machine "
    "that made this report, without compilation: the time of a job divided by the number of its runs. It computes them "
    "together (those of other libraries one after another), and a single run would take longer than that. " + _ENDS,
    answer="gap to the optimum against wall time.",
    options={"x": "seconds"},
)  # fmt: skip
