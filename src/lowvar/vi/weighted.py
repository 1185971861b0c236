"""Moments by importance weights beside those of the draws: which printed number a normal distribution has wrong.

The weights are those of draws from the distribution whose moments are printed, so that the ratio of a standard
deviation to the printed one has the error of the weights alone: where they are equal, none. It is taken entry by entry,
of the sites as they are printed: a scale or a number of degrees of freedom may be off where its logarithm is not.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from lowvar.vi.judgement import effective_share, khat, khat_limit, reliable, smoothed_weights

GROUPS = 64  # of draws, for standard errors
# a note reports means that are farther off, in standard deviations, and standard deviations that are off by a larger
# factor, of which the weights are sure: with this chance of a false one, of all entries;
_OFF, _TIMES, _CHANCE = 0.25, 1.1, 0.01
_UNSURE, _ERRORS = 1.15, 2  # or standard deviations that may be off by a larger factor within so many standard errors
# weights with a k-hat above its limit still tell a standard deviation that is surely off, if more draws are effective:
# their tail may hardly matter to an entry, as the left tail of the logit of a rare event's probability
_HALF = 0.5


class Weighted(NamedTuple):
    """Moments of ``K`` functions by importance weights of draws, beside those of the draws.

    Attributes:
        khat: of the weights.
        good: whether they are reliable.
        draws: their number.
        effective: the share of them that is effective.
        sd: standard deviations, ``(K,)``.
        sd_se: relative standard error of ``sd``.
        ratio: ``sd`` over the standard deviation of the draws.
        ratio_se: relative standard error of ``ratio``.
        off: the mean minus that of the draws, in standard deviations of the draws.
        off_se: standard error of ``off``.
    """

    khat: float
    good: bool
    draws: int
    effective: float
    sd: np.ndarray
    sd_se: np.ndarray
    ratio: np.ndarray
    ratio_se: np.ndarray
    off: np.ndarray
    off_se: np.ndarray


def shares(weights: np.ndarray, k: float) -> np.ndarray:
    """Importance weights ``(S,)`` that sum to 1, from their logarithms with this k-hat.

    They are smoothed where k-hat is below its limit. Where it is above, they are reliable only if they are nearly
    equal: then the largest are no tail of a Pareto distribution, and its order statistics would be far too large.
    """
    if k <= khat_limit(len(weights)):
        return smoothed_weights(weights)
    raw = np.exp(np.asarray(weights, float) - np.max(weights))
    return raw / raw.sum()


@np.errstate(invalid="ignore", divide="ignore")  # of constants, and of functions that are not finite
def weighted(weights: np.ndarray, parts: Iterable[np.ndarray]) -> Weighted:
    """The moments of functions; not numbers where weights are none.

    Args:
        weights: logarithms of groups of independent draws, ``(GROUPS, n)``.
        parts: values of the functions at the draws of each group, ``(n, K)``.
    """
    flat, groups, center = weights.ravel(), len(weights), 0.0
    k, sums = khat(flat), []
    share = (np.full(len(flat), np.nan) if k == np.inf else shares(flat, k)).reshape(weights.shape)
    for i, (one, x) in enumerate(zip(share, parts, strict=True)):
        center = x.mean(0) if i == 0 else center  # sums of squares about it
        x = x - center
        sums.append((one @ x, one @ x**2, x.mean(0) / groups, (x**2).mean(0) / groups))
    first, second, plain, square = np.stack([np.stack(one) for one in zip(*sums, strict=True)])
    total = share.sum(1)[:, None]
    mean, there = first.sum(0), plain.sum(0)
    var, own = (np.maximum(a - b**2, 0) for a, b in ((second.sum(0), mean), (square.sum(0), there)))
    # the groups' shares in each moment, by its first derivatives; they sum to 0
    of_sd = ((second - 2 * mean * first + mean**2 * total) / var - total) / 2
    of_own = ((square - 2 * there * plain + there**2 / groups) / own - 1 / groups) / 2
    of_off = (first - mean * total - plain + there / groups) / np.sqrt(own)
    errors = [np.sqrt((one**2).sum(0) * groups / (groups - 1)) for one in (of_sd, of_sd - of_own, of_off)]
    ratio, off = np.sqrt(var / own), (mean - there) / np.sqrt(own)
    good, effective = k < np.inf and reliable(k, flat), effective_share(flat)
    return Weighted(k, good, len(flat), effective, np.sqrt(var), errors[0], ratio, errors[1], off, errors[2])


def doubt(names: Sequence[str], found: Weighted, *, known: bool = False) -> str:
    """What is wrong with the moments of draws by their importance weights, in words; nothing if they are right.

    Args:
        names: of the functions.
        found: their moments.
        known: whether a k-hat above its limit is no news; an entry that is surely off is.
    """
    with np.errstate(divide="ignore"):  # of a function that varies only where the posterior is zero; it has no error
        sure, log = _quantile(len(names)), np.abs(np.log(found.ratio))
    of_sd = np.where((log > np.log(_TIMES)) & ~(log <= sure * found.ratio_se), log, 0.0)
    wrong = ""
    if of_sd.max(initial=0.0) > 0:
        worst = int(of_sd.argmax())
        wrong = f"the standard deviation of {names[worst]} is {found.ratio[worst]:.3g} times the printed one"
    if not found.good:
        above = f"k-hat {found.khat:.2f} is above {khat_limit(found.draws):.2g}"
        if wrong and found.effective > _HALF:
            return f"{above}, and by importance weights {wrong}"
        return "" if known else above
    of_mean = np.abs(found.off)
    of_mean = np.where((of_mean > _OFF) & (of_mean > sure * found.off_se), of_mean, 0.0)
    unsure = np.nan_to_num(log + _ERRORS * found.ratio_se)
    if wrong:
        return f"by importance weights {wrong}"
    if of_mean.max(initial=0.0) > 0:
        worst = int(of_mean.argmax())
        return f"by importance weights the mean of {names[worst]} is {of_mean[worst]:.2g} standard deviations off"
    if unsure.max(initial=0.0) > np.log(_UNSURE):
        worst = int(unsure.argmax())
        low, high = found.ratio[worst] * np.exp(_ERRORS * found.ratio_se[worst] * np.array([-1, 1]))
        return (
            f"importance weights leave the standard deviation of {names[worst]} uncertain, {low:.2g} to {high:.2g} "
            "times the printed one"
        )
    return ""


def guides(names: Sequence[str], sd: np.ndarray, error: np.ndarray, found: Weighted, *, narrow: bool) -> str:
    """The entry whose standard deviation by the guide is surely off by a factor, in words; nothing if there is none.

    Args:
        names: of the functions.
        sd: printed standard deviations, of other draws, ``(K,)``.
        error: their standard errors, ``(K,)``.
        found: moments by reliable weights.
        narrow: whether one that is too small counts, too.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = found.sd / sd
        log, sure = np.abs(np.log(ratio)), _quantile(len(names)) * np.hypot(found.sd_se, error / sd)
    off = np.where((log > np.log(_UNSURE)) & (log > sure) & (narrow | (ratio < 1)), log, 0.0)
    worst = int(off.argmax())
    return f"the standard deviation of {names[worst]} is {ratio[worst]:.3g} times" if off[worst] > 0 else ""


def _quantile(entries: int) -> float:
    """By how many standard errors the largest of so many differences from 0 is surely not by chance."""
    from scipy.stats import t

    return float(t.ppf(1 - _CHANCE / (2 * max(entries, 1)), GROUPS - 1))
