"""Traces such as multilevel runs leave, with the magnitudes of a Bayesian logistic regression, and their tables."""

import functools
from types import SimpleNamespace

import numpy as np
import pandas as pd

from lowvar_studies.reports.variational import convergence as C
from lowvar_studies.reports.variational import diagnostics as D
from lowvar_studies.reports.variational import selection

PAPER = ("mc", "rqmc", "mlmc")
ALL = (*PAPER, "mlmc_rqmc", "mlmc_cv", "mlmc_prox", "mlmc_restart", "mlmc_adaptive", "mlmc_adam", "storm", "storm_rqmc",
       "mc_sgd", "rqmc_sgd")  # fmt: skip
# method -> (conditional variance, true error) as multiples of mc's 10, and how well it ends
NOISE = {"mc": (1.0, 1.0), "rqmc": (0.1, 0.1), "mlmc": (1e-4, 70.0), "mlmc_rqmc": (1e-5, 8.0), "mlmc_cv": (3e-5, 30.0),
         "mlmc_prox": (2e-4, 50.0), "mlmc_restart": (1e-3, 5.0), "mlmc_adaptive": (1e-2, 0.7), "mlmc_adam": (1e-4, 60.0),
         "storm": (1e-2, 0.12), "storm_rqmc": (1e-3, 0.02), "mc_sgd": (1.0, 1.0), "rqmc_sgd": (0.1, 0.1)}  # fmt: skip
STOPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SCHEDULE = SimpleNamespace(kind="step", beta=0.5, r=100)


