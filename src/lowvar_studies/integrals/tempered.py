"""Points of power posteriors: BlackJAX's tempered sequential Monte Carlo, a population for each repetition."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError
from lowvar_studies.integrals.problem import IntegralProblem

_LEAST_PARTICLES = 128  # so that a smaller size has the first points of a larger one
_WIDER = 1.3  # ratio of the proposal's standard deviation to that of the particles
_MOVES = 5  # of every particle at every temperature


def tempered(problem: IntegralProblem, sizes: tuple[int, ...], keys: jax.Array) -> tuple[np.ndarray, ...]:
    """Particles of each repetition at every temperature, ``(R, m_t, d)``; tasks with the same target share them.

    A population of 128, or of the next power of two, passes through the ladder of temperatures. At each it is resampled
    by its weights; then every particle makes independence Metropolis moves with a normal proposal, which has the
    weighted particles' moments, somewhat widened. Particles that have moved are independent of their ancestors: the
    first ``m_t`` are kept.

    Args:
        problem: an integral problem with ``tempering``.
        sizes: points of each task.
        keys: ``(R,)``.

    References:
        Del Moral, Doucet and Jasra (2006); Chopin (2002) for the independence moves.
    """
    assert problem.tempering is not None
    largest = max(sizes)
    particles = max(_LEAST_PARTICLES, 1 << (largest - 1).bit_length())
    populations = _populations(problem.tempering, problem.dim, particles)
    with jax.numpy_rank_promotion("allow"):  # BlackJAX's code, not ours
        states = np.asarray(jax.jit(jax.vmap(populations))(keys))  # (R, K, N, d)
    cut: dict[tuple[int, int], np.ndarray] = {}
    for target, m in zip(problem.target, sizes, strict=True):
        cut.setdefault((target, m), np.ascontiguousarray(states[:, target, :m]))
    return tuple(cut[target, m] for target, m in zip(problem.target, sizes, strict=True))


def _populations(tempering, dim, particles):
    """``key -> points (K, N, d)``."""
    try:
        from blackjax.mcmc import random_walk  # slow to import
        from blackjax.smc import resampling
        from blackjax.smc import tempered as smc
    except ModuleNotFoundError as error:
        raise UserError("the sampler 'tempered' needs BlackJAX: pip install 'lowvar[integrals]'") from error

    irmh = random_walk.build_irmh()

    def log_prior(z):
        return -0.5 * jnp.sum(z * z)

    def move(key, state, log_density, mean, factor):
        def log_proposal(z):
            return -0.5 * jnp.sum(jax.scipy.linalg.solve_triangular(factor, z - mean, lower=True) ** 2)

        # an independence proposal is a symmetric proposal for the ratio of the two densities
        weighted = random_walk.RWState(state.position, state.logdensity - log_proposal(state.position))
        moved, info = irmh(
            key,
            weighted,
            lambda z: log_density(z) - log_proposal(z),
            lambda key: mean + factor @ jax.random.normal(key, (dim,)),
        )
        return random_walk.RWState(moved.position, moved.logdensity + log_proposal(moved.position)), info

    step = smc.build_kernel(log_prior, tempering.log_likelihood, move, random_walk.init, resampling.systematic)

    def advance(state, key_and_next):
        key, following = key_and_next
        mean = state.weights @ state.particles
        spread = (state.particles - mean).T @ ((state.particles - mean) * state.weights[:, None])
        factor = _WIDER * jnp.linalg.cholesky(spread + 1e-12 * jnp.eye(dim))
        shared: dict[str, Any] = {"mean": mean[None], "factor": factor[None]}
        # particles move at this temperature, and get their weights for the next one
        state, _ = step(key, state, _MOVES, following, shared)
        return state, state.particles

    def populations(key):
        for_start, for_steps = jax.random.split(key)
        first = jax.random.normal(for_start, (particles, dim))
        weights = jnp.full(particles, 1 / particles)
        state = smc.TemperedSMCState(first, weights, jnp.asarray(tempering.ladder[0]))
        following = jnp.asarray(np.append(tempering.ladder[1:], tempering.ladder[-1]))
        _, history = jax.lax.scan(advance, state, (jax.random.split(for_steps, len(following)), following))
        return jax.vmap(jax.vmap(tempering.points))(history)

    return populations
