"""Covariances of a mean-field fit by linear response.

Tilt the posterior by ``exp(t h(z))``: the best guide of the tilted posterior has means of ``f`` that change by
``Cov(f, h)`` with ``t``, if the guide is right about its means. So with ``E`` the mean over the guide of parameters
``eta = (mu, log sigma)`` and ``H`` the Hessian of the negative ELBO in them,

    Cov(f, h) = grad E[f]' H^-1 grad E[h].

Of the coordinates of a normal posterior these are its own covariances, where the guide's standard deviations are those
of a coordinate given all others. Moments of other functions are those under the normal distribution with the guide's
means and this covariance; for single functions in many dimensions, by the formula above, which is right for functions
that are nearly linear under the guide, and refused for others. ``H`` is the mean over draws of Hessian-vector products.
Groups of draws give the standard errors of the standard deviations, and these the number of draws.

Second derivatives do not see kinks, such as those of absolute values, where they lack curvature that the mean over the
guide has. By Stein's identity ``sigma^2 E[f''] = E[f' sigma eps]`` they are seen to lack it, also of a kink that few
draws cross: at the optimum both are 1, in units of the guide. Then ``H`` is that of Gaussian smoothing, ``E[f' eps'] /
sigma``, by regression of first derivatives on the noise and its square. A guide that is much narrower than the
posterior would smooth too little: so the mean is taken again over the covariance found, until that covariance is the
inverse of its own mean curvature, as the best full-rank normal's is. The response is that of this normal, of its means
and of the widths along its columns: beside a kink on one side it is wider than that normal, as the posterior is.

References:
    Giordano, Broderick and Jordan, "Covariances, robustness, and variational Bayes", 2018, section 3; Giordano, Ingram
    and Broderick, "Black box variational inference with a deterministic objective", 2024, section 3.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowvar.core.keys import named_key
from lowvar.errors import UserError, one_line, positive, whole
from lowvar.vi.judgement import LEAST, khat_draws, log_densities
from lowvar.vi.run.fixed_draws import Objective, matched_draws
from lowvar.vi.summary import label
from lowvar.vi.weighted import GROUPS, Weighted, weighted

_DRAWS = (128, 512, 2048)
_GROUPS = 16  # of draws, for standard errors
_DENSE = 1024  # parameters, up to which the Hessian is a matrix
_FUNCTIONS = 64  # for which equations are solved one by one where it is none
_AT_ONCE, _TOGETHER = 8, 32  # draws and directions at once
_PUSHED, _CHUNK = 8192, 512  # draws from the normal distribution, and how many are evaluated at once
_LINEAR = 0.9  # the least share of a function's variance under the guide that is of the form that a slope sees
_FLAT = 1e-6  # the smallest eigenvalue of a Hessian, in units of the guide, where about 1 is usual
# the least part of a curvature that kinks have, by how many errors it may be, and by how many it is
_KINKED, _PERHAPS, _SURE = 0.1, 2.5, 5
_LACK = 0.15  # the least part of the precision of a guide that second derivatives lack where there are kinks
_ROUGH = 16  # times as many draws where there are kinks, at least so many for each term of a regression, and
_COARSE = 0.1  # the largest relative error of a standard deviation from them
_PARTS = 4  # of the draws of a regression, whose results tell its error
_AGAIN, _STILL = 20, 1e-3  # rounds of smoothing at most, and the relative change of any width in the last one
_RECENT = 4  # rounds, within which a change of the other sign says that the result lies between
_SLOW = 0.95  # the largest change of a round relative to the round before, as of a geometric series
_NUMBERS = 3 * 2**26  # of draws x coordinates at once
_OFF, _ERRORS = 0.25, 3  # the largest distance of a mean from its optimum, in standard deviations, by so many errors
# draws x rows x coordinates^2, or of rows with variables of their own draws x variables^2: where it costs no more than
# a fit, and where no more draws are taken
_CHEAP, _WORK = 2**33, 2**36


class Response(NamedTuple):
    """Moments of ``K`` functions by linear response.

    Attributes:
        mean: ``(K,)``.
        sd: standard deviations, ``(K,)``.
        covariance: ``(K, K)``, if it was asked for.
        guide_sd: standard deviations of the guide, ``(K,)``.
        mean_se: standard error of ``mean`` as that of the best guide, ``(K,)``: the distance of the fit from it, and
            the error of the draws, of which it is a bound where their moments are matched.
        sd_se: standard error of ``sd``, ``(K,)``, as that by the exact curvature.
        weighted: the moments by importance weights; None where they are not to be had, as without draws for k-hat.
    """

    mean: np.ndarray
    sd: np.ndarray
    covariance: np.ndarray | None
    guide_sd: np.ndarray
    mean_se: np.ndarray
    sd_se: np.ndarray
    weighted: Weighted | None = None


class Coordinates(NamedTuple):
    """Linear response of the coordinates with noise, ``(k, ...)`` each.

    Attributes:
        covariance: ``(k, k)``.
        error: relative standard errors of their standard deviations.
        step: the means minus those of the best guide.
        step_se: standard errors of ``step``.
    """

    covariance: np.ndarray
    error: np.ndarray
    step: np.ndarray
    step_se: np.ndarray


def response(
    fit, functions: Callable[[Any], Any], error: float, seed: int, *, costly: bool = True, joint: bool = False
) -> tuple[list[str], Response]:  # fmt: skip
    """The response of functions of the latent variables, with the names of their entries.

    Args:
        fit: a ``Fit`` with the mean-field guide, its data in memory.
        functions: ``{site: value} -> {name: array}`` in arrays of the problem's backend.
        error: the relative standard error of standard deviations from which on draws suffice.
        seed: of the draws.
        costly: whether more work is done than a fit takes.
        joint: whether covariances are wanted too.

    Raises:
        UserError: another guide, rows in files, too many functions, functions that are no arrays of real numbers or
            cannot be traced, or a fit that is not at an optimum.
    """
    positive("error", error)
    problem, curvature = fit.problem, Curvature(fit, whole("seed", seed, 0))
    if not costly and not (curvature.dense and _DRAWS[0] * curvature.work <= _CHEAP):
        raise UserError(f"{problem.name}: linear response of all entries costs more than a fit")
    names, values = _entries(problem, curvature.mu, functions)
    if curvature.dense:
        return names, curvature.pushed(values, coordinates(curvature, error, _WORK if costly else _CHEAP), joint)
    if len(names) > _FUNCTIONS:
        raise UserError(
            f"{problem.name}: linear response of {len(names)} entries where the guide has {curvature.size} parameters: "
            f"above {_DENSE}, at most {_FUNCTIONS} entries: choose them"
        )
    return names, curvature.projected(values, names)


def of_coordinates(
    fit, functions: Callable[[Any], Any], error: float, seed: int
) -> tuple[np.ndarray, list[str], Weighted | None]:  # fmt: skip
    """The covariance of the coordinates with noise, in the unconstrained space: a matrix with a Cholesky factor.

    Returns:
        The covariance; the names of the functions' entries; and their moments by importance weights, None where there
        are too many rows. Whether the fit has a k-hat does not matter.

    Raises:
        UserError: see ``response``; or too many coordinates.
    """
    positive("error", error)
    problem, curvature = fit.problem, Curvature(fit, whole("seed", seed, 0))
    if not curvature.dense:
        raise UserError(f"{problem.name}: linear response of all coordinates takes at most {_DENSE // 2} of them")
    names, values = _entries(problem, curvature.mu, functions)
    covariance = coordinates(curvature, error).covariance
    checks = min(khat_draws(problem, None), _PUSHED)
    return covariance, names, curvature.weighted(curvature.at(values), covariance, checks) if checks else None


def _entries(problem, mu: np.ndarray, functions) -> tuple[list[str], Callable[[Any], Any]]:
    """The names of the entries of functions of sites, and ``z (dim,) -> (K,)``."""
    xp, point = problem.backend.xp, problem.backend.asarray(mu.astype(problem.dtype))
    found = functions(problem.constrain(point))
    if not found:
        raise UserError("function: it returned nothing; return an array, or a dict of arrays")
    if bad := [name for name, value in found.items() if not hasattr(value, "shape") or not hasattr(value, "dtype")]:
        raise UserError(f"function: its value {bad[0]!r} is a {type(found[bad[0]]).__name__}; it must be an array")
    if bad := [name for name, value in found.items() if "complex" in str(value.dtype)]:
        raise UserError(f"function: its value {bad[0]!r} is complex; it must be real")
    names = [name + label(place) for name, value in found.items() for place in np.ndindex(tuple(value.shape))]

    def values(z):
        sites = problem.constrain(z)
        try:
            whole = functions(sites)
        except Exception as error:  # of the library that traces, since it had values at a point
            raise UserError(
                f"function: it has a value at a point, but cannot be traced ({one_line(error)}): write it in jax.numpy "
                "(torch for a TorchModel), without NumPy, and with where() in place of if"
            ) from error
        return xp.concat([xp.astype(xp.reshape(one, (-1,)), z.dtype) for one in whole.values()])

    return names, values


def coordinates(curvature: "Curvature", error: float, work: int = _WORK) -> Coordinates:
    """The response of the coordinates, for as many draws as the error asks for, or the work allows.

    Raises:
        UserError: see ``response``.
    """
    found = None
    for draws in _DRAWS:
        if found is not None and found.error.max(initial=0.0) <= error:
            break
        if draws > _DRAWS[0] and not curvature.affords(draws, work):
            break
        found = curvature.of_coordinates(draws, work)
    if found is None:
        raise UserError(curvature.no_optimum("its curvature is not positive there"))
    if not curvature.smooth and (error := found.error.max(initial=0.0)) > _COARSE:
        why = f"whose standard deviations have an error of {error:.0%} at as many draws as are affordable"
        if curvature.change > _STILL:
            why = (
                f"and the covariance over which these are smoothed still changes after {curvature.rounds} rounds, by "
                f"{curvature.change:.2g} of a standard deviation"
            )
        raise UserError(curvature.kinked(why))
    return found


def _gradient(problem, index, weight, share) -> Callable:
    """The gradient of the negative log density at a point: of rows and a share of the prior."""
    backend, xp, likelihood = problem.backend, problem.backend.xp, problem.log_likelihood

    def gradient(z):
        def add(total, chunk):
            return total + backend.grad(lambda z: -problem.N * xp.sum(chunk[1] * likelihood(z, chunk[0])))(z)

        return backend.scan_or_loop(add, backend.grad(lambda z: -share * problem.log_prior(z))(z), (index, weight))

    return gradient


def _gradients(problem) -> Callable:
    """``(z (S, dim), index, weight, share) -> (S, dim)``, see ``_gradient``."""

    def function(z, *rows):
        return problem.backend.vmap(_gradient(problem, *rows))(z)

    return function


def _products(problem) -> Callable:
    """``(z (S, dim), directions (S, K, dim), index, weight, share) -> ((S, dim), (S, K, dim))``.

    The gradient at each point, see ``_gradient``, and Hessian-vector products.
    """
    backend = problem.backend

    def function(z, directions, *rows):
        gradient = _gradient(problem, *rows)

        def of_draw(z, directions):
            along = backend.vmap(lambda one: backend.jvp(gradient, (z,), (one,))[1])
            return gradient(z), along(directions)

        return backend.vmap(of_draw)(z, directions)

    return function


def _kinks(along, first, second, noise) -> tuple[np.ndarray, np.ndarray]:
    """Where first and second derivatives disagree about the curvature: directions perhaps, and surely; ``(K,)`` each.

    Args:
        along: directions in the means, ``(K, k)``.
        first: of each group of draws, products of directions and curvature by first derivatives, ``(groups, K, k)``.
        second: those by second derivatives.
        noise: the draws, ``(groups, S, k)``.
    """
    others = (second.sum(0) - second) / (_GROUPS - 1)
    expected = ((noise @ along.T) * (noise @ np.swapaxes(others, 1, 2))).mean(1)  # with the error of first derivatives
    more = (first * along).sum(2) - expected
    mean, error = np.abs(more.mean(0)), more.std(0, ddof=1) / _GROUPS**0.5
    least = _KINKED * np.maximum(*(np.abs((one.mean(0) * along).sum(1)) for one in (first, second)))
    return (mean > least) & (mean > _PERHAPS * error), mean - _SURE * error > least


def _lacking(second: np.ndarray) -> np.ndarray:
    """Coordinates whose mean curvature is surely below the precision of the guide, by more than fits are off; ``(k,)``.

    At an optimum the two are equal, kinks included. So this sees a kink that few draws cross, which then have none of
    the first derivatives that would tell it, but which the guide has met.

    Args:
        second: of each group of draws, the curvature by second derivatives in units of the guide, ``(groups, k, k)``.
    """
    own = np.diagonal(second, axis1=1, axis2=2)
    return 1 - own.mean(0) - _PERHAPS * own.std(0, ddof=1) / _GROUPS**0.5 > _LACK


def _regression(noise: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Coefficients of ``values (S, m)`` by a constant, ``noise (S, k)`` and its centred squares, ``(1 + 2 k, m)``."""
    terms = np.concatenate([np.ones((len(noise), 1)), noise, (noise**2 - 1) * 2**-0.5], axis=1)
    return np.linalg.lstsq(terms, values, rcond=None)[0]


