"""Tables of gradient variances: single designs, components with intervals, and noise schemes."""

from collections.abc import Mapping

import numpy as np

from lowvar_studies.reports.declarations import Table, columns
from lowvar_studies.reports.variational.gathering import PROGRESS, decomposes

PARTS = ("total", "subsampling", "monte_carlo", "interaction")

COMPONENTS = columns("""
    method | string | | the experiment's name for the method
    block | string | | `all`, `mu` or `log_sigma`; with several latent sites also `mu:{site}` and `log_sigma:{site}`
    source | string | | `subsampling`, `monte_carlo`, `interaction` or `total`
    variance | float64 | nats^2 | of a batch's gradient: trace over the block
    low | float64 | nats^2 | lower end of its 95 % interval
    high | float64 | nats^2 | upper end
    share.. | float64 | | `variance` divided by the method's total in the block
    batch_size | int64 | rows | B
    runs | int64 | | runs of the leader; intervals are over runs if there are several, else over designs
    replicates | int64 | | independent designs of a run
""")
_MOMENT = columns(
    "problem | string | | the experiment's name for the problem",
    PROGRESS,
    """
    end | bool | | whether this is the last moment
    noise | string | | noise scheme: `iid`, `antithetic`, `orthogonal` or `rqmc`
    particles | int64 | | particles of a batch
""",
)
DESIGNS = Table(
    "designs",
    "The files `decomposition.parquet` of all problems of an experiment, concatenated. It decides claims about ratios "
    "of variances, in which all methods have the same runs, designs and noise.",
    columns(_MOMENT, """
    method | string | | the experiment's name for the method
    block | string | | as in the table `decomposition`
    run | int64 | | repetition of the leader's run, from 0
    replicate | int64 | | design at the run's parameters, from 0
    subsampling | float64 | nats^2 | V_n of a single data row's gradient: trace over the block
    monte_carlo | float64 | nats^2 | V_eps
    interaction | float64 | nats^2 | V_int
    """),
    lambda gathered: gathered.decompositions,
    when=decomposes,
    rows_of="decompose",
    kept=False,
)  # fmt: skip


def decomposition(designs, batch_sizes: Mapping[str, tuple[int, ...]]):
    """Variances of a batch's gradient with intervals at every moment.

    Args:
        designs: the table ``designs``.
        batch_sizes: of each problem.
    """
    import pandas as pd

    from lowvar.vi.crossed import table

    keys, out = ["problem", "epoch", "iteration", "end", "noise", "particles"], []
    for key, group in designs.groupby(keys, sort=False):
        for batch_size in batch_sizes[key[0]]:
            out.append(table(group, batch_size).assign(**dict(zip(keys, key, strict=True))))
    return pd.concat(out, ignore_index=True)


def batch_sizes(gathered) -> dict[str, tuple[int, ...]]:
    """The batch sizes at which a problem's variances are stated."""
    jobs = {problem: gathered.experiment.decompose(problem) for problem in gathered.experiment.decompositions()}
    return {name: job.decomposition.batch_sizes or (job.solver.batch_size,) for name, job in jobs.items()}


DECOMPOSITION = Table(
    "decomposition",
    "Components of the variance of a batch's gradient, from the files `decomposition.parquet` of all problems. A row "
    "for each problem, moment, noise scheme, batch size, method, block and source.",
    columns(_MOMENT, COMPONENTS),
    lambda gathered: decomposition(gathered["designs"], gathered.once(batch_sizes)),
    when=decomposes,
    rows_of="decompose",
)


def schemes(designs, batch_sizes: Mapping[str, tuple[int, ...]]):
    """The variance at the end under each noise scheme, and its ratio to that with as many iid particles.

    The ratio is NaN where that number of iid particles was not measured, or where a variance is not positive.

    Args:
        designs: the table ``designs``.
        batch_sizes: of each problem; the first counts.
    """
    import pandas as pd

    from lowvar.core.intervals import mean_interval, ratio_of_means
    from lowvar.vi.crossed import batch_variances

    ends, out = designs[designs["end"]], []
    for key, group in ends.groupby(["problem", "method", "block", "particles"], sort=False):
        size = batch_sizes[key[0]][0]
        each = {noise: batch_variances(one, size) for noise, one in group.groupby("noise", sort=False)}
        for noise, own in each.items():
            for source, values in own.items():
                ratio = (np.nan,) * 3
                if "iid" in each and min(values.mean(), each["iid"][source].mean()) > 0:
                    iid = each["iid"][source]
                    ratio = (1.0,) * 3 if noise == "iid" else ratio_of_means([(1, values), (-1, iid)])
                row = dict(zip(("problem", "method", "block", "particles"), key, strict=True))
                row |= {"noise": noise, "source": source}
                row |= dict(zip(("variance", "low", "high"), mean_interval(values), strict=True))
                out.append(row | dict(zip(("to_iid", "to_iid_low", "to_iid_high"), ratio, strict=True)))
    return SCHEMES.frame(pd.DataFrame(out))


def _compares_noises(experiment):
    """Whether any variance is decomposed under several noise schemes."""
    return any(experiment.decomposition_on(problem).noises for problem in experiment.decompositions())


SCHEMES = Table(
    "schemes",
    "If a decomposition has several `noises`: variances at the end of the run, relative to as many iid particles. "
    "Ratios have jackknife intervals, over runs if there are several, in which both schemes have the same runs.",
    columns("""
    problem | string | | the experiment's name for the problem
    noise | string | | noise scheme
    particles | int64 | | particles of a batch
    method | string | | the experiment's name for the method
    block | string | | as in the decomposition
    source | string | | as in the decomposition
    variance | float64 | nats^2 | of a batch's gradient
    low | float64 | nats^2 | lower end of its 95 % interval
    high | float64 | nats^2 | upper end
    to_iid | float64 | | `variance` divided by that of `iid` with as many `particles`; NaN if either is not positive
    to_iid_low | float64 | | lower end of its 95 % interval
    to_iid_high | float64 | | upper end
    """),
    lambda gathered: schemes(gathered["designs"], gathered.once(batch_sizes)),
    when=_compares_noises,
    rows_of="decompose",
)  # fmt: skip
TABLES = (DESIGNS, DECOMPOSITION, SCHEMES)
