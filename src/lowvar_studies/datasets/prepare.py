"""Conversion of raw files to one npz with scaled columns and their provenance."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowvar.core.files import atomic
from lowvar.core.npz import check_finite
from lowvar.errors import UserError, check_known
from lowvar_studies.datasets.catalogue import Dataset, get
from lowvar_studies.datasets.fetch import verify
from lowvar_studies.datasets.load import FORMAT
from lowvar_studies.datasets.readers import Table

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # columns (N, d), offset (d,), scale (d,)
_BLOCK = 128  # columns scaled at a time, to limit the memory of float64 copies


class Scaled(NamedTuple):
    """A scaled table.

    Attributes:
        arrays: the table's arrays, with ``x`` scaled.
        names: names of the features.
        how: entries of ``meta`` that describe the scaling.
    """

    arrays: dict[str, np.ndarray]
    names: tuple[str, ...]
    how: dict[str, Any]


def minmax(x: np.ndarray) -> Columns:
    """Scales each column to exactly [-1, 1]; a constant one to 0.

    >>> minmax(np.array([[1.0, 7.0], [2.0, 7.0], [5.0, 7.0]]))[0].T.tolist()
    [[-1.0, -0.5, 1.0], [0.0, 0.0, 0.0]]
    """
    low, high = x.min(axis=0), x.max(axis=0)
    offset, scale = high / 2 + low / 2, high / 2 - low / 2
    constant = scale == 0
    offset, scale = np.where(constant, low, offset), np.where(constant, 1.0, scale)
    scaled = np.clip((x - offset) / scale, -1.0, 1.0)
    scaled = np.where(x == low, -1.0, np.where(x == high, 1.0, scaled))  # the ends may be off by an ulp
    return np.where(constant, 0.0, scaled), offset, scale


def standard(x: np.ndarray) -> Columns:
    """Scales each column to zero mean and unit standard deviation (divisor N); a constant one to 0.

    >>> standard(np.array([[1.0, 7.0], [3.0, 7.0]]))[0].T.tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    constant = x.min(axis=0) == x.max(axis=0)
    offset = np.where(constant, x[0], x.mean(axis=0))
    scale = np.where(constant, 1.0, x.std(axis=0))
    return (x - offset) / scale, offset, scale


def none(x: np.ndarray) -> Columns:
    """The columns unchanged."""
    return x, np.zeros(x.shape[1]), np.ones(x.shape[1])


def unit(x: np.ndarray) -> Columns:
    """Scales bytes to [0, 1].

    >>> unit(np.array([[0.0], [51.0], [255.0]]))[0].T.tolist()
    [[0.0, 0.2, 1.0]]
    """
    return x / 255.0, np.zeros(x.shape[1]), np.full(x.shape[1], 255.0)


def _by_column(scale_columns: Callable[[np.ndarray], Columns], dataset: Dataset, table: Table, scaling: str) -> Scaled:
    """Scales each column of ``x``, if there is an ``x``.

    Scaled bytes are stored in float32, which is precise enough for 8 bits and halves the file.
    """
    values = table.arrays.get("x", np.empty((0, 0)))
    columns = len(table.names)
    x = np.empty(values.shape, dtype=np.float32 if values.dtype == np.uint8 else np.float64)
    offset, scale = np.empty(columns), np.empty(columns)
    for start in range(0, columns, _BLOCK):
        block = slice(start, start + _BLOCK)
        with np.errstate(over="ignore", invalid="ignore"):
            x[:, block], offset[block], scale[block] = scale_columns(
                np.ascontiguousarray(values[:, block], dtype=np.float64)
            )
    for key, array in (("offset", offset), ("scale", scale), ("x", x)):
        check_finite(key, array, f"dataset {dataset.name}, scaled by {scaling}")
    arrays = dict(table.arrays) | ({"x": x} if "x" in table.arrays else {})
    return Scaled(arrays, table.names, {"offset": offset.tolist(), "scale": scale.tolist()})


