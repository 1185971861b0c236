"""Evaluations of a problem: counted, checked and limited by a budget."""

import math
from typing import Any, Literal, get_args

import numpy as np

from lowvar.errors import UserError, check_known, whole
from lowvar.search.callable import PointErrors, WrongValue, numbers
from lowvar.search.problem import HOST, BlackBoxProblem, open_ledger, record

Errors = Literal["raise", "mark"]
_COUNTED = 10**6  # maximum number of points of a space whose evaluated ones are recorded


class BudgetSpent(Exception):
    """A request exceeds the remaining budget; none of its points was evaluated.

    Attributes:
        asked: number of points requested.
        remaining: evaluations left in the budget.
    """

    def __init__(self, asked: int, remaining: int):
        super().__init__(f"{asked} evaluations requested, {remaining} left in the budget")
        self.asked, self.remaining = asked, remaining


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

    >>> from lowvar.search.callable import from_callable
    >>> evaluate = Evaluator(from_callable(lambda x: x @ x, 2), budget=3)
    >>> evaluate([[1, 2], [0, 1]]), evaluate.best, evaluate.remaining
    (array([5., 1.]), 1.0, 1)
    """

    def __init__(self, problem: BlackBoxProblem, budget: int | None = None, errors: Errors = "raise"):
        check_known("way to treat errors", errors, get_args(Errors))
        self.problem, self.errors = problem, errors
        self.budget = None if budget is None else whole("budget", budget, 1)
        domain = problem.domain
        self.ledger = open_ledger(HOST, domain)
        self.nearest: float = math.inf
        size = domain.choices**domain.dim if domain.kind != "real" else math.inf
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
        """
        points = self._checked(points)
        if not len(points):
            return np.zeros(0)
        if len(points) > self.remaining:
            raise BudgetSpent(len(points), int(self.remaining))
        values, error = self._values(points)
        exact = values
        if self.problem.noise is not None:
            values = self.problem.noise(points, exact, self.evaluations)
        self._record(points, values, exact)
        if self.errors == "raise":
            if error is not None:
                raise UserError(str(error)) from (error.__cause__ or error)
            _refuse_failures(self.problem.name, values)
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
        """Values ``(n,)``, and the exceptions by point."""
        backend, name = self.problem.backend, self.problem.name
        try:
            if backend is not None:
                return numbers(backend.to_numpy(self._program(backend.asarray(points))), len(points)), None
            return numbers(self._program(points), len(points)), None
        except PointErrors as error:
            return error.values, error
        except WrongValue as error:
            raise UserError(f"{name} {error}") from error
        except UserError:
            raise
        except Exception as error:
            if backend is not None:  # a failure of a compiled problem is a bug: keep its traceback
                raise
            message = f"{name} raised {type(error).__name__}: {error} (called with {len(points)} points)"
            raised = PointErrors(message, np.full(len(points), np.nan), dict.fromkeys(range(len(points)), error))
            raised.__cause__ = error
            return raised.values, raised

    def _record(self, points, values, exact):
        self.ledger = record(HOST, self.ledger, points, values)
        self.nearest = min(self.nearest, float(np.min(exact, where=np.isfinite(exact), initial=np.inf)))
        if len(self._seen):
            domain = self.problem.domain
            index = np.unique(points @ domain.choices ** np.arange(domain.dim))
            self.unseen -= int((~self._seen[index]).sum())
            self._seen[index] = True


def _refuse_failures(name, values):
    failed = np.flatnonzero(~np.isfinite(values))
    if len(failed):
        more = f" (and at {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise UserError(
            f"{name} gave {values[failed[0]]} at point {failed[0]} of {len(values)}{more}: values must be finite; "
            "errors='mark' counts such points as failures and continues"
        )
