"""What tables of the family ``integral`` are made of, besides traces."""

RUN = """
problem | string | | the experiment's name for the problem
method | string | | the experiment's name for the method
backend | string | | `torch`
"""
SIZES = """
sizes | string | points | of each task; one number where all have it
points | int64 | points | of all tasks; of one where they share them
"""
PLACE = """
problem | string | | the experiment's name for the problem
task | string | | as in the trace, or a derived quantity
method | string | | the experiment's name for the method
backend | string | | `torch`
sizes | string | points | of each task; one number where all have it
m | int64 | points | of this task
points | int64 | points | of all tasks; of one where they share them
"""


def problems(gathered):
    """The problems whose points are drawn, by name."""
    names = gathered.experiment.samples()
    return {name: build(gathered.experiment.sample(name), gathered.study.load_data(name)) for name in names}


def samples(gathered):
    """The points that the runs on each problem read, and its truth, by name."""
    described = gathered.experiment.problems
    return {name: gathered.study.load_source(name).within(spec.tasks) for name, spec in described.items()}


def build(job, prepared):
    """A problem of the catalogue, by the spec of its samples."""
    from lowvar.problems.integrals import catalogue

    return catalogue.build(job.problem, prepared, **job.options)
