"""How fast each estimator brings the objective to its optimum, per pass, iteration or second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.figures import lines, panels, tables
from lowvar.figures.style import estimators, styled
from lowvar.figures.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BACKENDS = ("jax", "torch")  # the first that a table has is drawn as a line, the others as open markers


@styled
def convergence(table: Table, x: str = "passes") -> Figure:
    """Draws the gap to the optimum against work, each method at its best step size.

    Lines are geometric means over repetitions, bands their 95 % intervals. The second backend is drawn as
    open markers on a thin dashed line, so that one sees whether it coincides with the first.

    Args:
        table: columns ``problem, method, backend, step_size, gap_mean, gap_low, gap_high, repetitions,
            diverged, best`` and the one that ``x`` names.
        x: ``"passes"``, ``"iteration"``, ``"oracles"``, ``"seconds"`` or ``"epoch"``.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or ``x`` is no axis.
    """
    rows = tables.at_best_step(table, x)
    names = tables.problems(rows)
    looks = estimators(rows["method"])
    backends = order_of(rows)
    fig, axes = panels.grid(len(names))
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], x, looks, backends)
    panels.label(axes, tables.AXES[x], "gap: ELBO* − ELBO (nats)")
    lines.legend(fig, lines.keys(looks, backends))
    return fig


def order_of(rows: Table) -> list[str]:
    """The backends of a table: the known ones first, in their order."""
    found = set(rows["backend"])
    return [name for name in BACKENDS if name in found] + sorted(found - set(BACKENDS))


def _panel(ax: Axes, rows: Table, x: str, looks: dict, backends: list[str]) -> None:
    there = np.isfinite(rows["gap_mean"]) & (rows["gap_mean"] > 0) & np.isfinite(rows[x])
    drawn = rows[there & ~panels.lost(rows)]
    if not len(drawn):
        panels.say(ax, panels.why_empty(rows))
        return
    ax.set_yscale("log")
    ax.grid()
    for method, look in looks.items():
        for rank, backend in enumerate(backends):
            line = drawn[(drawn["method"] == method) & (drawn["backend"] == backend)]
            if not len(line):
                continue
            place, middle = line[x].to_numpy(), line["gap_mean"].to_numpy()
            low = np.maximum(line["gap_low"].to_numpy(float), 1e-3 * middle)
            high = line["gap_high"].to_numpy(float)
            lines.band(ax, place, low, high, look, f"{method}, {backend}: 95 %", 1 / (1 + rank))
            sparse = max(1, len(line) // 10)
            ax.plot(place, middle, label=f"{method}, {backend}", markevery=sparse, **lines.kind(look, rank))
    panels.frame(ax, *(drawn[f"gap_{end}"].to_numpy(float) for end in ("low", "mean", "high")))
    panels.run_axis(ax, drawn[x].to_numpy())
    gone = [look.label for method, look in looks.items() if method in set(rows["method"]) - set(drawn["method"])]
    if gone:
        panels.note(ax, f"diverged: {', '.join(gone)}")
