"""`minimize` on noisy functions: what the default reaches, beside its two searches and pycma.

Each run starts at 0 with ``sigma0 = 1`` and a budget per dimension; all methods have the same seeds. The gap is the
true value at the final mean. Usage: `python benchmarks/noisy_search.py [--quick | --smallest] [--runs 12]`.
"""

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
from vi_step import add_sizes, environment, sized, write

import lowvar

METHODS = ("auto", "ingo_cma", "ingo_path", "pycma")
DIMS, PER_DIMENSION = (3, 10), (100, 300, 1000)
LEAST = 1e-12  # smaller gaps count as this


def sphere(x):
    return float(((x - 1.3) ** 2).sum())


def ellipsoid(x):
    """Condition number 1000, under a fixed rotation."""
    dim = len(x)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(dim, dim)))[0]
    return float((10 ** (3 * np.arange(dim) / (dim - 1)) * (turn @ (x - 1)) ** 2).sum())


def rosenbrock(x):
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def rastrigin(x):
    return float(10 * len(x) + ((x - 0.3) ** 2 - 10 * np.cos(2 * np.pi * (x - 0.3))).sum())


FUNCTIONS = {f.__name__: f for f in (sphere, ellipsoid, rosenbrock, rastrigin)}
NOISES = {
    "added, 1": lambda value, rng: value + rng.normal(),
    "factor, 0.5": lambda value, rng: value * np.exp(0.5 * rng.normal()),
}


def gap(method: str, function: str, noise: str, dim: int, budget: int, seed: int) -> float:
    """The decimal logarithm of the true value at the final mean."""
    rng, f, seen = np.random.default_rng(seed), FUNCTIONS[function], NOISES[noise]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = lowvar.minimize(
            lambda x: seen(f(x), rng), np.zeros(dim), 1.0, method, budget=budget, seed=seed, noisy=True, progress=False
        )
    return float(np.log10(max(f(result.mean), LEAST)))


def main():
    """Prints the mean logarithm of the gap of each method, and writes them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="seeds (default: 12)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/noisy_search.json"), help="JSON file")
    add_sizes(parser, "three seeds, the smaller budgets")
    args = parser.parse_args()
    runs = args.runs or sized(args.size, 12, 3, 2)
    dims, per = sized(args.size, DIMS, DIMS, (2,)), sized(args.size, PER_DIMENSION, PER_DIMENSION[:2], (20,))
    print("| d | budget / d | function | noise | " + " | ".join(METHODS) + " |")
    rows = []
    for dim, each, function, noise in itertools.product(dims, per, FUNCTIONS, NOISES):
        gaps = {m: [gap(m, function, noise, dim, each * dim, seed) for seed in range(runs)] for m in METHODS}
        rows.append({"dim": dim, "per_dimension": each, "function": function, "noise": noise, "gaps": gaps})
        cells = (f"{np.mean(g):.1f} ± {2 * np.std(g, ddof=1) / runs**0.5:.1f}" for g in gaps.values())
        print(f"| {dim} | {each} | {function} | {noise} | " + " | ".join(cells) + " |", flush=True)
    write(args.out, {"environment": environment("float64"), "runs": runs, "cases": rows})
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
