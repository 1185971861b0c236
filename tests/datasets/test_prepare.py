import json
import zipfile

import numpy as np
import pytest

from lowvar.datasets import DATASETS, SCALINGS, Dataset, Table, fetch, load, prepare
from lowvar.errors import UserError
from lowvar.files import sha256


def entry(x):
    """A dataset of the catalogue that holds ``x``."""
    x = np.asarray(x, dtype=float)
    table = Table(x, np.arange(len(x)) % 2, tuple(f"c{j}" for j in range(x.shape[1])))
    return Dataset("made", "Made up", (), lambda raw: table, "CC0", "Nobody (2000).")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "made.npz"


def test_minmax_spans_exactly_minus_one_to_one(rng_columns, out):
    prepared = load(prepare(entry(rng_columns), "minmax", out=out))
    x = prepared.arrays["x"]
    np.testing.assert_array_equal(x.min(axis=0), -1)
    np.testing.assert_array_equal(x.max(axis=0), 1)
    back = x * prepared.meta["scale"] + prepared.meta["offset"]
    assert np.all(np.abs(back - rng_columns) <= 1e-15 * np.abs(rng_columns).max(axis=0) * 4)


@pytest.fixture
def rng_columns():
    """Columns of very different size, whose midpoints are not representable."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((50, 200)) * 10.0 ** rng.integers(-12, 13, 200) + rng.standard_normal(200)


def test_standard_has_zero_mean_and_unit_deviation(rng_columns, out):
    x = load(prepare(entry(rng_columns), "standard", out=out)).arrays["x"]
    wide = rng_columns.std(axis=0) > 1e-6  # else the mean's rounding error is large beside the deviation
    np.testing.assert_allclose(x.mean(axis=0)[wide], 0, atol=1e-9)
    np.testing.assert_allclose(x.std(axis=0)[wide], 1, rtol=1e-9)


def test_none_changes_nothing(rng_columns, out):
    prepared = load(prepare(entry(rng_columns), "none", out=out))
    np.testing.assert_array_equal(prepared.arrays["x"], rng_columns)
    assert set(prepared.meta["offset"]) == {0.0}
    assert set(prepared.meta["scale"]) == {1.0}


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
@pytest.mark.parametrize("constant", [0.0, 0.1, -3e7, 1e300])
def test_constant_column_becomes_zero(scaling, constant, out):
    prepared = load(prepare(entry([[constant, 1], [constant, 2], [constant, 4]]), scaling, out=out))
    np.testing.assert_array_equal(prepared.arrays["x"][:, 0], 0)
    assert prepared.meta["offset"][0] == constant
    assert prepared.meta["scale"][0] == 1


def test_columns_too_wide_for_a_scaling(out):
    wide = [[-1.7e308], [1.7e308]]
    assert load(prepare(entry(wide), "minmax", out=out)).arrays["x"].ravel().tolist() == [-1, 1]
    out.unlink()
    with pytest.raises(UserError, match="dataset made, scaled by standard: array 'scale' has inf"):
        prepare(entry(wide), "standard", out=out)
    assert not out.exists()


def test_a_reader_that_lets_nan_through_is_caught(out):
    with pytest.raises(UserError, match=r"dataset made: array 'x' has nan at \[1, 0\]"):
        prepare(entry([[1.0], [np.nan]]), out=out)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_same_input_same_bytes(tmp_path, scaling):
    first = prepare("breast_cancer", scaling, out=tmp_path / "a.npz").read_bytes()
    assert prepare("breast_cancer", scaling, out=tmp_path / "sub/b.npz").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "sub"]


def test_what_the_file_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = prepare("breast_cancer")
    assert path.as_posix() == "data/prepared/breast_cancer-minmax.npz"
    with np.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["meta", "x", "y"]
        assert (archive["x"].dtype, archive["x"].shape) == (np.float64, (569, 30))
        assert (archive["y"].dtype, archive["y"].shape) == (np.int64, (569,))
        assert archive["meta"].shape == ()
        text = archive["meta"].item()
    meta = json.loads(text)
    assert text == json.dumps(meta, sort_keys=True)
    assert meta["dataset"] == "breast_cancer"
    assert meta["scaling"] == "minmax"
    assert meta["rows"] == 569
    assert meta["raw_sha256"] == {}
    assert meta["dtypes"] == {"x": "float64", "y": "int64"}
    assert len(meta["features"]) == len(meta["offset"]) == len(meta["scale"]) == 30
    assert {"format", "title", "licence", "citation"} <= set(meta)
    with zipfile.ZipFile(path) as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {1980}
    prepared = load(path)
    assert prepared.meta == meta
    assert prepared.sha256 == sha256(path)
    assert sorted(prepared.arrays) == ["x", "y"]


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_measurements_are_kept_as_they_are(out, scaling):
    y = np.array([[0.5, -1e9], [2.0, 3.0], [4.0, 0.1]])
    table = Table(np.array([[1.0], [2.0], [4.0]]), y, ("time",))
    made = Dataset("made", "Made up", (), lambda raw: table, "CC0", "Nobody (2000).", ("a", "b"))
    prepared = load(prepare(made, scaling, out=out))
    np.testing.assert_array_equal(prepared.arrays["y"], y)
    assert prepared.meta["outputs"] == ["a", "b"]
    assert prepared.meta["dtypes"] == {"x": "float64", "y": "float64"}
    assert "outputs" not in load(prepare("breast_cancer", out=out)).meta
    y[1, 1] = np.nan
    with pytest.raises(UserError, match=r"dataset made: array 'y' has nan at \[1, 1\]"):
        prepare(made, scaling, out=out)


def test_reads_raw_files_and_refuses_wrong_ones(make, body, tmp_path, out):
    with pytest.raises(UserError, match="is missing: run `lowvar fetch tiny"):
        prepare(make(), raw=tmp_path, out=out)
    path = tmp_path / "uci/tiny.csv"
    path.parent.mkdir()
    path.write_bytes(body)
    prepared = load(prepare(make(), raw=tmp_path, out=out))
    assert prepared.arrays["x"].shape == (4000, 2)
    assert prepared.meta["raw_sha256"] == {"uci/tiny.csv": make().files[0].sha256}
    before = out.read_bytes()
    path.write_bytes(body.replace(b"3.5", b"4.5", 1))
    with pytest.raises(UserError, match="delete it"):
        prepare(make(), raw=tmp_path, out=out)
    assert out.read_bytes() == before


def test_malformed_raw_file_with_the_right_hash(make, body, tmp_path, out):
    bad = body.replace(b"3.5", b"", 1)
    (tmp_path / "uci").mkdir()
    (tmp_path / "uci/tiny.csv").write_bytes(bad)
    with pytest.raises(UserError, match=r"tiny\.csv, line 4, column 1 \(u\): found an empty field"):
        prepare(make(content=bad), raw=tmp_path, out=out)
    assert not out.exists()


def test_unknown_names(out):
    with pytest.raises(UserError, match="unknown scaling 'min-max': did you mean 'minmax'"):
        prepare("breast_cancer", "min-max", out=out)
    with pytest.raises(UserError, match="unknown dataset"):
        prepare("breast-canser", out=out)


def test_full_disk(tiny_disk):
    with pytest.raises(UserError, match="no space left to write"):
        prepare("breast_cancer", out=tiny_disk / "a.npz")
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "shape", "counts"), [("sonar", (208, 60), [97, 111]), ("australian", (690, 14), [383, 307])]
)
def test_true_files(true_mirror, tmp_path, name, shape, counts):
    fetch(name, tmp_path / "raw")
    paths = [prepare(name, raw=tmp_path / "raw", out=tmp_path / f"{i}.npz") for i in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    prepared = load(paths[0])
    x, y = prepared.arrays["x"], prepared.arrays["y"]
    assert x.shape == shape
    assert np.bincount(y).tolist() == counts
    np.testing.assert_array_equal(x.min(axis=0), -1)
    np.testing.assert_array_equal(x.max(axis=0), 1)
    raw = DATASETS[name].read(tmp_path / "raw")
    np.testing.assert_allclose(x * prepared.meta["scale"] + prepared.meta["offset"], raw.x, rtol=1e-12, atol=1e-9)
    standard = load(prepare(name, "standard", raw=tmp_path / "raw", out=tmp_path / "s.npz")).arrays["x"]
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(standard.std(axis=0), 1, rtol=1e-12)


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "outputs", "first", "last"),
    [
        ("hudson_bay", ["lynx", "hare"], [1900, 4.0, 30.0], [1920, 8.6, 24.7]),
        ("van_der_pol", ["u1"], [0, -0.06490137651912407], [10, -0.15664748180816496]),
    ],
)
def test_true_series(true_mirror, tmp_path, name, outputs, first, last):
    fetch(name, tmp_path / "raw")
    prepared = load(prepare(name, "none", raw=tmp_path / "raw", out=tmp_path / "a.npz"))
    rows = np.concatenate([prepared.arrays["x"], prepared.arrays["y"]], axis=1)
    assert prepared.meta["outputs"] == outputs
    np.testing.assert_array_equal(rows[[0, -1]], [first, last])
    np.testing.assert_array_equal(np.diff(rows[:, 0]), 1)
