"""Every estimator that says it is unbiased has the exact gradient as its mean, whatever its state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core.gaussian import antithetic, independent
from lowvar.errors import UserError
from lowvar.testing import estimator_contract
from lowvar.testing.enumerable import BATCH, exact_gradient, flat, params, problem, run
from lowvar.testing.estimators import assert_carryover
from lowvar.vi.batches import iid, sampler
from lowvar.vi.estimators import GRADIENT

MOST, CHUNK, PILOT = 2**21, 2**13, 4  # draws, draws at a time, chunks that tell how many are needed
RECURSIVE = [name for name in GRADIENT.own if GRADIENT.about(name).recursive]


def mean_and_error(p, estimator, state, w, gaussian, seed, scale):
    """Mean of the estimate over iid noise with its standard error, per coordinate.

    There are as many draws as 1 % of ``scale`` needs to be five standard errors, if ``MOST`` are enough.
    """
    draw = sampler(iid(p.N, BATCH), gaussian, p.dim, p.dtype)
    steps = draw.batches.steps

    def chunk(key):
        noise = jax.vmap(draw.epoch)(jax.random.split(key, CHUNK // steps))
        noise = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), noise)

        def estimate(noise):
            gradient, _ = estimator.estimate(state, w, noise)
            return jnp.concatenate([gradient["mu"], gradient["log_sigma"]])

        g = jax.vmap(estimate)(noise)
        return jnp.stack([g.sum(0), (g * g).sum(0), jnp.full(2 * p.dim, g.shape[0])])

    @jax.jit
    def some(first, count):
        def add(i, sums):
            return sums + chunk(jax.random.fold_in(jax.random.key(seed), i))

        return jax.lax.fori_loop(first, first + count, add, jnp.zeros((3, 2 * p.dim)))

    def summary(sums):
        total, squares, count = np.asarray(sums)
        return total / count, np.sqrt((squares / count - (total / count) ** 2) / count)

    sums = some(0, PILOT)
    needed = (1.05 * 5 * summary(sums)[1].max() / (0.01 * scale)) ** 2 * PILOT
    return summary(sums + some(PILOT, max(0, int(np.ceil(min(needed, MOST / CHUNK))) - PILOT)))


def assert_unbiased(p, estimator, state, gaussian, seed):
    """By draws, with the power to notice a bias of 1 %."""
    w = params(seed=5)  # away from where its memory was filled
    exact = flat(exact_gradient(p, w))
    scale = np.linalg.norm(exact)
    mean, error = mean_and_error(p, estimator, state, w, gaussian, seed, scale)
    report = f"mean {mean}, exact {exact}, SE {error}, scale {scale:.3g}"
    assert (5 * error < 0.01 * scale).all(), f"too few draws to notice 1 % of the gradient: {report}"
    assert (np.abs(mean - exact) < 5 * error + 1e-12).all(), report


BOX, BALL = {"box": [-40.0, 40.0]}, {"ball": 40.0}  # so wide that nothing is cut off


@pytest.mark.parametrize(
    ("recursive", "fed"),
    [
        *((name, {"base": "cv"}) for name in ("mlmc_adaptive", "storm")),
        *(pytest.param(name, {"base": "cv"}, marks=pytest.mark.long) for name in ("mlmc", "mlmc_optimal")),
        *(pytest.param("mlmc_prox", where, marks=pytest.mark.long) for where in (BOX, BALL)),
    ],
)
def test_the_bias_is_the_carryover_of_the_last_error(recursive, fed):
    """``E[G_t | past] - grad f(w_t) = carryover (G_{t-1} - grad f(w_{t-1}))``, over all batches and all of the noise.

    The contract has it with the naive gradient; here another one is fed to the recursion.
    """
    if recursive in ("mlmc_adaptive", "mlmc_optimal"):
        with pytest.raises(UserError, match=f"{recursive}: base = 'cv' would need"):
            run(problem(), recursive, epochs=1, **fed)
        fed = {"base": "stl"}
    estimator, late = run(problem(), recursive, epochs=3, **fed)
    assert_carryover(estimator, late.estimator)
    assert {estimator.properties.carryover} == ({0.9} if recursive == "storm" else {1.0})


def test_every_recursive_estimator_is_tested_for_its_bias():
    made = {one: GRADIENT.get(one)(problem(), iid(7, 3)).properties for one in GRADIENT if "glm" not in one}
    assert sorted(one for one, of in made.items() if not of.unbiased) == sorted(RECURSIVE)


@pytest.mark.parametrize(
    ("which", "gaussian"),
    [("naive", antithetic()), pytest.param("joint", independent(), marks=pytest.mark.long)],
    ids=["antithetic", "iid"],
)
def test_mean_over_draws(which, gaussian):
    """With the noise that samplers draw, which the tests above do not ask for."""
    p = problem()
    estimator, state = run(p, which, epochs=3, gaussian=gaussian)
    assert_unbiased(p, estimator, state.estimator, gaussian, seed=11)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(GRADIENT.own))
def test_the_contract_of_the_mean_holds_with_antithetic_points(name):
    contract = estimator_contract(name)()
    contract.pairs = True
    contract.test_mean_is_the_exact_gradient(name)
