"""Whether scores belong to the density that the samples are from: Stein's identity, tested."""

from dataclasses import dataclass

import numpy as np
import scipy.stats

from lowvar.integrals.choosing.tails import stride
from lowvar.integrals.monte_carlo import effective_size

DOUBT = 1e-2  # significance, all tests of a set of points together
ENOUGH = 8  # (effective) points from which scores are tested: with fewer, right scores fail too often
RELIABLE = 20  # points from which the test detects a mean that is off by a standard deviation in most cases


@dataclass(frozen=True)
class Doubt:
    """The test that fails most clearly.

    Attributes:
        what: ``mean`` or ``spread``, of the density; ``constant`` where the scores do not vary.
        coordinate: which, or None where all were tested together.
        deviations: by how many standard errors the identity is off.
    """

    what: str
    coordinate: int | None
    deviations: float

    def __str__(self) -> str:
        if self.what == "constant":
            return (
                f"coordinate {self.coordinate} of the scores is constant, which no density that vanishes at the "
                "boundary of its support has"
            )
        where = "all coordinates together" if self.coordinate is None else f"coordinate {self.coordinate}"
        return (
            f"they do not match the density of the samples (Stein's identity for the {self.what} of {where} is "
            f"off by {self.deviations:.1f} standard errors), or this density has an edge where it is not zero"
        )


def doubt(points: np.ndarray, scores: np.ndarray, chain: bool = False) -> Doubt | None:
    """Tests Stein's identity ``E (u' + u l) = 0``, for ``u = 1`` and ``u = tanh`` of each coordinate.

    ``u = 1`` sees a wrong mean and ``tanh``, which is bounded, a wrong spread; the sum of the latter over the
    coordinates sees a wrong temperature, which is a little wrong in each of them.

    Args:
        points: ``(m, d)``.
        scores: ``(m, d)``.
        chain: the points are successive states of a Markov chain; its effective size takes the place of ``m``.
            Points that depend on their neighbours are taken for one.

    Returns:
        None where the scores pass, or where there are too few points to tell.

    References:
        Johnson, "Modified t tests and confidence intervals for asymmetrical populations", 1978, since the terms are
        skew.
    """
    chain = chain or stride(points) > 0
    moving = np.flatnonzero(np.ptp(points, axis=0) > 0)
    if not len(moving):
        return None
    x, score = points[:, moving], scores[:, moving]
    if len(x) >= ENOUGH and (constant := np.ptp(score, axis=0) == 0).any():
        return Doubt("constant", int(moving[constant.argmax()]), np.inf)
    scale = x.std(axis=0)
    u = np.tanh((x - np.median(x, axis=0)) / scale)
    spread = (1 - u**2) + u * score * scale
    tests = np.concatenate([score * scale, spread, spread.sum(axis=1, keepdims=True)], axis=1)
    size = effective_size(tests[None])[0] if chain else np.full(tests.shape[1], float(len(x)))
    if size.min() < ENOUGH:
        return None
    share = np.full(tests.shape[1], DOUBT / 2 / (tests.shape[1] - 1))
    share[-1] = DOUBT / 2
    limit = scipy.stats.t.isf(share / 2, size - 1)
    z = np.abs(_johnson(tests, size))
    worst = int((z / limit).argmax())
    if z[worst] <= limit[worst]:
        return None
    number = len(moving)
    coordinate = None if worst == 2 * number and number > 1 else int(moving[worst % number])
    return Doubt("mean" if worst < number else "spread", coordinate, float(z[worst]))


def _johnson(tests: np.ndarray, size: np.ndarray) -> np.ndarray:
    """``t`` statistics of the hypothesis that means are zero, corrected for skewness."""
    mean, spread = tests.mean(axis=0), tests.std(axis=0, ddof=1)
    spread = np.where(spread > 0, spread, 1.0)
    third = ((tests - mean) ** 3).mean(axis=0)
    corrected = mean + third / (6 * spread**2 * size) + third * mean**2 / (3 * spread**4)
    return corrected * np.sqrt(size) / spread
