"""``lowvar.minimize`` and ``lowvar.Searcher`` on a user's own functions."""

import importlib.util
import inspect

import jax
import numpy as np
import pytest
import scipy.optimize
from searched import (
    DIM,
    VALUES,
    X0,
    Counted,
    ellipsoid,
    in_full_when_long,
    ones_missing,
    quiet,
    skip_without_packages,
    sphere,
)

import lowvar
from lowvar.core import backend as backends
from lowvar.errors import UserError
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.box import Box
from lowvar_studies.functions import catalogue


@pytest.mark.parametrize("method", ["fast_ingo", "pycma"])
def test_targets_are_reached(method):
    skip_without_packages(method)
    counted = Counted(ellipsoid)
    result = quiet(counted, X0, 0.5, method, budget=12_000, target=1e-6)
    assert (result.success, result.status, result.failures) == (True, "target", 0)
    assert result.fun == ellipsoid(result.x) <= 1e-6
    assert counted.calls == result.nfev < 12_000
    assert result.mean.dtype == result.x.dtype == np.float64
    assert result.condition >= 1
    trace = result.trace
    assert list(trace) == ["iteration", "evaluations", "f", "best", "sigma", "condition"]
    assert trace["iteration"].is_unique
    assert (trace["best"] <= trace["f"]).all()
    assert trace["best"].is_monotonic_decreasing
    last = trace.iloc[-1]
    assert (last["iteration"], last["evaluations"], last["best"]) == (result.nit, result.nfev, result.fun)
    assert (last["sigma"], last["condition"]) == (result.sigma, result.condition)
    assert repr(result).splitlines()[0] == f"SearchResult of {method}: the target 1e-06 is reached"
    assert len(repr(result)) < 600


def test_a_problem_brings_domain_and_start():
    """And is computed in float64, whatever JAX is set to outside."""
    with jax.enable_x64(True):
        problem = catalogue.build("sphere", backends.get("jax"), dim=10)
    with jax.enable_x64(False):
        result = quiet(problem, budget=9000, target=1e-12)
        assert not jax.config.jax_enable_x64
    assert result.status == "target"
    assert result.x.dtype == np.float64
    for told in ({"domain": "binary"}, {"workers": 2}):
        with pytest.raises(UserError, match=next(iter(told))):
            quiet(problem, budget=100, **told)


def test_batches_and_workers_give_the_same():
    one = quiet(sphere, X0, 0.5, budget=200)
    batched = quiet(lambda x: (x[:, None, :] @ x[:, :, None])[:, 0, 0], X0, 0.5, budget=200, batched=True)
    parallel = quiet(sphere, X0, 0.5, budget=200, workers=2)
    assert one.fun == parallel.fun == pytest.approx(batched.fun, rel=1e-12)
    np.testing.assert_array_equal(one.x, parallel.x)


@pytest.mark.parametrize(
    ("start", "chosen"),
    [
        ({"x0": X0, "sigma0": 0.5}, "ingo_cma"),
        ({"x0": np.ones(201), "sigma0": 0.5}, "fast_ingo"),
        ({"domain": "binary", "dim": 4}, "ingo_binary"),
        ({"domain": "categorical", "dim": 4, "choices": 3}, "ingo_categorical"),
    ],
)
def test_the_default_goes_by_the_domain(start, chosen):
    assert lowvar.Searcher(**start).method == chosen


# of ours without and with a covariance matrix, and of each package
BOUNDED = ("fast_ingo", "ingo_cma", "cmaes", "pycma")


@pytest.mark.parametrize(
    "method", in_full_when_long((name for name in VALUES if "real" in SEARCH.about(name).domains), *BOUNDED)
)
def test_every_method_keeps_to_bounds(method):
    skip_without_packages(method)
    result = quiet(
        within, np.array([0.9, 0.3, -1.0]), 0.8, method, budget=300, bounds=(LOW, HIGH),
        backend=SEARCH.about(method).backends[0],
    )  # fmt: skip
    assert ((result.x >= LOW) & (result.x <= HIGH)).all()
    assert ((result.mean >= LOW) & (result.mean <= HIGH)).all()


@pytest.mark.parametrize("method", [pytest.param("auto", marks=pytest.mark.long), "fast_ingo", "pycma"])
def test_a_minimum_on_the_boundary_is_found(method):
    skip_without_packages(method)
    bounds = scipy.optimize.Bounds(LOW, HIGH)
    result = quiet(within, np.zeros(3), 0.5, method, budget=10_000, bounds=bounds)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [1, 0.5, -1], atol=1e-6)


