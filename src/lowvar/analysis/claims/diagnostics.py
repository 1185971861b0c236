"""Claims about gradients measured along runs, held-out rows, points per step, and settings (multilevel Monte Carlo).

* ``measure``: a quantity of the table ``measured``, divided by another method's, or by another quantity of its own;
  geometric mean over pairs of repetitions. ``moment`` is the start, the end (the last iteration that both have), or
  all iterations that both have after the start. ``to`` and ``to_moment`` are the other's quantity and moment.
* ``leads``: ELBO or test log-likelihood less another's, after the same iterations or after the same gradient
  evaluations, over pairs; holds where the interval lies above ``-margin``. With ``others_on`` the others are those of
  another problem, whose repetitions are no pairs.
* ``shrinks``: points per step at the end.
* ``pace``: seconds of a late step divided by those of an early one, or by another method's late one. Late and early
  are the stretches with the fewest and the most points.
* ``sensitive``: how far the ELBO at the end falls where one setting is the worst and the others are the best.

Methods are compared at their best step size, or all at ``step_size``.
"""

from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.claims.base import Strict, all_below, look_up
from lowvar.analysis.decomposition import mean_interval
from lowvar.errors import UserError

Positive = Annotated[float, Field(gt=0)]
Positives = Literal[
    "variance", "squared_error", "signal", "mean2", "snr_conditional", "snr_true", "snr_conditional_1", "snr_true_1",
]  # fmt: skip
Moment = Literal["start", "end", "along"]

_PAIRS = 2  # repetitions without which nothing is decided
_OTHERS = 1.5  # how much slower a job may be for what else the machine does, as in `claims.variational`
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
    """A late step takes at most so many times an early one's time, or another method's."""

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
        return _row(np.nan, np.nan, np.nan, "undecided", f"{test.method} diverged at every step size")
    for other in test.others or (test.method,):
        rival = _lane(tables, test, other)
        if rival is None:
            notes.append(f"{other} diverged at every step size")
            continue
        shared = sorted(set(mine["iteration"]) & set(rival["iteration"]))
        own = _logs(mine, test.of, test.moment, shared)
        his = _logs(rival, test.to or test.of, test.to_moment or test.moment, shared)
        pairs = own.index.intersection(his.index)
        ratio = _interval(own[pairs] - his[pairs])
        found.append((*(float(np.exp(v)) for v in ratio), other, len(pairs), shared[-1] if shared else 0))
    if not found:
        return _row(np.nan, np.nan, np.nan, "undecided", "; ".join(notes))
    worst = max if test.below is not None else min
    ours, low, high, other, pairs, last = worst(found, key=lambda one: np.nan_to_num(one[0], nan=np.inf))
    if test.below is not None:
        verdict = all_below((one[1:3] for one in found), test.below)
    else:
        verdict = all_below(((-one[2], -one[1]) for one in found), -test.above)
    against = f" {test.to or test.of} of {other}" if test.others else f" its {test.to or test.of}"
    against += f" at the {test.to_moment}" if test.to_moment else ""
    notes.append(f"to{against}, up to iteration {last}; {_pairs(pairs)}")
    if {test.of, test.to} & {"squared_error", "signal", "snr_true", "snr_true_1"} and mine["unresolved"].any():
        share = mine["unresolved"].mean()
        notes.append(f"{100 * share:.0f} % of {test.method}'s values are at the resolution of the reference")
    return _row(ours, low, high, verdict, "; ".join(notes))


def _leads(test, tables):
    mine, found, notes = _lane(tables, test, test.method), [], []
    if mine is None:
        return _row(-np.inf, np.nan, np.nan, "fails", f"{test.method} diverged at every step size")
    for other in test.others:
        rival = _lane(tables, test, other, test.others_on)
        if rival is None:
            notes.append(f"{other} diverged at every step size")
            continue
        own, his, at = _compared(mine, rival, test.of, test.by)
        if test.others_on is None:
            pairs = own.index.intersection(his.index)
            difference, count = _interval(own[pairs] - his[pairs]), len(pairs)
        else:
            difference, count = _unpaired(own, his), min(len(own), len(his))
        found.append((*difference, other, at, count))
    if not found:
        return _row(np.inf, np.nan, np.nan, "holds", "; ".join(notes))
    ours, low, high, other, at, count = min(found, key=lambda one: np.nan_to_num(one[0], nan=-np.inf))
    verdict = all_below(((-one[2], -one[1]) for one in found), test.margin)
    unit = "nats" if test.of == "elbo" else "nats per test row"
    number = _pairs(count) if test.others_on is None else f"{count} repetitions, no pairs"
    where = f" on {test.others_on}" if test.others_on else ""
    notes.append(f"{unit} ahead of {other}{where} after {at:g} {test.by}; {number}")
    return _row(ours, low, high, verdict, "; ".join(notes))


