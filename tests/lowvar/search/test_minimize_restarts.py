"""Restarts of ``lowvar.minimize``: from other starts, with growing populations, until the budget is spent."""

import numpy as np
import pytest
from searched import Counted, quiet, sphere, stairs

import lowvar
from lowvar.errors import UserError
from lowvar.search.restarts import Restarts

DIM = 5
X0 = np.full(DIM, 2.0)


def rastrigin(x):
    return float(10 * len(x) + (x**2 - 10 * np.cos(2 * np.pi * x)).sum())


def funnels(x):
    """Minima 0 at 3 and 1 at -2: a search from -2 ends at the second."""
    return float(min(((x - 3) ** 2).sum(), 1 + ((x + 2) ** 2).sum()))


def pair(x):
    """Whole numbers with the minimum 0 at (1, .., 1), which few points lead to, and another, 1, at (0, .., 0)."""
    ones = int(np.sum(x))
    return float(0 if ones == len(x) else 1 + ones)


def history(f, x0, sigma0, **options):
    """The result, and for each search its population, its first points' mean, and the evaluations up to its end."""
    seen = {}

    def watch(report):
        _, start, _ = seen.get(report.restarts, (0, report.points.mean(axis=0), 0))
        seen[report.restarts] = (report.searcher.population, start, report.evaluations)

    return quiet(f, x0, sigma0, callback=watch, **options), list(seen.values())


def test_restarts_reach_a_target_that_one_search_misses():
    single = quiet(rastrigin, X0, 1.0, budget=60_000, target=1e-8, restarts=None)
    assert (single.status, single.success, single.restarts) == ("converged", False, 0)
    for restarts in ("auto", "ipop", "bipop"):
        result = quiet(rastrigin, X0, 1.0, budget=60_000, target=1e-8, restarts=restarts)
        assert (result.status, result.success) == ("target", True), restarts
        assert result.restarts > 0
        assert f"{result.restarts + 1} searches" in result.message
        assert rastrigin(result.mean) < 1


def test_the_same_seed_restarts_in_the_same_way():
    first, second, other = (
        quiet(funnels, np.full(DIM, -2.0), 1.0, budget=6000, seed=seed, restarts="bipop", bounds=(-6, 6))
        for seed in (0, 0, 1)
    )
    assert first.x.tobytes() == second.x.tobytes()
    assert first.trace.equals(second.trace)
    assert (first.message, first.restarts) == (second.message, second.restarts)
    assert not first.trace.equals(other.trace)


def test_populations_double_and_the_budget_is_spent_and_kept():
    counted = Counted(rastrigin)
    result, seen = history(counted, X0, 1.0, budget=12_000, restarts="ipop", noisy=False)
    populations = [population for population, *_ in seen]
    assert populations == [populations[0] * 2**k for k in range(len(seen))]
    assert len(seen) == result.restarts + 1 > 2
    assert 12_000 - populations[-1] < counted.calls == result.nfev <= 12_000
    assert len({tuple(start) for _, start, _ in seen}) == len(seen)


def test_small_searches_take_turns_with_large_ones():
    _, seen = history(rastrigin, X0, 1.0, budget=60_000, restarts="bipop", noisy=False)
    populations = np.array([population for population, *_ in seen])
    spent = np.diff([0] + [evaluations for *_, evaluations in seen])
    large = np.maximum.accumulate(populations) > np.r_[0, np.maximum.accumulate(populations)[:-1]]
    assert list(populations[large]) == [populations[0] * 2**k for k in range(large.sum())]
    assert (~large).sum() > 2
    assert (populations[~large] < np.maximum.accumulate(populations)[~large]).all()
    large[0] = False  # the first search counts as neither
    between = spent[1:][~large[1:]].sum() / spent[large].sum()
    assert 0.3 < between < 2, between


