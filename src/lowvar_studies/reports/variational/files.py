"""Files that the jobs of the family ``variational`` write."""

from lowvar_studies.reports.declarations import RUN, File, columns
from lowvar_studies.reports.variational.variances import DESIGNS

TRACE = File(
    "runs/{problem}/{method}-{backend}/trace.parquet",
    "A row for each step size, repetition and evaluated epoch: the start, the end, and `solver.per_decade` epochs per "
    "decade between. A sampled ELBO uses `elbo_samples` particles on all the data, the same at every evaluation. ELBOs "
    "and errors of gradients are float32 if the spec's `dtype` is.",
    columns(RUN, """
    step_size | float64 | | of the optimizer
    repetition | int64 | | from 0
    epoch | int64 | epochs | epochs done; 0 is the start
    iteration | int64 | updates | updates done: `epoch` times ceil(N / B)
    gradients | int64 | data rows | gradients so far
    hvps | int64 | data rows | Hessian-vector products so far
    particles | int64 | | particles of the next step's batch
    elbo | float64 | nats | ELBO; NaN or infinite where the run diverged
    elbo_se | float64 | nats | its standard error; 0 where the ELBO is exact (quadrature)
    test_log_likelihood | float64? | nats per row | mean log predictive density of the test rows, if there are any
    state_bytes | int64 | bytes | the run's state, all its arrays: parameters, optimizer and the estimator's memory
    variance | float64? | nats^2 | conditional variance of the next gradient; this and the next four columns need
    + `solver.diagnostics`
    mean2 | float64? | nats^2 | squared norm of its conditional mean
    squared_error | float64? | nats^2 | its true squared error
    signal | float64? | nats^2 | squared norm of the exact gradient
    reference_error | float64? | nats^2 | trace of the variance of the reference gradient
    status | string | | `ok`, or `diverged`: the ELBO is not finite
    """),
)  # fmt: skip

PARAMS = File(
    "runs/{problem}/{method}-{backend}/params.npz",
    "Parameters at the end of every run.",
    columns("""
    mu | float64 | z | means of the guide, (step sizes, repetitions, dim); float32 if the spec's `dtype` is
    log_sigma | float64 | | logarithms of its standard deviations, the same shape
    __lowvar__ | string | | the stamp
    """),
)  # fmt: skip

TIMING = File(
    "runs/{problem}/{method}-{backend}/timing.parquet",
    "A row for each evaluated epoch. Times exclude the evaluations.",
    columns(RUN, """
    epoch | int64 | epochs | epochs done
    seconds | float64 | s | time so far of the job, which computes all its runs together
    seconds_per_run | float64 | s | `seconds` divided by step sizes times repetitions
    compile_seconds | float64 | s | compilation time, equal in all rows and not part of `seconds`
    """),
)  # fmt: skip

STUDY = File(
    "runs/{problem}/{method}-{backend}/tuning/study.parquet",
    "Only for methods with a key `tune`. A row for each trial. Made by `lowvar tune`, with `timing.parquet` and "
    "`provenance.json` beside it; an unfinished search has `checkpoint.npz` and `checkpoint.trial.npz`. A trial is "
    "a run with settings that the tree-structured Parzen estimator (optuna's defaults) proposes from the trials before "
    "it, the first ten at random. Its noise, starts and ELBO particles are independent of the runs': their keys derive "
    "from `{problem}/tuning`, which trials and methods share. The seeds of proposals derive from problem and trial, so "
    "methods begin with the same random draws. Trials round numbers of particles up to one of some twenty. The run "
    "takes the settings of the trial with the largest `value`, the first of equals; if every trial diverged, those of "
    "the one with the smallest step size. Runs of methods that are `same_as` this one take them, too. The runs' stamps "
    "name the study in `inputs.{problem}/{method}-{backend}`. The file repeats to the byte.",
    columns(RUN, """
    number | int64 | | number of the trial, from 0
    step_size | float64 | | of the optimizer, before the schedule
    beta | float64? | | decay of the schedule, if tuned
    r | int64? | updates | between drops of the schedule, if tuned
    value | float64 | nats | mean over repetitions of the ELBO at the end; minus infinity if one is not finite
    status | string | | `ok`, or `diverged`: an ELBO is not finite
    """),
)  # fmt: skip

TUNING_TIMING = File(
    "runs/{problem}/{method}-{backend}/tuning/timing.parquet",
    "A row for each trial. The file does not repeat.",
    columns(RUN, """
    number | int64 | | number of the trial
    seconds | float64 | s | time of the trial, without compilation
    compile_seconds | float64 | s | compilation time
    """),
)  # fmt: skip

METRICS = File(
    "metrics.json",
    "Headline numbers for `dvc metrics show`, to compare versions.",
    columns("""
    {problem}.elbo_at_best_step.{method}-{backend} | float | nats | `elbo_mean` of the table `best`
    {problem}.gap_at_best_step.{method}-{backend} | float? | nats | `gap_mean` of the table `best`, if the
    + optimum is known
    {problem}.gradient_variance.{method} | float | nats^2 | total variance at the end, block `all`
    """),
)  # fmt: skip

DECOMPOSITION = File(
    "decomposition/{problem}/decomposition.parquet",
    "Made by `lowvar decompose`. `repetitions` runs of the `leader` determine the parameters. At the start, at "
    "`points_along` epochs and at the end, the variance of every method is decomposed at these parameters, with the "
    "memory that the method has after following the run. All methods and moments share the designs of a run. With "
    "`rows` null a design has all rows, which then add no error of their own. A row for each moment, noise scheme, "
    "method, block, run and design, for a single data row: a batch of B rows has the variance "
    "`subsampling / B + monte_carlo + interaction / B`.",
    DESIGNS.columns,
)
FILES = (TRACE, PARAMS, TIMING, STUDY, TUNING_TIMING, DECOMPOSITION, METRICS)