def _shrinks(test, tables):
    rows = _ran(look_up(tables, "measured"), test.problem, test.method, test.backend)
    if rows["points"].isna().all():
        raise UserError(f"a claim speaks of the points of {test.method} on {test.problem}, which were not measured")
    end = rows.loc[rows["epoch"] == rows["epoch"].max(), "points"]
    first = rows.loc[rows["points"] <= test.to, "iteration"]
    note = f"from {rows['points'].max():g}" + (f"; first at iteration {int(first.min())}" if len(first) else "")
    return _row(
        float(end.mean()), float(end.min()), float(end.max()), "holds" if end.max() <= test.to else "fails", note
    )


def _pace(test, tables):
    table = look_up(tables, "pace")
    late = _rates(table, test, test.method, "late")
    early = _rates(table, test, test.other, "late") if test.other else _rates(table, test, test.method, "early")
    if min(len(late), len(early)) < _PAIRS:
        return _row(np.nan, np.nan, np.nan, "undecided", f"fewer than {_PAIRS} stretches of each")
    ours, low, high = (float(np.exp(v)) for v in _unpaired(np.log(late), np.log(early)))
    note = f"{late.median():.3g} s a step against {early.median():.3g} s"
    if test.other:
        low, high, note = low / _OTHERS, high * _OTHERS, f"{note} of {test.other}; jobs at different times"
    return _row(ours, low, high, all_below([(low, high)], test.at_most), note)


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


def _logs(rows, name, moment, iterations):
    """The logarithm of a quantity by repetition, averaged over the iterations of a moment.

    Raises:
        UserError: it was not measured at any.
    """
    chosen = {"start": iterations[:1], "end": iterations[-1:], "along": [one for one in iterations if one > 0]}[moment]
    if rows[name].isna().all():
        raise UserError(f"a claim speaks of {name} of {rows['method'].iloc[0]} on {rows['problem'].iloc[0]}, which was "
                        "not measured: the experiment's solver needs diagnostics")  # fmt: skip
    there = rows[rows["iteration"].isin(chosen) & (rows[name] > 0)]
    return np.log(there[name]).groupby(there["repetition"]).mean()


def _compared(mine, rival, name, by):
    """The values of two methods by repetition after the same effort, and that effort.

    Raises:
        UserError: they were not measured.
    """
    for rows in (mine, rival):
        if rows[name].isna().all():
            raise UserError(f"a claim speaks of {name} of {rows['method'].iloc[0]} on {rows['problem'].iloc[0]}, which "
                            "was not measured")  # fmt: skip
    mine, rival = ((rows.assign(effort=rows["iteration"] if by == "iterations" else rows["gradients"] + rows["hvps"]))
                   for rows in (mine, rival))  # fmt: skip
    if by == "iterations":
        shared = set(mine["iteration"]) & set(rival["iteration"])
        at = float(max(shared))
    else:
        at = float(min(rows.groupby("repetition")["effort"].max().min() for rows in (mine, rival)))
    return (*(_after(rows, name, at) for rows in (mine, rival)), at)


def _after(rows, name, effort):
    """A quantity by repetition after so much effort, between measurements by straight lines."""
    import pandas as pd

    found = {}
    for repetition, here in rows.sort_values("effort").groupby("repetition"):
        ok = np.isfinite(here[name])
        if ok.any():
            found[repetition] = float(np.interp(effort, here.loc[ok, "effort"], here.loc[ok, name]))
    return pd.Series(found, dtype=float)


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


def _rates(table, test, method, when):
    """Seconds of a step in the stretches with the fewest, or the most, points; in halves where all have as many."""
    rows = _ran(table, test.problem, method, test.backend).sort_values("iteration")
    rows = rows[rows["seconds"] > 0]
    points = rows["points"]
    if points.isna().all() or points.min() == points.max():
        half = len(rows) // 2
        rows = rows.iloc[half:] if when == "late" else rows.iloc[:half]
    else:
        rows = rows[points == (points.min() if when == "late" else points.max())]
    return rows["seconds"]


JUDGES = {"measure": _measure, "leads": _leads, "shrinks": _shrinks, "pace": _pace, "sensitive": _sensitive}
