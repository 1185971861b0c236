"""Amortised guides: against the exact posterior of a linear model, and refusals."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowvar
from lowvar.errors import UserError
from lowvar.vi.batches import Noise, reshuffled
from lowvar.vi.descent import make_estimator
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.run.settings import Method

RNG = np.random.default_rng(0)
LOADING, NOISE, N = np.array([1.0, -0.5, 2.0]), 0.8, 120
Y = 0.7 + RNG.normal(size=(N, 1)) * LOADING + NOISE * RNG.normal(size=(N, 3))


def factors(y, batch_size=None):
    """One factor for each row of a common mean: ``y_n ~ N(m + LOADING z_n, NOISE^2)``."""
    m = numpyro.sample("m", dist.Normal(0, 2))
    with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(m + z[:, None] * LOADING[None, :], NOISE).to_event(1), obs=y[index])


def linear(params, data, index):
    rows = data["y"][index]
    return {"z": (rows @ params["w"] + params["b"], jnp.broadcast_to(params["s"], index.shape))}


START = {"w": np.zeros(3), "b": 0.0, "s": -1.0}
START = {name: np.asarray(value, float) for name, value in START.items()}


def exact():
    """Means of ``(m, z)`` and their conditional standard deviations: the best factorised Gaussian."""
    precision = np.zeros((N + 1, N + 1))
    precision[0, 0] = 1 / 4 + 3 * N / NOISE**2
    precision[0, 1:] = precision[1:, 0] = LOADING.sum() / NOISE**2
    precision[1:, 1:] = np.eye(N) * (1 + LOADING @ LOADING / NOISE**2)
    shift = np.append(Y.sum(), Y @ LOADING) / NOISE**2
    return np.linalg.solve(precision, shift), 1 / np.sqrt(np.diag(precision))


def fitted(guide, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(factors, {"y": Y}, guide=guide, progress=False, khat_samples=0, elbo_samples=20, **options)


@pytest.fixture(scope="module")
def fit():
    schedule = {"kind": "step", "beta": 0.5, "r": 300}
    return fitted(lowvar.Amortised(linear, START), batch_size=20, num_steps=2000, step_size=0.03, schedule=schedule)


@pytest.mark.long
def test_reaches_the_best_factorised_gaussian(fit):
    """A linear encoder can represent it."""
    mean, sd = exact()
    assert fit.run.method.estimator == "cv"
    np.testing.assert_allclose(fit.params["m_auto_loc"], mean[0], atol=0.03)
    np.testing.assert_allclose(fit.params["z_auto_loc"], mean[1:], atol=0.05)
    np.testing.assert_allclose(fit.params["z_auto_scale"], sd[1:], rtol=0.1)
    np.testing.assert_allclose(fit.params["m_auto_scale"], sd[0], rtol=0.25)
    new = linear(fit.params["amortised"], {"y": Y[:2]}, jnp.arange(2))["z"][0]
    np.testing.assert_allclose(new, fit.params["z_auto_loc"][:2], rtol=1e-6)
    assert fit.sample(3)["z"].shape == (3, N)


def test_a_model_may_share_no_variables():
    """The posterior of each row is ``N(y / 2, 1 / 2)``, which a linear encoder can represent: its weights are equal."""

    def apart(y, batch_size=None):
        with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
            z = numpyro.sample("z", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(z, 1), obs=y[index])

    def line(params, data, index):
        return {"z": (params["w"] * data["y"][index], jnp.broadcast_to(params["s"], index.shape))}

    guide = lowvar.Amortised(line, {"w": np.zeros(()), "s": np.zeros(())})
    of_rows = {"num_steps": 600, "step_size": 0.03, "estimator": "stl", "progress": False}
    fit = lowvar.fit(apart, {"y": Y[:, 0]}, guide=guide, batch_size=20, **of_rows)
    np.testing.assert_allclose(fit.params["z_auto_loc"], Y[:, 0] / 2, atol=1e-4)
    np.testing.assert_allclose(fit.params["z_auto_scale"], np.sqrt(0.5), rtol=1e-4)
    assert fit.khat < 0.7


@pytest.fixture(scope="module")
def of_four_rows():
    return from_numpyro(factors, {"y": Y[:4]}, guide=lowvar.Amortised(linear, START), key=jax.random.key(0))


@pytest.mark.parametrize("name", ["naive", *(pytest.param(one, marks=pytest.mark.long) for one in ("stl", "cv"))])
def test_gradient_is_that_of_the_elbo(name, of_four_rows):
    """The mean over all batches and pairs of noise is the derivative of the ELBO of all rows at the same noise."""
    p = of_four_rows
    estimator = make_estimator(Method(name), p.of_batch(2), reshuffled(4, 2))
    params = {block: jnp.asarray(value) + 0.1 for block, value in p.start.items()}
    assert (
        {block: len(value) for block, value in params.items()} == p.blocks == {"mu": 1, "log_sigma": 1, "amortised": 5}
    )
    eps = jax.random.normal(jax.random.key(1), (1, p.noise_dim))
    eps = jnp.concatenate([eps, -eps])
    pairs = jnp.array([(i, j) for i in range(4) for j in range(i)])

    def of_pair(index):
        noise = Noise(index, jnp.full(2, 0.5), jnp.asarray(2.0), eps, jnp.asarray(0))
        return estimator.estimate((), params, noise)[0]

    found = jax.tree.map(lambda leaf: leaf.mean(0), jax.jit(jax.vmap(of_pair))(pairs))

    exact_gradient = jax.jit(jax.grad(lambda params: -p.elbo(params, eps)[0]))(params)
    for block, value in exact_gradient.items():
        if name == "stl" and block != "mu":  # its noise differs: of the entropy, only the mean is the same
            continue
        np.testing.assert_allclose(found[block], value, rtol=1e-8, atol=1e-8, err_msg=block)


def assert_same(one, other):
    for block, value in one.guide_params.items():
        np.testing.assert_array_equal(other.guide_params[block], value, err_msg=block)
    assert other.elbo.equals(one.elbo)


def test_is_saved_and_pickled_with_the_function_given_again(fit, tmp_path):
    fit.save(tmp_path / "fit.npz")
    with pytest.raises(UserError, match="the function of its guide"):
        lowvar.load(tmp_path / "fit.npz", factors, {"y": Y})
    other = lowvar.Amortised(lambda p, data, i: {"z": (-linear(p, data, i)["z"][0], p["s"] + 0.0 * i)}, START)
    with pytest.raises(UserError, match="densities differ from those of the saved fit"):
        lowvar.load(tmp_path / "fit.npz", factors, {"y": Y}, guide=other)
    loaded = lowvar.load(tmp_path / "fit.npz", factors, {"y": Y}, guide=lowvar.Amortised(linear, START))
    assert_same(fit, loaded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(fit.resume(30, progress=False), loaded.resume(30, progress=False))
    assert_same(fit, pickle.loads(pickle.dumps(fit)))


WRONG = {
    "tuple": lambda p, data, i: (1, 2),
    "sites z; it returns u": lambda p, data, i: {"u": (p["b"], p["b"])},
    r"shape \(3,\) for 3 rows": lambda p, data, i: {"z": (p["b"], p["b"])},
    "other rows of its batch": lambda p, data, i: {"z": (data["y"][i, 0] - data["y"][i, 0].mean(), 0.0 * i)},
    "KeyError: 'x'": lambda p, data, i: data["x"],
    "not finite": lambda p, data, i: {"z": (jnp.log(p["b"] * data["y"][i, 0]), 0.0 * i)},
}


@pytest.mark.parametrize("message", WRONG)
def test_functions_that_are_no_encoder(message):
    with pytest.raises(UserError, match=message):
        from_numpyro(factors, {"y": Y}, guide=lowvar.Amortised(WRONG[message], START))


def test_refusals(fit):
    def without(y):
        m = numpyro.sample("m", dist.Normal(0, 2))
        with numpyro.plate("data", N) as index:
            numpyro.sample("y", dist.Normal(m, 1).expand([3]).to_event(1), obs=y[index])

    guide = lowvar.Amortised(linear, START)
    for call, message in (
        (lambda: from_numpyro(without, {"y": Y}, guide=guide), "it has none"),
        (lambda: fitted(guide, num_steps=3, init={"z": np.zeros(3)}), "'z' is a variable of the rows"),
        (lambda: fitted(guide, estimator="joint_svrg", num_steps=3), "use naive, stl, cv"),
        (lambda: lowvar.Amortised(linear, {"w": "x"}), "params"),
        (lambda: lowvar.Amortised(3, START), "callable"),
        (lambda: lowvar.decompose(factors, {"y": Y}, fit.params, progress=False), "give its function too"),
    ):
        with pytest.raises(UserError, match=message):
            call()
