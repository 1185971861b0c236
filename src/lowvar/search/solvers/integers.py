"""Whole numbers among the variables of a real search: rounding, with a margin."""

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from lowvar.errors import UserError
from lowvar.search.problem import to_host
from lowvar.search.solvers.box import Box

_DIGITS = 1e3  # roundings of its own mean that a search's deviation must exceed: else its points are rounding alone


class Margin:
    """Keeps the coordinates that are rounded moving.

    A point's coordinate is rounded, so ``f`` is constant on cells of width 1. A search that follows ``f`` inside a cell
    learns nothing, and its standard deviation may shrink until all points have the same whole number: it stalls. So the
    points are ``m + A (z - mean)``, with the search's own points ``z``, and a mean ``m`` and a diagonal ``A`` of this
    class. After each generation they are changed as little as needed for a coordinate to leave its cell on either side
    with a probability of at least ``1 / (2 N d)``. The search itself is not touched, so that any Gaussian one can be
    used. Its deviations shrink while ``A`` grows; where they reach the rounding of its mean, the margin is ``spent``.

    Args:
        integers: mask of the coordinates, ``(dim,)``.
        mean: the search's mean at the start, ``(dim,)``.
        population: ``N``.
        box: the bounds, which widen the cells at their ends; None without bounds.

    Attributes:
        scale: the diagonal of ``A``, ``(dim,)``.
        spent: see above.

    References:
        Hamano, Saito, Nomura and Shirakawa, "CMA-ES with margin", GECCO 2022, eqs. (12) to (18); binary and boundary
        cells are treated as inner ones here, because mirrored bounds have a cell of width 2 there.
    """

    def __init__(self, integers: np.ndarray, mean: np.ndarray, population: int, box: Box | None):
        self._which, self._box = np.flatnonzero(integers), box
        self._mean, self._own = mean.astype(float), mean.astype(float)
        self.scale = np.ones(len(mean))
        self._least = 0.5 / (population * len(mean))
        self.spent = False

    def mean(self) -> np.ndarray:
        """``m``, ``(dim,)``, before rounding."""
        return self._mean.copy()

    def points(self, z: np.ndarray) -> np.ndarray:
        """The points for the search's own ``z (n, dim)``, before rounding."""
        return self._mean + self.scale * (z - self._own)

    def learn(self, own: np.ndarray, deviations: np.ndarray) -> None:
        """Follows a search whose mean is now ``own (dim,)``, and restores the margin.

        Args:
            own: the search's mean.
            deviations: its standard deviations, ``(dim,)``.
        """
        self._mean += self.scale * (own - self._own)
        self._own = own.astype(float)
        i = self._which
        below, above = (self._box.cell(self._mean) if self._box else _cell(self._mean, np.ones(len(own))))[:, i]
        sigma = np.maximum(self.scale[i] * deviations[i], 1e-300)
        low, high = ndtr(-below / sigma), ndtr(-above / sigma)
        short = (np.minimum(low, high) < self._least) & np.isfinite(below + above)
        fine = deviations[i] <= _DIGITS * np.spacing(np.abs(own[i]))
        self.spent, short = bool((short & fine).any()), short & ~fine
        low, high, below, above = (part[short] for part in (low, high, below, above))
        stay, least = 1 - low - high, self._least
        low, high = np.maximum(low, least), np.maximum(high, least)
        with np.errstate(invalid="ignore"):
            excess = (1 - low - high - stay) / (low + high + stay - 3 * least)
        low, high = low + excess * (low - least), high + excess * (high - least)
        width = (below + above) / (-ndtri(low) - ndtri(high))
        chosen = i[short]
        self.scale[chosen] *= width / sigma[short]
        self._mean[chosen] += -ndtri(low) * width - below


def mask(integers: Any, dim: int) -> np.ndarray | None:
    """The coordinates that ``integers`` names, as a mask ``(dim,)``; None if there are none.

    Args:
        integers: True for all, a mask of ``dim`` booleans, or indices of coordinates.
        dim: number of coordinates.

    Raises:
        UserError: it is none of these.

    >>> mask([0, -1], 3)
    array([ True, False,  True])
    """
    if integers is None or integers is False:
        return None
    if integers is True:
        return np.ones(dim, bool)
    array = to_host(list(integers) if isinstance(integers, (range, set)) else integers)
    if array.dtype == bool and array.shape == (dim,):
        out = array.copy()
    elif array.ndim == 1 and (array.dtype.kind in "iu" or not array.size):
        wrong = array[(array < -dim) | (array >= dim)]
        if len(wrong):
            raise UserError(f"integers: there is no coordinate {wrong[0]}: they are 0 to {dim - 1}")
        out = np.zeros(dim, bool)
        out[array.astype(int)] = True
    else:
        raise UserError(f"integers {integers!r}: give the indices of coordinates, {dim} booleans, or True for all")
    return out if out.any() else None


def _cell(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Distances of ``x (dim,)`` from the ends of its cell below and above, without bounds, ``(2, dim)``."""
    below = x - np.rint(x) + 0.5
    return np.stack([below, 1 - below]) / scale
