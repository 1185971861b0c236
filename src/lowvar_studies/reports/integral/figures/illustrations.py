"""Illustrations of integrals: fitted functions, Stein kernels, power posteriors, and the observed series."""

from __future__ import annotations

import math

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import BAND, INK, SMALL, Axes, Picture
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import finite, part, whole
from lowvar_studies.reports.drawing.style import integrators
from lowvar_studies.reports.integral import illustrations as tables
from lowvar_studies.reports.integral.figures.common import title

_INTEGRAND, _DENSITY = "#B5B5B5", "#EFEFEF"
_SERIES, _TASK = "#0072B2", "#D55E00"
_UNITS = dict.fromkeys(("hare", "lynx"), ("thousands of pelts", "year"))  # of values and times of a series
_MAP = "viridis_r"  # from the prior (light) to the posterior (dark)
_NAMED = 5  # temperatures labelled on the colour bar
_LEVELS = 20
_SHOWN = 0.9  # quantile of absolute values at the end of the colours: polynomials are unbounded


def draw_fits(rows: Frame) -> Picture:
    """A panel for each problem and task."""
    groups = list(rows[["problem", "task"]].drop_duplicates().itertuples(index=False, name=None))
    looks = integrators(rows.loc[(rows["kind"] == "curve") & rows["fitted"].notna(), "method"])
    fig, axes = charts.grid(len(groups), "x", "f and fits", height=2.9)
    for (name, which), ax in zip(groups, axes, strict=True):
        ax.set_title(title(name, which))
        _fit(ax, part(rows, problem=name, task=which), looks)
    keys = [drawing.entry("integrand f", color=_INTEGRAND, lw=5)]
    keys += charts.entries(looks, charts.plain)
    keys.append(drawing.entry("sample", ls="", marker="o", ms=4, color=INK))
    if rows["density"].notna().any():
        keys.append(drawing.patch("density of the target", color=_DENSITY))
    drawing.legend(fig, keys)
    return fig


def _fit(ax: Axes, rows: Frame, looks: dict) -> None:
    curves, points = rows[rows["kind"] == "curve"], rows[rows["kind"] == "point"].drop_duplicates("x")
    ax.grid()
    f = curves.drop_duplicates("x").sort_values("x")
    if len(f):
        ax.plot(f["x"], f["f"], color=_INTEGRAND, lw=5, label="f", zorder=1.5, solid_capstyle="butt")
    charts.draw(ax, curves, looks, "x", "fitted", style=charts.plain)
    ax.plot(
        points["x"], points["f"], ls="", marker="o", ms=3.6, color=INK, mec="white", mew=0.3, label="sample", zorder=4
    )
    low, high = _fit_range(rows)
    room = 0.06 * (high - low)
    ax.set_ylim(low - room, high + room)
    if f["density"].notna().any():
        height = f["density"] / f["density"].max() * 0.3 * (high - low + 2 * room)
        ax.fill_between(f["x"], low - room, low - room + height, color=_DENSITY, lw=0, zorder=0.5, label="density")


def _fit_range(rows: Frame) -> tuple[float, float]:
    """The range of the integrand and the fits, with at most half the integrand's range beyond it on either side."""
    f, fitted = finite(rows["f"]), finite(rows["fitted"])
    low, high = (float(f.min()), float(f.max())) if len(f) else (0.0, 1.0)
    wide = max(high - low, 1e-12)
    if len(fitted):
        low, high = max(min(low, fitted.min()), low - 0.5 * wide), min(max(high, fitted.max()), high + 0.5 * wide)
    return low, high


FITS = Figure(
    "fits", tables.FITS, whole, draw_fits,
    caption="Integrands, the functions that methods fitted to them in the first repetition, and the sample points. The "
    "integral of a fitted function is known; that of its difference to the integrand, weighted by the density of the "
    "points (shaded), remains to be estimated.",
    answer="integrands, and the functions that methods of integration fit to them.",
)  # fmt: skip


