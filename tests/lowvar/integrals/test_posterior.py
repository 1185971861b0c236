"""``integrate`` and ``scores`` with draws by site: NumPyro's MCMC, ArviZ's objects, dicts, and users' mistakes."""

import functools
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowvar
from lowvar.errors import UserError
from lowvar.integrals.monte_carlo import split_r_hat

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


def tree_of(by_site, **groups):
    az = pytest.importorskip("arviz")
    return az.from_dict(by_site, **groups) if hasattr(az, "InferenceData") else az.from_dict({"posterior": by_site})


@pytest.fixture(scope="module")
def mcmc():
    kernel = numpyro.infer.NUTS(model)
    run = numpyro.infer.MCMC(
        kernel, num_warmup=150, num_samples=60, num_chains=2, chain_method="vectorized", progress_bar=False
    )
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
    again = lowvar.scores(model, {"y": Y}, mcmc)
    np.testing.assert_array_equal(again[1], scores)
    flat = lowvar.scores(model, {"y": Y}, mcmc.get_samples())
    np.testing.assert_allclose(flat[1], scores.reshape(120, 3), rtol=1e-12)


def test_an_mcmc_that_has_not_run_and_one_without_a_model():
    fresh = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(UserError, match="draws: this MCMC has no draws yet; call its run"):
        lowvar.integrate(fresh)
    kernel = numpyro.infer.NUTS(potential_fn=lambda z: 0.5 * (z**2).sum())
    bare = numpyro.infer.MCMC(kernel, num_warmup=5, num_samples=10, progress_bar=False)
    bare.run(jax.random.key(0), init_params=jnp.zeros(2))
    with pytest.raises(UserError, match="samples a potential_fn, which has no sites"):
        lowvar.integrate(bare, values="z")
    with pytest.raises(UserError, match=r"the sampler of this MCMC \(NUTS\) has no model"):
        lowvar.scores(bare)


def test_a_datatree_needs_its_model_and_reads_no_warm_up():
    far = {name: 100 + array for name, array in draws().items()}
    tree = tree_of(draws(), warmup_posterior=far, save_warmup=True)
    found = lowvar.integrate(tree, BOUND, "rate", "zero_variance")
    np.testing.assert_allclose(found.value, 3.5, atol=1e-10)
    for given in (tree.posterior, draws()):
        np.testing.assert_array_equal(lowvar.integrate(given, BOUND, "rate", "zero_variance").value, found.value)
    with pytest.raises(UserError, match="scores: draws by site need their model"):
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
    empty = xarray.DataTree.from_dict({"prior": groups["posterior"]})
    with pytest.raises(UserError, match=r"there is no group 'posterior' with variables \(groups: prior\)"):
        lowvar.integrate(empty, BOUND, "rate")
    stacked = groups["posterior"][["rate"]].stack(sample=("chain", "draw"))
    with pytest.raises(UserError, match="'rate' has the dimensions sample; it must have chain and draw"):
        lowvar.integrate(stacked, BOUND, "rate")


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((draws(), BOUND, "rat"), "values: unknown site 'rat'"),
        ((draws(), BOUND, lambda site: site["rat"]), "values: the function asks for 'rat'"),
        ((draws(), BOUND, draws()["rate"][:3]), "values: "),
        ((draws(), BOUND, {"f": np.ones((4, 59))}), "values: 'f' has shape (4, 59)"),
        ((draws(), BOUND, {"f": 1j * draws()["rate"]}), "values: 'f' is of type complex128"),
        ((draws(), BOUND, {"f": np.ma.masked_greater(draws()["rate"], 4)}), "values: 'f' is masked"),
        ((nan_at(3, 50), BOUND, "w"), "draws: site 'rate', chain 3, draw 50"),
        ((draws() | {"rate": -draws()["rate"]}, BOUND, "w"), "draws: site 'rate', chain 0, draw 0"),
        (({"rate": draws()["rate"]}, BOUND, "rate"), "draws: there is no site 'w'"),
        ((draws(60, 4), BOUND, "rate"), "draws: these are 60 chains of 4 draws"),
        ((draws(), -np.ones((4, 60, 3)), "rate"), "scores: with samples by site, give the model"),
        ((draws(), {"rate": draws()["rate"]}, "rate"), "scores: there is none for 'w'"),
        (({}, BOUND, "rate"), "samples: there are no sites"),
        (({"a": [[1, 2], [3]]}, {"a": [0.0, 0.0]}, "a"), "samples['a']"),
        (({"a": np.ma.ones(9)}, {"a": np.ones(9)}, "a"), "samples['a']: the array is masked"),
        ((np.ones((9, 2)), BOUND, np.ones(9)), "scores: a model needs draws by site"),
        ((np.ones((9, 2)),), "scores: give the gradient"),
        ((np.ones((9, 2)), np.ones((9, 2)), "rate"), "values: with samples as an array"),
    ],
)
def test_mistakes(words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        lowvar.integrate(*words)


def test_divergences_are_told():
    diverging = np.zeros((4, 60), bool)
    diverging[1, :7] = True
    tree = tree_of(draws(), sample_stats={"diverging": diverging})
    with pytest.warns(UserWarning, match="7 of 240 transitions diverged: the draws may miss a part of the posterior"):
        found = lowvar.integrate(tree, BOUND, "rate", "zero_variance")
    assert found.notes[0].startswith("7 of 240")


def test_chains_that_are_equal_or_stand_still_or_apart_are_told():
    x = np.random.default_rng(0).normal(size=(4, 200, 2))

    def notes(x):
        given = {"a": x[..., 0], "b": x[..., 1:]}
        scores = {name: -value for name, value in given.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            by_site = lowvar.integrate(given, scores, "a", chain=True).notes
            assert lowvar.integrate(x, -x, x[..., 0], chain=True, names="a").notes == by_site
        return [note for note in by_site if "chain" in note and "effective sample size" not in note]

    assert notes(x) == []
    assert notes(x[:, :20]) == []
    with pytest.raises(UserError, match="chains 1 and 3 are equal, so that they do not count as independent"):
        notes(x[[0, 1, 2, 1]])
    still = x.copy()
    still[2] = still[2, 0]
    assert notes(still)[0].startswith("chain 2 does not move")
    apart = x.copy()
    apart[1, :, 1] += 2
    assert notes(apart)[0].startswith("the chains have not mixed (R-hat of coordinate 1 is 1.")
    wide = x.copy()
    wide[1] *= 5
    assert notes(wide)[0].startswith("the chains have not mixed (R-hat of coordinate")


def test_sites_that_may_be_chains_or_few_draws_of_vectors_are_refused():
    x = np.random.default_rng(0).normal(size=(4, 50, 2))
    given = {"a": x[..., 0], "b": x}
    scores = {name: -value for name, value in given.items()}
    with pytest.raises(UserError, match="set chain=True if these are 4 chains of 50 draws, and chain=False"):
        lowvar.integrate(given, scores, "a", "monte_carlo")
    assert lowvar.integrate(given, scores, "a", "monte_carlo", chain=True).value.shape == (1,)


def test_r_hat_is_that_of_arviz():
    arviz = pytest.importorskip("arviz")
    x = np.random.default_rng(0).normal(size=(3, 60, 2)).cumsum(axis=1)
    np.testing.assert_allclose(split_r_hat(x), [float(arviz.rhat(x[..., k])) for k in range(2)], rtol=1e-10)
