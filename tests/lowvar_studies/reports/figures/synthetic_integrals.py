"""Traces such as estimators of integrals leave, with magnitudes as in the experiments, and the tables that follow from them."""

import functools

import numpy as np
import pandas as pd

from lowvar_studies.reports.integral import errors as A
from lowvar_studies.reports.integral import estimates as E

# mean absolute errors by points, and the share of bias in the root mean square
BOREHOLE = {
    "monte_carlo": ((10, 6.4), (20, 4.3), (50, 2.6), (100, 1.83), (150, 1.42)),
    "zero_variance": ((10, 5.0), (20, 0.9), (50, 0.2), (100, 0.12), (150, 0.09)),
    "control_functional": ((10, 2.2), (20, 0.08), (50, 0.0086), (100, 0.0012), (150, 0.0003)),
    "vector_valued": ((10, 0.27), (20, 0.0176), (50, 0.0019), (100, 2e-4), (150, 4e-5)),
    "paper_cf": ((10, 2.24), (20, 1.96), (50, 1.76), (100, 1.71), (150, 1.67)),
    "paper_vv_fixed": ((10, 1.94), (20, 1.35), (50, 1.77), (100, 1.65), (150, 1.30)),
    "paper_vv": ((10, 3.72), (20, 1.29), (50, 1.04), (100, 1.07), (150, 0.85)),
}
BIAS = {"paper_cf": 0.95, "paper_vv_fixed": 0.6, "paper_vv": 0.5, "control_functional": 0.2}
LOTKA = {
    "monte_carlo": ((500, 0.28),), "control_functional": ((500, 0.002),), "vector_valued": ((500, 0.002),),
    "paper_cf": ((500, 0.27),), "paper_vv_fixed": ((500, 0.15),), "paper_vv": ((500, 0.14),),
}  # fmt: skip


def traces(rates, problem="borehole", tasks=("f_L", "f_H"), runs=40, value=72.8786, sizes="{m}", last=0, seed=0):
    """Estimates of every method, with Gaussian errors; ``last`` points of the last task, if it has its own number."""
    rng = np.random.default_rng(seed)
    rows = []
    for method, rate in rates.items():
        for m, mae in rate:
            part = BIAS.get(method, 0.0)
            sd = mae * np.sqrt(np.pi / 2) * np.sqrt(1 - part**2)
            for task in tasks:
                errors = mae * part + sd * rng.standard_normal(runs)
                own = last if last and task == tasks[-1] else m
                rows.append(
                    pd.DataFrame({"problem": problem, "method": method, "backend": "torch", "sizes": sizes.format(m=m), "points": (m + last) if last else m * len(tasks),
                                  "repetition": np.arange(runs), "task": task, "m": own, "value": value + errors, "standard_error": sd, "condition": 1e6,
                                  "flags": "", "status": "ok"})
                )  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def truth(traces, value=72.8786, error=0.0):
    known = traces[["problem", "task"]].drop_duplicates(ignore_index=True)
    return known.assign(truth=value, truth_error=error, how="quadrature")


def errors(traces, error=0.0):
    return A.errors(traces, truth(traces, error=error))


def estimates(traces, error=0.0):
    return E.estimates(traces, truth(traces, error=error))


def split(traces, error=0.0):
    return A.decomposition(traces, truth(traces, error=error))


def balanced(methods=tuple(BOREHOLE), **options):
    return traces({method: BOREHOLE[method] for method in methods}, **options)


def unbalanced(runs=12):
    rates = {m: tuple((k, dict(BOREHOLE[m])[20] * (1 + 0.1 * j)) for j, k in enumerate((20, 40, 60))) for m in BOREHOLE}
    return traces(rates, "borehole_unbalanced", sizes="{m}/20", last=20, runs=runs)


def lotka(runs=10):
    found = [traces(LOTKA, f"lotka_volterra_{t}", tuple(f"s{k}" for k in range(t)), runs, seed=t) for t in (2, 5, 10)]
    return pd.concat(found, ignore_index=True)


def seconds(table):
    cost = {name: (10.0 ** (rank % 4 - 3), 0.5 + rank % 3) for rank, name in enumerate(table["method"].drop_duplicates())}  # fmt: skip
    rows = table.drop_duplicates(A.KEYS)
    slow = [cost[method][0] * (m / 10) ** cost[method][1] for method, m in zip(rows["method"], rows["m"], strict=True)]
    spent = pd.Series(slow, rows.index) * rows["repetitions"]
    so_far = spent.groupby([rows["problem"], rows["method"]]).cumsum()
    return A.with_seconds(rows[[*A.KEYS, "repetitions"]].assign(seconds=so_far), table)


