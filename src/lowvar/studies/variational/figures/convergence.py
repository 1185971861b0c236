"""How fast each estimator brings the objective to its optimum, per pass, iteration or second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import estimators, styled
from lowvar.studies.drawing.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BACKENDS = ("jax", "torch")  # the first that a table has is drawn as a line, the others as open markers
_DECADES = 4  # of gaps above the largest final one


@styled
def convergence(table: Table, x: str = "passes") -> Figure:
    """Draws how each method converges, at each moment at the step size that was best there in retrospect.

    Where the optimum is known, lines are geometric means of the gap over repetitions on a logarithmic axis. Where it
    is not, they are means of the ELBO itself; that axis is logarithmic in the distance to a little above the best.
    Bands are 95 % intervals. The second backend is drawn as open markers on a thin dashed line, so that one sees
    whether it coincides with the first.

    Args:
        table: columns ``problem, method, backend, step_size, epoch, gap_mean, gap_low, gap_high, elbo_mean, elbo_low,
            elbo_high, repetitions, diverged, envelope`` and the one that ``x`` names.
        x: ``"passes"``, ``"iteration"``, ``"oracles"``, ``"seconds"`` or ``"epoch"``.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or ``x`` is no axis.
    """
    rows = tables.on_envelope(table, x)
    names = tables.problems(rows)
    looks = estimators(rows["method"])
    backends = order_of(rows)
    fig, axes = panels.grid(len(names))
    panels.label(axes, tables.AXES[x], "gap: ELBO* − ELBO (nats)")
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], x, looks, backends)
    lines.legend(fig, lines.keys(looks, backends))
    return fig


def order_of(rows: Table) -> list[str]:
    """The backends of a table: the known ones first, in their order."""
    found = set(rows["backend"])
    return [name for name in BACKENDS if name in found] + sorted(found - set(BACKENDS))


def _panel(ax: Axes, rows: Table, x: str, looks: dict, backends: list[str]) -> None:
    y = panels.quantity(rows)
    there = np.isfinite(rows[f"{y}_mean"]) & np.isfinite(rows[x]) & ((rows["gap_mean"] > 0) | (y == "elbo"))
    runs = [rows[name] for name in ("method", "backend")]
    last = rows[x] == rows[x].groupby(runs).transform("max")
    gone = rows["method"].isin(set(rows["method"]) - set(rows.loc[there & last, "method"]))
    drawn = rows[there & ~(gone & (there.groupby(runs).transform("sum") < 2))]
    if not len(drawn):
        panels.say(ax, panels.why_empty(rows[last]))
        return
    if y == "gap":
        ax.set_yscale("log")
    ax.grid()
    for method, look in looks.items():
        for rank, backend in enumerate(backends):
            line = drawn[(drawn["method"] == method) & (drawn["backend"] == backend)]
            if not len(line):
                continue
            place, middle, low, high = (line[name].to_numpy(float) for name in (x, *_columns(y)))
            if y == "gap":
                low = np.maximum(low, 1e-3 * middle)
            lines.band(ax, place, low, high, look, f"{method}, {backend}: 95 %", 1 / (1 + rank))
            sparse = max(1, len(line) // 10)
            ax.plot(place, middle, label=f"{method}, {backend}", markevery=sparse, **lines.kind(look, rank))
    panels.run_axis(ax, drawn[x].to_numpy())
    notes = [look.label for method, look in looks.items() if (rows.loc[gone, "method"] == method).any()]
    notes = [f"diverged: {', '.join(notes)}"] if notes else []
    if y == "gap":
        finals = drawn.loc[last & there, "gap_mean"]
        most = 10**_DECADES * finals.max() if len(finals) else np.inf
        seen = drawn[drawn["gap_mean"] <= most]
        panels.frame(ax, *(seen[name].to_numpy(float) for name in ("gap_low", "gap_mean", "gap_high")))
    else:
        floor = panels.elbo_axis(ax, drawn)
        highest = drawn.groupby("method")["elbo_mean"].max()
        below = [look.label for method, look in looks.items() if method in highest and highest[method] < floor]
        notes += [f"below: {', '.join(below)}"] if below else []
    if notes:
        panels.note(ax, "; ".join(notes))


def _columns(y: str) -> tuple[str, str, str]:
    return f"{y}_mean", f"{y}_low", f"{y}_high"
