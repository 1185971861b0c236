"""The family ``integral``: its declarations and its jobs."""

from lowvar_studies.jobs.integral import samples
from lowvar_studies.jobs.integral.spec import IntegralExperiment, SampleSpec
from lowvar_studies.reports.declarations import Family
from lowvar_studies.reports.drawing.rows import problems
from lowvar_studies.reports.integral import effects, errors, figures, files, illustrations
from lowvar_studies.reports.integral.gathering import build


def engine(spec, drawn):
    """The engine of a run's spec on samples."""
    from lowvar_studies.jobs.integral import engine as engines

    return engines.build(spec, drawn)


def packages(spec) -> tuple[str, ...]:
    """Packages that points depend on, in addition to those of every job."""
    return ("blackjax", "diffrax") if isinstance(spec, SampleSpec) else ()


def sample(job, prepared):
    """The arrays of a file with the points of all repetitions."""
    from lowvar_studies.integrals.samplers import draw
    from lowvar_studies.jobs.integral import engine as engines

    problem = build(job, prepared)
    sizes = engines.every_task(job.sizes, len(problem.tasks), f"sizes of {job.name}")
    sampler = job.sampler or problem.samplers[0]
    drawn = draw(problem, sampler, sizes, job.repetitions, job.seed, job.name)
    truth = problem.truth(job.truth_effort)
    rows = [
        {"task": task, "truth": float(value), "truth_error": float(error), "how": truth.how}
        for task, value, error in zip(problem.tasks, truth.value, truth.error, strict=True)
    ]
    for name, (value, error) in truth.derived.items():
        rows.append({"task": name, "truth": float(value), "truth_error": float(error), "how": truth.how})
    about = {"tasks": problem.tasks, "groups": problem.groups, "truth": rows, "sampler": sampler}
    return samples.arrays(drawn, about)


def metrics(gathered):
    """Rows of ``metrics.json``: for each problem's last task at the largest sizes."""
    rows = errors.last_task(gathered["errors"])
    rows = rows.loc[rows.groupby(["problem", "method", "backend"], sort=False)["points"].idxmax()]
    for row in rows.to_dict("records"):
        for name in ("mae", "to_mc", "coverage"):
            yield row["problem"], name, f"{row['method']}-{row['backend']}", float(row[name])


def summary(tables):
    """Mean absolute errors of each problem's last task, with 95 % intervals: a row for each problem and sizes.

    Where that task is one of several, and not derived from the others, a row with the sum over all follows. None where
    kept rows lack a table.
    """
    import pandas as pd

    if not {"errors", "sums"} <= set(tables):
        return None
    last, sums = errors.last_task(tables["errors"]), tables["sums"]
    of = last.loc[~last["derived"], "problem"]
    sums = sums[(sums["tasks"] > 1) & sums["problem"].isin(of)]
    sums = sums.assign(task=[f"sum of {count} tasks" for count in sums["tasks"]])
    sums = sums.rename(columns=lambda name: name.removeprefix("sum_"))
    places = {name: place for place, name in enumerate(problems(last))}
    rows = pd.concat([last, sums]).sort_values("problem", kind="stable", key=lambda names: names.map(places))
    cells = [
        f"{value:.3g}" if low != low else f"{value:.3g} [{low:.3g}, {high:.3g}]"
        for value, low, high in zip(rows["mae"], rows["mae_low"], rows["mae_high"], strict=True)
    ]
    rows = rows.assign(cell=cells, row=rows["problem"] + ": " + rows["task"] + ", m = " + rows["sizes"])
    order, methods = rows["row"].drop_duplicates(), rows["method"].drop_duplicates()
    table = rows.pivot(index="row", columns="method", values="cell").loc[order, methods].fillna("")
    return "Mean absolute errors", table.rename_axis("integral").reset_index()


FAMILY = Family(
    name="integral",
    experiment=IntegralExperiment,
    method="integrator",
    tables=(*errors.TABLES, *illustrations.TABLES, errors.SECONDS),
    figures={one.name: one for one in figures.FIGURES},
    effects=effects.EFFECTS,
    files=files.FILES,
    engine=engine,
    metrics=metrics,
    packages=packages,
    sample=sample,
    read_samples=samples.read,
    summary=summary,
)
