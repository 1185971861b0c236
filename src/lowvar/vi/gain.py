"""How far a fit is from the optimum of its guide, by the gradient of the ELBO there."""

from typing import NamedTuple

import numpy as np

from lowvar.core.keys import numpy_generator
from lowvar.vi.rows import of_batch

# particles of each of two gradients, 2 to 16: as many as keep particles x data rows of both below the budget
_MOST, _BUDGET = 16, 2**22
_STEEPEST = 0.99  # where the guide has less than a tenth of the best one's standard deviation, a step is bounded
_SINGULAR = 1e-6  # smallest eigenvalue of correlations of draws that rounding leaves


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


class Optimum(NamedTuple):
    """The estimated distance of a Gaussian guide from the best one of its family, ``(dim,)`` each.

    Attributes:
        mean: mean minus the best one's, in the best one's standard deviations.
        sd: relative error of the standard deviation.
        mean_se: standard error of ``mean``.
        sd_se: standard error of ``sd``.
    """

    mean: np.ndarray
    sd: np.ndarray
    mean_se: np.ndarray
    sd_se: np.ndarray


def to_optimum(weights, z, mean, scale) -> Optimum:
    """The distance of a guide from the best one of its family, by a Newton step from draws of the guide.

    With ``u = (z - mean) / scale`` and ``w = log p - log q``, the gradient of the ELBO in a coordinate's mean is
    ``E[w u] / scale``, and its curvature there is ``(1 - E[w (u^2 - 1)]) / scale^2`` (Stein's identity, twice). Both
    expectations are 0 at the optimum, of guides with correlations as well. For a mean-field guide of a normal
    posterior, the step is exact in the standard deviations; for guides with correlations it is of first order. The
    means' step takes the curvature between coordinates from ``response`` where that is known; without it, means along
    strongly correlated coordinates may be farther from the optimum.

    Args:
        weights: log importance weights up to a constant, ``(S,)``.
        z: the draws, ``(S, dim)``.
        mean: the guide's means, ``(dim,)``.
        scale: its standard deviations, ``(dim,)``.

    References:
        Opper and Archambeau, "The variational Gaussian approximation revisited", 2009, eqs. 3 and 4.
    """
    w, S = (np.asarray(weights, float) - np.mean(weights))[:, None], len(z)
    u = (np.asarray(z, float) - mean) / scale
    parts = np.stack([w * u, w * (u * u - 1)])
    (first, second), (first_se, second_se) = parts.mean(1), parts.std(1) / np.sqrt(S)
    root = np.sqrt(1 - np.minimum(second, _STEEPEST))  # the guide's standard deviation over the best one's
    off, off_se = -first / root, first_se / root
    if (found := response(weights, z)) is not None:
        off, off_se = -found.step * root / scale, found.step_se * root / scale
    return Optimum(off, root - 1, off_se, second_se / (2 * root))


class Response(NamedTuple):
    """The posterior near a Gaussian guide, by the mean curvature of its log density there, ``(dim,)`` each.

    Attributes:
        ratio: the posterior's standard deviation over the guide's.
        ratio_se: its standard error.
        step: a Newton step of the means.
        step_se: its standard error.
    """

    ratio: np.ndarray
    ratio_se: np.ndarray
    step: np.ndarray
    step_se: np.ndarray


def response(weights, z) -> Response | None:
    """The posterior's standard deviations by linear response, from draws of any Gaussian guide.

    With ``y`` the whitened draws, the mean curvature is ``A = I - E[w (y y^T - I)]`` (Stein's identity, twice), and the
    covariance is ``A^-1``: exact for normal posteriors, whose correlations a mean-field guide leaves out. Importance
    weighting would need several times as many draws. None if the draws are too few for the dimension or nearly lie in
    a plane, or the log density is not concave on average.

    Args:
        weights: log importance weights up to a constant, finite, ``(S,)``.
        z: the draws, ``(S, dim)``.

    References:
        Giordano, Broderick and Jordan, "Covariances, robustness, and variational Bayes", 2018, section 3;
        Opper and Archambeau, 2009, eqs. 3 and 4.
    """
    w, z = np.asarray(weights, float) - np.mean(weights), np.asarray(z, float)
    (S, dim), y, deviation = z.shape, z - z.mean(0), z.std(0)
    if dim**2 > S or not deviation.all():
        return None
    y /= deviation
    correlation = y.T @ y / S
    if np.linalg.eigvalsh(correlation)[0] < _SINGULAR:
        return None
    scale = np.linalg.cholesky(correlation)
    y, scale = np.linalg.solve(scale, y.T).T, scale * deviation[:, None]
    curvature = np.eye(dim) - (y * w[:, None]).T @ y / S
    if not np.linalg.eigvalsh(curvature)[0] > 1 - _STEEPEST:
        return None
    solved = scale @ np.linalg.inv(curvature)
    variance, guide = (np.einsum("ij,ij->i", one, scale) for one in (solved, scale))
    steps = w[:, None] * (y @ solved.T)
    squares = w[:, None] * ((y @ solved.T) ** 2 - (solved**2).sum(1))
    ratio = np.sqrt(variance / guide)
    ratio_se, step_se = ratio / (2 * variance) * squares.std(0) / np.sqrt(S), steps.std(0) / np.sqrt(S)
    return Response(ratio, ratio_se, steps.mean(0), step_se)
