"""Mean absolute errors of integrals: against the number of points, the time, and the epochs of stochastic methods."""

from __future__ import annotations

import math

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.charts import Lines
from lowvar_studies.reports.drawing.rows import numbers, one_backend, part, positive, problems, whole
from lowvar_studies.reports.drawing.style import integrators
from lowvar_studies.reports.integral import errors as tables
from lowvar_studies.reports.integral import illustrations
from lowvar_studies.reports.integral.estimates import last_task
from lowvar_studies.reports.integral.figures.common import compared, in_series, title

AXES = {"m": "points m of the task", "points": "points of all tasks"}
_STEP = 1.045  # factor on the horizontal axis between methods at their only number of points


def select(errors: Frame) -> Frame:
    """Each problem's last task, with the horizontal axis in a column ``axis``: ``m``, unless several sizes share it."""
    rows = last_task(one_backend(errors))
    several = rows.groupby("problem")["sizes"].transform("nunique")
    own = rows.groupby("problem")["m"].transform("nunique") == several
    return rows.assign(axis=np.where(own, "m", "points"))


def draw(rows: Frame) -> Picture:
    """A panel for each problem in which methods can be compared."""
    rows = in_series(compared(rows))
    names, looks = problems(rows), integrators(rows["method"])
    fig, axes = charts.grid(len(names), y="mean absolute error", height=3.3)
    for name, ax in zip(names, axes, strict=True):
        problem = rows[rows["problem"] == name]
        ax.set_title(title(name, problem["task"].iloc[0]))
        _panel(ax, problem, looks)
        ax.set_xlabel(AXES[problem["axis"].iloc[0]])
    drawing.legend(fig, charts.keys(looks, interval="bars"))
    return fig


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows, "mae")
    why = "all methods failed" if np.isinf(rows["mae"]).all() else "all errors are zero"
    if not charts.ready(ax, drawn, why, "xy"):
        return
    place = drawn[drawn["axis"].iloc[0]].astype(float)
    methods = [method for method in looks if method in set(drawn["method"])]
    alone = place.nunique() == 1  # then methods are drawn side by side
    apart = {method: _STEP ** (2 * rank - len(methods) + 1) if alone else 1.0 for rank, method in enumerate(methods)}
    drawn = drawn.assign(place=place * drawn["method"].map(apart))
    charts.draw(ax, drawn, looks, "place", "mae", "mae_low", "mae_high", mark="bars")
    charts.frame(ax, *numbers(drawn, "mae_low", "mae", "mae_high"))
    _places(ax, place.to_numpy(), 1.9 if alone else 1.2)
    _floor(ax, float(rows["truth_error"].max()))
    charts.notes(ax, {"failed": charts.labels(looks, set(rows.loc[~np.isfinite(rows["mae"]), "method"]))})


def _places(ax: Axes, values: np.ndarray, room: float = 1.2) -> None:
    """Sets ticks of a logarithmic horizontal axis at the values, as many as fit."""
    values = np.unique(np.asarray(values, float))
    least = (values[-1] / values[0]) ** 0.09 if len(values) > 1 else 1.0
    shown: list[float] = []
    for value in values[::-1]:
        if not shown or shown[-1] / value >= least:
            shown.append(float(value))
    ax.set_xticks(shown[::-1], [f"{value:g}" for value in shown[::-1]])
    ax.minorticks_off()
    ax.set_xlim(values[0] / room, values[-1] * room)


def _floor(ax: Axes, truth_error: float) -> None:
    """Draws twice the truth's error: smaller errors are indistinguishable from zero."""
    least, most = ax.get_ylim()
    if least < 2 * truth_error < most:
        ax.axhline(2 * truth_error, color=INK, lw=1.2, ls=(0, (1, 2)), label="truth", zorder=1)
        style = {"va": "bottom", "ha": "right", "fontsize": SMALL, "color": FAINT}
        ax.text(0.99, 2 * truth_error, "2 × error of the truth", transform=ax.get_yaxis_transform(), **style)


