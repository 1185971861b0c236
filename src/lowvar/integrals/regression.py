"""Least squares on functions of zero mean, with a constant for each task: the constants are the estimates."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from lowvar.integrals.base import HALF
from lowvar.integrals.monte_carlo import effective_size, student

ILL = 1e10  # condition numbers above this are worth a look at rounding
DEPENDENT = 1e-10  # length of what the columns before it leave of a column of length one: below, it depends on them
LEAST_FREEDOM = 1e-6  # of a row whose own value decides what is fitted to it
LEAST_OF_BLOCK = 0.1  # the same of rows of a chain that are left out together
DIRECT, STEPS = 60, 20  # unknowns up to which a singular value decomposition is cheap; power iterations for more
VAGUE = 1e-10  # length of what is left of a constant beside the features, relative, below which it means nothing


@dataclass(frozen=True)
class Regression:
    """A fit ``y = H beta + Z theta + noise`` of ``N`` data sets, for ``K`` integrands each.

    Attributes:
        beta: ``(N, T, K)``; NaN where the points are so few, or so alike, that features add up to a constant.
        error: standard errors of ``beta``, ``(N, T, K)``.
        half: half of 95 % intervals, ``(N, T, K)``.
        theta: ``(N, p, K)``.
        effective: what the rows of a task are worth, from the residuals' autocorrelations, ``(N, T, K)``.
        condition: 2-norm condition number of the design with columns of length one, ``(N,)``.
        ill: whether rounding may be as large as a standard error, ``(N,)``.
    """

    beta: np.ndarray
    error: np.ndarray
    half: np.ndarray
    theta: np.ndarray
    effective: np.ndarray
    condition: np.ndarray
    ill: np.ndarray


def regress(
    features: np.ndarray, member: np.ndarray, y: np.ndarray, chain: bool = False, shared: bool = False
) -> Regression:
    """Least squares, each task with the same weight: ``sum_t (1 / m_t) sum_j (y - beta_t - z . theta)^2``.

    By a QR decomposition whose last columns are the constants': what is left of them beside the features gives
    ``beta``, whether the features are independent or not. Residuals are no noise, they depend on the points as much as
    the features do, and are largest where the features are. Errors are therefore the jackknife's: each residual
    as if its row had been left out, times the row's weight in ``beta``. (With one residual variance for all rows,
    intervals at 95 % cover 70 to 90 %.) See ``jackknife``, also for chains.

    Args:
        features: ``Z (N, M, p)``, with ``M > p + T``.
        member: ``H (M, T)``, one where a row belongs to a task, else zero.
        y: ``(N, M, K)``.
        chain: rows of a task are successive states of a Markov chain.
        shared: row ``j`` of each task has the same point; then points are left out, and not rows.

    References:
        MacKinnon and White, "Some heteroskedasticity-consistent covariance matrix estimators with improved finite
        sample properties", 1985 (HC3).
    """
    sizes, width = member.sum(axis=0), features.shape[-1]
    weight = np.sqrt((member / sizes).sum(axis=1))[:, None]
    design = np.concatenate([features, np.broadcast_to(member, (len(features), *member.shape))], axis=-1)
    q, r, length, condition = decompose(weight * design, width)
    projected = q.mT @ (weight * y)
    solution = solve_upper(r, projected) / length.mT
    vague = np.abs(np.diagonal(r, axis1=1, axis2=2)[:, width:]) < VAGUE
    solution[:, width:][vague] = np.nan
    residual = y - q @ projected / weight
    inverse = solve_upper(r[:, width:, width:], q[:, :, width:].mT)
    influence = inverse / length[:, :, width:].mT * weight.T  # (N, T, M): beta = influence y
    if shared:
        effective = effective_sizes(residual, member, chain)
        error = np.sqrt(_by_point(q, influence, residual, member.shape[1]) * sizes[:, None] / effective)
        half = HALF * error
    else:
        error, half, effective = jackknife(residual, (q**2).sum(axis=2, keepdims=True), influence, member, chain)
    size = np.linalg.norm(y, axis=1).max(axis=1)[:, None]
    rounding = np.finfo(float).eps * condition[:, None] * np.linalg.norm(influence, axis=2) * size
    ill = ((condition > ILL) & (rounding[:, :, None] > error).any(axis=(1, 2))) | vague.any(axis=1)
    return Regression(solution[:, width:], error, half, solution[:, :width], effective, condition, ill)


def jackknife(
    residual: np.ndarray, leverage: np.ndarray, influence: np.ndarray, member: np.ndarray, chain: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard errors and half widths of estimates that are linear in the values, and what each task's rows are worth.

    Of independent rows, HC3: each residual as if its row had been left out. Successive rows of a chain depend on each
    other: those that together are worth one independent row are left out at once, their leverages taken for equal; and
    intervals are Student's ``t``, with the rows that carry the variance as degrees of freedom.

    Args:
        residual: ``(N, M, K)``.
        leverage: how much of its own value a row is fitted, ``(N, M, 1)``.
        influence: the estimates as functions of the values, ``(N, T, M)``.
        member: ``(M, T)``.
        chain: rows of a task are successive states of a Markov chain.

    Returns:
        ``(N, T, K)`` each.
    """
    effective, sizes = effective_sizes(residual, member, chain), member.sum(axis=0)[:, None]
    worth = sizes / effective
    blocks = member @ np.maximum(worth, 1.0) if chain else 1.0
    left_out = (residual / np.maximum(1 - leverage * blocks, LEAST_OF_BLOCK if chain else LEAST_FREEDOM)) ** 2
    square = influence**2
    error = np.sqrt(square @ (left_out * (member @ worth)))
    half = HALF * error
    if chain:
        largest = np.maximum(left_out.max(axis=1, keepdims=True), np.finfo(float).tiny)
        scaled = left_out / largest  # squares that cannot underflow
        carriers = (square @ scaled) ** 2 / np.maximum(square**2 @ scaled**2, np.finfo(float).tiny)
        half = half * student(carriers / np.maximum(worth, 1.0) - 1)
    return error, half, effective


