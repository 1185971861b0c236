"""All numbers that the papers print, in one picture: ours divided by the published one."""

from __future__ import annotations

from collections.abc import Mapping

from lowvar.core import drawing
from lowvar.core.drawing import FAINT, INK, Picture
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
_SMALLEST = 1e-4  # ratio that is drawn


def ratios(pages: Mapping[str, Page]) -> Frame:
    """Ours divided by the published number, with its interval: a row for each number of a paper that is no bound
    and was made.

    Args:
        pages: kept pages by name.

    Returns:
        Columns ``paper``, ``source`` (a table, figure or section), ``page``, ``claim``, ``ratio, low, high``,
        ``verdict`` and ``cause``.

    Raises:
        UserError: the pages have no such number.
    """
    import pandas as pd

    found = []
    for paper, short in _SHORT.items():
        for name in (name for name in pages if name.partition("_")[0] == paper):
            file = pages[name].study.claims
            stated = {one.id: one.test for one in (judging.load(file) if file else ())}
            for row in pages[name].verdicts.itertuples():
                test, source = stated.get(row.id), str(row.source).partition(",")[0].partition(";")[0]
                if row.verdict != NOT_MADE and test and _is_number(test) and source.startswith(_PRINTED):
                    numbers = (value / test.published for value in (row.ours, row.low, row.high))
                    found.append((short, source, name, row.id, *numbers, row.verdict, row.cause))
    heads = ["paper", "source", "page", "claim", "ratio", "low", "high", "verdict", "cause"]
    rows = pd.DataFrame(found, columns=heads)
    if not len(rows):
        raise UserError("<!-- published -->: no kept page has a published number of a table, figure or section")
    papers = pd.Categorical(rows["paper"], list(_SHORT.values()))
    order = rows.assign(paper=papers).sort_values(["paper", "source"], kind="stable").index
    return rows.loc[order].reset_index(drop=True)


def _is_number(test) -> bool:
    """Whether a claim's published value is a positive number, and not a bound."""
    return bool(test.published and test.published > 0) and test.at_most is test.at_least is None


@drawing.with_style
def draw(rows: Frame) -> Picture:
    """A lane for each table, figure or section; the numbers of one lie below each other, each with its interval."""
    lanes = rows.groupby(["paper", "source"], sort=False)
    fig = drawing.figure(_HEIGHT * sum(max(len(lane), _LEAST) + _GAP for _, lane in lanes) + 0.6)
    ax = fig.subplots()
    ax.set_xscale("log")
    y, ticks = 0.0, {}
    for (paper, source), lane in lanes:
        height = max(len(lane), _LEAST)
        ax.axhspan(y - 0.5, y + height - 0.5, color="#F5F5F5", lw=0, zorder=0)
        ticks[y + (height - 1) / 2] = f"{paper}, {source}"
        for rank, row in enumerate(lane.to_dict("records")):
            _, colour, marker = _LOOKS[row["verdict"], row["cause"]]
            place = y + (height - len(lane)) / 2 + rank
            interval = (row["ratio"], row["low"], row["high"])
            charts.dot(ax, place, interval, colour, marker, row["claim"], _SMALLEST)
        y += height + _GAP
    ax.set_ylim(y - _GAP, -1)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.axvline(1.0, color=INK, lw=1.1, ls=(0, (1, 2)), zorder=1)
    ax.set_xlabel("our number / published number")
    met = set(zip(rows["verdict"], rows["cause"], strict=True))
    keys = [
        drawing.entry(word, ls="", color=colour, marker=marker, ms=6, mec=INK, mew=0.6)
        for key, (word, colour, marker) in _LOOKS.items()
        if key in met
    ]
    drawing.legend(fig, [*keys, drawing.entry("95 % interval", color=FAINT, lw=1.8)])
    charts.round_ticks(fig)
    return fig
