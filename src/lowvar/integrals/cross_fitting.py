"""Cross-fitting: control variates are fitted to some points and correct others, whose residuals judge them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import lapack

from lowvar.errors import UserError, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, evenly, of_last_points
from lowvar.integrals.monte_carlo import GAIN, Average, average, first_copies, student, worth_of_chain
from lowvar.integrals.regression import DEPENDENT

FOLDS = 5
ALIVE = 4e7  # entries of what is worked on at a time, beyond which folds go one after the other
EXACT = 1e-9  # of the integrand's largest deviation: a residual that is rounding
MOST = 1e-4  # a residual above this share of the largest deviation is never taken for rounding
TOGETHER = 8  # integrands whose fits are refined together
WELL = 1e-9  # reciprocal condition number of normal equations, below which they are solved by orthogonal columns
# Nothing of a region of probability p is seen by m samples with probability (1 - p)^m, below 5 % if p > 3 / m: the rule
# of three for an interval. For a standard error half of it, so that 1.96 of them are as wide.
REGION, REGION_ERROR = 3.0, 1.5


@dataclass(frozen=True)
class CrossFit:
    """The values of held-out points, corrected by fits to the others.

    Attributes:
        corrected: for each task ``f - g`` at its points, ``(R, m_t)``, ``g`` being a function of mean zero fitted
            without the point's fold. For independent points each entry has the integral as its mean.
        fitted: the mean of the folds' fitted functions of a task, ``(task, points (R, n, d), scores) -> (R, n)``.
    """

    corrected: tuple[np.ndarray, ...]
    fitted: Callable[[int, np.ndarray, np.ndarray], np.ndarray]


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
    if integrator.features is None:
        return by_fits(integrator, samples, seeds, folds)
    fits = []
    for r in range(samples.repetitions):
        rows = slice(r, r + 1)
        one = samples.repetition(rows)
        fits.append(by_products(integrator.features, one, folds) or by_fits(integrator, one, seeds[rows], folds))

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        if len(fits) == 1:  # the same arrays, whose features are remembered
            return fits[0].fitted(task, points, scores)
        rows = [slice(r, r + 1) for r in range(len(fits))]
        return np.concatenate([fit.fitted(task, points[r], scores[r]) for fit, r in zip(fits, rows, strict=True)])

    corrected = zip(*(fit.corrected for fit in fits), strict=True)
    return CrossFit(tuple(np.concatenate(repetitions) for repetitions in corrected), fitted)


def by_fits(integrator: Integrator, samples: Samples, seeds: np.ndarray, folds: int) -> CrossFit:
    """The cross-fit of any method: a fit for each fold; arguments as of ``cross_fit``."""
    corrected = tuple(np.empty_like(values) for values in samples.values)
    parts = []
    for pairs, training, held_out in _groups(samples, folds, integrator.properties.most):
        result = integrator.integrate(_subset(samples, pairs, training), seeds[[r for r, _ in pairs]])
        if result.fitted is None:
            raise UserError(f"{integrator.name} fits no function, so that there is nothing to cross-fit")
        parts.append((result.fitted, [r for r, _ in pairs]))
        left = _subset(samples, pairs, held_out)
        for t in range(samples.tasks):
            predicted = result.fitted(t, left.points[t], left.scores[t])
            residual = left.values[t] - predicted
            for i, (r, _) in enumerate(pairs):
                corrected[t][r, held_out[t][i]] = residual[i] + result.value[i, t]

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        total, count = np.zeros(points.shape[:2]), np.zeros((len(points), 1))
        for function, rows in parts:
            np.add.at(total, rows, function(task, points[rows], scores[rows]))
            np.add.at(count, rows, 1.0)
        return total / count

    return CrossFit(corrected, fitted)


def by_products(features: Callable[[np.ndarray], Any], samples: Samples, folds: int) -> CrossFit | None:
    """The cross-fit of a method that is least squares on features, by normal equations: the same as ``by_fits``.

    The products of the features of all points are those of the folds added up, and a fit without a fold takes them all
    but the fold's: one pass over the points in place of one for each fold. A step of refinement, with residuals at the
    points, takes back the digits that products lose. The units of the features are those of the points of each fit, so
    that a fold does not see what it corrects; folds with the same units share a pass.

    Args:
        features: of the integrator.
        samples: of one repetition.
        folds: how many.

    Returns:
        None where the equations of a fit are ill-conditioned, as those of dependent features are, or not fewer than its
        points.

    References:
        Bjorck, "Numerical methods for least squares problems", 1996, section 2.9.2 (refinement of normal equations).
    """
    corrected, fits = [], []
    for together in [range(samples.tasks)] if samples.shared else [[t] for t in range(samples.tasks)]:
        points, scores = samples.points[together[0]], samples.scores[together[0]]
        values = np.stack([samples.values[t][0] for t in together], axis=1)  # (m, K)
        first = first_copies(points[0])
        fold = fold_of(len(first), folds, samples.chain)
        once = first == np.arange(len(first))
        order = np.argsort(fold, kind="stable")  # folds below each other: a product takes no copy of its rows
        training = [once & ~np.isin(first, first[fold == k]) for k in range(folds)]
        if min(rows.sum() for rows in training) < 2:
            return None
        functions = [features(points[:, rows]) for rows in training]
        left, terms = np.empty_like(values), []
        for span in dict.fromkeys(function.span for function in functions):
            alike = [k for k in range(folds) if functions[k].span == span]
            function = functions[alike[0]]
            z, of_rows = function(points[:, order], scores[:, order])[0], [rows[order] for rows in training]
            theta = _left_out(z, values[order], np.bincount(fold), of_rows, alike, mine := np.empty_like(values))
            if theta is None:
                return None
            for k in alike:
                left[fold == k] = mine[fold[order] == k]
            terms.append((of_last_points(function), theta))
        corrected += [column[None] for column in left.T]
        fits += [[(function, theta[:, j] / folds) for function, theta in terms] for j in range(len(together))]

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        terms = [theta[0] + function(points, scores) @ theta[1:] for function, theta in fits[task]]
        return np.sum(terms, axis=0)

    return CrossFit(tuple(corrected), fitted)


def _left_out(
    z: np.ndarray, y: np.ndarray, sizes: np.ndarray, training: list[np.ndarray], alike: list[int], left: np.ndarray
) -> np.ndarray | None:
    """Writes ``y - z theta`` of the points of some folds into ``left``, ``theta`` being fitted without the fold.

    Args:
        z: features, ``(m, p)``; the folds are below each other.
        y: values, ``(m, K)``.
        sizes: of the folds.
        training: for each fold, a mask ``(m,)`` of the points of its fit: first copies, of no point in the fold.
        alike: the folds.
        left: ``(m, K)``.

    Returns:
        The sum of these fits, constants above coefficients, ``(1 + p, K)``; None, see ``by_products``.
    """
    centre, ends, ever = y.mean(axis=0), np.cumsum(sizes), np.any(training, axis=0)
    y = y - centre
    blocks = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    parts = [
        _products(z[out], y[out]) if ever[out].all() else _products(z[out][ever[out]], y[out][ever[out]])
        for out in blocks
    ]
    gram, right = (sum(of) for of in zip(*parts, strict=True))
    length = np.sqrt(np.diagonal(gram)[1:])
    used = np.r_[True, length > DEPENDENT * length.max(initial=0.0)]  # others are rounding, of terms that cancel
    scale = np.where(used, np.r_[1.0, np.sqrt(len(z)) / np.where(used[1:], length, 1.0)], 0.0)[:, None]
    factors, theta = [], []
    for k in alike:
        if training[k].sum() <= len(scale):
            return None
        own, own_right = parts[k]
        np.subtract(gram, own, out=own)
        own_right = right - own_right
        copied = ever & ~training[k]
        copied[blocks[k]] = False  # of points in the fold
        if copied.any():
            more, more_right = _products(z[copied], y[copied])
            own, own_right = own - more, own_right - more_right
        own *= scale
        own *= scale.T
        own[~used, ~used] = 1.0
        size = lapack.dlange("1", own.T)
        factor, failed = lapack.dpotrf(own.T, lower=True, overwrite_a=True)
        if failed or lapack.dpocon(factor, size, uplo="L")[0] < WELL:
            return None
        factors.append(factor)
        theta.append(scale * lapack.dpotrs(factor, scale * own_right, lower=True)[0])
    found = np.stack(theta, axis=1)  # (1 + p, folds, K)
    fitted = np.stack([training[k] for k in alike], axis=1)[:, :, None]
    for j in range(0, y.shape[1], TOGETHER):  # refined, a few integrands at a time
        here = found[:, :, j : j + TOGETHER]
        residual = fitted * (y[:, None, j : j + TOGETHER] - _at(here, z))
        back = (z.T @ residual.reshape(len(z), -1)).reshape(-1, *here.shape[1:])
        back = np.concatenate([residual.sum(axis=0, keepdims=True), back])
        for i, factor in enumerate(factors):
            here[:, i] += scale * lapack.dpotrs(factor, scale * back[:, i], lower=True)[0]
    for i, k in enumerate(alike):
        left[blocks[k]] = y[blocks[k]] + centre - z[blocks[k]] @ found[1:, i]
    total = found.sum(axis=1)
    total[0] += len(alike) * centre
    return total


def _at(theta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Functions with the coefficients ``(1 + p, folds, K)`` at points with the features ``(m, p)``."""
    return theta[0] + (z @ theta[1:].reshape(z.shape[1], -1)).reshape(len(z), *theta.shape[1:])


