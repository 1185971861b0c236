"""How black-box searches approach the optimum, per evaluation or second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import BAND, FAINT, INK, SMALL, searchers, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.search.figures.search_tables import AXES, OF, along_search

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGET = 1e-10
_LEAST = 2e-11  # what lies lower is drawn here: runs end a little below the target
_MARKS = 7  # markers on a line, besides its end


@styled
def curves(table: Table, x: str = "evaluations", of: str = "mean", backend: str | None = None) -> Figure:
    """Draws the gap to the optimum along searches: the median over repetitions and its quartiles.

    A line ends where its runs do: in a ring where the budget was spent, in a dot with a rim where all had met the
    last target, in a cross where some had diverged. Where gaps become exactly zero (discrete problems) the axis
    has a zero below its last decade. Where no optimum is known (policies) the panel shows the return, minus f.

    Args:
        table: columns ``problem, method, backend, optimum, budget, evaluations, iteration, repetitions, diverged,
            f_median, f_low, f_high``, the one that ``x`` names, and the same three of ``best`` if ``of`` says so.
        x: ``evaluations``, ``iteration`` or ``seconds``.
        of: ``mean`` (f at the distribution's mean, as the paper draws) or ``best`` (best evaluated point).
        backend: which backend's runs; if None, each method's first.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or a name is unknown.
    """
    rows = along_search(table, x, of, backend)
    names = tables.problems(rows)
    looks = searchers(rows["method"])
    fig, axes = panels.grid(len(names), height=2.65)
    words = {False: f"gap of {OF[of]}", True: {"mean": "return at the mean (−f)", "best": "best return (−f)"}[of]}
    returns = [bool(rows.loc[rows["problem"] == name, "optimum"].isna().all()) for name in names]
    for rank, (name, ax) in enumerate(zip(names, axes, strict=True)):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], x, {"mean": "f", "best": "best"}[of], looks, returns[rank])
    panels.label(axes, AXES[x], words[returns[0]])
    for rank, ax in enumerate(axes):
        if returns[rank] != returns[rank - rank % 2] or (rank % 2 == 0):
            ax.set_ylabel(words[returns[rank]])
    lines.legend(fig, _keys(looks, rows))
    return fig


@styled
def search_seconds(table: Table, of: str = "mean", backend: str | None = None) -> Figure:
    """Draws the gap to the optimum against the time of one run, compiling apart; else as `curves`.

    Args:
        table: as for `curves`, with ``seconds``.
        of: ``mean`` or ``best``.
        backend: which backend's runs; if None, each method's first.

    Raises:
        UserError: a column is missing, or a name is unknown.
    """
    return curves(table, "seconds", of, backend)


def _keys(looks: dict, rows: Table) -> list:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys: list = [Line2D([], [], **lines.kind(look), label=look.label) for look in looks.values()]
    keys.append(Patch(color=INK, alpha=BAND, lw=0, label="quartiles"))
    kinds = {_fate(line) for _, line in rows.groupby(["problem", "method"], sort=False)}
    for fate, words in (("spent", "budget spent"), ("met", "all at the target"), ("lost", "some diverged")):
        if fate in kinds:
            keys.append(Line2D([], [], ls="", color=FAINT, **_END[fate], label=words))
    return keys


_END = {
    "spent": {"marker": "o", "ms": 9, "mfc": "none", "mew": 1.3},
    "met": {"marker": "o", "ms": 7, "mec": INK, "mew": 1.0},
    "lost": {"marker": "x", "ms": 10, "mew": 2.6},
}


def _fate(line: Table) -> str:
    """How a line ends: ``lost`` (some diverged), ``met`` (before the budget was spent) or ``spent``."""
    last = line.iloc[-1]
    if last["diverged"] > 0:
        return "lost"
    generation = last["evaluations"] / max(last["iteration"], 1)
    early = last["evaluations"] + generation < last["budget"]
    met = np.isfinite(last["optimum"]) and (early or last["f_high"] <= TARGET)
    return "met" if met else "spent"


def _panel(ax: Axes, rows: Table, x: str, column: str, looks: dict, returns: bool) -> None:
    drawn = rows[np.isfinite(rows[f"{column}_median"]) & np.isfinite(rows[x])]
    if not len(drawn):
        panels.say(ax, "all runs diverged" if len(rows) else "no runs")
        return
    floor = _scale(ax, drawn, column, returns)
    ax.grid()
    for rank, (method, look) in enumerate(looks.items()):
        line = drawn[drawn["method"] == method]
        if not len(line):
            continue
        place = line[x].to_numpy(float)
        middle, low, high = (line[f"{column}_{part}"].to_numpy(float) for part in ("median", "low", "high"))
        if returns:
            middle, low, high = -middle, -high, -low
        else:
            middle, low, high = (np.maximum(values, floor) for values in (middle, low, high))
        top = 1e3 * ax.get_ylim()[1] if not returns else np.nan
        lines.band(ax, place, low, np.where(np.isfinite(high), high, top), look, f"{method}: quartiles")
        every = max(1, len(line) // _MARKS)
        style = lines.kind(look) | {"ms": 0.8 * look.size}
        ax.plot(place, middle, label=method, markevery=(rank % every, every), **style)
        fate = _END[_fate(rows[rows["method"] == method])]
        ax.plot(place[-1], middle[-1], color=look.colour, label=f"{method}: end", zorder=5, **fate)
    panels.run_axis(ax, drawn[x].to_numpy())
    last = rows.groupby("method")[f"{column}_median"].last()
    gone = [look.label for method, look in looks.items() if not np.isfinite(last.get(method, 0.0))]
    if gone:
        panels.note(ax, f"diverged: {', '.join(gone)}")


def _scale(ax: Axes, rows: Table, column: str, returns: bool) -> float:
    """Sets the vertical axis; returns the height at which gaps of zero are drawn."""
    middle = rows[f"{column}_median"].to_numpy(float)
    if returns:
        ends = -rows.groupby("method")[f"{column}_median"].last()
        best, start = float(np.max(-middle)), float(np.median(-rows.groupby("method")[f"{column}_median"].first()))
        room = max(best - min(start, float(ends.min())), 1e-9)
        if np.min(-middle) < best - 2 * room:
            ax.set_ylim(best - 2 * room, best + 0.08 * room)
        return -np.inf
    ax.set_yscale("log")
    positive = middle[middle > 0]
    if not len(positive):
        ax.set_ylim(1e-1, 1)
        return 1e-1
    least, top = float(positive.min()), float(positive.max())
    discrete = bool((middle <= 0).any()) and least > 1e-6
    floor = 10.0 ** (np.floor(np.log10(least)) - 1) if discrete else _LEAST
    bottom = floor if discrete else max(least, floor)
    room = max((top / bottom) ** 0.05, 1.2)
    ax.set_ylim(bottom / room, top * room)
    span = np.log10(top / bottom)
    step = int(np.ceil(max(span, 1) / 6))
    powers = np.arange(np.ceil(np.log10(bottom / room)), np.floor(np.log10(top * room)) + 1)
    powers = [int(power) for power in powers if power % step == 0]
    if len(powers) >= 2 or discrete:
        if discrete:
            powers = [power for power in powers if 10.0**power > 2 * floor]
        ticks = ([floor] if discrete else []) + [10.0**power for power in powers]
        ax.set_yticks(ticks, (["0"] if discrete else []) + [f"$10^{{{power}}}$" for power in powers])
        ax.minorticks_off()
    if bottom < 10 * TARGET < top and not discrete:
        ax.axhline(TARGET, color=INK, lw=1.1, ls=(0, (1, 2)), label="target", zorder=1)
        style = {"va": "bottom", "ha": "left", "fontsize": SMALL, "color": FAINT}
        ax.text(0.01, TARGET, "target", transform=ax.get_yaxis_transform(), **style)
    return floor
