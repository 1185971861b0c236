"""A model small enough for exact answers, in both backends, and helpers of the contract tests."""

import functools
import itertools
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
from lowvar.vi.designs import Dense
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.linear import linear, standard_normal
from lowvar.vi.links import Bernoulli
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
    x = ops.asarray(arrays["x"])
    link = Bernoulli(ops, ops.asarray(np.where(arrays["y"] == 1, 1.0, -1.0), like=x))
    prior = standard_normal(ops, x.shape[1])
    return linear("logistic_regression", len(x), arrays["x"].dtype, Dense(ops, x), link, *prior, quadratic_prior=True)


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
    t, weight = np.polynomial.hermite_e.hermegauss(points)
    eps = np.stack(np.meshgrid(*[t] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    weights = np.prod(np.stack(np.meshgrid(*[weight / weight.sum()] * dim, indexing="ij")), axis=0).ravel()
    return jnp.asarray(eps), jnp.asarray(weights)


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
    x = _costly_design()
    return VariationalProblem(
        "costly", backends.get("jax"), 96, 16,
        lambda z, index: jnp.sum(jnp.tanh(x[index] @ z), axis=-1),
        lambda z: -0.5 * jnp.sum(z * z),
    )  # fmt: skip


def costly_linear():
    """``costly`` with declared linear predictors."""
    ops = backends.get("jax")
    return linear("costly", 96, np.float64, _Tensor(), _Tanh(), *standard_normal(ops, 16))


def _costly_design():
    return jnp.asarray(np.random.default_rng(0).normal(size=(96, 64, 16)))


class _Tensor:
    """A design of 64 predictors for each row."""

    def __init__(self):
        self.backend, self.dim, self.x = backends.get("jax"), 16, _costly_design()
        self.squares = self.x**2

    def forward(self, z, index):
        return self._rows(self.x, index) @ z

    def back(self, r, index):
        return jnp.tensordot(r, self._rows(self.x, index), 2)

    def forward_squares(self, v, index):
        return self._rows(self.squares, index) @ v

    def back_squares(self, r, index):
        return jnp.tensordot(r, self._rows(self.squares, index), 2)

    def forward_by_row(self, z, index):
        return jnp.einsum("bcd,bd->bc", self._rows(self.x, index), z)

    def _rows(self, array, index):
        return array if index is None else array[index]


class _Tanh:
    """``log p = sum_c tanh(a_c)``; derivatives by autodiff."""

    def log(self, a, index):
        return jnp.sum(jnp.tanh(a), axis=1)

    def residual(self, a, index):
        return -jax.grad(lambda a: jnp.sum(jnp.tanh(a)))(a)

    def curvature(self, a, t, index):
        return jax.jvp(lambda a: self.residual(a, index), (a,), (t,))[1]

    def curvature_diagonal(self, a, index):
        return self.curvature(a, jnp.ones_like(a), index)


def quadratic(rows=N, dim=DIM, seed=0):
    """Linear regression with unit noise, where the second-order expansion is exact."""
    rng = np.random.default_rng(seed)
    x, y = jnp.asarray(rng.normal(size=(rows, dim))), jnp.asarray(rng.normal(size=rows))
    log_prior, expected = standard_normal(backends.get("jax"), dim)
    return VariationalProblem(
        "quadratic", backends.get("jax"), rows, dim,
        lambda z, index: -0.5 * (y[index] - x[index] @ z) ** 2, log_prior, expected_log_prior=expected,
    )  # fmt: skip
