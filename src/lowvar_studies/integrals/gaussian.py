"""Points of normal targets: independent ones, and scrambled Sobol points."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar_studies.integrals.problem import IntegralProblem

_LEAST_NET = 1024  # minimum Sobol points in a set, so that a smaller size has the first points of a larger one


def iid(problem: IntegralProblem, sizes: tuple[int, ...], keys: jax.Array) -> tuple[np.ndarray, ...]:
    """Independent points of each task, ``(R, m_t, d)``."""
    return _normal(problem, sizes, keys, "iid", lambda m: m)


def rqmc(problem: IntegralProblem, sizes: tuple[int, ...], keys: jax.Array) -> tuple[np.ndarray, ...]:
    """The first points of one scrambled Sobol sequence for each task and repetition, ``(R, m_t, d)``.

    A set of 1024 points, or of the next power of two, is scrambled and the first ``m_t`` of it are kept.
    """
    return _normal(problem, sizes, keys, "rqmc", lambda m: max(_LEAST_NET, 1 << (m - 1).bit_length()))


def _normal(problem, sizes, keys, scheme, whole):
    assert problem.gaussian is not None  # else the problem does not list these samplers
    drawn = []
    for t, m in enumerate(sizes):
        if t and problem.shared:
            drawn.append(drawn[0])
            continue
        mean, deviation = problem.gaussian[problem.target[t]]
        eps = _program(scheme, whole(m), problem.dim)(keys, t)
        drawn.append(mean + deviation * np.asarray(eps)[:, :m])
    return tuple(drawn)


@lru_cache(maxsize=16)
def _program(scheme, samples, dim):
    """``(keys (R,), task) -> normal points (R, samples, dim)``, compiled once for all tasks."""
    generator = GAUSSIAN[scheme](samples)
    one = lambda key, task: generator.draw(jax.random.fold_in(key, task), dim, jnp.float64)  # noqa: E731
    return jax.jit(jax.vmap(one, in_axes=(0, None)))
