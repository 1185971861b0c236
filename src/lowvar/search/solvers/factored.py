"""Full covariances as a factor ``A A' = Sigma``, updated without an inverse or eigendecomposition of ``Sigma``.

A generation changes ``Sigma^-1 = A^-T A^-1`` into ``A^-T B A^-1`` with ``B = I + beta M`` and
``M = Z' diag(w) Z - trace I``. Any ``A`` with ``A A' = Sigma`` gives points with the same distribution, so the
new factor may be ``A B^(-1/2)``. ``B`` differs from a multiple of ``I`` only in the span of the ``N`` rows of ``Z``:
its eigenvectors there come from an ``N x N`` matrix.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.sampling import Sampling
from lowvar.search.solvers.spectrum import gram_factor


class FactoredState(NamedTuple):
    """A Gaussian with a full covariance.

    Attributes:
        mean: ``mu``, ``(d,)``.
        factor: ``A`` with ``Sigma = A A'``, ``(d, d)``.
    """

    mean: Any
    factor: Any


def factored(
    name: str,
    backend,
    domain,
    population: int | None,
    beta: float | None,
    noise: str,
    baseline: str,
    normalise: bool,
    *,
    scales: Callable[[Any], Any],
    means: Callable[[Any], Any],
) -> SearchSolver:
    """A search that updates ``A`` to ``A scales(B)`` and ``mu`` to ``mu - beta A means(B) s``.

    Args:
        name: as in the registry.
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size; ``1 / d``, at most 1/2, if not given: in one dimension, a longer step makes ``sigma`` diverge.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: ``none``, ``mean`` or ``centre``.
        normalise: divide values by their standard deviation.
        scales: maps eigenvalues of ``B`` to those of the matrix that multiplies ``A``.
        means: maps eigenvalues of ``B`` to those of the matrix that multiplies ``s``.

    Raises:
        UserError: a domain that is not real, or a setting out of range.
    """
    sampling = Sampling(name, backend, domain, population, noise, baseline, normalise)
    dim, xp = domain.dim, backend.xp
    beta = min(1 / dim, 0.5) if beta is None else beta
    positive("beta", beta)
    move = _step_from_all if sampling.population > dim else _step_in_span

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return FactoredState(x0, sigma0 * backend.asarray(np.eye(dim), x0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + noise @ state.factor.T, state.mean)

    def tell(state, noise, points, values):
        gradient = sampling.gradient(noise, values)
        step, factor = move(backend, state.factor, noise, gradient, beta, scales, means)
        return FactoredState(state.mean - beta * step, factor)  # mu in (eq. 19), (eq. 26)

    return sampling.solver(init, ask, tell, lambda state: factor_spread(xp, state.factor))


def _step_in_span(backend, factor, z, gradient, beta, scales, means):
    """``A means(B) s`` and ``A scales(B)`` for ``N <= d``, from the eigenvectors of ``B`` in the span of ``Z``."""
    xp = backend.xp
    rest = 1 - beta * gradient.trace  # the eigenvalue outside of the span
    images = z @ factor.T  # rows A z_i; the same product as in ask, computed once if both are compiled together
    lower = gram_factor(backend, z)
    eigenvalues, vectors = xp.linalg.eigh(beta * (lower.T @ (gradient.weights[:, None] * lower)))
    eigenvalues = rest + eigenvalues
    directions = backend.solve_triangular(lower, vectors, transposed=True)  # Z' of it: orthonormal eigenvectors of B
    change = (directions * (scales(eigenvalues) - scales(rest))[None, :]) @ directions.T
    along = (directions * means(eigenvalues)[None, :]) @ (vectors.T @ (lower.T @ gradient.weights))
    return along @ images, scales(rest) * factor + images.T @ (change @ z)


def _step_from_all(backend, factor, z, gradient, beta, scales, means):
    """As ``_step_in_span`` for any ``N``, from all eigenvectors of ``B``."""
    xp = backend.xp
    identity = backend.asarray(np.eye(z.shape[1]), z) * (1 - beta * gradient.trace)
    eigenvalues, vectors = xp.linalg.eigh(identity + beta * (z.T @ (gradient.weights[:, None] * z)))
    axes = factor @ vectors
    step = axes @ (means(eigenvalues) * (vectors.T @ gradient.mean))
    return step, (axes * scales(eigenvalues)[None, :]) @ vectors.T


def factor_spread(xp, factor: Any) -> tuple[Any, Any]:
    """Geometric mean of the standard deviations along the principal axes, and condition number of ``A A'``."""
    axes = xp.linalg.svdvals(factor)
    return xp.exp(xp.mean(xp.log(axes))), (xp.max(axes) / xp.min(axes)) ** 2