class _Settled(NamedTuple):
    """The response over a covariance, see ``Curvature``: ``covariance`` with relative errors, and that covariance."""

    covariance: np.ndarray
    error: np.ndarray
    smoothed: np.ndarray


class Curvature:
    """The Hessian of the negative ELBO at the parameters of a fit, in units of the guide: ``(mu / sigma, log sigma)``.

    Attributes:
        size: number of parameters with a unit, ``n``.
        dense: whether the Hessian is a matrix.
        work: of a draw: rows x coordinates^2, or variables^2 where rows have their own.
        free: the coordinates with noise.
        smooth: whether second derivatives have all of the curvature, as far as is known.
        rounds: in which the covariance over which kinks are smoothed may change.
        change: of a standard deviation in the last of them, relative: the largest of all directions.
    """

    def __init__(self, fit, seed: int, rounds: int = _AGAIN):
        problem = fit.problem
        if problem.guide.name != "mean_field":
            raise UserError(
                f"{problem.name}: linear response is for the mean-field guide; this one, {problem.guide.name!r}, has "
                "correlations of its own: take them from sample()"
            )
        if not problem.in_memory:
            raise UserError(f"{problem.name}: linear response needs the rows in memory, and these are in files")
        self.problem, self.seed = problem, seed
        self.objective = Objective(problem, named_key(seed, "rows of response"))
        free, dim = self.objective.free, problem.dim
        self.mu, self.log_sigma = (np.asarray(fit.guide_params[block], float) for block in ("mu", "log_sigma"))
        self.free = np.flatnonzero(free)
        self.unit = np.concatenate([np.where(free, np.exp(self.log_sigma), 1.0), np.full(dim, 2**-0.5)])
        self.here = np.concatenate([free, free])  # point estimates are held, as the guide and k-hat hold them
        self.size = int(self.here.sum())
        if not self.size:
            raise UserError(f"{problem.name}: linear response needs latent variables, and the model has none")
        self.dense, self.smooth = self.size <= _DENSE, True
        self.rounds, self.change = rounds, 0.0
        self.work = problem.rows_of_pass * (1 if problem.local is not None else dim) * dim
        how = fit.run or fit.fixed
        self.checks = min(khat_draws(problem, how.khat_samples if how else None), _PUSHED)  # draws that are weighted

    def _in_units(self, mu: np.ndarray, log_sigma: np.ndarray) -> np.ndarray:
        """``(..., n)`` of slopes in the two blocks, ``(..., dim)``."""
        return (np.concatenate([mu, log_sigma], axis=-1) * self.unit)[..., self.here]

    def times(self, directions: np.ndarray | None, eps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The gradient ``(n,)`` of the mean energy over draws ``eps (S, dim)``, and Hessian-vector products ``(K, n)``.

        Along ``directions (K, n)``; or along all coordinates if they are None, from products along those of ``z``. And
        those along the means by first derivatives, ``(K, k)``, see the module.
        """
        dim, (S, count) = self.problem.dim, (len(eps), self.problem.dim if directions is None else len(directions))
        spread = np.where(self.objective.free, np.exp(self.log_sigma), 0.0) * eps  # dz / d log sigma
        by_scale = np.zeros((count, dim))
        if directions is None:
            along = np.broadcast_to(np.eye(dim), (S, dim, dim))
        else:
            whole = np.zeros((count, 2 * dim))
            whole[:, self.here] = directions
            by_mu, by_scale = np.split(whole * self.unit, 2, axis=1)
            along = by_mu + spread[:, None] * by_scale
        gradient, hvp = np.zeros((S, dim)), np.zeros((S, count, dim))
        for first in range(0, S, _AT_ONCE):
            for start in range(0, count, _TOGETHER):
                where = slice(first, first + _AT_ONCE), slice(start, start + _TOGETHER)
                gradient[where[0]], hvp[where] = self._energy(self.mu + spread[where[0]], along[where])
        mean = self._in_units(gradient.mean(0), (gradient * spread).mean(0))
        noise, slopes = eps[:, self.free], (gradient * self.unit[:dim])[:, self.free]
        along_means = noise if directions is None else noise @ directions[:, : len(self.free)].T
        first = along_means.T @ slopes / S
        if directions is None:
            scaled, corner = spread[:, :, None] * hvp, np.diag((gradient * spread).mean(0))
            upper = self._in_units(hvp.mean(0), (hvp * spread[:, None]).mean(0))
            lower = self._in_units(scaled.mean(0), (scaled * spread[:, None]).mean(0) + corner)
            return mean, (np.concatenate([upper, lower]) * self.unit[:, None])[self.here], first
        corner = (gradient * spread).mean(0) * by_scale
        return mean, self._in_units(hvp.mean(0), (hvp * spread[:, None]).mean(0) + corner), first

    def _energy(self, z: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See ``_products``: of all rows."""
        backend, asarray = self.problem.backend, self.objective.asarray
        compiled, z = self.problem.compiled(_products), asarray(z)
        size, K = directions.shape[1], min(self.problem.dim if self.dense else 1, _TOGETHER)
        directions = np.concatenate(
            [directions, np.zeros((len(directions), max(K - size, 0), self.problem.dim))], axis=1
        )
        try:
            parts = [
                backend.to_numpy(compiled(z, asarray(directions), *rows, asarray(share)))
                for rows, share in zip(self.objective.blocks, self.objective.shares, strict=True)
            ]
        except (TypeError, NotImplementedError) as error:  # of JAX under custom_vjp, of PyTorch's operations
            raise UserError(
                f"{self.problem.name}: linear response takes second derivatives in forward mode, which the model does "
                f"not have ({' '.join(str(error).split())[:150]})"
            ) from error
        gradient, hvp = (np.sum([part[i].astype(float) for part in parts], axis=0) for i in (0, 1))
        return gradient, hvp[:, :size]

    def groups(self, draws: int) -> np.ndarray:
        """Draws of the guide's noise in groups of antithetic pairs, ``(groups, S, dim)``."""
        half = matched_draws(named_key(self.seed, "draws of response"), draws, self.problem.dim)[: draws // 2]
        half = half.reshape(_GROUPS, -1, self.problem.dim)
        return np.concatenate([half, -half], axis=1)

    def curvatures(self, draws: int, work: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each group of draws the mean gradient, ``(groups, n)``, and the Hessian, ``(groups, n, n)``."""
        k, at = len(self.free), draws
        while self.smooth:
            groups = self.groups(at)
            gradients, hessians, first = map(np.stack, zip(*(self.times(None, eps) for eps in groups), strict=True))
            if not np.isfinite(hessians).all():
                return gradients, hessians  # which is no optimum
            second = hessians[:, :k, :k]
            along = np.linalg.eigh(second.mean(0) + second.mean(0).T)[1].T  # where kinks may be most of the curvature
            perhaps, sure = _kinks(along, along @ first, along @ second, groups[:, :, self.free])
            lacking = _lacking(second)
            if not (perhaps.any() or lacking.any()):
                return gradients, hessians
            if at < _DRAWS[-1] and 4 * at * self.work <= work:  # few draws with the right moments may say it too
                at *= 4
                continue
            if at >= _DRAWS[-1] and not (sure.any() or lacking.any()):
                return gradients, hessians
            self.smooth, seen = False, perhaps.any()
            if not (seen or self.affords(draws, work)):  # first derivatives would tell which
                name = self._site(self.free[int(np.argmax(lacking))])
                raise UserError(
                    f"{self.problem.name}: linear response takes second derivatives, and their curvature along {name} "
                    "is below the precision of the guide, so that this log density has kinks, as of abs() or max(), or "
                    "the fit is not at an optimum: make more steps, or take standard deviations from "
                    "guide='full_rank', or from NUTS"
                )
        if not self.affords(draws, work):
            raise UserError(
                self.kinked(f"which is too costly to find from draws in {k} coordinates and {self.problem.N} rows")
            )
        unit = np.diag(self.unit[self.free])
        parts = [self._regressed(eps[:, self.free], unit) for eps in self.groups(self._rough(draws))]
        gradients, hessians = map(np.stack, zip(*parts, strict=True))
        return gradients, hessians

    def _rough(self, draws: int) -> int:
        """The number of draws of a regression, in place of ``draws``."""
        return _ROUGH * max(_DRAWS[0], _GROUPS * (1 + 2 * len(self.free))) * draws // _DRAWS[0]

    def affords(self, draws: int, work: int) -> bool:
        """Whether the curvature at so many draws takes at most this work."""
        if self.smooth:
            return draws * self.work <= work
        rough = self._rough(draws)
        return rough * self.problem.dim <= _NUMBERS and (1 + self.rounds) * rough * self.work / self.problem.dim <= work

    def _regressed(self, noise: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gradient and the Hessian, ``(n,)`` and ``(n, n)``, by ``noise (S, k)``, see the module.

        Of the normal distribution with the guide's means and ``factor``, in units of its columns.
        """
        slopes = self._slopes(noise, factor)
        found = _regression(noise, np.concatenate([slopes, slopes * noise * 2**-0.5], axis=1))
        return found[0], found[1:].T

    def _slopes(self, noise: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Gradients by ``noise (S, k)`` of the energy at ``mu + factor noise``."""
        compiled, asarray = self.problem.compiled(_gradients), self.objective.asarray
        z = np.tile(self.mu, (len(noise), 1))
        z[:, self.free] += noise @ factor.T
        gradient = np.zeros(z.shape)
        for first in range(0, len(z), _TOGETHER):
            for rows, share in zip(self.objective.blocks, self.objective.shares, strict=True):
                found = compiled(asarray(z[first : first + _TOGETHER]), *rows, asarray(share))
                gradient[first : first + _TOGETHER] += self.problem.backend.to_numpy(found)
        return gradient[:, self.free] @ factor

    def _smoothed(self, covariance: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray] | None:
        """See ``_settled``; errors are at least those by quarters of the draws: their spread, and their bias.

        Where few draws cross a kink, they move the covariance over which is smoothed, of which the error at a
        covariance has nothing, and quarters of the draws give another width than all.
        """
        groups = [eps[:, self.free] for eps in self.groups(self._rough(draws))]
        whole = self._settled(covariance, groups)
        if whole is None:
            return None
        change = self.change
        parts = [self._settled(whole.smoothed, groups[i::_PARTS]) for i in range(_PARTS)]
        self.change = change
        logs = [np.full(len(covariance), np.nan) if p is None else np.log(np.diag(p.covariance)) / 2 for p in parts]
        bias = np.abs(np.mean(logs, axis=0) - np.log(np.diag(whole.covariance)) / 2)
        spread = np.maximum(np.std(logs, axis=0, ddof=1) / _PARTS**0.5, bias)
        return whole.covariance, np.where(np.isfinite(spread), np.maximum(whole.error, spread), 1.0)

    def _settled(self, covariance: np.ndarray, groups: list[np.ndarray]) -> "_Settled | None":
        """The response over the covariance that is the inverse of its own mean curvature, and its widths' errors.

        In the units of the covariance the curvature is then the identity: so its eigenvalues tell the change of the
        width along every direction, also one in which the posterior is much narrower than along any coordinate. Where
        a wider normal meets a kink so much more often that it would end narrower, and so on, steps are halved.
        """
        k, unit = len(self.free), self.unit[self.free]
        i, slow, side, length, turned = 0, 1.0, 0.0, 1.0, -_RECENT
        factor, parts, curvature = np.empty((0, 0)), np.empty(0), np.empty((0, 0))
        for i in range(self.rounds):
            sizes, axes = np.linalg.eigh(covariance / np.outer(unit, unit))
            if sizes[0] <= 0:
                return None
            factor = unit[:, None] * (axes * sizes**0.5) @ axes.T  # which does not depend on the order of coordinates
            parts = np.stack([self._regressed(noise, factor)[1] for noise in groups])
            curvature = (parts[:, :k, :k].mean(0) + parts[:, :k, :k].mean(0).T) / 2
            if not np.isfinite(curvature).all() or (found := np.linalg.eigh(curvature))[0][0] < _FLAT:
                return None
            changes = found[0] ** -0.5 - 1
            largest = changes[int(np.argmax(np.abs(changes)))]
            before, self.change = self.change, float(abs(largest))
            slow = min(self.change / max(before, _FLAT), _SLOW) if i else _SLOW  # changes fall geometrically
            turned = i if largest * side < 0 else turned
            if i and self.change < _STILL:
                break
            length, side = length / 2 if turned == i and self.change > before / 2 else length, largest
            covariance = factor @ (found[1] * found[0] ** -length) @ found[1].T @ factor.T
        scales = (parts[:, k:, k:].mean(0) + parts[:, k:, k:].mean(0).T) / 2
        if np.linalg.eigvalsh(scales)[0] < _FLAT:
            return None
        # of a skewed posterior, widths move with the means; without the squares of errors
        mixed = (parts[:, :k, k:] + np.swapaxes(parts[:, k:, :k], 1, 2)) / 2
        weighted = np.linalg.solve(scales, np.swapaxes(mixed, 1, 2))  # (groups, k, k)
        count = len(groups)
        together = count**2 * mixed.mean(0) @ weighted.mean(0) - (mixed @ weighted).sum(0)
        curvature = curvature - (together + together.T) / 2 / (count * (count - 1))
        if np.linalg.eigvalsh(curvature)[0] < _FLAT:
            return None
        means = np.linalg.solve(curvature, factor.T)  # (k, k): a column for each coordinate
        weights, response = np.concatenate([means, -weighted.mean(0) @ means]), factor @ means
        quadratic = np.einsum("nk,gnm,mk->gk", weights, parts, weights, optimize=True) / np.diag(response)
        error = quadratic.std(0, ddof=1) / count**0.5 / 2
        # of a result that lies between, or of a geometric series
        rest = self.change * (1 if i - turned < _RECENT else slow / (1 - slow))
        return _Settled((response + response.T) / 2, error + rest, factor @ factor.T)

    def of_coordinates(self, draws: int, work: int = _WORK) -> Coordinates | None:
        """See ``coordinates``, for a number of draws; None where their mean curvature is not positive."""
        k, sigma = len(self.free), self.unit[self.free]
        gradients, hessians = self.curvatures(draws, work)
        hessian = (hessians.mean(0) + hessians.mean(0).T) / 2
        if not np.isfinite(hessian).all() or np.linalg.eigvalsh(hessian)[0] < _FLAT:
            return None  # few draws may do that
        inverse = np.linalg.inv(hessian)
        covariance = sigma[:, None] * (inverse[:k, :k] + inverse[:k, :k].T) / 2 * sigma
        sd = np.sqrt(np.diag(covariance))
        quadratic = np.einsum("nk,gnm,mk->gk", inverse[:, :k], hessians, inverse[:, :k], optimize=True) * sigma**2
        error = quadratic.std(0, ddof=1) / _GROUPS**0.5 / (2 * sd**2)
        gradients[:, k:] -= 2**-0.5  # of the entropy
        steps = gradients @ inverse * self.unit[self.here]  # of the means, and of log sigma, in each group
        step, step_se = steps.mean(0), steps.std(0, ddof=1) / _GROUPS**0.5
        if not self.smooth:
            smoothed = self._smoothed(covariance, draws)
            if smoothed is None:
                return None
            covariance, error = smoothed
            sd = np.sqrt(np.diag(covariance))
        off = np.abs(step) - _ERRORS * step_se
        off[:k] /= sd
        known = self.smooth or error.max() <= _COARSE  # draws that cross no kink would have the guide far off
        if known and (off > _OFF).any():
            i = int(np.argmax(off))
            name = self._site(self.free[i % k])
            how = f"is {off[i]:.2g} sds from it" if i < k else f"has a scale that is {off[i]:.0%} off"
            raise UserError(self.no_optimum(f"the mean-field normal of {name} {how}"))
        return Coordinates(covariance, error, step[:k], step_se[:k])

    @np.errstate(invalid="ignore")  # of functions that are not finite
    def pushed(self, values, found: Coordinates, joint: bool) -> Response:
        """Moments of functions under the normal distribution with the means of the guide and this covariance."""
        free, at = self.free, self.at(values)
        half = self._noise()
        wide, narrow = np.linalg.cholesky(found.covariance), np.diag(self.unit[free])
        product, by_group = 0.0, []
        center = at(np.zeros((1, len(free))), wide)[0]  # sums of squares about it
        for part in np.split(half, _GROUPS):
            x = at(np.concatenate([part, -part]), wide) - center
            by_group.append((x.mean(0), (x**2).mean(0)))
            product = product + x.T @ x / len(x) if joint else 0.0
        means, squares = map(np.stack, zip(*by_group, strict=True))
        mean, square = means.mean(0), squares.mean(0)
        sd = np.sqrt(np.maximum(square - mean**2, 0))
        some = half[:_CHUNK]
        some = np.concatenate([some, -some])
        moved = at(some, wide, found.step).mean(0) - at(some, wide).mean(0)
        relative = np.max(found.step_se / np.sqrt(np.diag(found.covariance)), initial=0.0)
        mean_se = np.sqrt(means.var(0, ddof=1) / _GROUPS + moved**2 + (sd * relative) ** 2)
        spread = (squares - 2 * mean * means).std(0, ddof=1) / _GROUPS**0.5
        sd_se = np.hypot(np.where(sd > 0, spread / np.where(sd > 0, 2 * sd, 1), 0), sd * found.error.max(initial=0.0))
        covariance = product / _GROUPS - np.outer(mean, mean) if joint else None
        beside = self.weighted(at, found.covariance, self.checks) if self.checks else None
        return Response(center + mean, sd, covariance, at(some, narrow).std(0), mean_se, sd_se, beside)

    def _noise(self) -> np.ndarray:
        """Half of the draws of a normal distribution: the others are their mirror images."""
        pairs = max(_PUSHED, 4 << len(self.free).bit_length()) // 2
        return matched_draws(named_key(self.seed, "draws of moments"), 2 * pairs, len(self.free))[:pairs]

    def at(self, values) -> Callable[..., np.ndarray]:
        """``(noise (S, k), factor, shift) -> (S, K)``: functions at ``mu + factor noise - shift``."""
        backend, asarray = self.problem.backend, self.objective.asarray
        evaluated = backend.jit(backend.vmap(values))

        def at(eps, factor, shift: Any = 0.0):
            z = np.tile(self.mu, (len(eps), 1))
            z[:, self.free] += eps @ factor.T - shift
            parts = [evaluated(asarray(z[i : i + _CHUNK])) for i in range(0, len(z), _CHUNK)]
            return np.concatenate([backend.to_numpy(part).astype(float) for part in parts])

        return at

    def weighted(self, at, covariance: np.ndarray, draws: int) -> Weighted:
        """Moments of functions by importance weights of draws from the normal distribution with this covariance.

        Log densities take the program of the fit's k-hat.

        Args:
            at: see ``at``.
            covariance: ``(k, k)``.
            draws: their number, at most; those of whole groups are taken.
        """
        asarray, dim, factor = self.objective.asarray, self.problem.dim, np.linalg.cholesky(covariance)
        half = self._noise()[: draws // 2 // GROUPS * GROUPS].reshape(GROUPS, -1, len(self.free))
        noise = np.concatenate([half, -half], axis=1)
        eps = np.zeros((*noise.shape[:2], dim))
        eps[:, :, self.free] = noise @ factor.T / self.unit[self.free]
        params = {"mu": asarray(self.mu), "log_sigma": asarray(self.log_sigma)}
        eps = eps.reshape(-1, dim).astype(self.problem.dtype)
        joint = log_densities(self.problem, params, eps, LEAST)[0].reshape(noise.shape[:2])
        together = max(1, _CHUNK // noise.shape[1])

        def parts():
            for first in range(0, GROUPS, together):
                some = noise[first : first + together]
                yield from at(some.reshape(-1, noise.shape[2]), factor).reshape(*some.shape[:2], -1)

        return weighted(joint + (noise**2).sum(2) / 2, parts())

    def projected(self, values, names: list[str]) -> Response:
        """The response of functions by conjugate gradients, see the module."""
        groups = self.groups(_DRAWS[1])
        mean, square, slopes = self._of_functions(values, len(names), groups)
        b = slopes.mean(0)
        guide_sd = np.sqrt(np.maximum(square.mean(0) - mean.mean(0) ** 2, 0))
        bent = (b**2).sum(1) < _LINEAR * guide_sd**2
        if bent.any():
            raise UserError(
                f"{self.problem.name}: {names[int(np.argmax(bent))]} is far from linear in the latent variables, and "
                f"the guide has more than {_DENSE} parameters: linear response would see a part of its variance"
            )
        x = np.stack([self._solved(one, groups) for one in b])
        k, means = len(self.free), np.concatenate([b, x])
        means[:, k:] = 0
        parts = [self.times(np.concatenate([x, means]), eps) for eps in groups]
        gradients, products, first = (np.stack(part) for part in zip(*parts, strict=True))
        kinks = _kinks(means[:, :k], first[:, len(x) :], products[:, len(x) :, :k], groups[:, :, self.free])
        if kinks[0].any():
            raise UserError(self.kinked(f"which are found in at most {_DENSE // 2} coordinates"))
        quadratic = (x * products[:, : len(x)]).sum(2)
        gradients[:, len(self.free) :] -= 2**-0.5  # of the entropy
        slope = gradients[:, len(self.free) :] * 2**-0.5  # about the distance of log sigma, whose curvature is about 1
        if (np.abs(slope.mean(0)) - _ERRORS * slope.std(0, ddof=1) / _GROUPS**0.5 > _OFF).any():
            raise UserError(self.no_optimum("its standard deviations are far from theirs"))
        covariance = b @ x.T
        sd = np.sqrt(np.maximum(np.diag(covariance), 0))
        off = gradients @ x.T  # (groups, K): how far the means are above those of the best guide
        distance, distance_se = off.mean(0), off.std(0, ddof=1) / _GROUPS**0.5
        if (np.abs(distance) - _ERRORS * distance_se > _OFF * sd).any():
            worst = int(np.argmax(np.abs(distance) - _OFF * sd))
            raise UserError(self.no_optimum(f"the mean of {names[worst]} is far from it"))
        mean_se = np.sqrt(mean.var(0, ddof=1) / _GROUPS + distance**2 + distance_se**2)
        influence = 2 * np.einsum("gkn,kn->gk", slopes, x) - quadratic
        of_variance = influence.std(0, ddof=1) / _GROUPS**0.5
        sd_se = np.where(sd > 0, of_variance / np.where(sd > 0, 2 * sd, 1), 0.0)
        return Response(mean.mean(0), sd, (covariance + covariance.T) / 2, guide_sd, mean_se, sd_se)

    def _of_functions(self, values, count, groups):
        """Of each group of draws: the mean of the functions and of their squares, and the slopes of the means."""
        backend, guide, xp = self.problem.backend, self.problem.guide, self.problem.backend.xp

        def mean(params, eps):
            found = backend.vmap(lambda one: values(guide.transform(params, one)))(eps)
            return xp.mean(found, axis=0), xp.mean(found**2, axis=0)

        def of_group(params, eps, eye):
            slope = backend.vmap(lambda one: backend.grad(lambda p: xp.sum(one * mean(p, eps)[0]))(params))(eye)
            return *mean(params, eps), slope

        asarray = self.objective.asarray
        compiled, params = backend.jit(of_group), {"mu": asarray(self.mu), "log_sigma": asarray(self.log_sigma)}
        eye = asarray(np.eye(count))
        found = [backend.to_numpy(compiled(params, asarray(eps), eye)) for eps in groups]
        means, squares, slopes = zip(*found, strict=True)
        slopes = [self._in_units(*(one[block].astype(float) for block in ("mu", "log_sigma"))) for one in slopes]
        return np.stack(means).astype(float), np.stack(squares).astype(float), np.stack(slopes)

    def _solved(self, right: np.ndarray, groups) -> np.ndarray:
        """``H^-1 right`` by conjugate gradients (SciPy's would not tell that ``H`` is indefinite)."""
        x, left = np.zeros_like(right), right.copy()
        p, size = left.copy(), left @ left
        for _ in range(200):
            if np.sqrt(size) <= 1e-4 * np.linalg.norm(right):
                return x
            product = np.mean([self.times(p[None], eps)[1][0] for eps in groups], axis=0)
            if not p @ product > _FLAT * (p @ p):
                raise UserError(self.no_optimum("its curvature is not positive there"))
            length = size / (p @ product)
            x, left = x + length * p, left - length * product
            size, before = left @ left, size
            p = left + size / before * p
        raise UserError(self.no_optimum("conjugate gradients do not solve for its curvature in 200 steps"))

    def _site(self, coordinate: int) -> str:
        """The site of a coordinate."""
        return next(n for n, at in self.problem.sites.items() if at.start <= coordinate < at.stop)

    def kinked(self, why: str) -> str:
        """The refusal of a log density with kinks."""
        return (
            f"{self.problem.name}: linear response takes second derivatives, and those of this log density lack the "
            f"curvature of its kinks, as of abs() or max(), {why}: take standard deviations from guide='full_rank', or "
            "from NUTS"
        )

    def no_optimum(self, why: str) -> str:
        """The refusal of a fit that is not at an optimum."""
        return (
            f"{self.problem.name}: linear response needs a fit at an optimum of the ELBO, and {why}: make more steps, "
            "or fit without settings of steps"
        )
