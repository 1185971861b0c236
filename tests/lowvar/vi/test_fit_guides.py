"""Fits with guides that have correlations: their posterior, NumPyro's names, warm starts, decompositions."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowvar
from lowvar.errors import UserError
from lowvar.vi.guides.gaussian import MeanField
from lowvar.vi.numpyro.model import from_numpyro

RNG = np.random.default_rng(0)
N = 60
COMMON = RNG.normal(size=(N, 1))
X = 0.3 * RNG.normal(size=(N, 2)) + COMMON
DATA = {"x": X, "y": X @ np.array([1.0, -0.5]) + 0.5 + RNG.normal(size=N)}


def regression(x, y, batch_size=None):
    """Its posterior is Gaussian; its sites are not in alphabetical order, and one is a parameter."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 1))
    shift = numpyro.param("shift", 0.0)
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w + 0.0 * shift, 1.0), obs=y[index])


def exact():
    """Mean and covariance of ``(w, bias)``, the order of the model."""
    features = np.concatenate([X, np.ones((N, 1))], axis=1)
    covariance = np.linalg.inv(features.T @ features + np.eye(3))
    return covariance @ features.T @ DATA["y"], covariance


def fitted(guide, **options):
    settings = {"num_steps": 2500, "step_size": 0.03, "batch_size": 20, "khat_samples": 0, "elbo_samples": 50,
                "schedule": {"kind": "step", "beta": 0.5, "r": 600}, "progress": False}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(regression, DATA, guide=guide, **settings | options)


@pytest.fixture(scope="module")
def fits():
    """``guide -> fit``, each made once."""
    return functools.cache(fitted)


def covariance_of(params):
    if "auto_scale_tril" in params:
        return params["auto_scale_tril"] @ params["auto_scale_tril"].T
    factor = params["auto_scale"][:, None] * np.concatenate([np.eye(3), params["auto_cov_factor"]], axis=1)
    return factor @ factor.T


@pytest.mark.parametrize("guide", ["full_rank", "low_rank"])
def test_it_is_the_posterior(fits, guide):
    """Correlations of about -0.8, which the mean-field guide does not have."""
    mean, covariance = exact()
    sd, params = np.sqrt(np.diag(covariance)), fits(guide).params
    assert abs(covariance[0, 1] / (sd[0] * sd[1])) > 0.7
    np.testing.assert_allclose(params["auto_loc"], mean, atol=0.15 * sd.min())
    np.testing.assert_allclose(covariance_of(params) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.12)
    assert params["shift"].shape == ()


@pytest.mark.long
@pytest.mark.parametrize("guide", ["full_rank", "low_rank"])
def test_numpyros_guide_has_the_same_draws(fits, guide):
    found = fits(guide)
    params = {name: jnp.asarray(value) for name, value in found.params.items()}
    # the guide is first asked for under jit, which sorts sites by name where it can
    draw = jax.jit(lambda key, params: found.guide.sample_posterior(key, params, sample_shape=(4000,)))
    with jax.numpy_rank_promotion("allow"):
        theirs = draw(jax.random.key(1), params)
    ours = found.sample(4000)
    assert set(theirs) == set(ours) == {"w", "bias"}
    stacked = [np.column_stack([draws["w"], draws["bias"]]) for draws in (ours, theirs)]
    sd = stacked[0].std(axis=0)
    np.testing.assert_allclose(stacked[0].mean(0), stacked[1].mean(0), atol=5 * sd.max() / 40)
    np.testing.assert_allclose(np.corrcoef(stacked[0].T), np.corrcoef(stacked[1].T), atol=0.07)
    np.testing.assert_allclose(stacked[1].std(axis=0), sd, rtol=0.07)


def test_warm_starts(fits):
    """From the same guide exactly; from another one, its means and standard deviations."""
    full = fits("full_rank")
    again = fitted("full_rank", init=full, num_steps=1)
    assert again.elbo["elbo"].iloc[0] == pytest.approx(full.elbo["elbo"].iloc[-1], abs=1e-6)
    for block, value in full.guide_params.items():
        np.testing.assert_allclose(again.problem.start[block], value, rtol=1e-9, atol=1e-9)
    single = from_numpyro(regression, DATA, init=full.params)
    marginal = np.sqrt(np.diag(covariance_of(full.params)))
    np.testing.assert_allclose(np.exp(single.start["log_sigma"])[[2, 3, 0]], marginal, rtol=1e-6)  # z: bias, shift, w
    named = single.named(single.start)
    assert set(named) == {"w_auto_loc", "w_auto_scale", "bias_auto_loc", "bias_auto_scale", "shift"}
    diagonal = from_numpyro(regression, DATA, init={"auto_loc": np.arange(3.0), "auto_scale": marginal}).start
    np.testing.assert_allclose(diagonal["mu"][[2, 3, 0]], np.arange(3.0))
    np.testing.assert_allclose(np.exp(diagonal["log_sigma"])[[2, 3, 0]], marginal)
    low = from_numpyro(regression, DATA, init=named, guide={"guide": "low_rank", "rank": 1})
    np.testing.assert_allclose(np.sqrt(np.diag(covariance_of(low.named(low.start)))), marginal, rtol=0.1)


@pytest.mark.long
def test_it_is_decomposed(fits):
    """With the fit's own guide, and in blocks of the guide's parameters."""
    settings = {"replicates": 48, "columns": 4, "estimators": ["naive", "joint_adaptive"], "progress": False}
    found = lowvar.decompose(regression, DATA, fits("full_rank").params, batch_size=20, **settings)
    assert {"all", "mu", "log_sigma", "lower", "lower:w"} <= set(found.table["block"])
    total = found.table[(found.table["source"] == "total") & (found.table["block"] == "lower")].set_index("method")
    assert total.loc["joint_adaptive", "high"] < 0.75 * total.loc["naive", "low"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"auto_loc": None}, "auto_loc"),
        ({"auto_scale_tril": np.eye(2)}, "auto_scale_tril"),
        ({"auto_scale_tril": -np.eye(3)}, "positive"),
        ({"auto_loc": np.full(3, np.nan)}, "finite"),
        ({"shift": None}, "'shift'"),
    ],
)
def test_wrong_parameters(fits, change, name):
    params = {key: value for key, value in (fits("full_rank").params | change).items() if value is not None}
    with pytest.raises(UserError, match=name):
        lowvar.decompose(regression, DATA, params)


def test_it_is_saved_and_loaded_with_its_guide(fits, tmp_path):
    fit = fits("full_rank")
    fit.save(tmp_path / "fit.npz")
    loaded = lowvar.load(tmp_path / "fit.npz", regression, DATA)
    assert type(loaded.problem.guide) is type(fit.problem.guide)
    for name, value in fit.params.items():
        np.testing.assert_array_equal(loaded.params[name], value)


def test_a_guide_of_ones_own_is_not_in_a_file(tmp_path):
    class Mine(MeanField):
        name = "mine"

    def mine(dim, backend, noiseless, sites):
        return Mine(dim, backend, noiseless)

    with pytest.raises(UserError, match="guide of your own"):
        fitted(mine, num_steps=10, estimator="naive").save(tmp_path / "fit.npz")
    assert not (tmp_path / "fit.npz").exists()
