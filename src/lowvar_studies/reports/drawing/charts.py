"""The grammar of charts: panels of lines over tidy rows, with intervals, round ticks, notes and legends.

``Lines`` declares a chart: which columns it shows, on which scales, with which marks. ``draw`` is the one way to draw
lines, also for panels that a declaration cannot describe. All read only rows that a figure saves.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import BAND, FAINT, FONT, INK, SMALL, Axes, Picture, cells, entry, figure, patch, say
from lowvar_studies.reports.declarations import Frame
from lowvar_studies.reports.drawing.rows import ascending, by_hue, finite, numbers, part
from lowvar_studies.reports.drawing.style import Estimator

if TYPE_CHECKING:
    from matplotlib.axis import Axis
else:
    Axis = Any

Looks = dict[str, Estimator]
BANDS = 3  # most lines of a panel whose intervals are bands
_BESIDE = 3  # panels in a row that have a method each
_OWN, _OTHERS = "#0072B2", "#BBBBBB"  # colours of its line, and of the others' lines
_APART = 2.0  # points between the bars of two lines
_WIDTH, _SAMPLES, _LEAST = 0.012, 400, 3  # of a line, of a panel; points on a line's path; least points of a line
_MOSTLY, _SAID = 0.95, 2  # share of a line that must lie on another; most hidden lines that a remark names
_TICKS, _MOST = 3, 7  # least and largest number of labelled ticks
_LINE, _NOTE = 13.0, "note"  # height of a line of a remark or title, points, and the mark of remarks
_GAP = 8.0  # points between two titles
_FEWEST, _CLOSE = 2, 5.0  # least number of labels that thinning leaves; pixels between two, of 100 an inch


def no_finish(ax: Axes, rows: Frame, drawn: Frame, looks: Looks) -> None:
    """Adds nothing to a panel."""


@dataclass(frozen=True)
class Lines:
    """A chart with a panel for each value of a column, and a line for each method: the ``draw`` of a ``Figure``.

    One panel with bands of more than ``BANDS`` methods would be a grey area. Then each method has a panel, with the
    lines of the others in grey, and its last value as a number.

    Attributes:
        x: column of the horizontal axis.
        y: column of the values.
        looks: the style of methods: ``estimators``, ``searchers`` or ``integrators``.
        labels: of the two axes.
        ends: columns of the ends of intervals.
        panel: the column with a panel for each value, in the order of ``ascending``.
        title: of a panel, from its value.
        log: the logarithmic axes.
        run: whether the horizontal axis is one along a run, see ``run_axis``; by default unless ``log`` has ``x``.
        mark: of intervals, as for ``draw``.
        markers: about how many markers a line has; 0 for one at each value.
        style: ``style(look)`` of a line.
        visible: ``visible(rows)``: the rows of a panel that its axes can show, perhaps with further columns.
        empty: why a panel without such rows is empty, or ``empty(rows)``.
        fit: whether the vertical axis ends near the outermost means, see ``frame``.
        finish: ``finish(panel, rows, drawn, looks)``: adds what the other fields do not describe.
        height: of a panel, inches.
    """

    x: str
    y: str
    looks: Callable[[Iterable[str]], Looks]
    labels: tuple[str, str]
    ends: tuple[str, str] | tuple[()] = ()
    panel: str = "problem"
    title: Callable[[Any], str] = str
    log: str = "y"
    run: bool = True
    mark: str = "band"
    markers: int = 0
    style: Callable[..., dict] | None = None
    visible: Callable[[Frame], Frame] = lambda rows: rows
    empty: str | Callable[[Frame], str] = "nothing finite to draw"
    fit: bool = True
    finish: Callable[[Axes, Frame, Frame, Looks], None] = no_finish
    height: float = 2.8

    def __call__(self, rows: Frame) -> Picture:
        """The chart of a figure's rows."""
        looks = self.looks(rows["method"])
        if self.ends and self.mark == "band" and len(looks) > BANDS and rows[self.panel].nunique() == 1:
            return self._by_method(rows, looks)
        fig = each(rows, lambda ax, rows: self._draw(ax, rows, looks), *self.labels, by=self.panel, height=self.height,
                   title=self.title)  # fmt: skip
        drawing.legend(fig, keys(looks, interval=self.mark if self.ends else "", style=self.style))
        return fig

    def _by_method(self, rows: Frame, looks: Looks) -> Picture:
        """A panel for each method, on common axes."""
        fig = figure(0.75 * self.height * math.ceil(len(looks) / _BESIDE))
        axes = cells(fig, len(looks), _BESIDE, sharex=True, sharey=True)
        for (method, look), ax in zip(looks.items(), axes, strict=True):
            ax.set_title(textwrap.fill(look.label, 22))
            self._draw(ax, rows, {method: replace(look, colour=_OWN, dash="-", width=2.2)}, others=looks)
            drawn = part(self.visible(rows), method=method).sort_values(self.x)
            if len(drawn):
                style = {"ha": "right", "va": "top", "color": _OWN, "fontsize": SMALL}
                ax.text(0.98, 0.97, f"ends at {drawn[self.y].iloc[-1]:.3g}", transform=ax.transAxes, **style)
        outer(axes, _BESIDE, "", self.labels[1])
        fig.supxlabel(self.labels[0], fontsize=FONT)
        handles = [entry("method of the title", color=_OWN, lw=2.2), entry("the others", color=_OTHERS, lw=1.0)]
        drawing.legend(fig, [*handles, patch("95 % interval", color=_OWN, alpha=BAND)])
        return fig

    def _draw(self, ax: Axes, rows: Frame, looks: Looks, others: Looks | None = None) -> None:
        drawn = self.visible(rows)
        if not ready(ax, drawn, self.empty if isinstance(self.empty, str) else self.empty(rows), self.log):
            return
        for _, line in by_hue(drawn, [name for name in others or () if name not in looks], order=self.x):
            ax.plot(line[self.x], line[self.y], color=_OTHERS, lw=1.0)
        draw(ax, drawn, looks, self.x, self.y, *self.ends, mark=self.mark, markers=self.markers, style=self.style)
        if self.run and "x" not in self.log:
            run_axis(ax, drawn[self.x].to_numpy())
        if self.fit:
            frame(ax, *numbers(drawn, *((self.ends[0], self.y, self.ends[1]) if self.ends else (self.y,) * 3)))
        self.finish(ax, rows, drawn, looks)


