"""Traces such as black-box searches leave, with magnitudes as in the experiments, and the tables that follow from them."""

import functools

import numpy as np
import pandas as pd

from lowvar_studies.reports.search import progress as A

# evaluations to 1e-10 by method; infinite with the gap at which it stalls
MEDIANS = {
    "ellipsoid": {"fast_ingo": 5e4, "fast_ingo_adaptive": 2.4e4, "ingo": 5.9e5, "ingo_step": 6.2e5, "igo": (np.inf, 75), "es": (np.inf, 3e4), "reinforce_gd": None, "pycma": 3e5, "cmaes": 3.2e5, "sep_cmaes": 4e4, "evosax_snes": 9e4, "evosax_xnes": (np.inf, 1e2), "evosax_open_es": (np.inf, 2e4)},
    "discus": {"fast_ingo": 4e4, "fast_ingo_adaptive": 2e4, "ingo": 4.5e5, "ingo_step": 4.7e5, "igo": (np.inf, 1.35), "es": (np.inf, 1e2), "reinforce_gd": None, "pycma": 8.8e4, "cmaes": 9e4, "sep_cmaes": 5e4, "evosax_snes": 8e4, "evosax_xnes": (np.inf, 1), "evosax_open_es": (np.inf, 50)},
    "levy": {"fast_ingo": 3.8e4, "fast_ingo_adaptive": 1.5e4, "ingo": 4.5e5, "ingo_step": 4.8e5, "igo": (np.inf, 0.37), "es": (np.inf, 5.0), "reinforce_gd": None, "pycma": (np.inf, 0.35), "cmaes": (np.inf, 0.4), "sep_cmaes": (np.inf, 0.4), "evosax_snes": (np.inf, 0.1), "evosax_xnes": (np.inf, 0.4), "evosax_open_es": (np.inf, 3)},
    "l1_ellipsoid": {"fast_ingo": 1.08e5, "fast_ingo_adaptive": 7e4, "ingo": 1.38e6, "ingo_step": 1.39e6, "igo": (np.inf, 335), "es": (np.inf, 1e4), "reinforce_gd": None, "pycma": (np.inf, 4e3), "cmaes": (np.inf, 5e3), "sep_cmaes": 3e5, "evosax_snes": 2e5, "evosax_xnes": (np.inf, 1e3), "evosax_open_es": (np.inf, 1e4)},
    "l_half_ellipsoid": {"fast_ingo": 2.5e5, "fast_ingo_adaptive": 1.1e5, "ingo": (np.inf, 1e-4), "ingo_step": (np.inf, 1e-4), "igo": (np.inf, 2.7e3), "es": (np.inf, 4e5), "reinforce_gd": None, "pycma": (np.inf, 4e5), "cmaes": (np.inf, 4e5), "sep_cmaes": (np.inf, 1e5), "evosax_snes": (np.inf, 1e-2), "evosax_xnes": (np.inf, 1e4), "evosax_open_es": (np.inf, 1e5)},
    "rastrigin10": {"fast_ingo": (np.inf, 9.45), "fast_ingo_adaptive": (np.inf, 14), "ingo": (np.inf, 60), "ingo_step": (np.inf, 62), "igo": (np.inf, 300), "es": (np.inf, 500), "reinforce_gd": None, "pycma": (np.inf, 200), "cmaes": (np.inf, 210), "sep_cmaes": (np.inf, 150), "evosax_snes": (np.inf, 90), "evosax_xnes": (np.inf, 180), "evosax_open_es": (np.inf, 300)},
}  # fmt: skip
TEN = ("fast_ingo", "fast_ingo_adaptive", "ingo", "ingo_step", "igo", "es", "reinforce_gd", "pycma", "sep_cmaes", "evosax_snes")  # fmt: skip
TARGETS = 10.0 ** (np.arange(20, -51, -1) / 5)


def searches(rates, dim=100, population=18, budget=1.4e6, runs=20, backends=("jax",), start=1e6, seed=0):
    """Traces and hits of every problem and method; a rate is evaluations to 1e-10, or (inf, where it stalls)."""
    rng = np.random.default_rng(seed)
    traces, hits = [], []
    for problem, methods in rates.items():
        for method, rate in methods.items():
            for backend in backends:
                trace, hit = _searches(problem, method, backend, rate, dim, population, budget, runs, start, rng)
                traces += trace
                hits += hit
    return pd.DataFrame(traces), pd.DataFrame(hits)


