"""INGO for categorical points: independent choices among ``K``."""

import math
from typing import Any, NamedTuple

from lowvar.errors import UserError, positive
from lowvar.search.estimators.categorical import categorical
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population
from lowvar.search.solvers.discrete import check_share, default_population, uniforms


class CategoricalState(NamedTuple):
    """Independent choices.

    Attributes:
        logits: natural parameters ``eta``, ``(d, K)``; the largest of each row is zero.
    """

    logits: Any


def ingo_categorical(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    mixing: float | None = None,
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """Implicit natural gradient for categorical probabilities: ``eta <- eta - beta grad_P E f``.

    Points are drawn from ``P = (1 - eps) softmax(eta) + eps / K``. The paper has no ``eps``; without it a
    probability reaches zero in floating point, and the gradient divides by it. For the same reason, natural
    parameters stop where a probability falls below the mixed-in ``eps / K``.

    Args:
        backend: backend of the arrays.
        domain: a categorical domain.
        population: ``N``; ``20 + 4 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size; ``1 / d`` if not given.
        mixing: ``eps``, the weight of the uniform; ``1 / (d K)`` if not given.
        baseline: ``none`` or ``mean``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not categorical, or a setting out of range.

    References:
        Lyu and Tsang, Appendix A, eqs. (36), (37).
    """
    check_domain("ingo_categorical", domain, "categorical")
    dim, choices, xp = domain.dim, domain.choices, backend.xp
    if choices < 2:
        raise UserError(f"choices {choices}: there must be at least 2")
    population = default_population(dim) if population is None else population
    beta = 1 / dim if beta is None else beta
    mixing = 1 / (dim * choices) if mixing is None else mixing
    check_population(population)
    positive("beta", beta)
    check_share("mixing", mixing, 1)
    estimator = categorical(backend, baseline=baseline, normalise=normalise)
    least = math.log(mixing / choices)

    def bounded(eta):
        return CategoricalState(xp.clip(eta - xp.max(eta, axis=-1, keepdims=True), min=least))

    def chances(state):
        weights = xp.exp(state.logits)
        return (1 - mixing) * weights / xp.sum(weights, axis=-1, keepdims=True) + mixing / choices

    def init(x0, sigma0):
        return bounded(xp.log(xp.clip(backend.asarray(x0), min=mixing / choices)))

    def ask(state, noise):
        steps = xp.cumulative_sum(chances(state), axis=-1)[:, :-1]  # inverse distribution function
        return xp.astype(xp.sum(xp.astype(noise[:, :, None] >= steps[None, :, :], xp.int32), axis=-1), xp.int32)

    def tell(state, noise, points, values):
        return bounded(state.logits - beta * estimator.estimate(points, values, chances(state)))  # (eq. 36)

    def spread(state):
        # of the indicators of the choices
        p = chances(state)
        sigma = xp.mean(xp.sqrt(p * (1 - p)))
        return sigma, xp.ones_like(sigma)

    return SearchSolver(
        "ingo_categorical", backend, domain, population, uniforms(population, dim), init, ask, tell,
        mean=lambda state: xp.astype(xp.argmax(state.logits, axis=-1), xp.int32), spread=spread,
    )  # fmt: skip
