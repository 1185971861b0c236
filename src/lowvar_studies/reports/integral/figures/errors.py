"""Mean absolute errors of integrals by method and number of points."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import lines, panels
from lowvar_studies.reports.drawing.rows import by_method, numbers, one_backend, positive, problems, require
from lowvar_studies.reports.drawing.style import integrators
from lowvar_studies.reports.integral.figures.common import RUN, last_task, places, title

AXES = {"m": "points m of the task", "points": "points of all tasks"}
_STEP = 1.045  # factor on the horizontal axis between our value and the published one


def select(errors: Frame) -> Frame:
    """Each problem's last task, with the horizontal axis in a column ``axis``: ``m``, unless several sizes share it."""
    require(errors, (*RUN, "task", "m", "points", "mae", "mae_low", "mae_high", "failed", "truth_error"), "errors")
    rows = last_task(one_backend(errors))
    several = rows.groupby("problem")["sizes"].transform("nunique")
    own = rows.groupby("problem")["m"].transform("nunique") == several
    return rows.assign(axis=np.where(own, "m", "points"))


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each problem; published values are open markers beside ours."""
    names, looks = problems(rows), integrators(rows["method"])
    fig, axes = panels.grid(len(names), y="mean absolute error", height=3.3)
    for name, ax in zip(names, axes, strict=True):
        problem = rows[rows["problem"] == name]
        ax.set_title(title(name, problem["task"].iloc[0]))
        _panel(ax, problem, looks)
        ax.set_xlabel(AXES[problem["axis"].iloc[0]])
    keys = [*lines.entries(looks), lines.interval()]
    if "published" in rows and rows["published"].notna().any():
        keys.append(drawing.entry("published", **_open(INK, "o")))
    drawing.legend(fig, keys)
    return fig


def _open(colour: str, marker: str) -> dict[str, Any]:
    return {"color": colour, "marker": marker, "ls": "", "ms": 7, "mfc": "none", "mew": 1.4}


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    drawn = positive(rows, "mae")
    why = "all methods failed" if np.isinf(rows["mae"]).all() else "all errors are zero"
    if not panels.ready(ax, drawn, why, "xy"):
        return
    place = drawn[drawn["axis"].iloc[0]].astype(float)
    methods = [method for method in looks if method in set(drawn["method"])]
    alone = place.nunique() == 1  # then methods are drawn side by side
    apart = {method: _STEP ** (2 * rank - len(methods) + 1) if alone else 1.0 for rank, method in enumerate(methods)}
    drawn = drawn.assign(place=place * drawn["method"].map(apart))
    lines.draw(ax, drawn, looks, "place", "mae", "mae_low", "mae_high", mark="bars")
    for method, line in by_method(drawn, looks, "place") if "published" in drawn else ():
        at, published = numbers(line.assign(place=line["place"] / _STEP), "place", "published")
        half = 1.96 * line.get("published_se", line["published"] * 0).to_numpy(float)
        ax.vlines(at, published - half, published + half, color=looks[method].colour, lw=1.0)
        ax.plot(at, published, label=f"{method}: published", **_open(looks[method].colour, looks[method].marker))
    panels.frame(ax, *numbers(drawn, "mae_low", "mae", "mae_high"))
    places(ax, place.to_numpy(), 1.9 if alone else 1.2)
    panels.decades(ax, "y", 7)
    _floor(ax, float(rows["truth_error"].max()))
    failed = [look.label for method, look in looks.items() if method in set(rows[~np.isfinite(rows["mae"])]["method"])]
    panels.notes(ax, {"failed": failed})


def _floor(ax: Axes, truth_error: float) -> None:
    """Draws twice the truth's error: smaller errors are indistinguishable from zero."""
    least, most = ax.get_ylim()
    if least < 2 * truth_error < most:
        ax.axhline(2 * truth_error, color=INK, lw=1.2, ls=(0, (1, 2)), label="truth", zorder=1)
        style = {"va": "bottom", "ha": "right", "fontsize": SMALL, "color": FAINT}
        ax.text(0.99, 2 * truth_error, "2 × error of the truth", transform=ax.get_yaxis_transform(), **style)


ERRORS = Figure(
    "errors", "errors", select, draw,
    caption="Mean absolute error of the estimates, over repetitions, against the number of points; bars are 95 % "
    "intervals. All methods share the points of a repetition. Open markers are published values. The dotted line is "
    "twice the error of the truth: smaller errors are indistinguishable from zero.",
    answer="mean absolute error of each method of integration against the number of points, with 95 % intervals.",
)  # fmt: skip