def _searches(problem, method, backend, rate, dim, population, budget, runs, start, rng):
    traces, hits = [], []
    last = int(budget // population)
    needed, floor = rate if isinstance(rate, tuple) else (rate or 1e5, 0.0)
    steep = 16 / (needed if np.isfinite(needed) else budget / 12)
    speed = steep * rng.lognormal(0, 0.04, runs)
    height = np.log10(start) + rng.normal(0, 0.1, runs)
    floor = floor * rng.lognormal(0, 0.3, runs)
    if not isinstance(rate, tuple) and rate:
        last = min(last, int((height + 10.05).max() / speed.min() / population) + 1)
    grid = np.unique(np.r_[0, np.geomspace(1, last, 60).astype(int)])
    for r in range(runs):
        lost = rate is None
        for i in grid:
            e = i * population
            gap = 10 ** max(height[r] - speed[r] * e, -15) + floor[r]
            traces.append({"problem": problem, "method": method, "backend": backend, "repetition": r, "iteration": i, "evaluations": e,
                           "f": np.nan if lost and i > 50 else gap, "best": 0.5 * gap, "sigma": 0.5 * gap**0.1, "condition": 1e3,
                           "failures": 0, "status": "diverged" if lost and i > 50 else "ok"})  # fmt: skip
        for of, ease in (("mean", 1.0), ("best", 0.95)):
            e = (height[r] - np.log10(np.maximum(TARGETS - floor[r], 1e-300))) / speed[r] * ease
            e = np.where((floor[r] < TARGETS) & (not lost), np.maximum(np.ceil(e / population) * population, 0), np.inf)
            e = np.where(e <= last * population, e, np.inf)
            hits += [{"problem": problem, "method": method, "backend": backend, "repetition": r, "target": t, "of": of,
                      "evaluations": x, "budget": budget} for t, x in zip(TARGETS, e, strict=True)]  # fmt: skip
    return traces, hits


def made_up(problems=tuple(MEDIANS), methods=TEN, runs=6, **options):
    return searches({p: {m: MEDIANS[p][m] for m in methods} for p in problems}, runs=runs, **options)


def known(traces, value=0.0):
    return dict.fromkeys(traces["problem"].unique(), value), dict.fromkeys(traces["problem"].unique(), 100)


def curves(traces, hits):
    return A.curves(traces, hits, *known(traces))


def targets(traces, hits):
    return A.targets(traces, hits, *known(traces))


def profiles(traces, hits):
    return A.profiles(hits, *known(traces))


def groups(traces, hits):
    names = list(dict.fromkeys(traces["problem"]))
    return A.profiles(hits, *known(traces), {"smooth": names[:1], "rough": names})


def seconds(traces, hits):
    table = curves(traces, hits)
    runs = int(table["repetitions"].max())
    cost = {name: 10.0 ** (rank % 4 - 6) for rank, name in enumerate(table["method"].unique())}
    timings = table[[*A.KEYS, "iteration", "evaluations"]].assign(compile_seconds=1.5, repetitions=runs)
    timings["seconds"] = runs * timings["evaluations"] * timings["method"].map(cost)
    return A.with_seconds(table, timings)


def policies(names=("swimmer", "half_cheetah"), methods=("fast_ingo", "es"), runs=5, budget=2e4):
    rng = np.random.default_rng(1)
    rows = []
    for problem in names:
        for rank, method in enumerate(methods):
            for r in range(runs):
                top = 300 * rng.lognormal(0, 0.15) / (1 + rank)
                for i in np.unique(np.r_[0, np.geomspace(1, budget // 40, 40).astype(int)]):
                    f = -top * (1 - np.exp(-i / 120)) + rng.normal(0, 5)
                    rows.append({"problem": problem, "method": method, "backend": "jax", "repetition": r, "iteration": i, "evaluations": 40 * i,
                                 "f": f, "best": f - 20, "sigma": 0.1, "condition": 1.0, "failures": 0, "status": "ok"})  # fmt: skip
    traces = pd.DataFrame(rows)
    hits = pd.DataFrame(columns=["problem", "method", "backend", "repetition", "target", "of", "evaluations", "budget"])
    return A.curves(traces, hits, *known(traces, None))


def discrete(dims=(100, 500), methods=("ingo_binary", "pymoo_ga"), runs=6):
    rng = np.random.default_rng(2)
    rows = []
    for d in dims:
        for method in methods:
            scale = {"ingo_binary": 800.0, "pymoo_ga": 50.0}[method] * d
            for r in range(runs):
                pace = rng.lognormal(0, 0.05)
                for i in np.unique(np.r_[0, np.geomspace(1, 2e4, 50).astype(int)]):
                    gap = 0.8 * d * np.exp(-12 * i * 72 / scale / pace)
                    gap = 0.0 if gap < 0.01 else gap
                    rows.append({"problem": f"binary_{d}", "method": method, "backend": "jax", "repetition": r, "iteration": i, "evaluations": 72 * i,
                                 "f": gap, "best": 0.8 * gap, "sigma": np.nan, "condition": np.nan, "failures": 0, "status": "ok"})  # fmt: skip
    traces = pd.DataFrame(rows)
    hits = traces.iloc[:0].assign(target=1.0, of="mean", budget=1.0)
    return A.curves(traces, hits, *known(traces))


def dimensions(dims=(10, 30, 100, 300, 1000), functions=("ellipsoid", "levy")):
    """The table ``targets`` of functions in several dimensions."""
    slope = {"fast_ingo": 1.0, "ingo": 2.1, "pycma": 1.8, "evosax_snes": 1.1}
    found = []
    for d in dims:
        rates = {
            f"{f}_{d}": {
                m: 5e2 * (1 + k) * d**s if d**s < 3e5 else (np.inf, 1.0) for k, (m, s) in enumerate(slope.items())
            }
            for f in functions
        }
        traces, hits = searches(rates, runs=6, budget=3e8, population=2 * d)
        found.append(A.targets(traces, hits, dict.fromkeys(rates, 0.0), dict.fromkeys(rates, d)))
    return pd.concat(found, ignore_index=True)


def decomposition(problems=("ellipsoid", "levy", "rastrigin10"), dim=100, sigmas=(0.01, 0.1, 0.5), baselines=("none", "mean", "centre")):  # fmt: skip
    rng = np.random.default_rng(3)
    rows = []
    for rank, problem in enumerate(problems):
        for sigma in sigmas:
            odd = {"mu": 0.9 - 0.3 * sigma * rank, "sigma": 0.15 + 0.2 * rank}
            for population in (4, 10, 18, 50, 100, 200):
                for scheme in ("iid", "antithetic", "orthogonal", "rqmc"):
                    near = min(population / dim, 1.0)
                    factor = {
                        "iid": 1.0,
                        "antithetic": 2 * odd["mu"],
                        "orthogonal": max(1 - 0.7 * near, 0.05) if near < 1 else 0.04,
                        "rqmc": 0.9 - 0.5 * near,
                    }[scheme]
                    for baseline in baselines:
                        for block in ("mu", "sigma"):
                            for source, share in (("total", 1.0), ("odd", odd[block]), ("even", 1 - odd[block])):
                                ratio = factor * rng.lognormal(0, 0.03) * (1.1 if block == "sigma" else 1.0)
                                variance = ratio * share / population
                                rows.append({"problem": problem, "dim": dim, "sigma": sigma, "population": population, "scheme": scheme, "baseline": baseline,
                                             "block": block, "source": source, "variance": variance, "low": 0.9 * variance, "high": 1.1 * variance,
                                             "relative": variance, "relative_low": 0.9 * variance, "relative_high": 1.1 * variance,
                                             "to_iid": ratio, "to_iid_low": 0.93 * ratio, "to_iid_high": 1.07 * ratio})  # fmt: skip
    return pd.DataFrame(rows)


def regret(problems=("sphere", "elastic_net"), methods=("ingo_first_order", "ingo_zeroth_order")):
    """The table ``regret`` of errors that are powers of the number of generations."""
    rows = []
    for problem in problems:
        for rank, method in enumerate(methods):
            for of, power in (("average", -1.0), ("last", -0.75 - rank)):
                for i in np.unique(np.geomspace(1, 1e5, 60).astype(int)):
                    gap = (2.0 + rank) * i**power
                    rows.append({"problem": problem, "method": method, "backend": "jax", "of": of, "iteration": i, "gap_mean": gap,
                                 "gap_low": 0.9 * gap, "gap_high": 1.1 * gap, "repetitions": 6, "fitted": i >= 1000})  # fmt: skip
    return pd.DataFrame(rows)


# the figures of searches, and a column that each needs
FIGURES = {
    "curves": "f_median",
    "seconds": "seconds",
    "profiles": "share",
    "groups": "share",
    "effort": "reached",
    "scaling": "dim",
    "rates": "gap_mean",
    "gradients": "to_iid",
}


@functools.cache
def _few():
    return made_up(("ellipsoid", "rastrigin10"), ("fast_ingo", "igo", "reinforce_gd", "pycma"))


@functools.cache
def small(name):
    """What a figure draws, of two problems and few methods."""
    if name == "scaling":
        return dimensions((10, 100, 1000), ("ellipsoid",))
    if name == "rates":
        return regret()
    if name == "gradients":
        return decomposition(("ellipsoid", "levy"), sigmas=(0.1, 0.5))
    make = {"curves": curves, "seconds": seconds, "profiles": profiles, "groups": groups, "effort": targets}
    return make[name](*_few())
