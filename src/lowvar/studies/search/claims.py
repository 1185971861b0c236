"""Claims about black-box searches: who meets which target, after how many evaluations, within which budget.

* ``reaches``: the share of repetitions that meet the target, with Clopper and Pearson's interval. Holds where it is
  at least ``at_least``, fails where the interval lies below.
* ``never``: the same share. Holds where it is 0, else fails.
* ``faster``: the ratio of median evaluations to the nearest rival, with a bootstrap interval. Holds where all
  intervals lie below ``below``, fails where one lies above.
* ``evaluations``: the median, with the interval of order statistics. Holds where that lies within ``tolerance`` of
  ``published``, fails where none of it does.
* ``lowest``: the ratio of final gaps to the nearest rival, a geometric mean over pairs of repetitions (a difference
  where no optimum is known), with a t-interval. Holds where all intervals lie below 1 (0), fails where one lies above.
* ``count``: the number of problems on which a method ``reaches``. Holds where it is ``published``.
* ``diverges``: the share of repetitions that diverged or ended above their start, judged as in ``reaches``.
* ``variance_ratio``: the decomposition's ``to_iid``, against ``below`` or against ``published``.

Everything holds within a budget of evaluations, which is said in the claim's note.
"""

import math
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.decomposition import mean_interval
from lowvar.errors import UserError
from lowvar.studies.search.progress import TARGET, median_interval, quantile, same_target, share_interval
from lowvar.studies.verdicts import Strict, all_below, look_up, within

_LEAST_GAP = TARGET  # below it a final gap depends on where its run was stopped
_RESAMPLES = 4000
_FEWEST = 5  # repetitions of a bootstrap

Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class _Met(Strict):
    """A method, a target, and whether the mean or the best evaluated point is to meet it."""

    method: str
    target: Positive = TARGET
    of: Literal["mean", "best"] = "mean"
    backend: str = "jax"


class ReachesTest(_Met):
    """At least this share of the repetitions meets the target within the budget."""

    kind: Literal["reaches"]
    problem: str
    at_least: Share = 1.0


class NeverTest(_Met):
    """No repetition meets the target within the budget."""

    kind: Literal["never"]
    problem: str


class FasterTest(_Met):
    """A method meets the target after fewer evaluations than the others, in the median."""

    kind: Literal["faster"]
    problem: str
    other: str | None = None
    others: tuple[str, ...] = ()
    below: Positive = 1.0

    @pydantic.model_validator(mode="after")
    def _one_of_them(self):
        if (self.other is None) == (not self.others):
            raise ValueError("exactly one of other and others must be given")
        return self

    @property
    def rivals(self) -> tuple[str, ...]:
        """Whom the method is compared with."""
        return self.others or (self.other or "",)


class EvaluationsTest(_Met):
    """The median evaluations lie within ``tolerance`` (relative) of what is published."""

    kind: Literal["evaluations"]
    problem: str
    published: Positive
    tolerance: Positive = 0.15


class LowestTest(Strict):
    """A method ends lower than all others, measured by f at the mean or by the best evaluated point."""

    kind: Literal["lowest"]
    problem: str
    method: str
    others: Annotated[tuple[str, ...], Field(min_length=1)]
    of: Literal["mean", "best"] = "mean"
    backend: str = "jax"


class CountTest(_Met):
    """On how many problems at least this share of the repetitions meets the target."""

    kind: Literal["count"]
    problems: Annotated[tuple[str, ...], Field(min_length=1)]
    published: int
    at_least: Share = 1.0


class DivergesTest(Strict):
    """At least this share of the repetitions diverges, or ends above its start."""

    kind: Literal["diverges"]
    problem: str
    method: str
    at_least: Share = 1.0
    backend: str = "jax"


class VarianceRatioTest(Strict):
    """The variance of a search gradient, divided by that on iid noise, is ``below`` or about ``published``."""

    kind: Literal["variance_ratio"]
    problem: str
    scheme: str
    baseline: str
    population: int
    sigma: Positive
    block: Literal["mu", "sigma"] = "mu"
    source: Literal["total", "odd", "even"] = "total"
    published: Positive | None = None
    tolerance: Positive = 0.15
    below: Positive | None = None

    @pydantic.model_validator(mode="after")
    def _one_of_them(self):
        if (self.published is None) == (self.below is None):
            raise ValueError("exactly one of published and below must be given")
        return self


SearchTest = (
    ReachesTest | NeverTest | FasterTest | EvaluationsTest | LowestTest | CountTest | DivergesTest | VarianceRatioTest
)


def _reaches(test, tables):
    values, budget = _evaluations(test, tables, test.problem, test.method)
    return _share(int(np.isfinite(values).sum()), len(values), test.at_least) | {"note": said({test.method: budget})}


