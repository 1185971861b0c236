"""Effects on gradient variances: values, ratios, parts, and noise schemes."""

from typing import Literal

import numpy as np

from lowvar.core.intervals import ratio_of_means
from lowvar_studies.reports.effect import Count, Declared, Effect, Effects, Missing, Rivals, row, rows, select, table
from lowvar_studies.reports.variational.gathering import first_setting

Source = Literal["total", "subsampling", "monte_carlo", "interaction"]

EFFECTS = Declared()

_LABEL = "weighted parts"


@EFFECTS.effect
def variance(tables, problem: str, method: str, source: Source = "total", block: str = "all",
             batch_size: Count | None = None):  # fmt: skip
    """The variance of a batch's gradient at the end of the run, or one of its parts, at the first batch size."""
    wanted = {"problem": problem, "method": method, "source": source, "block": block}
    found = table(tables, "decomposition")
    wanted |= {"batch_size": _batch_size(tables, problem) if batch_size is None else batch_size}
    run = select(first_setting(found[found["batch_size"] == wanted["batch_size"]]), **wanted)
    if run["end"].sum() != 1:
        raise Missing("decomposition", **wanted)
    end = run[run["end"]].iloc[0]
    return Effect.of((end["variance"], end["low"], end["high"]), note=_sample(end))


@EFFECTS.effect
def variance_ratio(tables, problem: str, method: str, others: Rivals, source: Source = "total",
                   parts: tuple[Source, ...] = (), weights: dict[Source, float] | None = None, block: str = "all",
                   moment: Literal["end", "along"] = "end"):  # fmt: skip
    """``variance`` divided by each rival's, on the same runs, designs and noise; intervals by the jackknife.

    With ``parts`` it is divided by these parts of the rival's variance instead of by the same ``source``, with
    ``weights`` by a weighted sum of its parts. ``moment`` is the end of the run, or all moments from the end of the
    first epoch on.
    """
    from lowvar.vi.crossed import of_batches

    mine, size, each = _designs(tables, problem, method, block), _batch_size(tables, problem), []
    moments = mine["end"] if moment == "end" else mine["epoch"] > 0
    epochs = sorted(mine.loc[moments, "epoch"].unique())
    for other in others:
        theirs = _designs(tables, problem, other, block)
        for epoch in epochs:
            own, rival = (of_batches(select(one, epoch=epoch), size) for one in (mine, theirs))
            for part in (_LABEL,) if weights else parts or (source,):
                if weights:
                    rival[_LABEL] = np.sum([weight * rival[one] for one, weight in weights.items()], axis=0)
                ratio = ratio_of_means([(1, own[source]), (-1, rival[part])])
                note = f"to {other}'s {part.replace('_', ' ')}, epoch {epoch}"
                note += f", the worst of {len(epochs)} moments" if moment == "along" else ""
                each.append(Effect.of(ratio, note=note))
    return Effects(each)


@EFFECTS.effect
def noise_variance_ratio(tables, problem: str, method: str, noise: str, particles: Count, source: Source = "total",
                         block: str = "all"):  # fmt: skip
    """``variance`` under a noise scheme, divided by that with as many iid particles."""
    wanted = {"problem": problem, "method": method, "noise": noise, "particles": particles}
    return Effect.read(row(tables, "schemes", **wanted, source=source, block=block), "to_iid")


def _batch_size(tables, problem) -> int:
    """The first batch size of a problem's decomposition."""
    found = rows(tables, "decomposition", problem=problem)
    return int(found["batch_size"].iloc[0])


def _designs(tables, problem, method, block):
    """Single designs of a method's variance in a block, at every moment, under the first noise scheme."""
    wanted = {"problem": problem, "method": method, "block": block}
    found = select(first_setting(table(tables, "designs")), **wanted)
    if not len(found):
        raise Missing("designs", **wanted)
    return found


def _sample(row) -> str:
    """What an interval is over."""
    return f"{row['runs']} runs" if row["runs"] > 1 else ""
