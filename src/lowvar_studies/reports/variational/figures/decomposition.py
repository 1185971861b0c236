"""Variance of gradients by source: at the end of a run, along it, and under several noise schemes."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, Axes, Picture
from lowvar.errors import UserError
from lowvar.vi.plots import SOURCES, shares
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import numbers, part, positive, problems
from lowvar_studies.reports.drawing.style import SCHEMES, Estimator, block_label, estimators
from lowvar_studies.reports.variational import variances as tables
from lowvar_studies.reports.variational.gathering import first_setting

BLOCKS = ("all", "mu")
FLOORS = {
    "subsampling": ("$V_n$", "$V_n$: naive, subsampling", (0, (1, 1))),
    "monte_carlo": (r"$V_\varepsilon$", r"$V_\varepsilon$: naive, Monte Carlo", (0, (1, 3))),
}
_UNIT = "gradient variance (trace, nats²)"
_SPREAD = 0.5  # of the schemes within a row of height 1
_FLOOR = 1e-4  # smaller ratios are drawn at this value


def select_shares(decomposition: Frame) -> Frame:
    """Every estimator at the last moment of the run, over all parameters."""
    decomposition = first_setting(decomposition)
    rows = decomposition[decomposition["end"].eq(True) & (decomposition["block"] == "all")]
    if not len(rows):
        raise UserError("decomposition table: no row with end = True and block = 'all'")
    return rows.reset_index(drop=True)


def draw_shares(rows: Frame) -> Picture:
    """The shares with the labels of the report."""
    return shares(rows, {name: look.label for name, look in estimators(rows["method"]).items()})


SHARES = Figure(
    "shares", tables.DECOMPOSITION, select_shares, draw_shares,
    caption="Variance of each gradient estimator by source: subsampling of the data, Monte Carlo noise, and their "
    "interaction. All are measured at the ends of the runs of the leader (the experiment's "
    "`decomposition.leader`). Left: shares. Right: total and parts. Whiskers are 95 % intervals, those "
    "at the left of the lengths of the parts, from where each begins.",
    answer="variance of the gradient by source and estimator, all at the end of the same run. Left: shares; right: "
    "totals and parts, with 95 % intervals.",
)  # fmt: skip


def _along(decomposition: Frame) -> Frame:
    """The rows of the problems that were measured at several moments; all rows if none was."""
    rows = first_setting(decomposition)
    several = rows[rows.groupby("problem")["iteration"].transform("nunique") > 1]
    return several if len(several) else rows


def totals(decomposition: Frame) -> Frame:
    """Totals of every estimator, and the floors: the subsampling and Monte Carlo parts of naive's variance."""
    rows = _along(decomposition)
    floor = (rows["method"] == "naive") & rows["source"].isin(list(FLOORS))
    rows = rows[rows["block"].isin(BLOCKS) & ((rows["source"] == "total") | floor)]
    if not len(rows):
        raise UserError(f"decomposition table: no total variance for any of the blocks {', '.join(BLOCKS)}")
    return rows.reset_index(drop=True)


def draw_totals(rows: Frame) -> Picture:
    """A row of panels for each problem, a panel for each measured block of parameters."""
    names = problems(rows)
    blocks = [block for block in BLOCKS if (rows["block"] == block).any()]
    looks = estimators(rows["method"])
    fig = drawing.figure(2.5 * len(names) + 0.3)
    axes = fig.subplots(len(names), len(blocks), squeeze=False)
    for name, line in zip(names, axes, strict=True):
        for block, ax in zip(blocks, line, strict=True):
            ax.set_title(f"{name}: {block_label(block)}")
            _totals(ax, part(rows, problem=name, block=block), looks)
        line[0].set_ylabel(_UNIT)
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
    fig.align_ylabels(axes[:, 0])
    keys = charts.keys(looks, interval="beside")
    if (rows["source"] != "total").any():
        keys += [drawing.entry(text, color=INK, ls=dots) for _, text, dots in FLOORS.values()]
    drawing.legend(fig, keys)
    return fig


def _totals(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows, "variance")
    total = part(drawn, source="total")
    if not charts.ready(ax, total, "no finite variance" if len(rows) else "not measured"):
        return
    charts.draw(ax, total, looks, "iteration", "variance", "low", "high", mark="beside", style=charts.solid)
    ends = []
    for source, (symbol, _, dots) in FLOORS.items():
        floor = part(drawn, source=source).sort_values("iteration")
        if len(floor):
            x, height = numbers(floor, "iteration", "variance")
            if len(x) == 1:
                x, height = x[0] + np.array([-0.5, 0.0, 0.5]), np.repeat(height, 3)
            ax.plot(x, height, color=INK, ls=dots, lw=1.8, zorder=4, label=source)
            ends.append((height[-1], symbol, INK))
    charts.frame(ax, *numbers(drawn, "low", "variance", "high"))
    charts.run_axis(ax, total["iteration"].to_numpy())
    charts.ends(ax, ends, outside=True)


ALONG = Figure(
    "along", tables.DECOMPOSITION, totals, draw_totals,
    caption="Variance of each estimator along one run, that of the leader: the experiment's `decomposition.leader`, "
    "at whose parameters all estimators are measured. Bands, or with more than three methods bars side by side, are "
    "95 % intervals. Dotted: V_n, the variance from subsampling alone, and V_eps, that from Monte Carlo noise alone. "
    "An estimator that reduces only one of them cannot have a variance below the other.",
)  # fmt: skip


