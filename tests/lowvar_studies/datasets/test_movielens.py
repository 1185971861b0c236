import numpy as np
import pytest

from lowvar_studies.datasets.movielens import movielens

FILES = {
    "data": "1\t2\t5\t880000000\n3\t1\t1\t0\n3\t3\t4\t7\n1\t1\t3\t8\n",
    "items": "1|Café (1995)|01-Jan-1995||url|0|1|0\n2|Both|||url|0|1|1\n3|Unknown||||1|0|0\n",
    "genres": "unknown|0\nAction|1\nFilm-Noir|2\n\n",
}


def read(folder, **other):
    for name, text in (FILES | other).items():
        (folder / name).write_text(text, encoding="iso-8859-1")
    return movielens(folder, **{name: name for name in FILES})


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
