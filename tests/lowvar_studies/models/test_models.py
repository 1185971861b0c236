"""All models: densities are NumPyro's, derivatives autodiff's, closed forms are means, backends agree; rows held out."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.batches import Noise
from lowvar.vi.guides.gaussian import GUIDES
from lowvar.vi.numpyro.model import NumPyroProblem, from_numpyro
from lowvar.vi.variational import HeldOut, VariationalProblem
from lowvar_studies.datasets.load import load
from lowvar_studies.datasets.prepare import prepare
from lowvar_studies.jobs.variational.spec import ModelSpec
from lowvar_studies.models import blr, bnn, bradley_terry, hlr, logistic_regression, movielens, ppca
from lowvar_studies.models.catalogue import build
from lowvar_studies.models.split import split
from lowvar_studies.reports.variational import gathering

RNG = np.random.default_rng(0)
N, TEST = 13, 7
X, TEST_X = RNG.normal(size=(N, 3)), RNG.normal(size=(TEST, 3))
MEASURED = {"x": X, "y": 2 + 3 * RNG.normal(size=(N, 1)), "test_x": TEST_X, "test_y": RNG.normal(size=(TEST, 1))}
BINARY = {"x": X, "y": np.arange(N) % 2, "test_x": TEST_X, "test_y": np.arange(TEST) % 2}
CLASSES = {"x": X, "y": np.arange(N) % 4, "test_x": TEST_X, "test_y": np.arange(TEST) % 4}
WINNER = RNG.permutation(np.arange(N) % 6).astype(np.int32)
PAIRS = {"winner": WINNER, "loser": (WINNER + RNG.integers(1, 6, N).astype(np.int32)) % 6, "players": 6}
USER, GENRES = (np.arange(N) % 5).astype(np.int32), RNG.integers(0, 2, (N, 3)).astype(float)
RATED = {"user": USER, "x": GENRES, "y": np.arange(N) % 4, "users": 5}
DATA = {
    "hlr": MEASURED,
    "hlr_sd": MEASURED,
    "blr": BINARY,
    "blr_softmax": CLASSES,
    "blr_softmax_without": CLASSES,
    "bnn": MEASURED,
    "logistic_regression": BINARY,
    "softmax_regression": CLASSES,
    "bradley_terry": PAIRS,
    "movielens": RATED,
    "ppca": {"x": RNG.normal(size=(N, 7)) * np.arange(1, 8), "components": 3},
}


def softmax_regression(x, classes, y, batch_size=None):
    """The model of several classes in NumPyro."""
    z = numpyro.sample("z", dist.Normal(0, 1).expand([x.shape[1], classes]).to_event(2))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Categorical(logits=x[index] @ z), obs=y[index])


def blr_softmax(x, classes, y, intercept=True, batch_size=None):
    """``blr`` of several classes in NumPyro; their intercepts are the last row of ``w (d + 1, classes)``."""
    d = x.shape[1]
    alpha, mu = numpyro.sample("alpha", dist.Gamma(0.5, 0.5)), numpyro.sample("mu", dist.Normal(0, 1))
    w = numpyro.sample("w", dist.Normal(mu, alpha**-0.5).expand([d + intercept, classes]).to_event(2))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        logits = x[index] @ w[:d] + (w[d] if intercept else 0.0)
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y[index])


PYRO = {
    "hlr": hlr.model,
    "hlr_sd": functools.partial(hlr.model, intercepts="sd"),
    "blr": blr.model,
    "blr_softmax": functools.partial(blr_softmax, classes=4),
    "blr_softmax_without": functools.partial(blr_softmax, classes=4, intercept=False),
    "bnn": functools.partial(bnn.model, hidden=4),
    "logistic_regression": logistic_regression.model,
    "softmax_regression": functools.partial(softmax_regression, classes=4),
    "bradley_terry": functools.partial(bradley_terry.model, players=6),
    "movielens": functools.partial(movielens.model, users=5, classes=4),
    "ppca": functools.partial(ppca.model, components=3),
}
OPTIONS = {"bnn": {"hidden": 4}, "blr_softmax_without": {"intercept": False}, "hlr_sd": {"intercepts": "sd"}}
VARIANTS = {"blr_softmax_without": "blr_softmax", "hlr_sd": "hlr"}
MODELS, HELD = sorted(DATA), sorted(name for name, data in DATA.items() if "test_x" in data)


def made(name, data, backend="jax"):
    """The model on other data."""
    return build(VARIANTS.get(name, name), data, backend, **OPTIONS.get(name, {}))


@functools.cache
def ours(name, backend="jax"):
    return made(name, DATA[name], backend)


def fitted(name):
    """The arrays that the model in NumPyro takes."""
    return {key: v for key, v in DATA[name].items() if isinstance(v, np.ndarray) and not key.startswith("test_")}


@functools.cache
def theirs(name):
    with jax.numpy_rank_promotion("allow"):
        return from_numpyro(PYRO[name], fitted(name), name=name)


def point(name, rows=(), seed=1):
    return 0.4 * np.random.default_rng(seed).normal(size=(*rows, ours(name).dim))


@functools.cache
def noise(name):
    rng = np.random.default_rng(5)
    index, weight = rng.integers(0, N, 5).astype(np.int32), rng.uniform(0.5, 1.5, 5)  # rows may come twice
    return Noise(index, weight / weight.sum(), np.float64(5), rng.normal(size=(2, ours(name).dim)), np.arange(5))


def on(backend, tree):
    return get(backend).tree_map(get(backend).asarray, tree)


def close(found, expected, rtol=1e-10):
    scale = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol * scale)


def calls(problem, asked):
    """``{method: its result}`` of ``{method: arguments}``, in JAX by one program.

    Of a problem from NumPyro, with the rank promotion that NumPyro makes use of.
    """
    ops = problem.backend
    program = ops.jit(lambda given: {name: getattr(problem, name)(*args) for name, args in given.items()})
    with jax.numpy_rank_promotion("allow" if isinstance(problem, NumPyroProblem) else "raise"):
        return ops.to_numpy(program(asked))


def call(problem, method, *args):
    """One method, compiled."""
    return calls(problem, {method: args})[method]


def each(of=MODELS, long=()):
    """All models, those that are ``long`` in ``make test-long`` alone: other models run the same code."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.long if name in long else ()) for name in of]
    )


