"""``summary``, and gradients that samplers store: coverage of the errors, gains, inputs of every kind, mistakes."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.special
from posterior_trees import posterior_tree
from samples_of_normal import autoregression

import lowvar
from lowvar.errors import UserError

Y = np.array([3.0, 5.0, 4.0])
COLUMNS = ["mean", "sd", "mcse_mean", "mcse_sd", "worth_mean", "worth_sd"]
STATS = ("chain", "draw", "unconstrained_parameter")


def model(y):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.deterministic("large", jnp.asarray(rate) > 3)
    numpyro.sample("y", dist.Poisson(rate), obs=y)


BOUND = functools.partial(model, y=jnp.asarray(Y))


def draws(chains=4, number=100, seed=0):
    """Of the posterior: rate is Gamma(14, 4), w is N(0, I)."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(14, 1 / 4, size=(chains, number))
    return {"rate": rate, "w": rng.normal(size=(chains, number, 2)), "large": rate > 3}


def unconstrained(sites):
    """Points and scores, in the order of nutpie's."""
    points = np.concatenate([np.log(sites["rate"])[..., None], sites["w"]], axis=-1)
    return points, np.concatenate([(14 - 4 * sites["rate"])[..., None], -sites["w"]], axis=-1)


def nutpie_tree(sites, **stats):
    """As nutpie 0.16 stores it."""
    points, scores = unconstrained(sites)
    stats = {"unconstrained_draw": points, "gradient": scores, "diverging": np.zeros(points.shape[:2], bool), **stats}
    return posterior_tree(sites, sample_stats={name: one for name, one in stats.items() if one is not None})


def of_normal(x):
    return -x, (0.0, 1.0)


def of_skew(x):
    """Logarithms of gamma(3) variables: skewness -0.6."""
    return 3 - np.exp(x), (scipy.special.digamma(3), np.sqrt(scipy.special.polygamma(1, 3)))


