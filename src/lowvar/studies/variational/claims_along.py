"""Claims about gradients measured along runs, held-out rows, points per step, and settings (multilevel Monte Carlo).

* ``measure``: a quantity of the table ``measured``, divided by another method's, or by another quantity of its own,
  over pairs of repetitions: the geometric mean of ratios. Where either holds the error that a run's past has left, or
  its true gradient, it is the ratio of arithmetic means over repetitions (geometric over iterations), since one run's
  value is one draw of what is compared with an expected value. ``moment`` is the start, the end (the last iteration
  that both have), or all iterations that both have after the start. ``to`` and ``to_moment`` are the other's quantity
  and moment.
* ``leads``: ELBO or test log-likelihood less another's, after the same iterations or after the same gradient
  evaluations, over pairs; holds where the interval lies above ``-margin``. Where stops fall after different numbers of
  evaluations, each is looked at both at its last stop before and at its first one after the common number, the other
  at its stop on the other side: the interval has both differences. With ``others_on`` the others are those of another
  problem, whose repetitions are no pairs.
* ``shrinks``: points per step at the end. Fails where they do not fall; undecided where they fall and the run ends
  before they are there.
* ``pace``: seconds of a step in the lower third of a method's numbers of points, divided by those in the upper third,
  or by another method's; over all stretches of at least five steps together. Undecided where the number of points does
  not fall by half. The interval has a factor of 1.5 on either side for what else the machine did.
* ``sensitive``: how far the ELBO at the end falls where one setting is the worst and the others are the best.

Methods are compared at their best step size, or all at ``step_size``.
"""

from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.decomposition import mean_interval
from lowvar.errors import UserError
from lowvar.studies.variational.diagnostics import PARTS, REALISED, ratio_of_means
from lowvar.studies.verdicts import Strict, all_below, look_up

Positive = Annotated[float, Field(gt=0)]
Positives = Literal[
    "variance", "squared_error", "signal", "mean2", "snr_conditional", "snr_true", "snr_conditional_1", "snr_true_1",
]  # fmt: skip
Moment = Literal["start", "end", "along"]

_PAIRS = 2  # repetitions without which nothing is decided
_OTHERS = 1.5  # how much slower a job may be for what else the machine does, as in `claims.variational`
_STEPS = 5  # of a stretch that is timed
_SETTINGS = {"alpha0": "step_size", "beta": "beta", "r": "r"}


class _Measured(Strict):
    problem: str
    method: str
    backend: str = "jax"
    step_size: Positive | None = Field(None, description="of all methods; each one's best if None")


class MeasureTest(_Measured):
    """A quantity is ``below``, or ``above``, so many times that of others, or another of its own."""

    kind: Literal["measure"]
    of: Positives
    moment: Moment = "along"
    others: tuple[str, ...] = ()
    to: Positives | None = None
    to_moment: Moment | None = None
    below: Positive | None = None
    above: Positive | None = None

    @pydantic.model_validator(mode="after")
    def _possible(self):
        if (self.below is None) == (self.above is None):
            raise ValueError("exactly one of below and above must be given")
        if not self.others and self.to is None and self.to_moment is None:
            raise ValueError("either others must be given, or to, or to_moment")
        return self


class LeadsTest(_Measured):
    """A method is higher than the others, or at most ``margin`` below them."""

    kind: Literal["leads"]
    others: Annotated[tuple[str, ...], Field(min_length=1)]
    of: Literal["elbo", "test_log_likelihood"] = "elbo"
    by: Literal["iterations", "evaluations"] = "iterations"
    others_on: str | None = Field(None, description="the problem on which the others ran, if another")
    margin: Annotated[float, Field(ge=0)] = Field(0.0, description="nats (per row, of a test log-likelihood)")


class ShrinksTest(_Measured):
    """The points per step fall ``to`` a number."""

    kind: Literal["shrinks"]
    to: Positive = 1.0


class PaceTest(Strict):
    """A step with few points takes at most so many times the time of one with many, or of another method's."""

    kind: Literal["pace"]
    problem: str
    method: str
    backend: str = "jax"
    other: str | None = None
    at_most: Positive = 1.0


