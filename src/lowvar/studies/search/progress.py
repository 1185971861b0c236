"""How black-box searches get on: tables out of their traces and of the evaluations at which they met targets.

A gap is a value less the optimum. Where a problem's optimum is not known (policies), the gap is the value
itself and there are no targets. A run that diverged has an infinite gap.

References:
    Hansen, Auger, Ros, Mersmann, Tusar and Brockhoff, COCO: a platform for comparing continuous optimizers in a
    black-box setting, 2021: targets, expected running time, and empirical distributions of running times.
    Clopper and Pearson, 1934: the interval of a share. David and Nagaraja, Order Statistics, 2003, section 7.1:
    the interval of a median.
"""

from collections.abc import Mapping

import numpy as np

from lowvar.studies.search.spec import TARGET_EXPONENTS

KEYS = ["problem", "method", "backend"]
TARGET = 10.0 ** TARGET_EXPONENTS[-1]  # the precision that the paper's curves go to
PROFILE = (-8.0, 2.0)  # exponents of the hardest and the easiest target of a profile
_PER_DECADE = 10  # points of a profile's grid
_LEVEL = 0.95


def curves(traces, hits, optima: Mapping[str, float | None], dims: Mapping[str, int]):
    """The gap along the searches by problem, method, backend and evaluations, over repetitions.

    Repetitions that ended before others keep their last value. A curve ends where the last of them does: at the
    budget, or where all have met the last target.

    Args:
        traces: the traces of all runs in one table, columns ``problem, method, backend, repetition, iteration,
            evaluations, f, best, sigma, condition, status``.
        hits: the targets that were met, columns ``problem, method, backend, repetition, target, of, evaluations,
            budget``; used for the budgets.
        optima: the smallest value of each problem, None where it is not known.
        dims: the dimension of each problem.

    Returns:
        A table; see ``docs/results-schema.md``. ``low`` and ``high`` are quartiles; a quantile that needs an
        infinite gap is infinite.
    """
    import pandas as pd

    budgets, out = _budgets(traces, hits), []
    for key, group in _gaps(traces, optima).groupby(KEYS, sort=False):
        group = group.assign(lost=(group["status"] != "ok").astype(float))
        group = group.drop_duplicates(["evaluations", "repetition"], keep="last")
        wide = {
            name: group.pivot(index="evaluations", columns="repetition", values=name).sort_index().ffill()
            for name in ("iteration", "f", "best", "sigma", "condition", "lost")
        }
        f, best = (wide[name].to_numpy(float) for name in ("f", "best"))
        problem, method, backend = key
        table = {"problem": problem, "dim": dims[problem], "method": method, "backend": backend,
                 "evaluations": wide["f"].index.to_numpy(),
                 "iteration": wide["iteration"].max(axis=1).astype(int)}  # fmt: skip
        for name, values in (("f", f), ("best", best)):
            for part, q in (("median", 0.5), ("low", 0.25), ("high", 0.75)):
                table[f"{name}_{part}"] = quantile(values, q)
            if name == "f":
                table["f_mean"] = f.mean(axis=1)
        table["sigma_median"] = wide["sigma"].median(axis=1)
        table["condition_median"] = wide["condition"].median(axis=1)
        table["repetitions"] = f.shape[1]
        table["diverged"] = wide["lost"].sum(axis=1).astype(int)
        table["budget"], table["optimum"] = budgets[key], _number(optima[problem])
        out.append(pd.DataFrame(table).reset_index(drop=True))
    return pd.concat(out, ignore_index=True)


