"""Claims about variances of gradients: values, orders, floors, schemes of noise; `claims.variational` has the list."""

from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.errors import UserError
from lowvar.studies.variational.noises import first_noise
from lowvar.studies.verdicts import Strict, all_below, look_up, within

Positive = Annotated[float, Field(gt=0)]


class Quantity(Strict):
    """A number of the decomposition at the end of the run: ``variance`` of a batch's gradient."""

    problem: str
    method: str
    source: Literal["total", "subsampling", "monte_carlo", "interaction"] = "total"
    block: str = "all"


class ValueTest(Strict):
    """Our value lies within ``tolerance`` (relative) of the published one."""

    kind: Literal["value"]
    quantity: Quantity
    published: float
    tolerance: Positive = 0.1


class BelowTest(Strict):
    """One quantity is below all others."""

    kind: Literal["below"]
    quantity: Quantity
    others: tuple[Quantity, ...]


class FloorTest(Strict):
    """A quantity is never below another; or, with ``within``, not far above it at the end."""

    kind: Literal["floor"]
    quantity: Quantity
    floor: Quantity
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    within: Positive | None = None


class SchemeTest(Strict):
    """The variance at the end under a scheme of noise is ``below`` so many times that of independent points."""

    kind: Literal["scheme"]
    quantity: Quantity
    eps: str
    samples: int
    below: Positive | None = None
    above: Positive | None = None

    @pydantic.model_validator(mode="after")
    def _one_of_them(self):
        if (self.below is None) == (self.above is None):
            raise ValueError("exactly one of below and above must be given")
        return self


VarianceTest = ValueTest | BelowTest | FloorTest | SchemeTest


def _rows(quantity, decomposition):
    """The rows of a quantity along the run, under the first way of drawing noise."""
    d = first_noise(decomposition)
    rows = d[
        (d["problem"] == quantity.problem) & (d["method"] == quantity.method)
        & (d["source"] == quantity.source) & (d["block"] == quantity.block)
    ]  # fmt: skip
    if rows["end"].sum() != 1:
        raise UserError(f"a claim speaks of {quantity.model_dump()}, which the decomposition does not have")
    return rows


def _find(quantity, decomposition):
    rows = _rows(quantity, decomposition)
    row = rows[rows["end"]].iloc[0]
    return float(row["variance"]), float(row["low"]), float(row["high"])


def _value(test, tables):
    ours, low, high = _find(test.quantity, look_up(tables, "decomposition"))
    verdict = within(low, high, test.published, test.tolerance)
    return {"published": test.published, "ours": ours, "low": low, "high": high, "verdict": verdict}


def _below(test, tables):
    decomposition = look_up(tables, "decomposition")
    value, low, high = _find(test.quantity, decomposition)
    rivals = [_find(other, decomposition) for other in test.others]
    other, other_low, other_high = min(rivals, key=lambda values: values[0])
    bounds = (low / other_high, high / other_low) if other_low > 0 else (np.nan, np.nan)
    verdict = "undecided"
    if all(high < rival_low for _, rival_low, _ in rivals):
        verdict = "holds"
    elif any(low > rival_high for _, _, rival_high in rivals):
        verdict = "fails"
    return {"published": np.nan, "ours": value / other, "low": bounds[0], "high": bounds[1], "verdict": verdict}


def _floor(test, tables):
    decomposition = look_up(tables, "decomposition")
    mine, floor = (_rows(quantity, decomposition) for quantity in (test.quantity, test.floor))
    if test.quantity.model_copy(update={"source": test.floor.source}) == test.floor and test.quantity.source == "total":
        both = floor[floor["share_low"] > 0]  # a part of itself: shares have intervals over the same designs
        ratio, low, high = (1 / both[name].to_numpy(float) for name in ("share", "share_high", "share_low"))
    else:
        both = mine.merge(floor.drop(columns="end"), on="epoch", suffixes=("", "_floor"))
        both = both[(both["low_floor"] > 0) & np.isfinite(both["variance"])]
        ratio = (both["variance"] / both["variance_floor"]).to_numpy(float)
        halves = [(both[f"high{end}"] - both[f"low{end}"]) / 2 / both[f"variance{end}"] for end in ("", "_floor")]
        apart = np.hypot(*(half.to_numpy(float) for half in halves))
        low, high = ratio * np.exp(-apart), ratio * np.exp(apart)
    if not len(ratio) or (test.within is not None and not both["end"].iloc[-1]):
        return row(np.nan, np.nan, np.nan, "undecided", test.within, "the floor's interval reaches down to 0")
    if test.within is not None:
        verdict = all_below([(low[-1], high[-1])], test.within)
        return row(ratio[-1], low[-1], high[-1], verdict, test.within)
    worst = int(np.argmin(ratio))
    verdict = "holds" if (low > 1 - test.margin).all() else "fails" if (high < 1).any() else "undecided"
    note = f"at epoch {both['epoch'].iloc[worst]}, the worst"
    return row(ratio[worst], low[worst], high[worst], verdict, None, note)


def _scheme(test, tables):
    schemes, quantity = look_up(tables, "schemes"), test.quantity
    rows = schemes[
        (schemes["problem"] == quantity.problem) & (schemes["method"] == quantity.method)
        & (schemes["source"] == quantity.source) & (schemes["block"] == quantity.block)
        & (schemes["eps"] == test.eps) & (schemes["samples"] == test.samples)
    ]  # fmt: skip
    if len(rows) != 1:
        said = {**quantity.model_dump(), "eps": test.eps, "samples": test.samples}
        raise UserError(f"a claim speaks of {said}, which the table 'schemes' does not have")
    ours, low, high = (float(rows[f"to_iid{end}"].iloc[0]) for end in ("", "_low", "_high"))
    bound = test.below if test.below is not None else test.above
    verdict = all_below([(low, high)], bound) if test.below is not None else all_below([(-high, -low)], -bound)
    return row(ours, low, high, verdict)


def row(ours, low, high, verdict, published=None, note=""):
    """A judged claim; ``ours`` and its interval, NaN where there is none, and what is to be said of it."""
    published = np.nan if published is None else published
    return {"published": published, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


JUDGES = {"value": _value, "below": _below, "floor": _floor, "scheme": _scheme}
