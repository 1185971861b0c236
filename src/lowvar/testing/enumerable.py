"""A model small enough for exact answers, in both backends, and helpers of the contract tests."""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core import backend as backends
from lowvar.core.gaussian import independent
from lowvar.core.keys import named_key
from lowvar.core.optimizers import optimizer
from lowvar.vi.batches import Noise, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.variational import VariationalProblem

N, DIM, BATCH = 7, 2, 3  # the last batch of an epoch is short


def data(dtype: Any = np.float64, rows=N, dim=DIM, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, dim))
    return {
        "x": x.astype(dtype),
        "y": (x @ rng.normal(size=dim) + rng.logistic(size=rows) > 0).astype(np.int32),
    }


@functools.cache
def problem(backend="jax", dtype: Any = np.float64, **shape):
    """Logistic regression with a standard normal prior."""
    ops, arrays = backends.get(backend), data(dtype, **shape)
    xp, x = ops.xp, ops.asarray(arrays["x"])
    sign = ops.asarray(np.where(arrays["y"] == 1, 1.0, -1.0), like=x)
    t, weights = (ops.asarray(one, like=x) for one in hermite(80))
    log_prior, expected_log_prior = standard_normal(ops)

    def log_sigmoid(margin):
        return -xp.logaddexp(-margin, xp.zeros_like(margin))

    def exact_elbo(w):
        """By quadrature over each row's predictor, which is normal."""
        sd = xp.sqrt((x * x) @ xp.exp(2 * w["log_sigma"]))
        margins = sign[None, :] * ((x @ w["mu"])[None, :] + t[:, None] * sd[None, :])
        entropy = xp.sum(w["log_sigma"]) + 0.5 * x.shape[1] * (1 + math.log(2 * math.pi))
        return xp.sum(weights @ log_sigmoid(margins)) + expected_log_prior(w) + entropy

    return VariationalProblem(
        "logistic_regression", ops, len(x), x.shape[1],
        lambda z, index: log_sigmoid(ops.take(sign, index) * (ops.take(x, index) @ z)), log_prior, exact_elbo,
        expected_log_prior, quadratic_prior=True, sites={"z": slice(0, x.shape[1])}, dtype=arrays["x"].dtype,
    )  # fmt: skip


def standard_normal(ops):
    """``log p(z)`` of ``N(0, I)`` up to a constant, and its mean under a mean-field guide."""
    return (
        lambda z: -0.5 * ops.xp.sum(z * z),
        lambda w: -0.5 * ops.xp.sum(w["mu"] ** 2 + ops.xp.exp(2 * w["log_sigma"])),
    )


def params(backend="jax", dtype: Any = np.float64, dim=DIM, seed=1):
    rng = np.random.default_rng(seed)
    ops = backends.get(backend)
    values = {"mu": rng.normal(size=dim), "log_sigma": -0.5 + 0.3 * rng.normal(size=dim)}
    return {block: ops.asarray(value.astype(dtype)) for block, value in values.items()}


def guide_params(p, seed=1, spread=0.4):
    """Random parameters of the guide of a problem in JAX, away from those of independent coordinates."""
    mean_field, rng = params(dim=p.dim, seed=seed), np.random.default_rng([seed, 1])
    start = {block: jnp.asarray(value) for block, value in p.guide.start(**mean_field).items()}
    # entries that stay zero, such as those above a diagonal, have no gradient
    pattern = p.guide.pull_back(start, jnp.ones(p.noise_dim), jnp.ones(p.dim))
    shape = {block: spread * jnp.where(pattern[block] == 0, 0, rng.normal(size=length))
             for block, length in p.guide.shape.items()}  # fmt: skip
    return start | shape


def epoch_noise(p, batches, epoch, backend="jax", gaussian=None, seed=0):
    source = sampler(batches, gaussian or independent(), p.noise_dim, p.dtype)
    noise = source.epoch(jax.random.fold_in(named_key(seed, "contract"), epoch))
    return backends.get(backend).from_jax(noise)


