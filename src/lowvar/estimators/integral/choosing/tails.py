"""Standard errors of averages whose terms may be skew or heavy-tailed: how far the central limit theorem reaches."""

from dataclasses import dataclass

import numpy as np
import scipy.stats

from lowvar.estimators.integral.chains import effective_size, student

OFTEN = 0.05  # a larger share of points that repeat others is no chance


@dataclass(frozen=True)
class Average:
    """Averages of ``R`` series of ``m`` terms.

    Attributes:
        mean: ``(R,)``.
        plain_error: ``s / sqrt(m)``, or ``s / sqrt(effective m)`` along a chain, ``(R,)``.
        carriers: how many terms carry the variance, ``(sum q)^2 / sum q^2`` of squared deviations ``q``: ``m / 3`` for
            normal terms, 1 where a single term stands out, ``(R,)``. Along a chain, what they are worth.
        effective: what the terms are worth, ``(R,)``: their number, or less (or more) along a chain.
        largest: the largest absolute deviation, ``(R,)``.
    """

    mean: np.ndarray
    plain_error: np.ndarray
    carriers: np.ndarray
    effective: np.ndarray
    largest: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """The standard error with which ``1.96`` of it on either side make an interval of Student's ``t``.

        The variance is known as well as from ``carriers`` squared normal terms: those are its degrees of freedom.
        """
        return self.plain_error * student(self.carriers - 1)


def average(terms: np.ndarray, worth: np.ndarray | None = None) -> Average:
    """Averages of the terms ``(R, m)``.

    Args:
        terms: one series for each repetition.
        worth: the terms are of successive states of a Markov chain, which is worth at most so many independent points,
            ``(R,)``; None for independent terms.
    """
    m = terms.shape[1]
    mean = terms.mean(axis=1)
    deviation = terms - mean[:, None]
    largest = np.abs(deviation).max(axis=1)
    scaled = (deviation / np.where(largest > 0, largest, 1.0)[:, None]) ** 2  # squares that cannot overflow
    total = scaled.sum(axis=1)
    carriers = total**2 / np.maximum((scaled**2).sum(axis=1), 1e-300)
    effective = np.full(len(terms), float(m)) if worth is None else np.minimum(effective_size(terms), worth)
    error = largest * np.sqrt(total / (m - 1) / effective)
    return Average(mean, error, np.maximum(carriers * np.minimum(effective / m, 1.0), 1.0), effective, largest)


def worth_of_chain(points: np.ndarray) -> np.ndarray:
    """The effective size of what mixes slowest, ``(R,)``: no function of the chain is held to be worth more.

    The values alone may look better: a region that the chain has not left, or hardly entered, does not show in them. Of
    each coordinate four series are looked at: its ranks, the ranks of its distance from the median, and whether it is
    among its lowest and its highest twentieth.

    Args:
        points: ``(R, m, d)``.

    References:
        Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization, folding, and localization: an improved
        R-hat", 2021, section 4.3, on the effective sizes of the bulk and of the tails.
    """
    rank = _ranks(points)
    edge = 0.45 * points.shape[1]
    distance = _ranks(np.abs(points - np.median(points, axis=1, keepdims=True)))
    series = (rank, distance, 1.0 * (rank < -edge), 1.0 * (rank > edge))
    return np.min([effective_size(one).min(axis=1) for one in series], axis=0)


def worth_of_copies(points: np.ndarray) -> np.ndarray | None:
    """What resampled points are worth, ``(R,)``: ``m^2 / sum c^2``, where they occur ``c`` times; None without copies.

    References:
        Kish, "Survey Sampling", 1965.
    """
    counts = [np.unique(one, axis=0, return_counts=True)[1] for one in points]
    if all(len(one) == points.shape[1] for one in counts):
        return None
    return np.array([points.shape[1] ** 2 / (one**2).sum() for one in counts], dtype=float)


def on_grid(points: np.ndarray) -> bool:
    """Whether independent points repeat because they are discrete or rounded, rather than copied by a resampling.

    So it is if more than a twentieth of the points repeat others, every coordinate lies on a grid (three values or
    fewer: if they are whole numbers), and points are equal about as often as a grid of so many cells makes them.
    Resampled points of a finer grid are equal more often; those of a grid as coarse as this cannot be told apart.

    Args:
        points: ``(m, d)``.
    """
    m, d = points.shape
    counts = np.unique(points, axis=0, return_counts=True)[1]
    if m - len(counts) <= OFTEN * m:
        return False
    cells = 0.0
    for column in points.T:
        values = np.unique(column)
        if len(values) < 4:
            step = 1.0 if (values == np.rint(values)).all() else np.inf
        else:
            gaps = np.diff(values) / np.diff(values).min()
            whole = [k for k in range(1, 7) if (np.abs(k * gaps - np.rint(k * gaps)) < 1e-3).all()]
            step = np.diff(values).min() / whole[0] if whole else 0.0
        if not 0 < step < np.inf:
            return False
        cells += np.log(np.ptp(np.quantile(column, [0.05, 0.95])) / step + 1)
    equal = (counts * (counts - 1.0)).sum() / (m * (m - 1.0))
    return bool(np.log(equal) + cells < (d + 1) * np.log(2))


def stride(points: np.ndarray, limit: float = 6.0, lags: int = 128) -> int:
    """How many rows apart points depend on each other most: 0 for independent ones, 1 for a chain.

    More where the states of several chains or walkers lie between each other.

    Args:
        points: ``(m, d)``.
        limit: standard deviations of an autocorrelation of independent ranks, ``1 / sqrt(m)``, that are too many.
        lags: at most so many rows apart, and a quarter of the points.
    """
    m = len(points)
    if m < 20:
        return 0
    rank = _ranks(points[None])[0]
    square = np.maximum((rank**2).sum(axis=0), 1e-300)
    seen = [((rank[k:] * rank[:-k]).sum(axis=0) / square).max() for k in range(1, min(lags, m // 4) + 1)]
    return int(np.argmax(seen)) + 1 if max(seen) > limit / np.sqrt(m) else 0


def _ranks(points: np.ndarray) -> np.ndarray:
    """Of each coordinate, centred; copies share theirs."""
    return scipy.stats.rankdata(points, axis=1) - (points.shape[1] + 1) / 2
