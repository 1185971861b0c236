"""What a fit promises: its start, its steps, its estimator, its memory, and a word when it is wrong."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.module import random_flax_module
from numpyro.infer import SVI, Predictive, Trace_ELBO, init_to_median, init_to_value
from numpyro.infer.autoguide import AutoNormal
from short_fits import DATA, N, regression

import lowvar
from lowvar.errors import UserError
from lowvar.vi.judgement import LEAST, log_weights
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.variational import elbo

X, IN_JAX = DATA["x"], {key: jnp.asarray(value) for key, value in DATA.items()}  # as NumPyro's own functions need them


def fitted(model=regression, data=DATA, **options):
    settings = {"num_steps": 60, "khat_samples": 0, "elbo_samples": 20, "progress": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(model, data, **settings)


def with_parameters(x, y=None, batch_size=None):
    bias = numpyro.param("bias", 0.0)
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, scale), obs=None if y is None else y[index])


# --- starts and steps ------------------------------------------------------------------------------------------------


def test_the_seed_moves_the_start():
    starts = [fitted(seed=seed, num_steps=1, estimator="naive").elbo["elbo"].iloc[0] for seed in (0, 1)]
    assert starts[0] != pytest.approx(starts[1], rel=1e-3)


@pytest.mark.parametrize(("steps", "rows", "size"), [(61, 200, 100), (3, 5, 2)])
def test_the_number_of_steps_is_exact(steps, rows, size):
    """Also where the run ends within an epoch."""
    data = {key: value[:rows] for key, value in DATA.items()}
    found = fitted(data=data, num_steps=steps, batch_size=size, estimator="naive")
    assert found.elbo["iteration"].iloc[-1] == found.run.num_steps == steps
    state = found.run.copies[found.run.epochs[1]][0]
    whole = -(-rows // size)
    assert int(jax.tree.leaves(state.optimizer)[0].ravel()[0]) == steps // whole * whole  # Adam's count


@pytest.mark.long
def test_init_by_strategy_values_and_fit():
    median, other = (
        from_numpyro(regression, DATA, init=init_to_median(num_samples=5), key=jax.random.key(seed)).start["mu"]
        for seed in (0, 1)
    )
    assert (median != other).all()
    one = {"num_steps": 1, "estimator": "naive"}
    by_value = fitted(init=init_to_value(values={"w": jnp.array([4.0, 5.0])}), **one)
    np.testing.assert_allclose(by_value.params["w_auto_loc"], [4.0, 5.0], atol=0.011)
    given = fitted(init={"scale": np.array(2.0, ">f8"), "bias": 1.0}, **one)
    assert given.problem.start["mu"][given.problem.sites["scale"]] == pytest.approx(np.log(2.0))
    assert given.params["bias_auto_loc"] == pytest.approx(1.0, abs=0.011)
    before = fitted(estimator="naive")
    warm = fitted(init=before, **one)
    assert warm.elbo["elbo"].iloc[0] == pytest.approx(before.elbo["elbo"].iloc[-1], abs=1e-6)
    np.testing.assert_allclose(warm.params["w_auto_scale"], before.params["w_auto_scale"], rtol=0.03)
    from_numpy = fitted(init=dict(before.params), **one)
    np.testing.assert_array_equal(from_numpy.params["w_auto_loc"], warm.params["w_auto_loc"])
    parameters = from_numpyro(with_parameters, DATA, init={"scale": 0.25})
    assert np.exp(parameters.start["mu"][parameters.sites["scale"]]) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("init", "name"),
    [
        ("median", "init"),
        ({"wieght": 1.0}, "'wieght'"),
        ({"w": np.zeros(3)}, "w has 3"),
        ({"scale": -1.0}, "scale"),
        ({"w": [np.nan, 0.0]}, "w "),
        ({"scale_auto_scale": -1.0}, "scale_auto_scale"),
    ],
    ids=str,
)
def test_wrong_inits(init, name):
    with pytest.raises(UserError, match=f"init.*{name}|{name}"):
        fitted(init=init)


# --- k-hat -----------------------------------------------------------------------------------------------------------


def correlated(rho):
    """Normal data whose likelihood correlates the two latent means."""
    factor = np.linalg.cholesky(np.linalg.inv(np.array([[1, rho], [rho, 1]])))

    def model(y, batch_size=None):
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (2,)))
        with numpyro.plate("rows", y.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal((factor.T @ z)[None, :], 10.0).to_event(1), obs=y[index])

    return model, {"y": np.random.default_rng(10).normal(size=(100, 2))}


@pytest.mark.long
@pytest.mark.parametrize(("rho", "low", "high"), [(0.98, 0.7, 1.2), (0.0, -2.0, 0.5)])
def test_khat_flags_a_correlated_posterior_alone(rho, low, high):
    model, data = correlated(rho)
    found = fitted(model, data, num_steps=800, batch_size=100, step_size=0.03, khat_samples=None)
    assert low < found.khat < high
    assert any("k-hat" in note for note in found.notes) == (rho > 0)
    if rho:
        assert found.params["z_auto_scale"] == pytest.approx(np.sqrt(1 - rho**2), rel=0.3)  # where the truth is 1


def test_draws_give_the_elbo_and_the_importance_weights():
    """As by the problem's own passes over all rows; any number of draws at a time."""
    problem = lowvar.problem(regression, DATA)
    params = {block: jnp.asarray(value) for block, value in problem.start.items()}
    eps = jax.random.normal(jax.random.key(3), (30, problem.dim), problem.dtype)
    np.testing.assert_allclose(elbo(problem)(params, eps), jax.jit(problem.elbo)(params, eps), rtol=1e-5)

    @jax.jit
    @jax.vmap
    def one(eps):
        return -problem.full_energy(problem.guide.transform(params, eps)) - problem.guide.log_density(params, eps)

    exact = one(eps)
    for together in (None, 7):
        off = log_weights(problem, params, eps, together) - np.asarray(exact)
        np.testing.assert_allclose(off, off[0], rtol=1e-5)