def eta(iteration, schedule=SCHEDULE):
    return schedule.beta ** (iteration // schedule.r)


def traces(problems=("hlr", "blr", "bnn"), methods=PAPER, steps=(0.01, 0.001), repetitions=4, tests=True, lost=()):
    """``lost`` has pairs (problem, method) all of whose runs diverge after a while."""
    rng = np.random.default_rng(5)
    rows = []
    for rank, problem in enumerate(problems):
        scale, top = (40.0, 1.0, 5.0)[rank % 3], (-650.0, -60.0, -150.0)[rank % 3]
        for method in methods:
            conditional, true = NOISE[method]
            shrinks = method.startswith("mlmc")
            for step in steps:
                for repetition in range(repetitions):
                    wobble, spent = rng.lognormal(0, 0.15), 0.0
                    for at, t in enumerate(STOPS):
                        particles = int(np.ceil(eta(max(t - 1, 0)) * 100)) if shrinks else 100
                        spent += 455 * particles * (t - STOPS[at - 1] if at else 0) * (2 if shrinks else 1)
                        signal = scale * 5e3 * np.exp(-min(200 * step * t**0.5, 6))
                        falls = eta(t) ** 2 if shrinks else 1.0
                        now = scale * 10 * wobble * rng.lognormal(0, 0.1)
                        variance = now * (conditional * falls if t else 1.0)
                        squared = now * (true if t else 1.0)
                        bias = 0.1 * squared / scale if step == 0.01 else 0.3 * squared / scale
                        elbo = top - 200 * np.exp(-min(100 * step * t**0.5, 9)) - bias - 0.1 * rng.random()
                        gone = (problem, method) in lost and t > 64
                        rows.append(
                            {"problem": problem, "method": method, "backend": "jax", "step_size": step,
                             "repetition": repetition, "epoch": t, "iteration": t, "gradients": int(spent), "hvps": 0,
                             "particles": particles, "elbo": np.nan if gone else elbo, "elbo_se": 0.1,
                             "test_log_likelihood": np.nan if gone else elbo / 500,
                             "variance": np.nan if gone else variance, "mean2": np.nan if gone else signal + squared,
                             "squared_error": np.nan if gone else squared, "signal": np.nan if gone else signal,
                             "reference_error": 0.02 * scale, "status": "diverged" if gone else "ok"}
                        )  # fmt: skip
    table = pd.DataFrame(rows)
    return table if tests else table.drop(columns="test_log_likelihood")


def measured(made):
    """``convergence`` and ``measured`` of traces."""
    table = C.convergence(made, {}, dict.fromkeys(made["problem"].unique(), 455))
    return table, D.measured(made, table)


def tables(made):
    """``convergence``, ``measured`` and ``diagnostics`` of traces."""
    table, measures = measured(made)
    return table, measures, D.diagnostics(measures)


def timings(made):
    """Times of which every gradient takes ten nanoseconds and every step twenty microseconds."""
    first = made.drop_duplicates(["problem", "method", "backend", "epoch"])
    seconds = 1e-8 * first["gradients"] + 2e-5 * first["iteration"]
    return first[["problem", "method", "backend", "epoch"]].assign(seconds_per_run=seconds)


def fractions(parts=(1.0, 0.8, 0.6, 0.4, 0.2, 0.1), methods=PAPER):
    """Tests on fashion, worse the fewer the rows."""
    names = {f"fashion_{round(100 * part)}": part for part in parts}
    made = traces(tuple(names), methods, steps=(0.01, 0.005, 0.001))
    worth = {"mc": 0.0, "rqmc": 0.004, "mlmc": 0.02, "mlmc_prox": 0.01}
    noise = np.random.default_rng(1).normal(0, 0.004, len(made))
    made["test_log_likelihood"] = (
        -0.5 - 0.08 / made["problem"].map(names) ** 0.5 + made["method"].map(worth) + noise
        - 1.5 * np.exp(-30 * made["step_size"] * made["iteration"] ** 0.5)
    )  # fmt: skip
    _, measures = measured(made)
    model = SimpleNamespace(model="blr_softmax", dataset="fashion_mnist", guide=None)
    return D.fractions(measures, dict.fromkeys(names, model), {name: int(56000 * part) for name, part in names.items()})


def settings(problems=("hlr", "blr", "bnn"), betas=(0.1, 0.4, 0.7, 1.0), drops=(10, 50, 100, 250, 500), steps=5):
    """ELBOs at the end, which fall away from one setting and diverge at the largest steps with slow decay."""
    rng = np.random.default_rng(2)
    rows, plans = [], {}
    for rank, problem in enumerate(problems):
        grid = np.geomspace((1e-3, 1e-5, 1e-8)[rank % 3], (0.5, 1e-2, 1e-5)[rank % 3], steps)
        for beta in betas:
            for r in drops:
                method = f"mlmc_{beta:g}_{r}"
                plans[problem, method, "jax"] = SimpleNamespace(kind="step", beta=beta, r=r)
                for at, step in enumerate(grid):
                    lost = at == steps - 1 and beta == 1.0
                    far = (beta - 0.7) ** 2 + (np.log(r / 100) / 3) ** 2 + ((at - 2) / 1.5) ** 2
                    elbo = -100 - 30 * far**2 + rng.normal(0, 0.02)
                    rows.append(
                        {"problem": problem, "method": method, "backend": "jax", "step_size": step, "epoch": 2000,
                         "iteration": 2000, "elbo_mean": -np.inf if lost else elbo,
                         "elbo_low": np.nan if lost else elbo - 0.1, "elbo_high": np.nan if lost else elbo + 0.1,
                         "repetitions": 5, "diverged": 5 * lost}
                    )  # fmt: skip
    return selection.sensitivity(pd.DataFrame(rows), plans)


# the figures of diagnostics, and a column that each needs
FIGURES = {
    "variance": "mean",
    "snr": "mean",
    "particles": "mean",
    "test": "mean",
    "rates": "mean",
    "cost": "seconds",
    "sizes": "fraction",
    "sensitivity": "below",
}


@functools.cache
def of_two_problems():
    """``diagnostics``, and ``convergence`` with seconds."""
    made = traces(("hlr", "blr"), repetitions=3)
    table, _, found = tables(made)
    return found, C.with_seconds(table, timings(made))


@functools.cache
def small(name):
    """What a figure draws, of two problems."""
    if name == "sensitivity":
        return settings(("hlr", "blr"))
    if name == "sizes":
        return fractions()
    return of_two_problems()[name == "cost"]
