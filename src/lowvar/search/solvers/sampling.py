"""Common parts of the Gaussian searches: noise, points, and a safeguard of the step."""

from typing import Any

import jax.numpy as jnp

from lowvar.core.gaussian import GAUSSIAN
from lowvar.errors import check_known
from lowvar.search.estimators.gaussian import gaussian
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population, default_population

LEAST = 1e-3  # lower bound on the eigenvalues of a step's factor, so that covariances stay positive definite


class Sampling:
    """Draws and weights the generations of a Gaussian search.

    Args:
        name: of the search, as in the registry.
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: baseline of the values, see ``search.estimators.shaping``.
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

    def start(self, x0: Any, sigma0: Any) -> tuple[Any, Any]:
        """``x0`` and ``sigma0`` as arrays of the backend."""
        x0 = self.backend.asarray(x0)
        return x0, self.backend.asarray(sigma0, x0)

    def solver(self, init, ask, tell, spread) -> SearchSolver:
        """The search with this sampling; its states have a ``mean``."""
        return SearchSolver(
            self.name, self.backend, self.domain, self.population, self.draw, init, ask, tell,
            mean=lambda state: state.mean, spread=spread, beside=self.beside,
        )  # fmt: skip
