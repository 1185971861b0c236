"""Step sizes and schedules that were tried and chosen, and how the time of a step falls with them: tables."""

from collections.abc import Mapping

import numpy as np

from lowvar.studies.base import Table, columns
from lowvar.studies.variational import published
from lowvar.studies.variational.convergence import at_end
from lowvar.studies.variational.gathering import COUNTS, KEYS, LINE, PROGRESS, RUN, looks_at, models, schedules
from lowvar.studies.variational.spec import best

_RUN = list(KEYS)


def sensitivity(convergence, schedules: Mapping):
    """The ELBO at the end over first step sizes and settings of the step schedule.

    Args:
        convergence: what ``convergence`` gave.
        schedules: ``{(problem, method, backend): ScheduleSpec or None}``; only those of kind ``step`` are taken.
    """
    rows = convergence[at_end(convergence)].reset_index(drop=True)
    plans = [schedules.get(key) for key in rows[_RUN].itertuples(index=False, name=None)]
    stepwise = [plan is not None and plan.kind == "step" for plan in plans]
    kept = [plan for plan, taken in zip(plans, stepwise, strict=True) if taken and plan is not None]
    rows = rows[stepwise].assign(beta=[float(plan.beta) for plan in kept], r=[int(plan.r) for plan in kept])
    finite = rows["elbo_mean"].where(np.isfinite(rows["elbo_mean"]))
    top = finite.groupby(rows["problem"]).transform("max")
    return SENSITIVITY.frame(rows.assign(below=(top - finite).where(finite.notna(), np.inf)))


SENSITIVITY = Table(
    "sensitivity",
    "Where a problem has more than three schedules: the end of every step size of the methods with a schedule of "
    "kind `step`.",
    columns(LINE, """
    beta | float64 | | factor of each drop
    r | int64 | updates | between drops
    """, PROGRESS, """
    elbo_mean.. | float64 | nats | mean ELBO; minus infinity if a repetition diverged
    below | float64 | nats | the problem's largest `elbo_mean` less this one; infinite if a repetition diverged
    """, COUNTS),
    lambda gathered: sensitivity(gathered["convergence"], gathered.once(schedules)),
    when=looks_at("sensitivity"),
)  # fmt: skip


def selected(convergence, schedules: Mapping, problems: Mapping):
    """Step sizes and schedules that were chosen, beside the published ones (Table 3 of Fujisawa and Sato).

    Args:
        convergence: what ``convergence`` gave.
        schedules: ``{(problem, method, backend): ScheduleSpec or None}``.
        problems: ``{name: ModelSpec}``.
    """
    import pandas as pd

    out = []
    for key, run in convergence.groupby(_RUN, sort=False):
        name, method, _ = key
        model, plan = problems[name], schedules.get(key)
        chosen = run.loc[run["best"], "step_size"]
        printed = published.of(published.SELECTED, model.model, model.dataset).get(method, {})
        ours = {"step_size": float(chosen.iloc[0]) if len(chosen) else np.nan,
                "beta": _number(plan, "beta"), "r": _number(plan, "r")}  # fmt: skip
        theirs = {f"published_{column}": float(printed.get(column, np.nan)) for column in ours}
        schedule = "" if plan is None else plan.kind
        out.append({**dict(zip(_RUN, key, strict=True)), "schedule": schedule, **ours, **theirs})
    return pd.DataFrame(out)


def with_trials(study, chosen):
    """What ``selected`` gave, with how it was found; NaN where nothing was searched. Stale searches are refused."""
    import pandas as pd

    rows, found = [], ["elbo", "trials", "diverged"]
    for job in study.jobs("tune"):
        trials = job.read("study.parquet")
        rows.append((*job.names.values(), best(trials)["value"], len(trials), (trials["status"] == "diverged").sum()))
    beside = chosen.merge(pd.DataFrame(rows, columns=[*_RUN, *found]), on=_RUN, how="left")
    return beside.astype(dict.fromkeys(found, float))  # of all-missing columns, too


def _selected(gathered):
    chosen = selected(gathered["convergence"], gathered.once(schedules), models(gathered))
    return with_trials(gathered.study, chosen)


SELECTED = Table(
    "selected",
    "Where methods have a schedule: the settings of each run at its best step, beside those that a paper prints for "
    "the model and dataset (Fujisawa and Sato, Table 3). NaN stands for a setting that does not exist.",
    columns(RUN, """
    schedule | string | | its kind; empty without one
    step_size | float64 | | the best step; NaN where every one diverged
    beta | float64 | | of the schedule
    r | float64 | updates | of the schedule
    published_step_size | float64 | | as printed
    published_beta | float64 | | as printed
    published_r | float64 | updates | as printed
    elbo | float64 | nats | of the best trial, where the run's own settings were searched; at the length of a trial
    trials | float64 | | how many there were
    diverged | float64 | | how many of them diverged
    """),
    _selected,
    when=looks_at("particles"),
)  # fmt: skip


def pace(measures, timings):
    """Seconds of a step in every stretch between measurements.

    Args:
        measures: what ``measured`` gave.
        timings: of the runs that were timed on this machine; None if none was.
    """
    import pandas as pd

    if timings is None:
        return PACE.frame([])
    stops = measures.groupby([*_RUN, "epoch"], sort=False)[["iteration", "particles"]].mean().reset_index()
    both = stops.merge(timings[[*_RUN, "epoch", "seconds_per_run"]], on=[*_RUN, "epoch"], validate="one_to_one")
    out = []
    for key, run in both.groupby(_RUN, sort=False):
        run = run.sort_values("epoch")
        steps, seconds = np.diff(run["iteration"]), np.diff(run["seconds_per_run"])
        moved = steps > 0
        part = pd.DataFrame({"epoch": run["epoch"].to_numpy()[1:], "iteration": run["iteration"].to_numpy(int)[1:],
                             "particles": run["particles"].to_numpy(float)[:-1],
                             "steps": steps.astype(int)})  # fmt: skip
        part = part[moved].assign(seconds=seconds[moved] / steps[moved])
        out.append(part.assign(**dict(zip(_RUN, key, strict=True))))
    return PACE.frame(pd.concat(out, ignore_index=True) if out else [])


PACE = Table(
    "pace",
    "Where methods have a schedule: seconds of a step in every stretch between measurements. Claims about falling "
    "times are judged by it. Times do not repeat. Runs that were timed on another machine, such as those that `dvc "
    "pull` brought, have no rows.",
    columns(RUN, """
    epoch | int64 | epochs | at which the stretch ends
    iteration | int64 | updates | the same
    steps | int64 | updates | in the stretch
    particles | float64 | | particles of its first step, mean over repetitions
    seconds | float64 | s | of a step of one run: the job's time shared out evenly
    """),
    lambda gathered: pace(gathered["measured"], gathered.timings_of(list(gathered.experiment.problems))),
    when=looks_at("particles"),
)  # fmt: skip
TABLES = (SENSITIVITY, SELECTED, PACE)


def _number(plan, name):
    value = getattr(plan, name, None)
    return np.nan if value is None else float(value)
