import json
import re
import zipfile

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from lowvar.core.files import sha256
from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import DATASETS, Dataset
from lowvar_studies.datasets.fetch import fetch
from lowvar_studies.datasets.load import load
from lowvar_studies.datasets.prepare import SCALINGS, prepare
from lowvar_studies.datasets.readers import Table


def made(arrays, names=(), **about):
    """A dataset of the catalogue that holds these arrays."""
    table = Table(arrays, tuple(names), about.pop("notes", {}))
    return Dataset("made", "Made up", (), lambda raw: table, "CC0", "Nobody (2000).", **about)


def entry(x):
    x = np.asarray(x, dtype=float)
    return made({"x": x, "y": np.arange(len(x)) % 2}, [f"c{j}" for j in range(x.shape[1])])


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


@pytest.mark.parametrize("scaling", DATASETS["breast_cancer"].scalings)
def test_same_input_same_bytes(tmp_path, scaling):
    first = prepare("breast_cancer", scaling, out=tmp_path / "a.npz").read_bytes()
    assert prepare("breast_cancer", scaling, out=tmp_path / "sub/b.npz").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "sub"]


def test_what_the_file_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = prepare("breast_cancer")
    assert path.as_posix() == "data/prepared/breast_cancer-minmax.npz"
    prepared = load(path)
    x, y, meta = prepared.arrays["x"], prepared.arrays["y"], prepared.meta
    assert (x.dtype, x.shape, y.dtype, y.shape) == (np.float64, (569, 30), np.int64, (569,))
    assert (meta["dataset"], meta["scaling"], meta["rows"], meta["raw_sha256"]) == ("breast_cancer", "minmax", 569, {})
    assert meta["dtypes"] == {"x": "float64", "y": "int64"}
    assert len(meta["features"]) == len(meta["offset"]) == len(meta["scale"]) == 30
    assert {"format", "title", "licence", "citation"} <= set(meta)
    assert prepared.sha256 == sha256(path)


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_measurements_are_kept_as_they_are(out, scaling):
    y = np.array([[0.5, -1e9], [2.0, 3.0], [4.0, 0.1]])
    measured = made({"x": np.array([[1.0], [2.0], [4.0]]), "y": y}, ["time"], outputs=("a", "b"))
    prepared = load(prepare(measured, scaling, out=out))
    np.testing.assert_array_equal(prepared.arrays["y"], y)
    assert prepared.meta["outputs"] == ["a", "b"]
    y[1, 1] = np.nan
    with pytest.raises(UserError, match=r"dataset made: array 'y' has nan at \[1, 1\]"):
        prepare(measured, scaling, out=out)


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


PIXELS = np.random.default_rng(1).integers(0, 256, (40, 300), dtype=np.uint8)
PIXELS[:, 7], PIXELS[0, 0], PIXELS[1, 0] = 9, 0, 255


def pictures():
    """A dataset of bytes, wider than the block of columns that is scaled at a time."""
    arrays = {"x": PIXELS, "y": np.arange(40) % 10}
    scalings = ("unit", "standard", "none", "minmax", "lenet")
    return made(arrays, [f"p{j}" for j in range(300)], scalings=scalings, image=(3, 10, 10))


def test_bytes_become_float32(out):
    for scaling in ("unit", "standard", "none", "minmax"):
        prepared = load(prepare(pictures(), scaling, out=out))
        x, meta = prepared.arrays["x"], prepared.meta
        assert (x.dtype, meta["dtypes"]) == (np.float32, {"x": "float32", "y": "int64"})
        exact = (PIXELS - np.array(meta["offset"])) / np.array(meta["scale"])
        if scaling == "minmax":
            exact[:, 7] = 0
        np.testing.assert_allclose(x, exact, rtol=1e-7, atol=1e-7)
        if scaling == "unit":
            np.testing.assert_array_equal(x, (PIXELS / 255).astype(np.float32))
            assert (x.min(), x.max(), set(meta["scale"])) == (0, 1, {255.0})
        if scaling == "standard":
            np.testing.assert_array_equal(x[:, 7], 0)
            np.testing.assert_allclose(x.std(axis=0)[np.arange(300) != 7], 1, rtol=1e-5)


