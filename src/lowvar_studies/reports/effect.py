"""Shared code of effects: the result type, argument types, selection of table rows, and comparisons of two methods.

An effect is a function ``effect(tables, **arguments) -> Effect | Effects`` that ``Declared.effect`` registers in a
family's ``EFFECTS``, or here in ``SHARED``, which serves all families. Its signature declares a claim's arguments, with
their types and defaults.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from lowvar.core.intervals import NORMAL, bootstrap_ratio, mean_interval, rank_interval
from lowvar.errors import UserError, check_known

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Rivals = Annotated[tuple[str, ...], Field(min_length=1)]
Interval = Literal["t", "rank"]

INTERVALS = {"t": mean_interval, "rank": rank_interval}
UNKNOWN = (np.nan, np.nan, np.nan)  # a value without an interval, and without a value


@dataclass(frozen=True)
class Effect:
    """A number that a claim tests.

    Attributes:
        value: the estimate.
        low: lower end of its 95 % interval, NaN without one.
        high: upper end.
        pairs: number of repetitions, or of pairs, if the verdict depends on it.
        note: what was compared, for the claim's note.
        bounds: the smallest and the largest value that the results allow, if they differ from ``low`` and ``high``; NaN
            if the results decide nothing. Bounds are exact: one that equals a strict bound violates it.
        counted: the value is a share over repetitions: a claim on all or none holds if the value itself meets the
            bound, and fails if the interval excludes it.
        reach: of a count or share: the largest ``low`` and the smallest ``high`` that as many repetitions can give.
        errors: standard errors of the value that add in quadrature; the first is that over repetitions.
        rank: orders effects in place of ``value``.
    """

    value: float
    low: float = np.nan
    high: float = np.nan
    pairs: int | None = None
    note: str = ""
    bounds: tuple[float, float] | None = None
    counted: bool = False
    reach: tuple[float, float] | None = None
    errors: tuple[float, ...] = ()
    rank: float | None = None

    @classmethod
    def from_interval(cls, values: Iterable, **more: Any) -> "Effect":
        """An effect from a value and the two ends of its interval."""
        value, low, high = (float(one) for one in values)
        return cls(value, low, high, **more)

    @classmethod
    def certain(cls, value: float, note: str = "") -> "Effect":
        """A value without sampling error."""
        return cls(float(value), note=note, bounds=(float(value), float(value)))

    @classmethod
    def undecided(cls, note: str) -> "Effect":
        """An effect without a value; the note says why."""
        return cls(np.nan, note=note)


@dataclass(frozen=True)
class Effects:
    """An effect for each rival, or for each moment of a run: a claim holds if it holds for all.

    Attributes:
        each: not empty. The claim's row shows the worst for the claim, of those that decide its verdict.
        before: notes before the note of that effect.
        after: notes after it.
    """

    each: Sequence[Effect]
    before: Sequence[str] = ()
    after: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.each:
            raise UserError("others: name at least one method to compare with")


def compare(mine, theirs, how: Literal["difference", "geometric", "means"], interval: Interval = "t",
            note: str = "") -> Effect:  # fmt: skip
    """A method's values compared with another's, over the pairs of repetitions that both have.

    Args:
        mine: the method's values by repetition, a pandas series.
        theirs: the other's.
        how: ``difference`` of means; ``geometric``: the ratio of geometric means, of values that are logarithms;
            ``means``: the ratio of arithmetic means, with a bootstrap interval. In ratios less is better: a value that
            is infinite or NaN makes them infinite, or 0 if it is theirs.
        interval: ``t``, or ``rank``: the median over pairs in place of the mean, with its distribution-free interval.
        note: as in ``Effect``.
    """
    pairs = mine.index.intersection(theirs.index)
    a, b = (values[pairs].to_numpy(float) for values in (mine, theirs))
    lost = [not (values < np.inf).all() for values in (a, b)]
    if not len(pairs) or (how != "difference" and all(lost)):
        found: Iterable = UNKNOWN
    elif how != "difference" and any(lost):
        found = (np.inf if lost[0] else 0.0,) * 3
    elif how == "means":
        found = bootstrap_ratio(a, b)
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # ELBOs of diverged runs can overflow
            found = centre(a - b, interval)
            found = np.exp(found) if how == "geometric" else found
    return Effect.from_interval(found, pairs=len(pairs), note=note)


def centre(values, interval: Interval = "t") -> tuple[float, float, float]:
    """The mean or median of values and its interval; without values, or for a mean that is not finite, NaN."""
    values = np.asarray(values, float)
    known = len(values) and (interval == "rank" or np.isfinite(values).all())
    return INTERVALS[interval](values) if known else UNKNOWN


def statistic(interval: Interval) -> str:
    """The statistic of an interval, for notes; empty for a mean."""
    return "" if interval == "t" else "median and its rank interval; "


class Declared(dict[str, Callable[..., Effect | Effects]]):
    """Effects by name."""

    def effect(self, function: Callable) -> Callable:
        """Declares a function as an effect under its own name."""
        self[function.__name__] = function
        return function


class Missing(UserError):
    """A table, or rows of it with the values ``wanted``, that an effect needs and the results do not have."""

    def __init__(self, table: str, **wanted: Any) -> None:
        described = ", ".join(f"{column} {value}" for column, value in wanted.items())
        rows = f"the table {table!r} has no rows of {described}"
        super().__init__(rows if wanted else f"it needs the table {table!r}, which this experiment does not have")
        self.table, self.wanted = table, wanted


def table(tables, name: str) -> Any:
    """A table of the experiment; Missing if there is none of this name."""
    if name not in tables:
        raise Missing(name)
    return tables[name]


def select(frame, **wanted) -> Any:
    """The rows whose columns have these values; numbers that are no integers up to rounding."""
    same = [
        np.isclose(frame[column].astype(float), value, rtol=1e-9, atol=0)
        if isinstance(value, float)
        else frame[column] == value
        for column, value in wanted.items()
    ]
    return frame[np.logical_and.reduce(same)]


def rows(tables, name: str, **wanted) -> Any:
    """The rows of a table whose columns have these values; Missing if there are none."""
    matches = select(table(tables, name), **wanted)
    if not len(matches):
        raise Missing(name, **wanted)
    return matches


SHARED = Declared()


@SHARED.effect
def value(tables, table: str, column: str, at: dict[str, Any], truth: bool = False,
          published_repetitions: Count | None = None):  # fmt: skip
    """The number in a ``column`` of the only row of a ``table`` that has the values ``at``, with its interval.

    It is infinite if a repetition failed. With ``truth``, the interval is widened by that of the true value, whose
    standard error is in the column ``truth_error``. With ``published_repetitions``, for a published mean of so many
    repetitions without a standard error (``ours``), the standard error is such that two of it add up, in quadrature, to
    ours and to ours over that many repetitions.
    """
    found = _only_row(tables, table, at, column)
    number, low, high = (float(found.get(name, np.nan)) for name in (column, *_ends(column, found)))
    if math.isnan(number) and found.get("failed"):
        number = low = high = np.inf
    elif truth and math.isinf(number):
        low = high = number
    elif truth:
        half, own = NORMAL * float(found["truth_error"]), _ends(column, found)[0] in found
        low, high = (max(low - half, 0.0), high + half) if own else (number - half, number + half)
    errors = ()
    if f"{column}_se" in found:
        more = 1.0 if published_repetitions is None else float(found["repetitions"]) / published_repetitions
        errors = (float(found[f"{column}_se"]) * math.sqrt((1 + more) / 2), float(found["truth_error"]))
    return Effect(number, low, high, pairs=found.get("repetitions"), note=about(found), errors=errors)


def _only_row(tables, name, at, *columns):
    """The only row of a table with the values ``at``; Missing if there are none.

    Raises:
        UserError: an unknown column, or several such rows.
    """
    known = list(table(tables, name).columns)
    for column in (*at, *columns):
        check_known("column", column, known, where=f"table {name!r}")
    at = {column: str(wanted) if column == "sizes" else wanted for column, wanted in at.items()}  # 20 or 40/20
    matches = rows(tables, name, **at)
    if len(matches) > 1:
        apart = [column for column in known if column not in at and matches[column].nunique(dropna=False) > 1]
        raise UserError(f"the table {name!r} has {len(matches)} rows of these values, which differ in {apart[:3]}")
    return matches.iloc[0]


def _ends(column: str, row) -> tuple[str, str]:
    """The columns with the ends of a statistic's interval."""
    stem = column.removesuffix("mean").removesuffix("_")
    own = f"{stem}_low".strip("_"), f"{stem}_high".strip("_")
    return own if own[0] in row or column not in ("mean", "variance", "mae") else ("low", "high")


def about(row) -> str:
    """Sizes and repetitions of a row about integrals, generations of a rate, or the runs of a variance, as text.

    >>> about({"sizes": "40/20", "repetitions": 100, "failed": 2})
    'sizes 40/20, 100 repetitions (2 failed)'
    """
    if "first" in row:
        return f"generations {row['first']} to {row['last']}"
    if "sizes" not in row:
        return f"{row['runs']} runs" if row.get("runs", 1) > 1 else ""
    failed = f" ({row['failed']} failed)" if row["failed"] else ""
    return f"sizes {row['sizes']}, {row['repetitions']} repetitions{failed}"


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "pair"), count(3, "pair")
    ('1 pair', '3 pairs')
    """
    return f"{number} {noun}{'s' * (number != 1)}"
