"""Scores of Stan models: ``bridgestan.StanModel`` as it is installed, over a model behind its C interface.

BridgeStan downloads Stan's sources when it first compiles a ``.stan`` file, so the library that ``StanModel`` loads
here is ``by_hand.c``: the object, its conversions and its errors are BridgeStan's own. Where Stan's sources and a compiler
are there, or ``LOWVAR_STAN_LIBRARY`` names the library of ``transforms.stan``, the long test has Stan itself.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from posterior_trees import posterior_tree

import lowvar
from lowvar.errors import UserError

bridgestan = pytest.importorskip("bridgestan")
HERE = Path(__file__).parent
MEAN = 1 + np.arange(2)[:, None] + 10 * (1 + np.arange(3))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("stan") / "by_hand_model.so"
    version = zip(("MAJOR", "MINOR", "PATCH"), bridgestan.__version.__version_info__, strict=True)
    flags = [f"-DBS_{part}={number}" for part, number in version]
    subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", library, HERE / "by_hand.c", "-lm"], check=True)
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


def test_means_of_a_stan_posterior(model):
    found = lowvar.integrate(posterior_tree(draws()), model, ["rate", "w"], "zero_variance")
    assert found.table["task"].tolist()[:3] == ["rate", "w[0, 0]", "w[0, 1]"]
    np.testing.assert_allclose(found.value, [14 / 4, *MEAN.ravel()], rtol=1e-10)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rate": None}, "'rate'"),
        ({"rat": np.ones((4, 50))}, "'rat'"),
        ({"w": np.ones((4, 50, 3, 2))}, "'w' has shape"),
        ({"rate": np.ones((4, 49))}, "different numbers of draws"),
        ({"rate": -np.ones((4, 50))}, "chain 0, draw 0: Stan rejects"),
        ({"w": np.full((4, 50, 2, 3), np.nan)}, "chain 0, draw 0"),
    ],
)
def test_mistakes(model, change, named):
    given = {name: array for name, array in (draws() | change).items() if array is not None}
    with pytest.raises(UserError, match=named):
        lowvar.scores(model, draws=given)


def test_a_stan_model_has_its_data(model):
    for words, argument in ((({"y": [1]}, draws()), "data"), ((), "draws")):
        with pytest.raises(UserError, match=argument):
            lowvar.scores(model, *words)


def test_the_page(repository, library):
    """The Stan block of docs/posterior-expectations.md, with a compiled library, which ``StanModel`` takes too."""
    page = (repository / "docs" / "posterior-expectations.md").read_text()
    block = next(
        one for one in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "bridgestan" in one
    )
    names = {"stan_file": library, "data_file": '{"y": [3, 5, 4]}', "draws": posterior_tree(draws())}
    exec(block, names)
    assert abs(names["result"].value[0] - 14 / 4) < 1e-8


@pytest.mark.long
def test_transforms_shapes_and_jacobians_of_stan_itself():
    """Which no model written by hand has; ``u`` adds a factor ``rate`` to the density of ``rate``."""
    library = os.environ.get("LOWVAR_STAN_LIBRARY")
    if library is None:
        sources = Path(os.environ.get("BRIDGESTAN", Path.home() / ".bridgestan"))
        if not sources.is_dir() or shutil.which("make") is None or shutil.which("g++") is None:
            pytest.skip("BridgeStan's sources or a compiler are not here, nor LOWVAR_STAN_LIBRARY")
        library = str(bridgestan.compile_model(HERE / "transforms.stan"))
    model = bridgestan.StanModel(library, data='{"N": 3, "y": [3, 5, 4]}')
    rng, shape = np.random.default_rng(0), (4, 250)
    rate, r = rng.gamma(15, 1 / 4, size=shape), 2 * rng.beta(2, 2, size=shape) - 1
    correlation = np.stack([np.stack([np.ones(shape), r], -1), np.stack([r, np.ones(shape)], -1)], -1)
    posterior = {"rate": rate, "p": rng.dirichlet([1, 2, 3], size=shape), "L": correlation, "twice": 2 * rate,
                 "w": rng.normal(size=(*shape, 2, 3)), "u": rate * rng.random(shape), "extra": rate + 1}  # fmt: skip
    points, scores = lowvar.scores(model, draws=posterior)
    for point, score in ((points[0, 0], scores[0, 0]), (points[1, 2], scores[1, 2])):
        steps = 1e-6 * np.eye(11)
        slopes = [(model.log_density(point + step) - model.log_density(point - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(score, slopes, rtol=1e-5, atol=1e-6)
    found = lowvar.integrate(posterior, model, ["rate", "p", "w", "u"], "zero_variance", chain=True).table
    exact = np.array([15 / 4, 1 / 6, 2 / 6, 3 / 6, *np.zeros(6), 15 / 8])
    assert (np.abs(found["value"] - exact) < 5 * found["standard_error"] + 1e-9).all(), found
    assert found["gain"].min() > 50
