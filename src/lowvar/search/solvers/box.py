"""Bounds: a smooth map from all of R^d into a box, so that any search over R^d respects them."""

from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.search.problem import to_host

_MARGIN = 0.1  # maximum margin of the map at a bound, relative to the width of the coordinate


class Box:
    """``low <= x <= high``, each bound a number or infinite, and ``transform: R^d -> box``.

    Around a bound, ``z`` from ``low - a`` to ``low + a`` is mapped to ``low + (z - low + a)^2 / 4 a``, which has the
    slope 0 at the bound and 1 where it becomes the identity; ``z`` farther out is mirrored, between two bounds
    periodically. So a finite ``z`` reaches the bound itself, ``f(transform(z))`` is continuous there, and a minimum on
    the boundary is a smooth minimum of it. The margin ``a`` is ``sigma0``, but at most a tenth of the width.

    A search that starts midway between two mirror images would stay there. So coordinates are rescaled where ``sigma0``
    exceeds a third of the width, to that third; and a start closer to a bound than ``sigma0`` is moved inside by that
    distance.

    Args:
        bounds: ``(low, high)``, each a number, ``(dim,)`` numbers (possibly infinite), or None; or an object with
            ``lb`` and ``ub``, such as ``scipy.optimize.Bounds``.
        dim: number of coordinates.
        sigma0: initial standard deviation of a search.
        integers: mask of the coordinates that are rounded afterwards, ``(dim,)``, or None. Their bounds are inclusive;
            the map, which has no margin there, leads half a unit beyond, so that every whole number has the same room.

    Attributes:
        inner: ``(low, high)``, the bounds of points, whole numbers where points are rounded; ``low`` and ``high`` are
            those of the map.
        most: a third of the width, before the map, ``(dim,)``: the largest standard deviation of a search. A wider one
            sees nothing but mirror images; with noise, its deviations would grow without end.

    Raises:
        UserError: the bounds do not fit ``dim`` coordinates, or leave a coordinate no room.

    References:
        Hansen, ``BoundTransform`` of pycma, doi:10.5281/zenodo.2559634, for the shape of the map.

    >>> box = Box((0, None), 2, 0.5)
    >>> box.transform(np.array([[3.0, 0.0], [-0.5, -9.0]]))
    array([[3.   , 0.125],
           [0.   , 8.   ]])
    """

    def __init__(self, bounds: Any, dim: int, sigma0: float, integers: np.ndarray | None = None):
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            bounds = to_host(bounds.lb), to_host(bounds.ub)
        if not isinstance(bounds, (tuple, list, np.ndarray)) or len(bounds) != 2:
            more = " (not a pair for each coordinate)" if isinstance(bounds, (tuple, list, np.ndarray)) else ""
            raise UserError(f"bounds: they must be (low, high), each a number or {dim} numbers{more}")
        self.low, self.high = _sides(bounds, dim)
        whole = np.zeros(dim, bool) if integers is None else integers
        low, high, empty = _room(self.low, self.high, whole)
        nested = isinstance(bounds, np.ndarray) or all(isinstance(one, (tuple, list)) for one in bounds)
        if dim == 2 and nested and not len(empty) and all(np.size(one) == 2 for one in bounds):
            pairs = _sides([list(side) for side in zip(*bounds, strict=True)], dim)
            if not np.array_equal(pairs, (self.low, self.high)) and not len(_room(*pairs, whole)[2]):
                raise UserError(
                    "bounds: two pairs for two coordinates may be (low, high) or one pair for each coordinate; give "
                    "scipy.optimize.Bounds(low, high), or arrays: (np.array(low), np.array(high))"
                )
        if len(empty):
            first = empty[0]
            if whole[first]:
                raise UserError(
                    f"bounds: coordinate {first} has low {self.low[first]:g} and high {self.high[first]:g}: no whole "
                    "number lies between them"
                )
            raise UserError(
                f"bounds: coordinate {first} has low {self.low[first]:g} and high {self.high[first]:g}: low must be "
                "below high; give (low, high) for all coordinates, not a pair for each, and fix a constant one inside f"
            )
        self.inner = low, high
        self.low, self.high = np.where(whole, low - 0.5, low), np.where(whole, high + 0.5, high)
        with np.errstate(over="ignore"):  # between bounds that stand for none
            width = self.high - self.low
        self._step = np.minimum(width / 3, sigma0)  # initial standard deviation of each coordinate
        self._scale = self._step / sigma0
        self.most = width / 3 / self._scale
        self._margin = np.where(whole, 0.0, np.minimum(_MARGIN * width, sigma0))

    def transform(self, z: np.ndarray) -> np.ndarray:
        """The points of the box at ``z (n, dim)`` or ``(dim,)``."""
        z, low, high, a = z * self._scale, self.low, self.high, self._margin
        below, above = np.isfinite(low), np.isfinite(high)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # of branches that are not taken
            start, period = np.where(below, low - a, 0.0), np.where(below & above, high - low + 2 * a, 1.0)
            both = start + period - np.abs(np.mod(z - start, 2 * period) - period)  # mirrored at both ends
            mirrored = np.where(below & above, both, z)
            mirrored = np.where(below & ~above, low - a + np.abs(z - (low - a)), mirrored)
            mirrored = np.where(above & ~below, high + a - np.abs(high + a - z), mirrored)
            # others keep their digits, whatever the size of the bounds
            x = np.where((z < low - a) | (z > high + a), mirrored, z)
            x = np.where(below & (x < low + a), low + (x - low + a) ** 2 / (4 * a), x)
            x = np.where(above & (x > high - a), high - (high + a - x) ** 2 / (4 * a), x)
        return np.clip(x, low, high)

    def unconstrained_start(self, x: np.ndarray) -> np.ndarray:
        """A ``z (dim,)`` that maps to ``x (dim,)``, or to a point farther inside, as a start.

        Raises:
            UserError: ``x`` is not in the box.
        """
        low, high = self.inner
        out = np.flatnonzero(~((x >= low) & (x <= high)))
        if len(out):
            first = out[0]
            raise UserError(
                f"x0 is outside the bounds: coordinate {first} is {x[first]:g}, not between "
                f"{low[first]:g} and {high[first]:g}"
            )
        x = np.clip(x, self.low + self._step, self.high - self._step)  # there the map is the identity
        return x / self._scale

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """The ``z (dim,)`` nearest to the middle of the box with ``transform(z) = x``, for ``x (dim,)`` in the box."""
        low, high, a = self.low, self.high, self._margin
        with np.errstate(invalid="ignore"):  # of infinite bounds
            z = np.where(x < low + a, low - a + 2 * np.sqrt(a * np.maximum(x - low, 0.0)), x)
            z = np.where(x > high - a, high + a - 2 * np.sqrt(a * np.maximum(high - x, 0.0)), z)
        return z / self._scale

    def cell(self, z: np.ndarray) -> np.ndarray:
        """Distances of ``z (dim,)`` below and above to where the rounded ``transform(z)`` changes, ``(2, dim)``.

        Infinite where it never does, for bounds with one whole number between them.
        """
        w, low, high = z * self._scale, self.low, self.high
        below, above = np.isfinite(low), np.isfinite(high)
        with np.errstate(invalid="ignore"):
            start = np.where(below, low, np.where(above, high, -0.5))
            count = np.where(below & above, high - low, np.inf)
            place = np.where(below | above, w - start, np.mod(w + 0.5, 1.0))
            turned = np.where(below & above, np.mod(place, 2 * count), place)
            up = np.where(below & above, turned < count, turned >= 0)
            place = np.where(below & above, count - np.abs(turned - count), np.abs(turned))
        k = np.minimum(np.floor(place), count - 1)
        down = place - np.where((k == 0) & (below | above), -1, k)  # a mirror doubles the first and the last cell
        on = np.where(k == count - 1, k + 2, k + 1) - place
        down, on = (np.where(count == 1, np.inf, part) for part in (down, on))
        return np.where(up, [down, on], [on, down]) / self._scale


def _sides(bounds: Any, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Both bounds of all coordinates."""
    return _side("low", bounds[0], dim, -np.inf), _side("high", bounds[1], dim, np.inf)


def _room(low: np.ndarray, high: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both bounds, those of whole numbers rounded inwards, and the coordinates that have no room between them."""
    low, high = np.where(whole, np.ceil(low), low), np.where(whole, np.floor(high), high)
    return low, high, np.flatnonzero(~np.where(whole, low <= high, low < high))


def _side(name: str, bound: Any, dim: int, none: float) -> np.ndarray:
    """One bound of all coordinates, ``(dim,)``."""
    if bound is None:
        return np.full(dim, none)
    bound = [none if entry is None else entry for entry in bound] if isinstance(bound, (tuple, list)) else bound
    array = to_host(bound)
    if array.dtype.kind not in "biuf" or array.shape not in ((), (1,), (dim,)) or np.isnan(array).any():
        raise UserError(f"bounds: {name} must be a number or {dim} numbers, infinite where there is no bound")
    return np.broadcast_to(array.astype(np.float64), (dim,)).copy()
