"""Drawing with matplotlib: one style, figures of one width, legends, and files that repeat byte for byte."""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lowvar.core.files import write_bytes
from lowvar.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
else:  # matplotlib is imported when something is drawn
    Axes = Picture = Any

WIDTH = 7.2  # inches: a report's column; legible at half that size
FONT = 10.5  # points at that width; SMALL is the smallest size
SMALL = 9.5
INK, FAINT = "#222222", "#767676"
BAND = 0.18  # opacity of an interval

_METADATA = {"svg": {"Date": None, "Creator": "lowvar"}, "png": {"Software": "lowvar"}}


_RC = {
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.labelsize": FONT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "svg.hashsalt": "lowvar",
    "svg.fonttype": "path",
}

P = ParamSpec("P")
T = TypeVar("T")


def with_style(draw: Callable[P, T]) -> Callable[P, T]:
    """Runs ``draw`` under this style; the user's matplotlib settings do not change.

    Raises:
        UserError: matplotlib is not installed.
    """

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            import matplotlib
        except ImportError as error:
            raise UserError("figures need matplotlib: pip install 'lowvar[plot]'") from error
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_RC)  # pyright: ignore
            return draw(*args, **kwargs)

    return inside


def figure(height: float) -> Picture:
    """An empty figure of the common width, without pyplot; ``height`` in inches, without the legend."""
    from lowvar.core.shown_figure import ShownFigure

    new = ShownFigure(figsize=(WIDTH, height), layout="constrained")
    new.get_layout_engine().set(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.04)  # pyright: ignore
    return new


def cells(fig: Picture, count: int, columns: int, **options: Any) -> list[Axes]:
    """``count`` panels of a figure, row by row."""
    axes = list(fig.subplots(math.ceil(count / columns), columns, squeeze=False, **options).flat)
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def lanes(ax: Axes, count: int) -> None:
    """Makes a vertical axis of ``count`` categories, the first at the top, without ticks or a line."""
    ax.set_ylim(count - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def say(ax: Axes, text: str) -> None:
    """Writes in an empty panel why it is empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=FAINT)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)


def entry(label: str, **style: Any) -> Any:
    """A legend entry: a line, or a marker if the style has ``ls=""``."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def patch(label: str, lw: float = 0, **style: Any) -> Any:
    """A legend entry: an area."""
    from matplotlib.patches import Patch

    return Patch(label=label, lw=lw, **style)


def legend(fig: Picture, handles: list) -> None:
    """One legend above all panels, with as many columns as fit; the figure grows by its height."""
    from matplotlib.textpath import TextPath

    size = SMALL + 0.5
    beside = 4.6 * size  # width of a handle, its distance to the text, and the gap between columns
    words = [TextPath((0, 0), handle.get_label(), size=size).get_extents().width for handle in handles]

    def needed(columns: int) -> float:
        rows = math.ceil(len(words) / columns)
        tops = [max(words[at : at + rows]) for at in range(0, len(words), rows)]
        return sum(top + beside for top in tops) / 72

    columns = max((n for n in range(1, len(words) + 1) if needed(n) <= fig.get_figwidth()), default=1)
    columns = math.ceil(len(words) / math.ceil(len(words) / columns))
    fig.set_figheight(fig.get_figheight() + 0.22 * math.ceil(len(words) / columns))
    place = {"loc": "outside upper left", "ncols": columns, "fontsize": size}
    fig.legend(handles=handles, handlelength=2, handletextpad=0.8, columnspacing=1.4, **place)


def number(value: float) -> str:
    """A number with two digits, as the command line prints it.

    >>> number(40412.0), number(3.14159), number(0.00012), number(float("nan"))
    ('4.0e4', '3.1', '1.2e-4', 'n/a')
    """
    if not math.isfinite(value):
        return "n/a"
    if value == 0 or 0.095 <= abs(value) < 995:
        return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e{int(power)}"


def times(value: float) -> str:
    """A factor in words.

    >>> times(1.94), times(27.3), times(0.5), times(31234.0), times(1.04)
    ('1.9× less', '27× less', '2.0× more', '3.1e4× less', '4 % less')
    """
    if not math.isfinite(value) or value <= 0:
        return "n/a"
    if 1 / 1.1 < value < 1.1:
        return f"{100 * abs(1 - 1 / value):.0f} % {'less' if value >= 1 else 'more'}"
    return f"{number(max(value, 1 / value))}× {'less' if value >= 1 else 'more'}"


@with_style
def png(figure: Picture) -> bytes:
    """The content of ``stem.png``, as ``save`` writes it."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return _bytes(figure, "png")


def _bytes(figure: Picture, ending: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=ending, dpi=200, metadata=_METADATA[ending])
    return stream.getvalue()


@with_style
def save(figure: Picture, stem: str | os.PathLike, rows: Any) -> list[Path]:
    """Writes ``stem.svg``, ``stem.png`` (200 dpi) and ``stem.csv``; equal input gives equal bytes.

    All three are rendered in memory first, so a failure leaves no file.

    Args:
        figure: returned by ``Figure.draw``.
        stem: path without its ending; missing folders are created.
        rows: the rows that the figure shows.

    Returns:
        The three paths, in that order.

    Raises:
        UserError: the folder cannot be written, or the disk is full.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # vector and bitmap share the layout that was just computed
    content = {ending: _bytes(figure, ending) for ending in _METADATA}
    content["csv"] = rows.to_csv(index=False, lineterminator="\n").encode()
    paths = []
    for ending, blob in content.items():
        paths.append(Path(f"{os.fspath(stem)}.{ending}"))
        write_bytes(paths[-1], blob)
    return paths
