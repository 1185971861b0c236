"""Time of integrals against the number of points, and error against time."""

from __future__ import annotations

from lowvar.core import drawing
from lowvar.core.drawing import Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import numbers, one_backend, positive, problems, require
from lowvar_studies.reports.drawing.style import integrators
from lowvar_studies.reports.integral.figures.common import RUN, places


def select(seconds: Frame) -> Frame:
    """Every method on one backend."""
    require(seconds, (*RUN, "points", "seconds_per_repetition", "task", "mae", "mae_low", "mae_high"), "seconds")
    return one_backend(seconds)


@styled
def draw(rows: Frame) -> Picture:
    """A row of two panels for each problem: time against points, and error against time."""
    names, looks = problems(rows), integrators(rows["method"])
    fig = drawing.figure(2.9 * len(names) + 0.2)
    axes = fig.subplots(len(names), 2, squeeze=False)
    label = panels.amortised(rows["repetitions"])
    for name, (left, right) in zip(names, axes, strict=True):
        problem = rows[rows["problem"] == name]
        left.set_title(name)
        right.set_title(f"error of {problem['task'].iloc[0]}")
        _time(left, problem, looks)
        _worth(right, problem, looks)
        left.set_ylabel(label)
        right.set_ylabel("mean absolute error")
    axes[-1, 0].set_xlabel("points of all tasks")
    axes[-1, 1].set_xlabel(label)
    drawing.legend(fig, [*lines.entries(looks), lines.interval()])
    return fig


def _time(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = rows[rows["seconds_per_repetition"] > 0]
    if not panels.ready(ax, drawn, "not timed", "xy"):
        return
    lines.draw(ax, drawn, looks, "points", "seconds_per_repetition")
    places(ax, drawn["points"].to_numpy(float))
    panels.frame(ax, *[drawn["seconds_per_repetition"].to_numpy(float)] * 3)
    panels.decades(ax, "y", 7)


def _worth(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows[rows["seconds_per_repetition"] > 0], "mae")
    if not panels.ready(ax, drawn, "no finite error"):
        return
    lines.draw(ax, drawn, looks, "seconds_per_repetition", "mae", "mae_low", "mae_high", mark="bars")
    panels.frame(ax, *numbers(drawn, "mae_low", "mae", "mae_high"))
    panels.run_axis(ax, drawn["seconds_per_repetition"].to_numpy())
    panels.decades(ax, "y", 7)


SECONDS = Figure(
    "seconds", "seconds", select, draw,
    caption="Left: time of a repetition against the number of points, without compilation, on the machine that made "
    "this report: the time of all repetitions, which are computed together, divided by their number; a single one "
    "would take longer. Right: mean absolute error against that time, with 95 % intervals; lower and further left is "
    "better.",
    answer="error against wall time.",
)  # fmt: skip
