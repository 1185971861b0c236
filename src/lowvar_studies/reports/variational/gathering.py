"""Inputs of the tables of the family ``variational`` besides traces, and conditions on what experiments measure."""

from typing import Any

from lowvar_studies.reports.declarations import RUN

LINE = RUN + "step_size | float64 | | of the optimizer\n"
PROGRESS = """
epoch | int64 | epochs | epochs done
iteration | int64 | updates | updates done
"""
COUNTS = """
repetitions | int64 | | repetitions in the row
diverged | int64 | | repetitions that diverged
"""


def models(gathered) -> dict[str, Any]:
    """The ``ModelSpec`` of every problem."""
    return {name: gathered.experiment.model(name) for name in gathered.experiment.problems}


def problem_of(gathered, name: str, dtype: str | None = None):
    """A problem on its prepared data, in ``dtype`` or by default its own."""
    experiment, prepared = gathered.experiment, gathered.study.load_data(name)
    return build(experiment.model(name), prepared, dtype or experiment.dtype(name), "jax", name, experiment.seed)


def rows(gathered) -> dict[str, int]:
    """Training rows of every problem."""
    return gathered.once(_rows)


def _rows(gathered):
    return {name: problem_of(gathered, name).N for name in gathered.experiment.problems}


def optima(gathered) -> dict[str, float]:
    """ELBO* of the problems whose optimum is known, nats."""
    table = gathered["optimum"]
    table = table[table["how"].str.startswith("L-BFGS")]
    return dict(zip(table["problem"], table["elbo"], strict=True))


def schedules(gathered) -> dict[tuple[str, str, str], Any]:
    """The ``ScheduleSpec`` of every run, with tuned settings; None without a schedule."""
    return {tuple(job.names.values()): job.settled()[0].solver.schedule for job in gathered.study.jobs("run")}


def build(spec, prepared, dtype, backend, name, seed=0):
    """A model of the catalogue, by its ``ModelSpec``, on prepared data; ``seed`` splits training and test rows."""
    import numpy as np

    from lowvar.core.keys import named_key
    from lowvar.vi.guides.gaussian import with_guide
    from lowvar_studies.models import catalogue
    from lowvar_studies.models.split import split

    arrays = {
        key: value.astype(dtype, copy=False) if np.issubdtype(value.dtype, np.floating) else value
        for key, value in prepared.arrays.items()
    }
    if spec.split is not None:
        arrays = split(arrays, named_key(seed, spec.dataset, "split"), spec.split.test, spec.split.train)
    problem = catalogue.build(spec.model, arrays, backend, name, **spec.options)
    return problem if spec.guide is None else with_guide(problem, spec.guide)


def first_setting(decomposition):
    """The rows of each problem's first noise scheme and batch size.

    Args:
        decomposition: the table of components; it may lack ``noise``, ``particles`` and ``batch_size``.
    """
    present = [name for name in ("noise", "particles", "batch_size") if name in decomposition]
    if not present or not len(decomposition):
        return decomposition
    setting = decomposition[present]
    first = setting.groupby(decomposition["problem"], sort=False).transform("first")
    return decomposition[(setting == first).all(axis=1)]


# what an experiment measures: conditions of tables and figures ------------------------------------------------------


def looked_at(experiment) -> set[str]:
    """The quantities that an experiment measures besides the ELBO, and those that it varies.

    Measured: ``errors`` of gradients, ``particles`` if a schedule changes their number, and ``test`` rows. Varied:
    ``rates`` (several step sizes on a problem with test rows), ``fractions`` (several shares of one dataset's rows) and
    ``sensitivity`` (more than three schedules on one problem).
    """
    solvers = {(p, m): experiment.solver_on(p, m) for p in experiment.problems for m in experiment.methods_on(p)}
    splits = [(spec.model, spec.dataset, spec.split.train) for spec in experiment.problems.values() if spec.split]
    plans = {(p, solver.schedule) for (p, _), solver in solvers.items() if solver.schedule is not None}
    measured = {"errors"} if any(solver.diagnostics for solver in solvers.values()) else set()
    measured |= {"particles"} if plans else set()
    measured |= {"test"} if splits else set()
    measured |= {"rates"} if splits and any(len(solver.step_sizes) > 1 for solver in solvers.values()) else set()
    measured |= {"fractions"} if len(set(splits)) > len({one[:2] for one in splits}) else set()
    per_problem = [sum(p == problem for p, _ in plans) for problem in experiment.problems]
    return measured | ({"sensitivity"} if max(per_problem) > 3 else set())


def looks_at(what: str = ""):
    """The condition that an experiment measures or varies ``what``; by default, anything."""
    return lambda experiment: what in looked_at(experiment) if what else bool(looked_at(experiment))


def has_runs(experiment) -> bool:
    """Whether any method runs; an experiment may only decompose variances."""
    return bool(experiment.runs())


def decomposes(experiment) -> bool:
    """Whether variance is decomposed."""
    return bool(experiment.decompositions())
