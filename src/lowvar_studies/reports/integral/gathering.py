"""Inputs of the tables of the family ``integral`` besides traces."""

SIZES = """
sizes | string | points | of each task; one number if all are equal
points | int64 | points | of all tasks; of one if they share their points
"""
PLACE = """
problem | string | | the experiment's name for the problem
task | string | | as in the trace, or a derived quantity
method | string | | the experiment's name for the method
backend | string | | `torch`
sizes | string | points | of each task; one number if all are equal
m | int64 | points | of this task
points | int64 | points | of all tasks; of one if they share their points
"""


def problems(gathered):
    """The problems with points of their own, by name."""
    names = gathered.experiment.samples()
    return {name: build(gathered.experiment.sample(name), gathered.study.load_data(name)) for name in names}


def samples(gathered):
    """The points and the truth of each problem, by name."""
    described = gathered.experiment.problems
    return {name: gathered.study.load_source(name).within(spec.tasks) for name, spec in described.items()}


def build(job, prepared):
    """A problem of the catalogue, by the spec of its samples."""
    from lowvar_studies.integrals import catalogue

    return catalogue.build(job.problem, prepared, **job.options)
