"""Readers of image files: one row of bytes per image, and its class."""

import gzip
import struct
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lowvar.datasets.readers import Table
from lowvar.errors import UserError

_BROKEN = (tarfile.TarError, zlib.error, EOFError, OSError)  # raised by gzip and tarfile for invalid bytes


def idx(
    raw: str | Path, *, images: str, labels: str, image: tuple[int, int, int], rows: int, classes: int = 10
) -> Table:
    """Reads a pair of gzipped idx files, the format of MNIST: one of images, one of labels.

    Args:
        raw: the folder of raw files.
        images: path of the images' file below ``raw``.
        labels: path of the labels' file below ``raw``.
        image: channels (one, in this format), height and width of an image.
        rows: required number of images.
        classes: number of classes; labels are ``0 .. classes - 1``.

    Returns:
        ``x`` (rows, height * width) uint8 and ``y`` (rows,) int64.

    Raises:
        UserError: a file is missing, truncated or not gzip, has a wrong magic number, wrong counts, too few or too many
            bytes, or a label out of range.

    References:
        LeCun, Cortes and Burges (1998), The MNIST database of handwritten digits: the file format.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "x.gz").write_bytes(gzip.compress(struct.pack(">4I4B", 0x803, 2, 1, 2, 5, 6, 7, 8)))
    >>> _ = (folder / "y.gz").write_bytes(gzip.compress(struct.pack(">2I2B", 0x801, 2, 9, 0)))
    >>> idx(folder, images="x.gz", labels="y.gz", image=(1, 1, 2), rows=2).arrays["x"].tolist()
    [[5, 6], [7, 8]]
    """
    x = _array(Path(raw) / images, (rows, *image[1:]))
    path = Path(raw) / labels
    y = _array(path, (rows,))
    _check_labels(y, classes, path)
    return Table({"x": x.reshape(rows, -1), "y": y.astype(np.int64)}, pixels(image))


def cifar(
    raw: str | Path,
    name: str,
    *,
    batches: Sequence[str],
    image: tuple[int, int, int],
    rows: int,
    classes: int = 10,
) -> Table:
    """Reads CIFAR's binary batches from their tar.gz, without unpacking it to disk.

    A batch is a sequence of records: one byte of label, then the image's bytes, channel by channel.

    Args:
        raw: the folder of raw files.
        name: the archive's path below ``raw``.
        batches: names of the archive's members to read, in order; other members are ignored.
        image: channels, height and width of an image.
        rows: required number of images in each batch.
        classes: number of classes; labels are ``0 .. classes - 1``.

    Returns:
        ``x`` (N, channels * height * width) uint8 and ``y`` (N,) int64 with N = rows * number of batches.

    Raises:
        UserError: the archive is missing or broken, lacks a batch, or a batch has a wrong length or a label out of
            range.

    References:
        Krizhevsky (2009), Learning multiple layers of features from tiny images; https://www.cs.toronto.edu/~kriz/cifar.html
    """
    path, record = Path(raw) / name, 1 + int(np.prod(image))
    x = np.empty((len(batches), rows, record - 1), dtype=np.uint8)
    y = np.empty((len(batches), rows), dtype=np.int64)
    missing = set(batches)
    try:
        with tarfile.open(path, "r:gz") as archive:  # in one pass: seeking back would decompress it again
            for member in archive:
                stream = archive.extractfile(member) if member.name in missing and member.isreg() else None
                if stream is None:
                    continue
                batch, where = batches.index(member.name), f"{path}, {member.name}"
                if member.size != rows * record:
                    raise UserError(
                        f"{where}: found {member.size} bytes; it should have {rows * record}: "
                        f"{rows} images of 1 + {record - 1} bytes"
                    )
                records = np.frombuffer(stream.read(), dtype=np.uint8).reshape(rows, record)
                _check_labels(records[:, 0], classes, where)
                y[batch], x[batch] = records[:, 0], records[:, 1:]
                missing.remove(member.name)
    except _BROKEN as error:
        raise _unreadable(path, error, "a tar.gz archive") from error
    if missing:
        raise UserError(f"{path}: found no file {min(missing)}; it should have {', '.join(batches)}")
    return Table({"x": x.reshape(-1, record - 1), "y": y.reshape(-1)}, pixels(image))


def pixels(image: tuple[int, int, int]) -> tuple[str, ...]:
    """Names of an image's values, channel by channel and row by row.

    >>> pixels((1, 1, 2))
    ('pixel_0_0', 'pixel_0_1')
    >>> pixels((3, 32, 32))[-1]
    'blue_31_31'
    """
    channels, height, width = image
    kinds = ("pixel",) if channels == 1 else ("red", "green", "blue")
    return tuple(f"{kind}_{i}_{j}" for kind in kinds for i in range(height) for j in range(width))


def _array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The bytes of one gzipped idx file, which must have that shape."""
    wanted = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)  # 8 stands for unsigned bytes
    size = int(np.prod(shape))
    try:
        with gzip.open(path) as stream:
            content = stream.read(len(wanted) + size + 1)
    except _BROKEN as error:
        raise _unreadable(path, error, "a gzip file") from error
    if content[:4] != wanted[:4]:
        raise UserError(
            f"{path}: found the magic number 0x{content[:4].hex()}; it should be 0x{wanted[:4].hex()}, that of an idx "
            f"file of bytes in {len(shape)} dimension{'s' if len(shape) > 1 else ''}"
        )
    if len(content) >= len(wanted) and content[: len(wanted)] != wanted:
        actual = struct.unpack_from(f">{len(shape)}I", content, 4)
        raise UserError(
            f"{path}: found the counts {' x '.join(map(str, actual))}; they should be {' x '.join(map(str, shape))}"
        )
    if len(content) != len(wanted) + size:
        actual = f"only {len(content)}" if len(content) < len(wanted) + size else f"more than {len(wanted) + size}"
        raise UserError(f"{path}: found {actual} bytes; it should have {len(wanted)} + {' * '.join(map(str, shape))}")
    return np.frombuffer(content, dtype=np.uint8, offset=len(wanted)).reshape(shape)


def _check_labels(labels: np.ndarray, classes: int, where: object) -> None:
    """Rejects a label out of range (rows counted from 0)."""
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise UserError(
            f"{where}: found label {labels[wrong[0]]} of image {wrong[0]}; labels should be 0 to {classes - 1}"
        )


def _unreadable(path: Path, error: Exception, what: str) -> UserError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return UserError(f"cannot read {path}: {reason}; it should be {what}, whole")
