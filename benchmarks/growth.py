"""How the time of a fit grows with the number of rows, against NumPyro's ``SVI(AutoNormal, Trace_ELBO, Adam(0.01))``.

    python benchmarks/growth.py                  # 1e2 to 1e7 rows, two rounds; 10 GB of memory at 1e7
    python benchmarks/growth.py --rows 1000000

Logistic regression, 20 000 steps with batches of 100, compilation included: the steps are the same, so the time is
that to about the same ELBO. ``fit`` also checks the model, and computes ELBOs on all rows and, for few rows, k-hat;
``SVI`` does neither. Before every fit, JAX's caches are cleared; the tools alternate in who is first. CPU seconds, and
ratios of these. Final ELBOs are of all rows, from the same draws.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import first_fit
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from vi_step import add_sizes, sized, write

DIM, STEPS = 20, 20_000
_EVALUATED = 2e7  # rows times draws of a final ELBO


def logistic(N):
    """Logistic regression with ``DIM`` features: ``(model, data)``, single precision."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, DIM), dtype=np.float32)
    w = rng.normal(size=DIM).astype(np.float32) / np.sqrt(DIM)
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ w))).astype(np.int32)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([DIM]).to_event(1))
        with first_fit.rows(N) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ b), obs=y[i])

    return model, {"x": x, "y": y}


def naive(model, data, seed, steps):
    """``lowvar.fit`` with SVI's own estimator: its parameters."""
    import lowvar

    return lowvar.fit(model, data, seed=seed, num_steps=steps, estimator="naive", progress=False).params


TOOLS = {"svi": first_fit.theirs, "naive": naive, "default": first_fit.ours}


def compare(N, rounds, steps):
    """CPU seconds and final ELBOs of the tools, by round."""
    model, data = logistic(N)
    found = []
    for round_ in range(rounds):
        row, params = {}, {}
        for tool in sorted(TOOLS, reverse=round_ % 2 == 1):
            jax.clear_caches()
            start = time.process_time()
            params[tool] = TOOLS[tool](model, data, round_, steps)
            row[f"{tool} CPU"] = time.process_time() - start
        draws = int(np.clip(_EVALUATED / N, 16, 1024))
        row |= dict(zip((f"{tool} elbo" for tool in params), first_fit.judged(model, data, params.values(), draws),
                        strict=True))  # fmt: skip
        found.append(row)
    return found


def main():
    """Prints a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, action="append", help="default: 1e2, 1e3, ..., 1e7")
    parser.add_argument("--rounds", type=int, help="default: 2")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/growth.json"), help="JSON file")
    add_sizes(parser, "one round, up to 1e5 rows")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    rounds, steps = args.rounds or sized(args.size, 2, 1, 1), sized(args.size, STEPS, STEPS, 20)
    print(
        "| rows | SVI, CPU s | `naive` | default | `naive` / SVI | default / SVI | nats above SVI: `naive` | default |"
    )
    print("|---" * 8 + "|")
    found = {}
    for N in map(int, args.rows or [10.0**k for k in range(2, sized(args.size, 8, 6, 3))]):
        runs = found[N] = compare(N, rounds, steps)
        of = {key: np.array([run[key] for run in runs]) for key in runs[0]}
        cells = [f"{np.median(of[f'{tool} CPU']):.1f}" for tool in TOOLS]
        cells += [f"{np.median(of[f'{tool} CPU'] / of['svi CPU']):.2f}" for tool in ("naive", "default")]
        for tool in ("naive", "default"):
            more = of[f"{tool} elbo"] - of["svi elbo"]
            cells.append(f"{more.mean():+.3g} [{more.min():+.3g}, {more.max():+.3g}]")
        print(f"| {N:.0e} | ".replace("e+0", "e") + " | ".join(cells) + " |", flush=True)
        write(args.out, {"rounds": rounds, "steps": steps, "runs": found})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
