"""Reader of an npz of arrays for a model: one that `prepare` wrote, or a user's own."""

import hashlib
import json
import keyword
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lowvar import npz
from lowvar.errors import UserError

FORMAT = 1  # version of the format of prepared files
_HOW = "write it with numpy.savez(path, x=x, y=y)"


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
    """Reads and checks an npz; every array except ``meta`` is a keyword argument of the model.

    Raises:
        UserError: the file is missing, not an npz, truncated or damaged; an array is not numeric, has NaN or
            infinity, or has a name that is not a valid keyword.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> np.savez(path, claims=np.array([1.5, 2.0]))
    >>> load(path).arrays
    {'claims': array([1.5, 2. ])}
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            arrays = _arrays(stream, path)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: `lowvar prepare` writes such files, or {_HOW}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; it should be a readable npz file") from error
    meta = _meta(arrays.pop("meta", None), path)
    if not arrays:
        raise UserError(f"{path} holds no arrays: {_HOW}")
    for name, array in arrays.items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UserError(f"{path}: the name {name!r} cannot be an argument of a model; rename the array")
        if array.dtype.kind not in "biufc":
            raise UserError(f"{path}: array {name!r} has dtype {array.dtype}; it should be numeric")
        check_finite(name, array, str(path))
    return Prepared(arrays, meta, digest)


def check_finite(name: str, array: np.ndarray, where: str) -> None:
    """Rejects NaN and infinity, with the position of the first one (counted from 0).

    >>> check_finite("x", np.array([[0.0, 1.0], [np.nan, 2.0]]), "claims.npz")
    Traceback (most recent call last):
    lowvar.errors.UserError: claims.npz: array 'x' has nan at [1, 0] (1 such value of 4); every value ...
    """
    if array.dtype.kind not in "fc":
        return
    bad = ~np.isfinite(array)
    count = int(np.count_nonzero(bad))
    if count:
        first = np.unravel_index(int(np.argmax(bad)), array.shape)
        place = f" at [{', '.join(str(int(i)) for i in first)}]" if array.ndim else ""
        raise UserError(
            f"{where}: array {name!r} has {array[first]}{place} ({count} such "
            f"value{'s' if count > 1 else ''} of {array.size}); every value should be finite"
        )


def _arrays(stream: BinaryIO, path: Path) -> dict[str, np.ndarray]:
    """All arrays of the file."""
    stream.seek(0)
    if not zipfile.is_zipfile(stream):
        raise UserError(f"{path} is not an npz file, or a truncated one: {_HOW}")
    try:
        return npz.read(stream)
    except npz.Damaged as error:
        raise UserError(f"{path} is damaged, or no npz of numbers: {error}; {_HOW}") from error


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
