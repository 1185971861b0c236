"""NumPyro models as problems: the density is the model's own, and unsuitable models are told so."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions.distribution import COERCIONS
from numpyro.infer.util import log_density, potential_energy

from lowvar.errors import UserError
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.numpyro.trace import prototype
from lowvar_studies.models.logistic_regression import problem as logistic_regression

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


@pytest.fixture(scope="module")
def p():
    return from_numpyro(gamma_regression, DATA)


def test_density_is_numpyros(p, rng):
    assert (p.N, p.dim, p.plate) == (11, 3 + 1 + 1 + 2 + 1, "rows")
    z = jnp.asarray(rng.normal(size=p.dim) * 0.3)
    ours = jax.jit(lambda z: jnp.sum(p.log_likelihood(z, jnp.arange(11))) + p.log_prior(z))(z)
    arrays = {key: jnp.asarray(value) for key, value in DATA.items()}
    theirs = jax.jit(lambda z: -potential_energy(gamma_regression, (), arrays, p.unravel(z)))(z)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)
    values = p.constrain(z)
    assert set(values) == {"scale", "low", "span", "mix", "w", "total"}
    assert float(values["mix"].sum()) == pytest.approx(1)


def test_subsampled_density_scales_as_numpyros(p, rng):
    """The batch estimate is the model's own density with its own subsample_size at the same rows."""
    z = jnp.asarray(rng.normal(size=p.dim) * 0.3)
    values = p.constrain(z)
    latent = {site: values[site] for site in p.sites}
    data = {key: jnp.asarray(value) for key, value in DATA.items()}
    model, without = handlers.seed(gamma_regression, 3), handlers.block(handlers.seed(gamma_regression, 0), hide=["y"])

    @jax.jit
    def densities(z, latent):
        joint, trace = log_density(model, (), {**data, "batch_size": 4}, latent)
        prior, _ = log_density(without, (), {"x": data["x"]}, latent)
        index = trace["rows"]["value"]
        return index, joint - prior, 11 * jnp.mean(p.log_likelihood(z, index))

    index, theirs, ours = densities(z, latent)
    assert len(index) == 4
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)


def test_full_pass_in_chunks(monkeypatch, rng):
    from lowvar.vi import variational

    p = logistic_regression({"x": X, "y": rng.integers(0, 2, 11)})
    z = jnp.array([0.5, -1.0, 0.2])

    def both():
        return jax.jit(lambda z: (p.full_gradient(z), p.full_energy(z)))(z)

    whole, energy = both()
    monkeypatch.setattr(variational.VariationalProblem, "most_rows", 4)
    gradient, of_chunks = both()
    np.testing.assert_allclose(gradient, whole, rtol=1e-12)
    assert float(of_chunks) == pytest.approx(float(energy), rel=1e-12)


def weighted(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index, handlers.scale(scale=0.1):
        numpyro.sample("y", dist.Normal(x[index] @ w, 1), obs=None if y is None else y[index])


def subsampled(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size):
        xs, ys = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Normal(xs @ w, 1), obs=ys)


@pytest.mark.parametrize("model", [weighted, subsampled])
def test_scaled_and_subsampled_models(model):
    p = from_numpyro(model, DATA)
    z = jnp.array([0.3, -0.2, 0.1])
    arrays = {k: jnp.asarray(v) for k, v in DATA.items()}
    batches = np.arange(11)[::-1], np.zeros(11, int), np.array([10])

    @jax.jit
    def densities(z):
        rows, *others = (p.log_likelihood(z, jnp.asarray(index)) for index in (np.arange(11), *batches))
        return rows, others, rows.sum() + p.log_prior(z), -potential_energy(model, (), arrays, p.unravel(z))

    rows, others, ours, theirs = jax.tree.map(np.asarray, densities(z))
    assert ours == pytest.approx(theirs, rel=1e-12)
    for index, found in zip(batches, others, strict=True):
        np.testing.assert_allclose(found, rows[index], rtol=1e-12)


