"""Convergence of each method to the optimum per pass, iteration, gradient evaluation or second."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import Axes, Picture, styled
from lowvar.errors import check_known
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import backends, in_order, numbers, require
from lowvar_studies.reports.drawing.style import estimators
from lowvar_studies.reports.variational.figures import elbo
from lowvar_studies.reports.variational.figures.timed import WARMED, warmed
from lowvar_studies.reports.variational.gathering import looks_at

AXES = {
    "passes": "passes over the data",
    "iteration": "iteration",
    "oracles": "gradient evaluations (data rows)",
    "seconds": "seconds",
    "epoch": "epoch",
}
_DECADES = 4  # of gaps shown above the largest final one


def select(convergence: Frame, x: str = "passes") -> Frame:
    """Every method at its best step size at each epoch.

    A method that diverged at every step size keeps the last row of its smallest one, so that the figure names it.
    Against seconds, lines skip the warm-up.
    """
    check_known("axis", x, AXES)
    require(convergence, (*elbo.CONVERGENCE, "envelope", "epoch", x), "convergence")
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


@styled
def draw(rows: Frame, x: str = "passes") -> Picture:
    """A panel for each problem; open markers show a second backend."""
    looks, known = estimators(rows["method"]), backends(rows)
    many = int(rows.groupby("problem")["method"].nunique().max()) > lines.BANDS
    panel = partial(_panel, x=x, looks=looks, backends=known, many=many)
    label = panels.amortised(rows["runs"]) if x == "seconds" else AXES[x]
    fig = panels.each(rows, panel, label, "gap: ELBO* − ELBO (nats)")
    drawing.legend(fig, lines.keys(looks, known, bars=many))
    return fig


def _panel(ax: Axes, rows: Frame, x: str, looks: dict, backends: list[str], many: bool) -> None:
    y = elbo.quantity(rows)
    finite = np.isfinite(rows[f"{y}_mean"]) & np.isfinite(rows[x]) & ((rows["gap_mean"] > 0) | (y == "elbo"))
    runs = [rows[name] for name in ("method", "backend")]
    last = rows[x] == rows[x].groupby(runs).transform("max")
    lost = rows["method"].isin(set(rows["method"]) - set(rows.loc[finite & last, "method"]))
    drawn = rows[finite & ~(lost & (finite.groupby(runs).transform("sum") < 2))]
    if not panels.ready(ax, drawn, elbo.why_empty(rows[last]), "y" if y == "gap" else ""):
        return
    shown = [method for method in looks if (drawn["method"] == method).any()]
    for place_of, method in enumerate(shown):
        look = looks[method]
        for rank, backend in enumerate(backends):
            line = drawn[(drawn["method"] == method) & (drawn["backend"] == backend)]
            if not len(line):
                continue
            place, middle, low, high = numbers(line, x, f"{y}_mean", f"{y}_low", f"{y}_high")
            if y == "gap":
                low = np.maximum(low, 1e-3 * middle)
            sparse = max(1, len(line) // 10)
            label = f"{method}, {backend}: 95 %"
            if many:
                at = slice((len(line) - 1) % sparse, None, sparse)  # the last one among them
                lines.beside(ax, place[at], low[at], high[at], look, label, place_of, len(shown))
            else:
                lines.band(ax, place, low, high, look, label, 1 / (1 + rank))
            ax.plot(place, middle, label=f"{method}, {backend}", markevery=sparse, **lines.kind(look, rank))
    panels.run_axis(ax, drawn[x].to_numpy())
    notes = {"diverged": panels.labels(looks, set(rows.loc[lost, "method"]))}
    if y == "gap":
        finals = drawn.loc[last & finite, "gap_mean"]
        most = 10**_DECADES * finals.max() if len(finals) else np.inf
        seen = drawn[drawn["gap_mean"] <= most]
        panels.frame(ax, *numbers(seen, "gap_low", "gap_mean", "gap_high"))
    else:
        floor = elbo.elbo_axis(ax, drawn)
        highest = drawn.groupby("method")["elbo_mean"].max()
        notes["below"] = panels.labels(looks, highest.index[highest < floor])
    panels.notes(ax, notes)


_RETROSPECT = (
    "Each point is at the method's best step size at that epoch, in retrospect. Lines are geometric means of the gap "
    "over the repetitions, bands 95 % intervals, or with more than three methods bars at some of the points, side by "
    "side. Where the optimum is unknown, the figure shows the mean ELBO, on an axis that is logarithmic in the "
    "distance to a value slightly above the best."
)
CONVERGENCE = Figure(
    "convergence", "convergence", select, draw,
    caption="Gap to the optimum against passes over the data: gradients and Hessian-vector products of single rows, "
    "divided by the number of rows. " + _RETROSPECT,
    answer="gap to the optimum (or ELBO, where the optimum is unknown) against passes over the data, each method at "
    "its best step size.",
)  # fmt: skip
ITERATIONS = Figure(
    "iterations", "convergence", select, draw,
    caption="Gap to the optimum against iterations. " + _RETROSPECT,
    options={"x": "iteration"},
)  # fmt: skip
WORK = Figure(
    "work", "convergence", select, draw,
    caption="Gap to the optimum against gradient evaluations of single rows, counting all particles. A particle costs "
    "two evaluations in estimators that compare two steps. " + _RETROSPECT,
    when=looks_at(),
    options={"x": "oracles"},
)  # fmt: skip
SECONDS = Figure(
    "seconds", "seconds", select, draw,
    caption="Gap to the optimum against the wall time of one run on the machine that made this report, without "
    "compilation: the time of a job divided by the number of its runs (all step sizes and repetitions), which it "
    "computes together (`runs`). A single run would take longer than that. " + _RETROSPECT + WARMED,
    options={"x": "seconds"},
)  # fmt: skip
