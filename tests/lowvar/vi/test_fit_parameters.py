"""Parameters of the model itself: numpyro.param, and networks of flax."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from regressions import DATA, IN_JAX, X, fitted, with_parameters


def svi_params():
    """What NumPyro's own SVI makes of the same model."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(with_parameters, AutoNormal(with_parameters), numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=4))
    return svi.run(jax.random.key(0), 1500, **IN_JAX, progress_bar=False).params


def trained(estimator=None):
    return fitted(
        with_parameters, estimator=estimator, num_steps=1500, step_size=0.02, batch_size=50, elbo_samples=4000
    )


@pytest.fixture(scope="module")
def default():
    return trained()


@pytest.mark.parametrize(
    "estimator",
    [None, *(pytest.param(name, marks=pytest.mark.long) for name in ("naive", "stl", "joint_current", "storm"))],
)
def test_parameters_are_trained(estimator, default, svi):
    """As NumPyro's SVI trains them; with no noise and no share in the entropy."""
    found = trained(estimator) if estimator else default
    assert float(found.params["bias"]) == pytest.approx(float(svi["bias"]), abs=0.03)
    assert float(found.params["scale"]) == pytest.approx(float(svi["scale"]), rel=0.05)
    np.testing.assert_allclose(found.params["w_auto_loc"], svi["w_auto_loc"], atol=0.04)
    np.testing.assert_allclose(found.params["w_auto_scale"], svi["w_auto_scale"], rtol=0.25)
    assert set(found.params) == {"bias", "scale", "w_auto_loc", "w_auto_scale"}


@pytest.fixture(scope="module")
def svi():
    return svi_params()


def test_the_elbo_with_parameters_is_numpyros(default):
    from numpyro.infer import Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    guide = AutoNormal(with_parameters)
    with numpyro.handlers.block(), numpyro.handlers.seed(rng_seed=0):
        guide(**IN_JAX)
    params = jax.tree.map(jnp.asarray, default.params)
    theirs = -Trace_ELBO(num_particles=4000).loss(jax.random.key(1), params, with_parameters, guide, **IN_JAX)
    assert default.elbo["elbo"].iloc[-1] == pytest.approx(float(theirs), abs=0.3)


def test_predictive_takes_parameters(default):
    from numpyro.infer import Predictive

    draws = Predictive(with_parameters, guide=default.guide, params=default.params, num_samples=200)(
        jax.random.key(0), x=IN_JAX["x"]
    )["y"]
    assert float(draws.mean()) == pytest.approx(DATA["y"].mean(), abs=0.1)
    assert default.sample(3)["w"].shape == (3, 2)


@pytest.mark.parametrize(
    ("prior", "estimator"),
    [(False, "naive"), *(pytest.param(*one, marks=pytest.mark.long) for one in ((False, None), (True, "naive")))],
)
def test_a_network_of_flax_is_trained(prior, estimator):
    """Its parameters are a tree; with a prior on some of them, the others stay point estimates."""
    linen = pytest.importorskip("flax.linen")
    from numpyro.contrib.module import flax_module, random_flax_module

    target = np.sin(2 * X[:, 0])

    def observe(net, x, y, batch_size):
        scale = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(net(x[index])[:, 0], scale), obs=y[index])

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(linen.tanh(linen.Dense(8)(x)))

    def plain(x, y, batch_size=None):
        observe(flax_module("net", Net(), input_shape=(1, 2)), x, y, batch_size)

    def random(x, y, batch_size=None):
        priors = {"Dense_1.kernel": dist.Normal(), "Dense_1.bias": dist.Normal()}
        observe(random_flax_module("net", Net(), priors, input_shape=(1, 2)), x, y, batch_size)

    with jax.numpy_rank_promotion("allow"):
        found = fitted(random if prior else plain, {"x": X, "y": target}, num_steps=400, step_size=0.02,
                       estimator=estimator)  # fmt: skip
        first, last = found.elbo["elbo"].iloc[[0, -1]]
        assert last > first + 100
        assert set(found.sample(2)) == {"noise", *(["net/Dense_1.kernel", "net/Dense_1.bias"] if prior else [])}
        assert "net$params" in found.params
