"""What held-out residuals say of an estimate: how far to believe a standard error."""

import numpy as np
import scipy.stats

from lowvar.estimators.integral.choosing.cross_fitting import CrossFit
from lowvar.estimators.integral.choosing.tails import Average, average

ENOUGH = 20.0  # terms that must carry a variance for it to be believed, or as many as carry Monte Carlo's
UNLIKELY = 0.03  # the chance of a largest residual of a process, above which it is believed
EXACT = 1e-9  # of the integrand's largest deviation: a residual that is rounding
MOST = 1e-4  # a residual above this share of the largest deviation is never taken for rounding
MIXES = 0.25  # of a chain's states: what it must be worth for its held-out blocks to be like independent points
# what regions without samples weigh, in samples: where many carry the variance, where the process is likely, and where
# neither holds or the integrand itself has a heavy tail
UNSEEN = 0.5, 1.0, 2.0
GAIN = 0.35  # of Monte Carlo's standard error: what is below pays, however few terms carry it


def floor(plain: list[Average], rounding: np.ndarray) -> np.ndarray:
    """What no error can be below, ``(R, T)``: the rounding of the largest value."""
    return rounding * np.stack([np.abs(raw.mean) + raw.largest for raw in plain], axis=1)


def negligible(plain: list[Average], rounding: np.ndarray) -> np.ndarray:
    """Residuals that are no larger than this may be rounding alone, ``(R, T)``."""
    largest = np.stack([raw.largest for raw in plain], axis=1)
    return np.maximum(EXACT * largest, np.minimum(floor(plain, rounding), MOST * largest))


def judge(
    fit: CrossFit, plain: list[Average], worths: list, one_fit: bool, rounding: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The estimates; their held-out errors, infinite where they do not pay; and the errors to state, ``(R, T)`` each.

    Args:
        fit: of a candidate.
        plain: the averages of the values, by task.
        worths: what the points of each task are worth, see ``average``.
        one_fit: the values of all tasks made one fit, so that the relative error of the worst task counts for each.
        rounding: ``(R, T)``, see ``Samples``.
    """
    held_out = [average(corrected, worth) for corrected, worth in zip(fit.corrected, worths, strict=True)]
    error = np.stack([np.hypot(left.error, left.largest / left.effective) for left in held_out], axis=1)
    error = np.maximum(np.maximum(error, fit.model_error), floor(plain, rounding))
    to_rounding = negligible(plain, rounding)
    if one_fit:
        unit = np.stack([np.maximum(raw.plain_error, 1e-300) for raw in plain], axis=1)
        error = (error / unit).max(axis=1, keepdims=True) * unit
    stated = error.copy()
    for t, (raw, left) in enumerate(zip(plain, held_out, strict=True)):
        carriers = np.minimum(left.carriers, raw.carriers)
        carried = left.carriers >= np.minimum(ENOUGH, raw.carriers)
        m = fit.corrected[t].shape[1]
        likely = (fit.farthest[:, t] <= scipy.stats.norm.isf(UNLIKELY / m)) & (raw.effective >= MIXES * m)
        exact = left.largest <= to_rounding[:, t]
        heavy = raw.carriers < ENOUGH
        weight = np.select([exact, heavy, carried, likely], [0.0, UNSEEN[2], *UNSEEN[:2]], UNSEEN[2])
        unseen = np.hypot(error[:, t], weight * raw.largest / raw.effective)
        stated[:, t] = np.maximum(error[:, t], np.minimum(unseen, raw.error))
        # variances are known up to a relative error of sqrt(2 / carriers): a gain must be seen through it
        pays = np.where(exact, 1.0, np.maximum(1 - np.sqrt(2 / carriers), GAIN))
        seen = np.where(carried | likely, error[:, t], stated[:, t]) < pays * raw.error
        error[:, t] = np.where(seen, error[:, t], np.inf)
    return np.stack([left.mean for left in held_out], axis=1), error, stated
