"""Tables of tried and selected step sizes and schedules."""

from collections.abc import Mapping

import numpy as np

from lowvar_studies.jobs.variational.spec import best
from lowvar_studies.reports.declarations import KEYS, RUN, Table, columns
from lowvar_studies.reports.variational.convergence import at_end
from lowvar_studies.reports.variational.gathering import COUNTS, LINE, PROGRESS, looks_at, models, schedules

# Fujisawa and Sato, Table 3: initial step size and step schedule, as selected by optuna
_PUBLISHED = {
    "hlr": {
        "mc": {"step_size": 0.39893},
        "rqmc": {"step_size": 0.39893},
        "mlmc": {"step_size": 0.027026, "beta": 0.862527, "r": 221},
    },
    "blr": {
        "mc": {"step_size": 0.004735},
        "rqmc": {"step_size": 0.007780},
        "mlmc": {"step_size": 0.007438, "beta": 0.226316, "r": 458},
    },
    "bnn": {
        "mc": {"step_size": 0.007780},
        "rqmc": {"step_size": 0.007780},
        "mlmc": {"step_size": 9.062263e-6, "beta": 0.819243, "r": 253},
    },
}


def sensitivity(convergence, schedules: Mapping, estimators: Mapping[str, str]):
    """The final ELBO by estimator, initial step size and settings of the step schedule.

    Args:
        convergence: the table ``convergence``.
        schedules: ``{(problem, method, backend): ScheduleSpec or None}``; only those of kind ``step`` are used.
        estimators: the estimator of each method.
    """
    rows = convergence[at_end(convergence)].reset_index(drop=True)
    plans = [schedules.get(key) for key in rows[KEYS].itertuples(index=False, name=None)]
    stepwise = [plan is not None and plan.kind == "step" for plan in plans]
    kept = [plan for plan, taken in zip(plans, stepwise, strict=True) if taken and plan is not None]
    rows = rows[stepwise].assign(beta=[float(plan.beta) for plan in kept], r=[int(plan.r) for plan in kept])
    rows["estimator"] = rows["method"].map(estimators)
    finite = rows["elbo_mean"].where(np.isfinite(rows["elbo_mean"]))
    top = finite.groupby([rows["problem"], rows["estimator"]]).transform("max")
    return SENSITIVITY.frame(rows.assign(below=(top - finite).where(finite.notna(), np.inf)))


SENSITIVITY = Table(
    "sensitivity",
    "If a problem has more than three schedules: a row for the end of the runs at every step size of the methods with "
    "a schedule of kind `step`.",
    columns(LINE, """
    estimator | string | | of the method: methods of one estimator differ in their schedules
    beta | float64 | | factor of each drop
    r | int64 | updates | between drops
    """, PROGRESS, """
    elbo_mean.. | float64 | nats | mean ELBO; minus infinity if a repetition diverged
    below | float64 | nats | the estimator's largest `elbo_mean` on the problem less this; infinite if a run diverged
    """, COUNTS),
    lambda gathered: sensitivity(gathered["convergence"], gathered.once(schedules), _estimators(gathered)),
    when=looks_at("sensitivity"),
)  # fmt: skip


def selected(convergence, schedules: Mapping, problems: Mapping):
    """Best step sizes and their schedules, beside the published ones (Table 3 of Fujisawa and Sato).

    Args:
        convergence: the table ``convergence``.
        schedules: ``{(problem, method, backend): ScheduleSpec or None}``.
        problems: ``{name: ModelSpec}``.
    """
    import pandas as pd

    out = []
    for key, run in convergence.groupby(KEYS, sort=False):
        name, method, _ = key
        model, plan = problems[name], schedules.get(key)
        chosen = run.loc[run["best"], "step_size"]
        of_model = _PUBLISHED.get(model.model, {}) if model.guide is None else {}
        printed = of_model.get(method, {})
        ours = {"step_size": float(chosen.iloc[0]) if len(chosen) else np.nan,
                "beta": _number(plan, "beta"), "r": _number(plan, "r")}  # fmt: skip
        theirs = {f"published_{column}": float(printed.get(column, np.nan)) for column in ours}
        schedule = "" if plan is None else plan.kind
        out.append({**dict(zip(KEYS, key, strict=True)), "schedule": schedule, **ours, **theirs})
    return pd.DataFrame(out)


def with_trials(study, chosen):
    """The rows of ``selected`` with the results of tuning; NaN without tuning. Refuses stale studies."""
    import pandas as pd

    rows, results = [], ["elbo", "trials", "diverged"]
    for job in study.jobs("tune"):
        trials = job.read("study.parquet")
        rows.append((*job.names.values(), best(trials)["value"], len(trials), (trials["status"] == "diverged").sum()))
    joined = chosen.merge(pd.DataFrame(rows, columns=[*KEYS, *results]), on=KEYS, how="left")
    return joined.astype(dict.fromkeys(results, float))  # also if all are missing


def _selected(gathered):
    chosen = selected(gathered["convergence"], gathered.once(schedules), models(gathered))
    return with_trials(gathered.study, chosen)


SELECTED = Table(
    "selected",
    "If methods have a schedule: the settings of each run at its best step size, beside those of Fujisawa and Sato, "
    "Table 3, for the model and dataset. Settings that do not exist are NaN.",
    columns(RUN, """
    schedule | string | | kind of the schedule; empty without one
    step_size | float64 | | the best step size; NaN if all diverged
    beta | float64 | | decay of the schedule
    r | float64 | updates | between drops of the schedule
    published_step_size | float64 | | published value
    published_beta | float64 | | published value
    published_r | float64 | updates | published value
    elbo | float64 | nats | at the end of the best trial, if the method's own settings were tuned
    trials | float64 | | number of trials
    diverged | float64 | | trials that diverged
    """),
    _selected,
    when=looks_at("particles"),
)  # fmt: skip


TABLES = (SENSITIVITY, SELECTED)


def _estimators(gathered) -> dict[str, str]:
    return {name: spec.estimator for name, spec in gathered.experiment.methods.items()}


def _number(plan, name):
    value = getattr(plan, name, None)
    return np.nan if value is None else float(value)
