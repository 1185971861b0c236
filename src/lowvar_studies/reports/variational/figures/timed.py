"""Shared code of figures of times: the warm-up of runs."""

from __future__ import annotations

import numpy as np

from lowvar_studies.reports.declarations import Frame

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
