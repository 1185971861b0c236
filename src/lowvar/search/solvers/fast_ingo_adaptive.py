"""INGO with a diagonal covariance, whose step size grows while the signal-to-noise ratio is high."""

import math
from typing import Any, NamedTuple

from lowvar.errors import UserError, positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import LEAST, Sampling


class AdaptiveState(NamedTuple):
    """A Gaussian with a diagonal covariance, and the step size.

    Attributes:
        mean: ``mu``, ``(d,)``.
        sigma: standard deviations, ``(d,)``.
        beta: step size, a scalar.
    """

    mean: Any
    sigma: Any
    beta: Any


def fast_ingo_adaptive(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    most: float | None = None,
    share: float = 0.2,
    gain: float = 0.025,
    baseline: str = "mean",
) -> SearchSolver:
    """``fast_ingo`` with ``log beta <- log beta + g (share - R^2)``, kept between two bounds.

    ``R^2 = |E h z|^2`` is the share of the variance of the normalised values ``h`` that a linear function of the
    points explains, estimated by ``(|s|^2 - sum_i w_i^2 |z_i|^2) N / (N - 1)``, at no cost. The estimate is biased low,
    because ``h`` is centred and scaled by its own generation: by about 15 % with N = 18, where shares of 0.2, 0.4 and
    1 come out as 0.17, 0.34 and 0.85 on average. A ``share`` is thus one of estimates.

    On a quadratic, in the steady state, ``mu / sigma`` wanders around the minimum with a variance
    ``v = beta sqrt(d (4 v + 2)) / (2 N)`` per coordinate, so that ``R^2 = 4 v / (4 v + 2)``, and ``log sigma`` falls by
    ``beta / sqrt(d (4 v + 2))`` a generation. With the paper's ``beta = 1 / sqrt d`` the share is small (7 % for
    N = 18): the search is cautious and slow there, and longer steps gain almost in proportion. Before it has
    found its valley, the share is large for any step size, and the cautious step is kept.

    Beyond the paper: docs/reproduction/ingo_beyond.md compares it with the steps ``1 / sqrt d``, ``2 / sqrt d`` and
    ``3 / sqrt d``. Limits: where no valley has to be found first, the longest of them is as fast or faster;
    with many local minima, as on Rastrigin10, a longer step ends in a worse one.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: the first and the smallest step size; ``1 / sqrt d``, at most 1/2, if not given.
        most: the largest step size; ``4 beta``, at most 1/2, if not given.
        share: target for the share of the linear part, between 0 and 1.
        gain: rate at which the step size adapts.
        baseline: ``none``, ``mean`` or ``centre``.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, section 6, "Fast-INGO", for all but the step size.
    """
    sampling = Sampling("fast_ingo_adaptive", backend, domain, population, "iid", baseline)
    dim, xp, population = domain.dim, backend.xp, sampling.population
    beta = min(1 / math.sqrt(dim), 0.5) if beta is None else beta
    positive("beta", beta)
    most = max(beta, min(4 * beta, 0.5)) if most is None else most
    positive("most", most)
    positive("gain", gain)
    if most < beta:
        raise UserError(f"most {most}: the largest step size must not be below the smallest, beta = {beta}")
    if not 0 < share < 1:
        raise UserError(f"share {share}: it must lie between 0 and 1")
    gain = gain * population / math.sqrt(2 * dim)  # the standard deviation of the share is sqrt(2 d) / N

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return AdaptiveState(x0, sigma0 + xp.zeros_like(x0), beta + xp.zeros_like(sigma0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + state.sigma[None, :] * noise, state.mean)

    def tell(state, noise, points, values):
        gradient = sampling.gradient(noise, values)
        squares = noise * noise
        q = xp.clip(1 + state.beta * gradient.diagonal(noise), min=LEAST)  # the diagonal of (eq. 18)
        mean = state.mean - state.beta * state.sigma * gradient.mean / q  # (eq. 19)

        each = gradient.weights * gradient.weights
        estimated = (xp.sum(gradient.mean * gradient.mean) - xp.sum(each @ squares)) * population / (population - 1)
        informative = xp.sum(each) > 0  # a generation without spread carries no information on the share
        moved = state.beta * xp.exp(xp.where(informative, gain * (share - estimated), xp.zeros_like(estimated)))
        return AdaptiveState(mean, state.sigma / xp.sqrt(q), xp.clip(moved, min=beta, max=most))

    return sampling.diagonal(init, ask, tell)
