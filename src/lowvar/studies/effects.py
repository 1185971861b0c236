"""What effects share: the result type, argument types, and rows of tables.

An effect is a function ``effect(tables, **arguments) -> Effect | Effects`` that ``Declared.effect`` puts into a
family's ``EFFECTS``. Its signature declares the arguments that a claim may give, with their types and defaults.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from lowvar.errors import UserError

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Rivals = Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Effect:
    """A number that a claim is about.

    Attributes:
        value: the estimate.
        low: lower end of its 95 % interval, NaN without one.
        high: upper end.
        pairs: repetitions, or pairs of them, that it rests on, where the verdict depends on them.
        note: what was compared, for the claim's note.
        bounds: the least and the largest value that the results allow, where these are not ``low`` and ``high``; NaN
            where the results decide nothing. They are not estimates, so that one equal to a strict bound violates it.
        counted: the value is a count over the repetitions that ran: the claim holds where the value itself meets the
            bound, and fails where the interval excludes it.
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
    errors: tuple[float, ...] = ()
    rank: float | None = None

    @classmethod
    def of(cls, values: Iterable, **more: Any) -> "Effect":
        """From a value and the ends of its interval."""
        value, low, high = (float(one) for one in values)
        return cls(value, low, high, **more)

    @classmethod
    def read(cls, row, name: str, **more: Any) -> "Effect":
        """From the columns ``name``, ``name_low`` and ``name_high`` of a row."""
        return cls.of((row[name], row[f"{name}_low"], row[f"{name}_high"]), **more)

    @classmethod
    def certain(cls, value: float, note: str = "") -> "Effect":
        """A value without sampling error."""
        return cls(float(value), note=note, bounds=(float(value), float(value)))

    @classmethod
    def undecided(cls, note: str) -> "Effect":
        """No value, and why."""
        return cls(np.nan, note=note)


@dataclass(frozen=True)
class Effects:
    """An effect for each rival, or for each moment of a run: a claim holds where it holds for all.

    Attributes:
        each: not empty. The claim's row shows the one that is worst for the claim.
        before: notes that precede that one's own.
        after: notes that follow it.
    """

    each: Sequence[Effect]
    before: Sequence[str] = ()
    after: Sequence[str] = ()


class Declared(dict[str, Callable[..., Effect | Effects]]):
    """Effects by name."""

    def effect(self, function: Callable) -> Callable:
        """Declares a function as an effect under its own name."""
        self[function.__name__] = function
        return function


def table(tables, name: str) -> Any:
    """One of the experiment's tables; an error if it has none of this name."""
    if name not in tables:
        raise UserError(f"it needs the table {name!r}, which this experiment does not have")
    return tables[name]


def select(frame, **wanted) -> Any:
    """The rows whose columns have these values."""
    return frame[np.logical_and.reduce([frame[column] == value for column, value in wanted.items()])]


def rows(tables, name: str, **wanted) -> Any:
    """The rows of a table whose columns have these values; an error if there are none."""
    there = select(table(tables, name), **wanted)
    if not len(there):
        raise missing(name, **wanted)
    return there


def row(tables, name: str, **wanted) -> Any:
    """The one row of a table whose columns have these values; an error if there are none or several."""
    there = rows(tables, name, **wanted)
    if len(there) != 1:
        raise missing(name, **wanted)
    return there.iloc[0]


def missing(name: str, **wanted) -> UserError:
    """The error for a table without rows of these values."""
    described = ", ".join(f"{column} {value}" for column, value in wanted.items())
    return UserError(f"the table {name!r} has no rows of {described}")


def count(number: int, noun: str) -> str:
    """A number and its noun.

    >>> count(1, "pair"), count(3, "pair")
    ('1 pair', '3 pairs')
    """
    return f"{number} {noun}{'s' * (number != 1)}"
