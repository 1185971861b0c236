"""What tests of figures share: figures by family and name, and the parts of a panel by their labels."""

import numpy as np
import synthetic
import synthetic_diagnostics
import synthetic_integrals
import synthetic_search
from matplotlib.collections import FillBetweenPolyCollection, LineCollection

from lowvar_studies.jobs.load import FAMILIES

FIGURES = {(family.name, name): one for family in FAMILIES.values() for name, one in family.figures.items()}
# Of each figure, a small table that it is drawn from, and a column without which it cannot be.
TABLES = {
    **{("variational", name): (synthetic.decomposition, "variance") for name in ("shares", "along", "split_along")},
    **{("variational", name): (synthetic.convergence, "gap_mean")
       for name in ("convergence", "iterations", "steps", "work", "seconds")},
    ("variational", "schemes"): (synthetic.schemes, "to_iid"),
    **{("variational", name): (lambda name=name: synthetic_diagnostics.small(name), column)
       for name, column in synthetic_diagnostics.FIGURES.items()},
    **{("search", name): (lambda name=name: synthetic_search.small(name), column)
       for name, column in synthetic_search.FIGURES.items()},
    **{("integral", name): (lambda name=name: synthetic_integrals.small(name), column)
       for name, column in synthetic_integrals.FIGURES.items()},
}  # fmt: skip


def figures_of(family):
    """``draw(name, table)`` and ``shown(name, table)`` of a family: a matplotlib figure, and its rows."""

    def draw(name, table, **options):
        return FIGURES[family, name].drawn(table, **options)[0]

    def shown(name, table, **options):
        return FIGURES[family, name].rows(table, **options)

    return draw, shown


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def labels(ax):
    return {line.get_label() for line in ax.lines}


def bands(ax):
    return {c.get_label(): c for c in ax.collections if isinstance(c, FillBetweenPolyCollection)}


def bars(ax):
    """The bars of a panel with many lines, in place of bands."""
    return {c.get_label(): c for c in ax.collections if isinstance(c, LineCollection) and "95 %" in c.get_label()}


def segments(ax, label):
    (found,) = [c for c in ax.collections if c.get_label() == label]
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
