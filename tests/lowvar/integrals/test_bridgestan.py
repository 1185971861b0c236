"""Scores of Stan models: ``bridgestan.StanModel`` as it is installed, over a model behind its C interface.

BridgeStan downloads Stan's sources when it first compiles a ``.stan`` file, so the library that ``StanModel`` loads here
is ``by_hand.c``: the object, its conversions and its errors are BridgeStan's own. ``test_stan_itself.py`` compiles Stan.
"""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lowvar
from lowvar.errors import UserError

bridgestan = pytest.importorskip("bridgestan")
CC = shutil.which("cc")
MEAN = 1 + np.arange(2)[:, None] + 10 * (1 + np.arange(3))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if CC is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("stan") / "by_hand_model.so"
    version = zip(("MAJOR", "MINOR", "PATCH"), bridgestan.__version.__version_info__, strict=True)
    flags = [f"-DBS_{part}={number}" for part, number in version]
    source = Path(__file__).with_name("by_hand.c")
    subprocess.run([CC, "-shared", "-fPIC", *flags, "-o", library, source, "-lm"], check=True)
    return str(library)


@pytest.fixture(scope="module")
def model(library):
    return bridgestan.StanModel(library)


def draws(chains=4, number=50, seed=0):
    """Of the posterior, by parameter, with a transformed one."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(14, 1 / 4, size=(chains, number))
    return {"rate": rate, "w": MEAN + rng.normal(size=(chains, number, 2, 3)), "twice": 2 * rate}


def test_points_and_scores_are_stans(model):
    by_site = draws()
    points, scores = lowvar.scores(model, draws=by_site)
    assert points.shape == scores.shape == (4, 50, 7)
    np.testing.assert_allclose(points[..., 0], np.log(by_site["rate"]), rtol=1e-14)
    np.testing.assert_allclose(scores[..., 0], 14 - 4 * by_site["rate"], rtol=1e-12, atol=1e-12)  # with the Jacobian
    columns = by_site["w"].transpose(0, 1, 3, 2).reshape(4, 50, 6)  # Stan's order is by columns
    np.testing.assert_array_equal(points[..., 1:], columns)
    np.testing.assert_allclose(scores[..., 1:], MEAN.T.ravel() - columns, rtol=1e-12, atol=1e-12)
    flat = {name: array.reshape(200, *array.shape[2:]) for name, array in by_site.items()}
    np.testing.assert_array_equal(lowvar.scores(model, draws=flat)[1], scores.reshape(200, 7))


def tree():
    az = pytest.importorskip("arviz")
    return az.from_dict(draws()) if hasattr(az, "InferenceData") else az.from_dict({"posterior": draws()})


def test_means_of_a_stan_posterior(model):
    found = lowvar.integrate(tree(), model, ["rate", "w"], "zero_variance")
    assert found.table["task"].tolist()[:3] == ["rate", "w[0, 0]", "w[0, 1]"]
    np.testing.assert_allclose(found.value, [14 / 4, *MEAN.ravel()], rtol=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": None}, "draws: there is no parameter 'rate'"),
        ({"rat": np.ones((4, 50))}, "draws: unknown parameter 'rat'"),
        ({"w": np.ones((4, 50, 3, 2))}, "'w' has shape (4, 50, 3, 2)"),
        ({"rate": np.ones((4, 49))}, "sites have different numbers of draws"),
        ({"rate": -np.ones((4, 50))}, "draws: chain 0, draw 0: Stan rejects this draw"),
        ({"w": np.full((4, 50, 2, 3), np.nan)}, "draws: chain 0, draw 0: the draw is outside its support or not finite"),
    ],
)  # fmt: skip
def test_what_is_refused(model, change, message):
    given = {name: array for name, array in (draws() | change).items() if array is not None}
    with pytest.raises(UserError) as raised:
        lowvar.scores(model, draws=given)
    assert message in str(raised.value)


def test_a_stan_model_has_its_data(model):
    with pytest.raises(UserError, match="data: a StanModel has its own data; give the draws alone"):
        lowvar.scores(model, {"y": [1]}, draws())
    with pytest.raises(UserError, match="draws: give a mapping of sites to arrays"):
        lowvar.scores(model)


def test_the_page(repository, library):
    """The Stan block of docs/posterior-expectations.md, with a compiled library, which ``StanModel`` takes too."""
    page = (repository / "docs" / "posterior-expectations.md").read_text()
    block = next(one for one in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "bridgestan" in one)
    names = {"stan_file": library, "data_file": '{"y": [3, 5, 4]}', "draws": tree()}
    exec(block, names)
    assert abs(names["result"].value[0] - 14 / 4) < 1e-8
