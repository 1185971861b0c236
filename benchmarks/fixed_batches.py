"""What fixed batches of ``joint`` cost in nats: final ELBOs beside those of reshuffled ones, and of ``naive``.

    python benchmarks/fixed_batches.py            # 4 data sets, 5 seeds, 5000 steps: a few minutes
    python benchmarks/fixed_batches.py --quick    # 2 seeds, 500 steps

With fixed batches, every epoch has the same batches in another order, and ``joint`` keeps a vector for each batch in
place of each row. Starts are shared by the methods, and so is the noise; final ELBOs use the same draws. Settings are
those of ``defaults.py``: Adam, step size 0.01, batches of 100, float64. Differences are paired by seed, with 95 %
t-intervals.
"""

import argparse
from pathlib import Path

import defaults
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from vi_step import add_sizes, breast_cancer, sized, write

from lowvar.analysis.intervals import mean_interval

METHODS = ("naive", "joint", "joint_fixed")


@defaults.entry()
def cancer(rng):
    """Logistic regression on the breast cancer data of scikit-learn, 569 x 30."""
    data = breast_cancer(np.float64, "full")

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([30]).to_event(1))
        with defaults.rows(len(data["y"])) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ w), obs=y[i])

    return model, data


@defaults.entry()
def digits(rng):
    """Softmax regression on the digits of scikit-learn, 1797 x 64 in ten classes."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    data = {"x": raw.data / 16.0, "y": raw.target.astype(np.int32)}

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([64, 10]).to_event(2))
        with defaults.rows(len(data["y"])) as i:
            numpyro.sample("y", dist.Categorical(logits=x[i] @ w), obs=y[i])

    return model, data


MODELS = ("cancer", "digits", "poisson", "hierarchical")


def main():
    """Prints a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, help=f"of {', '.join(defaults.MODELS)}")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/fixed_batches.json"), help="JSON file")
    add_sizes(parser, "2 seeds, 500 steps")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    seeds, steps = sized(args.size, 5, 2, 2), sized(args.size, 5000, 500, 20)
    found = {}
    print(f"{seeds} seeds, {steps} steps: nats with 95 % intervals\n")
    print(
        "| model | rows | `joint` above `naive` | fixed batches above `naive` | fixed above reshuffled |\n"
        + "|---" * 5
        + "|"
    )
    for name in args.models[: sized(args.size, None, None, 1)]:
        elbos, _ = defaults.compare(name, METHODS, seeds, steps)
        found[name] = {method: list(values) for method, values in elbos.items()}
        pairs = (("joint", "naive"), ("joint_fixed", "naive"), ("joint_fixed", "joint"))
        cells = ("{:+.2f} [{:+.2f}, {:+.2f}]".format(*mean_interval(elbos[a] - elbos[b])) for a, b in pairs)
        rows = len(next(iter(defaults.MODELS[name][0](np.random.default_rng(0))[1].values())))
        print(f"| {name} | {rows} | " + " | ".join(cells) + " |", flush=True)
        write(args.out, {"seeds": seeds, "steps": steps, "models": found})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
