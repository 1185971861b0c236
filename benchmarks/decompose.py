"""Time and precision of ``lowvar.decompose`` by the number of rows, and what the time is made of.

    python benchmarks/decompose.py              # 1e3 to 1e6 rows: some minutes
    python benchmarks/decompose.py --smallest

Logistic regression with 50 features at a fit of 2000 steps, batches of 100, the default estimators (``naive``, ``stl``,
``cv``, ``joint``, ``joint_svrg``, ``joint_adaptive``), a first call with compilation. CPU seconds. The precision is the
largest half width of a 95 % interval of a total variance of all parameters, relative to that variance. Parts of the
time: ``follow`` (the last epochs of the fit again, for the memories of the estimators) and ``times`` (the time of a
step of each estimator).
"""

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import growth
import jax
import numpy as np
from vi_step import add_sizes, sized, write

import lowvar
from lowvar.api import decompose as module

ROWS, DIM, STEPS = (10**3, 10**4, 10**5, 2 * 10**5, 10**6), 50, 2000
PARTS = {"follow": "_along", "times": "_times"}  # functions of the module that are timed within a call


def compare(N: int, dim: int, steps: int) -> dict:
    """Seconds and precision of a decomposition."""
    model, data = growth.logistic(N, dim)
    fit = lowvar.fit(model, data, num_steps=steps, khat_samples=0, elbo_samples=4, progress=False)
    jax.clear_caches()
    parts = dict.fromkeys(PARTS, 0.0)

    def clocked(part, function):
        def run(*args, **kwargs):
            start = time.process_time()
            found = jax.block_until_ready(function(*args, **kwargs)) if part == "times" else function(*args, **kwargs)
            parts[part] += time.process_time() - start
            return found

        return run

    kept = {part: getattr(module, name) for part, name in PARTS.items()}
    try:
        for part, name in PARTS.items():
            setattr(module, name, clocked(part, kept[part]))
        start = time.process_time()
        noise = lowvar.decompose(model, data, fit, progress=False)
        seconds = time.process_time() - start
    finally:
        for part, name in PARTS.items():
            setattr(module, name, kept[part])
    table = noise.table[(noise.table["source"] == "total") & (noise.table["block"] == "all")]
    half = {row.method: float((row.high - row.low) / 2 / row.variance) for row in table.itertuples(index=False)}
    return {"seconds": seconds, "parts": parts, "half_widths": half}


def main():
    """Prints a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, action="append", help="this number of rows (may be repeated)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/decompose.json"), help="JSON file")
    add_sizes(parser, "up to 2e5 rows")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    print("| rows | CPU s | of these follow | times | largest half width |\n" + "|---" * 5 + "|")
    found = {}
    for N in map(int, args.rows or sized(args.size, ROWS, ROWS[:4], (200,))):
        one = found[N] = compare(N, sized(args.size, DIM, DIM, 3), sized(args.size, STEPS, STEPS, 20))
        cells = [f"{one['seconds']:.1f}", *(f"{one['parts'][part]:.1f}" for part in PARTS)]
        print(f"| {N} | " + " | ".join(cells) + f" | {np.max(list(one['half_widths'].values())):.2f} |", flush=True)
        write(args.out, {"steps": STEPS, "dim": DIM, "rows": found})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
