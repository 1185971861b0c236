"""Scores: those of a model, those of another density, and what is said of wrong ones."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from samples_of_normal import normal

import lowvar
from lowvar.errors import UserError


def test_right_scores_are_seldom_suspected_and_wrong_ones_often():
    from lowvar.integrals.inputs import doubt

    def suspected(draw, chain=False):
        found = 0
        for seed in range(100):
            x, scores = draw(np.random.default_rng(seed))
            found += doubt(x, scores, chain) is not None
        return found

    def gamma(rng):
        u = np.log(rng.gamma(2.0, size=(60, 2)))
        return u, 2 - np.exp(u)

    def chain(rng):
        x = np.zeros((400, 2))
        for i in range(1, 400):
            x[i] = 0.9 * x[i - 1] + np.sqrt(1 - 0.81) * rng.normal(size=2)
        return x, -x

    def scaled(factor):
        def draw(rng):
            x = rng.normal(size=(120, 2))
            return x, -factor * x

        return draw

    vouched = np.random.default_rng(0).normal(size=(1000, 60, 1))
    assert sum(doubt(x, -x, exact=True) is not None for x in vouched) <= 6  # 0.1 % by chance
    assert suspected(gamma) <= 5
    assert suspected(scaled(1.0)) <= 5
    assert suspected(chain, chain=True) <= 8
    assert suspected(scaled(2.0)) >= 95
    assert suspected(scaled(1.3)) >= 20
    assert suspected(lambda rng: (gamma(rng)[0], 1 - np.exp(gamma(rng)[0]))) >= 90  # no Jacobian


def test_scores_of_a_numpyro_model():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        mean = numpyro.deterministic("mean", 2 * scale)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    draws = {"scale": np.array([0.5, 2.0]), "mean": np.array([1.0, 4.0])}
    points, scores = lowvar.scores(model, {"y": jnp.array(1.5)}, draws)
    u = np.log(draws["scale"])
    exact = -u + (1.5 - 2 * np.exp(u)) * 2 * np.exp(u)  # standard normal in u = log scale, and the likelihood
    np.testing.assert_allclose(points[:, 0], u, atol=1e-12)
    np.testing.assert_allclose(scores[:, 0], exact, atol=1e-10)
    for wrong, message in (
        ({"mean": np.zeros(2)}, "no site 'scale'"),
        ({"scale": np.ones((2, 5, 3))}, "has shape"),
        ({"scale": np.ones((5, 2))}, "these are 5 chains of 2 draws"),
        (np.ones(2), "(mcmc.get_samples())"),
    ):
        with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)")):
            lowvar.scores(model, {"y": jnp.array(1.5)}, wrong)


def line(x, y, batch_size=None):
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    with numpyro.plate("rows", len(y), subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, scale), obs=y[index])


LINE = {"x": np.random.default_rng(5).normal(size=(20, 2)), "y": np.random.default_rng(6).normal(size=20)}
DRAWS = {"w": np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]])}


@pytest.mark.parametrize(
    "data", [LINE, {k: v.tolist() for k, v in LINE.items()} | {"x": LINE["x"]}, LINE | {"batch_size": 4}],
    ids=["numpy", "lists", "batch_size"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [float, int])
def test_scores_of_parameters_and_of_data_of_every_kind(data, kind):
    """At the parameters that are given, on all rows."""
    fitted = {"scale": 3.0, "w_auto_loc": np.zeros(2), "w_auto_scale": np.ones(2)}
    points, scores = lowvar.scores(line, data, {"w": DRAWS["w"].astype(kind)}, params=fitted)
    np.testing.assert_array_equal(points, DRAWS["w"])
    exact = (LINE["y"] - DRAWS["w"] @ LINE["x"].T) @ LINE["x"] / 9 - DRAWS["w"]
    np.testing.assert_allclose(scores, exact, rtol=1e-10)


@pytest.mark.parametrize(
    ("params", "draws", "data", "message"),
    [
        (None, {}, {}, "line: the model has parameters (numpyro.param) without values: scale; give the fitted ones"),
        ({"scale": -1.0}, {}, {}, "params: 'scale' is outside its constraint, or not finite"),
        ({"scale": [1.0, 2.0]}, {}, {}, "params: 'scale' has shape (2,); the model's has ()"),
        ({"scale": "x"}, {}, {}, "params: 'scale' holds text, not numbers"),
        ({"scale": 1.0, "shift": 2.0}, {}, {}, "params: unknown parameter 'shift'"),
        (3.0, {}, {}, "params: give a mapping of numpyro.param sites to values, or a Fit, not float"),
        ({"scale": 1.0}, {"scale": np.ones(3)}, {}, "draws: 'scale' is a parameter (numpyro.param); give its value in"),
        ({"scale": 1.0}, {"v": np.ones(3)}, {}, "draws: unknown site 'v' (known: w)"),
        ({"scale": 1.0}, {"w": np.ones((0, 2))}, {}, "draws: the site 'w' has no rows; give at least one draw"),
        ({"scale": 1.0}, {"w": [["a", "b"]]}, {}, "draws: 'w' is not an array of numbers"),
        ({"scale": 1.0}, {"w": [[1.0, 2.0], [np.nan, 0.0]]}, {}, "draws: site 'w', row 1: the value is outside its"),
        ({"scale": 1.0}, {}, {"y": np.full(20, np.nan)}, "draws: site 'w', row 0: the gradient of the log density is not"),
        ({"scale": 1.0}, {}, {"rows": 3}, "line: the model does not accept these data (x, y, rows)"),
    ],
)  # fmt: skip
def test_wrong_input_of_scores(params, draws, data, message):
    with pytest.raises(UserError, match=re.escape(message)):
        lowvar.scores(line, LINE | data, DRAWS | draws, params=params)


def test_wrong_scores_are_told_once_with_what_came_of_it():
    x = normal(300)
    with pytest.warns(UserWarning, match="Monte Carlo's estimate was returned"):
        found = lowvar.integrate(x, -2 * x, x[:, 0] ** 2)
    assert sum("not match the density" in note for note in found.notes) == 1
    assert found.method == "monte_carlo"


def test_wrong_scores_are_noted_whoever_vouches_for_them():
    x = normal(300)
    shuffled = np.random.default_rng(1).permutation(300)
    wrong = {
        "of other rows": -x[shuffled],
        "of the coordinates in another order": -x[:, ::-1],
        "of standardised samples, twice as wide": -2 * x,
        "clipped": np.clip(-x, -1, 1),
        "of unit length": -x / np.linalg.norm(x, axis=1, keepdims=True),
        "truncated to whole numbers": (-x).astype(int),
        "sorted": -np.sort(x, axis=0),
        "of the negative density": x,
        "constant in a coordinate": np.column_stack([-x[:, 0], np.ones(300)]),
    }
    for kind, scores in wrong.items():
        for method in ("zero_variance", "auto"):
            with pytest.warns(UserWarning, match="density"):
                found = lowvar.integrate(x, scores, x[:, 0] * x[:, 1] + x[:, 0] ** 2, method, exact_scores=True)
            assert any("density" in note for note in found.notes), kind
            apart = abs(found.value - found.table["monte_carlo"]) / found.table["monte_carlo_se"]
            assert (apart[0] > 3) == any("away" in note for note in found.notes), kind


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("noise", [np.float32, lambda s: np.round(s, 3)])
def test_scores_of_few_digits_are_no_wrong_scores(noise):
    x = normal(300)
    found = lowvar.integrate(x, noise(-x), 1e5 + x[:, 0] ** 2, "zero_variance", order=2, exact_scores=True)
    assert abs(found.value[0] - 1e5 - 1) < 1e-3
    assert ["polynomial" in note for note in found.notes] == [True]


def test_many_integrals_are_not_noted_for_their_number():
    """The means of 200 coordinates are independent: beyond 3 standard errors is one in two such calls by chance."""
    noted = 0
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(1000, 200))
        found = lowvar.integrate(x, -x, x, "zero_variance", order=1, exact_scores=True, polynomial=True)
        noted += any("standard errors of Monte Carlo" in note for note in found.notes)
    assert noted <= 1