def targets(traces, hits, optima: Mapping[str, float | None], dims: Mapping[str, int]):
    """How many evaluations each target took, by problem, method, backend and target, over repetitions.

    Args:
        traces: as for ``curves``; used for what the unsuccessful runs spent.
        hits: as for ``curves``.
        optima: as for ``curves``; problems without an optimum have no targets.
        dims: the dimension of each problem.

    Returns:
        A table. The median is over all repetitions and infinite unless more than half of them met the target; its
        interval is that of order statistics, of at least 95 % whatever the distribution, and NaN for fewer than six
        repetitions. The expected running time ``ert`` is the evaluations that all runs spent until they met the
        target or ended, divided by the number of runs that met it (COCO). The share's interval is Clopper and
        Pearson's.
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
    return pd.concat(out, ignore_index=True) if out else _empty(_TARGETS)


_TARGETS = ("problem", "dim", "method", "backend", "of", "target", "reached", "repetitions", "share", "share_low",
            "share_high", "evaluations_median", "evaluations_low", "evaluations_high", "ert", "budget")  # fmt: skip


def ends(traces, hits, optima: Mapping[str, float | None], target: float = TARGET, of: str = "mean"):
    """Where every repetition ended.

    Repetitions with the same number share their start, so their gaps can be compared in pairs.

    Args:
        traces: as for ``curves``.
        hits: as for ``curves``.
        optima: as for ``curves``.
        target: the precision that ``reached`` and ``evaluations_to_target`` speak of.
        of: whether it was met by f at the distribution's ``mean`` or by the ``best`` evaluated point.

    Returns:
        A table; ``start`` is the gap of f at the first mean, ``optimum`` is NaN where it is not known.
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
    return table[[*by, "evaluations", "f", "best", "start", "reached", "evaluations_to_target", "status", "budget",
                  "optimum"]]  # fmt: skip


def profiles(hits, optima: Mapping[str, float | None], dims: Mapping[str, int]):
    """The share of targets met within so many evaluations per dimension, as COCO draws them.

    Every problem, repetition and target (51 of them, 10^2 to 10^-8 in steps of 0.2 decades) is one case. A run is
    taken as it was: one that ended without meeting a target counts as not met for ever, where COCO would go on with
    a simulated restart. So a line is flat after its budget, at which it ends. The group ``all`` weighs problems
    alike and has those methods that were run on all problems.

    Args:
        hits: as for ``curves``.
        optima: as for ``curves``; problems without an optimum are left out.
        dims: the dimension of each problem.

    Returns:
        A table with columns ``problem`` (``all`` or a problem), ``method, backend, of, evaluations_per_dim, share,
        problems, targets, repetitions, budget_per_dim``.
    """
    import pandas as pd

    exponent = np.log10(hits["target"].to_numpy(float))
    kept = _with_optimum(hits[(exponent > PROFILE[0] - 0.01) & (exponent < PROFILE[1] + 0.01)], optima)
    if not len(kept):
        return _empty(_PROFILES)
    dim = kept["problem"].map(dims)
    kept = kept.assign(cost=kept["evaluations"] / dim, limit=kept["budget"] / dim)
    names = list(kept["problem"].drop_duplicates())
    out = []
    for (method, backend, of), group in kept.groupby(["method", "backend", "of"], sort=False):
        cases: dict = dict(iter(group.groupby("problem", sort=False)))
        groups = {name: [name] for name in cases}
        if len(cases) == len(names) > 1:
            groups["all"] = names
        for name, members in groups.items():
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
    order = {name: rank for rank, name in enumerate(["all", *names])}
    return table.sort_values("problem", kind="stable", key=lambda column: column.map(order)).reset_index(drop=True)


_PROFILES = ("problem", "method", "backend", "of", "evaluations_per_dim", "share", "problems", "targets",
             "repetitions", "budget_per_dim")  # fmt: skip


def with_seconds(table, timings):
    """``curves`` with time: that of the whole job, shared out evenly among its runs, compiling apart.

    Args:
        table: what ``curves`` gave.
        timings: columns ``problem, method, backend, iteration, evaluations, seconds, compile_seconds, repetitions``,
            seconds so far of all repetitions at once.

    Returns:
        The rows of ``table`` whose job was timed, with ``seconds`` (of one run), ``compile_seconds`` (of the job),
        ``microseconds_per_evaluation`` and ``microseconds_per_iteration`` (so far; NaN at the start). Between timed
        moments time is interpolated.
    """
    import pandas as pd

    timed = {key: rows.sort_values("evaluations") for key, rows in timings.groupby(KEYS, sort=False)}
    out = []
    for key, rows in table.groupby(KEYS, sort=False):
        if key not in timed:
            continue
        clock = timed[key]
        spent = np.interp(rows["evaluations"], clock["evaluations"], clock["seconds"] / clock["repetitions"])
        micro = 1e6 * spent
        evaluations, iterations = (rows[name].to_numpy(float) for name in ("evaluations", "iteration"))
        out.append(
            rows.assign(
                seconds=spent,
                compile_seconds=float(clock["compile_seconds"].max()),
                microseconds_per_evaluation=np.where(evaluations > 0, micro / np.maximum(evaluations, 1), np.nan),
                microseconds_per_iteration=np.where(iterations > 0, micro / np.maximum(iterations, 1), np.nan),
            )
        )
    new = ("seconds", "compile_seconds", "microseconds_per_evaluation", "microseconds_per_iteration")
    return pd.concat(out, ignore_index=True) if out else table.iloc[:0].assign(**dict.fromkeys(new, np.nan))


