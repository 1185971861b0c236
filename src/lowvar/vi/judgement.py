"""What a fit says of itself: its ELBO, k-hat, its distance from the optimum, another mode, and the notes on them.

All but the gradient's gain use the same draws from the guide: log densities there, and importance weights.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain, combinations, islice
from typing import Any, NamedTuple

import numpy as np

from lowvar.core.keys import named_key, numpy_generator
from lowvar.vi.descent import of_batch
from lowvar.vi.guides.gaussian import GUIDES
from lowvar.vi.run.settings import LBFGS
from lowvar.vi.variational import at_draws, prior_of

LEAST = 200  # minimum number of draws for a sufficient tail


def log_weights(problem, params, eps, together: int | None = None) -> np.ndarray:
    """``log p(x, z_s) - log q(z_s)`` up to a constant, nats, ``(S,)``: a pass over all rows for each draw.

    The log-likelihood of each row is taken relative to that at ``mu``, which keeps the sum accurate in float32.

    Args:
        problem: a variational problem.
        params: the guide's.
        eps: base noise, ``(S, dim)``, NumPy.
        together: draws of a call; as many as for an ELBO before share its program.
    """
    if not problem.in_memory:
        return np.asarray(problem.log_weights(params, problem.backend.asarray(eps)), float)
    joint, guide = log_densities(problem, params, eps, together)
    return joint - guide


def log_densities(problem, params, eps, together: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """``log p(x, z_s) - log p(x, mu)`` and ``log q(z_s)``, nats, ``(S,)`` each; arguments as for ``log_weights``."""
    backend, compiled = problem.backend, problem.compiled(at_draws)
    middle = problem.guide.point(params)["mu"]
    base = problem.log_likelihoods(middle), problem.compiled(prior_of)(middle)
    size, found = together or len(eps), []
    for first in range(0, len(eps), size):
        some = eps[first : first + size]
        padded = np.concatenate([some, np.broadcast_to(some[:1], (size - len(some), eps.shape[1]))])
        joint, guide, _ = backend.to_numpy(compiled(params, backend.asarray(padded), *base))
        found.append(np.stack([joint, guide])[:, : len(some)].astype(float))
    joint, guide = np.concatenate(found, axis=1)
    return joint, guide


_KHAT = 0.7


def khat_limit(draws: int) -> float:
    """The largest k-hat at which importance weights are reliable: 0.7, lower for fewer than 2200 draws.

    References:
        Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024, section 3.2.4.
    """
    return min(_KHAT, 1 - 1 / math.log10(max(draws, 11)))


def khat(weights) -> float:
    """The shape of the generalised Pareto distribution of the largest importance weights.

    Args:
        weights: their logarithms, ``(S,)``; minus infinity where the model's density is zero.

    Returns:
        The shape k-hat. Below 0.5 the weights have finite variance. Above 0.7 they are unreliable, and so is the guide
        where its tails matter; unless they are nearly equal, see ``reliable``: a shape has no scale, and that of a tail
        of weights which vary by 3 % may be 6. Infinite if the tail has too few weights.

    References:
        Yao, Vehtari, Simpson and Gelman, "Yes, but did it work? Evaluating variational inference", 2018;
        Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024.
    """
    import warnings

    from numpyro.infer.importance import _psis_khat

    weights = np.asarray(weights, float)
    if len(weights) < 2 or np.isnan(weights).any() or not np.isfinite(weights.max()):
        return math.inf
    if np.ptp(weights) < 1e-6:  # the guide equals the posterior: equal weights have no tail
        return -math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(_psis_khat(weights))


def smoothed_weights(weights) -> np.ndarray:
    """Pareto-smoothed importance weights ``(S,)`` that sum to 1, from their logarithms.

    The largest are replaced by the expected order statistics of the generalised Pareto distribution that is fitted to
    them, and are at most the largest weight.

    References:
        Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024, algorithm 1.
    """
    from numpyro.infer.importance import _fit_generalized_pareto

    raw = np.exp(np.asarray(weights, float) - np.max(weights))
    order, tail = np.argsort(raw), math.ceil(min(0.2 * len(raw), 3 * math.sqrt(len(raw))))
    cut, largest = raw[order[-tail - 1]], order[-tail:]
    if np.ptp(raw[largest]) > 1e-9 * raw[largest].max():
        k, sigma = _fit_generalized_pareto(np.maximum(raw[largest] - cut, np.finfo(float).tiny))
        p = (np.arange(tail) + 0.5) / tail
        excess = -sigma * np.log1p(-p) if abs(k) < 1e-12 else sigma * np.expm1(-k * np.log1p(-p)) / k
        if np.isfinite(excess).all():
            raw[largest] = np.minimum(cut + excess, raw.max())
    return raw / raw.sum()


def effective_share(weights) -> float:
    """The effective share of draws with importance weights, given by their logarithms ``(S,)``: 1 if all are equal."""
    shares = np.exp(np.asarray(weights, float) - np.max(weights))
    share = shares.sum() ** 2 / (len(shares) * np.square(shares).sum())
    return float(share) if np.isfinite(share) else 0.0


# k-hat is the shape of a tail, also of weights that hardly vary: it is 0.3 to 0.9 at the best mean-field guide of the
# mean and scale of 60 normal numbers, and above 1 if that is 2 % wider. With so large a share of effective draws,
# standard deviations are within some percent of the posterior's.
_ALIKE = 0.9


def reliable(k: float, weights) -> bool:
    """Whether importance weights with this k-hat are reliable: it is below its limit, or they are nearly equal."""
    return k <= khat_limit(len(weights)) or effective_share(weights) > _ALIKE


def spread(weights, z) -> np.ndarray:
    """The posterior's standard deviations, ``(dim,)``, by importance weighting.

    Args:
        weights: their logarithms, ``(S,)``.
        z: the draws, ``(S, dim)``.
    """
    z, mean = np.asarray(z, float), center(weights, z)
    return np.sqrt(_shares(weights) @ (z - mean) ** 2)


def center(weights, z) -> np.ndarray:
    """The posterior's means; arguments as for ``spread``."""
    return _shares(weights) @ np.asarray(z, float)


