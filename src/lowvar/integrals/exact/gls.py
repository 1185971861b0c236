"""Constants by generalised least squares, for any points and, in eigenvectors, for tasks at the same points."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lowvar.integrals.exact.reml import Hyper, Space
from lowvar.integrals.stacked import Batched, cholesky, diagonal, inverse, solve_each, solve_lower


@dataclass(frozen=True)
class Fit(Batched):
    """A fit of ``y = H beta + g + noise``, ``g ~ N(0, sigma^2 K)`` and ``noise ~ N(0, sigma^2 diag(s))``.

    Attributes:
        beta: ``(R, T)``.
        reml_error: standard errors of ``beta`` if that law is right, ``(R, T)``.
        likely_error: the part of it that the function has, without the noise.
        jackknife_error: how far ``beta`` goes when values are replaced, one at a time, by what the others say.
        weights: coefficients ``alpha`` of ``g = K alpha``, ``(R, M)``, or ``(R, M, T)`` for shared points.
        amplitude: ``sigma^2``, ``(R,)``.
        condition: 2-norm condition number of ``K + diag(s)``, ``(R,)``.
        rounding: the order of what rounding does to ``beta``, ``(R, T)``.
        calibration: mean squared standardised residual of left-out values, ``(R,)``.
        farthest: the largest such residual, ``(R,)``.
    """

    beta: np.ndarray
    reml_error: np.ndarray
    likely_error: np.ndarray
    jackknife_error: np.ndarray
    weights: np.ndarray
    amplitude: np.ndarray
    condition: np.ndarray
    rounding: np.ndarray
    calibration: np.ndarray
    farthest: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Standard errors: of the function if its law is right, and what left-out values say.

        Smooth integrands are less alike than the law has it, and the first alone is too small; the second alone does
        not know what lies beyond the points.
        """
        return np.hypot(self.likely_error, self.jackknife_error)


def solve(matrix: np.ndarray, noise: np.ndarray, y: np.ndarray, member: np.ndarray, rule: str = "gls") -> Fit:
    """The fit with given hyper-parameters.

    With ``gls``, ``beta = (H' M^-1 H)^-1 H' M^-1 y``, ``M = K + diag(s)``: with ``s = lambda m_t`` for task ``t``
    the minimiser of eq. (8) over the function and the constants together. With ``mean`` the function is
    fitted around the sample means, and ``beta`` is the mean of what it leaves: one sweep of block-coordinate descent.

    Args:
        matrix: ``M (R, M, M)``.
        noise: ``s (R, M)`` or ``(R, 1)``.
        y: ``(R, M)``.
        member: ``H (M, T)``.
        rule: ``gls`` or ``mean``.

    References:
        Sun, Barp and Briol, section 4; Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration",
        2017.
    """
    factor, singular = cholesky(matrix)
    design = np.broadcast_to(member, (len(y), *member.shape))
    share = design / member.sum(0)
    half_y = solve_lower(factor, y[:, :, None])
    q, r = np.linalg.qr(solve_lower(factor, design))
    if rule == "gls":
        inverse_r = solve_each(r, np.broadcast_to(np.eye(r.shape[-1]), r.shape))
        beta = inverse_r @ (q.mT @ half_y)
        half_left = half_y - q @ (q.mT @ half_y)
        half_left = half_left - q @ (q.mT @ half_left)
        influence = solve_lower(factor, q @ inverse_r.mT, transposed=True)  # beta = influence' y
        lost = (solve_lower(factor, q, transposed=True) ** 2).sum(-1)
    else:
        mean = share.mT @ y[:, :, None]
        half_left = solve_lower(factor, y[:, :, None] - design @ mean)
        there = solve_lower(factor, solve_lower(factor, noise[:, :, None] * share), transposed=True)
        influence = share + there - share @ (design.mT @ there)
        beta = influence.mT @ y[:, :, None]
        lost = np.zeros_like(y)
    weights = solve_lower(factor, half_left, transposed=True)[:, :, 0]
    inverted = inverse(factor)
    precision = np.maximum(diagonal(inverted) - lost, np.finfo(float).tiny)
    amplitude = (half_left**2).sum((-2, -1)) / (y.shape[1] - member.shape[1])
    condition, largest = condition_number(matrix, inverted)
    variance = ((factor.mT @ influence) ** 2).sum(1)
    return Fit(
        np.where(singular[:, None], np.nan, beta[:, :, 0]),
        np.sqrt(amplitude[:, None] * variance),
        likely_error(amplitude, variance, (noise[:, :, None] * influence**2).sum(1)),
        np.linalg.norm(influence * (weights / precision)[:, :, None], axis=1),
        weights,
        amplitude,
        np.where(singular, np.inf, condition),
        np.finfo(float).eps
        * largest[:, None]
        * np.linalg.norm(influence, axis=1)
        * np.linalg.norm(weights, axis=1)[:, None],
        *squared_residuals(weights, amplitude, precision),
    )