def draw_kernels(rows: Frame) -> Picture:
    """A panel for each kernel with its own colour scale, with arrows at its ends if values exceed it."""
    names = list(rows["kernel"].drop_duplicates())
    columns = min(len(names), 3)
    fig = drawing.figure(2.9 * math.ceil(len(names) / columns) if columns > 1 else 3.6)
    axes = drawing.cells(fig, len(names), columns)
    charts.outer(axes, columns, "x", "y")
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(str(name).replace(", ", "\n"), fontsize=SMALL + 0.5)
        _kernel(ax, rows[rows["kernel"] == name])
    return fig


def _kernel(ax: Axes, rows: Frame) -> None:
    wide = rows.pivot(index="y", columns="x", values="value").sort_index().sort_index(axis=1)
    values = wide.to_numpy(float)
    size = np.abs(finite(values))
    if not len(size) or size.max() == 0:
        drawing.say(ax, "zero everywhere")
        return
    top = _round_up(float(np.quantile(size, _SHOWN)) or float(size.max()))
    levels = np.linspace(-top, top, _LEVELS + 1)
    x, y = wide.columns.to_numpy(float), wide.index.to_numpy(float)
    style = {"levels": levels, "cmap": "RdBu_r", "extend": "both"}
    drawn = ax.contourf(x, y, values, **style)  # paths, so that the svg has no pixels
    ax.contour(x, y, values, levels=[0.0], colors=INK, linewidths=0.8)
    ax.set_aspect("equal")
    bar = ax.get_figure().colorbar(drawn, ax=ax, location="bottom", shrink=0.95, aspect=16, pad=0.03)  # pyright: ignore
    bar.set_ticks([-top, 0.0, top], labels=[f"{-top:g}".replace("-", "−"), "0", f"{top:g}"])
    bar.ax.tick_params(labelsize=SMALL, length=3)
    bar.outline.set_visible(False)  # pyright: ignore


def _round_up(value: float) -> float:
    """The value rounded up to one significant digit.

    >>> [_round_up(value) for value in (0.012, 3.0, 7.2, 140.0)]
    [0.02, 3.0, 8.0, 200.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(round(value / power, 9)) * power:.6g}")


STEIN_KERNELS = Figure(
    "stein_kernels", tables.KERNELS, whole, draw_kernels,
    caption="The sum of all entries of three matrix-valued Stein kernels, 1' K0(x, y) 1, for a standard normal target "
    "and one of variance 1.25: red above zero, blue below. Every function in the span has mean zero under its target.",
    answer="matrix-valued Stein kernels, whose functions have mean zero.",
)  # fmt: skip


def draw_scores(rows: Frame) -> Picture:
    """One panel; colours show the position in the ladder, because most temperatures are near 0."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    ladder = rows[["target", "temperature"]].drop_duplicates().sort_values("temperature").reset_index(drop=True)
    shades = matplotlib.colormaps[_MAP](np.linspace(0.05, 1.0, len(ladder)))
    fig = drawing.figure(3.4)
    ax = fig.subplots()
    ax.grid()
    ax.axhline(0, color=INK, lw=0.9, zorder=1)
    for place, target in enumerate(ladder["target"]):
        line = rows[rows["target"] == target].sort_values("x")
        ends = place in (0, len(ladder) - 1)
        ax.plot(line["x"], line["score"], color=shades[place], lw=2.4 if ends else 1.2, label=str(target))
    ax.set(xlabel="x", ylabel="score: d log density / dx")
    ax.margins(x=0.01)
    ax.set_ylim(*_score_range(rows))
    norm = BoundaryNorm(np.arange(len(ladder) + 1) - 0.5, len(ladder))
    bar = fig.colorbar(ScalarMappable(norm, ListedColormap(list(shades))), ax=ax, aspect=24, pad=0.02)
    chosen = np.unique(np.round(np.linspace(0, len(ladder) - 1, _NAMED)).astype(int))
    names = [_temperature(float(t)) for t in ladder["temperature"].iloc[chosen]]
    bar.set_ticks(list(chosen), labels=names)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=SMALL, length=3)
    bar.ax.set_title("temperature", fontsize=SMALL, weight="normal")
    bar.outline.set_visible(False)  # pyright: ignore
    return fig


