"""Models with fused kernels: densities and derivatives are NumPyro's, closed forms are means, backends agree."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from lowvar.backends import get
from lowvar.errors import UserError
from lowvar.noise import Noise
from lowvar.problems import bradley_terry, catalogue, glm, movielens, ppca, softmax_regression
from lowvar.problems.catalogue import build
from lowvar.problems.numpyro_model import NumPyroProblem, from_numpyro
from lowvar.problems.variational import VariationalProblem

RNG = np.random.default_rng(0)
N = 23
WINNER = RNG.integers(0, 6, N).astype(np.int32)
DATA = {
    "softmax_regression": {"x": RNG.normal(size=(N, 3)), "y": np.arange(N) % 4},
    "bradley_terry": {"winner": WINNER, "loser": (WINNER + RNG.integers(1, 6, N).astype(np.int32)) % 6, "players": 6},
    "movielens": {
        "user": np.append(RNG.integers(0, 5, N - 1), 4).astype(np.int32),
        "x": RNG.integers(0, 2, (N, 3)).astype(float),
        "y": np.arange(N) % 4,
        "users": 5,
    },
    "ppca": {"x": RNG.normal(size=(N, 7)) * np.arange(1, 8), "components": 3},
}
DATA["bradley_terry_sd"] = DATA["bradley_terry"]
DIMS = {"softmax_regression": 12, "bradley_terry": 6, "bradley_terry_sd": 7, "movielens": 5 * 12 + 24, "ppca": 21}
MODELS = sorted(DIMS)
PYRO = {
    "softmax_regression": softmax_regression.model,
    "bradley_terry": bradley_terry.model,
    "bradley_terry_sd": functools.partial(bradley_terry.model, scale=True),
    "movielens": movielens.model,
    "ppca": ppca.model,
}


@functools.cache
def ours(name, backend="jax"):
    return build(name, DATA[name], backend)


@functools.cache
def theirs(name):
    with jax.numpy_rank_promotion("allow"):
        return from_numpyro(PYRO[name], pyro_data(name), name=name)


def point(name, rows=(), seed=1):
    return 0.4 * np.random.default_rng(seed).normal(size=(*rows, DIMS[name]))


@functools.cache
def noise(name):
    rng = np.random.default_rng(5)
    index, weight = rng.integers(0, N, 5).astype(np.int32), rng.uniform(0.5, 1.5, 5)
    eps = rng.normal(size=(2, DIMS[name]))
    return Noise(index, weight / weight.sum(), np.float64(5), eps, np.arange(5))


def on(backend, tree):
    return get(backend).tree_map(get(backend).asarray, tree)


def pyro_data(name):
    return {**DATA[name], "classes": 4} if name in ("softmax_regression", "movielens") else DATA[name]


def close(found, expected, rtol=1e-10):
    scale = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol * scale)


def test_every_model_of_the_catalogue_is_there():
    for name in catalogue.MODELS.own:
        assert callable(catalogue.MODELS.get(name))


def call(problem, method, *args):
    """One method, compiled; of a problem from NumPyro, with the rank promotion that NumPyro makes use of."""
    with jax.numpy_rank_promotion("allow" if isinstance(problem, NumPyroProblem) else "raise"):
        return problem.backend.to_numpy(problem.backend.compile(getattr(problem, method))(*args))


@pytest.mark.parametrize("name", MODELS)
def test_density_and_gradient_are_numpyros(name):
    p, q, z = ours(name), theirs(name), jnp.asarray(point(name))
    assert (p.N, p.dim, dict(p.sites), p.dtype) == (q.N, q.dim, dict(q.sites), q.dtype)
    assert p.dim == DIMS[name]
    # the normalising constants of PPCA's rows are with the prior: sums are compared
    close(call(p, "full_energy", z), call(q, "full_energy", z))
    close(call(p, "full_gradient", z), call(q, "full_gradient", z))
    if name == "ppca":
        close(VariationalProblem.full_energy(p, z), call(q, "full_energy", z))
        return
    index = jnp.asarray(noise(name).index)
    close(call(p, "log_likelihood", z, index), call(q, "log_likelihood", z, index))
    close(call(p, "log_prior", z), call(q, "log_prior", z))


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_are_those_of_autodiff(name):
    """The fused kernels against derivatives of NumPyro's density, batch by batch."""
    p, q, n = ours(name), theirs(name), on("jax", noise(name))
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    rows, sigma = jnp.asarray(point(name, (5,))), jnp.exp(jnp.asarray(point(name, (5,), seed=2)))
    # NumPyro's rows of PPCA have their own normalising constants; with weights that sum to one that is the same
    for method, args in {
        "gradient_and_hvp": (z, t, n.index, n.weight),
        "approximation_by_row": ({"mu": rows, "sigma": sigma}, n),
        "approximation_mean_by_row": ({"mu": rows, "sigma": sigma}, n.index, n.weight),
        "full_approximation": ({"mu": z, "sigma": t}, n.eps),
        "objective_gradient_by_row": ({"mu": rows, "log_sigma": sigma - 2}, n),
    }.items():
        close(call(p, method, *args), call(q, method, *args))
    generic = jax.jit(functools.partial(VariationalProblem.likelihood_at_rows, p))
    close(call(p, "likelihood_at_rows", rows, t, n.index, n.weight), generic(rows, t, n.index, n.weight))
    close(call(p, "prior_gradient", z), jax.jit(functools.partial(VariationalProblem.prior_gradient, p))(z))


