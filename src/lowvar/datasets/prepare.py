"""Raw files -> one npz with scaled columns and the story of where they came from."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lowvar.datasets.catalogue import Dataset, get
from lowvar.datasets.fetch import verify
from lowvar.datasets.load import FORMAT, check_finite
from lowvar.errors import unknown_name
from lowvar.files import atomic

Scaled = tuple[np.ndarray, np.ndarray, np.ndarray]  # columns (N, d), offset (d,), scale (d,)


def minmax(x: np.ndarray) -> Scaled:
    """Each column to exactly [-1, 1]; a constant one to 0.

    >>> minmax(np.array([[1.0, 7.0], [2.0, 7.0], [5.0, 7.0]]))[0].T.tolist()
    [[-1.0, -0.5, 1.0], [0.0, 0.0, 0.0]]
    """
    low, high = x.min(axis=0), x.max(axis=0)
    offset, scale = high / 2 + low / 2, high / 2 - low / 2
    constant = scale == 0
    offset, scale = np.where(constant, low, offset), np.where(constant, 1.0, scale)
    scaled = np.clip((x - offset) / scale, -1.0, 1.0)
    scaled = np.where(x == low, -1.0, np.where(x == high, 1.0, scaled))  # the ends are off by an ulp at times
    return np.where(constant, 0.0, scaled), offset, scale


def standard(x: np.ndarray) -> Scaled:
    """Each column to zero mean and unit standard deviation (divisor N); a constant one to 0.

    >>> standard(np.array([[1.0, 7.0], [3.0, 7.0]]))[0].T.tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    constant = x.min(axis=0) == x.max(axis=0)
    offset = np.where(constant, x[0], x.mean(axis=0))
    scale = np.where(constant, 1.0, x.std(axis=0))
    return (x - offset) / scale, offset, scale


def none(x: np.ndarray) -> Scaled:
    """The columns as they are."""
    return x, np.zeros(x.shape[1]), np.ones(x.shape[1])


SCALINGS: dict[str, Callable[[np.ndarray], Scaled]] = {"minmax": minmax, "standard": standard, "none": none}


def prepare(
    name: str | Dataset,
    scaling: str = "minmax",
    raw: str | os.PathLike = "data/raw",
    out: str | os.PathLike | None = None,
) -> Path:
    """Read a dataset's raw files, scale its columns, and write one npz that `load` reads.

    The file holds ``x`` (N, d) float64, ``y`` ((N,) int64 for classes, (N, k) float64 for k measurements, which are
    never scaled) and ``meta``, a JSON text: title, licence, citation, hashes of the raw files, feature names, names
    of the measurements if there are any, and the ``offset`` and ``scale`` (d) with which
    ``x = (raw - offset) / scale``. The same input gives the same bytes.

    Args:
        name: a name of the catalogue, or an entry.
        scaling: ``"minmax"`` (to [-1, 1]), ``"standard"`` (zero mean, unit deviation) or ``"none"``.
        raw: the folder of raw files, as `fetch` leaves it.
        out: the file to write; by default ``data/prepared/<name>-<scaling>.npz``.

    Returns:
        The path that was written.

    Raises:
        UserError: unknown name or scaling; a raw file is missing, has a wrong hash or is malformed; the
            target cannot be written.
    """
    dataset = get(name)
    if scaling not in SCALINGS:
        raise unknown_name("scaling", scaling, SCALINGS)
    hashes = verify(dataset, raw)
    values, y, names = dataset.read(Path(raw))
    check_finite("x", values, f"dataset {dataset.name}")
    with np.errstate(over="ignore", invalid="ignore"):
        x, offset, scale = SCALINGS[scaling](values)
    for key, array in (("offset", offset), ("scale", scale), ("x", x)):
        check_finite(key, array, f"dataset {dataset.name}, scaled by {scaling}")
    if dataset.outputs:
        check_finite("y", y, f"dataset {dataset.name}")
    x, y = np.ascontiguousarray(x, dtype="<f8"), np.ascontiguousarray(y, dtype="<f8" if dataset.outputs else "<i8")
    meta = {
        "format": FORMAT,
        "dataset": dataset.name,
        "title": dataset.title,
        "licence": dataset.licence,
        "citation": dataset.citation,
        "raw_sha256": hashes,
        "rows": len(x),
        "features": list(names),
        "dtypes": {"x": x.dtype.name, "y": y.dtype.name},
        "scaling": scaling,
        "offset": offset.tolist(),
        "scale": scale.tolist(),
    }
    if dataset.outputs:
        meta["outputs"] = list(dataset.outputs)
    path = Path(out) if out is not None else Path("data/prepared") / f"{dataset.name}-{scaling}.npz"
    with atomic(path) as part, part.open("wb") as stream:
        # not compressed: the bytes should not hang on the machine's version of zlib
        np.savez(stream, x=x, y=y, meta=np.array(json.dumps(meta, sort_keys=True)))
    return path