def _score_range(rows: Frame) -> tuple[float, float]:
    """The range of nearly all scores, which are unbounded towards the ends of the support."""
    scores = finite(rows["score"])
    if not len(scores):
        return -1.0, 1.0
    low, high = np.quantile(scores, [0.01, 0.99])
    room = 0.06 * max(high - low, 1e-12)
    return float(low - room), float(high + room)


def _temperature(value: float) -> str:
    """A temperature as text.

    >>> [_temperature(t) for t in (0.0, 1.0, 0.03125, 0.0009765)]
    ['0 (prior)', '1 (posterior)', '0.031', '9.8e-4']
    """
    if value in (0.0, 1.0):
        return "0 (prior)" if value == 0 else "1 (posterior)"
    if value >= 1e-3:
        return f"{value:.2g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e{int(power)}"


POWER_SCORES = Figure(
    "power_scores", tables.SCORES, whole, draw_scores,
    caption="Scores of the power posteriors along the ladder of temperatures, from the prior to the posterior. If "
    "neighbours are similar, estimates at one temperature can borrow information from the next.",
    answer="scores of power posteriors along the ladder of temperatures.",
)  # fmt: skip


def draw_series(rows: Frame) -> Picture:
    """A panel for each series; a column ``task`` marks times at which the mean is an integral to estimate."""
    from matplotlib.ticker import MaxNLocator

    names = list(rows["series"].drop_duplicates())
    fig = drawing.figure(2.2 * len(names) + 0.3)
    axes = list(fig.subplots(len(names), 1, squeeze=False, sharex=True).flat)
    marked = False
    for name, ax in zip(names, axes, strict=True):
        ax.set_title(str(name))
        marked |= _series(ax, rows[rows["series"] == name].sort_values("time"))
        ax.set_ylabel(_UNITS.get(name, ("value", "time"))[0])
    axes[-1].set_xlabel(_UNITS.get(names[-1], ("value", "time"))[1])
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    fig.align_ylabels(axes)
    keys = [
        drawing.entry("posterior mean", color=_SERIES, lw=2),
        drawing.patch("95 % band", color=_SERIES, alpha=BAND),
        drawing.entry("observed", ls="", marker="o", ms=5, color=INK),
    ]
    if marked:
        keys.append(drawing.entry("times of the integrals", ls="", marker="|", ms=10, mew=2, color=_TASK))
    drawing.legend(fig, keys)
    return fig


def _series(ax: Axes, rows: Frame) -> bool:
    """Draws a series; returns whether it marks times of integrals."""
    time = rows["time"].to_numpy(float)
    ax.grid()
    ax.fill_between(time, rows["low"], rows["high"], color=_SERIES, alpha=BAND, lw=0, label="95 %")
    ax.plot(time, rows["mean"], color=_SERIES, lw=2, label="mean")
    seen = rows["observed"].notna().to_numpy()
    ax.plot(time[seen], rows["observed"].to_numpy(float)[seen], ls="", marker="o", ms=5, color=INK, label="observed")
    ax.set_ylim(bottom=0 if (rows["low"] >= 0).all() else None)
    ax.margins(x=0.02)
    tasks = rows["task"].to_numpy(bool)
    if not tasks.any():
        return False
    ax.plot(time[tasks], rows["mean"].to_numpy(float)[tasks], ls="", marker="|", ms=11, mew=2, color=_TASK,
            label="tasks", zorder=4)  # fmt: skip
    return True


PREDICTIVE = Figure(
    "predictive", tables.PREDICTIVE, whole, draw_series,
    caption="Posterior mean and 95 % band of the observed series, from the samples of the first repetition, and the "
    "observations. Ticks mark the times at which the mean is an integral to estimate.",
    answer="observed series under the posterior.",
)  # fmt: skip
