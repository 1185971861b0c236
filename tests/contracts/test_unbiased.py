"""Every estimator that says it is unbiased has the exact gradient as its mean, whatever its state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumerable import BATCH, exact_gradient, flat, params, problem, run

from lowvar.noise import antithetic, iid, independent, sampler

DRAWS, CHUNK = 2**21, 2**14


def mean_and_error(p, estimator, state, w, gaussian, seed):
    """Mean of the estimate over iid noise with its standard error, per coordinate."""
    draw = sampler(iid(p.N, BATCH), gaussian, p.dim, p.dtype)
    steps = draw.batches.steps

    def chunk(key):
        noise = jax.vmap(draw.epoch)(jax.random.split(key, CHUNK // steps))
        noise = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), noise)

        def estimate(noise):
            gradient, _, _ = estimator.estimate(state, w, noise)
            return jnp.concatenate([gradient["mu"], gradient["log_sigma"]])

        g = jax.vmap(estimate)(noise)
        return g.sum(0), (g * g).sum(0), jnp.asarray(g.shape[0])

    sums, squares, counts = jax.jit(lambda keys: jax.lax.map(chunk, keys))(
        jax.random.split(jax.random.key(seed), DRAWS // CHUNK)
    )
    count = float(counts.sum())
    mean = np.asarray(sums.sum(0)) / count
    variance = np.asarray(squares.sum(0)) / count - mean**2
    return mean, np.sqrt(variance / count)


@pytest.mark.parametrize("gaussian", [independent(), antithetic()], ids=["iid", "antithetic"])
@pytest.mark.parametrize("epochs", [0, 3], ids=["fresh", "after 3 epochs"])
def test_mean_is_the_exact_gradient(name, epochs, gaussian):
    p = problem()
    estimator, state = run(p, name, epochs=epochs, gaussian=gaussian)
    assert estimator.properties.unbiased, "an estimator that declares a bias needs a test of that bias"
    w = params(seed=5)  # away from where its memory was filled
    exact = flat(exact_gradient(p, w))
    mean, error = mean_and_error(p, estimator, state.estimator, w, gaussian, seed=11)
    scale = np.linalg.norm(exact)
    report = f"mean {mean}, exact {exact}, SE {error}, scale {scale:.3g}"
    assert (5 * error < 0.01 * scale).all(), f"too few draws to notice 1 % of the gradient: {report}"
    assert (np.abs(mean - exact) < 5 * error + 1e-12).all(), report


def test_with_iid_batches_all_the_way(name):
    """A memory kept up by iid batches (rows drawn twice included) leaves the mean right too."""
    from lowvar import backends
    from lowvar.estimators import gradient_estimator
    from lowvar.solvers import descend, optimizer

    p = problem()
    batches = iid(p.N, 5)
    estimator = gradient_estimator(name)(p, batches)
    draw = sampler(batches, independent(), p.dim, p.dtype)
    solver = descend(estimator, draw, optimizer("sgd", 0.01, backends.get("jax")))
    state = solver.init(params())
    for epoch in range(4):
        state = solver.epoch(state, draw.epoch(jax.random.key(epoch)))
    w = params(seed=5)
    exact = flat(exact_gradient(p, w))
    mean, error = mean_and_error(p, estimator, state.estimator, w, independent(), seed=12)
    assert (5 * error < 0.01 * np.linalg.norm(exact)).all(), "too few draws to notice 1 % of the gradient"
    assert (np.abs(mean - exact) < 5 * error + 1e-12).all(), f"mean {mean}, exact {exact}, SE {error}"


def test_the_test_notices_a_bias():
    """The same figures, with a bias of 1 % of the gradient put in, fail."""
    p = problem()
    estimator, state = run(p, "naive", epochs=0)
    w = params(seed=5)
    exact = flat(exact_gradient(p, w))
    mean, error = mean_and_error(p, estimator, state.estimator, w, independent(), seed=11)
    biased = mean + 0.01 * np.linalg.norm(exact)
    assert not (np.abs(biased - exact) < 5 * error).any()
