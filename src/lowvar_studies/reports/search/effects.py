"""Effects on black-box searches: shares of repetitions, evaluations to a target, final gaps.

All hold within the budget of evaluations in the note. ``of`` says whether f at the mean of the search distribution or
at the best evaluated point must meet the target.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from lowvar.core.intervals import mean_interval
from lowvar.errors import UserError
from lowvar_studies.jobs.search.spec import TARGET
from lowvar_studies.reports.effect import (
    Declared,
    Effect,
    Effects,
    Missing,
    Positive,
    Rivals,
    centre,
    compare,
    count,
    select,
    table,
)
from lowvar_studies.reports.search.progress import quantile, same_target, share_interval

EFFECTS = Declared()
Of = Literal["mean", "best"]
Names = tuple[str, ...]
_COLUMN = {"mean": "f", "best": "best"}

_LEAST_GAP = TARGET  # below it, a final gap depends on when the run was stopped
_RESAMPLES = 4000
_FEWEST = 5  # least number of repetitions for a bootstrap


@EFFECTS.effect
def share(tables, problem: str, method: str, event: Literal["target", "divergence", "lower"], others: Names = (),
          target: Positive = TARGET, times: Positive = 1.0, of: Of = "mean", backend: str = "jax"):  # fmt: skip
    """The share of repetitions with an event, with Clopper and Pearson's interval.

    The event is that the repetition meets the ``target``; that it diverged or ended above ``times`` the gap of its
    start; or that it ends ``lower`` than the same repetition of each rival: a sign test, which leaves out pairs that
    end equally low.
    """
    if others and event != "lower":
        raise UserError(f"share: others: event {event} compares nothing: leave them out, or choose event lower")
    if event == "target":
        values, budget = _evaluations(tables, problem, method, target, of, backend)
        return _share(np.isfinite(values), budgets({method: budget}))
    ends = {name: _ends(tables, problem, name, backend) for name in dict.fromkeys((method, *others))}
    mine, note = ends[method], budgets({name: rows["budget"].max() for name, rows in ends.items()})
    if event == "divergence":
        lost = (mine["status"] != "ok") | ~np.isfinite(mine["f"]) | (mine["f"] > times * mine["start"])
        return _share(lost, _counted(lost, note))
    least = _LEAST_GAP if np.isfinite(mine["optimum"]).all() else -np.inf
    each = []
    for other in others:
        pairs = _pairs(ends, method, other, problem)
        a, b = (np.maximum(ends[name].loc[pairs, _COLUMN[of]].to_numpy(float), least) for name in (method, other))
        lower = (a < b)[a != b]
        each.append(
            _share(lower, _counted(lower, noun="unequal pair")) if len(lower) else Effect.undecided("all equal")
        )
    return Effects(each, after=[note])


@EFFECTS.effect
def evaluation_ratio(tables, problem: str, method: str, others: Rivals, target: Positive = TARGET, of: Of = "mean",
                     backend: str = "jax"):  # fmt: skip
    """The median evaluations to the target divided by each rival's, with a bootstrap interval.

    A median that is not reached within the budget bounds the ratio.
    """
    names = dict.fromkeys((method, *others))
    met = {name: _evaluations(tables, problem, name, target, of, backend) for name in names}
    reached = {name: bool(np.isfinite(quantile(values, 0.5))) for name, (values, _) in met.items()}
    each, notes = [], []
    for other in others:
        ratio = _ratio(met[method], met[other])
        if reached[method] and not reached[other]:
            notes.append(f"{other} misses the target within its budget, so its ratio is an upper bound")
        elif reached[other] and not reached[method]:
            notes.append(f"{method} misses the target within its budget, so the ratio to {other} is a lower bound")
        if min(len(met[method][0]), len(met[other][0])) < _FEWEST:
            notes.append(f"fewer than {_FEWEST} repetitions, so no interval for {other}")
        each.append(Effect.from_interval(ratio, rank=-1.0 if math.isnan(ratio[0]) else None))
    return Effects(each, before=notes, after=[budgets({name: budget for name, (_, budget) in met.items()})])


@EFFECTS.effect
def linearity(tables, problems: Annotated[tuple[str, ...], Field(min_length=1)], method: str, first: Positive = 1.0,
              target: Positive = TARGET, of: Of = "mean", backend: str = "jax"):  # fmt: skip
    """Evaluations over the second half of the decades between two targets, divided by those over the first half.

    It is 1 where the logarithm of the gap falls linearly: for each problem a geometric mean over repetitions, infinite
    if one of them misses the last target.
    """
    each = []
    for problem in problems:
        met = [
            _evaluations(tables, problem, method, gap, of, backend)
            for gap in (first, math.sqrt(first * target), target)
        ]
        (start, middle, end), budget = [values for values, _ in met], met[-1][1]
        ratio = (np.inf,) * 3
        if np.isfinite(end).all():
            with np.errstate(divide="ignore", invalid="ignore"):  # both gaps met in one generation
                ratio = np.exp(centre(np.log((end - middle) / (middle - start))))
        each.append(Effect.from_interval(ratio, pairs=len(end), note=f"{problem}; {budgets({method: budget})}"))
    return Effects(each)


@EFFECTS.effect
def final_gap_ratio(tables, problem: str, method: str, others: Names = (), of: Of = "mean", backend: str = "jax"):
    """The final gap divided by each rival's: a geometric mean over pairs of repetitions.

    A method with a diverged repetition counts as the higher one. Without rivals, it is divided by the gap of the start:
    the mean over repetitions, with a t-interval cut at zero.
    """
    ends = {name: _ends(tables, problem, name, backend) for name in dict.fromkeys((method, *others))}
    note, mine = budgets({name: rows["budget"].max() for name, rows in ends.items()}), ends[method]
    if not others:
        left = mine[_COLUMN[of]].to_numpy(float) / mine["start"].to_numpy(float)
        middle, low, high = mean_interval(left) if np.isfinite(left).all() else (np.inf, np.nan, np.nan)
        return Effect.from_interval((middle, np.maximum(low, 0.0), high), pairs=len(left), note=note)
    if not np.isfinite(mine["optimum"]).all():
        raise UserError(f"the optimum of {problem} is unknown, so there are no gaps: use the share of event lower")
    logs = {name: np.log(np.maximum(rows[_COLUMN[of]], _LEAST_GAP)) for name, rows in ends.items()}
    for other in others:
        _pairs(ends, method, other, problem)
    return Effects([compare(logs[method], logs[other], "geometric") for other in others], after=[note])


@EFFECTS.effect
def problems_solved(tables, problems: Annotated[tuple[str, ...], Field(min_length=1)], method: str,
                    target: Positive = TARGET, of: Of = "mean", backend: str = "jax"):  # fmt: skip
    """The number of problems on which all repetitions meet the target."""
    solved, spent = [], {}
    for problem in problems:
        values, spent[problem] = _evaluations(tables, problem, method, target, of, backend)
        solved += [problem] if np.isfinite(values).all() else []
    note, number = f"{', '.join(solved) or 'none'}; {budgets(spent)}", len(solved)
    return Effect(number, number, number, counted=True, reach=(len(problems), 0), note=note)


def _counted(met, note="", noun="repetition"):
    """``k of n`` of a noun, before a note."""
    return "; ".join(filter(None, (f"{int(met.sum())} of {count(len(met), noun)}", note)))


def _share(met, note=""):
    """The share of repetitions for which ``met`` is true."""
    number, n = int(met.sum()), len(met)
    low, high = (float(end) for end in share_interval(number, n))
    reach = float(share_interval(n, n)[0]), float(share_interval(0, n)[1])
    return Effect(number / n, low, high, pairs=n, counted=True, reach=reach, note=note)


def _ratio(mine, rival):
    """The ratio of medians and its bootstrap interval.

    Repetitions share their starts, so they are resampled in pairs if both methods have the same number of them.
    """
    (a, budget_a), (b, budget_b) = mine, rival
    rng = np.random.default_rng(0)
    n, m = len(a), len(b)
    picks_a = rng.integers(n, size=(_RESAMPLES, n))
    picks_b = picks_a if n == m else rng.integers(m, size=(_RESAMPLES, m))

    def medians(values, budget, picks):
        return np.maximum(quantile(np.where(np.isfinite(values), values, budget)[picks], 0.5), 1.0)

    all_a, all_b = np.arange(n)[None, :], np.arange(m)[None, :]
    at_least = medians(a, budget_a, picks_a) / medians(b, np.inf, picks_b)
    at_most = medians(a, np.inf, picks_a) / medians(b, budget_b, picks_b)
    reached = np.isfinite(quantile(a, 0.5)), np.isfinite(quantile(b, 0.5))
    ratio = float(medians(a, budget_a, all_a)[0] / medians(b, budget_b, all_b)[0]) if any(reached) else np.nan
    if min(n, m) < _FEWEST:
        return ratio, np.nan, np.nan
    low = np.quantile(at_least, 0.025, method="lower")
    high = np.quantile(at_most, 0.975, method="higher")
    return ratio, float(low), float(high)


def _pairs(ends, method, other, problem):
    """The repetitions that two methods have in common."""
    pairs = ends[method].index.intersection(ends[other].index)
    if not len(pairs):
        raise UserError(f"{method} and {other} on {problem} have no common repetitions")
    return pairs


def _ran(tables, name: str, backend: str, **wanted):
    """The rows of a method in a backend, or in its only one, such as that of a wrapped peer; Missing without any."""
    found = select(table(tables, name), **wanted)
    ran = found[found["backend"] == backend]
    ran = found if not len(ran) and found["backend"].nunique() == 1 else ran
    if not len(ran):
        raise Missing(name, **wanted, backend=backend)
    return ran


def _evaluations(tables, problem, method, target, of, backend) -> tuple[np.ndarray, float]:
    """Evaluations of every repetition to the target, infinite if it missed it, and the budget."""
    ran = _ran(tables, "hits", backend, problem=problem, method=method, of=of)
    rows = ran[same_target(ran["target"], target)].sort_values("repetition")
    if not len(rows):
        raise UserError(f"the table 'hits' has no rows of target {target:g}")
    return rows["evaluations"].to_numpy(float), float(rows["budget"].max())


def _ends(tables, problem, method, backend):
    return _ran(tables, "ends", backend, problem=problem, method=method).set_index("repetition").sort_index()


def budgets(spent: dict[str, float]) -> str:
    """Budgets as text: the first, and those that differ from it.

    >>> budgets({"ingo": 1.4e6, "es": 1.4e6, "pycma": 5e5})
    'budget 1.4e6 evaluations (pycma 5e5)'
    """
    first, *rest = spent.items()
    others = ", ".join(f"{name} {_short(budget)}" for name, budget in rest if budget != first[1])
    return f"budget {_short(first[1])} evaluations{f' ({others})' if others else ''}"


def _short(budget: float) -> str:
    if budget < 1e4:
        return f"{budget:.0f}"
    digits, power = f"{budget:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
