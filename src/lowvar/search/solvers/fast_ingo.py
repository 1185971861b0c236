"""INGO with a diagonal covariance."""

import math
from typing import Any, NamedTuple

from lowvar.errors import positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import LEAST, Sampling


class DiagonalState(NamedTuple):
    """A Gaussian with a diagonal covariance.

    Attributes:
        mean: ``mu``, ``(d,)``.
        sigma: standard deviations, ``(d,)``.
    """

    mean: Any
    sigma: Any


def fast_ingo(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    noise: str = "iid",
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """Implicit natural gradient for ``N(mu, diag(sigma^2))``.

    ``q = 1 + beta diag(M)``, ``mu <- mu - beta sigma s / q``, ``sigma <- sigma / sqrt q``, with the gradient
    ``s, M`` in whitened coordinates.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size; ``1 / sqrt d``, at most 1/2, if not given: longer steps make ``sigma`` diverge for small d.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: ``none``, ``mean`` or ``centre``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, section 6, "Fast-INGO" (the diagonal case of Algorithm 1).
    """
    sampling, xp = Sampling("fast_ingo", backend, domain, population, noise, baseline, normalise), backend.xp
    beta = min(1 / math.sqrt(domain.dim), 0.5) if beta is None else beta
    positive("beta", beta)

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return DiagonalState(x0, sigma0 + xp.zeros_like(x0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + state.sigma[None, :] * noise, state.mean)

    def tell(state, noise, points, values):
        gradient = sampling.gradient(noise, values)
        q = xp.clip(1 + beta * gradient.diagonal(noise), min=LEAST)  # sigma^2 / sigma_new^2, the diagonal of (eq. 18)
        mean = state.mean - beta * state.sigma * gradient.mean / q  # (eq. 19)
        return DiagonalState(mean, state.sigma / xp.sqrt(q))

    return sampling.diagonal(init, ask, tell)
