"""Expectations: regions that no sample reached, and scores that are a little wrong."""

from functools import partial

import numpy as np
import scipy.special
import scipy.stats

from trust_cases.targets import (
    SIDES,
    THREE,
    Integral,
    Target,
    equal_correlation,
    langevin,
    log_gamma,
    normal,
    phi,
    product,
    quadrature,
    sf,
    three_truth,
    three_values,
)  # fmt: skip


def _edge(rng, n):
    x = rng.normal(size=(n, 10))
    x[:, 3] = scipy.stats.norm.isf(rng.random(n) * sf(-1.2))
    return x


# its density ends at -1.2 in one coordinate, so that the score, though right inside, fails Stein's identity
EDGE = Target(10, _edge, lambda x: -(x**2).sum(1) / 2, lambda x: -x)
STUDENT_5 = product(
    2, lambda rng, shape: rng.standard_t(5, shape), scipy.stats.t(5).logpdf, lambda x: -6 * x / (5 + x**2)
)
ONE, TWO, FIVE, TEN, THIRTY = (normal(np.zeros(d), np.eye(d)) for d in (1, 2, 5, 10, 30))
PAIR = normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]])


def _huber(r, k=2.7):
    return np.where(np.abs(r) < k, r**2 / 2, k * np.abs(r) - k**2 / 2)


def _capped_truth():
    # a quadratic in ten coordinates, capped: the squared norm is chi square
    return np.array([quadrature(lambda s: min(s, 24.0) * scipy.stats.chi2(10).pdf(s), 0, 200, (10, 24))])


MINIMUM = -1.1629644736405195  # the mean of the least of five normals
STUDENT_4 = product(
    1, lambda rng, shape: rng.standard_t(4, shape), scipy.stats.t(4).logpdf, lambda x: -5 * x / (4 + x**2)
)


def _shares_truth():
    # given y, x is normal with mean 0.6 y and variance 0.64
    return np.array([quadrature(lambda y: (1.64 + 0.36 * y**2) / (1 + y**2) * phi(y), -12, 12, (0,))])


def _capped_thirty_truth():
    return np.array([30 - quadrature(lambda s: scipy.stats.chi2(30).sf(s), 55, 300)])


def _half(rng, n):
    x = rng.normal(size=(n, 5))
    x[:, 2] = np.abs(x[:, 2])
    return x


HALF = Target(5, _half, lambda x: -(x**2).sum(1) / 2, lambda x: -x)
STUDENT_3 = product(
    1, lambda rng, shape: rng.standard_t(3, shape), scipy.stats.t(3).logpdf, lambda x: -4 * x / (3 + x**2)
)
SIXTY = normal(np.zeros(60), equal_correlation(60, 0.3))


def _barrier(x):
    return np.maximum(np.exp(0.5 * x[:, 0]) - 1, 0) * (x[:, 0] < 2.2)