def test_other_arrays_than_x_and_y(out):
    arrays = {"winner": np.array([0, 2], np.int32), "loser": np.array([1, 0], ">i4"), "players": np.array(3)}
    notes = {"players": ["Ann", "Bea", "Cid"]}
    prepared = load(prepare(made(arrays, notes=notes, scalings=("none",)), "none", out=out))
    assert list(prepared.arrays) == ["winner", "loser", "players"]
    for key, array in arrays.items():
        np.testing.assert_array_equal(prepared.arrays[key], array)
    assert prepared.meta["dtypes"] == {"winner": "int32", "loser": "int32", "players": "int64"}
    assert (prepared.meta["rows"], prepared.meta["players"]) == (2, ["Ann", "Bea", "Cid"])


@pytest.mark.slow
def test_features_of_lenet(out):
    pytest.importorskip("torch")
    x = np.random.default_rng(3).integers(0, 256, (60, 784), dtype=np.uint8)
    images = made(
        {"x": x, "y": np.arange(60) % 10}, [f"p{j}" for j in range(784)], scalings=("lenet",), image=(1, 28, 28)
    )
    x = load(prepare(images, "lenet", out=out)).arrays["x"]
    assert (x.shape, x.dtype) == ((60, 84), np.float64)


def test_full_disk(tiny_disk):
    with pytest.raises(UserError, match="cannot write"):
        prepare("breast_cancer", out=tiny_disk / "a.npz")
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [
        ("sonar", (208, 60), [97, 111]),
        ("australian", (690, 14), [383, 307]),
        ("breast_cancer_original", (683, 9), [444, 239]),
        ("wine_quality_red", (1599, 11), [10, 53, 681, 638, 199, 18]),
    ],
)
def test_true_files(mirror, tmp_path, name, shape, counts):
    fetch(name, tmp_path / "raw")
    prepared = load(prepare(name, "standard", raw=tmp_path / "raw", out=tmp_path / "s.npz"))
    x, y = prepared.arrays["x"], prepared.arrays["y"]
    assert x.shape == shape
    assert np.unique(y, return_counts=True)[1].tolist() == counts
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(axis=0), 1, rtol=1e-12)
    raw = DATASETS[name].read(tmp_path / "raw").arrays["x"]
    np.testing.assert_allclose(x * prepared.meta["scale"] + prepared.meta["offset"], raw, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "outputs", "first", "last"),
    [
        pytest.param("hudson_bay", ["lynx", "hare"], [1900, 4.0, 30.0], [1920, 8.6, 24.7], marks=pytest.mark.mirror),
        ("van_der_pol", ["u1"], [0, -0.06490137651912407], [10, -0.15664748180816496]),
    ],
)
def test_true_series(request, tmp_path, name, outputs, first, last):
    if DATASETS[name].files:
        request.getfixturevalue("mirror")
    fetch(name, tmp_path / "raw")
    prepared = load(prepare(name, "none", raw=tmp_path / "raw", out=tmp_path / "a.npz"))
    rows = np.concatenate([prepared.arrays["x"], prepared.arrays["y"]], axis=1)
    assert prepared.meta["outputs"] == outputs
    np.testing.assert_array_equal(rows[[0, -1]], [first, last])
    np.testing.assert_array_equal(np.diff(rows[:, 0]), 1)


@pytest.mark.long
@pytest.mark.mirror
@pytest.mark.parametrize(("name", "mean"), [("mnist", 0.1306604762738429), ("fashion_mnist", 0.2860405969887955)])
def test_true_images(mirror, tmp_path, name, mean):
    """The means are those that everyone quotes."""
    fetch(name, tmp_path / "raw")
    prepared = load(prepare(name, "unit", raw=tmp_path / "raw", out=tmp_path / "a.npz"))
    x, y = prepared.arrays["x"], prepared.arrays["y"]
    assert (x.shape, x.dtype, y.dtype) == ((60000, 784), np.float32, np.int64)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949] if name == "mnist" else [6000] * 10
    assert np.bincount(y).tolist() == counts
    assert (x.min(), x.max()) == (0, 1)
    assert x.mean(dtype=np.float64) == pytest.approx(mean, rel=1e-6)


