"""``auto`` on targets and integrands that are not kind: its intervals cover, and it is never far behind Monte Carlo."""

import numpy as np
import pytest
import scipy.stats

from lowvar.integrals.auto import auto
from lowvar.integrals.base import Samples


def normal(dim):
    def draw(rng, m):
        x = rng.normal(size=(m, dim))
        return x, -x

    return draw


def banana(rng, m):
    x = rng.normal(size=(m, 2))
    x[:, 1] = 0.5 * x[:, 1] + x[:, 0] ** 2
    rest = (x[:, 1] - x[:, 0] ** 2) / 0.25
    return x, np.column_stack([2 * rest * x[:, 0] - x[:, 0], -rest])


def funnel(rng, m, dim=5):
    z = rng.normal(size=(m, dim))
    v = 3 * z[:, 0]
    y = z[:, 1:] * np.exp(v / 2)[:, None]
    slope = -v / 9 - (dim - 1) / 2 + 0.5 * (y**2).sum(1) * np.exp(-v)
    return np.column_stack([v, y]), np.column_stack([slope, -y * np.exp(-v)[:, None]])


def student(rng, m):
    x = rng.standard_t(5, size=(m, 2))
    return x, -6 * x / (5 + x**2)


def mixture(rng, m):
    centre = np.where(rng.random(m) < 0.3, -2.0, 2.0)[:, None]
    x = centre + rng.normal(size=(m, 1))
    weight = 0.3 * np.exp(-0.5 * (x + 2) ** 2)
    other = 0.7 * np.exp(-0.5 * (x - 2) ** 2)
    return x, (-(x + 2) * weight - (x - 2) * other) / (weight + other)


def autoregression(rng, m, keep=0.7):
    x = rng.normal(size=(m, 2))
    for i in range(1, m):
        x[i] = keep * x[i - 1] + np.sqrt(1 - keep**2) * x[i]
    return x, -x


def above(threshold):
    return scipy.integrate.quad(
        lambda z: scipy.stats.norm.pdf(z) * scipy.stats.norm.sf((threshold - z * z) / 0.5), -8, 8, points=[-1.5, 1.5]
    )[0]


PEAK = (np.exp(-0.5 / 5) / np.sqrt(5)) ** 2  # of exp(-2 |x - 1/2|^2) under N(0, I), d = 2
# draw, integrand, truth, points, repetitions, chain; test_auto_coverage.py has targets that are less kind
CASES = {
    "normal, smooth": (normal(2), lambda x: np.exp(0.3 * x[:, 0]) + x[:, 1] ** 2, np.exp(0.045) + 1, 60, 100, False),
    "two modes": (mixture, lambda x: x[:, 0], 0.8, 100, 60, False),
    "t(5), few points": (student, lambda x: x[:, 0] ** 2, 5 / 3, 40, 20, False),
}


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name == "t(5), few points" else pytest.mark.long) for name in CASES]
)
def test_intervals_cover_and_nothing_is_lost_against_monte_carlo(case):
    draw, integrand, truth, m, repetitions, chain = CASES[case]
    pairs = [draw(np.random.default_rng((hash_of(case), r)), m) for r in range(repetitions)]
    x, scores = (np.stack(of) for of in zip(*pairs, strict=True))
    values = np.stack([integrand(one) for one in x])
    found = auto().integrate(Samples((x,), (scores,), (values,), shared=True, chain=chain), np.zeros(repetitions, int))
    error, plain = found.value[:, 0] - truth, values.mean(axis=1) - truth
    covered = np.abs(error) < found.half[:, 0]
    told = found.flags["few_carriers"] | found.flags["short_chain"]
    fewest = scipy.stats.binom.ppf(0.005, repetitions, 0.9)  # of intervals that cover with probability 0.9
    choices = dict(zip(*np.unique(found.info["choice"], return_counts=True), strict=True))
    assert (covered | told).sum() >= fewest, (covered.mean(), told.mean(), choices)
    ratio = np.sqrt((error**2).mean() / (plain**2).mean())
    assert ratio <= 1.2, (ratio, choices)


def hash_of(name):
    return sum(ord(letter) * 31**i for i, letter in enumerate(name)) % 2**31


