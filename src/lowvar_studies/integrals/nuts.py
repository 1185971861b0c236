"""Points of any target with a density: NumPyro's no-U-turn sampler, a chain for each repetition."""

import jax
import jax.numpy as jnp
import numpy as np

from lowvar_studies.integrals.problem import IntegralProblem

WARMUP = 200  # states before the first one that is kept
DEPTH = 8  # of trees: at most 2^depth leapfrog steps per state


def nuts(problem: IntegralProblem, sizes: tuple[int, ...], keys: jax.Array) -> tuple[np.ndarray, ...]:
    """Successive states of each repetition's chain, ``(R, m_t, d)``, with a separate chain for each set of points.

    A chain starts at a draw from the normal approximation at ``problem.start``, whose covariance is also the inverse
    mass matrix. The warm-up adapts the step size.

    Args:
        problem: an integral problem with ``start``.
        sizes: points of each task.
        keys: ``(R,)``.

    References:
        Hoffman and Gelman (2014); Phan, Pradhan and Jankowiak (2019).
    """
    drawn: dict[int, np.ndarray] = {}
    for target in dict.fromkeys(problem.target):  # one program for all chains of a target
        tasks = [t for t, own in enumerate(problem.target) if own == target]
        alone = tasks[:1] if problem.shared else tasks
        own_keys = jnp.concatenate([jax.vmap(lambda key, t=t: jax.random.fold_in(key, t))(keys) for t in alone])
        longest = max(sizes[t] for t in alone)
        states = _chains(problem, target, longest, own_keys)
        for t, of_task in zip(alone, np.split(states, len(alone)), strict=True):
            drawn[t] = np.ascontiguousarray(of_task[:, : sizes[t]])
        drawn |= {t: drawn[alone[0]] for t in tasks if problem.shared}
    return tuple(drawn[t] for t in range(len(sizes)))


def _chains(problem, target, m, keys):
    """States ``(C, m, d)`` of one chain for each key."""
    from numpyro.infer import MCMC, NUTS  # slow to import

    log_density = problem.log_densities[target]
    start, covariance = problem.start[target], normal_covariance(problem, target)
    pairs = jax.vmap(jax.random.split)(keys)
    noise = jax.vmap(lambda key: jax.random.normal(key, (problem.dim,), jnp.float64))(pairs[:, 0])
    starts = jnp.asarray(start)[None] + noise @ jnp.asarray(np.linalg.cholesky(covariance)).T
    kernel = NUTS(
        potential_fn=jax.jit(lambda x: -log_density(x)),  # for NumPyro's calls outside its compiled loop
        dense_mass=True,
        inverse_mass_matrix=jnp.asarray(covariance),
        step_size=problem.dim**-0.25,
        adapt_mass_matrix=False,
        max_tree_depth=DEPTH,
    )
    sampler = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=m,
        num_chains=len(keys),
        chain_method="vectorized",
        progress_bar=False,
    )
    single = len(keys) == 1
    with jax.numpy_rank_promotion("allow"):  # NumPyro's code, not ours
        sampler.run(pairs[0, 1] if single else pairs[:, 1], init_params=starts[0] if single else starts)
    return np.asarray(sampler.get_samples(group_by_chain=True))


def normal_covariance(problem: IntegralProblem, target: int, step: float = 1e-4) -> np.ndarray:
    """Covariance ``(d, d)`` of the normal approximation at ``problem.start``: minus the inverse of the Hessian.

    The Hessian is computed by differences of scores; directions in which the log density is not concave get the largest
    variance of the others, or 1.
    """
    assert problem.start is not None
    start = np.asarray(problem.start[target], dtype=np.float64)
    width = step * np.maximum(np.abs(start), 1e-2)
    ends = np.concatenate([start + np.diag(width), start - np.diag(width)])
    above, below = np.split(problem.score(target, ends), 2)
    hessian = (above - below) / (2 * width[:, None])
    # balanced first, as inputs may have very different scales
    scale = np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    value, vector = np.linalg.eigh(-(hessian + hessian.T) / 2 / np.outer(scale, scale))
    concave = value > 1e-6
    value = np.where(concave, value, value[concave].min(initial=1.0))
    return (vector / value) @ vector.T / np.outer(scale, scale)
