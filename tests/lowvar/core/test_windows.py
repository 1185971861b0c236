"""Rows that stay in files: blocks, and windows of shuffled batches."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lowvar import Parquet, UserError
from lowvar.core.rows import MappedArrays, in_files
from lowvar.core.windows import inflation, windows


class Counted:
    """Rows that are their own numbers, in blocks of seven, four of them to a window; it notes what is read."""

    def __init__(self, N=100, sizes=None, window=28):
        self.N, self.window, self.blocks = N, window, []
        self.sizes = np.diff(np.append(np.arange(0, N, 7), N)) if sizes is None else np.array(sizes)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def read(self, block):
        self.blocks.append(block)
        return {"row": np.arange(self.starts[block], self.starts[block] + self.sizes[block])}


def visited(source, size, rng=None):
    """The rows in the order of their visits, and the shapes of the windows."""
    rows, shapes = [], set()
    for window in windows(source, size, rng):
        rows.append(window.rows["row"][: window.length])
        shapes.add(window.rows["row"].shape)
        assert window.steps == -(-window.length // size)
        last = window.rows["row"].reshape(-1, size)[window.steps - 1]
        assert (last[(window.length - 1) % size + 1 :] == last[0]).all()
    assert all(len(one) % size == 0 for one in rows[:-1])
    return np.concatenate(rows), shapes


@pytest.mark.parametrize("size", [1, 5, 10, 30, 99, 100])
@pytest.mark.parametrize("sizes", [None, [1, 60, 3, 30, 6]])
def test_every_row_is_visited_once_in_whole_batches_of_one_shape(size, sizes):
    rows, shapes = visited(Counted(sizes=sizes), size, np.random.default_rng(0))
    assert sorted(rows) == list(range(100))
    assert len(shapes) == 1


def test_a_generator_determines_the_order():
    one, same, other = (visited(Counted(), 10, np.random.default_rng(seed))[0].tolist() for seed in (0, 0, 1))
    assert one == same != other
    assert visited(Counted(), 10)[0].tolist() == list(range(100))


def test_rows_of_a_window_are_mixed_and_one_window_is_read_ahead():
    source = Counted(N=1000)
    stream = windows(source, 7, np.random.default_rng(0))
    window = next(stream)
    assert len(set(window.rows["row"][:7] // 7)) > 1
    next(stream)
    stream.close()
    assert 8 <= len(source.blocks) <= 12  # of 143


@pytest.mark.long
def test_the_inflation_of_the_variance_is_that_of_sorted_rows():
    """The variance of means of batches of the sorted rows 0, ..., N - 1, against that of rows drawn at random."""
    N, size = 7 * 400, 14
    source = Counted(N=N, window=7 * 40)
    means = []
    for seed in range(200):
        for window in windows(source, size, np.random.default_rng(seed)):
            means.append(window.rows["row"][: window.length].reshape(-1, size).mean(1))
    ratio = np.var(np.concatenate(means)) / (np.var(np.arange(N)) / size)
    bound = inflation(source, size)
    assert bound == pytest.approx(1 + 0.9 * 14 / 40)
    assert 1.2 < ratio < 1.03 * bound
    assert inflation(Counted(N=20), 5) == 1


def test_memory_mapped_arrays_and_those_of_their_length_are_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    source, others = in_files({"x": x, "y": [1, 2, 3, 4, 5, 6], "scale": np.ones(2), "k": 3})
    assert isinstance(source, MappedArrays)
    assert set(others) == {"scale", "k"}
    found = source.take(np.array([1, 4]))
    np.testing.assert_array_equal(found["x"], [[2, 3], [8, 9]])
    np.testing.assert_array_equal(found["y"], [2, 5])
    assert not isinstance(source.read(0)["x"], np.memmap)
    assert in_files({"x": np.ones(3)})[0] is None
    with pytest.raises(UserError, match=r"different numbers of rows.*x 6, w 3"):
        in_files({"x": x, "w": x[:3]})


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=50), "b": np.arange(50), "c": rng.normal(size=50) > 0}
    pa.parquet.write_table(pa.table({**columns, "t": ["x"] * 50}), tmp_path / "rows.parquet", row_group_size=8)
    return tmp_path / "rows.parquet", columns


def test_parquet_gives_columns_by_row_group(table):
    path, columns = table
    source = Parquet(path, x=["a", "b"], y="c")
    assert (source.N, source.sizes.tolist()) == (50, [8] * 6 + [2])
    np.testing.assert_array_equal(source.read(1)["x"], np.column_stack([columns["a"], columns["b"]])[8:16])
    index = np.array([0, 7, 8, 30, 49])
    found = source.take(index)
    np.testing.assert_array_equal(found["y"], columns["c"][index])
    np.testing.assert_array_equal(found["x"][:, 1], index)
    assert Parquet(path.parent, x="a").N == 50
    other = path.with_name("other.parquet")
    other.write_bytes(path.read_bytes())
    assert Parquet([path, other], x="a").N == 100


@pytest.mark.usefixtures("table")
def test_what_parquet_cannot_read_is_said(tmp_path):
    pa.parquet.write_table(pa.table({"a": [1.0, None, 2.0]}), tmp_path / "gaps.parquet")
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    pa.parquet.write_table(pa.table({"a": [1.0]}).slice(0, 0), tmp_path / "none.parquet")
    for file, columns, named in [
        ("no", {"x": "a"}, "no such file"),
        ("rows", {}, "arguments"),
        ("rows", {"x": "aa"}, "aa"),
        ("rows", {"x": "t"}, "'t'"),
        ("text", {"x": "a"}, "text.parquet"),
        ("none", {"x": "a"}, "no rows"),
        ("gaps", {"x": "a"}, "'a' is missing in row 1"),
    ]:
        with pytest.raises(UserError, match=named):
            Parquet(tmp_path / f"{file}.parquet", **columns).read(0)
