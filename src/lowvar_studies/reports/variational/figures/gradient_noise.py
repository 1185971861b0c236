"""Errors and signal-to-noise ratios of gradients along runs, conditional and true."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, Axes, Picture
from lowvar.errors import UserError
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.charts import Lines
from lowvar_studies.reports.drawing.rows import in_order, numbers, one_backend, part, positive, problems
from lowvar_studies.reports.drawing.style import Estimator, estimators
from lowvar_studies.reports.variational.diagnostics import DIAGNOSTICS
from lowvar_studies.reports.variational.gathering import looks_at

_TOGETHER = 5  # most methods whose true and conditional lines share a panel
_DASH = (0, (2.2, 1.6))
_BEYOND = 1e15  # largest over smallest value that an axis shows


def measured(diagnostics: Frame, *quantities: str) -> Frame:
    """The rows of some quantities, each method in one backend.

    Raises:
        UserError: none of the quantities was measured.
    """
    rows = diagnostics[diagnostics["quantity"].isin(quantities)]
    if not len(rows):
        raise UserError(f"diagnostics table: {' and '.join(quantities)} were not measured in any run")
    return one_backend(rows)


def at_best(diagnostics: Frame, quantities: tuple[str, ...]) -> Frame:
    """The rows of some quantities, each method in one backend and at its best step size; raises as ``measured``."""
    rows = measured(diagnostics, *quantities)
    return in_order(rows[best_or_smallest(rows)], "problem", "method", "quantity", "iteration")


def best_or_smallest(rows: Frame) -> Frame:
    """Mask of the rows at the best step size, or at the smallest if all diverged."""
    runs = [rows[name] for name in ("problem", "method", "backend")]
    none = ~rows["best"].eq(True).groupby(runs).transform("any")
    smallest = rows["step_size"] == rows["step_size"].groupby(runs).transform("min")
    return rows["best"].eq(True) | (none & smallest)


def diverged(rows: Frame, looks: dict[str, Estimator]) -> list[str]:
    """Labels of a panel's methods with a diverged repetition at the end."""
    last = rows["iteration"] == rows.groupby("method")["iteration"].transform("max")
    return charts.labels(looks, set(rows.loc[last & (rows["diverged"] > 0), "method"]))


def _open(look: Estimator) -> dict:
    return charts.kind(look) | {"ls": _DASH, "lw": 1.6, "mfc": "none", "mew": 1.1}


def _conditional(look: Estimator) -> dict:
    return _open(look) | {"ms": look.size + 4.5}  # a rim around the true line's markers where the two coincide


def draw(rows: Frame, quantities: tuple[str, str], words: tuple[str, str], unit: str) -> Picture:
    """A panel for each problem, the true quantity solid, the conditional one dashed; with many methods two panels."""
    names, looks = problems(rows), estimators(rows["method"])
    kinds = dict(zip(quantities, (charts.solid, _conditional), strict=True))
    if len(looks) > _TOGETHER:
        kinds[quantities[1]] = _open
        fig = drawing.figure(2.8 * len(names))
        grid = fig.subplots(len(names), 2, squeeze=False, sharey="row")
        for name, pair in zip(names, grid, strict=True):
            both = part(rows, problem=name)
            for quantity, word, ax in zip(quantities, words, pair, strict=True):
                ax.set_title(f"{name}: {word}")
                _panel(ax, part(both, quantity=quantity), looks, {quantity: kinds[quantity]}, both)
            pair[0].set_ylabel(unit)
        for ax in grid[-1]:
            ax.set_xlabel("iteration")
        fig.align_ylabels(grid[:, 0])
    else:
        fig = charts.each(rows, partial(_panel, looks=looks, kinds=kinds), "iteration", unit, height=3.1)
    keys = charts.entries(looks, charts.solid)
    plain = Estimator("", FAINT, "")  # grey: the style of a line, whatever its method
    keys += [drawing.entry(word, **kind(plain)) for word, kind in zip(words, kinds.values(), strict=True)]
    drawing.legend(fig, [*keys, charts.interval_entry(len(looks))])
    return fig


