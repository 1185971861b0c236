"""The interface of search solvers: pure functions that propose points and learn from their values, and their loops."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import jax
import numpy as np

from lowvar.core.backend import Backend
from lowvar.core.jax import compiled
from lowvar.errors import UserError
from lowvar.search.problem import Domain

_FIXED = 200  # points from which standard deviations of coordinates are estimated
_AHEAD, _NUMBERS = 32, 2**18  # maximum number of generations whose noise is drawn at once, and of its numbers


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
        limit: ``(state, most) -> state`` whose standard deviations of coordinates are at most ``most (dim,)``; None if
            they stay as wide as bounds leave them.
        beside: evaluations of a generation in addition to its ``N`` points; ``ask`` puts them last.
        gradients: whether it needs gradients of ``f``.
        programs: its compiled functions by name, for all searches that it runs.
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
    limit: Callable[[Any, Any], Any] | None = None
    beside: int = 0
    gradients: bool = False
    programs: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

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


def generation(solver: SearchSolver, values: Callable[[Any], Any]) -> Callable[[Any, Any], tuple[Any, Any, Any]]:
    """One generation of ``solver`` on a function that can be compiled.

    Args:
        solver: a search.
        values: ``points (n, dim) -> (n,)``, in arrays of the solver's backend; a value depends on its point only.

    Returns:
        ``(state, noise) -> (state, points, values)``, pure.
    """
    slopes = solver.backend.grad(lambda points: solver.backend.xp.sum(values(points)))

    def one(state, noise):
        points = solver.ask(state, noise)
        results = values(points)
        told = (results, slopes(points)) if solver.gradients else (results,)
        return solver.tell(state, noise, points, *told), points, results

    return one


class CompiledSearch:
    """A solver and its state, in float64, behind the two calls of a ``Searcher``: ``propose`` and ``learn``.

    The noise of a generation depends only on the key and its number.

    Args:
        solver: a search that needs no gradients.
        x0: the initial mean, ``(dim,)``; for a discrete solver probabilities, ``(dim,)`` or ``(dim, K)``.
        sigma0: the initial standard deviation; discrete solvers do not use it.
        key: a JAX key.

    Attributes:
        solver: the solver.
        state: its state.

    Raises:
        UserError: the solver needs gradients.
    """

    def __init__(self, solver: SearchSolver, x0: Any, sigma0: float, key: Any):
        if solver.gradients:
            raise UserError(
                f"{solver.name} needs gradients of f: it runs in experiments, on functions of the catalogue that are "
                "array programs"
            )
        self.solver, self._key = solver, key
        self._generation, self._noise, self._drawn, self._compiled = 0, None, None, solver.programs
        self._ahead = max(1, min(_AHEAD, _NUMBERS // (solver.population * solver.domain.dim)))
        with jax.enable_x64(True):
            self.state = solver.init(np.asarray(x0, np.float64), float(sigma0))

    @property
    def population(self) -> int:
        """Points of a generation, as the solver counts them."""
        return self.solver.population

    @property
    def mean(self) -> np.ndarray:
        """The search's estimate of the minimum, ``(dim,)``; for a discrete solver, the mode."""
        return self._run("mean", self.solver.mean, self.state)

    @property
    def spread(self) -> tuple[float, float]:
        """Geometric mean of the standard deviations, and condition number of the covariance."""
        sigma, condition = self._run("spread", self.solver.spread, self.state)
        return float(sigma), float(condition)

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviations of the coordinates of points around the mean, ``(dim,)``, from fixed draws."""
        if "fixed" not in self._compiled:
            with jax.enable_x64(True):
                keys = jax.random.split(jax.random.key(0), max(2, -(-_FIXED // self.population)))
                self._compiled["fixed"] = [self.solver.backend.from_jax(self.solver.draw(key)) for key in keys]
        points = [self._run("ask", self.solver.ask, self.state, noise) for noise in self._compiled["fixed"]]
        steps = np.concatenate([of[: self.population] for of in points]) - self.mean
        return np.sqrt(np.mean(steps**2, axis=0))

    def propose(self) -> np.ndarray:
        """The points of the next generation, ``(evaluations of a generation, dim)``."""
        first, backend = self._generation % self._ahead, self.solver.backend
        with jax.enable_x64(True):
            if self._drawn is None or first == 0:
                self._drawn = backend.from_jax(self._draws()(self._key, self._generation - first))
            self._noise = backend.tree_map(lambda leaf: leaf[first], self._drawn)
        return np.array(self._run("ask", self.solver.ask, self.state, self._noise))

    def _draws(self) -> Callable[[Any, int], Any]:
        """``(key, first) -> noise`` of the generations from the ``first`` on, compiled."""
        if "draw" not in self._compiled:
            draw, ahead = self.solver.draw, self._ahead

            def draws(key, first):
                return jax.lax.map(lambda t: draw(jax.random.fold_in(key, t)), first + jax.numpy.arange(ahead))

            self._compiled["draw"] = compiled(draws)
        return self._compiled["draw"]

    def learn(self, points: np.ndarray, values: np.ndarray) -> None:
        """Learns the values ``(n,)`` at the points of ``propose``; those that are not finite count as the worst."""
        values = np.asarray(values, np.float64)
        self.state = self._run("tell", self.solver.tell, self.state, self._noise, points, values, numpy=False)
        self._generation += 1

    def limit(self, most: np.ndarray) -> None:
        """Narrows the standard deviations of coordinates to ``most (dim,)``, if the solver can."""
        if self.solver.limit is not None:
            self.state = self._run("limit", self.solver.limit, self.state, most, numpy=False)

    def _run(self, which: str, function: Callable, *args: Any, numpy: bool = True) -> Any:
        """``function`` of the solver, compiled."""
        backend = self.solver.backend
        with jax.enable_x64(True):
            if which not in self._compiled:
                self._compiled[which] = backend.compile(function)
            result = self._compiled[which](*args)
            return backend.to_numpy(result) if numpy else result
