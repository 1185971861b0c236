"""How fast methods approach the optimum: tables out of traces."""

from collections.abc import Mapping

import numpy as np

from lowvar.analysis.decomposition import mean_interval

_LEAST_GAP = 1e-9  # nats; below it a gap is rounding


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
    """Gap to the optimum by problem, method, backend, step size and epoch, over repetitions.

    Args:
        traces: the traces of all runs in one table, with columns ``problem, method, backend`` added.
        optima: the largest ELBO of each problem, nats.
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
        gaps = np.maximum(optima[problem] - group["elbo"].to_numpy(), _LEAST_GAP)
        gap = tuple(10**v for v in mean_interval(np.log10(gaps))) if ok.all() else (np.inf, np.nan, np.nan)
        elbo = mean_interval(group["elbo"]) if ok.all() else (-np.inf, np.nan, np.nan)
        oracles = int(group["gradients"].iloc[0] + group["hvps"].iloc[0])
        out.append(
            {"problem": problem, "method": method, "backend": backend, "step_size": step_size, "epoch": epoch,
             "iteration": int(group["iteration"].iloc[0]), "gradients": int(group["gradients"].iloc[0]),
             "hvps": int(group["hvps"].iloc[0]), "oracles": oracles, "passes": oracles / rows[problem],
             **dict(zip(("gap_mean", "gap_low", "gap_high"), gap, strict=True)),
             **dict(zip(("elbo_mean", "elbo_low", "elbo_high"), elbo, strict=True)),
             "repetitions": len(group), "diverged": int((~ok).sum())}
        )  # fmt: skip
    table = pd.DataFrame(out)
    return _mark_best(table)


def best(table):
    """The rows of ``convergence`` at the end of each method's best step size, where any did not diverge."""
    last = table["epoch"] == table.groupby(["problem", "method", "backend"])["epoch"].transform("max")
    return table[last & table["best"]].drop(columns="best").reset_index(drop=True)


def ends(traces, table, optima: Mapping[str, float]):
    """The gap of every repetition at the end of each method's best step size.

    Repetitions with the same number share noise and start across methods, so their gaps can be compared in pairs.

    Args:
        traces: as for ``convergence``.
        table: what ``convergence`` gave.
        optima: the largest ELBO of each problem, nats.
    """
    keys = ["problem", "method", "backend", "step_size", "epoch"]
    found = best(table)[keys].merge(traces, on=keys, how="left", validate="one_to_many")
    found["gap"] = np.maximum(found["problem"].map(optima).astype(float) - found["elbo"].astype(float), _LEAST_GAP)
    return found[[*keys, "repetition", "elbo", "gap", "status"]]


def with_seconds(table, timings):
    """``convergence`` with seconds: those of the whole job, shared out evenly among its runs, compiling apart."""
    columns = ["problem", "method", "backend", "epoch", "seconds_per_run"]
    joined = table.merge(timings[columns], on=columns[:4], how="left", validate="many_to_one")
    return joined.rename(columns={"seconds_per_run": "seconds"})


def _mark_best(table):
    final = table["epoch"] == table.groupby(["problem", "method", "backend"])["epoch"].transform("max")
    ends = table[final & np.isfinite(table["gap_mean"])]
    chosen = ends.loc[ends.groupby(["problem", "method", "backend"])["gap_mean"].idxmin()]
    keys = ["problem", "method", "backend", "step_size"]
    marked = table.merge(chosen[keys].assign(best=True), on=keys, how="left")
    marked["best"] = marked["best"].eq(True)
    return marked
