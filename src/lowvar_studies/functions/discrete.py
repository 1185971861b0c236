"""Functions of binary and of categorical points, written once for both backends.

The search starts from uniform probabilities. A problem's random parts are drawn from its own seed, so all runs
minimise the same function.
"""

import numpy as np

from lowvar.core.backend import Backend
from lowvar.errors import whole
from lowvar.search.problem import BlackBoxProblem, Domain, uniform_probabilities
from lowvar_studies.functions.named import generator


def binary_reconstruction(backend: Backend, dim: int, *, seed: int = 0, name: str | None = None) -> BlackBoxProblem:
    """``||sign(x - 1/2) - w||^2 - ||sign(w) - w||^2``, with ``w ~ N(0, I)`` fixed by the seed; the optimum is 0.

    Computed as a cost of ``4 |w_i|`` for each coordinate with the wrong sign.

    Args:
        backend: the array library.
        dim: ``d``, at least 1.
        seed: seed of ``w``.
        name: name of the problem.

    Raises:
        UserError: an option out of range.

    References:
        Lyu and Tsang, Appendix A, "Evaluation on discrete test problems".
    """
    dim, xp = whole("dim", dim, 1), backend.xp
    w = generator(seed, "binary_reconstruction", dim).standard_normal(dim)
    best = (w > 0).astype(np.int32)
    right, costs = backend.asarray(best), backend.asarray(4 * np.abs(w))

    def values(points):
        return xp.sum(xp.where(points != right[None, :], costs[None, :], xp.zeros_like(costs)[None, :]), axis=-1)

    domain = Domain("binary", dim, 2)
    return _problem(name or "binary_reconstruction", domain, values, backend, best)


def categorical_reconstruction(
    backend: Backend, dim: int, *, choices: int = 5, seed: int = 0, name: str | None = None
) -> BlackBoxProblem:
    """``sum_i w[i, x_i] - min_j w[i, j]``, with ``w ~ N(0, 1)`` fixed by the seed; the optimum is 0.

    Args:
        backend: the array library.
        dim: ``d``, at least 1.
        choices: ``K``, at least 2.
        seed: seed of ``w``.
        name: name of the problem.

    Raises:
        UserError: an option out of range.
    """
    dim, choices, xp = whole("dim", dim, 1), whole("choices", choices, 2), backend.xp
    w = generator(seed, "categorical_reconstruction", dim, choices).standard_normal((dim, choices))
    regret = backend.asarray((w - w.min(axis=1, keepdims=True)).reshape(-1))
    rows = backend.asarray(choices * np.arange(dim, dtype=np.int64))

    def values(points):
        return xp.sum(regret[rows[None, :] + xp.astype(points, rows.dtype)], axis=-1)

    domain = Domain("categorical", dim, choices)
    return _problem(name or "categorical_reconstruction", domain, values, backend, w.argmin(axis=1).astype(np.int32))


def _problem(name, domain, values, backend, best):
    return BlackBoxProblem(name, domain, values, backend, 0.0, lambda key: uniform_probabilities(domain), best)
