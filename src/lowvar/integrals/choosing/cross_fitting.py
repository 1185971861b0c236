"""Cross-fitting: control variates that are fitted to other points than those that they correct."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowvar.errors import UserError, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.choosing.tails import average, worth_of_chain
from lowvar.integrals.samples import Samples

FOLDS = 5
ALIVE = 4e7  # entries of what is worked on at a time, beyond which folds go one after the other


@dataclass(frozen=True)
class CrossFit:
    """What held-out points say.

    Attributes:
        corrected: for each task ``f - g`` at its points, ``(R, m_t)``, ``g`` being a function of mean zero fitted
            without the point's fold. For independent points each entry has the integral as its mean.
        parts: for each group of folds that were fitted at once, the result, and ``(repetition, fold)`` of its rows.
    """

    corrected: tuple[np.ndarray, ...]
    parts: tuple[tuple[Integrals, tuple[tuple[int, int], ...]], ...]

    def fitted(self, task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The mean of the folds' fitted functions of a task, ``points (R, n, d) -> (R, n)``."""
        total, count = np.zeros(points.shape[:2]), np.zeros((len(points), 1))
        for result, pairs in self.parts:
            rows = [r for r, _ in pairs]
            assert result.fitted is not None
            values = result.fitted(task, points[rows], scores[rows])
            np.add.at(total, rows, values)
            np.add.at(count, rows, 1.0)
        return total / count


def cross_fit(integrator: Integrator, samples: Samples, seeds: np.ndarray, folds: int = FOLDS) -> CrossFit:
    """Fits on all folds but one, for each of them, and corrects the values of that one.

    The mean of ``f - g`` over a fold is unbiased given the other folds, whatever was learnt there; so is the average
    of the folds. Folds of a chain are blocks of successive points; otherwise every ``folds``-th point belongs to the
    same one. A fit leaves out copies of points, and of those that it is to correct (rejected proposals).

    Args:
        integrator: a method with fitted functions.
        samples: of all tasks; fold ``k`` is left out of all of them at once.
        seeds: as of ``Integrator.integrate``.
        folds: how many, at most; no more than a task has points.

    Raises:
        UserError: too few points for the method.

    References:
        Sun, Barp and Briol, section 2, where some points fit the control variate and the others average; Oates,
        Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017, section 2.3.
    """
    folds = min(folds, *samples.sizes)
    corrected = tuple(np.empty_like(values) for values in samples.values)
    parts = []
    for pairs, training, held_out in _groups(samples, folds):
        result = integrator.integrate(_of(samples, pairs, training), seeds[[r for r, _ in pairs]])
        if result.fitted is None:
            raise UserError(f"{integrator.name} fits no function, so that there is nothing to cross-fit")
        parts.append((result, pairs))
        left = _of(samples, pairs, held_out)
        for t in range(samples.tasks):
            predicted = result.fitted(t, left.points[t], left.scores[t])
            residual = left.values[t] - predicted
            for i, (r, _) in enumerate(pairs):
                corrected[t][r, held_out[t][i]] = residual[i] + result.value[i, t]
    return CrossFit(corrected, tuple(parts))


def cross_fitted(integrator: Integrator, folds: int = FOLDS) -> Integrator:
    """The integrator with its control variate fitted to other folds than it corrects.

    Unbiased for independent points. The standard error is that of the mean of the corrected values; the half width is
    of an interval of Student's ``t``. No flag of the fits is passed on: held-out points judge them.

    Args:
        integrator: a method with fitted functions.
        folds: how many, 2 or more.

    Raises:
        UserError: ``folds`` is below 2, or the method fits no function; when it integrates, too few points.
    """
    whole("folds", folds, 2)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        fit = cross_fit(integrator, samples, seeds, folds)
        worths = [worth_of_chain(points) if samples.chain else None for points in samples.points]
        left = [average(corrected, worth) for corrected, worth in zip(fit.corrected, worths, strict=True)]
        return Integrals(
            value=np.stack([one.mean for one in left], axis=1),
            standard_error=np.stack([one.plain_error for one in left], axis=1),
            condition=np.full(samples.repetitions, np.nan),
            info={"carriers": np.stack([one.carriers for one in left], axis=1)},
            fitted=fit.fitted,
            half_width=np.stack([one.half_width for one in left], axis=1),
        )

    own = integrator.properties
    properties = IntegralProperties(own.scores, own.transfers, own.exact_on, own.random, own.one_target, 2 * own.fewest)
    return Integrator(integrator.name, properties, integrate)


def fold_of(points: int, folds: int, chain: bool) -> np.ndarray:
    """The fold of each of so many points."""
    return np.arange(points) * folds // points if chain else np.arange(points) % folds


def _groups(samples: Samples, folds: int):
    """Folds whose fits have the same shapes: ``(repetition, fold)`` pairs, by task the rows to fit and correct."""
    groups: dict[tuple, list] = {}
    sets = samples.points[:1] if samples.shared else samples.points
    firsts = [_first_copies(points) for points in sets]
    for k in range(folds):
        for r in range(samples.repetitions):
            rows = []
            for points, first in zip(sets, firsts, strict=True):
                fold = fold_of(points.shape[1], folds, samples.chain)
                out = fold == k
                owner = first[r]
                kept = (owner == np.arange(len(owner))) & ~np.isin(owner, owner[out])
                rows.append((np.flatnonzero(kept), np.flatnonzero(out)))
            rows = rows * samples.tasks if samples.shared else rows
            groups.setdefault(tuple(len(one) for both in rows for one in both), []).append(((r, k), rows))
    size = max(samples.sizes) * samples.dim * max(samples.dim, 8)
    at_once = max(1, int(ALIVE // size))
    for members in groups.values():
        for first in range(0, len(members), at_once):
            some = members[first : first + at_once]
            tasks = range(samples.tasks)
            yield (
                tuple(pair for pair, _ in some),
                [[rows[t][0] for _, rows in some] for t in tasks],
                [[rows[t][1] for _, rows in some] for t in tasks],
            )


def _first_copies(points: np.ndarray) -> np.ndarray:
    """For each point the first one that is equal to it, ``(R, m)``."""
    first = np.empty(points.shape[:2], dtype=int)
    for r, one in enumerate(points):
        _, index, back = np.unique(one, axis=0, return_index=True, return_inverse=True)
        first[r] = index[back.ravel()]
    return first


def _of(samples: Samples, pairs: Sequence[tuple[int, int]], rows: list) -> Samples:
    """These rows of each task, a repetition for each pair."""

    def pick(arrays, shared=False):
        picked = []
        for t, array in enumerate(arrays):
            if shared and t:
                picked.append(picked[0])
            else:
                picked.append(np.stack([array[r][rows[t][i]] for i, (r, _) in enumerate(pairs)]))
        return tuple(picked)

    points, scores = (pick(arrays, samples.shared) for arrays in (samples.points, samples.scores))
    return Samples(points, scores, pick(samples.values), samples.shared)
