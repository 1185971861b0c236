"""Plates of every kind: the density is the model's own on all rows, and the user is told what is subsampled."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy

import lowvar
from lowvar.errors import UserError
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.numpyro.trace import AllRows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(11, 3))
DATA = {"x": X, "y": RNG.gamma(2.0, size=11)}
SEEN = np.arange(11) % 3 > 0


def both_indexed(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", 11, dim=-2) as i, numpyro.plate("columns", 3, dim=-1) as j:
        numpyro.sample("y", dist.Normal(w, 1), obs=x[i][:, j])


def one_apart(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("first", 11, 4) as index:
        numpyro.sample("y", dist.Normal(w, 1), obs=y[index])
    with numpyro.plate("second", 11):
        numpyro.sample("again", dist.Normal(w, 1), obs=y)


def no_plate(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(w * x[:, 0], 1).to_event(1), obs=y)


def not_indexed(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", 11):
        numpyro.sample("y", dist.Normal(w, 1), obs=y)


def local_positive(x, y=None, batch_size=None):
    """A local site with a Jacobian and a parent, in two plates."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("data", 11, batch_size, dim=-2) as index:
        with numpyro.plate("outputs", 2, dim=-1):
            rate = numpyro.sample("rate", dist.Gamma(2.0, spread))
        numpyro.sample("y", dist.Exponential(rate.sum(-1, keepdims=True)), obs=y[index][:, None])


def masked(x, y=None, batch_size=None):
    """Missing labels, which nothing depends on; discrete."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", 11, subsample_size=batch_size) as index:
        labels = (y > 1.5).astype(int)
        numpyro.sample(
            "label", dist.Bernoulli(logits=w * x[index, 0]), obs=labels[index], obs_mask=jnp.array(SEEN)[index]
        )


def imputed(x, y=None, batch_size=None):
    """Missing values of a feature, which the likelihood depends on: local latent variables."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", 11, subsample_size=batch_size) as index:
        feature = numpyro.sample("feature", dist.Normal(0, 1), obs=x[index, 0], obs_mask=jnp.array(SEEN)[index])
        numpyro.sample("y", dist.Normal(w * feature, 1), obs=y[index])


CASES = {
    no_plate: ("", 1, "every step uses all rows"),
    not_indexed: ("", 1, "every step uses all rows"),
    one_apart: ("first", 11, "'second' is evaluated in full in every step"),
    both_indexed: ("rows", 11, "those of the plate 'rows' (11); 'columns' is evaluated in full"),
    local_positive: ("data", 11, None),
    imputed: ("data", 11, None),
}


@pytest.mark.parametrize("model", CASES, ids=lambda one: one.__name__)
def test_density_is_numpyros(model):
    plate, N, remark = CASES[model]
    p = from_numpyro(model, DATA)
    assert (p.plate, p.N) == (plate, N)
    assert remark is None if not p.remarks else remark in p.remarks[0]
    z = jnp.asarray(0.3 * np.random.default_rng(10).normal(size=p.dim))
    likelihood, prior = jax.jit(p.log_likelihood), float(jax.jit(p.log_prior)(z))
    rows = likelihood(z, jnp.arange(N))
    arrays = {key: jnp.asarray(value) for key, value in DATA.items()}
    theirs = jax.jit(lambda z: -potential_energy(AllRows(model), (), arrays, p.unravel(z)))(z)
    assert float(rows.sum()) + prior == pytest.approx(float(theirs), rel=1e-10)
    index, weight = jnp.array([N - 1, 0, 0]), jnp.linspace(0.1, 0.3, 3)
    for some in (index, jnp.array([N // 2])):
        np.testing.assert_allclose(likelihood(z, some), rows[some], rtol=1e-12)
    parts = -N * float((weight * rows[index]).sum()) - prior  # both terms come from one run of the model
    assert float(jax.jit(p.energy)(z, index, weight)) == pytest.approx(parts, rel=1e-10)
    assert set(p.constrain(z)) >= set(p.latent)


def test_missing_labels_are_left_out():
    p = from_numpyro(masked, DATA)
    assert (p.latent, p.plate) == (("w",), "data")
    z = jnp.array([0.7])
    labels = DATA["y"] > 1.5
    rows = -np.logaddexp(0, np.where(labels, -1, 1) * 0.7 * X[:, 0])
    np.testing.assert_allclose(jax.jit(p.log_likelihood)(z, jnp.arange(11)), np.where(SEEN, rows, 0), rtol=1e-12)


def test_a_batch_size_without_a_plate_is_refused():
    with pytest.raises(UserError, match="batch_size 5: leave it out"):
        lowvar.fit(no_plate, DATA, num_steps=3, batch_size=5)


def test_entries_without_a_plate_are_not_paired_with_all_others():
    def line(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w * x, 1), obs=y)

    with jax.numpy_rank_promotion("allow"), pytest.raises(UserError, match=r"shape \(5, 1\)"):
        from_numpyro(line, {"x": np.ones(5), "y": np.ones((5, 1))})


@pytest.mark.parametrize("indexed", [False, True])
def test_entries_of_a_plate_are_not_paired_with_all_others(indexed):
    """Without the index, each row of a batch would count the observations of all."""

    def counts(y):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        with numpyro.plate("rows", len(y)) as i:
            numpyro.sample("y", dist.Poisson(rate), obs=y[i] if indexed else y)

    with jax.numpy_rank_promotion("allow"), pytest.raises(UserError, match=r"'y'.*, 1\)"):
        from_numpyro(counts, {"y": np.arange(5)[:, None] % 3})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_plate_of_few_rows_needs_no_index(number):
    """Two rows were taken for indexed ones. The posterior of a normal mean with a standard normal prior is known."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = lowvar.fit(model, {"y": np.linspace(0, 2, number)}, seed=0, progress=False)
    mean, sd = fit.summary().loc["mu", ["mean", "sd"]]
    total = np.linspace(0, 2, number).sum()
    np.testing.assert_allclose([mean, sd], [total / (number + 1), (number + 1) ** -0.5], atol=0.02)


@pytest.mark.parametrize("number", [2, 3])
def test_the_index_of_a_plate_of_few_rows_is_found(number):
    """Else two rows could not be subsampled, or would be where the model does not use the index."""

    def model(y, indexed):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)) as index:
            numpyro.sample("y", dist.Normal(mu, 1), obs=y[index] if indexed else y)

    y = np.linspace(0, 2, number)
    found = from_numpyro(model, {"y": y, "indexed": True})
    assert (found.plate, found.N) == ("rows", number)
    assert from_numpyro(model, {"y": y, "indexed": False}).plate == ""
    mean = jnp.ones(1)
    rows = [float(found.log_likelihood(mean, jnp.array([row]))[0]) for row in range(number)]
    np.testing.assert_allclose(rows, dist.Normal(1, 1).log_prob(y), rtol=1e-6)
