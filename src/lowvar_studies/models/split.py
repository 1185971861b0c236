"""The split of the data into rows to fit and test rows, and what models make of the test rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.vi.variational import HeldOut
from lowvar_studies.models.linear.problem import log_likelihood

TEST = "test_"  # prefix of the names of the arrays with test rows


def split(arrays: Mapping[str, Any], seed: Any, test: float, train: int | float | None = None) -> dict[str, np.ndarray]:
    """Splits the data at random into test rows and rows to fit, which may be some or all of the others.

    The number of rows is that of ``x``, or of the first array if there is no ``x``. Arrays with as many rows are
    split; all others, such as numbers, are left unchanged.

    Args:
        arrays: the data.
        seed: a whole number, or a typed JAX key. With a smaller ``train``, the same seed gives the same test rows and
            a prefix of the same rows to fit.
        test: fraction of the rows held out, in (0, 1); the number of rows is rounded up.
        train: number of the other rows to keep, or a fraction of them in (0, 1]; all of them if not given.

    Returns:
        The rows to fit under their own names, in a random order, and the test part's as ``test_x`` and so on.

    Raises:
        UserError: no row to fit, more than there are, or data that already have a test part.

    >>> parts = split({"x": np.arange(10.0), "players": 3}, 0, test=0.2, train=5)
    >>> {key: np.shape(value) for key, value in parts.items()}
    {'x': (5,), 'players': (), 'test_x': (2,)}
    """
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    if there := [key for key in arrays if key.startswith(TEST)]:
        raise UserError(f"split: the data already have a test part ({', '.join(there)}); leave the split out")
    first = arrays["x"] if "x" in arrays else next((value for value in arrays.values() if value.ndim), None)
    if first is None:
        raise UserError(f"split: the data have no rows; the arrays are: {', '.join(arrays)}")
    N = len(first)
    held = math.ceil(test * N - 1e-9)
    left = N - held
    fit = left if train is None else train if isinstance(train, int | np.integer) else max(1, round(train * left))
    if not 0 < fit <= left:
        raise UserError(f"split: {fit} rows to fit, but of {N} rows {left} are left, with {held} held out")
    order = np.random.default_rng(_entropy(seed)).permutation(N)
    of_rows = [key for key, value in arrays.items() if value.shape[:1] == (N,)]
    fitted = {key: value[order[held : held + fit]] if key in of_rows else value for key, value in arrays.items()}
    return fitted | {f"{TEST}{key}": arrays[key][order[:held]] for key in of_rows}


def test_part(arrays: Mapping[str, Any], keys: Sequence[str], name: str) -> dict[str, np.ndarray] | None:
    """The arrays ``test_<key>`` under their keys; None if there are none.

    Args:
        arrays: the data, with the rows to fit under ``keys``.
        keys: the model's arrays of rows.
        name: name of the problem in reports.

    Raises:
        UserError: some are missing, their numbers of rows differ or are 0, or their columns differ from those of the
            rows to fit.
    """
    part = {key: np.asarray(arrays[TEST + key]) for key in keys if TEST + key in arrays}
    if not part:
        return None
    if missing := [TEST + key for key in keys if key not in part]:
        raise UserError(f"{name}: the test part lacks {', '.join(missing)}")
    if len({value.shape[:1] for value in part.values()}) > 1 or not part[keys[0]].size:
        shapes = ", ".join(f"{TEST}{key} {value.shape}" for key, value in part.items())
        raise UserError(f"{name}: the test part has the shapes {shapes}; all must have the same number of rows, not 0")
    for key, value in part.items():
        if value.shape[1:] != np.shape(arrays[key])[1:]:
            raise UserError(
                f"{name}: {TEST}{key} has shape {value.shape} and {key} {np.shape(arrays[key])}; "
                "only their numbers of rows may differ"
            )
        dtype = np.asarray(arrays[key]).dtype
        if value.dtype.kind == dtype.kind == "f":
            part[key] = value.astype(dtype, copy=False)
    return part


test_part.__test__ = False  # type: ignore[attr-defined]  # not a test, despite its name


def held_out(arrays, name: str, design: Callable[[Any], Any], link: Callable[[Any], Any]) -> HeldOut | None:
    """The test part of ``{"x", "y", "test_x", "test_y"}``; None where the arrays have none.

    Args:
        arrays: the data.
        name: name of the problem in reports.
        design: ``x``, a NumPy array, to its design.
        link: ``y`` to its link.

    Raises:
        UserError: see ``test_part``.
    """
    if (test := test_part(arrays, ("x", "y"), name)) is None:
        return None
    return HeldOut(len(test["x"]), log_likelihood(design(test["x"]), link(test["y"])))


def _entropy(seed):
    """The seed for NumPy's generators; a key is converted to its bits, which are the same in every precision."""
    if isinstance(seed, int | np.integer):
        return int(seed)
    import jax

    return np.asarray(jax.random.key_data(seed)).ravel()
