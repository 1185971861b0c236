"""A model small enough for exact answers, in both backends, and the pieces that contract tests need."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar import backends
from lowvar.estimators import GRADIENT, gradient_estimator
from lowvar.noise import Noise, independent, named_key, reshuffled, sampler
from lowvar.problems.logistic_regression import problem as logistic_regression
from lowvar.solvers import descend, optimizer

N, DIM, BATCH = 7, 2, 3  # the last batch of an epoch is short


@pytest.fixture(params=sorted(GRADIENT))
def name(request):
    """Every registered estimator in turn."""
    return request.param


def data(dtype=np.float64, rows=N, dim=DIM, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, dim))
    return {
        "x": x.astype(dtype),
        "y": (x @ rng.normal(size=dim) + rng.logistic(size=rows) > 0).astype(np.int32),
    }


def problem(backend="jax", dtype=np.float64, **shape):
    return logistic_regression(data(dtype, **shape), backend)


def params(backend="jax", dtype=np.float64, dim=DIM, seed=1):
    rng = np.random.default_rng(seed)
    ops = backends.get(backend)
    values = {"mu": rng.normal(size=dim), "log_sigma": -0.5 + 0.3 * rng.normal(size=dim)}
    return {block: ops.asarray(value.astype(dtype)) for block, value in values.items()}


def epoch_noise(p, batches, epoch, backend="jax", gaussian=None, seed=0):
    made = sampler(batches, gaussian or independent(), p.dim, p.dtype)
    noise = made.epoch(jax.random.fold_in(named_key(seed, "contract"), epoch))
    return noise if backend == "jax" else Noise(*(backends.get(backend).asarray(np.asarray(part)) for part in noise))


def run(p, name, *, epochs, step_size=0.01, backend="jax", gaussian=None, batch=BATCH, method="sgd", **options):
    """The estimator and the descent state after some epochs on the same noise for everybody."""
    batches = reshuffled(p.N, batch)
    estimator = gradient_estimator(name)(p, batches, **options)
    ops = backends.get(backend)
    solver = descend(
        estimator,
        sampler(batches, gaussian or independent(), p.dim, p.dtype),
        optimizer(method, step_size, ops),
    )
    state = solver.init(params(backend, p.dtype, p.dim))
    step = jax.jit(solver.epoch) if backend == "jax" else solver.epoch
    for epoch in range(epochs):
        state = step(state, epoch_noise(p, batches, epoch, backend, gaussian))
    return estimator, state


def exact_gradient(p, w):
    """The gradient of the negative ELBO, by quadrature."""
    return jax.tree.map(jnp.negative, jax.grad(p.exact_elbo)(w))


def flat(gradient):
    return np.concatenate([np.asarray(gradient["mu"]), np.asarray(gradient["log_sigma"])])
