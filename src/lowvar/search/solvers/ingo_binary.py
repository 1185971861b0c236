"""INGO for binary points: independent coin flips."""

import math
from typing import Any, NamedTuple

from lowvar.errors import positive
from lowvar.search.estimators.bernoulli import bernoulli
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population
from lowvar.search.solvers.discrete import check_share, default_population, uniforms


class BinaryState(NamedTuple):
    """Independent coin flips.

    Attributes:
        logits: natural parameters ``eta = log(p / (1 - p))``, ``(d,)``.
    """

    logits: Any


def ingo_binary(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    margin: float | None = None,
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """Implicit natural gradient for Bernoulli probabilities: ``eta <- eta - beta grad_p E f``.

    The paper has no ``margin``. Without it, a probability close to 0 or 1 moves by ``beta / p`` at the first point that
    differs, so that a single draw undoes what many have learnt.

    Args:
        backend: backend of the arrays.
        domain: a binary domain.
        population: ``N``; ``20 + 4 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size; ``1 / d`` if not given.
        margin: lower bound on probabilities and their complements; ``1 / d`` if not given, at most 1/4.
        baseline: ``none`` or ``mean``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not binary, or a setting out of range.

    References:
        Lyu and Tsang, Appendix A, eqs. (33) to (35).
    """
    check_domain("ingo_binary", domain, "binary")
    dim, xp = domain.dim, backend.xp
    population = default_population(dim) if population is None else population
    beta = 1 / dim if beta is None else beta
    margin = min(1 / dim, 0.25) if margin is None else margin
    check_population(population)
    positive("beta", beta)
    check_share("margin", margin, 0.5)
    estimator = bernoulli(backend, baseline=baseline, normalise=normalise)

    least = math.log(margin / (1 - margin))

    def chances(state):
        return 1 / (1 + xp.exp(-state.logits))

    def init(x0, sigma0):
        p = xp.clip(backend.asarray(x0), min=margin, max=1 - margin)
        return BinaryState(xp.log(p / (1 - p)))

    def ask(state, noise):
        return xp.astype(noise < chances(state)[None, :], xp.int32)

    def tell(state, noise, points, values):
        gradient = estimator.estimate(points, values, chances(state))
        return BinaryState(xp.clip(state.logits - beta * gradient, min=least, max=-least))  # (eq. 35)

    def spread(state):
        p = chances(state)
        sigma = xp.mean(xp.sqrt(p * (1 - p)))
        return sigma, xp.ones_like(sigma)

    return SearchSolver(
        "ingo_binary", backend, domain, population, uniforms(population, dim), init, ask, tell,
        mean=lambda state: xp.astype(state.logits > 0, xp.int32), spread=spread,
    )  # fmt: skip
