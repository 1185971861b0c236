"""Effects on gradient variances: values, ratios, parts, and noise schemes."""

from typing import Literal

import numpy as np

from lowvar.studies.effects import Count, Declared, Effect, Effects, Rivals, missing, row, select, table
from lowvar.studies.variational.gathering import first_noise

Source = Literal["total", "subsampling", "monte_carlo", "interaction"]
Part = Literal["subsampling", "monte_carlo", "interaction"]

EFFECTS = Declared()


@EFFECTS.effect
def variance(tables, problem: str, method: str, source: Source = "total", block: str = "all"):
    """The variance of a batch's gradient at the end of the run, or one of its parts."""
    return Effect.of(_at_end(tables, problem, method, source, block))


@EFFECTS.effect
def variance_ratio(tables, problem: str, method: str, others: Rivals, source: Source = "total",
                   parts: tuple[Source, ...] = (), block: str = "all"):  # fmt: skip
    """``variance`` divided by each rival's; ``low`` is divided by the rival's ``high`` and the reverse.

    With ``parts`` it is divided by these parts of the rival's variance instead of by the same ``source``.
    """
    mine = _at_end(tables, problem, method, source, block)
    return Effects([_quotient(mine, _at_end(tables, problem, other, part, block))
                    for other in others for part in parts or (source,)])  # fmt: skip


@EFFECTS.effect
def total_to_part(tables, problem: str, method: str, part: Part, block: str = "all"):
    """The variance at the end of the run divided by one of its parts, from the same designs."""
    _along(tables, problem, method, "total", block)
    share = _along(tables, problem, method, part, block).iloc[-1]
    if not (share["end"] and share["share_low"] > 0):
        return Effect.undecided("the interval of the part contains 0")
    return Effect.of(1 / share[["share", "share_high", "share_low"]].to_numpy(float))


@EFFECTS.effect
def noise_variance_ratio(tables, problem: str, method: str, noise: str, particles: Count, source: Source = "total",
                         block: str = "all"):  # fmt: skip
    """``variance`` under a noise scheme, divided by that with as many iid particles."""
    wanted = {
        "problem": problem,
        "method": method,
        "source": source,
        "block": block,
        "noise": noise,
        "particles": particles,
    }
    return Effect.read(row(tables, "schemes", **wanted), "to_iid")


def _along(tables, problem, method, source, block):
    """The rows of a variance along the run, under the first noise scheme."""
    wanted = {"problem": problem, "method": method, "source": source, "block": block}
    run = select(first_noise(table(tables, "decomposition")), **wanted)
    if run["end"].sum() != 1:
        raise missing("decomposition", **wanted, end=True)
    return run


def _at_end(tables, problem, method, source, block):
    run = _along(tables, problem, method, source, block)
    end = run[run["end"]].iloc[0]
    return tuple(float(end[name]) for name in ("variance", "low", "high"))


def _quotient(mine, other):
    """The ratio of two variances. If the rival's interval contains 0, it has bounds (if the two are disjoint) only."""
    (value, low, high), (rival, rival_low, rival_high) = mine, other
    bounds = None
    if rival_low > 0:
        low, high = low / rival_high, high / rival_low
    else:
        if low > rival_high:
            bounds = (low / rival_high if rival_high > 0 else np.inf, np.inf)
        elif high < rival_low:
            bounds = (-np.inf, 0.0)
        low = high = np.nan
    return Effect(value / rival, low, high, bounds=bounds, rank=-rival)
