"""Search gradients have the exact gradient as their mean; and the weights of values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import GAUSSIAN
from lowvar.search import gradients
from lowvar.search.gradients import weights

JAX = backends.get("jax")
N, DRAWS, CHUNK = 64, 3 * 2**14, 2**10


def of_gaussian(scheme, **shaping):
    """Of a quadratic under ``N(mu, A A')``: an estimate from a key, and the gradient in ``mu``, ``Sigma`` and its diagonal."""
    rng, d = np.random.default_rng(0), 2
    root, slope, mu = rng.normal(size=(d, d)), rng.normal(size=d), 0.3 * rng.normal(size=d)
    hessian, factor = root @ root.T, 0.7 * np.eye(d) + 0.2 * rng.normal(size=(d, d))

    def f(x):
        return 0.5 * jnp.sum((x @ hessian) * x, axis=-1) + x @ slope

    def estimate(key):
        z = GAUSSIAN[scheme](N).draw(key, d, jnp.float64)
        centre = f(jnp.asarray(mu)) if shaping["baseline"] == "centre" else None
        gradient = gradients.gaussian(JAX, z, f(mu[None, :] + z @ factor.T), at_centre=centre, **shaping)
        full = z.T @ (gradient.weights[:, None] * z) - gradient.trace * jnp.eye(d)
        return jnp.concatenate([gradient.mean, full.ravel(), gradient.diagonal(z)])

    full = factor.T @ hessian @ factor
    return estimate, np.concatenate([factor.T @ (hessian @ mu + slope), full.ravel(), np.diagonal(full)])


def of_choices(scheme, **shaping):
    """Of any function of two choices among three: a gradient is its differences within a row."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(3, 3))
    chances = rng.dirichlet(np.full(3, 5.0), size=2)

    def estimate(key):
        u = jax.random.uniform(key, (N, 2, 1))
        x = jnp.sum(u >= jnp.cumsum(jnp.asarray(chances), axis=1)[None, :, :-1], axis=-1)
        values = jnp.asarray(table)[x[:, 0], x[:, 1]]
        gradient = gradients.categorical(JAX, x, values, jnp.asarray(chances), **shaping)
        return (gradient - jnp.mean(gradient, axis=1, keepdims=True)).ravel()

    given = np.stack([table @ chances[1], table.T @ chances[0]])  # E[f | x_i = j]
    return estimate, (given - given.mean(axis=1, keepdims=True)).ravel()


def in_full(*case):
    return pytest.param(*case, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("of", "scheme", "baseline"),
    [
        (of_gaussian, "iid", "mean"),
        (of_choices, "iid", "mean"),
        *(
            in_full(of_gaussian, scheme, baseline)
            for scheme in ("iid", "antithetic")
            for baseline in ("none", "centre")
        ),
        in_full(of_choices, "iid", "none"),
    ],
)  # the mean of dependent points is no unbiased baseline
def test_mean_is_the_exact_gradient(of, scheme, baseline):
    estimate, exact = of(scheme, baseline=baseline, normalise=False)

    def chunk(key):
        g = jax.vmap(estimate)(jax.random.split(key, CHUNK))
        return g.sum(0), (g * g).sum(0)

    keys = jax.random.split(jax.random.key(7), DRAWS // CHUNK)
    sums, squares = jax.jit(lambda keys: jax.lax.map(chunk, keys))(keys)
    mean = np.asarray(sums.sum(0)) / DRAWS
    error = np.sqrt(np.maximum(np.asarray(squares.sum(0)) / DRAWS - mean**2, 0) / DRAWS)
    scale = np.linalg.norm(exact)
    report = f"mean {mean}, exact {exact}, SE {error}, scale {scale:.3g}"
    assert (5 * error < 0.01 * scale).all(), f"too few draws to notice 1 % of the gradient: {report}"
    assert (np.abs(mean - exact) < 5 * error + 1e-12).all(), report


def test_weights():
    ops = backends.get("torch")

    def shaped(values, **options):
        return np.asarray(ops.to_numpy(weights(ops, ops.asarray(np.asarray(values, float)), **options)))

    np.testing.assert_allclose(shaped([1, 2, 3]), np.array([-1, 0, 1]) / np.sqrt(2 / 3) / 3)
    np.testing.assert_allclose(shaped([1, 2, 3]), shaped([1e9, 2e9, 3e9]))
    for constant in (5, 0.1, 1 / 3, 1e308):  # the mean of equal numbers is not always that number
        np.testing.assert_array_equal(shaped([constant] * 18), 0)
    np.testing.assert_allclose(shaped([1, 2, 1e308, 1.7e308]), shaped([0, 0, 1, 1.7]), atol=1e-15)
    np.testing.assert_allclose(shaped([1, 2, 3, 1e200]), shaped([0, 0, 0, 1]), atol=1e-15)
    np.testing.assert_array_equal(shaped([np.nan] * 3), 0)
    np.testing.assert_allclose(shaped([1, 2, np.nan, np.inf, -np.inf]), shaped([1, 2, 2, 2, 2]))
    np.testing.assert_allclose(
        shaped([1, 2, 3], baseline="centre", normalise=False, at_centre=ops.asarray(np.array(1.0))),
        [0, 1 / 3, 2 / 3],
    )
    assert np.isfinite(shaped([1, 2, 3], baseline="centre", at_centre=ops.asarray(np.array(np.nan)))).all()
