"""Effect of antithetic, orthogonal and randomised quasi-Monte Carlo noise on each estimator's variance."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, Axes, Picture, styled
from lowvar.errors import UserError
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import panels
from lowvar_studies.reports.drawing.rows import part, problems, require
from lowvar_studies.reports.drawing.style import SCHEMES, estimators

_SPREAD = 0.5  # of the schemes within a row of height 1
_FLOOR = 1e-4  # smaller ratios are drawn at this value


def select(schemes: Frame) -> Frame:
    """Total variances over all parameters for all noise schemes except iid."""
    needed = ("problem", "noise", "particles", "method", "block", "source", "variance",
              "to_iid", "to_iid_low", "to_iid_high")  # fmt: skip
    require(schemes, needed, "schemes")
    rows = schemes[(schemes["block"] == "all") & (schemes["source"] == "total") & (schemes["noise"] != "iid")]
    if not len(rows):
        raise UserError("schemes table: only iid noise, so there is nothing to compare")
    return rows.reset_index(drop=True)


@styled
def draw(rows: Frame) -> Picture:
    """A row of panels for each problem, a panel for each number of particles."""
    names, counts = problems(rows), sorted(rows["particles"].unique())
    looks = estimators(rows["method"])
    noises = [noise for noise in SCHEMES if (rows["noise"] == noise).any()]
    fig = drawing.figure(len(names) * (0.4 * len(looks) + 0.75) + 0.2)
    axes = fig.subplots(len(names), len(counts), squeeze=False, sharex=True)
    for name, line in zip(names, axes, strict=True):
        for rank, (count, ax) in enumerate(zip(counts, line, strict=True)):
            ax.set_title(f"{name}, {count} particles")
            _panel(ax, part(rows, problem=name, particles=count), list(looks), noises)
            ax.set_yticks(range(len(looks)), panels.short(looks) if rank == 0 else [""] * len(looks))
    panels.decades(axes[0, 0], most=6)
    for ax in axes[-1]:
        ax.set_xlabel("variance / that of iid particles")
    keys = [drawing.entry(f"{look.label}, 95 % interval", color=look.colour, marker=look.marker, lw=1.8, mec=INK,
                          mew=0.5)
            for look in map(SCHEMES.__getitem__, noises)]  # fmt: skip
    keys.append(drawing.entry("iid particles", color=INK, lw=1.1, ls=(0, (1, 2))))
    drawing.legend(fig, keys)
    return fig


def _panel(ax: Axes, rows: Frame, methods: list[str], noises: list[str]) -> None:
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
            value, low, high = (float(by.loc[(method, noise), f"to_iid{end}"]) for end in ("", "_low", "_high"))  # pyright: ignore
            if not np.isfinite(value):
                continue
            look, label = SCHEMES[noise], f"{method}: {noise}"
            if np.isfinite([low, high]).all():
                ends = np.maximum([low, high], _FLOOR)
                ax.plot(ends, [y + shift] * 2, color=look.colour, lw=1.8, zorder=2, label=f"{label}, 95 %")
            style = {"color": look.colour, "marker": look.marker, "ms": 6, "mec": INK, "mew": 0.5, "ls": ""}
            ax.plot([max(value, _FLOOR)], [y + shift], zorder=3, label=label, **style)


BY_SCHEME = Figure(
    "schemes", "schemes", select, draw,
    caption="Variance of each estimator with antithetic, orthogonal and randomised quasi-Monte Carlo particles, "
    "divided by that with as many iid particles on the same data rows, at the end of one run, that of the leader (the "
    "experiment's `decomposition.leader`). Bars are 95 % intervals. Left of the line, the scheme reduces the variance.",
)  # fmt: skip
