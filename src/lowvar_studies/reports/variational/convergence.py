"""Convergence of methods to the optimum: tables made from traces.

Where the optimum is unknown, there are no gaps: the largest ELBO of all runs would give its own method a gap of zero.
Methods are then compared by the ELBO itself.
"""

from collections.abc import Mapping

import numpy as np

from lowvar.core.intervals import mean_interval
from lowvar_studies.reports.declarations import KEYS, RUN, Table, columns
from lowvar_studies.reports.variational.gathering import (
    COUNTS,
    LINE,
    PROGRESS,
    has_runs,
    optima,
    problem_of,
    rows,
)

_LEAST_GAP = 1e-9  # nats; below it a gap is rounding
_SOON = 2**22  # data rows times dimensions, up to which L-BFGS takes seconds


def optimum(problem) -> float:
    """The largest ELBO of the guide, in nats, by L-BFGS on the exact ELBO.

    Args:
        problem: a JAX problem with an ``exact_elbo``.

    Raises:
        RuntimeError: L-BFGS did not converge.
    """
    import jax
    from scipy.optimize import minimize

    dim = problem.dim

    def negative(w):
        return -problem.exact_elbo({"mu": w[:dim], "log_sigma": w[dim:]})

    with_gradient = problem.backend.jit(jax.value_and_grad(negative))

    def objective(w):
        value, gradient = with_gradient(w)
        return float(value), np.asarray(gradient, float)

    start = np.concatenate([np.zeros(dim), np.full(dim, -1.0)])
    end = minimize(objective, start, jac=True, method="L-BFGS-B",
                   options={"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-7})  # fmt: skip
    if np.abs(end.jac).max() > 1e-3:
        raise RuntimeError(f"{problem.name}: L-BFGS stopped at gradient {np.abs(end.jac).max():.1e}: {end.message}")
    return -float(end.fun)


def optimum_of(gathered, name: str) -> tuple[str, str, float, str]:
    """A row of the table ``optimum``."""
    problem, guide = problem_of(gathered, name), gathered.experiment.model(name).family
    if problem.exact_elbo is not None and problem.N * problem.dim <= _SOON:
        try:
            return name, guide, optimum(problem_of(gathered, name, "float64")), "L-BFGS on the exact ELBO"
        except RuntimeError:
            pass
    return name, guide, largest_seen(gathered.traces, name), "largest seen in these runs"


def largest_seen(traces, problem: str) -> float:
    """The largest ELBO of all runs on a problem, nats: the reference where the optimum is unknown."""
    values = traces.loc[(traces["problem"] == problem) & (traces["status"] == "ok"), "elbo"]
    return float(values.max()) if len(values) else np.nan


def _optima(gathered):
    import pandas as pd

    rows = [optimum_of(gathered, name) for name in gathered.experiment.problems]
    return pd.DataFrame(rows, columns=["problem", "guide", "elbo", "how"])


OPTIMUM = Table(
    "optimum",
    "A row for each problem. The optimum is computed where the ELBO is exact and N times the dimension is at most "
    "2^22. Elsewhere it is unknown, and there are no gaps.",
    columns("""
    problem | string | | the experiment's name for the problem
    guide | string | | its variational family, with its options: `low_rank, rank=3`
    elbo | float64 | nats | ELBO*, from which gaps are measured; or the largest ELBO of the runs
    how | string | | `L-BFGS on the exact ELBO`, or `largest seen in these runs`
    """),
    _optima,
    when=has_runs,
)


def convergence(traces, optima: Mapping[str, float], rows: Mapping[str, int]):
    """ELBO and gap to the optimum over repetitions, by problem, method, backend, step size and epoch.

    Args:
        traces: the traces of all runs in one table. Methods may differ in step sizes, epochs and repetitions.
        optima: ELBO* of the problems whose optimum is known, nats; gaps of the others are NaN.
        rows: data rows ``N`` of each problem.
    """
    import pandas as pd

    keys = [*KEYS, "step_size", "epoch"]
    out = []
    for key, group in traces.groupby(keys, sort=False):
        row, ok = dict(zip(keys, key, strict=True)), group["status"] == "ok"
        elbo = _interval(group["elbo"]) if ok.all() else (-np.inf, np.nan, np.nan)
        gap = (np.nan, np.nan, np.nan)
        if row["problem"] in optima:
            gaps = np.maximum(optima[row["problem"]] - group["elbo"].to_numpy(), _LEAST_GAP)
            gap = tuple(10**v for v in mean_interval(np.log10(gaps))) if ok.all() else (np.inf, np.nan, np.nan)
        # equal in all repetitions, unless the number of particles depends on the run
        gradients, hvps = (round(group[name].mean()) for name in ("gradients", "hvps"))
        row |= {"iteration": int(group["iteration"].iloc[0]), "gradients": gradients, "hvps": hvps,
                "oracles": gradients + hvps, "passes": (gradients + hvps) / rows[row["problem"]],
                "repetitions": len(group), "diverged": int((~ok).sum())}  # fmt: skip
        for name, values in (("gap", gap), ("elbo", elbo)):
            row |= dict(zip((f"{name}_mean", f"{name}_low", f"{name}_high"), values, strict=True))
        out.append(row)
    return CONVERGENCE.frame(_mark(pd.DataFrame(out)))


def _interval(values):
    """``mean_interval`` of values whose squares may overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, low, high = mean_interval(values)
    return (mean, low, high) if np.isfinite(mean) else (-np.inf, np.nan, np.nan)


def _mark(table):
    """Adds the columns ``best`` and ``envelope``: by the gap where the optimum is known, else by the ELBO."""
    distance = table["gap_mean"].where(table["gap_mean"].notna(), -table["elbo_mean"])
    finite = np.isfinite(distance)
    chosen = table.loc[distance[at_end(table) & finite].groupby([table[name] for name in KEYS]).idxmin()]
    keys = [*KEYS, "step_size"]
    marked = table.merge(chosen[keys].assign(best=True), on=keys, how="left")
    marked["best"] = marked["best"].eq(True)
    nearest = distance[finite].groupby([table[name] for name in (*KEYS, "epoch")]).idxmin()
    marked["envelope"] = table.index.isin(nearest)
    return marked


def at_end(table):
    """Mask of the rows at the last epoch of their run."""
    return table["epoch"] == table.groupby(KEYS)["epoch"].transform("max")


_AT_BEST = columns(LINE, PROGRESS, """
    gradients | int64 | data rows | gradients so far
    hvps | int64 | data rows | Hessian-vector products so far
    oracles | int64 | data rows | `gradients` plus `hvps`
    passes | float64 | passes | `oracles` divided by N
    gap_mean.. | float64 | nats | geometric mean of the gap; infinite if one diverged, NaN if the optimum is unknown
    elbo_mean.. | float64 | nats | mean ELBO; minus infinity if a repetition diverged
""", COUNTS)  # fmt: skip
CONVERGENCE = Table(
    "convergence",
    "A row for each problem, method, backend, step size and evaluated epoch, over the repetitions.",
    columns(_AT_BEST, """
    best | bool | | whether `step_size` is the best step size
    envelope | bool | | whether `step_size` is the best at this epoch
    """),
    lambda gathered: convergence(gathered.traces, optima(gathered), rows(gathered)),
    when=has_runs,
)  # fmt: skip


def best(table):
    """The last rows of ``convergence`` at each method's best step size; none for methods that always diverged."""
    return BEST.frame(table[at_end(table) & table["best"]])


BEST = Table(
    "best",
    "The last row of each method's best step size.",
    _AT_BEST,
    lambda gathered: best(gathered["convergence"]),
    when=has_runs,
)


def of_repetitions(traces, chosen, optima: Mapping[str, float]):
    """The trace rows behind rows of ``convergence``, with gaps.

    Args:
        traces: as for ``convergence``.
        chosen: rows of the table ``convergence``.
        optima: as for ``convergence``.
    """
    keys = [*KEYS, "step_size", "epoch"]
    rows = chosen[[*keys, "best"]].merge(traces, on=keys, how="left", validate="one_to_many")
    gaps = rows["problem"].map(dict(optima)).astype(float) - rows["elbo"].astype(float)
    return rows.assign(gap=np.maximum(gaps, _LEAST_GAP))


def ends(traces, table, optima: Mapping[str, float]):
    """ELBO and gap of every repetition at the end of every step size; see ``of_repetitions``."""
    return ENDS.frame(of_repetitions(traces, table[at_end(table)], optima))


def paths(traces, table, optima: Mapping[str, float]):
    """ELBO and gap of every repetition along the envelope; see ``of_repetitions``."""
    return PATHS.frame(of_repetitions(traces, table[table["envelope"]], optima))


ENDS = Table(
    "ends",
    "A row for the end of every repetition at every step size. Repetitions of the same number share noise and start "
    "across methods and backends, so they can be compared in pairs.",
    columns(LINE, """
    epoch | int64 | epochs | epochs done
    best | bool | | whether `step_size` is the best step size
    repetition | int64 | | from 0
    elbo | float64 | nats | ELBO
    gap | float64 | nats | ELBO* - `elbo`, at least 1e-9; NaN where the optimum is unknown
    status | string | | `ok` or `diverged`, as in the trace
    """),
    lambda gathered: ends(gathered.traces, gathered["convergence"], optima(gathered)),
    when=has_runs,
)  # fmt: skip
PATHS = Table(
    "paths",
    "A row for every repetition and epoch along the envelope: at the step size that is best at that epoch. It decides "
    "claims about iterations and times.",
    columns(RUN, PROGRESS, """
    step_size | float64 | | the best at this epoch, over the repetitions
    repetition | int64 | | from 0
    elbo | float64 | nats | ELBO
    gap | float64 | nats | as in `ends`
    """),
    lambda gathered: paths(gathered.traces, gathered["convergence"], optima(gathered)),
    when=has_runs,
)  # fmt: skip


def with_seconds(table, timings):
    """``convergence`` with the seconds of a run: the job's time divided by its number of runs, without compilation."""
    keys = [*KEYS, "epoch"]
    joined = table.merge(timings[[*keys, "seconds_per_run"]], on=keys, how="left", validate="many_to_one")
    return SECONDS.frame(joined.rename(columns={"seconds_per_run": "seconds"}))


SECONDS = Table(
    "seconds",
    "The table `convergence` with wall times.",
    columns(CONVERGENCE.columns, """
    seconds | float64 | s | `seconds_per_run` of `timing.parquet`: the job's time per run, without compilation
    """),
    lambda gathered: with_seconds(gathered["convergence"], gathered.timings),
    when=has_runs,
    timed=True,
)  # fmt: skip
TABLES = (OPTIMUM, CONVERGENCE, BEST, ENDS, PATHS)
