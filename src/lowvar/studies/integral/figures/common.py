"""Shared code of figures of integrals: rows of one task, titles, ticks."""

from __future__ import annotations

import numpy as np

from lowvar.core.drawing import Axes
from lowvar.errors import UserError, unknown_name
from lowvar.studies.declarations import Frame

RUN = ("problem", "method", "backend", "sizes")  # columns that most figures read


def one_task(table: Frame, task: str | None, what: str) -> Frame:
    """The rows of one task, by default each problem's last."""
    if task is None:
        chosen = table.groupby("problem", sort=False)["task"].transform("last")
    elif task in set(table["task"]):
        chosen = task
    else:
        raise unknown_name("task", task, set(table["task"]), where=f"{what} table")
    return table[table["task"] == chosen].reset_index(drop=True)


def some_sizes(table: Frame, sizes: str | tuple[str, ...] | None, what: str) -> Frame:
    """The rows of some sizes, by default of all."""
    if sizes is None:
        return table
    wanted = [sizes] if isinstance(sizes, str) else list(sizes)
    rows = table[table["sizes"].isin(wanted)].reset_index(drop=True)
    if not len(rows):
        known = ", ".join(table["sizes"].drop_duplicates())
        raise UserError(f"{what} table: no rows of sizes {', '.join(wanted)}; there are {known}")
    return rows


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


def powers(ax: Axes) -> None:
    """Sets ticks of a logarithmic vertical axis: powers of ten, or more if there are fewer than two."""
    low, high = np.log10(ax.get_ylim())
    inside = range(int(np.ceil(low)), int(np.floor(high)) + 1)
    step = int(np.ceil(len(inside) / 7))
    chosen = [power for power in inside if power % max(step, 1) == 0]
    if len(inside) > 1:
        ax.set_yticks([10.0**power for power in chosen], [f"$10^{{{power}}}$" for power in chosen])
    else:
        fine = [digit * 10.0**power for power in range(int(low) - 2, int(high) + 3) for digit in (1, 2, 3, 5)]
        fine = [value for value in fine if 10**low <= value <= 10**high]
        ax.set_yticks(fine, [f"{value:g}" for value in fine])
    ax.minorticks_off()
