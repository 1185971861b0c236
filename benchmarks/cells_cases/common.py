"""Parts that the cells share: settings of experiments, what a cell gives, intervals, and verdicts.

A cell is computed from the paper's formulas. It reads settings out of the experiments' YAML, and data arrays; nothing
of the library's or the laboratory's estimators, integrators, searches, engines and reports is imported.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

REPOSITORY = Path(__file__).parents[2]
NORMAL = 1.959964
BOUNDS = ("below", "above", "at_most", "at_least", "published", "published_se", "tolerance", "detectable")


@dataclass(frozen=True)
class Found:
    """What a cell gives.

    Attributes:
        value: the effect of the claim.
        low: lower end of its 95 % interval over repetitions.
        high: upper end.
        logs: whether standard errors are those of the logarithm: of ratios.
        counted: whether the value is a share of repetitions.
        repetitions: their number.
        note: what was computed.
    """

    value: float
    low: float
    high: float
    logs: bool = False
    counted: bool = False
    repetitions: int = 0
    note: str = ""


def experiment(page: str) -> dict:
    """The experiment file of a page, as plain YAML."""
    return yaml.safe_load((REPOSITORY / f"workflow/experiments/{page}.yaml").read_text("utf-8"))


def claim(cell: str) -> dict:
    """The claim ``page:claim``."""
    page, name = cell.split(":")
    claims = yaml.safe_load((REPOSITORY / f"workflow/claims/{page}.yaml").read_text("utf-8"))
    found = next(one for one in claims if one["id"] == name)
    numbers = {key: float(one) for key, one in found["test"].items() if key in BOUNDS and one != "ours"}
    return found | {"test": found["test"] | numbers}  # PyYAML reads 1.75e4 as text


def mean(values, **more) -> Found:
    """The mean of values with its t-interval."""
    values = np.asarray(values, float)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    middle = float(values.mean())
    return Found(middle, middle - half, middle + half, repetitions=len(values), **more)


def geometric(logs, **more) -> Found:
    """The geometric mean of values, given as logarithms, with its t-interval."""
    found = mean(logs)
    ends = (float(np.exp(one)) for one in (found.value, found.low, found.high))
    return Found(*ends, logs=True, repetitions=found.repetitions, **more)


def jackknifed(statistic, count: int, logs: bool = False, **more) -> Found:
    """``statistic(kept repetitions)`` with its jackknife interval; with ``logs`` it is a logarithm."""
    everyone = np.arange(count)
    full = statistic(everyone)
    pseudo = [count * full - (count - 1) * statistic(np.delete(everyone, one)) for one in everyone]
    half = stats.t.ppf(0.975, count - 1) * np.std(pseudo, ddof=1) / np.sqrt(count)
    ends = np.array([full, full - half, full + half])
    ends = np.exp(ends) if logs else ends
    return Found(*map(float, ends), logs=logs, repetitions=count, **more)


def share(events, **more) -> Found:
    """The share of repetitions with an event, with Clopper and Pearson's interval."""
    events = np.asarray(events, bool)
    n, k = len(events), int(events.sum())
    low = 0.0 if k == 0 else float(stats.beta.ppf(0.025, k, n - k + 1))
    high = 1.0 if k == n else float(stats.beta.ppf(0.975, k + 1, n - k))
    return Found(k / n, low, high, counted=True, repetitions=n, **more)


def worst(found: list[Found], test: dict) -> Found:
    """The effect that is worst for a claim about several rivals or moments."""
    sign = -1 if "above" in test or "at_least" in test else 1
    return max(found, key=lambda one: sign * one.value)


def standard_error(low: float, high: float, logs: bool) -> float:
    """A standard error from a 95 % interval, which is a little too wide where the interval is Student's."""
    if logs:
        low, high = np.log(low), np.log(high)
    return float((high - low) / (2 * NORMAL))


def verdict(found: Found, test: dict) -> str:
    """Whether the claim holds: an interval decides, a share by its value; a published value by its tolerance."""
    lower, upper = -np.inf, np.inf
    bounds = {"below", "above", "at_most", "at_least"} & set(test)
    if not bounds and "published_se" in test:
        own = (found.high - found.low) / (2 * NORMAL)
        theirs = own if test["published_se"] == "ours" else test["published_se"]
        if test["published_se"] == "ours" and "published_repetitions" in test:
            theirs = own * np.sqrt(found.repetitions / test["published_repetitions"])
        allowed = 2 * np.hypot(own, theirs)
        if abs(found.value - test["published"]) > allowed:
            return "fails"
        return "holds" if allowed < test.get("detectable", abs(test["published"]) / 2) else "undecided"
    if not bounds:
        lower, upper = sorted(test["published"] * (1 + sign * test.get("tolerance", 0.0)) for sign in (-1, 1))
    lower = test.get("above", test.get("at_least", lower))
    upper = test.get("below", test.get("at_most", upper))
    if bounds:
        slack = test.get("tolerance", 0.0)
        lower, upper = (
            one + sign * slack * abs(one) if np.isfinite(one) else one for sign, one in ((-1, lower), (1, upper))
        )
    if found.high < lower or found.low > upper:
        return "fails"
    if found.counted:
        strict = {"above", "below"} & bounds
        met = lower < found.value < upper if strict else lower <= found.value <= upper
        return "holds" if met else "undecided"
    return "holds" if lower <= found.low and found.high <= upper else "undecided"


def prepared(dataset: str, scaling: str) -> Path:
    """The file of a prepared dataset, made if it is not there."""
    from lowvar_studies.datasets.fetch import fetch
    from lowvar_studies.datasets.prepare import prepare

    path = REPOSITORY / f"data/prepared/{dataset}-{scaling}.npz"
    if not path.is_file():
        fetch(dataset, REPOSITORY / "data/raw")
        prepare(dataset, scaling, REPOSITORY / "data/raw", path)
    return path