def test_a_fit_that_is_too_short_says_so():
    with pytest.warns(UserWarning, match="has not converged: the ELBO still rose"):
        lowvar.fit(regression, DATA, num_steps=30, khat_samples=0, elbo_samples=20, progress=False)
    assert "cannot be told" in str(fitted(num_steps=1, step_size=0.1))


@pytest.mark.long
def test_convergence_of_half_an_epoch_is_seen():
    short = fitted(num_steps=25, batch_size=4, step_size=0.05, elbo_samples=300)
    assert short.run.method.estimator == "naive"  # nothing could be remembered
    assert short.elbo["iteration"].tolist() == [0, 21, 25]
    assert "has not converged: the ELBO still rose by" in str(short)
    assert "has not converged" not in str(fitted(num_steps=25, batch_size=4, step_size=1e-7))
    # the ELBO in between is that of the fit that ends there, with the same noise
    until = fitted(num_steps=21, batch_size=4, step_size=0.05, elbo_samples=300)
    assert until.elbo["elbo"].iloc[-1] == short.elbo["elbo"][1]


def test_khat_has_a_price_limit(monkeypatch):
    from lowvar.vi import judgement

    monkeypatch.setattr(judgement, "_KHAT_BUDGET", 100 * N)
    found = fitted(khat_samples=None, estimator="naive")
    assert found.khat is None
    assert "k-hat was not computed" in str(found)
    assert fitted(khat_samples=LEAST, estimator="naive").khat is not None


# --- parameters of the model itself: numpyro.param, and networks of flax -----------------------------------------------


def trained(estimator=None):
    return fitted(
        with_parameters, estimator=estimator, num_steps=1500, step_size=0.02, batch_size=50, elbo_samples=4000
    )


@pytest.fixture(scope="module")
def default():
    return trained()


@pytest.fixture(scope="module")
def svi():
    """What NumPyro's own SVI makes of the same model."""
    svi = SVI(with_parameters, AutoNormal(with_parameters), numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=4))
    return svi.run(jax.random.key(0), 1500, **IN_JAX, progress_bar=False).params


@pytest.mark.parametrize("estimator", [None, pytest.param("joint_current", marks=pytest.mark.long)])
def test_parameters_are_trained(estimator, default, svi):
    """As NumPyro's SVI trains them; with no noise and no share in the entropy."""
    found = trained(estimator) if estimator else default
    assert float(found.params["bias"]) == pytest.approx(float(svi["bias"]), abs=0.03)
    assert float(found.params["scale"]) == pytest.approx(float(svi["scale"]), rel=0.05)
    np.testing.assert_allclose(found.params["w_auto_loc"], svi["w_auto_loc"], atol=0.04)
    np.testing.assert_allclose(found.params["w_auto_scale"], svi["w_auto_scale"], rtol=0.25)
    assert set(found.params) == {"bias", "scale", "w_auto_loc", "w_auto_scale"}


def test_the_elbo_with_parameters_is_numpyros(default):
    guide = AutoNormal(with_parameters)
    with numpyro.handlers.block(), numpyro.handlers.seed(rng_seed=0):
        guide(**IN_JAX)
    params = jax.tree.map(jnp.asarray, default.params)
    theirs = -Trace_ELBO(num_particles=4000).loss(jax.random.key(1), params, with_parameters, guide, **IN_JAX)
    assert default.elbo["elbo"].iloc[-1] == pytest.approx(float(theirs), abs=0.3)


def test_predictive_takes_parameters(default):
    draws = Predictive(with_parameters, guide=default.guide, params=default.params, num_samples=200)(
        jax.random.key(0), x=IN_JAX["x"]
    )["y"]
    assert float(draws.mean()) == pytest.approx(DATA["y"].mean(), abs=0.1)
    assert default.sample(3)["w"].shape == (3, 2)


@pytest.mark.parametrize("prior", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_network_of_flax_is_trained(prior):
    """Its parameters are a tree; with a prior on some of them, the others stay point estimates."""
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(linen.tanh(linen.Dense(8)(x)))

    priors = {"Dense_1.kernel": dist.Normal(), "Dense_1.bias": dist.Normal()} if prior else {}

    def network(x, y, batch_size=None):
        net = random_flax_module("net", Net(), priors, input_shape=(1, 2))
        scale = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(net(x[index])[:, 0], scale), obs=y[index])

    data = {"x": X, "y": np.sin(2 * X[:, 0])}
    with jax.numpy_rank_promotion("allow"):
        found = fitted(network, data, num_steps=400, step_size=0.02, estimator="naive")
        first, last = found.elbo["elbo"].iloc[[0, -1]]
        assert last > first + 100
        assert set(found.sample(2)) == {"noise", *(f"net/{name}" for name in priors)}
        assert "net$params" in found.params
