"""Repetitions of unlike kinds: independent points, chains, chains that lie between each other; and together again."""

from dataclasses import replace

import numpy as np

from lowvar.integrals.base import Integrals
from lowvar.integrals.choosing.candidates import heavy, orders, scores_fail
from lowvar.integrals.choosing.tails import on_grid, stride
from lowvar.integrals.samples import Samples


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
