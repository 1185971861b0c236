"""Evaluations of a function: of one point or of all, here or in workers; counted, checked and limited by a budget."""

import functools
import math
import traceback
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from lowvar.errors import UserError, check_known, kind_of, require, whole
from lowvar.search.problem import BlackBoxProblem, Domain, host, open_ledger, record, to_host, uniform_probabilities

Errors = Literal["raise", "mark"]
_COUNTED = 10**6  # maximum number of points of a space whose evaluated ones are recorded
_MARK = "errors='mark' counts such points as failures and continues"


class BudgetSpent(Exception):
    """A request exceeds the remaining budget; none of its points was evaluated."""


class PointErrors(Exception):
    """A function raised at some points.

    Attributes:
        values: ``(n,)``, NaN at these points.
        first: the exception at the first of them.
    """

    def __init__(self, raised: dict[int, Exception], values: np.ndarray):
        index, self.first = next(iter(raised.items()))
        said = f"{type(self.first).__name__}: {self.first}".removesuffix(": ")
        more = f"at {len(raised)} of {len(values)} points, first " if len(raised) > 1 else ""
        super().__init__(f"raised {said} ({more}at point {index})")
        self.values = values


class Unusable(UserError):
    """A function that returned something other than one number for each point, or that workers cannot call."""