def draw(
    ax: Axes,
    rows: Frame,
    looks: Looks,
    x: str,
    y: str,
    low: str = "",
    high: str = "",
    *,
    mark: str = "band",
    markers: int = 0,
    name: str = "{}",
    style: Callable[..., dict] | None = None,
    hue: str = "method",
    backends: list[str] | None = None,
) -> None:
    """A line for each method with rows, in the figure's order, from columns of tidy rows.

    Args:
        ax: the panel; on a logarithmic axis, an interval that reaches 0 leaves the panel at its lower end.
        rows: those of the panel; they may lack methods.
        looks: the style of each method.
        x: column of the horizontal axis, by which a line is sorted.
        y: column of the values.
        low: column of the lower ends of intervals; none without it.
        high: column of the upper ends.
        mark: of intervals: ``band``, or ``bars``; ``beside``: bands, or bars side by side for many methods.
        markers: about how many markers a line has; by default one at each value.
        name: the label of a line, with the method's name in braces, and its backend in others.
        style: ``style(look)``: of the line, by default ``kind``.
        hue: the column of the methods.
        backends: the figure's, each with a line of its own; by default rows have one.
    """
    lines = []
    for key, line in by_hue(rows, looks, hue, x):
        each = [part(line, backend=one) for one in backends] if backends else [line]
        lines += [(key, rank, own) for rank, own in enumerate(each) if len(own)]
    shown = list(dict.fromkeys(key for key, *_ in lines))
    for key, rank, line in lines:
        look, label = looks[key], name.format(key, backends[rank] if backends else "")
        at, middle = numbers(line, x, y)
        every = max(1, len(line) // markers) if markers else 1
        if low:
            bottom, top = numbers(line, low, high)
            if ax.get_yscale() == "log":
                bottom = np.maximum(bottom, 1e-3 * middle)
            apart = mark == "bars" or (mark == "beside" and len(looks) > BANDS)  # bands would hide each other
            if apart and mark == "beside" and len(at) > 1:
                some = slice((len(at) - 1) % every, None, every)  # the last one among them
                _beside(ax, at[some], bottom[some], top[some], look, f"{label}: 95 %", shown.index(key), len(shown))
            elif apart or len(at) == 1:
                ax.vlines(at, bottom, top, color=look.colour, lw=2.5, alpha=0.6, label=f"{label}: 95 %")
            else:
                ax.fill_between(
                    at, bottom, top, color=look.colour, alpha=BAND / (1 + rank), lw=0, label=f"{label}: 95 %"
                )
        first = shown.index(key) % every  # so that markers of several lines do not hide each other
        ax.plot(at, middle, label=label, markevery=(first, every), **(style(look) if style else kind(look, rank)))


def _beside(ax: Axes, x, low, high, look: Estimator, label: str, rank: int, count: int) -> None:
    """A vertical bar for each interval, a few points beside those of ``count`` other lines."""
    from matplotlib.transforms import ScaledTranslation

    shift = ScaledTranslation(_APART * (rank - (count - 1) / 2) / 72, 0, ax.figure.dpi_scale_trans)
    ax.vlines(x, low, high, color=look.colour, lw=1.4, alpha=0.7, label=label, transform=ax.transData + shift)


def ends(ax: Axes, labels: list[tuple[float, str, str]], apart: float = 0.09, outside: bool = False) -> None:
    """Writes ``(height, words, colour)`` at the right edge, ``apart`` of the panel's height or more from each other."""
    last = -np.inf
    for height, words, colour in sorted(labels):
        _, place = ax.transAxes.inverted().transform(ax.transData.transform((ax.get_xlim()[1], height)))
        last = max(place, last + apart, 0.0)
        style = {"va": "center", "ha": "left" if outside else "right", "fontsize": SMALL + 1, "color": colour}
        ax.text(1.02 if outside else 1.0, last, words, transform=ax.transAxes, **style)


def dot(ax: Axes, y: float, interval: Iterable[float], colour: str, marker: str, label: str, least: float) -> None:
    """A value and its interval in a row of a panel; what is smaller than ``least`` is drawn there."""
    value, low, high = interval
    if not np.isfinite(value):
        return
    if np.isfinite([low, high]).all():
        ax.plot([max(low, least), max(high, least)], [y, y], color=colour, lw=1.8, zorder=2, label=f"{label}, 95 %")
    style = {"color": colour, "marker": marker, "ms": 6, "mec": INK, "mew": 0.6, "ls": "", "zorder": 4}
    ax.plot([max(value, least)], [y], label=label, **style)


# styles and legends -----------------------------------------------------------------------------------------------


def kind(look: Estimator, rank: int = 0) -> dict[str, Any]:
    """The style of a line: solid for the first backend; thin and dashed with open markers for others."""
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker}
    if rank == 0:
        return style | {"ls": look.dash, "lw": look.width, "ms": look.size}
    return style | {"ls": (0, (3, 2)), "lw": 1.0, "ms": look.size + 4, "mfc": "none", "mew": 1.2}


