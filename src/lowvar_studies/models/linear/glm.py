"""Expected log-likelihoods under Gaussian predictors, from which the ELBO of a generalised linear model follows."""

import math
from functools import cache

import numpy as np

from lowvar.core.backend import Backend

_WIDE = 6.0  # from this standard deviation of a predictor on, the kink at zero is integrated in closed form


def expected_log_sigmoid(backend: Backend, mean, sd):
    """``E log sigmoid(u)`` for ``u ~ N(mean, sd^2)``, elementwise, to about ten digits.

    Narrow predictors: the trapezoidal rule in the standardised variable, whose error falls like
    ``exp(-2 pi^2 / (h sd))``. Wide ones: ``log sigmoid(u) = min(u, 0) - log(1 + exp(-|u|))``, the first term in
    closed form, the second, a bump of unit width, by Gauss-Legendre on both sides of zero.

    Args:
        backend: the array library.
        mean: ``(rows,)``.
        sd: ``(rows,)``, positive.
    """
    xp = backend.xp

    def arrays(*values):
        return (backend.asarray(value, like=mean) for value in values)

    t = np.linspace(-8.5, 8.5, 201)
    weights = np.exp(-(t**2) / 2)
    t, weights = arrays(t, weights / weights.sum())
    narrow = xp.minimum(sd, xp.full_like(sd, _WIDE))
    predictor = mean[None, :] + t[:, None] * narrow[None, :]
    by_trapezoid = -(weights @ xp.logaddexp(-predictor, xp.zeros_like(predictor)))

    half, half_weights = np.polynomial.legendre.leggauss(96)
    u = 20 * (half + 1)  # the bump is below 1e-17 beyond 40
    u, bump = arrays(np.concatenate([-u, u]), np.tile(20 * half_weights, 2) * np.tile(np.log1p(np.exp(-u)), 2))
    wide = xp.maximum(sd, xp.full_like(sd, _WIDE))
    z = (u[:, None] - mean[None, :]) / wide[None, :]
    ratio = mean / wide
    density = xp.exp(-0.5 * ratio**2) / math.sqrt(2 * math.pi)
    below_zero = 0.5 * mean * (1 - backend.erf(ratio / math.sqrt(2))) - wide * density  # E min(u, 0)
    of_bump = (bump @ xp.exp(-0.5 * z**2)) / (wide * math.sqrt(2 * math.pi))
    return xp.where(sd < _WIDE, by_trapezoid, below_zero - of_bump)


_EULER = 0.5772156649015329
_GUMBEL_SD = np.pi / 6**0.5
_ANGLES, _POINTS, _LOW, _HIGH = 513, 512, -7.0, 14.0  # of the table below
_TAIL = 1e-7  # probability cut off in each tail
_NODES = 24


