"""Claims about runs: ELBOs at the end and on the way, step sizes, sizes, costs; `claims.variational` has the list."""

from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.decomposition import mean_interval, ratio_interval
from lowvar.errors import UserError
from lowvar.studies.variational.claims_variances import Positive, row
from lowvar.studies.verdicts import Strict, all_below, look_up, within

Rivals = Annotated[tuple[str, ...], Field(min_length=1)]

_PAIRS = 2  # repetitions without which nothing is decided
_OTHERS = 1.5  # how much slower a job may be for what else the machine does; benchmarks time methods side by side


class GapTest(Strict):
    """At its best step size a method ends nearer to the optimum than the others, after the same iterations."""

    kind: Literal["gap"]
    problem: str
    method: str
    others: tuple[str, ...]
    backend: str = "jax"


class _Compared(Strict):
    problem: str
    method: str
    backend: str = "jax"


class AheadTest(_Compared):
    """A method has a higher ELBO than the others after the same iterations."""

    kind: Literal["ahead"]
    others: Rivals
    iteration: Annotated[int, Field(gt=0)] | None = Field(None, description="the last measured one up to this")


class AlikeTest(_Compared):
    """Two methods' ELBOs differ little, in parts of the distance between the first and ``reference``."""

    kind: Literal["alike"]
    other: str
    reference: str
    tolerance: Positive = 0.2
    iteration: Annotated[int, Field(gt=0)] | None = None


class RaceTest(_Compared):
    """A method comes where the others end in fewer iterations (or seconds) than they take."""

    kind: Literal["race"]
    others: Rivals
    unit: Literal["iterations", "seconds"] = "iterations"
    level: float | None = Field(None, description="ELBO that all are to reach; where each of the others ends if None")
    below: Positive = 1.0
    published: Positive | None = None


class StepsTest(_Compared):
    """A method does as well as the others' best with larger steps than theirs."""

    kind: Literal["steps"]
    others: Rivals


class BearsTest(_Compared):
    """A method bears larger steps than another without diverging."""

    kind: Literal["bears"]
    other: str


class SizeTest(Strict):
    """A problem has as many rows, or dimensions, as published."""

    kind: Literal["size"]
    problem: str
    of: Literal["rows", "dim"]
    published: int


class GradientsTest(_Compared):
    """An iteration costs as many gradient evaluations as published, in batches."""

    kind: Literal["gradients"]
    published: Positive
    tolerance: Positive = 0.1


class TimeTest(_Compared):
    """An iteration takes so many times another method's time: about ``published``, or ``at_most``."""

    kind: Literal["time"]
    other: str = "naive"
    published: Positive | None = None
    tolerance: Positive = 0.25
    at_most: Positive | None = None
    at_least: Positive | None = None

    @pydantic.model_validator(mode="after")
    def _one_of_them(self):
        if (self.published is None) == (self.at_most is None and self.at_least is None):
            raise ValueError("either published must be given, or at_most or at_least")
        return self


RunTest = GapTest | AheadTest | AlikeTest | RaceTest | StepsTest | BearsTest | SizeTest | GradientsTest | TimeTest


def _gap(test, tables):
    ends = look_up(tables, "ends")
    mine = _ends(ends, test, test.method)
    if not len(mine):  # a method without an end diverged at every step size
        return row(np.inf, np.nan, np.nan, "fails")
    rivals = {other: _ends(ends, test, other) for other in test.others}
    if mine["gap"].isna().all():
        raise UserError(f"a claim speaks of gaps on {test.problem}, whose optimum is not known; use the kind ahead")
    ratios = [tuple(np.exp(v) for v in _paired(np.log(mine["gap"]), np.log(rival["gap"])))
              for rival in rivals.values() if len(rival)]  # fmt: skip
    nearest = max(ratios, key=lambda ratio: ratio[0], default=(0.0, np.nan, np.nan))
    ours, low, high = nearest
    return row(ours, low, high, all_below(((low, high) for _, low, high in ratios), 1.0))


