"""Files that the jobs of the family ``variational`` leave."""

from lowvar.studies.base import File, columns
from lowvar.studies.variational.costs import DECOMPOSITION as DECOMPOSITIONS
from lowvar.studies.variational.gathering import RUN

TRACE = File(
    "runs/{problem}/{method}-{backend}/trace.parquet",
    "A row for each step size, repetition and evaluated epoch: the start, the end, and `solver.per_decade` epochs "
    "per decade between. A sampled ELBO has `elbo_samples` particles on all the data, the same at every "
    "evaluation. ELBOs and what is measured of gradients are float32 if the spec's `dtype` is.",
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
    test_log_likelihood | float64? | nats per row | mean log predictive density of the test rows; where there are any
    variance | float64? | nats^2 | conditional variance of the next gradient; with `solver.diagnostics`, as what
    + follows
    mean2 | float64? | nats^2 | squared norm of its mean given the past
    squared_error | float64? | nats^2 | its true squared error
    signal | float64? | nats^2 | squared norm of the exact gradient
    reference_error | float64? | nats^2 | trace of the variance of the gradient that stands for the exact one
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
    "A row for each evaluated epoch. Evaluations are not in the times.",
    columns("""
    problem | string | | as in the trace
    method | string | | as in the trace
    backend | string | | as in the trace
    epoch | int64 | epochs | epochs done
    seconds | float64 | s | time so far of the whole job, all its runs at once
    seconds_per_run | float64 | s | `seconds` divided by step sizes times repetitions
    compile_seconds | float64 | s | time spent compiling, the same in every row, not part of `seconds`
    """),
)  # fmt: skip

STUDY = File(
    "runs/{problem}/{method}-{backend}/tuning/study.parquet",
    "Only for methods with a key `tune`. Made by `lowvar tune` in the folder `tuning/` of the run that reads it, "
    "with `timing.parquet` and `provenance.json` beside it, and `checkpoint.npz` and `checkpoint.trial.npz` while it "
    "is under way. A trial is a run with settings that the tree-structured Parzen estimator (optuna's defaults) "
    "proposes from the trials before it, the first ten at random. It has noise, starts and ELBO points of its own, "
    "apart from those of the runs, named by `{problem}/tuning`; trials and methods share them. The seeds of "
    "proposals are named by problem and trial, so methods begin with the same random draws. Numbers of particles are "
    "rounded up to one of some twenty in trials. The run reads the study, and so do those of methods that are "
    "`same_as` this one; their stamps name it in `inputs.{problem}/{method}-{backend}`. The best trial has the "
    "largest `value`, the first of equals; where every trial diverged, the one with the smallest step goes on. A row "
    "for each trial. The file repeats to the byte.",
    columns(RUN, """
    number | int64 | | of the trial, from 0
    step_size | float64 | | of the optimizer, before the schedule
    beta | float64? | | rate of decay of the schedule, where it is tuned
    r | int64? | updates | between drops of the schedule, where it is tuned
    value | float64 | nats | mean over repetitions of the ELBO at the end; minus infinity where one is not finite
    status | string | | `ok`, or `diverged`: an ELBO is not finite
    """),
)  # fmt: skip

TUNING_TIMING = File(
    "runs/{problem}/{method}-{backend}/tuning/timing.parquet",
    "A row for each trial. It does not repeat.",
    columns("""
    problem | string | | as above
    method | string | | as above
    backend | string | | as above
    number | int64 | | of the trial
    seconds | float64 | s | spent on the trial, compiling apart
    compile_seconds | float64 | s | spent compiling
    """),
)  # fmt: skip

METRICS = File(
    "metrics.json",
    "Beside the folder `tables`. Numbers to watch from one version to the next, for `dvc metrics show`.",
    columns("""
    {problem}.elbo_at_best_step.{method}-{backend} | float | nats | `elbo_mean` of the table `best`
    {problem}.gap_at_best_step.{method}-{backend} | float? | nats | `gap_mean` of the table `best`, where the
    + optimum is known
    {problem}.gradient_variance.{method} | float | nats^2 | total variance at the end, block `all`
    """),
)  # fmt: skip

DECOMPOSITION = File(
    "decomposition/{problem}/decomposition.parquet",
    "Made by `lowvar decompose`. One run of the `leader` is followed. At the start, at `points_along` epochs and at "
    "the end, the variance of every method is decomposed at the leader's parameters. Each method keeps the memory "
    "that it would have there. All methods and moments see the same designs.",
    DECOMPOSITIONS.columns,
)
FILES = (TRACE, PARAMS, TIMING, STUDY, TUNING_TIMING, DECOMPOSITION, METRICS)