def run(
    p,
    name,
    *,
    epochs,
    step_size=0.01,
    backend="jax",
    gaussian=None,
    batch=BATCH,
    method="sgd",
    scheme=reshuffled,
    **options,
):
    """The estimator and the descent state after some epochs, with noise shared by all estimators."""
    batches = scheme(p.N, batch)
    estimator = GRADIENT.get(name)(p, batches, **options)
    ops = backends.get(backend)
    solver = descend(
        estimator,
        sampler(batches, gaussian or independent(), p.noise_dim, p.dtype),
        optimizer(method, step_size, ops),
    )
    start = params(backend, p.dtype, p.dim) if p.guide.factorised else guide_params(p)
    state = solver.init(start)
    step = ops.jit(solver.epoch)
    for epoch in range(epochs):
        state = step(state, epoch_noise(p, batches, epoch, backend, gaussian))
    return estimator, state


@functools.cache
def exact_program(p):
    """The gradient of a problem's negative ELBO, by quadrature: compiled once for all tests."""
    return jax.jit(jax.grad(lambda w: -p.exact_elbo(w)))


def exact_gradient(p, w):
    """The gradient of the negative ELBO, by quadrature."""
    return exact_program(p)(w)


def quadrature_gradient(p, w, points=40):
    """The gradient of the negative ELBO for any guide, by autodiff of a quadrature over its base noise."""
    eps, weights = grid(p.noise_dim, points)

    def negative_elbo(w):
        energies = jax.vmap(lambda eps: p.full_energy(p.guide.transform(w, eps)))(eps)
        return weights @ energies - p.guide.entropy(w)

    return jax.jit(jax.grad(negative_elbo))(w)


def flat(gradient):
    return np.concatenate([np.asarray(gradient["mu"]), np.asarray(gradient["log_sigma"])])


def grid(dim=DIM, points=40):
    """Gauss-Hermite points ``eps (points^dim, dim)`` of ``N(0, I)`` and their weights: means to about ten digits."""
    t, weight = hermite(points)
    eps = np.stack(np.meshgrid(*[t] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    weights = np.prod(np.stack(np.meshgrid(*[weight] * dim, indexing="ij")), axis=0).ravel()
    return jnp.asarray(eps), jnp.asarray(weights)


def hermite(points):
    """Gauss-Hermite points of ``N(0, 1)`` and their weights, each ``(points,)``."""
    t, weight = np.polynomial.hermite_e.hermegauss(points)
    return t, weight / weight.sum()


def tuples(rows=N, size=BATCH):
    """All ``rows^size`` batches of iid sampling, which are equally likely."""
    return jnp.asarray(list(itertools.product(range(rows), repeat=size)), jnp.int32)


def estimates(estimator, pair=False, size=BATCH):
    """``(state, w, index (batches, size), eps (points, dim)) -> (batches, points, parameters)`` estimates.

    ``pair``: each point comes with its antithetic one.
    """

    def one(state, w, index, eps):
        eps = jnp.stack([eps, -eps]) if pair else eps[None]
        noise = Noise(index, jnp.full(size, 1 / size), jnp.asarray(float(size)), eps, jnp.asarray(0))
        gradient = estimator.estimate(state, w, noise)[0]
        return jnp.concatenate([gradient[block] for block in estimator.problem.blocks])

    return jax.vmap(jax.vmap(one, (None, None, None, 0)), (None, None, 0, None))


def enumerated_mean(estimator, pair=False, points=40, size=BATCH):
    """``(state, w) -> mean`` of the estimate over all iid batches and all base noise."""
    eps, weights = grid(estimator.problem.noise_dim, points)
    every = estimates(estimator, pair, size)

    @jax.jit
    def mean(state, w):
        some = jax.lax.map(lambda index: weights @ every(state, w, index[None], eps)[0], tuples(size=size))
        return some.mean(axis=0)

    return mean


def costly():
    """A problem whose likelihood dominates the arithmetic: 64 terms of 16 products for each row."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(96, 64, 16)))
    return VariationalProblem(
        "costly", backends.get("jax"), 96, 16,
        lambda z, index: jnp.sum(jnp.tanh(x[index] @ z), axis=-1),
        lambda z: -0.5 * jnp.sum(z * z),
    )  # fmt: skip


def quadratic(rows=N, dim=DIM, seed=0):
    """Linear regression with unit noise, where the second-order expansion is exact."""
    rng = np.random.default_rng(seed)
    x, y = jnp.asarray(rng.normal(size=(rows, dim))), jnp.asarray(rng.normal(size=rows))
    log_prior, expected = standard_normal(backends.get("jax"))
    return VariationalProblem(
        "quadratic", backends.get("jax"), rows, dim,
        lambda z, index: -0.5 * (y[index] - x[index] @ z) ** 2, log_prior, expected_log_prior=expected,
    )  # fmt: skip
