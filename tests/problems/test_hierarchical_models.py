"""Models with hyperpriors: densities are NumPyro's, closed forms are means, backends agree, rows for a test are kept."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy.special import logsumexp
from scipy.stats import norm

from lowvar.backends import get
from lowvar.datasets import prepare
from lowvar.datasets.load import load
from lowvar.errors import UserError
from lowvar.estimators import GRADIENT
from lowvar.noise import Noise, independent, reshuffled, sampler
from lowvar.problems import blr, blr_softmax, bnn, hlr, logistic_regression, softmax_regression
from lowvar.problems.catalogue import build
from lowvar.problems.numpyro_model import NumPyroProblem, from_numpyro
from lowvar.problems.split import HeldOut, split
from lowvar.problems.variational import VariationalProblem
from lowvar.solvers import descend, optimizer

RNG = np.random.default_rng(0)
N, TEST = 13, 7
X, TEST_X = RNG.normal(size=(N, 3)), RNG.normal(size=(TEST, 3))
MEASURED = {"x": X, "y": 2 + 3 * RNG.normal(size=(N, 1)), "test_x": TEST_X, "test_y": RNG.normal(size=(TEST, 1))}
BINARY = {"x": X, "y": np.arange(N) % 2, "test_x": TEST_X, "test_y": np.arange(TEST) % 2}
CLASSES = {"x": X, "y": np.arange(N) % 4, "test_x": TEST_X, "test_y": np.arange(TEST) % 4}
DATA = {
    "hlr": MEASURED,
    "hlr_sd": MEASURED,
    "blr": BINARY,
    "blr_softmax": CLASSES,
    "blr_softmax_without": CLASSES,
    "bnn": MEASURED,
    "logistic_regression": BINARY,
    "softmax_regression": CLASSES,
}
DIMS = {
    "hlr": 13 * 3 + 3 + 2,
    "hlr_sd": 13 * 3 + 3 + 2,
    "blr": 5,
    "blr_softmax": 4 * 4 + 2,
    "blr_softmax_without": 14,
    "bnn": 5 * 4 + 1 + 2,
}
PYRO = {
    "hlr": hlr.model,
    "hlr_sd": functools.partial(hlr.model, intercepts="sd"),
    "blr": blr.model,
    "blr_softmax": functools.partial(blr_softmax.model, classes=4),
    "blr_softmax_without": functools.partial(blr_softmax.model, classes=4, intercept=False),
    "bnn": functools.partial(bnn.model, hidden=4),
    "logistic_regression": logistic_regression.model,
    "softmax_regression": functools.partial(softmax_regression.model, classes=4),
}
OPTIONS = {"hlr_sd": {"intercepts": "sd"}, "bnn": {"hidden": 4}, "blr_softmax_without": {"intercept": False}}
MODELS, HELD, WHOLE = sorted(DIMS), sorted(DATA), ("blr", "blr_softmax", "bnn", "hlr")
COMPILED = ("objective_gradient", "test_log_likelihood")  # what runs and their stops ask of a problem


@functools.cache
def ours(name, backend="jax"):
    return build(name.removesuffix("_without").removesuffix("_sd"), DATA[name], backend, **OPTIONS.get(name, {}))


@functools.cache
def theirs(name):
    with jax.numpy_rank_promotion("allow"):
        return from_numpyro(PYRO[name], {key: DATA[name][key] for key in ("x", "y")}, name=name)


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


@functools.cache
def compiled(problem, method):
    return problem.backend.compile(getattr(problem, method))


def call(problem, method, *args):
    with jax.numpy_rank_promotion("allow" if isinstance(problem, NumPyroProblem) else "raise"):
        return problem.backend.to_numpy(compiled(problem, method)(*args))


@pytest.mark.parametrize("name", MODELS)
def test_density_and_gradient_are_numpyros(name):
    p, q, n = ours(name), theirs(name), on("jax", noise(name))
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    assert (p.N, p.dim, dict(p.sites), p.dtype) == (q.N, q.dim, dict(q.sites), q.dtype)
    assert p.dim == DIMS[name]
    for method, args in {
        "log_likelihood": (z, n.index),
        "log_prior": (z,),
        "full_energy": (z,),
        "objective_gradient": ({"mu": z, "log_sigma": t - 2}, n),
    }.items():
        close(call(p, method, *args), call(q, method, *args))


@pytest.mark.parametrize("name", MODELS)
def test_closed_derivatives_are_those_of_autodiff(name):
    """What a model derives by hand, against what the base class makes of the density that the test above compares."""
    p, n = ours(name), on("jax", noise(name))
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    rows, sigma = jnp.asarray(point(name, (5,))), jnp.exp(jnp.asarray(point(name, (5,), seed=2)))
    plain = VariationalProblem("plain", p.backend, p.N, p.dim, p.log_likelihood, p.log_prior)
    compared = 0
    for method, args in {
        "prior_gradient": (z,),
        "full_gradient": (z,),
        "gradient_and_hvp": (z, t, n.index, n.weight),
        "approximation_by_row": ({"mu": rows, "sigma": sigma}, n),
        "full_approximation": ({"mu": z, "sigma": t}, n.eps),
        "likelihood_at_rows": (rows, t, n.index, n.weight),
    }.items():
        if type(p) is not VariationalProblem:
            close(call(p, method, *args), call(plain, method, *args))
            compared += 1
    assert compared or name == "bnn"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", HELD)
def test_backends_agree(name):
    p, q, n = ours(name), ours(name, "torch"), noise(name)
    z, t, rows = point(name), point(name, seed=2), point(name, (5,))
    params = {"mu": z, "log_sigma": t - 2}
    eps = np.random.default_rng(0).normal(size=(7, p.dim))
    for method, args in {
        "log_likelihood": (z, n.index),
        "log_prior": (z,),
        "full_energy": (z,),
        "full_gradient": (z,),
        "objective_gradient": (params, n),
        "full_objective_gradient": (params, n.eps),
        "approximation": ({"mu": z, "sigma": np.exp(t)}, n),
        "approximation_by_row": ({"mu": rows, "sigma": np.exp(rows)}, n),
        "elbo": (params, eps),
        "exact_elbo": (params,),
        "expected_log_prior": (params,),
        "test_log_likelihood": (params, eps),
    }.items():
        if name not in WHOLE and method not in ("log_likelihood", "log_prior", "test_log_likelihood"):
            continue  # their other code is that of the whole ones, or of older models with tests of their own
        if getattr(p, method) is None:
            assert (name, method) == ("bnn", "exact_elbo")
            continue
        found = (
            getattr(q, method)(*on("torch", args)) if method not in COMPILED else call(q, method, *on("torch", args))
        )
        close(get("torch").tree_map(np.asarray, found), call(p, method, *on("jax", args)))


@pytest.mark.parametrize("name", MODELS)
def test_closed_forms_are_means(name):
    p = ours(name)
    params = {"mu": jnp.asarray(point(name)), "log_sigma": jnp.asarray(point(name, seed=2)) - 1.5}
    eps = jax.random.normal(jax.random.key(0), (20_000, p.dim))
    prior = jax.jit(jax.vmap(lambda eps: p.log_prior(p.guide.transform(params, eps))))(eps)
    exact, error = call(p, "expected_log_prior", params), float(prior.std()) / len(eps) ** 0.5
    assert abs(float(prior.mean() - exact)) < 5 * error, (prior.mean(), exact, error)
    if name == "bnn":
        assert p.exact_elbo is None
        return
    sampled, error = jax.jit(p.elbo)(params, eps)
    exact, none = jax.jit(p.elbo)(params)
    assert none == 0
    assert abs(float(sampled - exact)) < 5 * float(error), (sampled, exact, error)
    assert float(error) < 0.01 * abs(float(exact))


@pytest.mark.parametrize("name", HELD)
def test_single_precision_stays_single(name):
    single = np.float32
    arrays = {k: v.astype(single) if np.asarray(v).dtype.kind == "f" else v for k, v in DATA[name].items()}
    p = build(name.removesuffix("_without").removesuffix("_sd"), arrays, **OPTIONS.get(name, {}))
    n = Noise(*(jnp.asarray(v, single if np.asarray(v).dtype.kind == "f" else None) for v in noise(name)))
    z = jnp.asarray(point(name), single)
    params = {"mu": z, "log_sigma": z - 1}
    found = call(p, "objective_gradient", params, n), call(p, "test_log_likelihood", params, n.eps)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(single)}
    assert p.dtype == single
    double = {key: value.astype(np.float64) for key, value in params.items()}
    close(found[0], call(ours(name), "objective_gradient", double, on("jax", noise(name))), rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_definition_takes_some_rows_in_numpyro(name):
    """Each row of a batch counts for ``N / 4`` rows."""
    model = functools.partial(PYRO[name], batch_size=4)
    arrays = {key: jnp.asarray(DATA[name][key]) for key in ("x", "y")}
    with jax.numpy_rank_promotion("allow"):
        sites = trace(seed(model, 0)).get_trace(**arrays)
    y = sites["y"]
    assert y["scale"] == N / 4
    assert y["value"].shape[0] == 4
    assert all(sites[one]["scale"] is None for one in dict(ours(name).sites))
    assert np.all(np.isfinite(y["fn"].log_prob(y["value"])))


@pytest.mark.long
def test_the_definition_with_weights_of_each_row_runs_in_numpyro():
    model = functools.partial(hlr.model, batch_size=4)
    arrays = {key: jnp.asarray(DATA["hlr"][key]) for key in ("x", "y")}
    with jax.numpy_rank_promotion("allow"):
        svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())
        assert np.all(np.isfinite(svi.run(jax.random.key(0), 3, progress_bar=False, **arrays).losses))


# each model, and each estimator on the one whose rows have parameters of their own
DESCENTS = [("hlr", "cv"), ("hlr", "joint_svrg"), ("bnn", "cv"),
            *(pytest.param(name, one, marks=pytest.mark.long)
              for name, one in (("blr", "cv"), ("blr_softmax", "cv"), ("hlr", "naive"), ("hlr", "stl")))]  # fmt: skip


@pytest.mark.parametrize(("name", "estimator"), DESCENTS)
def test_estimators_descend(name, estimator):
    p, batches = ours(name), reshuffled(N, 5)
    draws = sampler(batches, independent(), p.dim, p.dtype)
    made = descend(GRADIENT.get(estimator)(p, batches), draws, optimizer("adam", 0.02, p.backend))
    start = {key: jnp.asarray(value) for key, value in p.initial("origin", jax.random.key(1)).items()}
    state, eps = made.init(start), jax.random.normal(jax.random.key(2), (64, p.dim))
    epoch = jax.jit(lambda state, key: made.epoch(state, draws.epoch(key)))
    for key in jax.random.split(jax.random.key(3), 40):
        state = epoch(state, key)
    before, after = (float(compiled(p, "elbo")(params, eps)[0]) for params in (start, state.params))
    assert np.isfinite(after)
    assert after > before + 1, (before, after)


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
        more = build(name.removesuffix("_without").removesuffix("_sd"), both, **OPTIONS.get(name, {})).log_likelihood
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
def test_log_likelihood_of_a_test_is_the_log_of_a_mean(rows, samples, backend, monkeypatch):
    """In chunks of four rows and of few samples, the last ones padded."""
    from lowvar.problems import variational

    monkeypatch.setattr(variational, "_TEST_ROWS", 4)
    monkeypatch.setattr(variational, "_TEST_PAIRS", 20)
    data = BINARY | {"test_x": 30 * RNG.normal(size=(rows, 3)), "test_y": np.arange(rows) % 2}  # some underflow
    p, ops = build("blr", data, backend), get(backend)
    params, eps = {"mu": point("blr"), "log_sigma": point("blr", seed=2)}, RNG.normal(size=(samples, p.dim))
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
    p = build(name.removesuffix("_without").removesuffix("_sd"), data, **OPTIONS.get(name, {}))
    assert p.held_out is None
    with pytest.raises(UserError, match="there are no rows for a test: give the data a test part"):
        p.test_log_likelihood({}, np.zeros((2, p.dim)))


def test_a_test_that_the_model_does_not_use_is_refused():
    data = {"x": X, "test_x": TEST_X}
    with pytest.raises(UserError, match="mine: model 'ppca' makes no use of rows for a test; leave the split out"):
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
    weights = p.prior_gradient(jnp.asarray(start["mu"])) - p.full_gradient(jnp.asarray(start["mu"]))
    assert np.count_nonzero(weights[2:]) > 0.9 * 151
    at_zero = p.prior_gradient(jnp.zeros(p.dim)) - p.full_gradient(jnp.zeros(p.dim))
    assert np.count_nonzero(at_zero[2:]) <= 1  # the last bias alone
    with jax.enable_x64(False):
        np.testing.assert_array_equal(p.initial("origin", jax.random.key(0))["mu"], start["mu"])


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


@pytest.mark.mirror
def test_sizes_on_wine(mirror, tmp_path):
    from lowvar.datasets import fetch

    fetch("wine_quality_red", tmp_path, mirror)
    wine = load(prepare("wine_quality_red", "standard", tmp_path, tmp_path / "wine.npz")).arrays
    p = build("bnn", split(wine, 0, test=0.2, train=100))
    assert (p.N, p.held_out.N, p.dim) == (100, 320, 653)


def test_size_on_images():
    images = {"x": np.zeros((10, 784), np.float32), "y": np.arange(10)}
    assert build("blr_softmax", images).dim == 7852


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("hlr", {"y": np.zeros((N, 2))}, r"y is float64 of shape \(13, 2\); it should be numbers, one for each of the"),
        ("hlr", {"y": np.zeros(N - 1), "test_y": np.zeros(TEST)}, r"y is float64 of shape \(12,\)"),
        ("hlr", {"x": X[0]}, r"test_x has shape \(7, 3\) and x \(3,\)|x must be a floating array \(N, d\)"),
        ("hlr", {"test_y": MEASURED["test_y"][:3]}, r"the test part has the shapes test_x \(7, 3\), test_y \(3, 1\)"),
        ("hlr", {"test_x": TEST_X[:, :2]}, r"test_x has shape \(7, 2\) and x \(13, 3\); only their numbers of rows"),
        ("blr", {"y": np.arange(N) % 3}, "y must hold labels 0 and 1; it has 2"),
        ("blr", {"test_y": np.arange(TEST) - 1}, "test_y must hold labels 0 and 1; it has -1"),
        ("blr", {"y": np.zeros(3, int)}, r"y has shape \(3,\); it should be \(13,\), a label for each row of x"),
        ("blr", {"x": X.astype(int)}, r"x must be a floating array \(N, d\), not int64 of shape \(13, 3\)"),
        (
            "blr",
            {"test_x": TEST_X[:0], "test_y": np.zeros(0, int)},
            ".*; all should have the same number of rows, not 0",
        ),
        ("blr_softmax", {"y": np.arange(N) - 1}, "y must hold classes 0, 1, 2, ...; it has -1"),
        ("blr_softmax", {"classes": 3}, "y has class 3, but there are 3 classes"),
        ("blr_softmax", {"y": np.zeros(N, int), "classes": 2}, "y has class 3, but there are 2 classes"),
        ("blr_softmax", {"test_y": np.full(TEST, 0.5)}, "y must hold classes 0, 1, 2, ...; it has 0.5"),
        ("softmax_regression", {"test_y": np.full(TEST, -1)}, "y must hold classes 0, 1, 2, ...; it has -1"),
        ("bnn", {"y": np.ones(N), "test_y": np.ones(TEST)}, "y is 1 in all 13 rows to fit; to be standardised"),
        ("bnn", {"y": np.array(["a"] * N), "test_y": np.zeros(TEST)}, "y is <U1 of shape"),
    ],
)
def test_mistakes(name, change, message):
    with pytest.raises(UserError, match=f"^{name}(, test part)?: ({message})") as caught:
        build(name, {**DATA[name], **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", HELD)
def test_half_a_test_is_refused(name):
    data = {key: value for key, value in DATA[name].items() if key != "test_y"}
    with pytest.raises(UserError, match="the test part has no test_y; it needs test_x, test_y"):
        build(name.removesuffix("_without").removesuffix("_sd"), data, **OPTIONS.get(name, {}))


@pytest.mark.parametrize(
    ("hidden", "message"), [(0, "number of units, 1 or more"), (1.5, "whole number"), ("many", "whole number")]
)
def test_hidden_units_are_counted(hidden, message):
    with pytest.raises(UserError, match=f"hidden.*{message}"):
        build("bnn", MEASURED, hidden=hidden)