def _lenet(dataset: Dataset, table: Table, scaling: str) -> Scaled:
    """Replaces pixels by the last hidden layer of a small network trained on the images."""
    from lowvar_studies.datasets.lenet import train

    assert dataset.image is not None
    images = np.divide(table.arrays["x"], np.float32(255), dtype=np.float32).reshape(-1, *dataset.image)
    x = train(images, table.arrays["y"]).features
    check_finite("x", x, f"dataset {dataset.name}, scaled by {scaling}")
    return Scaled(dict(table.arrays) | {"x": x}, tuple(f"lenet_{i + 1}" for i in range(x.shape[1])), {})


SCALINGS: dict[str, Callable[[Dataset, Table, str], Scaled]] = {
    "minmax": partial(_by_column, minmax),
    "standard": partial(_by_column, standard),
    "none": partial(_by_column, none),
    "unit": partial(_by_column, unit),
    "lenet": _lenet,
}


def prepare(
    name: str | Dataset,
    scaling: str = "minmax",
    raw: str | os.PathLike = "data/raw",
    out: str | os.PathLike | None = None,
) -> Path:
    """Reads a dataset's raw files, scales its columns, and writes one npz for `load`.

    The file holds the reader's arrays, with ``x`` (N, d) scaled, and ``meta``, a JSON text: title, licence, citation,
    hashes of the raw files, feature names, names of the measurements if there are any, and the ``offset`` and ``scale``
    (d) of ``x = (raw - offset) / scale``. Most datasets have ``x`` in float64 (images in float32) and
    ``y``, (N,) int64 for classes or (N, k) float64 for k measurements. The same input gives the same bytes
    (with ``lenet``, on the same machine).

    Args:
        name: a name of the catalogue, or an entry.
        scaling: ``"minmax"`` (to [-1, 1]), ``"standard"`` (zero mean, unit standard deviation) or ``"none"``; for
            images, also ``"unit"`` (bytes to [0, 1]) or ``"lenet"`` (84 features of a network trained on them, see
            `lowvar_studies.datasets.lenet`). The catalogue lists those that a dataset supports.
        raw: the folder of raw files, from `fetch`.
        out: the file to write; by default ``data/prepared/<name>-<scaling>.npz``.

    Returns:
        The path of the file.

    Raises:
        UserError: an unknown name, a scaling that the dataset does not support; a raw file is missing, has a wrong hash
            or is malformed; the target cannot be written.
    """
    dataset = get(name)
    check_known("scaling", scaling, SCALINGS)
    if scaling not in dataset.scalings:
        raise UserError(
            f"dataset {dataset.name} cannot be prepared with scaling {scaling}; "
            f"use one of: {', '.join(dataset.scalings)}"
        )
    hashes = verify(dataset, raw)
    table = dataset.read(Path(raw))
    for key, array in table.arrays.items():
        check_finite(key, array, f"dataset {dataset.name}")
    scaled = SCALINGS[scaling](dataset, table, scaling)
    arrays = {key: np.asarray(a, dtype=a.dtype.newbyteorder("<"), order="C") for key, a in scaled.arrays.items()}
    meta = {
        "format": FORMAT,
        "dataset": dataset.name,
        "title": dataset.title,
        "licence": dataset.licence,
        "citation": dataset.citation,
        "raw_sha256": hashes,
        "rows": len(next(iter(arrays.values()))),
        "features": list(scaled.names),
        "dtypes": {key: array.dtype.name for key, array in arrays.items()},
        "scaling": scaling,
        **scaled.how,
        **table.notes,
    }
    if dataset.outputs:
        meta["outputs"] = list(dataset.outputs)
    path = Path(out) if out is not None else Path("data/prepared") / f"{dataset.name}-{scaling}.npz"
    with atomic(path) as part, part.open("wb") as stream:
        # not compressed: the bytes must not depend on the version of zlib
        arrays["meta"] = np.array(json.dumps(meta, sort_keys=True))
        np.savez(stream, allow_pickle=False, **arrays)
    return path
