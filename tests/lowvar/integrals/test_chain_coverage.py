"""How often 95 % intervals along Markov chains contain the exact answer: ``pytest -m long`` runs most of it.

Four chains, one below the other, as ``integrate`` gets them from a sampler; started at draws of the target, since what
is tested is the standard error, not the warm-up.
"""

import functools

import numpy as np
import pytest
import scipy.special
import scipy.stats
from samples_of_normal import autoregression

from lowvar.integrals.auto import auto
from lowvar.integrals.base import Samples
from lowvar.integrals.cross_fitting import cross_fitted
from lowvar.integrals.monte_carlo import monte_carlo
from lowvar.integrals.zero_variance import zero_variance

CHAINS = 4


def normal(x):
    """Log density and score of N(0, I)."""
    return -0.5 * (x**2).sum(-1), -x


def skew(x):
    """Of logarithms of gamma(2) variables: skewness -0.78."""
    return (2 * x - np.exp(x)).sum(-1), 2 - np.exp(x)


def start(target, rng, shape):
    z = rng.normal(size=shape)
    return z if target is normal else np.log(rng.gamma(2.0, size=shape))


def autoregressive(target, rng, repetitions, draws, dim):
    return autoregression(rng, repetitions, CHAINS, draws, dim, keep=0.9)


def metropolis(target, rng, repetitions, draws, dim, thin=2):
    """Random walk; every second state, with the copies that rejected proposals leave."""
    x = start(target, rng, (repetitions, CHAINS, dim))
    level, kept = target(x)[0], np.empty((repetitions, CHAINS, draws, dim))
    for j in range(draws * thin):
        proposed = x + 2.0 / np.sqrt(dim) * rng.normal(size=x.shape)
        there = target(proposed)[0]
        moved = np.log(rng.random(level.shape)) < there - level
        x, level = np.where(moved[..., None], proposed, x), np.where(moved, there, level)
        kept[:, :, j // thin] = x
    return kept


def nuts(target, rng, repetitions, draws, dim):
    """All chains of all repetitions at once."""
    import jax
    import jax.numpy as jnp
    import numpyro

    def potential(x):
        return 0.5 * (x**2).sum() if target is normal else -(2 * x - jnp.exp(x)).sum()

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(potential_fn=potential, max_tree_depth=6), num_warmup=100, num_samples=draws,
        num_chains=repetitions * CHAINS, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), init_params=jnp.asarray(start(target, rng, (repetitions * CHAINS, dim))))
    return np.asarray(mcmc.get_samples(group_by_chain=True)).reshape(repetitions, CHAINS, draws, dim)


MEANS = {  # of the integrands below
    normal: (0.0, 1.0, np.exp(0.125), scipy.stats.norm.sf(1.0)),
    skew: (
        scipy.special.digamma(2), scipy.special.polygamma(1, 2) + scipy.special.digamma(2) ** 2,
        scipy.special.gamma(2.5) / scipy.special.gamma(2), scipy.stats.gamma(2).sf(np.e),
    ),
}  # fmt: skip
INTEGRANDS = ("mean", "square", "exponential", "tail")
METHODS = {
    "monte_carlo": monte_carlo,
    "zero_variance 1": lambda: zero_variance(1),
    "zero_variance 2": lambda: zero_variance(2),
    "zero_variance 2, 5 folds": lambda: cross_fitted(zero_variance(2)),
    "auto": auto,
}


@functools.cache
def chains(sampler, target, repetitions, draws, dim):
    x = sampler(target, np.random.default_rng(1), repetitions, draws, dim)
    x = x.reshape(repetitions, CHAINS * draws, dim)
    first = x[..., 0]
    values = (first, first**2, np.exp(0.5 * first), 1.0 * (first > 1))
    scores = target(x)[1]
    return Samples((x,) * 4, (scores,) * 4, values, shared=True, chain=True)


def report(method, sampler, target, repetitions, draws, dim):
    """The upper ends of the 95 % intervals of the coverages, for each integrand; all of it is printed."""
    samples = chains(sampler, target, repetitions, draws, dim)
    found = METHODS[method]().integrate(samples, np.arange(repetitions))
    off = np.abs(found.value - MEANS[target])
    # what is integrated without error is off by rounding, at most
    inside = (off <= np.maximum(found.half, 1e-12)).sum(axis=0)
    plain = np.stack([values.mean(axis=1) for values in samples.values], axis=1) - MEANS[target]
    errors = np.sqrt((off**2).mean(0) / (plain**2).mean(0))
    highs = []
    for name, hits, error in zip(INTEGRANDS, inside, errors, strict=True):
        interval = scipy.stats.binomtest(int(hits), repetitions).proportion_ci()
        print(
            f"{sampler.__name__:15} {target.__name__:7} {method:25} {name:12} coverage {hits / repetitions:.3f} "
            f"[{interval.low:.3f}, {interval.high:.3f}]  error / Monte Carlo's {error:.2g}"
        )
        highs.append(interval.high)
    return np.array(highs)


LEAST = 0.92  # what the interval of a coverage must reach


@pytest.mark.parametrize("method", ["monte_carlo", "zero_variance 1", "zero_variance 2, 5 folds"])
@pytest.mark.parametrize(("sampler", "target"), [(autoregressive, normal), (metropolis, skew)])
def test_intervals_along_chains(method, sampler, target):
    assert (report(method, sampler, target, 100, 150, 2) > LEAST).all()


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("sampler", "target"), [(autoregressive, normal), (metropolis, normal), (metropolis, skew), (nuts, normal)]
)
def test_intervals_along_long_chains(method, sampler, target):
    repetitions = 40 if method == "auto" else 300
    assert (report(method, sampler, target, repetitions, 250, 3) > LEAST).all()
