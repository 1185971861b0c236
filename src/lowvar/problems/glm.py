"""Exact ELBO of a generalised linear model with a standard Gaussian prior, by one-dimensional quadrature."""

import numpy as np

from lowvar.backends import Backend

_NODES = 201  # trapezoidal rule on [-8.5, 8.5]: for these integrands its error falls faster than any power
_CHUNK = 1024  # data rows at a time


def exact_elbo(backend: Backend, x, log_likelihood, guide):
    """``params -> ELBO`` (nats) for ``log p(y_n | z) = log_likelihood(x_n . z, n)`` and ``z ~ N(0, I)``.

    Under the guide the linear predictor ``x_n . z`` is Gaussian with mean ``x_n . mu`` and variance
    ``x_n^2 . sigma^2``, so the expected log-likelihood of a row is a one-dimensional integral.

    Args:
        backend: of the arrays.
        x: features, ``(N, dim)``.
        log_likelihood: ``(predictor (nodes, rows), index (rows,)) -> (nodes, rows)``, nats.
        guide: mean-field Gaussian.
    """
    xp = backend.xp
    nodes = np.linspace(-8.5, 8.5, _NODES)
    weights = np.exp(-(nodes**2) / 2)
    nodes, weights = (backend.asarray(v, like=x) for v in (nodes, weights / weights.sum()))

    def elbo(params):
        mean = x @ params["mu"]
        sd = xp.sqrt((x * x) @ xp.exp(2 * params["log_sigma"]))
        total = 0.0
        for start in range(0, x.shape[0], _CHUNK):
            rows = slice(start, min(start + _CHUNK, x.shape[0]))
            predictor = mean[rows][None, :] + nodes[:, None] * sd[rows][None, :]
            index = backend.asarray(np.arange(rows.start, rows.stop))
            total = total + xp.sum(weights @ log_likelihood(predictor, index))
        second_moment = params["mu"] ** 2 + xp.exp(2 * params["log_sigma"])
        log_prior = -0.5 * xp.sum(second_moment) - 0.5 * guide.dim * np.log(2 * np.pi)
        return total + log_prior + guide.entropy(params)

    return elbo