def likely_error(amplitude, variance, of_noise):
    """The part of ``beta``'s error that is the function's: the noise is left to the jackknife.

    Args:
        amplitude: ``(R,)``.
        variance: of ``beta`` in units of the amplitude, noise included, ``(R, T)``.
        of_noise: the noise's part of it, ``(R, T)``.
    """
    return np.sqrt(amplitude[:, None] * np.maximum(variance - of_noise, 0))


def condition_number(matrix: np.ndarray, inverse: np.ndarray, steps: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """2-norm condition numbers and 2-norms ``(R,)`` of symmetric matrices, by power iteration."""
    largest, reciprocal = (_norm(of, steps) for of in (matrix, inverse))
    return largest * reciprocal, largest


def _norm(matrix, steps):
    start = 1 + 0.5 * np.sin(np.arange(matrix.shape[1]))  # any vector without symmetries
    vector = np.broadcast_to(start[:, None], (len(matrix), len(start), 1))
    for _ in range(steps):
        vector = matrix @ (vector / np.linalg.norm(vector, axis=1, keepdims=True))
    return np.linalg.norm(vector, axis=(1, 2))


def squared_residuals(weights, amplitude, precision):
    """Residuals ``weights / precision (R, M)`` of left-out values, standardised: mean square, and largest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = weights**2 / (amplitude[:, None] * precision)
    scaled = np.where(amplitude[:, None] > 0, scaled, 1.0)
    return scaled.mean(-1), np.sqrt(scaled.max(-1))


@dataclass(frozen=True)
class Spectrum(Batched):
    """Values in the eigenvectors of ``k0 = U S U'``.

    Attributes:
        U: ``(R, m, m)``.
        S: ``(R, m)``, not negative.
        y: ``U'Y (R, m, T)``.
        h: ``U'1 (R, m)``.
    """

    U: np.ndarray
    S: np.ndarray
    y: np.ndarray
    h: np.ndarray


@dataclass(frozen=True)
class RotatedFit:
    """A fit with given ``B = V D V'`` and noise, in the eigenvectors of both: arrays ``(R, m, T)`` or ``(R, T)``.

    Attributes:
        V: ``(R, T, T)``.
        variance: of each entry of ``U'YV`` up to the amplitude.
        information: ``h' diag(1 / variance) h``.
        beta: constants.
        weights: ``(U'YV - h beta) / variance``.
        precision: diagonal of the projector, entry by entry.
        square: ``y'Py (R,)``.
    """

    V: np.ndarray
    variance: np.ndarray
    information: np.ndarray
    beta: np.ndarray
    weights: np.ndarray
    precision: np.ndarray
    square: np.ndarray


def spectrum_of(matrix: np.ndarray, y: np.ndarray) -> Spectrum:
    """The eigenvectors of ``k0 (R, m, m)``, and values ``(R, m, T)`` in them."""
    S, U = np.linalg.eigh(matrix)
    return Spectrum(U, np.maximum(S, 0), U.mT @ y, U.sum(1))


def rotate(data: Spectrum, B: np.ndarray, shift: np.ndarray) -> RotatedFit:
    """The generalised least squares fit in ``O(m T^2 + T^3)``."""
    D, V = np.linalg.eigh(B)
    variance = data.S[:, :, None] * np.maximum(D, 0)[:, None] + shift[:, None, None]
    y, h = data.y @ V, data.h[:, :, None]
    information = (h * h / variance).sum(1)
    beta = (h * y / variance).sum(1) / information
    weights = (y - h * beta[:, None]) / variance
    precision = 1 / variance - (h / variance) ** 2 / information[:, None]
    return RotatedFit(V, variance, information, beta, weights, precision, (y * weights).sum((1, 2)))


def shared_objective(data: Spectrum, space: Space, level: np.ndarray) -> Callable:
    """``(z, which) -> (value, gradient)``: the restricted likelihood of ``B (x) k0 + noise`` in ``B`` and the nugget.

    Args:
        data: values.
        space: learns the nugget, the factor of ``B``, or both.
        level: mean diagonal of ``k0``, ``(R,)``.
    """

    def evaluate(z, which):
        here, hyper = data.pick(which), space.unpack(z, which)
        B, shift = matrices(hyper, level[which])
        fit = rotate(here, B, shift)
        degrees = here.y[0].size - here.y.shape[2]
        square = np.maximum(fit.square, 1e-280)
        logarithms = np.log(fit.variance).sum((1, 2)) + np.log(fit.information).sum(1)
        value = 0.5 * (degrees * np.log(square / degrees) + logarithms)
        bent = fit.weights @ fit.V.mT * np.sqrt(degrees / square)[:, None, None]
        own = fit.V * (here.S[:, None] @ fit.precision)  # V diag(sum_i s_i P_aii)
        slope = 0.5 * (own @ fit.V.mT - bent.mT @ (here.S[:, :, None] * bent))
        trace = 0.5 * (fit.precision.sum((1, 2)) - (bent**2).sum((1, 2)))
        # the noise's variance is the nugget times the mean diagonal of B (x) k0
        amount, tasks = trace * level[which], here.y.shape[2]
        slope = slope + (amount * hyper.nugget / tasks)[:, None, None] * np.eye(tasks)
        of_nugget = amount * diagonal(B).mean(-1)
        slopes = Hyper({}, of_nugget, 2 * slope @ hyper.factor)
        return np.where(np.isfinite(value), value, np.inf), space.pulled_back(hyper, which, slopes)

    return evaluate


def matrices(hyper: Hyper, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``B`` and the noise's variance, which is the nugget times the mean diagonal of ``B (x) k0``."""
    B = hyper.factor @ hyper.factor.mT
    return B, hyper.nugget * level * diagonal(B).mean(-1)


def solve_shared(data: Spectrum, B: np.ndarray, shift: np.ndarray) -> Fit:
    """As ``solve``, for shared points, in ``O(m^2 T + m T^2)``; the jackknife leaves out whole points."""
    fit = rotate(data, B, shift)
    m, tasks = data.y.shape[1:]
    amplitude = fit.square / ((m - 1) * tasks)
    influence = data.U @ (data.h[:, :, None] / fit.variance / fit.information[:, None])
    rotated = data.U @ fit.weights
    # (P_a)_ii: leaving out a point leaves out its values of all tasks
    left = data.U**2 @ (1 / fit.variance) - influence**2 * fit.information[:, None]
    left = np.maximum(left, np.finfo(float).tiny)
    moved = (influence * rotated / left) @ fit.V.mT
    variance, size = ((fit.V**2 @ of[:, :, None])[:, :, 0] for of in (1 / fit.information, (influence**2).sum(1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = rotated**2 / (amplitude[:, None, None] * left)
    scaled = np.where(amplitude[:, None, None] > 0, scaled, 1.0)
    largest = fit.variance.max((1, 2))
    rounding = np.finfo(float).eps * largest * np.linalg.norm(rotated, axis=(1, 2))
    return Fit(
        (fit.V @ fit.beta[:, :, None])[:, :, 0],
        np.sqrt(amplitude[:, None] * variance),
        likely_error(amplitude, variance, shift[:, None] * size),
        np.linalg.norm(moved, axis=1),
        rotated @ fit.V.mT,
        amplitude,
        largest / fit.variance.min((1, 2)),
        rounding[:, None] * np.sqrt(size),
        scaled.mean((1, 2)),
        np.sqrt(scaled.max((1, 2))),
    )
