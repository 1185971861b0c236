import gzip
import struct

import numpy as np

from lowvar_studies.datasets import images

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
