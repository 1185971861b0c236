"""The ELBO at fixed draws, maximised by L-BFGS: no step size, and the gradient says when to end.

With the draws ``eps_s`` fixed, the ELBO of a mean-field guide is a deterministic function of its parameters,

    (1 / S) sum_s log p(x, mu + sigma o eps_s) + sum_i log sigma_i.

Few draws suffice on the way, many at the end: the optimum for ``S`` draws is the start for ``4 S`` fresh ones. It is
the result if the gradient is nearly zero at these too, which is a test on draws that it has not seen. With many rows,
the way begins on a sample of them. Draws come in pairs ``eps, -eps`` whose second moments are those of ``N(0, I)``
exactly where there are as many pairs as coordinates, and coordinate by coordinate otherwise: the optimum for a normal
posterior is then exact. So the second number of draws has as many pairs, where that is below the third. With many
rows, where most posteriors are nearly normal, it is the last one if as many fresh draws leave the gradient as it is,
in 16 coordinates and more: in fewer, so few draws share a fourth moment below that of the normal distribution.

Coordinates are in units of the guide's present standard deviations, so that curvatures are near 1, and ``log sigma``
moves by at most ``_FAR`` before these units are renewed.

References:
    Giordano, Ingram and Broderick, "Black box variational inference with a deterministic objective: faster, more
    accurate, and even more black box", 2024, sections 2 and 3; Byrd, Lu, Nocedal and Zhu, "A limited memory algorithm
    for bound constrained optimization", 1995.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowvar.core.gaussian import MAX_DIM
from lowvar.core.keys import numpy_generator
from lowvar.vi.run.fit_run import Ended

ITERATIONS = 500  # the default number of them
_GROUP = 8  # draws evaluated at once
_BLOCK = 16  # chunks of rows in a block
_TILE = 2**18  # rows x coordinates of a step of a block
_DRAWS = (8, 32, 128, 512)
_WIDEST = 1024  # coordinates, up to which the last draws have as many pairs
_PASS, _WORK = 2**28, 2**32  # maximum of rows x coordinates, and of draws x rows x coordinates beyond the first draws
_ROUNDS, _LENGTH = 3, 50  # rounds for few draws, and iterations of each, between which units are renewed
_MANY = 128  # draws, from which on a round follows until one of them is the last
_FAR = 3.0  # the move of log sigma in a round
_CORRECTIONS = 20  # that L-BFGS remembers
# the gradient in units of the guide is the distance from the optimum, in standard deviations of a mean, or twice the
# relative error of a standard deviation, where coordinates are independent
_SLOPE, _GAIN = 0.02, 0.1  # the largest of an optimum; a round that gains fewer nats is the last,
_STEEP = 0.5  # unless its gradient is larger
_SAME = _SLOPE / 4  # the largest change of the gradient by fresh draws, from which on more draws are not needed
_SHRINKS = 4  # times that standard deviations are divided by 10, where the ELBO is not finite at new draws
_INFINITE = 1e30
# the first step along a point estimate, how often it grows tenfold, and the nats that it must be worth
_STEP, _STEPS, _SEEN = 1e-3, 12, 1e-2
_POINTS = 64  # point estimates, at most


_ROWS = {"jax": 2**22, "torch": 2**14}  # rows of ordinary width: above, stochastic steps; see docs/performance.md
_OWN = 2**20  # maximum of coordinates x chunks of rows, where rows have variables of their own


def refusal(problem) -> str:
    """Why the ELBO of a problem is not maximised at fixed draws, in words; nothing if it may be."""
    if problem.guide.name != "mean_field":
        return f"it is for the mean-field guide, and this one is {problem.guide.name or 'your own'}"
    if not problem.in_memory:
        return "the rows are in files"
    if problem.noiseless is not None and np.sum(problem.noiseless) > _POINTS:
        return f"it takes at most {_POINTS} entries of numpyro.param sites, and this model has more"
    rows, own = problem.rows_of_pass, problem.local is not None
    most = min(_ROWS[problem.backend.name], _PASS // problem.dim)
    if own:  # the gradient of a chunk of rows has the variables of all rows
        rows, most = problem.dim * len(problem.chunks["index"]), min(_OWN, _ROWS[problem.backend.name])
    return f"it takes at most {most} rows, and this model counts {rows}" if rows > most else ""


@dataclass(frozen=True)
class FixedDraws:
    """How a fit at fixed draws ended.

    Attributes:
        draws: number of the last draws.
        iterations: of L-BFGS.
        ended: why: ``converged``, ``budget`` (all iterations), ``stuck`` (L-BFGS finds no better point where the
            gradient is not zero), ``callback`` or ``interrupted`` (Ctrl-C).
        khat_samples: draws for k-hat, as given to ``fit``.
    """

    draws: int
    iterations: int
    ended: Ended = "budget"
    khat_samples: int | None = None


def matched_draws(key, draws: int, dim: int) -> np.ndarray:
    """Pairs ``eps, -eps`` with unit second moments, ``(draws, dim)``.

    With as many pairs as coordinates, these are those of all products of two coordinates: the matrix is the one with
    orthonormal columns nearest to scrambled Sobol points (or independent ones, where these are not known), times a
    constant.
    """
    from scipy.stats import norm, qmc

    random, pairs = numpy_generator(key), draws // 2
    if dim <= MAX_DIM and pairs.bit_count() == 1:
        half = norm.ppf(qmc.Sobol(dim, rng=random).random(pairs) + 2.0**-31)  # multiples of 2^-30, 0 too
    else:
        half = random.standard_normal((pairs, dim))
    if len(half) < dim:
        half /= np.sqrt((half**2).mean(axis=0))
    else:
        left, _, right = np.linalg.svd(half, full_matrices=False)
        half = np.sqrt(len(half)) * left @ right
    return np.concatenate([half, -half])


def _of_block(problem) -> Callable:
    """``(params, eps (S, dim), center (dim,), index, weight, share) -> (energy, {block: gradient})``.

    The mean over draws of ``-log p``, relative to that at ``center``, and its gradient: of the rows ``index (chunks,
    rows)`` with ``weight``, and a share of the prior. Differences by row keep the sum accurate in single precision.
    """
    backend, xp, guide = problem.backend, problem.backend.xp, problem.guide

    def function(params, eps, center, index, weight, share):
        def of_prior(z):
            return share * (problem.log_prior(center) - problem.log_prior(z))

        def of_draw(eps):
            z = guide.transform(params, eps)

            def add(total, chunk):
                index, weight = chunk

                def energy(z):
                    rows = problem.log_likelihood(center, index) - problem.log_likelihood(z, index)
                    return problem.N * xp.sum(weight * rows)

                value, gradient = backend.value_and_grad(energy)(z)
                return total[0] + value, total[1] + gradient

            value, gradient = backend.scan_or_loop(add, backend.value_and_grad(of_prior)(z), (index, weight))
            return value, guide.pull_back(params, eps, gradient)

        return backend.tree_map(lambda leaf: xp.mean(leaf, axis=0), backend.vmap(of_draw)(eps))

    return function


def _blocks_of(values: np.ndarray, size: int, shape: tuple[int, int, int]) -> np.ndarray:
    """``values`` in blocks of ``size``, each in steps: of ``shape (blocks, steps, rows)``, padded with zeros."""
    blocks, steps, rows = shape
    values = np.pad(values.ravel(), (0, blocks * size - values.size)).reshape(blocks, size)
    return np.pad(values, ((0, 0), (0, steps * rows - size))).reshape(shape)


class Objective:
    """The negative ELBO at fixed draws and its gradient in ``(mu, log sigma)``, NumPy in float64, nats.

    Args:
        problem: a problem in memory, with the mean-field guide.
        key: of the order of its rows.

    Attributes:
        blocks: row numbers and weights of blocks of rows, of which the first is a random sample.
        shares: the part of all rows that each block is.
    """

    def __init__(self, problem, key):
        self.problem, self._of_block = problem, problem.compiled(_of_block)
        self.free = np.ones(problem.dim, bool)
        if problem.noiseless is not None:
            self.free[np.asarray(problem.noiseless)] = False
        chunks = problem.backend.to_numpy(problem.chunks)
        index, weight = chunks["index"], chunks["weight"]
        count, rows = index.shape
        blocks = -(-count // _BLOCK)
        size = -(-count // blocks)
        steps = min(size, -(-size * rows * problem.dim // _TILE))
        if blocks > 1:  # the others ascend, as rows that lie side by side are read faster
            sample = numpy_generator(key).permutation(problem.N)[: size * rows]
            order = np.ones(problem.N, bool)
            order[sample] = False
            index = np.concatenate([np.sort(sample), np.flatnonzero(order)]).astype(index.dtype)[index]
        shape = (blocks, steps, -(-size * rows // steps))
        index, weight = (_blocks_of(part, size * rows, shape) for part in (index, weight))
        self.blocks = [tuple(map(problem.backend.asarray, block)) for block in zip(index, weight, strict=True)]
        self.shares = [float(part.sum(dtype=float)) for part in weight]
        self._center: Any = None

    def asarray(self, values):
        """An array of the problem's backend and type."""
        return self.problem.backend.asarray(np.asarray(values, self.problem.dtype))

    def center(self, mu: np.ndarray) -> None:
        """Values are relative to the energy at ``mu`` from now on."""
        self._center = self.asarray(mu)

    def __call__(self, mu, log_sigma, eps, blocks: int) -> tuple[float, np.ndarray, np.ndarray]:
        """Value and gradients at draws ``eps (S, dim)``, from the first ``blocks`` blocks, scaled to all rows."""
        backend, share = self.problem.backend, sum(self.shares[:blocks])
        params = {"mu": self.asarray(mu), "log_sigma": self.asarray(log_sigma)}
        draws = [self.asarray(eps[i : i + _GROUP]) for i in range(0, len(eps), _GROUP)]
        prior = [self.asarray(share if i == 0 else 0.0) for i in range(blocks)]
        found = [
            self._of_block(params, some, self._center, *self.blocks[i], prior[i])
            for i in range(blocks) for some in draws
        ]  # fmt: skip
        value, slopes = 0.0, np.zeros((2, len(mu)))
        for energy, gradient in map(backend.to_numpy, found):
            value += float(energy) / len(draws) / share
            slopes += np.stack([gradient["mu"], gradient["log_sigma"]]) / (len(draws) * share)
        slopes[1] = np.where(self.free, slopes[1] - 1, 0.0)
        return value - float(np.sum(log_sigma[self.free])), slopes[0], slopes[1]


