"""What tables of the family ``search`` are made of, besides traces."""

import numpy as np

from lowvar.studies.base import Table, columns

KEYS = ["problem", "method", "backend"]
RUN = """
problem | string | | the experiment's name for the problem
method | string | | the experiment's name for the method
backend | string | | `jax` or `torch`; `jax` for all peers
"""


def problems(gathered):
    """The problems of an experiment, by name."""
    return {name: build(spec) for name, spec in gathered.experiment.problems.items()}


def build(spec):
    """A function of the catalogue, by its spec."""
    from lowvar import backends
    from lowvar.problems.blackbox import catalogue

    return catalogue.build(spec.function, backends.get("jax"), dim=spec.dim, **spec.options)


def optima(gathered) -> dict[str, float | None]:
    """The smallest value of each problem, None where it is not known."""
    return {name: problem.optimum for name, problem in gathered.once(problems).items()}


def dims(gathered) -> dict[str, int]:
    """The dimension of each problem."""
    return {name: problem.dim for name, problem in gathered.once(problems).items()}


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
    "Evaluations at which every repetition met every target: for claims. Functions of unknown optimum have no rows.",
    columns(RUN, """
    repetition | int64 | | from 0
    target | float64 | f's | a gap
    of | string | | `mean` or `best`: what came within the target
    evaluations | float64 | evaluations | until it did; infinite if it did not
    budget | int64 | evaluations | of each repetition
    """),
    _hits,
    kept=False,
)  # fmt: skip