def test_the_best_search_is_the_result():
    """Without a target, restarts that are asked for spend the budget, and the message counts the minima."""
    counted = Counted(funnels)
    result = quiet(counted, np.full(DIM, -2.0), 1.0, budget=15_000, restarts="ipop", bounds=(-6, 6), seed=1)
    assert (result.status, result.success) == ("converged", True)
    assert result.fun < 1e-9
    assert abs(result.mean - 3).max() < 1e-3
    assert f"{result.restarts + 1} searches" in result.message
    assert result.nfev == counted.calls > 14_000
    plain = quiet(funnels, np.full(DIM, -2.0), 0.2, budget=15_000)
    assert (plain.status, plain.restarts) == ("converged", 0)
    assert plain.nfev < 3000


def test_a_better_point_of_a_search_that_the_budget_ends_is_no_minimum():
    ends = {}
    for budget in range(1500, 6000, 300):
        result = quiet(funnels, np.full(DIM, -2.0), 1.0, budget=budget, restarts="ipop", noisy=False, bounds=(-6, 6))
        ends.setdefault((result.status, result.success), []).append(result.fun)
    assert {status for status, _ in ends} == {"budget", "converged"}
    assert all(success == (status == "converged") for status, success in ends)
    near = [min(abs(fun), abs(fun - 1)) < 1e-8 for fun in ends[("converged", True)]]
    assert all(near)


@pytest.mark.parametrize("restarts", ["ipop", "bipop"])
def test_starts_are_uniform_between_bounds_and_around_x0_elsewhere(restarts):
    low, high = np.array([-5.0, -5.0, -np.inf, -1e9]), np.array([5.0, 5.0, 20.0, 1e9])
    first = lowvar.Searcher(np.full(4, 4.0), 1.0, bounds=(low, high))
    starts = Restarts(restarts, first, np.full(4, 4.0), 1.0, 0)
    found = [starts.next(100 * k) for k in range(60)]
    points = np.array([start for start, *_ in found])
    assert ((points >= low) & (points <= high)).all()
    assert points[:, :2].min() < -4 < 4 < points[:, :2].max()
    assert abs(points[:, 2:] - 4).max() < 5
    assert all(1e-2 <= sigma <= 1 for _, sigma in found)
    assert (min(sigma for _, sigma in found) < 0.1) == (restarts == "bipop")
    seen = []
    result = quiet(
        lambda x: seen.append(x) or rastrigin(x), X0, 1.0, budget=8000, bounds=(0.5, 5), restarts=restarts, noisy=False
    )
    assert result.restarts > 1
    assert 0.5 <= np.min(seen) <= np.max(seen) <= 5


def test_noisy_values_do_not_restart():
    rng = np.random.default_rng(0)
    result = quiet(lambda x: rastrigin(x) + rng.normal(), X0, 1.0, budget=6000, restarts="ipop")
    assert (result.restarts, result.success) == (0, False)
    assert any("restarts" in note for note in result.notes)
    for options in ({"target": -1.0}, {}):
        with pytest.raises(UserError, match="restarts"):
            quiet(rastrigin, X0, 1.0, budget=6000, restarts="ipop", noisy=True, **options)
        assert quiet(rastrigin, X0, 1.0, budget=600, noisy=True, **options).restarts == 0


def test_discrete_points_and_integers_restart():
    bits = quiet(pair, domain="binary", dim=20, budget=20_000, target=0, restarts="ipop")
    assert bits.restarts > 0
    assert bits.nfev <= 20_000
    whole = quiet(rastrigin, X0 * 2, 2.0, budget=20_000, integers=[0, 1], target=1e-8, bounds=(-5, 5))
    assert whole.status == "target"
    small = quiet(pair, domain="binary", dim=6, budget=2000, restarts="ipop")
    assert (small.fun, small.status, small.success) == (0, "converged", True)


