"""Pyro models: what is outside the data plate, and mistakes."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as jdist
import pytest

import lowvar

pyro = pytest.importorskip("pyro")
torch = pytest.importorskip("torch")
dist = pyro.distributions

N = 12
Y = np.random.default_rng(0).normal(size=N)
y = torch.from_numpy(Y)


def test_factors_outside_the_plate_count_once():
    """Those outside are a part of the prior, and those inside of their rows, as for the NumPyro twin."""

    def model(lib, dist):
        def run(y):
            w = lib.sample("w", dist.Normal(0.0, 1.0))
            lib.factor("f", -0.5 * (w - 2.0) ** 2)
            lib.factor("g", 0.3 * w)
            with lib.plate("d", N) as i:
                lib.sample("y", dist.Normal(w, 1.0), obs=y[i])
                lib.factor("h", w * y[i])

        return run

    mine = lowvar.TorchModel.from_pyro(model(pyro, dist), {"y": y})
    twin = lowvar.problem(model(numpyro, jdist), {"y": jnp.asarray(Y)})
    z, index = np.array([0.7]), np.array([3, 1, 3])
    assert float(mine.log_prior(torch.from_numpy(z))) == pytest.approx(float(twin.log_prior(jnp.asarray(z))), rel=1e-6)
    np.testing.assert_allclose(
        mine.log_likelihood(torch.from_numpy(z), torch.from_numpy(index)),
        twin.log_likelihood(jnp.asarray(z), jnp.asarray(index)), rtol=1e-5,
    )  # fmt: skip


def reading_the_batch(y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("d", N) as i:
        pyro.sample("y", dist.Normal(w, 1.0), obs=y[i])
    pyro.factor("f", (w * y[i]).sum())


def own_subsample(y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("d", size=N, subsample=torch.arange(4)) as i:
        pyro.sample("y", dist.Normal(w, 1.0), obs=y[i])


def unindexed(y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", N):
        pyro.sample("y", dist.Normal(w, 1.0), obs=y)


def local(y):
    with pyro.plate("data", N) as i:
        pyro.sample("y", dist.Normal(pyro.sample("w", dist.Normal(0.0, 1.0)), 1.0), obs=y[i])


def discrete(y):
    k = pyro.sample("k", dist.Bernoulli(0.5))
    with pyro.plate("data", N) as i:
        pyro.sample("y", dist.Normal(k, 1.0), obs=y[i])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (reading_the_batch, "'f', outside the plate 'd', changes with the rows"),
        (own_subsample, "'d' has an explicit"),
        (unindexed, "index the data by it"),
        (local, "inside the data plate 'data'"),
        (discrete, "'k' is discrete"),
    ],
)
def test_models_that_are_refused(model, message):
    with pytest.raises(lowvar.UserError, match=message):
        lowvar.TorchModel.from_pyro(model, {"y": y})


def test_missing_observations_are_masked():
    """``obs_mask`` makes latent sites in the plate; the mask that its refusal advises leaves the rows out."""
    mask = torch.arange(N) % 3 > 0

    def latent(y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("d", N) as i:
            pyro.sample("y", dist.Normal(w, 1.0), obs=y[i], obs_mask=mask[i])

    def masked(y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("d", N) as i, pyro.poutine.mask(mask=mask[i]):
            pyro.sample("y", dist.Normal(w, 1.0), obs=y[i])

    with pytest.raises(lowvar.UserError, match="'y' has an obs_mask"):
        lowvar.TorchModel.from_pyro(latent, {"y": y})
    gaps = torch.where(mask, y, torch.nan)
    found = lowvar.TorchModel.from_pyro(masked, {"y": gaps}).log_likelihood(torch.zeros(1).double(), torch.arange(N))
    torch.testing.assert_close(found, torch.where(mask, dist.Normal(0.0, 1.0).log_prob(y), 0.0))


@pytest.mark.parametrize("dtype", ["float32", "float64", ">f8"])
def test_numpy_arrays_keep_their_precision(dtype):
    def model(y, rows):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("d", rows) as i:
            pyro.sample("y", dist.Normal(w, 1.0), obs=y[i])

    found = lowvar.TorchModel.from_pyro(model, {"y": Y.astype(dtype)[::-1], "rows": np.array(N)})
    assert found.dtype is (torch.float32 if dtype == "float32" else torch.float64)
    values = found.log_likelihood(torch.zeros(1, dtype=found.dtype), torch.arange(N))
    np.testing.assert_allclose(
        values, -0.5 * (Y[::-1] ** 2 + np.log(2 * np.pi)), rtol=1e-5 if dtype == "float32" else 1e-12
    )


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (lambda w: dist.Bernoulli(logits=w), 1.0 + torch.arange(12) % 2),
        (lambda w: dist.Poisson(torch.exp(w)), torch.arange(12) + 0.5),
    ],
)
def test_observations_outside_the_support_are_refused(make, y):
    def model(y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 12, subsample_size=4) as i:
            pyro.sample("seen", make(w).expand([len(i)]), obs=y[i])

    lowvar.TorchModel.from_pyro(model, {"y": torch.ones(12)})
    with pyro.validation_enabled(False), pytest.raises(lowvar.UserError, match=r"'seen' is .*outside the support"):
        lowvar.TorchModel.from_pyro(model, {"y": y})


@pytest.mark.parametrize(
    ("make", "y"),
    [
        (lambda w, y: dist.Bernoulli(logits=w.expand(y.shape), validate_args=False), torch.linspace(0.0, 1.0, 12)),
        (
            lambda w, y: dist.Bernoulli(logits=w.expand(y.shape)).mask(y >= 0).to_event(1),
            (torch.arange(36) % 3 - 1.0).reshape(12, 3),
        ),
    ],
    ids=["soft labels", "masked entries"],
)
@pytest.mark.parametrize("validated", [True, False])
def test_values_that_are_meant_or_masked_are_not_compared_with_the_support(make, y, validated):
    def model(y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", 12, subsample_size=4) as i:
            pyro.sample("seen", make(w, y[i]), obs=y[i])

    with pyro.validation_enabled(validated):
        made = lowvar.TorchModel.from_pyro(model, {"y": y})
    assert torch.isfinite(made.log_likelihood(torch.zeros(1), torch.arange(12))).all()


@pytest.mark.parametrize("indexed", [False, True])
def test_entries_are_not_paired_with_all_others(indexed):
    def counts(y):
        rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
        with pyro.plate("rows", len(y), subsample_size=4) as i:
            pyro.sample("y", dist.Poisson(rate), obs=y[i] if indexed else y)

    with pyro.validation_enabled(False), pytest.raises(lowvar.UserError, match=r"'y'.*, 1\)"):
        lowvar.TorchModel.from_pyro(counts, {"y": (torch.arange(9.0) % 3)[:, None]})