@pytest.mark.parametrize("name", MODELS)
def test_backends_agree(name):
    p, q = ours(name), ours(name, "torch")
    z, t, rows = point(name), point(name, seed=2), point(name, (5,))
    params = {"mu": z, "log_sigma": t - 2}
    points = {"mu": rows, "sigma": np.exp(rows)}
    n = noise(name)
    for method, args in {
        "full_energy": (z,),
        "full_gradient": (z,),
        "log_prior": (z,),
        "objective_gradient": (params, n),
        "full_objective_gradient": (params, n.eps),
        "objective_gradient_by_row": ({"mu": rows, "log_sigma": rows - 2}, n),
        "approximation": ({"mu": z, "sigma": np.exp(t)}, n),
        "approximation_by_row": (points, n),
        "approximation_mean_by_row": (points, n.index, n.weight),
        "likelihood_at_rows": (rows, t, n.index, n.weight),
        "elbo": (params, np.random.default_rng(0).normal(size=(7, p.dim))),
        "exact_elbo": (params,),
    }.items():
        if getattr(p, method) is None:
            assert name == "ppca"
            continue
        close(call(p, method, *on("jax", args)), call(q, method, *on("torch", args)))


@pytest.mark.parametrize("name", MODELS)
def test_closed_forms_are_means(name):
    """The exact ELBO and its prior's part against 20 000 samples."""
    p = ours(name)
    params = {"mu": jnp.asarray(point(name)), "log_sigma": jnp.asarray(point(name, seed=2)) - 1}
    eps = jax.random.normal(jax.random.key(0), (20_000, p.dim))
    if name == "ppca":
        assert p.exact_elbo is None
        return
    z = jax.vmap(lambda eps: p.guide.transform(params, eps))(eps)
    prior = jax.jit(jax.vmap(p.log_prior))(z)
    exact, error = p.expected_log_prior(params), float(prior.std()) / len(eps) ** 0.5
    assert abs(float(prior.mean() - exact)) < 5 * error, (prior.mean(), exact, error)
    sampled, error = jax.jit(p.elbo)(params, eps)
    exact, none = jax.jit(p.elbo)(params)
    assert none == 0
    assert abs(float(sampled - exact)) < 5 * float(error), (sampled, exact, error)
    assert float(error) < 0.01 * abs(float(exact))


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_energies_of_ppca_are_full_energies(backend):
    p, ops = ours("ppca", backend), get(backend)
    z = point("ppca", (5,))
    each = [float(ours("ppca").full_energy(jnp.asarray(row))) for row in z]
    close(ops.to_numpy(p.energies(ops.asarray(z))), np.array(each))


@pytest.mark.parametrize("samples", [49, 50, 101])
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


