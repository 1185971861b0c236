"""Labelled ticks: every axis with numbers shows at least three."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.core.drawing import SMALL, Axes, Picture, styled

if TYPE_CHECKING:
    from matplotlib.axis import Axis
else:
    Axis = Any

LEAST = 3
_MOST = 6
_APART = 1.35  # distance of ticks along the vertical axis, in heights of their labels
_LOGARITHMIC = ("log", "symlog")


def labelled(axis: Axis) -> list[tuple[float, str]]:
    """Places and labels of the ticks that can be read: inside the panel, and not blank."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-9 * (high - low)
    ticks = []
    for places, labels in ((axis.get_majorticklocs(), axis.get_majorticklabels()),
                           (axis.get_minorticklocs(), axis.get_minorticklabels())):  # fmt: skip
        shown = zip(places, (label.get_text() for label in labels), strict=False)
        ticks += [(float(at), text) for at, text in shown if text and low - room <= at <= high + room]
    return sorted(ticks)


def of_numbers(axis: Axis) -> bool:
    """Whether an axis has numbers: not categories, not an axis without labels by intent, as of an inner panel."""
    from matplotlib.ticker import FixedFormatter, NullFormatter, NullLocator

    side = "labelleft" if axis.axis_name == "y" else "labelbottom"
    if not (axis.axes.axison and axis.get_visible() and axis.get_tick_params().get(side, True)):
        return False
    formatter = axis.get_major_formatter()
    if isinstance(formatter, NullFormatter) or isinstance(axis.get_major_locator(), NullLocator):
        return False
    shown = [label.get_text() for label in axis.get_majorticklabels() if label.get_text()]
    if shown or isinstance(formatter, FixedFormatter) or axis.get_scale() not in _LOGARITHMIC:
        return any(_is_number(text) for text in shown)
    return True


@styled
def ensure_three_ticks(fig: Picture) -> None:
    """Gives each axis with numbers that has fewer than three labelled ticks round ones, as many as fit."""
    few = [axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) if of_numbers(axis) and len(labelled(axis)) < LEAST]
    if not few:
        return
    fig.draw_without_rendering()  # the layout gives panels their size
    for axis in few:
        _refine(axis.axes, axis)


def _refine(ax: Axes, axis: Axis) -> None:
    old = [place for place, _ in labelled(axis)]
    sets = _candidates(axis, old)
    fitting = [_thinned(ax, axis, values, old) for values in sets]
    best = next((places for places in fitting if len(places) >= LEAST), max(fitting, key=len))
    if len(best) > len(old):
        axis.set_ticks(best, labels=[word(value) for value in best])
        axis.set_minor_locator(_null())


def _null() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _candidates(axis: Axis, old: list[float]) -> list[list[float]]:
    """Sets of round numbers in view, the sparsest first."""
    from matplotlib.ticker import MaxNLocator

    low, high = sorted(axis.get_view_interval())
    sets: list[list[float]] = []
    if axis.get_scale() in _LOGARITHMIC:
        least = low if low > 0 else min([tick for tick in old if tick > 0], default=high / 100)
        powers = range(math.floor(math.log10(least)), math.ceil(math.log10(high)) + 1)
        for digits in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            sets.append([float(f"{digit}e{power}") for power in powers for digit in digits])
        if low <= 0:
            sets = [[0.0, *values] for values in sets]
    for count in (4, 6, 9, 15, 30):
        steps = [1, 2, 5, 10]
        sets.append([float(f"{tick:.10g}") for tick in MaxNLocator(count, steps=steps).tick_values(low, high)])
    return [sorted({tick for tick in values if low <= tick <= high}) for values in sets]


def _thinned(ax: Axes, axis: Axis, values: list[float], old: list[float]) -> list[float]:
    """The values whose labels do not touch, old ticks first, then those farthest from all others."""
    if not values:
        return []
    place = {value: _along(ax, axis, value) for value in {*values, *old}}
    size = {value: _length(axis, word(value)) for value in place}
    chosen = [value for value in old if value in values]
    rest = [value for value in values if value not in chosen]

    def gap(value: float, other: float) -> float:
        return abs(place[value] - place[other]) - (size[value] + size[other]) / 2

    while rest and len(chosen) < _MOST:
        if not chosen:
            chosen.append(rest.pop(0))
            continue
        far = max(rest, key=lambda value: min(gap(value, other) for other in chosen))
        if min(gap(far, other) for other in chosen) < 0:
            break
        chosen.append(far)
        rest.remove(far)
    return sorted(chosen)


def _along(ax: Axes, axis: Axis, value: float) -> float:
    """The place of a value along an axis, points."""
    point = (value, np.nan) if axis.axis_name == "x" else (np.nan, value)
    which = 0 if axis.axis_name == "x" else 1
    inside = ax.transScale.transform([[1.0 if np.isnan(end) else end for end in point]])[0]
    return float(ax.transLimits.transform([inside])[0][which] * ax.bbox.size[which] * 72 / ax.figure.dpi)


def _length(axis: Axis, text: str) -> float:
    """The room that a label takes along its axis, points."""
    from matplotlib.textpath import TextPath

    drawn = axis.get_majorticklabels()
    size = float(drawn[0].get_fontsize()) if drawn else SMALL
    if axis.axis_name == "y":
        return _APART * size
    return TextPath((0, 0), text, size=size).get_extents().width + 0.8 * size


def word(value: float) -> str:
    """A tick's label.

    >>> word(0.0), word(300.0), word(0.15), word(1e5), word(3e-5), word(-0.159)
    ('0', '300', '0.15', '$10^{5}$', '$3\\\\times 10^{-5}$', '-0.159')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:.10g}"
    digits, power = f"{value:.9e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    return f"$10^{{{int(power)}}}$" if digits == "1" else f"${digits}\\times 10^{{{int(power)}}}$"


def _is_number(text: str) -> bool:
    plain = text.replace("\N{MINUS SIGN}", "-").replace("%", "").strip()
    if "10^" in plain or "\\times" in plain:
        return True
    try:
        float(plain)
    except ValueError:
        return False
    return True