def fits(problems=("step",), methods=("control_functional", "vector_valued", "paper_cf", "paper_vv")):
    rng = np.random.default_rng(0)
    x = np.linspace(-4, 4, 161)
    functions = {
        "step": {"f_L": lambda x: np.where(x >= 0, 2.0, -1.0), "f_H": lambda x: np.where(x >= 0, 1.0, 0.0)},
        "south": {"f_1": lambda x: 1.5 + x + 1.5 * x**2 + 1.75 * np.sin(np.pi * x) * np.exp(-(x**2)), "f_2": lambda x: 1 + x + x**2 + np.sin(np.pi * x) * np.exp(-(x**2))},
    }  # fmt: skip
    rows = []
    for problem in problems:
        for task, f in functions[problem].items():
            points = np.sort(rng.standard_normal(40))
            density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
            for rank, method in enumerate(methods):
                inside = np.exp(-(np.maximum(np.abs(x) - 1.5 - 0.5 * (rank % 2), 0) ** 2))
                smooth = np.convolve(np.pad(f(x), 4, mode="edge"), np.ones(9) / 9, "valid")
                fitted = f(0.5) + (smooth - f(0.5)) * inside + 0.15 * (rank - 1) * np.sin(3 * x + rank)
                curve = {"x": x, "f": f(x), "fitted": fitted, "density": density, "kind": "curve"}
                point = {"x": points, "f": f(points), "fitted": np.nan, "density": np.nan, "kind": "point"}
                rows += [pd.DataFrame({"problem": problem, "task": task, "method": method} | each) for each in (curve, point)]  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def kernels(count=41, labels=("squared exponential", "polynomial, degree 1", "polynomial, degree 2")):
    x = np.linspace(-3, 3, count)
    a, b = np.meshgrid(x, x, indexing="ij")
    r = a - b
    total = 2.2
    values = (
        total * np.exp(-(r**2) / 2) * (1 - r**2 + r * (a - b) + a * b),
        total * (1 + a * b * (a * b + 1) - a * a - b * b),
        total * (2 * (a * b + 1) + 2 * a * b + (a * b) * (a * b + 1) ** 2 - 2 * (a * b + 1) * (a * a + b * b)),
    )
    return pd.concat(
        [pd.DataFrame({"kernel": label, "x": a.ravel(), "y": b.ravel(), "value": v.ravel()}) for label, v in zip(labels, values, strict=False)],
        ignore_index=True,
    )  # fmt: skip


def scores(count=31, points=80):
    x = np.linspace(0.3, 3.0, points)
    rows = []
    for index in range(count):
        t = (index / max(count - 1, 1)) ** 5
        prior = -1 / x - np.log(x) / (x * 0.25**2)
        likelihood = 300 * (1 - x) + 60 * np.sin(4 * x)
        rows.append(pd.DataFrame({"target": index, "temperature": t, "x": x, "score": prior + t * likelihood}))
    return pd.concat(rows, ignore_index=True)


def predictive():
    years = np.arange(0, 21)
    grid = np.unique(np.r_[years, np.round(np.linspace(0, 20, 101), 6), 12 + 0.2 * np.arange(10)])
    rows = []
    rng = np.random.default_rng(0)
    for k, (series, level) in enumerate((("hare", 35.0), ("lynx", 20.0))):
        mean = level * np.exp(0.9 * np.sin(2 * np.pi * (grid - 2.0 * k) / 10.5))
        seen = np.isin(grid, years)
        observed = np.where(seen, mean * rng.lognormal(0, 0.2, len(grid)), np.nan)
        task = np.isin(np.round(grid, 6), np.round(12 + 0.2 * np.arange(10), 6)) if k == 0 else False
        rows.append(pd.DataFrame({"series": series, "time": 1900 + grid, "mean": mean, "low": mean * 0.75, "high": mean * 1.3, "observed": observed, "task": task}))  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def epochs(problems=("step, squared exponential", "step, polynomial"), last=400):
    rows = []
    at = np.unique(np.round(np.geomspace(1, last, 40)))
    for k, problem in enumerate(problems):
        for rank, method in enumerate(("paper_cf", "paper_vv_fixed_01", "paper_vv_fixed_05", "paper_vv")):
            mae = 0.08 * (1 + k) * np.exp(-at / (30 + 20 * rank)) + 0.03 + 0.006 * rank + 0.02 * k
            rows.append(pd.DataFrame({"problem": problem, "method": method, "part": at / last, "mae": mae, "low": 0.9 * mae, "high": 1.1 * mae}))  # fmt: skip
    return pd.concat(rows, ignore_index=True)


# the figures of integrals, and a column that each needs
FIGURES = {
    "errors": "mae",
    "boxes": "error",
    "split": "bias2",
    "fits": "fitted",
    "stein_kernels": "kernel",
    "power_scores": "temperature",
    "predictive": "observed",
    "seconds": "seconds_per_repetition",
    "epochs": "part",
}


@functools.cache
def _few():
    return balanced(("monte_carlo", "control_functional", "vector_valued", "paper_vv"), runs=12)


@functools.cache
def small(name):
    """What a figure draws, of one problem and few methods."""
    make = {
        "errors": lambda: errors(_few()),
        "boxes": lambda: estimates(_few()),
        "split": lambda: split(_few()),
        "fits": fits,
        "stein_kernels": functools.partial(kernels, 21),
        "power_scores": functools.partial(scores, 7, 20),
        "predictive": predictive,
        "seconds": lambda: seconds(small("errors")),
        "epochs": epochs,
    }
    return make[name]()