@pytest.mark.parametrize("name", MODELS)
def test_single_precision_stays_single(name):
    dtype = np.float32
    arrays = {k: v.astype(dtype) if np.asarray(v).dtype.kind == "f" else v for k, v in DATA[name].items()}
    if "x" not in arrays:
        pytest.skip("the data are integers: JAX's default precision")
    p = build(name, arrays)
    assert p.dtype == dtype
    n = Noise(*(jnp.asarray(v, dtype if np.asarray(v).dtype.kind == "f" else None) for v in noise(name)))
    z = jnp.asarray(point(name), dtype)
    found = (
        call(p, "objective_gradient", {"mu": z, "log_sigma": z}, n),
        call(p, "approximation", {"mu": z, "sigma": z}, n),
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(dtype)}
    elbo = functools.partial(p.elbo, eps=None if p.exact_elbo else n.eps)
    assert np.isfinite(jax.jit(elbo)({"mu": z, "log_sigma": z})[0])
    for method, rtol in (("full_energy", 1e-5), ("full_gradient", 1e-4)):
        close(call(p, method, z), call(ours(name), method, z.astype(np.float64)), rtol=rtol)


def small(name):
    """A model that takes four rows at a time, and its arrays; numbers stay numbers where NumPyro compiles the step."""
    numbers = {key: value for key, value in pyro_data(name).items() if isinstance(value, int)}
    arrays = {key: jnp.asarray(value) for key, value in pyro_data(name).items() if key not in numbers}
    return functools.partial(PYRO[name], **numbers, batch_size=4), arrays


@pytest.mark.parametrize("name", MODELS)
def test_the_definition_takes_some_rows_in_numpyro(name):
    """Each row of a batch counts for ``N / 4`` rows."""
    model, arrays = small(name)
    with jax.numpy_rank_promotion("allow"):
        sites = trace(seed(model, 0)).get_trace(**arrays)
        observed = [site for site in sites.values() if site["type"] == "sample" and site["is_observed"]]
        densities = [site["fn"].log_prob(site["value"]) for site in observed]
    assert [site["scale"] for site in observed] == [N / 4]
    assert observed[0]["value"].shape[0] == 4
    assert np.all(np.isfinite(densities[0]))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "ppca" else pytest.mark.long) for name in MODELS]
)
def test_the_definition_runs_in_numpyro(name):
    model, arrays = small(name)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())
    with jax.numpy_rank_promotion("allow"):
        result = svi.run(jax.random.key(0), 3, progress_bar=False, **arrays)
    assert np.all(np.isfinite(result.losses))


# --- the mean of a log softmax -----------------------------------------------------------------------------------


def brute_log_sum_exp(mean, sd):
    """``E max_c (a_c + Gumbel)`` for one row on a fine grid, the convolutions too."""
    z, g = np.linspace(-9, 9, 301), np.linspace(-5, 45, 401)
    gaussian, gumbel = np.exp(-(z**2) / 2), np.exp(-g - np.exp(-g))
    size = np.hypot(sd, 1.3)
    x = np.linspace(np.max(mean - 7 * size), np.max(mean + 15 * size), 3001)
    below = np.ones_like(x)
    for m, s in zip(mean, sd, strict=True):
        if s < 1:
            F = np.exp(-np.exp(np.minimum(-(x[:, None] - m - s * z), 700))) @ (gaussian / gaussian.sum())
        else:
            F = glm.ndtr((x[:, None] - m - g) / s) @ (gumbel / gumbel.sum())
        below *= F
    return x[0] + np.trapezoid(1 - below, x) - np.euler_gamma


CASES = {  # spread of the means, range of the standard deviations, tolerance
    "points": (3.0, (1e-9, 1e-2), 1.5e-6),
    "narrow": (3.0, (0.2, 0.4), 1.5e-6),
    "one": (3.0, (0.5, 1.5), 1.5e-6),
    "three": (4.0, (2.0, 4.0), 1.5e-6),
    "mixed": (4.0, (0.1, 3.0), 1.5e-6),
    "wide": (10.0, (15.0, 30.0), 5e-6),
    "all widths": (10.0, (0.1, 30.0), 5e-6),
}


