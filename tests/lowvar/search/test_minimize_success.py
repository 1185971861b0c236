"""What ``success`` of ``lowvar.minimize`` means: ridges, plateaus, outliers, and the cost of the look around."""

import numpy as np
import pytest
from searched import Counted, quiet, sphere, stairs, turned

import lowvar
from lowvar.search.convergence import Look
from lowvar.search.evaluator import Evaluator, from_callable
from lowvar.search.problem import Domain


def batched(f, x0, sigma0, budget, **options):
    return quiet(f, x0, sigma0, budget=budget, batched=True, **options)


def looked(f, at):
    """A look around a point, downhill, and the evaluator of its calls."""
    evaluator = Evaluator(from_callable(f, Domain("real", len(at)), batched=True), 10_000)
    evaluator(at[None, :])
    look = Look(lowvar.Searcher(at, 1e-12), evaluator, 0.5, 1e-11)
    look.downhill()
    return look, evaluator


def ridge(points):
    """``|z_0| + 1000 |z_rest|`` in turned coordinates: convex, with the minimum 0 at 0.3."""
    z = (points - 0.3) @ turned(points.shape[1])
    return np.abs(z[:, 0]) + 1000 * np.linalg.norm(z[:, 1:], axis=1)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_ridge_is_no_minimum(seed):
    """A search whose step has collapsed on the ridge is not a success there; the slope along the ridge leads on."""
    result = batched(ridge, np.full(20, 1.0), 1.0, 25_000, seed=seed)
    assert result.fun < 1e-2
    assert result.fun < 1e-6 or not result.success


@pytest.mark.long
def test_a_curved_ridge_is_no_minimum():
    """Kinks along a parabola, down which the way to the minimum bends: the slope between opposite points leads off it.

    Another search from ``x`` does not come back; the mean is that of the search that found ``x``, not of the last one.
    """

    def curved(points):
        first = points[:, :1]
        return 100 * np.abs(points[:, 1:] - first**2).sum(1) + (1 - first[:, 0]) ** 2

    result = batched(curved, np.full(20, -0.5), 0.5, 13_000, seed=1, noisy=False)
    assert 0.5 < result.fun < 1.5
    assert not result.success
    assert abs(curved(result.mean[None, :])[0] - result.fun) < 1e-6
    assert result.sigma < 1e-6


def test_a_minimum_at_a_kink_is_confirmed():
    """By a search from it, after which the message names the kink."""
    smooth = quiet(lambda x: sphere(x - 1), np.zeros(3), 0.5, budget=20_000, noisy=False)
    kinked = batched(lambda x: np.abs(x - 1).sum(1), np.zeros(3), 0.5, 20_000, noisy=False)
    assert smooth.success
    assert kinked.success
    assert ("kink" in smooth.message, "kink" in kinked.message) == (False, True)


def test_a_minimum_beside_a_jump_is_confirmed():
    """The search that comes back still has widely different values, which are no measure of rounding."""

    def wall(points):
        return ((points - 1) ** 2).sum(1) + 100 * (points.sum(1) < 2.2)

    result = batched(wall, np.full(2, 2.0), 0.5, 8000, seed=2)
    assert abs(result.fun - 0.02) < 1e-12
    assert (result.status, result.success) == ("converged", True)


@pytest.mark.parametrize(
    ("f", "is_kinked"),
    [
        (lambda x: 1e3 + np.abs(x).sum(1), True),
        (lambda x: x[:, 0] ** 2 + np.abs(x[:, 1]), True),
        (lambda x: np.where(x > 0, 10 * x, -x).sum(1), True),
        (lambda x: np.sqrt(np.abs(x)).sum(1), True),
        (lambda x: 1e3 + 1e4 * (x**2).sum(1), False),
        (lambda x: (np.abs(x) ** 1.5).sum(1), False),
        (lambda x: x[:, 0] + x[:, 1], False),
    ],
)
def test_a_kink_is_told_from_a_smooth_minimum(f, is_kinked):
    look, _ = looked(f, np.zeros(3))
    assert look.kinked == is_kinked


def test_a_look_along_the_ridge_finds_it_lower():
    """From a point on the ridge, opposite points show the slope to many digits, though hardly any direction is down."""
    dim = 20
    on = 0.3 + turned(dim)[:, 0]  # f = 1, and 1000 times the distance from the line
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(1000, dim)) * 10.0 ** rng.uniform(-12, 0, (1000, 1))
    assert (ridge(on + steps) > ridge(on[None, :])).all()
    look, evaluator = looked(ridge, on)
    assert look.better
    assert evaluator.best < 1e-3
    assert look.count == evaluator.evaluations - 1


def test_the_last_digits_of_f_are_no_plateau():
    """Values in single precision do not change within a few thousandths of the minimum; no other search is paid for."""
    f = Counted(lambda x: float(np.float32(1 + sphere(x - 1))))
    result = quiet(f, np.zeros(3), 0.5, budget=20_000)
    assert (result.status, result.success) == ("converged", True)
    assert f.calls == result.nfev < 1500


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_high_outliers_leave_a_minimum_a_minimum(size):
    rng = np.random.default_rng(0)
    f = lambda x: 3 + sphere(x - 1) + size * (rng.random() < 0.05) * rng.random()  # noqa: E731
    result = quiet(f, np.zeros(3), 0.5, budget=20_000)
    assert (result.status, result.success) == ("converged", True), result.message
    assert sphere(result.x - 1) < 1e-9


def test_low_outliers_are_not_the_minimum():
    rng = np.random.default_rng(0)
    result = quiet(lambda x: sphere(x - 1) - 5 * (rng.random() < 0.02), np.zeros(3), 0.5, budget=20_000)
    assert result.fun < -4
    assert not result.success


def test_a_value_that_is_missing_now_and_then_is_no_noise():
    rng = np.random.default_rng(1)

    def f(x):
        return np.nan if rng.random() < 0.2 else sphere(x - 1)

    result = quiet(f, np.zeros(3), 0.5, budget=20_000, errors="mark")
    assert (result.status, result.success, result.noise) == ("converged", True, 0)


def test_a_budget_that_ends_before_the_look_is_no_success_and_the_look_costs_a_few_percent():
    """On a smooth function, the evaluations after the last generation."""
    settled = quiet(sphere, np.ones(5), 0.5, budget=20_000, noisy=False)
    assert settled.success
    population = len(lowvar.Searcher(np.ones(5), 0.5).ask())
    assert settled.nfev - settled.nit * population < 0.05 * settled.nfev
    short = quiet(sphere, np.ones(5), 0.5, budget=settled.nfev - 20, noisy=False)
    assert (short.status, short.success) == ("budget", False)
    assert "before the search converged" not in short.message


def test_a_plateau_is_the_lowest():
    low = batched(stairs, np.full(2, 3.0), 1.0, 10_000)
    assert (low.fun, low.success) == (0, True)


@pytest.mark.long
def test_a_plateau_above_is_not_called_a_minimum():
    high = batched(stairs, np.full(20, 3.0), 1.0, 25_000)
    assert high.fun == 0 or not high.success
