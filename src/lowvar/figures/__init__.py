"""Room 8: tables into pictures.

Each figure is a function from a table (pandas) to a `matplotlib.figure.Figure` that pyplot knows nothing of;
`FIGURES` lists them by name. Under the same names, `NEEDS` says which table a figure draws, and `DATA` has
what selects its rows: those are what `save` writes beside the picture. `picture` does all three steps.
matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowvar.errors import unknown_name
from lowvar.figures.along import along
from lowvar.figures.convergence import convergence
from lowvar.figures.save import save
from lowvar.figures.shares import shares
from lowvar.figures.steps import steps
from lowvar.figures.tables import Table, along_run, at_best_step, at_end, at_last_iteration
from lowvar.figures.user import bars_for_user

FIGURES: dict[str, Callable[..., Any]] = {
    "shares": shares,
    "along": along,
    "convergence": convergence,
    "steps": steps,
    "bars_for_user": bars_for_user,
}
DATA: dict[str, Callable[..., Any]] = {
    "shares": at_end,
    "along": along_run,
    "convergence": at_best_step,
    "steps": at_last_iteration,
    "bars_for_user": at_end,
}
NEEDS = {name: "convergence" if name in ("convergence", "steps") else "decomposition" for name in FIGURES}


def picture(name: str, table: Table, stem: str | os.PathLike, **options: Any) -> list[Path]:
    """Draws one figure of the registry and saves it with the rows that it shows.

    Args:
        name: one of `FIGURES`.
        table: what that figure draws.
        stem: path without its ending.
        options: the figure's own keywords, e.g. ``x="seconds"``.

    Returns:
        The paths of the vector, the bitmap and the csv.

    Raises:
        UserError: an unknown name, a missing column, or a folder that cannot be written.
    """
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    selecting = {key: value for key, value in options.items() if key in ("x", "blocks")}
    return save(FIGURES[name](table, **options), stem, DATA[name](table, **selecting))


__all__ = [
    "DATA",
    "FIGURES",
    "NEEDS",
    "along",
    "bars_for_user",
    "convergence",
    "picture",
    "save",
    "shares",
    "steps",
]
