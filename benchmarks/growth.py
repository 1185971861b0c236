"""How the time of a fit grows with rows and features, against NumPyro's ``SVI(AutoNormal, Trace_ELBO, Adam(0.01))``.

    python benchmarks/growth.py                  # 1e2 to 1e7 rows, 5 to 2000 features; 10 GB of memory at 1e7 rows
    python benchmarks/growth.py --only rows --at 1000000

Logistic regression, 20 000 steps with batches of 100, compilation included: the steps are the same, so the time is
that to about the same ELBO. ``fit`` also checks the model, and computes ELBOs on all rows and, for few rows, k-hat;
``SVI`` does neither. Before every fit, JAX's caches are cleared; the tools alternate in who is first. CPU seconds, and
ratios of these. Final ELBOs are of all rows, from the same draws.
"""

import argparse
import os
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import first_fit
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from vi_step import add_sizes, sized, write

DIM, ROWS, STEPS = 20, 10_000, 20_000  # features where the rows vary, rows where the features do, and steps
AXES = {"rows": (10**2, 10**3, 10**4, 10**5, 10**6, 10**7), "features": (5, 50, 500, 2000)}
_EVALUATED = 2e7  # rows times draws of a final ELBO


def logistic(N, dim):
    """Logistic regression with ``dim`` features: ``(model, data)``, single precision."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, dim), dtype=np.float32)
    w = rng.normal(size=dim).astype(np.float32) / np.sqrt(dim)
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ w))).astype(np.int32)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([dim]).to_event(1))
        with first_fit.rows(N) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ b), obs=y[i])

    return model, {"x": x, "y": y}


def naive(model, data, seed, steps):
    """``lowvar.fit`` with SVI's own estimator: its parameters."""
    import lowvar

    return lowvar.fit(model, data, seed=seed, num_steps=steps, estimator="naive", progress=False).params


TOOLS = {"svi": first_fit.theirs, "naive": naive, "default": first_fit.ours}


@contextmanager
def clocked(seconds):
    """Adds to ``seconds`` the CPU seconds of the ELBOs and of k-hat of the fits inside."""
    from lowvar.api import fit
    from lowvar.studies.variational.engine import VariationalEngine

    def timed(part, function):
        def run(*args, **kwargs):
            start = time.process_time()
            try:
                return jax.block_until_ready(function(*args, **kwargs))
            finally:
                seconds[part] = seconds.get(part, 0.0) + time.process_time() - start

        return run

    kept = VariationalEngine.measure, fit.judged
    VariationalEngine.measure, fit.judged = timed("elbos", kept[0]), timed("khat", kept[1])
    try:
        yield
    finally:
        VariationalEngine.measure, fit.judged = kept


def compare(N, dim, rounds, steps):
    """CPU seconds and final ELBOs of the tools, by round; of ``fit`` also those that ELBOs and k-hat take."""
    model, data = logistic(N, dim)
    found = []
    for round_ in range(rounds):
        row, params = {}, {}
        for tool in sorted(TOOLS, reverse=round_ % 2 == 1):
            jax.clear_caches()
            start, parts = time.process_time(), {}
            with clocked(parts):
                params[tool] = TOOLS[tool](model, data, round_, steps)
            row[f"{tool} CPU"] = time.process_time() - start
            row |= {f"{tool} {part}": seconds for part, seconds in parts.items()}
        draws = int(np.clip(_EVALUATED / N, 16, 1024))
        row |= dict(zip((f"{tool} elbo" for tool in params), first_fit.judged(model, data, params.values(), draws),
                        strict=True))  # fmt: skip
        found.append(row)
    return found


def main():
    """Prints a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=AXES, help="this axis")
    parser.add_argument("--at", type=float, action="append", help="this number of rows or features (may be repeated)")
    parser.add_argument("--rounds", type=int, help="default: 2")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/growth.json"), help="JSON file")
    add_sizes(parser, "one round, up to 1e5 rows, up to 500 features")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    rounds, steps = args.rounds or sized(args.size, 2, 1, 1), sized(args.size, STEPS, STEPS, 20)
    sections = {}
    for axis in [args.only] if args.only else AXES:
        print(
            f"| {axis} | SVI, CPU s | `naive` | default | `naive` / SVI | default / SVI | nats above SVI: `naive` | "
            "default |"
        )
        print("|---" * 8 + "|")
        fewer = {"rows": 4, "features": 3}[axis]
        for at in map(int, args.at or AXES[axis][: sized(args.size, None, fewer, 1)]):
            N, dim = (at, DIM) if axis == "rows" else (ROWS, at)
            runs = sections.setdefault(axis, {})[at] = compare(N, dim, rounds, steps)
            print(f"| {at:,} | ".replace(",", " ") + " | ".join(cells(runs)) + " |", flush=True)
            write(args.out, {"rounds": rounds, "steps": steps, "sections": sections})
    print(f"\nwrote {args.out}")


def cells(runs):
    """The cells of a row, from its rounds."""
    of = {key: np.array([run[key] for run in runs]) for key in runs[0]}
    found = [f"{np.median(of[f'{tool} CPU']):.1f}" for tool in TOOLS]
    found += [f"{np.median(of[f'{tool} CPU'] / of['svi CPU']):.2f}" for tool in ("naive", "default")]
    for tool in ("naive", "default"):
        more = of[f"{tool} elbo"] - of["svi elbo"]
        found.append(f"{more.mean():+.3g} [{more.min():+.3g}, {more.max():+.3g}]")
    return found


if __name__ == "__main__":
    main()
