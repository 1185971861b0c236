"""The jobs of the family ``search``."""

import numpy as np

from lowvar import backends
from lowvar.noise import named_key
from lowvar.problems.blackbox.catalogue import FUNCTIONS
from lowvar.runs import artifact
from lowvar.solvers.search import SEARCH
from lowvar.studies.search import engine as engines


def engine(spec, prepared):
    """The engine of a run's spec; a function stands on no data."""
    return engines.build(spec)


def packages(spec) -> tuple[str, ...]:
    """What a run needs besides the packages of every run: a peer's, or the simulator's."""
    return (*SEARCH.about(spec.method.solver).packages, *FUNCTIONS.about(spec.problem.function).packages)


def decomposition(job, prepared, progress_bar):
    """The variance of the search gradient at Gaussians around the start of the first repetition."""
    from lowvar.studies.search.variance import search_variance

    made, d = _problem(job.problem), job.decomposition
    table = search_variance(
        made, mean=made.start(named_key(job.seed, job.name, "start", 0)), sigmas=d.sigmas,
        populations=d.populations, schemes=d.schemes, baselines=d.baselines, replicates=d.replicates,
        key=named_key(job.seed, job.name, "design"),
    )  # fmt: skip
    return table.assign(problem=job.name)


def tables(place) -> dict:
    """The tables of an experiment, by name."""
    from lowvar.studies.search import progress as analysis

    experiment = place.experiment
    made = {name: _problem(spec) for name, spec in experiment.problems.items()}
    optima = {name: problem.optimum for name, problem in made.items()}
    dims = {name: problem.dim for name, problem in made.items()}
    traces, hits = place.gather_tables("trace.parquet"), _hits(place)
    found = {
        "curves": analysis.curves(traces, hits, optima, dims),
        "targets": analysis.targets(traces, hits, optima, dims),
        "profiles": analysis.profiles(hits, optima, dims),
        "ends": analysis.ends(traces, hits, optima, experiment.search.target),
    }
    if experiment.decomposition:
        found["decomposition"] = place.decomposition()
    return found


def with_seconds(place, timings):
    """The curves with seconds."""
    from lowvar.studies.search import progress as analysis

    repetitions = timings["method"].map(place.experiment.repetitions)
    return analysis.with_seconds(place.table("curves"), timings.assign(repetitions=repetitions))


def evidence(place) -> dict:
    """The tables that claims are judged by, and the evaluations at which every repetition met every target."""
    return {name: place.table(name) for name in place.experiment.tables} | {"hits": _hits(place)}


def metrics(place, tables) -> dict:
    """Numbers to watch from one run to the next."""
    from lowvar.studies.search import progress as analysis

    return analysis.metrics(tables["targets"], tables["ends"], target=place.experiment.search.target)


def _problem(spec):
    from lowvar.problems.blackbox import catalogue

    return catalogue.build(spec.function, backends.get("jax"), dim=spec.dim, **spec.options)


def _hits(place):
    """Evaluations at which runs met targets, a row each; none for functions of unknown optimum."""
    import pandas as pd

    rows = []
    for problem, method, backend, (arrays, _) in place.gather("params.npz", artifact.read_arrays):
        targets, budget = arrays["targets"], int(arrays["budget"])
        for of, met in (("mean", arrays["met"]), ("best", arrays["met_best"])):
            repetition, target = (axis.ravel() for axis in np.indices(met.shape))
            rows.append(
                pd.DataFrame(
                    {"problem": problem, "method": method, "backend": backend, "repetition": repetition,
                     "target": targets[target], "of": of, "evaluations": met.ravel(), "budget": budget}
                )
            )  # fmt: skip
    return pd.concat(rows, ignore_index=True)