@pytest.mark.parametrize(
    ("f", "x0", "seed"),
    [(lambda x: float(x[0] > 1), np.full(2, 2.0), 1), (lambda x: float(np.floor(abs(x)).sum()), np.full(5, 3.0), 4)],
    ids=["step", "floors"],
)
def test_a_plateau_is_no_minimum_and_one_search_ends_there_soon(f, x0, seed):
    """Seeds whose points around ``x`` see no edge; nobody knows whether a plateau is the lowest, so others follow
    unless restarts are declined."""
    result = quiet(f, x0, 1.0, budget=6000, seed=seed)
    assert (result.fun, result.status, result.success) == (0, "stalled", False)
    assert result.restarts > 1
    alone = quiet(f, x0, 1.0, budget=6000, seed=seed, restarts=None)
    assert (alone.fun, alone.status) == (0, "stalled")
    assert alone.nfev < 3000
    constant = quiet(lambda x: 3.0, x0, 1.0, budget=6000, restarts="ipop")
    assert (constant.status, constant.success) == ("stalled", False)


def test_searches_go_on_from_the_plateau_of_a_penalty():
    """A constant penalty outside of a ball: restarts that came back to it had made it a minimum, in all of six seeds."""

    def f(x):
        value = ((x - 1) ** 2).sum()
        return float(value if value <= 4 else 100 + (x[0] > 6))

    ends = [quiet(f, np.full(3, 6.0), 1.0, budget=20_000, seed=seed) for seed in range(4)]
    assert sum(result.fun < 1e-2 for result in ends) >= 3
    assert all(result.success == (result.fun < 1e-10) or result.status == "budget" for result in ends)


def test_the_minimum_of_a_mixed_function_is_one_though_its_whole_numbers_move():
    """A search of whole numbers keeps moving at a minimum: 13 of 20 seeds called it none."""
    ends = [
        quiet(rastrigin, np.full(3, 3.0), 1.0, restarts="ipop", integers=[0], bounds=(-5, 5), budget=10_000, seed=seed)
        for seed in range(6)
    ]
    assert {result.status for result in ends} <= {"converged", "budget"}
    assert sum(result.success and result.fun < 1e-8 for result in ends) >= 4


def test_a_search_that_has_no_values_elsewhere_starts_again():
    def f(x):
        return sphere(x) if np.abs(x).max() < 2.5 else np.nan

    result = quiet(f, np.zeros(3), 0.5, budget=9000, errors="mark", bounds=(-30, 30), restarts="ipop")
    assert (result.status, result.success) == ("converged", True)
    assert result.restarts > 1


def test_a_callback_ends_all_searches():
    result = quiet(rastrigin, X0, 1.0, budget=60_000, restarts="ipop", callback=lambda now: now.restarts == 2)
    assert (result.status, result.success, result.restarts) == ("callback", False, 2)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"restarts": 9}, "restarts"),
        ({"restarts": "bipob"}, "bipop"),
        ({"restarts": "none"}, "restarts=None"),
        ({"restarts": False}, "restarts=None"),
        ({"restarts": "bipop", "domain": "binary", "x0": None, "sigma0": None, "dim": 3}, "restarts"),
    ],
)
def test_one_sentence_for_a_mistake(options, argument):
    call = {"x0": X0, "sigma0": 0.5, "budget": 200, **options}
    with pytest.raises(UserError, match=argument):
        quiet(sphere, call.pop("x0"), call.pop("sigma0"), **call)


def test_only_a_search_that_stalls_starts_again_by_default():
    """Neither one that converged, nor one of a constant, from which nothing is to be expected."""
    call = {"budget": 40_000, "batched": True, "noisy": False}
    for seed in range(8):
        stalled = quiet(stairs, np.full(20, 3.0), 1.0, seed=seed, restarts=None, **call)
        if stalled.status == "stalled":
            break
    else:
        pytest.fail("no search stalled")
    again = quiet(stairs, np.full(20, 3.0), 1.0, seed=seed, **call)
    assert again.restarts > 0
    assert again.nfev > stalled.nfev
    assert (again.fun, again.status) < (stalled.fun, "stalled") or again.nfev > 39_000
    constant = quiet(lambda x: 3.0, X0, 0.5, budget=3000)
    assert (constant.status, constant.restarts) == ("stalled", 0)
    converged = quiet(sphere, X0, 0.5, budget=9000)
    assert (converged.status, converged.restarts) == ("converged", 0)
