"""Effects on gradient errors along runs, held-out rows, numbers of particles and settings.

Methods are compared at their best step sizes, or all at ``step_size``, over pairs of repetitions.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.reports.effect import (
    UNKNOWN,
    Declared,
    Effect,
    Effects,
    Interval,
    Positive,
    Rivals,
    centre,
    compare,
    count,
    rows,
    said,
    select,
    table,
)
from lowvar_studies.reports.variational.diagnostics import PARTS, REALISED, ratio_of_means

Quantity = Literal[
    "variance", "squared_error", "signal", "mean2", "snr_conditional", "snr_true", "snr_conditional_1", "snr_true_1",
]  # fmt: skip
Moment = Literal["start", "first", "end", "along"]

EFFECTS = Declared()

_SETTINGS = {"alpha0": "step_size", "beta": "beta", "r": "r"}
_UNITS = {"elbo": "nats", "test_log_likelihood": "nats per test row"}


@EFFECTS.effect
def measured_ratio(tables, problem: str, method: str, of: Quantity, others: tuple[str, ...] = (),
                   moment: Moment = "along", to: Quantity | None = None, to_moment: Moment | None = None,
                   step_size: Positive | None = None, interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """A quantity of the table ``measured`` divided by each rival's, or by the method's own ``to`` or at ``to_moment``.

    A geometric mean of ratios. If either quantity includes the carried error, of which one run is a single draw, it is
    the ratio of arithmetic means over repetitions (geometric over iterations). ``moment`` is the start, the first
    common iteration after it, the end (the last), or all common iterations after the start. With ``interval="rank"``,
    it is the median over pairs of the ratio, with its distribution-free interval.
    """
    if not others and to is None and to_moment is None:
        raise UserError("measured_ratio needs a comparison: others, to or to_moment")
    mine = _lane(tables, problem, method, backend, step_size)
    if mine is None:
        return Effect.undecided(_gone(method, step_size))
    theirs, at, each, notes = to or of, to_moment or moment, [], []
    for other in others or (method,):
        rival = _lane(tables, problem, other, backend, step_size)
        if rival is None:
            notes.append(_gone(other, step_size))
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
        note = f"{against}, up to iteration {last}; {said(interval)}{count(ratio.pairs or 0, 'pair')}"
        each.append(replace(ratio, note=note))
    return Effects(each, after=list(dict.fromkeys(notes))) if each else Effect.undecided("; ".join(notes))


@EFFECTS.effect
def measured_difference(tables, problem: str, method: str, others: Rivals,
                        of: Literal["elbo", "test_log_likelihood"] = "elbo",
                        by: Literal["iterations", "evaluations"] = "iterations", others_on: str | None = None,
                        step_size: Positive | None = None, interval: Interval = "t", backend: str = "jax"):  # fmt: skip
    """ELBO or test log-likelihood less each rival's after the same iterations or gradient evaluations.

    Two methods are seldom evaluated after the same number of gradient evaluations. The last evaluation of each before
    the common number is then compared with the other's first from there on; the interval contains both differences,
    and the value is their midpoint. ``others_on`` is the rivals' problem if it is another one; repetitions are then not
    paired. ``interval`` is that of ``elbo_difference``; ``rank`` needs pairs.
    """
    if interval == "rank" and others_on is not None:
        raise UserError("measured_difference: interval: rank needs pairs, and others_on leaves none: use t")
    mine = _lane(tables, problem, method, backend, step_size)
    if mine is None:
        return Effect.certain(-np.inf, _gone(method, step_size))
    each, notes = [], []
    for other in others:
        rival = _lane(tables, others_on or problem, other, backend, step_size)
        if rival is None:
            notes.append(_gone(other, step_size, others_on))
            continue
        sides, at = _after_the_same(mine, rival, of, by)
        if at > 0:
            difference, number, between = _differences(sides, others_on is None, interval)
        else:
            notes.append(f"{other} has no common iteration after the start")
            difference, number, between = UNKNOWN, 0, ""
        repeated = said(interval) + count(number, "pair") if others_on is None else f"{number} repetitions, not paired"
        where = f" on {others_on}" if others_on else ""
        note = f"{_UNITS[of]} ahead of {other}{where} after {at:g} {by}{between}; {repeated}"
        each.append(Effect.of(difference, pairs=number, note=note))
    return Effects(each, before=notes) if each else Effect.certain(np.inf, "; ".join(notes))


@EFFECTS.effect
def state_ratio(tables, problem: str, method: str, other: str, backend: str = "jax"):
    """Bytes of a run's state, all its arrays together, divided by another method's; no sampling error."""
    sizes = []
    for name in (method, other):
        ran = rows(tables, "measured", problem=problem, method=name, backend=backend)
        _check_measured(ran, "state_bytes")
        sizes.append(float(ran["state_bytes"].max()))
    return Effect.certain(sizes[0] / sizes[1], f"{sizes[0]:.0f} bytes a run against {sizes[1]:.0f} of {other}")


@EFFECTS.effect
def sensitivity(tables, problem: str, to: Literal["alpha0", "beta", "r"], interval: Interval = "t",
                backend: str = "jax"):  # fmt: skip
    """Drop of the final ELBO from the best settings if one of them takes its worst tried value.

    The first half of the repetitions chooses best and worst, by their mean ELBO; the drop is measured on the others,
    which the choice does not favour. ``interval`` is that of ``elbo_difference`` between the two.
    """
    grid = rows(tables, "sensitivity", problem=problem, backend=backend)
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
    if np.isneginf(ends.loc[best, judged]).any():
        return Effect.undecided(f"{note}; the best settings diverge in a repetition that judges them")
    if np.isneginf(ends.loc[worst, judged]).any():
        return Effect.certain(np.inf, f"{note}, which diverges")
    note = f"{note}, chosen by {count(len(choosing), 'other repetition')}; {said(interval)}{count(len(judged), 'pair')}"
    return compare(ends.loc[best, judged], ends.loc[worst, judged], "difference", interval, note)


def _lane(tables, problem, method, backend, step_size):
    """A method's rows at ``step_size``, or at its best step size; None if a repetition diverged there."""
    ran = rows(tables, "measured", problem=problem, method=method, backend=backend)
    if step_size is None:
        ran = ran[ran["best"]]
        return ran if len(ran) else None
    ran = rows(tables, "measured", problem=problem, method=method, backend=backend, step_size=step_size)
    lost = (ran["epoch"] == ran["epoch"].max()) & (ran["status"] != "ok")
    return None if lost.any() else ran


def _gone(method, step_size, problem=None):
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
        return Effect.of(UNKNOWN, pairs=len(pairs))
    parts = [(power, cells[sorted(at)]) for side, at in zip(sides, kept, strict=True) for power, cells in side]
    return Effect.of(ratio_of_means(parts), pairs=len(pairs))


def _unresolved(method, name, ran):
    """A note on unresolved values."""
    share = ran["unresolved"].mean()
    if not set(PARTS[name]) & {"squared_error", "signal", "mean2"} or not share > 0:
        return []
    return [f"{100 * share:.0f} % of {method}'s values are at the resolution of the reference"]


def _after_the_same(mine, rival, name, by):
    """Values of two methods by repetition whose differences bound the difference at equal effort; and that effort."""
    for ran in (mine, rival):
        _check_measured(ran, name)
    mine, rival = ((ran.assign(effort=ran["iteration"] if by == "iterations" else ran["gradients"] + ran["hvps"]))
                   [np.isfinite(ran[name])] for ran in (mine, rival))  # fmt: skip
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
