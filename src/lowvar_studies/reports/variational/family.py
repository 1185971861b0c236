"""The family ``variational``: its declarations and its jobs."""

from lowvar_studies.jobs.variational.experiment import VariationalExperiment
from lowvar_studies.reports.declarations import Family
from lowvar_studies.reports.variational import (
    convergence,
    diagnostics,
    effects,
    figures,
    files,
    selection,
    times,
    variances,
)
from lowvar_studies.reports.variational.gathering import build as problem
from lowvar_studies.reports.variational.gathering import first_setting


def engine(spec, prepared):
    """The engine of a run's spec on prepared data."""
    from lowvar_studies.jobs.variational import engine as engines

    objective = problem(spec.problem, prepared, spec.solver.dtype, spec.backend, spec.name, spec.seed)
    return engines.build(objective, spec.method.make(), spec.solver.make(), seed=spec.seed, name=spec.name)


def tune(job, prepared, **search):
    """The trials of a search, each a run on prepared data, and their seconds."""
    from lowvar_studies.jobs.variational import trials

    return trials.search(job, lambda trial: engine(trial, prepared), **search)


def decomposition(job, prepared, progress_bar):
    """The variance of every method along the leader's run."""
    from lowvar.vi import crossed as analysis
    from lowvar.vi.run import engine as engines

    objective = problem(job.problem, prepared, job.solver.dtype, "jax", job.name, job.seed)
    leader = job.decomposition.leader
    methods, settings = {name: one.make() for name, one in job.methods.items()}, job.solver.make()
    runs, parts = engines.follow(objective, methods, leader, settings, seed=job.seed, name=job.name)
    moments = analysis.moments(job.decomposition.epochs, job.decomposition.points_along)
    with progress_bar(job.decomposition.epochs, f"{job.name} decomposition", "epoch") as tick:
        return analysis.along_run(
            runs, parts, moments=moments, spec=job.decomposition, seed=job.seed, name=job.name, progress=tick
        )


def metrics(gathered):
    """Rows of ``metrics.json``: problem, quantity, run and value."""
    for row in gathered["best"].itertuples() if "best" in gathered else ():
        run = f"{row.method}-{row.backend}"
        yield row.problem, "elbo_at_best_step", run, float(f"{row.elbo_mean:.8g}")
        if row.gap_mean == row.gap_mean:
            yield row.problem, "gap_at_best_step", run, round(row.gap_mean, 8)
    if "decomposition" in gathered:
        d = first_setting(gathered["decomposition"])
        for row in d[d["end"] & (d["block"] == "all") & (d["source"] == "total")].itertuples():
            yield row.problem, "gradient_variance", row.method, float(f"{row.variance:.8g}")


def summary(tables):
    """The settings that trials found for each method, beside the published ones.

    None if there were no trials, or kept rows lack them.
    """
    rows = tables["selected"] if "selected" in set(tables) else None
    if rows is None or not rows["trials"].notna().any():
        return None
    names = ("step_size", "beta", "r")
    shown = rows[["problem", "method"]].copy()
    for name in names:
        pairs = zip(rows[name], rows[f"published_{name}"], strict=True)
        shown[name] = [
            "" if ours != ours else f"{ours:.3g}" if theirs != theirs else f"{ours:.3g} (published {theirs:.3g})"
            for ours, theirs in pairs
        ]
    return "Settings found by trials", shown


FAMILY = Family(
    name="variational",
    experiment=VariationalExperiment,
    method="estimator",
    tables=(
        *convergence.TABLES,
        times.TIMES,
        *variances.TABLES,
        *diagnostics.TABLES,
        *selection.TABLES,
        convergence.SECONDS,
    ),
    figures={one.name: one for one in figures.FIGURES},
    effects=effects.EFFECTS,
    files=files.FILES,
    engine=engine,
    metrics=metrics,
    tune=tune,
    decomposition=decomposition,
    summary=summary,
    headlines=("shares", "sizes", "sensitivity", "variance", "iterations"),
)
