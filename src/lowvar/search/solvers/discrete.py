"""INGO for discrete points: independent coin flips, and independent choices."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lowvar.errors import UserError, check_known, positive
from lowvar.search.gradients import bernoulli, categorical
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population


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
    differs, so that a single draw undoes the steps of many.

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
    check_known("baseline", baseline, ("none", "mean"))

    least = math.log(margin / (1 - margin))

    def chances(state):
        return 1 / (1 + xp.exp(-state.logits))

    def init(x0, sigma0):
        p = xp.clip(backend.asarray(x0), min=margin, max=1 - margin)
        return BinaryState(xp.log(p / (1 - p)))

    def ask(state, noise):
        return xp.astype(noise < chances(state)[None, :], xp.int32)

    def tell(state, noise, points, values):
        gradient = bernoulli(backend, points, values, chances(state), baseline=baseline, normalise=normalise)
        return BinaryState(xp.clip(state.logits - beta * gradient, min=least, max=-least))  # (eq. 35)

    def spread(state):
        p = chances(state)
        sigma = xp.mean(xp.sqrt(p * (1 - p)))
        return sigma, xp.ones_like(sigma)

    return SearchSolver(
        "ingo_binary", backend, domain, population, uniforms(population, dim), init, ask, tell,
        mean=lambda state: xp.astype(state.logits > 0, xp.int32), spread=spread,
    )  # fmt: skip


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
    check_known("baseline", baseline, ("none", "mean"))
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
        return bounded(
            state.logits
            - beta * categorical(backend, points, values, chances(state), baseline=baseline, normalise=normalise)
        )  # (eq. 36)

    def spread(state):
        # of the indicators of the choices
        p = chances(state)
        sigma = xp.mean(xp.sqrt(p * (1 - p)))
        return sigma, xp.ones_like(sigma)

    return SearchSolver(
        "ingo_categorical", backend, domain, population, uniforms(population, dim), init, ask, tell,
        mean=lambda state: xp.astype(xp.argmax(state.logits, axis=-1), xp.int32), spread=spread,
    )  # fmt: skip


def default_population(dim: int) -> int:
    """``20 + 4 floor(3 + floor(3 ln d) / 2)`` (Lyu and Tsang, Appendix A).

    >>> default_population(100)
    56
    """
    return 20 + 4 * math.floor(3 + math.floor(3 * math.log(dim)) / 2)


def uniforms(population: int, dim: int):
    """``key -> (N, d)`` uniform numbers in [0, 1)."""
    return lambda key: jax.random.uniform(key, (population, dim), jnp.zeros(0).dtype)


def check_share(name: str, value: float, below: float) -> None:
    """Rejects a setting that is not between 0 and ``below``."""
    if not 0 < value < below:
        raise UserError(f"{name} {value}: it must lie between 0 and {below}")
