"""The picture of `lowvar.decompose(...)` on one model of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowvar.errors import UserError
from lowvar.studies.drawing import tables
from lowvar.studies.drawing.tables import Table
from lowvar.studies.variational.figures.shares import shares

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bars_for_user(decomposition: Table) -> Figure:
    """Draws where the gradient noise of one model comes from, and what each estimator leaves of it.

    Args:
        decomposition: as for `shares`, of one problem.

    Returns:
        A figure with one row of two panels.

    Raises:
        UserError: a column is missing, or the table has more than one problem.
    """
    names = tables.problems(tables.at_end(decomposition))
    if len(names) > 1:
        raise UserError(f"decomposition table: {len(names)} problems ({', '.join(names)}); use figures.shares for them")
    return shares(decomposition)