UNSEEN = (
    Integral(
        "barrier_payoff", "normal, d = 1, 60 draws; a call that pays nothing above a barrier",
        (ONE,), (60,), (_barrier,),
        lambda: np.array([quadrature(lambda x: (np.exp(0.5 * x) - 1) * phi(x), 0, 2.2)]), jumps=True,
    ),
    Integral(
        "infinite_variance", "t(3), d = 1, 400 draws; a square, whose variance is infinite, and a root",
        (STUDENT_3,), (400,), (lambda x: np.stack([x[:, 0] ** 2, np.abs(x[:, 0]) ** 0.5], 1),),
        lambda: np.array([3.0, 2 * quadrature(lambda x: x**0.5 * scipy.stats.t(3).pdf(x), 0, np.inf, (1, 10, 100))]),
    ),
    Integral(
        "weights_as_values", "normal, d = 3, 300 draws; importance ratios of a shifted normal",
        (normal(np.zeros(3), np.eye(3)),), (300,), (lambda x: np.exp(x @ np.array([0.8, 0.6, 0.0]) - 0.5),),
        lambda: np.array([1.0]),
    ),
    Integral(
        "far_from_zero", "normal, d = 2, 200 draws; a square and a sine on an offset of 1e8",
        (TWO,), (200,), (lambda x: 1e8 + x[:, 0] ** 2 + np.sin(x[:, 1]),), lambda: np.array([1e8 + 1]),
    ),
    Integral(
        "fewer_draws_than_coordinates", "correlated normal, d = 60, 40 draws; a sum, and a square",
        (SIXTY,), (40,), (lambda x: np.stack([x.sum(1), x[:, 0] ** 2], 1),), lambda: np.array([0.0, 1.0]),
    ),
    Integral(
        "eight_draws", "normal, d = 2, 8 draws; an exponential",
        (TWO,), (8,), (lambda x: np.exp(0.5 * x[:, 0]),), lambda: np.array([np.exp(0.125)]),
    ),
    Integral(
        "half_normal_in_one_of_five", "normal, one of five coordinates positive, 150 draws; its mean, another's square",
        (HALF,), (150,), (lambda x: np.stack([x[:, 2], x[:, 0] ** 2], 1),), lambda: np.array([(2 / np.pi) ** 0.5, 1.0]),
        given=lambda x: -x, wrong="an edge of the density",
    ),
    Integral(
        "scores_of_other_rows", "normal, d = 3, 200 draws; scores of the rows before; an exponential, a square",
        (THREE,), (200,), (three_values,), three_truth, given=lambda x: np.roll(THREE.score(x), 1, axis=0),
        wrong="scores of other rows",
    ),
    Integral(
        "scores_of_another_family", "normal, d = 1, 250 draws; scores of a logistic of the same variance; a square",
        (ONE,), (250,), (lambda x: x[:, 0] ** 2,), lambda: np.array([1.0]),
        given=lambda x: -np.tanh(x * np.pi / 12**0.5) * np.pi / 3**0.5, wrong="scores of another family",
    ),
    Integral(
        "product_of_clips", "normal, d = 2, 100 draws; the product of two clipped coordinates",
        (TWO,), (100,), (lambda x: np.clip(x, -1.0, 2.5).prod(1),),
        lambda: np.array([quadrature(lambda x: np.clip(x, -1.0, 2.5) * phi(x), -12, 12, (-1.0, 2.5)) ** 2]),
    ),
    Integral(
        "least_of_five", "normal, d = 5, 200 draws; the least coordinate",
        (FIVE,), (200,), (lambda x: x.min(1),), lambda: np.array([MINIMUM]),
    ),
    Integral(
        "ratio_of_squares", "correlated normal, d = 2, 120 draws; (1 + x^2) / (1 + y^2)",
        (PAIR,), (120,), (lambda x: (1 + x[:, 0] ** 2) / (1 + x[:, 1] ** 2),), _shares_truth,
    ),
    Integral(
        "truncated_moment", "logarithm of a gamma(3), 60 draws; its square below 2.1, and nothing above",
        (log_gamma(3.0, 1),), (60,), (lambda u: u[:, 0] ** 2 * (u[:, 0] < 2.1),),
        lambda: np.array([quadrature(lambda u: u**2 * scipy.stats.loggamma(3).pdf(u), -12, 2.1, (-3, 0))]), jumps=True,
    ),
    Integral(
        "premium_far_out", "normal, d = 1, 80 draws; a square, and a payoff above 3",
        (ONE,), (80,), (lambda x: x[:, 0] ** 2 + 5 * np.maximum(x[:, 0] - 3, 0),),
        lambda: np.array([1 + 5 * (phi(3.0) - 3 * sf(3.0))]),
    ),
    Integral(
        "capped_norm_of_thirty", "normal, d = 30, 300 draws; the squared norm, at most 55",
        (THIRTY,), (300,), (lambda x: np.minimum((x**2).sum(1), 55.0),), _capped_thirty_truth,
    ),
    Integral(
        "capped_lognormal", "normal, d = 1, 200 draws; a lognormal claim of exp(1.5 x), paid up to 60",
        (ONE,), (200,), (lambda x: np.minimum(np.exp(1.5 * x[:, 0]), 60.0),),
        lambda: np.array([quadrature(lambda x: min(np.exp(1.5 * x), 60.0) * phi(x), -12, 12, (np.log(60) / 1.5,))]),
    ),
    Integral(
        "tails_heavier_than_scores", "t(4), 200 draws; scores of a normal of the same variance; a square",
        (STUDENT_4,), (200,), (lambda x: x[:, 0] ** 2,), lambda: np.array([2.0]), given=lambda x: -x / 2,
        wrong="a normal's scores for heavier tails",
    ),
    Integral(
        "prior_left_out", "normal, d = 2, 150 draws; scores without a weak prior's; an exponential",
        (TWO,), (150,), (lambda x: np.exp(0.5 * x[:, 0]),), lambda: np.array([np.exp(0.125)]),
        given=lambda x: -x + 0.1 * (x - 0.5), wrong="a prior left out of the scores",
    ),
    Integral(
        "shifted_scores", "normal, d = 2, 400 draws; scores with a mean that is off by 0.05; a mean",
        (TWO,), (400,), (lambda x: x[:, 0],), lambda: np.array([0.0]), given=lambda x: 0.05 - x,
        wrong="a shift of the scores",
    ),
    Integral(
        "clipped_square_few", "normal, d = 1, 45 draws; a Winsorised second moment, clipped at 2.4",
        (ONE,), (45,), (lambda x: np.clip(x[:, 0], -2.4, 2.4) ** 2,),
        lambda: np.array([quadrature(lambda x: np.clip(x, -2.4, 2.4) ** 2 * phi(x), -12, 12, (-2.4, 2.4))]),
    ),
    Integral(
        "huber_loss", "normal, d = 2, 150 draws; Huber's loss of a sum, and a capped cube",
        (TWO,), (150,), (lambda x: np.stack([_huber(x.sum(1) / 2**0.5), np.minimum(x[:, 1], 2.6) ** 3], 1),),
        lambda: np.array([quadrature(lambda x: _huber(x) * phi(x), -12, 12, (-2.7, 2.7)),
                          quadrature(lambda x: min(x, 2.6) ** 3 * phi(x), -12, 12, (2.6,))]),
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
        lambda: np.array([quadrature(lambda z: min((0.5 + z) ** 2, 12.0) * phi(z), -12, 12,
                                     (-(12**0.5) - 0.5, 12**0.5 - 0.5))]),
        partial(langevin, step=0.15, warmup=200), chain=True,
    ),
    Integral(
        "edge_in_one_of_ten", "normal with one of ten coordinates cut off at -1.2; 90 draws; its mean, and a square",
        (EDGE,), (90,), (lambda x: np.stack([x[:, 3], x[:, 0] ** 2], 1),),
        lambda: np.array([phi(-1.2) / sf(-1.2), 1.0]), given=lambda x: -x, wrong="an edge of the density",
    ),
    Integral(
        "scores_a_little_small", "normal, d = 3, 500 draws; scores 0.92 times the right ones; an exponential, a square",
        (THREE,), (500,), (three_values,), three_truth, given=lambda x: 0.92 * THREE.score(x),
        wrong="temperature of the scores",
    ),
    Integral(
        "scores_without_correlation", "correlated normal, d = 2, 300 draws; scores of independent coordinates; x y",
        (SIDES,), (300,), (lambda x: x[:, 0] * x[:, 1],), lambda: np.array([2.2]),
        given=lambda x: -(x - np.array([1.0, 2.0])) / np.array([1.0, 0.25]), wrong="correlation left out of the scores",
    ),
)  # fmt: skip
