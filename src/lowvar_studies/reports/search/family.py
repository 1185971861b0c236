"""The family ``search``: its declarations and its jobs."""

from lowvar_studies.jobs.search.spec import SearchExperiment
from lowvar_studies.reports.declarations import KEYS, Family, Frame
from lowvar_studies.reports.drawing.rows import problems
from lowvar_studies.reports.search import effects, figures, files, progress, rates
from lowvar_studies.reports.search.gathering import DECOMPOSITION, HITS, build
from lowvar_studies.reports.search.progress import quantile, same_target

_EARLY = (100, 500)  # evaluations per dimension at which a kept page shows the group `all` before the end


def engine(spec, prepared):
    """The engine of a run's spec; functions have no data."""
    from lowvar_studies.jobs.search import engine as engines

    return engines.build(spec)


def packages(spec) -> tuple[str, ...]:
    """Packages of a peer or a simulator, in addition to those of every run."""
    from lowvar.search.solvers import SEARCH
    from lowvar_studies.functions.catalogue import FUNCTIONS

    return (*SEARCH.about(spec.method.solver).packages, *FUNCTIONS.about(spec.problem.function).packages)


def decomposition(job, prepared, progress_bar):
    """The variance of the search gradient at Gaussians around the start of the first repetition."""
    from lowvar.core.keys import named_key
    from lowvar_studies.reports.search.variance import search_variance

    problem, d = build(job.problem), job.decomposition
    table = search_variance(
        problem, mean=problem.start(named_key(job.seed, job.name, "start", 0)), sigmas=d.sigmas,
        populations=d.populations, schemes=d.schemes, baselines=d.baselines, replicates=d.replicates,
        key=named_key(job.seed, job.name, "design"),
    )  # fmt: skip
    return table.assign(problem=job.name)


def metrics(gathered):
    """Rows of ``metrics.json``: median final gaps, and median evaluations to ``search.target``."""
    for (problem, method, backend), rows in gathered["ends"].groupby(KEYS, sort=False):
        yield problem, "final_gap", f"{method}-{backend}", float(quantile(rows["f"].to_numpy(float), 0.5))
    rows = gathered["targets"]
    met = rows[(rows["of"] == "mean") & same_target(rows["target"], gathered.experiment.search.target)]
    for row in met.itertuples():
        yield row.problem, "evaluations_to_target", f"{row.method}-{row.backend}", row.evaluations_median


def summary(tables) -> tuple[str, Frame] | None:
    """Targets met by group, if the experiment has groups of problems; else the ends of the runs.

    Args:
        tables: the tables of a study by name, with its ``experiment``. Kept rows may lack them, then None is returned.
    """
    there = set(tables)
    return targets_met(tables) if "groups" in there else ends(tables) if "ends" in there else None


def ends(tables) -> tuple[str, Frame]:
    """A title, and a row for each problem and method: runs, shares that met the target and diverged, and final gaps.

    Gaps are medians over the repetitions, with quartiles at the end; infinite where a run that diverged is needed. That
    at the end is at the mean of the distribution, and the best point is the best of all that were evaluated. If
    the optimum is unknown there is no target, and the return (-f) stands in place of the gap.
    """
    import pandas as pd

    rows, out = tables["ends"], []
    for name in problems(rows):
        of_problem = rows[rows["problem"] == name]
        known = bool(of_problem["optimum"].notna().any())
        what = "gap" if known else "return"
        for (method, backend), runs in of_problem.groupby(["method", "backend"], sort=False):
            start, end, best = ((1 if known else -1) * runs[one].to_numpy(float) for one in ("start", "f", "best"))
            middle, low, high = (float(quantile(end, q)) for q in (0.5, 0.25, 0.75))
            out.append({
                "problem": name,
                "method": method if backend == "jax" else f"{method} ({backend})",
                "runs": str(len(runs)),
                "met the target (%)": f"{100 * runs['reached'].mean():.0f}" if known else "",
                "not finite (%)": f"{100 * (runs['status'] != 'ok').mean():.0f}",
                f"{what} at the start": f"{float(quantile(start, 0.5)):.3g}",
                f"{what} at the end [quartiles]": f"{middle:.3g} [{low:.3g}, {high:.3g}]",
                f"{what} of the best point": f"{float(quantile(best, 0.5)):.3g}",
            })  # fmt: skip
    table = pd.DataFrame(out).fillna("")
    target = f", target {tables.experiment.search.target:g}" if rows["optimum"].notna().any() else ""
    return f"Ends of the runs{target}", table.loc[:, (table != "").any()]


def targets_met(tables) -> tuple[str, Frame]:
    """A title, and the percentages of targets that the best point of each method met, over all problems and by group.

    Methods are sorted by the share of all targets met by the end; one that did not run on all problems of a group has
    no percentage there.
    """
    import pandas as pd

    rows = tables["groups"]
    rows = rows[rows["of"] == "best"].sort_values("evaluations_per_dim", kind="stable")
    end = rows["budget_per_dim"].max()
    groups = list(dict.fromkeys(rows.sort_index()["problem"]))
    places = [("all", at) for at in _EARLY if at < end] + [(group, end) for group in groups]
    columns = {}
    for group, at in places:
        met = rows[(rows["problem"] == group) & (rows["evaluations_per_dim"] <= at * (1 + 1e-9))]
        columns[f"{group}, {at:g}"] = met.groupby(["method", "backend"], sort=False)["share"].last()
    table = pd.DataFrame(columns)
    last = f"{groups[0]}, {end:g}"
    table = table.sort_values(last, ascending=False, kind="stable")
    shown = table.map(lambda share: "" if share != share else f"{100 * share:.0f}")
    names = [method if backend == "jax" else f"{method} ({backend})" for method, backend in shown.index]
    shown = shown.reset_index(drop=True)
    shown.insert(0, "method", names)
    title = "Targets met (%), by group and evaluations per dimension"
    return title, shown


FAMILY = Family(
    name="search",
    experiment=SearchExperiment,
    method="solver",
    tables=(*progress.TABLES, *rates.TABLES, DECOMPOSITION, HITS, progress.SECONDS),
    figures={one.name: one for one in figures.FIGURES},
    effects=effects.EFFECTS,
    files=files.FILES,
    engine=engine,
    metrics=metrics,
    packages=packages,
    decomposition=decomposition,
    summary=summary,
)
