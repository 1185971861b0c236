"""Box plots of the errors or estimates of integrals over repetitions, by method."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture
from lowvar.errors import unknown_name
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import one_backend, part, problems
from lowvar_studies.reports.drawing.style import Estimator, integrators
from lowvar_studies.reports.integral.estimates import ESTIMATES, last_task
from lowvar_studies.reports.integral.figures.common import by_sizes, in_series, task_words, title

QUANTITIES = {
    "error": "error of the estimate",
    "value": "estimate",
    "absolute": "sum of absolute errors",
    "squared": "sum of squared errors",
}
_BOX = 0.56  # height of a box; rows are 1 apart
_FEW = 40  # most repetitions that are drawn as dots
_FEWEST = 5  # least repetitions for a box
_ROOM = 4  # standard deviations that fit beside each other above a panel
_NOT_IN_GIT = {"value", "standard_error"}  # of the table: a picture needs only what the rows of kept pages have
_SMALLER = "<"  # marker in place of the diamond of a bias below the axis
_WIDE = 25.0  # ratio of the methods' error sizes above which the axis is logarithmic, with absolute errors


def select(estimates: Frame, of: str | None = None) -> Frame:
    """The plotted number of each repetition in the column ``drawn``, and its quantity in the column ``of``.

    Args:
        estimates: the table ``estimates``.
        of: ``error`` or ``value`` of each problem's last task, or sums over all tasks except derived ones, ``absolute``
            or ``squared``. By default values if the tasks are derived from others, such as a log evidence, else errors.
    """
    if of is not None and of not in QUANTITIES:
        raise unknown_name("quantity", of, QUANTITIES)
    rows = one_backend(estimates)
    of = of or ("value" if last_task(rows)["derived"].astype(bool).all() else "error")
    failed = (rows["status"] != "ok") | ~np.isfinite(rows["error"])
    drawn = rows["error"] + rows["truth"] * (of == "value")
    rows = rows.drop(columns=list(_NOT_IN_GIT), errors="ignore")
    rows = rows.assign(drawn=drawn.where(~failed, np.nan), of=of)
    if of in ("error", "value"):
        return last_task(rows)
    rows = rows[~rows["derived"].astype(bool)]
    summed = rows.assign(drawn=rows["drawn"].abs() ** {"absolute": 1, "squared": 2}[of])
    summed = summed.groupby(["problem", "method", "backend", "sizes", "points", "repetition", "of"], sort=False)[
        "drawn"
    ]
    return summed.agg(lambda errors: errors.sum(skipna=False)).reset_index()


def draw(rows: Frame) -> Picture:
    """A panel for each problem and sizes; for values, a panel for each method, with a box for each number of points.

    Sums of errors, and errors whose sizes differ much between methods, are absolute and on a logarithmic axis.
    """
    rows, looks = in_series(rows), integrators(rows["method"])
    drawn = str(rows["of"].iloc[0])
    return _values(rows, looks) if drawn == "value" else _errors(rows, looks, drawn)


def _errors(rows: Frame, looks: dict, of: str) -> Picture:
    several = rows.groupby("problem")["sizes"].nunique()
    groups = by_sizes(rows)
    signed = of == "error" and not any(_wide(part) for _, part in rows.groupby("problem"))
    present = [
        {key: look for key, look in looks.items() if key in set(rows.loc[rows["problem"] == name, "method"])}
        for name, _ in groups
    ]
    columns = min(len(groups), 2)
    heights = [max(map(len, present[at : at + columns])) for at in range(0, len(groups), columns)]
    fig = drawing.figure(sum(0.27 * height + 0.75 for height in heights) + 0.25)
    ratios = [0.27 * height + 0.4 for height in heights]
    axes = drawing.cells(fig, len(groups), columns, height_ratios=ratios)
    charts.outer(
        axes, columns, {"error": "estimate − truth" if signed else "|estimate − truth|"}.get(of, QUANTITIES[of])
    )
    for rank, ((name, size), own, ax) in enumerate(zip(groups, present, axes, strict=True)):
        labelled = rank % columns == 0 or list(own) != list(present[rank - 1])
        problem = rows[rows["problem"] == name]
        task = problem["task"].iloc[0] if of == "error" else ""
        ax.set_title(title(name, task, size if several[name] > 1 else ""))
        (_linear if signed else _logarithmic)(ax, problem if of == "error" else rows)  # sums are of one unit
        _rows(ax, problem[problem["sizes"] == size], own, signed)
        ax.set_yticks(range(len(own)), charts.short(own, 30) if labelled else [""] * len(own))
    keys = _keys("mean error: the bias" if of == "error" else "mean")
    if any(line.get_marker() == _SMALLER for ax in axes for line in ax.lines):
        keys.append(drawing.entry("a smaller bias", ls="", marker=_SMALLER, ms=5, mfc="white", mec=INK))
    drawing.legend(fig, keys)
    return fig


def _keys(mean: str) -> list:
    return [
        drawing.patch("quartiles and median", fc="#D0D0D0", ec=FAINT, lw=1.0),
        drawing.entry("5 % and 95 %", color=FAINT, lw=1.4, marker="|", ms=6),
        drawing.entry(mean, ls="", marker="D", ms=5, mfc="white", mec=INK),
    ]


def _wide(rows: Frame) -> bool:
    """Whether the errors of some methods are too small to see on a common linear axis."""
    size = rows["drawn"].abs()
    spread = size[size > 0].groupby([rows["method"], rows["sizes"]]).quantile(0.75)
    return len(spread) > 0 and bool(spread.max() > _WIDE * spread.min())


def _linear(ax: Axes, rows: Frame) -> None:
    size = rows["drawn"].abs()
    ax.grid(axis="x")
    ax.axvline(0, color=INK, lw=1.0, zorder=1)
    most = float(size.max()) if (size > 0).any() else 1.0
    ax.set_xlim(-1.08 * most, 1.08 * most)
    ax.locator_params(axis="x", nbins=5)


def _logarithmic(ax: Axes, rows: Frame) -> None:
    """Sets a logarithmic axis from the lowest whisker up: single errors can be small by chance."""
    ax.set_xscale("log")
    ax.grid(axis="x")
    size = rows["drawn"].abs()
    positive = size[size > 0]
    if not len(positive):
        return
    whiskers = positive.groupby([rows[name] for name in ("problem", "method", "sizes")]).quantile(0.05)
    low, high = math.log10(whiskers.min()), math.log10(positive.max())
    room = 0.04 * max(high - low, 0.4)
    low, high = low - room, high + room
    ax.set_xlim(10**low, 10**high)


def _rows(ax: Axes, rows: Frame, looks: dict, signed: bool) -> None:
    drawing.lanes(ax, len(looks))
    for y, (method, look) in enumerate(looks.items()):
        sample = rows.loc[rows["method"] == method, "drawn"].to_numpy(float)
        sample, failed = sample[np.isfinite(sample)], int((~np.isfinite(sample)).sum())
        if len(sample) and signed:
            _box(ax, y, sample, look, method, across=True)
        elif (sample != 0).any():
            _box(ax, y, np.abs(sample), look, method, across=True, mean=float(np.abs(sample.mean())))
        elif len(sample):
            _word(ax, y, "exact")
        if failed or not len(sample):
            _word(ax, y, f"{failed} failed" if failed else "not run")


def _word(ax: Axes, y: float, word: str) -> None:
    style: dict[str, Any] = {"ha": "right", "va": "center", "color": FAINT, "fontsize": SMALL}
    ax.text(0.99, y, word, transform=ax.get_yaxis_transform(), **style)


def _box(
    ax: Axes, place: float, sample: np.ndarray, look: Estimator, label: str, *, across: bool, mean: float = np.nan
) -> None:
    """Quartiles, median, 5 % and 95 % quantiles of a finite sample, a dot for each of few values, and a diamond.

    The diamond is at ``mean``, by default the sample's mean. ``across``: values are on the horizontal axis.
    """

    def draw(values, places, **style: Any) -> None:
        ax.plot(*((values, places) if across else (places, values)), **style)

    if len(sample) >= _FEWEST:
        low, first, middle, third, high = np.quantile(sample, [0.05, 0.25, 0.5, 0.75, 0.95])
        draw([low, high], [place, place], color=look.colour, lw=1.4, marker="|" if across else "_", ms=6, zorder=2,
             label=f"{label}: 5 % to 95 %")  # fmt: skip
        corners = ([first, third, third, first], [place - _BOX / 2] * 2 + [place + _BOX / 2] * 2)
        ax.fill(*(corners if across else corners[::-1]), fc=look.colour, ec=look.colour, alpha=0.35, lw=0.8, zorder=2,
                label=f"{label}: quartiles")  # fmt: skip
        draw([middle, middle], [place - _BOX / 2, place + _BOX / 2], color=look.colour, lw=2.2, zorder=3,
             label=f"{label}: median")  # fmt: skip
    if len(sample) <= _FEW:
        beside = place + 0.5 * _BOX * (np.arange(len(sample)) * 0.618034 % 1 - 0.5)  # a reproducible jitter
        draw(sample, beside, color=look.colour, marker=".", ls="", ms=4, alpha=0.7, zorder=3, mew=0, label=label)
    if not np.isfinite(mean):
        mean = float(sample.mean())
    style = {"mfc": "white", "mec": INK, "mew": 0.9, "ls": "", "zorder": 4, "ms": 4.5, "label": f"{label}: mean"}
    low, high = ax.get_xlim() if across else (-np.inf, np.inf)
    if mean >= low:
        draw([mean], [place], marker="D", **style)
    else:  # on a logarithmic axis: an arrow in the panel, beside the method's name
        draw([low * (high / low) ** 0.02], [place], marker=_SMALLER, **style)


def _values(rows: Frame, looks: dict) -> Picture:
    """Rows of panels for each problem, which have one scale: only the left one names its values."""
    names = problems(rows)
    methods = {name: [one for one in looks if one in set(part(rows, problem=name)["method"])] for name in names}
    columns = min(max(map(len, methods.values())), 3 if rows["sizes"].nunique() <= 4 else 2)
    lines = [(name, methods[name][at : at + columns]) for name in names for at in range(0, len(methods[name]), columns)]
    fig = drawing.figure(2.5 * len(lines) + 0.2)
    for line, (name, some) in zip(fig.subplots(len(lines), columns, squeeze=False), lines, strict=True):
        problem = part(rows, problem=name)
        for rank, ax in enumerate(line):
            if rank >= len(some):
                ax.remove()
                continue
            words = textwrap.shorten(looks[some[rank]].label, 24, placeholder="...")
            crowded = problem["sizes"].nunique() > _ROOM
            ax.set_title(f"{name}\n{words}" if len(names) > 1 else words, pad=20 + 10 * crowded)
            _by_size(ax, part(problem, method=some[rank]), looks[some[rank]], some[rank], problem)
            if rank == 0:
                ax.set_ylabel(task_words(problem["task"].iloc[0]))
            else:
                ax.set_yticklabels([])
            if rank >= len(methods[name]) - methods[name].index(some[0]) - columns:  # nothing of the problem below
                ax.set_xlabel("points m")
    keys = [*_keys("mean"), drawing.entry("truth", color=INK, lw=1.2, ls=(0, (4, 2)))]
    keys.append(drawing.entry("standard deviation", ls="", marker="$0.1$", ms=15, color=INK, mew=0.3))
    drawing.legend(fig, keys)
    return fig


def _by_size(ax: Axes, rows: Frame, look: Estimator, method: str, problem: Frame) -> None:
    order = list(problem.sort_values("points", kind="stable")["sizes"].drop_duplicates())
    truth = float(rows["truth"].iloc[0])
    reach = 1.08 * max((_reach(one["drawn"] - truth) for _, one in problem.groupby(["method", "sizes"])), default=0.0)
    reach = reach if reach > 0 else max(1e-3 * abs(truth), 1e-12)  # all failed, or all exact
    ax.set_ylim(truth - reach, truth + reach)
    ax.set_xlim(-0.6, len(order) - 0.4)
    ax.set_xticks(range(len(order)), order)
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="y")
    ax.axhline(truth, color=INK, lw=1.2, ls=(0, (4, 2)), zorder=1, label="truth")
    for place, size in enumerate(order):
        sample = rows.loc[rows["sizes"] == size, "drawn"].to_numpy(float)
        sample = sample[np.isfinite(sample)]
        if len(sample):
            _box(ax, place, sample, look, f"{method}, {size}", across=False)
        else:
            ax.text(place, truth, "failed", rotation=90, ha="center", va="center", color=FAINT, fontsize=SMALL)
        if len(sample) > 1:
            sd = float(sample.std(ddof=1))
            word = f"{sd:.2g}" if 1e-3 <= sd < 1e3 else drawing.number(sd)
            height = 1.02 + 0.11 * (place % 2 if len(order) > _ROOM else 0)  # in turn, where they would overlap
            ax.text(place, height, word, transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=SMALL)


def _reach(deviations: Any) -> float:
    """The largest distance of what ``_box`` draws: of every value, or of the whiskers of many."""
    sample = np.asarray(deviations, float)
    sample = sample[np.isfinite(sample)]
    if not len(sample):
        return 0.0
    return float(np.abs(sample if len(sample) <= _FEW else np.quantile(sample, [0.05, 0.95])).max())


BOXES = Figure(
    "boxes",
    replace(ESTIMATES, columns=tuple(one for one in ESTIMATES.columns if one.name not in _NOT_IN_GIT)),
    select,
    draw,
    caption="Errors of the estimates over repetitions. Boxes and lines are quartiles and medians, whiskers extend from "
    "the 5 % to the 95 % quantile, and dots are single repetitions if these are few. The diamond is the mean error, "
    "which is the bias. With absolute errors, it is the absolute value of the bias: small if it lies left of its box, "
    "and an arrow where it is below the axis. `m = 40/20` are 40 points of the first task and 20 of the second. For "
    "quantities derived from several integrals, the figure shows the estimates with their standard deviations as "
    "numbers, and a dashed line at the truth.",
    answer="errors of the estimates of each method of integration over repetitions.",
)  # fmt: skip
