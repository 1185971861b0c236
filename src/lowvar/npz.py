"""The one reader of npz files: every byte checked, whatever has happened to the file."""

import errno
import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

_RATIO = 1100  # deflate compresses at most 1032 times


class Damaged(ValueError):
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
    lowvar.npz.Damaged: it is not a zip archive, or it is cut off
    """
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as stream:
            return read(stream)
    length = source.seek(0, io.SEEK_END)
    source.seek(0)
    arrays: dict[str, np.ndarray] = {}
    where = ""
    try:
        with zipfile.ZipFile(source) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise Damaged(f"it has two arrays {name!r}")
                where = f"array {name!r}: "
                arrays[name] = _array(archive, member, name, length)
    except Damaged:
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # not of a place that is outside of the file
            raise
        raise Damaged(f"{where}it is cut off") from error
    except zipfile.BadZipFile as error:
        checksum = "CRC" in str(error)
        raise Damaged(f"{where}wrong checksum" if checksum else "it is not a zip archive, or it is cut off") from error
    except Exception as error:  # zipfile and NumPy raise a dozen kinds of errors for invalid bytes
        raise Damaged(where + (" ".join(str(error).split()) or type(error).__name__)) from error
    return arrays


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, length: int) -> np.ndarray:
    if member.filename == name:
        raise Damaged(f"{name!r} is not an array")
    if member.compress_size > length or member.file_size > _RATIO * member.compress_size + _RATIO:
        raise Damaged(f"array {name!r} is longer than the file")
    with archive.open(member) as stream:
        shape, fortran, dtype = _header(stream, name)
        if dtype.hasobject:
            raise Damaged(f"array {name!r} holds Python objects")
        count = 1
        for size in shape:
            count *= size
        held = member.file_size - stream.tell()
        if min(shape, default=0) < 0 or count * dtype.itemsize != held:
            raise Damaged(f"array {name!r} has {held} bytes, and its header has shape {shape} of {dtype}")
        content: Any = np.empty(held, np.uint8)
        view, filled = memoryview(content), 0
        while filled < held and (read := stream.readinto(view[filled:])):
            filled += read
        if filled < held or stream.read(1):  # the end of a member checks its checksum
            raise Damaged(f"array {name!r} is cut off")
    return np.ndarray(shape, dtype, content if held else None, order="F" if fortran else "C")


def _header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise Damaged(f"array {name!r} has version {version} of the npy format")
