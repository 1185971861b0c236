"""Black-box search driven by the user's own loop: ``Searcher``; and searches by name."""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from lowvar.core import backend as backends
from lowvar.core.backend import Backend
from lowvar.core.keys import named_key
from lowvar.errors import UserError, kind_of, whole
from lowvar.registry import label
from lowvar.search.problem import Domain, Kind, domain_and_start, host, open_ledger, record, to_host
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.base import CompiledSearch, SearchSolver
from lowvar.search.solvers.box import Box
from lowvar.search.solvers.integers import Margin, mask

_SOLVERS = 32  # maximum number of solvers in memory, with their programs
_PLAIN = bool | int | float | str | None  # options that tell solvers apart
_WIDE = 200  # dimensions beyond which a full covariance is not learnt within the usual budgets


class Searcher:
    """A search driven by your own loop, in float64: ask for points, evaluate them, tell their values.

    ``minimize`` with the same seed asks for the same points.

    Args:
        x0: the initial mean, ``(dim,)``; for a binary search the probabilities of a one, ``(dim,)``, for a
            categorical one those of the choices, ``(dim, choices)``, or None for uniform ones.
        sigma0: initial standard deviation, about a third of the expected distance to the minimum. Discrete searches
            have none, and refuse it.
        method: one of our searches or a peer, see ``lowvar list searches``; or a factory ``(backend, domain,
            population=None, **options) -> SearchSolver`` of your own. ``"auto"`` is ``ingo_cma``, for noisy values
            ``ingo_path``, in more than 200 dimensions ``fast_ingo``; ``ingo_binary`` and ``ingo_categorical`` in their
            domains.
        seed: seed of the noise.
        domain: ``"real"``, ``"binary"`` (zeros and ones) or ``"categorical"`` (whole numbers below ``choices``).
        dim: coordinates of a point, needed where ``x0`` is None.
        choices: number of choices of each coordinate of a categorical point, needed where ``x0`` is None.
        population: points of a generation; the method's default if not given.
        backend: ``"numpy"``, ``"jax"`` or ``"torch"``, as for ``minimize``.
        bounds: bounds of a real search, as for ``minimize``; ``ask`` returns only points within them.
        noisy: whether repeated evaluations of a point differ; ``"auto"`` depends on it.
        integers: coordinates of a real search that are whole numbers, as for ``minimize``.
        **options: options of the method.

    Attributes:
        method: name of the search; for ``"auto"``, the chosen one.
        domain: a ``Domain``.
        iteration: number of generations told.
        integers: mask of the coordinates that are whole numbers, ``(dim,)``, or None.

    Raises:
        UserError: an unknown name, a number out of range, or a method that does not search this domain.

    >>> import numpy as np
    >>> solver = Searcher(np.ones(10), 0.5, seed=0)
    >>> while solver.best > 1e-8 and solver.evaluations < 10_000:
    ...     points = solver.ask()
    ...     solver.tell((points**2).sum(axis=1))
    >>> bool(solver.best <= 1e-8), points.shape
    (True, (12, 10))
    """

    def __init__(
        self,
        x0: Any = None,
        sigma0: float | None = None,
        method: str | Callable[..., Any] = "auto",
        *,
        seed: int = 0,
        domain: Kind = "real",
        dim: int | None = None,
        choices: int | None = None,
        population: int | None = None,
        backend: str | None = None,
        bounds: Any = None,
        noisy: bool = False,
        integers: Any = None,
        **options: Any,
    ):
        self.domain, start = domain_and_start(domain, x0, dim, choices)
        chosen = chosen_method(method, self.domain, options, noisy, call=Searcher)
        self.method = label(chosen)
        self.integers = mask(integers, self.domain.dim)
        seed, width = whole("seed", seed, 0), _width(sigma0, domain, start, self.integers)
        if self.integers is not None and domain != "real":
            raise UserError(f"integers: the points of a {domain} search are whole numbers already")
        if bounds is not None and domain != "real":
            raise UserError(f"bounds: only a real search takes bounds, not a {domain} one")
        self._box = None if bounds is None else Box(bounds, self.domain.dim, width, self.integers)
        known = SEARCH.about(chosen).backends
        backend = backend or (backends.HOST if backends.HOST in known else known[0])
        self._search = make_search(
            chosen, backends.get(backend), self.domain,
            self._box.unconstrained_start(start) if self._box else start, width,
            seed, {"population": population, **options},
        )  # fmt: skip
        self._margin = None
        if self.integers is not None:
            if not isinstance(self._search, CompiledSearch):
                raise UserError(
                    f"integers: {self.method} would stall where its points are rounded to the same whole numbers; use "
                    "one of lowvar's own searches, such as ingo_cma"
                )
            self._margin = Margin(self.integers, self._search.mean, self._search.population, self._box)
        self._ledger = open_ledger(host(), self.domain)
        self.iteration = 0
        self._asked: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def population(self) -> int:
        """Points of a generation, as the method counts them; ``ask`` may add one (the mean, as a baseline)."""
        return self._search.population

    @property
    def evaluations(self) -> int:
        """Number of values told."""
        return int(self._ledger.evaluations)

    @property
    def best(self) -> float:
        """The smallest value told, infinite before there is one."""
        return float(self._ledger.best)

    @property
    def best_at(self) -> np.ndarray | None:
        """The point of ``best``, ``(dim,)``, or None."""
        return self._ledger.best_at.copy() if np.isfinite(self._ledger.best) else None

    @property
    def mean(self) -> np.ndarray:
        """The search's estimate of the minimum, ``(dim,)``; for a discrete search, the mode."""
        return self._inside(self._centre())

    @property
    def sigma(self) -> float:
        """Geometric mean of the standard deviations along the principal axes, before the transformation of bounds."""
        return self.spread[0]

    @property
    def condition(self) -> float:
        """Condition number of the covariance."""
        return self.spread[1]

    @property
    def spread(self) -> tuple[float, float]:
        """``sigma`` and ``condition`` at once."""
        return self._search.spread

    @property
    def bounded(self) -> bool:
        """Whether every coordinate has finite bounds."""
        return self._box is not None and bool(np.isfinite(self._box.inner).all())

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds of all coordinates, infinite where there is none, ``(dim,)`` each."""
        none = np.full(self.domain.dim, np.inf)
        return (-none, none) if self._box is None else self._box.inner

    @property
    def spent(self) -> bool:
        """Whether the search's deviations have shrunk to rounding, so that its whole numbers stay where they are."""
        return self._margin is not None and self._margin.spent

    def ask(self) -> np.ndarray:
        """The points of this generation, ``(n, dim)``, read-only; the same ones until ``tell`` has their values."""
        points = self._proposed()[1].copy()
        points.flags.writeable = False
        return points

    def directions(self) -> np.ndarray:
        """The directions of ``ask``'s points from the mean, with root mean square 1, ``(n, dim)``."""
        steps = self._proposed()[0] - np.array(self._search.mean)[None, :]
        if not steps.any(axis=1).all():  # some are below the rounding of the mean
            steps = np.random.default_rng(0).standard_normal(steps.shape)
        return steps / np.sqrt(np.mean(steps**2, axis=1, keepdims=True))

    def beside(self, x: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The points ``steps (n, dim)`` from ``x (dim,)``, steps being taken before the transformation of bounds."""
        return self._inside((x if self._box is None else self._box.inverse(x)) + steps)

    def neighbours(self, x: np.ndarray) -> np.ndarray:
        """``x (dim,)`` with each of its integers one lower and one higher, within bounds, ``(n, dim)``."""
        at = np.flatnonzero(self.integers) if self.integers is not None else np.zeros(0, int)
        steps = np.zeros((2 * len(at), len(x)))
        steps[np.arange(2 * len(at)), np.repeat(at, 2)] = np.tile([-1.0, 1.0], len(at))
        near = x + steps
        return near if self._box is None else near[((near >= self._box.inner[0]) & (near <= self._box.inner[1])).all(1)]

    def tell(self, values: Any) -> None:
        """Learns the values at the points of ``ask``, in their order.

        Args:
            values: ``(n,)``; one that is not finite counts as the worst of its generation.

        Raises:
            UserError: ``ask`` was not called, or the number of values is wrong.
        """
        if self._asked is None:
            raise UserError(f"{self.method}: tell without ask: ask for this generation's points first")
        (own, points), values = self._asked, to_host(values)
        if values.shape != (len(points),) or values.dtype.kind not in "biuf":
            raise UserError(f"{self.method}: tell needs {len(points)} numbers, one for each point of ask")
        values = values.astype(np.float64)
        self._search.learn(own, values)
        if self._box is not None and isinstance(self._search, CompiledSearch):
            self._search.limit(self._box.most / (self._margin.scale if self._margin else 1.0))
        if self._margin:
            self._margin.learn(self._search.mean, self._search.deviations)
        self._asked, self.iteration = None, self.iteration + 1
        self._ledger = record(host(), self._ledger, points, values)

    def _proposed(self) -> tuple[np.ndarray, np.ndarray]:
        """The search's own points of this generation, and those of ``ask``, within bounds and rounded."""
        if self._asked is None:
            own = np.array(self._search.propose())
            self._asked = own, self._inside(self._margin.points(own) if self._margin else own)
        return self._asked

    def _centre(self) -> np.ndarray:
        """The mean before bounds and rounding, ``(dim,)``."""
        return self._margin.mean() if self._margin else np.array(self._search.mean)

    def _inside(self, points: np.ndarray) -> np.ndarray:
        points = self._box.transform(points) if self._box else points
        if self.integers is None:
            return points
        rounded = np.where(self.integers, np.rint(points) + 0.0, points)  # zero has no sign
        if self._box is None:
            return rounded
        low, high = self._box.inner  # half a unit beyond a bound may be rounded away from it
        return np.clip(rounded, low, high)

    def __repr__(self) -> str:
        return (
            f"Searcher({self.method}, {self.domain.kind}, dim {self.domain.dim}: "
            f"{self.evaluations} evaluations, best {self.best:.6g})"
        )


def default_method(domain: Domain, noisy: bool = False) -> str:
    """The most reliable search for a domain (docs/performance.md).

    Args:
        domain: the search domain.
        noisy: whether repeated evaluations of a point differ.

    >>> default_method(Domain("real", 10)), default_method(Domain("real", 10), noisy=True)
    ('ingo_cma', 'ingo_path')
    """
    if domain.kind != "real":
        return {"binary": "ingo_binary", "categorical": "ingo_categorical"}[domain.kind]
    if domain.dim > _WIDE:
        return "fast_ingo"
    return "ingo_path" if noisy else "ingo_cma"


def chosen_method(
    method: str | Callable[..., Any], domain: Domain, options: Mapping[str, Any], noisy: bool = False, *,
    call: Callable[..., Any], instead: Mapping[str, str] | None = None,
) -> str | Callable[..., Any]:  # fmt: skip
    """``method``, or the default for ``"auto"``, after a check of its options.

    Args:
        method: as for ``Searcher``.
        domain: the search domain.
        options: options of the method.
        noisy: whether repeated evaluations of a point differ.
        call: the function that takes them, whose own arguments are suggested for a misspelt one.
        instead: see ``unknown_name``.

    Raises:
        UserError: an unknown method or option, or one of the wrong type.
    """
    if method != "auto":
        SEARCH.entry(method, also=("auto",))
    chosen = default_method(domain, noisy) if method == "auto" else method
    also = [key for key, p in inspect.signature(call).parameters.items() if p.kind is not p.VAR_KEYWORD]
    SEARCH.check_options(chosen, options, also=also, instead=instead)
    return chosen


def _width(sigma0, kind, start, integers) -> float:
    """``sigma0`` as a number; 1 for a discrete search, which has none."""
    if kind != "real":
        if sigma0 is not None:
            raise UserError(f"sigma0: a {kind} search has no standard deviation to start from; leave it out")
        return 1.0
    if sigma0 is None:
        raise UserError("sigma0: a real search needs the standard deviation to start from, for example 0.5")
    array = to_host(sigma0)
    if array.shape != () or array.dtype.kind not in "iuf" or not (np.isfinite(array) and array > 0):
        more = ""
        if array.size > 1:
            more = "; scale the coordinates inside f if they need different ones"
            if integers is not None:
                more = "; the search learns a deviation for each coordinate, and whole numbers keep one that moves them"
                more += "" if integers.all() else "; scale the others inside f if they need different ones"
        raise UserError(f"sigma0 {sigma0!r}: it must be one positive number{more}")
    coarse = int(np.argmax(np.abs(start)))
    rounding = float(np.spacing(np.abs(start[coarse])))
    if array < rounding:
        raise UserError(
            f"sigma0 {float(array):g} is below the rounding of x0, {rounding:.2g} at {start[coarse]:g}: "
            "all points would equal x0; use a larger sigma0, or shift and scale the coordinates inside f"
        )
    return float(array)


def make_solver(
    name: str | Callable[..., Any], backend: Backend, domain: Domain, options: Mapping[str, Any]
) -> SearchSolver:
    """The search called ``name``: ours, or a compiled peer.

    Args:
        name: name of a search that is not driven, or its factory.
        backend: backend of the arrays.
        domain: the search domain.
        options: options of its factory, including ``population``.

    Raises:
        UserError: an unknown name, a domain or backend that the search does not support, an unknown option, or a value
            of the wrong type or out of range.
    """
    factory = _checked(name, backend.name, domain, options)
    options = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
    given = tuple(sorted(options.items()))
    with _refusals(name):
        own = name in SEARCH.own and all(isinstance(value, _PLAIN) for value in options.values())
        solver = _built(factory, backend, domain, given) if own else factory(backend, domain, **options)
    if not isinstance(solver, SearchSolver):
        raise UserError(f"{label(name)}: the factory returned {kind_of(solver)}, not a SearchSolver")
    return solver


@lru_cache(maxsize=_SOLVERS)
def _built(factory, backend: Backend, domain: Domain, options: tuple[tuple[str, Any], ...]) -> SearchSolver:
    """A solver of lowvar's own, which is a set of pure functions: searches that are alike share its programs."""
    return factory(backend, domain, **dict(options))


def make_search(
    name: str | Callable[..., Any], backend: Backend, domain: Domain, x0: Any, sigma0: float, seed: int,
    options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The search called ``name``, ours or any peer, with its state, to propose points and to learn.

    Args:
        name: name of a search, or its factory.
        backend: backend of the arrays.
        domain: the search domain.
        x0: the start, see ``checked_start``.
        sigma0: initial standard deviation.
        seed: seed of its draws.
        options: as for ``make_solver``.

    Returns:
        A ``CompiledSearch``, or the object of a driven peer.

    Raises:
        UserError: as ``make_solver``, and a search that needs gradients.
    """
    if SEARCH.about(name).driven:
        factory = _checked(name, backend.name, domain, options)
        with _refusals(name):
            return factory(domain, x0, sigma0, seed=seed, **options)
    solver = make_solver(name, backend, domain, options)
    with jax.enable_x64(True):
        key = named_key(seed, "search", "noise")
    with _refusals(name):
        return CompiledSearch(solver, x0, sigma0, key)


def _checked(name, backend, domain, options) -> Callable:
    """The factory of a search, after all checks that precede a call."""
    about = SEARCH.about(name)
    if domain.kind not in about.domains:
        others = ", ".join(one for one in SEARCH.own if domain.kind in SEARCH.about(one).domains)
        kinds = " and ".join(about.domains)
        raise UserError(f"{label(name)} searches {kinds} domains, not {domain.kind} ones: use one of {others}")
    if backend not in about.backends:
        raise UserError(f"{label(name)} has no {backend} backend: use {' or '.join(about.backends)}")
    SEARCH.check_options(name, options)
    return SEARCH.get(name)


@contextlib.contextmanager
def _refusals(name):
    """Converts other projects' errors about settings to ``UserError``."""
    try:
        yield
    except UserError:
        raise
    except (AssertionError, TypeError, ValueError) as error:
        if name in SEARCH.own and not SEARCH.about(name).packages:  # a fault of lowvar's own
            raise
        raise UserError(f"{label(name)} refused these settings: {error}") from error
