"""Effects on variational problems: variances of gradients, their errors along runs, ELBOs, gaps, steps and times.

Repetitions of the same number share noise and start, so differences are taken within pairs of repetitions that both
methods have; fewer than two pairs have no interval. With ``interval="rank"``, the difference is the median over pairs
with its distribution-free interval (a sign test), for heavy tails; it takes six pairs.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from lowvar.core.intervals import rank_interval, ratio_interval, ratio_of_means
from lowvar.errors import UserError
from lowvar_studies.reports.effect import (
    UNKNOWN,
    Declared,
    Effect,
    Effects,
    Interval,
    Missing,
    Positive,
    Rivals,
    centre,
    compare,
    count,
    rows,
    select,
    statistic,
    table,
)
from lowvar_studies.reports.variational.diagnostics import PARTS, REALISED
from lowvar_studies.reports.variational.gathering import first_setting

Source = Literal["total", "subsampling", "monte_carlo", "interaction"]
Quantity = Literal["variance", "squared_error", "signal", "mean2", "snr_conditional", "snr_true", "snr_conditional_1",
                   "snr_true_1", "state_bytes"]  # fmt: skip
_RATIOS = ("snr_conditional", "snr_true", "snr_conditional_1", "snr_true_1")
_WORST = {"variance": np.inf, "squared_error": np.inf, **dict.fromkeys(_RATIOS, 0.0)}  # of a method that diverged
Moment = Literal["start", "first", "end", "along"]
Along = Literal["best", "envelope"]

EFFECTS = Declared()

_LABEL = "weighted parts"
_PAIRS = 2  # least number of pairs for a verdict
_HULL = 5  # if a run misses its level: extremes of five enclose the median with 94 %
_SETTINGS = {"alpha0": "step_size", "beta": "beta", "r": "r"}
_UNITS = {"elbo": "nats", "test_log_likelihood": "nats per test row"}


@EFFECTS.effect
def variance_ratio(tables, problem: str, method: str, others: Rivals, source: Source = "total",
                   parts: tuple[Source, ...] = (), weights: dict[Source, float] | None = None, block: str = "all",
                   moment: Literal["end", "along"] = "end"):  # fmt: skip
    """The variance of a batch's gradient divided by each rival's, on the same runs, designs and noise.

    Intervals are by the jackknife.
    With ``parts`` it is divided by these parts of the rival's variance instead of by the same ``source``, with
    ``weights`` by a weighted sum of its parts. ``moment`` is the end of the run, or all moments from the end of the
    first epoch on.
    """
    from lowvar.vi.crossed import batch_variances

    mine, size, each = _designs(tables, problem, method, block), _batch_size(tables, problem), []
    moments = mine["end"] if moment == "end" else mine["epoch"] > 0
    epochs = sorted(mine.loc[moments, "epoch"].unique())
    for other in others:
        theirs = _designs(tables, problem, other, block)
        for epoch in epochs:
            own, rival = (batch_variances(select(one, epoch=epoch), size) for one in (mine, theirs))
            for part in (_LABEL,) if weights else parts or (source,):
                if weights:
                    rival[_LABEL] = np.sum([weight * rival[one] for one, weight in weights.items()], axis=0)
                ratio = ratio_of_means([(1, own[source]), (-1, rival[part])])
                note = f"to {other}'s {part.replace('_', ' ')}, epoch {epoch}"
                note += f", the worst of {len(epochs)} moments" if moment == "along" else ""
                each.append(Effect.from_interval(ratio, note=note))
    return Effects(each)


def _batch_size(tables, problem) -> int:
    """The first batch size of a problem's decomposition."""
    found = rows(tables, "decomposition", problem=problem)
    return int(found["batch_size"].iloc[0])


def _designs(tables, problem, method, block):
    """Single designs of a method's variance in a block, at every moment, under the first noise scheme."""
    wanted = {"problem": problem, "method": method, "block": block}
    found = select(first_setting(table(tables, "designs")), **wanted)
    if not len(found):
        raise Missing("designs", **wanted)
    return found


