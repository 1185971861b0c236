"""The public face of black-box search: ``minimize``."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from lowvar.api.searcher import Searcher, check_method, refuse_bounds
from lowvar.errors import UserError
from lowvar.noise import named_key
from lowvar.problems.blackbox.callable import Errors, from_callable
from lowvar.problems.blackbox.evaluator import Evaluator
from lowvar.problems.blackbox.named import whole
from lowvar.problems.blackbox.points import to_host
from lowvar.problems.blackbox.problem import BlackBoxProblem, Kind
from lowvar.runs.loop import geometric

Status = Literal["target", "budget", "converged", "callback", "interrupted", "failed"]

_ROWS = 100  # of the trace, in a decade of generations
_FLAT = 20  # generations in a row without any difference between their values, after which a search ends
_DEAD = 10  # the same, without any value
_FAR = 1e15  # times the first generation's points: there a search is lost


class Generation(NamedTuple):
    """What a callback is told after each generation.

    Attributes:
        iteration: generations so far.
        evaluations: evaluations so far.
        x: the best point so far, ``(dim,)``, or None before there is one.
        fun: its value, infinite before there is one.
        points: of this generation, ``(n, dim)``.
        values: at them, ``(n,)``; NaN where ``f`` failed.
        searcher: the search, for its ``mean``, ``sigma`` and ``condition``.
    """

    iteration: int
    evaluations: int
    x: np.ndarray | None
    fun: float
    points: np.ndarray
    values: np.ndarray
    searcher: Searcher


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What ``minimize`` returns, under SciPy's names where it has them.

    Attributes:
        x: the best of all points that were evaluated, ``(dim,)``.
        fun: its value.
        success: with a target, whether it was reached; without one, whether the search ended by itself, by its
            budget or by the callback, and not because ``f`` or the search failed.
        status: why it ended: ``target``, ``budget``, ``converged``, ``callback``, ``interrupted`` (Ctrl-C) or
            ``failed``.
        message: the same in a sentence.
        nfev: evaluations of ``f``.
        nit: generations.
        mean: where the search believes the minimum to be, ``(dim,)``: where ``f`` is noisy, a better answer than
            ``x``, whose value was lucky.
        sigma: geometric mean of the standard deviations at the end.
        condition: condition number of the covariance at the end.
        failures: evaluations that gave no finite value.
        notes: what you should know of the choice of settings; they were issued as warnings, too.
        method: which search it was.
        trace: table with the columns ``iteration, evaluations, f, best, sigma, condition``, a row for each of the
            first generations and ever fewer of the later ones. ``f`` is the median of the generation's values.
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

    def __repr__(self) -> str:
        x = np.array2string(self.x, precision=6, threshold=8, edgeitems=3)
        failed = f", {self.failures} of them failed" if self.failures else ""
        return "\n".join(
            [
                f"SearchResult of {self.method}: {self.message}",
                f"  success  {self.success}",
                f"  fun      {self.fun:.8g}",
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
    method: str = "fast_ingo",
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
    bounds: None = None,
    **options: Any,
) -> SearchResult:
    """The minimum of a function of which only values can be had.

    A generation of points is drawn, evaluated and learned from, until the target is reached, the budget does not
    pay another generation, the callback says so, or the search cannot go on: its points, or the values of 20
    generations, no longer differ. What the budget leaves then pays for an evaluation at the mean.

    Args:
        f: ``(dim,) -> number``, or ``(n, dim) -> (n,)`` if ``batched``, of NumPy arrays; or a ``BlackBoxProblem``,
            which brings its domain, and a start where ``x0`` and ``sigma0`` are None.
        x0: where to start: the mean, ``(dim,)``; of a binary search the probabilities of a one, ``(dim,)``, of a
            categorical one those of the choices, ``(dim, choices)``, or None for uniform ones.
        sigma0: standard deviation to start from, about a third of the distance to where you expect the minimum.
            Discrete searches have none.
        method: a search of ours or a peer; ``lowvar.solvers.search.ALL`` names them.
        budget: evaluations of ``f`` that may be spent; never more are.
        seed: of the noise; the same seed gives the same result.
        domain: ``"real"``, ``"binary"`` (zeros and ones) or ``"categorical"`` (whole numbers below ``choices``).
        dim: coordinates of a point, needed where ``x0`` is None.
        choices: of each coordinate of a categorical point, needed where ``x0`` is None.
        batched: whether ``f`` takes all points of a generation at once.
        workers: processes that share the points of a generation, for an ``f`` of one point.
        population: points of a generation; the method's default if not given.
        target: a value to stop at.
        backend: ``"jax"`` or ``"torch"``, of the search; both give the same result.
        errors: where ``f`` raises, or gives no finite value: ``"raise"`` a ``UserError``, or ``"mark"`` the point
            as a failure, which counts as the worst of its generation, and go on.
        progress: whether to draw a bar; by default on a terminal only.
        callback: called with a ``Generation`` after each; returning True, or raising ``StopIteration``, ends the
            search.
        bounds: not supported; asking for them says what to do instead.
        **options: of the method.

    Returns:
        A ``SearchResult``.

    Raises:
        UserError: an unknown name, a number out of range, a method that does not search this domain, values of the
            wrong shape, a failure of ``f`` with ``errors="raise"``, or no value at all. What had been found until a
            failure is in the error's ``result``.

    References:
        Lyu and Tsang, "Black-box optimizer with stochastic implicit natural gradient", 2021.

    >>> result = minimize(lambda x: abs(x - 1).sum() ** 0.5, np.zeros(10), 0.5, budget=20_000, target=1e-3)
    >>> result.status, result.x.round(3)
    ('target', array([1., 1., 1., 1., 1., 1., 1., 1., 1., 1.]))
    """
    if bounds is not None:
        raise refuse_bounds()
    check_method(method, options, minimize)
    if callback is not None and not callable(callback):
        raise UserError(f"callback is a {type(callback).__name__}: it must be a function of a Generation")
    if isinstance(f, BlackBoxProblem):
        x0, sigma0, domain, dim, choices = _of_problem(f, x0, sigma0, domain, batched, workers, seed)
    elif not callable(f):
        raise UserError(f"f is a {type(f).__name__}: it must be a function of a point, or a BlackBoxProblem")
    searcher = Searcher(
        x0, sigma0, method, seed=seed, domain=domain, dim=dim, choices=choices, population=population,
        backend=backend, **options,
    )  # fmt: skip
    if isinstance(f, BlackBoxProblem):
        problem = f
    else:
        found = searcher.domain
        problem = from_callable(f, found.dim, kind=found.kind, choices=found.choices, batched=batched, workers=workers)
    evaluator = Evaluator(problem, _budget(budget, searcher), errors)
    return _Run(searcher, evaluator, _target(target), callback).to_the_end(progress)


class _Run:
    """A search under way, with what decides when it ends.

    Args:
        searcher: asks for points.
        evaluator: of the function, with its budget.
        target: a value to stop at, or None.
        callback: or None.
    """

    def __init__(self, searcher: Searcher, evaluator: Evaluator, target: float | None, callback):
        self.searcher, self.evaluator, self.target, self.callback = searcher, evaluator, target, callback
        first = searcher.ask()
        self.size = len(first)
        self.far = min(_FAR * max(1.0, float(np.abs(first).max())), float(np.finfo(float).max))
        self.stops = set(geometric(int(evaluator.remaining) // self.size, _ROWS))
        self.rows: list[tuple] = []
        self.flat = self.dead = 0
        self.middle = np.nan  # of the last generation's values
        jax_problem = getattr(evaluator.problem.backend, "name", None) == "jax"
        self._precision = (lambda: jax.enable_x64(True)) if jax_problem else nullcontext

    def to_the_end(self, progress: bool | None) -> SearchResult:
        """Generations until one of the reasons to stop holds."""
        from tqdm import tqdm

        disable = None if progress is None else not progress
        label = f"minimize {self.evaluator.problem.name}"
        with tqdm(total=self.evaluator.budget, desc=label, unit="eval", disable=disable, leave=False) as bar:
            ended = None
            try:
                while ended is None:
                    ended = self._generation()
                    bar.set_postfix_str(f"best {self.evaluator.best:.4g}", refresh=False)
                    bar.update(self.evaluator.evaluations - bar.n)
            except KeyboardInterrupt:
                if self.evaluator.best_at is None:
                    raise  # there is nothing to keep
                ended = "interrupted", f"interrupted in generation {self.searcher.iteration + 1}"
            except UserError as error:
                if self.evaluator.best_at is not None:
                    error.result = self._result("failed", str(error))  # type: ignore[attr-defined]
                raise
        return self._result(*ended)

    def _generation(self) -> tuple[Status, str] | None:
        """One generation; why the search ends with it, if it does."""
        searcher, evaluator = self.searcher, self.evaluator
        points = searcher.ask()
        if not (np.abs(points) <= self.far).all():
            return "failed", "the search ran away: f falls without end, or try a smaller step or more points"
        if searcher.domain.kind == "real" and (points == points[:1]).all():
            return "converged", "converged: the points of a generation no longer differ"
        if evaluator.remaining < self.size:
            return "budget", f"the budget of {evaluator.budget} evaluations is spent"
        with self._precision():
            values = evaluator(points)
        searcher.tell(values)
        finite = values[np.isfinite(values)]
        self.dead = 0 if len(finite) else self.dead + 1
        self.flat = self.flat + 1 if len(finite) > 1 and finite.min() == finite.max() else 0
        ended = self._reached(searcher.iteration)
        stopped = self._told(points, values)
        self.middle = float(np.median(finite)) if len(finite) else np.nan
        if searcher.iteration in self.stops:
            self._measure()
        return ended or stopped

    def _reached(self, iteration: int) -> tuple[Status, str] | None:
        best = self.evaluator.best
        if self.target is not None and best <= self.target:
            return "target", f"the target {self.target:g} is reached"
        if self.flat == _FLAT:
            return "converged", f"converged, or on a plateau: the values in {_FLAT} generations did not differ"
        if self.dead == _DEAD:
            return "failed", f"f gave no finite value in {_DEAD} generations, up to generation {iteration}"
        return None

    def _told(self, points, values) -> tuple[Status, str] | None:
        """Calls the callback."""
        if self.callback is None:
            return None
        searcher, evaluator = self.searcher, self.evaluator
        best_at = None if evaluator.best_at is None else evaluator.best_at.copy()
        report = Generation(
            searcher.iteration, evaluator.evaluations, best_at, evaluator.best, points, values.copy(), searcher
        )
        try:
            stop = self.callback(report)
        except StopIteration:
            stop = True
        if isinstance(stop, (bool, np.bool_)) and stop:
            return "callback", f"the callback ended it after generation {searcher.iteration}"
        return None

    def _measure(self) -> None:
        """A row of the trace, in place of one of the same generation."""
        searcher, evaluator = self.searcher, self.evaluator
        row = (searcher.iteration, evaluator.evaluations, self.middle, evaluator.best, *searcher.spread)
        self.rows = [*(self.rows[:-1] if self.rows and self.rows[-1][0] == row[0] else self.rows), row]

    def _result(self, status: Status, message: str) -> SearchResult:
        import pandas as pd

        searcher, evaluator = self.searcher, self.evaluator
        if status in ("budget", "converged") and evaluator.remaining >= 1:
            message += self._at_mean()
        if evaluator.best_at is None:
            shows = "; errors='raise' shows the first failure" if evaluator.evaluations else ""
            raise UserError(f"{evaluator.problem.name}: no finite value was found: {message}{shows}")
        success = status not in ("failed", "interrupted")
        if self.target is not None and evaluator.best <= self.target:  # be it at the mean
            status, message = "target", f"the target {self.target:g} is reached"
        elif self.target is not None:
            success, message = False, f"{message}; the target {self.target:g} is not reached"
        self._measure()
        columns = ["iteration", "evaluations", "f", "best", "sigma", "condition"]
        *_, sigma, condition = self.rows[-1]
        return SearchResult(
            evaluator.best_at, evaluator.best, success, status, message, evaluator.evaluations, searcher.iteration,
            searcher.mean, sigma, condition, evaluator.failures, searcher.notes, searcher.method,
            pd.DataFrame(self.rows, columns=columns),
        )  # fmt: skip

    def _at_mean(self) -> str:
        """Evaluates the mean; what was found is not lost if that fails, the message then says so."""
        self.evaluator.errors = "mark"
        try:
            with self._precision():
                value = self.evaluator(self.searcher.mean[None, :])[0]
        except UserError as error:
            return f" ({error})"
        return "" if np.isfinite(value) else " (f gave no value at the final mean)"


def _of_problem(problem, x0, sigma0, domain, batched, workers, seed):
    """Start and domain of a ``BlackBoxProblem``."""
    own = problem.domain
    if domain not in ("real", own.kind):
        raise UserError(f"domain {domain!r}: {problem.name} brings its own, {own.kind}")
    if batched or workers != 1:
        raise UserError(f"batched and workers are for functions; {problem.name} is a problem, which says so itself")
    with jax.enable_x64(True):
        x0 = problem.start(named_key(whole("seed", seed, 0), problem.name, "start", 0)) if x0 is None else x0
    sigma0 = problem.sigma0 if sigma0 is None else sigma0
    return x0, sigma0, own.kind, own.dim, own.choices if own.kind == "categorical" else None


def _budget(budget, searcher) -> int:
    """``budget`` as an int that pays at least one generation; ``1e4`` counts as a whole number."""
    if budget is None:
        raise UserError("budget: say how many evaluations of f may be spent, for example budget=10_000")
    if isinstance(budget, (float, np.floating)) and float(budget).is_integer():
        budget = int(budget)
    budget, size = whole("budget", budget, 1), len(searcher.ask())
    if budget < size:
        raise UserError(f"budget {budget}: one generation of {searcher.method} takes {size} evaluations")
    return budget


def _target(target) -> float | None:
    if target is None:
        return None
    value = to_host(target)
    if value.shape != () or value.dtype.kind not in "iuf" or np.isnan(value):
        raise UserError(f"target {target!r}: it must be a number, the value to stop at")
    return float(value)
