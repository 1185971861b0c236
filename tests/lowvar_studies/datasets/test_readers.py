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
    ("old", "new", "message"),
    [
        (
            "-1,3e2,no",
            "-1,no",
            r"a\.csv, line 2: found 2 fields; a row should have 3 \(2 numbers and a label",
        ),
        ("-1,3e2,no", "-1,3e2,4,no", r"a\.csv, line 2: found 4 fields; a row should have 3"),
        ("-1,3e2,no", "", r"a\.csv, line 2: found 1 fields"),
        ("3e2", "", r"a\.csv, line 2, column 2 \(v\): found an empty field; it should be a finite number"),
        ("3e2", "nan", r"line 2, column 2 \(v\): found 'nan'; it should be a finite number"),
        ("3e2", "-inf", r"line 2, column 2 \(v\): found '-inf'"),
        ("3e2", "1e999", r"line 2, column 2 \(v\): found '1e999'"),
        ("3e2", "?", r"line 2, column 2 \(v\): found '\?'"),
        ("3e2", "1_000", r"line 2, column 2 \(v\): found '1_000'"),
        ("3e2", " 3", r"line 2, column 2 \(v\): found ' 3'"),
        ("0.5", "text", r"line 1, column 1 \(u\): found 'text'"),
        ("yes", "maybe", r"line 1, column 3 \(label\): found 'maybe'; it should be one of 'no', 'yes'"),
        ("yes", "", r"line 1, column 3 \(label\): found ''"),
        ("0,0,no\n", "", r"a\.csv: found 2 rows; it should have 3"),
        ("0,0,no\n", "0,0,no\n\n", r"a\.csv: found 4 rows; it should have 3"),
    ],
)
def test_malformed_text_is_one_clear_error(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, GOOD.replace(old, new))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_file(tmp_path):
    with pytest.raises(UserError, match="found 0 rows"):
        read(tmp_path, "")


def test_two_spaces_are_an_empty_field(tmp_path):
    with pytest.raises(UserError, match="line 1: found 4 fields"):
        read(tmp_path, "1  2 no\n", separator=" ", rows=1)


def test_bytes_that_are_no_text(tmp_path):
    with pytest.raises(UserError, match="line 2, character 3: found byte 0xff; it should be UTF-8 text"):
        read(tmp_path, b"0.5,2,yes\n-1\xff,3e2,no\n0,0,no\n")


def test_missing_file_and_folder(tmp_path):
    for name in ("absent.csv", "."):
        with pytest.raises(UserError, match="cannot read"):
            readers.table(tmp_path, name, separator=",", columns=["u"], labels={}, rows=1)


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
    ("old", "new", "message"),
    [
        ("Time, A, B", "Time, B, A", r"s\.csv, line 2: found 'Time, B, A'; it should be the header 'Time, A, B'"),
        ("# made up\n", "", r"s\.csv, line 1: found 'Time, A, B'; it should be a comment"),
        ("1, -1e2, 0\n", "", r"s\.csv: found 1 rows below the header; it should have 2"),
        ("1, -1e2, 0\n", "1, -1e2, 0\n2, 3, 4\n", r"s\.csv: found 3 rows below the header; it should have 2"),
        ("1, -1e2, 0", "1, -1e2", r"line 4: found 2 fields; a row should have 3 numbers, with ', ' between two"),
        ("1.5", "", r"line 3, column 2 \(a\): found an empty field; it should be a finite number"),
        ("1.5", "nan", r"line 3, column 2 \(a\): found 'nan'"),
        ("1, -1e2", "1,  -1e2", r"line 4, column 2 \(a\): found ' -1e2'"),
        (SERIES, "", r"line 2: found ''; it should be the header"),
    ],
)
def test_malformed_series_is_one_clear_error(tmp_path, old, new, message):
    assert old in SERIES
    with pytest.raises(UserError, match=message) as caught:
        read_series(tmp_path, SERIES.replace(old, new))
    assert "\n" not in str(caught.value)


def test_breast_cancer_is_scikit_learns(tmp_path):
    x, y, names = parts(readers.breast_cancer(tmp_path))
    assert x.shape == (569, 30)
    assert np.bincount(y).tolist() == [212, 357]
    assert (x.dtype, y.dtype, len(set(names))) == (np.float64, np.int64, 30)