def test_a_search_that_is_stuck_says_so_and_what_to_try():
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))[0]
    scales = 10.0 ** (6 * np.arange(10) / 9)

    def f(x):
        return (x @ turn.T) ** 2 @ scales

    stuck = quiet(f, np.ones(10), 0.5, "fast_ingo", budget=20_000, batched=True)
    assert not stuck.success
    assert "method='ingo_cma'" in stuck.notes[-1]
    moving = quiet(f, np.ones(10), 0.5, budget=2000, batched=True)
    assert (moving.success, moving.notes) == (False, ())


def test_a_lost_search_is_told_from_a_minimum():
    """A search that rests where a point not far away is better goes on from there."""
    calls = []

    def hole(x):
        calls.append(0)
        return sphere(x) - 100 * float(len(calls) > 1000 and np.abs(x).max() > 0.01)

    lost = quiet(hole, np.ones(3), 0.5, budget=20_000, noisy=False)
    assert lost.fun < -99
    bits = quiet(ones_missing, domain="binary", dim=16, budget=20_000)
    assert (bits.status, bits.success, bits.fun) == ("converged", True, 0)
    assert "changes of one coordinate" in bits.message


@pytest.mark.parametrize(
    ("space", "size"), [({"domain": "binary", "dim": 5}, 32), ({"domain": "categorical", "dim": 2, "choices": 8}, 64)]
)
def test_a_space_that_is_evaluated_completely_has_an_exact_minimum(space, size):
    """Values without any structure, which no search could find but by all points; few are evaluated twice."""
    rng, table = np.random.default_rng(0), {}
    counted = Counted(lambda x: table.setdefault(tuple(x), rng.normal()))
    result = quiet(counted, budget=1000, **space)
    assert (result.status, result.success, result.noise) == ("converged", True, 0)
    assert len(table) == size
    assert result.fun == min(table.values()) == table[tuple(result.x)]
    assert counted.calls == result.nfev < 3 * size
    missed = quiet(counted, budget=1000, target=result.fun - 1, **space)
    assert (missed.status, missed.success) == ("converged", False)
    sure = quiet(counted, budget=1000, noisy=False, **space)
    assert (sure.fun, sure.success) == (result.fun, True)


@pytest.mark.parametrize("budget", [8, 9, 20])
def test_a_space_smaller_than_a_generation_needs_no_larger_budget(budget):
    table = np.random.default_rng(0).normal(size=8)
    counted = Counted(lambda x: table[x @ [4, 2, 1]])
    result = quiet(counted, domain="binary", dim=3, budget=budget)
    assert (result.status, result.fun) == ("converged", table.min())
    assert counted.calls == result.nfev <= budget
    assert len(result.notes) == (budget == 8)  # that it may be noisy
    with pytest.raises(UserError, match="budget 7"):
        quiet(counted, domain="binary", dim=3, budget=7)


def test_the_last_points_of_a_space_are_evaluated_in_generations():
    """Which a callback sees, and ends."""
    seen = []

    def ends(report):
        seen.append(report.evaluations)
        return report.evaluations >= 1000

    result = quiet(ones_missing, domain="binary", dim=12, budget=4200, callback=ends)
    assert result.status == "callback"
    assert result.nfev < 1100
    assert np.diff(seen).max() < 60
    assert quiet(ones_missing, domain="binary", dim=12, budget=4200).status == "converged"


def test_a_small_space_under_noise_is_not_exhausted_by_an_evaluation_of_each_point():
    rng = np.random.default_rng(0)
    result = quiet(lambda x: ones_missing(x) + rng.normal(), domain="binary", dim=4, budget=600)
    assert (result.status, result.success) == ("budget", False)
    assert result.mean.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("target", "success"), [(0.5, False), (1.5, True), (None, True)])
def test_converged_short_of_the_target_is_no_success(target, success):
    """The minimum is 1."""
    found = quiet(lambda x: 1 + sphere(x), np.full(2, 0.3), 0.3, target=target, budget=5000)
    assert found.status == ("target" if target == 1.5 else "converged")
    assert found.success is success


def test_the_budget_is_kept_and_its_rest_goes_to_the_mean():
    counted = Counted(sphere)
    result = quiet(counted, X0, 0.5, "fast_ingo", budget=1001.0, population=20, noisy=False)
    assert counted.calls == result.nfev == 1001
    assert (result.nit, result.status, result.success) == (50, "budget", False)
    assert "more budget may improve it" in result.message
    assert result.fun == result.mean_fun == sphere(result.mean)  # the mean is better than the points around it
    assert (result.mean_fun_se, result.noise) == (0, 0)
    counted = Counted(sphere)
    assert quiet(counted, X0, 0.5, budget=100, population=20, noisy=False).nfev == counted.calls == 100
    missed = quiet(sphere, X0, 0.5, budget=100, target=1e-9)
    assert not missed.success
    assert missed.message == "the budget of 100 evaluations is spent; the target 1e-09 is not reached"


