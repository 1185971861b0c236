"""Models with a latent variable for each row."""

import warnings

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import lowvar


def counts(y, group=None, batch_size=None):
    """Two sites of the rows, one of them with a Jacobian and a shared parent."""
    m = numpyro.sample("m", dist.Normal(0, 1))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
        a = numpyro.sample("a", dist.Normal(m, spread))
        k = numpyro.sample("k", dist.Gamma(2.0, 2.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Poisson(k.sum(-1) * jnp.exp(a)), obs=y[index])


def effects(y, batch_size=None):
    m = numpyro.sample("m", dist.Normal(0, 3))
    with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
        u = numpyro.sample("u", dist.Normal(m, 1))
        numpyro.sample("y", dist.Normal(u, 1), obs=y[index])


def quiet(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(effects, progress=False, khat_samples=0, elbo_samples=16, **options)
