"""The interface of search solvers: pure functions that propose points and learn from their values."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from lowvar.core.backend import Backend
from lowvar.errors import UserError
from lowvar.search.problem import Domain


@dataclass(frozen=True)
class SearchSolver:
    """A search over one domain, made of pure functions that can be compiled and vectorised over runs.

    Attributes:
        name: as in the registry.
        backend: backend of the arrays.
        domain: the search domain.
        population: points of a generation, ``N``.
        draw: ``key -> noise``: the randomness of a generation, as JAX arrays (other backends convert them).
        init: ``(x0, sigma0) -> state``; ``x0 (dim,)`` is the mean (a discrete solver: probabilities), ``sigma0``
            a positive scalar.
        ask: ``(state, noise) -> points (evaluations, dim)``.
        tell: ``(state, noise, points, values (evaluations,)) -> state``. A value that is not finite counts as
            the generation's worst. With ``gradients``, the last argument is those of ``f``, ``(evaluations, dim)``.
        mean: ``state -> (dim,)``: the estimate of the minimum (for a discrete solver, the mode).
        spread: ``state -> (sigma, condition)``: geometric mean of the standard deviations along the principal
            axes, and condition number of the covariance; for a discrete solver the mean standard deviation of
            a coordinate, and 1.
        beside: evaluations of a generation in addition to its ``N`` points; ``ask`` puts them last.
        gradients: whether it needs gradients of ``f``.
    """

    name: str
    backend: Backend
    domain: Domain
    population: int
    draw: Callable[[Any], Any]
    init: Callable[[Any, Any], Any]
    ask: Callable[[Any, Any], Any]
    tell: Callable[..., Any]
    mean: Callable[[Any], Any]
    spread: Callable[[Any], tuple[Any, Any]]
    beside: int = 0
    gradients: bool = False

    @property
    def evaluations(self) -> int:
        """Evaluations of a generation."""
        return self.population + self.beside


def default_population(dim: int) -> int:
    """``2 floor(3 + floor(3 ln d) / 2)``, an even number (Lyu and Tsang, section 6).

    >>> default_population(100)
    18
    """
    return 2 * math.floor(3 + math.floor(3 * math.log(dim)) / 2)


def check_domain(name: str, domain: Domain, kind: str) -> None:
    """Rejects a domain that a solver does not support, and a dimension below one."""
    if domain.kind != kind:
        raise UserError(f"{name} searches {kind} domains, not {domain.kind} ones")
    if domain.dim < 1:
        raise UserError(f"dim {domain.dim}: it must be at least 1")


def check_population(population: int, *, even: bool = False) -> None:
    """Rejects a population of fewer than two points, or an odd one if points come in pairs."""
    if not isinstance(population, Integral) or population < 2 or (even and population % 2):
        raise UserError(f"population {population}: it must be {'an even' if even else 'a whole'} number, 2 or more")
