"""Search gradients have the exact gradient as their mean, and give the same numbers in both backends."""

import functools
import itertools

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


class OfGaussian:
    """A quadratic under ``N(mu, A A')``."""

    d = 2
    schemes = ("iid", "antithetic")
    baselines = ("none", "mean", "centre")

    def __init__(self):
        rng = np.random.default_rng(0)
        root = rng.normal(size=(self.d, self.d))
        self.hessian, self.slope, self.mu = root @ root.T, rng.normal(size=self.d), 0.3 * rng.normal(size=self.d)
        self.factor = 0.7 * np.eye(self.d) + 0.2 * rng.normal(size=(self.d, self.d))

    def f(self, x):
        return 0.5 * jnp.sum((x @ self.hessian) * x, axis=-1) + x @ self.slope

    def draws(self, key, scheme):
        return GAUSSIAN[scheme](N).draw(key, self.d, jnp.float64)

    def points(self, z):
        return self.mu[None, :] + z @ self.factor.T

    def estimate(self, ops, z, values, **shaping):
        at_centre = self.f(jnp.asarray(self.mu)) if shaping.get("baseline") == "centre" else None
        return gradients.gaussian(ops, z, values, at_centre=at_centre, **shaping)

    def flat(self, gradient, z):
        full = z.T @ (gradient.weights[:, None] * z) - gradient.trace * jnp.eye(self.d)
        return jnp.concatenate([gradient.mean, full.ravel(), gradient.diagonal(z)])

    def exact(self):
        full = self.factor.T @ self.hessian @ self.factor
        return np.concatenate([self.factor.T @ (self.hessian @ self.mu + self.slope), full.ravel(), np.diagonal(full)])


class OfCoins:
    """Any function of four coin flips, by enumeration."""

    d, choices, schemes, baselines = 4, 2, ("iid",), ("none", "mean")

    def __init__(self):
        rng = np.random.default_rng(1)
        main = sum(np.meshgrid(*rng.normal(size=(self.d, self.choices)), indexing="ij"))
        self.table = jnp.asarray(main + 0.3 * rng.normal(size=main.shape))
        chances = rng.uniform(0.5, 1.5, size=(self.d, self.choices))
        self.chances = chances / chances.sum(axis=1, keepdims=True)

    def f(self, x):
        return self.table[tuple(x[..., i] for i in range(self.d))]

    def draws(self, key, scheme):
        u = jax.random.uniform(key, (N, self.d, 1))
        return jnp.sum(u >= jnp.cumsum(self.chances, axis=1)[None, :, :-1], axis=-1)

    def points(self, x):
        return x

    def estimate(self, ops, x, values, **shaping):
        return gradients.bernoulli(ops, x, values, ops.asarray(self.chances[:, 1]), **shaping)

    def flat(self, gradient, x):
        return gradient

    def given(self):
        """``E[f | x_i = j]``, ``(d, K)``."""
        total = np.zeros((self.d, self.choices))
        for x in itertools.product(range(self.choices), repeat=self.d):
            p = np.prod([self.chances[i, j] for i, j in enumerate(x)])
            for i, j in enumerate(x):
                total[i, j] += p / self.chances[i, j] * float(self.table[x])
        return total

    def exact(self):
        given = self.given()
        return given[:, 1] - given[:, 0]


class OfChoices(OfCoins):
    """Any function of two choices among three: a gradient is its differences within a row."""

    d, choices = 2, 3

    def estimate(self, ops, x, values, **shaping):
        return gradients.categorical(ops, x, values, ops.asarray(self.chances), **shaping)

    def flat(self, gradient, x):
        return (gradient - jnp.mean(gradient, axis=1, keepdims=True)).ravel()

    def exact(self):
        return np.asarray(self.flat(self.given(), None))


CASES = {"gaussian": OfGaussian, "bernoulli": OfCoins, "categorical": OfChoices}


# the baselines are the same code (test_weights), and coin flips are choices
SOME = (("gaussian", "iid", "mean"), ("categorical", "iid", "mean"))


def combinations():
    for name, case in CASES.items():
        for scheme, baseline in itertools.product(case.schemes, case.baselines):
            if scheme == "iid" or baseline != "mean":  # the mean of dependent points is no unbiased baseline
                marks = () if (name, scheme, baseline) in SOME else pytest.mark.long
                yield pytest.param(name, scheme, baseline, id=f"{name}-{scheme}-{baseline}", marks=marks)


def mean_and_error(case, estimate, scheme):
    """Mean of the estimate with its standard error, per entry."""

    def one(key):
        draws = case.draws(key, scheme)
        gradient = estimate(draws, case.f(case.points(draws)))
        return case.flat(gradient, draws)

    def chunk(key):
        g = jax.vmap(one)(jax.random.split(key, CHUNK))
        return g.sum(0), (g * g).sum(0)

    keys = jax.random.split(jax.random.key(7), DRAWS // CHUNK)
    sums, squares = jax.jit(lambda keys: jax.lax.map(chunk, keys))(keys)
    mean = np.asarray(sums.sum(0)) / DRAWS
    return mean, np.sqrt(np.maximum(np.asarray(squares.sum(0)) / DRAWS - mean**2, 0) / DRAWS)


@pytest.mark.parametrize(("name", "scheme", "baseline"), list(combinations()))
def test_mean_is_the_exact_gradient(name, scheme, baseline):
    case = CASES[name]()
    exact = case.exact()
    estimate = functools.partial(case.estimate, JAX, baseline=baseline, normalise=False)
    mean, error = mean_and_error(case, estimate, scheme)
    scale = np.linalg.norm(exact)
    report = f"mean {mean}, exact {exact}, SE {error}, scale {scale:.3g}"
    assert (5 * error < 0.01 * scale).all(), f"too few draws to notice 1 % of the gradient: {report}"
    assert (np.abs(mean - exact) < 5 * error + 1e-12).all(), report


@pytest.mark.long
def test_the_test_notices_a_bias():
    """Without the correction of its own baseline each weight is ``1 - 1 / N`` too small."""
    case = OfGaussian()

    def biased(draws, values):
        g = case.estimate(JAX, draws, values, normalise=False)
        return g._replace(mean=g.mean * (1 - 1 / N))

    mean, error = mean_and_error(case, biased, "iid")
    assert (np.abs(mean - case.exact()) > 5 * error)[: case.d].any()


@pytest.mark.parametrize("name", CASES)
def test_parity(name):
    case = CASES[name]()
    draws = case.draws(jax.random.key(3), "iid")
    arrays = [np.asarray(part) for part in (draws, case.f(case.points(draws)))]
    one, two = (
        jax.tree.leaves(ops.to_numpy(case.estimate(ops, *map(ops.asarray, arrays))))
        for ops in map(backends.get, ("jax", "torch"))
    )
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_allclose(other, mine, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.long), "torch"])  # parity: above
def test_weights(backend):
    ops = backends.get(backend)

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
