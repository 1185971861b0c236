"""Tables of gradient estimators that stand beside a paper's: variances, sizes, costs, and schemes of noise."""

from collections.abc import Mapping

import numpy as np

from lowvar.analysis.decomposition import SOURCES, mean_interval
from lowvar.studies.variational import published
from lowvar.studies.variational.noises import first_noise

_LATE = 8  # measurements of the time from whose differences its interval is made
_RUN = ["problem", "method", "backend"]


def variances(decomposition, problems: Mapping):
    """The variance of ``naive`` at the end by source, beside the published ones.

    Args:
        decomposition: the table of components.
        problems: ``{name: ModelSpec}``.
    """
    import pandas as pd

    rows = first_noise(decomposition)
    rows = rows[rows["end"] & (rows["method"] == "naive") & (rows["block"] == "all")]
    out = []
    for name, model in problems.items():
        said = published.of(published.VARIANCES, model.model, model.dataset)
        for source in ("total", *SOURCES):
            for row in rows[(rows["problem"] == name) & (rows["source"] == source)].itertuples():
                known = float(said.get(source, np.nan))
                out.append((name, source, row.variance, row.low, row.high, known, row.variance / known))
    columns = ["problem", "source", "variance", "low", "high", "published", "ratio"]
    return _typed(pd.DataFrame(out, columns=columns), ("problem", "source"))


def sizes(problems: Mapping, shapes: Mapping[str, tuple[int, int]]):
    """Rows and latent dimension of every problem, beside the published ones.

    Args:
        problems: ``{name: ModelSpec}``.
        shapes: ``{name: (N, dim)}``.
    """
    import pandas as pd

    out = []
    for name, model in problems.items():
        said = published.of(published.SIZES, model.model, model.dataset) or (np.nan, np.nan)
        out.append((name, model.model, model.dataset, model.scaling, *shapes[name], *map(float, said)))
    columns = ["problem", "model", "dataset", "scaling", "rows", "dim", "published_rows", "published_dim"]
    return pd.DataFrame(out, columns=columns)


def costs(traces, timings, problems: Mapping, shapes: Mapping[str, tuple[int, int]], batches: Mapping):
    """Gradient evaluations and seconds of an iteration of every method, beside the published ones.

    Args:
        traces: of all runs.
        timings: of those runs whose times are to stand in the table; None for no times.
        problems: ``{name: ModelSpec}``.
        shapes: ``{name: (N, dim)}``.
        batches: ``{(problem, method, backend): batch size}``.

    Returns:
        A row for each run. Evaluations are gradients and Hessian-vector products in units of a batch, those of
        full passes included, averaged over the run. Times are of one run: the job's time divided by the number of
        its runs, which are computed together. Their intervals are of the last few measurements.
    """
    import pandas as pd

    out = []
    for (problem, method, backend), trace in traces.groupby(_RUN, sort=False):
        end = trace[trace["epoch"] == trace["epoch"].max()].iloc[0]
        model, (rows, _), batch = problems[problem], shapes[problem], batches[problem, method, backend]
        iterations = max(int(end["iteration"]), 1)
        per = float(end["gradients"]) / iterations, float(end["hvps"]) / iterations
        said = published.of(published.MILLISECONDS, model.model, model.dataset)
        out.append(
            {"problem": problem, "method": method, "backend": backend,
             "runs": len(trace[["step_size", "repetition"]].drop_duplicates()), "batch_size": batch,
             "gradients": per[0] / batch, "hvps": per[1] / batch, "evaluations": sum(per) / batch,
             "published_evaluations": _evaluations(method, rows, batch),
             **dict(zip(("seconds", "seconds_low", "seconds_high"), _seconds(timings, problem, method, backend, trace),
                        strict=True)),
             "published_seconds": said[method] / 1000 if method in said else np.nan}
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
    return table


def schemes(decomposition):
    """The variance at the end under each way of drawing noise, and its ratio to as many independent points.

    Args:
        decomposition: the table of components.

    Returns:
        The rows of the end with ``to_iid`` and its interval, in which the two variances count as independent. It is
        NaN where there are no independent points of that number, or where either variance is not above zero.
    """
    rows = decomposition[decomposition["end"]].reset_index(drop=True)
    keys = ["problem", "method", "block", "source", "samples"]
    base = rows.loc[rows["eps"] == "iid", [*keys, "variance", "low", "high"]]
    both = rows[[*keys, "eps", "variance", "low", "high"]].merge(base, on=keys, how="left", suffixes=("", "_iid"))
    sure = (both["variance"] > 0) & (both["variance_iid"] > 0)
    ratio = (both["variance"] / both["variance_iid"]).where(sure)
    own = (both["high"] - both["low"]) / 2 / both["variance"]
    apart = np.hypot(own, (both["high_iid"] - both["low_iid"]) / 2 / both["variance_iid"])
    iid = both["eps"] == "iid"
    both["to_iid"] = ratio
    both["to_iid_low"] = (ratio * np.exp(-apart)).where(~iid, ratio)
    both["to_iid_high"] = (ratio * np.exp(apart)).where(~iid, ratio)
    columns = ["problem", "eps", "samples", "method", "block", "source", "variance", "low", "high"]
    return both[[*columns, "to_iid", "to_iid_low", "to_iid_high"]]


def with_published_times(problems: Mapping) -> list[str]:
    """Problems for which times were published."""
    said = published.MILLISECONDS
    return [name for name, model in problems.items() if published.of(said, model.model, model.dataset)]


def _evaluations(method, rows, batch):
    if method in published.EVALUATIONS_OF_ALL_ROWS:
        whole, more = published.EVALUATIONS_OF_ALL_ROWS[method]
        return whole * rows / batch + more
    return float(published.EVALUATIONS.get(method, np.nan))


def _seconds(timings, problem, method, backend, trace):
    """Seconds of an iteration of one run, and their interval."""
    if timings is None:
        return np.nan, np.nan, np.nan
    here = (timings["problem"] == problem) & (timings["method"] == method) & (timings["backend"] == backend)
    timing = timings[here].sort_values("epoch")
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
    """Half the width of the logarithm of the seconds' interval."""
    return np.log(table["seconds_high"] / table["seconds_low"]) / 2


def _typed(table, words):
    """A table with its dtypes, also where it has no rows."""
    return table.astype({name: "str" if name in words else float for name in table})
