"""Progress of black-box searches: tables made from traces and from the evaluations at which targets were met.

A gap is a value less the optimum. If the optimum is unknown (policies), the gap is the value itself and there are no
targets. A diverged run has an infinite gap.

References:
    Hansen, Auger, Ros, Mersmann, Tusar and Brockhoff, COCO: a platform for comparing continuous optimizers in a
    black-box setting, 2021: targets, expected running time, and empirical distributions of running times.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from lowvar.core.intervals import median_interval, share_interval
from lowvar_studies.jobs.search.spec import TARGET
from lowvar_studies.reports.declarations import KEYS, RUN, Table, columns
from lowvar_studies.reports.search.gathering import dims, optima

_DIM = "dim | int64 | | coordinates of a point"
_BUDGET = "budget | int64 | evaluations | of each repetition; if the optimum is unknown, those used"
_OPTIMUM = "optimum | float64 | f's | smallest value of `f`; NaN if unknown"
PROFILE = (-8.0, 2.0)  # exponents of the hardest and the easiest target of a profile
_PER_DECADE = 10  # grid points of a profile


def curves(traces, hits, optima: Mapping[str, float | None], dims: Mapping[str, int]):
    """The gap along the searches over repetitions, by problem, method, backend and evaluations.

    Repetitions that end before others keep their last value. A curve ends with its last repetition: at the budget, or
    when all have met the last target.

    Args:
        traces: the traces of all runs in one table.
        hits: the table ``hits``, columns ``problem, method, backend, repetition, target, of, evaluations, budget``;
            used for the budgets.
        optima: the optimum of each problem, None if unknown.
        dims: the dimension of each problem.
    """
    import pandas as pd

    budgets, out = _budgets(traces, hits), []
    for key, group in _gaps(traces, optima).groupby(KEYS, sort=False):
        group = group.assign(lost=(group["status"] != "ok").astype(float))
        group = group.drop_duplicates(["evaluations", "repetition"], keep="last")
        wide = {
            name: group.pivot(index="evaluations", columns="repetition", values=name).sort_index().ffill()
            for name in ("iteration", "f", "lost")
        }
        f = wide["f"].to_numpy(float)
        problem, method, backend = key
        table = {"problem": problem, "dim": dims[problem], "method": method, "backend": backend,
                 "evaluations": wide["f"].index.to_numpy(),
                 "iteration": wide["iteration"].max(axis=1).astype(int)}  # fmt: skip
        for part, q in (("median", 0.5), ("low", 0.25), ("high", 0.75)):
            table[f"f_{part}"] = quantile(f, q)
        table["repetitions"] = f.shape[1]
        table["diverged"] = wide["lost"].sum(axis=1).astype(int)
        table["budget"], table["optimum"] = budgets[key], _number(optima[problem])
        out.append(pd.DataFrame(table).reset_index(drop=True))
    return pd.concat(out, ignore_index=True)


CURVES = Table(
    "curves",
    "A row for each problem, method, backend and measured generation, over the repetitions. Repetitions that end "
    "before others keep their last value. A curve ends with its last repetition: at the budget, or when all have met "
    "the last target. A quantile that needs an infinite gap is infinite.",
    columns(RUN.replace("method |", f"{_DIM}\nmethod |"), """
    evaluations | int64 | evaluations | evaluations done by each repetition
    iteration | int64 | generations | generations done
    f_median | float64 | f's | gap of `f` at the mean, median over repetitions
    f_low | float64 | f's | its lower quartile
    f_high | float64 | f's | its upper quartile
    repetitions | int64 | | repetitions in the row
    diverged | int64 | | repetitions that had diverged
    """, _BUDGET, _OPTIMUM),
    lambda gathered: curves(gathered.traces, gathered["hits"], optima(gathered), dims(gathered)),
)  # fmt: skip


def targets(traces, hits, optima: Mapping[str, float | None], dims: Mapping[str, int]):
    """Evaluations to each target over repetitions, by problem, method, backend and target.

    Args:
        traces: as for ``curves``; used for the evaluations of unsuccessful runs.
        hits: as for ``curves``.
        optima: as for ``curves``; problems without an optimum have no targets.
        dims: the dimension of each problem.
    """
    import pandas as pd

    spent = traces.groupby([*KEYS, "repetition"])["evaluations"].max()
    out = []
    for key, group in _with_optimum(hits, optima).groupby([*KEYS, "of"], sort=False):
        problem, method, backend, of = key
        wide = group.pivot(index="target", columns="repetition", values="evaluations").sort_index(ascending=False)
        values = wide.to_numpy(float)
        ended = spent.loc[(problem, method, backend)].reindex(wide.columns).to_numpy(float)
        met = np.isfinite(values)
        reached, n = met.sum(axis=1), values.shape[1]
        cost = np.where(met, values, ended[None, :]).sum(axis=1)
        low, high = median_interval(values)
        share_low, share_high = share_interval(reached, n)
        table = {"problem": problem, "dim": dims[problem], "method": method, "backend": backend, "of": of,
                 "target": wide.index.to_numpy(), "reached": reached, "repetitions": n, "share": reached / n,
                 "share_low": share_low, "share_high": share_high, "evaluations_median": quantile(values, 0.5),
                 "evaluations_low": low, "evaluations_high": high,
                 "ert": np.where(reached > 0, cost / np.maximum(reached, 1), np.inf),
                 "budget": group["budget"].max()}  # fmt: skip
        out.append(pd.DataFrame(table))
    return TARGETS.frame(pd.concat(out, ignore_index=True) if out else [])


TARGETS = Table(
    "targets",
    "A row for each problem with known optimum, method, backend, `of` and target. The median is over all repetitions, "
    "infinite unless more than half of them met the target, with an interval of order statistics. The interval of the "
    "share is Clopper and Pearson's.",
    columns(RUN.replace("method |", f"{_DIM}\nmethod |"), """
    of | string | | `mean` or `best`: the point that met the target
    target | float64 | f's | a gap
    reached | int64 | | repetitions that met the target within the budget
    repetitions | int64 | | repetitions in the row
    share.. | float64 | | `reached` divided by `repetitions`
    evaluations_median | float64 | evaluations | to the target, median over all repetitions
    evaluations_low | float64 | evaluations | lower end of its interval; NaN for fewer than six repetitions
    evaluations_high | float64 | evaluations | upper end
    ert | float64 | evaluations | expected running time (COCO): all evaluations to target or end, divided by `reached`
    budget | int64 | evaluations | of each repetition
    """),
    lambda gathered: targets(gathered.traces, gathered["hits"], optima(gathered), dims(gathered)),
)  # fmt: skip


def ends(traces, hits, optima: Mapping[str, float | None], target: float = TARGET, of: str = "mean"):
    """Final values of every repetition.

    Repetitions with the same number share their start, so their gaps can be compared in pairs.

    Args:
        traces: as for ``curves``.
        hits: as for ``curves``.
        optima: as for ``curves``.
        target: the target of ``reached`` and ``evaluations_to_target``.
        of: the point that must meet it: the distribution's ``mean`` or the ``best`` evaluated point.
    """
    by = [*KEYS, "repetition"]
    ordered = _gaps(traces, optima).sort_values("evaluations", kind="stable")
    first = ordered.groupby(by, sort=False)["f"].first().rename("start")
    last = ordered.groupby(by, sort=False)[["evaluations", "f", "best", "status"]].last()
    met = _with_optimum(hits, optima)
    met = met[(met["of"] == of) & same_target(met["target"], target)].set_index(by)["evaluations"]
    table = last.join(first).join(met.rename("evaluations_to_target")).reset_index()
    table["evaluations_to_target"] = table["evaluations_to_target"].fillna(np.inf).astype(float)
    table["reached"] = np.isfinite(table["evaluations_to_target"])
    budgets = _budgets(traces, hits)
    table["budget"] = [budgets[key] for key in zip(*(table[name] for name in KEYS), strict=True)]
    table["optimum"] = table["problem"].map({name: _number(value) for name, value in optima.items()})
    order = {key: rank for rank, key in enumerate(dict.fromkeys(zip(*(traces[name] for name in KEYS), strict=True)))}
    place = [order[key] for key in zip(*(table[name] for name in KEYS), strict=True)]
    table = table.assign(place=place).sort_values(["place", "repetition"]).reset_index(drop=True)
    return ENDS.frame(table)


ENDS = Table(
    "ends",
    "A row for the end of every repetition. Repetitions of the same number share their start across methods and "
    "backends, so their gaps can be compared in pairs.",
    columns(RUN, """
    repetition | int64 | | from 0
    evaluations | int64 | evaluations | evaluations done
    f | float64 | f's | gap of `f` at the mean
    best | float64 | f's | gap of the best evaluated point
    start | float64 | f's | gap of `f` at the initial mean
    reached | bool | | whether `f` at the mean met `search.target`
    evaluations_to_target | float64 | evaluations | to `search.target`; infinite if missed
    status | string | | `ok` or `diverged`, as in the trace
    budget | int64 | evaluations | of this repetition
    """, _OPTIMUM),
    lambda gathered: ends(gathered.traces, gathered["hits"], optima(gathered), gathered.experiment.search.target),
)  # fmt: skip


def profiles(
    hits,
    optima: Mapping[str, float | None],
    dims: Mapping[str, int],
    groups: Mapping[str, Sequence[str]] | None = None,
):
    """The share of targets met against evaluations per dimension, as in COCO.

    Every combination of problem, repetition and target (51 targets, 10^2 to 10^-8 in steps of 0.2 decades) is a case.
    Unlike in COCO, there are no simulated restarts: a target that a run missed counts as never met, and a line ends at
    its budget. The group ``all`` weighs problems equally and has the methods that ran on all problems.

    Args:
        hits: as for ``curves``.
        optima: as for ``curves``; problems without an optimum are excluded.
        dims: the dimension of each problem.
        groups: the problems to pool, by the name of the group, in place of single problems.
    """
    import pandas as pd

    exponent = np.log10(hits["target"].to_numpy(float))
    kept = _with_optimum(hits[(exponent > PROFILE[0] - 0.01) & (exponent < PROFILE[1] + 0.01)], optima)
    if not len(kept):
        return PROFILES.frame([])
    dim = kept["problem"].map(dims)
    kept = kept.assign(cost=kept["evaluations"] / dim, limit=kept["budget"] / dim)
    names = list(kept["problem"].drop_duplicates())
    out = []
    for (method, backend, of), group in kept.groupby(["method", "backend", "of"], sort=False):
        cases: dict = dict(iter(group.groupby("problem", sort=False)))
        pooled = {name: [name] for name in cases}
        if groups is not None:
            pooled = {name: members for name, members in groups.items() if set(members) <= set(cases)}
        if len(cases) == len(names) > 1:
            pooled["all"] = names
        for name, members in pooled.items():
            limit = max(cases[member]["limit"].max() for member in members)
            grid = 10.0 ** (np.arange(-_PER_DECADE, int(np.floor(_PER_DECADE * np.log10(limit))) + 1) / _PER_DECADE)
            grid = np.append(grid[grid < 0.999 * limit], limit)
            share = np.mean([_ecdf(cases[member]["cost"], grid) for member in members], axis=0)
            out.append(
                pd.DataFrame({
                    "problem": name, "method": method, "backend": backend, "of": of, "evaluations_per_dim": grid,
                    "share": share, "problems": len(members), "targets": group["target"].nunique(),
                    "repetitions": max(cases[member]["repetition"].nunique() for member in members),
                    "budget_per_dim": limit,
                })
            )  # fmt: skip
    table = pd.concat(out, ignore_index=True)
    order = {name: rank for rank, name in enumerate(["all", *(groups or names)])}
    return table.sort_values("problem", kind="stable", key=lambda column: column.map(order)).reset_index(drop=True)


PROFILES = Table(
    "profiles",
    "Empirical distributions of running times, as in COCO but without simulated restarts. Every combination of "
    "problem, repetition and target from 10^2 to 10^-8 is a case.",
    columns("""
    problem | string | | as in the trace (in `groups`: a group), or `all`: problems weighed equally, for methods that
    + ran on all of them
    method | string | | the experiment's name for the method
    backend | string | | as in the trace
    of | string | | `mean` or `best`
    evaluations_per_dim | float64 | evaluations | evaluations divided by the dimension
    share | float64 | | share of cases met within them
    problems | int64 | | problems in the row
    targets | int64 | | targets per problem
    repetitions | int64 | | largest number of repetitions per problem
    budget_per_dim | float64 | evaluations | end of the line: the largest budget divided by the dimension
    """),
    lambda gathered: profiles(gathered["hits"], optima(gathered), dims(gathered)),
)  # fmt: skip


GROUPS = Table(
    "groups",
    "The table `profiles` for the groups of problems of the experiment file. A group has the methods that ran on all "
    "of its problems.",
    columns(PROFILES.columns),
    lambda gathered: profiles(gathered["hits"], optima(gathered), dims(gathered), gathered.experiment.groups),
    when=lambda experiment: bool(experiment.groups),
)


def with_seconds(table, timings):
    """``curves`` with the time of a run: the job's time divided by its number of runs, without compilation.

    Args:
        table: the table ``curves``.
        timings: columns ``problem, method, backend, iteration, evaluations, seconds, compile_seconds, repetitions``,
            with the seconds of all repetitions together.

    Returns:
        The rows of ``table`` whose job was timed, with ``seconds`` (of one run) and ``compile_seconds`` (of the job).
        Times between measurements are interpolated.
    """
    import pandas as pd

    timed = {key: rows.sort_values("evaluations") for key, rows in timings.groupby(KEYS, sort=False)}
    out = []
    for key, rows in table.groupby(KEYS, sort=False):
        if key not in timed:
            continue
        clock = timed[key]
        spent = np.interp(rows["evaluations"], clock["evaluations"], clock["seconds"] / clock["repetitions"])
        out.append(rows.assign(seconds=spent, compile_seconds=float(clock["compile_seconds"].max())))
    return SECONDS.frame(pd.concat(out, ignore_index=True) if out else [])


def _with_seconds(gathered):
    timings = gathered.timings
    repetitions = timings["method"].map(gathered.experiment.repetitions)
    return with_seconds(gathered["curves"], timings.assign(repetitions=repetitions))


SECONDS = Table(
    "seconds",
    "The table `curves` with wall times.",
    columns(CURVES.columns, """
    seconds | float64 | s | time so far of one run: the job's time per run, without compilation
    compile_seconds | float64 | s | compilation time of the job
    """),
    _with_seconds,
    timed=True,
)  # fmt: skip
TABLES = (CURVES, TARGETS, PROFILES, GROUPS, ENDS)


def quantile(values, q: float):
    """Quantiles along the last axis, linear between order statistics; infinite where an infinite one is needed.

    >>> float(quantile(np.array([1.0, 2.0, np.inf]), 0.5)), float(quantile(np.array([1.0, np.inf]), 0.5))
    (2.0, inf)
    """
    ordered = np.sort(values, axis=-1)
    place = q * (ordered.shape[-1] - 1)
    below = ordered[..., int(np.floor(place))]
    above = ordered[..., int(np.ceil(place))]
    with np.errstate(invalid="ignore"):
        return np.where(below == above, below, below + (place % 1) * (above - below))


def same_target(column, target: float):
    """Mask of the targets in a column that equal ``target``, up to rounding."""
    return np.isclose(np.log10(np.asarray(column, float)), np.log10(target), rtol=0, atol=1e-3)


def _gaps(traces, optima):
    """The traces with gaps in place of ``f`` and ``best``; infinite for diverged runs."""
    optimum = traces["problem"].map({name: _number(value) for name, value in optima.items()}).to_numpy(float)
    lost = (traces["status"] != "ok").to_numpy()
    columns = {}
    for name in ("f", "best"):
        value = traces[name].to_numpy(float)
        with np.errstate(invalid="ignore"):
            gap = np.where(np.isnan(optimum), value, np.maximum(value - optimum, 0.0))
        unknown = ~np.isfinite(value) | (lost if name == "f" else False)
        columns[name] = np.where(unknown, np.inf, gap)
    return traces.assign(**columns)


def _with_optimum(hits, optima):
    return hits[hits["problem"].map({name: value is not None for name, value in optima.items()}).astype(bool)]


def _budgets(traces, hits) -> dict[tuple[str, str, str], float]:
    """The budget of each job; without targets, the evaluations that it used."""
    used = traces.groupby(KEYS, sort=False)["evaluations"].max().to_dict()
    return used | hits.groupby(KEYS, sort=False)["budget"].max().to_dict()


def _ecdf(costs, grid):
    ordered = np.sort(costs.to_numpy(float))
    return np.searchsorted(ordered, grid * (1 + 1e-12), side="right") / len(ordered)


def _number(value) -> float:
    return np.nan if value is None else float(value)
