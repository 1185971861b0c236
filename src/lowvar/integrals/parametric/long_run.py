"""Least squares for the variance of an average along a Markov chain."""

import numpy as np

from lowvar.integrals.parametric.regression import ILL, Regression, decompose, jackknife, solve_upper


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