ALIKE = ("hlr_sd", "blr_softmax_without", "softmax_regression")


@each(long=(*ALIKE, "blr", "logistic_regression", "movielens"))  # test_linear.py has their predictors' products
def test_density_and_gradient_are_numpyros(name):
    p, q, n = ours(name), theirs(name), on("jax", noise(name))
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    assert (p.N, p.dim, dict(p.sites), p.dtype) == (q.N, q.dim, dict(q.sites), q.dtype)
    of_parts = {"log_likelihood": (z, n.index), "log_prior": (z,)}
    if name == "ppca":  # the normalising constants of its rows are with the prior: sums are compared
        close(VariationalProblem.full_energy(p, z), call(q, "full_energy", z))
        of_parts = {}
    asked = {**of_parts, "full_energy": (z,), "objective_gradient": ({"mu": z, "log_sigma": t - 2}, n)}
    found, expected = calls(p, asked), calls(q, asked)
    for method in asked:
        close(found[method], expected[method])


# test_linear.py has the products of the long ones' designs
@each(long=(*ALIKE, "blr", "bradley_terry", "logistic_regression", "movielens"))
def test_closed_derivatives_are_those_of_autodiff(name):
    """What a model derives by hand, against what the base class makes of the density that the test above compares."""
    p, n = ours(name), on("jax", noise(name))
    if type(p) is VariationalProblem:
        assert name == "bnn"
        return
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    rows, sigma = jnp.asarray(point(name, (5,))), jnp.exp(jnp.asarray(point(name, (5,), seed=2)))
    plain = VariationalProblem("plain", p.backend, p.N, p.dim, p.log_likelihood, p.log_prior)
    asked = {
        "prior_gradient": (z,),
        "full_gradient": (z,),
        "gradient_and_hvp": (z, t, n.index, n.weight),
        "approximation_by_row": ({"mu": rows, "sigma": sigma}, n),
        "approximation_mean_by_row": ({"mu": rows, "sigma": sigma}, n.index, n.weight),
        "full_approximation": ({"mu": z, "sigma": t}, n.eps),
        "objective_gradient_by_row": ({"mu": rows, "log_sigma": sigma - 2}, n),
        "likelihood_at_rows": (rows, t, n.index, n.weight),
    }
    found, expected = calls(p, asked), calls(plain, asked)
    for method in asked:
        close(found[method], expected[method])