class SensitiveTest(Strict):
    """The ELBO falls by more than ``by`` nats where one setting is the worst of those that were tried."""

    kind: Literal["sensitive"]
    problem: str
    to: Literal["alpha0", "beta", "r"]
    by: Positive
    backend: str = "jax"


DiagnosticsTest = MeasureTest | LeadsTest | ShrinksTest | PaceTest | SensitiveTest


def _measure(test, tables):
    mine, found, notes = _lane(tables, test, test.method), [], []
    if mine is None:
        return _row(np.nan, np.nan, np.nan, "undecided", _gone(test, test.method))
    for other in test.others or (test.method,):
        rival = _lane(tables, test, other)
        if rival is None:
            notes.append(_gone(test, other))
            continue
        shared = sorted(set(mine["iteration"]) & set(rival["iteration"]))
        to, at = test.to or test.of, test.to_moment or test.moment
        if {test.moment, at} != {"start"} and not any(one > 0 for one in shared):
            notes.append(f"nothing past the start was measured of {other} after the same iterations")
            found.append((np.nan, np.nan, np.nan, other, 0, 0))
            continue
        own, his = _moment(mine, test.of, test.moment, shared), _moment(rival, to, at, shared)
        if {test.of, to} & set(REALISED):
            ratio, pairs = _of_means(own, his, test.of, to, test.moment == at)
        else:
            own, his = _logs(own, test.of), _logs(his, to)
            pairs = own.index.intersection(his.index)
            ratio, pairs = (float(np.exp(v)) for v in _interval(own[pairs] - his[pairs])), len(pairs)
        found.append((*ratio, other, pairs, shared[-1]))
        for who, of, rows in dict.fromkeys([(test.method, test.of, test.moment), (other, to, at)]):
            notes += _unresolved(who, of, _moment(mine if who == test.method else rival, of, rows, shared))
    if not found:
        return _row(np.nan, np.nan, np.nan, "undecided", "; ".join(notes))
    if test.below is not None:
        ours, low, high, other, pairs, last = max(found, key=lambda one: np.nan_to_num(one[0], nan=np.inf))
        verdict = all_below((one[1:3] for one in found), test.below)
    else:
        ours, low, high, other, pairs, last = min(found, key=lambda one: np.nan_to_num(one[0], nan=-np.inf))
        verdict = all_below(((-one[2], -one[1]) for one in found), -test.above)
    against = f" {test.to or test.of} of {other}" if test.others else f" its {test.to or test.of}"
    against += f" at the {test.to_moment}" if test.to_moment else ""
    notes.insert(0, f"to{against}, up to iteration {last}; {_pairs(pairs)}")
    return _row(ours, low, high, verdict, "; ".join(dict.fromkeys(notes)))


def _leads(test, tables):
    mine, found, notes = _lane(tables, test, test.method), [], []
    if mine is None:
        return _row(-np.inf, np.nan, np.nan, "fails", _gone(test, test.method))
    for other in test.others:
        rival = _lane(tables, test, other, test.others_on)
        if rival is None:
            notes.append(_gone(test, other, test.others_on))
            continue
        bounds, at = _compared(mine, rival, test.of, test.by)
        if at <= 0:
            notes.append(f"nothing past the start was measured of {other} after the same {test.by}")
            found.append((np.nan, np.nan, np.nan, other, 0, 0, ""))
            continue
        if test.others_on is None:
            pairs = [own.index.intersection(his.index) for own, his in bounds]
            differences = [_interval(own[both] - his[both]) for (own, his), both in zip(bounds, pairs, strict=True)]
            count = min(map(len, pairs))
        else:
            differences = [_unpaired(own, his) for own, his in bounds]
            count = min(len(values) for pair in bounds for values in pair)
        middles, lows, highs = np.array(differences).T
        between = f", between {min(middles):.4g} and {max(middles):.4g}" if np.ptp(middles) > 0 else ""
        found.append((middles.mean(), lows.min(), highs.max(), other, at, count, between))
    if not found:
        return _row(np.inf, np.nan, np.nan, "holds", "; ".join(notes))
    ours, low, high, other, at, count, between = min(found, key=lambda one: np.nan_to_num(one[0], nan=-np.inf))
    verdict = all_below(((-one[2], -one[1]) for one in found), test.margin)
    unit = "nats" if test.of == "elbo" else "nats per test row"
    number = _pairs(count) if test.others_on is None else f"{count} repetitions, no pairs"
    where = f" on {test.others_on}" if test.others_on else ""
    notes.append(f"{unit} ahead of {other}{where} after {at:g} {test.by}{between}; {number}")
    return _row(ours, low, high, verdict, "; ".join(notes))