def solid(look: Estimator) -> dict[str, Any]:
    """The style of a line that is never dashed."""
    return kind(look) | {"ls": "-"}


def small(look: Estimator) -> dict[str, Any]:
    """The style of a line with small markers."""
    return kind(look) | {"ms": 0.8 * look.size}


def points(look: Estimator) -> dict[str, Any]:
    """The style of markers without a line."""
    return kind(look) | {"ls": ""}


def plain(look: Estimator) -> dict[str, Any]:
    """The style of a line without markers."""
    return {"color": look.colour, "lw": look.width, "ls": look.dash}


def entries(looks: Looks, style: Callable[..., dict] | None = None) -> list:
    """A legend entry for each method."""
    return [entry(look.label, **(style or kind)(look)) for look in looks.values()]


def keys(looks: Looks, known: list[str] | tuple = (), interval: str = "band", style=None) -> list:
    """Legend entries: one for each method, the styles of several backends, and the mark of intervals."""
    handles = entries(looks, style)
    if len(known) > 1:
        dark = Estimator("", FAINT, "o")
        handles.append(entry(f"filled, solid: {known[0]}", **kind(dark)))
        handles.append(entry(f"open, dashed: {', '.join(known[1:])}", **kind(dark, 1)))
    return [*handles, interval_entry(len(looks), interval)] if interval else handles