def gapped(u, g, y):
    """Gaps of ``u`` are read by group; those of ``y`` are none of its business."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", 11) as index:
        numpyro.sample(
            "y", dist.Normal(w * u[g[index]], jnp.nan_to_num(y[index], nan=1.0)), obs=jnp.asarray(X)[index, 0]
        )


GROUPS = {"u": np.array([0.3, np.nan, 0.1]), "g": np.arange(11) % 3, "y": np.ones(11)}
LOST = np.where(np.arange(11) == 9, np.nan, DATA["y"])


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (gamma_regression, {"x": X, "y": LOST}, "row 9 is (nan|-inf) at the start; 'y' is NaN in 1 places"),
        (gapped, GROUPS, "row 1 is nan at the start; 'u' is NaN in 1 places, the first in row 1"),
        (gapped, GROUPS | {"u": np.ones(3), "y": np.where(np.arange(11) == 4, np.nan, -1.0)}, "row 0 is (nan|-inf)"),
    ],
)
def test_a_row_without_a_density_is_named_with_the_gap_that_it_reads(model, data, message):
    with numpyro.validation_enabled(False), pytest.raises(UserError, match=message):
        from_numpyro(model, data)


def test_arrays_of_different_lengths():
    """Of nested data too, which are converted."""

    def model(d, N):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", N, subsample_size=4) as index:
            numpyro.sample("y", dist.Normal(w * d["x"][0][index], 1), obs=d["y"][index])

    x, y = X[:, 0], DATA["y"]
    found = from_numpyro(model, {"d": {"x": (x,), "y": y}, "N": np.array(11)})
    values = found.log_likelihood(jnp.ones(1), jnp.arange(11))
    np.testing.assert_allclose(values, -0.5 * ((y - x) ** 2 + np.log(2 * np.pi)), rtol=1e-5)
    for data, told in (({"x": (x,), "y": y[:7]}, r"\['y'\].* has 7"), ({"x": (np.tile(x, 2),), "y": y}, "has 22")):
        with pytest.raises(UserError, match=f"'rows' has 11 rows, but .*{told}"):
            from_numpyro(model, {"d": data, "N": 11})
    for wrong, told in (({**DATA, "names": ["a", "b"]}, "'names'"), ([X], "data must be a dict")):
        with pytest.raises(UserError, match=told):
            from_numpyro(gamma_regression, wrong)


def test_longer_arrays_that_the_plate_does_not_pair_are_allowed():
    def model(table, group, series):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", 11) as index:
            numpyro.sample("y", dist.Normal(w * table[group[index]] + series[index], 1), obs=series[index + 1])

    table, series = np.arange(30.0) % 7, np.arange(12.0) % 5
    for group in (np.arange(11), np.full(11, 11)):
        assert from_numpyro(model, {"table": table, "group": group, "series": series}).N == 11


@pytest.mark.parametrize(
    ("outputs", "inner", "given"),
    [(2, False, {"batch_size": 4}), pytest.param(3, True, {"batch_size": 11}, marks=pytest.mark.long)],
    ids=str,
)
def test_a_fixed_plate_inside_the_data_plate(outputs, inner, given, rng):
    """Its sum belongs to the row, and a latent site in it to the prior."""
    y = rng.normal(size=(11, outputs))

    def model(x, y, batch_size=None):
        fixed = numpyro.plate("a fixed one", outputs, dim=-1 if inner else -2)
        with fixed:
            sd = numpyro.sample("sd", dist.LogNormal(0, 1).expand([outputs] if inner else [outputs, 1]))
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3, outputs]).to_event(2))
        with numpyro.plate("rows", 11, subsample_size=batch_size, dim=-2 if inner else -1) as index, fixed:
            mean = x[index] @ w
            if inner:
                numpyro.sample("y", dist.Normal(mean, sd[None, :]), obs=y[index])
            else:
                numpyro.sample("y", dist.Normal(mean.T, sd), obs=y[index].T)

    p = from_numpyro(model, {"x": X, "y": y, **given})
    assert (p.N, p.plate, p.dim) == (11, "rows", 4 * outputs)
    z, index = 0.3 * rng.normal(size=p.dim), np.array([3, 0, 7, 3])
    u, w = z[:outputs], z[outputs:].reshape(3, outputs)  # u: log sd

    def normal(x, mean, sd):
        return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)

    rows = normal(y, X @ w, np.exp(u)).sum(axis=1)
    found, of_prior = jax.jit(lambda z: (p.log_likelihood(z, jnp.asarray(index)), p.log_prior(z)))(z)
    np.testing.assert_allclose(found, rows[index], rtol=1e-12)
    prior = normal(u, 0.0, 1.0).sum() + normal(w, 0.0, 1.0).sum()
    assert float(of_prior) == pytest.approx(prior, rel=1e-12)


def discrete(x, y=None):
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    with numpyro.plate("data", 11) as index:
        numpyro.sample("y", dist.Normal(k, 1), obs=y[index])


def improper(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.factor("extra", jnp.log(w - w))
    with numpyro.plate("data", 11) as index:
        numpyro.sample("y", dist.Normal(w, 1), obs=y[index])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (discrete, "latent site 'k' is discrete"),
        (improper, "the log prior is (nan|-inf) at the start"),
    ],
)
def test_unsuitable_models(model, message):
    with pytest.raises(UserError, match=message):
        from_numpyro(model, DATA)


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (lambda w: dist.Categorical(logits=jnp.stack([w, 0.0 * w, -w], -1)), 1 + np.arange(11) % 3),
        (lambda w: dist.Poisson(jnp.exp(w)), np.arange(11) + 0.5),
    ],
)
@pytest.mark.parametrize("plate", [True, False])
def test_observations_outside_the_support_are_named(make, y, plate):
    def model(labels):
        w = numpyro.sample("w", dist.Normal(0, 1))
        if not plate:
            numpyro.sample("seen", make(jnp.full(11, w)).to_event(1), obs=labels)
            return
        with numpyro.plate("data", 11) as index:
            numpyro.sample("seen", make(jnp.full(len(index), w)), obs=labels[index])

    with pytest.raises(UserError, match=r"'seen' is .*outside the support") as refusal:
        from_numpyro(model, {"labels": y})
    assert "init" not in str(refusal.value)


def test_log_densities_of_numpyro_that_are_float64_are_cast(rng):
    """Under x64, NumPyro's Poisson gives float64 for rates and counts in float32."""
    y = jnp.asarray(rng.poisson(2.0, 12), jnp.float32)

    def counts(y, batch_size=None):
        log_rate = numpyro.sample("log_rate", dist.Normal(jnp.float32(0), 1))
        with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)), obs=y[index])

    problem = from_numpyro(counts, {"y": y})
    eps = jnp.zeros((2, 1), jnp.float32)
    params = {block: jnp.asarray(value, problem.dtype) for block, value in problem.start.items()}
    of_rows = jax.eval_shape(problem.log_likelihood, jnp.zeros(1, jnp.float32), jnp.arange(3))
    assert of_rows.dtype == jnp.float32
    assert np.isfinite(jax.jit(problem.elbo)(params, eps)[0])


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        (lambda w: numpyro.factor("f", dist.Bernoulli(1.5 + 0 * w).log_prob(1.0)), "probs"),
        (lambda w: dist.Gamma(-jnp.exp(w), 1.0).mean, "concentration"),
        (lambda w: numpyro.sample("m", dist.MixtureSameFamily(
            dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.stack([w, w]), -jnp.exp(w))), obs=0.0), "scale"),
    ],
    ids=["factor", "unused", "mixture"],
)  # fmt: skip
def test_parameters_out_of_range_are_refused_wherever_a_distribution_has_them(extra, name):
    def model(y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        extra(w)
        numpyro.sample("y", dist.Normal(w, 1), obs=y)

    with pytest.raises(UserError, match=f"got invalid {name}"):
        from_numpyro(model, {"y": np.array(0.3)})
    assert not COERCIONS


def test_the_first_run_of_a_model_is_one_program_unless_it_needs_values():
    runs = []

    def bounded(y, bound):
        runs.append(bound)
        low = bound if bound is None else jnp.asarray(bound) - 1
        w = numpyro.sample("w", dist.Normal(0, 1) if low is None else dist.Uniform(low, low + 2))
        numpyro.sample("y", dist.Normal(jnp.sin(w), 1), obs=y)

    for bound, count in ((None, 1), (1.0, 2)):  # the support is known outside of the program
        runs.clear()
        site = prototype(bounded, {"y": jnp.asarray(0.3), "bound": bound}, "model")["w"]
        assert len(runs) == count
        assert not isinstance(site["value"], jax.core.Tracer)
        assert float(site["fn"].support(site["value"]))
