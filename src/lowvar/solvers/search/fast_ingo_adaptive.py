"""INGO with a diagonal covariance and a step size that grows while the mean is not lost in noise."""

import math
from typing import Any, NamedTuple

from lowvar.solvers.search.base import (
    SearchSolver,
    check_domain,
    check_population,
    check_positive,
    default_population,
)
from lowvar.solvers.search.fast_ingo import diagonal_spread
from lowvar.solvers.search.gaussian import LEAST, Sampling, start


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
    target: float = 0.3,
    gain: float = 0.025,
    baseline: str = "mean",
) -> SearchSolver:
    """x."""
    check_domain("fast_ingo_adaptive", domain, "real")
    dim, xp = domain.dim, backend.xp
    population = default_population(dim) if population is None else population
    beta = 1 / math.sqrt(dim) if beta is None else beta
    check_population(population)
    check_positive("beta", beta)
    most = 8 * beta if most is None else most
    sampling = Sampling(backend, domain, population, "iid", baseline, True)
    speed = gain * population / math.sqrt(2 * dim)

    def init(x0, sigma0):
        x0, sigma0 = start(backend, dim, x0, sigma0)
        return AdaptiveState(x0, sigma0 + xp.zeros_like(x0), beta + xp.zeros_like(sigma0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + state.sigma[None, :] * noise, state.mean)

    def tell(state, noise, points, values):
        gradient = sampling.gradient(noise, values)
        q = xp.clip(1 + state.beta * gradient.diagonal(noise), min=LEAST)
        mean = state.mean - state.beta * state.sigma * gradient.mean / q
        own = xp.sum((gradient.weights**2) @ (noise * noise))
        share = (xp.sum(gradient.mean**2) - own) * population / (population - 1)
        weighed = population * xp.sum(gradient.weights**2)
        step = state.beta * xp.exp(speed * (target * weighed - share))
        return AdaptiveState(mean, state.sigma / xp.sqrt(q), xp.clip(step, min=beta, max=most))

    return SearchSolver(
        "fast_ingo_adaptive", backend, domain, population, sampling.draw, init, ask, tell,
        mean=lambda state: state.mean, spread=lambda state: diagonal_spread(xp, state.sigma), beside=sampling.beside,
    )  # fmt: skip
