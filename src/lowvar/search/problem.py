"""A black-box problem: a function and its domain, with a ledger of its evaluations."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from lowvar.core import backend as backends
from lowvar.core.backend import Backend
from lowvar.errors import UserError, check_known, whole

Kind = Literal["real", "binary", "categorical"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def host() -> Backend:
    """The backend of a ledger, and of checks of values, on the host."""
    return backends.get(backends.HOST)


@dataclass(frozen=True)
class Domain:
    """The domain of a function.

    Attributes:
        kind: ``real`` (R^d), ``binary`` ({0, 1}^d) or ``categorical`` ({0, .., K - 1}^d).
        dim: ``d``.
        choices: ``K``; 2 for binary, 0 for real.
    """

    kind: Kind
    dim: int
    choices: int = 0

    @property
    def size(self) -> float:
        """Number of points, infinite for a real domain."""
        return self.choices**self.dim if self.kind != "real" else math.inf

    @property
    def start_shape(self) -> tuple[int, ...]:
        """The shape of a search's start: the mean, or the probabilities."""
        return (self.dim, self.choices) if self.kind == "categorical" else (self.dim,)


def domain_and_start(kind: Kind, x0: Any, dim: int | None, choices: int | None) -> tuple[Domain, np.ndarray]:
    """The domain of a search, and its start: ``x0`` or, in a discrete domain, uniform probabilities.

    Args:
        kind: kind of the domain.
        x0: see ``checked_start``; None for uniform probabilities.
        dim: coordinates of a point; None if ``x0`` has them.
        choices: ``K`` of a categorical domain; None if ``x0`` has it.

    Raises:
        UserError: a number out of range or missing, or two that contradict each other.
    """
    check_known("domain", kind, KINDS)
    if choices is not None and kind != "categorical":
        raise UserError(f"choices={choices} with a {kind} domain: only a categorical one takes it")
    if x0 is not None:
        x0 = checked_start("x0", x0, kind)
        for name, stated, actual in zip(("dim", "choices"), (dim, choices), x0.shape, strict=False):
            if stated is not None and stated != actual:
                raise UserError(f"{name}={stated}, but x0 has shape {x0.shape}: leave one of the two out")
        dim, choices = len(x0), x0.shape[1] if kind == "categorical" else None
    elif kind == "real":
        raise UserError("x0: a real search needs a point to start from, one number for each coordinate")
    elif dim is None or (kind == "categorical" and choices is None):
        needed = "dim" if kind == "binary" else "dim and choices"
        raise UserError(f"x0: give the probabilities to start from, or {needed} to start from uniform ones")
    dim = whole("dim", dim, 1)
    domain = Domain(kind, dim, {"real": 0, "binary": 2}[kind] if choices is None else whole("choices", choices, 2))
    return domain, uniform_probabilities(domain) if x0 is None else x0