def expected_log_softmax(backend: Backend, mean, sd, label):
    """``E log softmax(a)[label]`` for independent ``a_c ~ N(mean_c, sd_c^2)``, a row at a time, to about 1e-6.

    With independent standard Gumbel ``g_c``, ``log sum_c exp(a_c) = E max_c (a_c + g_c) - gamma``. The expectation
    over independent Gaussians becomes that of a maximum of independent variables, a one-dimensional integral of
    ``1 - prod_c F_c(x)``. ``F_c``, the distribution function of a Gaussian plus a centred Gumbel, is interpolated
    from a table. The trapezoidal rule uses sinh-spaced points: dense enough for the narrowest class, and spread
    over the range of the widest. The result is deterministic.

    Compared with brute force (and, within its error, with 1e6 Monte Carlo samples), the largest absolute error over
    rows of ten classes is 1e-6 for ``sd`` up to 4, and 3e-6 for ``sd`` in 15 to 30 or mixed from 0.1 to 30; in
    float32 it is 1e-5. Derivatives by autodiff have about three digits.

    Args:
        backend: the array library.
        mean: ``(rows, classes)``.
        sd: ``(rows, classes)``, positive.
        label: ``(rows,)``, integers from 0.

    Returns:
        ``(rows,)``, nats.
    """
    xp = backend.xp
    table, lower, upper = (backend.asarray(array, like=mean) for array in _gaussian_plus_gumbel())
    size = xp.sqrt(sd * sd + _GUMBEL_SD**2)
    angle = xp.atan(sd / _GUMBEL_SD) * ((_ANGLES - 1) / (np.pi / 2))
    row = xp.astype(xp.clip(angle, 0.0, _ANGLES - 2.0), xp.int32)
    share = angle - xp.astype(row, mean.dtype)
    take, zero = backend.take, xp.zeros_like(mean)

    def quantile(of):
        return mean + size * ((1 - share) * take(of, row) + share * take(of, row + 1))

    # up to the tails, the maximum lies between `low` and `high`; sinh-spaced points between them
    each_high = quantile(upper)
    low, high = xp.max(quantile(lower), axis=1), xp.max(each_high, axis=1)
    wanted = 0.5 * xp.min(xp.where(each_high > low[:, None], size, zero + np.inf), axis=1)
    ratio = xp.maximum((high - low) / (_NODES * wanted), xp.ones_like(low))  # the target value of sinh(y) / y
    y = xp.where(ratio < 3, xp.sqrt(6 * (ratio - 1) + 1e-6), xp.log(2 * ratio) + 1)
    for _ in range(3):
        y = y - (xp.log(xp.sinh(y) / (y * ratio))) / (1 / xp.tanh(y) - 1 / y)
        y = xp.maximum(y, xp.full_like(y, 1e-3))
    grid = backend.asarray(np.arange(_NODES) / _NODES, like=mean)
    ends = backend.asarray(np.where(np.arange(_NODES) == 0, 0.5, 1.0) / _NODES, like=mean)
    y, span = y[:, None], (high - low)[:, None] / xp.sinh(y)[:, None]
    x = low[:, None] + span * xp.sinh(y * grid[None, :])  # (rows, nodes)
    weight = span * y * xp.cosh(y * grid[None, :]) * ends[None, :]

    # cubic in the point, linear in the angle
    place = (x[:, None, :] - mean[:, :, None]) / size[:, :, None]
    place = xp.clip((place - _LOW) * ((_POINTS - 1) / (_HIGH - _LOW)), 1.0, _POINTS - 2.001)
    column = xp.astype(place, xp.int32)
    t, cell = place - xp.astype(column, mean.dtype), row[:, :, None] * _POINTS + column
    share = share[:, :, None]
    cubic = (
        -t * (t - 1) * (t - 2) / 6,
        (t + 1) * (t - 1) * (t - 2) / 2,
        -(t + 1) * t * (t - 2) / 2,
        (t + 1) * t * (t - 1) / 6,
    )
    below = 0.0
    for offset, factor in enumerate(cubic, -1):
        node = cell + offset
        below = below + factor * ((1 - share) * take(table, node) + share * take(table, node + _POINTS))
    log_sum_exp = low + xp.sum(weight * (1 - xp.prod(below, axis=1)), axis=1)
    classes = backend.asarray(np.arange(mean.shape[1], dtype=np.int32))
    return xp.sum(xp.where(label[:, None] == classes[None, :], mean, zero), axis=1) - log_sum_exp


@cache
def _gaussian_plus_gumbel():
    """Distribution functions of ``N(0, s^2)`` plus a Gumbel variable of mean zero, and their outer quantiles.

    Returns:
        ``F`` of the standardised sum, flat ``(angles points,)``, for ``s = tan(angle)`` Gumbel deviations and angles
        in equal steps from 0 (Gumbel) to pi / 2 (Gaussian); quantiles of ``_TAIL`` and ``1 - _TAIL``, ``(angles,)``.
    """
    from scipy.special import ndtr  # slow to import, and only needed here

    points = np.linspace(_LOW, _HIGH, _POINTS)
    z = np.arange(-8.4, 8.5, 0.2)
    gaussian = np.exp(-z * z / 2)
    g = np.arange(-5, 45, 0.25)
    gumbel = np.exp(-g - np.exp(-g))
    F = np.empty((_ANGLES, _POINTS))
    for i, angle in enumerate(np.linspace(0, np.pi / 2, _ANGLES)[:-1]):
        s = _GUMBEL_SD * np.tan(angle)
        x = (points * np.hypot(s, _GUMBEL_SD) + _EULER)[:, None]
        if s < 1.5:  # the trapezoidal rule over the wider variable, exact up to rounding
            F[i] = np.exp(-np.exp(np.minimum(s * z - x, 700.0))) @ (gaussian / gaussian.sum())
        else:
            F[i] = ndtr((x - g) / s) @ (gumbel / gumbel.sum())
    F[-1] = ndtr(points)
    lower = points[np.array([np.searchsorted(row, _TAIL) - 1 for row in F])]
    upper = points[np.array([min(np.searchsorted(row, 1 - _TAIL), _POINTS - 1) for row in F])]
    return F.ravel(), lower, upper
