"""Models with hyperpriors: estimators descend, rows for a test are kept, starts, sizes and mistakes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from small_models import (
    BINARY,
    DATA,
    HELD,
    MEASURED,
    TEST,
    TEST_X,
    N,
    X,
    close,
    made,
    on,
    ours,
    point,
)  # fmt: skip

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.variational import HeldOut, VariationalProblem
from lowvar_studies.datasets.load import load
from lowvar_studies.datasets.prepare import prepare
from lowvar_studies.models.catalogue import build
from lowvar_studies.models.split import split

# --- rows of a test --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(HELD) - {"hlr", "hlr_sd"}))
def test_rows_held_out_have_the_density_of_rows(name):
    p = ours(name)
    data = DATA[name]
    both = {key: np.concatenate([data[key], data[f"test_{key}"]]) for key in ("x", "y")}
    if name == "bnn":  # the responses are standardised by those that are fitted
        both["y"] = (both["y"] - data["y"].mean()) / data["y"].std()
        more = from_density(p, both)
    else:
        more = made(name, both).log_likelihood
    z, index = jnp.asarray(point(name)), jnp.asarray([6, 0, 3])
    assert p.held_out is not None
    assert p.held_out.N == TEST
    close(p.held_out.log_likelihood(z, index), more(z, index + N))


def from_density(p, both):
    """The network's density, in NumPy."""

    def log_likelihood(z, index):
        (inside, bias, out, last), x = np.split(np.asarray(z)[2:], [12, 16, 20]), both["x"][index]
        mean = np.maximum(x @ inside.reshape(3, 4) + bias, 0) @ out + last
        return norm.logpdf(both["y"].ravel()[index], mean, np.exp(-0.5 * float(z[1])))

    return log_likelihood


@pytest.mark.parametrize(("name", "power"), [("hlr", 1), ("hlr_sd", 2)])
def test_a_new_row_of_hlr_has_its_weights_integrated_out(name, power):
    p, z = ours(name), point(name)
    z[p.sites["mu"]] = [0.3, -0.2, 0.1]
    mu, sigma, eps = z[p.sites["mu"]], np.exp(z[p.sites["sigma"]]), np.exp(z[p.sites["eps"]])
    b = mu + sigma ** (power / 2) * np.random.default_rng(0).normal(size=(400_000, 3))
    density = norm.pdf(MEASURED["test_y"].ravel()[:, None], TEST_X @ b.T, eps)
    found = np.exp(p.held_out.log_likelihood(jnp.asarray(z), jnp.arange(TEST)))
    error = density.std(axis=1) / len(b) ** 0.5
    assert np.all(np.abs(found - density.mean(axis=1)) < 5 * error), (found, density.mean(axis=1), error)
    assert np.all(error < 0.01 * found)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(("rows", "samples"), [(1, 1), (7, 1), (1, 50), (5, 11), (9, 12)])
def test_log_likelihood_of_a_test_is_the_log_of_a_mean(rows, samples, backend, monkeypatch, rng):
    """In chunks of four rows and of few samples, the last ones padded."""
    from lowvar.vi import variational

    monkeypatch.setattr(variational, "_TEST_ROWS", 4)
    monkeypatch.setattr(variational, "_TEST_PAIRS", 20)
    data = BINARY | {"test_x": 30 * rng.normal(size=(rows, 3)), "test_y": np.arange(rows) % 2}  # some underflow
    p, ops = build("blr", data, backend), get(backend)
    params, eps = {"mu": point("blr"), "log_sigma": point("blr", seed=2)}, rng.normal(size=(samples, p.dim))
    z = params["mu"] + np.exp(params["log_sigma"]) * eps
    margin = np.where(data["test_y"] == 1, 1, -1) * (z[:, 2:] @ data["test_x"].T)
    expected = np.mean(logsumexp(-np.logaddexp(0, -margin), axis=0) - np.log(samples))
    found = ops.to_numpy(p.test_log_likelihood(*on(backend, (params, eps))))
    assert found.shape == ()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_log_likelihood_of_a_test_maps_over_lanes():
    p = ours("hlr")
    lanes = {"mu": jnp.asarray(point("hlr", (3,))), "log_sigma": jnp.asarray(point("hlr", (3,), seed=2))}
    eps = jax.random.normal(jax.random.key(0), (9, p.dim))
    found = jax.jit(jax.vmap(p.test_log_likelihood, (0, None)))(lanes, eps)
    each = [p.test_log_likelihood(jax.tree.map(lambda leaf, i=i: leaf[i], lanes), eps) for i in range(3)]
    close(found, np.asarray(each))
    one = p.test_log_likelihood({"mu": lanes["mu"][0], "log_sigma": jnp.full(p.dim, -40.0)}, eps)
    close(one, np.mean(p.held_out.log_likelihood(lanes["mu"][0], jnp.arange(TEST))))


