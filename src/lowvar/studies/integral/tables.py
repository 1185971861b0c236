"""The jobs of the family ``integral``."""

from lowvar.runs import artifact
from lowvar.studies.integral import engine as engines

SAMPLING = ("blackjax", "diffrax")  # packages that points depend on, besides those of every run


def engine(spec, drawn):
    """The engine of a run's spec on samples."""
    return engines.build(spec, drawn)


def packages(spec) -> tuple[str, ...]:
    """What a run needs besides the packages of every run."""
    return ()


def draw(job, prepared):
    """Points of all repetitions, and what the file says about them."""
    from lowvar.noise.integrals import draw

    problem = _problem(job, prepared)
    sizes = engines.every_task(job.sizes, len(problem.tasks), f"sizes of {job.name}")
    sampler = job.sampler or problem.samplers[0]
    samples = draw(problem, sampler, sizes, job.repetitions, job.seed, job.name)
    truth = problem.truth(job.truth_effort)
    rows = [
        {"task": task, "truth": float(value), "truth_error": float(error), "how": truth.how}
        for task, value, error in zip(problem.tasks, truth.value, truth.error, strict=True)
    ]
    for name, (value, error, how) in problem.derived_truth.items():
        rows.append({"task": name, "truth": float(value), "truth_error": float(error), "how": how})
    return samples, {"tasks": problem.tasks, "groups": problem.groups, "truth": rows, "sampler": sampler}


def tables(place) -> dict:
    """The tables of an experiment, by name."""
    import pandas as pd

    from lowvar.studies.integral import errors as analysis
    from lowvar.studies.integral import illustrations

    experiment = place.experiment
    built = {name: _problem(experiment.sample(name), place.load_data(name)) for name in experiment.samples()}
    drawn = {name: place.load_source(name).within(spec.tasks) for name, spec in experiment.problems.items()}
    truth = pd.concat([pd.DataFrame(one.truth).assign(problem=name) for name, one in drawn.items()], ignore_index=True)[
        ["problem", "task", "truth", "truth_error", "how"]
    ]
    traces = analysis.with_derived(place.gather_tables("trace.parquet"), built)
    found = {
        "truth": truth,
        "errors": analysis.errors(traces, truth),
        "sums": analysis.sums(traces, truth),
        "estimates": analysis.estimates(traces, truth),
        "decomposition": analysis.decomposition(traces, truth),
    }
    asked = experiment.illustrate
    if asked.fits:
        found["fits"] = illustrations.fits(experiment, built, drawn)
    if asked.stein_kernels:
        found["kernels"] = illustrations.stein_kernels()
    if asked.epochs:
        last = {name: one.tasks[-1] for name, one in drawn.items()}
        params = place.gather("params.npz", artifact.read_arrays)
        found["epochs"] = illustrations.epochs(asked.epochs, truth, last, params)
    if asked.power_scores:
        found["scores"] = illustrations.power_scores(built[asked.power_scores])
    if asked.predictive:
        found["predictive"] = illustrations.predictive(built[asked.predictive], drawn[asked.predictive].samples)
    return found


def with_seconds(place, timings):
    """Seconds of a repetition, by size."""
    from lowvar.studies.integral import errors as analysis

    return analysis.with_seconds(timings, place.table("errors"))


def evidence(place) -> dict:
    """The tables that claims are judged by."""
    return {name: place.table(name) for name in place.experiment.tables}


def metrics(place, tables) -> dict:
    """Numbers to watch from one run to the next."""
    from lowvar.studies.integral import errors as analysis

    return analysis.metrics(tables["errors"])


def _problem(job, prepared):
    from lowvar.problems.integrals import catalogue

    return catalogue.build(job.problem, prepared, **job.options)
