"""How each estimator bears its step size: where the run ends, and where it diverges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.errors import unknown_name
from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, INK, estimators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.variational.figures.convergence import order_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Y = ("gap", "elbo", "auto")
_STRIP = 0.055  # height of one row of crosses, as a part of the panel


@styled
def steps(convergence: Table, y: str = "auto") -> Figure:
    """Draws where each method ends against its step size, with 95 % intervals over repetitions.

    The strip at the top has the step sizes that lead nowhere: a cross where every repetition diverged or their
    mean ends farther from the optimum than it started, a ring where some diverged.

    Args:
        convergence: columns ``problem, method, backend, step_size, iteration, gap_mean, gap_low, gap_high,
            elbo_mean, elbo_low, elbo_high, repetitions, diverged``.
        y: ``"gap"`` (logarithmic), ``"elbo"`` (as in `convergence`), or ``"auto"``: the gap on problems
            whose optimum is known.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or ``y`` is none of these.
    """
    from matplotlib.lines import Line2D

    if y not in _Y:
        raise unknown_name("quantity", y, _Y)
    rows = _given_up(tables.at_last_iteration(convergence), convergence)
    names = tables.problems(rows)
    looks = estimators(rows["method"])
    backends = order_of(rows)
    fig, axes = panels.grid(len(names))
    panels.label(axes, "step size", "final gap: ELBO* − ELBO (nats)")
    for name, ax in zip(names, axes, strict=True):
        here = rows[rows["problem"] == name]
        ax.set_title(name)
        _panel(ax, here, panels.quantity(here) if y == "auto" else y, looks, backends)
    entries = lines.keys(looks, backends)
    if (rows["diverged"] >= rows["repetitions"]).any():
        entries.append(
            Line2D([], [], color=INK, marker="x", ls="", mew=1.8, label="diverged, or worse than at the start")
        )
    if ((rows["diverged"] > 0) & (rows["diverged"] < rows["repetitions"])).any():
        entries.append(Line2D([], [], color=INK, marker="o", ls="", mfc="none", ms=8, label="some diverged"))
    lines.legend(fig, entries)
    return fig


def _given_up(rows: Table, convergence: Table) -> Table:
    """``rows`` with those that end worse than they started counted as diverged."""
    keys = ["problem", "method", "backend", "step_size"]
    first = convergence.loc[convergence.groupby(keys, dropna=False)["iteration"].idxmin()]
    start = rows[keys].merge(first, on=keys, how="left")
    worse = (np.isfinite(rows["gap_mean"]) & (rows["gap_mean"] > start["gap_mean"])) | (
        rows["gap_mean"].isna() & (rows["elbo_mean"] < start["elbo_mean"])
    )
    worse &= rows["iteration"] > 0
    rows = rows.copy()
    rows.loc[worse, "diverged"] = rows.loc[worse, "repetitions"]
    rows.loc[worse, ["gap_mean", "gap_low", "gap_high", "elbo_mean", "elbo_low", "elbo_high"]] = np.nan
    return rows


def _panel(ax: Axes, rows: Table, y: str, looks: dict, backends: list[str]) -> None:
    drawn = rows[np.isfinite(rows[f"{y}_mean"]) & ((rows["gap_mean"] > 0) | (y == "elbo"))]
    if not len(drawn):
        panels.say(ax, panels.why_empty(rows))
        return
    ax.set_xscale("log")
    if y == "gap":
        ax.set_yscale("log")
    ax.grid()
    _room(ax, drawn, rows)
    for method, look in looks.items():
        for rank, backend in enumerate(backends):
            line = drawn[(drawn["method"] == method) & (drawn["backend"] == backend)].sort_values("step_size")
            if len(line):
                _line(ax, line, y, look, rank, f"{method}, {backend}")
    if y == "elbo" and len(drawn) == 1:  # no distance to anything
        ax.set_ylabel("ELBO (nats)")
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.margins(y=0.3)
    elif y == "elbo":
        floor = panels.elbo_axis(ax, drawn)
        if drawn["elbo_mean"].min() < floor:
            panels.note(ax, f"below {floor:.4g} nats: not shown")
    else:
        panels.frame(ax, *(drawn[f"gap_{end}"].to_numpy(float) for end in ("low", "mean", "high")))
    _crosses(ax, rows, looks)


def _room(ax: Axes, drawn: Table, rows: Table) -> None:
    """Limits around a single step size, to which a logarithmic axis would shrink."""
    if drawn["step_size"].nunique() > 1:
        return
    sizes = np.unique(rows["step_size"])
    ax.set_xlim(sizes[0] / 3, sizes[-1] * 3)
    if len(sizes) == 1:
        ax.set_xticks(sizes, [f"{sizes[0]:.3g}"])
        ax.minorticks_off()


def _line(ax: Axes, line: Table, y: str, look, rank: int, label: str) -> None:
    place = line["step_size"].to_numpy()
    middle, low, high = (line[f"{y}_{part}"].to_numpy(float) for part in ("mean", "low", "high"))
    if y == "gap":
        low = np.maximum(low, 1e-3 * middle)
    ax.plot(place, middle, label=label, **lines.kind(look, rank))
    ax.vlines(place, low, high, color=look.colour, lw=2.5, alpha=0.6, label=f"{label}: 95 %")
    some = (line["diverged"] > 0).to_numpy()
    if some.any():
        ax.plot(place[some], middle[some], ls="", marker="o", mfc="none", ms=13, color=look.colour, mew=1.0)


def _crosses(ax: Axes, rows: Table, looks: dict) -> None:
    """Marks step sizes without a mean in a strip above the data, a line for each method."""
    from matplotlib.patches import Rectangle

    lost = rows[panels.lost(rows)]
    methods = [method for method in looks if (lost["method"] == method).any()]
    if not methods:
        return
    strip = _STRIP * (len(methods) + 0.4)
    low, high = ax.transScale.transform([(1, end) for end in ax.get_ylim()])[:, 1]
    top = low + (high - low) / (1 - strip)
    ax.set_ylim(top=ax.transScale.inverted().transform((0, top))[1])
    style = {"color": FAINT, "alpha": 0.14, "lw": 0, "zorder": 0}
    ax.add_patch(Rectangle((0, 1 - strip), 1, strip, transform=ax.transAxes, **style))
    for rank, method in enumerate(methods):
        here = lost[lost["method"] == method]
        whole = here["diverged"] >= here["repetitions"]
        for some, marker in ((here[whole], "x"), (here[~whole], "o")):
            place = np.unique(some["step_size"])
            height = np.full(len(place), 1 - _STRIP * (rank + 0.7))
            style = {
                "color": looks[method].colour,
                "ls": "",
                "marker": marker,
                "mew": 1.8,
                "ms": 6,
                "mfc": "none",
            }
            label = f"{method}: {'all' if marker == 'x' else 'some'} diverged"
            ax.plot(place, height, transform=ax.get_xaxis_transform(), label=label, **style)
