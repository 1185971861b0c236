"""A fit of 62 steps, its model and its data."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowvar

N = 200


def made_data(seed=0, n=N):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return {"x": x, "y": 3 + x @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=n)}


DATA = made_data()
QUICK = {"num_steps": 62, "batch_size": 50, "khat_samples": 0, "elbo_samples": 20, "progress": False}


def regression(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, scale), obs=y[index])


def fitted(model=regression, data=DATA, **options):
    return lowvar.fit(model, data, **QUICK | options)


def assert_equal(one, other):
    """The same parameters, trace and states, to the byte."""
    assert one.params.keys() == other.params.keys()
    for name in one.params:
        np.testing.assert_array_equal(one.params[name], other.params[name])
    assert one.elbo.equals(other.elbo)
    assert (one.run.num_steps, one.run.epochs[1]) == (other.run.num_steps, other.run.epochs[1])
    states = [jax.tree.leaves(jax.tree.map(_numbers, fit.run.copies[fit.run.epochs[1]])) for fit in (one, other)]
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


def _numbers(leaf):
    """Those of a key of JAX too; a tensor of PyTorch has its own."""
    is_key = isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
