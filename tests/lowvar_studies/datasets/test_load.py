import json
import zipfile

import numpy as np
import pytest

from lowvar.core.files import sha256
from lowvar.errors import UserError
from lowvar_studies.datasets.load import load


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.npz"


def refused(message, path):
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_users_own_file(path, save):
    arrays = {
        "claims": np.array([1.5, 2.0], dtype=np.float32),
        "group": np.array([[1], [2]]),
        "seen": np.array([True, False]),
        "rate": np.array(0.5),
        "none": np.empty((0, 3)),
    }
    save(path, **arrays)
    prepared = load(str(path))
    assert prepared.meta == {}
    assert prepared.sha256 == sha256(path)
    assert list(prepared.arrays) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(prepared.arrays[name], array)
        assert prepared.arrays[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.array([[1.0, 2.0], [np.nan, np.inf]])}, r"'x' has nan at \[1, 0\]"),
        ({"x": np.array([0.0, -np.inf], dtype=np.float32)}, r"'x' has -inf at \[1\]"),
        ({"x": np.array(["a", "b"])}, "'x'"),
        ({"x": np.array([{}, None])}, "'x'"),
        ({"my data": np.zeros(2)}, "'my data'"),
        ({"lambda": np.zeros(2)}, "'lambda'"),
        ({"meta": np.array("{}")}, "no arrays"),
        *(({"x": np.zeros(2), "meta": np.array(wrong)}, "`meta`") for wrong in (0.0, "{", "[1]", ["{}", "{}"])),
        ({"x": np.zeros(2), "meta": np.array(json.dumps({"format": 99, "dataset": "sonar"}))}, "lowvar prepare sonar"),
    ],
)
def test_unfit_arrays(path, arrays, message):
    np.savez(path, **arrays)
    refused(message, path)


def test_members_that_are_no_arrays(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    refused(r"'notes\.txt' is not an array", path)
