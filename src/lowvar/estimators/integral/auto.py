"""The integrator that chooses: cross-fitted candidates, and the one whose held-out residuals are smallest."""

import math
from collections.abc import Iterator

import numpy as np

from lowvar.errors import UserError
from lowvar.estimators.integral.base import IntegralProperties, Integrals, Integrator
from lowvar.estimators.integral.control_functional import control_functional
from lowvar.estimators.integral.cross_fitting import CrossFit, cross_fit
from lowvar.estimators.integral.held_out import EXACT, GAIN, judge
from lowvar.estimators.integral.option_checks import whole
from lowvar.estimators.integral.score_check import doubt
from lowvar.estimators.integral.sparse_control_functional import sparse_control_functional
from lowvar.estimators.integral.tails import average, looks_like_a_chain, worth_of_chain
from lowvar.estimators.integral.vector_valued import vector_valued
from lowvar.estimators.integral.zero_variance import zero_variance
from lowvar.problems.integrals.samples import Samples

ORDERS = 1, 2, 3, 4  # of polynomials
POINTS_FOR_EACH = 3  # points that a polynomial needs for each of its coefficients
WORK = 4e10  # multiplications of a least-squares fit, at most
ALL = 150  # points up to which a kernel's functions around all of them are fitted
MANY = 4  # tasks with the same points, above which they share lengthscales
FEW = 4.0  # terms that carry Monte Carlo's variance, below which one sample more could change it all
SHORT = 200.0  # effective points, below which a chain may not have been everywhere
FAR = 3.0  # standard errors of Monte Carlo that an estimate may lie away from it
SIMPLER = 0.8  # of the error of a simpler fit: what a later one must stay below, or chance would choose
HEAVY = 30.0  # a score's square over the mean one, from which on a kernel is damped far out


def auto(folds: int = 5) -> Integrator:
    """Cross-fits polynomials and kernels, and takes for each task the estimate with the smallest standard error.

    The estimate is the mean of ``f - g`` with ``g`` fitted to other folds: unbiased for independent points, whatever
    the fit. Its standard error is that of a mean, with Student's ``t`` for the terms that carry it. Where those are
    few, because ``g`` misses the outermost points, unseen ones may be missed by more. Then the fitted process is
    believed if no left-out value contradicts it; if one does, the regions without samples are held to be as far from
    the fit as the integrand is from its mean, and to weigh as much as two samples. No error is stated above Monte
    Carlo's.

    Monte Carlo is returned where nothing is better, where the scores fail their test (``score_check.doubt``), and where
    the estimate is more than three of its standard errors away from it.

    Args:
        folds: of the cross-fitting, 2 or more; blocks of successive points along a chain.

    Returns:
        An integrator. ``info`` has the ``choice (R, T)`` by name, the terms that ``carry (R, T)`` the standard error,
        and what Monte Carlo gives, ``monte_carlo`` and ``monte_carlo_error (R, T)``.

    Raises:
        UserError: ``folds`` is below 2.

    References:
        Sun, Barp and Briol, section 2; Oates, Girolami and Chopin, 2017; South, Oates, Mira and Drovandi, "Regularised
        zero-variance control variates for high-dimensional variance reduction", 2023, on choosing by cross-validation.
    """
    whole("folds", folds, 2)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        shape = samples.repetitions, samples.tasks
        alike = np.stack([looks_like_a_chain(points) for points in samples.points], axis=1)
        chain = samples.chain or bool(alike.any())
        sets = samples.points[:1] if samples.shared else samples.points
        worths = [worth_of_chain(points) if chain else None for points in sets]
        worths = worths * samples.tasks if samples.shared else worths
        plain = [average(values, worth) for values, worth in zip(samples.values, worths, strict=True)]
        doubted = np.array([[_doubted(samples, r, t) for t in range(shape[1])] for r in range(shape[0])])
        monte_carlo = np.stack([one.mean for one in plain], axis=1)
        error = np.stack([one.error for one in plain], axis=1)
        tried: list[tuple[str, CrossFit | None]] = [("monte_carlo", None)]
        value = monte_carlo.copy()
        choice, stated = np.zeros(shape, dtype=int), np.full(shape, np.inf)
        as_chain = Samples(samples.points, samples.scores, samples.values, samples.shared, chain=chain)
        for method in _methods(as_chain, folds):
            if method.properties.transfers and not samples.shared and doubted.any():
                continue
            try:
                fit = cross_fit(method, as_chain, seeds, folds)
            except UserError:
                continue  # too few points for this method
            found, its_error = judge(fit, plain, worths, method.properties.transfers and not samples.shared)
            better = (its_error < SIMPLER * stated) & ~doubted  # a NaN is not
            choice, stated = np.where(better, len(tried), choice), np.where(better, its_error, stated)
            value = np.where(better, found, value)
            tried.append((method.name, fit))
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.abs(value - monte_carlo) / error > FAR
        choice = np.where(far, 0, choice)
        value, stated = np.where(choice > 0, value, monte_carlo), np.where(choice > 0, stated, error)
        carriers = np.stack([one.carriers for one in plain], axis=1)
        worth = np.stack([one.effective for one in plain], axis=1).min(axis=1)

        flags = {
            "scores_doubted": doubted.any(axis=1),
            "far_from_monte_carlo": (far & ~doubted).any(axis=1),
            "like_a_chain": np.logical_and(alike.any(axis=1), not samples.chain),
            "few_carriers": ((carriers < FEW) & (stated > GAIN * error)).any(axis=1),
            "short_chain": np.logical_and(worth < SHORT, chain) & (stated > EXACT * error).any(axis=1),
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
                "carriers": carriers,
            },
            fitted=fitted,
        )

    return Integrator("auto", IntegralProperties(transfers=True, exact_on="constants"), integrate)


def _doubted(samples: Samples, r: int, t: int) -> bool:
    if samples.shared and t:
        return _doubted(samples, r, 0)
    return doubt(samples.points[t][r], samples.scores[t][r], samples.chain) is not None


def _methods(samples: Samples, folds: int) -> Iterator[Integrator]:
    """What is tried: cheap ones first, since a later one has to be better."""
    largest, smallest, dim = max(samples.sizes), min(samples.sizes), samples.dim
    training = smallest * (folds - 1) / folds
    for order in ORDERS:
        unknowns = math.comb(dim + order, order)
        enough = POINTS_FOR_EACH if order > 1 else 2
        if enough * unknowns <= training and largest * unknowns**2 <= WORK:
            yield zero_variance(order)
    if largest > ALL:
        yield sparse_control_functional()
        return
    if samples.shared and samples.tasks > MANY:
        yield vector_valued()
    else:
        yield control_functional()
    square = [(scores**2).sum(axis=2) for scores in samples.scores]
    if any((one.max(axis=1) > HEAVY * one.mean(axis=1)).any() for one in square):
        yield sparse_control_functional(kernel="preconditioned")
    if not samples.shared and samples.tasks > 1 and sum(samples.sizes) <= 2 * ALL:
        yield vector_valued()
