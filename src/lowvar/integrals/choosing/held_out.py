"""Standard errors from held-out residuals, and for regions where no sample fell, of which residuals say nothing."""

from dataclasses import dataclass, replace

import numpy as np

from lowvar.integrals.base import Integrals
from lowvar.integrals.choosing.cross_fitting import CrossFit
from lowvar.integrals.choosing.tails import Average, average, worth_of_chain
from lowvar.integrals.monte_carlo import student
from lowvar.integrals.samples import Samples

EXACT = 1e-9  # of the integrand's largest deviation: a residual that is rounding
MOST = 1e-4  # a residual above this share of the largest deviation is never taken for rounding
# Nothing of a region of probability p is seen by m samples with probability (1 - p)^m, below 5 % if p > 3 / m: the rule
# of three for an interval. For a standard error half of it, so that 1.96 of them are as wide.
REGION, REGION_ERROR = 3.0, 1.5
GAIN = 0.35  # of Monte Carlo's standard error: what is below pays, however few terms carry it


@dataclass(frozen=True)
class Verdict:
    """Of a candidate, ``(R, T)`` each.

    Attributes:
        value: the estimates.
        seen: half of the interval from held-out values alone, by which candidates are compared; infinite where the
            candidate does not pay.
        standard_error: to state.
        half_width: to state, of 95 % intervals.
        carriers: how many held-out residuals carry their variance; infinite where all are rounding.
    """

    value: np.ndarray
    seen: np.ndarray
    standard_error: np.ndarray
    half_width: np.ndarray
    carriers: np.ndarray


def each(averages: list[Average], name: str) -> np.ndarray:
    """An attribute of the averages of all tasks, ``(R, T)``."""
    return np.stack([getattr(one, name) for one in averages], axis=1)


def floor(plain: list[Average], rounding: np.ndarray) -> np.ndarray:
    """What no error can be below, ``(R, T)``: the rounding of the largest value."""
    return rounding * (np.abs(each(plain, "mean")) + each(plain, "largest"))


def negligible(plain: list[Average], rounding: np.ndarray) -> np.ndarray:
    """Residuals that are no larger than this may be rounding alone, ``(R, T)``."""
    largest = each(plain, "largest")
    return np.maximum(EXACT * largest, np.minimum(floor(plain, rounding), MOST * largest))


def unseen(plain: list[Average]) -> np.ndarray:
    """The error from a region that is worth one sample and holds none, ``(R, T)``.

    However well the samples are predicted, the integrand may leave the fit where none fell: a cap, a loss that turns
    linear, a payoff. It is taken to leave it at the largest value seen, and to differ by the mean excess from there on;
    which is known as well as from the terms that carry the variance, hence Student's ``t``.
    """
    return each(plain, "beyond") / each(plain, "effective") * student(each(plain, "carriers") - 1)


def may_jump(half: np.ndarray, plain: list[Average]) -> np.ndarray:
    """Whether intervals are too narrow for a jump where no point fell, ``(R, T)``.

    In a region that is worth one sample and holds none, an integrand may also drop from its largest value, and what
    the fit expects beyond it, to its mean: a truncated moment, a payoff with a barrier.

    Args:
        half: half widths ``(R, T)``.
        plain: the averages of the values, by task.
    """
    return half < REGION * (each(plain, "largest") + each(plain, "beyond")) / each(plain, "effective")


def widened(
    error: np.ndarray, half: np.ndarray, plain: list[Average], region: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and half widths with unseen regions, ``(R, T)``; these alone make none larger than Monte Carlo's.

    Args:
        error: standard errors ``(R, T)``.
        half: half widths ``(R, T)``.
        plain: the averages of the values, by task.
        region: of ``unseen``, or zero.
    """
    wide = np.hypot(error, REGION_ERROR * region), np.hypot(half, REGION * region)
    most = each(plain, "plain_error"), each(plain, "half_width")
    least = error, half
    stated = [np.maximum(own, np.minimum(more, top)) for own, more, top in zip(least, wide, most, strict=True)]
    return stated[0], stated[1]


def with_unseen(result: Integrals, samples: Samples, polynomial: bool = False) -> Integrals:
    """The same estimates, with errors for regions without points, and a flag where a jump there is not included.

    Args:
        result: of a method that does not know of such regions.
        samples: that it was given.
        polynomial: see ``judge``; the method is then taken to be exact for its integrands.
    """
    plain = [
        average(values, worth_of_chain(points) if samples.chain else None)
        for values, points in zip(samples.values, samples.points, strict=True)
    ]
    region = np.zeros_like(result.value) if polynomial else unseen(plain)
    error, half = widened(result.standard_error, result.half, plain, region)
    flags = {**result.flags, "may_jump": np.logical_and(may_jump(half, plain), not polynomial).any(axis=1)}
    return replace(result, standard_error=error, half_width=half, flags=flags)


def judge(
    fit: CrossFit, plain: list[Average], worths: list, one_fit: bool, rounding: np.ndarray, polynomial: bool = False
) -> Verdict:
    """The estimates of a candidate, with standard errors from held-out residuals.

    Args:
        fit: of a candidate.
        plain: the averages of the values, by task.
        worths: what the points of each task are worth, see ``average``.
        one_fit: the values of all tasks made one fit, so that the relative error of the worst task counts for each.
        rounding: ``(R, T)``, see ``Samples``.
        polynomial: the integrands are known to be polynomials: what is predicted to rounding is known everywhere.
    """
    held_out = [average(corrected, worth) for corrected, worth in zip(fit.corrected, worths, strict=True)]
    own, least = unseen(held_out), floor(plain, rounding)
    error = np.maximum(np.hypot(each(held_out, "plain_error"), REGION_ERROR * own), least)
    half = np.maximum(np.hypot(each(held_out, "half_width"), REGION * own), least)
    if one_fit:
        unit = np.maximum(each(plain, "plain_error"), 1e-300)
        error, half = ((of / unit).max(axis=1, keepdims=True) * unit for of in (error, half))
    exact = each(held_out, "largest") <= negligible(plain, rounding)
    region = np.where(exact & polynomial, 0.0, unseen(plain))
    # variances are known up to a relative error of sqrt(2 / carriers): a gain must be seen through it
    pays = np.where(exact, 1.0, np.maximum(1 - np.sqrt(2 / each(plain, "carriers")), GAIN))
    seen = np.where(half < pays * each(plain, "half_width"), half, np.inf)
    few = np.where(exact, np.inf, each(held_out, "carriers"))
    return Verdict(each(held_out, "mean"), seen, *widened(error, half, plain, region), few)