def interval_entry(count: int, mark: str = "beside") -> Any:
    """The legend entry of the intervals of ``count`` methods, with a mark as for ``draw``."""
    if mark == "bars" or (mark == "beside" and count > BANDS):
        return entry("95 % interval", color=FAINT, lw=2.5, alpha=0.6)
    return patch("95 % interval", color=INK, alpha=BAND)


# panels -----------------------------------------------------------------------------------------------------------


def outer(axes: list[Axes], columns: int, x: str = "", y: str = "") -> None:
    """Labels the outer panels of a grid: ``y`` at the left, ``x`` at the bottom of each column."""
    for rank, ax in enumerate(axes):
        if y and rank % columns == 0:
            ax.set_ylabel(y)
        if x and rank + columns >= len(axes):
            ax.set_xlabel(x)


def grid(count: int, x: str = "", y: str = "", height: float = 2.8) -> tuple[Picture, list[Axes]]:
    """A figure with ``count`` equal panels, two in a row, with outer labels."""
    fig = figure(height * math.ceil(count / min(count, 2)))
    axes = cells(fig, count, min(count, 2))
    outer(axes, 2, x, y)
    fig.align_ylabels(axes[::2])
    return fig, axes


def each(rows: Frame, draw: Callable[[Axes, Frame], Any], x: str, y: str, *, by: str = "problem", height: float = 2.8,
         title: Callable[[Any], str] = str) -> Picture:  # fmt: skip
    """A figure with a panel for each value of the column ``by``; ``draw(panel, rows)`` draws the rows of a value."""
    values = ascending(rows[by])
    fig, axes = grid(len(values), x, y, height)
    for value, ax in zip(values, axes, strict=True):
        ax.set_title(title(value))
        draw(ax, rows[rows[by] == value])
    return fig


def ready(ax: Axes, rows: Frame, why: str, log: str = "y") -> bool:
    """Sets a grid and makes the axes of ``log`` logarithmic; without rows, writes ``why`` and returns False."""
    if not len(rows):
        say(ax, why)
        return False
    for axis in log:
        getattr(ax, f"set_{axis}scale")("log")
    ax.grid()
    return True


def note(ax: Axes, text: str) -> None:
    """Writes a remark about missing lines between a panel and its title, in lines no wider than the panel.

    It comes below those that are there.
    """
    for before in [one for one in ax.texts if one.get_gid() == _NOTE]:
        text = f"{before.get_text()}\n{text}"
        before.remove()
    place = ax.get_subplotspec()
    beside = place.get_gridspec().ncols if place is not None else 1
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, {1: 76, 2: 38}.get(beside, 26))]
    ax.set_title(ax.get_title(loc="left"), pad=20 + _LINE * (len(lines) - 1))
    ax.text(0, 1.02, "\n".join(lines), transform=ax.transAxes, va="bottom", fontsize=SMALL, color=FAINT, gid=_NOTE)


def labels(looks: Looks, methods: Container[str]) -> list[str]:
    """The labels of ``methods``, in the figure's order; variants of one method have a common label.

    >>> from lowvar_studies.reports.drawing.style import searchers
    >>> labels(searchers(["igo", "es_0_1", "es_1"]), ["igo", "es_1", "es_0_1"])
    ['IGO', 'ES 0.1, 1']
    """
    groups: dict[str, list[str]] = {}
    for look in (look for method, look in looks.items() if method in methods):
        groups.setdefault(look.label.removesuffix(look.variant).strip(), []).append(look.variant)
    return [
        text
        for base, some in groups.items()
        for text in ([f"{base} {one}".strip() for one in some] if "" in some else [f"{base} {', '.join(some)}"])
    ]


