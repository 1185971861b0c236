"""Regressions of 200 rows: a model, its data, and short fits of it."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowvar

RNG = np.random.default_rng(0)
N = 200
X = RNG.normal(size=(N, 2))
DATA = {"x": X, "y": 3 + X @ np.array([1.0, -0.5]) + 0.5 * RNG.normal(size=N)}
IN_JAX = {key: jnp.asarray(value) for key, value in DATA.items()}  # as NumPyro's own functions need them


def regression(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, scale), obs=y[index])


def with_parameters(x, y=None, batch_size=None):
    bias = numpyro.param("bias", 0.0)
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, scale), obs=None if y is None else y[index])


def fitted(model=regression, data=DATA, **options):
    settings = {"num_steps": 60, "khat_samples": 0, "elbo_samples": 20, "progress": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(model, data, **settings)


def total(found, block="all"):
    rows = found.table[(found.table["block"] == block) & (found.table["source"] == "total")]
    return rows.set_index("method")


def moving(x, y, batch_size=None):
    """A model whose parameters are still on their way."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, 1.0), obs=y[index])


FAR = {"x": X, "y": X @ np.array([4.0, -4.0]) + RNG.normal(size=N)}
