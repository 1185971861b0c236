"""What ``auto`` tries, and what of the samples decides it."""

import importlib.util
import math
from collections.abc import Iterator

import numpy as np

from lowvar.integrals.base import Integrator
from lowvar.integrals.choosing.score_check import doubt
from lowvar.integrals.choosing.tails import average
from lowvar.integrals.parametric.zero_variance import zero_variance
from lowvar.integrals.samples import Samples

ORDERS = 1, 2, 3, 4  # of polynomials
MOMENTS = 0.0, 1 / 20, 1 / 6, 1 / 6  # carriers of each coordinate, relative to the points, that an order needs
POINTS_FOR_EACH = 3  # points that a polynomial needs for each of its coefficients
WORK = 4e10  # multiplications of a least-squares fit, at most
ALL = 150  # points up to which a kernel's functions around all of them are fitted
MANY = 4  # tasks with the same points, above which they share lengthscales
HEAVY = 30.0  # a score's square over the mean one, from which on a kernel is damped far out
DAMPED = 4e5  # coordinates of points, up to which such a kernel is tried too
WITHOUT_KERNELS = "PyTorch is not installed, so no kernel was tried, polynomials alone: pip install 'lowvar[torch]'"


def orders(samples: Samples) -> int:
    """The highest order of polynomials that the tails allow: beyond, their means may not show, or not exist."""
    coordinates = [x for points in samples.points for x in np.moveaxis(points, 2, 0)]
    carriers = min(float((average(x).carriers / x.shape[1]).min()) for x in coordinates)
    return max(order for order, needed in zip(ORDERS, MOMENTS, strict=True) if carriers >= needed)


def heavy(samples: Samples) -> bool:
    """Whether a few scores are far larger than the others."""
    square = [(scores**2).sum(axis=2) for scores in samples.scores]
    return any(bool((one.max(axis=1) > HEAVY * one.mean(axis=1)).any()) for one in square)


def scores_fail(samples: Samples, r: int, t: int) -> bool:
    """Whether the scores of a task fail their test."""
    return doubt(samples.points[t][r], samples.scores[t][r], samples.chain) is not None


def kernels_run() -> bool:
    """Whether PyTorch, which kernel methods need, is installed."""
    return importlib.util.find_spec("torch") is not None


def methods(samples: Samples, folds: int) -> Iterator[Integrator]:
    """What is tried: cheap ones first, since a later one has to be better."""
    largest, smallest, dim = max(samples.sizes), min(samples.sizes), samples.dim
    training = smallest * (folds - 1) / folds
    for order in ORDERS[: orders(samples)]:
        unknowns = math.comb(dim + order, order)
        enough = POINTS_FOR_EACH if order > 1 else 2
        if enough * unknowns <= training and largest * unknowns**2 <= WORK:
            yield zero_variance(order)
    if kernels_run():
        yield from _kernels(samples)


def _kernels(samples: Samples) -> Iterator[Integrator]:
    """Those that need PyTorch."""
    from lowvar.integrals.exact.control_functional import control_functional
    from lowvar.integrals.exact.sparse_control_functional import sparse_control_functional
    from lowvar.integrals.exact.vector_valued import vector_valued

    largest = max(samples.sizes)
    if largest > ALL:
        yield sparse_control_functional()
        if largest * samples.dim <= DAMPED and (heavy(samples) or orders(samples) < ORDERS[-1]):
            yield sparse_control_functional(kernel="preconditioned")
        return
    if samples.shared and samples.tasks > MANY:
        yield vector_valued()
    else:
        yield control_functional()
    yield sparse_control_functional(kernel="preconditioned")
    if not samples.shared and samples.tasks > 1 and sum(samples.sizes) <= 2 * ALL:
        yield vector_valued()
