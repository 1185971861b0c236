"""How fast methods approach the optimum: tables out of traces.

Where the optimum is not known there are no gaps: the largest ELBO that any run saw would give its own method a gap
of zero. Methods are then compared by the ELBO itself.
"""

from collections.abc import Mapping

import numpy as np

from lowvar.analysis.decomposition import mean_interval

_LEAST_GAP = 1e-9  # nats; below it a gap is rounding
_RUN = ["problem", "method", "backend"]


def optimum(problem) -> float:
    """The largest ELBO of the guide, in nats, by L-BFGS on the exact ELBO.

    Args:
        problem: a JAX problem whose ``exact_elbo`` is known.

    Raises:
        RuntimeError: the optimizer did not get there.
    """
    import jax
    from scipy.optimize import minimize

    dim = problem.dim

    def negative(w):
        return -problem.exact_elbo({"mu": w[:dim], "log_sigma": w[dim:]})

    with_gradient = jax.jit(jax.value_and_grad(negative))

    def objective(w):
        value, gradient = with_gradient(w)
        return float(value), np.asarray(gradient, float)

    start = np.concatenate([np.zeros(dim), np.full(dim, -1.0)])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 10_000, "maxfun": 20_000,
                                                                          "ftol": 1e-14, "gtol": 1e-7})  # fmt: skip
    if np.abs(found.jac).max() > 1e-3:
        raise RuntimeError(f"{problem.name}: L-BFGS stopped at gradient {np.abs(found.jac).max():.1e}: {found.message}")
    return -float(found.fun)


def convergence(traces, optima: Mapping[str, float], rows: Mapping[str, int]):
    """ELBO, and gap to the optimum, by problem, method, backend, step size and epoch, over repetitions.

    Args:
        traces: the traces of all runs in one table, with columns ``problem, method, backend`` added. Methods may
            have step sizes, epochs and repetitions of their own.
        optima: the largest ELBO of the problems for which it is known, nats; gaps of the others are NaN.
        rows: data rows ``N`` of each problem.

    Returns:
        A table; see ``docs/results-schema.md``. The mean gap is geometric, its interval a t-interval of the
        logarithm; where any repetition diverged the gap is infinite.
    """
    import pandas as pd

    keys = ["problem", "method", "backend", "step_size", "epoch"]
    out = []
    for (problem, method, backend, step_size, epoch), group in traces.groupby(keys, sort=False):
        ok = group["status"] == "ok"
        elbo = _interval(group["elbo"]) if ok.all() else (-np.inf, np.nan, np.nan)
        gap = (np.nan, np.nan, np.nan)
        if problem in optima:
            gaps = np.maximum(optima[problem] - group["elbo"].to_numpy(), _LEAST_GAP)
            gap = tuple(10**v for v in mean_interval(np.log10(gaps))) if ok.all() else (np.inf, np.nan, np.nan)
        # the same in all repetitions, except where the number of points depends on the run
        gradients, hvps = (round(group[name].mean()) for name in ("gradients", "hvps"))
        oracles = gradients + hvps
        out.append(
            {"problem": problem, "method": method, "backend": backend, "step_size": step_size, "epoch": epoch,
             "iteration": int(group["iteration"].iloc[0]), "gradients": gradients,
             "hvps": hvps, "oracles": oracles, "passes": oracles / rows[problem],
             **dict(zip(("gap_mean", "gap_low", "gap_high"), gap, strict=True)),
             **dict(zip(("elbo_mean", "elbo_low", "elbo_high"), elbo, strict=True)),
             "repetitions": len(group), "diverged": int((~ok).sum())}
        )  # fmt: skip
    return _mark(pd.DataFrame(out))


def best(table):
    """The rows of ``convergence`` at the end of each method's best step size, where any did not diverge."""
    last = table["epoch"] == table.groupby(_RUN)["epoch"].transform("max")
    return table[last & table["best"]].drop(columns=["best", "envelope"]).reset_index(drop=True)


def ends(traces, table, optima: Mapping[str, float]):
    """ELBO and gap of every repetition at the end of every step size.

    Repetitions with the same number share noise and start across methods, so they can be compared in pairs.

    Args:
        traces: as for ``convergence``.
        table: what ``convergence`` gave.
        optima: as for ``convergence``.
    """
    last = table["epoch"] == table.groupby(_RUN)["epoch"].transform("max")
    found = _of_repetitions(traces, table[last], ["best"], optima)
    return found[[*_RUN, "step_size", "epoch", "best", "repetition", "elbo", "gap", "status"]]


def paths(traces, table, optima: Mapping[str, float]):
    """ELBO and gap of every repetition along the envelope: at each epoch, at the step size that was best there.

    Args:
        traces: as for ``convergence``.
        table: what ``convergence`` gave.
        optima: as for ``convergence``.
    """
    found = _of_repetitions(traces, table[table["envelope"]], [], optima)
    return found[[*_RUN, "epoch", "iteration", "step_size", "repetition", "elbo", "gap"]]


def with_seconds(table, timings):
    """``convergence`` with seconds: those of the whole job, shared out evenly among its runs, compiling apart."""
    columns = ["problem", "method", "backend", "epoch", "seconds_per_run"]
    joined = table.merge(timings[columns], on=columns[:4], how="left", validate="many_to_one")
    return joined.rename(columns={"seconds_per_run": "seconds"})


def largest_seen(traces, problem: str) -> float:
    """The largest ELBO of a problem that any run saw, nats: the reference where the optimum is not known."""
    values = traces.loc[(traces["problem"] == problem) & (traces["status"] == "ok"), "elbo"]
    return float(values.max()) if len(values) else np.nan


def _interval(values):
    """``mean_interval`` of numbers whose squares may not be finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, low, high = mean_interval(values)
    return (mean, low, high) if np.isfinite(mean) else (-np.inf, np.nan, np.nan)


def _of_repetitions(traces, chosen, also, optima):
    """The rows of the traces behind chosen rows of ``convergence``."""
    keys = [*_RUN, "step_size", "epoch"]
    found = chosen[[*keys, *also]].merge(traces, on=keys, how="left", validate="one_to_many")
    gaps = found["problem"].map(dict(optima)).astype(float) - found["elbo"].astype(float)
    return found.assign(gap=np.maximum(gaps, _LEAST_GAP))


def _mark(table):
    """``convergence`` with ``best`` and ``envelope``: by the gap where the optimum is known, else by the ELBO."""
    distance = table["gap_mean"].where(table["gap_mean"].notna(), -table["elbo_mean"])
    there = np.isfinite(distance)
    final = table["epoch"] == table.groupby(_RUN)["epoch"].transform("max")
    chosen = table.loc[distance[final & there].groupby([table[name] for name in _RUN]).idxmin()]
    keys = [*_RUN, "step_size"]
    marked = table.merge(chosen[keys].assign(best=True), on=keys, how="left")
    marked["best"] = marked["best"].eq(True)
    nearest = distance[there].groupby([table[name] for name in (*_RUN, "epoch")]).idxmin()
    marked["envelope"] = table.index.isin(nearest)
    return marked
