import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

from lowvar.datasets import images

ROWS = 4
X = np.arange(24, dtype=np.uint8).reshape(ROWS, 6)
Y = np.array([9, 0, 3, 3], dtype=np.uint8)


def test_reads_idx(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(struct.pack(">4I", 0x803, ROWS, 2, 3) + X.tobytes()))
    (tmp_path / "y.gz").write_bytes(gzip.compress(struct.pack(">2I", 0x801, ROWS) + Y.tobytes()))
    table = images.idx(tmp_path, images="x.gz", labels="y.gz")
    assert list(table.arrays) == ["x", "y"]
    np.testing.assert_array_equal(table.arrays["x"], X)
    np.testing.assert_array_equal(table.arrays["y"], Y)
    assert (table.arrays["x"].dtype, table.arrays["y"].dtype) == (np.uint8, np.int64)
    assert table.names == ("pixel_0_0", "pixel_0_1", "pixel_0_2", "pixel_1_0", "pixel_1_1", "pixel_1_2")


SHAPE, RECORD, EACH = (3, 2, 2), 13, 5
BATCHES = ("made/b1.bin", "made/b2.bin")
RECORDS = np.random.default_rng(0).integers(0, 256, (2, EACH, RECORD), dtype=np.uint8)
RECORDS[:, :, 0] %= 10
GOOD = {name: RECORDS[i].tobytes() for i, name in enumerate(BATCHES)}


def archive(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("backwards", [False, True])
def test_reads_batches_in_the_order_asked_for(tmp_path, backwards):
    members = {"made/readme.html": b"hello", "../../escape": b"no", "/made/absolute": b"no"} | GOOD
    content = archive(dict(reversed(members.items())) if backwards else members)
    (tmp_path / "c.tar.gz").write_bytes(content)
    table = images.cifar(tmp_path, "c.tar.gz", batches=BATCHES, image=SHAPE)
    flat = RECORDS.reshape(-1, RECORD)
    np.testing.assert_array_equal(table.arrays["x"], flat[:, 1:])
    np.testing.assert_array_equal(table.arrays["y"], flat[:, 0])
    assert (table.arrays["x"].dtype, table.arrays["y"].dtype) == (np.uint8, np.int64)
    assert (table.names[0], table.names[4], table.names[-1]) == ("red_0_0", "green_0_0", "blue_1_1")
    assert [path.name for path in tmp_path.iterdir()] == ["c.tar.gz"]  # nothing was unpacked