def on_log_scale(rows: Frame) -> Frame:
    """The rows with the intervals of true squared errors, which are arithmetic means, made for a logarithmic axis.

    The upper end of a t-interval is ``mean + h``; the logarithm of the mean then has half the width ``h / mean``, to
    first order. Unlike ``mean - h``, the lower end ``mean exp(-h / mean)`` is never negative.
    """
    own = rows["quantity"] == "squared_error"
    factor = np.exp(((rows["high"] - rows["mean"]) / rows["mean"]).where(own, 0.0))
    low, high = rows["mean"] / factor, rows["mean"] * factor
    return rows.assign(low=low.where(own, rows["low"]), high=high.where(own, rows["high"]))


def why_empty(rows: Frame) -> str:
    """The reason why rows of the table ``diagnostics`` give nothing to draw."""
    return "all runs diverged" if (rows["diverged"] > 0).any() else "not measured"


def _panel(ax: Axes, rows: Frame, looks: dict, kinds: dict, scale: Frame | None = None) -> None:
    """Lines of quantities by method; the vertical axis shows all rows of ``scale``."""
    drawn = on_log_scale(positive(rows, "mean"))
    if not charts.ready(ax, drawn, why_empty(rows)):
        return
    for quantity, style in kinds.items():
        own, name = part(drawn, quantity=quantity), f"{{}}, {quantity}"
        charts.draw(ax, own, looks, "iteration", "mean", "low", "high", mark="beside", markers=8, name=name,
                    style=style)  # fmt: skip
    charts.run_axis(ax, drawn["iteration"].to_numpy())
    seen = drawn if scale is None else on_log_scale(positive(scale, "mean"))
    seen = seen[seen["mean"] >= seen["mean"].max() / _BEYOND]
    charts.frame(ax, *numbers(seen, "low", "mean", "high"))
    charts.notes(ax, {"diverged": diverged(rows, looks)})


VARIANCE = Figure(
    "variance", DIAGNOSTICS, at_best, draw,
    caption="Errors of the gradients along the runs, each method at its best step size. Solid lines: the true squared "
    "error, the expected squared distance to the exact gradient. Dashed lines: the conditional variance given the "
    "past. Without carryover the two coincide; with carryover, the conditional variance excludes the carried error. "
    "Solid lines are arithmetic means over the repetitions, dashed lines geometric means; bands are 95 % intervals, "
    "with more than three methods bars at some of the points, side by side. Intervals of the true error are those of "
    "its logarithm: the mean times or divided by exp(h / mean), where h is the half width of the t-interval. With more "
    "than five methods, each error has its own panel.",
    answer="errors of the gradients along the runs. Solid lines: the true squared error; dashed: the conditional "
    "variance, which excludes the carried error.",
    when=looks_at("errors"),
    options={"quantities": ("squared_error", "variance"), "unit": "gradient error (trace, nats²)",
             "words": ("true squared error", "conditional variance")},
)  # fmt: skip


SNR = Figure(
    "snr", DIAGNOSTICS, at_best, draw,
    caption="Signal-to-noise ratio of the gradients along the runs, each method at its best step size: the squared "
    "norm of the gradient over the standard deviation of its estimate, as defined by Fujisawa and Sato. Solid lines: "
    "the true ratio, from arithmetic means over the repetitions of the exact gradient's squared norm and of the true "
    "squared error. Dashed lines: the conditional ratio, a geometric mean over the repetitions. Bands are 95 % "
    "intervals.",
    when=looks_at("errors"),
    options={"quantities": ("snr_true", "snr_conditional"), "unit": r"SNR, $\|E\,g\|^2$ / sd (nats)",
             "words": ("true SNR", "conditional SNR")},
)  # fmt: skip


def _whole_numbers(ax: Axes, rows: Frame, drawn: Frame, looks: dict) -> None:
    """Sets the limits of a logarithmic axis of counts, and names the methods that diverged."""
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0.8), max(high, 12.0))
    charts.notes(ax, {"diverged": diverged(rows, looks)})


POINTS = Figure(
    "particles", DIAGNOSTICS, at_best,
    Lines("iteration", "mean", estimators, ("iteration", "particles of the next step"), ("low", "high"), markers=8,
          visible=lambda rows: positive(rows, "mean"), empty=why_empty, finish=_whole_numbers),
    caption="Particles of the next step along the runs, each method at its best step size: means over the "
    "repetitions, bands are 95 % intervals. A particle costs one gradient evaluation, or two in estimators that "
    "compare two steps.",
    when=looks_at("particles"),
    options={"quantities": ("particles",)},
)  # fmt: skip
