"""Readers of raw files, whose bytes the catalogue pins."""

import gzip
import struct

import numpy as np
import pytest

from lowvar.errors import UserError
from lowvar_studies.datasets import readers
from lowvar_studies.datasets.tennis import Season, tennis

GOOD = "0.5,2,yes\n-1,3e2,no\n0,0,no\n"


def read(folder, text, **other):
    (folder / "a.csv").write_text(text)
    options = {"separator": ",", "inputs": ["u", "v"], "labels": {"no": 0, "yes": 1}, "rows": 3} | other
    return readers.table(folder, "a.csv", **options)


@pytest.mark.parametrize("text", [GOOD, GOOD.rstrip("\n"), GOOD.replace("\n", "\r\n")])
def test_numbers_and_labels(tmp_path, text):
    table = read(tmp_path, text)
    x, y = table.arrays["x"], table.arrays["y"]
    np.testing.assert_array_equal(x, [[0.5, 2], [-1, 300], [0, 0]])
    np.testing.assert_array_equal(y, [1, 0, 0])
    assert (list(table.arrays), x.dtype, y.dtype, table.names) == (["x", "y"], np.float64, np.int64, ("u", "v"))


def test_inputs_and_measurements_below_a_header(tmp_path):
    layout = {"inputs": ["time"], "outputs": ["a", "b"], "labels": None, "rows": 2, "skip": 2}
    table = read(tmp_path, "# made up\nTime, A, B\n0, 1.5, 2\n1, -1e2, 0\n", **layout)
    np.testing.assert_array_equal(table.arrays["x"], [[0], [1]])
    np.testing.assert_array_equal(table.arrays["y"], [[1.5, 2], [-100, 0]])
    assert table.names == ("time",)


@pytest.mark.parametrize(("old", "new"), [("-1,3e2,no", "-1,no"), ("3e2", "?"), ("yes", "maybe"), ("0,0,no\n", "")])
def test_another_layout_is_refused(tmp_path, old, new):
    with pytest.raises(UserError, match=r"a\.csv"):
        read(tmp_path, GOOD.replace(old, new))


CELLS = "7,5,1,2\n8,?,3,4\n9,2,10,4\n"


def test_samples_with_missing_features_are_left_out(tmp_path):
    (tmp_path / "w.data").write_text(CELLS)
    layout = {"inputs": ("u", "v"), "rows": 3, "complete": 2}
    table = readers.wisconsin(tmp_path, "w.data", **layout)
    np.testing.assert_array_equal(table.arrays["x"], [[5, 1], [2, 10]])
    np.testing.assert_array_equal(table.arrays["y"], [0, 1])
    assert (table.arrays["y"].dtype, table.names) == (np.int64, ("u", "v"))
    for old, new in (("?", "1"), ("7,5,1,2\n", ""), ("9,2,10,4", "9,2,10,3"), ("7,5,1,2", "7,5,2")):
        (tmp_path / "w.data").write_text(CELLS.replace(old, new))
        with pytest.raises(UserError, match=r"w\.data"):
            readers.wisconsin(tmp_path, "w.data", **layout)


def test_images(tmp_path):
    x, y = np.arange(24, dtype=np.uint8).reshape(4, 6), np.array([9, 0, 3, 3], dtype=np.uint8)
    (tmp_path / "x.gz").write_bytes(gzip.compress(struct.pack(">4I", 0x803, 4, 2, 3) + x.tobytes()))
    (tmp_path / "y.gz").write_bytes(gzip.compress(struct.pack(">2I", 0x801, 4) + y.tobytes()))
    table = readers.idx(tmp_path, images="x.gz", labels="y.gz")
    np.testing.assert_array_equal(table.arrays["x"], x)
    np.testing.assert_array_equal(table.arrays["y"], y)
    assert (table.arrays["x"].dtype, table.arrays["y"].dtype) == (np.uint8, np.int64)
    assert table.names == ("pixel_0_0", "pixel_0_1", "pixel_0_2", "pixel_1_0", "pixel_1_1", "pixel_1_2")


RATINGS = {
    "data": "1\t2\t5\t880000000\n3\t1\t1\t0\n3\t3\t4\t7\n1\t1\t3\t8\n",
    "items": "1|Café (1995)|01-Jan-1995||url|0|1|0\n2|Both|||url|0|1|1\n3|Unknown||||1|0|0\n",
    "genres": "unknown|0\nAction|1\nFilm-Noir|2\n\n",
}


def test_ratings(tmp_path):
    for name, text in RATINGS.items():
        (tmp_path / name).write_text(text, encoding="iso-8859-1")
    table = readers.movielens(tmp_path, **{name: name for name in RATINGS})
    arrays = table.arrays
    np.testing.assert_array_equal(arrays["user"], [0, 2, 2, 0])
    np.testing.assert_array_equal(arrays["x"], [[1, 1], [1, 0], [0, 0], [1, 0]])
    np.testing.assert_array_equal(arrays["y"], [4, 0, 3, 2])
    assert [array.dtype for array in arrays.values()] == [np.int32, np.float64, np.int64, np.int64]
    assert int(arrays["users"]) == 3
    assert table.names == ("Action", "Film-Noir")


HEADER = "tourney_id,tourney_level,tourney_date,winner_name,loser_name,score,round"
ONE = [
    "1,A,19700601,Bea,Ann,6-1 6-1,F",
    "1,A,19700601,Bea,Cid,6-1 6-1,R128",
    "1,A,19700601,Ann,Cid,6-1 6-1,RR",  # of the same rank as R128: stays behind it
    "1,A,19700601,Bea,,6-1 6-1,F",
    "1,A,19700601,Bea,Cid,NA,F",
    "1,A,19700601,Bea,Cid,6-1 RET,F",
    "1,A,19700601,Bea,Cid,Default,F",
    "1,A,19700601,Bea,Cid,6-1,F",
    "1,D,19700601,Bea,Cid,6-1 6-1,F",
    "1,A,19700601,Bea,Cid,6-1 6-1,BR",
    "1,A,19591231,Bea,Cid,6-1 6-1,SF",
]
TWO = [
    "2,G,19700101,José,Bea,6-1 6-1,QF",
    "2,G,19700101,Ann,José,6-1 6-1,R16",
]
SEASONS = (Season(1970, 0, ""), Season(1971, 0, ""))


def test_matches_are_selected_and_sorted(tmp_path):
    (tmp_path / "tennis_atp").mkdir()
    for season, rows in zip(SEASONS, (ONE, TWO), strict=True):
        (tmp_path / season.name).write_text("\n".join([HEADER, *rows]) + "\n", encoding="iso-8859-1")
    table = tennis(tmp_path, seasons=SEASONS)
    names = table.notes["players"]
    assert names == ["Ann", "Bea", "Cid", "José"]
    found = [(names[w], names[l]) for w, l in zip(table.arrays["winner"], table.arrays["loser"], strict=True)]
    assert found == [("Ann", "José"), ("José", "Bea"), ("Bea", "Cid"), ("Ann", "Cid"), ("Bea", "Ann")]
    assert table.arrays["winner"].dtype == table.arrays["loser"].dtype == np.int32
    assert int(table.arrays["players"]) == 4
