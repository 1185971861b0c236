"""The ELBO at draws from the guide, in one program that the ELBO of a run and k-hat share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lowvar.core.keys import named_key, numpy_generator

_GROUP = 64  # draws evaluated at once, where each call has overhead


def at_draws(problem) -> Callable[..., Any]:
    """``(params, eps (S, noise_dim), rows, prior) -> ((S,), (S,), ())``, nats. A pass over all rows per draw.

    The results are ``log p(x, z_s)``, less ``rows``, log-likelihoods in the form of ``problem.log_likelihoods``, and
    less ``prior``; ``log q(z_s)``; and the entropy of ``q``. Calls of ``problem.compiled(at_draws)`` with as many draws
    share a program.

    Args:
        problem: a variational problem.
    """
    backend, xp, chunks = problem.backend, problem.backend.xp, problem.chunks

    def function(params, eps, rows, prior):
        def of_draw(eps):
            z = problem.guide.transform(params, eps)

            def add(total, chunk):
                index, weight, row = chunk
                return total + problem.N * xp.sum(weight * (problem.log_likelihood(z, index) - row))

            joint = backend.scan_or_loop(add, problem.log_prior(z) - prior, (chunks["index"], chunks["weight"], rows))
            return joint, problem.guide.log_density(params, eps)

        return *backend.map(of_draw, eps, _GROUP), problem.guide.entropy(params)

    return function


def elbo(problem) -> Callable[[Any, Any], tuple[np.ndarray, np.ndarray]]:
    """``(params, eps (S, noise_dim)) -> (ELBO, its standard error)``, nats, as ``problem.elbo``."""
    backend = problem.backend
    if not problem.in_memory:
        of_sample = backend.jit(problem.elbo)
        return lambda params, eps: backend.to_numpy(of_sample(params, eps))
    compiled = problem.compiled(at_draws)
    rows = backend.asarray(np.zeros(tuple(problem.chunks["index"].shape), problem.dtype))
    prior = backend.asarray(np.zeros((), problem.dtype))

    def value(params, eps):
        joint, _, entropy = map(backend.to_numpy, compiled(params, eps, rows, prior))
        joint = joint.astype(float)
        return joint.mean() + float(entropy), joint.std() / (len(joint) - 1) ** 0.5

    return value


def common_elbo(problem, samples: int) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """``params -> (ELBO, its standard error)``, with the same draws in every fit of a problem of this name.

    The program is the one that k-hat uses; the draws are NumPy's: programs for them would be a tenth of a first fit's
    time.
    """
    value = elbo(problem)
    own = numpy_generator(named_key(0, "elbo", problem.name)).standard_normal((samples, problem.noise_dim))
    draws = problem.backend.asarray(own.astype(problem.dtype))
    return lambda params: value(params, draws)