def _shares(weights) -> np.ndarray:
    shares = np.exp(np.asarray(weights, float) - np.max(weights))
    return shares / shares.sum()


# particles of each of two gradients, 2 to 16: as many as keep particles x data rows of both below the budget
_MOST, _BUDGET = 16, 2**22
_STEEPEST = 0.99  # where the guide has less than a tenth of the best one's standard deviation, a step is bounded
_SINGULAR = 1e-6  # smallest eigenvalue of correlations of draws that rounding leaves


def gain(problem, params, key) -> tuple[np.ndarray, np.ndarray]:
    """What a Newton step would add to the ELBO by the mean and the scale of each coordinate.

    With the Hessian that a Gaussian posterior has at the optimum of a mean-field guide, ``1 / sigma^2`` for ``mu`` and
    2 for ``log_sigma``, it adds ``sigma^2 g_mu^2 / 2 + g_log_sigma^2 / 4``. Two independent estimates of the gradient
    ``g`` by its path derivative make the products unbiased. It is exact for coordinates that are independent in the
    posterior, as the rows' own variables given the shared ones; along correlated ones a step may add far more, or less.

    Args:
        problem: a variational problem, with parameters for each coordinate.
        params: the guide's.
        key: a JAX key.

    Returns:
        Gains, and the standard deviations of their noise or more (where there is gain), nats, each ``(dim,)``.

    References:
        Boyd and Vandenberghe, "Convex optimization", 2004, section 9.5.1; Roeder, Wu and Duvenaud, "Sticking the
        landing", 2017, eq. 7.
    """
    backend, guide, particles = problem.backend, problem.guide, int(np.clip(_BUDGET // (2 * problem.N), 2, _MOST))
    passes = of_batch(problem, 1)  # whose pass over all rows computes with each row's own variables

    def of_point(params, eps):
        z = guide.transform(params, eps)
        return guide.pull_back(params, eps, passes.full_gradient(z) + guide.path_score(params, eps))

    @backend.jit
    def gradient(params, eps):
        return problem.mean_over_points(lambda eps: of_point(params, eps), eps)

    eps = numpy_generator(key).standard_normal((2, particles, problem.noise_dim), np.float32).astype(problem.dtype)
    one, other = (backend.to_numpy(gradient(params, backend.asarray(half))) for half in eps)
    units = {"mu": backend.to_numpy(guide.scale(params)) ** 2 / 2, "log_sigma": 0.25}
    parts = np.array([units[block] * one[block].astype(float) * other[block] for block in units])
    return parts.sum(0), np.sqrt((parts**2).sum(0))


class Optimum(NamedTuple):
    """The estimated distance of a Gaussian guide from the best one of its family, ``(dim,)`` each.

    Attributes:
        mean: mean minus the best one's, in the best one's standard deviations.
        sd: relative error of the standard deviation.
        mean_se: standard error of ``mean``.
        sd_se: standard error of ``sd``.
    """

    mean: np.ndarray
    sd: np.ndarray
    mean_se: np.ndarray
    sd_se: np.ndarray


def to_optimum(weights, z, mean, scale) -> Optimum:
    """The distance of a guide from the best one of its family, by a Newton step from draws of the guide.

    With ``u = (z - mean) / scale`` and ``w = log p - log q``, the gradient of the ELBO in a coordinate's mean is
    ``E[w u] / scale``, and its curvature there is ``(1 - E[w (u^2 - 1)]) / scale^2`` (Stein's identity, twice). Both
    expectations are 0 at the optimum, of guides with correlations as well. For a mean-field guide of a normal
    posterior, the step is exact in the standard deviations; for guides with correlations it is of first order. The
    means' step takes the curvature between coordinates from ``response`` where that is known; without it, means along
    strongly correlated coordinates may be farther from the optimum.

    Args:
        weights: log importance weights up to a constant, ``(S,)``.
        z: the draws, ``(S, dim)``.
        mean: the guide's means, ``(dim,)``.
        scale: its standard deviations, ``(dim,)``.

    References:
        Opper and Archambeau, "The variational Gaussian approximation revisited", 2009, eqs. 3 and 4.
    """
    w, S = (np.asarray(weights, float) - np.mean(weights))[:, None], len(z)
    u = (np.asarray(z, float) - mean) / scale
    parts = np.stack([w * u, w * (u * u - 1)])
    (first, second), (first_se, second_se) = parts.mean(1), parts.std(1) / np.sqrt(S)
    root = np.sqrt(1 - np.minimum(second, _STEEPEST))  # the guide's standard deviation over the best one's
    off, off_se = -first / root, first_se / root
    if (found := response(weights, z)) is not None:
        off, off_se = -found.step * root / scale, found.step_se * root / scale
    return Optimum(off, root - 1, off_se, second_se / (2 * root))


def _by_gradient(problem, slopes, other: Optimum | None) -> Optimum:
    """The distance of a fit at fixed draws from the optimum, by Newton steps from its gradient at fresh draws.

    The curvature of the ELBO in ``log sigma`` is 2 at the optimum, so the error of a standard deviation is half of the
    gradient there. The gradient at fresh draws has the error of the draws that were fixed and that of the fresh ones,
    so its root mean square is a standard error: at most the root of 2 times either's. It is taken over all coordinates,
    or over those of the site if it is larger there: among many coordinates that a normal describes, whose gradients
    hardly vary, one of a skewed posterior would else have the small error of the others.

    Args:
        problem: the problem.
        slopes: see ``fixed_draws.maximise``.
        other: an estimate from importance weights, whose means' step takes the curvature between coordinates.
    """
    free = noisy_of(problem)
    mean, sd = (np.full(problem.dim, np.nan) for _ in range(2))
    mean[free], sd[free] = slopes[0][free], slopes[1][free] / 2
    errors = [_pooled(one, problem.sites) if len(free) else one for one in (mean, sd)]
    if other is not None:
        mean, errors[0] = other.mean, other.mean_se
    return Optimum(mean, sd, errors[0], errors[1])


def _pooled(off: np.ndarray, sites: Mapping[str, slice]) -> np.ndarray:
    """The root mean square of ``off (dim,)`` over all coordinates, or over those of a site if it is larger there."""
    pooled = np.where(np.isnan(off), np.nan, np.sqrt(np.nanmean(off**2)))
    for where in sites.values():
        if not np.isnan(off[where]).all():
            pooled[where] = np.maximum(pooled[where], np.sqrt(np.nanmean(off[where] ** 2)))
    return pooled


class Response(NamedTuple):
    """The posterior near a Gaussian guide, by the mean curvature of its log density there, ``(dim,)`` each.

    Attributes:
        ratio: the posterior's standard deviation over the guide's.
        ratio_se: its standard error.
        step: a Newton step of the means.
        step_se: its standard error.
    """

    ratio: np.ndarray
    ratio_se: np.ndarray
    step: np.ndarray
    step_se: np.ndarray


def response(weights, z) -> Response | None:
    """The posterior's standard deviations by linear response, from draws of any Gaussian guide.

    With ``y`` the whitened draws, the mean curvature is ``A = I - E[w (y y^T - I)]`` (Stein's identity, twice), and the
    covariance is ``A^-1``: exact for normal posteriors, whose correlations a mean-field guide leaves out. Importance
    weighting would need several times as many draws. None if the draws are too few for the dimension or nearly lie in
    a plane, or the log density is not concave on average.

    Args:
        weights: log importance weights up to a constant, finite, ``(S,)``.
        z: the draws, ``(S, dim)``.

    References:
        Giordano, Broderick and Jordan, "Covariances, robustness, and variational Bayes", 2018, section 3;
        Opper and Archambeau, 2009, eqs. 3 and 4.
    """
    w, z = np.asarray(weights, float) - np.mean(weights), np.asarray(z, float)
    (S, dim), y, deviation = z.shape, z - z.mean(0), z.std(0)
    if dim**2 > S or not deviation.all():
        return None
    y /= deviation
    correlation = y.T @ y / S
    if np.linalg.eigvalsh(correlation)[0] < _SINGULAR:
        return None
    scale = np.linalg.cholesky(correlation)
    y, scale = np.linalg.solve(scale, y.T).T, scale * deviation[:, None]
    curvature = np.eye(dim) - (y * w[:, None]).T @ y / S
    if not np.linalg.eigvalsh(curvature)[0] > 1 - _STEEPEST:
        return None
    solved = scale @ np.linalg.inv(curvature)
    variance, guide = (np.einsum("ij,ij->i", one, scale) for one in (solved, scale))
    steps = w[:, None] * (y @ solved.T)
    squares = w[:, None] * ((y @ solved.T) ** 2 - (solved**2).sum(1))
    ratio = np.sqrt(variance / guide)
    ratio_se, step_se = ratio / (2 * variance) * squares.std(0) / np.sqrt(S), steps.std(0) / np.sqrt(S)
    return Response(ratio, ratio_se, steps.mean(0), step_se)


_APART = 4.0  # the guide's standard deviations between two modes, at least
_LOWER = 3.0  # nats by which the density at another mode may be lower than at the mean
_BARRIER = 2.0  # nats by which it is lower in between
_SITES, _ENTRIES, _LINES = 5, 20, 12  # most sites whose signs change in all ways, most components, most lines
_ULPS = 3e-6  # relative change of a point by which its height may change by less than a nat
_REACH = 7.0  # least half length of the dense part of a line in R^d, more than a period
_OFFSETS = np.linspace(-1, 1, 41)  # with the mean itself; and a few points far away
_OFFSETS = np.concatenate([[-12.0, -7, -4, -2.5, -1.6], _OFFSETS, [1.6, 2.5, 4, 7, 12]])
_SHARE = 10  # the look costs at most one part in so many of k-hat's draws, or one call


def other_mode(problem: Any, params: Any, draws: int, together: int | None) -> str:
    """A sentence on another mode of the posterior; empty if none was seen.

    Args:
        problem: of a fit.
        params: its guide's, of the backend.
        draws: of k-hat, which limit the number of points.
        together: points of a call.
    """
    if not problem.in_memory or together is None:
        return ""
    look = _Look(problem, params, together, max(1, draws // (_SHARE * together)))
    found = look.best(list(islice(look.images(), together)))
    if not found and look.calls > 1:
        found = look.best(look.along_lines())
    if not found:
        return ""
    what, gap = found
    level = "as high" if abs(gap) < 0.1 else f"{abs(gap):.2g} nats {'higher' if gap > 0 else 'lower'}"
    return (
        f"{problem.name}: the posterior has another mode, which the fit leaves out: {what}, the log density is "
        f"{level}, and it is lower in between. The standard deviations are those of one mode. If the modes mean the "
        "same, constrain the sign or the order of these sites; else compare fits from several starts (seed, init), or "
        "use NUTS"
    )


class _Look:
    """Points beside a guide, and the log density at them relative to that at its mean."""

    def __init__(self, problem, params, together, calls):
        numpy = problem.backend.to_numpy
        self.problem, self.params, self.together, self.calls = problem, params, together, calls
        self.mu = np.asarray(numpy(problem.guide.point(params)["mu"]), float)
        self.sigma = np.asarray(numpy(problem.guide.scale(params)), float)
        self.free = np.isin(np.arange(problem.dim), noisy_of(problem))
        self.matrix = None if problem.guide.factorised or problem.guide.amortised else problem.guide.matrix(params)
        self.sites = [site for site, where in problem.sites.items() if self.free[where].all()]

    def heights(self, points: np.ndarray) -> np.ndarray:
        """Log densities at ``points (S, dim)`` relative to the mean's, nats; minus infinity where not known."""
        step = np.where(self.free, points - self.mu, 0.0)
        if self.matrix is None:
            eps = step / np.where(self.free, self.sigma, 1.0)
        else:
            eps = np.linalg.lstsq(self.matrix[self.free], step[:, self.free].T, rcond=1e-10)[0].T
        known = np.asarray(np.isfinite(eps).all(axis=1))
        eps = np.where(known[:, None], eps, 0.0).astype(self.problem.dtype)
        found = log_densities(self.problem, self.params, eps, self.together)[0]
        return np.where(known & np.isfinite(found), found, -np.inf)

    def best(self, moves: list[tuple[str, np.ndarray]]) -> tuple[str, float] | None:
        """The highest of some points that are another mode: its description, and its height."""
        apart = [(what, z) for what, z in moves if self._distance(z) > _APART]
        if not apart:
            return None
        heights = self.heights(np.array([z for _, z in apart]))
        order = [k for k in np.argsort(-heights.round(2), kind="stable")[:8] if heights[k] > -_LOWER]
        order = self._known(order, heights, apart)
        if not order:
            return None
        shares = np.linspace(0, 1, self.together // len(order) + 2)[1:-1, None]
        paths = [self.mu + shares * (apart[k][1] - self.mu) for k in order]
        between = self.heights(np.concatenate(paths)).reshape(len(order), -1)
        for k, path in zip(order, between, strict=True):
            if path.min() < min(0.0, heights[k]) - _BARRIER:
                return apart[k][0], float(heights[k])
        return None

    def _known(self, order: list, heights: np.ndarray, apart: list) -> list:
        """Those at which the density is no rounding error, as of ``gammaln`` of huge numbers in single precision."""
        if not order:
            return []
        beside = np.array([apart[k][1] * (1 + shift) for shift in (-_ULPS, _ULPS) for k in order])
        moved = np.abs(self.heights(beside).reshape(2, -1) - heights[order]).max(axis=0)
        return [k for k, change in zip(order, moved, strict=True) if change < 1]

    def _distance(self, z: np.ndarray) -> float:
        """The largest distance of a point from the mean in a coordinate, in the guide's standard deviations."""
        return float(np.max(np.abs(z - self.mu)[self.free] / self.sigma[self.free], initial=0.0))

    def images(self) -> Iterator[tuple[str, np.ndarray]]:
        """Images of the mean under changes of sign and exchanges of components, with their descriptions."""
        free = self.problem.unravel(self.mu.astype(self.problem.dtype))
        values = {site: np.asarray(free[site], float) for site in self.sites}
        transforms = getattr(self.problem, "transforms", {})
        onto = {site: np.asarray(transforms[site](free[site])) for site in self.sites if site in transforms}
        real = [site for site in self.sites if site not in onto or np.array_equal(onto[site], free[site])]
        simplex = {site: value for site, value in onto.items() if value.shape != values[site].shape}
        for chosen in _subsets(real):
            signs = {site: -values[site] for site in chosen}
            yield f"with the sign of {_names(chosen)} changed", self._moved(signs)
        shapes = {site: simplex.get(site, value).shape for site, value in values.items()}
        lengths = sorted({length for shape in shapes.values() for length in shape if 1 < length <= _ENTRIES})
        for length, last in ((length, last) for length in lengths for last in (True, False)):
            axes = {
                site: max(at) if last else min(at)
                for site, shape in shapes.items()
                if (at := [axis for axis, size in enumerate(shape) if size == length])
            }
            for chosen in _subsets([site for site in real if site in axes]):
                for k in range(length):
                    one = np.where(np.arange(length) == k, -1.0, 1.0)
                    signs = {
                        site: values[site]
                        * one.reshape([-1 if a == axes[site] else 1 for a in range(len(shapes[site]))])
                        for site in chosen
                    }
                    yield f"with the sign of entry {k} of {_names(chosen)} changed", self._moved(signs)
            for j, k in islice(combinations(range(length), 2), _ENTRIES):
                order = np.arange(length)
                order[[j, k]] = k, j
                for chosen in _subsets(list(axes)):
                    put = {}
                    for site in chosen:
                        given = simplex.get(site, values[site])
                        put[site] = np.take(given, order, axis=axes[site])
                        if site in simplex:
                            put[site] = np.asarray(transforms[site].inv(put[site]), float)
                    yield f"with entries {j} and {k} of {_names(chosen)} exchanged", self._moved(put)

    def _moved(self, put: dict[str, np.ndarray]) -> np.ndarray:
        z = self.mu.copy()
        for site, value in put.items():
            z[self.problem.sites[site]] = value.ravel()
        return z

    def along_lines(self) -> list[tuple[str, np.ndarray]]:
        """The highest points of other humps of the density along single coordinates."""
        named = [(site, at) for site in self.sites for at in range(*self.problem.sites[site].indices(self.problem.dim))]
        named.sort(key=lambda pair: pair[1] - self.problem.sites[pair[0]].start)  # the first entries of all sites
        lines = named[: min(_LINES, (self.calls - 1) * self.together // len(_OFFSETS) or 1)]
        reach = [max(_REACH, 2 * abs(self.mu[at]), 3 * _APART * self.sigma[at]) for _, at in lines]
        brackets = []
        rows = [self.mu[at] + size * _OFFSETS for (_, at), size in zip(lines, reach, strict=True)]
        for (site, at), x, height in zip(lines, rows, self._heights_of(lines, rows), strict=True):
            for k in range(1, len(x) - 1):
                if height[k] > max(height[k - 1], height[k + 1]) and abs(k - len(x) // 2) > 1:
                    brackets.append((height[k], site, at, x[k - 1], x[k + 1]))
        brackets = sorted(brackets, reverse=True)[:8]
        for _ in range(2):  # each narrows them to a share 2 / (points of a line + 1)
            if not brackets:
                return []
            rows = [np.linspace(low, high, self.together // len(brackets) + 2)[1:-1] for *_, low, high in brackets]
            found = self._heights_of([(site, at) for _, site, at, *_ in brackets], rows)
            brackets = [
                (height.max(), site, at, x[max(0, np.argmax(height) - 1)], x[min(len(x) - 1, np.argmax(height) + 1)])
                for (_, site, at, *_), x, height in zip(brackets, rows, found, strict=True)
            ]
        moves = []
        for _, site, at, low, high in brackets:
            z = self.mu.copy()
            z[at] = (low + high) / 2
            moves.append((_moved(site, self._value(site, z), self._value(site, self.mu)), z))
        return moves

    def _value(self, site: str, z: np.ndarray) -> np.ndarray:
        """The value of a site at a point, as ``init`` takes it."""
        return np.asarray(self.problem.constrain(self.problem.backend.asarray(z.astype(self.problem.dtype)))[site])

    def _heights_of(self, lines, rows) -> list[np.ndarray]:
        points = []
        for (_, at), row in zip(lines, rows, strict=True):
            z = np.tile(self.mu, (len(row), 1))
            z[:, at] = row
            points.append(z)
        return np.split(self.heights(np.concatenate(points)), np.cumsum([len(row) for row in rows])[:-1])


def _moved(site: str, there: np.ndarray, here: np.ndarray) -> str:
    """The entries of a site that differ at another mode, at most three, in words.

    >>> _moved("w", np.array(3.0), np.array(0.1))
    "at 'w' = 3 in place of 0.1"
    >>> _moved("w", np.array([[0.0, 2.0]]), np.array([[0.0, -2.0]]))
    "at 'w[0, 1]' = 2 in place of -2"
    >>> _moved("p", np.array(1.0), np.array(1.0))  # at a bound, where unconstrained values are lost to rounding
    "at another unconstrained value of 'p', which rounds to the same one"
    """
    places = np.argwhere(~np.isclose(there, here, rtol=1e-5, atol=0))
    if not len(places):
        return f"at another unconstrained value of {site!r}, which rounds to the same one"
    names = [f"{site}[{', '.join(map(str, at))}]" if there.ndim else site for at in places[:3]]
    new, old = (", ".join(f"{of[tuple(at)]:.3g}" for at in places[:3]) for of in (there, here))
    more = f" (and {len(places) - 3} more entries)" if len(places) > 3 else ""
    return f"at {', '.join(map(repr, names))} = {new} in place of {old}{more}"


def _subsets(sites: list[str]) -> Iterator[tuple[str, ...]]:
    """The sites jointly, single ones, and others subsets, all of them if there are few."""
    if not sites:
        return iter(())
    sizes = range(1, len(sites)) if len(sites) <= _SITES else (1, 2)
    return chain([tuple(sites)], *(combinations(sites, size) for size in sizes))


def _names(sites) -> str:
    return " and ".join(map(repr, sites)) if len(sites) < 4 else f"{len(sites)} sites"


# draws for k-hat (1000 would miss a correlation of 0.98 one time in four); maximum of draws x data rows
_KHAT_SAMPLES, _KHAT_BUDGET = 10_000, 2**25
_TOGETHER = 50  # from this ELBO size on, k-hat reuses its program
_MANY = 20  # from this dimension on, small misfits accumulate
# A note reports a larger ratio of the posterior's to the guide's standard deviation by importance weights, and a
# smaller one by linear response, where the ratio of precisions is below its bound by two standard errors; the error of
# the ratio of standard deviations is larger than the ratio, where that is large: see test_fit_optimum.py.
_WIDER, _NARROW, _SURE = 1.5, 1.15, 2
# a note reports larger relative errors of standard deviations that the optimisation left, and of means, in standard
# deviations; each by more than so many standard errors
_SD_OFF, _MEAN_OFF, _ERRORS = 0.1, 0.25, 3
_LOCAL = 1.0  # standard deviations from the optimum, above which its distance is unknown
_REPARAMETERISE = "reparameterise the model (whitened features, non-centred hierarchies)"
_RISE = 1.0  # not converged: late in the run, the ELBO rises by more nats


def khat_draws(problem, draws: int | None) -> int:
    """The number of draws for k-hat: as given, or as many as the rows allow; 0 for none."""
    most = min(_KHAT_SAMPLES, _KHAT_BUDGET // problem.rows_of_pass)
    return draws if draws is not None else most if most >= LEAST else 0


def khat_noise(problem, seed: int, draws: int) -> np.ndarray:
    """Base noise for k-hat, ``(draws, noise_dim)``."""
    eps = numpy_generator(named_key(seed, "khat")).standard_normal((draws, problem.noise_dim), np.float32)
    return eps.astype(problem.dtype)


def judge_fit(
    fit: Any,
    settings: Any,
    seed: int,
    trace: Any,
    draws: int | None = None,
    stated: tuple[str, np.ndarray | None] | None = None,
) -> tuple[float | None, Optimum | None, tuple[str, ...]]:
    """``(k-hat, distance from the optimum, notes)`` of a ``Fit``.

    Args:
        fit: the fit.
        settings: its ``Settings``.
        seed: its seed.
        trace: the ELBOs of its iterates.
        draws: for k-hat; 0 for none, and None for as many as the number of rows allows.
        stated: of a fit at fixed draws, what it lacks to its optimum, in words, or nothing, and its gradient at fresh
            draws, see ``fixed_draws.maximise``.
    """
    problem, k, narrow, optimum, mode, good = fit.problem, None, None, None, "", False
    params = {block: problem.backend.asarray(value) for block, value in fit.guide_params.items()}
    draws = khat_draws(problem, draws)
    if draws:
        eps = khat_noise(problem, seed, draws)
        together = settings.elbo_samples if _TOGETHER <= settings.elbo_samples <= draws else None
        weights = log_weights(problem, params, eps, together)
        k = khat(weights)
        narrow, optimum = _compared(problem, params, weights, eps)
        mode = other_mode(problem, params, draws, together)
        good = reliable(k, weights)
    if stated is None:
        unfinished, late = _unfinished(fit.problem, params, settings, seed, trace, good)
    else:
        (unfinished, slopes), late = stated, bool(stated[0])
        optimum = optimum if slopes is None else _by_gradient(problem, slopes, optimum)
    unfinished = unfinished or _left(problem, optimum, settings)
    if optimum is not None and (late or np.nanmax(np.abs(optimum.mean), initial=0.0) > _LOCAL):
        optimum = None  # there the curvature, from which it is computed, may be another: coupled scales, as of groups
    notes = [f"{problem.name}: {unfinished}"] if unfinished else []
    if k is not None and not good:
        limit = khat_limit(draws)
        few = f", the limit for {draws} draws" if limit < _KHAT else ""
        remedy = _remedy(fit, params, settings, late)
        notes.append(f"{problem.name}: k-hat {k:.2f} is above {limit:.2g}{few}: {remedy}")
    elif narrow and not late:
        guide = problem.guide
        early = "" if guide.factorised else ", or its correlations are not fitted yet: increase num_steps first"
        notes.append(
            f"{problem.name}: by importance weights, the standard deviation of "
            f"{_coordinate(problem, narrow[0], params)} is {narrow[1]:.2g} times the guide's: {guide.about} guide is "
            f"too narrow where latent variables are {guide.misses[0]}{early}. "
            f"Check the intervals against NUTS, {_wider(problem)}or {_REPARAMETERISE}"
        )
    return k, optimum, (*notes, mode) if mode else tuple(notes)


def _unfinished(problem, params, settings, seed, trace, good: bool) -> tuple[str, bool]:
    """What the fit lacks to its optimum, in words, and whether its ELBO still rises; nothing if it has arrived."""
    fall, limit = fall_of(settings.schedule, trace), max(_RISE, 2 * float(trace["elbo_se"].iloc[-1]))
    rise, share = late_rise(trace[trace["iteration"] <= fall])
    fell, rows = fall < np.inf, problem.local if settings.batch_size < problem.N else None
    late = rise > limit and not (fell and good)  # otherwise it converged during the fall
    if rows is not None and not late:
        left, error = gain(problem, params, named_key(seed, "gain"))
        own = rows.own
        if left[own].sum() - 2 * np.linalg.norm(error[own]) > limit:
            visits = trace["iteration"].iloc[-1] * settings.batch_size / problem.N
            return (
                f"by its gradient, the ELBO would rise by {left[own].sum():.3g} nats in the latent variables of the "
                f"rows alone, each of which was visited {visits:.3g} times: increase num_steps, decay the step size "
                "(schedule), or give a larger batch_size"
            ), False
    if late and share == 1 and not fell:
        return (
            f"whether the fit has converged cannot be told from so few steps ({trace['iteration'].iloc[-1]}), in which "
            f"the ELBO rose by {rise:.3g} nats: increase num_steps"
        ), True
    steps = f"the {fall:.0f} steps before the step size fell" if fell else "the steps"
    visited = trace["iteration"].iloc[-1] * settings.batch_size / problem.N
    only = f", which visited {100 * visited:.2g} % of the rows" if visited < 1 else ""
    risen = f"the ELBO still rose by {rise:.3g} nats in the last {100 * share:.0f} % of {steps}{only}"
    if late:
        return f"the fit has not converged: {risen}; increase num_steps, or change step_size", True
    if visited < 1 and not good and not fell:  # no other check sees it
        return (
            f"whether the fit has converged cannot be told: it visited {100 * visited:.2g} % of the rows; in the last "
            f"{100 * share:.0f} % of the steps the ELBO changed by {rise:+.3g} nats, and only a rise above {limit:.3g} "
            "would be seen; increase num_steps or batch_size, or decay the step size (schedule)"
        ), False
    return "", False


def _compared(problem, params, weights, eps) -> tuple[tuple[str, float] | None, Optimum | None]:
    """The guide beside the posterior, and beside the best guide of its family.

    Returns:
        The latent site whose posterior is widest relative to the guide, with the ratio of standard deviations, None
        where it is small; and the distance from the best guide, None for families in which coordinates are tied.
    """
    if np.isnan(weights).any() or not np.isfinite(weights.max()):
        return None, None
    backend, guide = problem.backend, problem.guide
    drawn = backend.jit(lambda p, eps: (backend.vmap(lambda one: guide.transform(p, one))(eps),
                                        guide.point(p)["mu"], guide.scale(p)))  # fmt: skip
    z, mean, scale = backend.to_numpy(drawn(params, backend.asarray(eps)))
    free = np.isin(np.arange(problem.dim), noisy_of(problem))
    scale = np.where(free, scale, 1.0)
    ratio = np.where(free, spread(weights, z) / scale, 1.0)
    ratio, optimum = np.where(ratio > _WIDER, ratio, 1.0), None
    if np.isfinite(weights).all():
        if (linear := response(weights, z[:, free])) is not None:
            # of the precisions' ratio, which is linear in the draws: the error of a large ratio is larger than it
            precision, precision_se = linear.ratio**-2, 2 * linear.ratio_se / linear.ratio**3
            sure = precision + _SURE * precision_se < _NARROW**-2
            ratio[free] = np.maximum(ratio[free], np.where(sure, linear.ratio, 1.0))
        if guide.name in GUIDES.own:
            found = to_optimum(weights, z[:, free], mean[free], scale[free])
            optimum = Optimum(*np.full((len(found), len(free)), np.nan))
            for whole, part in zip(optimum, found, strict=True):
                whole[free] = part
    site, value = max(((name, float(ratio[where].max())) for name, where in problem.sites.items()), key=lambda p: p[1])
    return (site, value) if value > 1 else None, optimum


def _left(problem, optimum: Optimum | None, settings) -> str:
    """The largest error that the optimisation left, if it is large, in words."""
    if optimum is None:
        return ""
    for off, error, limit, words in (
        (optimum.sd, optimum.sd_se, _SD_OFF, "standard deviation of {} is {:.0%} {} that"),
        (optimum.mean, optimum.mean_se, _MEAN_OFF, "mean of {} is {:.2f} standard deviations {} that"),
    ):
        errors = 0 if settings.optimizer == LBFGS and off is optimum.sd else _ERRORS  # the gradient is no mere estimate
        if not (sure := np.nan_to_num(np.abs(off) - errors * error, nan=-np.inf)).max() > limit:
            continue
        worst = int(sure.argmax())
        site = next(name for name, where in problem.sites.items() if where.start <= worst < where.stop)
        excess = words.format(site, abs(off[worst]), "above" if off[worst] > 0 else "below")
        falls = settings.average or settings.schedule is not None or settings.own
        mended = ", or change step_size" if falls else ", leave average out, or let the step size fall"
        beyond = f"increase num_steps{mended}"
        if settings.optimizer == LBFGS:
            beyond = "the fixed draws were too few: make stochastic steps from it, init=fit with num_steps="
        return (
            f"the fit has not converged: the {excess} of {problem.guide.about.replace('a ', 'the best ', 1)} guide; "
            f"{beyond}"
        )
    return ""


def _remedy(fit, params, settings, late: bool) -> str:
    """Possible causes of a large k-hat, and remedies."""
    problem, first, noisy = fit.problem, "", noisy_of(fit.problem)
    least = float(problem.backend.to_numpy(problem.guide.scale(params))[noisy].min())
    step = settings.step_sizes[0]
    if late:
        more = "let it converge first" if settings.optimizer == LBFGS else "increase num_steps first"
        first = f"k-hat says little before convergence: {more}; if it stays high, "
    elif settings.optimizer == "adam" and not settings.own and settings.schedule is None and step > least / 2:
        first = (
            f"the step size {step:g} is not small relative to the smallest standard deviation, {least:.2g}, so the "
            "iterates fluctuate widely: first decay it (schedule) or reduce it; if k-hat stays high, "
        )
    many = (
        f"; in {len(noisy)} dimensions small misfits add up to such a k-hat, and means may still be right"
        if len(noisy) >= _MANY
        else ""
    )
    wider = _wider(problem)
    return (
        f"{first}take means and standard deviations from NUTS. {problem.guide.about.capitalize()} normal approximates "
        "this posterior badly, and its standard deviations may be far too small or too large, as where latent "
        f"variables are {problem.guide.misses[1]}{many}. Or {wider and wider + 'or '}{_REPARAMETERISE}, and see "
        "whether k-hat falls"
    )


def _coordinate(problem, site: str, params) -> str:
    """A site in words that say whether numbers are of its unconstrained coordinates, where these are others."""
    z = problem.guide.point(params)["mu"]
    free, onto = (problem.backend.to_numpy(at(z)[site]) for at in (problem.unravel, problem.constrain))
    return site if np.array_equal(free, onto) else f"the unconstrained {site}"


def _wider(problem) -> str:
    """The advice to fit a wider guide; not where rows have latent variables, with which dense guides are too large.

    Nor with a single one, in which all guides are the same.
    """
    return "" if problem.local is not None or len(noisy_of(problem)) < 2 else problem.guide.wider


def noisy_of(problem) -> np.ndarray:
    """The coordinates with noise, those that are no point estimates."""
    return np.arange(problem.dim) if problem.noiseless is None else np.flatnonzero(~np.asarray(problem.noiseless))


LATE = 0.85  # a late rise is measured after this fraction of the steps


def fall_of(schedule, trace) -> float:
    """The step from which a cosine falls: the ELBO rises there because the noise falls, whether it converged or not.

    For a fall over more than half of the run the middle of the run, up to which the steps are large. Infinite for
    other schedules, for a run that ended before, and if the trace has not two evaluations before.
    """
    if schedule is None or schedule.kind != "cosine":
        return np.inf
    fall = max(1 - schedule.beta, 0.5) * schedule.r
    before = (trace["iteration"] <= fall).sum()
    return fall if 1 < before < len(trace) else np.inf


def late_rise(trace) -> tuple[float, float]:
    """The rise of the ELBO at the end of a run, in nats, and the share of the steps over which it is measured.

    All ELBOs use the same draws, so their difference is more accurate than either.
    """
    last = trace.iloc[-1]
    before = trace[trace["iteration"] <= LATE * last["iteration"]].iloc[-1]
    share = 1 - before["iteration"] / last["iteration"]
    return float(last["elbo"] - before["elbo"]), float(share)
