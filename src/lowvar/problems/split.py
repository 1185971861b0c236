"""Rows for fitting and rows for a test: which are which, and what a problem keeps of the second kind."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.errors import UserError

TEST = "test_"  # what the names of the test part's arrays start with


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that a problem does not fit.

    Attributes:
        N: how many there are.
        log_likelihood: ``(z (dim,), index (B,)) -> (B,)``, the log density of those rows given ``z``, nats. Latent
            variables that a new row has of its own are integrated out.
    """

    N: int
    log_likelihood: Callable[[Any, Any], Any]


def split(arrays: Mapping[str, Any], seed: Any, test: float, train: int | float | None = None) -> dict[str, np.ndarray]:
    """Deal the rows out at random: some to a test part, and some or all of the others to be fitted.

    Rows are those of ``x``, or of the first array where there is no ``x``. Arrays with as many rows are split; all
    others, such as numbers, stay as they are.

    Args:
        arrays: the data.
        seed: a whole number, or a typed JAX key. With a smaller ``train`` the same seed gives the same test part, and
            the first of the same rows to fit.
        test: share of the rows that is held out, in (0, 1); a broken number of rows is rounded up.
        train: how many of the other rows are kept, or which share of them, in (0, 1]; all of them if not given.

    Returns:
        The rows to fit under their own names, in a random order, and the test part's as ``test_x`` and so on.

    Raises:
        UserError: shares out of range, more rows to fit than there are, or data that have a test part already.

    >>> parts = split({"x": np.arange(10.0), "players": 3}, 0, test=0.2, train=5)
    >>> {key: np.shape(value) for key, value in parts.items()}
    {'x': (5,), 'players': (), 'test_x': (2,)}
    """
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    if there := [key for key in arrays if key.startswith(TEST)]:
        raise UserError(f"split: the data have a test part already ({', '.join(there)}); leave the split out")
    N = _rows(arrays)
    held, kept = _counts(N, test, train)
    order = np.random.default_rng(_entropy(seed)).permutation(N)
    of_rows = [key for key, value in arrays.items() if value.shape[:1] == (N,)]
    fitted = {key: value[order[held : held + kept]] if key in of_rows else value for key, value in arrays.items()}
    return fitted | {f"{TEST}{key}": arrays[key][order[:held]] for key in of_rows}


def test_part(arrays: Mapping[str, Any], keys: Sequence[str], name: str) -> dict[str, np.ndarray] | None:
    """The arrays ``test_<key>`` under their keys; None where there is none of them.

    Args:
        arrays: the data, with the rows to fit under ``keys``.
        keys: the model's arrays of rows.
        name: what reports call the problem.

    Raises:
        UserError: some are there and others not, they differ in their number of rows, have no row, or have other
            columns than the rows to fit.
    """
    found = {key: np.asarray(arrays[TEST + key]) for key in keys if TEST + key in arrays}
    if not found:
        return None
    if missing := [TEST + key for key in keys if key not in found]:
        raise UserError(f"{name}: the test part has no {', '.join(missing)}; it needs {_listed(keys)}")
    if len({value.shape[:1] for value in found.values()}) > 1 or not found[keys[0]].size:
        shapes = ", ".join(f"{TEST}{key} {value.shape}" for key, value in found.items())
        raise UserError(
            f"{name}: the test part has the shapes {shapes}; all should have the same number of rows, not 0"
        )
    for key, value in found.items():
        if value.shape[1:] != np.shape(arrays[key])[1:]:
            raise UserError(
                f"{name}: {TEST}{key} has shape {value.shape} and {key} {np.shape(arrays[key])}; "
                "only their numbers of rows may differ"
            )
        dtype = np.asarray(arrays[key]).dtype
        if value.dtype.kind == dtype.kind == "f":
            found[key] = value.astype(dtype, copy=False)
    return found


test_part.__test__ = False  # type: ignore[attr-defined]  # no test, whatever its name


def _listed(keys):
    return ", ".join(TEST + key for key in keys)


def _rows(arrays) -> int:
    first = arrays["x"] if "x" in arrays else next((value for value in arrays.values() if value.ndim), None)
    if first is None or not first.ndim:
        raise UserError(f"split: the data have no rows; there are the arrays {', '.join(arrays) or 'none'}")
    return len(first)


def _counts(N, test, train) -> tuple[int, int]:
    """How many rows are held out, and how many are fitted."""
    if not _number(test) or not 0 < test < 1:
        raise UserError(f"split: test = {test!r}; it is the share of the rows that is held out, between 0 and 1")
    held = math.ceil(test * N - 1e-9)
    left = N - held
    if left < 1:
        raise UserError(f"split: test = {test} holds out all {N} rows; at least one should be left to fit")
    if train is None:
        return held, left
    if _number(train) and isinstance(train, float) and 0 < train <= 1:
        return held, max(1, round(train * left))
    if not isinstance(train, int | np.integer) or isinstance(train, bool) or train < 1:
        raise UserError(
            f"split: train = {train!r}; it is a number of rows, 1 or more, or the share of them that is kept, a "
            "fraction above 0 and up to 1.0"
        )
    if train > left:
        raise UserError(f"split: train = {train}, but of {N} rows {left} are left to fit, with {held} held out")
    return held, int(train)


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _entropy(seed):
    """The seed as NumPy's generators take it; a key by its bits, which are the same in every precision."""
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0:
        return int(seed)
    if hasattr(seed, "dtype"):
        import jax

        if jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key) and seed.shape == ():
            return np.asarray(jax.random.key_data(seed)).ravel()
    raise UserError(f"split: the seed is {seed!r}; it should be a whole number from 0, or one typed JAX key")