def test_gains_where_there_is_something_to_gain():
    x = np.random.default_rng(0).normal(size=(5, 60, 2))
    y = np.exp(0.3 * x[..., 0]) + x[..., 1] ** 2
    found = auto().integrate(Samples((x,), (-x,), (y,), shared=True), np.zeros(5, int))
    plain = found.info["monte_carlo"] - np.exp(0.045) - 1
    assert np.median(np.abs(found.value - np.exp(0.045) - 1)) < 0.01 * np.median(np.abs(plain))
    assert (found.standard_error <= found.info["monte_carlo_error"]).all()
    many = np.random.default_rng(1).normal(size=(1, 3000, 2))
    y = np.sin(many[..., 0]) + np.cos(many[..., 1])
    found = auto().integrate(Samples((many,), (-many,), (y,), shared=True), np.zeros(1, int))
    assert found.standard_error[0, 0] < 0.1 * found.info["monte_carlo_error"][0, 0]  # bounded: nothing can hide


@pytest.mark.long
def test_repetitions_of_unlike_kinds_do_not_know_of_each_other():
    rng = np.random.default_rng(8)
    independent, _ = normal(2)(rng, 100)
    chain, _ = autoregression(rng, 100, 0.95)
    x = np.stack([independent, chain])
    scores = np.stack([-independent, -2 * chain])
    values = np.exp(0.5 * x[..., 0])
    together = auto().integrate(Samples((x,), (scores,), (values,), shared=True), np.zeros(2, int))
    alone = auto().integrate(Samples((x[:1],), (scores[:1],), (values[:1],), shared=True), np.zeros(1, int))
    np.testing.assert_allclose(together.value[0], alone.value[0], rtol=1e-6)
    np.testing.assert_allclose(together.standard_error[0], alone.standard_error[0], rtol=1e-3)
    assert together.flags["like_a_chain"].tolist() == [False, True]


def test_wrong_scores_give_monte_carlo_or_are_too_little_wrong_to_tell():
    x = np.random.default_rng(2).normal(size=(20, 500, 2))
    y = x[..., 0] ** 2
    few = Samples((x[:6],), (-2 * x[:6],), (y[:6],), shared=True)
    found = auto().integrate(few, np.zeros(6, int))
    assert found.flags["scores_doubted"].all()
    assert (found.info["choice"] == "monte_carlo").all()
    np.testing.assert_allclose(found.value[:, 0], y[:6].mean(axis=1))
    shifted = auto().integrate(Samples((x[:, :15],), (5 - x[:, :15],), (100 + x[:, :15, 0],)), np.zeros(20, int))
    assert (shifted.info["choice"] == "monte_carlo").mean() > 0.9  # too few points for the test of the scores


@pytest.mark.parametrize(("chains", "least"), [(4, 3), pytest.param(10, 8, marks=pytest.mark.long)])
def test_a_chain_that_is_not_called_one_is_noticed(chains, least):
    pairs = [autoregression(np.random.default_rng(r), 300, 0.9) for r in range(chains)]
    x = np.stack([x for x, _ in pairs])
    y = 1.0 * (x[..., 0] > 0)
    found = auto().integrate(Samples((x,), (-x,), (y,), shared=True), np.zeros(chains, int))
    assert found.flags["like_a_chain"].all()
    assert (np.abs(found.value[:, 0] - 0.5) < found.half[:, 0]).sum() >= least


def test_tasks_choose_for_themselves_and_learn_from_each_other():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 100, 2))
    y = (x[..., 0] ** 2, 1.0 * (np.sin(7 * x[..., 1]) > 0))
    found = auto().integrate(Samples((x, x), (-x, -x), y, shared=True), np.zeros(2, int))
    assert (found.info["choice"][:, 0] != "monte_carlo").all()
    assert (found.info["choice"][:, 1] == "monte_carlo").all()
    points = tuple(rng.normal(size=(2, 15, 1)) for _ in range(2))
    values = tuple(np.sin(2 * p[..., 0]) + 3 * t for t, p in enumerate(points))
    ladder = auto().integrate(Samples(points, tuple(-p for p in points), values), np.zeros(2, int))
    assert (np.abs(ladder.value - [0.0, 3.0]) < 4 * ladder.standard_error).all()
