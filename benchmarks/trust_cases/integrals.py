"""Expectations: different targets, samplers, sizes and integrands, and wrong inputs.

A truth is analytic or by quadrature; `check` compares it with independent draws, and scores with differences.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import scipy.integrate
import scipy.special
import scipy.stats

from trust_cases.common import generator

BLOCK = 20  # repetitions whose chains are run together


@dataclass(frozen=True)
class Target:
    """A density on R^dim: independent draws `(rng, n) -> (n, dim)`, its logarithm up to a constant, and the score."""

    dim: int
    draw: Callable[[np.random.Generator, int], np.ndarray]
    log_density: Callable[[np.ndarray], np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Integral:
    """A case.

    Attributes:
        name: name of the case, and of its random numbers.
        what: description for the page.
        targets: one target for all tasks, or one for each task.
        sizes: samples of each target.
        values: values of the integrands, for each target `(m, d) -> (m,)` or `(m, T)`.
        truth: the expectations `(T,)`.
        sampler: `(target, rngs, m) -> (R, m, d)`; independent draws by default.
        chain: the argument of `integrate`.
        given: the scores for `integrate` if they are wrong, for each target.
        wrong: the mistake in the inputs.
    """

    name: str
    what: str
    targets: tuple[Target, ...]
    sizes: tuple[int, ...]
    values: tuple[Callable[[np.ndarray], np.ndarray], ...]
    truth: Callable[[], np.ndarray]
    sampler: Callable | None = None
    chain: bool = False
    given: Callable[[np.ndarray], np.ndarray] | None = None
    wrong: str = ""

    def inputs(self, repetitions: int) -> Iterator[tuple]:
        """Samples, scores and values of each repetition."""
        sampler = self.sampler or independent
        for first in range(0, repetitions, BLOCK):
            block = range(first, min(first + BLOCK, repetitions))
            drawn = [
                sampler(target, [generator(self.name, t, r) for r in block], m)
                for t, (target, m) in enumerate(zip(self.targets, self.sizes, strict=True))
            ]
            for r in range(len(block)):
                x = [one[r] for one in drawn]
                scores = [(self.given or target.score)(one) for target, one in zip(self.targets, x, strict=True)]
                values = [value(one) for value, one in zip(self.values, x, strict=True)]
                yield (x[0], scores[0], values[0]) if len(x) == 1 else (x, scores, values)


def independent(target: Target, rngs, m: int) -> np.ndarray:
    return np.stack([target.draw(rng, m) for rng in rngs])


def metropolis(target: Target, rngs, m: int, *, scale: float, warmup: int) -> np.ndarray:
    """Random-walk Metropolis, started at a draw."""
    steps = m + warmup
    noise = scale * np.stack([rng.normal(size=(steps, target.dim)) for rng in rngs], 1)
    coins = np.log(np.stack([rng.random(steps) for rng in rngs], 1))
    x = np.concatenate([target.draw(rng, 1) for rng in rngs])
    density, kept = target.log_density(x), np.empty((steps, *x.shape))
    for s in range(steps):
        proposed = x + noise[s]
        its = target.log_density(proposed)
        moved = coins[s] < its - density
        x, density = np.where(moved[:, None], proposed, x), np.where(moved, its, density)
        kept[s] = x
    return np.swapaxes(kept[warmup:], 0, 1)


def langevin(target: Target, rngs, m: int, *, step: float, warmup: int, chains: int = 1, start=None) -> np.ndarray:
    """Metropolis-adjusted Langevin; several chains are concatenated."""
    if chains > 1:
        parts = [langevin(target, rngs, m // chains, step=step, warmup=warmup, start=start) for _ in range(chains)]
        return np.concatenate(parts, 1)
    steps = m + warmup
    noise = np.stack([rng.normal(size=(steps, target.dim)) for rng in rngs], 1)
    coins = np.log(np.stack([rng.random(steps) for rng in rngs], 1))
    x = np.concatenate([target.draw(rng, 1) for rng in rngs]) if start is None else np.tile(start, (len(rngs), 1))
    density, slope, kept = target.log_density(x), target.score(x), np.empty((steps, *x.shape))
    for s in range(steps):
        proposed = x + step * slope + (2 * step) ** 0.5 * noise[s]
        its, its_slope = target.log_density(proposed), target.score(proposed)
        back = ((x - proposed - step * its_slope) ** 2).sum(1) / (4 * step)
        forth = ((proposed - x - step * slope) ** 2).sum(1) / (4 * step)
        moved = coins[s] < its - density - back + forth
        x, slope = np.where(moved[:, None], proposed, x), np.where(moved[:, None], its_slope, slope)
        density = np.where(moved, its, density)
        kept[s] = x
    return np.swapaxes(kept[warmup:], 0, 1)


def normal(mean, covariance) -> Target:
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    root, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    def score(x):
        return -(x - mean) @ precision

    return Target(
        len(mean), lambda rng, n: mean + rng.normal(size=(n, len(mean))) @ root.T,
        lambda x: 0.5 * ((x - mean) * score(x)).sum(1), score,
    )  # fmt: skip


def product(dim: int, draw, log_density, score) -> Target:
    """A target of independent coordinates with the same density."""
    return Target(dim, lambda rng, n: draw(rng, (n, dim)), lambda x: log_density(x).sum(1), score)


def equal_correlation(dim: int, rho: float) -> np.ndarray:
    return (1 - rho) * np.eye(dim) + rho


def quadrature(f, low=-np.inf, high=np.inf, points=()) -> float:
    """An integral over an interval, cut at `points`."""
    edges = [low, *points, high]
    parts = [scipy.integrate.quad(f, a, b, limit=400, epsabs=1e-13, epsrel=1e-11)[0]
             for a, b in pairwise(edges)]  # fmt: skip
    return float(sum(parts))


# ------------------------------------------------------------------------------------------------ targets and truths

_phi, _sf = scipy.stats.norm.pdf, scipy.stats.norm.sf


def _draw_banana(rng, n):
    x = rng.normal(size=n)
    return np.stack([x, x**2 - 1 + 0.5 * rng.normal(size=n)], 1)


def _banana_score(x):
    off = (x[:, 1] - x[:, 0] ** 2 + 1) / 0.25
    return np.stack([-x[:, 0] + 2 * x[:, 0] * off, -off], 1)


BANANA = Target(2, _draw_banana, lambda x: -(x[:, 0] ** 2) / 2 - 2 * (x[:, 1] - x[:, 0] ** 2 + 1) ** 2, _banana_score)


def _banana_values(x):
    return np.stack([scipy.special.logsumexp(np.column_stack([x, np.zeros(len(x))]), axis=1), 1.0 * (x[:, 1] > 1.5)], 1)


def _banana_truth():
    z, w = np.polynomial.hermite_e.hermegauss(200)
    w = w / w.sum()
    first, second = np.meshgrid(z, z, indexing="ij")
    points = np.stack([first.ravel(), (first**2 - 1 + 0.5 * second).ravel()], 1)
    above = quadrature(lambda a: _phi(a) * _sf((2.5 - a**2) / 0.5), -9, 9, (-1.6, 0, 1.6))
    return np.array([float(_banana_values(points)[:, 0] @ np.outer(w, w).ravel()), above])


STUDENT = product(
    5, lambda rng, shape: rng.standard_t(7, shape), scipy.stats.t(7).logpdf, lambda x: -8 * x / (7 + x**2)
)
QUARTIC = product(
    2, lambda rng, shape: scipy.stats.gennorm.rvs(4, scale=4**0.25, size=shape, random_state=rng),
    lambda x: -(x**4) / 4, lambda x: -(x**3),
)  # fmt: skip


def _quartic_truth():
    mass = quadrature(lambda x: np.exp(-(x**4) / 4), -8, 8)
    parts = [quadrature(lambda x, k=k: np.cos(k * x) * np.exp(-(x**4) / 4), -8, 8, (0,)) / mass for k in (4, 3)]
    return np.array([parts[0] * parts[1]])


CENTRES = np.stack([np.full(10, 1.5), np.r_[np.full(5, -2.0), np.full(5, 1.0)], np.linspace(-1, 3, 10)])
WEIGHTS, WIDTHS = np.array([0.5, 0.3, 0.2]), np.array([0.6, 1.0, 0.4])


def _draw_mixture(rng, n):
    which = rng.choice(3, n, p=WEIGHTS)
    return CENTRES[which] + WIDTHS[which, None] * rng.normal(size=(n, 10))


def _mixture_parts(x):
    squares = ((x[:, None, :] - CENTRES) ** 2).sum(2)
    return np.log(WEIGHTS) - 10 * np.log(WIDTHS) - squares / (2 * WIDTHS**2)


def _mixture_score(x):
    share = scipy.special.softmax(_mixture_parts(x), axis=1)
    return ((share / WIDTHS**2)[:, :, None] * (CENTRES - x[:, None, :])).sum(1)


MIXTURE = Target(10, _draw_mixture, lambda x: scipy.special.logsumexp(_mixture_parts(x), axis=1), _mixture_score)


def _mixture_truth():
    def below(t):
        return WEIGHTS @ scipy.stats.norm.cdf((t - CENTRES) / WIDTHS[:, None]).prod(1)

    upper = quadrature(lambda t: 1 - below(t), 0, 12, (1, 2, 3, 4, 6))
    return np.array([upper - quadrature(below, -12, 0, (-4, -2))])


def log_gamma(shape: float, dim: int) -> Target:
    """Logarithms of gamma variables, with the Jacobian."""
    return product(
        dim, lambda rng, size: np.log(np.maximum(rng.gamma(shape, size=size), 1e-300)),
        lambda u: shape * u - np.exp(u), lambda u: shape - np.exp(u),
    )  # fmt: skip


AUTOREGRESSIVE = 0.8 ** np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
SPREAD = np.linspace(0.3, 2.0, 15)


def _log_sum_exp_truth():
    # E log S = int_0^inf (exp(-t) - E exp(-t S)) / t dt, and E exp(-t S) is a product over the coordinates
    z, w = np.polynomial.hermite_e.hermegauss(300)
    w = w / w.sum()
    terms = np.exp(np.outer(SPREAD, z))

    def inside(s):  # t = exp(s)
        t = np.exp(s)
        return np.exp(-t) - float((np.exp(-t * terms) @ w).prod())

    return np.array([quadrature(inside, -40, 8, (-8, -5, -3, -1, 1))])


def skew_normal(shape: float) -> Target:
    delta = shape / (1 + shape**2) ** 0.5

    def draw(rng, n):
        return (delta * np.abs(rng.normal(size=(n, 1)))) + (1 - delta**2) ** 0.5 * rng.normal(size=(n, 1))

    def score(x):
        return -x + shape * np.exp(scipy.stats.norm.logpdf(shape * x) - scipy.stats.norm.logcdf(shape * x))

    return Target(1, draw, lambda x: (-(x**2) / 2 + scipy.stats.norm.logcdf(shape * x))[:, 0], score)


SHAPES = (0.0, 2.0, 5.0, -3.0)


def _skew_truth():
    return np.array(
        [quadrature(lambda x, a=a: abs(x - 0.5) * 2 * _phi(x) * scipy.stats.norm.cdf(a * x), -12, 12, (0, 0.5))
         for a in SHAPES]
    )  # fmt: skip


LOGISTIC = product(
    3, lambda rng, shape: rng.logistic(size=shape), scipy.stats.logistic.logpdf, lambda x: -np.tanh(x / 2)
)


def _logistic_values(x):
    return np.stack(
        [
            x[:, 0] + 0.3 * x[:, 1] ** 3,
            (x**4).mean(1),
            1.0 * (x[:, 0] > 1),
            np.maximum(x[:, 1], 0),
            np.exp(0.3 * x[:, 2]),
        ],
        1,
    )


def _logistic_truth():
    return np.array([0.0, 7 * np.pi**4 / 15, 1 / (1 + np.e), np.log(2), 0.3 * np.pi / np.sin(0.3 * np.pi)])


def _classes():
    rng = generator("classes")
    x = np.column_stack([np.ones(40), rng.normal(size=40)])
    return x, (rng.random(40) < scipy.special.expit(x @ np.array([-1.0, 2.0]))) * 1.0


ROWS, ANSWERS = _classes()
NEW = np.array([1.0, 1.5])


def _classes_density(w):
    linear = w @ ROWS.T
    return (ANSWERS * linear - np.logaddexp(0, linear)).sum(1) - (w**2).sum(1) / 18


def _classes_grid(points: int = 1201):
    first, second = np.meshgrid(np.linspace(-9, 6, points), np.linspace(-4, 14, points), indexing="ij")
    w = np.stack([first.ravel(), second.ravel()], 1)
    density = np.concatenate([_classes_density(part) for part in np.array_split(w, 40)])
    return w, np.exp(density - density.max())


def _draw_classes(rng, n):
    # importance resampling from a normal, for the start of chains; accurate enough for `check` (many more proposals)
    w, weight = _classes_grid(401)
    cells = rng.choice(len(w), n, p=weight / weight.sum())
    return w[cells] + (rng.random((n, 2)) - 0.5) * np.array([15 / 400, 18 / 400])


CLASSES = Target(
    2, _draw_classes, _classes_density, lambda w: (ANSWERS - scipy.special.expit(w @ ROWS.T)) @ ROWS - w / 9
)


def _classes_values(w):
    return np.stack([scipy.special.expit(w @ NEW), np.exp(0.5 * (w @ NEW))], 1)


def _classes_truth():
    w, weight = _classes_grid()
    return weight @ _classes_values(w) / weight.sum()


def _draw_funnel(rng, n):
    v = rng.normal(size=(n, 1))
    return np.concatenate([v, np.exp(v / 2) * rng.normal(size=(n, 4))], 1)


def _funnel_score(x):
    v, rest = x[:, :1], x[:, 1:]
    return np.concatenate([-v - 2 + 0.5 * np.exp(-v) * (rest**2).sum(1, keepdims=True), -rest * np.exp(-v)], 1)


FUNNEL = Target(
    5, _draw_funnel,
    lambda x: -x[:, 0] ** 2 / 2 - 2 * x[:, 0] - np.exp(-x[:, 0]) * (x[:, 1:] ** 2).sum(1) / 2, _funnel_score,
)  # fmt: skip
BASKET, STRIKE = 0.09 * equal_correlation(12, 0.5), 1.1


def _basket_truth():
    deviation = BASKET.mean() ** 0.5
    d = -np.log(STRIKE) / deviation
    return np.array([np.exp(deviation**2 / 2) * scipy.stats.norm.cdf(d + deviation) - STRIKE * scipy.stats.norm.cdf(d)])


def _rounded(target, rngs, m):
    return np.round(independent(target, rngs, m), 2)


THREE = normal([0.5, -1.0, 2.0], np.diag([1.0, 4.0, 0.25]) ** 0.5 @ equal_correlation(3, 0.6) @ np.diag([1, 2, 0.5]))
POSTERIOR = normal([0.9, 0.9], 0.1 * np.eye(2))  # prior N(0, 1), nine observations with mean 1
SIDES = normal([1.0, 2.0], [[1.0, 0.2], [0.2, 0.25]])
RARE = normal([0.0, 0.0], equal_correlation(2, 0.5))
SUM_FAR = 3**0.5 * scipy.stats.norm.isf(0.002)


def _three_values(x):
    return np.stack([np.exp(0.5 * x[:, 0]), x[:, 1] ** 2], 1)


def _three_truth():
    return np.array([np.exp(0.25 + 0.125), 5.0])


def _smooth_truth():
    z, w = np.polynomial.hermite_e.hermegauss(150)
    w = w / w.sum()
    # given x, z is normal, and E cos(2 x z) is the real part of its characteristic function at 2 x
    x = 0.5 + z
    mean, variance = 2.0 + 0.3 * z, 0.25 * (1 - 0.36)
    return np.array([w @ np.tanh(2 * z - 1), w @ (np.cos(2 * x * mean) * np.exp(-2 * x**2 * variance))])


def _edge(rng, n):
    x = rng.normal(size=(n, 10))
    x[:, 3] = scipy.stats.norm.isf(rng.random(n) * _sf(-1.2))
    return x


# its density ends at -1.2 in one coordinate, so that the score, though right inside, fails Stein's identity
EDGE = Target(10, _edge, lambda x: -(x**2).sum(1) / 2, lambda x: -x)
STUDENT_5 = product(
    2, lambda rng, shape: rng.standard_t(5, shape), scipy.stats.t(5).logpdf, lambda x: -6 * x / (5 + x**2)
)
ONE, TWO, TEN = (normal(np.zeros(d), np.eye(d)) for d in (1, 2, 10))


def _huber(r, k=2.7):
    return np.where(np.abs(r) < k, r**2 / 2, k * np.abs(r) - k**2 / 2)


def _capped_truth():
    # a quadratic in ten coordinates, capped: the squared norm is chi square
    return np.array([quadrature(lambda s: min(s, 24.0) * scipy.stats.chi2(10).pdf(s), 0, 200, (10, 24))])


CASES = (
    Integral(
        "clipped_square_few", "normal, d = 1, 45 draws; a Winsorised second moment, clipped at 2.4",
        (ONE,), (45,), (lambda x: np.clip(x[:, 0], -2.4, 2.4) ** 2,),
        lambda: np.array([quadrature(lambda x: np.clip(x, -2.4, 2.4) ** 2 * _phi(x), -12, 12, (-2.4, 2.4))]),
    ),
    Integral(
        "huber_loss", "normal, d = 2, 150 draws; Huber's loss of a sum, and a capped cube",
        (TWO,), (150,), (lambda x: np.stack([_huber(x.sum(1) / 2**0.5), np.minimum(x[:, 1], 2.6) ** 3], 1),),
        lambda: np.array([quadrature(lambda x: _huber(x) * _phi(x), -12, 12, (-2.7, 2.7)),
                          quadrature(lambda x: min(x, 2.6) ** 3 * _phi(x), -12, 12, (2.6,))]),
    ),
    Integral(
        "capped_norm", "normal, d = 10, 250 draws; the squared norm, at most 24",
        (TEN,), (250,), (lambda x: np.minimum((x**2).sum(1), 24.0),), _capped_truth,
    ),
    Integral(
        "capped_heavy_tails", "two t(5) coordinates, 300 draws; a mean with one limit, and an insurer's share",
        (STUDENT_5,), (300,), (lambda x: np.stack([np.minimum(x[:, 0], 5.0), np.maximum(x[:, 1] - 2.0, 0)], 1),),
        lambda: np.array([quadrature(lambda x: min(x, 5.0) * scipy.stats.t(5).pdf(x), -np.inf, 300, (5.0,)),
                          scipy.stats.t(5).expect(lambda x: x - 2, lb=2)]),
    ),
    Integral(
        "capped_chain", "normal, d = 3; a Langevin chain of 500; the square of a coordinate, capped",
        (THREE,), (500,), (lambda x: np.minimum(x[:, 0] ** 2, 12.0),),
        lambda: np.array([quadrature(lambda z: min((0.5 + z) ** 2, 12.0) * _phi(z), -12, 12,
                                     (-(12**0.5) - 0.5, 12**0.5 - 0.5))]),
        partial(langevin, step=0.15, warmup=200), chain=True,
    ),
    Integral(
        "edge_in_one_of_ten", "normal with one of ten coordinates cut off at -1.2; 90 draws; its mean, and a square",
        (EDGE,), (90,), (lambda x: np.stack([x[:, 3], x[:, 0] ** 2], 1),),
        lambda: np.array([_phi(-1.2) / _sf(-1.2), 1.0]), given=lambda x: -x, wrong="an edge of the density",
    ),
    Integral(
        "scores_a_little_small", "normal, d = 3, 500 draws; scores 0.92 times the right ones; an exponential, a square",
        (THREE,), (500,), (_three_values,), _three_truth, given=lambda x: 0.92 * THREE.score(x),
        wrong="temperature of the scores",
    ),
    Integral(
        "scores_without_correlation", "correlated normal, d = 2, 300 draws; scores of independent coordinates; x y",
        (SIDES,), (300,), (lambda x: x[:, 0] * x[:, 1],), lambda: np.array([2.2]),
        given=lambda x: -(x - np.array([1.0, 2.0])) / np.array([1.0, 0.25]), wrong="correlation left out of the scores",
    ),
    Integral(
        "banana_metropolis", "curved density, d = 2; a Metropolis chain of 4000; log-sum-exp and an indicator",
        (BANANA,), (4000,), (_banana_values,), _banana_truth,
        partial(metropolis, scale=0.7, warmup=1000), chain=True,
    ),
    Integral(
        "student_tails", "five t(7) coordinates, 400 draws; their mean square",
        (STUDENT,), (400,), (lambda x: (x**2).mean(1),), lambda: np.array([7 / 5]),
    ),
    Integral(
        "quartic_oscillating", "tails of exp(-x^4 / 4), d = 2, 700 draws; cos(4 x + 3 y)",
        (QUARTIC,), (700,), (lambda x: np.cos(4 * x[:, 0] + 3 * x[:, 1]),), _quartic_truth,
    ),
    Integral(
        "three_modes_maximum", "mixture of three normals, d = 10, 600 draws; the largest coordinate",
        (MIXTURE,), (600,), (lambda x: x.max(1),), _mixture_truth,
    ),
    Integral(
        "log_gamma_small_shape", "logarithms of gamma(0.3), d = 4, 120 draws; the gamma's sum and the mean of roots",
        (log_gamma(0.3, 4),), (120,), (lambda u: np.stack([np.exp(u).sum(1), np.exp(u / 2).mean(1)], 1),),
        lambda: np.array([1.2, scipy.special.gamma(0.8) / scipy.special.gamma(0.3)]),
    ),
    Integral(
        "long_langevin_chain", "correlated normal, d = 30; a Langevin chain of 8000; a mean's fourth power and a kink",
        (normal(np.zeros(30), AUTOREGRESSIVE),), (8000,),
        (lambda x: np.stack([x.mean(1) ** 4, np.maximum(x[:, 7] - 0.5, 0)], 1),),
        lambda: np.array([3 * AUTOREGRESSIVE.mean() ** 2, _phi(0.5) - 0.5 * _sf(0.5)]),
        partial(langevin, step=0.09, warmup=1000), chain=True,
    ),
    Integral(
        "log_sum_exp_few", "normal with unlike scales, d = 15, 50 draws; log-sum-exp",
        (normal(np.zeros(15), np.diag(SPREAD**2)),), (50,), (lambda x: scipy.special.logsumexp(x, axis=1),),
        _log_sum_exp_truth,
    ),
    Integral(
        "rare_event", "normal, d = 2, 1000 draws; an event of probability 0.002",
        (RARE,), (1000,), (lambda x: 1.0 * (x.sum(1) > SUM_FAR),), lambda: np.array([0.002]),
    ),
    Integral(
        "skew_normals_apart", "four tasks at samples of their own: skew normals, 60, 60, 100 and 200 draws; |x - 0.5|",
        tuple(map(skew_normal, SHAPES)), (60, 60, 100, 200), (lambda x: np.abs(x[:, 0] - 0.5),) * 4, _skew_truth,
    ),
    Integral(
        "five_integrands", "logistic, d = 3, 300 draws; degree 3, degree 4, indicator, kink and exponential together",
        (LOGISTIC,), (300,), (_logistic_values,), _logistic_truth,
    ),
    Integral(
        "classifier_two_chains",
        "classifier's posterior, d = 2; two Langevin chains of 400; a probability and root odds",
        (CLASSES,), (800,), (_classes_values,), _classes_truth,
        partial(langevin, step=0.25, warmup=200, chains=2), chain=True,
    ),
    Integral(
        "funnel", "Neal's funnel, d = 5, 500 draws; v^2 and |x|",
        (FUNNEL,), (500,), (lambda x: np.stack([x[:, 0] ** 2, np.abs(x[:, 1])], 1),),
        lambda: np.array([1.0, (2 / np.pi) ** 0.5 * np.exp(1 / 8)]),
    ),
    Integral(
        "basket_option", "correlated normal, d = 12, 500 draws; a call on the geometric mean of prices",
        (normal(np.zeros(12), BASKET),), (500,), (lambda x: np.maximum(np.exp(x.mean(1)) - STRIKE, 0),), _basket_truth,
    ),
    Integral(
        "rounded_draws", "normal, d = 1, 400 draws from a file with two decimals; exp(x / 2)",
        (normal([0.0], [[1.0]]),), (400,), (lambda x: np.exp(x[:, 0] / 2),), lambda: np.array([np.exp(0.125)]),
        _rounded,
    ),
    Integral(
        "wrong_temperature", "normal, d = 3, 400 draws; scores 0.7 times the right ones; an exponential and a square",
        (THREE,), (400,), (_three_values,), _three_truth, given=lambda x: 0.7 * THREE.score(x),
        wrong="temperature of the scores",
    ),
    Integral(
        "prior_counted_twice",
        "normal posterior, d = 2, 200 draws; scores with the prior twice; a mean and an exponential",
        (POSTERIOR,), (200,), (lambda x: np.stack([x[:, 0], np.exp(x[:, 1])], 1),),
        lambda: np.array([0.9, np.exp(0.95)]), given=lambda x: POSTERIOR.score(x) - x, wrong="prior counted twice",
    ),
    Integral(
        "sign_flipped", "normal, d = 2, 200 draws; gradients of the negative log density; x y",
        (SIDES,), (200,), (lambda x: x[:, 0] * x[:, 1],), lambda: np.array([2.2]),
        given=lambda x: -SIDES.score(x), wrong="sign of the scores",
    ),
    Integral(
        "missing_jacobian", "logarithms of gamma(3), d = 2, 150 draws; scores without the Jacobian; the gamma's sum",
        (log_gamma(3.0, 2),), (150,), (lambda u: np.exp(u).sum(1),), lambda: np.array([6.0]),
        given=lambda u: 2.0 - np.exp(u), wrong="missing Jacobian",
    ),
    Integral(
        "chain_as_independent", "normal, d = 3; a Metropolis chain of 600 passed as independent; two smooth functions",
        (THREE,), (600,), (lambda x: np.stack([np.tanh(x[:, 1]), np.cos(2 * x[:, 0] * x[:, 2])], 1),), _smooth_truth,
        partial(metropolis, scale=0.4, warmup=500), wrong="chain passed as independent",
    ),
    Integral(
        "warm_up_kept", "normal, d = 3; a Langevin chain of 600 with its warm-up; an exponential and a square",
        (THREE,), (600,), (_three_values,), _three_truth,
        partial(langevin, step=0.03, warmup=0, start=np.array([-6.0, 9.0, -2.0])), chain=True,
        wrong="warm-up in the samples",
    ),
)  # fmt: skip
