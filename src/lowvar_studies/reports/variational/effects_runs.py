"""Effects on runs: final gaps, ELBOs at equal effort, iterations to a level, step sizes, problem sizes, costs.

Methods are compared on the envelope of step sizes (table ``paths``), except by their final gaps and by the step sizes
at which they diverge. Repetitions of the same number share noise and start, so differences are taken within pairs of
repetitions that both methods have; fewer than two pairs have no interval. With ``interval="rank"``, the difference is
the median over pairs with its distribution-free interval (a sign test), for heavy tails; it takes six pairs.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from lowvar.core.intervals import rank_interval, ratio_interval
from lowvar.errors import UserError
from lowvar_studies.reports.effect import (
    Count,
    Declared,
    Effect,
    Effects,
    Interval,
    Rivals,
    centre,
    compare,
    count,
    rows,
    said,
    select,
    table,
)

EFFECTS = Declared()

_PAIRS = 2  # least number of pairs for a verdict
_EVERYWHERE = "diverged at every step size"


@EFFECTS.effect
def gap_ratio(tables, problem: str, method: str, others: Rivals, backend: str = "jax"):
    """The final gap divided by each rival's, both at their best step sizes: a geometric mean over pairs."""
    mine, *rivals = (_at_best(tables, problem, one, backend) for one in (method, *others))
    if not len(mine):
        return Effect.certain(np.inf)
    if mine["gap"].isna().all():
        raise UserError(f"the optimum of {problem} is unknown, so there are no gaps: use elbo_difference")
    ratios = [compare(np.log(mine["gap"]), np.log(rival["gap"]), "geometric") for rival in rivals if len(rival)]
    return Effects(ratios) if ratios else Effect.certain(0.0)


