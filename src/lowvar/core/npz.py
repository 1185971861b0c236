"""The one reader of npz files: every byte checked, whatever has happened to the file."""

import errno
import hashlib
import io
import keyword
import os
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from lowvar.errors import UserError

# record at the end of a zip archive: its length, first bytes and number of members
_END, _SIGNATURE, _COUNT, _UNSTATED = 22, b"PK\5\6", slice(10, 12), 0xFFFF
_HOW = "write it with numpy.savez(path, x=x, y=y)"


class DamagedFile(ValueError):
    """An npz that cannot be read; the message is the reason."""


def read(source: str | os.PathLike | IO[bytes]) -> dict[str, np.ndarray]:
    """The arrays of an npz, read without pickle.

    Args:
        source: path, or a stream that can seek, which is read from its start.

    Raises:
        Damaged: no zip archive, a member whose checksum or length is not that of its content, a header that does not
            fit its member, or an array of Python objects.
        OSError: the file cannot be opened or read.

    >>> stream = io.BytesIO()
    >>> np.savez(stream, x=np.arange(3))
    >>> read(stream)
    {'x': array([0, 1, 2])}
    >>> read(io.BytesIO(stream.getvalue()[:-1]))
    Traceback (most recent call last):
    lowvar.core.npz.DamagedFile: it is not a zip archive, is cut off, or has many bytes after its end
    """
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as stream:
            return read(stream)
    source.seek(0, io.SEEK_END)  # zipfile would take a file that cannot be read for a damaged one
    source.seek(0)
    arrays: dict[str, np.ndarray] = {}
    where = ""
    try:
        with zipfile.ZipFile(source) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise DamagedFile(f"it has two arrays {name!r}")
                where = f"array {name!r}: "
                with archive.open(member) as stream:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
                    if stream.read(1):  # the end of a member checks its checksum
                        raise DamagedFile(f"array {name!r} is longer than its header says")
            where = ""
            source.seek(-_END - len(archive.comment), io.SEEK_END)
            record = source.read(_END)
            if not record.startswith(_SIGNATURE):  # zipfile found the record further ahead
                raise DamagedFile("bytes follow its end: something was appended to it")
            stated = int.from_bytes(record[_COUNT], "little")
            if stated not in (len(arrays), _UNSTATED):  # a shorter list of members is a valid one for zipfile
                raise DamagedFile(f"it states {stated} arrays and lists {len(arrays)}")
    except DamagedFile:
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # not of a place that is outside of the file
            raise
        raise DamagedFile(f"{where}it is cut off") from error
    except zipfile.BadZipFile as error:
        if "CRC" in str(error):
            raise DamagedFile(f"{where}wrong checksum") from error
        raise DamagedFile("it is not a zip archive, is cut off, or has many bytes after its end") from error
    except Exception as error:  # zipfile and NumPy raise a dozen kinds of errors for invalid bytes
        raise DamagedFile(where + (" ".join(str(error).split()) or type(error).__name__)) from error
    return arrays


def model_arrays(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], np.ndarray | None, str]:
    """The arrays of an npz that are arguments of a model.

    Returns:
        Numeric arrays by the model's keyword, without NaN or infinity; the array ``meta``, where `prepare` writes its
        metadata, if there is one; and the SHA-256 of the file, in hexadecimal.

    Raises:
        UserError: the file is missing, not an npz, truncated or damaged; an array is not numeric, has NaN or
            infinity, or has a name that is not a valid keyword.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            arrays = read(stream)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: `lowvar prepare` writes such files, or {_HOW}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; it should be a readable npz file") from error
    except DamagedFile as error:
        raise UserError(f"{path} is damaged, or no npz of numbers: {error}; {_HOW}") from error
    meta = arrays.pop("meta", None)
    if not arrays:
        raise UserError(f"{path} holds no arrays: {_HOW}")
    for name, array in arrays.items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UserError(f"{path}: the name {name!r} cannot be an argument of a model; rename the array")
        if array.dtype.kind not in "biufc":
            raise UserError(f"{path}: array {name!r} has dtype {array.dtype}; it should be numeric")
        check_finite(name, array, str(path))
    return arrays, meta, digest


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
