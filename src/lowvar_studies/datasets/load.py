"""Reader of an npz of arrays for a model: one that `prepare` wrote, or a user's own."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.core import npz
from lowvar.errors import UserError

FORMAT = 1  # version of the format of prepared files


@dataclass(frozen=True)
class Prepared:
    """Arrays for a model.

    Attributes:
        arrays: keyword of the model -> numeric array, without NaN or infinity.
        meta: metadata from `prepare`; empty if the file has none.
        sha256: SHA-256 of the file, in hexadecimal.
    """

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    sha256: str


def load(path: str | os.PathLike) -> Prepared:
    """Reads and checks an npz, as ``core.npz.model_arrays``, and its metadata.

    Raises:
        UserError: as ``core.npz.model_arrays``, and metadata that `prepare` did not write.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> np.savez(path, claims=np.array([1.5, 2.0]))
    >>> load(path).arrays
    {'claims': array([1.5, 2. ])}
    """
    arrays, meta, digest = npz.model_arrays(path)
    return Prepared(arrays, _meta(meta, Path(path)), digest)


def _meta(array: np.ndarray | None, path: Path) -> dict[str, Any]:
    if array is None:
        return {}
    try:
        meta = json.loads(array.item()) if array.dtype.kind == "U" else None
    except (ValueError, RecursionError):
        meta = None
    if not isinstance(meta, dict):
        raise UserError(f"{path}: `meta` should be the text of a JSON object; rename an array of that name")
    if meta.get("format", FORMAT) != FORMAT:
        raise UserError(
            f"{path} has data format {meta['format']}, this version of lowvar reads {FORMAT}: "
            f"run `lowvar prepare {meta.get('dataset', 'NAME')}` again"
        )
    return meta
