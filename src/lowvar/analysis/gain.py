"""How far a fit is from the optimum of its guide, by the gradient of the ELBO there."""

import numpy as np

from lowvar.backends.generator import numpy_generator
from lowvar.problems.rows import of_batch

# particles of each of two gradients, 2 to 16: as many as keep particles x data rows of both below the budget
_MOST, _BUDGET = 16, 2**22


def gain(problem, params, key) -> tuple[np.ndarray, np.ndarray]:
    """What a Newton step would add to the ELBO by the mean and the scale of each coordinate.

    With the Hessian that a Gaussian posterior has at the optimum of a mean-field guide, ``1 / sigma^2`` for ``mu`` and
    2 for ``log_sigma``, it adds ``sigma^2 g_mu^2 / 2 + g_log_sigma^2 / 4``. Two independent estimates of the gradient
    ``g`` by its path derivative make the products unbiased. It is exact for coordinates that are independent in the
    posterior, as the rows' own variables given the shared ones; along correlated ones a step may add far more, or less.

    Args:
        problem: a variational problem, with parameters for each coordinate.
        params: the guide's.
        key: a JAX key.

    Returns:
        Gains, and the standard deviations of their noise or more (where there is gain), nats, each ``(dim,)``.

    References:
        Boyd and Vandenberghe, "Convex optimization", 2004, section 9.5.1; Roeder, Wu and Duvenaud, "Sticking the
        landing", 2017, eq. 7.
    """
    backend, guide, particles = problem.backend, problem.guide, int(np.clip(_BUDGET // (2 * problem.N), 2, _MOST))
    passes = of_batch(problem, 1)  # whose pass over all rows computes with each row's own variables

    def of_point(params, eps):
        z = guide.transform(params, eps)
        return guide.pull_back(params, eps, passes.full_gradient(z) + guide.path_score(params, eps))

    @backend.jit
    def gradient(params, eps):
        return problem.mean_over_points(lambda eps: of_point(params, eps), eps)

    eps = numpy_generator(key).standard_normal((2, particles, problem.noise_dim), np.float32).astype(problem.dtype)
    one, other = (backend.to_numpy(gradient(params, backend.asarray(half))) for half in eps)
    units = {"mu": backend.to_numpy(guide.scale(params)) ** 2 / 2, "log_sigma": 0.25}
    parts = np.array([units[block] * one[block].astype(float) * other[block] for block in units])
    return parts.sum(0), np.sqrt((parts**2).sum(0))
