"""The common interface of peers driven from Python: they propose points and learn their values."""

import abc

import numpy as np

from lowvar.errors import UserError, positive
from lowvar.search.gradients import usable
from lowvar.search.problem import Domain, host
from lowvar.search.solvers.base import check_domain, check_population, default_population


class Driven(abc.ABC):
    """A peer's optimizer behind ``propose`` and ``learn``, which a ``Searcher`` or a job calls in turn.

    The caller enforces the budget, and the peer never stops itself. Subclasses define how their package proposes
    (``propose``) and learns (``update``). The start has passed ``checked_start``.

    Attributes:
        name: as in the registry.
        domain: the search domain.
        population: points of a generation.
    """

    def __init__(self, name: str, domain: Domain, population: int, seed: int):
        if not 0 <= seed < 2**32:
            raise UserError(f"seed {seed}: it must be from 0 to 2^32 - 1")
        check_population(population)
        self.name, self.domain, self.population = name, domain, population

    def learn(self, points: np.ndarray, values: np.ndarray) -> None:
        """Learns the values ``(population,)`` of the points last proposed.

        A value that is not finite counts as the worst finite one of its generation.
        """
        self.update(points, usable(host(), values))

    @property
    @abc.abstractmethod
    def mean(self) -> np.ndarray:
        """The search's estimate of the minimum, ``(dim,)``."""

    @property
    def spread(self) -> tuple[float, float]:
        """Geometric mean of the standard deviations along the principal axes, condition number of the covariance."""
        return np.nan, np.nan

    @abc.abstractmethod
    def propose(self) -> np.ndarray:
        """New points ``(population, dim)``."""

    @abc.abstractmethod
    def update(self, points: np.ndarray, values: np.ndarray) -> None:
        """Updates the optimizer; ``values`` are finite."""


class Gaussian(Driven):
    """The common part of Gaussian peers on R^d: checks of the start, and the spread."""

    def __init__(self, name: str, domain: Domain, sigma0: float, population: int | None, seed: int):
        check_domain(name, domain, "real")
        positive("sigma0", sigma0)
        super().__init__(name, domain, default_population(domain.dim) if population is None else population, seed)

    @property
    def spread(self) -> tuple[float, float]:
        """See ``Driven``."""
        scale, axes = self.scale_and_axes()
        axes = np.asarray(axes, float)
        with np.errstate(all="ignore"):
            return float(scale * np.exp(np.mean(np.log(axes)))), float((axes.max() / axes.min()) ** 2)

    @abc.abstractmethod
    def scale_and_axes(self) -> tuple[float, np.ndarray]:
        """The step size, and standard deviations along the principal axes relative to it, ``(dim,)``."""
