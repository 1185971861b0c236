"""Averages with their errors: what dependent states are worth, and how far the central limit theorem reaches."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from lowvar.integrals.base import HALF, LEVEL, IntegralProperties, Integrals, Integrator, Samples

TOO_FEW = 10  # effective points, below which autocorrelations cannot be told
SHAPE = 0.6  # of a generalised Pareto tail, at most: beyond 1/2 variances do not exist
HEAVY, MARGIN = 0.25, 1.4  # of a tail's shape: the largest harmless one, and a margin in units of 1 / sqrt(its terms)
GROWTH = 0.18  # of the margin with the logarithm of the number of tails: the quantiles of light tails' shapes grow so
FEWEST = 5  # terms of a tail, to estimate its shape
GAIN = 0.35  # of Monte Carlo's standard error: what is below pays, however few terms carry it
MANY = 50  # carriers of the variance that make its error, about sqrt(2 / carriers), harmless
OFTEN = 0.05  # a larger share of points that repeat others is no chance


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
        scores = ndtri((ranks(values[None])[0] + 0.5 * len(flat) + 0.125) / (len(flat) + 0.25))
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(split_gelman_rubin(scores.reshape(draws.shape)))
    return np.where(np.ptp(flat, axis=0) > 0, np.fmax(*found), np.nan)


def student(freedom: np.ndarray) -> np.ndarray:
    """The quantile of Student's ``t`` over the normal one: by how much an interval is wider than 1.96 standard errors.

    Args:
        freedom: degrees of freedom, taken for 1 where they are fewer.
    """
    return -stdtrit(np.maximum(freedom, 1.0), (1 - LEVEL) / 2) / HALF


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
        beyond: by how much the terms exceed their largest (or smallest) one where they do, ``(R,)``: see ``beyond``.
    """

    mean: np.ndarray
    plain_error: np.ndarray
    carriers: np.ndarray
    effective: np.ndarray
    largest: np.ndarray
    beyond: np.ndarray

    @property
    def half_width(self) -> np.ndarray:
        """Half of the 95 % interval of Student's ``t``.

        The variance is known as well as from ``carriers`` squared normal terms: those are its degrees of freedom.
        """
        return HALF * self.plain_error * student(self.carriers - 1)


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
    relative = deviation / np.where(largest > 0, largest, 1.0)[:, None]
    scaled = relative**2  # squares that cannot overflow
    total = scaled.sum(axis=1)
    carriers = total**2 / np.maximum((scaled**2).sum(axis=1), 1e-300)
    effective = np.full(len(terms), float(m)) if worth is None else np.minimum(effective_size(terms), worth)
    error = largest * np.sqrt(total / (m - 1) / effective)
    carriers = np.maximum(carriers * np.minimum(effective / m, 1.0), 1.0)
    far = largest * np.array([beyond(row, its) for row, its in zip(relative, effective, strict=True)])
    return Average(mean, error, carriers, effective, largest, far)


