"""Shared code of figures of integrals: panels and their titles."""

from __future__ import annotations

from lowvar_studies.reports.declarations import Frame
from lowvar_studies.reports.drawing.rows import problems


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


def title(name: str, task: str = "", sizes: str = "") -> str:
    """The title of a panel, in two lines if one is too long for half the figure's width.

    >>> title("borehole", "f_H", "20"), title("van_der_pol", "log_evidence", "20")
    ('borehole: f_H, m = 20', 'van_der_pol: log_evidence\\nm = 20')
    """
    what, where = (f"{name}: {task}" if task else name), (f"m = {sizes}" if sizes else "")
    return f"{what}, {where}" if where and len(what) + len(where) < 26 else "\n".join(filter(None, (what, where)))
