"""Any Python function as a black-box problem."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from lowvar.errors import UserError, check_known, kind_of, positive, whole
from lowvar.search.points import PointErrors, number, numbers, one_by_one
from lowvar.search.problem import KINDS, BlackBoxProblem, Domain, Kind, checked_start, uniform_probabilities

Errors = Literal["raise", "mark"]


def from_callable(
    f: Callable[[Any], Any],
    dim: int,
    *,
    kind: Kind = "real",
    choices: int = 0,
    batched: bool = False,
    workers: int = 1,
    name: str | None = None,
    optimum: float | None = None,
    start: Any = None,
    sigma0: float = 0.5,
    errors: Errors = "raise",
) -> BlackBoxProblem:
    """A problem whose values come from ``f``, called from Python with NumPy arrays.

    Args:
        f: ``(dim,) -> number``, or ``(N, dim) -> (N,)`` if ``batched``. Numbers may be Python's or scalars of
            NumPy, JAX or PyTorch. It receives copies, which it may change.
        dim: coordinates of a point.
        kind: kind of the domain.
        choices: ``K`` of a categorical domain.
        batched: whether ``f`` takes all points of a generation at once.
        workers: processes that evaluate a function that is not batched. Functions that cannot be imported, such as
            lambdas, are pickled by value. An exception at one point does not affect the others.
        name: name under which start and noise are drawn; the function's own if not given.
        optimum: the smallest value, if known.
        start: initial mean of a search, ``(dim,)`` (for a discrete domain: probabilities, ``(dim,)`` or
            ``(dim, K)``), or ``key -> start``; zero (or uniform) if not given.
        sigma0: initial standard deviation of a search.
        errors: at points where ``f`` raises: ``raise`` a ``PointErrors``, or ``mark`` them with NaN.

    Raises:
        UserError: an option out of range.
    """
    if not callable(f):
        raise UserError(f"f is {kind_of(f)}: it must be a function of a point")
    check_known("way to treat errors", errors, get_args(Errors))
    workers = whole("workers", workers, 1)
    if batched and workers > 1:
        raise UserError(f"workers={workers} with a batched f: only an f of one point can use workers")
    domain = _domain(kind, dim, choices)
    called: str = name or getattr(f, "__name__", type(f).__name__)
    optimum = None if optimum is None else number(optimum)
    sigma0 = positive("sigma0", sigma0)

    def values(points):
        points = np.array(points)
        results, raised = _all(f, points) if batched else one_by_one(f, points, workers)
        if raised and errors == "raise":
            raise PointErrors(_message(called, raised, len(points)), results, raised) from next(iter(raised.values()))
        return results

    return BlackBoxProblem(called, domain, values, None, optimum, _start(start, domain), sigma0=sigma0)


def _all(f, points):
    try:
        returned = f(points.copy())
    except Exception as error:
        return np.full(len(points), np.nan), dict.fromkeys(range(len(points)), error)
    return numbers(returned, len(points)), {}


def _message(name, raised, count):
    index, error = next(iter(raised.items()))
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    where = f"at point {index}" if len(raised) == 1 else f"at {len(raised)} of {count} points, first at point {index}"
    return f"{name} raised {said} ({where}); errors='mark' counts such points as failures and continues"


def _domain(kind, dim, choices) -> Domain:
    check_known("domain", kind, KINDS)
    dim = whole("dim", dim, 1)
    if kind == "categorical":
        return Domain(kind, dim, whole("choices", choices, 2))
    if choices not in ((0, 2) if kind == "binary" else (0,)):
        raise UserError(f"choices={choices} with a {kind} domain: only a categorical one takes it")
    return Domain(kind, dim, 2 if kind == "binary" else 0)


def _start(start, domain):
    if start is None:
        start = np.zeros(domain.dim) if domain.kind == "real" else uniform_probabilities(domain)
    draw = start if callable(start) else lambda key: start

    def checked(key):
        return checked_start("start", draw(key), domain.kind, domain.start_shape)

    if not callable(start):
        checked(None)
    return checked
