"""Files that the jobs of the family ``integral`` leave."""

from lowvar.studies.base import File, columns
from lowvar.studies.integral.gathering import RUN

SAMPLES = File(
    "samples/{problem}/samples.npz",
    "Made by `lowvar sample`: the points of a problem, for all methods, and the truth. Arrays are by task `t` from "
    "0, and a task whose array would equal that of one before it has none of its own: `about.arrays` says which is "
    "whose. `R` repetitions, `m_t` points of task `t`, `d` coordinates, `T` tasks.",
    columns("""
    points_{t} | float64 | x's | points, (R, m_t, d), drawn from the task's own target
    scores_{t} | float64 | 1 / x's | gradients of the log density of the task's own target there, the same shape
    values_{t} | float64 | f's | of the task's integrand, (R, m_t)
    cross_scores_{t} | float64? | 1 / x's | scores of all tasks' targets at the task's points, (R, m_t, T, d);
    + where targets differ and tasks are few
    about | string | | a JSON text with the keys below
    about.tasks | list of string | | names of the tasks
    about.groups | list or null | | tasks that vector-valued methods treat together, by their numbers; all at once
    + if null
    about.truth | list of object | | `task`, `truth`, `truth_error` and `how` of every task and derived quantity,
    + as in the table `truth`
    about.sampler | string | | who drew the points: `iid`, `rqmc`, `nuts`, `tempered` or `published`
    about.arrays.{kind} | list of string | | for `points`, `scores`, `values` and perhaps `cross_scores` the array
    + of each task
    about.shared | bool | | whether all tasks have one target and the same points
    about.chain | bool | | whether the points of a task are successive states of a Markov chain
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TRACE = File(
    "runs/{problem}/{method}-{backend}/trace.parquet",
    "A row for each of the sizes, repetition and task.",
    columns(RUN, """
    sizes | string | points | of each task; one number where all have it
    points | int64 | points | of all tasks; of one where they share them
    repetition | int64 | | from 0
    task | string | | the problem's name for it
    m | int64 | points | of this task
    value | float64 | f's | the estimate; NaN where it was refused
    standard_error | float64 | f's | by the method itself; NaN where it has none
    condition | float64 | | condition number of the linear system that was solved, the largest of a repetition;
    + NaN where there is none
    flags | string | | see above, of the repetition
    status | string | | `ok`, or `failed`: `value` is not finite
    """),
)  # fmt: skip

PARAMS = File(
    "runs/{problem}/{method}-{backend}/params.npz",
    "What a method learnt, by its own names: (sizes, repetitions, ...), or with an axis of tasks before the rest "
    "where each task is fitted alone. Nothing but `sizes` where tasks are treated in groups.",
    columns("""
    sizes | int64 | points | of each task, (sizes, T)
    effective | float64? | points | what the points are worth, by the autocorrelations of residuals, (..., T)
    lengthscale | float64? | x's | lengthscales of the kernel, (..., d)
    nugget | float64? | | relative to the mean diagonal of the kernel matrix, (...); of `alternating` and `convex`
    + the penalty
    B | float64? | f's^2 | relation of the tasks, amplitude included, (..., T, T); without a unit for `paper_*`
    correlation | float64? | | `B` with a diagonal of ones, (..., T, T)
    trend | float64? | | weight of the quadratic polynomials in the kernel, (...)
    reml_error | float64? | f's | standard error if the Gaussian process is right, (..., T)
    likely_error | float64? | f's | the part of it that is the function's and not the nugget's, (..., T)
    jackknife_error | float64? | f's | how far estimates go when values are replaced by what the others say, (..., T)
    calibration | float64? | | mean squared standardised residual of left-out values, (...)
    farthest | float64? | | the largest standardised residual of left-out values, (...)
    penalty | float64? | | of `sparse_control_functional`: of the kernel's norm, relative to the largest
    + eigenvalue, (..., T)
    choice | string? | | of `auto`: the method that it chose, (..., T)
    monte_carlo | float64? | f's | of `auto`: the mean of the values, (..., T)
    monte_carlo_error | float64? | f's | of `auto`: its standard error, with Student's t, (..., T)
    carriers | float64? | points | of `auto`: those that carry Monte Carlo's variance, (..., T)
    row_scale | float64? | | row sums of `B` relative to the largest, (..., T)
    objective | float64? | | of `alternating` and `convex`: what they minimise, at the end, (...)
    objective_trace | float64? | | the same along the way, (..., steps)
    steps | int64? | | of the optimiser, (...)
    trace_epochs | float64? | f's | with the option `record`: estimates along the epochs, of each task or of the
    + last one
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TIMING = File(
    "runs/{problem}/{method}-{backend}/timing.parquet",
    "A row for each of the sizes and each chunk of repetitions, in the order in which they were done.",
    columns("""
    problem | string | | as in the trace
    method | string | | as in the trace
    backend | string | | as in the trace
    sizes | string | points | as in the trace
    points | int64 | points | as in the trace
    repetitions | int64 | | done of these sizes
    seconds | float64 | s | time so far of the whole job, all sizes and repetitions; drawing points is not in it
    seconds_per_run | float64 | s | `seconds` divided by the repetitions
    compile_seconds | float64 | s | 0 but for the clock's own time: nothing is compiled
    """),
)  # fmt: skip

METRICS = File(
    "metrics.json",
    "The same place: of each problem's last task, from most points. What is not finite is null.",
    columns("""
    {problem}.mae.{method}-{backend} | float | f's | mean absolute error
    {problem}.to_mc.{method}-{backend} | float | | root mean squared error relative to `monte_carlo`'s
    {problem}.coverage.{method}-{backend} | float | | share of repetitions whose own 95 % interval contains the truth
    """),
)  # fmt: skip

FILES = (SAMPLES, TRACE, PARAMS, TIMING, METRICS)