def sources(decomposition: Frame) -> Frame:
    """Naive's variance and its parts, and the total of one other method on each problem.

    The other method is ``joint`` if measured, else the one with the smallest variance at the end.
    """
    rows = part(_along(decomposition), block="all")
    if not (rows["method"] == "naive").any():
        raise UserError("decomposition table: no method 'naive', whose variance the figure splits")
    others = rows[(rows["method"] != "naive") & (rows["source"] == "total")]
    chosen = {name: "joint" if (group["method"] == "joint").any() else _lowest(group)
              for name, group in others.groupby("problem", sort=False)}  # fmt: skip
    other = (rows["method"] == rows["problem"].map(chosen)) & (rows["source"] == "total")
    return rows[(rows["method"] == "naive") | other].reset_index(drop=True)


def _lowest(rows: Frame) -> str:
    ends = rows[rows["end"].eq(True)].sort_values("variance")
    return str((ends if len(ends) else rows)["method"].iloc[0])


def draw_sources(rows: Frame) -> Picture:
    """A panel for each problem."""
    looks, markers = estimators(rows["method"]), {"subsampling": "s", "monte_carlo": "^", "interaction": "v"}
    parts = {source: Estimator(f"naive: {look.label}", look.colour, markers[source], 1.6)
             for source, look in SOURCES.items()}  # fmt: skip

    def panel(ax: Axes, rows: Frame) -> None:
        drawn = positive(rows, "variance")
        if not charts.ready(ax, drawn, "no finite variance" if len(rows) else "not measured"):
            return
        for source in (*parts, "total"):
            own = {method: parts.get(source, look) for method, look in looks.items()}
            line = part(drawn, source=source)
            charts.draw(ax, line, own, "iteration", "variance", "low", "high", name=f"{{}}, {source}")
        charts.frame(ax, *numbers(drawn, "low", "variance", "high"))
        charts.run_axis(ax, drawn["iteration"].to_numpy())

    fig = charts.each(rows, panel, "iteration", _UNIT)
    totals = {name: Estimator(f"{look.label}: total", look.colour, look.marker, look.width, look.dash)
              for name, look in looks.items()}  # fmt: skip
    drawing.legend(fig, charts.keys({**totals, **parts}))
    return fig


SPLIT_ALONG = Figure(
    "split_along", tables.DECOMPOSITION, sources, draw_sources,
    caption="Variance of the naive estimator along the run of the leader (the experiment's `decomposition.leader`), "
    "split into subsampling, Monte Carlo noise and their interaction, and the total variance of joint. Where joint was "
    "not measured, the method with the smallest variance at the end takes its place. Bands are 95 % intervals.",
)  # fmt: skip


def select_schemes(schemes: Frame) -> Frame:
    """Total variances over all parameters for all noise schemes except iid."""
    rows = schemes[(schemes["block"] == "all") & (schemes["source"] == "total") & (schemes["noise"] != "iid")]
    if not len(rows):
        raise UserError("schemes table: only iid noise, so there is nothing to compare")
    return rows.reset_index(drop=True)


def draw_schemes(rows: Frame) -> Picture:
    """A row of panels for each problem, a panel for each number of particles."""
    names, counts = problems(rows), sorted(rows["particles"].unique())
    looks = estimators(rows["method"])
    noises = [noise for noise in SCHEMES if (rows["noise"] == noise).any()]
    fig = drawing.figure(len(names) * (0.4 * len(looks) + 0.75) + 0.2)
    axes = fig.subplots(len(names), len(counts), squeeze=False, sharex=True)
    for name, line in zip(names, axes, strict=True):
        for rank, (count, ax) in enumerate(zip(counts, line, strict=True)):
            ax.set_title(f"{name}, {count} particles")
            _schemes(ax, part(rows, problem=name, particles=count), list(looks), noises)
            ax.set_yticks(range(len(looks)), charts.short(looks) if rank == 0 else [""] * len(looks))
    for ax in axes[-1]:
        ax.set_xlabel("variance / that of iid particles")
    keys = [drawing.entry(f"{look.label}, 95 % interval", color=look.colour, marker=look.marker, lw=1.8, mec=INK,
                          mew=0.5)
            for look in map(SCHEMES.__getitem__, noises)]  # fmt: skip
    keys.append(drawing.entry("iid particles", color=INK, lw=1.1, ls=(0, (1, 2))))
    drawing.legend(fig, keys)
    return fig


def _schemes(ax: Axes, rows: Frame, methods: list[str], noises: list[str]) -> None:
    ax.set_xscale("log")
    drawing.lanes(ax, len(methods))
    ax.grid(axis="x")
    ax.axvline(1.0, color=INK, lw=1.1, ls=(0, (1, 2)), zorder=1)
    places = np.linspace(-_SPREAD / 2, _SPREAD / 2, len(noises)) if len(noises) > 1 else [0.0]
    by = rows.drop_duplicates(["method", "noise"]).set_index(["method", "noise"])
    for y, method in enumerate(methods):
        ax.axhspan(y - 0.38, y + 0.38, color="#F5F5F5", lw=0, zorder=0)
        for noise, shift in zip(noises, places, strict=True):
            if (method, noise) not in by.index:
                continue
            interval = [float(by.loc[(method, noise), f"to_iid{end}"]) for end in ("", "_low", "_high")]  # pyright: ignore
            look = SCHEMES[noise]
            charts.dot(ax, y + shift, interval, look.colour, look.marker, f"{method}: {noise}", _FLOOR)


BY_SCHEME = Figure(
    "schemes", tables.SCHEMES, select_schemes, draw_schemes,
    caption="Variance of each estimator with antithetic, orthogonal and randomised quasi-Monte Carlo particles, "
    "divided by that with as many iid particles on the same data rows, at the end of the runs of the leader (the "
    "experiment's `decomposition.leader`). Bars are 95 % intervals. Left of the line, the scheme reduces the variance.",
)  # fmt: skip