def metrics(targets, ends, target: float = TARGET, of: str = "mean") -> dict[str, dict[str, dict[str, float | None]]]:
    """Numbers to watch from one version to the next; None stands for what is not finite.

    Args:
        targets: what ``targets`` gave.
        ends: what ``ends`` gave.
        target: the precision that evaluations are counted to.
        of: ``mean`` or ``best``.

    Returns:
        By problem: ``evaluations_to_target`` and ``final_gap``, medians by ``{method}-{backend}``.
    """
    out: dict[str, dict[str, dict[str, float | None]]] = {}
    for (problem, method, backend), rows in ends.groupby(KEYS, sort=False):
        gap = float(quantile(rows["f"].to_numpy(float), 0.5))
        out.setdefault(problem, {}).setdefault("final_gap", {})[f"{method}-{backend}"] = _finite(gap)
    for row in targets[(targets["of"] == of) & same_target(targets["target"], target)].itertuples():
        found = out.setdefault(row.problem, {}).setdefault("evaluations_to_target", {})
        found[f"{row.method}-{row.backend}"] = _finite(row.evaluations_median)
    return out


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


def median_interval(values):
    """A distribution-free interval of the median, of at least 95 %, along the last axis.

    The order statistics ``x_(j), x_(n+1-j)`` with the largest ``j`` for which ``P(Bin(n, 1/2) < j) <= 0.025``.

    Returns:
        Its two ends; NaN for fewer than six values, which no two of them enclose so surely.

    >>> [float(end) for end in median_interval(np.arange(1.0, 21.0))]
    [6.0, 15.0]
    """
    from scipy.stats import binom

    n = values.shape[-1]
    rank = int((binom.cdf(np.arange(n), n, 0.5) <= (1 - _LEVEL) / 2).sum())
    if rank == 0:
        return np.full(values.shape[:-1], np.nan), np.full(values.shape[:-1], np.nan)
    ordered = np.sort(values, axis=-1)
    return ordered[..., rank - 1], ordered[..., n - rank]


def share_interval(count, n: int):
    """Clopper and Pearson's 95 % interval of a probability, from ``count`` of ``n``.

    >>> [round(float(end), 4) for end in share_interval(20, 20)]
    [0.8316, 1.0]
    """
    from scipy.stats import beta

    count, tail = np.asarray(count), (1 - _LEVEL) / 2
    low = np.where(count > 0, beta.ppf(tail, np.maximum(count, 1), n - count + 1), 0.0)
    high = np.where(count < n, beta.ppf(1 - tail, count + 1, np.maximum(n - count, 1)), 1.0)
    return low, high


def same_target(column, target: float):
    """Which of a column's targets are this one, but for rounding."""
    return np.isclose(np.log10(np.asarray(column, float)), np.log10(target), rtol=0, atol=1e-3)


def _gaps(traces, optima):
    """The traces with gaps in place of ``f`` and ``best``; infinite where a run diverged."""
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
    """Evaluations that each job had; where no target was set, what it used."""
    used = traces.groupby(KEYS, sort=False)["evaluations"].max().to_dict()
    return used | hits.groupby(KEYS, sort=False)["budget"].max().to_dict()


def _ecdf(costs, grid):
    ordered = np.sort(costs.to_numpy(float))
    return np.searchsorted(ordered, grid * (1 + 1e-12), side="right") / len(ordered)


def _number(value) -> float:
    return np.nan if value is None else float(value)


def _finite(value) -> float | None:
    return float(value) if np.isfinite(value) else None


def _empty(columns):
    """A table without rows whose columns have the types that they have with rows."""
    import pandas as pd

    words, counts = (
        ("problem", "method", "backend", "of"),
        ("dim", "reached", "repetitions", "problems", "targets", "budget"),
    )
    kinds = {name: "str" if name in words else "int64" if name in counts else "float64" for name in columns}
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
