"""JAX functions of one point, called from NumPy on many."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import jax
import numpy as np


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """Double precision on the CPU: on an accelerator, each of the solver's many small steps would be a launch."""
    try:
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was configured without the CPU
        host = None
    with jax.enable_x64(True), jax.default_device(host) if host else contextlib.nullcontext():
        yield


def rowwise(function: Callable, chunk: int = 256) -> Callable:
    """``function`` of one point, mapped over the rows of an array.

    It is compiled once, for ``chunk`` rows; the last rows are padded. A row's result does not depend on the others.

    Args:
        function: JAX ``(d,) -> `` array or tuple of arrays.
        chunk: rows per call.

    Returns:
        NumPy ``(n, d) -> `` array ``(n, ...)`` or tuple of them.

    >>> double = rowwise(lambda x: (2 * x, x.sum()), chunk=4)
    >>> [array.tolist() for array in double(np.array([[1.0, 2.0]]))]
    [[[2.0, 4.0]], [3.0]]
    """
    compiled = jax.jit(jax.vmap(function))

    def call(points):
        points = np.ascontiguousarray(points, dtype=np.float64)
        parts = []
        with on_host():
            for first in range(0, max(len(points), 1), chunk):
                rows = points[first : first + chunk]
                missing = chunk - len(rows)
                filling = np.repeat(rows[:1], missing, 0) if len(rows) else np.zeros((missing, *points.shape[1:]))
                results = compiled(np.concatenate([rows, filling]) if missing else rows)
                parts.append(jax.tree.map(lambda array: np.asarray(array)[: len(rows)], results))
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    return call


def remembered(call: Callable) -> Callable:
    """``call`` of one array with a cache of its last results, which tasks with the same points share."""

    @functools.lru_cache(maxsize=64)
    def called(shape, content):
        return call(np.frombuffer(content).reshape(shape))

    def look(points):
        points = np.ascontiguousarray(points, dtype=np.float64)
        return called(points.shape, points.tobytes())

    return look
