"""Latent variables of the rows: ``lowvar.fit`` by two conventions for Adam, and NumPyro's SVI with dense Adam.

A Poisson count of each row has a rate of its own. ``row_adam`` is the default of ``fit``: Adam by the visits of each
row, which then moves as far as under dense Adam until the next. ``sparse`` is Adam of optax, whose moments of a row
change at its visits only, but are corrected by the steps of the run, as in PyTorch's ``SparseAdam``. SVI has
``AutoNormal``, ``Trace_ELBO`` and Adam of optax, which moves all rows at every step. All have the same steps, batches
and step size, which falls to 0 over the second half. Final ELBOs are those of all rows from the same draws;
differences have 95 % t-intervals over seeds.
Usage: `python benchmarks/local_latents.py`: some minutes on a core.
"""

import argparse
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from thirty import elbos_of
from vi_step import add_sizes, write

import lowvar
from lowvar.analysis.intervals import mean_interval

STEP_SIZE, SHARE = 0.01, 0.5  # which falls along a cosine over the last half of the steps
ESTIMATORS = ("naive", "cv", "joint_svrg", "joint_adaptive")


def counts(y, batch_size=None):
    """Poisson counts with a normal log-rate for each row."""
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
        a = numpyro.sample("a", dist.Normal(m, spread))
        numpyro.sample("y", dist.Poisson(jnp.exp(a)), obs=y[index])


def falling(steps: int):
    """The step size by step, as a schedule of optax."""
    first = int(steps * SHARE)
    return optax.join_schedules([lambda _: STEP_SIZE, optax.cosine_decay_schedule(STEP_SIZE, steps - first)], [first])


def fits(y, steps: int, batch: int, seed: int):
    """Names and final parameters of all runs of a seed."""
    settings = {"batch_size": batch, "num_steps": steps, "seed": seed, "khat_samples": 0, "progress": False}
    decay = {"kind": "cosine", "beta": SHARE, "r": steps}
    for name in ESTIMATORS:
        fit = lowvar.fit(counts, {"y": y}, estimator=name, step_size=STEP_SIZE, schedule=decay, **settings)
        yield f"row_adam, {name}", fit.params
    fit = lowvar.fit(counts, {"y": y}, estimator="cv", optimizer=optax.adam(STEP_SIZE), schedule=decay, **settings)
    yield "sparse, cv", fit.params
    svi = SVI(counts, AutoNormal(counts), optax.adam(falling(steps)), Trace_ELBO())
    found = svi.run(jax.random.key(seed), steps, y=jnp.asarray(y), batch_size=batch, progress_bar=False)
    yield "numpyro", found.params


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "the same")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/local_latents.json"), help="JSON file")
    args = parser.parse_args(argv)
    if args.size == "smallest":
        args.rows, args.steps, args.batch, args.seeds = 20, 4, 10, 2
    warnings.simplefilter("ignore")  # fit says that optax moves rows at visits only
    rng = np.random.default_rng(0)
    y = rng.poisson(np.exp(1.0 + 0.8 * rng.normal(size=args.rows))).astype(np.float32)
    elbo, found = elbos_of(counts, args.rows, {"y": jnp.asarray(y)}), {}
    for seed in range(args.seeds):
        for name, params in fits(y, args.steps, args.batch, seed):
            found.setdefault(name, []).append(float(elbo(params).mean()))
    print(
        f"{args.rows} rows, {args.steps} steps, batches of {args.batch}, {args.seeds} seeds: nats above NumPyro's SVI\n"
    )
    print("| run | ELBO | above SVI |\n|---|---|---|")
    for name, elbos in found.items():
        mean, low, high = mean_interval(np.subtract(elbos, found["numpyro"]))
        print(f"| {name} | {np.mean(elbos):.0f} | {mean:.0f} [{low:.0f}, {high:.0f}] |")
    write(args.out, {"rows": args.rows, "steps": args.steps, "batch": args.batch, "elbo": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
