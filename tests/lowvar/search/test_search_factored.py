"""The factored forms are the formulas of the paper, which hold ``Sigma^-1``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import GAUSSIAN
from lowvar.search.problem import Domain
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.fast_ingo import DiagonalState
from lowvar.search.solvers.gaussian import FactoredState

JAX = backends.get("jax")
SCHEMES = [  # points in the span of few, and points that span everything; rows of Z that depend on each other
    *[("ingo", d, n, "iid", "mean") for d, n in [(6, 4), (6, 9), (1, 2)]],
    *[(name, 6, 4, "iid", "mean") for name in ("ingo_step", "igo")],
    ("ingo", 6, 4, "iid", "none"),
    ("ingo", 12, 8, "antithetic", "centre"),
    ("ingo_step", 6, 4, "iid", "raw"),  # eqs. (16), (17)
]
MORE = [
    *[("ingo", d, n, "iid", "mean") for d, n in [(6, 6), (30, 30), (40, 12)]],
    ("igo", 12, 8, "antithetic", "centre"),
    ("ingo", 6, 6, "orthogonal", "mean"),
    *[(name, 6, 9, "iid", "none") for name in ("ingo", "ingo_step", "igo")],
    *[(name, 6, 9, "iid", "raw") for name in ("ingo", "ingo_step")],
]


def powered(matrix, function):
    """A function of a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * function(values)) @ vectors.T


def direct(name, mu, sigma, factor, z, w, beta):
    """One step with explicit inverses: Algorithms 1 and 2, and IGO."""
    inverse, root_inverse = np.linalg.inv(sigma), np.linalg.inv(factor)
    scores = z @ root_inverse  # rows Sigma^-1 (x_i - mu)
    change = sum(w_i * (np.outer(score, score) - inverse) for w_i, score in zip(w, scores, strict=True))
    grad = scores.T @ w
    if name == "igo":
        return mu - beta * sigma @ grad, sigma - beta * sigma @ change @ sigma
    new = np.linalg.inv(inverse + beta * change)
    return mu - beta * (new if name == "ingo" else sigma) @ grad, new


def shaped(values, baseline, centre):
    if baseline == "raw":  # not normalised either
        return values / len(values)
    off = {"none": 0.0, "mean": values.mean(), "centre": centre}[baseline]
    return (values - off) / values.std() / len(values)


@pytest.mark.parametrize(
    ("name", "d", "n", "noise", "baseline"), [*SCHEMES, *(pytest.param(*one, marks=pytest.mark.long) for one in MORE)]
)
def test_one_step_is_the_direct_formula(name, d, n, noise, baseline):
    rng = np.random.default_rng(d * n)
    shaping = {"baseline": "none", "normalise": False} if baseline == "raw" else {"baseline": baseline}
    solver = SEARCH.get(name)(JAX, Domain("real", d), n, beta=0.3 / d, noise=noise, **shaping)
    tell = jax.jit(solver.tell)
    for trial in range(2):
        mu, factor = rng.normal(size=d), np.eye(d) + 0.3 * rng.normal(size=(d, d)) / np.sqrt(d)
        z = np.asarray(GAUSSIAN[noise](n).draw(jax.random.key(trial), d, jnp.float64))
        values = rng.normal(size=n + solver.beside) + 0.5
        w = shaped(values[:n], baseline, values[-1])
        state = FactoredState(jnp.asarray(mu), jnp.asarray(factor))
        points = solver.ask(state, jnp.asarray(z))
        np.testing.assert_allclose(points[:n], mu + z @ factor.T, rtol=1e-13, atol=1e-13)
        mean, made = tell(state, jnp.asarray(z), points, jnp.asarray(values))
        expected_mean, expected = direct(name, mu, factor @ factor.T, factor, z, w, 0.3 / d)
        least = np.linalg.eigvalsh(np.linalg.solve(factor, np.linalg.solve(factor, expected).T)).min()
        assert least > 0.01, "the clip would act: no comparison"
        np.testing.assert_allclose(mean, expected_mean, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(made @ made.T, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [5, 12], ids=["in span", "whole"])
@pytest.mark.parametrize("name", ["ingo", "ingo_step", "igo"])
def test_eigenvalues_are_clipped(name, n):
    """A step so long that ``I + beta M`` is not positive: its eigenvalues are kept above 1e-3, and no others."""
    d, beta = 8, 5.0
    rng = np.random.default_rng(3)
    z, values, mu = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)
    factor = np.eye(d) + 0.1 * rng.normal(size=(d, d))
    w = shaped(values, "mean", None)
    moved = beta * z.T @ (w[:, None] * z)
    raw = np.eye(d) + (-moved if name == "igo" else moved)
    assert np.linalg.eigvalsh(raw).min() < -0.1
    kept = powered(raw, lambda b: np.maximum(b, 1e-3))
    by = np.linalg.inv(kept)
    solver = SEARCH.get(name)(JAX, Domain("real", d), n, beta=beta)
    state = FactoredState(jnp.asarray(mu), jnp.asarray(factor))
    mean, made = jax.jit(solver.tell)(state, jnp.asarray(z), None, jnp.asarray(values))
    expected = factor @ (kept if name == "igo" else by) @ factor.T
    np.testing.assert_allclose(made @ made.T, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    step = z.T @ w if name != "ingo" else by @ z.T @ w
    np.testing.assert_allclose(mean, mu - beta * factor @ step, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("raw", [False, True])
def test_reinforce_is_plain_gradient_descent(raw):
    """On normalised values, and on raw ones: ``f(x) z / sigma``, as Appendix K prints it."""
    d, n, a = 5, 8, 0.01
    rng = np.random.default_rng(5)
    z, values, mu, sigma = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d), rng.uniform(0.5, 2, size=d)
    w = shaped(values, "raw" if raw else "mean", None)
    options = {"baseline": "none", "normalise": False} if raw else {}
    solver = SEARCH.get("reinforce_gd")(JAX, Domain("real", d), n, step_size=a, **options)
    mean, made = jax.jit(solver.tell)(
        DiagonalState(jnp.asarray(mu), jnp.asarray(sigma)), jnp.asarray(z), None, jnp.asarray(values)
    )
    np.testing.assert_allclose(mean, mu - a * (w @ z) / sigma, rtol=1e-12)
    variance = sigma**2 - a * 0.5 * (w @ (z * z - 1)) / sigma**2  # eq. (13), diagonal
    np.testing.assert_allclose(made**2, variance, rtol=1e-12)


def test_spread_is_of_the_covariance():
    rng = np.random.default_rng(6)
    factor = rng.normal(size=(6, 6))
    solver = SEARCH.get("ingo")(JAX, Domain("real", 6))
    sigma, condition = solver.spread(FactoredState(jnp.zeros(6), jnp.asarray(factor)))
    values = np.linalg.eigvalsh(factor @ factor.T)
    assert float(sigma) == pytest.approx(np.exp(np.log(values).mean() / 2))
    assert float(condition) == pytest.approx(values.max() / values.min())
    fast = SEARCH.get("fast_ingo")(JAX, Domain("real", 2))
    assert [float(v) for v in fast.spread(DiagonalState(jnp.zeros(2), jnp.asarray([1.0, 4.0])))] == [2.0, 16.0]