def beyond(terms: np.ndarray, effective: float) -> float:
    """The mean excess of a variable above its largest value in a sample, or below its smallest: the larger one.

    Both tails are fitted as generalised Pareto, by weighted moments of the ``2 sqrt(m)`` outermost terms. At least the
    standard deviation: where nothing was seen, a function may also jump.

    Args:
        terms: ``(m,)``.
        effective: how many independent terms they are worth.

    References:
        Hosking and Wallis, "Parameter and quantile estimation for the generalized Pareto distribution", 1987.
    """
    m = len(terms)
    effective = min(effective, m)
    k = int(np.clip(2 * m / np.sqrt(effective), 1, m // 2))
    ordered = np.sort(terms)
    upper, lower = ordered[-k:] - ordered[-k - 1], (ordered[k] - ordered[:k])[::-1]
    return max(float(terms.std()), *(_mean_excess(tail, m / (effective * k)) for tail in (upper, lower)))


def _mean_excess(excesses: np.ndarray, share: float) -> float:
    """The mean excess where only a share of the excesses, ascending, over a threshold is left."""
    return float(excesses.mean()) * min(share, 1.0) ** -float(np.clip(_shape(excesses), 0.0, SHAPE))


def _shape(excesses: np.ndarray) -> float:
    """The shape of the generalised Pareto distribution of excesses over a threshold, ascending."""
    mean = float(excesses.mean())
    ranks = (np.arange(1, len(excesses) + 1) - 0.35) / len(excesses)
    return 2 - mean / max(mean - 2 * float((excesses * (1 - ranks)).mean()), 1e-300) if mean > 0 else 0.0


def heavy_tail(terms: np.ndarray, effective: float, integrals: int = 1) -> float:
    """The shape of the tail of terms ``(m,)``, if so heavy that the error of their mean is unreliable; else 0.

    A standard error is the root of a mean of squares, which has an error of its own if the shape is below 1/4. The
    generalised Pareto distribution is fitted to the ``2 sqrt(m)`` terms farthest from the median, of either side. Of
    1500 samples of 100 to 4000 draws of normal, exponential, gamma, t(10) and lognormal(1/2) laws, about 1 % or
    fewer have a tail that seems heavy; of the squares of t(3) draws, whose shape is 2/3, 34 % of those of 100, 60 % of
    400, 80 % of 1000 and 96 % of 4000 draws.

    Args:
        terms: ``(m,)``.
        effective: how many independent terms they are worth.
        integrals: how many series are looked at: the margin allows for the largest shape of so many. Of 100 draws of
            lognormal(1/2), 1 % of calls have a tail that seems heavy for any number of integrals; of the squares of
            t(3) draws 46 and 37 % among 10 and 50 integrals at 400 draws, 65 and 56 % at 1000.
    """
    m = len(terms)
    k = int(np.clip(2 * np.sqrt(m), 1, m // 2))
    farthest = np.sort(np.partition(np.abs(terms - np.median(terms)), -k - 1)[-k - 1 :])
    excesses = (farthest - farthest[0])[farthest > farthest[0]]
    if len(excesses) < FEWEST:
        return 0.0
    shape, share = _shape(excesses), min(effective / m, 1.0)
    error = 1 / np.sqrt(len(excesses) * share)
    if average(terms[None]).carriers[0] * share > MANY:  # such as those of a rare second mode
        return 0.0
    margin = MARGIN + GROWTH * np.log(integrals)
    return shape if shape > HEAVY + margin * error else 0.0


def worth_of_chain(points: np.ndarray) -> np.ndarray:
    """Smallest effective size over all functions tried, ``(R,)``: the size of what mixes slowest.

    The values alone may look better: a region that the chain has not left, or hardly entered, does not show in them. Of
    each coordinate four series are looked at: its ranks, the ranks of its distance from the median, and whether it is
    among its lowest and its highest twentieth.

    Args:
        points: ``(R, m, d)``.

    References:
        Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization, folding, and localization: an improved
        R-hat", 2021, section 4.3, on the effective sizes of the bulk and of the tails.
    """
    rank = ranks(points)
    edge = 0.45 * points.shape[1]
    distance = ranks(np.abs(points - np.median(points, axis=1, keepdims=True)))
    series = (rank, distance, 1.0 * (rank < -edge), 1.0 * (rank > edge))
    return np.min([effective_size(one).min(axis=1) for one in series], axis=0)


def worth_of_copies(points: np.ndarray) -> np.ndarray | None:
    """Effective sizes of resampled points, ``(R,)``: ``m^2 / sum c^2`` for ``c`` copies; None without copies.

    References:
        Kish, "Survey Sampling", 1965.
    """
    counts = [np.unique(first_copies(one), return_counts=True)[1] for one in points]
    if all(len(one) == points.shape[1] for one in counts):
        return None
    return np.array([points.shape[1] ** 2 / (one**2).sum() for one in counts], dtype=float)


def first_copies(points: np.ndarray) -> np.ndarray:
    """For each point ``(m, d)`` the first one that is equal to it, ``(m,)``."""
    if len(np.unique(points[:, 0])) == len(points):  # as of a continuous variable: rows take far longer to sort
        return np.arange(len(points))
    _, index, back = np.unique(points, axis=0, return_index=True, return_inverse=True)
    return index[back.ravel()]


def on_grid(points: np.ndarray) -> bool:
    """Whether independent points repeat because they are discrete or rounded, rather than copied by a resampling.

    So it is if more than a twentieth of the points repeat others, every coordinate lies on a grid (three values or
    fewer: if they are whole numbers), and points are equal about as often as a grid of so many cells makes them.
    Resampled points of a finer grid are equal more often; those of a grid as coarse as this cannot be told apart.

    Args:
        points: ``(m, d)``.
    """
    m, d = points.shape
    counts = np.unique(first_copies(points), return_counts=True)[1]
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

    More where the states of several chains or walkers lie between each other. States of one chain may alternate, as
    those of HMC and NUTS do: neighbours are then on opposite sides, and the next but one depend on each other most.

    Args:
        points: ``(m, d)``.
        limit: standard deviations of an autocorrelation of independent ranks, ``1 / sqrt(m)``, that are too many.
        lags: at most so many rows apart, and a quarter of the points.
    """
    m = len(points)
    if m < 20:
        return 0
    rank = np.ascontiguousarray(ranks(points[None])[0].T)
    square = np.maximum((rank**2).sum(axis=1), 1e-300)
    products = (np.einsum("dm,dm->d", rank[:, k:], rank[:, :-k]) / square for k in range(1, min(lags, m // 4) + 1))
    least, most = zip(*((of.min(), of.max()) for of in products), strict=True)
    if max(most) <= limit / np.sqrt(m):
        return 0
    alternate = least[0] < -limit / np.sqrt(m)
    return 1 if alternate else int(np.argmax(most)) + 1


def one_after_another(m: int, apart: int) -> np.ndarray:
    """The order of ``m`` rows in which chains that lie between each other, see ``stride``, follow each other."""
    return np.argsort(np.arange(m) % max(apart, 1), kind="stable")


def ranks(points: np.ndarray) -> np.ndarray:
    """Centred ranks along the second axis of ``(R, m, d)``; copies share theirs."""
    order, place = np.argsort(points, axis=1), np.arange(points.shape[1])[:, None]
    ordered = np.take_along_axis(points, order, axis=1)
    new = np.pad(ordered[:, 1:] != ordered[:, :-1], ((0, 0), (1, 1), (0, 0)), constant_values=True)
    first = np.maximum.accumulate(np.where(new[:, :-1], place, 0), axis=1)
    last = np.minimum.accumulate(np.where(new[:, 1:], place, points.shape[1])[:, ::-1], axis=1)[:, ::-1]
    found = np.empty(points.shape)
    np.put_along_axis(found, order, (first + last - points.shape[1] + 1) / 2, axis=1)
    return found