@EFFECTS.effect
def gap_ratio(tables, problem: str, method: str, others: Rivals, backend: str = "jax"):
    """The final gap divided by each rival's, both at their best step sizes: a geometric mean over pairs."""
    mine, *rivals = (_at_best(tables, problem, one, backend) for one in (method, *others))
    if not len(mine):
        return Effect.certain(np.inf)
    if mine["gap"].isna().all():
        raise UserError(f"the optimum of {problem} is unknown, so there are no gaps: use difference")
    ratios = [compare(np.log(mine["gap"]), np.log(rival["gap"]), "geometric") for rival in rivals if len(rival)]
    return Effects(ratios) if ratios else Effect.certain(0.0)


@EFFECTS.effect
def elbo_fraction(tables, problem: str, method: str, other: str, reference: str, backend: str = "jax"):
    """``(ELBO_other - ELBO_method) / (ELBO_reference - ELBO_method)``.

    After the same iterations, along the envelope, as in ``difference``.
    """
    paths = [_line(tables, problem, one, backend, along="envelope") for one in (method, other, reference)]
    shared = [set(path["iteration"]) for path in paths if path is not None]
    at = max(set.intersection(*shared), default=0) if shared else 0
    if not at or len(shared) < len(paths):
        return Effect.undecided("one of the methods diverged at every step size, or they have no common iteration")
    elbo = [path[path["iteration"] == at].set_index("repetition")["elbo"] for path in paths if path is not None]
    pairs = elbo[0].index.intersection(elbo[1].index).intersection(elbo[2].index)
    if not len(pairs):
        return Effect.undecided("no common repetitions")
    mine, theirs, third = (values[pairs] for values in elbo)
    note = f"({other} less {method}) / ({reference} less {method}); {at} iterations, {count(len(pairs), 'pair')}"
    return Effect.from_interval(ratio_interval(theirs - mine, third - mine), pairs=len(pairs), note=note)


