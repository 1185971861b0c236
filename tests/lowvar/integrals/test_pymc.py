"""Scores of PyMC models: against the model's own log density, and the posterior means that they sharpen."""

import os
import re

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=")  # in Python: compiling C would take longer than all of the tests

import numpy as np
import pytest
from posterior_trees import posterior_tree

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
    shapes = {value.name: np.shape(model.initial_point()[value.name]) for value in model.value_vars}
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])

    def at(point):
        parts = zip(shapes.items(), np.split(point, ends[:-1]), strict=True)
        return float(log_density({name: part.reshape(shape) for (name, shape), part in parts}))

    for chain, draw in ((0, 0), (3, 29)):
        point, steps = points[chain, draw], 1e-5 * np.eye(8)
        differences = [(at(point + step) - at(point - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(scores[chain, draw], differences, rtol=1e-6, atol=1e-7)


def test_means_of_a_pymc_posterior(model):
    found = lowvar.integrate(posterior_tree(draws()), model, ["rate", "w", "p"], "zero_variance")
    names = ["rate", "w[0, 0]", "w[0, 1]", "w[1, 0]", "w[1, 1]", "p[0]", "p[1]", "p[2]"]
    assert found.table["task"].tolist() == names
    np.testing.assert_allclose(found.value[:5], [14 / 4, 1, 2, 3, 4], rtol=1e-8)
    np.testing.assert_allclose(found.value[5:], np.array([1, 2, 3]) / 6, atol=0.02)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rate": None}, "'rate'"),
        ({"rat": np.ones((4, 30))}, "'rat'"),
        ({"w": np.ones((4, 30, 2))}, "'w' has shape"),
        ({"share": 99 * np.ones((4, 30))}, "'share', chain 0, draw 0"),
    ],
)
def test_mistakes(model, change, named):
    given = {name: array for name, array in (draws() | change).items() if array is not None}
    with pytest.raises(UserError, match=named):
        lowvar.scores(model, draws=given)


def test_discrete_variables_and_data_are_refused(pm):
    with pm.Model() as model:
        pm.Poisson("count", 3.0)
    for data, named in ((None, "'count' is discrete"), ({"y": 1}, "data")):
        with pytest.raises(UserError, match=named):
            lowvar.scores(model, data, {"count": np.arange(9)})


@pytest.mark.long
def test_the_page(pm, repository):
    """Four chains of NUTS, as docs/posterior-expectations.md has them."""
    page = (repository / "docs" / "posterior-expectations.md").read_text()
    block = next(one for one in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "pymc" in one)
    names = {}
    exec(block, names)
    assert abs(names["result"].value[0] - 14 / 4) < 1e-6
