"""The methods that ``auto`` tries, by sample size and tails; repetitions grouped by these, and their results merged."""

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lowvar.integrals.base import Integrals, Integrator
from lowvar.integrals.choosing.score_check import doubt
from lowvar.integrals.choosing.tails import average, on_grid, stride
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


def strides(samples: Samples) -> tuple[int, ...]:
    """Of the first repetition: how far apart the points of each task depend on each other."""
    sets = samples.points[:1] if samples.shared else samples.points
    found = tuple(stride(points[0]) for points in sets)
    return found * samples.tasks if samples.shared else found


def in_order(samples: Samples, apart: tuple[int, ...]) -> Samples:
    """Chains that lie between each other, below each other."""
    if max(apart) < 2:
        return samples
    order = [np.argsort(np.arange(m) % max(k, 1), kind="stable") for m, k in zip(samples.sizes, apart, strict=True)]
    arrays = (samples.points, samples.scores, samples.values)
    points, scores, values = (tuple(of[:, rows] for of, rows in zip(each, order, strict=True)) for each in arrays)
    return replace(samples, points=points, scores=scores, values=values, cross_scores=None)


def kind_of(samples: Samples) -> tuple:
    """Of one repetition: all that decides what is tried."""
    sets = range(1 if samples.shared else samples.tasks)
    distinct = tuple(len(np.unique(samples.points[t][0], axis=0)) for t in sets)
    grids = tuple(on_grid(samples.points[t][0]) for t in sets)
    failing = tuple(scores_fail(samples, 0, t) for t in sets)
    return strides(samples), failing, distinct, grids, orders(samples), heavy(samples)


def stacked(results: list[Integrals], rows: list[np.ndarray]) -> Integrals:
    """Results of some repetitions each as one."""
    order = np.argsort(np.concatenate(rows))

    def joined(arrays) -> np.ndarray:
        return np.concatenate(list(arrays))[order]

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        pairs = zip(results, rows, strict=True)
        return joined(one.fitted(task, points[group], scores[group]) for one, group in pairs if one.fitted)

    return Integrals(
        joined(one.value for one in results),
        joined(one.standard_error for one in results),
        joined(one.condition for one in results),
        {name: joined(one.flags[name] for one in results) for name in results[0].flags},
        {name: joined(one.info[name] for one in results) for name in results[0].info},
        fitted,
        half_width=joined(one.half for one in results),
        untried=tuple(dict.fromkeys(sentence for one in results for sentence in one.untried)),
    )
