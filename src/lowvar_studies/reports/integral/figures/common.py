"""Shared code of figures of integrals: panels and their titles."""

from __future__ import annotations

import re

from lowvar_studies.reports.declarations import Frame
from lowvar_studies.reports.drawing.rows import problems

_TASKS = {"low": "cheap model", "high": "accurate model", "log_evidence": "log evidence"}  # of two fidelities, ...


def compared(rows: Frame) -> Frame:
    """The rows of problems with several methods; all rows where no problem has.

    A panel with one method compares nothing.

    >>> import pandas as pd
    >>> compared(pd.DataFrame({"problem": ["a", "a", "b"], "method": ["mc", "cv", "mc"]}))["problem"].tolist()
    ['a', 'a']
    """
    several = rows.groupby("problem")["method"].transform("nunique") > 1
    return rows[several] if several.any() else rows


def by_sizes(rows: Frame) -> list[tuple[str, str]]:
    """Problem and sizes of each panel."""
    places = {name: rank for rank, name in enumerate(problems(rows))}
    pairs = rows[["problem", "sizes"]].drop_duplicates().itertuples(index=False, name=None)
    return sorted(pairs, key=lambda pair: places[pair[0]])


def in_series(rows: Frame) -> Frame:
    """The rows with one name in place of those of problems that differ in their number of points.

    These are called ``name_10, name_20``, perhaps beside a plain ``name``. Each has one number of points, not that of
    another, and all have the same tasks and methods: such as draws of which each size has its own.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"problem": ["a_10", "a_20", "b_2", "b_5"], "sizes": list("1255"), "method": "mc"})
    >>> in_series(rows)["problem"].tolist()
    ['a', 'a', 'b_2', 'b_5']
    """
    names = list(rows["problem"].drop_duplicates())
    stems = {name: re.sub(r"_\d+$", "", name) for name in names}
    new = {}
    for stem in dict.fromkeys(stems.values()):
        members = [name for name in names if stems[name] == stem]
        each = [rows[rows["problem"] == name] for name in members]
        sizes = [tuple(one["sizes"].unique()) for one in each]
        same = all(_of(one) == _of(each[0]) for one in each)
        if same and len(members) > 1 and len(set(sizes)) == len(sizes) and all(len(one) == 1 for one in sizes):
            new |= dict.fromkeys(members, stem)
    return rows.assign(problem=rows["problem"].replace(new))


def _of(rows: Frame) -> list[set]:
    return [set(rows[column]) for column in ("task", "method") if column in rows]


def title(name: str, task: str = "", sizes: str = "") -> str:
    """The title of a panel, which breaks at its commas and colons where it is too long.

    >>> title("borehole", "f_H", "20"), title("van_der_pol", "log_evidence"), title("step", "high")
    ('borehole: f_H, m = 20', 'van_der_pol: log evidence', 'step: accurate model')
    """
    return ", ".join(filter(None, (f"{name}: {task_words(task)}" if task else name, f"m = {sizes}" if sizes else "")))


def task_words(task: str) -> str:
    """A task in words; one that is not known as it is."""
    return _TASKS.get(task, task)
