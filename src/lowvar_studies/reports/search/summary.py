"""The table of a kept page: shares of targets met, by group of problems."""

from lowvar_studies.reports.declarations import Frame

_EARLY = (100, 500)  # evaluations per dimension at which the group `all` is shown before the end


def summary(tables) -> tuple[str, Frame] | None:
    """Percentages of targets that the best point of each method met, over all problems and in each group.

    Args:
        tables: the tables of an experiment by name; None is returned for one without groups.

    Returns:
        A title, and a row for each method, sorted by the share of all targets met by the end; a method that did not run
        on all problems of a group has no percentage there.
    """
    import pandas as pd

    if "groups" not in tables:
        return None
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
