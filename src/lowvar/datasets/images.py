"""Readers of image files: one row of bytes per image, and its class."""

import gzip
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lowvar.datasets.readers import Table


def idx(raw: str | Path, *, images: str, labels: str) -> Table:
    """Read a pair of gzipped idx files, the form of MNIST: one of images, one of labels.

    Args:
        raw: the folder of raw files, with the bytes that their hashes say.
        images: path of the images' file below ``raw``.
        labels: path of the labels' file below ``raw``.

    Returns:
        ``x`` (rows, height * width) uint8 and ``y`` (rows,) int64.

    References:
        LeCun, Cortes and Burges (1998), The MNIST database of handwritten digits: the file format.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "x.gz").write_bytes(gzip.compress(struct.pack(">4I4B", 0x803, 2, 1, 2, 5, 6, 7, 8)))
    >>> _ = (folder / "y.gz").write_bytes(gzip.compress(struct.pack(">2I2B", 0x801, 2, 9, 0)))
    >>> idx(folder, images="x.gz", labels="y.gz").arrays["x"].tolist()
    [[5, 6], [7, 8]]
    """
    x, y = _array(Path(raw) / images), _array(Path(raw) / labels)
    return Table({"x": x.reshape(len(x), -1), "y": y.astype(np.int64)}, pixels((1, *x.shape[1:])))


def cifar(raw: str | Path, name: str, *, batches: Sequence[str], image: tuple[int, int, int]) -> Table:
    """Read CIFAR's binary batches from their tar.gz, of which nothing is unpacked to the disk.

    A batch is a sequence of records: one byte of label, then the image's bytes, channel by channel.

    Args:
        raw: the folder of raw files, with the bytes that their hashes say.
        name: the archive's path below ``raw``.
        batches: names of the archive's members to read, in order; other members are ignored.
        image: channels, height and width of an image.

    Returns:
        ``x`` (N, channels * height * width) uint8 and ``y`` (N,) int64.

    References:
        Krizhevsky (2009), Learning multiple layers of features from tiny images; https://www.cs.toronto.edu/~kriz/cifar.html
    """
    found = {}
    with tarfile.open(Path(raw) / name, "r:gz") as archive:  # in one pass: going back would unpack it anew
        for member in archive:
            stream = archive.extractfile(member) if member.name in batches else None
            if stream is not None:
                found[member.name] = np.frombuffer(stream.read(), dtype=np.uint8)
    records = np.concatenate([found[batch] for batch in batches]).reshape(-1, 1 + int(np.prod(image)))
    return Table({"x": np.ascontiguousarray(records[:, 1:]), "y": records[:, 0].astype(np.int64)}, pixels(image))


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


def _array(path: Path) -> np.ndarray:
    """The bytes of one gzipped idx file; the fourth is the number of dimensions, whose sizes follow."""
    content = gzip.decompress(path.read_bytes())
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