@pytest.mark.parametrize("case", CASES)
def test_expected_log_softmax_against_a_fine_grid(case):
    spread, widths, tolerance = CASES[case]
    rng = np.random.default_rng(len(case))
    mean = spread * rng.normal(size=(4, 10))
    sd = np.exp(rng.uniform(*np.log(widths), size=(4, 10)))
    label = np.arange(4)
    expected = mean[label, label] - [brute_log_sum_exp(m, s) for m, s in zip(mean, sd, strict=True)]
    for backend in ("jax", "torch"):
        ops = get(backend)
        found = ops.to_numpy(glm.expected_log_softmax(ops, *map(ops.asarray, (mean, sd, label))))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    single = [jnp.asarray(v, jnp.float32) for v in (mean, sd)]
    found = glm.expected_log_softmax(get("jax"), *single, jnp.asarray(label))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=5e-5)


@pytest.mark.long  # to five digits; the fine grid above has six
@pytest.mark.parametrize(("classes", "width"), [(2, 0.5), (5, 3.0), (10, 20.0)])
def test_expected_log_softmax_against_monte_carlo(classes, width):
    rng = np.random.default_rng(classes)
    mean, sd = rng.normal(size=classes), width * rng.uniform(0.5, 1.5, classes)
    a = mean + sd * rng.normal(size=(1_000_000, classes))
    values = a[:, 1] - np.log(np.exp(a - a.max(1, keepdims=True)).sum(1)) - a.max(1)
    arrays = jnp.asarray(mean)[None], jnp.asarray(sd)[None], jnp.ones(1, jnp.int32)
    found = float(glm.expected_log_softmax(get("jax"), *arrays)[0])
    error = values.std() / 1000
    assert abs(found - values.mean()) < 5 * error, (found, values.mean(), error)


def test_expected_log_softmax_of_two_classes_is_the_sigmoids():
    mean, sd = np.array([[0.3, -0.4], [5.0, 1.0], [-20.0, 3.0]]), np.array([[1.0, 2.0], [0.1, 0.2], [9.0, 12.0]])
    ops = get("jax")
    two = glm.expected_log_softmax(ops, jnp.asarray(mean), jnp.asarray(sd), jnp.zeros(3, jnp.int32))
    one = glm.expected_log_sigmoid(ops, jnp.asarray(mean[:, 0] - mean[:, 1]), jnp.asarray(np.hypot(*sd.T)))
    np.testing.assert_allclose(two, one, rtol=0, atol=3e-6)


# --- mistakes, and the real sizes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("softmax_regression", {"y": np.zeros(3)}, r"x has 23 rows and y has shape \(3,\)"),
        ("softmax_regression", {"y": np.arange(N) - 1}, "y must hold classes 0, 1, 2, ...; it has -1"),
        ("softmax_regression", {"classes": 3}, "y has class 3, but there are 3 classes"),
        ("bradley_terry", {"players": 4}, "winner has player [45], but there are 4 players"),
        ("bradley_terry", {"loser": WINNER[1:]}, "winner has 23 rows and loser 22"),
        ("bradley_terry", {"loser": WINNER * 0.5}, "loser must be a vector of player numbers, not float64"),
        ("movielens", {"users": 4}, "user has number 4, but there are 4 users"),
        ("movielens", {"user": np.zeros(2, int)}, r"x has 23 rows and user has shape \(2,\)"),
        ("movielens", {"y": np.full(N, 0.5)}, "y must hold classes 0, 1, 2, ...; it has 0.5"),
        ("ppca", {"x": np.arange(5)}, r"x must be a floating array \(N, D\), not int64 of shape \(5,\)"),
        ("ppca", {"components": 0}, "components = 0; it must be 1 or more"),
    ],
)
def test_mistakes(name, change, message):
    with pytest.raises(UserError, match=f"{name}: {message}"):
        build(name, {**DATA[name], **change})


@pytest.mark.parametrize(
    ("name", "file", "rows", "dim"),
    [
        ("softmax_regression", "mnist-unit", 60_000, 7_840),
        ("ppca", "mnist-standard", 60_000, 12_544),
        ("bradley_terry", "tennis-none", 169_405, 5_524),
        ("bradley_terry_sd", "tennis-none", 169_405, 5_525),
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
