"""Rows that interact are refused in a sentence, and models whose rows do not are taken, whatever their rounding."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from lowvar.errors import UserError
from lowvar.vi.numpyro.model import from_numpyro

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 3))
MEAN = X @ np.array([1.0, -1.0, 0.5])
DATA = {"x": X, "y": MEAN + 0.5 * RNG.normal(size=N)}
BIG = {"x": 1e4 * X + 1e6, "y": 1e5 * DATA["y"]}
COUNTS = {"x": X, "y": RNG.poisson(np.exp(0.1 * MEAN + 15))}


def linear(observe):
    """A model whose rows are seen by ``observe(x, w, y)``, which is given those of the batch."""

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            observe(x[index], w, y[index])

    return model


def normal(mean, y, scale=0.5):
    """The observation ``y``."""
    return numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def scaled(mean, y, scale):
    """The same, its log-likelihood times ``scale``."""
    with handlers.scale(scale=scale):
        normal(mean, y)


INTERACT = {
    "weights by the batch's size": (linear(lambda x, w, y: scaled(x @ w, y, N / x.shape[0])), DATA),
    "a share of the others": (linear(lambda x, w, y: normal(x @ w + 1e-3 * jnp.mean(x @ w), y)), DATA),
    "a factor of all": (
        linear(lambda x, w, y: numpyro.factor("f", dist.Normal(x @ w, 0.5).log_prob(y).sum())), DATA,
    ),
    "hidden by large constants": (
        linear(lambda x, w, y: numpyro.sample("y", dist.Poisson(jnp.exp(1e-3 * (x - x.mean(0)[None, :]) @ w + 15)), obs=y)),
        COUNTS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INTERACT)
def test_rows_that_interact(name):
    model, data = INTERACT[name]
    with pytest.raises(UserError, match=r"row \d+ has \S+ alone and \S+ among \d+ rows"):
        from_numpyro(model, data)


def test_columns_that_broadcast():
    model = linear(lambda x, w, y: normal((x @ w)[:, None], y))
    with jax.numpy_rank_promotion("allow"), pytest.raises(UserError, match=r"'y'.*\((\d+),\).*\(\1, \1\)"):
        from_numpyro(model, DATA)


def dropout(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        kept = jax.random.bernoulli(numpyro.prng_key(), 0.5, (3,))
        normal((x[index] * kept[None, :]) @ w, y[index])


def no_axis_for_one(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        normal(jnp.squeeze(x[index]) @ w, jnp.squeeze(y[index]).reshape(len(jnp.squeeze(x[index])) // 1))


def batch_statistics(x, y, batch_size=None):
    from numpyro.primitives import mutable

    state = mutable("norm$state", {"mean": jnp.zeros(())})
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        normal((x[index, 0] - state["mean"]) * w, y[index])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (dropout, "the model draws random numbers outside latent sites"),
        (no_axis_for_one, "the model fails on a batch of one row"),
        (batch_statistics, "'norm.state' is mutable state"),
    ],
)
def test_what_batches_cannot_have(model, message):
    with pytest.raises(UserError, match=message):
        from_numpyro(model, DATA)


def hierarchical(x, y, batch_size=None):
    """Constrained sites, a mask, a scale, a deterministic site, a factor: rows that mind their own business."""
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    mix = numpyro.sample("mix", dist.Dirichlet(jnp.ones(3)))
    numpyro.factor("prior", -jnp.sum(mix**2))
    x = (x - x.mean(0)[None, :]) / x.std(0)[None, :]
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        mean = numpyro.deterministic("mean", x[index] @ mix)
        with handlers.mask(mask=y[index] > -1), handlers.scale(scale=0.3):
            normal(mean, y[index], scale)
        numpyro.factor("extra", -0.1 * mean**2)


SOUND = {
    "hierarchical": (hierarchical, DATA),
    "counts": (linear(lambda x, w, y: numpyro.sample("y", dist.Poisson(jnp.exp(0.1 * x @ w + 15)), obs=y)), COUNTS),
    "cancelling": (
        linear(lambda x, w, y: numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(0.1 * x @ w), 1e6), obs=y)),
        {"x": X, "y": RNG.poisson(1.0, N)},
    ),
    "large and sharp": (linear(lambda x, w, y: normal(x @ w, y, 1e-4)), BIG),
    "an array in float32": (linear(lambda x, w, y: normal(x @ (w * jnp.ones(3, jnp.float32)), y)), DATA),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long if one in ("cancelling", "counts") else ()) for one in SOUND]
)
def test_no_false_refusal(name):
    """In float32, which rounds more."""
    model, data = SOUND[name]
    cast = {key: value.astype(np.float32) if value.dtype.kind == "f" else value for key, value in data.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert from_numpyro(model, cast).N == N


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows(rows):
    """Where there are rows to compare, and where there is one only."""
    few = {key: value[:rows] for key, value in DATA.items()}
    problem = from_numpyro(linear(lambda x, w, y: normal(x @ w, y)), few)
    assert rows == problem.N
    if rows > 2:  # of two rows no batch has both
        with pytest.raises(UserError, match="depends on the other rows"):
            from_numpyro(linear(lambda x, w, y: normal((x - x.mean(0)[None, :]) @ w, y)), few)
