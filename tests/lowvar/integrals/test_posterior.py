"""``integrate`` and ``scores`` with draws by site: NumPyro's MCMC, ArviZ's objects, dicts, and users' mistakes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from posterior_trees import posterior_tree

import lowvar
from lowvar.errors import UserError

Y = np.array([3.0, 5.0, 4.0])


def model(y, scale=1.0):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("w", dist.Normal(0.0, scale).expand([2]).to_event(1))
    numpyro.deterministic("twice", 2 * rate)
    numpyro.sample("y", dist.Poisson(rate), obs=y)


BOUND = functools.partial(model, y=jnp.asarray(Y))


def draws(chains=4, number=60, seed=0):
    """Of the posterior: rate is Gamma(14, 4), w is N(0, I)."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(14, 1 / 4, size=(chains, number))
    return {"rate": rate, "w": rng.normal(size=(chains, number, 2)), "twice": 2 * rate}


@pytest.fixture(scope="module")
def mcmc():
    options = {"num_warmup": 150, "num_samples": 60, "num_chains": 2, "chain_method": "vectorized"}
    run = numpyro.infer.MCMC(numpyro.infer.NUTS(model), progress_bar=False, **options)
    run.run(jax.random.key(0), jnp.asarray(Y), scale=1.0)
    return run


