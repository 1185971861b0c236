"""Posterior means by importance sampling over quasi-Monte Carlo points."""

from collections.abc import Callable

import numpy as np

from lowvar_studies.integrals.transport import Transport, affine, coefficients, fitted, moments

_ROUNDS = (4096, 4096, 8192, 16384)  # points to which each round fits the proposal
_POINTS_PER_COEFFICIENT = 20  # effective points per coefficient that a map needs; with fewer, only moments are fitted


def posterior_means(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    deviation: np.ndarray,
    *,
    points: int,
    scrambles: int = 16,
    seed: int = 0,
    rounds: tuple[int, ...] = _ROUNDS,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Means of functions under a density that is known up to a constant.

    The proposal is a ``Transport`` fitted to the weighted points of the previous round: by moments first, as a full map
    in the last two rounds. A map fitted to points of a poor proposal misses tails, and large weights there would be too
    rare to show in the standard error. Each scramble of the Sobol points then gives a self-normalised estimate, and
    their spread gives the standard error.

    Args:
        evaluate: ``(n, d) -> `` log density ``(n,)``, functions ``(n, T)``; the functions are ignored where the density
            vanishes.
        start: ``(d,)``, in the bulk.
        deviation: ``(d,)``, approximate standard deviations of the density.
        points: points per scramble, a power of two.
        scrambles: number of scrambles, 2 or more.
        seed: seed of the scrambles.
        rounds: points of each round of fitting.

    Returns:
        Means ``(T,)``, their standard errors ``(T,)``, and the effective sample size as a fraction of the points.

    References:
        Owen, "Monte Carlo theory, methods and examples", Chapters 9 and 17.
    """
    proposal, dim = affine(start, np.diag(deviation**2)), len(start)
    for r, size in enumerate(rounds):
        x, weight, _ = _weighted(evaluate, proposal, size, dim, (seed, 0, r))
        full_map = r >= len(rounds) - 2 and 1 / (weight @ weight) > _POINTS_PER_COEFFICIENT * coefficients(dim)
        proposal = fitted(x, weight) if full_map else affine(*moments(x, weight))
    means, effective = [], []
    for r in range(scrambles):
        _, weight, functions = _weighted(evaluate, proposal, points, dim, (seed, 1, r))
        means.append(weight @ functions)
        effective.append(1 / (points * weight @ weight))
    estimates = np.array(means)
    error = estimates.std(0, ddof=1) / np.sqrt(scrambles)
    return estimates.mean(0), error, float(np.mean(effective))


def _weighted(evaluate, proposal: Transport, size: int, dim: int, seed: tuple[int, ...]):
    """Points of the proposal ``(n, d)``, their weights, which sum to one, and the functions at them."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(dim, rng=np.random.default_rng(seed)).random(size)
    x, log_proposal = proposal.push(ndtri(np.clip(uniform, 2.0**-33, 1 - 2.0**-33)))
    log_density, functions = evaluate(x)
    log_weight = log_density - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    return x, weight / weight.sum(), np.where(weight[:, None] > 0, functions, 0)