def _ahead(test, tables):
    mine = _path(tables, test, test.method)
    if _lost(tables, test, test.method):
        return row(-np.inf, np.nan, np.nan, "fails", None, f"{test.method} diverged at every step size")
    found, notes = [], []
    for other in test.others:
        rival = _path(tables, test, other)
        if _lost(tables, test, other):
            notes.append(f"{other} diverged at every step size")
            continue
        at = _last_common(mine, rival, test.iteration)
        if at is None:
            notes.append(f"{other} was never measured after the same iterations")
            found.append((np.nan, np.nan, np.nan, other, 0, 0))
            continue
        difference = _paired(_at(mine, at), _at(rival, at))
        found.append((*difference, other, at, len(_at(mine, at).index.intersection(_at(rival, at).index))))
    if not found:
        return row(np.inf, np.nan, np.nan, "holds", None, "; ".join(notes))
    ours, low, high, other, at, pairs = min(found, key=lambda one: -np.inf if np.isnan(one[0]) else one[0])
    verdict = all_below(((-high, -low) for _, low, high, *_ in found), 0.0)
    notes.append(f"nats ahead of {other} after {at} iterations; {pairs} pair{'s' * (pairs != 1)}")
    return row(ours, low, high, verdict, None, "; ".join(notes))


def _alike(test, tables):
    methods = (test.method, test.other, test.reference)
    paths = [_path(tables, test, method) for method in methods]
    at = _last_common(*paths, test.iteration)
    if at is None or any(_lost(tables, test, method) for method in methods):
        return row(np.nan, np.nan, np.nan, "undecided", None, "one of them diverged at every step size")
    mine, other, reference = (_at(path, at) for path in paths)
    shared = mine.index.intersection(other.index).intersection(reference.index)
    if not len(shared):
        return row(np.nan, np.nan, np.nan, "undecided", None, "no common repetitions")
    ours, low, high = ratio_interval(other[shared] - mine[shared], reference[shared] - mine[shared])
    verdict = "holds" if -test.tolerance < low and high < test.tolerance else "undecided"
    if high < -test.tolerance or low > test.tolerance:
        verdict = "fails"
    note = f"{test.other} less {test.method}, in parts of {test.reference} less {test.method}; {at} iterations, "
    return row(ours, low, high, verdict, None, f"{note}{len(shared)} pair{'s' * (len(shared) != 1)}")


def _race(test, tables):
    mine, found, notes = _path(tables, test, test.method), [], []
    if _lost(tables, test, test.method):
        note = f"{test.method} diverged at every step size"
        return row(np.inf, np.nan, np.nan, "fails", test.published, note)
    for other in test.others:
        rival = _path(tables, test, other)
        if test.level is None and _lost(tables, test, other):
            notes.append(f"{other} diverged at every step size")
            found.append((0.0, 0.0, 0.0))
            continue
        shared = sorted(set(mine["repetition"]) & set(rival["repetition"]))
        bounds = [_raced(*(path[path["repetition"] == r] for path in (mine, rival)), test.level) for r in shared]
        notes.append(f"{len(shared)} pair{'s' * (len(shared) != 1)} with {other}")
        if not bounds:
            found.append((np.nan, np.nan, np.nan))
            continue
        if len(bounds) < _PAIRS:
            notes.append(f"fewer than {_PAIRS}: undecided")
            found.append((float(np.median(bounds)), 0.0, np.inf))
            continue
        low, high = np.array(bounds).T
        if test.unit == "seconds":
            slower = _seconds(tables, test, test.method) / _seconds(tables, test, other)
            low, high = low * slower, high * slower
        if np.array_equal(low, high):
            found.append(tuple(float(np.exp(v)) for v in mean_interval(np.log(low))))
            continue
        missed = [(test.method, int(np.isinf(high).sum())), (other, int((low == 0).sum()))]
        notes += [f"{who} is not there in {count} of {len(shared)}" for who, count in missed if count]
        found.append((float(np.median(np.where(np.isinf(high), np.inf, low))), float(low.min()), float(high.max())))
    ours, low, high = max(found, key=lambda one: np.inf if np.isnan(one[0]) else one[0])
    verdict = all_below(((low, high) for _, low, high in found), test.below)
    return row(ours, low, high, verdict, test.published, "; ".join(notes))


