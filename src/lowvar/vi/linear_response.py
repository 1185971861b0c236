"""Covariances of a mean-field fit by linear response.

Tilt the posterior by ``exp(t h(z))``: the best guide of the tilted posterior has means of ``f`` that change by
``Cov(f, h)`` with ``t``, if the guide is right about its means. So with ``E`` the mean over the guide of parameters
``eta = (mu, log sigma)`` and ``H`` the Hessian of the negative ELBO in them,

    Cov(f, h) = grad E[f]' H^-1 grad E[h].

Of a normal posterior these are its own covariances, where the guide's standard deviations are those of a coordinate
given all others. ``H`` is the mean over draws of Hessian-vector products. Groups of draws give the standard errors of
the standard deviations, and these the number of draws.

References:
    Giordano, Broderick and Jordan, "Covariances, robustness, and variational Bayes", 2018, section 3; Giordano, Ingram
    and Broderick, "Black box variational inference with a deterministic objective", 2024, section 3.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowvar.core.keys import named_key
from lowvar.errors import UserError
from lowvar.vi.run.fixed_draws import Objective, drawn
from lowvar.vi.summary import label

_DRAWS = (128, 512, 2048)
_GROUPS = 16  # of draws, for standard errors
_DENSE = 1024  # parameters, up to which the Hessian is a matrix
_FUNCTIONS = 64  # for which equations are solved one by one where it is none
_AT_ONCE, _TOGETHER = 8, 32  # draws and directions at once
_FLAT = 1e-6  # the smallest eigenvalue of a Hessian, in units of the guide, where about 1 is usual
_OFF, _ERRORS = 0.25, 3  # the largest distance of a mean from its optimum, in standard deviations, by so many errors
# draws x rows x coordinates^2, or of rows with variables of their own draws x variables^2: where it costs no more than
# a fit, and where no more draws are taken
_CHEAP, _WORK = 2**33, 2**36


class Response(NamedTuple):
    """Means over a guide, and their covariances by linear response, of ``K`` functions.

    Attributes:
        mean: over the guide, ``(K,)``.
        covariance: ``(K, K)``.
        guide_sd: standard deviations of the guide, ``(K,)``.
        mean_se: standard error of ``mean`` as that of the best guide, ``(K,)``: of the draws here and in the fit. Of
            fixed draws, whose moments are matched, it is a bound.
        sd_se: standard error of the covariance's standard deviations, ``(K,)``.
        draws: number of draws.
    """

    mean: np.ndarray
    covariance: np.ndarray
    guide_sd: np.ndarray
    mean_se: np.ndarray
    sd_se: np.ndarray
    draws: int


def response(
    fit, functions: Callable[[Any], Any], error: float, seed: int, costly: bool = True
) -> tuple[list[str], Response]:  # fmt: skip
    """The response of functions of the latent variables, with the names of their entries.

    Args:
        fit: a ``Fit`` with the mean-field guide, its data in memory.
        functions: ``{site: value} -> {name: array}`` in arrays of the problem's backend.
        error: the relative standard error of standard deviations from which on draws suffice.
        seed: of the draws.
        costly: whether more work is done than a fit takes.

    Raises:
        UserError: another guide, rows in files, too many functions, or a fit that is not at an optimum.
    """
    problem, curvature = fit.problem, Curvature(fit, seed)
    xp, guide = problem.backend.xp, problem.guide
    point = guide.point({block: problem.backend.asarray(one) for block, one in fit.guide_params.items()})["mu"]
    names = [
        name + label(place)
        for name, value in functions(problem.constrain(point)).items()
        for place in np.ndindex(tuple(value.shape))
    ]

    def values(z):
        return xp.concat([xp.reshape(one, (-1,)) for one in functions(problem.constrain(z)).values()])

    if not costly and not (curvature.dense and _DRAWS[0] * curvature.work <= _CHEAP):
        raise UserError(f"{problem.name}: linear response of all entries costs more than a fit")
    if not curvature.dense and len(names) > _FUNCTIONS:
        raise UserError(
            f"{problem.name}: linear response of {len(names)} entries where the guide has {curvature.size} parameters: "
            f"above {_DENSE}, at most {_FUNCTIONS} entries: choose them"
        )
    return names, _of(curvature, values, names, error)


def _of(curvature: "Curvature", values, names, error: float) -> Response:
    """The response for as many draws as the error asks for, or the work allows."""
    found = curvature.respond(values, names, _DRAWS[0])
    for draws in _DRAWS[1:]:
        enough = (found.sd_se <= error * np.sqrt(np.diag(found.covariance))).all()
        if enough or draws * curvature.work > _WORK:
            break
        found = curvature.respond(values, names, draws)
    return found


def of_coordinates(fit, error: float, seed: int) -> np.ndarray:
    """The covariance of the coordinates with noise, in the unconstrained space: a matrix with a Cholesky factor.

    Raises:
        UserError: see ``response``; or too many coordinates.
    """
    curvature = Curvature(fit, seed)
    free = np.flatnonzero(curvature.objective.free)
    if not curvature.dense:
        raise UserError(f"{fit.problem.name}: linear response of all coordinates takes at most {_DENSE // 2} of them")
    names = [f"coordinate {i} of the unconstrained space" for i in free]
    index = fit.problem.backend.asarray(free.astype(np.int32))
    return _of(curvature, lambda z: z[index], names, error).covariance


def _products(problem) -> Callable:
    """``(z (S, dim), directions (S, K, dim), index, weight, share) -> ((S, dim), (S, K, dim))``.

    The gradient of the negative log density at each point, and Hessian-vector products: of rows and a share of the
    prior.
    """
    backend, xp = problem.backend, problem.backend.xp

    def function(z, directions, index, weight, share):
        def gradient(z):
            def add(total, chunk):
                return total + backend.grad(lambda z: -problem.N * xp.sum(chunk[1] * likelihood(z, chunk[0])))(z)

            return backend.scan_or_loop(add, backend.grad(lambda z: -share * problem.log_prior(z))(z), (index, weight))

        def of_draw(z, directions):
            along = backend.vmap(lambda one: backend.jvp(gradient, (z,), (one,))[1])
            return gradient(z), along(directions)

        likelihood = problem.log_likelihood
        return backend.vmap(of_draw)(z, directions)

    return function


class Curvature:
    """The Hessian of the negative ELBO at the parameters of a fit, in units of the guide: ``(mu / sigma, log sigma)``.

    Attributes:
        size: number of parameters with a unit, ``n``.
        dense: whether the Hessian is a matrix.
        work: rows x coordinates x parameters.
    """

    def __init__(self, fit, seed: int):
        problem = fit.problem
        if problem.guide.name != "mean_field":
            raise UserError(f"{problem.name}: linear response is for the mean-field guide, not {problem.guide.name!r}")
        if not problem.in_memory:
            raise UserError(f"{problem.name}: linear response needs the rows in memory, and these are in files")
        self.problem, self.fixed, self.seed = problem, fit.fixed, seed
        self.objective = Objective(problem, named_key(seed, "rows of response"))
        free, dim = self.objective.free, problem.dim
        self.mu, self.log_sigma = (np.asarray(fit.guide_params[block], float) for block in ("mu", "log_sigma"))
        self.unit = np.concatenate([np.where(free, np.exp(self.log_sigma), 1.0), np.full(dim, 2**-0.5)])
        self.here = np.concatenate([np.ones(dim, bool), free])
        self.size = int(self.here.sum())
        self.dense = self.size <= _DENSE
        self.work = problem.rows_of_pass * (1 if problem.local is not None else dim) * dim

    def _in_units(self, mu: np.ndarray, log_sigma: np.ndarray) -> np.ndarray:
        """``(..., n)`` of slopes in the two blocks, ``(..., dim)``."""
        return (np.concatenate([mu, log_sigma], axis=-1) * self.unit)[..., self.here]

    def times(self, directions: np.ndarray | None, eps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gradient ``(n,)`` of the mean energy over draws ``eps (S, dim)``, and Hessian-vector products ``(K, n)``.

        Along ``directions (K, n)``; or along all coordinates if they are None, from products along those of ``z``.
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
        if directions is None:
            scaled, corner = spread[:, :, None] * hvp, np.diag((gradient * spread).mean(0))
            upper = self._in_units(hvp.mean(0), (hvp * spread[:, None]).mean(0))
            lower = self._in_units(scaled.mean(0), (scaled * spread[:, None]).mean(0) + corner)
            return mean, (np.concatenate([upper, lower]) * self.unit[:, None])[self.here]
        corner = (gradient * spread).mean(0) * by_scale
        return mean, self._in_units(hvp.mean(0), (hvp * spread[:, None]).mean(0) + corner)

    def _energy(self, z: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See ``_products``: of all rows."""
        backend, asarray = self.problem.backend, self.objective.asarray
        compiled, z = self.problem.compiled(_products), asarray(z)
        size, K = directions.shape[1], min(self.problem.dim if self.dense else 1, _TOGETHER)
        directions = np.concatenate(
            [directions, np.zeros((len(directions), max(K - size, 0), self.problem.dim))], axis=1
        )
        parts = [
            backend.to_numpy(compiled(z, asarray(directions), *rows, asarray(share)))
            for rows, share in zip(self.objective.blocks, self.objective.shares, strict=True)
        ]
        gradient, hvp = (np.sum([part[i].astype(float) for part in parts], axis=0) for i in (0, 1))
        return gradient, hvp[:, :size]

    def respond(self, values, names: list[str], draws: int) -> Response:
        """See ``response``, for a number of draws."""
        pairs = drawn(named_key(self.seed, "draws of response"), draws, self.problem.dim)
        half = pairs[: draws // 2].reshape(_GROUPS, -1, self.problem.dim)
        groups = np.concatenate([half, -half], axis=1)
        mean, square, slopes = self._of_functions(values, len(names), groups)
        b = slopes.mean(0)
        if self.dense:
            parts = [self.times(None, eps) for eps in groups]
            gradients, hessians = map(np.stack, zip(*parts, strict=True))
            hessian = hessians.mean(0)
            hessian = (hessian + hessian.T) / 2
            if not np.isfinite(hessian).all() or np.linalg.eigvalsh(hessian)[0] < _FLAT:
                raise UserError(self._no_optimum("its curvature is not positive there"))
            x = np.linalg.solve(hessian, b.T).T
            quadratic = np.einsum("kn,gnm,km->gk", x, hessians, x, optimize=True)
        else:
            x = np.stack([self._solved(one, groups) for one in b])
            parts = [self.times(x, eps) for eps in groups]
            gradients = np.stack([gradient for gradient, _ in parts])
            quadratic = np.stack([(x * hvp).sum(1) for _, hvp in parts])
        gradients[:, len(self.mu) :] -= 2**-0.5  # of the entropy
        covariance = b @ x.T
        sd = np.sqrt(np.maximum(np.diag(covariance), 0))
        off = gradients @ x.T  # (groups, K): how far the means are above those of the best guide
        distance, distance_se = off.mean(0), off.std(0, ddof=1) / _GROUPS**0.5
        sure = np.abs(distance) - _ERRORS * distance_se > _OFF * sd
        if sure.any():
            worst = int(np.argmax(np.where(sd > 0, np.abs(distance) / np.where(sd > 0, sd, 1), 0)))
            raise UserError(
                self._no_optimum(f"the mean of {names[worst]} is {abs(distance[worst]) / sd[worst]:.2g} sds from it")
            )
        if self.fixed is not None and self.fixed.ended == "converged":  # those of its own draws
            distance, distance_se = np.zeros(len(names)), distance_se * (draws / self.fixed.draws) ** 0.5
        mean_se = np.sqrt(mean.var(0, ddof=1) / _GROUPS + distance**2 + distance_se**2)
        influence = 2 * np.einsum("gkn,kn->gk", slopes, x) - quadratic
        of_variance = influence.std(0, ddof=1) / _GROUPS**0.5
        sd_se = np.where(sd > 0, of_variance / np.where(sd > 0, 2 * sd, 1), 0.0)
        guide_sd = np.sqrt(np.maximum(square.mean(0) - mean.mean(0) ** 2, 0))
        return Response(mean.mean(0), (covariance + covariance.T) / 2, guide_sd, mean_se, sd_se, draws)

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
        """``H^-1 right`` by conjugate gradients, in products of all draws."""
        from scipy.sparse.linalg import LinearOperator, cg

        def product(direction):
            return np.mean([self.times(direction.reshape(1, -1), eps)[1][0] for eps in groups], axis=0)

        operator: Any = LinearOperator((self.size, self.size), matvec=product, dtype=float)  # type: ignore[call-arg]
        solved, failed = cg(operator, right, rtol=1e-4, maxiter=200)
        if failed or not np.isfinite(solved).all() or solved @ right < 0:
            raise UserError(self._no_optimum("conjugate gradients do not solve for its curvature there"))
        return solved

    def _no_optimum(self, why: str) -> str:
        return (
            f"{self.problem.name}: linear response needs a fit at an optimum of the ELBO, and {why}: make more steps, "
            "or fit without settings of steps"
        )
