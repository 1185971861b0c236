"""Synthetic traces of ELBOs with known means, and how often a rule stops them falsely.

A trace is the mean of an ELBO, of a known form, with independent noise of the iterates and downward spikes. A stop is
false if the mean rises by more than two standard errors in the next doubling of the steps; a second count takes all
that it rises up to step 20 000, if more than a nat and five standard errors.
"""

import numpy as np

from lowvar.core.loop import geometric
from lowvar.vi.run.fit_run import Plateau

END = 20_000
RISES_AGAIN = ("saddle", "linear")  # their gain of a doubling can grow: no rule on the past can know


def between(rng, low, high):
    """Log-uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def mean_of(rng, kind):
    """``steps -> nats``, a mean ELBO of a kind."""
    height, fast = between(rng, 10, 1e5), between(rng, 20, 300)
    slow, more, a = between(rng, 1000, END), between(rng, 1, 300), rng.uniform(0.3, 1.5)
    tau, at, width = between(rng, 30, END), between(rng, 300, END / 2), rng.uniform(0.05, 0.5)

    def base(t):
        return -height * np.exp(-t / fast)

    return {
        "exponential": lambda t: -height * np.exp(-t / tau),
        "power": lambda t: -height * (1 + t / fast) ** -a,
        "log": lambda t: base(t) + more / 10 * np.log(1 + t / 50),
        "two": lambda t: base(t) - more * np.exp(-t / slow),
        "saddle": lambda t: base(t) + more / (1 + np.exp(-(np.log(t + 1) - np.log(at)) / width)),
        "linear": lambda t: base(t) + more * t / END,
    }[kind]


KINDS = ("exponential", "power", "log", "two", "saddle", "linear")


def synthetic(rng, kind):
    """``(steps, mean, ELBOs, standard errors)`` of a trace."""
    steps, mean = np.array(geometric(END), float), mean_of(rng, kind)
    error = np.sqrt(between(rng, 2, 2000) / 400)  # of 200 draws in that many dimensions
    noise = error * between(rng, 0.03, 3)
    values = mean(steps) + noise * rng.standard_normal(len(steps)) * (1 - np.exp(-steps / 200))
    if rng.uniform() < 0.3:
        values = values - (rng.uniform(size=len(steps)) < 0.02) * noise * between(rng, 3, 30)
    return steps, mean, values, np.full(len(steps), error)


def stop_of(rule, steps, values, errors):
    """The number of evaluations at the stop, or None."""
    ends = range(2, len(steps))
    return next((k for k in ends if rule(steps[:k], values[:k], errors[:k])), None)


def count(traces: int, seed: int = 0, rule=None):
    """``{kind: [traces, stops, false by the next doubling, false by all later steps]}``."""
    rng, counts = np.random.default_rng(seed), {kind: np.zeros(4, int) for kind in KINDS}
    for i in range(traces):
        kind = KINDS[i % len(KINDS)]
        steps, mean, values, errors = synthetic(rng, kind)
        k = stop_of(rule or Plateau(), steps, values, errors)
        counts[kind][0] += 1
        if k is not None:
            at, error = steps[k - 1], errors[k - 1]
            soon, late = mean(2 * at) - mean(at), mean(float(END)) - mean(at)
            counts[kind] += [0, 1, soon > 2 * error, late > max(1, 5 * error)]
    return counts
