"""A search with ask and tell, and its generations as one function for compiled loops."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowvar.core.keys import named_key
from lowvar.errors import UserError, positive
from lowvar.search.solvers.base import SearchSolver

_FIXED = 200  # points from which standard deviations of coordinates are estimated


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


class Search:
    """A search driven from outside, in float64: ask for points, evaluate them, tell their values.

    The noise of a generation depends only on the seed and its number, so a run does not depend on how it is split into
    calls, saved and restored.

    Args:
        solver: from ``lowvar.search.solvers``.
        x0: the initial mean, ``(dim,)``; for a discrete solver probabilities, ``(dim,)`` or ``(dim, K)``.
        sigma0: the initial standard deviation; discrete solvers have none.
        seed: seed of the noise.
        name: name under which the noise is drawn; two searches with the same name and seed share it.
        key: a JAX key for the noise, in place of the one from seed and name.

    Raises:
        UserError: the start is not a distribution, or the solver needs gradients.

    >>> import numpy as np
    >>> from lowvar.core import backend as backends
    >>> from lowvar.search.problem import Domain
    >>> from lowvar.search.solvers import SEARCH
    >>> solver = SEARCH.get("fast_ingo")(backends.get("jax"), Domain("real", 10))
    >>> search = Search(solver, np.ones(10), 0.5)
    >>> while search.evaluations < 3000:
    ...     search.tell((search.ask() ** 2).sum(axis=1))
    >>> bool((search.mean**2).sum() < 1e-6)
    True
    """

    def __init__(
        self,
        solver: SearchSolver,
        x0: Any,
        sigma0: float = 1.0,
        seed: int = 0,
        name: object = "search",
        key: Any = None,
    ):
        if solver.gradients:
            raise UserError(
                f"{solver.name} needs gradients of f: it runs in experiments, on functions of the catalogue that are "
                "array programs"
            )
        self.solver = solver
        self._generation, self._asked, self._compiled = 0, None, {}
        positive("sigma0", sigma0)
        with jax.enable_x64(True):
            self._key = named_key(seed, name, "noise") if key is None else key
            self._state = solver.init(_start(solver, x0), float(sigma0))

    @property
    def name(self) -> str:
        """The solver's name, as in the registry."""
        return self.solver.name

    @property
    def population(self) -> int:
        """Points of a generation."""
        return self.solver.population

    @property
    def iteration(self) -> int:
        """Number of generations whose values were told."""
        return self._generation

    @property
    def evaluations(self) -> int:
        """Number of values told."""
        return self._generation * self.solver.evaluations

    @property
    def mean(self) -> np.ndarray:
        """The search's estimate of the minimum, ``(dim,)``; for a discrete solver, the mode."""
        return self._run("mean", self.solver.mean, self._state)

    @property
    def spread(self) -> tuple[float, float]:
        """Geometric mean of the standard deviations, and condition number of the covariance."""
        sigma, condition = self._run("spread", self.solver.spread, self._state)
        return float(sigma), float(condition)

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviations of the coordinates of points around the mean, ``(dim,)``, from fixed draws."""
        if "fixed" not in self._compiled:
            with jax.enable_x64(True):
                keys = jax.random.split(jax.random.key(0), max(2, -(-_FIXED // self.solver.population)))
                self._compiled["fixed"] = self.solver.backend.from_jax(jax.vmap(self.solver.draw)(keys))

        def squares(state, noises):
            xp = self.solver.backend.xp
            points = self.solver.backend.vmap(lambda noise: self.solver.ask(state, noise))(noises)
            steps = points[:, : self.solver.population, :] - self.solver.mean(state)[None, None, :]
            return xp.sqrt(xp.mean(steps**2, axis=(0, 1)))

        return self._run("squares", squares, self._state, self._compiled["fixed"])

    def ask(self) -> np.ndarray:
        """The points of this generation, ``(evaluations of a generation, dim)``; the same until values are told."""
        if self._asked is None:
            noise = self._noise()
            points = self._run("ask", self.solver.ask, self._state, noise, numpy=False)
            self._asked = noise, points
        return np.array(self.solver.backend.to_numpy(self._asked[1]))

    def tell(self, values: Any) -> None:
        """Learns from the values at the points of ``ask``, in their order.

        Args:
            values: ``(evaluations of a generation,)``; those that are not finite count as the worst.

        Raises:
            UserError: ``ask`` was not called, or the number of values is wrong.
        """
        if self._asked is None:
            raise UserError(f"{self.name}: tell without ask: ask for this generation's points first")
        numbers = _numbers(values, self.solver.evaluations)
        noise, points = self._asked
        self._state = self._run("tell", self.solver.tell, self._state, noise, points, numbers, numpy=False)
        self._generation, self._asked = self._generation + 1, None

    def state_arrays(self) -> dict[str, np.ndarray]:
        """The state for resuming, as NumPy arrays by name. Points without values have to be asked for again."""
        arrays = {name: np.array(self.solver.backend.to_numpy(leaf)) for name, leaf in self._leaves()}
        return {**arrays, "iteration": np.asarray(self._generation)}

    def restore(self, arrays: Any) -> None:
        """Resumes from the ``state_arrays`` of a search with the same solver, seed and name.

        Raises:
            UserError: they belong to another solver or dimension.
        """
        leaves = self._leaves()
        for name, leaf in [*leaves, ("iteration", np.asarray(0))]:
            if name not in arrays:
                raise UserError(f"{self.name}: the saved state has no array {name!r}")
            if np.shape(arrays[name]) != tuple(leaf.shape):
                raise UserError(
                    f"{self.name}: the saved array {name!r} has shape {np.shape(arrays[name])}, not {tuple(leaf.shape)}"
                )
        with jax.enable_x64(True):
            restored = [self.solver.backend.asarray(np.asarray(arrays[name])) for name, _ in leaves]
        self._state = jax.tree.unflatten(jax.tree.structure(self._state), restored)
        self._generation, self._asked = int(arrays["iteration"]), None

    def _leaves(self) -> list[tuple[str, Any]]:
        """The arrays of the state and their names."""
        leaves = jax.tree_util.tree_flatten_with_path(self._state)[0]
        return [(f"state{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]

    def _noise(self) -> Any:
        """The noise of this generation, as arrays of the backend."""
        with jax.enable_x64(True):
            if "draw" not in self._compiled:
                self._compiled["draw"] = jax.jit(lambda key, t: self.solver.draw(jax.random.fold_in(key, t)))
            return self.solver.backend.from_jax(self._compiled["draw"](self._key, self._generation))

    def _run(self, which: str, function: Callable, *args: Any, numpy: bool = True) -> Any:
        """``function`` of the solver, compiled."""
        backend = self.solver.backend
        with jax.enable_x64(True):
            if which not in self._compiled:
                self._compiled[which] = backend.compile(function)
            args = tuple(backend.asarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
            result = self._compiled[which](*args)
            return backend.to_numpy(result) if numpy else result


def _start(solver: SearchSolver, x0: Any) -> np.ndarray:
    """``x0`` in float64, checked."""
    domain = solver.domain
    shape = (domain.dim, domain.choices) if domain.kind == "categorical" else (domain.dim,)
    try:
        x0 = np.asarray(x0, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"x0: it must be an array of numbers of shape {shape}") from error
    if x0.shape != shape:
        raise UserError(f"x0 has shape {x0.shape}: it must be {shape}")
    if not np.isfinite(x0).all():
        raise UserError("x0: it has entries that are not finite")
    if domain.kind != "real" and not ((x0 >= 0) & (x0 <= 1)).all():
        raise UserError(f"x0: a {domain.kind} search starts from probabilities, between 0 and 1")
    if domain.kind == "categorical" and not np.allclose(x0.sum(axis=1), 1):
        raise UserError("x0: the probabilities of each row must sum to 1")
    return x0


def _numbers(values: Any, count: int) -> np.ndarray:
    """``values`` as ``count`` floating numbers."""
    try:
        array = np.asarray(values)
        array = array.astype(np.float64, casting="unsafe" if array.dtype == object else "same_kind")
    except (TypeError, ValueError) as error:
        raise UserError(f"values: tell needs {count} numbers, one for each point of ask") from error
    if array.shape != (count,):
        raise UserError(f"values have shape {array.shape}: tell needs ({count},), one for each point of ask")
    return array
