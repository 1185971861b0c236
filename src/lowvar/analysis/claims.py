"""Published statements against our results: a test, an interval, a verdict."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.decomposition import mean_interval
from lowvar.errors import UserError

_COLUMNS = ("id", "statement", "source", "published", "ours", "low", "high", "verdict", "note")


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
        stated = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(stated, list):
        raise UserError(f"{path}: it must be a list of claims")
    try:
        return [Claim.model_validate(entry) for entry in stated]
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def judge(claims, decomposition, ends):
    """A row per claim: ``id, statement, source, published, ours, low, high, verdict, note``.

    The verdict is ``holds`` or ``fails`` where the whole 95 % interval says so, else ``undecided``. For
    ``below``, ``ours`` is the ratio of the claimed lowest variance to the lowest of the others, and the claim
    holds where the two intervals do not overlap. For ``gap`` it is the ratio of the final gaps, a geometric mean
    over pairs of repetitions on the same noise, to the nearest rival; the claim holds where all intervals are
    below one. A method that diverged at every step size is farther than any that did not.

    Args:
        claims: what ``load`` gave.
        decomposition: the table ``decomposition``.
        ends: the table ``ends``.
    """
    import pandas as pd

    rows = []
    for claim in claims:
        judged = _gap(claim.test, ends) if claim.test.kind == "gap" else _variance(claim.test, decomposition)
        rows.append(
            {"id": claim.id, "statement": claim.statement, "source": claim.source, **judged, "note": claim.note}
        )
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _variance(test, decomposition):
    return {"value": _value, "below": _below}[test.kind](test, decomposition)


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


def _value(test, decomposition):
    ours, low, high = _look_up(test.quantity, decomposition)
    below, above = test.published * (1 - test.tolerance), test.published * (1 + test.tolerance)
    verdict = "undecided"
    if below <= low and high <= above:
        verdict = "holds"
    elif high < below or low > above:
        verdict = "fails"
    return {"published": test.published, "ours": ours, "low": low, "high": high, "verdict": verdict}


def _below(test, decomposition):
    value, low, high = _look_up(test.quantity, decomposition)
    rivals = [_look_up(other, decomposition) for other in test.others]
    other, other_low, other_high = min(rivals, key=lambda values: values[0])
    bounds = (low / other_high, high / other_low) if other_low > 0 else (np.nan, np.nan)
    verdict = "undecided"
    if all(high < rival_low for _, rival_low, _ in rivals):
        verdict = "holds"
    elif any(low > rival_high for _, _, rival_high in rivals):
        verdict = "fails"
    return {"published": np.nan, "ours": value / other, "low": bounds[0], "high": bounds[1], "verdict": verdict}


def _gap(test, ends):
    def logs(method):
        rows = ends[(ends["problem"] == test.problem) & (ends["method"] == method) & (ends["backend"] == test.backend)]
        return np.log(rows.sort_values("repetition")["gap"].to_numpy(float))

    mine, rivals = logs(test.method), [logs(other) for other in test.others]
    if not len(mine):  # a method without an end diverged at every step size
        return {"published": np.nan, "ours": np.inf, "low": np.nan, "high": np.nan, "verdict": "fails"}
    ratios = [tuple(np.exp(v) for v in mean_interval(mine - rival)) for rival in rivals if len(rival)]
    nearest = max(ratios, key=lambda ratio: ratio[0], default=(0.0, np.nan, np.nan))
    verdict = "undecided"
    if all(high < 1 for _, _, high in ratios):
        verdict = "holds"
    elif any(low > 1 for _, low, _ in ratios):
        verdict = "fails"
    return {"published": np.nan, **dict(zip(("ours", "low", "high"), nearest, strict=True)), "verdict": verdict}