@pytest.mark.parametrize("target", [of_normal, of_skew])
@pytest.mark.parametrize("chain", [False, True])
def test_errors_cover_and_pay(target, chain):
    """95 % intervals of both columns; and the errors made, against those of plain averages and the stated worth."""
    rng, repetitions, number = np.random.default_rng(5), 60, 400
    z = (
        autoregression(rng, repetitions, 4, number // 4, 2, keep=0.5)
        if chain
        else rng.normal(size=(repetitions, number, 2))
    )
    x = z.reshape(repetitions, number, 2)
    if target is of_skew:
        x = np.log(scipy.special.gammaincinv(3, scipy.special.ndtr(x)))
    exact, inside, made, plain, worth = np.array(target(x)[1]), [], [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in x:
            table = lowvar.summary({"x": one}, {"x": target(one)[0]}, chain=False, exact_scores=True) if not chain else (
                lowvar.summary({"x": one.reshape(4, -1, 2)}, {"x": target(one)[0].reshape(4, -1, 2)}, chain=True, exact_scores=True)
            )  # fmt: skip
            off = table[["mean", "sd"]].to_numpy() - exact
            inside.append(np.abs(off) < 1.96 * table[["mcse_mean", "mcse_sd"]].to_numpy())
            made.append(off**2)
            plain.append((np.stack([one.mean(axis=0), one.std(axis=0, ddof=1)], axis=1) - exact) ** 2)
            worth.append(table[["worth_mean", "worth_sd"]].to_numpy())
    coverage, cases = np.mean(inside, axis=(0, 1)), 2 * repetitions
    assert (coverage > 0.95 - 5 * np.sqrt(0.95 * 0.05 / cases)).all(), coverage
    gain, stated = np.mean(plain, axis=(0, 1)) / np.mean(made, axis=(0, 1)), np.median(worth, axis=(0, 1))
    assert (gain > [20, 4]).all(), gain
    assert (stated > [10, 2]).all(), stated
    assert (stated < gain * (1 + 5 * np.sqrt(4 / cases))).all(), "no more than was gained"


def test_rows_and_columns():
    found = lowvar.summary(draws(), BOUND, ["w", "rate"])
    assert found.columns.tolist() == COLUMNS
    assert found.index.tolist() == ["w[0]", "w[1]", "rate"]
    np.testing.assert_allclose(found["mean"], [0, 0, 3.5], atol=1e-10)
    np.testing.assert_allclose(found["sd"], [1, 1, np.sqrt(14) / 4], rtol=0.03)
    assert (found[["worth_mean", "worth_sd"]] > 4).all(axis=None)
    assert isinstance(found.attrs["notes"], tuple)


def test_a_mean_is_that_of_integrate():
    found = lowvar.summary(draws(), BOUND, "rate")
    same = lowvar.integrate(draws(), BOUND, "rate", kernels=False)
    np.testing.assert_allclose(found.loc["rate", "mcse_mean"], same.standard_error[0], rtol=1e-6)
    np.testing.assert_allclose(found.loc["rate", "worth_mean"], same.table["gain"][0], rtol=1e-6)


def test_an_mcmc_alone_one_chain_and_a_tree():
    run = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=150, num_samples=100, progress_bar=False)
    run.run(jax.random.key(0), jnp.asarray(Y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = lowvar.summary(run)
    assert set(one.index) == {"rate", "w[0]", "w[1]", "large"}
    assert abs(one.loc["rate", "mean"] - 3.5) < 5 * one.loc["rate", "mcse_mean"]
    tree = lowvar.summary(posterior_tree(draws()), BOUND, "rate")
    assert tree.equals(lowvar.summary(draws(), BOUND, "rate"))


def test_stored_gradients_need_no_model():
    tree, (points, scores) = nutpie_tree(draws()), unconstrained(draws())
    for given, expected in zip(lowvar.scores(tree), (points, scores), strict=True):
        np.testing.assert_array_equal(given, expected)
    found = lowvar.integrate(tree, values=["rate", "w"], method="zero_variance", exact_scores=True)
    same = lowvar.integrate(draws(), BOUND, ["rate", "w"], "zero_variance")
    np.testing.assert_allclose(found.value, same.value, atol=1e-10)
    np.testing.assert_allclose(found.standard_error, same.standard_error, rtol=1e-6)
    table = lowvar.summary(tree, var_names=["rate", "w"], exact_scores=True)
    np.testing.assert_allclose(table, lowvar.summary(draws(), BOUND, ["rate", "w"]), rtol=1e-6, atol=1e-10)


def test_stored_gradients_are_tested_unless_vouched_for():
    found = lowvar.integrate(nutpie_tree(draws()), values="rate", method="zero_variance")
    assert found.table["gain"][0] <= 1 + 1e-12
    assert any("exact_scores" in note for note in found.notes)
    _, scores = unconstrained(draws())
    with pytest.warns(UserWarning, match="scores"):
        table = lowvar.summary(nutpie_tree(draws(), gradient=-scores), var_names="rate", exact_scores=True)
    assert table.loc["rate", "worth_mean"] == 1
    np.testing.assert_allclose(table.loc["rate", "mean"], draws()["rate"].mean())
    np.testing.assert_allclose(table.loc["rate", "sd"], draws()["rate"].std(ddof=1))


@pytest.mark.parametrize(
    ("stats", "name"),
    [
        ({"gradient": None}, "store_gradient"),
        ({"unconstrained_draw": None}, "store_unconstrained"),
        ({"gradient": None, "unconstrained_draw": None}, "model"),
        ({"gradient": unconstrained(draws())[1][..., :2]}, "gradient"),
        ({"gradient": unconstrained(draws())[1][..., 0]}, "gradient"),
        ({"gradient": np.full((4, 100, 3), np.nan)}, "gradient"),
    ],
    ids=["no gradient", "no draws", "neither", "fewer", "no axis", "nan"],
)
def test_stored_gradients_that_are_refused(stats, name):
    tree = nutpie_tree(draws(), **stats)
    for call in (lowvar.integrate, lowvar.summary, lowvar.scores):
        with pytest.raises(UserError, match=name):
            call(tree)


@pytest.mark.parametrize("several", [False, True], ids=["an array", "a dict"])
def test_gradients_of_a_potential(several):
    """An MCMC of a ``potential_fn`` has no model, but its unconstrained draws and, on request, their gradients."""

    def potential(z):
        return 0.5 * (z["a"] ** 2 + ((z["b"] - 1) ** 2).sum()) if several else 0.5 * (z**2).sum()

    start = {"a": jnp.zeros(2), "b": jnp.zeros((2, 2))} if several else jnp.zeros((2, 3))
    options = {"num_warmup": 200, "num_samples": 300, "num_chains": 2, "chain_method": "vectorized"}
    run, without = (
        numpyro.infer.MCMC(numpyro.infer.NUTS(potential_fn=potential), progress_bar=False, **options) for _ in range(2)
    )
    run.run(jax.random.key(0), init_params=start, extra_fields=("z_grad",))
    points, scores = lowvar.scores(run)
    assert points.shape == (2, 300, 3)
    np.testing.assert_allclose(scores, np.array([0, 1, 1]) * several - points, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = lowvar.summary(run, exact_scores=True)
    assert table.index.tolist() == (["a", "b[0]", "b[1]"] if several else ["z[0]", "z[1]", "z[2]"])
    np.testing.assert_allclose(table["mean"], np.array([0, 1, 1]) * several, atol=1e-6)
    without.run(jax.random.key(0), init_params=start)
    with pytest.raises(UserError, match="z_grad" if not several else "model"):
        lowvar.summary(without)


def normal_draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_entries_that_do_not_vary_and_sites_without_entries():
    x = normal_draws(200)
    sites, zeros = (
        {"x": x, "c": np.full(200, 0.1), "none": np.zeros((200, 0))},
        {"c": 0 * x, "none": np.zeros((200, 0))},
    )
    with pytest.warns(UserWarning, match="does not vary"):
        found = lowvar.summary(sites, {"x": -x, **zeros}, exact_scores=True)
    assert found.index.tolist() == ["x", "c"]
    assert found.loc["c", "mean"] == pytest.approx(0.1, rel=1e-12)
    assert found.loc["c", "sd"] == 0
    assert np.isnan(found.loc["c", ["mcse_mean", "mcse_sd", "worth_mean"]].to_numpy(float)).all()
    assert found.loc["x", "worth_mean"] > 10
    with pytest.raises(UserError, match="var_names"):
        lowvar.summary(sites, {"x": -x, **zeros}, "none")


def test_a_site_without_entries_beside_a_model():
    def with_none():
        numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("none", dist.Normal(0.0, 1.0).expand([0]).to_event(1))

    found = lowvar.summary({"x": normal_draws(200), "none": np.zeros((200, 0))}, with_none)
    assert found.index.tolist() == ["x"]


@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_units_and_offsets(scale):
    """A table in other units is the same table; squares of deviations know no offset."""
    x = normal_draws(300, 2)
    one = lowvar.summary({"x": x}, {"x": -x}, exact_scores=True)
    other = lowvar.summary({"x": scale * (x + 5)}, {"x": -x / scale}, exact_scores=True)
    np.testing.assert_allclose(other["mean"] / scale - 5, one["mean"], atol=1e-9)
    np.testing.assert_allclose(other["sd"] / scale, one["sd"], rtol=1e-6)
    np.testing.assert_allclose(other["mcse_sd"] / scale, one["mcse_sd"], rtol=1e-3)


def test_single_precision_is_no_surer_than_its_digits():
    x = normal_draws(400).astype(np.float32)
    found = lowvar.summary({"x": x + np.float32(1000)}, {"x": -x}, exact_scores=True)
    assert found.loc["x", "mcse_mean"] > 1000 * np.finfo(np.float32).eps
    assert abs(found.loc["x", "sd"] - 1) < 5 * found.loc["x", "mcse_sd"]


def test_few_draws():
    x = normal_draws(3)
    with pytest.warns(UserWarning, match="few"):
        found = lowvar.summary({"x": x}, {"x": -x}, exact_scores=True)
    assert found.loc["x", "sd"] == pytest.approx(x.std(ddof=1))
    assert np.isfinite(found.to_numpy()).all()
    with pytest.raises(UserError, match="draws"):
        lowvar.summary({"x": x[:2]}, {"x": -x[:2]})


def test_divergences_are_noted():
    diverging = np.zeros((4, 100), bool)
    diverging[0, :7] = True
    tree = nutpie_tree(draws(), diverging=diverging)
    for given in (None, BOUND):
        with pytest.warns(UserWarning, match="7 of 400 transitions diverged"):
            table = lowvar.summary(tree, given, "rate")
        assert any("diverged" in note for note in table.attrs["notes"])


def discrete():
    numpyro.sample("k", dist.Poisson(2.0))


@pytest.mark.parametrize(
    ("words", "options", "name"),
    [
        ((draws(), BOUND, "rat"), {}, "var_names: .*'rat'"),
        ((draws(), BOUND, []), {}, "var_names"),
        ((draws(), BOUND, {"rate": 1}), {}, "var_names"),
        ((draws(),), {}, "^model"),
        ((posterior_tree, BOUND), {}, "^draws"),
        ((draws()["rate"], BOUND), {}, "^draws"),
        (({}, BOUND), {}, "^draws"),
        (({"k": np.ones(50, int)}, discrete), {}, "'k' is discrete"),
        (({"other": np.ones(50)}, BOUND), {}, "^draws: .*'rate'"),
        (({"x": np.ones(50)}, {"x": np.ones(49)}), {}, "^model: 'x'"),
        (({"x": np.ones(50)}, {"x": np.full(50, np.nan)}), {}, r"^model\['x'\]"),
        ((draws(), BOUND), {"round_to": 2}, "round_to"),
        ((draws(), BOUND), {"exact_scores": "yes"}, "exact_scores"),
        ((draws(), BOUND), {"kernels": 1}, "kernels"),
        ((draws(), BOUND), {"chain": "yes"}, "chain"),
        ((draws(), BOUND, 3), {}, "var_names"),
    ],
)
def test_mistakes(words, options, name):
    with pytest.raises(UserError, match=name):
        lowvar.summary(*words, **options)


def test_digits_are_those_that_errors_justify():
    table = lowvar.summary(draws(), BOUND)
    text = lowvar.summary(draws(), BOUND, round_to="auto")
    for column in ("mean", "sd"):
        for shown, number, error in zip(text[column], table[column], table[f"mcse_{column}"], strict=True):
            assert abs(float(shown) - number) <= error
            digits = len(shown.partition(".")[2])
            assert 10.0**-digits <= error < 10.0 ** (1 - digits)
    assert text.loc["rate", "worth_mean"].isdigit()


def test_many_coordinates():
    """Of 60 coordinates 400 draws pay for no full quadratic, but for linear terms and single squares."""
    x = normal_draws(400, 60)
    found = lowvar.summary({"x": x}, {"x": -x}, exact_scores=True)
    assert (found["worth_mean"] > 10).all()
    assert found["worth_sd"].median() > 10
    full = lowvar.integrate(x, -x, x[:, :1] ** 2, "zero_variance", order=2, diagonal=True, folds=5, exact_scores=True)
    np.testing.assert_allclose(full.value, 1, atol=1e-9)
    with pytest.raises(UserError, match="diagonal"):
        lowvar.integrate(x, -x, x[:, 0], "zero_variance", diagonal=2)
    with pytest.raises(UserError, match="order 2"):
        lowvar.integrate(x, -x, x[:, 0], "zero_variance", order=2)
