import numpy as np
import pytest

from lowvar.errors import UserError
from lowvar_studies.datasets import readers

GOOD = "0.5,2,yes\n-1,3e2,no\n0,0,no\n"


def read(folder, text, **other):
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "a.csv").write_bytes(content)
    options = {"separator": ",", "columns": ["u", "v"], "labels": {"no": 0, "yes": 1}, "rows": 3} | other
    return readers.table(folder, "a.csv", **options)


def parts(table):
    assert list(table.arrays) == ["x", "y"]
    assert table.notes == {}
    return *table.arrays.values(), table.names


@pytest.mark.parametrize("text", [GOOD, GOOD.rstrip("\n"), GOOD.replace("\n", "\r\n")])
def test_reads_numbers_and_labels(tmp_path, text):
    x, y, names = parts(read(tmp_path, text))
    np.testing.assert_array_equal(x, [[0.5, 2], [-1, 300], [0, 0]])
    np.testing.assert_array_equal(y, [1, 0, 0])
    assert (x.dtype, y.dtype, names) == (np.float64, np.int64, ("u", "v"))


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [("-1,3e2,no", "-1,no", "line 2"), ("-1,3e2,no", "-1,3e2,4,no", "line 2"), ("-1,3e2,no", "", "line 2"),
     *(("3e2", wrong, r"line 2, column 2 \(v\)") for wrong in ("", "nan", "-inf", "1e999", "?", "1_000", " 3")),
     ("yes", "maybe", r"line 1, column 3 \(label\)"), ("0,0,no\n", "", "found 2 rows"), (GOOD, "", "found 0 rows"),
     ("-1", "\udcff", "line 2, character 1")],
)  # fmt: skip
def test_malformed_text_is_named(tmp_path, old, new, where):
    assert old in GOOD
    with pytest.raises(UserError, match=rf"a\.csv.*{where}"):
        read(tmp_path, GOOD.replace(old, new).encode(errors="surrogateescape"))


SERIES = "# made up\nTime, A, B\n0, 1.5, 2\n1, -1e2, 0\n"


def read_series(folder, text, **other):
    (folder / "s.csv").write_text(text)
    options = {"header": "Time, A, B", "separator": ", ", "inputs": ["time"], "outputs": ["a", "b"]}
    return readers.series(folder, "s.csv", **(options | {"rows": 2, "comments": 1} | other))


@pytest.mark.parametrize("text", [SERIES, SERIES.rstrip("\n"), SERIES.replace("\n", "\r\n")])
def test_reads_series(tmp_path, text):
    x, y, names = parts(read_series(tmp_path, text))
    np.testing.assert_array_equal(x, [[0], [1]])
    np.testing.assert_array_equal(y, [[1.5, 2], [-100, 0]])
    assert (x.dtype, y.dtype, names) == (np.float64, np.float64, ("time",))


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [("Time, A, B", "Time, B, A", "line 2"), ("# made up\n", "", "line 1"), ("1, -1e2, 0\n", "", "found 1 rows"),
     ("1, -1e2, 0", "1, -1e2", "line 4"), ("1.5", "", r"line 3, column 2 \(a\)"), ("1.5", "nan", r"line 3, column 2 \(a\)")],
)  # fmt: skip
def test_a_malformed_series_is_named(tmp_path, old, new, where):
    with pytest.raises(UserError, match=rf"s\.csv.*{where}"):
        read_series(tmp_path, SERIES.replace(old, new))


def test_breast_cancer_is_scikit_learns(tmp_path):
    x, y, names = parts(readers.breast_cancer(tmp_path))
    assert x.shape == (569, 30)
    assert np.bincount(y).tolist() == [212, 357]
    assert (x.dtype, y.dtype, len(set(names))) == (np.float64, np.int64, 30)
