"""Triangular maps from normal coordinates to a density known up to a constant."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

CUBIC = 0.015  # z + CUBIC z^3 in place of z gives tails heavier than a normal density's
_LOCATION, _SCALE = 3, 2  # degrees of the polynomials
_LARGEST = 3.0  # bound on the log scale, since polynomials extrapolate badly


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
