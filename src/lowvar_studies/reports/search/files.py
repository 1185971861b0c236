"""Files that the jobs of the family ``search`` write."""

from lowvar_studies.reports.declarations import RUN, File, columns
from lowvar_studies.reports.search.gathering import DECOMPOSITION as DECOMPOSITIONS

TRACE = File(
    "runs/{problem}/{method}-{backend}/trace.parquet",
    "A row for each repetition and measured generation: the start, the end, and 24 generations per decade between.",
    columns(RUN, """
    repetition | int64 | | from 0
    iteration | int64 | generations | generations done; 0 is the start
    evaluations | int64 | evaluations | evaluations done by this repetition
    f | float64 | f's | value at the distribution's mean (discrete: at its mode; genetic algorithm: at its best point)
    best | float64 | f's | smallest value evaluated so far; infinite before the first
    sigma | float64 | x's | geometric mean of the standard deviations along the principal axes; NaN if there are none
    condition | float64 | | condition number of the covariance; 1 for discrete distributions, NaN if there is none
    failures | int64 | evaluations | evaluations whose value was not finite
    status | string | | `ok`, or `diverged`: `f` is not finite
    """),
)  # fmt: skip

PARAMS = File(
    "runs/{problem}/{method}-{backend}/params.npz",
    "Final means and best points, and the evaluations at which targets were met.",
    columns("""
    mean | float64 | x's | means of the distributions, (repetitions, dim)
    best | float64 | f's | smallest values evaluated, (repetitions,)
    best_at | float64 | x's | points with these values, (repetitions, dim); int32 for discrete domains
    evaluations | int64 | evaluations | evaluations done, (repetitions,)
    targets | float64 | f's | targets (gaps), descending, (T,); empty if the optimum is unknown
    met | float64 | evaluations | at which `f` at the mean first met each target, infinite if never, (repetitions, T)
    met_best | float64 | evaluations | the same for the best evaluated point
    budget | int64 | evaluations | of each repetition, a scalar
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TIMING = File(
    "runs/{problem}/{method}-{backend}/timing.parquet",
    "A row for each measured generation. Times include the evaluations of `f` in generations, not the measurements.",
    columns(RUN, """
    iteration | int64 | generations | generations done
    evaluations | int64 | evaluations | evaluations done by each repetition
    seconds | float64 | s | time so far of the job, with all repetitions
    seconds_per_run | float64 | s | `seconds` divided by the repetitions
    compile_seconds | float64 | s | compilation time, equal in all rows and not part of `seconds`
    """),
)  # fmt: skip

METRICS = File(
    "metrics.json",
    "Headline numbers, as in the family `variational`. Values that are not finite are null.",
    columns("""
    {problem}.evaluations_to_target.{method}-{backend} | float | evaluations | median until `f` at the mean met
    + `search.target`; missing if the optimum is unknown
    {problem}.final_gap.{method}-{backend} | float | f's | median final gap of `f` at the mean
    """),
)  # fmt: skip

DECOMPOSITION = File(
    "decomposition/{problem}/decomposition.parquet",
    "Made by `lowvar decompose`, for Gaussians around the start of repetition 0. All schemes, populations and "
    "baselines of a `sigma` share the same keys.",
    DECOMPOSITIONS.columns,
)
FILES = (TRACE, PARAMS, TIMING, DECOMPOSITION, METRICS)
