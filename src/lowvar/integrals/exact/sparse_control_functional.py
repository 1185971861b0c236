"""Control functionals for many points: a kernel's functions around some of them, by regularised least squares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lowvar.errors import UserError, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, of_last_points, side_by_side
from lowvar.integrals.exact.kernel_fit import learn, space_of
from lowvar.integrals.exact.reml import CHUNK, Hyper, plus_diagonal
from lowvar.integrals.exact.settings import FitSettings, check_memory, check_sizes
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.regression import LEAST_FREEDOM
from lowvar.integrals.stacked import Stacked, cholesky, solve_lower, stack

JITTERS = 1e-11, 1e-9, 1e-7, 1e-5  # that are tried on the diagonal of a kernel matrix, relative
PENALTIES = -10, 2, 25  # powers of ten of the least and the largest, and the number of those that are tried
LEAST = 1e-10  # leave-one-out residual variance
COLUMNS = 20  # with more tasks lengthscales are learnt from some of them
FOR_EACH = 10  # points for each function: the error of their weights then adds a tenth to the variance, at most
LEARN = 200  # points that lengthscales are learnt from


def sparse_control_functional(
    kernel: str | Kernel = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    inducing: int = 500,
    ard: bool | None = None,
    standardise: bool = True,
    operator: int = 1,
    steps: int = 200,
    max_gigabytes: float = 4.0,
) -> Integrator:
    """``f = beta + g``, ``g`` in the span of the Stein kernel around ``n`` of the ``m`` points, in ``O(m n^2)``.

    With ``Phi = K_mn K_nn^(-1/2)`` it minimises ``|y - beta - Phi w|^2 + lambda |w|^2``, whose penalty is the kernel's
    own norm of ``g``: the subset of regressors of Gaussian processes, and of ``control_functional`` if all points are
    inducing. Lengthscales and the weight of the additive quadratic trend are learnt by REML from some of the points,
    ``lambda`` from all, task by task, by leaving each value out. Tasks with the same points share the
    lengthscales.

    Args:
        inducing: ``n``, spread evenly over the points in their order.
        ard: one lengthscale for each input; where there are at most 30 of them, if not given.
        kernel: as of ``control_functional``, and so are the options that are not listed here.

    Returns:
        An integrator. Of its ``info``, ``lengthscale`` is ``(R, T, d)`` and ``penalty (R, T)``, relative. The standard
        error heeds the jackknife, of independent points, and the process, up to Monte Carlo's error.

    Raises:
        UserError: an option is unknown or out of range; while integrating, too few points or too many.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017; South, Karvonen, Nemeth,
        Girolami and Oates, "Semi-exact control functionals from Sard's method", 2022, section 3.4 (Nystroem); Quinonero
        Candela and Rasmussen, "A unifying view of sparse approximate Gaussian process regression", 2005.
    """
    whole("inducing", inducing, 3)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_sizes(samples)
        each = samples.dim <= 30 if ard is None else ard
        chosen = FitSettings(
            kernel=kernel, kernel_options=kernel_options, ard=each, standardise=standardise, operator=operator,
            trend=True, steps=steps, max_gigabytes=max_gigabytes,
        )  # fmt: skip
        if samples.shared:
            return around_some(samples, chosen, inducing)
        each_alone = (around_some(samples.of_tasks([t]), chosen, inducing) for t in range(samples.tasks))
        return side_by_side([replace(one, info={k: of[:, 0] for k, of in one.info.items()}) for one in each_alone])

    properties = IntegralProperties(exact_on="constants", interpolates=True, most=FOR_EACH * inducing)
    return Integrator("sparse_control_functional", properties, integrate)


def around_some(samples: Samples, chosen: FitSettings, inducing: int) -> Integrals:
    """All tasks of one set of points, with functions around ``inducing`` of them."""
    m = samples.sizes[0]
    check_memory(int((m * min(m, inducing)) ** 0.5), chosen.max_gigabytes, "give fewer points, or fewer inducing ones")
    data = stack(samples, chosen.standardise, shared=True)
    some = data.thin(LEARN)
    space = space_of(some, chosen, np.ones_like(data.y[:, :1, :1]), False)
    hyper, _ = learn(chosen.covariance, some.columns(COLUMNS), space, chosen.steps)
    centres = data.thin(inducing)
    found, fits, amplitude = [], [], _amplitude(chosen, some, hyper)

    def cross(r: int, x: np.ndarray, scores: np.ndarray):
        """Kernels of repetition ``r`` between the centres and points ``(m, d)``, some points at a time, and which."""
        params, at = hyper.pick(slice(r, r + 1)).kernel, centres.pick(slice(r, r + 1))
        for first in range(0, len(x), max(1, CHUNK // centres.rows)):
            some = slice(first, first + max(1, CHUNK // centres.rows))
            yield some, chosen.covariance.between(params, at.x, x[None, some], at.scores, scores[None, some])[0]

    for r in range(data.repetitions):
        square = np.concatenate([part for _, part in cross(r, centres.x[r], centres.scores[r])], axis=1)
        level = square.diagonal().mean()
        factor = np.sqrt(level) * root(square)[None]
        phi = np.empty((centres.rows, m))
        for rows, part in cross(r, data.x[r], data.scores[r]):
            phi[:, rows] = solve_lower(factor, part[None])[0]
        mean = phi.mean(1)
        beta, error, weights, penalty, condition, (v, kept, noise) = ridge(phi, data.y[r])
        fits.append(solve_lower(factor, weights[None], transposed=True)[0])
        # of the process, whose covariance is Phi Phi' + noise: 1 / (1' M^-1 1)
        variance = noise * (1 / m + (kept * ((v.T @ mean) ** 2)[:, None]).sum(0))
        # Few points give its amplitude. More than Monte Carlo's variance, of values with deviation 1, says that
        # the process does not suit the integrand, and nothing of the error.
        error = np.sqrt(error**2 + np.minimum(variance * amplitude[r] * level, 1 / m))
        found.append((beta, error, condition, penalty))
    values, errors, conditions, penalties = map(np.stack, zip(*found, strict=True))

    def all_tasks(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Fitted functions without their constants, ``(R, T, n)``."""
        x, lx = data.points(points, scores)
        parts = [[weights.T @ part for _, part in cross(r, x[r], lx[r])] for r, weights in enumerate(fits)]
        return np.stack([np.concatenate(one, axis=1) for one in parts])

    there = of_last_points(all_tasks)

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        fit = values[:, task, None] + there(points, scores)[:, task]
        return data.y_shift[:, task, None] + data.y_scale[:, task, None] * fit

    lengthscale = (np.exp(hyper.kernel["log_lengthscale"]) * data.x_scale)[:, None]
    return Integrals(
        data.y_shift + data.y_scale * values,
        data.y_scale * errors,
        conditions,
        info={"lengthscale": np.repeat(lengthscale, data.tasks, axis=1), "penalty": penalties},
        fitted=fitted,
    )


