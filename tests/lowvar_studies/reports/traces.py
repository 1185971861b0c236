"""Traces of which the tests make tables and effects."""

import numpy as np
import pandas as pd

GRADIENTS = {"variance": 4.0, "mean2": 16.0, "squared_error": [4.0, 9.0, 25.0], "signal": 36.0, "reference_error": 1e-3}


def trace(method="mc", problem="p", step=0.1, repetitions=3, lost=False, **columns):
    """Stops at iterations 0, 10 and 20; a column is a number, or a list by stop, or by stop and repetition."""
    rows = []
    for at, iteration in enumerate((0, 10, 20)):
        for repetition in range(repetitions):
            row = {"problem": problem, "method": method, "backend": "jax", "step_size": step, "repetition": repetition,
                   "epoch": iteration, "iteration": iteration, "gradients": 100 * iteration, "hvps": 0, "particles": 8,
                   "elbo": -5.0 + at, "elbo_se": 0.0, "status": "ok"}  # fmt: skip
            for name, value in columns.items():
                value = value[at] if isinstance(value, list) else value
                row[name] = value[repetition] if isinstance(value, list) else value
            if lost and at:
                row |= dict.fromkeys(("elbo", *columns), np.nan) | {"status": "diverged"}
            rows.append(row)
    return pd.DataFrame(rows)


def runs(method, elbos, step_size=1.0, problem="p", repetitions=None, epochs=None, per=10, gradients=100, hvps=0):
    """Traces with ``elbos[stop][repetition]``; a run has diverged where its ELBO is not finite."""
    rows = [
        {"problem": problem, "method": method, "backend": "jax", "step_size": step_size,
         "repetition": r if repetitions is None else repetitions[r], "epoch": epoch, "iteration": per * epoch,
         "gradients": gradients * epoch, "hvps": hvps * epoch, "elbo": elbo, "elbo_se": 0.0,
         "status": "ok" if np.isfinite(elbo) else "diverged"}
        for epoch, here in zip(epochs or range(len(elbos)), elbos, strict=True) for r, elbo in enumerate(here)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def estimates(values, method="m", task="f", problem="p", sizes="20", se=np.nan, flags="", m=20, points=20):
    """Estimates of one task; one that is not finite has failed."""
    values = np.asarray(values, float)
    status = np.where(np.isfinite(values), "ok", "failed")
    return pd.DataFrame(
        {"problem": problem, "method": method, "backend": "torch", "sizes": sizes, "points": points, "repetition": np.arange(len(values)), "task": task,
         "m": m, "value": values, "standard_error": se, "condition": 1.0, "flags": flags, "status": status}
    )  # fmt: skip
