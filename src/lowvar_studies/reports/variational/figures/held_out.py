"""Log-likelihood of held-out rows: along runs, and against the number of training rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lowvar.core.drawing import Axes, Picture
from lowvar.errors import check_known
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.charts import Lines
from lowvar_studies.reports.drawing.rows import one_backend
from lowvar_studies.reports.drawing.style import estimators
from lowvar_studies.reports.variational.diagnostics import DIAGNOSTICS, FRACTIONS
from lowvar_studies.reports.variational.figures.gradient_noise import (
    at_best,
    best_or_smallest,
    diverged,
    measured,
    why_empty,
)
from lowvar_studies.reports.variational.gathering import looks_at

_REACH = 8.0  # distance of the lowest mean that is shown to the highest, in distances of their median
_WORDS = "test log-likelihood\n(nats per row)"


def select(diagnostics: Frame, sizes: str = "best") -> Frame:
    """Each method at its best step size (``best``), or all step sizes (``each``) of the first problem."""
    check_known("choice of step sizes", sizes, ("best", "each"))
    if sizes == "best":
        return at_best(diagnostics, ("test_log_likelihood",))
    rows = measured(diagnostics, "test_log_likelihood")
    return rows[rows["problem"] == rows["problem"].iloc[0]].reset_index(drop=True)


def _finish(ax: Axes, rows: Frame, drawn: Frame, looks: dict) -> None:
    """Sets the limits of the means, and names the methods that leave the panel."""
    floor = _axis(ax, drawn)
    lost, highest = diverged(rows, looks), drawn.groupby("method")["mean"].max()
    below = charts.labels(looks, highest.index[highest < floor])
    cut = charts.labels(looks, set(drawn.loc[drawn["high"] > ax.get_ylim()[1], "method"]))
    fates = {"diverged": lost, "below": [label for label in below if label not in lost], "band cut at the top": cut}
    charts.notes(ax, fates)


def _axis(ax: Axes, drawn: Frame) -> float:
    """Sets the limits of an axis of means, where the worst do not press all others together; returns the lower one."""
    middle = drawn["mean"].to_numpy(float)
    top, bottom = middle.max(), max(middle.min(), middle.max() - _REACH * (middle.max() - np.median(middle)))
    room = top - bottom or abs(top) or 1.0
    ax.set_ylim(bottom - 0.06 * room, top + min(max(np.nanmax(drawn["high"]) - top, 0.06 * room), 0.3 * room))
    return bottom - 0.06 * room


ALONG = Lines("iteration", "mean", estimators, ("iteration", _WORDS), ("low", "high"), log="", markers=8, fit=False,
              visible=lambda rows: rows[np.isfinite(rows["mean"])], empty=why_empty, finish=_finish)  # fmt: skip


def draw_rates(rows: Frame) -> Picture:
    """A panel for each step size, in descending order."""
    name, rows = rows["problem"].iloc[0], rows.sort_values("step_size", ascending=False, kind="stable")
    return replace(ALONG, panel="step_size", title=f"{name}, step size {{:g}}".format)(rows)


TEST = Figure(
    "test", DIAGNOSTICS, select, ALONG,
    caption="Log-likelihood of held-out rows, per row, along the runs, each method at its best step size: means over "
    "the repetitions, bands are 95 % intervals. A note names the methods that end below the panel, and those whose "
    "band leaves it at the top.",
    when=looks_at("test"),
)  # fmt: skip
RATES = Figure(
    "rates", DIAGNOSTICS, select, draw_rates,
    caption="Log-likelihood of held-out rows, per row, along the runs of one problem, a panel for each initial step "
    "size: means over the repetitions, bands are 95 % intervals.",
    when=looks_at("rates"),
    options={"sizes": "each"},
)  # fmt: skip


def select_ends(fractions: Frame) -> Frame:
    """The end of each method at its best step size."""
    rows = one_backend(fractions)
    rows = rows[best_or_smallest(rows)]
    return rows.sort_values(["task", "method", "fraction"], kind="stable").reset_index(drop=True)


def _percent(rows: Frame) -> Frame:
    """The finite means at their percentage of the training rows, with methods side by side."""
    drawn = rows[np.isfinite(rows["mean"])]
    methods = list(estimators(drawn["method"]))
    shift = {method: 1.2 * (rank - (len(methods) - 1) / 2) for rank, method in enumerate(methods)}  # bars are apart
    return drawn.assign(percent=100 * drawn["fraction"] + drawn["method"].map(shift).astype(float))


def _fractions(ax: Axes, rows: Frame, drawn: Frame, looks: dict) -> None:
    """Sets the limits of the means, with a tick at each fraction, and names the methods that diverged."""
    ends = drawn["mean"].min(), drawn["mean"].max()
    room = 0.12 * (ends[1] - ends[0]) or 1e-3
    low = min(max(np.nanmin(drawn["low"].to_numpy(float), initial=ends[0]), ends[0] - 4 * room), ends[0])
    high = max(min(np.nanmax(drawn["high"].to_numpy(float), initial=ends[1]), ends[1] + 4 * room), ends[1])
    ax.set_ylim(low - room, high + room)
    parts = sorted({round(100 * part) for part in drawn["fraction"]})
    ax.set_xticks(parts, [f"{part:g}" for part in parts])
    ax.set_xlim(min(parts) - 5, max(parts) + 5)
    charts.notes(ax, {"diverged": charts.labels(looks, set(rows.loc[rows["diverged"] > 0, "method"]))})


SIZES = Figure(
    "sizes", FRACTIONS, select_ends,
    Lines("percent", "mean", estimators, ("training rows used (%)", _WORDS), ("low", "high"), panel="task", log="",
          title=lambda task: task.replace("_", " "), mark="bars", visible=_percent, fit=False,
          empty="all runs diverged", finish=_fractions, height=3.1),
    caption="Log-likelihood of held-out rows at the end of the runs, per row, against the share of the training rows "
    "that is used: means over the repetitions with 95 % intervals. The numbers of updates are equal, so fewer rows are "
    "visited more often.",
    answer="log-likelihood of held-out rows at the end against the number of training rows.",
)  # fmt: skip
