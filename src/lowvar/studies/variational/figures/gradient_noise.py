"""The error of gradients along a run, and what it leaves of the signal: given the past, and with the past in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import BAND, INK, Estimator, estimators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.variational.figures.diagnostic_tables import RATIOS, of_points, of_ratios, of_variances

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TOGETHER = 5  # methods whose two lines fit one panel; of more, each has a panel for the true and one for the other
_DASH = (0, (2.2, 1.6))
_BEYOND = 1e15  # of an axis: the largest value shown over the smallest


@styled
def variance(table: Table) -> Figure:
    """Draws the true squared error of gradients (full) and their variance given the past (dashed) along runs.

    For an estimator that keeps no past the two coincide; for one that sums up its steps they part. Lines are means over
    repetitions, arithmetic of the true error and geometric of the other, bands 95 % intervals. Each method is at its
    best step size.

    Args:
        table: columns ``problem, method, backend, step_size, best, epoch, iteration, quantity, mean, low, high,
            diverged``; of its quantities ``squared_error`` and ``variance``.

    Returns:
        A figure with one panel for each problem; with two side by side, the true error and the other, for more than
        five methods.

    Raises:
        UserError: a column is missing, or gradients were not measured.
    """
    words = ("true squared error", "variance given the past")
    return _pair(of_variances(table), ("squared_error", "variance"), words, "gradient error (trace, nats²)")


@styled
def snr(table: Table, of: str = "paper") -> Figure:
    """Draws the signal-to-noise ratio of gradients along runs: true (full) and given the past (dashed).

    Args:
        table: as for `variance`, with the quantities of ``of``.
        of: ``paper``, the squared norm of the gradient over a standard deviation; or ``plain``, the norm over it.

    Returns:
        A figure laid out as that of `variance`.

    Raises:
        UserError: a column is missing, gradients were not measured, or ``of`` is neither.
    """
    unit = {"paper": r"SNR, $\|E\,g\|^2$ / sd (nats)", "plain": r"SNR, $\|E\,g\|$ / sd"}
    rows = of_ratios(table, of)
    return _pair(rows, RATIOS[of], ("true SNR", "SNR given the past"), unit[of])


@styled
def points(table: Table) -> Figure:
    """Draws how many noise points the next step of each method takes, along runs, with 95 % intervals.

    Args:
        table: as for `variance`, with the quantity ``points``.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or no method counts its points.
    """
    rows = of_points(table)
    names, looks = tables.problems(rows), estimators(rows["method"])
    fig, axes = panels.grid(len(names))
    panels.label(axes, "iteration", "noise points of the next step")
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(name)
        _panel(ax, rows[rows["problem"] == name], looks, {"points": _as_it_is})
        _whole_numbers(ax)
    lines.legend(fig, lines.keys(looks))
    return fig


def _as_it_is(look: Estimator) -> dict:
    """A method's own line."""
    return lines.kind(look)


def _true(look: Estimator) -> dict:
    return lines.kind(look) | {"ls": "-"}


def _open(look: Estimator) -> dict:
    return lines.kind(look) | {"ls": _DASH, "lw": 1.6, "mfc": "none", "mew": 1.1}


def _conditional(look: Estimator) -> dict:
    return _open(look) | {"ms": look.size + 4.5}  # a rim around the other's markers, where the two coincide


def _pair(rows: Table, quantities: tuple[str, str], words: tuple[str, str], unit: str) -> Figure:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names, looks = tables.problems(rows), estimators(rows["method"])
    kinds = dict(zip(quantities, (_true, _conditional), strict=True))
    if len(looks) > _TOGETHER:
        kinds[quantities[1]] = _open
        fig = panels.figure(2.8 * len(names))
        grid = fig.subplots(len(names), 2, squeeze=False, sharey="row")
        for name, pair in zip(names, grid, strict=True):
            for quantity, word, ax in zip(quantities, words, pair, strict=True):
                ax.set_title(f"{name}: {word}")
                _panel(ax, rows[(rows["problem"] == name) & (rows["quantity"] == quantity)], looks,
                       {quantity: kinds[quantity]}, rows[rows["problem"] == name])  # fmt: skip
            pair[0].set_ylabel(unit)
        for ax in grid[-1]:
            ax.set_xlabel("iteration")
        fig.align_ylabels(grid[:, 0])
    else:
        fig, axes = panels.grid(len(names), height=3.1)
        panels.label(axes, "iteration", unit)
        for name, ax in zip(names, axes, strict=True):
            ax.set_title(name)
            _panel(ax, rows[rows["problem"] == name], looks, kinds)
    keys: list = [Line2D([], [], color=look.colour, marker=look.marker, lw=look.width, ms=look.size, label=look.label)
                  for look in looks.values()]  # fmt: skip
    plain = Estimator("", INK, "")
    keys += [Line2D([], [], label=word, **kind(plain)) for word, kind in zip(words, kinds.values(), strict=True)]
    lines.legend(fig, [*keys, Patch(color=INK, alpha=BAND, lw=0, label="95 % interval")])
    return fig


def _panel(ax: Axes, rows: Table, looks: dict, kinds: dict, scale: Table | None = None) -> None:
    """Lines of quantities by method; ``scale`` has the rows that the vertical axis is to show."""
    drawn = rows[np.isfinite(rows["mean"]) & (rows["mean"] > 0)]
    if not len(drawn):
        panels.say(ax, "all runs diverged" if (rows["diverged"] > 0).any() else "not measured")
        return
    ax.set_yscale("log")
    ax.grid()
    for method, look in looks.items():
        for quantity, kind in kinds.items():
            line = drawn[(drawn["method"] == method) & (drawn["quantity"] == quantity)]
            if not len(line):
                continue
            x, middle, low, high = (line[name].to_numpy(float) for name in ("iteration", "mean", "low", "high"))
            lines.band(ax, x, np.maximum(low, 1e-3 * middle), high, look, f"{method}, {quantity}: 95 %")
            sparse = max(1, len(line) // 8)
            ax.plot(x, middle, label=f"{method}, {quantity}", markevery=sparse, **kind(look))
    panels.run_axis(ax, drawn["iteration"].to_numpy())
    seen = drawn if scale is None else scale[np.isfinite(scale["mean"]) & (scale["mean"] > 0)]
    seen = seen[seen["mean"] >= seen["mean"].max() / _BEYOND]
    panels.frame(ax, *(seen[name].to_numpy(float) for name in ("low", "mean", "high")))
    last = rows["iteration"] == rows.groupby("method")["iteration"].transform("max")
    lost = set(rows.loc[last & (rows["diverged"] > 0), "method"])
    if lost:
        panels.note(ax, f"diverged: {', '.join(look.label for method, look in looks.items() if method in lost)}")


def _whole_numbers(ax: Axes) -> None:
    """Ticks of a logarithmic axis of counts: 1, 3, 10, 30 and so on, as numbers."""
    if ax.get_yscale() != "log":
        return
    low, high = ax.get_ylim()
    low, high = min(low, 0.8), max(high, 12.0)
    ticks = [digit * 10**power for power in range(7) for digit in (1, 3) if low <= digit * 10**power <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(low, high)
