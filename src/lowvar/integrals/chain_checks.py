"""What several chains must be for their standard error to hold: independent, moving and mixed."""

import numpy as np
import scipy.stats

from lowvar.errors import UserError
from lowvar.integrals.chains import effective_size, split_r_hat

_FEWEST = 50  # draws of a chain, to compare chains by R-hat
_ROUNDING = 1e-6  # draws count as equal that agree to this multiple of a coordinate's median absolute deviation
_SHARE, _COMMON = 0.05, 5  # independent chains have no more draws in common than this share, or this number
_MOST = 2.0**62
_TOGETHER = 0.3  # chains move together above this correlation of their steps,
_APART = 5  # beyond that of steps so many draws apart
_DEVIATIONS = 5.0  # standard errors by which either is more than chance


def chain_notes(points: np.ndarray, where: str = "") -> list[str]:
    """Notes on chains that do not move or have not mixed.

    R-hat is noted above ``1.05 + 2.5 / draws``, which chains of independent draws exceed in less than one of a thousand
    coordinates (two chains of 50 draws in 0.08 % of 4000, four or longer ones in none); not below 50 draws.

    Args:
        points: ``(chains, draws, d)``.
        where: index of the task, for messages.

    Raises:
        UserError: two chains have draws in common, or move together, see ``_draws_in_common`` and ``_together``. Of
            13 000 sets of independent chains (autocorrelated, heavy-tailed, drifting, often standing still; 30 to 400
            draws, 1 to 4 coordinates) none was refused; of 1000 of 30 to 400 draws rounded to a hundredth of their
            standard deviation, two.
    """
    chains, draws, _ = points.shape
    if chains < 2 or not np.isfinite(points).all():
        return []
    at = f"samples{where}: " if where else ""
    still = ~(points != points[:, :1]).any(axis=(1, 2))
    if dependent := _draws_in_common(points, np.flatnonzero(~still)) or _together(points):
        raise UserError(
            f"samples{where}: {dependent}, so that they do not count as independent: give each chain its own seed"
        )
    if still.any():
        which = np.flatnonzero(still)
        named = f"chain {which[0]} does" if len(which) == 1 else f"chains {_and(which)} do"
        return [f"{at}{named} not move: all draws of a chain are equal"]
    if draws < _FEWEST:
        return []
    r_hat = split_r_hat(points)
    if not (r_hat > 1.05 + 2.5 / draws).any():
        return []
    worst = int(np.nanargmax(r_hat))
    return [
        f"{at}the chains have not mixed (R-hat of coordinate {worst} is {r_hat[worst]:.2f}): neither the averages nor "
        "their standard errors are reliable; run the chains longer, or look for separate modes"
    ]


def _draws_in_common(points: np.ndarray, chosen: np.ndarray) -> str:
    """Words on two of the ``chosen`` chains with equal draws, at any positions: copies, delayed or mixed; or ``""``.

    Repeated draws of a chain that stands still count once. Draws of low resolution, such as those rounded to a few
    digits in one dimension, coincide by chance: a chain then returns to its own draws, too, which tells how often.
    """
    if len(chosen) < 2:
        return ""
    points = points[chosen]
    chains, _, dim = points.shape
    shifted = points / 2 - np.median(points.reshape(-1, dim), axis=0) / 2
    width = np.median(np.abs(shifted.reshape(-1, dim)), axis=0)
    with np.errstate(over="ignore"):
        cells = np.rint(np.clip(shifted / (_ROUNDING * np.where(width > 0, width, 1.0)), -_MOST, _MOST))
    keys = cells.astype(np.int64) @ np.random.default_rng(0).integers(1, 2**62, dim)  # a hash: products may overflow
    _, same, copies = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    if copies.max() > 1:
        return f"chains {_and(chosen[same.ravel() == copies.argmax()])} are equal"
    distinct = [np.unique(chain) for chain in keys]
    sizes = np.array([len(one) for one in distinct])
    _, back, counts = np.unique(np.concatenate(distinct), return_inverse=True, return_counts=True)
    shared = np.bincount(np.repeat(np.arange(chains), sizes)[counts[back] > 1], minlength=chains)
    one = int(np.argmax(shared / sizes))
    common = np.array([len(np.intersect1d(distinct[one], distinct[c])) if c != one else 0 for c in range(chains)])
    other = int(np.argmax(common))
    size = max(sizes[one], sizes[other])
    returns = 1 - sizes.sum() / (chains + (keys[:, 1:] != keys[:, :-1]).sum())
    chance = 2 * returns * size  # a draw meets all draws of another chain, but only the earlier half of its own
    if common[other] < max(_COMMON, _SHARE * size + chance + _DEVIATIONS * np.sqrt(chance)):
        return ""
    return f"chains {_and(np.sort(chosen[[one, other]]))} have {common[other] / size:.0%} of their draws in common"


def _together(points: np.ndarray) -> str:
    """Words on two chains whose steps are correlated, draw by draw; or ``""``.

    Ranks of steps, since a few large steps may coincide; and only by how much more than five draws apart, since chains
    that have not yet converged drift alike. The correlation is the average over the coordinates.
    """
    steps = np.diff(points, axis=1)
    chains, number, _ = steps.shape
    if number <= _APART:
        return ""
    ranks = scipy.stats.rankdata(steps, axis=1) - (number + 1) / 2
    sizes = np.sqrt((ranks**2).mean(axis=1, keepdims=True))
    ranks /= np.where(sizes > 0, sizes, 1.0)
    moving = max(int((sizes > 0).any(axis=(0, 1)).sum()), 1)
    flat = ranks.reshape(chains, -1)
    for pair in np.argwhere(np.triu(flat @ flat.T / (number * moving), 1) > _TOGETHER):
        one, other = ranks[pair]
        products = (one * other).sum(axis=1) / moving
        apart = max((a[:-_APART] * b[_APART:]).sum() / (number * moving) for a, b in ((one, other), (other, one)))
        correlation = products.mean() - max(apart, 0.0)
        size = min(effective_size(products[None])[0], number)
        if correlation > max(_TOGETHER, _DEVIATIONS * max(1.0, products.std()) / np.sqrt(size)):
            return f"the steps of chains {_and(pair)} have a correlation of {products.mean():.2f}"
    return ""


def _and(numbers: np.ndarray) -> str:
    """``0, 1 and 3``."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
