"""Tables of problem sizes and costs beside the published ones."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from lowvar.analysis.intervals import mean_interval
from lowvar.errors import UserError
from lowvar.studies.base import Table, columns
from lowvar.studies.variational import published
from lowvar.studies.variational.gathering import KEYS, RUN, has_runs, models, shapes

_LATE = 8  # last time measurements, whose differences give the interval
_RUN = list(KEYS)


def prints(numbers: Mapping):
    """The condition that a paper prints ``numbers`` for a problem of an experiment."""
    return lambda experiment: any(_printed(numbers, experiment.model(name)) for name in experiment.problems)


def _printed(numbers, model):
    return published.of(numbers, model.model, model.dataset)


def sizes(problems: Mapping, shapes: Mapping[str, tuple[int, int]]):
    """Data rows and latent dimension of every problem, beside the published values.

    Args:
        problems: ``{name: ModelSpec}``.
        shapes: ``{name: (N, dim)}``.
    """
    out = []
    for name, model in problems.items():
        printed = _printed(published.SIZES, model) or (np.nan, np.nan)
        out.append({"problem": name, "model": model.model, "dataset": model.dataset, "scaling": model.scaling,
                    **dict(zip(("rows", "dim"), shapes[name], strict=True)),
                    **dict(zip(("published_rows", "published_dim"), map(float, printed), strict=True))})  # fmt: skip
    return TABLE2.frame(out)


TABLE2 = Table(
    "table2",
    "If a paper prints the size of a problem: rows and dimensions, beside those of Table 2 of Wang, Geffner and "
    "Domke, or of Section 5 of Fujisawa and Sato. A row for each problem.",
    columns("""
    problem | string | | the experiment's name for the problem
    model | string | | name in the catalogue
    dataset | string | | name in the catalogue
    scaling | string | | of the features
    rows | int64 | rows | N
    dim | int64 | | dimension of the latent vector, and of the noise
    published_rows | float64 | rows | published N for the model and dataset; NaN if there is none
    published_dim | float64 | | published dimension; NaN if there is none
    """),
    lambda gathered: sizes(models(gathered), gathered.once(shapes)),
    when=prints(published.SIZES),
)  # fmt: skip


def costs(traces, timings, problems: Mapping, shapes: Mapping[str, tuple[int, int]], batches: Mapping):
    """Gradient evaluations and seconds of an iteration of every method, beside the published values.

    Args:
        traces: of all runs.
        timings: of the runs whose times the table shows; None for no times.
        problems: ``{name: ModelSpec}``.
        shapes: ``{name: (N, dim)}``.
        batches: ``{(problem, method, backend): batch size}``.

    Returns:
        A row for each run.
    """
    import pandas as pd

    out = []
    for (problem, method, backend), trace in traces.groupby(_RUN, sort=False):
        end = trace[trace["epoch"] == trace["epoch"].max()].iloc[0]
        model, (rows, _), batch = problems[problem], shapes[problem], batches[problem, method, backend]
        iterations = max(int(end["iteration"]), 1)
        per = float(end["gradients"]) / iterations, float(end["hvps"]) / iterations
        printed = _printed(published.MILLISECONDS, model)
        out.append(
            {"problem": problem, "method": method, "backend": backend,
             "runs": len(trace[["step_size", "repetition"]].drop_duplicates()), "batch_size": batch,
             "gradients": per[0] / batch, "hvps": per[1] / batch, "evaluations": sum(per) / batch,
             "published_evaluations": _evaluations(method, rows, batch),
             **dict(zip(("seconds", "seconds_low", "seconds_high"), _seconds(timings, problem, method, backend, trace),
                        strict=True)),
             "published_seconds": printed[method] / 1000 if method in printed else np.nan}
        )  # fmt: skip
    table = pd.DataFrame(out)
    naive = table[table["method"] == "naive"].set_index(["problem", "backend"])
    places = list(zip(table["problem"], table["backend"], strict=True))

    def of_naive(column):
        return np.array([naive[column].get(place, np.nan) for place in places], float)

    table["to_naive"] = table["seconds"] / of_naive("seconds")
    apart = np.hypot(_spread(table), [_spread(naive).get(place, np.nan) for place in places])
    itself = table["method"] == "naive"
    table["to_naive_low"] = (table["to_naive"] * np.exp(-apart)).where(~itself, table["to_naive"])
    table["to_naive_high"] = (table["to_naive"] * np.exp(apart)).where(~itself, table["to_naive"])
    table["published_to_naive"] = table["published_seconds"] / of_naive("published_seconds")
    return TABLE3.frame(table)


def _costs(gathered):
    experiment = gathered.experiment
    batches = {job: experiment.run(*job).solver.batch_size for job in experiment.runs()}
    timings = gathered.timings_of(with_published_times(models(gathered)))
    return costs(gathered.traces, timings, models(gathered), gathered.once(shapes), batches)


def _costs_are_printed(experiment):
    """Whether a paper prints the evaluations of one of the methods, on any problem."""
    return any(method in published.EVALUATIONS | published.EVALUATIONS_OF_ALL_ROWS for method in experiment.methods)


TABLE3 = Table(
    "table3",
    "For experiments with a method of Table 3 of Wang, Geffner and Domke: the cost of an iteration, beside theirs. A "
    "row for each job. A job computes its runs together; times are the job's time divided by the number of its runs, "
    "without compilation, and only for models and datasets whose times the paper prints. The published times are of a "
    "GPU: compare the ratios to `naive`, not the times.",
    columns(RUN, """
    runs | int64 | | step sizes times repetitions of the job
    batch_size | int64 | rows | B
    gradients | float64 | batches | gradients in an iteration, averaged over the run, full passes included
    hvps | float64 | batches | Hessian-vector products in an iteration, averaged likewise
    evaluations | float64 | batches | `gradients` plus `hvps`
    published_evaluations | float64 | batches | published value for the method, N data rows being N / B batches; NaN if
    + there is none
    seconds | float64 | s | of an iteration; NaN where no time is published or the runs were not timed on this machine
    seconds_low | float64 | s | lower end of a 95 % interval over the last eight stretches between measurements
    seconds_high | float64 | s | upper end
    published_seconds | float64 | s | published value; NaN if there is none
    to_naive.. | float64 | | `seconds` divided by those of `naive`
    published_to_naive | float64 | | `published_seconds` divided by those of `naive`
    """),
    _costs,
    when=lambda experiment: has_runs(experiment) and _costs_are_printed(experiment),
)  # fmt: skip


def times(files: Iterable[Path], experiment):
    """Rounds of benchmarks of an experiment's problems.

    Args:
        files: as ``benchmarks/joint.py --times`` writes them; those of other problems or settings are left out.
        experiment: the experiment; a problem is the same if model, dataset, optimizer and batch size are.

    Raises:
        UserError: a file of another form.
    """
    out = []
    for path in files:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            about = tuple(kept[name] for name in ("problem", "model", "dataset", "optimizer", "batch_size"))
            rounds = [
                {"problem": about[0], "method": one["method"], "backend": one["backend"], "round": number,
                 "seconds": float(seconds)}
                for one in kept["steps"] for number, seconds in enumerate(one["seconds"])
            ]  # fmt: skip
        except (ValueError, KeyError, TypeError) as error:
            made_by = "benchmarks/joint.py --times"
            raise UserError(f"{path}: not a file of times that {made_by} writes ({error!r})") from error
        if about[0] in experiment.problems:
            model, solver = experiment.model(about[0]), experiment.solver_on(about[0])
            same = about[1:] == (model.model, model.dataset, solver.optimizer, solver.batch_size)
            out += rounds if same else []
    return TIMES.frame(out)


TIMES = Table(
    "times",
    "Times of single steps in rounds of a benchmark that alternates the methods in one process, from the folder "
    "`times` beside the experiments; no rows without it. Claims about time are judged by it alone.",
    columns(RUN, """
    round | int64 | | round of the benchmark, from 0; each times every method once
    seconds | float64 | s | of a step, as an average over the steps of the round
    """),
    lambda gathered: times(gathered.study.times, gathered.experiment),
    kept=False,
)  # fmt: skip
TABLES = (TABLE2, TABLE3, TIMES)


def with_published_times(problems: Mapping) -> list[str]:
    """Problems for which times were published."""
    times = published.MILLISECONDS
    return [name for name, model in problems.items() if published.of(times, model.model, model.dataset)]


def _evaluations(method, rows, batch):
    if method in published.EVALUATIONS_OF_ALL_ROWS:
        passes, batches = published.EVALUATIONS_OF_ALL_ROWS[method]
        return passes * rows / batch + batches
    return float(published.EVALUATIONS.get(method, np.nan))


def _seconds(timings, problem, method, backend, trace):
    """Seconds of an iteration of one run, and their interval."""
    if timings is None:
        return np.nan, np.nan, np.nan
    mine = (timings["problem"] == problem) & (timings["method"] == method) & (timings["backend"] == backend)
    timing = timings[mine].sort_values("epoch")
    iterations = timing["epoch"].map(trace.drop_duplicates("epoch").set_index("epoch")["iteration"]).to_numpy(float)
    seconds = timing["seconds_per_run"].to_numpy(float)
    if not len(timing) or iterations[-1] == 0:
        return np.nan, np.nan, np.nan
    mean, low, high = seconds[-1] / iterations[-1], np.nan, np.nan
    rates = np.diff(seconds)[-_LATE:] / np.diff(iterations)[-_LATE:]
    if len(rates) > 1 and (rates > 0).all():
        middle, least, most = mean_interval(np.log(rates))
        low, high = mean * np.exp(least - middle), mean * np.exp(most - middle)
    return mean, low, high


def _spread(table):
    """Half the width of the interval of the seconds' logarithm."""
    return np.log(table["seconds_high"] / table["seconds_low"]) / 2
