import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

from lowvar.datasets import images
from lowvar.errors import UserError

IMAGE, ROWS = (1, 2, 3), 4
X = np.arange(24, dtype=np.uint8).reshape(ROWS, 6)
Y = np.array([9, 0, 3, 3], dtype=np.uint8)
X_HEAD, Y_HEAD = struct.pack(">4I", 0x803, ROWS, 2, 3), struct.pack(">2I", 0x801, ROWS)
IMAGES, LABELS = X_HEAD + X.tobytes(), Y_HEAD + Y.tobytes()


def read(folder, x=IMAGES, y=LABELS):
    """Bytes are compressed; in (0, bytes) they are written as they are."""
    for name, content in (("x.gz", x), ("y.gz", y)):
        if content is not None:
            (folder / name).write_bytes(gzip.compress(content) if isinstance(content, bytes) else content[1])
    return images.idx(folder, images="x.gz", labels="y.gz", image=IMAGE, rows=ROWS)


def test_reads_idx(tmp_path):
    table = read(tmp_path)
    assert list(table.arrays) == ["x", "y"]
    np.testing.assert_array_equal(table.arrays["x"], X)
    np.testing.assert_array_equal(table.arrays["y"], Y)
    assert (table.arrays["x"].dtype, table.arrays["y"].dtype) == (np.uint8, np.int64)
    assert table.names == ("pixel_0_0", "pixel_0_1", "pixel_0_2", "pixel_1_0", "pixel_1_1", "pixel_1_2")


WHOLE = gzip.compress(IMAGES)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"x": Y_HEAD + X.tobytes()}, r"x\.gz: found the magic number 0x00000801; it should be 0x00000803, that of an"),
        ({"y": X_HEAD + Y.tobytes()}, r"y\.gz: found the magic number 0x00000803; it should be 0x00000801, .* 1 dimen"),
        ({"x": X_HEAD[::-1] + X.tobytes()}, "found the magic number 0x03000000"),
        ({"x": b""}, "found the magic number 0x;"),
        ({"x": X_HEAD}, r"x\.gz: found only 16 bytes; it should have 16 \+ 4 \* 2 \* 3"),
        ({"x": X_HEAD[:9]}, "found only 9 bytes"),
        ({"x": X_HEAD + X.tobytes()[:-1]}, "found only 39 bytes"),
        ({"x": X_HEAD + X.tobytes() + b"0"}, "found more than 40 bytes"),
        ({"y": Y_HEAD + Y.tobytes() + b"0" * 100}, r"y\.gz: found more than 12 bytes; it should have 8 \+ 4$"),
        ({"x": struct.pack(">4I", 0x803, 5, 2, 3)}, "found the counts 5 x 2 x 3; they should be 4 x 2 x 3"),
        ({"x": struct.pack(">4I", 0x803, 4, 3, 2) + X.tobytes()}, "found the counts 4 x 3 x 2"),
        ({"y": struct.pack(">2I", 0x801, 3) + Y.tobytes()}, r"y\.gz: found the counts 3; they should be 4"),
        ({"y": Y_HEAD + b"\x00\x01\x0a\x02"}, r"y\.gz: found label 10 of image 2; labels should be 0 to 9"),
        ({"y": Y_HEAD + b"\xff\x01\x0a\x02"}, "found label 255 of image 0"),
        ({"x": (0, WHOLE[:-9])}, r"cannot read .*x\.gz: .*; it should be a gzip file, whole"),
        ({"x": (0, WHOLE[:-8] + b"0000" + WHOLE[-4:])}, r"cannot read .*x\.gz: CRC check failed"),
        ({"x": (0, X_HEAD + X.tobytes())}, r"cannot read .*x\.gz: Not a gzipped file"),
        ({"x": (0, WHOLE[:10] + b"\xff" * 30)}, r"cannot read .*x\.gz: .* invalid"),
        ({"x": None}, r"cannot read .*x\.gz: No such file or directory"),
    ],
)
def test_malformed_idx_is_one_clear_error(tmp_path, bad, message):
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, **bad)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


SHAPE, RECORD, EACH = (3, 2, 2), 13, 5
BATCHES = ("made/b1.bin", "made/b2.bin")
RECORDS = np.random.default_rng(0).integers(0, 256, (2, EACH, RECORD), dtype=np.uint8)
RECORDS[:, :, 0] %= 10
GOOD = {name: RECORDS[i].tobytes() for i, name in enumerate(BATCHES)}


def archive(members, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def read_cifar(folder, content):
    (folder / "c.tar.gz").write_bytes(content)
    return images.cifar(folder, "c.tar.gz", batches=BATCHES, image=SHAPE, rows=EACH)


@pytest.mark.parametrize("backwards", [False, True])
def test_reads_batches_in_the_order_asked_for(tmp_path, backwards):
    members = {"made/readme.html": b"hello", "../../escape": b"no", "/made/absolute": b"no"} | GOOD
    table = read_cifar(tmp_path, archive(dict(reversed(members.items())) if backwards else members))
    flat = RECORDS.reshape(-1, RECORD)
    np.testing.assert_array_equal(table.arrays["x"], flat[:, 1:])
    np.testing.assert_array_equal(table.arrays["y"], flat[:, 0])
    assert (table.arrays["x"].dtype, table.arrays["y"].dtype) == (np.uint8, np.int64)
    assert (table.names[0], table.names[4], table.names[-1]) == ("red_0_0", "green_0_0", "blue_1_1")
    assert [path.name for path in tmp_path.iterdir()] == ["c.tar.gz"]  # nothing was unpacked


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            archive(GOOD | {BATCHES[1]: GOOD[BATCHES[1]][:-1]}),
            r"c\.tar\.gz, made/b2\.bin: found 64 bytes; it should have 65: 5 images of 1 \+ 12 bytes",
        ),
        (archive(GOOD | {BATCHES[0]: GOOD[BATCHES[0]] * 2}), r"made/b1\.bin: found 130 bytes"),
        (
            archive(GOOD | {BATCHES[0]: GOOD[BATCHES[0]][:26] + b"\x0a" + GOOD[BATCHES[0]][27:]}),
            r"c\.tar\.gz, made/b1\.bin: found label 10 of image 2; labels should be 0 to 9",
        ),
        (archive({BATCHES[0]: GOOD[BATCHES[0]]}), r"found no file made/b2\.bin; it should have made/b1\.bin, made/b2"),
        (archive(GOOD | {BATCHES[1]: "../../etc/passwd"}), r"found no file made/b2\.bin"),
        (archive(GOOD)[:150], r"cannot read .*c\.tar\.gz: .*; it should be a tar\.gz archive, whole"),
        (archive(GOOD, "w"), r"cannot read .*c\.tar\.gz: not a gzip file"),
        (gzip.compress(b"hello", mtime=0), r"cannot read .*c\.tar\.gz: "),
        (b"", r"cannot read .*c\.tar\.gz: "),
    ],
)
def test_malformed_archive_is_one_clear_error(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        read_cifar(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_missing_archive(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*c\.tar\.gz: No such file or directory"):
        images.cifar(tmp_path, "c.tar.gz", batches=BATCHES, image=SHAPE, rows=EACH)
