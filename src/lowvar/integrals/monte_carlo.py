"""The mean of the values, and how many independent points the states of a Markov chain are worth."""

import numpy as np
import scipy.stats

from lowvar.integrals.base import HALF, LEVEL, IntegralProperties, Integrals, Integrator
from lowvar.integrals.samples import Samples

TOO_FEW = 10  # effective points, below which autocorrelations cannot be told


def monte_carlo(correlated: bool | None = None) -> Integrator:
    """``(1 / m) sum_j f(x_j)``, with the standard error ``s / sqrt(m)``, or ``s / sqrt(effective m)`` along a chain.

    Args:
        correlated: whether the points depend on their predecessors; whether they are a chain if not given.

    Returns:
        An integrator whose ``info`` has the effective sizes, ``effective (R, T)``. It warns of ``few_states`` where
        correlated points are worth fewer than ten.
    """

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        dependent = samples.chain if correlated is None else correlated
        value = np.stack([values.mean(axis=1) for values in samples.values], axis=1)
        spread = np.stack([values.std(axis=1, ddof=1) for values in samples.values], axis=1)
        if dependent:
            effective = np.stack([effective_size(values) for values in samples.values], axis=1)
        else:
            effective = np.broadcast_to(np.array(samples.sizes, dtype=float), value.shape).copy()

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            return np.repeat(value[:, task, None], points.shape[1], axis=1)

        return Integrals(
            value=value,
            standard_error=spread / np.sqrt(effective),
            condition=np.full(samples.repetitions, np.nan),
            flags={"few_states": np.any(effective < TOO_FEW, axis=1)} if dependent else {},
            info={"effective": effective},
            fitted=fitted,
        )

    return Integrator("monte_carlo", IntegralProperties(scores=False, exact_on="constants", fewest=2), integrate)


def effective_size(values: np.ndarray) -> np.ndarray:
    """Effective sample sizes of averages along the second axis.

    From autocorrelations, as Stan's (Geyer's initial monotone sequence). At least 1 and at most ``m log10 m``, as
    short series cannot tell more; ``m`` for a series that does not vary, or of fewer than four states.

    Args:
        values: ``(N, m, K)``, or ``(N, m)``.

    Returns:
        ``(N, K)``, or ``(N,)``.

    References:
        Geyer, "Practical Markov chain Monte Carlo", 1992; Vehtari, Gelman, Simpson, Carpenter and Bürkner,
        "Rank-normalization, folding, and localization: an improved R-hat", 2021.
    """
    from numpyro.diagnostics import effective_sample_size

    m = values.shape[1]
    if m < 4:
        return np.full((values.shape[0], *values.shape[2:]), float(m))
    constant = np.ptp(values, axis=1) <= 1e-14 * np.abs(values).max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = effective_sample_size(np.moveaxis(values, 1, 0)[None])  # all repetitions as events of one chain
    found = np.where(np.isfinite(found) & (found > 0), found, m * max(1.0, np.log10(m)))
    return np.where(constant, m, np.clip(found, 1.0, m * max(1.0, np.log10(m))))


def split_r_hat(draws: np.ndarray) -> np.ndarray:
    """R-hat of each coordinate, from halves of chains, of ranks and of folded ranks: the larger of the two.

    Args:
        draws: ``(chains, draws, d)``, at least 4 draws.

    Returns:
        ``(d,)``; NaN for a coordinate that does not vary.

    References:
        Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization, folding, and localization: an improved
        R-hat", 2021, Section 4.1.
    """
    from numpyro.diagnostics import split_gelman_rubin

    flat = draws.reshape(-1, draws.shape[-1])
    found = []
    for values in (flat, np.abs(flat - np.median(flat, axis=0))):
        ranks = scipy.stats.rankdata(values, axis=0)
        scores = scipy.stats.norm.ppf((ranks - 0.375) / (len(flat) + 0.25))
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(split_gelman_rubin(scores.reshape(draws.shape)))
    return np.where(np.ptp(flat, axis=0) > 0, np.fmax(*found), np.nan)


def student(freedom: np.ndarray) -> np.ndarray:
    """The quantile of Student's ``t`` over the normal one: by how much an interval is wider than 1.96 standard errors.

    Args:
        freedom: degrees of freedom, taken for 1 where they are fewer.
    """
    return scipy.stats.t.isf((1 - LEVEL) / 2, np.maximum(freedom, 1.0)) / HALF
