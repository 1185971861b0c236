"""Samples of normals and along chains, with their scores."""

import numpy as np

from lowvar.integrals.base import Samples


def normal(values, repetitions=2, sizes=(20, 20), dim=2, seed=0, chain=False):
    """Own points of N(0, I) for each task, and ``values(t, x)`` there."""
    rng = np.random.default_rng(seed)
    points = tuple(rng.standard_normal((repetitions, m, dim)) for m in sizes)
    found = tuple(values(t, x) for t, x in enumerate(points))
    return Samples(points, tuple(-x for x in points), found, chain=chain)


def seeds(samples):
    return np.arange(samples.repetitions)


def run(integrator, samples):
    return integrator.integrate(samples, seeds(samples))


def smooth(t, x):
    """Of mean ``(1 + t) exp(1/8)`` under N(0, I)."""
    return (1 + t) * np.exp(0.5 * x[..., 0]) + np.sin(x[..., 1])


SMOOTH = np.exp(1 / 8) * np.array([1.0, 2.0])


def quadratic(t, x):
    """Of mean ``3 + t``; proportions 1 and -2."""
    return 3 + t + (1, -2)[t] * (x[..., 0] * x[..., 1] + 0.5 * x[..., 0] - x[..., 1] ** 2 + 1)