def _raced(own, his, level):
    """Bounds of how many times the other's iterations one needs; equal where both are there."""
    level = float(his["elbo"].iloc[-1]) if level is None else level
    mine, other = _reached(own, level), _reached(his, level)
    if np.isfinite(mine) and np.isfinite(other):
        return mine / other, mine / other
    least = own["iteration"].iloc[-1] / other * (1 + 1e-9) if np.isfinite(other) else 0.0  # it may be there later
    most = mine / his["iteration"].iloc[-1] * (1 - 1e-9) if np.isfinite(mine) else np.inf
    return least, most


def _steps(test, tables):
    ends, found = look_up(tables, "ends"), []
    mine = _ran(ends, test, test.method)
    for other in test.others:
        _ran(ends, test, other)
        rival = _ends(ends, test, other)
        if not len(rival):
            continue
        largest = [0.0, 0.0, 0.0]  # by the mean, its lower end, its upper end
        for size, here in mine[mine["status"] == "ok"].groupby("step_size"):
            whole = len(here) == (mine["step_size"] == size).sum()
            differences = _paired(here.set_index("repetition")["elbo"], rival["elbo"])
            for at, good in enumerate((differences[0] >= 0, differences[1] >= 0, not differences[2] < 0)):
                if whole and good:
                    largest[at] = max(largest[at], size / rival["step_size"].iloc[0])
        found.append((*largest, other))
    if not found:
        return row(np.inf, np.nan, np.nan, "holds", None, "the others diverged at every step size")
    ours, certain, perhaps, other = min(found)
    least, most = min(one[1] for one in found), min(one[2] for one in found)
    verdict = "holds" if least > 1 else "fails" if most <= 1 else "undecided"
    note = f"relative to the best step of {other}"
    if ours == mine["step_size"].max() / _ends(ends, test, other)["step_size"].iloc[0] and verdict == "fails":
        verdict, note = "undecided", f"{note}; the grid ends there"
    return row(ours, certain, perhaps, verdict, None, note)


def _bears(test, tables):
    ends, starts = look_up(tables, "ends"), look_up(tables, "convergence")

    def largest(method):
        rows = _ran(ends, test, method)
        first = _of(starts, test, method)
        first = first[first["epoch"] == 0].set_index("step_size")["elbo_mean"]
        borne = [size for size, here in rows.groupby("step_size")
                 if (here["status"] == "ok").all() and (here["elbo"] > first[size]).all()]  # fmt: skip
        return max(borne, default=0.0), rows["repetition"].nunique()

    (mine, runs), (other, others) = largest(test.method), largest(test.other)
    ratio = mine / other if other else np.inf if mine else np.nan
    few = min(runs, others) < _PAIRS
    verdict = "undecided" if np.isnan(ratio) or few else "holds" if ratio > 1 else "fails"
    repeated = f"{min(runs, others)} repetition{'s' * (min(runs, others) != 1)}"
    return row(ratio, np.nan, np.nan, verdict, None, f"{mine:g} against {other:g}, {repeated}")


def _size(test, tables):
    sizes = look_up(tables, "table2")
    rows = sizes[sizes["problem"] == test.problem]
    if len(rows) != 1:
        raise UserError(f"a claim speaks of the size of {test.problem}, which the table 'table2' does not have")
    ours = float(rows[test.of].iloc[0])
    return row(ours, np.nan, np.nan, "holds" if ours == test.published else "fails", test.published)


def _evaluations(test, tables):
    ours = float(_cost(tables, test, test.method)["evaluations"])
    verdict = within(ours, ours, test.published, test.tolerance)
    return row(ours, np.nan, np.nan, verdict, test.published)