def checked_start(name: str, start: Any, kind: Kind, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The start of a search as a new float64 array: a mean, or the probabilities of a discrete domain.

    Args:
        name: of the argument.
        start: any container of numbers.
        kind: kind of the domain.
        shape: ``start_shape`` of the domain, if it is known.

    Raises:
        UserError: it is no such array.
    """
    array = to_host(start)
    needed = shape or ("(dim, choices)" if kind == "categorical" else "(dim,)")
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name}: it must be an array of numbers of shape {needed}")
    if array.ndim != (2 if kind == "categorical" else 1) or shape not in (None, array.shape):
        raise UserError(f"{name} has shape {array.shape}: a {kind} search starts from an array of shape {needed}")
    if not array.size:
        raise UserError(f"{name} is empty: a search needs at least one coordinate")
    if not np.isfinite(array).all():
        raise UserError(f"{name}: {int((~np.isfinite(array)).sum())} of its {array.size} numbers are not finite")
    if kind != "real" and not ((array >= 0) & (array <= 1)).all():
        raise UserError(f"{name}: a {kind} search starts from probabilities, between 0 and 1")
    if kind == "categorical" and not np.allclose(array.sum(axis=1), 1):
        raise UserError(f"{name}: the probabilities of each row must sum to 1")
    return array.astype(np.float64)


def to_host(value: Any) -> np.ndarray:
    """A NumPy array of any container of numbers; of dtype object for anything else."""
    if isinstance(value, (list, tuple)):
        value = [one.detach().cpu() if hasattr(one, "detach") else one for one in value]
    value = value.detach().cpu() if hasattr(value, "detach") else value
    if np.ma.isMaskedArray(value):
        return np.ma.filled(value.astype(float), np.nan)  # a masked value is missing
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # ragged lists and the like
        return np.array(None)


def uniform_probabilities(domain: Domain) -> np.ndarray:
    """``1 / 2`` for each coordinate of a binary domain, ``1 / K`` for each choice of a categorical one."""
    return np.full(domain.start_shape, 1 / domain.choices)


@dataclass(frozen=True)
class BlackBoxProblem:
    """A function to minimise, known only through its values.

    Attributes:
        name: name under which its start and noise are drawn.
        domain: the domain of ``values``.
        values: ``points (N, dim) -> values (N,)``, without noise. Points are floating for a real domain, else integers.
        backend: the array library of ``values``, which it can compile; None for a Python function of NumPy arrays.
        optimum: the smallest value, or None if unknown.
        optimum_at: a minimiser, ``(dim,)``, or None.
        start: ``key -> x0``, a search's initial mean, as NumPy: ``(dim,)`` for a real domain, probabilities of a
            one ``(dim,)`` for a binary domain, probabilities ``(dim, K)`` for a categorical one.
        sigma0: default initial standard deviation of a search.
        noise: of a noisy function, ``(points (n, dim), values (n,), first) -> (n,)``: the observations, given the
            values without noise and the number of evaluations before; None without noise. An ``Evaluator`` applies it.
        repetition: ``r -> problem``, where the repetitions of a run have functions of their own (with this domain and
            optimum), such as the instances of a benchmark; None if all have this one.
    """

    name: str
    domain: Domain
    values: Callable[[Any], Any]
    backend: Backend | None
    optimum: float | None
    start: Callable[[Any], np.ndarray]
    optimum_at: np.ndarray | None = None
    sigma0: float = 0.5
    noise: Callable[[Any, Any, int], Any] | None = None
    repetition: Callable[[int], "BlackBoxProblem"] | None = None

    @property
    def dim(self) -> int:
        """Coordinates of a point."""
        return self.domain.dim


class Ledger(NamedTuple):
    """The evaluations of a problem so far, as arrays: of a compiled program, or of ``host``.

    Attributes:
        evaluations: number of points evaluated.
        failures: number of them without a finite value.
        best: the smallest finite value, infinite before there is one.
        best_at: its point, ``(dim,)``.
    """

    evaluations: Any
    failures: Any
    best: Any
    best_at: Any


def open_ledger(backend: Backend, domain: Domain, like: Any = None) -> Ledger:
    """An empty ledger with the dtype and device of the floating array ``like``, if there is one."""
    zero = backend.asarray(np.zeros((), np.int64))
    points = np.zeros(domain.dim) if domain.kind == "real" else np.zeros(domain.dim, np.int32)
    return Ledger(zero, zero, backend.asarray(np.array(np.inf), like), backend.asarray(points, like))


def record(backend: Backend, ledger: Ledger, points: Any, values: Any) -> Ledger:
    """The ledger after ``values (N,)`` at ``points (N, dim)``."""
    xp = backend.xp
    finite = xp.isfinite(values)
    ranked = xp.where(finite, values, xp.inf)
    least, first = xp.min(ranked), xp.argmin(ranked)
    lower = least < ledger.best
    return Ledger(
        ledger.evaluations + values.shape[0],
        ledger.failures + xp.sum(xp.astype(~finite, ledger.failures.dtype)),
        xp.where(lower, least, ledger.best),
        xp.where(lower, backend.take(points, first[None])[0], ledger.best_at),
    )
