"""Scores of another density: the test of scores, and what is said of wrong ones."""

import numpy as np
import pytest
from samples_of_normal import autoregression, normal

import lowvar
from lowvar.integrals.inputs import doubt


def gamma_logarithms(rng, shift=2):
    u = np.log(rng.gamma(2.0, size=(60, 2)))
    return u, shift - np.exp(u)


def scaled(rng, factor):
    x = rng.normal(size=(120, 2))
    return x, -factor * x


@pytest.mark.parametrize(
    ("draw", "chain", "least", "most"),
    [
        (gamma_logarithms, False, 0, 5),
        (lambda rng: scaled(rng, 1.0), False, 0, 5),
        (lambda rng: ((x := autoregression(rng, 400, 2, keep=0.9)), -x), True, 0, 8),
        (lambda rng: scaled(rng, 1.3), False, 20, 100),
        (lambda rng: scaled(rng, 2.0), False, 95, 100),
        (lambda rng: gamma_logarithms(rng, 1), False, 90, 100),  # no Jacobian
    ],
)
def test_right_scores_are_seldom_suspected_and_wrong_ones_often(draw, chain, least, most):
    found = sum(doubt(*draw(np.random.default_rng(seed)), chain) is not None for seed in range(100))
    assert least <= found <= most


def test_vouched_scores_are_suspected_once_in_a_thousand():
    samples = np.random.default_rng(0).normal(size=(1000, 60, 1))
    assert sum(doubt(x, -x, exact=True) is not None for x in samples) <= 6


def test_wrong_scores_are_told_once_with_what_came_of_it():
    x = normal(300)
    with pytest.warns(UserWarning, match="Monte Carlo's estimate was returned"):
        found = lowvar.integrate(x, -2 * x, x[:, 0] ** 2)
    assert sum("not match the density" in note for note in found.notes) == 1
    assert found.method == "monte_carlo"


WRONG = {
    "of other rows": lambda x: -x[np.random.default_rng(1).permutation(300)],
    "of the coordinates in another order": lambda x: -x[:, ::-1],
    "of standardised samples, twice as wide": lambda x: -2 * x,
    "clipped": lambda x: np.clip(-x, -1, 1),
    "of unit length": lambda x: -x / np.linalg.norm(x, axis=1, keepdims=True),
    "truncated to whole numbers": lambda x: (-x).astype(int),
    "of the negative density": lambda x: x,
    "constant in a coordinate": lambda x: np.column_stack([-x[:, 0], np.ones(300)]),
}


@pytest.mark.parametrize("method", ["zero_variance", "auto"])
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_scores_are_noted_whoever_vouches_for_them(kind, method):
    x = normal(300)
    with pytest.warns(UserWarning, match="density"):
        found = lowvar.integrate(x, WRONG[kind](x), x[:, 0] * x[:, 1] + x[:, 0] ** 2, method, exact_scores=True)
    apart = abs(found.value - found.table["monte_carlo"]) / found.table["monte_carlo_se"]
    assert (apart[0] > 3) == any("away" in note for note in found.notes)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("noise", [np.float32, lambda s: np.round(s, 3)])
def test_scores_of_few_digits_are_no_wrong_scores(noise):
    x = normal(300)
    found = lowvar.integrate(x, noise(-x), 1e5 + x[:, 0] ** 2, "zero_variance", order=2, exact_scores=True)
    assert abs(found.value[0] - 1e5 - 1) < 1e-3
    assert ["polynomial" in note for note in found.notes] == [True]


def test_many_integrals_are_not_noted_for_their_number():
    """The means of 200 coordinates are independent: beyond 3 standard errors is one in two such calls by chance."""
    noted = 0
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(400, 200))
        found = lowvar.integrate(x, -x, x, "zero_variance", order=1, exact_scores=True, polynomial=True)
        noted += any("standard errors of Monte Carlo" in note for note in found.notes)
    assert noted <= 1
