"""False stops of ``lowvar.fit(..., stop=True)``: on synthetic traces with known means, and on long real ones.

    python benchmarks/stopping.py                # 600 synthetic traces: seconds
    python benchmarks/stopping.py --real         # and two fits of 20 000 steps of each model of defaults.py

A synthetic trace is the mean of an ELBO, of a known form, with independent noise of the iterates and downward spikes.
A stop is false if the mean rises by more than two standard errors in the next doubling of the steps; a second count
takes all that it rises up to step 20 000, if more than a nat and five standard errors. A real trace has no known mean:
there the medians of three evaluations before the stop and of all later ones are compared, in the same two ways.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from scipy import stats
from vi_step import add_sizes, sized, write

from lowvar.api.stopping import Plateau
from lowvar.runs.loop import geometric

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


def interval(hits, of):
    """A rate with its exact 95 % interval."""
    low, high = stats.binomtest(int(hits), int(of)).proportion_ci()
    return f"{hits} of {of}: {100 * hits / of:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def real():
    """Stops on fits of the models of defaults.py: counts as in ``count``."""
    import defaults

    import lowvar

    counts = np.zeros(4, int)
    for name, (make, settings) in defaults.MODELS.items():
        for seed in (0, 1):
            model, data = make(np.random.default_rng(seed + 7))
            data = {key: np.asarray(v, np.float32) if np.asarray(v).dtype.kind == "f" else v for key, v in data.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = {key: value for key, value in settings.items() if key in ("batch_size", "step_size")}
                fit = lowvar.fit(model, data, num_steps=END, seed=seed, khat_samples=0, progress=False, **own)
            one = judged(*fit.elbo.to_numpy(float).T)
            print(f"{name:16} {seed}  {one or 'no stop'}", flush=True)
            counts += [1, one is not None, *(one["false"] if one else (0, 0))]
    return counts


def judged(steps, values, errors):
    """The stop on a real trace, and what came after it."""
    k = stop_of(Plateau(), steps, values, errors)
    if k is None:
        return None
    at, error, before = steps[k - 1], errors[k - 1], np.median(values[k - 3 : k])
    soon = np.median(values[(steps >= at) & (steps <= 2.1 * at)]) - before
    late = np.median(values[steps >= max(at, END / 2)]) - before
    found = {"step": at, "se": error, "soon": soon, "late": late}
    found = {name: round(float(value), 2) for name, value in found.items()}
    return found | {"false": (bool(soon > 2 * error), bool(late > max(1, 5 * error)))}


def show(title, counts):
    traces, stops, soon, late = counts
    print(f"{title}: {stops} stops; false soon {interval(soon, traces)}; later {interval(late, traces)}")


def main():
    """Prints the counts, and writes them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, help="synthetic ones; default: 600")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/stopping.json"), help="JSON file")
    add_sizes(parser, "60 traces")
    args = parser.parse_args()
    counts = count(args.traces or sized(args.size, 600, 60, 12))
    groups = counts | {
        "concave kinds": sum(counts[kind] for kind in KINDS if kind not in RISES_AGAIN),
        "rising again": sum(counts[kind] for kind in RISES_AGAIN),
    }
    if args.real:
        groups["real"] = real()
    for title, found in groups.items():
        show(title, found)
    names = ("traces", "stops", "false_soon", "false_later")
    write(args.out, {title: dict(zip(names, map(int, found), strict=True)) for title, found in groups.items()})
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