def ridge(phi: np.ndarray, y: np.ndarray):
    """Constants, their errors, weights ``(n, T)``, penalties and a condition number, for features ``(n, m)``.

    The features are centred in place: with many points they fill the memory.
    """
    m = y.shape[0]
    mean = phi.mean(1)
    phi -= mean[:, None]
    y = y - y.mean(0)  # values are centred already, up to rounding
    s, v = np.linalg.eigh(phi @ phi.T)
    s = np.maximum(s, 0)
    pull = v.T @ (phi @ y)
    penalties = np.logspace(*PENALTIES) * max(s.max(), 1e-300)
    kept = 1 / (s[:, None] + penalties)  # (n, p)
    # the values left out one by one: generalised cross-validation takes all leverages for alike, and those of points
    # with large scores are far above the mean, so that it would follow every value of an integrand with a jump
    square = v.T @ phi  # (n, m)
    square *= square
    free = np.maximum(1 - 1 / m - square.T @ kept, LEAST)  # (m, p)
    residuals = (y[:, t, None] - phi.T @ (v @ (kept * pull[:, t, None])) for t in range(y.shape[1]))  # (m, p) each
    best = np.stack([((one / free) ** 2).sum(0) for one in residuals]).argmin(1)
    shrunk = kept[:, best]  # (n, T)
    weights = v @ (shrunk * pull)
    beta = -mean @ weights
    residual = y - phi.T @ weights
    influence = 1 / m - phi.T @ (v @ (shrunk * (v.T @ mean)[:, None]))  # beta = influence' y
    leverage = 1 / m + square.T @ shrunk
    left_out = residual / np.maximum(1 - leverage, LEAST_FREEDOM)
    error = np.linalg.norm(influence * left_out, axis=0)
    condition = (s.max() + penalties[best].min()) / (s.min() + penalties[best].min())
    relative = penalties[best] / max(s.max(), 1e-300)
    return beta, error, weights, relative, condition, (v, shrunk, penalties[best])


def root(matrix: np.ndarray) -> np.ndarray:
    """A Cholesky factor ``(n, n)``, with as little on the diagonal as it takes, relative to each entry of it.

    Raises:
        UserError: there is none.
    """
    scale = np.sqrt(np.maximum(matrix.diagonal(), np.finfo(float).tiny))
    unit = matrix / scale[:, None] / scale
    for jitter in JITTERS:
        factor, failed = cholesky((unit + jitter * np.eye(len(unit)))[None])
        if not failed[0]:
            return scale[:, None] * factor[0]
    raise UserError(
        "sparse_control_functional: the kernel matrix has no Cholesky factor: the scores are too unlike in size"
    )


def _amplitude(chosen: FitSettings, data: Stacked, hyper: Hyper) -> np.ndarray:
    """Amplitudes of the process, ``(R, T)``, by REML from the points that lengthscales were learnt from."""
    matrix, level = chosen.covariance.gram(data, hyper)
    factor = np.stack([root(one) for one in plus_diagonal(matrix, (hyper.nugget * level)[:, None])])
    constants = np.broadcast_to(data.member, (len(matrix), *data.member.shape))
    half = solve_lower(factor, np.concatenate([constants, data.y], axis=2))
    one, rest = half[:, :, :1], half[:, :, 1:]
    rest = rest - one * ((one * rest).sum(1, keepdims=True) / (one * one).sum(1, keepdims=True))
    return (rest * rest).sum(1) / (data.rows - 1)
