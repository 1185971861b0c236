"""Figures by family and name, and the parts of a panel by their labels."""

import numpy as np
from matplotlib.collections import LineCollection

from lowvar_studies.jobs.load import FAMILIES

FIGURES = {(family.name, name): one for family in FAMILIES.values() for name, one in family.figures.items()}


def draw(family, name, table, **options):
    """The axes of a figure, and the rows that it shows."""
    figure, rows = FIGURES[family, name].render(table, **options)
    return figure.axes, rows


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def labels(ax):
    return {line.get_label() for line in ax.lines}


def segments(ax, label):
    """The vertical bars of a collection: ends ``(bars, 2)``."""
    (found,) = [c for c in ax.collections if isinstance(c, LineCollection) and c.get_label() == label]
    return np.array([segment[:, 1] for segment in found.get_segments()])


def texts(ax):
    return [text.get_text() for text in ax.texts]


def titles(axes):
    return [ax.get_title(loc="left") for ax in axes]


def ticks(fig):
    """The axes of a figure that have labels, and the labels of their ticks in view."""
    for axis in (axis for ax in fig.axes if ax.axison for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        room = 1e-9 * (high - low)
        both = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
        words = [label.get_text() for place, label in both if low - room <= place <= high + room and label.get_text()]
        if words and axis.get_tick_params().get("labelleft" if axis.axis_name == "y" else "labelbottom", True):
            yield axis, words
