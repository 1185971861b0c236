"""Gradient variance of each estimator at the end of a run, by source."""

from __future__ import annotations

from lowvar.core.drawing import Picture
from lowvar.errors import UserError
from lowvar.vi.plots import shares
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing.rows import require
from lowvar_studies.reports.drawing.style import estimators
from lowvar_studies.reports.variational.gathering import first_setting

DECOMPOSITION = ("problem", "method", "block", "source", "variance", "low", "high")  # columns that its figures read


def select(decomposition: Frame) -> Frame:
    """Every estimator at the last moment of the run, over all parameters."""
    require(decomposition, (*DECOMPOSITION, "end", "share", "share_low", "share_high"), "decomposition")
    decomposition = first_setting(decomposition)
    rows = decomposition[decomposition["end"].eq(True) & (decomposition["block"] == "all")]
    if not len(rows):
        raise UserError("decomposition table: no row with end = True and block = 'all'")
    return rows.reset_index(drop=True)


def draw(rows: Frame) -> Picture:
    """The shares with the labels of the report."""
    return shares(rows, {name: look.label for name, look in estimators(rows["method"]).items()})


SHARES = Figure(
    "shares", "decomposition", select, draw,
    caption="Variance of each gradient estimator by source: subsampling of the data, Monte Carlo noise, and their "
    "interaction. All are measured at the end of one run, that of the leader (the experiment's "
    "`decomposition.leader`). Left: shares. Right: total and parts. Whiskers are 95 % intervals.",
    answer="variance of the gradient by source and estimator, all at the end of the same run. Left: shares; right: "
    "totals and parts, with 95 % intervals.",
)  # fmt: skip
