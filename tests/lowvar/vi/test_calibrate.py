"""Simulation-based calibration: coverage of fits whose error is known."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import lowvar
from lowvar.core.keys import named_key
from lowvar.vi import calibrate

PAIRS, ROWS = 10, 40


def design():
    """Columns in pairs of correlation 0.9, each pair orthogonal to the others: ``X^T X`` is block diagonal."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(ROWS, 2 * PAIRS)))[0]
    mix = np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]]).T
    return np.concatenate([5 * basis[:, [k, k + 1]] @ mix for k in range(0, 2 * PAIRS, 2)], axis=1).astype("float32")


X = design()
DATA = {"x": X, "y": np.zeros(ROWS, "float32")}
PRECISION = np.eye(2 * PAIRS) + X.T @ X
# the best mean-field guide's standard deviation over the posterior's, of every coefficient
NARROW = float(1 / np.sqrt(PRECISION[0, 0] * np.linalg.inv(PRECISION)[0, 0]))


def line(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(x), subsample_size=batch_size) as i:
        numpyro.sample("seen", dist.Normal(x[i] @ w, 1.0), obs=y[i])


def coverage(level, ratio):
    """Of a central interval of a normal whose standard deviation is ``ratio`` times the right one."""
    return 1 - 2 * norm.cdf(norm.ppf(0.5 - level / 2) * ratio)


@pytest.mark.parametrize(
    ("linear_response", "ratio"), [(False, NARROW), pytest.param(True, 1.0, marks=pytest.mark.long)]
)
def test_coverage_is_that_of_the_guide(linear_response, ratio):
    found = lowvar.calibrate(line, DATA, fits=20, linear_response=linear_response, seed=5, progress=False)
    assert found.p.shape == (20, 2 * PAIRS)
    assert list(found.table.index[:2]) == ["w[0]", "w[1]"]
    for level in (0.5, 0.9):
        exact = coverage(level, ratio)
        error = np.sqrt(exact * (1 - exact) / (20 * PAIRS))  # the two of a pair may be no more than one
        assert abs(found.table[f"cover_{round(100 * level)}"].mean() - exact) < 5 * error
    assert abs(found.table["above"].mean() - 0.5) < 5 * np.sqrt(0.25 / (20 * PAIRS))
    surely = "90 % intervals" in str(found)
    assert surely == (ratio < 1)
    assert abs(found.table["widen"].median() * ratio - 1) < 0.3


@pytest.mark.long
def test_sites_with_constraints_and_counts():
    def counts(y):
        rate = numpyro.sample("rate", dist.Gamma(20.0, 2.0))
        share = numpyro.sample("share", dist.Dirichlet(5 * jnp.ones(3)))
        with numpyro.plate("rows", len(y)) as i:
            numpyro.sample("y", dist.Poisson(rate * jnp.take(share, i % 3)), obs=y[i])

    one = lowvar.calibrate(counts, {"y": np.arange(30) % 5}, fits=20, seed=3, progress=False)
    assert list(one.table.index) == ["rate", "share[0]", "share[1]"]
    assert ((one.p > 0) & (one.p < 1)).all()
    ends = one.table[["cover_90_low", "cover_90", "cover_90_high"]].to_numpy()
    assert (np.diff(ends) >= 0).all()
    assert (ends[:, 2] > 0.85).all()


def factor(y):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.factor("penalty", -(w**2))
    numpyro.sample("y", dist.Normal(w, 1).expand([len(y)]).to_event(1), obs=y)


def logs(y):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("seen", dist.Normal(w, 1).expand([len(y)]).to_event(1), obs=jnp.log(y))


def param(y):
    w = numpyro.param("w", 0.0)
    numpyro.sample("y", dist.Normal(w, 1).expand([len(y)]).to_event(1), obs=y)


def improper(y):
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(w, 1).expand([len(y)]).to_event(1), obs=y)


def about_the_mean(y):
    w = numpyro.sample("w", dist.Normal(y.mean(), 1))
    numpyro.sample("y", dist.Normal(w, 1).expand([len(y)]).to_event(1), obs=y)


def prior_only(y):
    numpyro.sample("w", dist.Normal(0, 1))


@pytest.mark.parametrize(
    ("model", "settings", "name"),
    [
        (factor, {}, "'penalty'"),
        (logs, {}, "'seen'"),
        (param, {}, "'w'"),
        (improper, {}, "improper prior"),
        (about_the_mean, {}, "'w' changes with 'y'"),
        (logs, {"linear_response": "yes"}, "linear_response"),
        (prior_only, {}, "prior_only"),
        (lambda y, x: y, {}, "'x'"),
        (3, {}, "model"),
        (logs, {"fits": 5}, "fits"),
        (logs, {"init": {}}, "init"),
    ],
)
def test_what_cannot_be_calibrated(model, settings, name):
    with pytest.raises(lowvar.UserError, match=name):
        lowvar.calibrate(model, {"y": np.arange(1.0, 5.0)}, progress=False, **settings)


@pytest.mark.parametrize("y", [np.arange(12) % 3, (np.arange(12) % 3).astype("uint8")])
def test_simulated_data_keep_their_values(y):
    """Integers would cut off what a normal draws, and eight bits large counts."""

    def normal(y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w, 1).expand([len(y)]), obs=y)

    def counts(y):
        rate = numpyro.sample("rate", dist.Gamma(4000.0, 2.0))
        numpyro.sample("y", dist.Poisson(rate).expand([len(y)]), obs=y)

    for model, has in ((normal, lambda one: (one % 1 != 0).any()), (counts, lambda one: (one > 1000).all())):
        observed = calibrate._observed(model, {"y": y}, "model")
        _, simulated = calibrate._simulated(model, {"y": y}, observed, named_key(0, "a"), "model")
        assert has(simulated["y"])


def test_arguments_that_cannot_be_told_apart():
    def twice(y, z):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("one", dist.Normal(w, 1).expand([len(y)]), obs=y)
        numpyro.sample("other", dist.Normal(w, 2).expand([len(y)]), obs=y)

    for z, name in ((np.arange(4.0), "'y'"), (np.zeros(4), "'y' or 'z'")):
        with pytest.raises(lowvar.UserError, match=name):
            lowvar.calibrate(twice, {"y": np.zeros(4), "z": z}, progress=False)
