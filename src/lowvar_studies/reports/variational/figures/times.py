"""Times of runs: the warm-up that figures leave out, and the cost of iterations."""

from __future__ import annotations

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing.charts import Lines
from lowvar_studies.reports.drawing.rows import one_backend
from lowvar_studies.reports.drawing.style import estimators
from lowvar_studies.reports.variational.convergence import SECONDS
from lowvar_studies.reports.variational.gathering import looks_at

_COLUMNS = ["problem", "method", "backend", "epoch", "iteration", "seconds"]
_FEWEST = 3  # recorded times, so that two are left
WARMED = (
    " The first recorded time of each method is left out where it has three or more: noise of the program's start "
    "dominates it."
)


def warmed(rows: Frame) -> Frame:
    """Rows of the table ``seconds`` without the first recorded time of each method on each problem and backend.

    The start of a run, at 0 seconds, stays. A method with fewer than three recorded times keeps them all.
    """
    recorded = np.isfinite(rows["seconds"]) & (rows["seconds"] > 0) & (rows["epoch"] > 0)
    runs = [rows[name] for name in ("problem", "method", "backend")]
    epochs = rows["epoch"].where(recorded).groupby(runs, dropna=False)
    first = recorded & (rows["epoch"] == epochs.transform("min")) & (epochs.transform("nunique") >= _FEWEST)
    return rows[~first]


def select(seconds: Frame) -> Frame:
    """Each method's times after the warm-up, equal for all its step sizes."""
    rows = one_backend(seconds)[_COLUMNS]
    rows = warmed(rows[np.isfinite(rows["seconds"])]).drop_duplicates(["problem", "method", "epoch"])
    if not len(rows):
        raise UserError("seconds table: no times, so there is nothing to draw")
    return rows.reset_index(drop=True)


COST = Figure(
    "cost", SECONDS, select,
    Lines("iteration", "seconds", estimators, ("iteration", "seconds of a job / its runs"), markers=8,
          empty="not timed", visible=lambda rows: rows[(rows["seconds"] > 0) & (rows["iteration"] > 0)]),
    caption="Elapsed time of one run against its iterations, without compilation, on the machine that made this "
    "report: the time of a job divided by the number of its runs, which it computes together; a single run would take "
    "longer. A falling slope: cheaper steps."
    + WARMED,
    when=looks_at("particles"),
)  # fmt: skip
