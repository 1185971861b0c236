"""Samples with smooth integrands, for integrators with an exact answer, and what is asked of all of them."""

from dataclasses import fields
from inspect import signature

import numpy as np

from lowvar.integrals.base import Samples
from lowvar.integrals.exact.settings import FitSettings
from lowvar.integrals.kernels import squared_exponential

KERNEL = squared_exponential()
FIXED = {"lengthscale": [1.5, 2.5], "standardise": False}


def normal(values, repetitions=2, sizes=(12, 15), dim=2, seed=0, shared=False, spread=(1.0, 1.2)):
    """Points of N(0, spread_t^2 I), own ones or the same for all tasks, and ``values(t, x)`` there."""
    rng = np.random.default_rng(seed)
    points = [
        rng.standard_normal((repetitions, m, dim)) * (1 if shared else s) for m, s in zip(sizes, spread, strict=True)
    ]
    if shared:
        points = [points[0]] * len(sizes)
    scores = [-x / (1 if shared else s**2) for x, s in zip(points, spread, strict=True)]
    return Samples(tuple(points), tuple(scores), tuple(values(t, x) for t, x in enumerate(points)), shared)


def smooth(t, x):
    """Of mean ``(1 + t) exp(1/8) + t`` under N(0, I)."""
    return (1 + t) * np.exp(0.5 * x[..., 0]) + np.sin(x[..., 1]) + t


def run(integrator, samples):
    return integrator.integrate(samples, np.arange(samples.repetitions))


def stein(x, y, lx, ly, lengthscale=(1.5, 2.5)):
    return KERNEL.stein({"log_lengthscale": np.log(lengthscale)}, x, y, lx, ly)


def dense(samples, B, nugget):
    """``M`` and the design of the constants, of each repetition, from the definition; values keep their unit."""
    x, scores = (np.concatenate(of, 1) for of in (samples.points, samples.scores))
    task = np.repeat(np.arange(samples.tasks), samples.sizes)
    gram = np.stack([stein(a, a, b, b) for a, b in zip(x, scores, strict=True)]) * B[np.ix_(task, task)]
    noise = nugget * np.trace(gram, axis1=1, axis2=2) / len(task)
    return gram + noise[:, None, None] * np.eye(len(task)), np.eye(samples.tasks)[task]


B = np.array([[1.0, 0.8], [0.8, 1.5]])


def check_defaults(method, otherwise):
    """That the options that exact integrators share have one default, but for those of ``otherwise``."""
    shared = {field.name: field.default for field in fields(FitSettings) if field.init}
    own = {name: one.default for name, one in signature(method).parameters.items() if name in shared}
    assert own == {name: shared[name] for name in own} | otherwise
