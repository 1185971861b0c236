"""The public interface of black-box search: ``minimize``."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowvar.core.keys import named_key
from lowvar.errors import UserError, kind_of, whole
from lowvar.search.callable import from_callable
from lowvar.search.evaluator import Errors, Evaluator
from lowvar.search.problem import BlackBoxProblem, Kind, to_host
from lowvar.search.run import Generation, Run, SearchResult, Status
from lowvar.search.searcher import Searcher, domain_and_start, known_method, own_options
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.make import default_method

__all__ = ["Generation", "SearchResult", "Status", "minimize"]

_TOLERANCE = "a search ends by itself where it stops moving; earlier by target= or a callback that returns True"
_COUNT = "budget= limits the evaluations of f, and a callback that returns True ends the search"
_TIME = "a callback that returns True ends the search, for example when the time is up"
_INSTEAD = {  # of the options of SciPy and pycma
    **dict.fromkeys(("tol", "xtol", "ftol", "xatol", "fatol", "gtol", "tolx", "tolfun"), _TOLERANCE),
    **dict.fromkeys(("maxiter", "maxfev", "maxfun", "maxfevals"), _COUNT),
    **dict.fromkeys(("timeout", "maxtime", "max_time"), _TIME),
}


def minimize(
    f: Callable[[Any], Any] | BlackBoxProblem,
    x0: Any = None,
    sigma0: float | None = None,
    method: str | Callable[..., Any] = "auto",
    *,
    budget: int | None = None,
    seed: int = 0,
    domain: Kind = "real",
    dim: int | None = None,
    choices: int | None = None,
    batched: bool = False,
    workers: int = 1,
    population: int | None = None,
    target: float | None = None,
    backend: str = "jax",
    errors: Errors = "raise",
    progress: bool | None = None,
    callback: Callable[[Generation], Any] | None = None,
    bounds: Any = None,
    noisy: bool | None = None,
    integers: Any = None,
    **options: Any,
) -> SearchResult:
    """The minimum of a function that returns values only.

    The search draws, evaluates and learns from one generation of points after another. It ends when it reaches the
    target, stops moving, cannot pay for another generation, cannot continue, or when the callback ends it. If budget
    remains, the mean is then evaluated.

    When a search stops moving, it looks at points around the best one: at distances down from ``sigma0``, and down the
    slope of ``f`` as opposite points at three distances show it (``6 dim`` and some 30 evaluations). From a better
    point, another search starts. Without one, the search has ``converged``, possibly to a local minimum. From a kink,
    where ``f`` is not smooth, another search starts with ``sigma0 / 100`` and has to come back to the value; from a
    plateau whose edge is a large step, two with ``sigma0`` have to. If two end higher, the search has ``stalled``.
    ``mean`` and ``sigma`` are those of the best search. A discrete search without noise also ends when
    every point has been evaluated.

    A few points are evaluated twice, two of the first generation and one after generations 2, 4, 8 and so on. If
    their values differ, ``f`` is noisy. ``"auto"`` then evaluates half of the points of some generations again, each
    check after a quarter of the generations so far. It switches to the search for noisy values when noise makes up four
    fifths of the variance within a generation, on average over eight checks. A twentieth of the budget, 10 to 400
    evaluations, is reserved for ``f`` at the final mean. A target counts as reached when the mean's value is below it
    by two standard errors, not when a single value is.

    Args:
        f: ``(dim,) -> number``, or ``(n, dim) -> (n,)`` if ``batched``, of NumPy arrays; or a ``BlackBoxProblem``,
            which brings its domain, and a start where ``x0`` and ``sigma0`` are None.
        x0: the initial mean, ``(dim,)``; for a binary search the probabilities of a one, ``(dim,)``, for a
            categorical one those of the choices, ``(dim, choices)``, or None for uniform ones.
        sigma0: initial standard deviation, about a third of the expected distance to the minimum. Discrete searches
            have none.
        method: one of our searches or a peer, see ``lowvar list searches``; or a factory ``(backend, domain,
            population=None, **options) -> SearchSolver`` of your own, see docs/adding-a-search.md, or
            ``"module:function"``. ``"auto"`` is ``ingo_cma``, which is invariant under rotations and follows curved
            valleys, and ``ingo_path`` from where noise hides the differences of ``f``; in more than 200 dimensions
            ``fast_ingo``; ``ingo_binary`` and ``ingo_categorical`` in their domains.
        budget: maximum number of evaluations of ``f``; never exceeded.
        seed: seed of the noise; the same seed gives the same result.
        domain: ``"real"``, ``"binary"`` (zeros and ones) or ``"categorical"`` (whole numbers below ``choices``).
        dim: coordinates of a point, needed where ``x0`` is None.
        choices: number of choices of each coordinate of a categorical point, needed where ``x0`` is None.
        batched: whether ``f`` takes all points of a generation at once.
        workers: processes that share the points of a generation, for an ``f`` of one point.
        population: points of a generation; the method's default if not given.
        target: a value to stop at.
        backend: backend of the search, ``"jax"`` or ``"torch"``; both give the same result.
        errors: action if ``f`` raises or returns no finite value: ``"raise"`` a ``UserError``, or ``"mark"`` the point
            as a failure, which counts as the worst of its generation, and continue.
        progress: whether to show a progress bar; by default on a terminal only.
        callback: called with a ``Generation`` after each; returning a true value, or raising ``StopIteration``, ends
            the search. So a search ends at a time: ``callback=lambda _: time.monotonic() > end``.
        bounds: ``(low, high)`` of a real search, each a number, ``(dim,)`` numbers (possibly infinite), or None;
            or a ``scipy.optimize.Bounds``. ``f`` is called only at points within them; any method accepts them. Of two
            coordinates, two pairs that could also be ``(low, high)`` of each coordinate are refused.
        noisy: whether repeated evaluations of a point differ; None to detect it, which may miss noise in few of the
            calls. With False, no point is evaluated twice.
        integers: coordinates of a real search that are whole numbers: their indices, a mask ``(dim,)``, or True for
            all. ``f`` is called with whole numbers there, still floating. A margin keeps every one of lowvar's own
            searches moving between neighbouring numbers; peers are refused. Made for ordered numbers: use ``domain``
            for unordered choices.
        **options: options of the method.

    Returns:
        A ``SearchResult``.

    Raises:
        UserError: an unknown name, a number out of range, a start outside of the bounds, a method that does not search
            this domain, values of the wrong shape, a failure of ``f`` with ``errors="raise"``, or no value at all. The
            error's ``result`` has the result up to a failure.
        KeyboardInterrupt: Ctrl-C; after the first generation with the result so far as its ``result``: ``except
            KeyboardInterrupt as stop: result = stop.result``; or, in an interactive session,
            ``sys.last_value.result`` afterwards.

    References:
        Lyu and Tsang, "Black-box optimizer with stochastic implicit natural gradient", 2021; Hansen, "The CMA
        evolution strategy: a tutorial", arXiv:1604.00772; Hamano et al., "CMA-ES with margin", GECCO 2022.

    >>> def rosenbrock(x):
    ...     return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
    >>> result = minimize(rosenbrock, np.zeros(5), 0.5, budget=20_000, target=1e-10)
    >>> result.status, result.x.round(3)
    ('target', array([1., 1., 1., 1., 1.]))
    """
    known_method(method)
    if callback is not None and not callable(callback):
        raise UserError(f"callback is {kind_of(callback)}: it must be a function of a Generation")
    if noisy is not None and not isinstance(noisy, (bool, np.bool_)):
        raise UserError(f"noisy {noisy!r}: it must be True, False, or None to detect it")
    if isinstance(f, BlackBoxProblem):
        x0, sigma0, domain, dim, choices = _of_problem(f, x0, sigma0, domain, batched, workers, seed)
    elif not callable(f):
        raise UserError(f"f is {kind_of(f)}: it must be a function of a point, or a BlackBoxProblem")
    space, _ = domain_and_start(domain, x0, dim, choices)
    chosen = default_method(space) if method == "auto" else method
    SEARCH.check_options(chosen, options, also=own_options(minimize), instead=_INSTEAD)

    def make(method, x0=x0, sigma0=sigma0, count=0):
        own = int(np.random.SeedSequence([whole("seed", seed, 0), count]).generate_state(1)[0]) if count else seed
        return Searcher(
            x0, sigma0, method, seed=own, domain=domain, dim=dim, choices=choices, population=population,
            backend=backend, bounds=bounds, integers=integers, **options,
        )  # fmt: skip

    if isinstance(f, BlackBoxProblem):
        problem = f
    else:
        own = space.choices if space.kind == "categorical" else None
        problem = from_callable(f, space.dim, kind=space.kind, choices=own, batched=batched, workers=workers)
    searcher, steady = make(chosen), default_method(space, noisy=True)
    steady = steady if method == "auto" and steady != chosen else None
    evaluator = Evaluator(problem, _budget(budget, searcher), errors)
    return Run(searcher, make, chosen, steady, evaluator, _target(target), callback, noisy, batched).to_the_end(
        progress
    )


def _of_problem(problem, x0, sigma0, domain, batched, workers, seed):
    """The start and the domain of a ``BlackBoxProblem``."""
    own = problem.domain
    if domain not in ("real", own.kind):
        raise UserError(f"domain {domain!r}: {problem.name} brings its own, {own.kind}")
    if batched or workers != 1:
        raise UserError(f"batched and workers apply to functions; {problem.name} is a BlackBoxProblem, which sets them")
    with jax.enable_x64(True):
        x0 = problem.start(named_key(whole("seed", seed, 0), problem.name, "start", 0)) if x0 is None else x0
    sigma0 = problem.sigma0 if sigma0 is None else sigma0
    return x0, sigma0, own.kind, own.dim, own.choices if own.kind == "categorical" else None


def _budget(budget, searcher) -> int:
    """``budget`` as an int that pays for at least one generation; ``1e4`` counts as a whole number."""
    if budget is None:
        raise UserError("budget: give the maximum number of evaluations of f, for example budget=10_000")
    budget, size = whole("budget", budget, 1, or_float=True), len(searcher.ask())
    if budget < size:
        raise UserError(
            f"budget {budget}: one generation of {searcher.method} takes {size} evaluations; give a larger "
            "budget, or a smaller population="
        )
    return budget


def _target(target) -> float | None:
    if target is None:
        return None
    value = to_host(target)
    if value.shape != () or value.dtype.kind not in "iuf" or np.isnan(value):
        raise UserError(f"target {target!r}: it must be a number, the value to stop at")
    return float(value)
