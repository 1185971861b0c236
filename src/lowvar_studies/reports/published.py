"""All numbers that the papers print, in one picture: ours divided by the published one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, SMALL, Axes, Picture
from lowvar.errors import UserError
from lowvar_studies.reports import claims as judging
from lowvar_studies.reports.claims import NOT_MADE
from lowvar_studies.reports.declarations import Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.pages import Page

_SHORT = {"joint": "joint", "mlmc": "MLMC", "ingo": "INGO", "vvcv": "vv-CV"}  # papers, by the first word of their pages
_PRINTED = "Table", "Figure", "Section"
_LOOKS = {
    ("holds", ""): ("holds", "#0072B2", "o"),
    ("fails", "paper"): ("fails, for the paper's reason", "#D55E00", "D"),
    ("fails", "setting"): ("fails, for our setting", "#E69F00", "^"),
    ("fails", ""): ("fails, cause unknown", "#882255", "X"),
    ("undecided", ""): ("undecided", "#999999", "s"),
}
_HEIGHT, _LEAST, _GAP = 0.085, 3, 1.0  # inches of a number, the numbers that a lane has room for, and between lanes
_NAMED = 1.8  # room of a number with a name
_FARTHEST = 5  # factor from which on numbers are at the edge, with their names
_EDGE = 1.12  # the axis ends at this factor beyond it
_TICKS = [0.2, 0.5, 1, 2, 5]
_SMALLEST = 1e-4  # end of an interval that is drawn
_APART = {"lw": 0.9, "solid_capstyle": "butt"}
_MAY = {"color": "#C4C4C4", "lw": 4.5, "solid_capstyle": "butt", "zorder": 1.5}
_HEADS = ["paper", "source", "page", "claim", "ratio", "low", "high", "apart_low", "apart_high", "may_low", "may_high",
          "verdict", "cause"]  # fmt: skip


def ratios(pages: Mapping[str, Page]) -> Frame:
    """Ours divided by the published number, with its interval: a row for each number of a paper that is no bound
    and was made.

    Args:
        pages: kept pages by name.

    Returns:
        Columns ``paper``, ``source`` (a table, figure or section), ``page``, ``claim``, ``ratio, low, high``,
        ``apart_low, apart_high`` (two combined standard errors on either side, where these decide),
        ``may_low, may_high`` (the tolerance, where it decides), ``verdict`` and ``cause``.

    Raises:
        UserError: the pages have no such number.
    """
    import pandas as pd

    found = []
    for paper, short in _SHORT.items():
        for name in (name for name in pages if name.partition("_")[0] == paper):
            page = pages[name]
            stated = {one.id: one for one in (judging.load(page.study.claims) if page.study.claims else ())}
            for row in page.verdicts.itertuples():
                claim: Any = stated.get(row.id)
                source = str(row.source).partition(",")[0].partition(";")[0]
                if row.verdict != NOT_MADE and claim and _is_number(claim.test) and source.startswith(_PRINTED):
                    ends = (row.ours, row.low, row.high, *_apart(claim, page, row.ours), *_tolerated(claim.test))
                    numbers = (value / claim.test.published for value in ends)
                    found.append((short, source, name, row.id, *numbers, row.verdict, row.cause))
    rows = pd.DataFrame(found, columns=_HEADS)
    if not len(rows):
        raise UserError("<!-- published -->: no kept page has a published number of a table, figure or section")
    papers = pd.Categorical(rows["paper"], list(_SHORT.values()))
    order = rows.assign(paper=papers).sort_values(["paper", "source"], kind="stable").index
    return rows.loc[order].reset_index(drop=True)


def _is_number(test) -> bool:
    """Whether a claim's published value is a positive number, and has no bound beside it."""
    return bool(test.published and test.published > 0) and not test.upper and not test.lower


def _apart(claim, page: Page, ours: float) -> tuple[float, float]:
    """How far from ours the published value may be: two combined standard errors; NaN where a tolerance decides, or
    the page's rows are those of other settings."""
    test = claim.test
    if test.published_se is None or page.experiment.hash != page.about["spec"]:
        return math.nan, math.nan
    half = judging.STANDARD_ERRORS * judging.combined_error(test, max(claim.measure(page).each, key=test.badness))
    return ours - half, ours + half


