"""Black-box functions: smooth, kinked, stepped, noisy, bounded, undefined in places, and without a minimum.

`argmin` is a point whose value is at most `level`.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import scipy.optimize

from trust_cases.common import generator


@dataclass(frozen=True)
class Function:
    """A case.

    Attributes:
        name: name of the case, and of its random numbers.
        what: description for the page.
        value: noiseless value of a point `(d,)`.
        start: `x0 (d,)`.
        sigma0: initial standard deviation; None for discrete points.
        budget: evaluations.
        level: a point with at most this noiseless value is a success; None if there is none.
        argmin: such a point.
        noisy: `(value, rng) -> value` with noise; then there is no target, and the search's mean is judged.
        target: the target of `minimize`; `level` if there is no noise.
        aimed: whether `minimize` has a target at all, if there is no noise.
        options: further arguments.
    """

    name: str
    what: str
    value: Callable[[np.ndarray], float]
    start: Callable[[], np.ndarray]
    sigma0: float | None
    budget: int
    level: float | None
    argmin: Callable[[], np.ndarray] | None
    noisy: Callable[[float, np.random.Generator], float] | None = None
    target: float | None = None
    aimed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def called(self, seed: int) -> Callable[[np.ndarray], float]:
        """The function for `minimize`, with separate noise for each seed."""
        if self.noisy is None:
            return self.value
        rng = generator(self.name, seed)
        return lambda x: self.noisy(self.value(x), rng)  # type: ignore[misc]


@cache
def regression():
    """Rows, responses with gross errors, and the coefficients of least absolute deviation, by linear programming."""
    rng = generator("deviations")
    x = np.column_stack([np.ones(60), rng.normal(size=(60, 7))])
    y = x @ np.arange(8.0) + rng.standard_t(1.5, 60)
    n, d = x.shape
    cost = np.r_[np.zeros(d), np.ones(2 * n)]
    solved = scipy.optimize.linprog(
        cost, A_eq=np.hstack([x, np.eye(n), -np.eye(n)]), b_eq=y, bounds=[(None, None)] * d + [(0, None)] * (2 * n)
    )
    return x, y, solved.x[:d]


def deviations(w):
    x, y, _ = regression()
    return float(np.abs(y - x @ w).mean())


@cache
def springs_matrix():
    """A chain of springs of different stiffness, fixed at one end: condition about 1e5."""
    stiffness = 10.0 ** np.linspace(0, 3, 12)
    matrix = np.diag(stiffness + np.r_[stiffness[1:], 0])
    return matrix - np.diag(stiffness[1:], 1) - np.diag(stiffness[1:], -1)


def springs(x):
    off = np.asarray(x) - 1.0
    return float(off @ springs_matrix() @ off)


TIMES = np.linspace(0, 4, 25)


def decays(p):
    """Sum of two exponentials against data of the same form: a curved valley."""
    a, b, c, d = p
    with np.errstate(over="ignore", invalid="ignore"):
        curve = a * np.exp(-np.exp(b) * TIMES) + c * np.exp(-np.exp(d) * TIMES)
        truth = 2 * np.exp(-0.5 * TIMES) + np.exp(-3.0 * TIMES)
        return float(np.minimum(((curve - truth) ** 2).sum(), 1e30))


def stairs(x):
    return float(np.floor(2 * np.abs(np.asarray(x) - 0.3)).sum())


def waves(x):
    return float(0.1 * (x[0] - 0.6) ** 2 + np.sin(5 * x[0]))


@cache
def waves_minimum():
    grid = np.linspace(-10, 10, 200001)
    at = grid[np.argmin(0.1 * (grid - 0.6) ** 2 + np.sin(5 * grid))]
    found = scipy.optimize.minimize_scalar(lambda t: waves([t]), bounds=(at - 0.01, at + 0.01), method="bounded",
                                           options={"xatol": 1e-12})  # fmt: skip
    return np.array([found.x])


def many(x):
    scales = 10.0 ** (2 * np.arange(200) / 199)
    return float(scales @ (np.asarray(x) - 0.5) ** 2)


def pairs(x):
    """Products of neighbours, smooth, with a curved ridge."""
    x = np.asarray(x)
    return float(((x[::2] * x[1::2] - 1) ** 2).sum() + 0.1 * ((x - 1) ** 2).sum())


def corner(x):
    return float(np.asarray(x) @ np.arange(1.0, 7.0) + 0.5 * np.sin(3 * np.asarray(x)).sum())


def gamma_fit(p):
    """Negative log likelihood of a gamma distribution, NaN where shape or rate are not positive."""
    shape, rate = p
    if shape <= 0 or rate <= 0:
        return float("nan")
    from scipy.special import gammaln

    mean, mean_log = 2.0, 0.35
    return float(gammaln(shape) - shape * np.log(rate) - (shape - 1) * mean_log + rate * mean)


@cache
def gamma_minimum():
    found = scipy.optimize.minimize(lambda u: gamma_fit(np.exp(u)), [0.0, 0.0], options={"gtol": 1e-10})
    return np.exp(found.x)


def hole(x):
    """A sphere with its minimum beside a region where it is undefined."""
    x = np.asarray(x)
    return float("nan") if x[0] + x[1] > 2.2 else float(((x - 1) ** 2).sum())


def box_fit(x):
    """A quadratic with correlated coordinates whose minimum over [0, 1]^4 lies on two faces."""
    x = np.asarray(x) - np.array([1.6, 0.4, -0.5, 0.5])
    return float(x @ (np.eye(4) + 0.8) @ x)


@cache
def box_minimum():
    return scipy.optimize.minimize(box_fit, np.full(4, 0.5), bounds=[(0, 1)] * 4, options={"ftol": 1e-15}).x


def sphere(x):
    return float(((np.asarray(x) - 1) ** 2).sum())


def needle(x):
    return 0.0 if np.abs(np.asarray(x) - 0.7).max() < 1e-3 else 1.0


def cliff(x):
    return float(np.sum(x)) if np.sum(x) > -1e3 else float("inf")


@cache
def turned(d):
    """A rotation."""
    return np.linalg.qr(generator("turned", d).normal(size=(d, d)))[0]


def sharp_ridge(x):
    """A parabola along a line, with a steep cone around it: convex, and smooth nowhere on the line."""
    z = (np.asarray(x) - 0.4) @ turned(20)
    return float(z[0] ** 2 + 200 * np.linalg.norm(z[1:]))


def polyhedron(x):
    """The largest of sums of neighbouring coordinates, in absolute value: convex, with edges of all kinds."""
    return float(np.abs(np.cumsum((np.asarray(x) + 0.7) @ turned(10))).max())


def terraces(x):
    """An ellipsoid whose value is rounded to whole numbers."""
    z = (np.asarray(x) - 0.4) @ turned(15) * 10 ** np.linspace(0, 1, 15)
    return float(np.rint(z @ z / 5))


def wall(x):
    """A sphere whose minimum lies beside a jump."""
    return sphere(x) + (100.0 if np.sum(x) < 5.5 else 0.0)


def domain_edge(x):
    """Falling towards the edge of its domain, beyond which it raises."""
    if x[0] > 1:
        raise ValueError("outside of the domain")
    return float(np.sum((x[1:] - 0.3) ** 2) - np.log(x[0] + 3)) if x[0] > -3 else float("nan")


def helix(x):
    """Kinks around a helix, down which the value falls slowly."""
    return float(20 * np.abs(x[:2] - [np.cos(x[2]), np.sin(x[2])]).sum() + 0.2 * abs(x[2]))


def half_precision(x):
    return float(np.float16(1 + sphere(x)))


def one_of_eight(x):
    return float((x[0] - 1) ** 2)


def saddle(x):
    return float(x[0] ** 4 - x[0] ** 2 + np.sum(x[1:] ** 2))


VALUE, WEIGHT = np.array([3, 5, 7, 2, 9, 4, 6, 8]), np.array([2, 4, 6, 1, 8, 3, 5, 7])


def knapsack(x):
    """Minus the value of the chosen items, with a penalty on weight above 18."""
    return float(100 * max(0, WEIGHT @ x - 18) - VALUE @ x)


@cache
def knapsack_minimum():
    every = np.array(list(itertools.product((0, 1), repeat=8)))
    return every[np.argmin([knapsack(x) for x in every])]


def mixed(x):
    """Three whole numbers and three others, one of which depends on one of them."""
    return float(((x - np.repeat([2.3, 0.4], 3)) ** 2).sum() + 0.5 * x[0] * x[3])


def _ones(d):
    return lambda: np.ones(d)


def _zeros(d):
    return lambda: np.zeros(d)


CASES = (
    Function("absolute_deviations", "least absolute deviations with gross errors, d = 8", deviations, _zeros(8), 2.0,
             20_000, deviations(regression()[2]) + 1e-3, lambda: regression()[2]),
    Function("chain_of_springs", "neighbours coupled by springs of unlike stiffness, d = 12", springs, _zeros(12), 0.5,
             40_000, 1e-6, _ones(12)),
    Function("two_decays", "sum of two exponentials fitted to a curve, d = 4", decays,
             lambda: np.array([1.0, 0.0, 1.0, 0.5]), 0.5, 20_000, 1e-8,
             lambda: np.array([2, np.log(0.5), 1, np.log(3.0)])),
    Function("stairs", "a staircase in every coordinate, d = 6", stairs, lambda: np.full(6, 4.0), 1.5, 10_000, 0.0,
             lambda: np.full(6, 0.3)),
    Function("waves", "a sine in a bowl, d = 1", waves, lambda: np.array([-4.0]), 2.0, 2_000,
             waves(waves_minimum()) + 1e-6, waves_minimum),
    Function("many_coordinates", "axes of unlike length, d = 200", many, _zeros(200), 0.5, 60_000, 1e-3,
             lambda: np.full(200, 0.5)),
    Function("products_of_pairs", "products of neighbours, d = 20", pairs, lambda: np.full(20, 0.2), 0.3, 20_000, 1e-6,
             _ones(20)),
    Function("far_away", "a sphere a thousand standard deviations from the start, d = 10", sphere,
             lambda: np.full(10, 501.0), 0.5, 20_000, 1e-6, _ones(10)),
    Function("large_offset", "a sphere on top of 1e6, d = 5", lambda x: 1e6 + sphere(x), _zeros(5), 0.5, 5_000,
             1e6 + 1e-6, _ones(5)),
    Function("additive_noise", "a sphere with noise of standard deviation 0.3, d = 10", sphere, _zeros(10), 0.5,
             10_000, 0.1, _ones(10), noisy=lambda value, rng: value + 0.3 * rng.normal()),
    Function("lucky_target", "a sphere with noise of standard deviation 3 and a target that luck can reach, d = 10",
             sphere, lambda: np.full(10, 3.0), 0.5, 3_000, 0.3, _ones(10),
             noisy=lambda value, rng: value + 3.0 * rng.normal(), target=0.0),
    Function("corner", "a slope with waves whose minimum over [0, 1]^6 is a corner", corner, lambda: np.full(6, 0.5),
             0.3, 5_000, 1e-3, _zeros(6), options={"bounds": (0.0, 1.0)}),
    Function("two_faces", "a quadratic whose minimum over [0, 1]^4 lies on two faces", box_fit,
             lambda: np.full(4, 0.5), 0.3, 8_000, box_fit(box_minimum()) + 1e-5, box_minimum,
             options={"bounds": (np.zeros(4), np.ones(4))}),
    Function("likelihood_undefined", "gamma likelihood, NaN unless shape and rate are positive, d = 2", gamma_fit,
             lambda: np.array([0.5, 0.5]), 0.4, 4_000, gamma_fit(gamma_minimum()) + 1e-8, gamma_minimum,
             options={"errors": "mark"}),
    Function("hole_beside_minimum", "NaN in a half-space close to the minimum, d = 5", hole, _zeros(5), 0.5, 6_000,
             1e-6, _ones(5), options={"errors": "mark"}),
    Function("needle", "one everywhere but in a tiny box, d = 6, no target", needle, _zeros(6), 0.5, 5_000, None, None),
    Function("sharp_ridge", "a parabola along a line with a cone around it, without a target, d = 20", sharp_ridge,
             _ones(20), 1.0, 60_000, 1e-6, lambda: np.full(20, 0.4), aimed=False),
    Function("polyhedron", "the largest of sums of coordinates, without a target, d = 10", polyhedron, _ones(10), 0.5,
             20_000, 1e-6, lambda: np.full(10, -0.7), aimed=False),
    Function("terraces", "an ellipsoid rounded to whole numbers, without a target, d = 15", terraces, _ones(15), 1.0,
             30_000, 0.0, lambda: np.full(15, 0.4), aimed=False),
    Function("high_outliers", "a sphere of which one value in twenty is far too high, d = 8", sphere, _zeros(8), 0.5,
             20_000, 1e-6, _ones(8),
             noisy=lambda value, rng: value + (1e3 * rng.random() if rng.random() < 0.05 else 0.0)),
    Function("cauchy_noise", "a sphere with Cauchy noise of scale 0.1, d = 5", sphere, _zeros(5), 0.5, 6_000, 0.5,
             _ones(5), noisy=lambda value, rng: value + 0.1 * rng.standard_cauchy()),
    Function("jump_beside_minimum", "a sphere with its minimum beside a jump, without a target, d = 5", wall,
             lambda: np.full(5, 2.0), 0.5, 12_000, 0.05 + 1e-6, lambda: np.full(5, 1.1 + 1e-12), aimed=False),
    Function("edge_of_domain", "a minimum at the edge of the domain, beyond which f raises, without a target, d = 4",
             domain_edge, _zeros(4), 0.5, 12_000, 1e-6 - np.log(4.0), lambda: np.r_[1.0, np.full(3, 0.3)], aimed=False,
             options={"errors": "mark"}),
    Function("helix", "kinks around a helix, without a target, d = 3", helix, lambda: np.array([1.0, 0.0, 6.0]), 0.3,
             20_000, 1e-6, lambda: np.array([1.0, 0.0, 0.0]), aimed=False),
    Function("half_precision", "a sphere in half precision, without a target, d = 4", half_precision, _zeros(4), 0.5,
             8_000, 1.0, _ones(4), aimed=False),
    Function("one_of_eight", "seven of eight coordinates without influence, without a target", one_of_eight, _zeros(8),
             0.5, 10_000, 1e-6, _ones(8), aimed=False),
    Function("saddle", "a start on a saddle point, without a target, d = 4", saddle, _zeros(4), 0.01, 8_000,
             -0.25 + 1e-6, lambda: np.r_[0.5**0.5, np.zeros(3)], aimed=False),
    Function("knapsack", "a knapsack of eight items, without a target", knapsack, lambda: np.full(8, 0.5), None, 2_000,
             knapsack(knapsack_minimum()), knapsack_minimum, aimed=False, options={"domain": "binary"}),
    Function("three_integers", "three whole numbers and three others, without a target", mixed, _zeros(6), 1.0, 12_000,
             0.42 + 1e-6, lambda: np.r_[2.0, 2.0, 2.0, -0.1, 0.4, 0.4], aimed=False, options={"integers": [0, 1, 2]}),
    Function("without_end", "a sum of coordinates, falling without end, d = 4", lambda x: float(np.sum(x)), _zeros(4),
             0.5, 5_000, None, None),
    Function("target_out_of_reach", "a sum of coordinates, infinite below -1e3, with a target below that, d = 4", cliff,
             _zeros(4), 0.5, 5_000, None, None, target=-2e3, options={"errors": "mark"}),
)  # fmt: skip
