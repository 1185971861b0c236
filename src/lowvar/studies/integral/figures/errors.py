"""How large errors of integrals are, by method and number of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.studies.drawing import lines, panels, tables
from lowvar.studies.drawing.style import FAINT, INK, SMALL, integrators, styled
from lowvar.studies.drawing.tables import Table
from lowvar.studies.integral.figures.integral_tables import AXES, of_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STEP = 1.045  # between the places of a number and of the published one, on a logarithmic axis


@styled
def errors(table: Table, task: str | None = None, x: str | None = None) -> Figure:
    """Draws the mean absolute error against the number of points, with 95 % intervals.

    Numbers that were published for a method stand beside ours as open markers. The dotted line is twice the truth's
    own error, below which errors cannot be told from it.

    Args:
        table: columns ``problem, task, method, backend, sizes, m, points, failed, mae, mae_low, mae_high,
            truth_error``; and, if anything is published, ``published`` (NaN where nothing is) and ``published_se``.
        task: which task; if None, each problem's last.
        x: ``m`` (points of the task) or ``points`` (of all tasks); if None, ``m`` where it says all of the sizes.

    Returns:
        A figure with one panel for each problem.

    Raises:
        UserError: a column is missing, or a name is unknown.
    """
    from matplotlib.lines import Line2D

    rows = of_errors(table, task, x)
    names = tables.problems(rows)
    looks = integrators(rows["method"])
    fig, axes = panels.grid(len(names), height=3.3)
    for name, ax in zip(names, axes, strict=True):
        here = rows[rows["problem"] == name]
        ax.set_title(title(name, here["task"].iloc[0]))
        _panel(ax, here, looks)
        ax.set_xlabel(AXES[here["axis"].iloc[0]])
    for ax in axes[::2]:
        ax.set_ylabel("mean absolute error")
    keys: list = [Line2D([], [], **lines.kind(look), label=look.label) for look in looks.values()]
    keys.append(Line2D([], [], color=FAINT, lw=2.5, alpha=0.6, label="95 % interval"))
    if "published" in rows and rows["published"].notna().any():
        keys.append(Line2D([], [], **_open(INK, "o"), label="published"))
    lines.legend(fig, keys)
    return fig


def _open(colour: str, marker: str) -> dict[str, Any]:
    return {"color": colour, "marker": marker, "ls": "", "ms": 7, "mfc": "none", "mew": 1.4}


def _panel(ax: Axes, rows: Table, looks: dict) -> None:
    drawn = rows[np.isfinite(rows["mae"]) & (rows["mae"] > 0)]
    if not len(drawn):
        panels.say(ax, "all methods failed" if np.isinf(rows["mae"]).all() else "no error that is not zero")
        return
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid()
    place = drawn[drawn["axis"].iloc[0]].astype(float)
    here = [method for method in looks if method in set(drawn["method"])]
    alone = place.nunique() == 1  # then methods stand side by side
    for rank, method in enumerate(here):
        look, line = looks[method], drawn[drawn["method"] == method].sort_values("points")
        at = place.loc[line.index].to_numpy() * (_STEP ** (2 * rank - len(here) + 1) if alone else 1.0)
        middle, low, high = (line[name].to_numpy(float) for name in ("mae", "mae_low", "mae_high"))
        ax.plot(at, middle, label=method, **lines.kind(look))
        low = np.where(low > 0, low, 1e-3 * middle)  # beyond the panel
        ax.vlines(at, low, high, color=look.colour, lw=2.5, alpha=0.6, label=f"{method}: 95 %")
        if "published" in line:
            said = line["published"].to_numpy(float)
            error = line.get("published_se", line["published"] * 0).to_numpy(float)
            ax.vlines(at / _STEP, said - 1.96 * error, said + 1.96 * error, color=look.colour, lw=1.0)
            ax.plot(at / _STEP, said, label=f"{method}: published", **_open(look.colour, look.marker))
    panels.frame(ax, *(drawn[name].to_numpy(float) for name in ("mae_low", "mae", "mae_high")))
    places(ax, place.to_numpy(), 1.9 if alone else 1.2)
    powers(ax)
    _floor(ax, float(rows["truth_error"].max()))
    gone = [look.label for method, look in looks.items() if method in set(rows[~np.isfinite(rows["mae"])]["method"])]
    if gone:
        panels.note(ax, f"failed: {', '.join(gone)}")


def _floor(ax: Axes, truth_error: float) -> None:
    """Where errors end that the truth can tell from none."""
    least, most = ax.get_ylim()
    if least < 2 * truth_error < most:
        ax.axhline(2 * truth_error, color=INK, lw=1.2, ls=(0, (1, 2)), label="truth", zorder=1)
        style = {"va": "bottom", "ha": "right", "fontsize": SMALL, "color": FAINT}
        ax.text(0.99, 2 * truth_error, "2 × error of the truth", transform=ax.get_yaxis_transform(), **style)


def title(name: str, task: str = "", sizes: str = "") -> str:
    """What a panel is of, in two lines where one would be too long for half of the width.

    >>> title("borehole", "f_H", "20"), title("van_der_pol", "log_evidence", "20")
    ('borehole: f_H, m = 20', 'van_der_pol: log_evidence\\nm = 20')
    """
    what, where = (f"{name}: {task}" if task else name), (f"m = {sizes}" if sizes else "")
    return f"{what}, {where}" if where and len(what) + len(where) < 26 else "\n".join(filter(None, (what, where)))


def places(ax: Axes, values: np.ndarray, room: float = 1.2) -> None:
    """Ticks of a logarithmic horizontal axis at the numbers that there are, as many as have room."""
    values = np.unique(np.asarray(values, float))
    least = (values[-1] / values[0]) ** 0.09 if len(values) > 1 else 1.0
    shown: list[float] = []
    for value in values[::-1]:
        if not shown or shown[-1] / value >= least:
            shown.append(float(value))
    ax.set_xticks(shown[::-1], [f"{value:g}" for value in shown[::-1]])
    ax.minorticks_off()
    ax.set_xlim(values[0] / room, values[-1] * room)


def powers(ax: Axes) -> None:
    """Ticks of a logarithmic vertical axis: powers of ten, or more where there are fewer than two."""
    low, high = np.log10(ax.get_ylim())
    inside = [int(power) for power in range(int(np.ceil(low)), int(np.floor(high)) + 1)]
    step = int(np.ceil(len(inside) / 7))
    chosen = [power for power in inside if power % max(step, 1) == 0]
    if len(inside) > 1:
        ax.set_yticks([10.0**power for power in chosen], [f"$10^{{{power}}}$" for power in chosen])
    else:
        fine = [digit * 10.0**power for power in range(int(low) - 2, int(high) + 3) for digit in (1, 2, 3, 5)]
        fine = [value for value in fine if 10**low <= value <= 10**high]
        ax.set_yticks(fine, [f"{value:g}" for value in fine])
    ax.minorticks_off()
