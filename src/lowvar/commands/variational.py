"""The jobs of the family ``variational``."""

from typing import Any

import numpy as np

from lowvar.runs import variational as engines


def engine(spec, prepared):
    """The engine of a run's spec on prepared data."""
    made = problem(spec.problem, prepared, spec.solver.dtype, spec.backend, spec.name)
    return engines.build(made, spec.method, spec.solver, seed=spec.seed, name=spec.name)


def packages(spec) -> tuple[str, ...]:
    """What a run needs besides the packages of every run."""
    return ()


def decomposition(job, prepared, progress_bar):
    """The variance of every method along the leader's run."""
    from lowvar.analysis import decomposition as analysis

    made = problem(job.problem, prepared, job.solver.dtype, "jax", job.name)
    runs, parts = engines.follow(made, job.methods, job.decomposition.leader, job.solver, seed=job.seed, name=job.name)
    moments = analysis.moments(job.decomposition.epochs, job.decomposition.points_along)
    with progress_bar(job.decomposition.epochs, f"{job.name} decomposition", "epoch") as tick:
        return analysis.along_run(
            runs, parts, moments=moments, spec=job.decomposition, batch_size=job.solver.batch_size,
            key=analysis.design_key(job.seed, job.name), progress=tick,
        )  # fmt: skip


def tables(place) -> dict:
    """The tables of an experiment, by name."""
    import pandas as pd

    from lowvar.analysis import convergence as analysis

    traces, rows, optima = place.gather_tables("trace.parquet"), {}, []
    for name in place.experiment.problems:
        made = problem(place.experiment.model(name), place.load_data(name), "float64", "jax", name)
        rows[name] = made.N
        if made.exact_elbo is not None:
            optima.append({"problem": name, "elbo": analysis.optimum(made), "how": "L-BFGS on the exact ELBO"})
        else:
            seen = traces.loc[traces["problem"] == name, "elbo"].max()
            optima.append({"problem": name, "elbo": seen, "how": "largest seen in these runs"})
    optimum = pd.DataFrame(optima)
    values = dict(zip(optimum["problem"], optimum["elbo"], strict=True))
    table = analysis.convergence(traces, values, rows)
    found = {
        "optimum": optimum,
        "convergence": table,
        "best": analysis.best(table),
        "ends": analysis.ends(traces, table, values),
    }
    return found | ({"decomposition": place.decomposition()} if place.experiment.decompositions() else {})


def with_seconds(place, timings):
    """The convergence table with seconds."""
    from lowvar.analysis import convergence as analysis

    return analysis.with_seconds(place.table("convergence"), timings)


def evidence(place) -> dict:
    """The tables that claims are judged by."""
    return {name: place.table(name) for name in place.experiment.tables}


def picture(place, kind: str) -> tuple[str, dict]:
    """The name of a figure in the registry, and its options."""
    return ("convergence", {"x": "seconds"}) if kind == "seconds" else (kind, {})


def metrics(place, tables) -> dict:
    """Numbers to watch from one run to the next."""
    metrics: dict[str, Any] = {}
    for row in tables["best"].itertuples():
        key = f"{row.method}-{row.backend}"
        metrics.setdefault(row.problem, {}).setdefault("gap_at_best_step", {})[key] = round(row.gap_mean, 8)
    if (d := tables.get("decomposition")) is None:
        return metrics
    for row in d[d["end"] & (d["block"] == "all") & (d["source"] == "total")].itertuples():
        metrics[row.problem].setdefault("gradient_variance", {})[row.method] = float(f"{row.variance:.8g}")
    return metrics


def problem(spec, prepared, dtype, backend, name):
    """A model of the catalogue, by its ``ModelSpec``, on prepared data."""
    from lowvar.problems import catalogue

    arrays = {
        key: value.astype(dtype, copy=False) if np.issubdtype(value.dtype, np.floating) else value
        for key, value in prepared.arrays.items()
    }
    return catalogue.build(spec.model, arrays, backend, name, **spec.options)
