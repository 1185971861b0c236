r"""Variance of search gradients by noise scheme, N / d, sigma, and the odd and even parts of f.

The distribution is ``N(mu, sigma^2 I)``, ``x = mu + sigma z``. The gradient of ``E f(x)`` is taken in coordinates in
which the distribution is standard normal: with respect to ``mu / sigma`` (block ``mu``, ``sum_i w_i z_i``) and to the
logarithms of the coordinates' standard deviations (block ``sigma``, ``sum_i w_i (z_i^2 - 1)``). Values are not
normalised, and variances are summed over coordinates.

**Odd and even parts.** Write ``f(mu + sigma z) = o(z) + e(z)``, ``o`` odd and ``e`` even. An estimate is linear in the
values, baselines included (``f(mu)`` is a value of ``e``, and ``o(0) = 0``), so it is the sum of an estimate from
``o`` and one from ``e``. Reflect all points of a generation, ``z_i -> -z_i``. In block ``mu`` the odd estimate does not
change (``z o(z)`` is even) and the even one changes sign; in block ``sigma`` the reverse holds. Let ``a`` be the part
that changes sign and ``b`` the other. If the distribution of a generation is invariant under reflection,
``E a = -E a = 0`` and ``E ab = -E ab = 0``. Hence, exactly,

* ``total = odd + even`` for the variances, in both blocks;
* only the odd part contributes to the mean of the gradient for ``mu``, and only the even part to that for ``sigma``;
  the other part is pure noise, and antithetic pairs remove only this part.

The distributions of iid, antithetic and orthogonal points are invariant, and so is that of scrambled Sobol points: a
digital shift is as likely as its complement, and complementing all digits is ``u -> 1 - u``. The estimates in a table
add up except for the sampled covariance of ``a`` and ``b``.

**Cost of antithetic pairs.** ``N`` points are ``N / 2`` pairs, which double the part that they do not remove: ``V_odd``
of block ``mu`` is twice that of iid points, and pairs reduce the variance if ``even > odd``.

**The baseline** ``mean`` is corrected for the ``1 / N`` of each point in its own baseline, under the assumption of iid
points. Balanced points need less correction: for pairs, the estimate is too long by ``N / (N - 1)`` in block ``mu`` and
too short by ``(N - 2) / (N - 1)`` in block ``sigma``. Variances are of this estimate.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.intervals import ratio_of_means
from lowvar.search.gradients import BASELINES, gaussian

BLOCKS = ("mu", "sigma")
SOURCES = ("total", "odd", "even")
_BATCHES = 25  # of replicates, for the jackknife
_NUMBERS = 2**20  # coordinates of points in memory at once
_DUST = 1e3 * np.finfo(float).eps  # relative to the values: rounding error


def search_variance(
    problem,
    *,
    mean,
    sigmas: Sequence[float],
    populations: Sequence[int],
    schemes: Sequence[str] = tuple(GAUSSIAN),
    baselines: Sequence[str] = BASELINES,
    replicates: int = 4000,
    key,
):
    """Variances of search gradients of ``E f``, ``x ~ N(mean, sigma^2 I)``, with 95 % intervals.

    Args:
        problem: a ``BlackBoxProblem`` on R^d whose values are JAX programs.
        mean: ``mu``, ``(dim,)``.
        sigmas: standard deviations; all share the same noise.
        populations: points ``N`` of a generation, without the evaluation for the baseline ``centre``.
        schemes: names of ``lowvar.core.gaussian.GAUSSIAN``; without ``iid`` there are no ratios to it.
        baselines: names of ``search.gradients.BASELINES``.
        replicates: generations for each combination, rounded up to a multiple of 25.
        key: JAX key of the noise; schemes share the derived keys.

    Returns:
        A pandas table with the columns ``problem, dim, sigma, population, scheme, baseline, block, source,
        variance, low, high, to_iid, to_iid_low, to_iid_high``.
        ``to_iid`` is the ratio to iid points at the same N and baseline. Intervals are jackknife intervals over 25
        batches of replicates, on a logarithmic scale; chi-squared intervals would be too
        short, because estimates have heavy tails.
    """
    import pandas as pd

    mean = jnp.asarray(mean, float)
    spread = jnp.asarray(list(sigmas), mean.dtype)
    each = -(-replicates // _BATCHES)
    cells = {}
    for population in populations:
        keys = jax.random.split(jax.random.fold_in(key, population), (_BATCHES, each))
        for scheme in schemes:
            compiled = _cell(problem, scheme, population, tuple(baselines), each, len(spread))
            cells[population, scheme] = [np.asarray(part) for part in compiled(mean, spread, keys)]
    rows = []
    for s, sigma in enumerate(sigmas):
        for (population, scheme), (variance, size) in cells.items():
            for at in np.ndindex(len(baselines), len(BLOCKS), len(SOURCES)):
                dust = _DUST**2 * size[:, s].mean() * problem.dim / population
                sample = _clean(variance[:, s, *at], dust)
                iid = cells.get((population, "iid"))
                rows.append(
                    {"problem": problem.name, "dim": problem.dim, "sigma": float(sigma), "population": population,
                     "scheme": scheme, "baseline": baselines[at[0]], "block": BLOCKS[at[1]], "source": SOURCES[at[2]],
                     **_named(_ratio(sample, np.ones_like(sample)), "variance", "low", "high"),
                     **_named((np.nan,) * 3 if iid is None else _ratio(sample, _clean(iid[0][:, s, *at], dust)),
                              "to_iid", "to_iid_low", "to_iid_high")}
                )  # fmt: skip
    return pd.DataFrame(rows)


def _ratio(numerator, denominator) -> tuple[float, float, float]:
    """``ratio_of_means`` of values over the same batches; 0 where nothing varies."""
    if denominator.any() and not numerator.any():
        return 0.0, 0.0, 0.0
    return ratio_of_means([(1, numerator), (-1, denominator)])


def _cell(problem, scheme, population, baselines, each, spreads):
    """``(mean, sigmas, keys (batches, each)) ->`` variances and mean square values.

    Shapes: ``(batches, sigmas, baselines, blocks, sources)``, ``(batches, sigmas)``.
    """
    draw = GAUSSIAN[scheme](population).draw
    estimate = {name: partial(gaussian, problem.backend, baseline=name, normalise=False) for name in baselines}
    at_once = max(1, _NUMBERS // (population * problem.dim * spreads))
    at_once = max(n for n in range(1, each + 1) if each % n == 0 and n <= at_once)

    def both(baseline, z, values, centre):
        gradient = estimate[baseline](z, values, at_centre=centre)
        return jnp.stack([gradient.mean, gradient.diagonal(z)])

    def generation(key, mean, sigma, centre):
        z = draw(key, problem.dim, mean.dtype)
        plus, minus = problem.values(mean[None, :] + sigma * z), problem.values(mean[None, :] - sigma * z)
        odd, even = (plus - minus) / 2, (plus + minus) / 2
        parts = jnp.stack(
            [
                jnp.stack([both(name, z, odd, jnp.zeros_like(centre)), both(name, z, even, centre)], 1)
                for name in baselines
            ]
        )  # (baselines, blocks, 2, dim)
        return parts, jnp.mean(plus * plus)

    @jax.jit
    def run(mean, sigmas, keys):
        centre = problem.values(mean[None, :])[0]

        def batch(keys):
            def one(key):
                return jax.vmap(lambda sigma: generation(key, mean, sigma, centre))(sigmas)

            parts, size = jax.lax.map(one, keys, batch_size=at_once)
            parts = jnp.concatenate([jnp.sum(parts, -2, keepdims=True), parts], -2)
            return jnp.sum(jnp.var(parts, 0, ddof=1), -1), jnp.mean(size, 0)

        return jax.lax.map(batch, keys)

    return run


def _clean(sample, dust: float):
    """Zeros in place of variances that are rounding error."""
    return np.zeros_like(sample) if sample.mean() <= dust else sample


def _named(values, *names: str) -> dict[str, float]:
    return dict(zip(names, values, strict=True))