def notes(ax: Axes, fates: dict[str, list[str]]) -> None:
    """Writes the labels of the methods of each fate, such as ``diverged``, if there are any: a line for each fate."""
    if any(fates.values()):
        note(ax, "\n".join(f"{fate}: {listed(labels)}" for fate, labels in fates.items() if labels))


def listed(labels: list[str]) -> str:
    """Labels as a list whose parts cannot be mistaken.

    >>> listed(["MC", "RQMC"]), listed(["MLMC", "MLMC, 10 particles"])
    ('MC, RQMC', 'MLMC; MLMC, 10 particles')
    """
    return ("; " if any("," in label for label in labels) else ", ").join(labels)


def short(looks: Looks, width: int = 22) -> list[str]:
    """Labels of methods, shortened to fit beside a panel."""
    return [textwrap.shorten(look.label, width, placeholder="...") for look in looks.values()]


def amortised(runs: Iterable[float]) -> str:
    r"""The label, in two lines, of the time of one run of a job that computes several together.

    >>> amortised([50, 50]), amortised([8, 50]), amortised([1])
    ('seconds, amortised over\n50 vectorised runs', 'seconds, amortised over\n8 to 50 vectorised runs', 'seconds')
    """
    numbers = sorted({int(one) for one in runs if math.isfinite(one)})
    if not numbers or numbers[-1] == 1:
        return "seconds"
    ends = " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
    return f"seconds, amortised over\n{ends} vectorised runs"


# axes -------------------------------------------------------------------------------------------------------------


def run_axis(ax: Axes, values: np.ndarray) -> None:
    """Scales the horizontal axis along a run: logarithmic for more than a decade, with room for a 0."""
    values = np.unique(finite(values))
    positive = values[values > 0]
    if len(values) == 1:
        one_tick(ax, values[0])
    elif not len(positive) or positive[-1] < 12 * positive[0]:
        if (values == np.round(values)).all():  # iterations, epochs: none between two of them
            ax.locator_params(axis="x", integer=True)
    elif values[0] <= 0:
        ax.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
        ax.set_xlim(-0.15 * positive[0], positive[-1] * 1.35)
    else:
        ax.set_xscale("log")


def one_tick(ax: Axes, value: float, words: str = "{:.3g}") -> None:
    """A horizontal axis with one value: a tick that names it, and no scale."""
    ax.set_xticks([value], [words.format(value)])
    ax.minorticks_off()


def frame(ax: Axes, low: np.ndarray, middle: np.ndarray, high: np.ndarray) -> None:
    """Sets the limits of a logarithmic axis: intervals are shown up to a factor of 5 beyond the outermost means."""
    ends = [np.nanmin(middle), np.nanmax(middle)]
    ends[0] = max(ends[0] / 5, np.nanmin(np.append(low[low > 0], ends[0])))
    ends[1] = min(ends[1] * 5, np.nanmax(np.append(finite(high), ends[1])))
    room = (ends[1] / ends[0]) ** 0.05 * 1.02
    ax.set_ylim(ends[0] / room, ends[1] * room)