@EFFECTS.effect
def elbo_difference(tables, problem: str, method: str, others: Rivals, iteration: Count | None = None,
                    interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """The ELBO less each rival's after the same iterations: at the last common one, up to ``iteration``."""
    mine = _path(tables, problem, method, backend)
    if _lost(tables, problem, method, backend):
        return Effect.certain(-np.inf, f"{method} {_EVERYWHERE}")
    each, notes = [], []
    for other in others:
        rival = _path(tables, problem, other, backend)
        if _lost(tables, problem, other, backend):
            notes.append(f"{other} {_EVERYWHERE}")
            continue
        at = _last_common([mine, rival], iteration)
        if not at:
            notes.append(f"{other} has no common iteration")
        ahead = compare(_at(mine, at), _at(rival, at), "difference", interval) if at else Effect.undecided("")
        note = f"nats ahead of {other} after {at} iterations; {said(interval)}{count(ahead.pairs or 0, 'pair')}"
        each.append(replace(ahead, note=note))
    return Effects(each, before=notes) if each else Effect.certain(np.inf, "; ".join(notes))


@EFFECTS.effect
def elbo_fraction(tables, problem: str, method: str, other: str, reference: str, iteration: Count | None = None,
                  backend: str = "jax"):  # fmt: skip
    """``(ELBO_other - ELBO_method) / (ELBO_reference - ELBO_method)``.

    After the same iterations, as in ``elbo_difference``.
    """
    methods = (method, other, reference)
    paths = [_path(tables, problem, one, backend) for one in methods]
    at = _last_common(paths, iteration)
    if not at or any(_lost(tables, problem, one, backend) for one in methods):
        return Effect.undecided(f"one of the methods {_EVERYWHERE}, or they have no common iteration")
    mine, theirs, third = (_at(path, at) for path in paths)
    shared = mine.index.intersection(theirs.index).intersection(third.index)
    if not len(shared):
        return Effect.undecided("no common repetitions")
    note = f"({other} less {method}) / ({reference} less {method}); {at} iterations"
    note = f"{note}, {count(len(shared), 'pair')}"
    fraction = ratio_interval(theirs[shared] - mine[shared], third[shared] - mine[shared])
    return Effect.of(fraction, pairs=len(shared), note=note)


@EFFECTS.effect
def effort_ratio(tables, problem: str, method: str, others: Rivals,
                 unit: Literal["iterations", "seconds"] = "iterations", level: float | None = None,
                 interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """The iterations or seconds to the ELBO ``level``, divided by each rival's: a geometric mean over pairs.

    The default level is the final ELBO of the rival's repetition in the pair. A run that does not reach the level
    bounds the ratio; the interval then extends from the smallest to the largest bound. With ``interval="rank"``, it is
    the median ratio, and the distribution-free interval of the median of the bounds.
    """
    mine = _path(tables, problem, method, backend)
    if _lost(tables, problem, method, backend):
        return Effect.certain(np.inf, f"{method} {_EVERYWHERE}")
    each, notes = [], []
    for other in others:
        rival = _path(tables, problem, other, backend)
        if level is None and _lost(tables, problem, other, backend):
            notes.append(f"{other} {_EVERYWHERE}")
            each.append(Effect(0.0, 0.0, 0.0))
            continue
        shared = sorted(set(mine["repetition"]) & set(rival["repetition"]))
        notes.append(f"{count(len(shared), 'pair')} with {other}")
        if not shared:
            each.append(Effect(np.nan))
            continue
        bounds = [_raced(*(path[path["repetition"] == r] for path in (mine, rival)), level) for r in shared]
        low, high = np.array(bounds).T
        pace = _pace(tables, problem, method, other, backend) if unit == "seconds" else Effect.certain(1.0)
        low, high, notes = low * pace.value, high * pace.value, [*notes, pace.note]
        if len(shared) < _PAIRS:
            notes.append(f"fewer than {_PAIRS}: undecided")
            each.append(Effect(float(np.median([low, high])), 0.0, np.inf))
        elif interval == "rank":
            (least, bottom, _), (most, _, top) = rank_interval(low), rank_interval(high)
            notes += [said(interval).strip("; "), *_missed(method, other, low, high)]
            within = pace.high / pace.value if pace.pairs else 1.0
            each.append(Effect(most if np.isinf(most) else least, bottom / within, top * within))
        elif np.array_equal(low, high):
            each.append(_widened(np.exp(centre(np.log(low))), pace))
        else:
            notes += _missed(method, other, low, high)
            middle = float(np.median(np.where(np.isinf(high), np.inf, low)))
            each.append(Effect(middle, float(low.min()), float(high.max())))
    return Effects(each, before=notes)


@EFFECTS.effect
def step_size_ratio(tables, problem: str, method: str, others: Rivals, backend: str = "jax"):
    """The largest step size at which a method ends as high as a rival at its best step size, divided by that one.

    The smallest ratio over the rivals. ``low`` is the ratio that is certain, ``high`` the one that cannot be ruled out.
    """
    where = {"problem": problem, "backend": backend}
    mine, each = rows(tables, "ends", **where, method=method), []
    for other in others:
        rival = _at_best(tables, problem, other, backend)
        if not len(rival):
            continue
        best = rival["step_size"].iloc[0]
        largest = [0.0, 0.0, 0.0]  # by the mean, its lower end, its upper end
        for size, ended in mine[mine["status"] == "ok"].groupby("step_size"):
            ahead = compare(ended.set_index("repetition")["elbo"], rival["elbo"], "difference")
            complete = len(ended) == (mine["step_size"] == size).sum()
            for at, good in enumerate((ahead.value >= 0, ahead.low >= 0, not ahead.high < 0)):
                if complete and good:
                    largest[at] = max(largest[at], size / best)
        each.append((*largest, other, mine["step_size"].max() / best))
    if not each:
        return Effect.certain(np.inf, f"the others {_EVERYWHERE}")
    ratio, low, high, other, end = min(each)
    least, most = min(one[1] for one in each), min(one[2] for one in each)
    note = f"relative to the best step size of {other}"
    if ratio == end and most <= 1:
        note, most = f"{note}; the end of the grid", np.inf
    return Effect(ratio, low, high, note=note, bounds=(least, most))


@EFFECTS.effect
def stable_step_ratio(tables, problem: str, method: str, other: str, backend: str = "jax"):
    """The largest step size at which no repetition diverged or ended below its start, divided by the other's."""
    (mine, runs), (theirs, others) = (_stable(tables, problem, one, backend) for one in (method, other))
    ratio = mine / theirs if theirs else np.inf if mine else np.nan
    note = f"{mine:g} against {theirs:g}, {count(min(runs, others), 'repetition')}"
    few = np.isnan(ratio) or min(runs, others) < _PAIRS
    return Effect(ratio, note=note) if few else Effect.certain(ratio, note)


@EFFECTS.effect
def time_ratio(tables, problem: str, method: str, other: str = "naive", backend: str = "jax"):
    """Seconds of a step divided by another method's: a geometric mean over rounds in which a benchmark alternates them.

    Without the benchmark's file it is not judged: times of separate jobs depend on what else the machine does.
    """
    return _pace(tables, problem, method, other, backend)


def _at_best(tables, problem, method, backend):
    """A method's repetitions at the end at its best step size, by number; none if it diverged at every step size."""
    ends = rows(tables, "ends", problem=problem, method=method, backend=backend)
    return ends[ends["best"]].set_index("repetition").sort_index()


def _lost(tables, problem, method, backend):
    """Whether a method diverged at every step size, or has no finite ELBO at the end."""
    return not np.isfinite(_at_best(tables, problem, method, backend)["elbo"]).any()


def _path(tables, problem, method, backend):
    """A method's repetitions along the envelope.

    Raises:
        UserError: the method did not run on the problem.
    """
    where = {"problem": problem, "method": method, "backend": backend}
    rows(tables, "ends", **where)
    return select(table(tables, "paths"), **where).sort_values(["repetition", "iteration"])


def _last_common(paths, bound):
    """The last common iteration up to a bound; 0 if there is none after the start."""
    shared = set.intersection(*(set(path["iteration"]) for path in paths))
    return max((one for one in shared if one > 0 and (bound is None or one <= bound)), default=0)


def _at(path, iteration):
    return path[path["iteration"] == iteration].set_index("repetition")["elbo"]


def _missed(method, other, low, high):
    """Notes on repetitions that miss the level."""
    missed = [(method, int(np.isinf(high).sum())), (other, int((low == 0).sum()))]
    return [f"{name} misses the level in {number} of {len(low)}" for name, number in missed if number]


def _raced(own, rival, level):
    """Bounds on the ratio of iterations; equal where both reach the level."""
    level = float(rival["elbo"].iloc[-1]) if level is None else level
    mine, other = _reached(own, level), _reached(rival, level)
    if np.isfinite(mine) and np.isfinite(other):
        return mine / other, mine / other
    least = own["iteration"].iloc[-1] / other * (1 + 1e-9) if np.isfinite(other) else 0.0  # it may reach it later
    most = mine / rival["iteration"].iloc[-1] * (1 - 1e-9) if np.isfinite(mine) else np.inf
    return least, most


def _reached(path, level):
    """Iterations until the ELBO reaches a level, interpolated linearly; infinite if it never does."""
    elbo, iteration = path["elbo"].to_numpy(float), path["iteration"].to_numpy(float)
    reached = np.flatnonzero(elbo >= level)
    if not len(reached):
        return np.inf
    at = int(reached[0])
    if at == 0 or not np.isfinite(elbo[at - 1]):
        return max(iteration[at], 1.0)
    part = (level - elbo[at - 1]) / (elbo[at] - elbo[at - 1])
    return max(iteration[at - 1] + part * (iteration[at] - iteration[at - 1]), 1.0)


def _stable(tables, problem, method, backend):
    """The largest step size at which every repetition ends above its start, and the number of repetitions."""
    where = {"problem": problem, "method": method, "backend": backend}
    ends = rows(tables, "ends", **where)
    start = rows(tables, "convergence", **where, epoch=0).set_index("step_size")["elbo_mean"]
    sizes = [size for size, ended in ends.groupby("step_size")
             if (ended["status"] == "ok").all() and (ended["elbo"] > start[size]).all()]  # fmt: skip
    return max(sizes, default=0.0), ends["repetition"].nunique()


def _widened(ratio, pace):
    """A ratio of iterations times that of seconds, with the interval of the product of independent factors."""
    value, low, high = ratio
    within = np.log(pace.high / pace.value) if pace.pairs else 0.0
    return Effect(value, value * np.exp(-np.hypot(np.log(value / low), within)),
                  value * np.exp(np.hypot(np.log(high / value), within)))  # fmt: skip


def _pace(tables, problem, method, other, backend):
    """The ratio of the seconds of a step, over the rounds of a benchmark; without a value if it did not time both."""
    times = select(table(tables, "times"), problem=problem, backend=backend)
    mine, theirs = (select(times, method=one).set_index("round")["seconds"] for one in (method, other))
    ratio = compare(np.log(mine), np.log(theirs), "geometric")
    if not ratio.pairs:
        return Effect.undecided("not judged: no benchmark has timed both methods side by side")
    return replace(ratio, note=f"{count(ratio.pairs, 'alternating round')} of a benchmark")
