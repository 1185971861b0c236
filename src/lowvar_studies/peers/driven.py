"""The common interface of peers driven from Python: ask for points, tell their values."""

import abc
from types import SimpleNamespace
from typing import Any

import numpy as np

from lowvar.errors import UserError, positive
from lowvar.search.estimators.shaping import usable
from lowvar.search.problem import Domain
from lowvar.search.solvers.base import check_domain, check_population, default_population

_NUMPY = SimpleNamespace(xp=np)


class Driven(abc.ABC):
    """A peer's optimizer behind ``ask`` and ``tell``; the caller enforces the budget, and the peer never stops itself.

    Subclasses define how their package proposes (``propose``) and learns (``learn``).

    Attributes:
        name: as in the registry.
        domain: the search domain.
        population: points of a generation.
        iteration: generations told.
        evaluations: values told.
    """

    def __init__(self, name: str, domain: Domain, population: int, seed: int):
        if not 0 <= seed < 2**32:
            raise UserError(f"seed {seed}: it must be from 0 to 2^32 - 1")
        check_population(population)
        self.name, self.domain, self.population = name, domain, population
        self.iteration = self.evaluations = 0
        self._points: np.ndarray | None = None

    def ask(self) -> np.ndarray:
        """The points ``(population, dim)`` of a generation; the same ones until their values are told."""
        if self._points is None:
            self._points = self.propose()
        return self._points

    def tell(self, values: Any) -> None:
        """Learns the values ``(population,)`` of the points last asked for.

        A value that is not finite counts as the worst finite one of its generation.

        Raises:
            UserError: ``ask`` was not called, or the values have another shape.
        """
        values = np.asarray(values, float)
        if self._points is None:
            raise UserError(f"{self.name}: tell came before ask; ask for points first")
        if values.shape != (self.population,):
            raise UserError(f"{self.name}: values have shape {values.shape}: it must be ({self.population},)")
        self.learn(self._points, usable(_NUMPY, values))
        self._points = None
        self.iteration += 1
        self.evaluations += self.population

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
    def learn(self, points: np.ndarray, values: np.ndarray) -> None:
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


def start_point(x0: Any, shape: tuple[int, ...]) -> np.ndarray:
    """``x0`` as a new float64 array.

    Raises:
        UserError: it has another shape than ``shape``, or an entry that is not finite.
    """
    x0 = np.array(x0, float)
    if x0.shape != shape:
        raise UserError(f"x0 has shape {x0.shape}: it must be {shape}")
    if not np.isfinite(x0).all():
        raise UserError("x0 has an entry that is not finite: all must be finite")
    return x0
