"""What iterations cost: time since the start, against iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import estimators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.variational.figures.diagnostic_tables import of_cost

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def cost(table: Table) -> Figure:
    """Draws the time of one run so far against its iterations: a line that bends down has steps that became cheaper.

    Times are of the job, shared out evenly among its runs, without compiling; they have no intervals.

    Args:
        table: columns ``problem, method, backend, epoch, iteration, seconds``.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or nothing was timed.
    """
    rows = of_cost(table)
    names, looks = tables.problems(rows), estimators(rows["method"])
    fig, axes = panels.grid(len(names))
    panels.label(axes, "iteration", "time of one run so far (s)")
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        drawn = rows[(rows["problem"] == name) & (rows["seconds"] > 0) & (rows["iteration"] > 0)]
        if not len(drawn):
            panels.say(ax, "not timed")
            continue
        ax.set_yscale("log")
        ax.grid()
        for method, look in looks.items():
            line = drawn[drawn["method"] == method].sort_values("iteration")
            if len(line):
                ax.plot(line["iteration"], line["seconds"], label=method, markevery=max(1, len(line) // 8),
                        **lines.kind(look))  # fmt: skip
        panels.run_axis(ax, drawn["iteration"].to_numpy())
        seconds = drawn["seconds"].to_numpy(float)
        panels.frame(ax, seconds, seconds, seconds)
    lines.legend(fig, lines.keys(looks)[:-1])
    return fig
