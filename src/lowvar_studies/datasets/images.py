"""Readers of image files: one row of bytes per image, and its class."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.datasets.readers import Table


def idx(raw: str | Path, *, images: str, labels: str) -> Table:
    """Read a pair of gzipped idx files, the form of MNIST: one of images, one of labels.

    Args:
        raw: the folder of raw files, with the bytes that their hashes say.
        images: path of the images' file below ``raw``.
        labels: path of the labels' file below ``raw``.

    Returns:
        ``x`` (rows, height * width) uint8 and ``y`` (rows,) int64.

    Raises:
        UserError: a file cannot be read or is no gzipped idx file of bytes, or there is not a label for each image.

    References:
        LeCun, Cortes and Burges (1998), The MNIST database of handwritten digits: the file format.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "x.gz").write_bytes(gzip.compress(struct.pack(">4I4B", 0x803, 2, 1, 2, 5, 6, 7, 8)))
    >>> _ = (folder / "y.gz").write_bytes(gzip.compress(struct.pack(">2I2B", 0x801, 2, 9, 0)))
    >>> idx(folder, images="x.gz", labels="y.gz").arrays["x"].tolist()
    [[5, 6], [7, 8]]
    """
    x, y = _array(Path(raw) / images, 3), _array(Path(raw) / labels, 1)
    if len(x) != len(y):
        raise UserError(f"{Path(raw) / labels}: found {len(y)} labels; {images} has {len(x)} images")
    names = tuple(f"pixel_{i}_{j}" for i in range(x.shape[1]) for j in range(x.shape[2]))
    return Table({"x": x.reshape(len(x), -1), "y": y.astype(np.int64)}, names)


def _array(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of one gzipped idx file: two zeros, 8 for bytes, the number of dimensions, their sizes, the content."""
    try:
        content = gzip.decompress(path.read_bytes())
        if content[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(f"it begins with {content[:4].hex(' ')}, and not with 00 00 08 {dimensions:02x}")
        shape = struct.unpack_from(f">{dimensions}I", content, 4)
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        raise UserError(f"{path}: not a gzipped idx file: {error}") from error
