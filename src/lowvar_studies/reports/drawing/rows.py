"""Selection of table rows for all figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lowvar.core.backend import BACKENDS
from lowvar_studies.reports.declarations import Frame


def whole(table: Frame) -> Frame:
    """A ``Figure.select`` for all rows."""
    return table


def problems(rows: Frame) -> list[str]:
    """The problems of a table, in the order of ``ascending``."""
    return ascending(rows["problem"])


def ascending(names: Iterable[str]) -> list[str]:
    """Names in the order in which they first appear, but ``name_10, name_5`` by their numbers.

    If there is a plain ``name``, the others are variants of it, and stay behind it as they are.

    >>> ascending(["hares_10", "borehole", "hares_2", "hares_10"])
    ['hares_2', 'hares_10', 'borehole']
    >>> ascending(["fashion", "fashion_80", "fashion_20", "0.01", "0.005"])
    ['fashion', 'fashion_80', 'fashion_20', '0.01', '0.005']
    """
    names, first, places = list(dict.fromkeys(names)), {}, {}
    for rank, name in enumerate(names):
        numbered = re.fullmatch(r"(.+)_(\d+)", str(name))
        stem, number = (numbered[1], int(numbered[2])) if numbered and numbered[1] not in names else (name, 0)
        places[name] = (first.setdefault(stem, rank), number)
    return sorted(names, key=lambda name: places[name])


def backends(rows: Frame) -> list[str]:
    """The backends of a table, in the order of ``BACKENDS``; a method with several is drawn in the first."""
    present = set(rows["backend"])
    return [name for name in BACKENDS if name in present] + sorted(present - set(BACKENDS))


def one_backend(table: Frame) -> Frame:
    """The rows of the first backend of each method on each problem."""
    rank = table["backend"].map({name: place for place, name in enumerate(backends(table))})
    first = rank.groupby([table["problem"], table["method"]], dropna=False).transform("min")
    return table[rank == first].reset_index(drop=True)


def in_order(rows: Frame, *by: str) -> Frame:
    """Rows sorted by columns: numbers by size, text by first appearance."""
    import pandas as pd

    def rank(column):
        return pd.Series(pd.factorize(column)[0], column.index) if column.dtype.kind not in "iuf" else column

    return rows.sort_values(list(by), kind="stable", key=rank).reset_index(drop=True)


def part(rows: Frame, **wanted: object) -> Frame:
    """The rows that have these values."""
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return rows


def by_hue(rows: Frame, looks: Iterable[str], hue: str = "method", order: str = "") -> Iterator[tuple[str, Frame]]:
    """The methods with rows, in the figure's order, and their rows, sorted by the column ``order``."""
    for key in looks:
        line = rows[rows[hue] == key]
        if len(line):
            yield key, line.sort_values(order, kind="stable") if order else line


def positive(rows: Frame, column: str) -> Frame:
    """The rows that a logarithmic axis can show."""
    return rows[np.isfinite(rows[column]) & (rows[column] > 0)]


def numbers(rows: Frame, *columns: str) -> list[np.ndarray]:
    """Columns as arrays of float64."""
    return [rows[column].to_numpy(float) for column in columns]


def log_slopes(rows: Frame, by: list[str], x: str, y: str) -> list[float]:
    """For each row, the slope of log ``y`` against log ``x`` in its group, by least squares.

    Values that are not positive and finite are left out; the slope is NaN for fewer than two ``x``.
    """

    def slope(group: Frame) -> float:
        group = positive(group, y)
        if group[x].nunique() < 2:
            return float("nan")
        return float(np.polyfit(np.log(group[x].to_numpy(float)), np.log(group[y].to_numpy(float)), 1)[0])

    found = {key: slope(group) for key, group in rows.groupby(by, sort=False)}
    return [found[key] for key in zip(*(rows[name] for name in by), strict=True)]


def finite(values: Any) -> np.ndarray:
    """The finite ones among values."""
    values = np.asarray(values, float)
    return values[np.isfinite(values)]
