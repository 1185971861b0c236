"""Posterior means by importance sampling over quasi-Monte Carlo points, which a triangular map transports."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_ROUNDS = (4096, 4096, 8192, 16384)  # points to which each round fits the proposal
_POINTS_PER_COEFFICIENT = 20  # effective points per coefficient that a map needs; with fewer, only moments are fitted
CUBIC = 0.015  # z + CUBIC z^3 in place of z gives tails heavier than a normal density's
_LOCATION, _SCALE = 3, 2  # degrees of the polynomials
_LARGEST = 3.0  # bound on the log scale, since polynomials extrapolate badly


def posterior_means(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    deviation: np.ndarray,
    *,
    points: int,
    scrambles: int = 16,
    seed: int = 0,
    rounds: tuple[int, ...] = _ROUNDS,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Means of functions under a density that is known up to a constant.

    The proposal is a ``Transport`` fitted to the weighted points of the previous round: by moments first, as a full map
    in the last two rounds. A map fitted to points of a poor proposal misses tails, and large weights there would be too
    rare to show in the standard error. Each scramble of the Sobol points then gives a self-normalised estimate, and
    their spread gives the standard error.

    Args:
        evaluate: ``(n, d) -> `` log density ``(n,)``, functions ``(n, T)``; the functions are ignored where the density
            vanishes.
        start: ``(d,)``, in the bulk.
        deviation: ``(d,)``, approximate standard deviations of the density.
        points: points per scramble, a power of two.
        scrambles: number of scrambles, 2 or more.
        seed: seed of the scrambles.
        rounds: points of each round of fitting.

    Returns:
        Means ``(T,)``, their standard errors ``(T,)``, and the effective sample size as a fraction of the points.

    References:
        Owen, "Monte Carlo theory, methods and examples", Chapters 9 and 17.
    """
    proposal, dim = affine(start, np.diag(deviation**2)), len(start)
    for r, size in enumerate(rounds):
        x, weight, _ = _weighted(evaluate, proposal, size, dim, (seed, 0, r))
        full_map = r >= len(rounds) - 2 and 1 / (weight @ weight) > _POINTS_PER_COEFFICIENT * coefficients(dim)
        proposal = fitted(x, weight) if full_map else affine(*moments(x, weight))
    means, effective = [], []
    for r in range(scrambles):
        _, weight, functions = _weighted(evaluate, proposal, points, dim, (seed, 1, r))
        means.append(weight @ functions)
        effective.append(1 / (points * weight @ weight))
    estimates = np.array(means)
    error = estimates.std(0, ddof=1) / np.sqrt(scrambles)
    return estimates.mean(0), error, float(np.mean(effective))


def _weighted(evaluate, proposal: "Transport", size: int, dim: int, seed: tuple[int, ...]):
    """Points of the proposal ``(n, d)``, their weights, which sum to one, and the functions at them."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(dim, rng=np.random.default_rng(seed)).random(size)
    x, log_proposal = proposal.push(ndtri(np.clip(uniform, 2.0**-33, 1 - 2.0**-33)))
    log_density, functions = evaluate(x)
    log_weight = log_density - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    return x, weight / weight.sum(), np.where(weight[:, None] > 0, functions, 0)


@dataclass(frozen=True)
class Transport:
    """Coordinate ``k`` is ``location_k + exp(log_scale_k) (z_k + CUBIC z_k^3)``, in whitened coordinates.

    ``location_k`` and ``log_scale_k`` are polynomials in the preceding coordinates. The map can follow a posterior
    that is curved or of varying width, and the density of the image is explicit.

    Attributes:
        mean: ``(d,)``.
        factor: ``(d, d)``, factor of the covariance.
        coefficients: for each coordinate, those of ``location`` and of ``log_scale``; empty for an affine map.

    References:
        Marzouk, Moselhy, Parno and Spantini (2016), "An introduction to sampling via measure transport".
    """

    mean: np.ndarray
    factor: np.ndarray
    coefficients: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def push(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images ``(n, d)`` of normal points ``(n, d)``, and their log densities ``(n,)`` up to a constant."""
        step = z * (1 + CUBIC * z**2)
        log_density = -0.5 * (z**2).sum(1) - np.log1p(3 * CUBIC * z**2).sum(1)
        if not self.coefficients:
            return self.mean + step @ self.factor.T, log_density
        white = np.empty_like(z)
        for k, (location, log_scale) in enumerate(self.coefficients):
            logs = np.clip(monomials(white[:, :k], _SCALE) @ log_scale, -_LARGEST, _LARGEST)
            white[:, k] = monomials(white[:, :k], _LOCATION) @ location + np.exp(logs) * step[:, k]
            log_density -= logs
        return self.mean + white @ self.factor.T, log_density


def affine(mean: np.ndarray, covariance: np.ndarray) -> Transport:
    """The map to a density with these moments."""
    return Transport(mean, np.linalg.cholesky(covariance))


def fitted(points: np.ndarray, weight: np.ndarray, newton_steps: int = 12) -> Transport:
    """The map of maximum likelihood for weighted points, except in the tails.

    Args:
        points: ``(n, d)``.
        weight: ``(n,)``, not negative.
        newton_steps: number of Newton steps for the logarithm of each scale.
    """
    weight = weight / weight.sum()
    mean, covariance = moments(points, weight)
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, (points - mean).T).T
    root, coefficients = np.sqrt(weight)[:, None], []
    for k in range(points.shape[1]):
        features = monomials(white[:, :k], _LOCATION)
        location = np.linalg.lstsq(features * root, white[:, k] * root[:, 0], rcond=None)[0]
        square = (white[:, k] - features @ location) ** 2
        features = monomials(white[:, :k], _SCALE)
        log_scale = np.zeros(features.shape[1])
        log_scale[0] = 0.5 * np.log(weight @ square)
        for _ in range(newton_steps):
            share = square * np.exp(-2 * features @ log_scale)
            curvature = (features * (2 * weight * share)[:, None]).T @ features
            slope = features.T @ (weight * (share - 1))
            log_scale = log_scale + np.linalg.solve(curvature + 1e-9 * np.eye(len(slope)), slope)
        coefficients.append((location, log_scale))
    return Transport(mean, factor, tuple(coefficients))


def coefficients(dim: int) -> int:
    """The number of coefficients of the last coordinate of a fitted map.

    >>> coefficients(3)
    16
    """
    return math.comb(dim - 1 + _LOCATION, _LOCATION) + math.comb(dim - 1 + _SCALE, _SCALE)


def moments(points: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of points ``(n, d)`` under weights that sum to one."""
    mean = weight @ points
    return mean, ((points - mean) * weight[:, None]).T @ (points - mean)


def monomials(x: np.ndarray, degree: int) -> np.ndarray:
    """All monomials of columns ``(n, k)`` up to a degree, the constant first.

    >>> monomials(np.array([[2.0, 3.0]]), 2).tolist()
    [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    """
    columns = [np.ones(len(x))]
    for order in range(1, degree + 1):
        for chosen in itertools.combinations_with_replacement(range(x.shape[1]), order):
            columns.append(x[:, list(chosen)].prod(axis=1))
    return np.stack(columns, axis=1)
