"""NumPy, for programs of small arrays on the host: nothing is compiled, and numbers that do not exist are NaN."""

from types import SimpleNamespace
from typing import Any

import array_api_compat.numpy as compat
import jax
import numpy as np


def _nan_on_failure(name):
    """A decomposition of ``linalg``, of NaN where it fails, as in JAX."""
    function = getattr(np.linalg, name)

    def call(x):
        try:
            return function(x)
        except np.linalg.LinAlgError:
            return jax.tree.map(lambda part: np.full_like(part, np.nan), function(np.eye(*x.shape, dtype=x.dtype)))

    return call


_LINALG = SimpleNamespace(
    **{**vars(np.linalg), **{name: _nan_on_failure(name) for name in ("cholesky", "eigh", "svdvals")}}
)


class _NumPy:
    name = "numpy"
    # `clip` of the compatible namespace takes ten times as long
    xp = SimpleNamespace(
        **{**vars(compat), "clip": lambda x, min=None, max=None: np.clip(x, min, max), "linalg": _LINALG}
    )
    tree_map = staticmethod(jax.tree.map)

    @staticmethod
    def solve_triangular(factor, right, transposed=False):
        # BLAS starts threads for triangular matrices of any size
        try:
            return np.linalg.solve(factor.T if transposed else factor, right)
        except np.linalg.LinAlgError:
            return np.full_like(right, np.nan)

    @staticmethod
    def take(tree, index):
        return jax.tree.map(lambda rows: rows[index], tree)

    @staticmethod
    def asarray(value, like=None):
        value = np.asarray(value)
        return value.astype(like.dtype, copy=False) if like is not None and value.dtype.kind == "f" else value

    @staticmethod
    def compile(function):
        return np.errstate(all="ignore")(function)

    @staticmethod
    def from_jax(tree):
        return _NumPy.to_numpy(tree)

    @staticmethod
    def to_numpy(tree):
        return jax.tree.map(np.asarray, tree)


BACKEND: Any = _NumPy()
