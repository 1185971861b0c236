"""INGO whose covariance also grows along the path of its mean."""

import math
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import Sampling, exponential

_MOST = 0.1  # maximum reduction of an eigenvalue of B by the path: in few dimensions, longer steps reinforce themselves


class PathState(NamedTuple):
    """A Gaussian with a full covariance, and the path of its mean.

    Attributes:
        mean: ``mu``, ``(d,)``.
        factor: ``A`` with ``Sigma = A A'``, ``(d, d)``.
        path: steps of the mean in whitened coordinates, decaying and turned along with ``A``, ``(d,)``.
    """

    mean: Any
    factor: Any
    path: Any


def ingo_path(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    baseline: str = "mean",
) -> SearchSolver:
    """``ingo`` with a rank-one update along its path: the search for noisy ``f``.

    ``B = exp(b M - min(c max(|q|^2 - d - 2 sqrt(2 d), 0), 1/10) q q' / |q|^2)``, ``b = beta d / (d + 4)``, and as in
    ``ingo`` ``A <- A B^(-1/2)`` and ``mu <- mu - beta A B^-1 s``, with the gradient ``s, M`` in whitened coordinates.
    The path is ``q <- (1 - c_c) q - sqrt(c_c (2 - c_c) N) s``, then ``B^(1/2) q``, the same vector in the new
    coordinates; ``c = 8 / ((d + 1.3)^2 + N / 2)`` and ``c_c`` are those of CMA-ES, ``c`` times 4.

    Where ``f`` is pure noise, ``q`` is approximately ``N(0, I)``, and ``|q|^2`` has mean ``d`` and standard deviation
    ``sqrt(2 d)``. An excess of two standard deviations marks a direction in which the mean keeps moving, such as that
    of a curved valley, in which ``ingo`` is slow. Nothing shrinks in return, and there is no global step size: along
    every axis, ``Sigma^-1`` grows by the estimated curvature, so a flat axis stays wide until its own signal is
    detected. With noise of constant size, the mean thus averages over all generations (``Sigma^-1`` grows like ``t``,
    steps fall like ``1 / t``), where CMA-ES shrinks all axes and stalls.

    Two more things differ from ``ingo``. Where ``f`` is pure noise, ``I + beta M`` would widen the Gaussian without
    end, and in few dimensions it can be indefinite; the logarithm of ``exp(b M)`` keeps its mean. And in few dimensions
    the covariance has a smaller step size than the mean: it would wander far where ``f`` is noise, and narrow before
    the mean arrives where it is not.

    Eigenvalues of ``B`` below 1/4 become 1/4, else the step along that eigenvector, a multiple of ``B^-1``, would leave
    the region that was sampled.

    Beyond the paper: docs/performance.md compares it with ``ingo``, ``ingo_cma`` and pycma. Limits:
    without noise ``ingo_cma`` needs a third of its evaluations or fewer.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size of the mean; ``1 / d``, at most 1/2, if not given.
        baseline: ``none``, ``mean`` or ``centre``.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, Algorithm 1, for ``M``, ``s`` and the step; Hansen, arXiv:1604.00772, eqs. 45 and 47, for the
        path and the rank-one update.
    """
    sampling = Sampling("ingo_path", backend, domain, population, "iid", baseline)
    dim, n, xp = domain.dim, sampling.population, backend.xp
    beta = min(1 / dim, 0.5) if beta is None else beta
    positive("beta", beta)
    slow = beta * dim / (dim + 4)
    c_c = (4 + n / 2 / dim) / (dim + 4 + n / dim)
    rate = 8 / ((dim + 1.3) ** 2 + n / 2)
    chance = dim + 2 * math.sqrt(2 * dim)

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return PathState(x0, sigma0 * backend.asarray(np.eye(dim), x0), xp.zeros_like(x0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + noise @ state.factor.T, state.mean)

    def tell(state, z, points, values):
        gradient = sampling.gradient(z, values)
        s = gradient.mean
        informative = xp.max(xp.abs(gradient.weights)) > 0  # a generation of equal values carries no information
        q = (1 - c_c) * state.path - math.sqrt(c_c * (2 - c_c) * n) * s  # (Hansen's eq. 45)
        squared = xp.sum(q * q)
        grown = xp.clip(rate * (squared - chance), min=0.0, max=_MOST)
        coefficient = grown / xp.where(squared > 0, squared, xp.ones_like(squared))
        rows = xp.concat([z, q[None, :]])
        weights = xp.concat([slow * gradient.weights, -coefficient[None]])
        b = exponential(backend, -slow * gradient.trace, rows, weights)
        mean = state.mean - beta * (state.factor @ b.times(s, -1.0))  # (eq. 19)
        after = PathState(mean, b.times(state.factor, -0.5), b.times(q, 0.5))
        return PathState(*(xp.where(informative, new, old) for new, old in zip(after, state, strict=True)))

    return sampling.full(init, ask, tell)
