"""Models with fused kernels: PPCA's energies, the mean of a log softmax, mistakes and the real sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_models import close, ours, point

from lowvar.core.backend import get
from lowvar.vi import glm
from lowvar.vi.variational import VariationalProblem
from lowvar_studies.models import ppca
from lowvar_studies.models.catalogue import build


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


@functools.cache
def mean_log_softmax(backend):
    """The function of ``(mean, sd, label)``, compiled once for all cases."""
    ops = get(backend)
    return ops.jit(lambda mean, sd, label: glm.expected_log_softmax(ops, mean, sd, label))


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.long if one in ("narrow", "three", "mixed", "wide") else ()) for one in CASES],
)
def test_expected_log_softmax_against_a_fine_grid(case):
    spread, widths, tolerance = CASES[case]
    rng = np.random.default_rng(len(case))
    mean = spread * rng.normal(size=(4, 10))
    sd = np.exp(rng.uniform(*np.log(widths), size=(4, 10)))
    label = np.arange(4)
    expected = mean[label, label] - [brute_log_sum_exp(m, s) for m, s in zip(mean, sd, strict=True)]
    for backend in ("jax", "torch"):
        ops = get(backend)
        found = ops.to_numpy(mean_log_softmax(backend)(*map(ops.asarray, (mean, sd, label))))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    single = [jnp.asarray(v, jnp.float32) for v in (mean, sd)]
    found = mean_log_softmax("jax")(*single, jnp.asarray(label))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=5e-5)


def test_expected_log_softmax_of_two_classes_is_the_sigmoids():
    mean, sd = np.array([[0.3, -0.4], [5.0, 1.0], [-20.0, 3.0]]), np.array([[1.0, 2.0], [0.1, 0.2], [9.0, 12.0]])
    two = mean_log_softmax("jax")(jnp.asarray(mean), jnp.asarray(sd), jnp.zeros(3, jnp.int32))
    sigmoid = jax.jit(functools.partial(glm.expected_log_sigmoid, get("jax")))
    one = sigmoid(jnp.asarray(mean[:, 0] - mean[:, 1]), jnp.asarray(np.hypot(*sd.T)))
    np.testing.assert_allclose(two, one, rtol=0, atol=3e-6)


# --- the real sizes ----------------------------------------------------------------------------------------------


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
