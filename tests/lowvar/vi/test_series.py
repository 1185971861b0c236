"""Models without a data plate: which of them are told to index their data by one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import lowvar
from lowvar.vi.numpyro.model import from_numpyro

T = 30
Y, X = (np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in (T, (T, 2)))


def autoregression(y, x):
    a = numpyro.sample("a", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(a * y[:-1], 1.0), obs=y[1:])


def state_space(y, x):
    s = numpyro.sample("s", dist.HalfNormal(1))

    def step(z, value):
        z = numpyro.sample("z", dist.Normal(z, s))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=value)
        return z.astype(y.dtype), None

    scan(step, jnp.zeros((), y.dtype), y)


def random_walk(y, x):
    s = numpyro.sample("s", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.GaussianRandomWalk(s, T)), 1.0), obs=y)


def volatility(y, x):
    a = numpyro.sample("a", dist.Beta(2, 2))

    def step(h, value):
        h = (0.1 + a * h + 0.1 * value**2).astype(y.dtype)
        return h, h

    _, h = jax.lax.scan(step, jnp.ones((), y.dtype), y)
    numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(h)).to_event(1), obs=y)


def loop(y, x):
    a = numpyro.sample("a", dist.Normal(0, 1))
    for t in range(1, 12):
        numpyro.sample(f"y{t}", dist.Normal(a * y[t - 1], 1.0), obs=y[t])


def regression(y, x):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


@pytest.mark.parametrize("model", [autoregression, state_space, random_walk, volatility, loop, regression])
def test_only_rows_are_told_of_a_plate(model):
    (remark,) = from_numpyro(model, {"y": Y, "x": X}).remarks
    assert ("plate('data'" in remark) == (model is regression)


def test_the_printed_fit_has_no_batches_of_all_the_data():
    settings = {"num_steps": 2, "khat_samples": 0, "elbo_samples": 2, "progress": False}
    with pytest.warns(UserWarning, match="no data plate"):
        text = str(lowvar.fit(autoregression, {"y": Y, "x": X}, **settings))
    assert "batches of" not in text