def test_an_mcmc_is_enough(mcmc):
    found = lowvar.integrate(mcmc, method="zero_variance")
    assert found.table["task"].tolist() == ["rate", "twice", "w[0]", "w[1]"]
    np.testing.assert_allclose(found.value, [3.5, 7, 0, 0], atol=1e-10)
    points, scores = lowvar.scores(mcmc)
    assert points.shape == scores.shape == (2, 60, 3)
    by_chain = mcmc.get_samples(group_by_chain=True)
    np.testing.assert_allclose(scores[..., 0], 14 - 4 * by_chain["rate"], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(lowvar.scores(model, {"y": Y}, mcmc)[1], scores)
    flat = lowvar.scores(model, {"y": Y}, mcmc.get_samples())
    np.testing.assert_allclose(flat[1], scores.reshape(120, 3), rtol=1e-12)


def test_an_mcmc_that_has_not_run_and_one_without_a_model():
    fresh = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(UserError, match="no draws yet"):
        lowvar.integrate(fresh)
    kernel = numpyro.infer.NUTS(potential_fn=lambda z: 0.5 * (z**2).sum())
    bare = numpyro.infer.MCMC(kernel, num_warmup=5, num_samples=10, progress_bar=False)
    bare.run(jax.random.key(0), init_params=jnp.zeros(2))
    with pytest.raises(UserError, match="potential_fn"):
        lowvar.integrate(bare, values="z")


def test_a_datatree_needs_its_model_and_reads_no_warm_up():
    tree = posterior_tree(
        draws(), warmup_posterior={name: 100 + array for name, array in draws().items()}, save_warmup=True
    )
    found = lowvar.integrate(tree, BOUND, "rate", "zero_variance")
    np.testing.assert_allclose(found.value, 3.5, atol=1e-10)
    for given in (tree.posterior, draws()):
        np.testing.assert_array_equal(lowvar.integrate(given, BOUND, "rate", "zero_variance").value, found.value)
    with pytest.raises(UserError, match=r"scores: .* model"):
        lowvar.integrate(tree, values="rate")
    with pytest.raises(UserError, match="the model does not accept these data"):
        lowvar.integrate(tree, model, "rate")


def test_a_datatree_of_xarray():
    """As ArviZ 1 and nutpie return it."""
    xarray = pytest.importorskip("xarray")
    groups = {
        name: xarray.Dataset({key: (("chain", "draw", *"abc"[: a.ndim - 2]), a) for key, a in draws(seed=seed).items()})
        for seed, name in enumerate(("posterior", "warmup_posterior"))
    }
    tree = xarray.DataTree.from_dict(groups)
    for given in (tree, tree["posterior"], groups["posterior"], groups["posterior"].transpose("draw", ...)):
        np.testing.assert_allclose(lowvar.integrate(given, BOUND, "rate", "zero_variance").value, 3.5, atol=1e-10)
    for wrong, message in (
        (xarray.DataTree.from_dict({"prior": groups["posterior"]}), "no group 'posterior'"),
        (groups["posterior"][["rate"]].stack(sample=("chain", "draw")), "'rate' has the dimensions sample"),
    ):
        with pytest.raises(UserError, match=message):
            lowvar.integrate(wrong, BOUND, "rate")


@pytest.mark.parametrize(
    "values",
    [
        "rate",
        ["rate"],
        lambda site: site["rate"],
        lambda site: {"rate": jnp.asarray(site["rate"])},
        {"rate": draws()["rate"]},
        draws()["rate"],
        draws()["rate"].ravel(),
    ],
    ids=["name", "names", "function", "function to a dict", "dict", "by chain", "flat"],
)
def test_integrands_of_every_kind(values):
    found = lowvar.integrate(draws(), BOUND, values, "zero_variance")
    np.testing.assert_allclose(found.value, [3.5], atol=1e-10)
    assert found.info["effective"][0] != 240, "along chains"


def test_rows_without_chains_are_independent():
    flat = {name: array.reshape(240, *array.shape[2:]) for name, array in draws().items()}
    found = lowvar.integrate(flat, BOUND, ["rate", "w"], "zero_variance")
    assert (found.info["effective"] == 240).all()
    assert found.table["task"].tolist() == ["rate", "w[0]", "w[1]"]
    assert lowvar.integrate(draws(), BOUND, "rate", "zero_variance", chain=False).info["effective"] == 240


def test_a_dict_of_unconstrained_samples_takes_a_dict_of_scores():
    z = np.random.default_rng(0).normal(size=(200, 3))
    samples, scores = {"a": z[:, 0], "b": z[:, 1:]}, {"b": -z[:, 1:], "a": -z[:, 0]}
    found = lowvar.integrate(samples, scores, lambda site: site["a"] ** 2 + site["b"][:, 1], "zero_variance")
    np.testing.assert_allclose(found.value, [1.0], atol=1e-10)
    chains = [{name: array.reshape(2, 100, *array.shape[1:]) for name, array in of.items()} for of in (samples, scores)]
    along = lowvar.integrate(*chains, "b", "zero_variance", chain=True)
    np.testing.assert_allclose(along.value, [0, 0], atol=1e-10)


def nan_at(chain, draw):
    """Draws of chains of unequal length, as xarray pads them."""
    given = draws()
    given["rate"][chain, draw:] = np.nan
    return given


AMBIGUOUS = {"a": np.ones((4, 50)), "b": np.ones((4, 50, 2))}


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ((draws(), BOUND, "rat"), "values: .*'rat'"),
        ((draws(), BOUND, lambda site: site["rat"]), "values: .*'rat'"),
        ((draws(), BOUND, draws()["rate"][:3]), "values: "),
        ((draws(), BOUND, {"f": np.ones((4, 59))}), "values: 'f'"),
        ((draws(), BOUND, {"f": 1j * draws()["rate"]}), "values: 'f'"),
        ((draws(), BOUND, {"f": np.ma.masked_greater(draws()["rate"], 4)}), "values: 'f' is masked"),
        ((nan_at(3, 50), BOUND, "w"), "draws: site 'rate', chain 3, draw 50"),
        ((draws() | {"rate": -draws()["rate"]}, BOUND, "w"), "draws: site 'rate', chain 0, draw 0"),
        (({"rate": draws()["rate"]}, BOUND, "rate"), "draws: .*'w'"),
        ((draws(60, 4), BOUND, "rate"), "draws: these are 60 chains of 4 draws"),
        ((draws(), -np.ones((4, 60, 3)), "rate"), "scores"),
        ((draws(), {"rate": draws()["rate"]}, "rate"), "scores: .*'w'"),
        (({}, BOUND, "rate"), "samples"),
        ((AMBIGUOUS, AMBIGUOUS, "a", "monte_carlo"), "chain=True"),
        (({"a": [[1, 2], [3]]}, {"a": [0.0, 0.0]}, "a"), r"samples\['a'\]"),
        (({"a": np.ma.ones(9)}, {"a": np.ones(9)}, "a"), r"samples\['a'\].* masked"),
        ((np.ones((9, 2)), BOUND, np.ones(9)), "scores"),
        ((np.ones((9, 2)),), "scores"),
        ((np.ones((9, 2)), np.ones((9, 2)), "rate"), "values"),
    ],
)
def test_mistakes(words, argument):
    with pytest.raises(UserError, match=argument):
        lowvar.integrate(*words)