def _products(z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Products of a constant and features ``(m, p)`` with each other and with ``y (m, K)``, summed over the points."""
    gram = np.empty((1 + z.shape[1],) * 2)
    gram[0, 0], gram[0, 1:], gram[1:, 1:] = len(z), z.sum(axis=0), z.T @ z
    gram[1:, 0] = gram[0, 1:]
    return gram, np.concatenate([y.sum(axis=0, keepdims=True), z.T @ y])


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
        left = [average(*pair) for pair in zip(fit.corrected, _worths(samples), strict=True)]
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


def _worths(samples: Samples) -> list[np.ndarray | None]:
    """What the points of each task are worth along a chain, see ``average``."""
    found = [worth_of_chain(points) if samples.chain else None for points in samples.points[samples.sets]]
    return found * samples.tasks if samples.shared else found


def fold_of(points: int, folds: int, chain: bool) -> np.ndarray:
    """The fold of each of so many points."""
    return np.arange(points) * folds // points if chain else np.arange(points) % folds


def _groups(samples: Samples, folds: int, most: float):
    """Folds whose fits have the same shapes: ``(repetition, fold)`` pairs, by task the rows to fit and correct."""
    groups: dict[tuple, list] = {}
    sets = samples.points[samples.sets]
    firsts = [[first_copies(one) for one in points] for points in sets]
    for k in range(folds):
        for r in range(samples.repetitions):
            rows = []
            for points, first in zip(sets, firsts, strict=True):
                fold = fold_of(points.shape[1], folds, samples.chain)
                out = fold == k
                owner = first[r]
                kept = np.flatnonzero((owner == np.arange(len(owner))) & ~np.isin(owner, owner[out]))
                rows.append((kept[evenly(min(len(kept), most), len(kept))], np.flatnonzero(out)))
            rows = rows * samples.tasks if samples.shared else rows
            groups.setdefault(tuple(len(one) for both in rows for one in both), []).append(((r, k), rows))
    size = min(max(samples.sizes), most) * samples.dim * max(samples.dim, 8)
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


def _subset(samples: Samples, pairs: Sequence[tuple[int, int]], rows: list) -> Samples:
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


@dataclass(frozen=True)
class Verdict:
    """The estimates of a candidate and their errors, ``(R, T)`` each.

    Attributes:
        value: the estimates.
        seen: half of the interval from held-out values alone, by which candidates are compared; infinite where the
            candidate does not pay.
        standard_error: to state.
        half_width: to state, of 95 % intervals.
        carriers: how many held-out residuals carry their variance; infinite where all are rounding.
    """

    value: np.ndarray
    seen: np.ndarray
    standard_error: np.ndarray
    half_width: np.ndarray
    carriers: np.ndarray


def by_task(averages: list[Average], name: str) -> np.ndarray:
    """An attribute of the averages of all tasks, ``(R, T)``."""
    return np.stack([getattr(one, name) for one in averages], axis=1)


def floor(plain: list[Average], rounding: np.ndarray) -> np.ndarray:
    """A lower bound of all errors, ``(R, T)``: the rounding of the largest value."""
    return rounding * (np.abs(by_task(plain, "mean")) + by_task(plain, "largest"))


def negligible(plain: list[Average], rounding: np.ndarray) -> np.ndarray:
    """Residuals that are no larger than this may be rounding alone, ``(R, T)``."""
    largest = by_task(plain, "largest")
    return np.maximum(EXACT * largest, np.minimum(floor(plain, rounding), MOST * largest))


def unseen(plain: list[Average]) -> np.ndarray:
    """The error from a region that is worth one sample and holds none, ``(R, T)``.

    However well the samples are predicted, the integrand may leave the fit where none fell: a cap, a loss that turns
    linear, a payoff. It is taken to leave it at the largest value seen, and to differ by the mean excess from there on;
    which is known as well as from the terms that carry the variance, hence Student's ``t``.
    """
    return by_task(plain, "beyond") / by_task(plain, "effective") * student(by_task(plain, "carriers") - 1)


def may_jump(half: np.ndarray, plain: list[Average]) -> np.ndarray:
    """Whether intervals are too narrow for a jump where no point fell, ``(R, T)``.

    In a region that is worth one sample and holds none, an integrand may also drop from its largest value, and what
    the fit expects beyond it, to its mean: a truncated moment, a payoff with a barrier.

    Args:
        half: half widths ``(R, T)``.
        plain: the averages of the values, by task.
    """
    return half < REGION * (by_task(plain, "largest") + by_task(plain, "beyond")) / by_task(plain, "effective")


def widened_errors(
    error: np.ndarray, half: np.ndarray, plain: list[Average], region: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and half widths with unseen regions, ``(R, T)``; these alone make none larger than Monte Carlo's.

    Args:
        error: standard errors ``(R, T)``.
        half: half widths ``(R, T)``.
        plain: the averages of the values, by task.
        region: of ``unseen``, or zero.
    """
    wide = np.hypot(error, REGION_ERROR * region), np.hypot(half, REGION * region)
    most = by_task(plain, "plain_error"), by_task(plain, "half_width")
    least = error, half
    stated = [np.maximum(own, np.minimum(more, top)) for own, more, top in zip(least, wide, most, strict=True)]
    return stated[0], stated[1]


def with_unseen(result: Integrals, samples: Samples, polynomial: bool = False) -> Integrals:
    """The same estimates, with errors for regions without points, and a flag where a jump there is not included.

    Args:
        result: of a method that does not know of such regions.
        samples: that it was given.
        polynomial: see ``judge``; the method is then taken to be exact for its integrands.
    """
    plain = [average(*pair) for pair in zip(samples.values, _worths(samples), strict=True)]
    region = np.zeros_like(result.value) if polynomial else unseen(plain)
    error, half = widened_errors(result.standard_error, result.half, plain, region)
    flags = {**result.flags, "may_jump": np.logical_and(may_jump(half, plain), not polynomial).any(axis=1)}
    return replace(result, standard_error=error, half_width=half, flags=flags)


def judge(
    fit: CrossFit, plain: list[Average], worths: list, one_fit: bool, rounding: np.ndarray, polynomial: bool = False
) -> Verdict:
    """The estimates of a candidate, with standard errors from held-out residuals.

    Args:
        fit: of a candidate.
        plain: the averages of the values, by task.
        worths: what the points of each task are worth, see ``average``.
        one_fit: the values of all tasks made one fit, so that the relative error of the worst task counts for each.
        rounding: ``(R, T)``, see ``Samples``.
        polynomial: the integrands are known to be polynomials: what is predicted to rounding is known everywhere.
    """
    held_out = [average(corrected, worth) for corrected, worth in zip(fit.corrected, worths, strict=True)]
    own, least = unseen(held_out), floor(plain, rounding)
    error = np.maximum(np.hypot(by_task(held_out, "plain_error"), REGION_ERROR * own), least)
    half = np.maximum(np.hypot(by_task(held_out, "half_width"), REGION * own), least)
    if one_fit:
        unit = np.maximum(by_task(plain, "plain_error"), 1e-300)
        error, half = ((of / unit).max(axis=1, keepdims=True) * unit for of in (error, half))
    exact = by_task(held_out, "largest") <= negligible(plain, rounding)
    region = np.where(exact & polynomial, 0.0, unseen(plain))
    # variances are known up to a relative error of sqrt(2 / carriers): a gain must be seen through it
    pays = np.where(exact, 1.0, np.maximum(1 - np.sqrt(2 / by_task(plain, "carriers")), GAIN))
    seen = np.where(half < pays * by_task(plain, "half_width"), half, np.inf)
    few = np.where(exact, np.inf, by_task(held_out, "carriers"))
    return Verdict(by_task(held_out, "mean"), seen, *widened_errors(error, half, plain, region), few)
