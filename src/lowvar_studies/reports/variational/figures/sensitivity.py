"""Drop of the final ELBO below the best, over initial step sizes and settings of the step schedule."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing.rows import one_backend, problems
from lowvar_studies.reports.variational import selection as tables

_LEAST, _MOST = 0.1, 1e3  # ends of the colour scale, nats below the best
_ROW = 0.27  # height of a cell, inches
_NARROW = 0.42  # width of a cell below which `1.2e3` does not fit, inches


def draw(rows: Frame) -> Picture:
    """A row of maps for each problem and estimator, a map for each decay; narrow cells show large numbers by colour."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    names, lines = _names(rows), {}
    for name in problems(rows):
        of_problem = rows[rows["problem"] == name]
        for estimator in of_problem["estimator"].unique():
            lines[f"{name}, {names[estimator]}" if len(names) > 1 else name] = of_problem[
                of_problem["estimator"] == estimator
            ]
    betas = {name: sorted(part["beta"].unique()) for name, part in lines.items()}
    steps = {name: sorted(part["step_size"].unique()) for name, part in lines.items()}
    heights = [_ROW * len(steps[name]) + 0.75 for name in lines]
    fig = drawing.figure(sum(heights) + 0.3)
    columns = max(map(len, betas.values()))
    grid = fig.subplots(len(lines), columns, squeeze=False, height_ratios=[len(steps[name]) + 1 for name in lines])
    narrow = 0.75 * fig.get_figwidth() / (columns * max(part["r"].nunique() for part in lines.values())) < _NARROW
    colours: Any = ScalarMappable(LogNorm(_LEAST, _MOST), "cividis_r")
    drawn = []
    for (name, part), line in zip(lines.items(), grid, strict=True):
        drawn += list(line[: len(betas[name])])
        for spare in line[len(betas[name]) :]:
            spare.remove()
        for rank, (beta, ax) in enumerate(zip(betas[name], line, strict=False)):
            ax.set_title(f"{name}: β = {beta:g}" if rank == 0 else f"β = {beta:g}")
            _map(ax, part[part["beta"] == beta], part, steps[name], colours, narrow)
            ax.set_xlabel("r (iterations)")
            ax.set_yticks(range(len(steps[name])), [f"{step:.2g}" for step in steps[name]] if rank == 0 else [])
        line[0].set_ylabel("initial step size α₀")
    bar = fig.colorbar(colours, ax=drawn, location="right", extend="both", shrink=0.85, pad=0.01)
    bar.set_label("ELBO below the best (nats)")
    bar.ax.tick_params(labelsize=SMALL)
    bar.solids.set(rasterized=False, edgecolor="face")  # pyright: ignore  # vector graphics without seams
    keys = [drawing.patch("95 % interval reaches the best's", fc="none", ec=INK, lw=1.6)]
    if np.isinf(rows["below"]).any():
        keys.append(drawing.entry("diverged", ls="", marker="x", mew=1.6, color=FAINT))
    drawing.legend(fig, keys)
    return fig


def _names(rows: Frame) -> dict[str, str]:
    """The name of each estimator: the words that its methods' names begin with, ``mc`` of ``mc_02_50, mc_05_50``."""
    names = {}
    for estimator, methods in rows.groupby("estimator", sort=False)["method"].unique().items():
        words = zip(*(method.split("_") for method in methods), strict=False)
        names[str(estimator)] = "_".join(word for word, *_ in takewhile(lambda same: len(set(same)) == 1, words))
    clear = all(names.values()) and len(set(names.values())) == len(names)
    return names if clear else {one: one for one in names}


def _map(ax: Axes, rows: Frame, problem: Frame, steps: list[float], colours: Any, narrow: bool) -> None:
    from matplotlib.patches import Rectangle

    drops = sorted(problem["r"].unique())
    finite = problem[np.isfinite(problem["below"])]
    best = finite.loc[finite["below"].idxmin()] if len(finite) else None
    for row in rows.itertuples():
        x, y = drops.index(row.r), steps.index(row.step_size)
        if not np.isfinite(row.below):
            ax.plot(x, y, ls="", marker="x", ms=6, mew=1.6, color=FAINT, label="diverged")
            continue
        fill = colours.to_rgba(max(row.below, _LEAST))
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=fill, ec="white", lw=0.8, zorder=1))
        dark = 0.3 * fill[0] + 0.59 * fill[1] + 0.11 * fill[2] < 0.5
        text = "" if narrow and row.below >= 99.5 else _short(row.below)  # its colour says it
        ax.text(x, y, text, ha="center", va="center", fontsize=SMALL - 0.5, color="white" if dark else INK, zorder=3)
        if best is not None and (row.below == 0 or row.elbo_high >= best["elbo_low"]):
            ax.add_patch(Rectangle((x - 0.43, y - 0.43), 0.86, 0.86, fc="none", ec=INK, lw=1.6, zorder=2))
    ax.set_xlim(-0.5, len(drops) - 0.5)
    ax.set_ylim(-0.5, len(steps) - 0.5)
    ax.set_xticks(range(len(drops)), [f"{drop:g}" for drop in drops], rotation=90 if narrow else 0)
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def _short(below: float) -> str:
    """At most five letters.

    >>> [_short(value) for value in (0.01, 0.34, 12.3, 998.4, 1234.0, 21_000.0)]
    ['0', '.3', '12', '998', '1.2e3', '2.1e4']
    """
    if below < 0.05:
        return "0"
    if below < 0.95:
        return f"{below:.1f}"[1:]
    if below < 999:
        return f"{below:.0f}"
    digits, power = f"{below:.1e}".split("e")
    return f"{digits}e{int(power)}"


SENSITIVITY = Figure(
    "sensitivity", tables.SENSITIVITY, one_backend, draw,
    caption="Drop of the mean final ELBO below the estimator's best on the problem, in nats, for each initial step "
    "size, factor β and period r of the step schedule. Frames mark settings whose 95 % interval overlaps that of the "
    "best, crosses mark settings with a diverged repetition; blank cells were not run.",
    answer="drop of the final ELBO below the best, over initial step sizes and settings of the step schedule.",
)  # fmt: skip
