"""The public interface of black-box search: ``minimize``, its stopping rules and its result."""

import inspect
import math
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from scipy.special import stdtrit

from lowvar.core.keys import named_key
from lowvar.core.loop import geometric
from lowvar.errors import UserError, kind_of, whole
from lowvar.search.convergence import Look, Rest
from lowvar.search.evaluator import BudgetSpent, Errors, Evaluator, from_callable
from lowvar.search.noise import DIGITS, Noise, average, deviation, dominated, drift, error_of_mean, median
from lowvar.search.problem import BlackBoxProblem, Kind, domain_and_start, to_host
from lowvar.search.restarts import Restarts
from lowvar.search.searcher import Searcher, chosen_method, default_method

__all__ = ["Generation", "SearchResult", "Status", "minimize"]

Status = Literal["target", "converged", "stalled", "budget", "callback", "interrupted", "failed"]

_ROWS = 100  # rows of the trace in a decade of generations
_DEAD = 10  # consecutive generations without any value, after which a search ends
_WIDER = 3  # than a search that noise overwhelmed is the next one: the differences of f show farther apart
_FAR = 1e15  # a search whose points exceed this multiple of the first generation's has diverged
_STEP = 1e-3  # a search that continues from a better point has at least this fraction of the first sigma
# With which fraction of the first sigma searches start again from a place, and how many have to come back. Values on a
# plateau are few, so that one search may come back by chance; at a kink it hardly can.
_AGAIN = {"kink": (1e-2, 1), "plateau": (1.0, 2)}
_HIGHER = 2  # searches that have to end higher before the best point counts as stalled
_HIGHER_BY = 1e-3  # of the distance of a search from elsewhere to the best value, the range of its values at rest
_PATIENT = 100  # generations, times 1 + d^1.5 / N, before a search may be given up for another start, as in pycma
_CLOSE = 1e-8  # of the fall of a search, see `SearchRun._close`
_CALLS = 20  # calls of a noisy f at the mean, whose averages give the standard error
_RISK = 0.01  # the chance that a search of a noisy f reports a target that its mean does not reach, at most
# A noisy search has moved away from its minimum if f at the mean is above the lowest average of the medians of so many
# generations, by this share of the fall to it.
_TOGETHER, _ABOVE = 10, 0.1
# reserved for a noisy f at the mean: budget / 20 evaluations, between 10 and 400
_RESERVED, _FEWEST, _MOST = 20, 10, 400
_TOLERANCE = "a search ends by itself where it stops moving; earlier by target= or a callback that returns True"
_COUNT = "budget= limits the evaluations of f, and a callback that returns True ends the search"
_TIME = "a callback that returns True ends the search, for example when the time is up"
_INSTEAD = {  # of the options of SciPy and pycma
    **dict.fromkeys(("tol", "xtol", "ftol", "xatol", "fatol", "gtol", "tolx", "tolfun"), _TOLERANCE),
    **dict.fromkeys(("maxiter", "max_iter", "maxfev", "maxfun", "maxfevals", "max_evals", "n_trials"), _COUNT),
    **dict.fromkeys(("timeout", "maxtime", "max_time"), _TIME),
    **dict.fromkeys(("popsize", "population_size", "pop_size"), "population= is the number of points of a generation"),
    **dict.fromkeys(("ftarget", "f_min"), "target= is the value to stop at"),
    **dict.fromkeys(("disp", "verbose", "verb_disp"), "progress= shows a bar"),
    "options": "give the options of the method one by one, name=value",
    "args": "f is called with a point alone: bind its other arguments, lambda x: f(x, *args)",
}


class Generation(NamedTuple):
    """The argument of a callback after each generation.

    Attributes:
        iteration: generations so far.
        evaluations: evaluations so far.
        x: the best point so far, ``(dim,)``, or None before there is one.
        fun: its value, infinite before there is one.
        points: points of this generation, ``(n, dim)``.
        values: their values, ``(n,)``; NaN where ``f`` failed.
        searcher: the search, for its ``mean``, ``sigma``, ``condition`` and ``population``.
        restarts: restarts so far, see ``minimize``.

    >>> import lowvar, numpy as np
    >>> def near(generation):
    ...     return generation.fun < 1e-3
    >>> result = lowvar.minimize(lambda x: (x**2).sum(), np.ones(5), 0.5, budget=5000, callback=near)
    >>> result.status, bool(result.fun < 1e-3)
    ('callback', True)
    """

    iteration: int
    evaluations: int
    x: np.ndarray | None
    fun: float
    points: np.ndarray
    values: np.ndarray
    searcher: Searcher
    restarts: int = 0


