"""Posterior means by importance sampling over quasi-Monte Carlo points."""

from collections.abc import Callable

import numpy as np

from lowvar.problems.integrals.transport import Transport, affine, coefficients, fitted, moments

_ROUNDS = (4096, 4096, 8192, 16384)  # points that the proposal is fitted to, round by round
_POINTS_PER_COEFFICIENT = 20  # of a map, without which moments are all that is fitted


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

    The proposal is a ``Transport`` that is fitted to weighted points of the round before it, first by moments, in
    the last two rounds whole: a map that is fitted to points of a poor proposal misses tails, and their weights would
    then be too rare to show in the error. Then every scramble of the Sobol points gives a self-normalised estimate,
    and their spread the standard error.

    Args:
        evaluate: ``(n, d) -> `` log density ``(n,)``, functions ``(n, T)``; where the density vanishes the functions
            do not matter.
        start: ``(d,)``, in the bulk.
        deviation: ``(d,)``, about the density's width.
        points: of each scramble, a power of two.
        scrambles: how many of them, 2 or more.
        seed: of the scrambles.
        rounds: points of each round of fitting.

    Returns:
        Means ``(T,)``, their standard errors ``(T,)``, and the share of the points that the weights leave effective.

    References:
        Owen, "Monte Carlo theory, methods and examples", Chapters 9 and 17.
    """
    proposal, dim = affine(start, np.diag(deviation**2)), len(start)
    for r, size in enumerate(rounds):
        x, weight, _ = _weighted(evaluate, proposal, size, dim, (seed, 0, r))
        whole = r >= len(rounds) - 2 and 1 / (weight @ weight) > _POINTS_PER_COEFFICIENT * coefficients(dim)
        proposal = fitted(x, weight) if whole else affine(*moments(x, weight))
    found, effective = [], []
    for r in range(scrambles):
        _, weight, functions = _weighted(evaluate, proposal, points, dim, (seed, 1, r))
        found.append(weight @ functions)
        effective.append(1 / (points * weight @ weight))
    estimates = np.array(found)
    error = estimates.std(0, ddof=1) / np.sqrt(scrambles)
    return estimates.mean(0), error, float(np.mean(effective))


def _weighted(evaluate, proposal: Transport, size: int, dim: int, seed: tuple[int, ...]):
    """Points of the proposal ``(n, d)``, their weights, which sum to one, and the functions there."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(dim, rng=np.random.default_rng(seed)).random(size)
    x, log_proposal = proposal.push(ndtri(np.clip(uniform, 2.0**-33, 1 - 2.0**-33)))
    log_density, functions = evaluate(x)
    log_weight = log_density - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    return x, weight / weight.sum(), np.where(weight[:, None] > 0, functions, 0)