def _never(test, tables):
    values, budget = _evaluations(test, tables, test.problem, test.method)
    judged = _share(int(np.isfinite(values).sum()), len(values), 0.0)
    verdict = "holds" if judged["ours"] == 0 else "fails"
    return judged | {"verdict": verdict, "note": said({test.method: budget})}


def _faster(test, tables):
    mine = _evaluations(test, tables, test.problem, test.method)
    budgets, found, notes = {test.method: mine[1]}, [], []
    for other in test.rivals:
        rival = _evaluations(test, tables, test.problem, other)
        budgets[other] = rival[1]
        ours, low, high = _ratio(mine, rival)
        found.append((ours, low, high, other))
        known = [bool(np.isfinite(quantile(values, 0.5))) for values, _ in (mine, rival)]
        if known == [True, False]:
            notes.append(f"{other} is not there in its budget, so its ratio is a bound from above")
        elif known == [False, True]:
            notes.append(f"{test.method} is not there in its budget, so the ratio to {other} is a bound from below")
        if min(len(mine[0]), len(rival[0])) < _FEWEST:
            notes.append(f"fewer than {_FEWEST} repetitions, so no interval for {other}")
    ours, low, high, _ = max(found, key=lambda ratio: -1.0 if math.isnan(ratio[0]) else ratio[0])
    verdict = all_below(((low, high) for _, low, high, _ in found), test.below)
    note = "; ".join([*notes, said(budgets)])
    return {"published": np.nan, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


def _ratio(mine, rival):
    """Ratio of medians and its bootstrap interval; what was not met within the budget lies anywhere beyond it.

    Repetitions are resampled in pairs where both methods have the same number of them: they share their starts.
    """
    (a, budget_a), (b, budget_b) = mine, rival
    rng = np.random.default_rng(0)
    n, m = len(a), len(b)
    picks_a = rng.integers(n, size=(_RESAMPLES, n))
    picks_b = picks_a if n == m else rng.integers(m, size=(_RESAMPLES, m))

    def medians(values, budget, picks):
        return np.maximum(quantile(np.where(np.isfinite(values), values, budget)[picks], 0.5), 1.0)

    whole_a, whole_b = np.arange(n)[None, :], np.arange(m)[None, :]
    at_least = medians(a, budget_a, picks_a) / medians(b, np.inf, picks_b)
    at_most = medians(a, np.inf, picks_a) / medians(b, budget_b, picks_b)
    known = np.isfinite(quantile(a, 0.5)), np.isfinite(quantile(b, 0.5))
    ours = float(medians(a, budget_a, whole_a)[0] / medians(b, budget_b, whole_b)[0]) if any(known) else np.nan
    if min(n, m) < _FEWEST:
        return ours, np.nan, np.nan
    low = np.quantile(at_least, 0.025, method="lower")
    high = np.quantile(at_most, 0.975, method="higher")
    return ours, float(low), float(high)


def _evaluation_count(test, tables):
    values, budget = _evaluations(test, tables, test.problem, test.method)
    low, high = (float(end) for end in median_interval(values))
    note = said({test.method: budget})
    if math.isnan(low):
        note = f"fewer than 6 repetitions, so no interval; {note}"
    return {
        "published": test.published,
        "ours": float(quantile(values, 0.5)),
        "low": low,
        "high": high,
        "verdict": within(low, high, test.published, test.tolerance),
        "note": note,
    }


def _lowest(test, tables):
    column = "f" if test.of == "mean" else "best"
    mine = _ends(tables, test.problem, test.method, test.backend)
    known = bool(np.isfinite(mine["optimum"]).all())
    budgets, found = {test.method: mine["budget"].max()}, []
    for other in test.others:
        rival = _ends(tables, test.problem, other, test.backend)
        budgets[other] = rival["budget"].max()
        pairs = mine.index.intersection(rival.index)
        if not len(pairs):
            raise UserError(f"{test.method} and {other} on {test.problem}: no repetition that both have, so no pairs")
        a, b = (rows.loc[pairs, column].to_numpy(float) for rows in (mine, rival))
        if known:
            a, b = (np.log(np.maximum(values, _LEAST_GAP)) for values in (a, b))
        found.append(_paired(a, b, known))
    ours, low, high = max(found)
    verdict = all_below(((low, high) for _, low, high in found), 1.0 if known else 0.0)
    note = said(budgets) if known else f"difference, since no optimum is known; {said(budgets)}"
    return {"published": np.nan, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


def _paired(a, b, logarithms: bool):
    """Mean of pairs' differences and its interval; a side of which any repetition diverged is the higher one."""
    worst, least = (np.inf, 0.0) if logarithms else (np.inf, -np.inf)
    if not np.isfinite(a).all():
        return (worst, np.nan, np.nan) if not np.isfinite(b).all() else (worst, worst, worst)
    if not np.isfinite(b).all():
        return least, least, least
    return tuple(float(np.exp(v)) if logarithms else float(v) for v in mean_interval(a - b))


def _count(test, tables):
    shares, budgets = [], {}
    for problem in test.problems:
        values, budgets[problem] = _evaluations(test, tables, problem, test.method)
        shares.append(_share(int(np.isfinite(values).sum()), len(values), test.at_least))
    verdicts = [share["verdict"] for share in shares]
    low, high = verdicts.count("holds"), len(verdicts) - verdicts.count("fails")
    ours = sum(share["ours"] >= test.at_least for share in shares)
    verdict = "holds" if ours == test.published else "undecided" if low <= test.published <= high else "fails"
    named = ", ".join(problem for problem, share in zip(test.problems, shares, strict=True)
                      if share["ours"] >= test.at_least)  # fmt: skip
    note = f"{named or 'none'}; {said(budgets)}"
    return {"published": test.published, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


def _diverges(test, tables):
    rows = _ends(tables, test.problem, test.method, test.backend)
    lost = (rows["status"] != "ok") | ~np.isfinite(rows["f"]) | (rows["f"] > rows["start"])
    return _share(int(lost.sum()), len(rows), test.at_least) | {"note": said({test.method: rows["budget"].max()})}


def _variance_ratio(test, tables):
    d = look_up(tables, "decomposition")
    rows = d[
        (d["problem"] == test.problem) & (d["scheme"] == test.scheme) & (d["baseline"] == test.baseline)
        & (d["population"] == test.population) & np.isclose(d["sigma"].astype(float), test.sigma)
        & (d["block"] == test.block) & (d["source"] == test.source)
    ]  # fmt: skip
    if len(rows) != 1:
        asked = test.model_dump(exclude={"kind", "published", "tolerance", "below"})
        raise UserError(f"a claim speaks of {asked}, which the decomposition does not have")
    ours, low, high = (float(rows.iloc[0][name]) for name in ("to_iid", "to_iid_low", "to_iid_high"))
    if test.below is not None:
        verdict, published = all_below([(low, high)], test.below), np.nan
    else:
        verdict, published = within(low, high, test.published, test.tolerance), test.published
    return {"published": published, "ours": ours, "low": low, "high": high, "verdict": verdict}


def _share(count: int, n: int, at_least: float):
    low, high = (float(end) for end in share_interval(count, n))
    verdict = "holds" if count / n >= at_least - 1e-12 else "fails" if high < at_least else "undecided"
    return {"published": at_least, "ours": count / n, "low": low, "high": high, "verdict": verdict}


def _of_backend(rows, backend: str):
    """The rows of a backend; a method that has one other backend alone, such as a wrapped peer, is taken from it."""
    wanted = rows[rows["backend"] == backend]
    return rows if not len(wanted) and rows["backend"].nunique() == 1 else wanted


def _evaluations(test, tables, problem: str, method: str) -> tuple[np.ndarray, float]:
    """Evaluations of every repetition until it met the target, infinite if it did not, and the budget."""
    hits = look_up(tables, "hits")
    rows = hits[(hits["problem"] == problem) & (hits["method"] == method) & (hits["of"] == test.of)]
    rows = _of_backend(rows[same_target(rows["target"], test.target)], test.backend).sort_values("repetition")
    if not len(rows):
        raise UserError(
            f"a claim speaks of {method} on {problem} at target {test.target:g}, which the table 'hits' does not have"
        )
    return rows["evaluations"].to_numpy(float), float(rows["budget"].max())


def _ends(tables, problem: str, method: str, backend: str):
    ends = look_up(tables, "ends")
    rows = _of_backend(ends[(ends["problem"] == problem) & (ends["method"] == method)], backend)
    if not len(rows):
        raise UserError(f"a claim speaks of {method} on {problem}, which the table 'ends' does not have")
    return rows.set_index("repetition").sort_index()


def said(budgets: dict[str, float]) -> str:
    """Budgets in words: the first, and those that differ from it.

    >>> said({"ingo": 1.4e6, "es": 1.4e6, "pycma": 5e5})
    'budget 1.4e6 evaluations (pycma 5e5)'
    """
    first, *rest = budgets.items()
    others = ", ".join(f"{name} {_short(budget)}" for name, budget in rest if budget != first[1])
    return f"budget {_short(first[1])} evaluations{f' ({others})' if others else ''}"


def _short(budget: float) -> str:
    if budget < 1e4:
        return f"{budget:.0f}"
    digits, power = f"{budget:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


JUDGES = {
    "reaches": _reaches,
    "never": _never,
    "faster": _faster,
    "evaluations": _evaluation_count,
    "lowest": _lowest,
    "count": _count,
    "diverges": _diverges,
    "variance_ratio": _variance_ratio,
}