def uncover(fig: Picture) -> None:
    """Nothing lies on another: titles and ticks have room, and of two equal lines both show.

    A title that would run into the next panel or off the page is broken into lines, and an axis whose labels touch
    loses some. A solid line that lies on an earlier one is dashed, so that this shows in the gaps, and the panel says
    so; the names are those of the legend's entries of the same look.
    """
    before = {ax: ax.get_position(original=True) for ax in fig.axes}
    fig.draw_without_rendering()  # places the panels
    for ax in fig.axes:
        _thin(ax.xaxis)
    _break_titles(fig)
    for ax, place in before.items():  # from other places, the layout would end elsewhere
        ax.set_position(place)
        ax.set_in_layout(True)
    handles: list[Any] = [handle for legend in fig.legends for handle in legend.legend_handles]
    names, rows = {_look(handle): handle.get_label() for handle in handles}, set()
    for ax in fig.axes:
        drawn = [line for line in ax.lines if _look(line) in names and line.get_color() != _OTHERS]
        paths = [(line, path) for line in drawn if len(path := _path(ax, line))]
        hidden = {}
        for rank, (line, path) in enumerate(paths):
            for under, other in paths[:rank]:
                if line.get_linestyle() == "-" and _look(under) != _look(line) and _same(path, other):
                    hidden[line] = under
        for line in hidden:
            line.set_linestyle((0, (2.5, 2.5)))
        said = [f"{names[_look(under)]} under {names[_look(line)]}" for line, under in hidden.items()]
        if said:
            note(ax, listed(said) if len(said) <= _SAID else f"{len(said)} lines lie on others")
            place = ax.get_subplotspec()
            rows.add(place.rowspan.start if place is not None else 0)
    fig.set_figheight(fig.get_figheight() + 2 * len(rows) * _LINE / 72)  # panels keep their heights


def _break_titles(fig: Picture) -> None:
    """Breaks the titles that are wider than the space up to the next title, and adds the height of their lines."""
    from matplotlib.text import Text

    page, rows = 0.995 * fig.bbox.width, {}
    for ax in fig.axes:
        words = ax.get_title(loc="left")
        if not words:
            continue
        title = next(one for one in ax.get_children() if isinstance(one, Text) and one.get_text() == words)
        box = ax.get_window_extent()
        beside = [other.get_window_extent() for other in fig.axes if other.get_title(loc="left")]
        right = [other.x0 for other in beside if other.x0 > box.x1 and other.y0 < box.y1 and box.y0 < other.y1]
        _break_title(title, min([*(at - _GAP * fig.dpi / 72 for at in right), page]) - box.x0)
        place = ax.get_subplotspec()
        row, more = place.rowspan.start if place is not None else 0, title.get_text().count("\n") - words.count("\n")
        rows[row] = max(rows.get(row, 0), more)
    fig.set_figheight(fig.get_figheight() + sum(rows.values()) * _LINE / 72)


def _break_title(title: Any, room: float) -> None:
    """Breaks a title behind colons and commas into lines of at most ``room`` pixels, and between words if it must."""

    def fits(words: str) -> bool:
        title.set_text(words.strip())
        return title.get_window_extent().width <= room

    def filled(parts: list[str]) -> list[str]:
        lines = parts[:1]
        for more in parts[1:]:
            if fits(lines[-1] + more):
                lines[-1] += more
            else:
                lines.append(more)
        return lines

    whole = title.get_text()
    lines = [line for text in whole.splitlines()
             for line in ([text] if fits(text) else filled(re.findall(r".+?(?:[:,] |$)", text)))]  # fmt: skip
    lines = [word for line in lines for word in ([line] if fits(line) else filled(re.findall(r"\S+\s*", line)))]
    title.set_text("\n".join(line.strip().removesuffix(",") for line in lines))


def _thin(axis: Axis) -> None:
    """Leaves out every other label of a horizontal axis of numbers while two would touch."""
    from matplotlib.ticker import FixedLocator

    while axis.get_scale() in ("log", "symlog") or not isinstance(axis.get_major_locator(), FixedLocator):
        places, (low, high) = axis.get_majorticklocs(), axis.get_view_interval()
        both = zip(places, axis.get_majorticklabels(), strict=False)
        shown = [(at, one) for at, one in both if one.get_text() and one.get_visible() and low <= at <= high]
        boxes = [label.get_window_extent() for _, label in shown]
        if len(boxes) < 2 * _FEWEST or all(one.x1 + _CLOSE < other.x0 for one, other in pairwise(boxes)):
            return
        axis.set_ticks([at for at, _ in shown[::2]], labels=[label.get_text() for _, label in shown[::2]])


def _look(artist: Any) -> tuple:
    """What tells lines of a legend apart; none for areas."""
    return (str(artist.get_color()), str(artist.get_marker())) if hasattr(artist, "get_marker") else ()


