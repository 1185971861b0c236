"""A damaged npz is refused or read as it was: no single bit changes what it gives."""

import io

import numpy as np
import pytest

from lowvar.core import npz

ARRAYS = {"samples": np.ones((4, 2)), "scores": np.arange(8.0).reshape(4, 2), "values": np.ones(4)}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_no_bit_changes_what_is_read(write):
    stream = io.BytesIO()
    write(stream, **ARRAYS)
    whole, refused = stream.getvalue(), 0
    for place in range(8 * len(whole)):
        bits = bytearray(whole)
        bits[place // 8] ^= 1 << place % 8
        try:
            found = npz.read(io.BytesIO(bytes(bits)))
        except npz.DamagedFile:
            refused += 1
            continue
        assert list(found) == list(ARRAYS)
        assert all(np.array_equal(found[name], one) for name, one in ARRAYS.items())
    assert refused > len(whole)


@pytest.mark.parametrize("more", [b"a", b"a line\n", bytes(300), bytes(100_000)])
def test_bytes_after_the_end_are_the_reason(more):
    stream = io.BytesIO()
    np.savez(stream, **ARRAYS)
    stream.write(more)
    with pytest.raises(npz.DamagedFile, match=r"bytes .*end"):
        npz.read(stream)