class Evaluator:
    """``points (n, dim) -> values (n,)`` in NumPy, for any problem, with a count of the evaluations.

    A value that is not finite is a failure, returned as NaN; a search treats it as the worst of its generation.

    Args:
        problem: a problem of either backend, or of none.
        budget: maximum number of evaluations; None for no limit.
        errors: action at a failure or an exception: ``raise`` a ``UserError`` that names the point, after its
            generation has been counted; or ``mark`` the point with NaN and continue.

    Attributes:
        ledger: evaluations, failures and the best point so far, a ``Ledger``.
        nearest: the smallest value without noise at any point evaluated; ``best`` if the problem has no noise.
        unseen: number of points of a discrete domain not evaluated yet; infinite if the budget is below all of them.

    Raises:
        UserError: a setting out of range.

    >>> evaluate = Evaluator(from_callable(lambda x: x @ x, Domain("real", 2)), budget=3)
    >>> evaluate([[1, 2], [0, 1]]), evaluate.best, evaluate.remaining
    (array([5., 1.]), 1.0, 1)
    """

    def __init__(self, problem: BlackBoxProblem, budget: int | None = None, errors: Errors = "raise"):
        check_known("way to treat errors", errors, get_args(Errors))
        self.problem, self.errors = problem, errors
        self.budget = None if budget is None else whole("budget", budget, 1)
        self.ledger = open_ledger(host(), problem.domain)
        self.nearest: float = math.inf
        size = problem.domain.size
        self.unseen = size if size <= min(self.remaining, _COUNTED) else math.inf
        self._seen = np.zeros(int(size) if math.isfinite(self.unseen) else 0, bool)
        self._program = problem.values if problem.backend is None else problem.backend.compile(problem.values)

    @property
    def evaluations(self) -> int:
        """Points evaluated so far."""
        return int(self.ledger.evaluations)

    @property
    def failures(self) -> int:
        """Points without a finite value."""
        return int(self.ledger.failures)

    @property
    def best(self) -> float:
        """The smallest value so far, infinite before there is one."""
        return float(self.ledger.best)

    @property
    def best_at(self) -> np.ndarray | None:
        """The point of ``best``, ``(dim,)``, or None."""
        return self.ledger.best_at if np.isfinite(self.ledger.best) else None

    @property
    def remaining(self) -> float:
        """Evaluations left in the budget; infinite without a budget."""
        return math.inf if self.budget is None else self.budget - self.evaluations

    def __call__(self, points: Any) -> np.ndarray:
        """Values at ``points (n, dim)``, NaN where there is none.

        Raises:
            BudgetSpent: fewer than ``n`` evaluations are left.
            UserError: points or values of a wrong shape; with ``errors="raise"``, a failure.
            KeyboardInterrupt: Ctrl-C; the points that have their value by then are counted.
        """
        points = self._checked(points)
        if not len(points):
            return np.zeros(0)
        if len(points) > self.remaining:
            raise BudgetSpent(f"{len(points)} evaluations requested, {int(self.remaining)} left in the budget")
        try:
            values, error = self._values(points)
        except KeyboardInterrupt as stop:
            done = getattr(stop, "values", ())
            if len(done):
                self._record(points[: len(done)], done, done)
            raise
        exact = values
        if self.problem.noise is not None:
            values = self.problem.noise(points, exact, self.evaluations)
        self._record(points, values, exact)
        if self.errors == "raise":
            if error is not None:
                raise error
            failed = np.flatnonzero(~np.isfinite(values))
            if len(failed):
                more = f" (and at {len(failed) - 1} more)" if len(failed) > 1 else ""
                raise UserError(
                    f"{self.problem.name} gave {values[failed[0]]} at point {failed[0]} of {len(values)}{more}: values "
                    f"must be finite; {_MARK}"
                )
        return np.where(np.isfinite(values), values, np.nan)

    def others(self, most: int) -> np.ndarray:
        """Points not evaluated yet, ``(n, dim)`` with ``n`` up to ``most``, of a domain whose points are recorded."""
        domain = self.problem.domain
        return np.flatnonzero(~self._seen)[:most, None] // domain.choices ** np.arange(domain.dim) % domain.choices

    def measure(self, points: Any) -> np.ndarray:
        """Values without noise at ``points (n, dim)`` for reports, without counting them as evaluations."""
        values, _ = self._values(self._checked(points))
        return np.where(np.isfinite(values), values, np.nan)

    def _checked(self, points):
        domain = self.problem.domain
        points = np.asarray(points)
        if points.ndim != 2 or points.shape[1] != domain.dim:
            raise UserError(f"{self.problem.name}: points have shape {points.shape}; it must be (n, {domain.dim})")
        if domain.kind == "real":
            return points.astype(np.float64)
        whole_numbers = points.astype(np.int32)
        if (whole_numbers != points).any() or (whole_numbers < 0).any() or (whole_numbers >= domain.choices).any():
            raise UserError(f"{self.problem.name}: points must hold whole numbers from 0 to {domain.choices - 1}")
        return whole_numbers

    def _values(self, points):
        """Values ``(n,)``, and the error of a function that raised, or None."""
        backend, name = self.problem.backend, self.problem.name
        try:
            if backend is not None:
                return numbers(backend.to_numpy(self._program(backend.asarray(points))), len(points)), None
            return numbers(self._program(points.copy()), len(points)), None
        except Unusable as error:
            raise UserError(f"{name} {error}") from error
        except UserError:
            raise
        except PointErrors as error:
            raised = error
        except Exception as error:
            if backend is not None:  # a failure of a compiled problem is a bug: keep its traceback
                raise
            raised = PointErrors(dict.fromkeys(range(len(points)), error), np.full(len(points), np.nan))
        failure = UserError(f"{name} {raised}; {_MARK}")
        failure.__cause__ = raised.first
        return raised.values, failure

    def _record(self, points, values, exact):
        self.ledger = record(host(), self.ledger, points, values)
        self.nearest = min(self.nearest, float(np.min(exact, where=np.isfinite(exact), initial=np.inf)))
        if len(self._seen):
            domain = self.problem.domain
            index = np.unique(points @ domain.choices ** np.arange(domain.dim))
            self.unseen -= int((~self._seen[index]).sum())
            self._seen[index] = True


def from_callable(
    f: Callable[[Any], Any], domain: Domain, *, batched: bool = False, workers: int = 1
) -> BlackBoxProblem:
    """A problem whose values come from ``f``, called from Python with NumPy arrays.

    Args:
        f: ``(dim,) -> number``, or ``(N, dim) -> (N,)`` if ``batched``. Numbers may be Python's or scalars of
            NumPy, JAX or PyTorch. It receives copies, which it may change.
        domain: its domain; a search starts from zero, or from uniform probabilities.
        batched: whether ``f`` takes all points of a generation at once.
        workers: processes that evaluate a function that is not batched. Functions that cannot be imported, such as
            lambdas, are pickled by value. An exception at one point does not affect the others.

    Raises:
        UserError: an option out of range.
    """
    if not callable(f):
        raise UserError(f"f is {kind_of(f)}: it must be a function of a point, or a BlackBoxProblem")
    workers = whole("workers", workers, 1)
    if batched and workers > 1:
        raise UserError(f"workers={workers} with a batched f: only an f of one point can use workers")
    values = functools.partial(_at_once, f) if batched else functools.partial(one_by_one, f, workers=workers)
    start = np.zeros(domain.dim) if domain.kind == "real" else uniform_probabilities(domain)
    called = getattr(f, "__name__", type(f).__name__)
    return BlackBoxProblem(called, domain, values, None, None, lambda key: start)


