"""The look for other modes beside a guide: at images of its mean, and along lines through it."""

import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp

from lowvar.vi.judgement import other_mode
from lowvar.vi.numpyro.model import from_numpyro

N = 200
rng = np.random.default_rng(3)
NOISE, X = rng.normal(size=N), jnp.asarray(rng.normal(size=(N, 2)), jnp.float32)


def normal(site, size=None, sd=2.0):
    one = dist.Normal(0.0, sd)
    return numpyro.sample(site, one if size is None else one.expand([size]).to_event(1))


def observed(y, mean, sd=0.3):
    with numpyro.plate("rows", N, subsample_size=50) as i:
        numpyro.sample("y", dist.Normal(mean(i), sd), obs=y[i])


def square(y):
    w = normal("w")
    observed(y, lambda i: w**2)


def shifted(y):
    w, b = normal("w"), normal("b")
    observed(y, lambda i: (w - 0.3) ** 2 + b * X[i, 0])


def product(y):
    a, b = normal("a"), normal("b", 2)
    observed(y, lambda i: a * (X[i] @ b))


def phase(y):
    shift = normal("shift", sd=5.0)
    observed(y, lambda i: jnp.sin(2 * X[i, 0] + shift))


def mixture(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    m, s = normal("m", 3, 5.0), numpyro.sample("s", dist.HalfNormal(1.0).expand([3]).to_event(1))
    slope = normal("slope", 3)  # as long as there are components, and no part of them
    with numpyro.plate("rows", N, subsample_size=50) as i:
        inputs = jnp.stack([X[i, 0], X[i, 1], X[i, 0] * X[i, 1]], axis=1)
        rest = (y[i] - inputs @ slope)[:, None]
        numpyro.factor("y", logsumexp(jnp.log(p)[None] + dist.Normal(m[None], s[None]).log_prob(rest), axis=1))


def linear(y):
    w, s = normal("w", 2), numpyro.sample("s", dist.HalfNormal(1.0))
    observed(y, lambda i: X[i] @ w, s)


def ridge(y):
    """Only the sum of both is known, so the posterior is far longer than a guide of independent coordinates."""
    w = normal("w", 2, 1.0)
    observed(y, lambda i: w.sum())


def flat(y):
    """The square of w is not far enough from zero to part the modes."""
    w = normal("w")
    observed(y, lambda i: w**2, 5.0)


LOW = {"w": 0.02, "a": 0.02, "b": 0.03, "shift": 0.03, "p": 0.1, "m": 0.05, "s": 0.1, "slope": 0.05}
PARTS = np.repeat([-3.0, 0.0, 3.0], [60, 40, 100])
SLOPE, INPUTS = [0.5, -0.5, 0.2], np.stack([X[:, 0], X[:, 1], X[:, 0] * X[:, 1]], axis=1)
CASES = {
    "a sign": (square, 1.44 + 0.3 * NOISE, {"w": 1.2}, "'w'"),
    "signs of two": (product, X @ np.array([1.0, -0.5]) + 0.3 * NOISE, {"a": 1.0, "b": [1.0, -0.5]}, "'a' and 'b'"),
    "no image": (shifted, 1.44 + 0.3 * NOISE, {"w": 1.5, "b": 0.0}, "'w'"),
    "a period": (phase, np.sin(2 * X[:, 0] + 1) + 0.3 * NOISE, {"shift": 1.0}, "'shift'"),
    "components": (
        mixture, PARTS + INPUTS @ SLOPE + 0.3 * NOISE,
        {"p": [0.3, 0.2, 0.5], "m": [-3.0, 0.0, 3.0], "s": [0.3] * 3, "slope": SLOPE}, "'m' and 'p'",
    ),
    "none": (linear, X @ np.array([1.0, -0.5]) + 0.3 * NOISE, {"w": [1.0, -0.5], "s": 0.3}, ""),
    "none along a ridge": (ridge, 1.0 + 0.3 * NOISE, {"w": [0.5, 0.5]}, ""),
    "none near zero": (flat, 0.3 * NOISE, {"w": 0.3}, ""),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "guide"), [*((case, "mean_field") for case in CASES), ("signs of two", "full_rank"), ("none", "low_rank")]
)
def test_other_mode(case, guide):
    model, y, at, sites = CASES[case]
    problem = from_numpyro(
        model, {"y": np.asarray(y, np.float32)}, init={k: np.asarray(v) for k, v in at.items()}, guide=guide
    )
    sd = np.concatenate([np.full(where.stop - where.start, LOW[site]) for site, where in problem.sites.items()])
    sd = np.full(problem.dim, 0.6) if case == "none near zero" else sd
    params = {**problem.start, "log_sigma": np.log(sd)}
    found = other_mode(
        problem, {block: jnp.asarray(value, jnp.float32) for block, value in params.items()}, 10_000, 200
    )
    assert bool(found) == bool(sites)
    assert sites in found


def test_a_mode_along_a_line_is_told_by_the_value_that_init_takes():
    """A frequency on (0, 10), of which the fit at 0 lacks the peak at 3."""
    t = np.linspace(0, 10, N)

    def model(y):
        w = numpyro.sample("w", dist.Uniform(0.0, 10.0))
        observed(y, lambda i: jnp.sin(w * jnp.asarray(t, jnp.float32)[i]))

    problem = from_numpyro(model, {"y": np.asarray(np.sin(3 * t) + 0.3 * NOISE, np.float32)}, init={"w": 0.005})
    params = {"mu": problem.start["mu"], "log_sigma": np.log(np.full(1, 0.1))}
    found = other_mode(problem, {k: jnp.asarray(v, jnp.float32) for k, v in params.items()}, 10_000, 200)
    assert float(re.findall(r"'w' = ([\d.]+) in place", found)[0]) == pytest.approx(3.0, abs=0.02)
