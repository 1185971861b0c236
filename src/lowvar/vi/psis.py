"""A check of a fitted guide by the tail of its importance weights."""

import math

import numpy as np

from lowvar.vi.draws import at_draws
from lowvar.vi.variational import prior_of

LEAST = 200  # minimum number of draws for a sufficient tail


def log_weights(problem, params, eps, together: int | None = None) -> np.ndarray:
    """``log p(x, z_s) - log q(z_s)`` up to a constant, nats, ``(S,)``: a pass over all rows for each draw.

    The log-likelihood of each row is taken relative to that at ``mu``, which keeps the sum accurate in float32.

    Args:
        problem: a variational problem.
        params: the guide's.
        eps: base noise, ``(S, dim)``, NumPy.
        together: draws of a call; as many as for an ELBO before share its program.
    """
    if not problem.in_memory:
        return np.asarray(problem.log_weights(params, problem.backend.asarray(eps)), float)
    joint, guide = log_densities(problem, params, eps, together)
    return joint - guide


def log_densities(problem, params, eps, together: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """``log p(x, z_s) - log p(x, mu)`` and ``log q(z_s)``, nats, ``(S,)`` each; arguments as for ``log_weights``."""
    backend, compiled = problem.backend, problem.compiled(at_draws)
    base = problem.log_likelihoods(params["mu"]), problem.compiled(prior_of)(params["mu"])
    size, found = together or len(eps), []
    for first in range(0, len(eps), size):
        some = eps[first : first + size]
        padded = np.concatenate([some, np.broadcast_to(some[:1], (size - len(some), eps.shape[1]))])
        joint, guide, _ = backend.to_numpy(compiled(params, backend.asarray(padded), *base))
        found.append(np.stack([joint, guide])[:, : len(some)].astype(float))
    joint, guide = np.concatenate(found, axis=1)
    return joint, guide


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


def worth(weights) -> float:
    """The effective share of draws with importance weights, given by their logarithms ``(S,)``: 1 if all are equal."""
    shares = np.exp(np.asarray(weights, float) - np.max(weights))
    share = shares.sum() ** 2 / (len(shares) * np.square(shares).sum())
    return float(share) if np.isfinite(share) else 0.0


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
