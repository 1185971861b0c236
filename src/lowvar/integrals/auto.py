"""The integrator that chooses: cross-fitted candidates, and the one whose held-out residuals are smallest."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lowvar.errors import TooFewPoints, UserError, whole
from lowvar.integrals.base import HALF, IntegralProperties, Integrals, Integrator, Samples
from lowvar.integrals.cross_fitting import FOLDS, CrossFit, by_task, cross_fit, floor, judge, may_jump, negligible
from lowvar.integrals.inputs import doubt
from lowvar.integrals.monte_carlo import (
    GAIN,
    average,
    first_copies,
    on_grid,
    one_after_another,
    stride,
    worth_of_chain,
    worth_of_copies,
)
from lowvar.integrals.zero_variance import coefficients, zero_variance

FEW = 4.0  # terms that carry Monte Carlo's variance, below which one sample more could change it all
SHORT = 200.0  # effective points, below which a chain may not have explored the whole distribution
FAR = 4.0  # standard errors of Monte Carlo that an estimate may lie away from it
SIMPLER = 0.8  # of the error of a simpler fit: what a later one must stay below, or chance would choose
ORDERS = 1, 2, 3, 4  # of polynomials
MOMENTS = 0.0, 1 / 20, 1 / 6, 1 / 6  # carriers of each coordinate, relative to the points, that an order needs
POINTS_FOR_EACH = 3  # points that a polynomial needs for each of its coefficients
WORK = 4e10  # multiplications of a least-squares fit, at most
ALL = 150  # points up to which a kernel's functions around all of them are fitted
MANY = 4  # tasks with the same points, above which they share lengthscales
HEAVY = 30.0  # a score's square over the mean one, from which on a kernel is damped far out
DAMPED = 4e5  # coordinates of points, up to which such a kernel is tried too


def auto(folds: int = FOLDS, polynomial: bool = False, exact_scores: bool = False, kernels: bool = True) -> Integrator:
    """Cross-fits polynomials and kernels, and takes for each task the estimate with the smallest held-out error.

    The estimate is the mean of ``f - g`` with ``g`` fitted to other folds: unbiased for independent points, whatever
    the fit. Its standard error is that of a mean, and its interval Student's ``t``, for the terms that carry it.
    Held-out points say nothing of regions where no point fell, however well they are predicted: a cap may begin at the
    largest value. Such regions weigh up to three samples (the rule of three), and the integrand may differ there by its
    mean excess over the largest value, at least by a standard deviation. No error is stated above Monte Carlo's.

    Monte Carlo is returned where nothing is better, where the scores fail their test (``doubt``), where
    the points are discrete or rounded (``on_grid``), and where the estimate is more than four of its standard
    errors away from it.

    Args:
        folds: of the cross-fitting, 2 or more; blocks of successive points along a chain.
        polynomial: the integrands are known to be polynomials: those that are predicted to rounding are known
            everywhere, and regions without points then add nothing.
        exact_scores: the caller vouches for the scores: see ``doubt``.
        kernels: whether to try kernel methods too, which take most of the time.

    Returns:
        An integrator. ``info`` has the ``choice (R, T)`` by name, the terms that ``carry (R, T)`` the standard error,
        and what Monte Carlo gives: ``monte_carlo``, ``monte_carlo_error`` and ``monte_carlo_half (R, T)``.

    Raises:
        UserError: ``folds`` is below 2, or ``kernels`` is no bool.

    References:
        Sun, Barp and Briol, section 2; Oates, Girolami and Chopin, 2017; South, Oates, Mira and Drovandi, "Regularised
        zero-variance control variates for high-dimensional variance reduction", 2023, on choosing by cross-validation.
    """
    whole("folds", folds, 2)
    if not isinstance(kernels, bool):
        raise UserError(f"kernels {kernels!r} of auto: it must be True or False")

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        """Repetitions do not know of each other: those are treated together for which the same is tried."""
        groups: dict[tuple, list[int]] = {}
        for r in range(samples.repetitions):
            groups.setdefault(kind_of(samples.repetition(slice(r, r + 1)), exact_scores), []).append(r)
        rows = [np.array(group) for group in groups.values()]
        kinds = zip(groups, rows, strict=True)
        return stacked([_integrate_kind(samples.repetition(group), seeds[group], kind) for kind, group in kinds], rows)

    def _integrate_kind(samples: Samples, seeds: np.ndarray, kind: tuple) -> Integrals:
        shape, (apart, failing, _, lattice, *_) = (samples.repetitions, samples.tasks), kind
        chain = samples.chain or max(apart) > 0
        samples = in_order(samples, apart)
        sets = samples.points[samples.sets]
        grids = [not chain and grid for grid in lattice]
        of = worth_of_chain if chain else worth_of_copies
        worths = [None if grid else of(points) for points, grid in zip(sets, grids, strict=True)]
        worths = worths * samples.tasks if samples.shared else worths
        plain = [average(values, worth) for values, worth in zip(samples.values, worths, strict=True)]
        failing, doubted = (np.broadcast_to(of, shape) for of in (failing, np.array(failing) | np.array(grids)))
        monte_carlo, error, half = by_task(plain, "mean"), by_task(plain, "plain_error"), by_task(plain, "half_width")
        tried: list[tuple[str, CrossFit | None]] = [("monte_carlo", None)]
        untried = []
        value = monte_carlo.copy()
        choice, least, stated = np.zeros(shape, dtype=int), np.full(shape, np.inf), error.copy()
        width, residuals = half.copy(), by_task(plain, "carriers")
        as_chain = replace(samples, chain=chain)
        rounding = samples.rounding
        least_of_all = floor(plain, rounding)
        for method in methods(as_chain, folds, kernels):
            if (doubted | (SIMPLER * least <= least_of_all)).all():
                break  # nothing is better than rounding
            if method.properties.transfers and not samples.shared and doubted.any():
                continue
            try:
                fit = cross_fit(method, as_chain, seeds, folds)
            except TooFewPoints:
                continue
            except UserError as refusal:
                untried.append(f"{method.name} was not tried: {refusal}")
                continue
            one_fit = method.properties.transfers and not samples.shared
            found = judge(fit, plain, worths, one_fit, rounding, polynomial)
            better = (found.seen < SIMPLER * least) & ~doubted  # a NaN is not
            choice, least = np.where(better, len(tried), choice), np.where(better, found.seen, least)
            stated, width = np.where(better, found.standard_error, stated), np.where(better, found.half_width, width)
            value, residuals = np.where(better, found.value, value), np.where(better, found.carriers, residuals)
            tried.append((method.name, fit))
        with np.errstate(divide="ignore", invalid="ignore"):
            far = HALF * np.abs(value - monte_carlo) / half > FAR
        choice = np.where(far, 0, choice)
        value = np.where(choice > 0, value, monte_carlo)
        stated, width = np.where(choice > 0, stated, error), np.where(choice > 0, width, half)
        carriers, worth = by_task(plain, "carriers"), by_task(plain, "effective").min(axis=1)
        few = (carriers < FEW) & (stated > GAIN * error)
        few |= (residuals < FEW) & (choice > 0) & (least > GAIN * half)
        exact = negligible(plain, rounding)

        flags = {
            "scores_doubted": failing.any(axis=1),
            "discrete": np.full(shape[0], any(grids)),
            "far_from_monte_carlo": (far & ~doubted).any(axis=1),
            "like_a_chain": np.full(shape[0], chain and not samples.chain),
            "chains_mixed": np.full(shape[0], samples.chain and max(apart) > 1),
            "few_carriers": few.any(axis=1),
            "may_jump": np.logical_and((choice > 0) & may_jump(width, plain), not polynomial).any(axis=1),
            "short_chain": np.logical_and(worth < SHORT, chain) & (stated > exact).any(axis=1),
        }

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            rows = np.repeat(monte_carlo[:, task, None], points.shape[1], axis=1)
            for number, (_, fit) in enumerate(tried):
                chosen = choice[:, task] == number
                if fit is not None and chosen.any():
                    rows = np.where(chosen[:, None], fit.fitted(task, points, scores), rows)
            return rows

        return Integrals(
            value=value,
            standard_error=stated,
            condition=np.full(shape[0], np.nan),
            flags={name: np.asarray(flag) for name, flag in flags.items()},
            info={
                "choice": np.array([name for name, _ in tried])[choice],
                "monte_carlo": monte_carlo,
                "monte_carlo_error": error,
                "monte_carlo_half": half,
                "carriers": carriers,
            },
            fitted=fitted,
            untried=tuple(untried),
            half_width=width,
        )

    return Integrator("auto", IntegralProperties(transfers=True, exact_on="constants"), integrate)


def orders(samples: Samples) -> int:
    """The highest order of polynomials that the tails allow: beyond, their means may not show, or not exist."""
    coordinates = [
        x for points in samples.points[samples.sets] for x in np.moveaxis(points, 2, 0) if np.ptp(x, axis=1).all()
    ]
    carriers = min((float((average(x).carriers / x.shape[1]).min()) for x in coordinates), default=0.0)
    return max(order for order, needed in zip(ORDERS, MOMENTS, strict=True) if carriers >= needed)


def heavy(samples: Samples) -> bool:
    """Whether a few scores are far larger than the others."""
    square = [(scores**2).sum(axis=2) for scores in samples.scores[samples.sets]]
    return any(bool((one.max(axis=1) > HEAVY * one.mean(axis=1)).any()) for one in square)


def methods(samples: Samples, folds: int, kernels: bool = True) -> Iterator[Integrator]:
    """The integrators to try, cheap ones first, since a later one has to be better."""
    largest, smallest, dim = max(samples.sizes), min(samples.sizes), samples.dim
    training = smallest * (folds - 1) / folds
    for order in ORDERS[: orders(samples)]:
        if _affordable(coefficients(dim, order), POINTS_FOR_EACH if order > 1 else 2, training, largest):
            yield zero_variance(order)
        elif order == 2 and _affordable(coefficients(dim, order, True), 2, training, largest):
            yield zero_variance(order, diagonal=True)
    if kernels:
        yield from _kernels(samples)


def _affordable(unknowns: int, points_for_each: int, training: float, largest: int) -> bool:
    """Whether a polynomial has the points that its coefficients need, and its least squares are not too much work."""
    return points_for_each * unknowns <= training and largest * unknowns**2 <= WORK


def _kernels(samples: Samples) -> Iterator[Integrator]:
    """Kernel methods to try."""
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
    """How far apart the points of each task depend on each other, in the first repetition."""
    found = tuple(stride(points[0]) for points in samples.points[samples.sets])
    return found * samples.tasks if samples.shared else found


def in_order(samples: Samples, apart: tuple[int, ...]) -> Samples:
    """Chains that lie between each other, below each other."""
    if max(apart) < 2:
        return samples
    order = [one_after_another(m, k) for m, k in zip(samples.sizes, apart, strict=True)]
    arrays = (samples.points, samples.scores, samples.values)
    points, scores, values = (tuple(one[:, rows] for one, rows in zip(part, order, strict=True)) for part in arrays)
    return replace(samples, points=points, scores=scores, values=values, cross_scores=None)


def kind_of(samples: Samples, exact: bool) -> tuple:
    """All properties of one repetition that decide which integrators are tried."""
    sets = range(1 if samples.shared else samples.tasks)
    apart = strides(samples)
    samples = in_order(samples, apart)
    distinct = tuple(len(np.unique(first_copies(samples.points[t][0]))) for t in sets)
    grids = tuple(on_grid(samples.points[t][0]) for t in sets)
    chains = [samples.chain or apart[t] > 0 for t in sets]
    failing = tuple(doubt(samples.points[t][0], samples.scores[t][0], chains[t], exact) is not None for t in sets)
    return apart, failing, distinct, grids, orders(samples), heavy(samples)


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
