"""Files that the jobs of the family ``search`` leave."""

from lowvar.studies.base import File, columns
from lowvar.studies.search.gathering import DECOMPOSITION as DECOMPOSITIONS
from lowvar.studies.search.gathering import RUN

TRACE = File(
    "runs/{problem}/{method}-{backend}/trace.parquet",
    "A row for each repetition and measured generation: the start, the end, and 24 generations per decade between.",
    columns(RUN, """
    repetition | int64 | | from 0
    iteration | int64 | generations | generations done; 0 is the start
    evaluations | int64 | evaluations | evaluations done, of this repetition
    f | float64 | f's | value at the distribution's mean (a discrete one: at its mode; a genetic algorithm: at its
    + best point)
    best | float64 | f's | smallest value evaluated so far; infinite before there is one
    sigma | float64 | x's | geometric mean of the standard deviations along the principal axes; NaN where there
    + are none
    condition | float64 | | condition number of the covariance; 1 for a discrete one, NaN where there is none
    failures | int64 | evaluations | how many gave no finite value
    status | string | | `ok`, or `diverged`: `f` is not finite
    """),
)  # fmt: skip

PARAMS = File(
    "runs/{problem}/{method}-{backend}/params.npz",
    "Where the repetitions ended, and when they met which target.",
    columns("""
    mean | float64 | x's | means of the distributions, (repetitions, dim)
    best | float64 | f's | smallest values evaluated, (repetitions,)
    best_at | float64 | x's | where, (repetitions, dim); int32 where the domain is discrete
    evaluations | int64 | evaluations | evaluations done, (repetitions,)
    targets | float64 | f's | gaps that count as targets, descending, (T,); none where no optimum is known
    met | float64 | evaluations | at which `f` at the mean first came within each target, infinite if never,
    + (repetitions, T)
    met_best | float64 | evaluations | the same of the best evaluated point
    budget | int64 | evaluations | of each repetition, a scalar
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TIMING = File(
    "runs/{problem}/{method}-{backend}/timing.parquet",
    "A row for each measured generation. Measuring is not in the times; an evaluation of `f` in a generation is.",
    columns("""
    problem | string | | as in the trace
    method | string | | as in the trace
    backend | string | | as in the trace
    iteration | int64 | generations | generations done
    evaluations | int64 | evaluations | evaluations done, of each repetition
    seconds | float64 | s | time so far of the whole job, all repetitions
    seconds_per_run | float64 | s | `seconds` divided by the repetitions
    compile_seconds | float64 | s | time spent compiling, the same in every row, not part of `seconds`
    """),
)  # fmt: skip

METRICS = File(
    "metrics.json",
    "The same place. What is not finite is null.",
    columns("""
    {problem}.evaluations_to_target.{method}-{backend} | float | evaluations | median until `f` at the mean met
    + `search.target`; not there without an optimum
    {problem}.final_gap.{method}-{backend} | float | f's | median gap of `f` at the mean at the end
    """),
)  # fmt: skip

DECOMPOSITION = File(
    "decomposition/{problem}/decomposition.parquet",
    "Made by `lowvar decompose`, at Gaussians around the start of repetition 0. All schemes, populations and "
    "baselines of a `sigma` see the same keys.",
    DECOMPOSITIONS.columns,
)
FILES = (TRACE, PARAMS, TIMING, DECOMPOSITION, METRICS)
