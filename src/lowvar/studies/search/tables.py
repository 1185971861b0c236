"""The family ``search``: its tables, and what its jobs do."""

from lowvar.problems.blackbox.catalogue import FUNCTIONS
from lowvar.solvers.search import SEARCH
from lowvar.studies.base import Table, columns
from lowvar.studies.search import progress
from lowvar.studies.search.gathering import HITS, KEYS, build
from lowvar.studies.search.progress import quantile, same_target

DECOMPOSITION = Table(
    "decomposition",
    "The decompositions of all problems of an experiment, one below the other. A row for each problem, sigma, "
    "population, scheme, baseline, block and source.",
    columns("""
    problem | string | | the experiment's name for the problem
    dim | int64 | | coordinates of a point
    sigma | float64 | x's | standard deviation of the distribution
    population | int64 | points | points of a generation, N; the evaluation that `centre` costs is not among them
    scheme | string | | of the noise: `iid`, `antithetic`, `orthogonal` or `rqmc`
    baseline | string | | what is taken off the values: `none`, `mean` (of the generation) or `centre` (`f` at `mu`)
    block | string | | `mu` or `sigma`
    source | string | | `total`, `odd` or `even`
    variance | float64 | f's^2 | of a generation's gradient, summed over coordinates
    low | float64 | f's^2 | lower end of its 95 % interval
    high | float64 | f's^2 | upper end
    relative | float64 | | `variance` divided by the squared norm of the gradient of the block
    relative_low | float64 | | lower end of its 95 % interval
    relative_high | float64 | | upper end; infinite where the gradient cannot be told from zero
    to_iid.. | float64 | | `variance` divided by that of `iid` at the same N and baseline
    """),
    lambda gathered: gathered.decompositions,
    when=lambda experiment: experiment.decomposition is not None,
)  # fmt: skip
TABLES = (*progress.TABLES, DECOMPOSITION, HITS, progress.SECONDS)


def engine(spec, prepared):
    """The engine of a run's spec; a function stands on no data."""
    from lowvar.studies.search import engine as engines

    return engines.build(spec)


def packages(spec) -> tuple[str, ...]:
    """What a run needs besides the packages of every run: a peer's, or the simulator's."""
    return (*SEARCH.about(spec.method.solver).packages, *FUNCTIONS.about(spec.problem.function).packages)


def decomposition(job, prepared, progress_bar):
    """The variance of the search gradient at Gaussians around the start of the first repetition."""
    from lowvar.noise import named_key
    from lowvar.studies.search.variance import search_variance

    made, d = build(job.problem), job.decomposition
    table = search_variance(
        made, mean=made.start(named_key(job.seed, job.name, "start", 0)), sigmas=d.sigmas,
        populations=d.populations, schemes=d.schemes, baselines=d.baselines, replicates=d.replicates,
        key=named_key(job.seed, job.name, "design"),
    )  # fmt: skip
    return table.assign(problem=job.name)


def metrics(gathered):
    """Numbers to watch from one run to the next: medians, at the precision that counts as solved."""
    for (problem, method, backend), rows in gathered["ends"].groupby(KEYS, sort=False):
        yield problem, "final_gap", f"{method}-{backend}", float(quantile(rows["f"].to_numpy(float), 0.5))
    rows = gathered["targets"]
    met = rows[(rows["of"] == "mean") & same_target(rows["target"], gathered.experiment.search.target)]
    for row in met.itertuples():
        yield row.problem, "evaluations_to_target", f"{row.method}-{row.backend}", row.evaluations_median
