"""Point-by-point evaluation of a Python function, in this process or in workers, with errors by point."""

import functools
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from numbers import Real
from typing import Any

import numpy as np

from lowvar.errors import UserError, kind_of, require


class PointErrors(UserError):
    """A function raised at some points; its values at the others are kept.

    Attributes:
        values: ``(n,)``, NaN where the function raised.
        errors: index of the point -> the exception raised there.
    """

    def __init__(self, message: str, values: np.ndarray, errors: Mapping[int, Exception]):
        super().__init__(message)
        self.values, self.errors = values, errors


class WrongValue(UserError):
    """A function returned something other than one number for each point."""


def number(value: Any) -> float:
    """A Python, NumPy, JAX or PyTorch scalar as a float; a Python int may be of any size.

    Raises:
        WrongValue: it is anything else.
    """
    array = to_host(float(value) if isinstance(value, Real) else value)
    if array.shape != () or array.dtype.kind not in "biuf":
        raise WrongValue(f"returned {describe(value, array)}: it must return one number")
    return float(array)


def numbers(values: Any, count: int) -> np.ndarray:
    """The return value of a function of ``count`` points as ``(count,)``, float64.

    Raises:
        WrongValue: it has another shape, or holds no real numbers.
    """
    array = to_host(values)
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise WrongValue(
            f"returned {describe(values, array)} for {count} points: it must return numbers of shape ({count},)"
        )
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


def describe(value: Any, array: np.ndarray) -> str:
    """``value`` in a few words for a message."""
    if array.dtype.kind in "biufc":
        kind = "complex numbers" if array.dtype.kind == "c" else "an array"
        return f"{kind} of shape {array.shape}"
    return "None" if value is None else kind_of(value)


def one_by_one(
    f: Callable[[Any], Any], points: np.ndarray, workers: int = 1
) -> tuple[np.ndarray, dict[int, Exception]]:
    """``f`` of every row of ``points``, in order.

    Args:
        f: function of one point ``(dim,)``, which receives a copy.
        points: ``(n, dim)``.
        workers: number of processes; 1 means this process. A worker unpickles ``f`` once, so ``f`` keeps its caches.

    Returns:
        Values ``(n,)``, NaN where ``f`` raised, and the exceptions by the index of the point.

    Raises:
        WrongValue: ``f`` returned something other than a number.
        UserError: ``f`` cannot be sent to the workers, or one of them died; or cloudpickle or joblib is missing.
    """
    results = [_guarded(f, point) for point in points] if workers == 1 else _in_processes(f, points, workers)
    for index, (_, error) in enumerate(results):
        if isinstance(error, WrongValue):
            raise WrongValue(f"point {index}: f {error}") from error
    values = np.array([value for value, _ in results], dtype=np.float64)
    return values, {index: error for index, (_, error) in enumerate(results) if error is not None}


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
        raise UserError(f"f cannot be sent to worker processes ({error}): use workers=1, or a batched f") from error
    try:
        tasks = (joblib.delayed(_remote)(sent, point) for point in points)
        return list(joblib.Parallel(n_jobs=workers, backend="loky")(tasks))  # type: ignore[arg-type]
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process died while evaluating f: it ran out of memory, or crashed outside Python"
        ) from error


def _remote(sent, point):
    import cloudpickle

    value, error = _guarded(_received(sent), point)
    if error is None or isinstance(error, WrongValue):
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