def decompose(design: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``Q``, ``R``, the lengths of the columns ``(N, 1, p)``, and the condition number of ``design (N, M, p)``.

    ``R`` is of columns of length one. Where one of the first ``features`` columns depends on those before it, its
    diagonal is infinite, so that the solution is zero there, and its column of ``Q`` is zero: its direction would be
    rounding, normalised, and the fit would follow it.
    """
    length = np.linalg.norm(design, axis=1, keepdims=True)
    least = np.zeros_like(length)  # a feature shorter than this is rounding, of terms that cancel
    if features:
        least[:, :, :features] = DEPENDENT * length[:, :, :features].max(axis=2, keepdims=True)
    length = np.where(length > least, length, np.inf)
    unit = design / length
    q, r = np.linalg.qr(unit)
    diagonal = np.abs(np.diagonal(r, axis1=1, axis2=2))
    for n in np.flatnonzero((diagonal[:, :features] < DEPENDENT).any(axis=1)):
        q[n], r[n] = _without_dependent(unit[n], features)
    at = np.arange(r.shape[-1])
    dependent = ~np.any(q, axis=1)
    dependent[:, features:] = False
    r[:, at, at] = np.where(dependent, 1.0, np.where(r[:, at, at] == 0, np.finfo(float).tiny, r[:, at, at]))
    condition = _condition(r)  # of the columns that are fitted
    r[:, at, at] = np.where(dependent, np.inf, r[:, at, at])
    return q, r, length, condition


def _without_dependent(design: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray]:
    """``Q`` and ``R`` of columns of length one, ``(M, p)``; zero for features that depend on those before them.

    By Gram and Schmidt's procedure, each column twice, which leaves columns orthogonal to rounding.

    References:
        Giraud, Langou and Rozloznik, "The loss of orthogonality in the Gram-Schmidt orthogonalization process", 2005.
    """
    q, r = np.zeros_like(design), np.zeros((design.shape[1],) * 2)
    for j, column in enumerate(design.T):
        rest = column.copy()
        for _ in range(2):
            along = q[:, :j].T @ rest
            rest -= q[:, :j] @ along
            r[:j, j] += along
        size = np.linalg.norm(rest)
        if size >= (DEPENDENT if j < features else np.finfo(float).tiny):
            q[:, j], r[j, j] = rest / size, size
    return q, r


def solve_upper(r: np.ndarray, right: np.ndarray, transposed: bool = False) -> np.ndarray:
    """``x`` of ``r x = right`` or ``r^T x = right``, for upper triangles ``r (N, p, p)`` and ``right (N, p, K)``."""
    pairs = zip(r, right, strict=True)
    return np.stack([scipy.linalg.solve_triangular(one, of, int(transposed), check_finite=False) for one, of in pairs])


def _condition(r: np.ndarray) -> np.ndarray:
    """2-norm condition numbers of triangles ``(N, p, p)``, large ones by power iterations: within a few per cent."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if r.shape[-1] <= DIRECT:
            singular = np.linalg.svd(r, compute_uv=False)
            return singular[:, 0] / singular[:, -1]
        longest = shortest = np.ones_like(r[:, :, :1])
        for _ in range(STEPS):
            longest = _unit(r.mT @ (r @ longest))
            shortest = _unit(solve_upper(r, solve_upper(r, shortest, transposed=True)))
        found = np.linalg.norm(r @ longest, axis=1) / np.linalg.norm(r @ shortest, axis=1)
    return np.where(np.isfinite(found[:, 0]), found[:, 0], np.inf)


def _unit(columns: np.ndarray) -> np.ndarray:
    """Columns ``(N, p, 1)`` of length one."""
    return columns / np.linalg.norm(columns, axis=1, keepdims=True)


def _by_point(q: np.ndarray, influence: np.ndarray, residual: np.ndarray, tasks: int) -> np.ndarray:
    """The jackknife's squared errors ``(N, T, K)``, where ``tasks`` rows belong to each point and are left out at once.

    Of ``q (N, T m, p + T)``, ``influence (N, T, T m)`` and ``residual (N, T m, K)``.
    """
    rows, left = (of.reshape(len(of), tasks, -1, of.shape[2]).swapaxes(1, 2) for of in (q, residual))  # (N, m, T, ..)
    freedom = (1 + LEAST_FREEDOM) * np.eye(tasks) - rows @ rows.mT
    pulls = influence.reshape(len(influence), tasks, tasks, -1)
    moved = np.einsum("ntsm,nmsk->ntmk", pulls, np.linalg.solve(freedom, left), optimize=True)
    return (moved**2).sum(axis=2)


def effective_sizes(residual: np.ndarray, member: np.ndarray, chain: bool) -> np.ndarray:
    """Effective sizes of the rows of each task, ``(N, T, K)``: their number, or less (or more) along a chain."""
    if not chain:
        shape = len(residual), member.shape[1], residual.shape[2]
        return np.broadcast_to(member.sum(axis=0)[None, :, None], shape)
    return np.stack([effective_size(residual[:, rows]) for rows in member.T > 0], axis=1)


def regress_long_run(features: np.ndarray, y: np.ndarray, lags: int) -> Regression:
    """``theta`` of least long-run variance, and the mean of the residuals.

    The objective is ``sum_ij w(i - j) e_i e_j`` of the centred residuals ``e``, with Bartlett's weights
    ``w(s) = 1 - |s| / (lags + 1)``: generalised least squares with a banded Toeplitz matrix. It equals
    ``1 / (lags + 1)`` times the sum of squares of all sums of ``lags + 1`` successive residuals (fewer at the ends),
    so that a least-squares fit to moving sums solves it.

    Appendix A.1 adds all autocovariances with weight one, up to lag ``m - 1``. Of residuals centred at their own mean
    these add up to ``(sum_j e_j)^2 / m = 0``: with ``beta`` the mean, every ``theta`` minimises that objective, which
    needs the truncation.

    Args:
        features: ``Z (N, m, p)``, rows in the order of the chain.
        y: ``(N, m, K)``.
        lags: the last lag with a weight, 0 for ordinary least squares.

    References:
        Sun, Barp and Briol, Appendix A.1; Newey and West, "A simple, positive semi-definite, heteroskedasticity and
        autocorrelation consistent covariance matrix", 1987.
    """
    m = features.shape[1]
    mean, mean_y = features.mean(axis=1, keepdims=True), y.mean(axis=1, keepdims=True)
    q, r, length, condition = decompose(moving_sums(features - mean, lags), features.shape[2])
    pull = moving_sums(q, lags)[:, lags : lags + m]  # moving sums, transposed
    pull = pull - pull.mean(axis=1, keepdims=True)
    theta = solve_upper(r, pull.mT @ (y - mean_y)) / length.mT
    beta = mean_y - mean @ theta
    whitened = solve_upper(r, (features / length).mT, transposed=True).mT
    influence = 1 / m - pull @ whitened.mean(axis=1)[:, :, None]  # beta = influence' y
    residual = y - beta - features @ theta
    leverage = influence + (whitened * pull).sum(axis=2, keepdims=True)
    error, half, effective = jackknife(residual, leverage, influence.mT, np.ones_like(y[0, :, :1]), True)
    return Regression(beta, error, half, theta, effective, condition, condition > ILL)


def moving_sums(series: np.ndarray, lags: int) -> np.ndarray:
    """Sums of ``lags + 1`` successive rows, fewer at the ends: ``(N, m, K) -> (N, m + lags, K)``."""
    m = series.shape[1]
    total = np.pad(series.cumsum(axis=1), ((0, 0), (1, 0), (0, 0)))
    end = np.arange(1, m + lags + 1)
    return total[:, np.minimum(end, m)] - total[:, np.maximum(end - lags - 1, 0)]
