"""A small engine: logistic regression of 20 rows, with a schedule or without one."""

import functools

import jax
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.vi.batches import BATCHES, sampler
from lowvar.vi.estimators.base import schedule
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Diagnostics, Method, Settings
from lowvar_studies.models.logistic_regression import problem as logistic_regression

N, DIM = 20, 3
STEP = {"kind": "step", "beta": 0.5, "r": 3}


def problem(backend="jax", dtype=np.float64):
    rng = np.random.default_rng(0)
    return logistic_regression({"x": rng.normal(size=(N, DIM)).astype(dtype), "y": rng.integers(0, 2, N)}, backend)


def build(method="mlmc", backend="jax", options=None, **settings):
    base = {"step_sizes": (1e-2, 1e-3), "batch_size": N, "epochs": 12, "repetitions": 2, "particles": 10}
    spec = Method(method, options or {})
    return engine.build(problem(backend), spec, Settings(**{**base, **made(settings)}), seed=0, name="small")


def made(settings):
    """Settings with the schedule and the diagnostics, given as mappings, as objects."""
    classes = {"schedule": schedule, "diagnostics": Diagnostics}
    return {key: classes[key](**one) if key in classes else one for key, one in settings.items()}


@functools.cache
def one_batch(particles):
    """``key -> noise`` of an epoch's one step."""
    draw = sampler(BATCHES["reshuffled"](N, N), GAUSSIAN["iid"](particles), DIM, np.float64)
    return jax.jit(lambda key: jax.tree.map(lambda leaf: leaf[0], draw.epoch(key)))
