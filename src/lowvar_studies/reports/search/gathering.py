"""Inputs of the tables of the family ``search`` besides traces."""

import numpy as np

from lowvar_studies.reports.declarations import RUN, Table, columns


def problems(gathered):
    """The problems of an experiment, by name."""
    return {name: build(spec) for name, spec in gathered.experiment.problems.items()}


def build(spec):
    """A function of the catalogue, by its spec."""
    from lowvar.core import backend as backends
    from lowvar_studies.functions import catalogue

    return catalogue.build(spec.function, backends.get("jax"), dim=spec.dim, **spec.options)


def optima(gathered) -> dict[str, float | None]:
    """The optimum of each problem, None if unknown."""
    return {name: problem.optimum for name, problem in gathered.once(problems).items()}


def dims(gathered) -> dict[str, int]:
    """The dimension of each problem."""
    return {name: problem.dim for name, problem in gathered.once(problems).items()}


def solved(experiment) -> dict[str, float]:
    """The option ``target`` of figures."""
    return {"target": experiment.search.target}


def _hits(gathered):
    import pandas as pd

    rows = []
    for problem, method, backend, arrays in gathered.params:
        for of, met in (("mean", arrays["met"]), ("best", arrays["met_best"])):
            repetition, target = (axis.ravel() for axis in np.indices(met.shape))
            rows.append(
                pd.DataFrame(
                    {"problem": problem, "method": method, "backend": backend, "repetition": repetition,
                     "target": arrays["targets"][target], "of": of, "evaluations": met.ravel(),
                     "budget": int(arrays["budget"])}
                )
            )  # fmt: skip
    return pd.concat(rows, ignore_index=True)


HITS = Table(
    "hits",
    "For claims: evaluations at which every repetition met every target. Problems with unknown optimum have no rows.",
    columns(RUN, """
    repetition | int64 | | from 0
    target | float64 | f's | a gap
    of | string | | `mean` or `best`: the point that met the target
    evaluations | float64 | evaluations | to the target; infinite if missed
    budget | int64 | evaluations | of each repetition
    """),
    _hits,
    kept=False,
)  # fmt: skip
DECOMPOSITION = Table(
    "decomposition",
    "The decompositions of all problems of an experiment, concatenated. A row for each problem, sigma, "
    "population, scheme, baseline, block and source.",
    columns("""
    problem | string | | the experiment's name for the problem
    dim | int64 | | coordinates of a point
    sigma | float64 | x's | standard deviation of the distribution
    population | int64 | points | points of a generation, N, without the evaluation for `centre`
    scheme | string | | noise scheme: `iid`, `antithetic`, `orthogonal` or `rqmc`
    baseline | string | | subtracted from the values: `none`, `mean` (of the generation) or `centre` (`f` at `mu`)
    block | string | | `mu` or `sigma`
    source | string | | `total`, `odd` or `even`
    variance | float64 | f's^2 | of a generation's gradient, summed over coordinates
    low | float64 | f's^2 | lower end of its 95 % interval
    high | float64 | f's^2 | upper end
    to_iid.. | float64 | | `variance` divided by that of `iid` at the same N and baseline
    """),
    lambda gathered: gathered.decompositions,
    when=lambda experiment: experiment.decomposition is not None,
    rows_of="decompose",
)  # fmt: skip
