"""The jobs of the family ``variational``."""

from typing import Any

import numpy as np

from lowvar.runs import artifact
from lowvar.studies.variational import engine as engines

_SOON = 2**22  # data rows times dimensions up to which L-BFGS finds the optimum in seconds


def engine(spec, prepared):
    """The engine of a run's spec on prepared data."""
    made = problem(spec.problem, prepared, spec.solver.dtype, spec.backend, spec.name, spec.seed)
    return engines.build(made, spec.method, spec.solver, seed=spec.seed, name=spec.name)


def packages(spec) -> tuple[str, ...]:
    """What a run needs besides the packages of every run."""
    return ()


def decomposition(job, prepared, progress_bar):
    """The variance of every method along the leader's run."""
    from lowvar.analysis import decomposition as analysis

    made = problem(job.problem, prepared, job.solver.dtype, "jax", job.name, job.seed)
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

    from lowvar.studies.variational import convergence as analysis
    from lowvar.studies.variational import costs as beside

    traces, shapes, optima = place.gather_tables("trace.parquet"), {}, []
    models = {name: place.experiment.model(name) for name in place.experiment.problems}
    for name in models:
        shapes[name], known = _shape_and_optimum(place, name)
        if known is None:
            optima.append((name, analysis.largest_seen(traces, name), "largest seen in these runs"))
        else:
            optima.append((name, known, "L-BFGS on the exact ELBO"))
    optimum = pd.DataFrame(optima, columns=["problem", "elbo", "how"])
    exact = optimum[optimum["how"].str.startswith("L-BFGS")]
    values = dict(zip(exact["problem"], exact["elbo"], strict=True))
    table = analysis.convergence(traces, values, {name: rows for name, (rows, _) in shapes.items()})
    batches = {job: place.experiment.run(*job).solver.batch_size for job in place.experiment.runs()}
    found = {
        "optimum": optimum,
        "convergence": table,
        "best": analysis.best(table),
        "ends": analysis.ends(traces, table, values),
        "paths": analysis.paths(traces, table, values),
        "table2": beside.sizes(models, shapes),
        "table3": beside.costs(traces, _timings(place, beside.with_published_times(models)), models, shapes, batches),
    }
    found |= _of_gradients(place, traces, table, models, shapes)
    if place.experiment.decompositions():
        decomposition = place.decomposition()
        found |= {
            "decomposition": decomposition,
            "table1": beside.variances(decomposition, models),
            "schemes": beside.schemes(decomposition),
        }
    return found


def _of_gradients(place, traces, table, models, shapes) -> dict:
    """The tables of runs whose gradients, schedules or test rows were looked at, those that the experiment has."""
    from lowvar.studies.variational import diagnostics as analysis
    from lowvar.studies.variational import tuning

    wanted = set(place.experiment.tables)
    if "measured" not in wanted:
        return {}
    measures = analysis.measured(traces, table)
    plans = {job: tuning.spec_of(place, *job).solver.schedule for job in place.experiment.runs()}
    fitted = {name: rows for name, (rows, _) in shapes.items()}
    found = {"measured": measures, "diagnostics": analysis.diagnostics(measures), "repair": analysis.repair(measures)}
    made = {
        "fractions": lambda: analysis.fractions(measures, models, fitted),
        "sensitivity": lambda: analysis.sensitivity(table, plans),
        "selected": lambda: tuning.with_trials(place, analysis.selected(table, plans, models)),
        "pace": lambda: analysis.pace(measures, _timings(place, place.experiment.problems)),
    }
    return found | {name: make() for name, make in made.items() if name in wanted}


def _shape_and_optimum(place, name):
    """``(N, dim)`` of a problem, and its largest ELBO where that is soon found, else None."""
    from lowvar.studies.variational import convergence as analysis

    prepared, model = place.load_data(name), place.experiment.model(name)
    seed = place.experiment.seed
    made = problem(model, prepared, place.experiment.dtype(name), "jax", name, seed)
    if made.exact_elbo is None or made.N * made.dim > _SOON:
        return (made.N, made.dim), None
    try:
        return (made.N, made.dim), analysis.optimum(problem(model, prepared, "float64", "jax", name, seed))
    except RuntimeError:
        return (made.N, made.dim), None


def _timings(place, problems):
    """The timings of runs on these problems that are here; None if there are none."""
    import pandas as pd

    paths = [place.run_folder(*job) / "timing.parquet" for job in place.experiment.runs() if job[0] in problems]
    found = [artifact.read_table(path) for path in paths if path.is_file()]
    return pd.concat(found, ignore_index=True) if found else None


def with_seconds(place, timings):
    """The convergence table with seconds."""
    from lowvar.studies.variational import convergence as analysis

    return analysis.with_seconds(place.table("convergence"), timings)


def evidence(place) -> dict:
    """The tables that claims are judged by."""
    return {name: place.table(name) for name in place.experiment.tables}


def metrics(place, tables) -> dict:
    """Numbers to watch from one run to the next."""
    from lowvar.studies.variational.noises import first_noise

    metrics: dict[str, Any] = {name: {} for name in place.experiment.problems}
    for row in tables["best"].itertuples():
        key, here = f"{row.method}-{row.backend}", metrics[row.problem]
        here.setdefault("elbo_at_best_step", {})[key] = float(f"{row.elbo_mean:.8g}")
        if np.isfinite(row.gap_mean):
            here.setdefault("gap_at_best_step", {})[key] = round(row.gap_mean, 8)
    if (d := tables.get("decomposition")) is None:
        return metrics
    d = first_noise(d)
    for row in d[d["end"] & (d["block"] == "all") & (d["source"] == "total")].itertuples():
        metrics[row.problem].setdefault("gradient_variance", {})[row.method] = float(f"{row.variance:.8g}")
    return metrics


def problem(spec, prepared, dtype, backend, name, seed=0):
    """A model of the catalogue, by its ``ModelSpec``, on prepared data; ``seed`` deals rows out to fit and to test."""
    from lowvar.noise import named_key
    from lowvar.problems import catalogue
    from lowvar.problems.split import split

    arrays = {
        key: value.astype(dtype, copy=False) if np.issubdtype(value.dtype, np.floating) else value
        for key, value in prepared.arrays.items()
    }
    if spec.split is not None:
        arrays = split(arrays, named_key(seed, spec.dataset, "split"), spec.split.test, spec.split.train)
    return catalogue.build(spec.model, arrays, backend, name, **spec.options)