def _tolerated(test) -> tuple[float, float]:
    """The ends of the tolerance of a published value; NaN where standard errors decide."""
    if test.published_se is not None:
        return math.nan, math.nan
    (_, most, *_), (_, least, *_) = test.limits()
    return -least, most


@drawing.with_style
def draw(rows: Frame) -> Picture:
    """A lane for each table, figure or section; the numbers of one lie below each other, each with what decides it.

    A number beyond a factor of five is at the edge, with its ratio and the name of its claim.
    """
    far = (rows["ratio"] > _FARTHEST) | (rows["ratio"] < 1 / _FARTHEST)
    rows = rows.assign(far=far, room=np.where(far, _NAMED, 1.0))
    lanes = rows.groupby(["paper", "source"], sort=False)
    fig = drawing.figure(_HEIGHT * sum(max(lane["room"].sum(), _LEAST) + _GAP for _, lane in lanes) + 0.6)
    ax = fig.subplots()
    ax.set_xscale("log")
    ax.set_xlim(1 / _FARTHEST / _EDGE, _FARTHEST * _EDGE)
    y, ticks = 0.0, {}
    for (paper, source), lane in lanes:
        height = max(lane["room"].sum(), _LEAST)
        ax.axhspan(y, y + height, color="#F5F5F5", lw=0, zorder=0)
        ticks[y + height / 2] = f"{paper}, {source}"
        place = y + (height - lane["room"].sum()) / 2
        for row in lane.to_dict("records"):
            _number(ax, place + row["room"] / 2, row)
            place += row["room"]
        y += height + _GAP
    ax.set_ylim(y - _GAP, -0.5)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    ax.minorticks_off()
    ax.axvline(1.0, color=INK, lw=1.1, ls=(0, (1, 2)), zorder=1)
    ax.set_xlabel("our number / published number")
    drawing.legend(fig, _keys(rows))
    return fig


def _number(ax: Axes, y: float, row: dict) -> None:
    """A number with its interval, and with two combined standard errors or the tolerance."""
    _, colour, marker = _LOOKS[row["verdict"], row["cause"]]
    ratio, claim = row["ratio"], row["claim"]
    if row["may_low"] == row["may_low"]:
        ax.plot([row["may_low"], row["may_high"]], [y, y], label=f"{claim}, tolerance", **_MAY)
    if row["apart_low"] == row["apart_low"]:
        ends = [max(row["apart_low"], _SMALLEST), row["apart_high"]]
        ax.plot(ends, [y, y], color=colour, label=f"{claim}, standard errors", **_APART)
    edge = _FARTHEST * _EDGE**0.5
    shown = min(max(ratio, 1 / edge), edge)
    interval = (shown, *((shown, shown) if row["far"] else (row["low"], row["high"])))
    charts.dot(ax, y, interval, colour, marker, claim, _SMALLEST)
    if row["far"]:
        number = f"{float(f'{ratio:.2g}'):g}"  # 2400, not 2.4e+03
        words, side, shift = (f"{claim}: {number} →", "right", -6) if ratio > 1 else (f"← {number}: {claim}", "left", 6)
        style = {"ha": side, "va": "center", "fontsize": SMALL, "xytext": (shift, 0), "textcoords": "offset points"}
        ax.annotate(words, (shown, y), **style)


def _keys(rows: Frame) -> list:
    met = set(zip(rows["verdict"], rows["cause"], strict=True))
    keys = [
        drawing.entry(word, ls="", color=colour, marker=marker, ms=6, mec=INK, mew=0.6)
        for key, (word, colour, marker) in _LOOKS.items()
        if key in met
    ]
    keys.append(drawing.entry("95 % interval of ours", color=FAINT, lw=1.8))
    if rows["apart_low"].notna().any():
        keys.append(drawing.entry("± 2 standard errors of both: must reach 1", color=FAINT, **_APART))
    if rows["may_low"].notna().any():
        keys.append(drawing.entry("tolerance: the interval must lie in it", **_MAY))
    return keys