# linear, as bradley_terry is; the network's derivatives are autodiff's
@each(long=(*ALIKE, "blr", "blr_softmax", "bnn", "logistic_regression", "movielens"))
def test_backends_agree(name):
    p, q, n = ours(name), ours(name, "torch"), noise(name)
    z, t, rows = point(name), point(name, seed=2), point(name, (5,))
    params, points = {"mu": z, "log_sigma": t - 2}, {"mu": rows, "sigma": np.exp(rows)}
    eps = np.random.default_rng(0).normal(size=(7, p.dim))
    asked = {
        "log_likelihood": (z, n.index),
        "log_prior": (z,),
        "full_energy": (z,),
        "full_gradient": (z,),
        "objective_gradient": (params, n),
        "full_objective_gradient": (params, n.eps),
        "objective_gradient_by_row": ({"mu": rows, "log_sigma": rows - 2}, n),
        "approximation": ({"mu": z, "sigma": np.exp(t)}, n),
        "approximation_by_row": (points, n),
        "approximation_mean_by_row": (points, n.index, n.weight),
        "likelihood_at_rows": (rows, t, n.index, n.weight),
        "elbo": (params, eps),
        "exact_elbo": (params,),
        "expected_log_prior": (params,),
        "test_log_likelihood": (params, eps),
    }
    if name not in HELD:
        del asked["test_log_likelihood"]
    for method in [method for method in asked if getattr(p, method) is None]:
        assert (name, method) in (("bnn", "exact_elbo"), ("ppca", "exact_elbo"), ("ppca", "expected_log_prior"))
        del asked[method]
    found, expected = calls(q, on("torch", asked)), calls(p, on("jax", asked))
    for method in asked:
        close(found[method], expected[method])


@each(long=(*ALIKE, "blr", "blr_softmax", "bnn", "logistic_regression", "movielens"))
def test_closed_forms_are_means(name):
    """The exact ELBO and its prior's part against 20 000 samples."""
    p = ours(name)
    if name == "ppca":
        assert p.exact_elbo is p.expected_log_prior is None
        return
    params = {"mu": jnp.asarray(point(name)), "log_sigma": jnp.asarray(point(name, seed=2)) - 1.5}
    eps = jax.random.normal(jax.random.key(0), (20_000, p.dim))
    prior = jax.jit(jax.vmap(lambda eps: p.log_prior(p.guide.transform(params, eps))))(eps)
    exact, error = call(p, "expected_log_prior", params), float(prior.std()) / len(eps) ** 0.5
    assert abs(float(prior.mean() - exact)) < 5 * error, (prior.mean(), exact, error)
    if p.exact_elbo is None:
        assert name == "bnn"
        return
    sampled, error = jax.jit(p.elbo)(params, eps)
    exact, none = jax.jit(p.elbo)(params)
    assert none == 0
    assert abs(float(sampled - exact)) < 5 * float(error), (sampled, exact, error)
    assert float(error) < 0.01 * abs(float(exact))


@each(
    of=[name for name in MODELS if "x" in DATA[name]],
    long=(*ALIKE, "blr", "blr_softmax", "bnn", "logistic_regression", "movielens", "ppca"),
)
def test_single_precision_stays_single(name):
    single = np.float32
    p = made(name, {k: v.astype(single) if np.asarray(v).dtype.kind == "f" else v for k, v in DATA[name].items()})
    n = Noise(*(jnp.asarray(v, single if np.asarray(v).dtype.kind == "f" else None) for v in noise(name)))
    z = jnp.asarray(point(name), single)
    params = {"mu": z, "log_sigma": z - 1}
    asked = {
        "objective_gradient": (params, n),
        "approximation": ({"mu": z, "sigma": z}, n),
        "full_gradient": (z,),
    }
    if name in HELD:
        asked["test_log_likelihood"] = params, n.eps
    found = calls(p, asked)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(single)}
    assert p.dtype == single
    assert np.isfinite(call(p, "elbo", params, n.eps)[0])
    double = {key: value.astype(np.float64) for key, value in params.items()}
    close(found["objective_gradient"], call(ours(name), "objective_gradient", double, on("jax", noise(name))), 1e-4)
    close(found["full_gradient"], call(ours(name), "full_gradient", z.astype(np.float64)), 1e-4)


@pytest.mark.parametrize(
    ("name", "change", "argument"),
    [
        *(("hlr", {"y": y}, "y") for y in (np.zeros((N, 2)), np.zeros(N - 1))),
        *(("hlr", {"test_x": x}, "test_x") for x in (TEST_X[:, :2], TEST_X[:3])),
        ("blr", {"y": np.arange(N) % 3}, "y"),
        ("blr", {"test_y": np.arange(TEST) - 1}, "test_y"),
        ("logistic_regression", {"y": np.arange(N) % 3}, "y"),
        ("blr", {"x": X.astype(int)}, "x"),
        *(("blr_softmax", {"classes": count}, "y") for count in (2, 3)),
        *(("softmax_regression", {"test_y": np.full(TEST, wrong)}, "test_y") for wrong in (0.5, -1)),
        ("bnn", {"y": np.full(N, 0.1), "test_y": np.ones(TEST)}, "y"),  # its standard deviation is 1e-17, not 0
        ("bradley_terry", {"players": 4}, "winner"),
        *(("bradley_terry", {"loser": loser}, "loser") for loser in (WINNER[1:], WINNER * 0.5)),
        ("movielens", {"users": 4}, "user"),
        ("ppca", {"components": 0}, "components"),
        ("ppca", {"test_x": TEST_X}, "test"),  # it cannot use them
    ],
)
def test_mistakes(name, change, argument):
    with pytest.raises(UserError, match=rf"\b{argument}\b"):
        build(name, {**DATA[name], **change})