def _path(ax: Axes, line: Any) -> np.ndarray:
    """Evenly spaced points of a line of three or more points, as fractions of its panel, within it."""
    if len(line.get_xdata()) < _LEAST or line.get_transform() != ax.transData:
        return np.empty((0, 2))
    points = ax.transAxes.inverted().transform(ax.transData.transform(np.column_stack(line.get_data()).astype(float)))
    points = points[np.isfinite(points).all(axis=1)]
    if len(points) < _LEAST:
        return np.empty((0, 2))
    lengths = np.append(0.0, np.cumsum(np.hypot(*np.diff(points, axis=0).T)))
    places = np.linspace(0.0, lengths[-1], _SAMPLES)
    path = np.column_stack([np.interp(places, lengths, points[:, axis]) for axis in (0, 1)])
    return path[((path >= 0) & (path <= 1)).all(axis=1)]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two paths are within a line's width of each other."""
    if np.hypot(*(one[[0, -1]] - other[[0, -1]]).T).max() > _WIDTH:
        return False
    apart = np.hypot(*(one[:, None, axis] - other[None, :, axis] for axis in (0, 1)))
    return bool(max(np.quantile(apart.min(axis=axis), _MOSTLY) for axis in (0, 1)) < _WIDTH)


def round_ticks(fig: Picture) -> None:
    """Gives each axis of numbers round ticks: all logarithmic ones, and linear ones with fewer than three in view.

    Ticks that a figure has set stay, and so do axes without labels, such as those of inner panels and of categories.
    """
    for axis in (axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)):
        round_axis(axis)


def round_axis(axis: Axis) -> None:
    """The same for one axis, in its limits of now."""
    if _free(axis) and (places := _round(axis)):
        axis.set_ticks(places, labels=[word(value) for value in places])
        axis.set_ticks([], minor=True)


def _free(axis: Axis) -> bool:
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    logarithmic, locator = axis.get_scale() in ("log", "symlog"), axis.get_major_locator()
    if isinstance(locator, (FixedLocator, NullLocator)) or isinstance(axis.get_major_formatter(), NullFormatter):
        return False
    low, high = sorted(axis.get_view_interval())
    return logarithmic or sum(low <= place <= high for place in axis.get_majorticklocs()) < _TICKS


def _round(axis: Axis) -> list[float]:
    """The sparsest round numbers in view that are at least three."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = sorted(axis.get_view_interval())
    locators: list[Any] = [MaxNLocator(count, steps=[1, 2, 5, 10]) for count in (4, 6, 9)]
    zero: list[float] = []
    if axis.get_scale() in ("log", "symlog"):
        if low <= 0:
            low, zero = axis.get_transform().linthresh, [0.0]  # pyright: ignore
        if high > 4 * low:  # closer together, LogLocator takes as many as fit a linear axis, and their labels overlap
            locators = [LogLocator(subs=subs, numticks=6) for subs in ((1.0,), (1, 3), (1, 2, 5))] + locators
    found: list[float] = []
    for locator in locators:
        places = (float(f"{place:.10g}") for place in locator.tick_values(low, high))
        found = zero + [place for place in places if low * (1 - 1e-9) <= place <= high * (1 + 1e-9)]
        if _TICKS <= len(found) <= _MOST:
            break
    decades = [place for place in found if place > 0 and f"{place:.9e}".startswith("1.000000000")]
    long = any("times" in word(place) for place in found)
    return decades if long and len(decades) > 1 else found


def word(value: float) -> str:
    """A tick's label.

    >>> word(0.0), word(300.0), word(0.15), word(1e5), word(1e-3), word(3e-3), word(3e-5)
    ('0', '300', '0.15', '$10^{5}$', '$10^{-3}$', '0.003', '$3\\\\times 10^{-5}$')
    """
    digits, power = f"{value:.9e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    if value == 0 or (0.01 if digits == "1" else 1e-4) <= abs(value) < 1e4:
        return f"{value:.10g}"
    return f"$10^{{{int(power)}}}$" if digits == "1" else f"${digits}\\times 10^{{{int(power)}}}$"
