"""NumPyro models as problems: the density is the model's own, and unsuitable models are told so."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density, potential_energy

from lowvar.errors import UserError
from lowvar.problems.logistic_regression import model as logistic_model
from lowvar.problems.logistic_regression import problem as logistic_regression
from lowvar.problems.numpyro_model import from_numpyro

RNG = np.random.default_rng(0)
X = RNG.normal(size=(11, 3))


def gamma_regression(x, y=None, batch_size=None):
    """Positive scale, simplex, bounded site with a parent: constraints of every kind."""
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    low = numpyro.sample("low", dist.Normal(0, 1))
    span = numpyro.sample("span", dist.Uniform(low, low + 3.0))
    mix = numpyro.sample("mix", dist.Dirichlet(jnp.ones(3)))
    w = numpyro.sample("w", dist.Normal(0, scale).expand([3]).to_event(1))
    numpyro.deterministic("total", w.sum() + span)
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        mean = jnp.exp(0.1 * (x[index] @ (w * mix)) + 0.1 * span)
        numpyro.sample("y", dist.Gamma(2.0, 2.0 / mean), obs=None if y is None else y[index])


DATA = {"x": X, "y": RNG.gamma(2.0, size=11)}


def test_density_is_numpyros():
    p = from_numpyro(gamma_regression, DATA)
    assert (p.N, p.dim, p.plate) == (11, 3 + 1 + 1 + 2 + 1, "rows")
    z = jnp.asarray(RNG.normal(size=p.dim) * 0.3)
    ours = jnp.sum(p.log_likelihood(z, jnp.arange(11))) + p.log_prior(z)
    theirs = -potential_energy(gamma_regression, (), DATA, p.unravel(z))
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)


def test_subsampled_density_scales_as_numpyros():
    """The batch estimate is the model's own density with its own subsample_size at the same rows."""
    p = from_numpyro(gamma_regression, DATA)
    z = jnp.asarray(RNG.normal(size=p.dim) * 0.3)
    values = p.constrain(z)
    latent = {site: values[site] for site in p.sites}
    model = handlers.seed(gamma_regression, 3)
    joint, trace = log_density(model, (), {**DATA, "batch_size": 4}, latent)
    index = trace["rows"]["value"]
    assert len(index) == 4
    prior, _ = log_density(handlers.block(handlers.seed(gamma_regression, 0), hide=["y"]), (), {"x": X}, latent)
    ours = 11 * jnp.mean(p.log_likelihood(z, index))
    assert float(ours) == pytest.approx(float(joint - prior), rel=1e-12)


def test_deterministic_sites_come_out():
    p = from_numpyro(gamma_regression, DATA)
    values = p.constrain(jnp.zeros(p.dim))
    assert set(values) == {"scale", "low", "span", "mix", "w", "total"}
    assert float(values["mix"].sum()) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_twin_agrees(dtype):
    x, y = RNG.normal(size=(50, 4)).astype(dtype), RNG.integers(0, 2, 50)
    p, q = (logistic_regression({"x": x, "y": y}, backend) for backend in ("jax", "torch"))
    z, index = RNG.normal(size=4).astype(dtype), np.array([3, 1, 4, 1, 5])
    for function in ("log_likelihood", "log_prior"):
        args = (z, index) if function == "log_likelihood" else (z,)
        ours = getattr(p, function)(*map(jnp.asarray, args))
        twin = getattr(q, function)(*map(q.backend.asarray, args))
        np.testing.assert_allclose(np.asarray(ours), twin.numpy(), rtol=1e-6)
    params = {"mu": z, "log_sigma": -np.abs(z)}
    elbos = [float(m.elbo({k: m.backend.asarray(v) for k, v in params.items()})[0]) for m in (p, q)]
    assert elbos[0] == pytest.approx(elbos[1], rel=1e-5 if dtype == np.float32 else 1e-12)


def test_exact_elbo_is_the_sampled_one():
    p = logistic_regression({"x": X, "y": RNG.integers(0, 2, 11)})
    params = {"mu": jnp.array([0.5, -1.0, 0.2]), "log_sigma": jnp.array([-1.0, 0.3, 0.8])}
    exact, no_error = p.elbo(params)
    sampled, error = p.elbo(params, jax.random.normal(jax.random.key(0), (20_000, 3)))
    assert no_error == 0
    assert abs(float(exact - sampled)) < 5 * float(error)
    assert float(error) < 0.01 * abs(float(exact))


def test_full_pass_in_chunks(monkeypatch):
    from lowvar.problems import variational

    p = logistic_regression({"x": X, "y": RNG.integers(0, 2, 11)})
    z = jnp.array([0.5, -1.0, 0.2])
    whole, energy = p.full_gradient(z), p.full_energy(z)
    monkeypatch.setattr(variational, "_CHUNK", 4)
    np.testing.assert_allclose(p.full_gradient(z), whole, rtol=1e-12)
    assert float(p.full_energy(z)) == pytest.approx(float(energy), rel=1e-12)


def no_plate(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(w * x, 1).to_event(1), obs=y)


def two_plates(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("first", 11):
        numpyro.sample("y", dist.Normal(w, 1), obs=y)
    with numpyro.plate("second", 11):
        numpyro.sample("again", dist.Normal(w, 1), obs=y)


def not_indexed(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", 11):
        numpyro.sample("y", dist.Normal(w, 1), obs=y)


def local_latent(x, y=None):
    with numpyro.plate("data", 11) as index:
        u = numpyro.sample("u", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(u, 1), obs=y[index])


def discrete(x, y=None):
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    with numpyro.plate("data", 11) as index:
        numpyro.sample("y", dist.Normal(k, 1), obs=y[index])


def bad_support(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", 11) as index:
        numpyro.sample("y", dist.Gamma(2.0, jnp.exp(w)), obs=y[index] - 100.0)


def nan_prior(x, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.nan, 1))
    with numpyro.plate("data", 11) as index:
        numpyro.sample("y", dist.Normal(w, 1), obs=y[index])


def improper(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.factor("extra", jnp.log(w - w))
    with numpyro.plate("data", 11) as index:
        numpyro.sample("y", dist.Normal(w, 1), obs=y[index])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (no_plate, "no_plate: the model needs exactly one data plate around its observations and has none"),
        (two_plates, "has several: 'first', 'second'"),
        (not_indexed, "the data are not indexed by the plate 'data'"),
        (local_latent, "latent site 'u' is inside the data plate 'data'"),
        (discrete, "latent site 'k' is discrete"),
        (bad_support, "the log-likelihood of row 0 is (nan|-inf) at the start"),
        (nan_prior, "nan_prior: Normal distribution got invalid loc parameter"),
        (improper, "the log prior is (nan|-inf) at the start"),
        (lambda z: None, "does not take these data"),
    ],
)
def test_unsuitable_models(model, message):
    with pytest.raises(UserError, match=message):
        from_numpyro(model, DATA)


def test_labels_can_be_missing_from_the_catalogue_model():
    """The catalogue's model also predicts: without labels it samples them."""
    trace = handlers.trace(handlers.seed(logistic_model, 0)).get_trace(x=X)
    assert trace["y"]["value"].shape == (11,)
