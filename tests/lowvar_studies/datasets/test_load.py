import contextlib
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
        ({"x": np.array([[1.0, 2.0], [np.nan, np.inf]])}, r"'x' has nan at \[1, 0\] \(2 such values of 4\)"),
        ({"x": np.array([0.0, -np.inf], dtype=np.float32)}, r"'x' has -inf at \[1\] \(1 such value of 2\)"),
        ({"x": np.array(np.nan)}, r"'x' has nan \(1 such value of 1\)"),
        ({"x": np.array(["a", "b"])}, "'x' has dtype <U1; it should be numeric"),
        ({"x": np.array(["2020-01-01"], dtype="datetime64[D]")}, "it should be numeric"),
        ({"x": np.array([{}, None])}, "'x' holds Python objects"),
        ({"my data": np.zeros(2)}, "the name 'my data' cannot be an argument"),
        ({"lambda": np.zeros(2)}, "the name 'lambda' cannot be an argument"),
        ({}, "holds no arrays"),
        ({"meta": np.array("{}")}, "holds no arrays"),
        ({"x": np.zeros(2), "meta": np.zeros(2)}, "`meta` should be the text of a JSON object"),
        ({"x": np.zeros(2), "meta": np.array("{")}, "`meta` should be the text of a JSON object"),
        ({"x": np.zeros(2), "meta": np.array("[1]")}, "`meta` should be the text of a JSON object"),
        ({"x": np.zeros(2), "meta": np.array(["{}", "{}"])}, "`meta` should be the text of a JSON object"),
        (
            {"x": np.zeros(2), "meta": np.array(json.dumps({"format": 99, "dataset": "sonar"}))},
            "has data format 99, this version of lowvar reads 1: run `lowvar prepare sonar` again",
        ),
    ],
)
def test_unfit_arrays(path, arrays, message):
    np.savez(path, **arrays)
    refused(message, path)


def test_missing_and_unreadable(path, tmp_path):
    refused("does not exist: `lowvar prepare` writes such files", path)
    refused("cannot read .*: Is a directory", tmp_path)


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"PK\x03\x04"])
def test_not_an_npz(path, content):
    path.write_bytes(content)
    refused("is not an npz file, or a truncated one", path)


def test_a_single_array(path):
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))
    refused("is not an npz file", path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_truncation_and_damage_is_refused(path, save):
    save(path, x=np.arange(300.0), y=np.arange(3))
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        refused("not an npz file|damaged", path)
    kept = load_bytes(path, whole)
    for place in range(0, len(whole), 31):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with contextlib.suppress(UserError):  # any other error, or other data, is a fault
            found = load_bytes(path, bytes(damaged))
            assert found.keys() == kept.keys()
            assert all(np.array_equal(found[name], kept[name]) for name in kept)


def load_bytes(path, content):
    path.write_bytes(content)
    return load(path).arrays


def test_members_that_are_no_arrays(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    refused(r"'notes\.txt' is not an array", path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00\x05\x00{'a':")
    refused("damaged", path)
