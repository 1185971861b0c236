"""Shared code of figures of integrals: rows of one task, titles, ticks."""

from __future__ import annotations

import numpy as np

from lowvar.core.drawing import Axes
from lowvar_studies.reports.declarations import Frame

RUN = ("problem", "method", "backend", "sizes")  # columns that most figures read


def last_task(table: Frame) -> Frame:
    """The rows of each problem's last task."""
    last = table.groupby("problem", sort=False)["task"].transform("last")
    return table[table["task"] == last].reset_index(drop=True)


def by_sizes(rows: Frame) -> list[tuple[str, str]]:
    """Problem and sizes of each panel."""
    return list(rows[["problem", "sizes"]].drop_duplicates().itertuples(index=False, name=None))


def title(name: str, task: str = "", sizes: str = "") -> str:
    """The title of a panel, in two lines if one is too long for half the figure's width.

    >>> title("borehole", "f_H", "20"), title("van_der_pol", "log_evidence", "20")
    ('borehole: f_H, m = 20', 'van_der_pol: log_evidence\\nm = 20')
    """
    what, where = (f"{name}: {task}" if task else name), (f"m = {sizes}" if sizes else "")
    return f"{what}, {where}" if where and len(what) + len(where) < 26 else "\n".join(filter(None, (what, where)))


def places(ax: Axes, values: np.ndarray, room: float = 1.2) -> None:
    """Sets ticks of a logarithmic horizontal axis at the values, as many as fit."""
    values = np.unique(np.asarray(values, float))
    least = (values[-1] / values[0]) ** 0.09 if len(values) > 1 else 1.0
    shown: list[float] = []
    for value in values[::-1]:
        if not shown or shown[-1] / value >= least:
            shown.append(float(value))
    ax.set_xticks(shown[::-1], [f"{value:g}" for value in shown[::-1]])
    ax.minorticks_off()
    ax.set_xlim(values[0] / room, values[-1] * room)
