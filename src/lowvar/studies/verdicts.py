"""What the kinds of claims share: strict models, tables by name, verdicts of intervals."""

import pydantic

from lowvar.errors import UserError


class Strict(pydantic.BaseModel):
    """A model that refuses keys which it does not know."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


def look_up(tables, name: str):
    """One of the experiment's tables.

    Raises:
        UserError: the experiment has no such table.
    """
    if name not in tables:
        raise UserError(f"a claim needs the table {name!r}, which this experiment does not have")
    return tables[name]


def within(low: float, high: float, published: float, tolerance: float) -> str:
    """Whether an interval lies within a relative ``tolerance`` of what is published; NaN decides nothing."""
    below, above = published * (1 - tolerance), published * (1 + tolerance)
    if below <= low and high <= above:
        return "holds"
    return "fails" if high < below or low > above else "undecided"


def all_below(intervals, bound: float) -> str:
    """Whether all intervals lie below ``bound``; the claim fails where one lies above."""
    intervals = list(intervals)
    if all(high < bound for _, high in intervals):
        return "holds"
    return "fails" if any(low > bound for low, _ in intervals) else "undecided"
