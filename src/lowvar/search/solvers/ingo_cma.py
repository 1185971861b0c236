"""A natural gradient as in INGO, with the ranks, the evolution paths and the step-size control of CMA-ES."""

import math
from typing import Any, NamedTuple

import numpy as np

from lowvar.search.gradients import usable
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import Sampling, exponential


class CmaState(NamedTuple):
    """A Gaussian with a full covariance, and the paths of its mean.

    Attributes:
        mean: ``mu``, ``(d,)``.
        factor: ``A`` with ``Sigma = A A'``, ``(d, d)``; the step size ``sigma`` is part of it.
        length_path: steps of the mean in whitened coordinates, decaying; its length moves the step size, ``(d,)``.
        shape_path: the same with a longer memory, turned along with ``A``; ``Sigma`` grows along it, ``(d,)``.
        generation: generations told, a scalar.
    """

    mean: Any
    factor: Any
    length_path: Any
    shape_path: Any
    generation: Any


def ingo_cma(backend, domain, population: int | None = None) -> SearchSolver:
    """Natural gradient for ``N(mu, Sigma)`` from ranks, with cumulation: the search for ``f`` without noise.

    With ``x_i = mu + A z_i``, weights ``w_i`` of the ranks, ``s = sum_{w_i > 0} w_i z_i`` and paths ``p``, ``q``:

    * ``p <- (1 - c_s) p + sqrt(c_s (2 - c_s) mu_eff) s`` and ``q <- (1 - c_c) q + sqrt(c_c (2 - c_c) mu_eff) s``, the
      latter without its second part while ``p`` is long (tutorial, eqs. 43, 45);
    * ``mu <- mu + A s`` (eq. 42);
    * ``B = exp(-c_1 (q q' - I) - c_mu sum_i w_i (z_i z_i' - I))``, where the tutorial (eq. 47) multiplies ``Sigma`` by
      ``I + c_1 (..) + c_mu (..)`` and INGO ``Sigma^-1`` by ``I - c_1 (..) - c_mu (..)``; eigenvalues of at least 1/4;
    * ``A <- A B^(-1/2) exp(c_s / d_s (|p| / E|N(0, I)| - 1))`` (eq. 44), and ``q <- B^(1/2) q``, the same vector in
      the new coordinates.

    The factored step comes from INGO; the weights (including negative ones), the paths, the step size and all constants
    from CMA-ES. To first order, ``B`` is that of both. Where ranks are random, ``log Sigma`` then keeps its mean, up to
    the step size and the paths, where INGO's step widens and that of CMA-ES narrows. ``p`` is in the coordinates of
    ``A``, not of ``Sigma^(-1/2)``: both give paths with the same distribution under random selection. A run is
    invariant under increasing functions of ``f`` and, up to its noise, under rotations. Equal values share the weights
    of their ranks.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given. With ``N < d`` a generation costs
            ``O(d^2 N)``, with more points an eigendecomposition of a ``d x d`` matrix.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Hansen, "The CMA evolution strategy: a tutorial", arXiv:1604.00772, appendix A and table 1; Lyu and Tsang,
        Algorithm 1, for the gradient; Krause, Arbones and Igel, NeurIPS 2016, for paths in whitened coordinates.
    """
    sampling = Sampling("ingo_cma", backend, domain, population)
    dim, n, xp = domain.dim, sampling.population, backend.xp
    weights, effective, c_one, c_mu = _weights(n, dim)
    totals = np.concatenate([np.zeros((2, 1)), np.cumsum([np.maximum(weights, 0), weights], axis=1)], axis=1).T.copy()

    c_c = (4 + effective / dim) / (dim + 4 + 2 * effective / dim)
    c_s = (effective + 2) / (dim + effective + 5)
    damping = 1 + 2 * max(0.0, math.sqrt((effective - 1) / (dim + 1)) - 1) + c_s
    length = math.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim**2))  # E |N(0, I)|

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        zeros = xp.zeros_like(x0)
        return CmaState(x0, sigma0 * backend.asarray(np.eye(dim), x0), zeros, zeros, xp.zeros_like(sigma0))

    def ask(state, noise):
        return state.mean[None, :] + noise @ state.factor.T

    def tell(state, z, points, values):
        values = usable(backend, xp.astype(values, z.dtype))
        below = xp.sum(xp.astype(values[None, :] < values[:, None], xp.int64), axis=1)
        upto = xp.sum(xp.astype(values[None, :] <= values[:, None], xp.int64), axis=1)
        share = backend.asarray(totals, z)
        w = (backend.take(share, upto) - backend.take(share, below)) / xp.astype(upto - below, z.dtype)[:, None]
        s, each = w[:, 0] @ z, w[:, 1]
        each = xp.where(each < 0, each * dim / xp.sum(z * z, axis=1), each)

        generation = state.generation + 1
        p = (1 - c_s) * state.length_path + math.sqrt(c_s * (2 - c_s) * effective) * s  # (eq. 43)
        squared = xp.sum(p * p)
        calm = squared / (1 - (1 - c_s) ** (2 * generation)) < (2 + 4 / (dim + 1)) * dim
        calm = xp.astype(calm, z.dtype)
        q = (1 - c_c) * state.shape_path + calm * math.sqrt(c_c * (2 - c_c) * effective) * s  # (eq. 45)

        rest = c_one * (1 - (1 - calm) * c_c * (2 - c_c)) + c_mu * xp.sum(w[:, 1])
        rows = xp.concat([z, q[None, :]])
        b = exponential(backend, rest, rows, -xp.concat([c_mu * each, c_one + 0 * each[:1]]))  # (eq. 47)
        stretch = xp.exp(xp.clip(c_s / damping * (xp.sqrt(squared) / length - 1), max=1.0))  # (eq. 44)
        mean = state.mean + state.factor @ s  # (eq. 42)
        after = CmaState(mean, stretch * b.times(state.factor, -0.5), p, b.times(q, 0.5), generation)
        informative = xp.max(values) > xp.min(values)  # a generation of equal values carries no information
        return CmaState(*(xp.where(informative, new, old) for new, old in zip(after, state, strict=True)))

    return sampling.full(init, ask, tell)


def _weights(n: int, dim: int) -> tuple[np.ndarray, float, float, float]:
    """Weights of the ranks ``(N,)``, best first, ``mu_eff``, ``c_1`` and ``c_mu`` (tutorial, eqs. 49-58)."""
    raw = math.log((n + 1) / 2) - np.log(np.arange(1, n + 1))
    good, bad = np.maximum(raw, 0), np.maximum(-raw, 0)
    good, worse = good / good.sum(), bad / bad.sum()
    effective = 1 / float(good @ good)
    c_one = 2 / ((dim + 1.3) ** 2 + effective)
    c_mu = min(1 - c_one, 2 * (0.25 + effective - 2 + 1 / effective) / ((dim + 2) ** 2 + effective))
    most = min(1 + c_one / c_mu, 1 + 2 / float(worse @ worse) / (effective + 2), (1 - c_one - c_mu) / (dim * c_mu))
    return good - most * worse, effective, c_one, c_mu
