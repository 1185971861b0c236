"""The wines: the true file, and files that are not it."""

import numpy as np
import pytest

from lowvar_studies.datasets.catalogue import DATASETS
from lowvar_studies.datasets.fetch import fetch
from lowvar_studies.datasets.load import load
from lowvar_studies.datasets.prepare import prepare

NAMES = (
    "fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide",
    "total sulfur dioxide", "density", "pH", "sulphates", "alcohol",
)  # fmt: skip
HEADER = ";".join(f'"{name}"' for name in (*NAMES, "quality"))
ROW = "7.4;0.7;0;1.9;0.076;11;34;0.9978;3.51;0.56;9.4;5"
TEXT = "\n".join([HEADER, *[ROW] * 1599]) + "\n"


def read(folder, text):
    path = folder / "uci/winequality-red.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return DATASETS["wine_quality_red"].read(folder)


def test_reads_what_is_between_semicolons(tmp_path):
    table = read(tmp_path, TEXT)
    assert table.names == NAMES
    assert {key: value.shape for key, value in table.arrays.items()} == {"x": (1599, 11), "y": (1599, 1)}
    np.testing.assert_array_equal(table.arrays["x"][-1], [float(field) for field in ROW.split(";")[:-1]])
    assert table.arrays["y"][0] == 5.0


@pytest.mark.mirror
def test_the_true_wines(true_mirror, tmp_path):
    fetch("wine_quality_red", tmp_path)
    found = load(prepare("wine_quality_red", "standard", tmp_path, tmp_path / "wine.npz"))
    x, y = found.arrays["x"], found.arrays["y"]
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(axis=0), 1, rtol=1e-12)
    assert np.unique(y, return_counts=True)[1].tolist() == [10, 53, 681, 638, 199, 18]
    assert found.meta["outputs"] == ["quality"]
    assert tuple(found.meta["features"]) == NAMES
