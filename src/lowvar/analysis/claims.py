"""Published statements against our results: a test, an interval, a verdict."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.errors import UserError


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Quantity(_Strict):
    """A number of the decomposition at the end of the run: ``variance`` of a batch's gradient."""

    problem: str
    method: str
    source: Literal["total", "subsampling", "monte_carlo", "interaction"] = "total"
    block: str = "all"


class ValueTest(_Strict):
    """Our value lies within ``tolerance`` (relative) of the published one."""

    kind: Literal["value"]
    quantity: Quantity
    published: float
    tolerance: Annotated[float, Field(gt=0)] = 0.1


class BelowTest(_Strict):
    """One quantity is below all others."""

    kind: Literal["below"]
    quantity: Quantity
    others: tuple[Quantity, ...]


class GapTest(_Strict):
    """At its best step size a method ends nearer to the optimum than the others, after the same iterations."""

    kind: Literal["gap"]
    problem: str
    method: str
    others: tuple[str, ...]
    backend: str = "jax"


class Claim(_Strict):
    """A published statement, where it stands, and how it is tested."""

    id: str
    statement: str
    source: str
    test: Annotated[ValueTest | BelowTest | GapTest, Field(discriminator="kind")]
    note: str = ""


def load(path: str | Path) -> list[Claim]:
    """The claims of a YAML file.

    Raises:
        UserError: the file is missing or says something that a claim cannot say.
    """
    import yaml

    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of claims")
    try:
        return [Claim.model_validate(entry) for entry in yaml.safe_load(path.read_text())]
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def judge(claims, decomposition, convergence):
    """A row per claim: ``id, statement, source, published, ours, low, high, verdict, note``.

    The verdict is ``holds`` or ``fails`` where the whole 95 % interval says so, else ``undecided``. For a
    comparison, ``ours`` is the ratio of the claimed lowest to the lowest of the others, and the claim holds
    where the two intervals do not overlap.
    """
    import pandas as pd

    judges = {"value": _value, "below": _below, "gap": _gap}
    rows = []
    for claim in claims:
        found = judges[claim.test.kind](claim.test, decomposition, convergence)
        rows.append(
            {
                "id": claim.id,
                "statement": claim.statement,
                "source": claim.source,
                **found,
                "note": claim.note,
            }
        )
    return pd.DataFrame(rows)


def _look_up(quantity, decomposition):
    d = decomposition
    rows = d[
        d["end"] & (d["problem"] == quantity.problem) & (d["method"] == quantity.method)
        & (d["source"] == quantity.source) & (d["block"] == quantity.block)
    ]  # fmt: skip
    if len(rows) != 1:
        raise UserError(f"a claim speaks of {quantity.model_dump()}, which the decomposition does not have")
    row = rows.iloc[0]
    return float(row["variance"]), float(row["low"]), float(row["high"])


def _value(test, decomposition, convergence):
    ours, low, high = _look_up(test.quantity, decomposition)
    below, above = test.published * (1 - test.tolerance), test.published * (1 + test.tolerance)
    verdict = "undecided"
    if below <= low and high <= above:
        verdict = "holds"
    elif high < below or low > above:
        verdict = "fails"
    return {"published": test.published, "ours": ours, "low": low, "high": high, "verdict": verdict}


def _below(test, decomposition, convergence):
    return _lower(_look_up(test.quantity, decomposition), [_look_up(other, decomposition) for other in test.others])


def _gap(test, decomposition, convergence):
    def final(method):
        c = convergence
        rows = c[(c["problem"] == test.problem) & (c["method"] == method) & (c["backend"] == test.backend) & c["best"]]
        if rows.empty:
            raise UserError(f"a claim speaks of {method!r} on {test.problem!r}, which was not run")
        row = rows.loc[rows["epoch"].idxmax()]
        return float(row["gap_mean"]), float(row["gap_low"]), float(row["gap_high"])

    return _lower(final(test.method), [final(method) for method in test.others])


def _lower(mine, others):
    rival = min(others, key=lambda values: values[0])
    (value, low, high), (other, other_low, other_high) = mine, rival
    verdict = "undecided"
    if high < other_low:
        verdict = "holds"
    elif low > other_high:
        verdict = "fails"
    bounds = (low / other_high, high / other_low) if other_low > 0 else (np.nan, np.nan)
    return {
        "published": np.nan,
        "ours": value / other,
        "low": bounds[0],
        "high": bounds[1],
        "verdict": verdict,
    }
