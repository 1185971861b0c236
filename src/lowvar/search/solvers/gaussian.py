"""Common parts of the Gaussian searches: sampling, and steps of a full covariance as a factor ``A A' = Sigma``.

A generation changes ``Sigma^-1 = A^-T A^-1`` into ``A^-T B A^-1`` with ``B = I + beta M`` and
``M = Z' diag(w) Z - trace I``, without an inverse or eigendecomposition of ``Sigma``. Any ``A`` with ``A A' = Sigma``
gives points with the same distribution, so the new factor may be ``A B^(-1/2)``; and ``B^(1/2) q`` is the vector ``q``
in the new whitened coordinates. ``B`` differs from a multiple of ``I`` only in the span of its few
rows: its eigenvectors there come from a matrix of their number.

Where values are noise, ``M`` has mean zero, but ``log det A`` grows: ``-1/2 E log det (I + beta M)`` is about
``beta^2 / 4 E tr M^2``, so that the Gaussian widens without end. Our own searches, ``ingo_cma`` and ``ingo_path``, take
``B = exp(beta M)``, the same to first order, with ``log det B = beta tr M``.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.errors import check_known, positive
from lowvar.search.gradients import BASELINES, GaussianGradient, gaussian
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population, default_population

LEAST = 1e-3  # lower bound on the eigenvalues of a step's factor, so that covariances stay positive definite
# Bound on the logarithm of an eigenvalue of B from below: a generation at most doubles a deviation, the step size has a
# factor of its own. In few dimensions, a long path would make one many times as large in a generation, away from a
# minimum that noisy values had shown.
_DOUBLE = -math.log(4)


class Sampling:
    """Draws and weights the generations of a Gaussian search.

    Args:
        name: of the search, as in the registry.
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: baseline of the values, see ``search.gradients.weights``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not real, or a setting out of range.
    """

    def __init__(self, name, backend, domain, population=None, noise="iid", baseline="mean", normalise=True):
        check_domain(name, domain, "real")
        self.population = default_population(domain.dim) if population is None else population
        check_population(self.population)
        check_known("noise", noise, GAUSSIAN)
        self.name, self.backend, self.domain, self.dim = name, backend, domain, domain.dim
        self.points = GAUSSIAN[noise](self.population)
        check_known("baseline", baseline, BASELINES)
        self.shaping = {"baseline": baseline, "normalise": normalise}
        self.beside = int(baseline == "centre")

    def draw(self, key: Any) -> Any:
        """Base noise of a generation, ``(N, d)``.

        Its 24 random bits per number are drawn in single precision, which halves the cost of a generation of
        Fast-INGO; points and updates are computed in double precision.
        """
        return self.points.draw(key, self.dim, jnp.float32).astype(jnp.zeros(0).dtype)

    def with_centre(self, points: Any, mean: Any) -> Any:
        """``points``, followed by the mean if its value is the baseline."""
        return self.backend.xp.concat([points, mean[None, :]]) if self.beside else points

    def gradient(self, z: Any, values: Any) -> GaussianGradient:
        """The gradient, in whitened coordinates, from the values of ``with_centre``'s points."""
        n = self.points.particles
        at_centre = values[n] if self.beside else None
        return gaussian(self.backend, z, values[:n], at_centre=at_centre, **self.shaping)

    def start(self, x0: Any, sigma0: Any) -> tuple[Any, Any]:
        """``x0`` and ``sigma0`` as arrays of the backend."""
        x0 = self.backend.asarray(x0)
        return x0, self.backend.asarray(sigma0, x0)

    def solver(self, init, ask, tell, spread, limit=None) -> SearchSolver:
        """The search with this sampling; its states have a ``mean``."""
        return SearchSolver(
            self.name, self.backend, self.domain, self.population, self.draw, init, ask, tell,
            mean=lambda state: state.mean, spread=spread, limit=limit, beside=self.beside,
        )  # fmt: skip

    def full(self, init, ask, tell) -> SearchSolver:
        """The search with this sampling, whose states have a ``factor (d, d)`` of the covariance."""
        xp = self.backend.xp

        def limit(state, most):
            narrow = 1 / xp.clip(xp.sqrt(xp.sum(state.factor**2, axis=1)) / most, min=1.0)
            return state._replace(factor=narrow[:, None] * state.factor)

        return self.solver(init, ask, tell, lambda state: factor_spread(xp, state.factor), limit)

    def diagonal(self, init, ask, tell) -> SearchSolver:
        """The search with this sampling, whose states have the standard deviations ``sigma (d,)``."""
        xp = self.backend.xp

        def limit(state, most):
            return state._replace(sigma=xp.minimum(state.sigma, most))

        return self.solver(init, ask, tell, lambda state: diagonal_spread(xp, state.sigma), limit)


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
    dim = domain.dim
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

    return sampling.full(init, ask, tell)


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


def diagonal_spread(xp, sigma: Any) -> tuple[Any, Any]:
    """Geometric mean of ``sigma``, and the condition number of ``diag(sigma^2)``."""
    return xp.exp(xp.mean(xp.log(sigma))), (xp.max(sigma) / xp.min(sigma)) ** 2


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of ``B``.

    Attributes:
        rest: the eigenvalue of all unlisted directions, a scalar.
        eigenvalues: eigenvalues of the listed directions, ``(k,)``.
        directions: listed directions, orthonormal columns, ``(d, k)``.
    """

    rest: Any
    eigenvalues: Any
    directions: Any

    def times(self, rows: Any, exponent: float) -> Any:
        """``rows B^exponent`` for ``rows (d,)`` or ``(n, d)``; ``B`` is symmetric."""
        outside = self.rest**exponent
        change = self.eigenvalues**exponent - outside
        change = change[None, :] if rows.ndim == 2 else change
        return outside * rows + ((rows @ self.directions) * change) @ self.directions.T


def gram_factor(backend, rows: Any) -> Any:
    """The Cholesky factor of ``rows rows'``, ``(n, n)``, with a ridge for dependent rows, such as antithetic ones."""
    xp, gram = backend.xp, rows @ rows.T
    ridge = 16 * rows.shape[0] * xp.finfo(rows.dtype).eps * xp.max(xp.linalg.diagonal(gram)) + xp.finfo(rows.dtype).tiny
    return xp.linalg.cholesky(gram + ridge * backend.asarray(np.eye(rows.shape[0]), rows))


def exponential(backend, rest: Any, rows: Any, weights: Any) -> Spectrum:
    """The spectrum of ``exp(rest I + rows' diag(weights) rows)``; exponents are kept above ``-log 4``.

    As in xNES (Glasmachers et al., "Exponential natural evolution strategies", GECCO 2010), steps of ``log Sigma`` add
    up without a bias.

    Args:
        backend: backend of the arrays.
        rest: a scalar.
        rows: ``(n, d)``; they may be linearly dependent.
        weights: ``(n,)``, of either sign.
    """
    xp, (n, dim) = backend.xp, rows.shape
    if n < dim:
        lower = gram_factor(backend, rows)
        exponents, vectors = xp.linalg.eigh(lower.T @ (weights[:, None] * lower))
        directions = backend.solve_triangular(lower, vectors, transposed=True)  # rows' of it are orthonormal
        directions = rows.T @ directions
    else:
        exponents, directions = xp.linalg.eigh(rows.T @ (weights[:, None] * rows))
    rest, exponents = (xp.exp(xp.clip(one, min=_DOUBLE)) for one in (rest, rest + exponents))
    return Spectrum(rest, exponents, directions)
