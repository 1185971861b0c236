"""Claims about variational problems: variances of the decomposition, and gaps at the end of runs."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from lowvar.analysis.claims.base import Strict, all_below, look_up, within
from lowvar.analysis.decomposition import mean_interval
from lowvar.errors import UserError


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
    tolerance: Annotated[float, Field(gt=0)] = 0.1


class BelowTest(Strict):
    """One quantity is below all others."""

    kind: Literal["below"]
    quantity: Quantity
    others: tuple[Quantity, ...]


class GapTest(Strict):
    """At its best step size a method ends nearer to the optimum than the others, after the same iterations."""

    kind: Literal["gap"]
    problem: str
    method: str
    others: tuple[str, ...]
    backend: str = "jax"


VariationalTest = ValueTest | BelowTest | GapTest


def _find(quantity, decomposition):
    d = decomposition
    rows = d[
        d["end"] & (d["problem"] == quantity.problem) & (d["method"] == quantity.method)
        & (d["source"] == quantity.source) & (d["block"] == quantity.block)
    ]  # fmt: skip
    if len(rows) != 1:
        raise UserError(f"a claim speaks of {quantity.model_dump()}, which the decomposition does not have")
    row = rows.iloc[0]
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


def _gap(test, tables):
    ends = look_up(tables, "ends")

    def logs(method):
        rows = ends[(ends["problem"] == test.problem) & (ends["method"] == method) & (ends["backend"] == test.backend)]
        return np.log(rows.sort_values("repetition")["gap"].to_numpy(float))

    mine, rivals = logs(test.method), [logs(other) for other in test.others]
    if not len(mine):  # a method without an end diverged at every step size
        return {"published": np.nan, "ours": np.inf, "low": np.nan, "high": np.nan, "verdict": "fails"}
    ratios = [tuple(np.exp(v) for v in mean_interval(mine - rival)) for rival in rivals if len(rival)]
    nearest = max(ratios, key=lambda ratio: ratio[0], default=(0.0, np.nan, np.nan))
    verdict = all_below(((low, high) for _, low, high in ratios), 1.0)
    return {"published": np.nan, **dict(zip(("ours", "low", "high"), nearest, strict=True)), "verdict": verdict}


JUDGES = {"value": _value, "below": _below, "gap": _gap}
