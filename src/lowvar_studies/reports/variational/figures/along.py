"""Variance along a run: of every estimator, with the floors for one source of noise alone, and of naive by source."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, SMALL, Axes, Picture, styled
from lowvar.errors import UserError
from lowvar.vi.plots import SOURCES
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import numbers, part, positive, problems, require
from lowvar_studies.reports.drawing.style import Estimator, block_label, estimators
from lowvar_studies.reports.variational.figures.shares import DECOMPOSITION
from lowvar_studies.reports.variational.gathering import first_setting

BLOCKS = ("all", "mu")
FLOORS = {
    "subsampling": ("$V_n$", "$V_n$: naive, subsampling", (0, (1, 1))),
    "monte_carlo": (r"$V_\varepsilon$", r"$V_\varepsilon$: naive, Monte Carlo", (0, (1, 3))),
}
_UNIT = "gradient variance (trace, nats²)"


def _along(decomposition: Frame) -> Frame:
    """The rows of the problems that were measured at several moments; all rows if none was."""
    rows = first_setting(decomposition)
    several = rows[rows.groupby("problem")["iteration"].transform("nunique") > 1]
    return several if len(several) else rows


def totals(decomposition: Frame) -> Frame:
    """Totals of every estimator, and the floors: the subsampling and Monte Carlo parts of naive's variance."""
    require(decomposition, (*DECOMPOSITION, "iteration"), "decomposition")
    rows = _along(decomposition)
    floor = (rows["method"] == "naive") & rows["source"].isin(list(FLOORS))
    rows = rows[rows["block"].isin(BLOCKS) & ((rows["source"] == "total") | floor)]
    if not len(rows):
        raise UserError(f"decomposition table: no total variance for any of the blocks {', '.join(BLOCKS)}")
    return rows.reset_index(drop=True)


@styled
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
    keys = lines.keys(looks, bars=len(looks) > lines.BANDS)
    if (rows["source"] != "total").any():
        keys += [drawing.entry(text, color=INK, ls=dots) for _, text, dots in FLOORS.values()]
    drawing.legend(fig, keys)
    return fig


def _totals(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows, "variance")
    total = part(drawn, source="total")
    if not panels.ready(ax, total, "no finite variance" if len(rows) else "not measured"):
        return
    lines.draw(ax, total, looks, "iteration", "variance", "low", "high", mark="beside", style=_solid)
    ends = {}
    for source, (symbol, _, dots) in FLOORS.items():
        floor = part(drawn, source=source).sort_values("iteration")
        if len(floor):
            x, height = numbers(floor, "iteration", "variance")
            if len(x) == 1:
                x, height = x[0] + np.array([-0.5, 0.0, 0.5]), np.repeat(height, 3)
            ax.plot(x, height, color=INK, ls=dots, lw=1.8, zorder=4, label=source)
            ends[symbol] = height[-1]
    panels.frame(ax, *numbers(drawn, "low", "variance", "high"))
    panels.run_axis(ax, total["iteration"].to_numpy())
    _name_at_end(ax, ends)


def _solid(look: Estimator) -> dict:
    return lines.kind(look) | {"ls": "-"}


def _name_at_end(ax: Axes, ends: dict[str, float]) -> None:
    """Labels the floors at the right edge at their last value, at least a line's height apart."""
    last = -np.inf
    for symbol, value in sorted(ends.items(), key=lambda item: item[1]):
        _, height = ax.transAxes.inverted().transform(ax.transData.transform((ax.get_xlim()[1], value)))
        last = max(height, last + 0.08, 0.0)
        ax.text(1.02, last, symbol, transform=ax.transAxes, va="center", fontsize=SMALL + 1)


ALONG = Figure(
    "along", "decomposition", totals, draw_totals,
    caption="Variance of each estimator along one run, that of the leader: the experiment's `decomposition.leader`, "
    "at whose parameters all estimators are measured. Bands, or with more than three methods bars side by side, are "
    "95 % intervals. Dotted: V_n, the variance from subsampling alone, and V_eps, that from Monte Carlo noise alone. "
    "An estimator that reduces only one of them cannot have a variance below the other.",
)  # fmt: skip


def sources(decomposition: Frame) -> Frame:
    """Naive's variance and its parts, and the total of one other method on each problem.

    The other method is ``joint`` if measured, else the one with the smallest variance at the end.
    """
    require(decomposition, (*DECOMPOSITION, "iteration", "end"), "decomposition")
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


@styled
def draw_sources(rows: Frame) -> Picture:
    """A panel for each problem."""
    looks, markers = estimators(rows["method"]), {"subsampling": "s", "monte_carlo": "^", "interaction": "v"}
    parts = {source: Estimator(f"naive: {look.label}", look.colour, markers[source], 1.6)
             for source, look in SOURCES.items()}  # fmt: skip

    def panel(ax: Axes, rows: Frame) -> None:
        drawn = positive(rows, "variance")
        if not panels.ready(ax, drawn, "no finite variance" if len(rows) else "not measured"):
            return
        for source in (*parts, "total"):
            own = {method: parts.get(source, look) for method, look in looks.items()}
            line = part(drawn, source=source)
            lines.draw(ax, line, own, "iteration", "variance", "low", "high", name=f"{{}}, {source}")
        panels.frame(ax, *numbers(drawn, "low", "variance", "high"))
        panels.run_axis(ax, drawn["iteration"].to_numpy())

    fig = panels.each(rows, panel, "iteration", _UNIT)
    totals = {name: Estimator(f"{look.label}: total", look.colour, look.marker, look.width, look.dash)
              for name, look in looks.items()}  # fmt: skip
    drawing.legend(fig, lines.keys({**totals, **parts}))
    return fig


SPLIT_ALONG = Figure(
    "split_along", "decomposition", sources, draw_sources,
    caption="Variance of the naive estimator along the run of the leader (the experiment's `decomposition.leader`), "
    "split into subsampling, Monte Carlo noise and their interaction, and the total variance of joint. Where joint was "
    "not measured, the method with the smallest variance at the end takes its place. Bands are 95 % intervals.",
)  # fmt: skip
