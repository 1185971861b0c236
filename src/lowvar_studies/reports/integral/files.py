"""Files that the jobs of the family ``integral`` write."""

from lowvar_studies.reports.declarations import RUN, File, columns

SAMPLES = File(
    "samples/{problem}/samples.npz",
    "Made by `lowvar sample`: the points of a problem, for all methods, and the truth. Arrays are numbered by task `t` "
    "from 0. Equal arrays of several tasks are stored once; `about.arrays` names the array of each task. `R` "
    "repetitions, `m_t` points of task `t`, `d` coordinates, `T` tasks.",
    columns("""
    points_{t} | float64 | x's | points, (R, m_t, d), drawn from the task's own target
    scores_{t} | float64 | 1 / x's | gradients of the log density of the task's target at its points, the same shape
    values_{t} | float64 | f's | of the task's integrand, (R, m_t)
    cross_scores_{t} | float64? | 1 / x's | scores of all tasks' targets at the task's points, (R, m_t, T, d);
    + if targets differ and tasks are few
    about | string | | a JSON text with the keys below
    about.tasks | list of string | | names of the tasks
    about.groups | list or null | | numbers of the tasks that vector-valued methods estimate together; all if null
    about.truth | list of object | | `task`, `truth`, `truth_error` and `how` of every task and derived quantity,
    + as in the table `truth`
    about.sampler | string | | sampler of the points: `iid`, `rqmc`, `nuts`, `tempered` or `published`
    about.arrays.{kind} | list of string | | name of each task's array, for `points`, `scores`, `values` and perhaps
    + `cross_scores`
    about.shared | bool | | whether all tasks have one target and the same points
    about.chain | bool | | whether the points of a task are successive states of a Markov chain
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TRACE = File(
    "runs/{problem}/{method}-{backend}/trace.parquet",
    "A row for each size, repetition and task.",
    columns(RUN, """
    sizes | string | points | of each task; one number if all are equal
    points | int64 | points | of all tasks; of one if they share their points
    repetition | int64 | | from 0
    task | string | | the problem's name for the integral
    m | int64 | points | of this task
    value | float64 | f's | the estimate; NaN if refused
    standard_error | float64 | f's | the method's own; NaN if it has none
    condition | float64 | | largest condition number of the linear systems of the repetition; NaN if there are none
    flags | string | | flags of the repetition, see the conventions
    status | string | | `ok`, or `failed`: `value` is not finite
    """),
)  # fmt: skip

PARAMS = File(
    "runs/{problem}/{method}-{backend}/params.npz",
    "Learnt parameters by the method's own names, (sizes, repetitions, ...), with an axis of tasks before the rest if "
    "each task is fitted alone. Only `sizes` if tasks are estimated in groups.",
    columns("""
    sizes | int64 | points | of each task, (sizes, T)
    effective | float64? | points | effective number of points, from the autocorrelations of residuals, (..., T)
    lengthscale | float64? | x's | lengthscales of the kernel, (..., d)
    nugget | float64? | | relative to the mean diagonal of the kernel matrix, (...); for `alternating` and `convex`
    + the penalty
    B | float64? | f's^2 | covariance of the tasks, including the amplitude, (..., T, T); dimensionless for `paper_*`
    correlation | float64? | | `B` with a diagonal of ones, (..., T, T)
    trend | float64? | | weight of the quadratic polynomials in the kernel, (...)
    reml_error | float64? | f's | standard error under the Gaussian process, (..., T)
    likely_error | float64? | f's | the part of `reml_error` from the function, without the nugget, (..., T)
    jackknife_error | float64? | f's | change of the estimate if values are replaced by predictions from the others,
    + (..., T)
    calibration | float64? | | mean squared standardised residual of left-out values, (...)
    farthest | float64? | | largest standardised residual of left-out values, (...)
    penalty | float64? | | of `sparse_control_functional`: penalty on the kernel norm, relative to the largest
    + eigenvalue, (..., T)
    choice | string? | | of `auto`: the chosen method, (..., T)
    monte_carlo | float64? | f's | of `auto`: the mean of the values, (..., T)
    monte_carlo_error | float64? | f's | of `auto`: its standard error, (..., T)
    monte_carlo_half | float64? | f's | of `auto`: half of its 95 % interval, with Student's t, (..., T)
    carriers | float64? | points | of `auto`: number of points that dominate Monte Carlo's variance, (..., T)
    row_scale | float64? | | row sums of `B` relative to the largest, (..., T)
    objective | float64? | | of `alternating` and `convex`: final value of the objective, (...)
    objective_trace | float64? | | of `alternating` and `convex`: objective at every step, (..., steps)
    steps | int64? | | steps of the optimiser, (...)
    trace_epochs | float64? | f's | with the option `record`: estimates at every epoch, of each task or of the last
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TIMING = File(
    "runs/{problem}/{method}-{backend}/timing.parquet",
    "A row for each size and chunk of repetitions, in the order of computation.",
    columns(RUN, """
    sizes | string | points | as in the trace
    points | int64 | points | as in the trace
    repetitions | int64 | | repetitions done at these sizes
    seconds | float64 | s | time so far of the job, with all sizes and repetitions, without drawing points
    seconds_per_run | float64 | s | `seconds` divided by the repetitions
    compile_seconds | float64 | s | about 0: nothing is compiled
    """),
)  # fmt: skip

METRICS = File(
    "metrics.json",
    "Headline numbers for each problem's last task at its largest sizes. Values that are not finite are null.",
    columns("""
    {problem}.mae.{method}-{backend} | float | f's | mean absolute error
    {problem}.to_mc.{method}-{backend} | float | | root mean squared error relative to `monte_carlo`'s
    {problem}.coverage.{method}-{backend} | float | | share of repetitions whose own 95 % interval contains the truth
    """),
)  # fmt: skip

FILES = (SAMPLES, TRACE, PARAMS, TIMING, METRICS)
