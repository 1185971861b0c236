"""A look for other modes of the posterior, at points where a fitted guide has no draws.

The importance weights of k-hat are those of draws from the guide, so they cannot see a mode that the guide leaves out.
Models have such modes by symmetries: a change of sign, an exchange of components. So the log density is evaluated at
images of the guide's mean, and along lines through it in single coordinates, by the compiled program of k-hat. A point
is reported if the density is about as high there, and clearly lower in between. Other modes than these are not seen.
"""

from collections.abc import Iterator
from itertools import chain, combinations, islice
from typing import Any

import numpy as np

from lowvar.vi import psis

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
        self.free: np.ndarray = np.ones(problem.dim, bool)
        if problem.noiseless is not None:
            self.free[np.asarray(problem.noiseless)] = False
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
        found = psis.log_densities(self.problem, self.params, eps, self.together)[0]
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
        free = self.problem.unravel(self.problem.backend.asarray(self.mu.astype(self.problem.dtype)))
        values = {site: np.asarray(self.problem.backend.to_numpy(free[site]), float) for site in self.sites}
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
            entry, where = at - self.problem.sites[site].start, self.problem.sites[site]
            which = "" if where.stop - where.start == 1 else f" (entry {entry})"
            moves.append((f"at {z[at]:.3g} in place of {self.mu[at]:.3g} for the unconstrained {site!r}{which}", z))
        return moves

    def _heights_of(self, lines, rows) -> list[np.ndarray]:
        points = []
        for (_, at), row in zip(lines, rows, strict=True):
            z = np.tile(self.mu, (len(row), 1))
            z[:, at] = row
            points.append(z)
        return np.split(self.heights(np.concatenate(points)), np.cumsum([len(row) for row in rows])[:-1])


def _subsets(sites: list[str]) -> Iterator[tuple[str, ...]]:
    """The sites jointly, single ones, and others subsets, all of them if there are few."""
    if not sites:
        return iter(())
    sizes = range(1, len(sites)) if len(sites) <= _SITES else (1, 2)
    return chain([tuple(sites)], *(combinations(sites, size) for size in sizes))


def _names(sites) -> str:
    return " and ".join(map(repr, sites)) if len(sites) < 4 else f"{len(sites)} sites"
