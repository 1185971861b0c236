"""Expectations: different targets, samplers, sizes and integrands, and wrong inputs.

A truth is analytic or by quadrature; `check` compares it with independent draws, and scores with differences.
"""

from functools import partial

import numpy as np
import scipy.special
import scipy.stats

from trust_cases.common import generator
from trust_cases.targets import (
    SIDES,
    THREE,
    Integral,
    Target,
    equal_correlation,
    independent,
    langevin,
    log_gamma,
    metropolis,
    normal,
    phi,
    product,
    quadrature,
    sf,
    three_truth,
    three_values,
)  # fmt: skip
from trust_cases.unseen import UNSEEN

# ------------------------------------------------------------------------------------------------ targets and truths


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
    above = quadrature(lambda a: phi(a) * sf((2.5 - a**2) / 0.5), -9, 9, (-1.6, 0, 1.6))
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
        [quadrature(lambda x, a=a: abs(x - 0.5) * 2 * phi(x) * scipy.stats.norm.cdf(a * x), -12, 12, (0, 0.5))
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


POSTERIOR = normal([0.9, 0.9], 0.1 * np.eye(2))  # prior N(0, 1), nine observations with mean 1
RARE = normal([0.0, 0.0], equal_correlation(2, 0.5))
SUM_FAR = 3**0.5 * scipy.stats.norm.isf(0.002)


def _smooth_truth():
    z, w = np.polynomial.hermite_e.hermegauss(150)
    w = w / w.sum()
    # given x, z is normal, and E cos(2 x z) is the real part of its characteristic function at 2 x
    x = 0.5 + z
    mean, variance = 2.0 + 0.3 * z, 0.25 * (1 - 0.36)
    return np.array([w @ np.tanh(2 * z - 1), w @ (np.cos(2 * x * mean) * np.exp(-2 * x**2 * variance))])


CASES = (
    *UNSEEN,
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
        lambda: np.array([3 * AUTOREGRESSIVE.mean() ** 2, phi(0.5) - 0.5 * sf(0.5)]),
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
        (THREE,), (400,), (three_values,), three_truth, given=lambda x: 0.7 * THREE.score(x),
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
        (THREE,), (600,), (three_values,), three_truth,
        partial(langevin, step=0.03, warmup=0, start=np.array([-6.0, 9.0, -2.0])), chain=True,
        wrong="warm-up in the samples",
    ),
)  # fmt: skip