ERRORS = Figure(
    "errors", tables.ERRORS, select, draw,
    caption="Mean absolute error of the estimates of each problem's last task, over repetitions, against the number of "
    "points; bars are 95 % intervals. All methods share the points of a repetition. The dotted line is "
    "twice the error of the truth: smaller errors are indistinguishable from zero.",
    answer="mean absolute error of each method of integration against the number of points, with 95 % intervals.",
)  # fmt: skip


def draw_seconds(rows: Frame) -> Picture:
    """Panels of each problem in which methods can be compared: error and time, and before it time and points.

    A problem with a single number of points has none of the second kind, which would show a column of markers. These
    problems come last, two in a row.
    """
    rows = in_series(compared(rows))
    looks, label = integrators(rows["method"]), charts.amortised(rows["repetitions"])
    several = {name: part(rows, problem=name)["points"].nunique() > 1 for name in problems(rows)}
    panels = [(name, kind) for name, more in several.items() if more for kind in (_time, _worth)]
    panels += [(name, _worth) for name, more in several.items() if not more]
    fig = drawing.figure(2.9 * math.ceil(len(panels) / 2) + 0.2)
    for rank, ((name, kind), ax) in enumerate(zip(panels, drawing.cells(fig, len(panels), 2), strict=True)):
        problem, task = part(rows, problem=name), part(rows, problem=name)["task"].iloc[0]
        kind(ax, problem, looks)
        ax.set_title(f"{name}: time" if kind is _time else title("error", task) if several[name] else title(name, task))
        ax.set_ylabel(label if kind is _time else "mean absolute error")
        if rank + 2 >= len(panels) or panels[rank + 2][1] is not kind:
            ax.set_xlabel("points of all tasks" if kind is _time else label)
    drawing.legend(fig, charts.keys(looks, interval="bars"))
    return fig


def _time(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = rows[rows["seconds_per_repetition"] > 0]
    if not charts.ready(ax, drawn, "not timed", "xy"):
        return
    charts.draw(ax, drawn, looks, "points", "seconds_per_repetition")
    _places(ax, drawn["points"].to_numpy(float))
    charts.frame(ax, *[drawn["seconds_per_repetition"].to_numpy(float)] * 3)


def _worth(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows[rows["seconds_per_repetition"] > 0], "mae")
    if not charts.ready(ax, drawn, "no finite error"):
        return
    charts.draw(ax, drawn, looks, "seconds_per_repetition", "mae", "mae_low", "mae_high", mark="bars")
    charts.frame(ax, *numbers(drawn, "mae_low", "mae", "mae_high"))
    charts.run_axis(ax, drawn["seconds_per_repetition"].to_numpy())


SECONDS = Figure(
    "seconds", tables.SECONDS, one_backend, draw_seconds,
    caption="Time of a repetition against the number of points, where there are several, without compilation, on the "
    "machine that made this report: the time of all repetitions, which are computed together, divided by their number; "
    "a single one would take longer. Beside it: mean absolute error against that time, with 95 % intervals; lower and "
    "further left is better.",
    answer="error against wall time.",
)  # fmt: skip


EPOCHS = Figure(
    "epochs", illustrations.EPOCHS, whole,
    Lines("percent", "mae", integrators, ("share of all epochs (%)", "mean absolute error"), ("low", "high"),
          visible=lambda rows: positive(rows.assign(percent=100 * rows["part"]), "mae"), empty="no finite error",
          style=charts.plain, run=False, height=3.0),
    caption="Mean absolute error of stochastic methods along their epochs: means over the repetitions, bands are 95 % "
    "intervals. More than three methods of one problem have a panel each, with the lines of the others in grey. A line "
    "that still falls at the end was stopped before convergence.",
    answer="mean absolute error of stochastic methods of integration along their epochs.",
)  # fmt: skip
