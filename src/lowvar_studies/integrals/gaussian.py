"""Points of normal targets: independent ones, scrambled Sobol points, and those of a published experiment."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.errors import UserError
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


def published(problem: IntegralProblem, sizes: tuple[int, ...], keys: jax.Array) -> tuple[np.ndarray, ...]:
    """Independent points, ``(R, m_t, d)``: PyTorch's generator, seed ``2 r + t``, input by input, single precision.

    Only the number of keys is used. The points of a smaller size are not the first of a larger one.

    Raises:
        UserError: PyTorch is missing.

    References:
        Sun, Barp and Briol, the published code of the balanced borehole experiment (Table 2).
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UserError("the sampler 'published' needs PyTorch: pip install 'lowvar[torch]'") from error
    assert problem.gaussian is not None  # else the problem does not list this sampler
    drawn = []
    for t, m in enumerate(sizes):
        mean, deviation = (
            torch.tensor(of, dtype=torch.float32, device="cpu") for of in problem.gaussian[problem.target[t]]
        )
        of_task = []
        for r in range(len(keys)):
            generator = torch.Generator("cpu").manual_seed(2 * r + t)
            inputs = [torch.randn(m, 1, generator=generator, device="cpu") for _ in range(problem.dim)]
            noise = torch.cat(inputs, 1)
            of_task.append((mean + deviation * noise).double().numpy())
        drawn.append(np.stack(of_task))
    return tuple(drawn)
