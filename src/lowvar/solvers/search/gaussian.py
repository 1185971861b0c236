"""Common parts of the Gaussian searches: noise, points, and a safeguard of the step."""

from typing import Any

import jax.numpy as jnp

from lowvar.errors import UserError, check_known
from lowvar.estimators.search.gaussian import gaussian
from lowvar.noise import GAUSSIAN

LEAST = 1e-3  # lower bound on the eigenvalues of a step's factor, so that covariances stay positive definite


class Sampling:
    """How a Gaussian search draws and weights its generations.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``.
        noise: a name of ``lowvar.noise.GAUSSIAN``.
        baseline: baseline of the values, see ``estimators.search.shaping``.
        normalise: divide values by their standard deviation.
    """

    def __init__(self, backend, domain, population, noise="iid", baseline="mean", normalise=True):
        check_known("noise", noise, GAUSSIAN)
        self.backend, self.dim = backend, domain.dim
        self.points = GAUSSIAN[noise](population)
        self.estimator = gaussian(backend, baseline=baseline, normalise=normalise)
        self.beside = self.estimator.properties.evaluations_beside

    def draw(self, key: Any) -> Any:
        """Base noise of a generation, ``(N, d)``.

        Its 24 random bits per number are drawn in single precision, which halves the cost of a generation of
        Fast-INGO; points and updates are computed in double precision.
        """
        return self.points.draw(key, self.dim, jnp.float32).astype(jnp.zeros(0).dtype)

    def with_centre(self, points: Any, mean: Any) -> Any:
        """``points``, followed by the mean if its value is the baseline."""
        return self.backend.xp.concat([points, mean[None, :]]) if self.beside else points

    def gradient(self, z: Any, values: Any) -> Any:
        """The gradient, in whitened coordinates, from the values of ``with_centre``'s points."""
        n = self.points.particles
        return self.estimator.estimate(z, values[:n], at_centre=values[n] if self.beside else None)


def start(backend, dim: int, x0: Any, sigma0: Any) -> tuple[Any, Any]:
    """``x0`` and ``sigma0`` as arrays of the backend.

    Raises:
        UserError: ``x0`` does not have the shape ``(dim,)``.
    """
    x0 = backend.asarray(x0)
    if tuple(x0.shape) != (dim,):
        raise UserError(f"x0 has shape {tuple(x0.shape)}: it must be ({dim},)")
    return x0, backend.asarray(sigma0, x0)
