"""Scores of PyMC models: against the model's own log density, and the posterior means that they sharpen."""

import os
import re

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=")  # in Python: compiling C would take longer than all of the tests

import numpy as np
import pytest

import lowvar
from lowvar.errors import UserError


@pytest.fixture(scope="module")
def pm():
    """PyMC, imported where it is used: it takes three seconds, and every worker reads this file."""
    return pytest.importorskip("pymc")


@pytest.fixture(scope="module")
def model(pm):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Uniform("share", 0.0, rate)  # its bounds are another variable's draws
        pm.Dirichlet("p", np.array([1.0, 2.0, 3.0]))
        pm.Normal("w", np.array([[1.0, 2.0], [3.0, 4.0]]), 1.0)
        pm.Deterministic("twice", 2 * rate)
        pm.Poisson("y", rate, observed=[3, 5, 4])
    return model


def draws(chains=4, number=30, seed=0):
    """Of the posterior: rate is Gamma(14, 4)."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(14, 1 / 4, size=(chains, number))
    w = np.array([[1.0, 2.0], [3.0, 4.0]]) + rng.normal(size=(chains, number, 2, 2))
    return {"rate": rate, "share": rate * rng.random((chains, number)), "w": w, "twice": 2 * rate,
            "p": rng.dirichlet([1, 2, 3], size=(chains, number))}  # fmt: skip


def test_scores_are_the_gradient_of_pymcs_own_density(model):
    points, scores = lowvar.scores(model, draws=draws())
    assert points.shape == scores.shape == (4, 30, 8)
    np.testing.assert_allclose(points[..., 0], np.log(draws()["rate"]), rtol=1e-12)
    log_density = model.compile_logp(jacobian=True)
    start = model.initial_point()

    def at(point):
        parts, k = {}, 0
        for value in model.value_vars:
            size = np.size(start[value.name])
            parts[value.name] = point[k : k + size].reshape(np.shape(start[value.name]))
            k += size
        return float(log_density(parts))

    for chain, draw in ((0, 0), (3, 29)):
        point, steps = points[chain, draw], 1e-5 * np.eye(8)
        differences = [(at(point + step) - at(point - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(scores[chain, draw], differences, rtol=1e-6, atol=1e-7)


def test_means_of_a_pymc_posterior(model):
    az = pytest.importorskip("arviz")
    tree = az.from_dict(draws()) if hasattr(az, "InferenceData") else az.from_dict({"posterior": draws()})
    found = lowvar.integrate(tree, model, ["rate", "w", "p"], "zero_variance")
    names = ["rate", "w[0, 0]", "w[0, 1]", "w[1, 0]", "w[1, 1]", "p[0]", "p[1]", "p[2]"]
    assert found.table["task"].tolist() == names
    np.testing.assert_allclose(found.value[:5], [14 / 4, 1, 2, 3, 4], rtol=1e-8)
    np.testing.assert_allclose(found.value[5:], np.array([1, 2, 3]) / 6, atol=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": None}, "draws: there is no variable 'rate'"),
        ({"rat": np.ones((4, 30))}, "draws: unknown variable 'rat'"),
        ({"w": np.ones((4, 30, 2))}, "'w' has shape (4, 30, 2)"),
        ({"share": 99 * np.ones((4, 30))}, "draws: 'share', chain 0, draw 0: the value is outside"),
    ],
)  # fmt: skip
def test_what_is_refused(model, change, message):
    given = {name: array for name, array in (draws() | change).items() if array is not None}
    with pytest.raises(UserError, match=re.escape(message)):
        lowvar.scores(model, draws=given)


def test_discrete_variables_and_data_are_refused(pm):
    with pm.Model() as model:
        pm.Poisson("count", 3.0)
    with pytest.raises(UserError, match="the variable 'count' is discrete and has no score: marginalise it"):
        lowvar.scores(model, draws={"count": np.arange(9)})
    with pytest.raises(UserError, match="data: a PyMC model has its own data; give the draws alone"):
        lowvar.scores(model, {"y": 1}, {"count": np.arange(9)})


@pytest.mark.long
def test_the_page(pm, repository):
    """Four chains of NUTS, as docs/posterior-expectations.md has them."""
    page = (repository / "docs" / "posterior-expectations.md").read_text()
    block = next(one for one in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "pymc" in one)
    names = {}
    exec(block, names)
    assert abs(names["result"].value[0] - 14 / 4) < 1e-6
