"""A check of a fitted guide by the tail of its importance weights."""

import math

import jax
import jax.numpy as jnp
import numpy as np

LEAST = 200  # minimum number of draws for a sufficient tail


def log_weights(problem, params, eps) -> np.ndarray:
    """``log p(x, z_s) - log q(z_s)`` up to a constant, nats, ``(S,)``: a pass over all rows for each draw.

    The log-likelihood of each row is taken relative to that at ``mu``, which keeps the sum accurate in float32.

    Args:
        problem: a variational problem in JAX.
        params: the guide's.
        eps: base noise, ``(S, dim)``.
    """
    chunks = problem.chunks

    @problem.backend.jit
    def all_of(params, eps):
        base = jax.lax.map(lambda index: problem.log_likelihood(params["mu"], index), chunks["index"])

        def of_draw(eps):
            z = problem.guide.transform(params, eps)

            def add(total, chunk):
                index, weight, base = chunk
                return total + problem.N * jnp.sum(weight * (problem.log_likelihood(z, index) - base)), None

            start = problem.log_prior(z) - problem.log_prior(params["mu"])
            total, _ = jax.lax.scan(add, start, (chunks["index"], chunks["weight"], base))
            return total - problem.guide.log_density(params, eps)

        return jax.lax.map(of_draw, eps)

    return np.asarray(all_of(params, eps), float)


def good(draws: int) -> float:
    """The largest k-hat at which importance weights are reliable: 0.7, lower for fewer than 2200 draws.

    References:
        Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024, section 3.2.4.
    """
    return min(0.7, 1 - 1 / math.log10(max(draws, 11)))


def khat(weights) -> float:
    """The shape of the generalised Pareto distribution of the largest importance weights.

    Args:
        weights: their logarithms, ``(S,)``; minus infinity where the model's density is zero.

    Returns:
        The shape k-hat. Below 0.5 the weights have finite variance. Above 0.7 they are unreliable, and so is the guide
        where its tails matter. Infinite if the tail has too few weights.

    References:
        Yao, Vehtari, Simpson and Gelman, "Yes, but did it work? Evaluating variational inference", 2018;
        Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024.
    """
    import warnings

    from numpyro.infer.importance import _psis_khat

    weights = np.asarray(weights, float)
    if len(weights) < 2 or np.isnan(weights).any() or not np.isfinite(weights.max()):
        return math.inf
    if np.ptp(weights) < 1e-6:  # the guide equals the posterior: equal weights have no tail
        return -math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(_psis_khat(weights))


def spread(weights, z) -> np.ndarray:
    """The posterior's standard deviations, ``(dim,)``, by importance weighting.

    Args:
        weights: their logarithms, ``(S,)``.
        z: the draws, ``(S, dim)``.
    """
    weights, z = np.asarray(weights, float), np.asarray(z, float)
    shares = np.exp(weights - weights.max())
    shares /= shares.sum()
    return np.sqrt(shares @ (z - shares @ z) ** 2)
