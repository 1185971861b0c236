"""What all Gaussian searches share: their noise, their points, and the guard of their step."""

from typing import Any

import jax.numpy as jnp

from lowvar.errors import UserError, unknown_name
from lowvar.estimators.search.gaussian import gaussian
from lowvar.noise import GAUSSIAN

LEAST = 1e-3  # what an eigenvalue of a step's factor is kept above, so that a covariance stays positive


class Sampling:
    """How a Gaussian search draws and weighs its generations.

    Args:
        backend: of the arrays.
        domain: a real one.
        population: ``N``.
        noise: a name of ``lowvar.noise.GAUSSIAN``.
        baseline: of the values, see ``estimators.search.shaping``.
        normalise: divide values by their standard deviation.
    """

    def __init__(self, backend, domain, population, noise="iid", baseline="mean", normalise=True):
        if noise not in GAUSSIAN:
            raise unknown_name("noise", noise, GAUSSIAN)
        self.backend, self.dim = backend, domain.dim
        self.points = GAUSSIAN[noise](population)
        self.estimator = gaussian(backend, baseline=baseline, normalise=normalise)
        self.beside = self.estimator.properties.evaluations_beside

    def draw(self, key: Any) -> Any:
        """Base noise of a generation, ``(N, d)``.

        Its 24 random bits to a number are drawn in single precision, at half the price of a whole generation of
        Fast-INGO; where the points lie and what is learnt from them is computed in double precision.
        """
        return self.points.draw(key, self.dim, jnp.float32).astype(jnp.zeros(0).dtype)

    def with_centre(self, points: Any, mean: Any) -> Any:
        """``points``, and after them the mean where its value is a baseline."""
        return self.backend.xp.concat([points, mean[None, :]]) if self.beside else points

    def gradient(self, z: Any, values: Any) -> Any:
        """The gradient, in whitened coordinates, from the values of ``with_centre``'s points."""
        n = self.points.samples
        return self.estimator.estimate(z, values[:n], at_centre=values[n] if self.beside else None)


def start(backend, dim: int, x0: Any, sigma0: Any) -> tuple[Any, Any]:
    """``x0`` and ``sigma0`` as arrays of the backend.

    Raises:
        UserError: ``x0`` has another shape than ``(dim,)``.
    """
    x0 = backend.asarray(x0)
    if tuple(x0.shape) != (dim,):
        raise UserError(f"x0 has shape {tuple(x0.shape)}: it must be ({dim},)")
    return x0, backend.asarray(sigma0, x0)