@pytest.mark.long
@pytest.mark.mirror
def test_true_tennis(mirror, tmp_path):
    fetch("tennis", tmp_path / "raw")
    prepared = load(prepare("tennis", "none", raw=tmp_path / "raw", out=tmp_path / "a.npz"))
    winner, loser, names = prepared.arrays["winner"], prepared.arrays["loser"], prepared.meta["players"]
    assert (winner.shape, loser.shape, int(prepared.arrays["players"])) == ((169405,), (169405,), 5524)
    assert len(names) == 5524 == len({*winner.tolist(), *loser.tolist()})
    assert [names[i] for i in winner[winner == loser]] == ["U Unknown"]  # one match of 1974, as it stands in the file
    assert names[int(np.bincount(winner).argmax())] == "Jimmy Connors"


@pytest.mark.mirror
def test_true_ratings(mirror, tmp_path):
    fetch("movielens", tmp_path / "raw")
    prepared = load(prepare("movielens", "none", raw=tmp_path / "raw", out=tmp_path / "a.npz"))
    user, x, y = (prepared.arrays[key] for key in ("user", "x", "y"))
    assert (x.shape, int(prepared.arrays["users"]), int(user.max())) == ((100000, 18), 943, 942)
    assert np.bincount(y).tolist() == [6110, 11370, 27145, 34174, 21201]
    assert set(np.unique(x)) == {0.0, 1.0}
    first = [name for name, flag in zip(prepared.meta["features"], x[0], strict=True) if flag]
    assert (user[0], y[0], first) == (195, 2, ["Comedy"])  # Kolya


# --- the catalogue, and files of one's own


def test_entries_are_complete():
    for name, one in DATASETS.items():
        assert one.name == name
        assert all((one.title, one.licence, one.citation))
        assert set(one.scalings) <= set(SCALINGS)
        assert ("unit" in one.scalings) == (one.image is not None)
        with pytest.raises(UserError, match=f"dataset {name} .*scaling"):
            prepare(name, ({*SCALINGS} - {*one.scalings}).pop())


def test_raw_files_are_pinned():
    files = [file for dataset in DATASETS.values() for file in dataset.files]
    assert len({file.name for file in files}) == len({(file.name, file.sha256) for file in files})
    for file in files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256), file
        assert file.url.startswith("https://") or file.name.startswith("fashion-mnist/"), file  # http alone
        assert all((file.bytes, file.licence, file.citation)), file
        assert re.fullmatch(r"[\w-]+/[\w.-]+", file.name), file


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_users_own_file(tmp_path, save):
    arrays = {
        "claims": np.array([1.5, 2.0], dtype=np.float32),
        "group": np.array([[1], [2]]),
        "seen": np.array([True, False]),
        "rate": np.array(0.5),
        "none": np.empty((0, 3)),
    }
    path = tmp_path / "mine.npz"
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
def test_unfit_arrays(tmp_path, arrays, message):
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_members_that_are_no_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(UserError, match=r"'notes\.txt'"):
        load(tmp_path / "mine.npz")


@pytest.mark.mirror
def test_printed_variance_of_tennis_is_below_that_of_all_strengths_found(mirror, tmp_path):
    """V_n of the gradient for mu has two equal entries for each match: it is 2 N^2 / B times the mean of p^2.

    p is the probability of the result that did not occur. Least squares over the strengths, which is not convex, ends far
    above the printed V_n.
    """
    fetch("tennis", tmp_path / "raw")
    arrays = load(prepare("tennis", "none", raw=tmp_path / "raw", out=tmp_path / "a.npz")).arrays
    winner, loser, players = arrays["winner"], arrays["loser"], int(arrays["players"])
    N, B = len(winner), 100
    assert (N, players) == (169_405, 5_524)

    def variance(theta):
        p = scipy.special.expit(theta[loser] - theta[winner])
        slope = -2 * p**2 * (1 - p)
        gradient = np.bincount(winner, slope, players) - np.bincount(loser, slope, players)
        return 2 * N / B * p @ p, 2 * N / B * gradient

    least = scipy.optimize.minimize(variance, np.zeros(players), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    assert least.fun == pytest.approx(1.12e8, rel=0.01)
    assert least.fun > 1.1 * 9.59e7  # printed in Table 1 of the joint paper