def test_impossible_rows_are_minus_infinity():
    p = VariationalProblem(
        "made", get("jax"), 1, 1, lambda z, index: z + index, lambda z: -z[0],
        held_out=HeldOut(2, lambda z, index: jnp.where(index == 1, -jnp.inf, 0.0) + 0 * z[0]),
    )  # fmt: skip
    params = {"mu": jnp.zeros(1), "log_sigma": jnp.zeros(1)}
    assert float(p.test_log_likelihood(params, jnp.ones((3, 1)))) == -np.inf
    assert np.isnan(float(p.test_log_likelihood({**params, "mu": jnp.full(1, np.nan)}, jnp.ones((3, 1)))))


@pytest.mark.parametrize("name", HELD)
def test_without_a_test_there_is_none(name):
    data = {key: DATA[name][key] for key in ("x", "y")}
    p = made(name, data)
    assert p.held_out is None
    with pytest.raises(UserError, match="there are no test rows: give the data a test part"):
        p.test_log_likelihood({}, np.zeros((2, p.dim)))


def test_a_test_that_the_model_does_not_use_is_refused():
    data = {"x": X, "test_x": TEST_X}
    with pytest.raises(UserError, match="mine: model 'ppca' cannot use test rows; leave the split out"):
        build("ppca", data, name="mine", components=2)


# --- starts ----------------------------------------------------------------------------------------------------------


def test_the_network_starts_where_it_has_a_gradient():
    p = build("bnn", MEASURED)
    start = p.initial("origin", jax.random.key(0))
    assert p.dim == 5 * 50 + 1 + 2
    np.testing.assert_array_equal(start["mu"][:2], 0)
    assert 0.25 < start["mu"][2:].std() < 0.35
    np.testing.assert_array_equal(start["log_sigma"], np.log(0.1))
    np.testing.assert_array_equal(start["mu"], p.initial("origin", jax.random.key(0))["mu"])
    assert np.any(start["mu"] != p.initial("origin", jax.random.key(1))["mu"])
    of_likelihood = jax.jit(lambda z: p.prior_gradient(z) - p.full_gradient(z))
    assert np.count_nonzero(of_likelihood(jnp.asarray(start["mu"]))[2:]) > 0.9 * 151
    assert np.count_nonzero(of_likelihood(jnp.zeros(p.dim))[2:]) <= 1  # the last bias alone
    with jax.enable_x64(False):
        np.testing.assert_array_equal(p.initial("origin", jax.random.key(0))["mu"], start["mu"])
    for hidden in (0, 1.5, "many"):
        with pytest.raises(UserError, match="hidden"):
            build("bnn", MEASURED, hidden=hidden)


@pytest.mark.parametrize("name", sorted(set(HELD) - {"bnn"}))
def test_the_others_start_at_the_origin(name):
    np.testing.assert_array_equal(ours(name).initial("origin", jax.random.key(0))["mu"], 0)


# --- sizes, and mistakes ---------------------------------------------------------------------------------------------


def test_sizes_on_data_that_need_no_download(tmp_path):
    cells = load(prepare("breast_cancer", "standard", out=tmp_path / "cells.npz")).arrays
    parts = split(cells, 0, test=0.2)
    p = build("blr", parts)
    assert (p.N, p.held_out.N, p.dim) == (455, 114, 32)
    assert build("blr_softmax", parts, intercept=False).dim == 62
    toy = build("hlr", load(prepare("hlr", "none", out=tmp_path / "toy.npz")).arrays)
    assert (toy.N, toy.held_out.N, toy.dim) == (100, 25, 1012)