def number(value: Any) -> float:
    """A Python, NumPy, JAX or PyTorch scalar as a float; a Python int may be of any size.

    Raises:
        Unusable: it is anything else.
    """
    if isinstance(value, Real):
        return float(value)
    array = to_host(value)
    if array.shape != () or array.dtype.kind not in "biuf":
        raise Unusable(f"returned {_described(value, array)}: it must return one number")
    return float(array)


def numbers(values: Any, count: int) -> np.ndarray:
    """The return value of a function of ``count`` points as ``(count,)``, float64.

    Raises:
        Unusable: it has another shape, or holds no real numbers.
    """
    array = to_host(values)
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise Unusable(
            f"returned {_described(values, array)} for {count} points: it must return numbers of shape ({count},)"
        )
    return array.astype(np.float64)


def _described(value: Any, array: np.ndarray) -> str:
    """``value`` in a few words for a message."""
    if array.dtype.kind in "biufc":
        kind = "complex numbers" if array.dtype.kind == "c" else "an array"
        return f"{kind} of shape {array.shape}"
    return "None" if value is None else kind_of(value)


def one_by_one(f: Callable[[Any], Any], points: np.ndarray, workers: int = 1) -> np.ndarray:
    """``f`` of every row of ``points``, in order.

    Args:
        f: function of one point ``(dim,)``, which receives a copy.
        points: ``(n, dim)``.
        workers: number of processes; 1 means this process. A worker unpickles ``f`` once, so ``f`` keeps its caches.

    Returns:
        Values ``(n,)``.

    Raises:
        PointErrors: ``f`` raised at some points.
        Unusable: ``f`` returned something other than a number, cannot be sent to the workers, or ended one.
        UserError: cloudpickle or joblib is missing.
        KeyboardInterrupt: Ctrl-C; without workers, with the ``values`` of the first points.
    """
    results: list[tuple[float, Exception | None]] = []
    if workers > 1:
        results = _in_processes(f, points, workers)
    else:
        try:
            results.extend(_guarded(f, point) for point in points)
        except KeyboardInterrupt as stop:
            stop.values = np.array([value for value, _ in results], dtype=np.float64)  # type: ignore[attr-defined]
            raise
    raised = {index: error for index, (_, error) in enumerate(results) if error is not None}
    for index, error in raised.items():
        if isinstance(error, Unusable):
            raise Unusable(f"point {index}: f {error}") from error
    values = np.array([value for value, _ in results], dtype=np.float64)
    if raised:
        raise PointErrors(raised, values)
    return values


def _at_once(f: Callable[[Any], Any], points: np.ndarray) -> Any:
    """``f`` of all points, none of which has a value if it raises."""
    try:
        return f(points)
    except Exception as error:
        raise PointErrors(dict.fromkeys(range(len(points)), error), np.full(len(points), np.nan)) from error


def _guarded(f, point) -> tuple[float, Exception | None]:
    try:
        return number(f(point.copy())), None
    except Exception as error:
        return np.nan, error


def _in_processes(f, points, workers) -> list[tuple[float, Exception | None]]:
    for package in ("cloudpickle", "joblib"):
        require(f"workers={workers}", package, "workers")
    import cloudpickle
    import joblib

    try:
        sent = cloudpickle.dumps(f)
    except Exception as error:
        raise Unusable(f"cannot be sent to worker processes ({error}): use workers=1, or a batched f") from error
    try:
        tasks = (joblib.delayed(_remote)(sent, point) for point in points)
        return list(joblib.Parallel(n_jobs=workers, backend="loky")(tasks))  # type: ignore[arg-type]
    except BrokenProcessPool as error:
        raise Unusable("ended its worker process: it ran out of memory, or crashed outside Python") from error


def _remote(sent, point):
    import cloudpickle

    value, error = _guarded(_received(sent), point)
    if error is None or isinstance(error, Unusable):
        return value, error
    error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:  # an exception that does not survive pickling
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return value, error.with_traceback(None)


@functools.lru_cache(maxsize=4)
def _received(sent):
    import cloudpickle

    return cloudpickle.loads(sent)
