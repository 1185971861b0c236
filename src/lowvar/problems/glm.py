"""Exact ELBO of binary logistic regression with a standard Gaussian prior, by one-dimensional quadrature."""

import numpy as np

from lowvar.backends import Backend

_CHUNK = 1024  # data rows at a time
_WIDE = 6.0  # standard deviation of a predictor from which the kink at zero is taken out first


def expected_log_sigmoid(backend: Backend, mean, sd):
    """``E log sigmoid(u)`` for ``u ~ N(mean, sd^2)``, elementwise, to about ten digits.

    Narrow predictors: the trapezoidal rule in the standardised variable, whose error falls like
    ``exp(-2 pi^2 / (h sd))``. Wide ones: ``log sigmoid(u) = min(u, 0) - log(1 + exp(-|u|))``, the first in
    closed form, the second, a bump of width one, by Gauss-Legendre on both sides of zero.

    Args:
        backend: of the arrays.
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
    density = xp.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    below_zero = 0.5 * mean * (1 - backend.erf(ratio / np.sqrt(2))) - wide * density  # E min(u, 0)
    of_bump = (bump @ xp.exp(-0.5 * z**2)) / (wide * np.sqrt(2 * np.pi))
    return xp.where(sd < _WIDE, by_trapezoid, below_zero - of_bump)


def exact_elbo(backend: Backend, x, sign, guide):
    """``params -> ELBO`` (nats) for ``log p(y_n | z) = log sigmoid(sign_n x_n . z)`` and ``z ~ N(0, I)``.

    Under the guide ``x_n . z`` is Gaussian with mean ``x_n . mu`` and variance ``x_n^2 . sigma^2``, so the
    expected log-likelihood of a row is a one-dimensional integral.

    Args:
        backend: of the arrays.
        x: features, ``(N, dim)``.
        sign: ``(N,)``, 1 or -1.
        guide: mean-field Gaussian.
    """
    xp = backend.xp

    def elbo(params):
        mean = sign * (x @ params["mu"])
        sd = xp.sqrt((x * x) @ xp.exp(2 * params["log_sigma"]) + 1e-30)
        total = 0.0
        for start in range(0, x.shape[0], _CHUNK):
            rows = slice(start, min(start + _CHUNK, x.shape[0]))
            total = total + xp.sum(expected_log_sigmoid(backend, mean[rows], sd[rows]))
        second_moment = params["mu"] ** 2 + xp.exp(2 * params["log_sigma"])
        log_prior = -0.5 * xp.sum(second_moment) - 0.5 * guide.dim * np.log(2 * np.pi)
        return total + log_prior + guide.entropy(params)

    return elbo