def test_half_a_test_is_refused():
    with pytest.raises(UserError, match="test_y"):
        build("blr", {key: value for key, value in BINARY.items() if key != "test_y"})


def test_a_hierarchical_prior_has_closed_forms_under_mean_field_alone():
    for guide in GUIDES.own:
        spec = ModelSpec(model="hlr", dataset="none", guide=guide)  # type: ignore[call-arg]
        of = gathering.build(spec, SimpleNamespace(arrays=MEASURED), "float64", "jax", "p")
        assert (of.exact_elbo is None) == (of.expected_log_prior is None) == (guide != "mean_field")


# --- rows of a test


@each(of=sorted(set(HELD) - {"hlr", "hlr_sd"}), long=(*ALIKE, "logistic_regression"))
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
@pytest.mark.parametrize(("rows", "samples"), [(1, 1), (5, 11), (9, 12)])
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


def test_without_a_test_there_is_none():
    p = build("blr", {"x": X, "y": BINARY["y"]})
    assert p.held_out is None
    with pytest.raises(UserError, match="no test rows"):
        p.test_log_likelihood({}, np.zeros((2, p.dim)))


# --- starts and sizes


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
    with pytest.raises(UserError, match="hidden"):
        build("bnn", MEASURED, hidden=1.5)


def test_sizes_on_data_that_need_no_download(tmp_path):
    cells = load(prepare("breast_cancer", "standard", out=tmp_path / "cells.npz")).arrays
    parts = split(cells, 0, test=0.2)
    p = build("blr", parts)
    assert (p.N, p.held_out.N, p.dim) == (455, 114, 32)
    assert build("blr_softmax", parts, intercept=False).dim == 62
    toy = build("hlr", load(prepare("hlr", "none", out=tmp_path / "toy.npz")).arrays)
    assert (toy.N, toy.held_out.N, toy.dim) == (100, 25, 1012)


# --- PPCA


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_energies_of_ppca_are_full_energies(backend):
    p, ops = ours("ppca", backend), get(backend)
    z = point("ppca", (5,))
    energy = jax.jit(ours("ppca").full_energy)
    each = [float(energy(jnp.asarray(row))) for row in z]
    close(ops.to_numpy(p.energies(ops.asarray(z))), np.array(each))


@pytest.mark.parametrize("samples", [101, *(pytest.param(samples, marks=pytest.mark.long) for samples in (49, 50))])
def test_elbo_of_ppca_takes_samples_in_groups(samples):
    p = ours("ppca")
    params = {"mu": jnp.asarray(point("ppca")), "log_sigma": jnp.asarray(point("ppca", seed=2)) - 1}
    eps = jax.random.normal(jax.random.key(1), (samples, p.dim))
    generic = jax.jit(functools.partial(VariationalProblem.elbo, p))
    close(jax.jit(p.elbo)(params, eps), generic(params, eps))


def test_ppca_finds_the_closed_form_maximum():
    """Without its prior the likelihood is largest at the principal axes (Tipping and Bishop, eq. 15)."""
    x = np.random.default_rng(3).normal(size=(400, 5)) * np.array([5.0, 4.0, 3.0, 0.7, 0.5])
    p = ppca.problem({"x": x}, components=2)
    eigenvalues, axes = np.linalg.eigh(x.T @ x / 400)
    W = jnp.asarray(axes[:, -2:] * np.sqrt(eigenvalues[-2:] - 1)).ravel()
    np.testing.assert_allclose(p.full_gradient(W) - W, 0, atol=1e-9 * 400)


@pytest.mark.parametrize(
    ("name", "file", "rows", "dim"),
    [
        ("softmax_regression", "mnist-unit", 60_000, 7_840),
        ("ppca", "mnist-standard", 60_000, 12_544),
        ("bradley_terry", "tennis-none", 169_405, 5_524),
        ("movielens", "movielens-none", 100_000, 85_050),
    ],
)
def test_real_sizes(name, file, rows, dim, repository):
    path = repository / "data" / "prepared" / f"{file}.npz"
    if not path.is_file():
        pytest.skip(f"{path.name} is not prepared")
    with np.load(path) as stored:
        p = build(name, {key: stored[key] for key in stored.files if key != "meta"})
    assert (p.N, p.dim) == (rows, dim)
    z = jnp.zeros(dim, p.dtype)
    assert np.isfinite(float(p.full_energy(z)))