def test_divergences_are_told():
    diverging = np.zeros((4, 60), bool)
    diverging[1, :7] = True
    tree = posterior_tree(draws(), sample_stats={"diverging": diverging})
    with pytest.warns(UserWarning, match="7 of 240 transitions diverged"):
        lowvar.integrate(tree, BOUND, "rate", "zero_variance")


def test_chains_by_site_are_checked_as_those_of_an_array():
    x = np.random.default_rng(0).normal(size=(4, 200, 2))
    x[1, :, 1] += 2
    given = {"a": x[..., 0], "b": x[..., 1:]}
    scores = {name: -value for name, value in given.items()}
    with pytest.warns(UserWarning, match="have not mixed"):
        by_site = lowvar.integrate(given, scores, "a", chain=True)
    with pytest.warns(UserWarning, match="have not mixed"):
        assert lowvar.integrate(x, -x, x[..., 0], chain=True, names="a").notes == by_site.notes


def line(x, y, batch_size=None):
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
def test_scores_at_given_parameters_are_of_all_rows(data, kind):
    fitted = {"scale": 3.0, "w_auto_loc": np.zeros(2), "w_auto_scale": np.ones(2)}
    points, scores = lowvar.scores(line, data, {"w": DRAWS["w"].astype(kind)}, params=fitted)
    np.testing.assert_array_equal(points, DRAWS["w"])
    exact = (LINE["y"] - DRAWS["w"] @ LINE["x"].T) @ LINE["x"] / 9 - DRAWS["w"]
    np.testing.assert_allclose(scores, exact, rtol=1e-10)


@pytest.mark.parametrize(
    ("params", "draws", "data", "argument"),
    [
        (None, {}, {}, "without values: scale"),
        ({"scale": -1.0}, {}, {}, "params: 'scale'"),
        ({"scale": [1.0, 2.0]}, {}, {}, "params: 'scale'"),
        ({"scale": 1.0, "shift": 2.0}, {}, {}, "params: .*'shift'"),
        (3.0, {}, {}, "params"),
        ({"scale": 1.0}, {"scale": np.ones(3)}, {}, "draws: 'scale' is a parameter"),
        ({"scale": 1.0}, {"v": np.ones(3)}, {}, "draws: .*'v'"),
        ({"scale": 1.0}, {"w": np.ones((0, 2))}, {}, "draws: .*'w' has no rows"),
        ({"scale": 1.0}, {"w": [["a", "b"]]}, {}, "draws: 'w'"),
        ({"scale": 1.0}, {"w": [[1.0, 2.0], [np.nan, 0.0]]}, {}, "draws: site 'w', row 1"),
        ({"scale": 1.0}, {}, {"y": np.full(20, np.nan)}, "draws: site 'w', row 0: the gradient"),
        ({"scale": 1.0}, {}, {"rows": 3}, "the model does not accept these data"),
    ],
)
def test_mistakes_of_scores(params, draws, data, argument):
    with pytest.raises(UserError, match=argument):
        lowvar.scores(line, LINE | data, DRAWS | draws, params=params)