def maximise(
    problem, start: dict[str, np.ndarray], num_steps: int, key: Callable[[str], Any],
    measure: Callable[[int, dict[str, np.ndarray]], bool], tick: Callable[[int], Any],
    halts: Callable[[], bool] = lambda: False,
) -> tuple[FixedDraws, np.ndarray | None] | None:  # fmt: skip
    """Maximises the ELBO from ``start``; the last parameters that ``measure`` was given are the result.

    Args:
        problem: in memory, with the mean-field guide.
        start: its parameters, ``{"mu": (dim,), "log_sigma": (dim,)}``.
        num_steps: the largest number of iterations.
        key: ``name -> JAX key``.
        measure: called with the number of iterations and the parameters, before the first one and after each number
            of draws; the fit ends if it returns True.
        tick: called with a number of iterations once they are done.
        halts: whether to end the fit after the present iteration.

    Returns:
        How it ended; and, of a fit that converged, the gradient at as many fresh draws, ``(2, dim)``: by the means, in
        the guide's standard deviations, and by ``log sigma``. None where the ELBO is finite for no guide.
    """
    objective = Objective(problem, key("rows"))
    free, dim, count = objective.free, problem.dim, len(objective.blocks)
    mu, log_sigma = (np.asarray(start[block], float) for block in ("mu", "log_sigma"))
    paired = -(-2 * dim // _GROUP) * _GROUP  # has as many pairs as coordinates
    numbers = [_DRAWS[0], paired if _DRAWS[1] < paired < _DRAWS[2] else _DRAWS[1], *_DRAWS[2:]]
    numbers += [paired] * (_DRAWS[-1] < paired <= 2 * _WIDEST)
    width = 1 if problem.local is not None else dim
    plan = [(_DRAWS[0], 1)] * (count > 1 and problem.local is None)  # variables of other rows would have no density
    plan += [(draws, count) for draws in numbers if draws <= max(_DRAWS[0], _WORK // (problem.rows_of_pass * width))]
    done, near, ended, resolution = 0, False, FixedDraws(0, 0), float(np.finfo(problem.dtype).eps)
    if measure(0, {"mu": mu, "log_sigma": log_sigma}):
        return replace(ended, ended="callback"), None
    for stage, (draws, blocks) in enumerate(plan):
        if done >= num_steps:
            break
        eps, rounds, shrinks, stuck, finished = matched_draws(key(f"draws {stage}"), draws, dim), 0, 0, 0, False
        tested, last = None, draws >= _MANY or stage == len(plan) - 1
        while not finished and done < num_steps and (rounds < _ROUNDS or last):
            center, middle, unit = mu, log_sigma, np.where(free, np.exp(log_sigma), 1.0)
            objective.center(center)
            if not free.all():
                unit = _units(objective, center, middle, eps, blocks, unit)

            def of(x, center=center, middle=middle, unit=unit, eps=eps, blocks=blocks):
                value, *slopes = objective(center + unit * x[:dim], middle + x[dim:], eps, blocks)
                slope = np.concatenate([unit * slopes[0], slopes[1]])
                return (value, slope) if np.isfinite(value) and np.isfinite(slope).all() else (_INFINITE, 0 * x)

            value, slope = of(np.zeros(2 * dim))
            if value == _INFINITE:
                if halts():
                    return replace(ended, ended="interrupted"), None
                if shrinks == _SHRINKS:
                    return None
                log_sigma, shrinks = np.where(free, log_sigma - np.log(10), log_sigma), shrinks + 1
                continue
            if rounds == 0 and draws >= _MANY and np.abs(slope).max() <= _SLOPE:  # at draws that it has not seen
                return FixedDraws(draws, done, "converged"), slope.reshape(2, dim)
            length = min(_LENGTH, num_steps - done)
            found = _round(of, (value, slope), length, tick, halts, near and rounds == 0, resolution)
            mu, log_sigma = center + unit * found.x[:dim], middle + found.x[dim:]
            done, rounds = done + int(found.nit), rounds + 1
            small = value - found.fun < _GAIN and (length == _LENGTH or found.nit < length)  # in a round of full length
            steep = np.abs(found.jac).max()
            finished, stuck = steep <= _SLOPE or (small and steep <= _STEEP), stuck + small
            if finished and not last and blocks > 1 and draws >= 2 * dim >= _DRAWS[1]:
                grown = np.exp(log_sigma - middle)
                end, other = found.jac * np.append(grown, np.ones(dim)), matched_draws(key(f"test {stage}"), draws, dim)
                _, *slopes = objective(mu, log_sigma, other, blocks)
                fresh = np.append(unit * grown * slopes[0], slopes[1])
                if np.abs(fresh).max() <= _SLOPE and np.abs(fresh - end).max() <= _SAME:
                    tested = fresh.reshape(2, dim)
            if halts() or stuck > 1:  # a search that fails again, in other units
                break
        near, complete = finished, finished and stage == len(plan) - 1
        moved, ended = done > ended.iterations, FixedDraws(draws, done, "converged" if complete else "budget")
        if moved and measure(done, {"mu": mu, "log_sigma": log_sigma}):
            return replace(ended, ended="callback"), None
        if halts():
            return replace(ended, ended="interrupted"), None
        if last and not finished:
            ended = replace(ended, ended="stuck" if done < num_steps else "budget")
            break
        if tested is not None:
            return replace(ended, ended="converged"), tested
    if ended.ended != "converged":
        return ended, None
    _, *slopes = objective(mu, log_sigma, matched_draws(key("fresh"), ended.draws, dim), count)
    return ended, np.stack([np.where(free, np.exp(log_sigma), 1.0) * slopes[0], slopes[1]])


def _units(objective, mu, log_sigma, eps, blocks: int, unit: np.ndarray) -> np.ndarray:
    """``unit`` with the lengths of point estimates, which have no standard deviation: ``1 / sqrt(curvature)``.

    The curvature along each coordinate is the difference of two gradients, over a step that grows until it is seen.
    """
    _, before, _ = objective(mu, log_sigma, eps, blocks)
    unit = unit.copy()
    for at in np.flatnonzero(~objective.free):
        step, change = _STEP * max(1.0, abs(mu[at])), 0.0
        for _ in range(_STEPS):
            moved = mu.copy()
            moved[at] += step
            _, after, _ = objective(moved, log_sigma, eps, blocks)
            change = after[at] - before[at]
            if not np.isfinite(change) or change * step > _SEEN:
                break
            step *= 10
        curvature = change / step
        if np.isfinite(curvature) and curvature > 0:
            unit[at] = min(1 / np.sqrt(curvature), step / _SEEN)
    return unit


class _Arrival(Exception):
    """A point whose gradient is nearly zero, within rounding of the best value."""


def _round(of, first: tuple[float, np.ndarray], length: int, tick, halts, near: bool, resolution: float):
    """At most ``length`` iterations of L-BFGS from zero, where ``of`` is ``first``; ``log sigma`` is within bounds.

    ``near`` an optimum, the first step is Newton's with the curvature of an independent normal posterior, in units of
    its standard deviations: 1 by a mean and 2 by ``log sigma``. ``resolution`` is the relative one of values.
    """
    from scipy.optimize import OptimizeResult, minimize

    dim, done, best = len(first[1]) // 2, 0, first[0]
    scale = np.ones(2 * dim)
    if near:  # L-BFGS begins with a step down the gradient of length 1 at most
        scale[dim:] = 0.5**0.5
        scale *= max(1.0, np.linalg.norm(scale * first[1]))

    def function(y):
        nonlocal best
        value, slope = of(scale * y) if y.any() else first
        if y.any() and np.abs(slope).max() <= _SLOPE / 2 and value <= best + _GAIN / 10:
            raise _Arrival(y, value, slope)
        best = min(best, value)
        return value, scale * slope

    def after(intermediate_result: OptimizeResult):
        nonlocal done
        done += 1
        tick(1)
        if halts():
            raise StopIteration

    options = {"maxiter": length, "maxcor": _CORRECTIONS, "gtol": 0.0, "ftol": max(1e-9, 2 * resolution)}
    bounds = [(None, None)] * dim + [(-_FAR / one, _FAR / one) for one in scale[dim:]]
    try:
        found = minimize(
            function, np.zeros(2 * dim), jac=True, method="L-BFGS-B", bounds=bounds, callback=after, options=options
        )
    except _Arrival as arrival:
        tick(1)
        y, value, slope = arrival.args
        return OptimizeResult(x=scale * y, fun=value, jac=slope, nit=done + 1)
    return OptimizeResult(x=scale * found.x, fun=found.fun, jac=found.jac / scale, nit=found.nit)