def test_a_search_that_cannot_go_on_ends():
    plateau = quiet(lambda x: 3.0, X0, 0.5, budget=10_000)
    assert (plateau.status, plateau.success, plateau.nit, plateau.fun) == ("stalled", False, 20, 3.0)
    assert "f is constant or has a plateau here" in plateau.message
    assert "larger sigma0" in plateau.notes[-1]
    fine = quiet(lambda x: sphere(x - 1), np.full(2, 1.5), 0.1, budget=50_000)
    assert (fine.status, fine.success) == ("converged", True)
    assert "may be a local one" in fine.message
    assert fine.fun < 1e-20
    raised = quiet(lambda x: sphere(x - 1) - 1e6, np.full(2, 1.5), 0.1, budget=50_000)  # digits end before points do
    assert (raised.status, raised.success) == ("converged", True)
    assert sphere(raised.x - 1) < 1e-6
    away = quiet(lambda x: float(x.sum()), np.ones(2), 1.0, budget=100_000)
    assert (away.status, away.success) == ("failed", False)
    assert "diverged" in away.message


@pytest.mark.parametrize("method", SEARCH.own)
def test_options_have_names_of_their_own(method):
    """Else ``minimize`` would take for itself what was meant for its method."""
    skip_without_packages(method)
    taken = {*inspect.signature(lowvar.minimize).parameters, *inspect.signature(lowvar.Searcher).parameters}
    assert not (set(SEARCH.options_of(method)) - {"population"}) & taken


@pytest.mark.long
def test_the_example(repository, capsys):
    spec = importlib.util.spec_from_file_location("example_minimize", repository / "examples" / "minimize.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main()
    lines = capsys.readouterr().out.splitlines()[-3:]
    errors = [float(line.split("median error")[1].split("rows")[-1].split(",")[0]) for line in lines]
    assert errors[1] < 1.2 * errors[2] < errors[0]


@pytest.mark.filterwarnings("error")
def test_the_largest_number_as_a_penalty():
    """Two of them have a sum that overflows, and so would the median of a generation."""
    largest = np.finfo(float).max

    def f(x):
        return float(x @ x) if x @ x < 4.8 else float(largest)

    assert lowvar.minimize(f, [1.0, 2.0], 0.2, budget=600).fun < 1e-6


def test_discrete_points():
    result = quiet(ones_missing, method="ingo_binary", domain="binary", dim=DIM, budget=5000, target=0)
    assert result.status == "target"
    np.testing.assert_array_equal(result.x, np.ones(DIM, int))
    assert result.x.dtype.kind == result.mean.dtype.kind == "i"
    known = quiet(ones_missing, np.full(DIM, 0.9), method="ingo_binary", domain="binary", budget=5000, target=0)
    assert known.nfev < result.nfev
    choices = quiet(lambda x: float((x != 2).sum()), domain="categorical", dim=6, choices=3, budget=4000, target=0)
    np.testing.assert_array_equal(choices.x, np.full(6, 2))


LOW, HIGH = np.array([-1.0, 0, -1]), np.array([1.0, np.inf, np.inf])


def within(x):
    """A function that is called at points of a box only, with its minimum at a corner of it."""
    assert (x >= LOW).all()
    assert (x <= HIGH).all()
    return sphere(x - np.array([2.0, 0.5, -2.0]))


def test_the_map_of_bounds_is_inverted():
    """Near both bounds, near one and in the middle, for widths that it rescales and for those it leaves alone."""
    low, high = np.array([0.0, -1.0, -np.inf, 2.0]), np.array([1.0, np.inf, 3.0, 2.5])
    box = Box((low, high), 4, 0.4)
    for x in ([0, -1, 3, 2], [1, 5, -7, 2.5], [0.01, -0.9, 2.99, 2.01], [0.5, 0, 0, 2.2]):
        np.testing.assert_allclose(box.transform(box.inverse(np.array(x, float))), x, rtol=0, atol=1e-15)


@pytest.mark.parametrize("bound", [1e10, 1e20, 1.7e308])
@pytest.mark.filterwarnings("error")
def test_points_keep_their_digits_between_wide_bounds(bound):
    """Bounds that stand for none: the map is the identity far from them."""
    points = np.array([[1.3, -0.7], [2**-40, 1e5]])
    for bounds in ((-bound, bound), (-bound, None), (None, bound)):
        np.testing.assert_array_equal(Box(bounds, 2, 0.5).transform(points), points)


def test_every_method_is_on_the_page_of_searches(repository):
    rows = [
        line for line in (repository / "docs/black-box-search.md").read_text().splitlines() if line.startswith("| `")
    ]
    for name in SEARCH.own:
        assert any(f"`{name}`" in row for row in rows), name
