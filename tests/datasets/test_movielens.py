import numpy as np
import pytest

from lowvar.datasets.movielens import movielens
from lowvar.errors import UserError

FILES = {
    "data": "1\t2\t5\t880000000\n3\t1\t1\t0\n3\t3\t4\t7\n1\t1\t3\t8\n",
    "items": "1|Café (1995)|01-Jan-1995||url|0|1|0\n2|Both|||url|0|1|1\n3|Unknown||||1|0|0\n",
    "genres": "unknown|0\nAction|1\nFilm-Noir|2\n\n",
}


def read(folder, **other):
    for name, text in (FILES | other).items():
        (folder / name).write_text(text, encoding="iso-8859-1")
    names = {name: name for name in FILES}
    return movielens(folder, **names, names=("Action", "Film-Noir"), users=3, movies=3, ratings=4)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_reads_ratings(tmp_path, ends):
    table = read(tmp_path, **{name: text.replace("\n", ends) for name, text in FILES.items()})
    arrays = table.arrays
    np.testing.assert_array_equal(arrays["user"], [0, 2, 2, 0])
    np.testing.assert_array_equal(arrays["x"], [[1, 1], [1, 0], [0, 0], [1, 0]])
    np.testing.assert_array_equal(arrays["y"], [4, 0, 3, 2])
    assert {key: (array.dtype, array.shape) for key, array in arrays.items()} == {
        "user": (np.int32, (4,)),
        "x": (np.float64, (4, 2)),
        "y": (np.int64, (4,)),
        "users": (np.int64, ()),
    }
    assert int(arrays["users"]) == 3
    assert table.names == ("Action", "Film-Noir")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("data", "\t5\t", "\t6\t", r"data, line 1, column 3 \(rating\): found '6'; it should be a whole number from 1"),
        ("data", "\t5\t", "\t0\t", r"data, line 1, column 3 \(rating\): found '0'"),
        ("data", "\t5\t", "\t-1\t", r"line 1, column 3 \(rating\): found '-1'"),
        ("data", "\t5\t", "\t4.5\t", r"line 1, column 3 \(rating\): found '4.5'"),
        ("data", "\t5\t", "\t\t", r"line 1, column 3 \(rating\): found an empty field"),
        ("data", "\t5\t", "\t²\t", r"line 1, column 3 \(rating\): found|should be UTF-8"),
        (
            "data",
            "3\t3\t4",
            "4\t3\t4",
            r"line 3, column 1 \(user\): found '4'; it should be a whole number from 1 to 3",
        ),
        ("data", "3\t3\t4", "0\t3\t4", r"line 3, column 1 \(user\): found '0'"),
        ("data", "3\t3\t4", "3\t4\t4", r"line 3, column 2 \(item\): found '4'"),
        ("data", "880000000", "then", r"line 1, column 4 \(time\): found 'then'; it should be a whole number of at"),
        ("data", "3\t3\t4\t7", "3\t3\t4", "line 3: found 3 fields; a row should have 4, with tabs between"),
        ("data", "1\t1\t3\t8\n", "", "data: found 3 ratings; it should have 4"),
        ("data", "1\t1\t3\t8\n", "1\t1\t3\t8\n\n", "data: found 5 ratings; it should have 4"),
        ("items", "2|Both|||url|0|1|1\n", "", "items: found 2 items; it should have 3"),
        ("items", "2|Both", "9|Both", r"items, line 2, column 1 \(item\): found '9'; it should be 2"),
        ("items", "url|0|1|1", "url|0|1|2", r"items, line 2, column 8 \(Film-Noir\): found '2'; it .* from 0 to 1"),
        ("items", "url|0|1|1", "url|0|1", r"items, line 2: found 7 fields; a row should have 5 \+ 3, the latter for"),
        ("genres", "Action|1\n", "", "genres: found 2 genres; it should have 3"),
        ("genres", "\n\n", "\nWar|3\n", "genres: found 4 genres; it should have 3"),
        ("genres", "Action|1", "Film-Noir|1", r"genres, line 2: found 'Film-Noir\|1'; it should be 'Action\|1'"),
        ("genres", "Action|1", "Action|7", r"genres, line 2: found 'Action\|7'"),
        ("genres", FILES["genres"], "", "genres: found 0 genres"),
    ],
)
def test_malformed_files_are_one_clear_error(tmp_path, name, old, new, message):
    assert old in FILES[name]
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, **{name: FILES[name].replace(old, new)})
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*genres: No such file"):
        movielens(
            tmp_path, data="data", items="items", genres="genres", names=("Action",), users=1, movies=1, ratings=1
        )
