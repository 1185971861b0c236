"""Convergence of each method to the optimum along its run, and its final gap against its step size."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, Axes, Picture
from lowvar.errors import check_known
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import backends, in_order, numbers
from lowvar_studies.reports.drawing.style import estimators
from lowvar_studies.reports.variational import convergence as tables
from lowvar_studies.reports.variational.figures.times import WARMED, warmed
from lowvar_studies.reports.variational.gathering import looks_at

AXES = {
    "passes": "passes over the data",
    "iteration": "iteration",
    "oracles": "gradient evaluations (data rows)",
    "seconds": "seconds",
    "epoch": "epoch",
}
_DECADES = 4  # of gaps shown above the largest final one
_REACH = 1e3  # largest over smallest distance of an ELBO to the best that is shown
_PANEL, _AROUND = 2.8, 0.85  # height of a panel of step sizes without a strip, and of its title and labels, inches
_ROW, _WORD = 0.08, 0.17  # height of one row of crosses, and of a tick's label, inches
_BEYOND = "beyond"  # the name of marks at intervals that leave the panel, ...
_CUT = {"low": r"$\downarrow$", "high": r"$\uparrow$"}  # ... and these marks
_LOST = "#FFF1B8"  # the strip; intervals are grey or in the colour of a method
_BESIDE = 1.12  # factor between methods that share their only step size
_ENDS = ("middle", "low", "high")


def _quantity(rows: Frame) -> str:
    """The quantity of a panel: ``"gap"`` if the optimum is known, else ``"elbo"``."""
    return "elbo" if rows["gap_mean"].isna().all() and np.isfinite(rows["elbo_mean"]).any() else "gap"


def _drawable(rows: Frame, y: str) -> Frame:
    """The finite rows of a quantity, and it and its interval in the columns ``middle``, ``low`` and ``high``."""
    columns = {end: rows[f"{y}_{part}"] for end, part in zip(_ENDS, ("mean", "low", "high"), strict=True)}
    return rows.assign(**columns)[np.isfinite(rows[f"{y}_mean"]) & ((rows["gap_mean"] > 0) | (y == "elbo"))]


def select(convergence: Frame, x: str = "passes") -> Frame:
    """Every method at its best step size at each epoch.

    A method that diverged at every step size keeps the last row of its smallest one, so that the figure names it.
    Against seconds, lines skip the warm-up.
    """
    check_known("axis", x, [one for one in AXES if one in convergence])
    runs = [convergence[name] for name in ("problem", "method", "backend")]
    if x == "seconds":  # of a job, divided by its runs
        sizes = convergence["step_size"].groupby(runs, dropna=False).transform("nunique")
        convergence = warmed(convergence.assign(runs=sizes * convergence["repetitions"]))
        runs = [convergence[name] for name in ("problem", "method", "backend")]
    envelope = convergence["envelope"].eq(True)
    end = convergence["epoch"] == convergence["epoch"].groupby(runs, dropna=False).transform("max")
    smallest = convergence["step_size"] == convergence["step_size"].groupby(runs, dropna=False).transform("min")
    without = ~(envelope & end).groupby(runs, dropna=False).transform("any")
    return in_order(convergence[envelope | (without & end & smallest)], "problem", "method", "backend", x)


def draw(rows: Frame, x: str = "passes") -> Picture:
    """A panel for each problem; open markers show a second backend."""
    looks, known = estimators(rows["method"]), backends(rows)
    label = charts.amortised(rows["runs"]) if x == "seconds" else AXES[x]
    panel = partial(_panel, x=x, looks=looks, known=known)
    fig = charts.each(rows, panel, label, "gap: ELBO* − ELBO (nats)")
    drawing.legend(fig, charts.keys(looks, known, interval="beside"))
    return fig


def _panel(ax: Axes, rows: Frame, x: str, looks: dict, known: list[str]) -> None:
    y, runs = _quantity(rows), [rows[name] for name in ("method", "backend")]
    drawn = _drawable(rows[np.isfinite(rows[x])], y)
    last = rows[x] == rows[x].groupby(runs).transform("max")
    lost = rows["method"].isin(set(rows["method"]) - set(drawn.loc[last[drawn.index], "method"]))
    ends = drawn[last[drawn.index]]
    lengths = drawn.groupby(["method", "backend"])[x].transform("size")
    drawn = drawn[~(lost[drawn.index] & (lengths < 2))]
    if not charts.ready(ax, drawn, why_empty(rows[last]), "y" if y == "gap" else ""):
        return
    charts.draw(ax, drawn, looks, x, *_ENDS, mark="beside", markers=10, name="{}, {}", backends=known)
    charts.run_axis(ax, drawn[x].to_numpy())
    fates = {"diverged": charts.labels(looks, set(rows.loc[lost, "method"]))}
    if y == "gap":
        most = 10**_DECADES * ends["middle"].max() if len(ends) else np.inf
        charts.frame(ax, *numbers(drawn[drawn["middle"] <= most], "low", "middle", "high"))
    else:
        floor = elbo_axis(ax, drawn)
        highest = drawn.groupby("method")["middle"].max()
        fates["below"] = charts.labels(looks, highest.index[highest < floor])
    charts.notes(ax, fates)


def elbo_axis(ax: Axes, drawn: Frame) -> float:
    """Makes an axis of ELBOs logarithmic in the distance to a ceiling slightly above the best, with ELBOs at its ticks.

    The ceiling is above the best mean by a tenth of naive's distance to it (of the worst method's, if naive is the best
    or missing), or by the half width of the best method's interval if that is larger, so that the best line stays in
    the panel. The axis shows distances up to a thousand times that.

    Args:
        ax: the panel.
        drawn: finite rows of the table ``convergence``.

    Returns:
        The lowest ELBO that the axis shows.
    """
    best = drawn.groupby("method")["elbo_mean"].max()
    top, values = float(best.max()), drawn["elbo_mean"].to_numpy(float)
    apart = top - best.get("naive", top)
    apart = apart if apart > 0 else (top - best.min()) or (top - values.min()) / 10 or 1e-3 * abs(top) or 1.0
    room = np.nan_to_num(float(drawn.loc[drawn["elbo_mean"].idxmax(), "elbo_high"]) - top)
    least = max(0.1 * apart, min(1.1 * room, apart))
    ceiling = top + least
    lowest = max(values.min(), ceiling - _REACH * least)

    def forward(elbo):
        return -np.log10(np.maximum(ceiling - np.asarray(elbo, float), 1e-6 * least))

    ax.set_yscale("function", functions=(forward, lambda height: ceiling - 10.0 ** -np.asarray(height, float)))
    farthest = (ceiling - lowest) * 1.15
    ax.set_ylim(ceiling - farthest, ceiling - 0.4 * least)
    size = max(abs(top), abs(lowest))
    power = 0 if size < 1e4 else 3 * int(math.log10(size) // 3)
    ticks = _elbo_ticks(ceiling, least, farthest)
    ax.set_yticks(ticks, [f"{tick / 10**power:.10g}" for tick in ticks])
    ax.minorticks_off()
    unit = {0: "nats", 3: "1000 nats", 6: "million nats"}.get(power, f"$10^{{{power}}}$ nats")
    ax.set_ylabel(f"ELBO ({unit}),\nlog distance to the best")
    return ceiling - farthest


def _elbo_ticks(ceiling: float, least: float, most: float) -> list[float]:
    """About five round ELBOs at roughly geometric distances below ``ceiling``."""
    decades = math.log10(most / least)
    ticks: list[float] = []
    for part in np.linspace(0.02, 0.97, 5):
        distance = least * 10 ** (part * decades)
        unit = 10.0 ** math.floor(math.log10(distance / 2))
        tick = round((ceiling - distance) / unit) * unit
        if 0.4 * least < ceiling - tick < most and (not ticks or ceiling - tick > 1.4 * (ceiling - ticks[-1])):
            ticks.append(tick)
    return ticks


def lost(rows: Frame) -> Frame:
    """Mask of the rows whose step size has no mean because repetitions diverged."""
    lines = [rows[name] for name in ("problem", "method", "backend", "step_size")]
    finite = np.isfinite(rows["gap_mean"]) | np.isfinite(rows["elbo_mean"])
    diverged = (rows["diverged"] > 0) & ~finite
    return diverged.groupby(lines, dropna=False).transform("any")


def why_empty(rows: Frame) -> str:
    """The reason why rows of the table ``convergence`` give nothing to draw."""
    if not len(rows):
        return "no runs"
    if lost(rows).all():
        complete = (rows["diverged"] >= rows["repetitions"])[rows["diverged"] > 0].all()
        return "all runs diverged" if complete else "some runs diverged\nat every step size"
    return "nothing finite to draw"


def select_ends(convergence: Frame) -> Frame:
    """The last row of every method and step size; a run that ends worse than at its start counts as diverged."""
    keys = ["problem", "method", "backend", "step_size"]
    iterations = convergence.groupby(keys, dropna=False)["iteration"]
    rows = convergence.loc[iterations.idxmax()].sort_index().reset_index(drop=True)
    start = rows[keys].merge(convergence.loc[iterations.idxmin()], on=keys, how="left")
    worse = (np.isfinite(rows["gap_mean"]) & (rows["gap_mean"] > start["gap_mean"])) | (
        rows["gap_mean"].isna() & (rows["elbo_mean"] < start["elbo_mean"])
    )
    worse &= rows["iteration"] > 0
    rows.loc[worse, "diverged"] = rows.loc[worse, "repetitions"]
    rows.loc[worse, ["gap_mean", "gap_low", "gap_high", "elbo_mean", "elbo_low", "elbo_high"]] = np.nan
    return rows


def draw_ends(rows: Frame) -> Picture:
    """A panel for each problem, with a strip at the top for step sizes at which runs diverged.

    Problems with one step size are left out where others have several: they say nothing of step sizes.
    """
    several = rows.groupby("problem")["step_size"].transform("nunique") > 1
    rows = rows[several] if several.any() else rows
    looks, known = estimators(rows["method"]), backends(rows)
    ended = rows[lost(rows)].groupby("problem")["method"].nunique()
    height = _PANEL + _ROW * float(ended.max() if len(ended) else 0)
    panel = partial(_ends_panel, looks=looks, known=known, inch=1 / (height - _AROUND))
    fig = charts.each(rows, panel, "step size", "final gap: ELBO* − ELBO (nats)", height=height)
    entries = charts.keys(looks, known, interval="bars")
    if any(line.get_gid() == _BEYOND for ax in fig.axes for line in ax.lines):
        entries.append(
            drawing.entry("interval beyond the panel", color=FAINT, marker=_CUT["high"], ms=10, mew=0.6, ls="")
        )
    if (rows["diverged"] >= rows["repetitions"]).any():
        words = "diverged, or worse than at the start"
        entries.append(drawing.entry(words, color=INK, marker="x", ls="", mew=1.8))
    if ((rows["diverged"] > 0) & (rows["diverged"] < rows["repetitions"])).any():
        entries.append(drawing.entry("some diverged", color=INK, marker="o", ls="", mfc="none", ms=8))
    drawing.legend(fig, entries)
    return fig


def _ends_panel(ax: Axes, rows: Frame, looks: dict, known: list[str], inch: float) -> None:
    y = _quantity(rows)
    drawn = _drawable(rows, y)
    if not charts.ready(ax, drawn, why_empty(rows), "xy" if y == "gap" else "x"):
        return
    _room(ax, drawn, rows)
    drawn = drawn.assign(place=drawn["step_size"] * drawn["method"].map(_beside(drawn, list(looks))))
    cut = drawn.iloc[:0]
    if y == "elbo" and len(drawn) == 1:  # no distance to another value
        ax.set_ylabel("ELBO (nats)")
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.margins(y=0.3)
    elif y == "elbo":
        floor = elbo_axis(ax, drawn)
        if drawn["middle"].min() < floor:
            charts.note(ax, f"below {floor:.4g} nats: not shown")
    else:
        charts.frame(ax, *numbers(drawn, "low", "middle", "high"))
    if len(drawn) > 1:
        cut, drawn = drawn, drawn.assign(**{end: drawn[end].clip(*ax.get_ylim()) for end in _CUT})
    charts.draw(ax, drawn, looks, "place", *_ENDS, mark="bars", name="{}, {}", backends=known)
    for method, some in drawn[drawn["diverged"] > 0].groupby("method", sort=False):
        style = {"ls": "", "marker": "o", "mfc": "none", "ms": 13, "mew": 1.0}
        ax.plot(some["place"], some["middle"], color=looks[method].colour, **style)
    low, high = ax.get_ylim()
    top = _crosses(ax, rows, looks, inch)
    for method, some in cut.groupby("method", sort=False):
        for end, beyond, height in (("low", some["low"] < low, 0.035), ("high", some["high"] > high, top - 0.035)):
            style = {"ls": "", "marker": _CUT[end], "ms": 10, "mew": 0.6, "color": looks[method].colour, "gid": _BEYOND}
            place = some.loc[beyond & some["middle"].between(low, high), "place"]
            if len(place):
                label = f"{method}: beyond, {end}"
                ax.plot(place, np.full(len(place), height), transform=ax.get_xaxis_transform(), label=label, **style)


def _room(ax: Axes, drawn: Frame, rows: Frame) -> None:
    """Sets limits around a single step size, to which a logarithmic axis would collapse."""
    if drawn["step_size"].nunique() > 1:
        return
    sizes = np.unique(rows["step_size"])
    ax.set_xlim(sizes[0] / 3, sizes[-1] * 3)
    if len(sizes) == 1:
        charts.one_tick(ax, sizes[0], "all at {:.3g}" if drawn["method"].nunique() > 1 else "{:.3g}")


def _beside(drawn: Frame, order: list[str]) -> dict[str, float]:
    """Factors that set methods side by side if all have the same single step size."""
    methods = [method for method in order if (drawn["method"] == method).any()]
    step = min(_BESIDE, 4 ** (1 / len(methods)))  # all within a factor of two of the step size
    step = 1.0 if drawn["step_size"].nunique() > 1 else step
    return {method: step ** (rank - (len(methods) - 1) / 2) for rank, method in enumerate(methods)}


def _crosses(ax: Axes, rows: Frame, looks: dict, inch: float) -> float:
    """Marks diverged step sizes in a strip above the data, with a row for each method; ``inch`` is one in panels.

    Returns:
        The height at which the strip begins, 1 without one.
    """
    from matplotlib.patches import Rectangle

    ended = rows[lost(rows)]
    methods = [method for method in looks if (ended["method"] == method).any()]
    if not methods:
        return 1.0
    row, strip = _ROW * inch, _ROW * inch * (len(methods) + 0.4)
    charts.round_axis(ax.yaxis)  # ticks of the data alone
    low, high = ax.get_ylim()
    both = zip(ax.get_yticks(), ax.get_yticklabels(), strict=False)
    ticks = {float(at): label.get_text() for at, label in both if low <= at <= high}
    bottom, end = ax.transScale.transform([(1, low), (1, high)])[:, 1]
    top = bottom + (end - bottom) / (1 - strip)
    top, middle = ax.transScale.inverted().transform([(1, top), (1, (end + top) / 2)])[:, 1]
    ax.set_ylim(top=top)
    inside = ax.transAxes.inverted()
    heights = {at: inside.transform(ax.transData.transform((1, at)))[1] for at in ticks}
    clear = {at: text for at, text in ticks.items() if heights[at] < 1 - strip / 2 - _WORD * inch}
    ax.set_yticks([*clear, middle], [*clear.values(), "diverged"])
    ax.minorticks_off()
    name = ax.yaxis.get_major_ticks()[-1]
    name.tick1line.set_visible(False)
    name.gridline.set_visible(False)
    ax.add_patch(Rectangle((0, 1 - strip), 1, strip, transform=ax.transAxes, color=_LOST, lw=0, zorder=0))
    ax.plot([0, 1], [1 - strip] * 2, transform=ax.transAxes, color=FAINT, lw=0.8, zorder=0)
    for rank, method in enumerate(methods):
        own = ended[ended["method"] == method]
        complete = own["diverged"] >= own["repetitions"]
        for some, marker in ((own[complete], "x"), (own[~complete], "o")):
            place = np.unique(some["step_size"])
            height = np.full(len(place), 1 - row * (rank + 0.7))
            style = {"color": looks[method].colour, "ls": "", "marker": marker, "mew": 1.5, "ms": 4, "mfc": "none"}
            label = f"{method}: {'all' if marker == 'x' else 'some'} diverged"
            ax.plot(place, height, transform=ax.get_xaxis_transform(), label=label, **style)
    return 1 - strip


_RETROSPECT = (
    "Each point is at the method's best step size at that epoch, in retrospect. Lines are geometric means of the gap "
    "over the repetitions, bands 95 % intervals, or with more than three methods bars at some of the points, side by "
    "side. Where the optimum is unknown, the figure shows the mean ELBO, on an axis that is logarithmic in the "
    "distance to a value slightly above the best."
)
CONVERGENCE = Figure(
    "convergence", tables.CONVERGENCE, select, draw,
    caption="Gap to the optimum against passes over the data: gradients and Hessian-vector products of single rows, "
    "divided by the number of rows. " + _RETROSPECT,
    answer="gap to the optimum (or ELBO, where the optimum is unknown) against passes over the data, each method at "
    "its best step size.",
)  # fmt: skip
ITERATIONS = Figure(
    "iterations", tables.CONVERGENCE, select, draw,
    caption="Gap to the optimum against iterations. " + _RETROSPECT,
    options={"x": "iteration"},
)  # fmt: skip
WORK = Figure(
    "work", tables.CONVERGENCE, select, draw,
    caption="Gap to the optimum against gradient evaluations of single rows, counting all particles. A particle costs "
    "two evaluations in estimators that compare two steps. " + _RETROSPECT,
    when=looks_at(),
    options={"x": "oracles"},
)  # fmt: skip
SECONDS = Figure(
    "seconds", tables.SECONDS, select, draw,
    caption="Gap to the optimum against the wall time of one run on the machine that made this report, without "
    "compilation: the time of a job divided by the number of its runs (all step sizes and repetitions), which it "
    "computes together (`runs`). A single run would take longer than that. " + _RETROSPECT + WARMED,
    options={"x": "seconds"},
)  # fmt: skip
STEPS = Figure(
    "steps", tables.CONVERGENCE, select_ends, draw_ends,
    caption="Gap between the final ELBO and the optimum against step size: geometric means over the repetitions with "
    "95 % intervals. Where the optimum is unknown: the mean final ELBO, on an axis that is logarithmic in the distance "
    "to a value slightly above the best. A cross marks a step size at which all runs diverged or ended worse than at "
    "their start, a ring one at which some did; both are in the yellow strip. An arrow ends an interval that leaves "
    "the panel. Methods that share their only step size "
    "are drawn side by side.",
)  # fmt: skip
