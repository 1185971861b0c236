"""Zero-variance control variates: polynomials of points and scores, by least squares."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lowvar.errors import TooFewPoints, UserError, check_known, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, of_last_points
from lowvar.integrals.monte_carlo import TOO_FEW
from lowvar.integrals.regression import regress, regress_long_run

OBJECTIVES = ("least_squares", "mcmc")


def zero_variance(
    order: int = 2, objective: str = "least_squares", lags: int | None = None, diagonal: bool = False
) -> Integrator:
    """``beta_t`` of ``f_t = beta_t + sum_i theta_i (Lap phi_i + grad phi_i . l_t)``, ``phi_i`` monomials; task by task.

    Exact for polynomials of degree ``order`` under a normal target, and more generally for what the features span.
    Standard errors are the jackknife's, with the residuals' effective size along a chain (see ``regress``).

    ``mcmc`` minimises the variance of the average along the chain in place of that of one value. It pays where states
    are negatively correlated, as those of Hamiltonian samplers often are: there least squares may lose against plain
    averages. Along slow chains the gain is a few per cent, and needs hundreds of independent states.

    Args:
        order: of the monomials, 1 or more: ``C(d + order, order) - 1`` coefficients for each task.
        objective: ``least_squares``, or ``mcmc``: Appendix A.1 with autocovariances down-weighted and cut off.
        diagonal: powers of single coordinates alone, ``d order`` coefficients: for many dimensions.
        lags: the last autocovariance of ``mcmc``; ``4 (m / 100)^(2/9)`` if not given, fewer with many coefficients.

    Returns:
        An integrator. It warns of ``few_points`` where there are fewer than two (effective) points for each unknown.

    Raises:
        UserError: an option out of range; when it integrates, too few points for the coefficients.

    References:
        Assaraf and Caffarel, "Zero-variance principle for Monte Carlo algorithms", 1999; Mira, Solgi and Imparato,
        "Zero variance Markov chain Monte Carlo for Bayesian estimators", 2013; Sun, Barp and Briol, Appendices A.1
        and C.2; South, Oates, Mira and Drovandi, "Regularised zero-variance control variates for high-dimensional
        variance reduction", 2023; Newey and West, "Automatic lag selection in covariance matrix estimation", 1994.
    """
    whole("order", order, 1)
    check_known("objective", objective, OBJECTIVES, where="zero_variance")
    if not isinstance(diagonal, bool):
        raise UserError(f"diagonal {diagonal!r} of zero_variance: it must be True or False")
    if lags is not None and (objective != "mcmc" or not isinstance(lags, int) or lags < 1):
        raise UserError(f"lags {lags} of zero_variance: a whole number, 1 or more, for the objective 'mcmc' alone")

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        for t, m in enumerate(samples.sizes):
            _check_size(t, m, samples.dim, order, lags, diagonal)
        exponents = monomials(samples.dim, order, diagonal)
        unknowns = len(exponents) + 1
        shape = samples.repetitions, samples.tasks
        value, error, half, effective = (np.empty(shape) for _ in range(4))
        condition, ill = np.zeros(shape[0]), np.zeros(shape[0], bool)
        fits = {}
        for tasks, points, scores, values in _blocks(samples):
            m = points.shape[1]
            function = PolynomialFeatures.of_units(exponents, points)
            features, remembered = function(points, scores), of_last_points(function)
            centre = values.mean(axis=1, keepdims=True)
            if objective == "mcmc":
                cut = min(math.floor(4 * (m / 100) ** (2 / 9)), m // (4 * unknowns)) if lags is None else lags
                fit = regress_long_run(features, values - centre, cut)
            else:
                fit = regress(features, np.ones_like(values[0, :, :1]), values - centre, samples.chain)

            for i, t in enumerate(tasks):
                rows = slice(None) if samples.shared else slice(i * shape[0], (i + 1) * shape[0])
                pick = rows, 0, i if samples.shared else 0
                pairs = (fit.beta + centre, value), (fit.error, error), (fit.half, half), (fit.effective, effective)
                for found, into in pairs:
                    into[:, t] = found[pick]
                condition = np.maximum(condition, fit.condition[rows])
                ill |= fit.ill[rows]
                own = remembered if samples.shared else PolynomialFeatures.of_units(exponents, samples.points[t])
                fits[t] = own, fit.theta[rows, :, pick[2]]

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            function, theta = fits[task]
            return (function(points, scores) @ theta[:, :, None])[:, :, 0] + value[:, task, None]

        worth = np.minimum(effective, samples.sizes)
        few = worth < max(2 * unknowns, TOO_FEW if samples.chain else 0)
        flags = {"few_points": few.any(axis=1), "ill_conditioned": ill}
        return Integrals(value, error, condition, flags, {"effective": effective}, fitted, half_width=half)

    def features(points: np.ndarray) -> PolynomialFeatures:
        return PolynomialFeatures.of_units(monomials(points.shape[2], order, diagonal), points)

    properties = IntegralProperties(fewest=order + 2)
    return Integrator("zero_variance", properties, integrate, features if objective == "least_squares" else None)


def _blocks(samples: Samples) -> Iterator[tuple[list[int], np.ndarray, np.ndarray, np.ndarray]]:
    """Tasks that are fitted at once: all that share their points, or those with as many points of their own."""
    if samples.shared:
        yield list(range(samples.tasks)), samples.points[0], samples.scores[0], np.stack(samples.values, axis=2)
        return
    for m in sorted(set(samples.sizes)):
        tasks = [t for t, size in enumerate(samples.sizes) if size == m]
        points, scores, values = (
            np.concatenate([of[t] for t in tasks]) for of in (samples.points, samples.scores, samples.values)
        )
        yield tasks, points, scores, values[:, :, None]


def _check_size(t: int, m: int, dim: int, order: int, lags: int | None, diagonal: bool) -> None:
    """Refuses tasks with too few points, and says what would do."""
    unknowns = coefficients(dim, order, diagonal)
    if m <= unknowns:
        fitting = 0
        while m >= 2 * coefficients(dim, fitting + 1, diagonal):  # as many as are not warned of
            fitting += 1
        advice = f"order {fitting} would do" if fitting else f"{unknowns + 1} would do, or another method"
        raise TooFewPoints(
            f"task {t} has {m} points for the {unknowns} unknowns of zero_variance, order {order}: {advice}"
        )
    if lags is not None and lags > m // 2:
        raise UserError(f"lags {lags} of zero_variance: at most {m // 2}, half of the points of task {t}")


def coefficients(dim: int, order: int, diagonal: bool = False) -> int:
    """The number of ``monomials``, and a constant."""
    return 1 + dim * order if diagonal else math.comb(dim + order, dim)


def monomials(dim: int, order: int, diagonal: bool = False) -> np.ndarray:
    """Exponents of all monomials of degree 1 to ``order`` in ``dim`` variables, ``(p, d)``, by degree.

    Args:
        dim: how many variables.
        order: the highest degree.
        diagonal: powers of single variables alone.

    >>> monomials(2, 2).tolist()
    [[1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    if diagonal:
        return np.concatenate([degree * np.eye(dim, dtype=int) for degree in range(1, order + 1)])
    rows = [
        [chosen.count(r) for r in range(dim)]
        for degree in range(1, order + 1)
        for chosen in itertools.combinations_with_replacement(range(dim), degree)
    ]
    return np.array(rows)


@dataclass(frozen=True)
class PolynomialFeatures:
    """``stein_features`` of points less ``shift``, in units of ``scale``.

    The units weigh the coordinates: not ``Lap``, but ``sum_r scale_r^2 d^2 / dx_r^2``, and the scores alike. Unless the
    scores are linear, features of several coordinates therefore span other functions in units of another ratio.

    Attributes:
        exponents: ``(p, d)``.
        shift: ``(R, 1, d)``.
        scale: powers of two near the standard deviations, ``(R, 1, d)``; zero of a coordinate that does not vary.
            Stein's identity needs a density along each coordinate: features of such a one are zero.
    """

    exponents: np.ndarray
    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def of_units(cls, exponents: np.ndarray, points: np.ndarray) -> "PolynomialFeatures":
        """Features in units of the points ``(R, m, d)``."""
        shift, scale = points.mean(axis=1, keepdims=True), points.std(axis=1, ddof=1, keepdims=True)
        varies = scale > 1e-13 * np.abs(shift)
        return cls(exponents, shift, np.where(varies, np.exp2(np.rint(np.log2(np.where(varies, scale, 1.0)))), 0.0))

    @property
    def span(self) -> bytes:
        """Equal for equal units."""
        return self.scale.tobytes()

    def __call__(self, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """``(R, n, p)`` of points and scores ``(R, n, d)``."""
        still = self.scale == 0
        scale = np.where(still, 1.0, self.scale)
        found = stein_features(self.exponents, (points - self.shift) / scale, scores * scale)
        none = still @ (self.exponents > 0).T  # (R, 1, p)
        return np.where(none, 0.0, found) if none.any() else found


def stein_features(exponents: np.ndarray, x: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """``Lap phi + grad phi . l`` for each monomial ``phi``: its mean under the target of ``l`` is zero.

    Args:
        exponents: ``(p, d)``.
        x: points, ``(..., n, d)``.
        scores: ``l``, ``(..., n, d)``.

    Returns:
        ``(..., n, p)``.

    References:
        Assaraf and Caffarel, "Zero-variance principle for Monte Carlo algorithms", 1999; Mira, Solgi and Imparato,
        "Zero variance Markov chain Monte Carlo for Bayesian estimators", 2013; Sun, Barp and Briol, eq. (11).
    """
    x, scores = (np.ascontiguousarray(of.mT) for of in (x, scores))  # a row for each coordinate, and each feature
    powers = [np.ones_like(x)]
    for _ in range(int(exponents.max())):
        powers.append(powers[-1] * x)
    found = np.empty((*x.shape[:-2], len(exponents), x.shape[-1]))
    for place, row in enumerate(exponents.tolist()):
        active = [r for r, power in enumerate(row) if power]
        total: np.ndarray | float = 0.0
        for r in active:
            slope = row[r] * powers[row[r] - 1][..., r, :] * scores[..., r, :]
            if row[r] > 1:
                slope += row[r] * (row[r] - 1) * powers[row[r] - 2][..., r, :]
            for s in active:
                if s != r:
                    slope *= powers[row[s]][..., s, :]
            total = total + slope
        found[..., place, :] = total
    return found.mT