class Average(NamedTuple):
    """The mean of values at a point, its standard error and the degrees of freedom of that."""

    value: float = np.nan
    error: float = np.nan
    freedom: float = np.nan

    def below(self, bound: float, level: float) -> bool:
        """Whether the upper confidence limit of the mean is at most ``bound``, by Student's t distribution."""
        return bool(self.value + stdtrit(self.freedom, 1 - level) * self.error <= bound)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The result of ``minimize``, under SciPy's names where they exist.

    Attributes:
        x: the best evaluated point, ``(dim,)``.
        fun: its value; if ``f`` is noisy, the smallest of many noisy values, which is biased low.
        success: whether the target was reached or, without a target, the search that found ``x`` converged. False does
            not mean that ``x`` is bad: when the budget ends a search, its quality is unknown.
        status: reason for the end: ``target``; ``converged``: no point that was looked at around ``x`` is better,
            or every point of a discrete domain was evaluated; ``stalled``, away from
            a minimum, on a plateau or at a kink; ``budget``, ``callback``, ``interrupted`` (Ctrl-C) or ``failed``. The
            exceptions of Ctrl-C, of a failing ``f`` and of a callback have it as their ``result``.
        message: the same in a sentence.
        nfev: evaluations of ``f``.
        nit: generations.
        mean: the search's estimate of the minimum, ``(dim,)``: if ``f`` is noisy, a better answer than ``x``, whose
            value benefits from selection.
        sigma: geometric mean of the standard deviations at the end.
        condition: condition number of the covariance at the end.
        failures: evaluations that gave no finite value.
        notes: remarks on the result, one sentence each, such as ways on for a search that made no progress.
        method: the search.
        trace: table with columns ``iteration, evaluations, f, best, sigma, condition``, a row for each of the
            first generations and ever fewer of the later ones. ``f`` is the median of the generation's values.
        mean_fun: ``f`` at ``mean``, the average of several evaluations where ``f`` is noisy; NaN if the budget left
            none, or if the callback or a failure ended the search.
        mean_fun_se: its standard error, from the averages of up to 20 calls and, if ``f`` is batched, of two or more
            positions in a call; 0 if ``f`` is not noisy, or is said not to be, and NaN if unknown.
        noise: standard deviation of repeated evaluations of a point; 0 if they agree or with ``noisy=False``, NaN if no
            point was evaluated twice.
        restarts: searches after the first one, from other starts. ``status`` is then that of the best of them.

    >>> import lowvar, numpy as np
    >>> result = lowvar.minimize(lambda x: (x**2).sum(), np.ones(5), 0.5, budget=5000)
    >>> result.status, result.success, result.x.round(3) + 0.0
    ('converged', True, array([0., 0., 0., 0., 0.]))
    >>> bool(result.trace["best"].iloc[-1] == result.fun)
    True
    """

    x: np.ndarray
    fun: float
    success: bool
    status: Status
    message: str
    nfev: int
    nit: int
    mean: np.ndarray = field(repr=False)
    sigma: float
    condition: float
    failures: int
    notes: tuple[str, ...]
    method: str
    trace: Any = field(repr=False)
    mean_fun: float = np.nan
    mean_fun_se: float = np.nan
    noise: float = np.nan
    restarts: int = 0

    def __repr__(self) -> str:
        x, mean = (np.array2string(one, precision=6, threshold=8, edgeitems=3) for one in (self.x, self.mean))
        failed = f", {self.failures} of them failed" if self.failures else ""
        noisy = [
            f"  fun      {self.fun:.8g} at x, the smallest of noisy values",
            f"  mean_fun {self.mean_fun:.6g} +- {self.mean_fun_se:.2g} at mean; noise {self.noise:.3g}",
            f"  mean     {mean}",
        ]
        return "\n".join(
            [
                f"SearchResult of {self.method}: {self.message}",
                f"  success  {self.success}",
                *(noisy if self.noise > 0 else [f"  fun      {self.fun:.8g}"]),
                f"  x        {x}, dim {len(self.x)}",
                f"  nfev     {self.nfev} in {self.nit} generations{failed}",
                f"  sigma    {self.sigma:.3g}, condition {self.condition:.3g}",
                *(f"  note     {note}" for note in self.notes),
            ]
        )


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
    backend: str | None = None,
    errors: Errors = "raise",
    progress: bool | None = None,
    callback: Callable[[Generation], Any] | None = None,
    bounds: Any = None,
    noisy: bool | None = None,
    integers: Any = None,
    restarts: str | None = "auto",
    **options: Any,
) -> SearchResult:
    """The minimum of a function that returns values only.

    The search draws, evaluates and learns from one generation of points after another. It ends when it reaches the
    target, stops moving, cannot pay for another generation, cannot continue, or when the callback ends it. If budget
    remains, the mean is then evaluated. Where a target is not reached, or with ``restarts``, searches follow from other
    starts until the budget is spent, and the best of all is the result.

    When a search stops moving, it looks at points around the best one: at distances down from ``sigma0``, and down the
    slope of ``f`` as opposite points at three distances show it (``6 dim`` and some 30 evaluations). From a better
    point, another search starts. Without one, the search has ``converged``, possibly to a local minimum. There are two
    exceptions: a best point at a kink, where ``f`` is not smooth, and one on a plateau whose edge is a large step. Then
    further searches start there, with ``sigma0 / 100`` at a kink and with ``sigma0`` on a plateau. The search has
    ``converged`` once they come back to the best value, one of them at a kink and two on a plateau. It has ``stalled``
    if two of them end higher before. ``mean`` and ``sigma`` are those of the best search. A discrete search without
    noise also ends when every point has been evaluated.

    A few points are evaluated twice, two of the first generation and one after generations 2, 4, 8 and so on. If
    their values differ, ``f`` is noisy. ``"auto"`` then evaluates half of the points of some generations again, each
    check after a quarter of the generations so far. It switches to the search for noisy values when noise makes up four
    fifths of the variance within a generation, on average over eight checks. A twentieth of the budget, 10 to 400
    evaluations, is reserved for ``f`` at the final mean. A target counts as reached when the upper confidence limit of
    the mean's value is below it, not when a single value is. All limits of a search together hold with a probability of
    99 %, if averages of the noise are about normal.

    Args:
        f: ``(dim,) -> number``, or ``(n, dim) -> (n,)`` if ``batched``, of NumPy arrays; or a ``BlackBoxProblem``,
            which brings its domain, and a start where ``x0`` and ``sigma0`` are None.
        x0: the initial mean, ``(dim,)``; for a binary search the probabilities of a one, ``(dim,)``, for a
            categorical one those of the choices, ``(dim, choices)``, or None for uniform ones.
        sigma0: initial standard deviation, about a third of the expected distance to the minimum. Discrete searches
            have none, and refuse it.
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
        backend: backend of the search, ``"numpy"``, ``"jax"`` or ``"torch"``; all give the same result up to rounding.
            If not given, NumPy for lowvar's own searches, which compiles nothing, and else one that the search has.
        errors: action if ``f`` raises or returns no finite value: ``"raise"`` a ``UserError``, or ``"mark"`` the point
            as a failure, which counts as the worst of its generation, and continue.
        progress: whether to show a progress bar; by default on a terminal only.
        callback: called with a ``Generation`` after each; returning a true value, or raising ``StopIteration``, ends
            the search. So a search ends at a time: ``callback=lambda _: time.monotonic() > end``.
        bounds: ``(low, high)`` of a real search, each a number, ``(dim,)`` numbers (possibly infinite), or None;
            or a ``scipy.optimize.Bounds``. ``f`` is called only at points within them; any method accepts them. Of two
            coordinates, two pairs that could also be ``(low, high)`` of each coordinate are refused.
        noisy: whether repeated evaluations of a point differ; None to detect it, which may miss noise in few of the
            calls. With False, no point is evaluated twice. An ``f`` that changes with time, as by a state of its own,
            counts as noisy: a note says that it drifts where the evaluations at the final mean, budget / 20 of them,
            show it.
        integers: coordinates of a real search that are whole numbers: their indices, a mask ``(dim,)``, or True for
            all. ``f`` is called with whole numbers there, still floating. A margin keeps every one of lowvar's own
            searches moving between neighbouring numbers; peers are refused. Made for ordered numbers: use ``domain``
            for unordered choices.
        restarts: ``"ipop"`` starts another search where one has ended, with twice the population, until the target is
            reached or the budget is spent; ``"bipop"``, for real domains, lets searches with small populations and a
            ``sigma0`` down to a hundredth take turns with these. Starts are uniform between bounds up to ``100 sigma0``
            apart, and normal around ``x0`` with ``sigma0`` in other coordinates; discrete searches start at ``x0``. A
            search then also ends where it makes hardly any progress, or comes to rest above the best value. None makes
            one search. ``"auto"`` is ``"ipop"`` where the search stalls, unless no value differed, and where it ends
            short of a ``target``; else it is None. A plateau never counts as a minimum, so searches go on from one
            until the budget is spent. A noisy ``f`` has no restarts: noise hides whether a search has ended.
        **options: options of the method.

    Returns:
        A ``SearchResult``.

    Raises:
        UserError: an unknown name, a number out of range, a start outside of the bounds, a method that does not search
            this domain, values of the wrong shape, a failure of ``f`` with ``errors="raise"``, or no value at all. The
            error's ``result`` has the result up to a failure.
        KeyboardInterrupt: Ctrl-C; with the result so far as its ``result``, None before ``f`` had a value: ``except
            KeyboardInterrupt as stop: result = stop.result``; or, in an interactive session,
            ``sys.last_value.result`` afterwards.

    References:
        Lyu and Tsang, "Black-box optimizer with stochastic implicit natural gradient", 2021; Hansen, "The CMA
        evolution strategy: a tutorial", arXiv:1604.00772; Auger and Hansen, "A restart CMA evolution strategy with
        increasing population size", CEC 2005; Hamano et al., "CMA-ES with margin", GECCO 2022.

    >>> def rosenbrock(x):
    ...     return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
    >>> result = minimize(rosenbrock, np.zeros(5), 0.5, budget=20_000, target=1e-10)
    >>> result.status, result.x.round(3)
    ('target', array([1., 1., 1., 1., 1.]))
    """
    if callback is not None:
        _check_callback(callback)
    if noisy is not None and not isinstance(noisy, (bool, np.bool_)):
        raise UserError(f"noisy {noisy!r}: it must be True, False, or None to detect it")
    if isinstance(f, BlackBoxProblem):
        x0, sigma0, domain, dim, choices = _of_problem(f, x0, sigma0, domain, batched, workers, seed)
    space, start = domain_and_start(domain, x0, dim, choices)
    chosen = chosen_method(method, space, options, call=minimize, instead=_INSTEAD)

    def make(method, x0=x0, sigma0=sigma0, count=0, many=None):
        own = int(np.random.SeedSequence([whole("seed", seed, 0), count]).generate_state(1)[0]) if count else seed
        return Searcher(
            x0, sigma0, method, seed=own, domain=domain, dim=dim, choices=choices, population=many or population,
            backend=backend, bounds=bounds, integers=integers, **options,
        )  # fmt: skip

    problem = f if isinstance(f, BlackBoxProblem) else from_callable(f, space, batched=batched, workers=workers)
    searcher, steady = make(chosen), default_method(space, noisy=True)
    steady = steady if method == "auto" and steady != chosen else None
    evaluator = Evaluator(problem, _budget(budget, searcher), errors)
    starts = Restarts(restarts, searcher, start, sigma0, whole("seed", seed, 0))  # type: ignore[arg-type]
    if starts.asked and noisy:
        raise UserError(
            f"restarts {restarts!r} with noisy=True: noise hides whether a search has ended; leave restarts out, "
            "and give a larger population="
        )
    run = SearchRun(searcher, make, chosen, steady, evaluator, _target(target), callback, noisy, batched, starts)
    return run.to_the_end(progress)


def _of_problem(problem, x0, sigma0, domain, batched, workers, seed):
    """The start and the domain of a ``BlackBoxProblem``."""
    own = problem.domain
    if domain not in ("real", own.kind):
        raise UserError(f"domain {domain!r}: {problem.name} brings its own, {own.kind}")
    if batched or workers != 1:
        raise UserError(f"batched and workers apply to functions; {problem.name} is a BlackBoxProblem, which sets them")
    with jax.enable_x64(True):
        x0 = problem.start(named_key(whole("seed", seed, 0), problem.name, "start", 0)) if x0 is None else x0
    sigma0 = problem.sigma0 if sigma0 is None and own.kind == "real" else sigma0
    return x0, sigma0, own.kind, own.dim, own.choices if own.kind == "categorical" else None


def _budget(budget, searcher) -> int:
    """``budget`` as an int that pays for a generation, or for all points; ``1e4`` counts as a whole number."""
    if budget is None:
        raise UserError("budget: give the maximum number of evaluations of f, for example budget=10_000")
    budget, size = whole("budget", budget, 1, or_float=True), len(searcher.ask())
    if budget < min(size, searcher.domain.size):
        raise UserError(
            f"budget {budget}: one generation of {searcher.method} takes {size} evaluations; give a larger "
            "budget, or a smaller population="
        )
    return budget


def _check_callback(callback):
    if not callable(callback):
        raise UserError(f"callback is {kind_of(callback)}: it must be a function of a Generation")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # of some functions in C
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise UserError(f"callback: it must take one argument, a Generation ({error})") from error


def _target(target) -> float | None:
    if target is None:
        return None
    value = to_host(target)
    if value.shape != () or value.dtype.kind not in "iuf" or np.isnan(value):
        raise UserError(f"target {target!r}: it must be a number, the value to stop at")
    return float(value)


class SearchRun:
    """A running search, with its stopping rules.

    Args:
        searcher: asks for points.
        again: ``(method, x0, sigma0, count, population) -> Searcher``, the ``count``-th one after ``searcher``.
        method: of ``searcher``.
        steady: the method to continue with where noise overwhelms ``searcher``; or None.
        evaluator: of the function, with its budget.
        target: a value to stop at, or None.
        callback: or None.
        noisy: whether ``f`` is noisy; None to detect it.
        batched: whether the noise of a value may depend on the position of its point in a call.
        starts: of searches from elsewhere, after one that has ended.
    """

    def __init__(
        self,
        searcher: Searcher,
        again: Callable[..., Searcher],
        method: Any,
        steady: Any,
        evaluator: Evaluator,
        target: float | None,
        callback: Callable[[Generation], Any] | None,
        noisy: bool | None,
        batched: bool,
        starts: Restarts,
    ):
        self.searcher, self.again, self.evaluator = searcher, again, evaluator
        self.method, self.steady = method, steady
        self.target, self.callback, self.batched = target, callback, batched
        first = self.searcher.ask()
        self.size, self.iteration = len(first), 0
        self.far = min(_FAR * max(1.0, float(np.abs(first).max())), float(np.finfo(float).max))
        self.stops = set(geometric(max(1, int(evaluator.remaining) // self.size), _ROWS))
        self.rows: list[tuple] = []
        self.noise, self.rest = Noise(noisy, steady is not None), Rest(self.searcher)
        self.sigma0 = self.searcher.sigma
        self.dead, self.diverged, self.rests = 0, False, False
        self.width, self.searches = 0.0, 0  # of searches that continued from the best point
        self.starts = starts
        self.patience = 0.0  # generations of a search before the next look at its progress
        self.confirmed, self.ends = math.inf, Counter()  # the value that searches start again from, and their ends
        self.lowest = self.searcher
        self.rounding = math.inf  # the smallest spread of values of a search at rest: those of one that came back move
        self.back_to = math.inf  # the value of the kink that the search starts from; it ends there
        self.vouch = 1  # the generation from which to evaluate the mean again, if a noisy value is below the target
        self.tests = 0  # of whether the mean of a noisy f reaches the target
        self.first: tuple[float, float] = (np.nan, np.nan)  # the average of the first generation, its standard error
        self.middle = np.nan  # the median of the last generation's values
        self.middles: list[float] = []  # those of all generations
        self.at_mean = Average()
        self.tails = ""  # words on values at the mean that are far from normal
        self.drift = 0.0  # of the values at the mean, from one evaluation to the next
        self.advice: list[str] = []

    def to_the_end(self, progress: bool | None) -> SearchResult:
        """Runs generations until a stopping rule applies."""
        from tqdm import tqdm

        disable = None if progress is None else not progress
        problem = self.evaluator.problem
        bar = tqdm(
            total=self.evaluator.budget, desc=f"minimize {problem.name}", unit="eval", disable=disable, leave=False
        )
        with nullcontext() if problem.backend is None else jax.enable_x64(True), bar:
            ended = None
            try:
                while ended is None:
                    ended = self._generation()
                    ended = ended and self._elsewhere(*ended)
                    bar.set_postfix_str(f"best {self.evaluator.best:.4g}", refresh=False)
                    bar.update(self.evaluator.evaluations - bar.n)
            except BaseException as error:  # Ctrl-C, or of f or the callback
                if self.evaluator.best_at is None and isinstance(error, KeyboardInterrupt):
                    error.result = None  # type: ignore[attr-defined]
                    error.add_note("minimize: interrupted before f had a value: there is no result")
                elif isinstance(error, KeyboardInterrupt):
                    error.result = self._result("interrupted", f"interrupted in generation {self.iteration + 1}")  # type: ignore[attr-defined]
                    error.add_note(
                        f"minimize: the attribute `result` of this exception has the result so far: "
                        f"{self.evaluator.best:.8g} after {self.evaluator.evaluations} evaluations"
                    )
                elif self.evaluator.best_at is not None:
                    error.result = self._result("failed", str(error) or type(error).__name__)  # type: ignore[attr-defined]
                raise
            return self._result(*ended)

    @property
    def discrete(self) -> bool:
        """Whether any coordinate is a whole number."""
        return self.searcher.domain.kind != "real" or self.searcher.integers is not None

    @property
    def reserve(self) -> int:
        """Evaluations of the budget reserved for the mean of a noisy ``f``, or to look for noise at the best point."""
        budget = self.evaluator.budget or 0
        if self.noise.known:
            return min(max(_FEWEST, budget // _RESERVED), _MOST, budget // 2)
        return 2 if self.noise.asked else 0

    def _generation(self) -> tuple[Status, str] | None:
        """Runs one generation; returns the reason if the search ends with it."""
        searcher, evaluator = self.searcher, self.evaluator
        points = searcher.ask()
        if not (np.abs(points) <= self.far).all():
            hides = ", or noise hides its differences" if self.noise.known else ""
            why = "" if searcher.bounded else f" f may be unbounded below{hides}; otherwise"
            self.diverged = True
            return "failed", f"the search diverged:{why} try a smaller sigma0 or a larger population"
        if not self.discrete and self.rest.points(points):
            return self._at_rest("the points of a generation no longer differ")
        if searcher.spent:
            why = "the search's deviations have shrunk to rounding, and its whole numbers no longer change"
            return ("stalled", why) if self.noise.known else self._at_rest(why)
        if self._silent and not evaluator.unseen:
            ended = self._at_rest("every point has been evaluated")
            if math.isnan(self.noise.sd):
                self.advice.append("no point was evaluated twice, which a larger budget does: f may be noisy")
            return None if self.noise.known else ended
        left = evaluator.remaining - self.reserve - evaluator.unseen
        # they are few, or would be beyond the budget after another generation
        others = left >= 0 and self._silent and (evaluator.unseen <= self.size or left < self.size + 2)
        if others or (evaluator.evaluations == 0 and evaluator.unseen <= evaluator.remaining < self.size):
            return self._others()
        if evaluator.remaining - (self.reserve if self.iteration else 0) < self.size:
            return "budget", f"the budget of {evaluator.budget} evaluations is spent"
        values = evaluator(points)
        self.iteration += 1
        self.noise.look(evaluator, self.iteration, points, values)
        searcher.tell(values)
        finite = values[np.isfinite(values)]
        self.dead = 0 if len(finite) else self.dead + 1
        if self.iteration == 1 and len(finite) > 1:
            self.first = average(finite), deviation(finite, 1) / math.sqrt(len(finite))
        rests = self.rest.values(finite, self._coarse)
        reached, stopped = self._at_target(), self._call_back(points, values)
        self.middle = median(finite) if len(finite) else np.nan
        self.middles.append(self.middle)
        if self.iteration in self.stops:
            self._measure()
        if reached or stopped:
            return reached or stopped
        if self.noise.overwhelms and self.steady is not None:
            self._change(self.steady)
        if rests and (self._silent or self.noise.sd == 0):  # said to be noisy, but repeated values agree
            return self._at_rest("the values of many generations do not differ")
        if not self._silent:
            return None
        if abs(searcher.best - self.back_to) <= self._close:
            return self._at_rest("the search came back to its value")
        if self._stagnates():
            why = "the last quarter of the generations made hardly any progress"
            return self._at_rest(why) if self.discrete else ("stalled", why)  # whole numbers move at a minimum, too
        if self.discrete and self.rest.idle(searcher.best if self.starts.count else evaluator.best):
            ended = self._at_rest("half of the generations have not improved the best value")
            if ended and (ended[0] == "converged" or self.starts.verdict):
                return ended
            self.advice.clear()
            self.rests = False
        return None

    def _others(self) -> tuple[Status, str] | None:
        """A generation of points of a discrete domain that were not evaluated yet; the search does not see it."""
        points = self.evaluator.others(self.size)
        values = self.evaluator(points)
        self.iteration += 1
        finite = values[np.isfinite(values)]
        self.middle = median(finite) if len(finite) else np.nan
        if self.iteration in self.stops:
            self._measure()
        reached, stopped = self._at_target(), self._call_back(points, values)
        return reached or stopped

    @property
    def _silent(self) -> bool:
        """Whether ``f`` showed no noise so far; the first generation shows it."""
        return not self.noise.known and (self.iteration > 0 or not self.noise.asked)

    def _at_target(self) -> tuple[Status, str] | None:
        if self.target is not None and self.evaluator.best <= self.target:
            assert self.evaluator.best_at is not None
            if not self.noise.known and not self.noise.lucky(
                self.evaluator, self.evaluator.best_at, self.evaluator.best
            ):
                return "target", f"the target {self.target:g} is reached"
            if self._vouched(self.target):
                return self._below(self.target)
        if self.dead == _DEAD:
            return "failed", f"f gave no finite value in {_DEAD} generations, up to generation {self.iteration}"
        return None

    def _vouched(self, target: float) -> bool:
        """Whether the mean reaches the target, for noisy values; checked at increasing intervals.

        Few values, two standard errors below the target, are a reason for a test and no evidence: among many looks,
        some are as low by chance. The test has values of its own, as many as are reserved for the final mean.
        """
        count = max(_FEWEST, self.evaluator.evaluations // 50)
        if self.iteration < self.vouch or self.evaluator.remaining < count + self.size + 2 * self.reserve:
            return False
        self.vouch = int(1.25 * self.iteration) + 1
        self._evaluate_mean(count)
        if self.at_mean.value + 2 * self.at_mean.error <= target:
            self._evaluate_mean(max(count, self.reserve))
            if self._passes(target):
                return True
        self.at_mean = Average()  # of a mean that moves on
        return False

    def _passes(self, target: float) -> bool:
        """Tests whether the mean's value is below the target; the levels of all tests add up to ``_RISK``."""
        self.tests += 1
        return self.at_mean.below(target, _RISK / (self.tests * (self.tests + 1)))

    @staticmethod
    def _below(target: float) -> tuple[Status, str]:
        return "target", f"the mean's value is below the target {target:g}, at a level of {_RISK:.0%}"

    def _change(self, method: Any) -> None:
        """Continues with the search made for noisy values, from the current mean."""
        old = self.searcher
        wide = min(self.sigma0, _WIDER * old.sigma * old.condition**0.25)
        if np.isfinite(wide) and wide > 0 and np.isfinite(old.mean).all():
            self._continue(method, old.mean, wide)
        self.steady, self.noise.share = None, False

    def _continue(self, method: Any, x0: np.ndarray, sigma0: float | None) -> None:
        """Continues with a new search from ``x0``."""
        self.searches += 1
        self.method, self.searcher = method, self.again(method, x0, sigma0, self.searches, self.starts.population)
        self.rest, self.back_to = Rest(self.searcher), math.inf

    @property
    def _new(self) -> bool:
        """Whether the best point is another one than that of the searches that have ended."""
        best_at = self.evaluator.best_at
        return best_at is not None and self.starts.new(self.evaluator.best, best_at)

    def _elsewhere(self, status: Status, message: str) -> tuple[Status, str] | None:
        """None if another search starts elsewhere; else the end, whose verdict is that on the best point of all."""
        evaluator, starts, searcher, new = self.evaluator, self.starts, self.searcher, self._new
        rested = status in ("converged", "stalled")
        if starts.kind is None or self.noise.known or not (rested or status in ("budget", "failed")):
            return status, message
        if rested and new:
            medians = self.rest.medians or [evaluator.best]
            fall = max(medians[len(medians) // 4] - evaluator.best, 0.0)  # the first values may be far too high
            close = DIGITS * abs(evaluator.best) + _CLOSE * fall
            starts.ended(evaluator.best, evaluator.best_at, close, (status, message))
        elif rested:
            starts.ended(searcher.best)
        elif new:
            self.advice.clear()
        if starts.verdict is None or (new and not rested):
            return status, message
        wanted = starts.asked or self.target is not None
        wanted |= starts.verdict[0] == "stalled" and self.first[0] > starts.value  # else f may be constant
        if status == "budget" or not (wanted and evaluator.unseen and searcher.iteration):
            return starts.verdict
        x0, sigma0 = starts.next(evaluator.evaluations)
        self.lowest = min(self.lowest, searcher, key=lambda searcher: searcher.best)
        self._continue(self.method, x0, sigma0)
        self.size = len(self.searcher.ask())
        self.width, self.dead, self.diverged, self.rests, self.patience = 0.0, 0, False, False, 0.0
        self.confirmed, self.ends = math.inf, Counter()
        return None

    @property
    def _coarse(self) -> float:
        """The range of values within which a search from elsewhere counts as at rest: it will not end lower."""
        if not self.starts.count or self._new or not math.isfinite(self.searcher.best):
            return 0.0
        return max(_HIGHER_BY * (self.searcher.best - self.evaluator.best), self.starts.close)

    def _stagnates(self) -> bool:
        """Whether the search is to be given up for another start, though it still moves."""
        starts, dim, generations = self.starts, self.searcher.domain.dim, self.searcher.iteration
        if starts.kind is None or not (starts.asked or self.target is not None):
            return False
        if generations < self.patience:
            return False
        self.patience = 1.1 * generations
        return generations >= _PATIENT * (1 + dim**1.5 / self.size) and self.rest.stuck()

    @property
    def _close(self) -> float:
        """The difference of two results below which the search came back to the first one."""
        best = self.evaluator.best
        return DIGITS * abs(best) + _CLOSE * (max([best, *self.rest.medians[:1]]) - best)

    def _at_rest(self, why: str) -> tuple[Status, str] | None:
        """``converged`` or ``stalled``, judged by points around the best one; None if the search continues from a
        better one among them."""
        evaluator, best = self.evaluator, self.evaluator.best
        if evaluator.best_at is None:
            return "stalled", why
        before, evaluator.errors = evaluator.errors, "mark"
        try:
            if self.noise.hides(evaluator, evaluator.best_at, best):
                return "stalled", f"{why}, but f has another value when the best point is evaluated again"
            if not evaluator.unseen:
                return "converged", f"converged to the minimum: {why}"
            if self.starts.verdict and not self._new:
                return self.starts.verdict
            self.advice.clear()
            return self._settled(why)
        except BudgetSpent:
            self.rests = True
            return "budget", f"{why}; the budget ends before the points around x have shown whether it is a minimum"
        finally:
            evaluator.errors = before

    def _settled(self, why: str) -> tuple[Status, str] | None:
        """The verdict on the best point, or None if the search continues from there."""
        evaluator, best, own = self.evaluator, self.evaluator.best, self.searcher.best
        self.rounding = min(self.rounding, 0.0 if self.discrete else self.rest.width)
        look = Look(self.searcher, evaluator, self.sigma0, DIGITS * abs(best) + 10 * self.rounding)
        if self.searcher.domain.kind == "real":
            look.around()
            look.downhill()
        else:
            look.changes()
        assert evaluator.best_at is not None
        if look.better and self.searcher.domain.kind == "real":
            self.width = min(max(look.way, _STEP * self.sigma0, 10 * self.width), self.sigma0)
            self._continue(self.method, evaluator.best_at, self.width)
            reached = self._at_target()
            if reached:
                self.lowest = self.searcher  # which starts at x
            return reached
        place = "" if self.discrete else "kink" if look.kinked else "plateau" if look.stepped else ""
        ended = ""
        if place:
            if best < self.confirmed - self._close:
                self.confirmed, self.ends = best, Counter()
            else:
                self.ends["same" if own <= best + self._close else "higher"] += 1
            width, needed = _AGAIN[place]
            ended = "same" if self.ends["same"] >= needed else "higher" if self.ends["higher"] >= _HIGHER else ""
            if not ended:
                self.lowest = min(self.lowest, self.searcher, key=lambda searcher: searcher.best)
                self._continue(self.method, evaluator.best_at, width * self.sigma0)
                self.back_to = best if place == "kink" else math.inf
                return None
        status, words, advice = look.verdict(place, ended)
        self.advice += advice
        return status, words.format(why)

    def _call_back(self, points, values) -> tuple[Status, str] | None:
        """Calls the callback."""
        if self.callback is None:
            return None
        searcher, evaluator = self.searcher, self.evaluator
        best_at = None if evaluator.best_at is None else evaluator.best_at.copy()
        report = Generation(
            self.iteration, evaluator.evaluations, best_at, evaluator.best, points, values.copy(), searcher,
            self.starts.count,
        )  # fmt: skip
        try:
            stop = self.callback(report)
        except StopIteration:
            stop = True
        try:
            stop = bool(stop)
        except (TypeError, ValueError) as error:  # an array
            raise UserError(
                f"callback: it returned {kind_of(stop)} that is neither true nor false; return True to end the "
                "search, and None to continue"
            ) from error
        if stop:
            return "callback", f"the callback ended it after generation {self.iteration}"
        return None

    def _measure(self) -> None:
        """Adds a row to the trace, or replaces that of the same generation."""
        evaluator = self.evaluator
        row = (self.iteration, evaluator.evaluations, self.middle, evaluator.best, *self.searcher.spread)
        self.rows = [*(self.rows[:-1] if self.rows and self.rows[-1][0] == row[0] else self.rows), row]

    def _result(self, status: Status, message: str) -> SearchResult:
        import pandas as pd

        if not self.noise.known:  # the last one may have started again above x
            self.searcher = min(self.lowest, self.searcher, key=lambda searcher: searcher.best)
        searcher, evaluator = self.searcher, self.evaluator
        if status == "budget" and evaluator.best_at is not None and evaluator.remaining >= 2:
            evaluator.errors = "mark"
            self.noise.lucky(evaluator, evaluator.best_at, evaluator.best)
        ended = status in ("budget", "converged", "stalled") or self.diverged
        if ended and evaluator.remaining >= 1 and (np.abs(searcher.mean) <= self.far).all():
            message += self._evaluate_mean(min(int(evaluator.remaining), self.reserve) if self.noise.known else 1)
        if evaluator.best_at is None:
            shows = "; errors='raise' shows the first failure" if evaluator.evaluations else ""
            if shows and searcher.domain.kind == "real":
                shows += ", and a smaller sigma0 keeps points nearer to x0"
            raise UserError(f"{evaluator.problem.name}: f never returned a finite value: {message}{shows}")
        if self.target is not None and status not in ("target", "failed", "interrupted"):
            status, message = self._judge(self.target, status, message)
        success = status == "target" or (status == "converged" and self.target is None)
        if status == "budget" and not self.noise.known and not self.rests:
            message += self._progress()
        message += self.starts.words(evaluator.best)
        if self.noise.known and self.noise.sd > 0:
            message += "; f is noisy: fun is the smallest of many noisy values and biased low"
            if self.starts.asked:
                self.advice.append("no restarts since f was seen to be noisy: noise hides whether a search has ended")
            value, error, _ = self.at_mean
            levels = self._levels
            before, spread = min(levels, key=lambda level: level[0] if math.isfinite(level[0]) else math.inf)
            far = stdtrit(_TOGETHER - 1, 1 - _RISK / len(levels))  # the lowest of many levels is low by chance
            tails = self.tails or self.noise.tails()
            self.advice += [tails] if tails else []
            if self.drift:
                way = "rises" if self.drift > 0 else "falls"
                self.advice.append(
                    f"f drifts: at one point it {way} by about {abs(self.drift):.2g} with each evaluation; values of "
                    "different times do not compare, and mean_fun is of the search's end alone. Look for a state that "
                    "f keeps between its calls"
                )
            if value - before > max(far * math.hypot(error, spread), _ABOVE * (self.first[0] - before)):
                self.advice.append(
                    f"f at the mean is above an earlier average of the search, {before:.4g}: it moved away from the "
                    "minimum; give more budget, a larger population, or another start"
                )
            elif np.isfinite(value + error) and not (tails or self.drift or self._fell):
                wider = "population" if self.discrete else "sigma0 or population"
                self.advice.append(
                    "f at the mean is not below its average at the start by more than noise explains: the search saw "
                    f"no differences of f above the noise; try a larger {wider}, or averages of values"
                )
            message += f", f at the mean is {value:.4g} +- {error:.2g}" if np.isfinite(value) else ""
        self._measure()
        columns = ["iteration", "evaluations", "f", "best", "sigma", "condition"]
        *_, sigma, condition = self.rows[-1]
        return SearchResult(
            evaluator.best_at, evaluator.best, success, status, message, evaluator.evaluations, self.iteration,
            searcher.mean, sigma, condition, evaluator.failures, tuple(self.advice), searcher.method,
            pd.DataFrame(self.rows, columns=columns), *self.at_mean[:2], self.noise.sd, self.starts.count,
        )  # fmt: skip

    @property
    def _levels(self) -> list[tuple[float, float]]:
        """The level of values of the first generation and, by medians, of every ten, with its standard error."""
        count = len(self.middles) // _TOGETHER
        together = np.reshape(self.middles[: count * _TOGETHER], (count, _TOGETHER))
        return [self.first, *((average(some), deviation(some, 1) / math.sqrt(_TOGETHER)) for some in together)]

    @property
    def _fell(self) -> bool:
        """Whether ``f`` at the mean of a noisy ``f`` is below the first values by more than noise explains.

        The points of those were drawn: only the noise of their values counts, and that of a median is 1.25 times that
        of a mean.
        """
        error, sd = self.at_mean.error, self.noise.sd
        ways = zip(self._levels, (1.0, 1.25 / math.sqrt(_TOGETHER)), strict=False)
        return any(
            level - self.at_mean.value > 3 * math.hypot(error, sd * share / math.sqrt(self.size))
            for (level, _), share in ways
        )

    def _judge(self, target: float, status: Status, message: str) -> tuple[Status, str]:
        """Status and message of a search that ended before its target; the last evaluations may have reached it."""
        if not self.noise.known and self.evaluator.best <= target:  # possibly at the mean
            return "target", f"the target {target:g} is reached"
        if self.noise.known and self._passes(target):
            return self._below(target)
        shown = "shown to be reached" if self.noise.known and self.evaluator.best <= target else "reached"
        return status, f"{message}; the target {target:g} is not {shown}"

    def _progress(self) -> str:
        """For a search ended by its budget: whether it had stalled, and what to try."""
        method, domain = self.searcher.method, self.searcher.domain
        if not self.rest.stuck():
            return "" if self.target is not None else " before the search converged: more budget may improve it"
        others = ["another start", "a larger sigma0", "a larger population", "more budget"]
        if domain.kind != "real":
            others.remove("a larger sigma0")
        if domain.kind == "real" and domain.dim <= 1000 and method not in ("ingo_cma", "pycma", "cmaes"):
            others.insert(0, "method='ingo_cma'")
        near = ""
        if self.discrete:
            near = "x may be a minimum, whose neighbours a larger budget checks; otherwise "
            others.remove("more budget")
        tried = f"{', '.join(others[:-1])} or {others[-1]}"
        slow = "the last quarter of the generations made hardly any progress"
        self.advice.append(f"stalled: {slow}; {near}try {tried}")
        return ", and the search had stalled"

    def _evaluate_mean(self, count: int) -> str:
        """Evaluates ``f`` at the mean ``count`` times; returns words on a failure, for the result's message.

        The standard error comes from the averages of up to 20 calls, so that it holds for noise shared by a call; and,
        if ``f`` is batched, from those of the positions in a call, as noise may depend on these.
        """
        before, self.evaluator.errors = self.evaluator.errors, "mark"
        calls = min(count, _CALLS)
        if self.batched and self.noise.known:
            calls = max(1, min(_CALLS, count // max(2, math.isqrt(count // 4))))
        points = np.repeat(self.searcher.mean[None, :], max(count // calls, 1), axis=0)
        try:
            values = np.array([self.evaluator(points) for _ in range(calls)])
        except UserError as error:
            return f" ({error})"
        finally:
            self.evaluator.errors = before
        every = values[np.isfinite(values)]
        if not len(every):
            return " (f gave no value at the final mean)"
        error, freedom = self.noise.sd, np.nan
        if self.noise.known:
            error, freedom = error_of_mean(values, self.batched)
            of_calls = [average(one[np.isfinite(one)]) if np.isfinite(one).any() else np.nan for one in values]
            self.drift = drift(np.array(of_calls)) / len(points)
            if np.isfinite(error):
                self.noise.measured(every)
            if dominated(np.abs(every - np.median(every))):
                self.tails = (
                    f"one of {len(every)} values at the mean makes up most of the noise: its tails are heavy, and "
                    f"mean_fun_se may be far too small; their median is {np.median(every):.4g}"
                )
        self.at_mean = Average(average(every), error, freedom)
        return ""
