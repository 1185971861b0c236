"""Final gap and divergence of each method against its step size."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import backends, numbers, part, require
from lowvar_studies.reports.drawing.style import Estimator, estimators
from lowvar_studies.reports.variational.figures import elbo

_STRIP = 0.055  # height of one row of crosses, as a fraction of the panel
_LOST = "#FFF1B8"  # the strip; intervals are grey or in the colour of a method
_BESIDE = 1.12  # factor between methods that share their only step size


def select(convergence: Frame) -> Frame:
    """The last row of every method and step size; a run that ends worse than at its start counts as diverged."""
    require(convergence, (*elbo.CONVERGENCE, "iteration"), "convergence")
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


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each problem, with a strip at the top for step sizes at which runs diverged."""
    looks, known = estimators(rows["method"]), backends(rows)
    panel = partial(_panel, looks=looks, backends=known)
    fig = panels.each(rows, panel, "step size", "final gap: ELBO* − ELBO (nats)")
    entries = [*lines.keys(looks, known)[:-1], lines.interval()]
    if (rows["diverged"] >= rows["repetitions"]).any():
        words = "diverged, or worse than at the start"
        entries.append(drawing.entry(words, color=INK, marker="x", ls="", mew=1.8))
    if ((rows["diverged"] > 0) & (rows["diverged"] < rows["repetitions"])).any():
        entries.append(drawing.entry("some diverged", color=INK, marker="o", ls="", mfc="none", ms=8))
    drawing.legend(fig, entries)
    return fig


def _panel(ax: Axes, rows: Frame, looks: dict, backends: list[str]) -> None:
    y = elbo.quantity(rows)
    drawn = rows[np.isfinite(rows[f"{y}_mean"]) & ((rows["gap_mean"] > 0) | (y == "elbo"))]
    if not panels.ready(ax, drawn, elbo.why_empty(rows), "xy" if y == "gap" else "x"):
        return
    _room(ax, drawn, rows)
    beside = _beside(drawn, list(looks))
    for method, look in looks.items():
        for rank, backend in enumerate(backends):
            line = part(drawn, method=method, backend=backend).sort_values("step_size")
            if len(line):
                line = line.assign(step_size=line["step_size"] * beside.get(method, 1.0))
                _line(ax, line, y, look, rank, f"{method}, {backend}")
    if y == "elbo" and len(drawn) == 1:  # no distance to another value
        ax.set_ylabel("ELBO (nats)")
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.margins(y=0.3)
    elif y == "elbo":
        floor = elbo.elbo_axis(ax, drawn)
        if drawn["elbo_mean"].min() < floor:
            panels.note(ax, f"below {floor:.4g} nats: not shown")
    else:
        panels.frame(ax, *numbers(drawn, "gap_low", "gap_mean", "gap_high"))
    _crosses(ax, rows, looks)


def _room(ax: Axes, drawn: Frame, rows: Frame) -> None:
    """Sets limits around a single step size, to which a logarithmic axis would collapse."""
    if drawn["step_size"].nunique() > 1:
        return
    sizes = np.unique(rows["step_size"])
    ax.set_xlim(sizes[0] / 3, sizes[-1] * 3)
    if len(sizes) == 1 and drawn["method"].nunique() > 1:
        panels.one_place(ax, sizes[0])
    elif len(sizes) == 1:
        ax.set_xticks(sizes, [f"{sizes[0]:.3g}"])
        ax.minorticks_off()


def _beside(drawn: Frame, order: list[str]) -> dict[str, float]:
    """Factors that set methods side by side if all have the same single step size."""
    methods = [method for method in order if (drawn["method"] == method).any()]
    if drawn["step_size"].nunique() > 1:
        return {}
    step = min(_BESIDE, 4 ** (1 / len(methods)))  # all within a factor of two of the step size
    return {method: step ** (rank - (len(methods) - 1) / 2) for rank, method in enumerate(methods)}


def _line(ax: Axes, line: Frame, y: str, look: Estimator, rank: int, label: str) -> None:
    place, middle, low, high = numbers(line, "step_size", f"{y}_mean", f"{y}_low", f"{y}_high")
    if y == "gap":
        low = np.maximum(low, 1e-3 * middle)
    ax.plot(place, middle, label=label, **lines.kind(look, rank))
    lines.bars(ax, place, low, high, look, f"{label}: 95 %")
    some = (line["diverged"] > 0).to_numpy()
    if some.any():
        ax.plot(place[some], middle[some], ls="", marker="o", mfc="none", ms=13, color=look.colour, mew=1.0)


def _crosses(ax: Axes, rows: Frame, looks: dict) -> None:
    """Marks diverged step sizes in a strip above the data, with a row for each method."""
    from matplotlib.patches import Rectangle

    lost = rows[elbo.lost(rows)]
    methods = [method for method in looks if (lost["method"] == method).any()]
    if not methods:
        return
    strip = _STRIP * (len(methods) + 0.4)
    low, high = ax.transScale.transform([(1, end) for end in ax.get_ylim()])[:, 1]
    top = low + (high - low) / (1 - strip)
    ax.set_ylim(top=ax.transScale.inverted().transform((0, top))[1])
    ax.add_patch(Rectangle((0, 1 - strip), 1, strip, transform=ax.transAxes, color=_LOST, lw=0, zorder=0))
    ax.plot([0, 1], [1 - strip] * 2, transform=ax.transAxes, color=FAINT, lw=0.8, zorder=0)
    for rank, method in enumerate(methods):
        ended = lost[lost["method"] == method]
        complete = ended["diverged"] >= ended["repetitions"]
        for some, marker in ((ended[complete], "x"), (ended[~complete], "o")):
            place = np.unique(some["step_size"])
            height = np.full(len(place), 1 - _STRIP * (rank + 0.7))
            style = {"color": looks[method].colour, "ls": "", "marker": marker, "mew": 1.8, "ms": 6, "mfc": "none"}
            label = f"{method}: {'all' if marker == 'x' else 'some'} diverged"
            ax.plot(place, height, transform=ax.get_xaxis_transform(), label=label, **style)


STEPS = Figure(
    "steps", "convergence", select, draw,
    caption="Gap between the final ELBO and the optimum against step size: geometric means over the repetitions with "
    "95 % intervals. Where the optimum is unknown: the mean final ELBO, on an axis that is logarithmic in the distance "
    "to a value slightly above the best. A cross marks a step size at which all runs diverged or ended worse than at "
    "their start, a ring one at which some did; both are in the yellow strip. Methods that share their only step size "
    "are drawn side by side.",
)  # fmt: skip