def _time(test, tables):
    mine, other = (_cost(tables, test, method) for method in (test.method, test.other))
    ratio = float(mine["seconds"] / other["seconds"])
    apart = np.hypot(*(np.log(one["seconds_high"] / one["seconds_low"]) / 2 for one in (mine, other)))
    low, high = ratio * np.exp(-apart) / _OTHERS, ratio * np.exp(apart) * _OTHERS
    runs = f"one of {int(mine['runs'])} runs computed together, and of {int(other['runs'])}"
    note = f"jobs at different times, perhaps beside others; {runs}"
    if not np.isfinite(ratio):
        return row(np.nan, np.nan, np.nan, "undecided", test.published, "times were not measured here")
    if test.published is not None:
        return row(ratio, low, high, within(low, high, test.published, test.tolerance), test.published, note)
    least, most = test.at_least or 0.0, test.at_most or np.inf
    verdict = "holds" if least <= low and high <= most else "fails" if high < least or low > most else "undecided"
    return row(ratio, low, high, verdict, None, note)


def _of(table, test, method):
    """The rows of a method on a claim's problem and backend."""
    here = (table["problem"] == test.problem) & (table["backend"] == test.backend)
    return table[here & (table["method"] == method)]


def _ran(table, test, method):
    """As ``_of``.

    Raises:
        UserError: the method did not run on the problem.
    """
    rows = _of(table, test, method)
    if not len(rows):
        raise UserError(f"a claim speaks of {method} on {test.problem}, which did not run there in {test.backend}")
    return rows


def _ends(ends, test, method):
    """The repetitions of a method at the end of its best step, by their number."""
    rows = _of(ends, test, method)
    return rows[rows["best"]].set_index("repetition").sort_index()


def _lost(tables, test, method):
    """Whether a method diverged at every step size, or ends nowhere at a finite ELBO."""
    ends = _of(look_up(tables, "ends"), test, method)
    return not (ends["best"] & np.isfinite(ends["elbo"])).any()


def _path(tables, test, method):
    """A method's repetitions along the envelope.

    Raises:
        UserError: the method did not run on the problem.
    """
    _ran(look_up(tables, "ends"), test, method)
    return _of(look_up(tables, "paths"), test, method).sort_values(["repetition", "iteration"])


def _last_common(*paths_and_bound):
    """The last iteration up to a bound at which all were measured; None if there is none past the start."""
    *paths, bound = paths_and_bound
    shared = set.intersection(*(set(path["iteration"]) for path in paths))
    return max((one for one in shared if one > 0 and (bound is None or one <= bound)), default=None)


def _at(path, iteration):
    rows = path[path["iteration"] == iteration]
    return rows.set_index("repetition")["elbo"]


def _paired(mine, other):
    """The mean of differences over common repetitions, and its interval."""
    shared = mine.index.intersection(other.index)
    with np.errstate(over="ignore", invalid="ignore"):  # ELBOs of runs that are lost can be as low as numbers go
        return mean_interval((mine[shared] - other[shared]).to_numpy(float)) if len(shared) else (np.nan,) * 3


def _reached(path, level):
    """Iterations until an ELBO is at a level, between measurements by straight lines; infinite if it never is."""
    elbo, iteration = path["elbo"].to_numpy(float), path["iteration"].to_numpy(float)
    there = np.flatnonzero(elbo >= level)
    if not len(there):
        return np.inf
    at = int(there[0])
    if at == 0 or not np.isfinite(elbo[at - 1]):
        return max(iteration[at], 1.0)
    part = (level - elbo[at - 1]) / (elbo[at] - elbo[at - 1])
    return max(iteration[at - 1] + part * (iteration[at] - iteration[at - 1]), 1.0)


def _cost(tables, test, method):
    """A method's row of the table of costs."""
    rows = _of(look_up(tables, "table3"), test, method)
    if len(rows) != 1:
        raise UserError(f"a claim speaks of the cost of {method} on {test.problem}, which did not run there")
    return rows.iloc[0]


def _seconds(tables, test, method):
    return float(_cost(tables, test, method)["seconds"])


JUDGES = {
    "gap": _gap,
    "ahead": _ahead,
    "alike": _alike,
    "race": _race,
    "steps": _steps,
    "bears": _bears,
    "size": _size,
    "gradients": _evaluations,
    "time": _time,
}