@EFFECTS.effect
def effort_ratio(tables, problem: str, method: str, others: Rivals,
                 unit: Literal["iterations", "seconds", "step"] = "iterations", level: float | None = None,
                 interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """The iterations or seconds to the ELBO ``level``, or the seconds of a step, divided by each rival's.

    A geometric mean over pairs; of a step, over rounds in which a benchmark alternates the methods. Without the
    benchmark's file it is not judged: times of separate jobs depend on what else the machine does.
    The default level is the final ELBO of the rival's repetition in the pair. A run that does not reach the level
    bounds the ratio; the interval then extends from the smallest to the largest bound, which contains the median ratio
    with 94 % for five pairs, with more for more, and without a verdict for fewer. The value is the median of
    the finite side, with a note, if the median ratio itself is only bounded. With ``interval="rank"``, it is
    the median ratio, and the distribution-free interval of the median of the bounds.
    """
    if unit == "step":
        if level is not None or interval != "t":
            raise UserError("effort_ratio: unit step has neither level nor interval: leave them out")
        return Effects([_pace(tables, problem, method, other, backend) for other in others])
    mine = _line(tables, problem, method, backend, along="envelope")
    if mine is None:
        return Effect.certain(np.inf, _diverged(method))
    each, notes = [], []
    for other in others:
        rival = _line(tables, problem, other, backend, along="envelope")
        if rival is None and level is None:
            notes.append(_diverged(other))
            each.append(Effect(0.0, 0.0, 0.0))
            continue
        rival = _path(tables, problem, other, backend) if rival is None else rival
        shared = sorted(set(mine["repetition"]) & set(rival["repetition"]))
        notes.append(f"{count(len(shared), 'pair')} with {other}")
        if not shared:
            each.append(Effect(np.nan))
            continue
        own, his = (dict(iter(path.groupby("repetition"))) for path in (mine, rival))
        bounds = [_raced(own[number], his[number], level) for number in shared]
        low, high = np.array(bounds).T
        pace = _pace(tables, problem, method, other, backend) if unit == "seconds" else Effect.certain(1.0)
        low, high, notes = low * pace.value, high * pace.value, [*notes, pace.note]
        means = interval == "t" and np.array_equal(low, high)
        fewest = _HULL if interval == "t" and not means else _PAIRS
        if len(shared) < fewest:
            notes += [f"fewer than {fewest}: undecided", *_missed(method, other, low, high)]
            each.append(Effect(float(np.median([low, high])), 0.0, np.inf))
        elif means:
            each.append(_widened(np.exp(centre(np.log(low))), pace))
        else:
            bottom, top = (
                (rank_interval(low)[1], rank_interval(high)[2]) if interval == "rank" else (low.min(), high.max())
            )
            notes += [*filter(None, [statistic(interval).strip("; ")]), *_missed(method, other, low, high)]
            within = pace.high / pace.value if pace.pairs else 1.0
            each.append(_bounded(low, high, float(bottom / within), float(top * within)))
    return Effects(each, before=notes)


@EFFECTS.effect
def step_size_ratio(tables, problem: str, method: str, others: Rivals,
                    ends: Literal["as_high", "above_start"] = "as_high", backend: str = "jax"):  # fmt: skip
    """The largest step size at which a method ends as high as a rival at its best step size, divided by that one.

    The smallest ratio over the rivals. ``low`` is the ratio that is certain, ``high`` the one that cannot be ruled out.
    With ``above_start``: the largest step size at which no repetition diverged or ended below its start, divided by
    each rival's.
    """
    if ends == "above_start":
        return Effects([_stable_ratio(tables, problem, method, other, backend) for other in others])
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
        return Effect.certain(np.inf, "the others diverged at every step size")
    ratio, low, high, other, end = min(each)
    least, most = min(one[1] for one in each), min(one[2] for one in each)
    note = f"relative to the best step size of {other}"
    if ratio == end and most <= 1:
        note, most = f"{note}; the end of the grid", np.inf
    return Effect(ratio, low, high, note=note, bounds=(least, most))


def _at_best(tables, problem, method, backend):
    """A method's repetitions at the end at its best step size, by number; none if it diverged at every step size."""
    ends = rows(tables, "ends", problem=problem, method=method, backend=backend)
    return ends[ends["best"]].set_index("repetition").sort_index()


def _missed(method, other, low, high):
    """Notes on repetitions that miss the level."""
    missed = [(method, int(np.isinf(high).sum())), (other, int((low == 0).sum()))]
    return [f"{name} misses the level in {number} of {len(low)}" for name, number in missed if number]


def _bounded(low, high, bottom, top):
    """The median ratio, from bounds on the pairs' ratios, or the bound on it that is known; and an interval."""
    least, most = float(np.median(low)), float(np.median(high))
    if least == 0 and np.isfinite(most):
        return Effect(most, bottom, top, note="the value is an upper bound on the median ratio", rank=least)
    if np.isinf(most) and least > 0:
        return Effect(least, bottom, top, note="the value is a lower bound on the median ratio", rank=most)
    return Effect(most if np.isinf(most) else least, bottom, top)


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


def _stable_ratio(tables, problem, method, other, backend):
    """The ratio of the largest step sizes at which every repetition ends above its start."""
    (mine, runs), (theirs, others) = (_stable(tables, problem, one, backend) for one in (method, other))
    ratio = mine / theirs if theirs else np.inf if mine else np.nan
    note = f"{mine:g} against {theirs:g}, {count(min(runs, others), 'repetition')}"
    few = np.isnan(ratio) or min(runs, others) < _PAIRS
    return Effect(ratio, note=note) if few else Effect.certain(ratio, note)


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
    """The ratio of the seconds of a step, over a benchmark's processes; without a value if it did not time both."""
    times = select(table(tables, "times"), problem=problem, backend=backend)
    mine, theirs = (select(times, method=one).set_index("round")["seconds"] for one in (method, other))
    ratio = compare(np.log(mine), np.log(theirs), "geometric")
    if not ratio.pairs:
        return Effect.undecided("not judged: no benchmark has timed both methods side by side")
    return replace(ratio, note=f"{count(ratio.pairs, 'round')} of a benchmark, a process each")


@EFFECTS.effect
def measured_ratio(tables, problem: str, method: str, of: Quantity, others: tuple[str, ...] = (),
                   moment: Moment = "along", to: Quantity | None = None, to_moment: Moment | None = None,
                   interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """A quantity of the table ``measured`` divided by each rival's, or by the method's own ``to`` or at ``to_moment``.

    A geometric mean of ratios. If either quantity includes the carried error, of which one run is a single draw, it is
    the ratio of arithmetic means over repetitions (geometric over iterations). ``moment`` is the start, the first
    common iteration after it, the end (the last), or all common iterations after the start. With ``interval="rank"``,
    it is the median over pairs of the ratio, with its distribution-free interval. ``state_bytes``, the bytes of a run's
    state, have no sampling error. After the start, gradients of a method that diverged have an infinite variance and
    squared error, and no signal to their noise.
    """
    if not others and to is None and to_moment is None:
        raise UserError("measured_ratio needs a comparison: others, to or to_moment")
    if of == "state_bytes":
        return Effects([_state_ratio(tables, problem, method, other, backend) for other in others])
    mine = _line(tables, problem, method, backend)
    if mine is None:
        alone = others and all(_line(tables, problem, other, backend) is not None for other in others)
        return _of_lost(of, moment, True, _diverged(method)) if alone else Effect.undecided(_diverged(method))
    theirs, at, each, notes = to or of, to_moment or moment, [], []
    for other in others or (method,):
        rival = _line(tables, problem, other, backend)
        if rival is None:
            notes.append(_diverged(other))
            continue
        shared = sorted(set(mine["iteration"]) & set(rival["iteration"]))
        ratio, last = Effect.undecided(""), 0
        if {moment, at} != {"start"} and not any(one > 0 for one in shared):
            notes.append(f"{other} has no common iteration after the start")
        else:
            own, his = _moment(mine, of, moment, shared), _moment(rival, theirs, at, shared)
            ratio = _ratio(own, his, of, theirs, interval, same=moment == at)
            last = shared[-1]
            notes += _unresolved(method, of, own) + _unresolved(other, theirs, his)
        against = f"to {theirs} of {other}" if others else f"to its {theirs}"
        against += f" at the {to_moment}" if to_moment else ""
        note = f"{against}, up to iteration {last}; {statistic(interval)}{count(ratio.pairs or 0, 'pair')}"
        each.append(replace(ratio, note=note))
    return Effects(each, after=list(dict.fromkeys(notes))) if each else _of_lost(theirs, at, False, "; ".join(notes))


def _of_lost(of, moment, mine, note):
    """The ratio of a method to its rivals, where it alone (``mine``) or they alone diverged."""
    if moment == "start" or of not in _WORST:
        return Effect.undecided(note)
    return Effect.certain(_WORST[of] if mine else np.inf if _WORST[of] == 0 else 0.0, note)


def _state_ratio(tables, problem, method, other, backend):
    """The ratio of the bytes of two methods' states."""
    sizes = []
    for name in (method, other):
        ran = rows(tables, "measured", problem=problem, method=name, backend=backend)
        _check_measured(ran, "state_bytes")
        sizes.append(float(ran["state_bytes"].max()))
    return Effect.certain(sizes[0] / sizes[1], f"{sizes[0]:.0f} bytes a run against {sizes[1]:.0f} of {other}")


@EFFECTS.effect
def difference(tables, problem: str, method: str, others: Rivals,
               of: Literal["elbo", "test_log_likelihood"] = "elbo",
               by: Literal["iterations", "evaluations"] = "iterations", along: Along = "best",
               step_size: Positive | None = None, others_on: str | None = None, interval: Interval = "t",
               backend: str = "jax"):  # fmt: skip
    """ELBO or test log-likelihood less each rival's after the same iterations or gradient evaluations.

    ``along`` the envelope of step sizes, at each method's best step size, or all at ``step_size``; at the last common
    iteration. Two methods are seldom evaluated after the same number of gradient evaluations. The
    last evaluation of each before the common number is then compared with the other's first from there on; the
    interval contains both differences, and the value is their midpoint. ``others_on`` is the rivals' problem if it is
    another one; repetitions are then not paired. ``interval="rank"`` needs pairs.
    """
    if interval == "rank" and others_on is not None:
        raise UserError("difference: interval: rank needs pairs, and others_on leaves none: use t")
    if by == "evaluations" and along == "best":
        table(tables, "measured")  # ends alone have no equal numbers of evaluations
    mine = _line(tables, problem, method, backend, step_size, along)
    if mine is None:
        return Effect.certain(-np.inf, _diverged(method, step_size))
    each, notes = [], []
    for other in others:
        rival = _line(tables, others_on or problem, other, backend, step_size, along)
        if rival is None:
            notes.append(_diverged(other, step_size, others_on))
            continue
        sides, at = _after_the_same(mine, rival, of, by)
        if at > 0:
            found, number, between = _differences(sides, others_on is None, interval)
        else:
            notes.append(f"{other} has no common iteration after the start")
            found, number, between = UNKNOWN, 0, ""
        repeated = (
            statistic(interval) + count(number, "pair") if others_on is None else f"{number} repetitions, not paired"
        )
        where = f" on {others_on}" if others_on else ""
        note = f"{_UNITS[of]} ahead of {other}{where} after {at:g} {by}{between}; {repeated}"
        hull = {"bounds": found[1:]} if between else {}  # repetitions do not shorten it
        each.append(Effect.from_interval(found, pairs=number, note=note, **hull))
    return Effects(each, before=notes) if each else Effect.certain(np.inf, "; ".join(notes))


@EFFECTS.effect
def sensitivity(tables, problem: str, to: Literal["alpha0", "beta", "r"], estimator: str, control: str | None = None,
                interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """Drop of an estimator's final ELBO from the best settings if one of them takes its worst tried value.

    The first half of the repetitions chooses best and worst, by their mean ELBO; the drop is measured on the others,
    which the choice does not favour. ``interval`` is that of the difference between the two. With a ``control``, an
    estimator with the same settings, its own drop is subtracted: what remains is not due to the settings alone.
    """
    ends = _drop(tables, problem, to, estimator, backend)
    if isinstance(ends, Effect):
        return ends
    best, worst, note = ends
    end = f"{statistic(interval)}{count(len(best), 'pair')}"
    if control is None:
        return compare(best, worst, "difference", interval, f"{note}; {end}") if _finite(worst) else _lost(note)
    other = _drop(tables, problem, to, control, backend)
    if isinstance(other, Effect):
        return replace(other, value=np.nan, low=np.nan, high=np.nan, note=f"{control}: {other.note}")
    own, rival = _finite(worst), _finite(other[1])
    note = f"{note}; {control}: {other[2]}"
    if not own or not rival:
        return Effect.undecided(f"{note}; both diverge") if own == rival else Effect.certain(
            np.inf if rival else -np.inf, f"{note}; only that of {control if own else estimator} diverges")  # fmt: skip
    return compare(best - worst, other[0] - other[1], "difference", interval, f"{note}; {end}")


def _drop(tables, problem, to, estimator, backend):
    """Final ELBOs at an estimator's best settings and with the worst value of one, and a note; or what prevents it."""
    grid = rows(tables, "sensitivity", problem=problem, backend=backend, estimator=estimator)
    grid = grid.set_index(["method", "step_size"], drop=False)
    ends = select(table(tables, "ends"), problem=problem, backend=backend)
    ends = ends.assign(elbo=ends["elbo"].where(ends["status"] == "ok", -np.inf))
    ends = ends.pivot(index=["method", "step_size"], columns="repetition", values="elbo").loc[grid.index]
    choosing, judged = np.array_split(ends.columns, 2)
    means, column = ends[choosing].mean(axis=1), _SETTINGS[to]
    if not np.isfinite(means).any():
        return Effect.undecided("every setting diverged")
    best = means.idxmax()
    alike = select(grid, **{name: grid.loc[best, name] for name in _SETTINGS.values() if name != column})
    worst = means[alike.index].idxmin()
    note = f"{to} {grid.loc[worst, column]:.3g} instead of {grid.loc[best, column]:.3g}"
    if worst == best:
        return Effect(0.0, note=f"only one {to} was tried with the best of the other settings")
    if not len(judged):
        return Effect.undecided(f"{note}; one repetition cannot choose the settings and judge them")
    if not _finite(ends.loc[best, judged]):
        return Effect.undecided(f"{note}; the best settings diverge in a repetition that judges them")
    if _finite(ends.loc[worst, judged]):
        note += f", chosen by {count(len(choosing), 'other repetition')}"
    return ends.loc[best, judged], ends.loc[worst, judged], note


def _finite(ends) -> bool:
    return not np.isneginf(ends).any()


def _lost(note):
    return Effect.certain(np.inf, f"{note}, which diverges")


def _line(tables, problem, method, backend, step_size=None, along="best"):
    """A method's rows along the envelope, at its best step size or at ``step_size``; None if it diverged there."""
    wanted = {"problem": problem, "method": method, "backend": backend}
    if along == "envelope":
        ends = rows(tables, "ends", **wanted)
        finite = np.isfinite(ends.loc[ends["best"], "elbo"]).any()
        return _path(tables, problem, method, backend) if finite else None
    ran = _repetitions(tables, **wanted)
    if step_size is None:
        ran = ran[ran["best"]]
        return ran if len(ran) else None
    ran = _repetitions(tables, **wanted, step_size=step_size)
    lost = (ran["epoch"] == ran["epoch"].max()) & (ran["status"] != "ok")
    return None if lost.any() else ran


def _repetitions(tables, **wanted):
    """Rows of every repetition: at all evaluated epochs if these are in ``measured``, else at the end alone."""
    if "measured" in tables:
        return rows(tables, "measured", **wanted)
    ran, done = (rows(tables, name, **wanted) for name in ("ends", "convergence"))
    line = ["problem", "method", "backend", "step_size", "epoch"]
    done = done[[*line, "iteration", "gradients", "hvps"]]
    return ran.merge(done, on=line, how="left", validate="many_to_one").assign(test_log_likelihood=np.nan)


def _path(tables, problem, method, backend):
    """A method's repetitions along the envelope."""
    path = select(table(tables, "paths"), problem=problem, method=method, backend=backend)
    return path.sort_values(["repetition", "iteration"])


def _diverged(method, step_size=None, problem=None):
    """The note on a method without repetitions to compare."""
    where = "every step size" if step_size is None else f"step size {step_size:g}"
    return f"a repetition of {method}{f' on {problem}' if problem else ''} diverged at {where}"


def _check_measured(ran, name):
    if ran[name].isna().all():
        method, problem = ran[["method", "problem"]].iloc[0]
        raise UserError(
            f"{name} of {method} on {problem} was not measured; errors of gradients need solver.diagnostics"
        )


def _moment(ran, name, moment, iterations):
    """A method's rows at a moment."""
    _check_measured(ran, name)
    after = [one for one in iterations if one > 0]
    chosen = {"start": iterations[:1], "first": after[:1], "end": iterations[-1:], "along": after}[moment]
    return ran[ran["iteration"].isin(chosen)]


def _ratio(mine, rival, name, other, interval: Interval, same):
    """The ratio of two quantities."""
    if interval == "t" and {name, other} & set(REALISED):
        return _of_means(mine, rival, name, other, same)
    return compare(_logs(mine, name), _logs(rival, other), "geometric", interval)


def _logs(ran, name):
    """The logarithm of a quantity by repetition, averaged over iterations."""
    positive = ran[ran[name] > 0]
    return np.log(positive[name]).groupby(positive["repetition"]).mean()


def _of_means(mine, rival, name, other, same):
    """The ratio of arithmetic means over common repetitions.

    ``same`` says that both have the same moment: iterations at which either was not measured are then left out.
    """
    pairs = sorted(set(mine["repetition"]) & set(rival["repetition"]))
    sides = []
    for ran, of, sign in ((mine, name, 1), (rival, other, -1)):
        ran = ran[ran["repetition"].isin(pairs)]
        sides.append([(sign * power, ran.pivot(index="repetition", columns="iteration", values=part))
                      for part, power in PARTS[of].items()])  # fmt: skip
    complete = [[set(cells.columns[cells.notna().all()]) for _, cells in side] for side in sides]
    kept = [set.intersection(*columns) for columns in complete]
    kept = [kept[0] & kept[1]] * 2 if same else kept
    if not pairs or not all(kept):
        return Effect.from_interval(UNKNOWN, pairs=len(pairs))
    parts = [(power, cells[sorted(at)]) for side, at in zip(sides, kept, strict=True) for power, cells in side]
    return Effect.from_interval(ratio_of_means(parts), pairs=len(pairs))


def _unresolved(method, name, ran):
    """A note on unresolved values."""
    share = ran["unresolved"].mean()
    if not set(PARTS[name]) & {"squared_error", "signal", "mean2"} or not share > 0:
        return []
    return [f"{100 * share:.0f} % of {method}'s values are at the resolution of the reference"]


def _after_the_same(mine, rival, name, by):
    """Values of two methods by repetition whose differences bound the difference at equal effort; and that effort."""
    sides = []
    for ran in (mine, rival):
        _check_measured(ran, name)
        effort = ran["iteration"] if by == "iterations" else ran["gradients"] + ran["hvps"]
        sides.append(ran.assign(effort=effort)[np.isfinite(ran[name])])
    mine, rival = sides
    if by == "iterations":
        at = float(max(set(mine["iteration"]) & set(rival["iteration"]), default=0))
        return [(_last(mine, name, at), _last(rival, name, at))], at
    at = float(min(ran.groupby("repetition")["effort"].max().min() for ran in (mine, rival)))
    return [(_last(mine, name, at), _first(rival, name, at)), (_first(mine, name, at), _last(rival, name, at))], at


def _last(ran, name, effort):
    """A quantity by repetition at the last evaluation up to an effort."""
    return ran[ran["effort"] <= effort].sort_values("effort").groupby("repetition")[name].last()


def _first(ran, name, effort):
    """A quantity by repetition at the first evaluation from an effort on."""
    return ran[ran["effort"] >= effort].sort_values("effort").groupby("repetition")[name].first()


def _differences(sides, paired, interval):
    """The midpoint of differences with the hull of their intervals; the number of values; the range in words."""
    if paired:
        found = [compare(own, other, "difference", interval) for own, other in sides]
        each = [(one.value, one.low, one.high) for one in found]
        number = min(one.pairs or 0 for one in found)
    else:
        each = [_unpaired(own, other) for own, other in sides]
        number = min(len(values) for side in sides for values in side)
    middles, lows, highs = np.array(each).T
    between = f", between {min(middles):.4g} and {max(middles):.4g}" if np.ptp(middles) > 0 else ""
    return (middles.mean(), lows.min(), highs.max()), number, between


def _unpaired(mine, other):
    """The difference of two means of independent values, and its interval."""
    (a, a_low, a_high), (b, b_low, b_high) = centre(mine), centre(other)
    half = float(np.hypot((a_high - a_low) / 2, (b_high - b_low) / 2))
    return a - b, a - b - half, a - b + half