def _shrinks(test, tables):
    rows = _ran(look_up(tables, "measured"), test.problem, test.method, test.backend)
    if rows["points"].isna().all():
        raise UserError(f"a claim speaks of the points of {test.method} on {test.problem}, which were not measured")
    end = rows.loc[rows["epoch"] == rows["epoch"].max(), "points"]
    start = rows.loc[rows["epoch"] == rows["epoch"].min(), "points"].max()
    there = rows.loc[rows["points"] <= test.to, "iteration"]
    note, verdict = f"from {start:g}", "undecided"
    if end.max() <= test.to:
        verdict = "holds"
    elif end.min() >= start:
        verdict = "fails"
    else:
        needed = _scheduled(rows, tables.get("selected"), test.to)
        note += f" to {end.max():g} after {int(rows['iteration'].max())} steps, where the run ends"
        note += f"; its schedule needs {needed}" if needed else ""
    note += f"; first at iteration {int(there.min())}" if len(there) else ""
    return _row(float(end.mean()), float(end.min()), float(end.max()), verdict, note)


def _scheduled(rows, selected, to):
    """The step from which a method has ``to`` points by its step schedule; None unless it has had what that says."""
    if selected is None:
        return None
    first = rows.iloc[0]
    keys = [selected[name] == first[name] for name in ("problem", "method", "backend")]
    plan = selected[np.logical_and.reduce([*keys, selected["schedule"] == "step"])]
    if len(plan) != 1 or not plan["beta"].iloc[0] < 1:
        return None
    rows = rows[rows["points"].notna()]
    most, beta, r = rows["points"].max(), plan["beta"].iloc[0], plan["r"].iloc[0]

    def points(step):
        return np.ceil(beta ** (np.maximum(step - 1, 0) // r) * most - 1e-9)

    if not np.array_equal(points(rows["iteration"].to_numpy(float)), rows["points"].to_numpy(float)):
        return None
    drops = np.log(min(to / most, 1)) / np.log(beta)
    return next((int(k * r) + 1 for k in range(int(drops), int(drops) + 3) if points(k * r + 1) <= to), None)


def _pace(test, tables):
    rows = _stretches(tables, test, test.method)
    rivals = _stretches(tables, test, test.other) if test.other else None
    if not len(rows) or (rivals is not None and not len(rivals)):
        return _row(np.nan, np.nan, np.nan, "undecided", "times were not measured here")
    few, many = _thirds(rows)
    if rows["points"].isna().any() or rows["points"].min() > rows["points"].max() / 2:
        return _row(np.nan, np.nan, np.nan, "undecided", f"the points of {test.method} do not fall by half")
    if rivals is not None:
        many = rivals if rivals["points"].isna().any() else _thirds(rivals)[0]
    late, early = _rate(few), _rate(many)
    if not np.isfinite([late, early]).all():
        return _row(np.nan, np.nan, np.nan, "undecided", f"no stretch of {_STEPS} steps that was timed")
    ratio = late / early
    note = f"{late:.3g} s a step against {early:.3g} s" + (f" of {test.other}" if test.other else "")
    note += f", with {few['points'].max():g} points at most"
    note += "; jobs at different times, perhaps beside others" if test.other else "; perhaps beside other jobs"
    low, high = ratio / _OTHERS, ratio * _OTHERS
    return _row(ratio, low, high, all_below([(low, high)], test.at_most), note)


def _sensitive(test, tables):
    grid, ends = look_up(tables, "sensitivity"), look_up(tables, "ends")
    here = grid[(grid["problem"] == test.problem) & (grid["backend"] == test.backend)]
    if not len(here):
        raise UserError(f"a claim speaks of settings on {test.problem}, none of which ran there in {test.backend}")
    if not np.isfinite(here["below"]).any():
        return _row(np.nan, np.nan, np.nan, "undecided", "every setting diverged")
    best = here.loc[here["below"].idxmin()]
    column = _SETTINGS[test.to]
    alike = np.logical_and.reduce([here[name] == best[name] for name in _SETTINGS.values() if name != column])
    worst = here[alike].loc[here.loc[alike, "below"].idxmax()]
    note = f"{test.to} {worst[column]:.3g} instead of {best[column]:.3g}"
    if worst[column] == best[column]:
        return _row(0.0, np.nan, np.nan, "undecided", f"one {test.to} alone was tried at the best of the others")
    if not np.isfinite(worst["below"]):
        return _row(np.inf, np.nan, np.nan, "holds", f"{note}, which diverges")
    ends = ends[(ends["problem"] == test.problem) & (ends["backend"] == test.backend)]
    at = [ends[(ends["method"] == one["method"]) & (ends["step_size"] == one["step_size"])] for one in (best, worst)]
    at = [rows.set_index("repetition")["elbo"] for rows in at]
    pairs = at[0].index.intersection(at[1].index)
    ours, low, high = _interval(at[0][pairs] - at[1][pairs])
    return _row(ours, low, high, all_below([(-high, -low)], -test.by), f"{note}; {_pairs(len(pairs))}")


def _row(ours, low, high, verdict, note=""):
    return {"published": np.nan, "ours": ours, "low": low, "high": high, "verdict": verdict, "note": note}


def _pairs(count):
    return f"{count} pair{'s' * (count != 1)}"


def _ran(table, problem, method, backend):
    """A method's rows on a problem.

    Raises:
        UserError: it did not run there.
    """
    rows = table[(table["problem"] == problem) & (table["method"] == method) & (table["backend"] == backend)]
    if not len(rows):
        raise UserError(f"a claim speaks of {method} on {problem}, which did not run there in {backend}")
    return rows


def _lane(tables, test, method, problem=None):
    """A method's repetitions at the step size of a claim; None if any diverged there, or everywhere."""
    rows = _ran(look_up(tables, "measured"), problem or test.problem, method, test.backend)
    if test.step_size is None:
        rows = rows[rows["best"]]
        return rows if len(rows) else None
    rows = rows[np.isclose(rows["step_size"], test.step_size, rtol=1e-9, atol=0)]
    if not len(rows):
        raise UserError(
            f"a claim speaks of {method} on {test.problem} at step size {test.step_size:g}, which did not run"
        )
    lost = (rows["epoch"] == rows["epoch"].max()) & (rows["status"] != "ok")
    return None if lost.any() else rows


def _gone(test, method, problem=None):
    """That a method has no repetitions to compare."""
    where = "every step size" if test.step_size is None else f"step size {test.step_size:g}"
    return f"a repetition of {method}{f' on {problem}' if problem else ''} diverged at {where}"


def _moment(rows, name, moment, iterations):
    """A method's rows of a moment.

    Raises:
        UserError: the quantity was not measured at any.
    """
    chosen = {"start": iterations[:1], "end": iterations[-1:], "along": [one for one in iterations if one > 0]}[moment]
    if rows[name].isna().all():
        raise UserError(f"a claim speaks of {name} of {rows['method'].iloc[0]} on {rows['problem'].iloc[0]}, which was "
                        "not measured: the experiment's solver needs diagnostics")  # fmt: skip
    return rows[rows["iteration"].isin(chosen)]


def _logs(rows, name):
    """The logarithm of a quantity by repetition, averaged over iterations."""
    there = rows[rows[name] > 0]
    return np.log(there[name]).groupby(there["repetition"]).mean()


def _of_means(mine, rival, name, other, same):
    """The ratio of arithmetic means over common repetitions, its interval, and their number.

    With ``same`` the moments are: then iterations are left out at which either was not measured.
    """
    pairs = sorted(set(mine["repetition"]) & set(rival["repetition"]))
    sides = []
    for rows, of, sign in ((mine, name, 1), (rival, other, -1)):
        rows = rows[rows["repetition"].isin(pairs)]
        sides.append([(sign * power, rows.pivot(index="repetition", columns="iteration", values=part))
                      for part, power in PARTS[of].items()])  # fmt: skip
    whole = [[set(cells.columns[cells.notna().all()]) for _, cells in side] for side in sides]
    kept = [set.intersection(*here) for here in whole]
    kept = [kept[0] & kept[1]] * 2 if same else kept
    if not pairs or not all(kept):
        return (np.nan,) * 3, len(pairs)
    parts = [(power, cells[sorted(here)]) for side, here in zip(sides, kept, strict=True) for power, cells in side]
    return ratio_of_means(parts), len(pairs)


def _unresolved(method, name, rows):
    """What to say of values that are no more than the resolution."""
    share = rows["unresolved"].mean()
    if not set(PARTS[name]) & {"squared_error", "signal", "mean2"} or not share > 0:
        return []
    return [f"{100 * share:.0f} % of {method}'s values are at the resolution of the reference"]


def _compared(mine, rival, name, by):
    """The values of two methods by repetition, in pairs that bound their difference after the same effort; the effort.

    After the same iterations there is one pair. After the same evaluations there are two: the one at its last stop up
    to the effort with the other at its first stop from there on, and the reverse.

    Raises:
        UserError: they were not measured.
    """
    for rows in (mine, rival):
        if rows[name].isna().all():
            raise UserError(f"a claim speaks of {name} of {rows['method'].iloc[0]} on {rows['problem'].iloc[0]}, which "
                            "was not measured")  # fmt: skip
    mine, rival = ((rows.assign(effort=rows["iteration"] if by == "iterations" else rows["gradients"] + rows["hvps"]))
                   [np.isfinite(rows[name])] for rows in (mine, rival))  # fmt: skip
    if by == "iterations":
        at = float(max(set(mine["iteration"]) & set(rival["iteration"]), default=0))
        return [(_last(mine, name, at), _last(rival, name, at))], at
    at = float(min(rows.groupby("repetition")["effort"].max().min() for rows in (mine, rival)))
    return [(_last(mine, name, at), _first(rival, name, at)), (_first(mine, name, at), _last(rival, name, at))], at


def _last(rows, name, effort):
    """A quantity by repetition at the last stop up to an effort."""
    return rows[rows["effort"] <= effort].sort_values("effort").groupby("repetition")[name].last()


def _first(rows, name, effort):
    """A quantity by repetition at the first stop from an effort on."""
    return rows[rows["effort"] >= effort].sort_values("effort").groupby("repetition")[name].first()


def _interval(values):
    values = np.asarray(values, float)
    if len(values) < 1 or not np.isfinite(values).all():
        return (np.nan,) * 3
    return mean_interval(values)


def _unpaired(mine, other):
    """The difference of two means of independent values, and its interval."""
    (a, a_low, a_high), (b, b_low, b_high) = _interval(mine), _interval(other)
    half = float(np.hypot((a_high - a_low) / 2, (b_high - b_low) / 2))
    return a - b, a - b - half, a - b + half


def _stretches(tables, test, method):
    """The stretches of a method that were timed.

    Raises:
        UserError: it did not run.
    """
    table = look_up(tables, "pace")
    here = (table["problem"] == test.problem) & (table["method"] == method) & (table["backend"] == test.backend)
    if not here.any():
        _ran(look_up(tables, "measured"), test.problem, method, test.backend)
    return table[here]


def _thirds(rows):
    """Stretches in the lower and in the upper third between the least and the largest number of points."""
    least, most = rows["points"].min(), rows["points"].max()
    part = (most - least) / 3
    return rows[rows["points"] <= least + part], rows[rows["points"] >= most - part]


def _rate(rows):
    """Seconds of a step over all stretches that are long enough to be timed; NaN if none is."""
    rows = rows[(rows["steps"] >= _STEPS) & (rows["seconds"] > 0)]
    return float((rows["seconds"] * rows["steps"]).sum() / rows["steps"].sum()) if len(rows) else np.nan


JUDGES = {"measure": _measure, "leads": _leads, "shrinks": _shrinks, "pace": _pace, "sensitive": _sensitive}
