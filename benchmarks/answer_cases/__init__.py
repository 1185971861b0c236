"""Eight unlike models for ``answer.py``: ``name -> (model, data)``, in single precision and batches of 100."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist


def _rows(N: int):
    return numpyro.plate("rows", N, subsample_size=min(100, N))


def _sites(shape) -> Any:
    return dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))


def logistic(N: int = 20_000, d: int = 50, spread: float = 0.5):
    """Logistic regression."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, d), np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ (spread * rng.normal(size=d))))).astype(np.int32)

    def model(x, y):
        w = numpyro.sample("w", _sites([d]))
        with _rows(N) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ w), obs=y[i])

    return model, {"x": x, "y": y}


def poisson():
    """Counts with a log-linear rate."""
    rng, N, d = np.random.default_rng(1), 100_000, 20
    x = rng.standard_normal((N, d), np.float32)
    y = rng.poisson(np.exp(0.5 + x @ (0.2 * rng.normal(size=d)))).astype(np.int32)

    def model(x, y):
        b, w = numpyro.sample("b", dist.Normal(0.0, 2.0)), numpyro.sample("w", _sites([d]))
        with _rows(N) as i:
            numpyro.sample("y", dist.Poisson(jnp.exp(b + x[i] @ w)), obs=y[i])

    return model, {"x": x, "y": y}


def hierarchical():
    """Logistic regression with a random intercept of each of 200 groups."""
    rng, N, G = np.random.default_rng(2), 10_000, 200
    g, x = rng.integers(0, G, N), rng.normal(size=N)
    a = 0.3 + 0.8 * rng.normal(size=(G,))
    y = (rng.random(N) < 1 / (1 + np.exp(-(a[g] + 0.7 * x)))).astype(np.int32)

    def model(x, g, y):
        mean, b = numpyro.sample("mean", dist.Normal(0, 1)), numpyro.sample("b", dist.Normal(0, 1))
        spread = numpyro.sample("spread", dist.HalfNormal(1))
        with numpyro.plate("groups", G):
            a = numpyro.sample("a", dist.Normal(mean, spread))
        with _rows(N) as i:
            numpyro.sample("y", dist.Bernoulli(logits=a[g[i]] + b * x[i]), obs=y[i])

    return model, {"x": x, "g": g, "y": y}


def network():
    """A Bayesian network with 20 hidden units."""
    rng, N, d, H = np.random.default_rng(3), 2000, 8, 20
    x = rng.normal(size=(N, d))
    y = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=N)

    def model(x, y):
        first, shift = numpyro.sample("first", _sites([d, H])), numpyro.sample("shift", _sites([H]))
        last, s = numpyro.sample("last", _sites([H])), numpyro.sample("s", dist.HalfNormal(1))
        with _rows(N) as i:
            numpyro.sample("y", dist.Normal(jnp.tanh(x[i] @ first + shift) @ last, s), obs=y[i])

    return model, {"x": x, "y": y}


def factors():
    """A matrix of 100 x 50 from factors of rank 3."""
    rng, N, U, V, K = np.random.default_rng(4), 10_000, 100, 50, 3
    u, v = rng.integers(0, U, N), rng.integers(0, V, N)
    A, B = rng.normal(size=(U, K)), rng.normal(size=(V, K))
    y = (A[u] * B[v]).sum(1) + 0.5 * rng.normal(size=N)

    def model(u, v, y):
        A, B = numpyro.sample("A", _sites([U, K])), numpyro.sample("B", _sites([V, K]))
        s = numpyro.sample("s", dist.HalfNormal(1))
        with _rows(N) as i:
            numpyro.sample("y", dist.Normal((A[u[i]] * B[v[i]]).sum(-1), s), obs=y[i])

    return model, {"u": u, "v": v, "y": y}


def robust():
    """A linear model with Student's t noise."""
    rng, N, d = np.random.default_rng(5), 2000, 10
    x = rng.normal(size=(N, d))
    y = x @ rng.normal(size=d) + 0.5 * rng.standard_t(3, size=N)

    def model(x, y):
        w, s = numpyro.sample("w", _sites([d])), numpyro.sample("s", dist.HalfNormal(1))
        nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
        with _rows(N) as i:
            numpyro.sample("y", dist.StudentT(nu, x[i] @ w, s), obs=y[i])

    return model, {"x": x, "y": y}


def smooth():
    """A curve of 40 overlapping bumps, as of a Gaussian process."""
    rng, N = np.random.default_rng(6), 1000
    t = np.sort(rng.random(N))
    y = np.sin(8 * t) * np.exp(-t) + 0.2 * rng.normal(size=N)
    bumps = np.exp(-0.5 * ((t[:, None] - np.linspace(0, 1, 40)) / 0.05) ** 2)

    def model(bumps, y):
        s, height = numpyro.sample("s", dist.HalfNormal(1)), numpyro.sample("height", dist.HalfNormal(1.0))
        w = numpyro.sample("w", _sites([40]))
        with _rows(N) as i:
            numpyro.sample("y", dist.Normal(bumps[i] @ (height * w), s), obs=y[i])

    return model, {"bumps": bumps, "y": y}


def classes():
    """Softmax regression with five classes."""
    rng, N, d, C = np.random.default_rng(7), 10_000, 20, 5
    x = rng.normal(size=(N, d))
    y = np.argmax(x @ (0.5 * rng.normal(size=(d, C))) + rng.gumbel(size=(N, C)), axis=1)

    def model(x, y):
        W = numpyro.sample("W", _sites([d, C]))
        with _rows(N) as i:
            numpyro.sample("y", dist.Categorical(logits=x[i] @ W), obs=y[i])

    return model, {"x": x, "y": y}


CASES = {one.__name__: one for one in (logistic, poisson, hierarchical, network, factors, robust, smooth, classes)}
