"""``lowvar.minimize`` and ``lowvar.Searcher`` on a user's own functions."""

import doctest
import importlib.util
import inspect
import io
import signal
import subprocess
import sys
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.optimize

import lowvar
from lowvar import backends
from lowvar.errors import UserError
from lowvar.problems.blackbox import catalogue
from lowvar.solvers.search import SEARCH
from lowvar.solvers.search.peers import PEERS

DIM = 20
X0 = np.ones(DIM)
VALUES = [name for name in SEARCH.own if not SEARCH.about(name).gradients]  # those that values suffice


class Counted:
    """A function that counts its calls."""

    def __init__(self, f):
        self.f, self.calls = f, 0

    def __call__(self, x):
        self.calls += 1
        return self.f(x)


def sphere(x):
    return float(x @ x)


def ellipsoid(x):
    return float(10.0 ** (3 * np.arange(len(x)) / (len(x) - 1)) @ x**2)


def ones_missing(x):
    return float((x != 1).sum())


def quiet(*args, **options):
    return lowvar.minimize(*args, progress=False, **options)


# what is found ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "method", "target", "options"),
    [
        (sphere, "fast_ingo", 1e-8, {}),
        (ellipsoid, "fast_ingo", 1e-6, {}),
        (sphere, "ingo", 1e-3, {"beta": 0.15}),
        (ellipsoid, "pycma", 1e-6, {}),
    ],
)
def test_targets_are_reached(f, method, target, options):
    if method in PEERS:
        pytest.importorskip(SEARCH.about(method).packages[0])
    counted = Counted(f)
    result = quiet(counted, X0, 0.5, method, budget=12_000, target=target, **options)
    assert result.success
    assert result.status == "target"
    assert result.fun <= target
    assert f(result.x) == result.fun
    assert counted.calls == result.nfev < 12_000
    assert result.failures == 0
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
    assert repr(result).splitlines()[0] == f"SearchResult of {method}: the target {target:g} is reached"
    assert len(repr(result)) < 600


def test_binary_points():
    result = quiet(ones_missing, method="ingo_binary", domain="binary", dim=DIM, budget=5000, target=0)
    assert result.status == "target"
    np.testing.assert_array_equal(result.x, np.ones(DIM, int))
    assert result.x.dtype.kind == result.mean.dtype.kind == "i"
    known = quiet(ones_missing, np.full(DIM, 0.9), method="ingo_binary", domain="binary", budget=5000, target=0)
    assert known.nfev < result.nfev


def test_categorical_points():
    result = quiet(
        lambda x: float((x != 2).sum()), method="ingo_categorical", domain="categorical", dim=6, choices=3, budget=4000,
        target=0,
    )  # fmt: skip
    np.testing.assert_array_equal(result.x, np.full(6, 2))


def test_a_problem_brings_domain_and_start():
    """And is computed in float64, whatever JAX is set to outside."""
    with jax.enable_x64(True):
        problem = catalogue.build("sphere", backends.get("jax"), dim=10)
    with jax.enable_x64(False):
        result = quiet(problem, budget=9000, target=1e-12)
        assert not jax.config.jax_enable_x64
    assert result.status == "target"
    assert result.x.dtype == np.float64


def test_backends_agree():
    pytest.importorskip("torch")
    ends = [quiet(ellipsoid, X0, 0.5, "ingo", budget=700, backend=name) for name in ("jax", "torch")]
    np.testing.assert_allclose(ends[0].x, ends[1].x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ends[0].mean, ends[1].mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ends[0].trace, ends[1].trace, rtol=1e-9)


def test_batches_and_workers_give_the_same():
    one = quiet(sphere, X0, 0.5, budget=200)
    batched = quiet(lambda x: (x[:, None, :] @ x[:, :, None])[:, 0, 0], X0, 0.5, budget=200, batched=True)
    parallel = quiet(sphere, X0, 0.5, budget=200, workers=2)
    assert one.fun == parallel.fun == pytest.approx(batched.fun, rel=1e-12)
    np.testing.assert_array_equal(one.x, parallel.x)


def test_the_seed_decides():
    first, again, other = (quiet(sphere, X0, 0.5, budget=300, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.x, again.x)
    assert (first.x != other.x).any()


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
    assert quiet(lambda x: float((x**2).sum()), budget=100, **start).method == chosen


# bounds -------------------------------------------------------------------------------------------------------------


class Within:
    """A function that is called at points of a box only."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __call__(self, x):
        assert (x >= self.low).all()
        assert (x <= self.high).all()
        return sphere(x - np.array([2.0, 0.5, -2.0]))


@pytest.mark.parametrize("method", [name for name in VALUES if "real" in SEARCH.about(name).domains])
def test_every_method_keeps_to_bounds(method):
    if method in PEERS:
        pytest.importorskip(SEARCH.about(method).packages[0])
    low, high = np.array([-1.0, 0, -1]), np.array([1.0, np.inf, np.inf])
    result = quiet(
        Within(low, high), np.array([0.9, 0.3, -1.0]), 0.8, method, budget=300, bounds=(low, high),
        backend=SEARCH.about(method).backends[0],
    )  # fmt: skip
    assert ((result.x >= low) & (result.x <= high)).all()
    assert ((result.mean >= low) & (result.mean <= high)).all()


@pytest.mark.parametrize("method", ["auto", "fast_ingo", "pycma"])
def test_a_minimum_on_the_boundary_is_found(method):
    if method in PEERS:
        pytest.importorskip(SEARCH.about(method).packages[0])
    bounds = scipy.optimize.Bounds([-1, 0, -1], [1, np.inf, np.inf])
    result = quiet(Within(bounds.lb, bounds.ub), np.zeros(3), 0.5, method, budget=10_000, bounds=bounds)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [1, 0.5, -1], atol=1e-6)
    solver = lowvar.Searcher(np.zeros(3), 0.5, method, bounds=(bounds.lb, bounds.ub))
    for _ in range(20):
        solver.tell([Within(bounds.lb, bounds.ub)(x) for x in solver.ask()])


# whether it is a minimum --------------------------------------------------------------------------------------------


def test_a_search_that_is_stuck_says_so_and_what_to_try():
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))[0]
    scales = 10.0 ** (6 * np.arange(10) / 9)
    stuck = quiet(lambda x: float(scales @ (turn @ x) ** 2), np.ones(10), 0.5, "fast_ingo", budget=20_000)
    assert not stuck.success
    assert "method='ingo_cma'" in stuck.notes[-1]
    moving = quiet(lambda x: float(scales @ (turn @ x) ** 2), np.ones(10), 0.5, budget=2000)
    assert (moving.success, moving.notes) == (False, ())


def test_a_lost_search_is_told_from_a_minimum():
    """A search that rests where a point not far away is better has stalled."""
    calls = []

    def hole(x):
        calls.append(0)
        return sphere(x) - 100 * float(len(calls) > 1000 and np.abs(x).max() > 0.01)

    lost = quiet(hole, np.ones(3), 0.5, budget=20_000, noisy=False)
    assert (lost.status, lost.success) == ("stalled", False)
    bits = quiet(ones_missing, domain="binary", dim=8, budget=20_000)
    assert (bits.status, bits.success, bits.fun) == ("converged", True, 0)
    assert "no change of one coordinate improves it" in bits.message


# when it ends -------------------------------------------------------------------------------------------------------


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


def test_the_callback():
    seen = []

    def at_three(generation):
        seen.append(generation)
        return generation.iteration == 3

    def stop(generation):
        raise StopIteration

    result = quiet(sphere, X0, 0.5, budget=500, population=10, callback=at_three)
    assert (result.status, result.success, result.nit, result.nfev) == ("callback", False, 3, 33)
    assert [g.evaluations for g in seen] == [12, 23, 33]
    assert all(g.points.shape == (10, DIM) and g.values.shape == (10,) for g in seen)
    assert seen[-1].fun == result.fun == min(g.values.min() for g in seen)
    np.testing.assert_array_equal(seen[-1].searcher.mean, result.mean)
    assert quiet(sphere, X0, 0.5, budget=500, callback=stop).nit == 1
    for going, status in ((None, "budget"), (0, "budget"), (1, "callback"), (np.array([1]), "callback")):
        assert quiet(sphere, X0, 0.5, budget=100, callback=lambda generation, going=going: going).status == status
    with pytest.raises(UserError, match="callback: it returned a ndarray that is neither true nor false"):
        quiet(sphere, X0, 0.5, budget=100, callback=lambda generation: generation.x)


# a loop of the user's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fast_ingo", "pycma"])
def test_ask_and_tell_are_minimize(method):
    if method in PEERS:
        pytest.importorskip(SEARCH.about(method).packages[0])
    solver = lowvar.Searcher(X0, 0.5, method, seed=3)
    while solver.best > 5 and solver.evaluations < 2000:  # stops early
        points = solver.ask()
        np.testing.assert_array_equal(points, solver.ask())
        values = [sphere(x) for x in points]
        points[:] = np.nan  # the user's own
        solver.tell(values)
    result = quiet(sphere, X0, 0.5, method, budget=2000, seed=3, target=5, noisy=False)
    assert (solver.best, solver.evaluations, solver.iteration) == (result.fun, result.nfev, result.nit)
    assert solver.sigma == result.sigma
    np.testing.assert_array_equal(solver.best_at, result.x)
    np.testing.assert_array_equal(solver.mean, result.mean)


def test_tell_takes_any_numbers_and_nothing_else():
    torch = pytest.importorskip("torch")
    solver = lowvar.Searcher(np.ones(3), 0.5, population=4)
    with pytest.raises(UserError, match="tell without ask"):
        solver.tell([1, 2, 3, 4])
    for values in ([1, 2, 3, 4], torch.tensor([1.0, np.nan, 3.0, np.inf]), jax.numpy.arange(4)):
        solver.ask()
        solver.tell(values)
    assert solver.best == 0
    solver.ask()
    for wrong in ([1, 2, 3], [[1], [2], [3], [4]], ["a"] * 4, None):
        with pytest.raises(UserError, match="tell needs 4 numbers, one for each point"):
            solver.tell(wrong)
    assert repr(solver) == "Searcher(ingo_cma, real, dim 3: 12 evaluations, best 0)"


@pytest.mark.filterwarnings("ignore:population")
@pytest.mark.parametrize("method", VALUES)
def test_every_method_can_be_driven(method):
    if method in PEERS:
        pytest.importorskip(SEARCH.about(method).packages[0])
    kind = SEARCH.about(method).domains[0]
    if kind != "real":
        start = {"domain": kind, "dim": 4, "choices": 3 if kind == "categorical" else None}
    else:
        start = {"x0": np.ones(4), "sigma0": 0.5}
    solver = lowvar.Searcher(method=method, backend=SEARCH.about(method).backends[0], **start)
    for _ in range(2):
        solver.tell([sphere(x) for x in solver.ask()])
    assert solver.evaluations == 2 * len(solver.ask())
    assert solver.mean.shape == solver.best_at.shape == (4,)


# mistakes -----------------------------------------------------------------------------------------------------------


def fails_far_out(x):
    if x[0] > 1.2:
        raise ArithmeticError("too far")
    return np.nan if x[1] > 1.3 else sphere(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_failures_are_marked_where_asked(workers):
    result = quiet(fails_far_out, np.ones(6), 0.3, budget=400, errors="mark", workers=workers)
    assert 380 < result.nfev <= 400
    assert 0 < result.failures < 200
    assert result.status == "budget"
    assert f"{result.failures} of them failed" in repr(result)


@pytest.mark.parametrize("workers", [1, 2])
def test_failures_raise_by_default(workers):
    with pytest.raises(
        UserError, match=r"fails_far_out raised ArithmeticError: too far \(at .*errors='mark'"
    ) as caught:
        quiet(fails_far_out, np.ones(6), 0.8, budget=400, workers=workers)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    with pytest.raises(UserError, match="gave inf at point 0 of 14"):
        quiet(lambda x: np.inf, X0, 0.5, budget=100)


def test_a_function_that_never_has_a_value():
    with pytest.raises(
        UserError, match=r"<lambda>: f never returned a finite value: .* in 10 generations.*errors='raise'"
    ):
        quiet(lambda x: np.nan, X0, 0.5, budget=10_000, errors="mark")
    with pytest.raises(UserError, match="f never returned a finite value: the budget of 50 evaluations is spent"):
        quiet(lambda x: 1 / 0, X0, 0.5, budget=50, errors="mark")


def test_a_function_that_stops_having_values():
    counted = Counted(sphere)
    counted.f = lambda x: sphere(x) if counted.calls < 50 else np.nan
    result = quiet(counted, X0, 0.5, budget=5000, errors="mark")
    assert (result.status, result.success) == ("failed", False)
    assert result.nit == 14
    assert 14 * 14 <= result.nfev == counted.calls <= 14 * 14 + 5


def test_a_failure_at_the_last_mean_loses_nothing():
    counted = Counted(sphere)
    counted.f = lambda x: sphere(x) if counted.calls <= 28 else np.zeros(2)
    result = quiet(counted, X0, 0.5, budget=29, noisy=False)
    assert result.status == "budget"
    assert "it must return one number" in result.message
    assert np.isfinite(result.fun)


@pytest.mark.parametrize(
    ("f", "options", "message"),
    [
        (sphere, {"budget": None}, "budget: give the maximum number of evaluations"),
        (sphere, {"budget": 10}, "budget 10: one generation .* 14 evaluations; give a larger .* population="),
        (sphere, {"budget": 0.5}, "budget 0.5: it must be a whole number"),
        ("sphere", {}, "f is a str: it must be a function"),
        (lambda x: x, {}, r"returned an array of shape \(20,\): it must return one number"),
        (lambda x: None, {}, "returned None: it must return one number"),
        (lambda x: x[:3], {"batched": True}, r"returned an array of shape \(3, 20\) for 14 points"),
        (sphere, {"batched": True, "workers": 2}, "workers=2 with a batched f"),
        (sphere, {"workers": 0}, "workers 0: it must be a whole number, 1 or more"),
        (sphere, {"x0": []}, "x0 is empty: a search needs at least one coordinate"),
        (sphere, {"x0": 1.0}, r"x0 has shape \(\): a real search starts from an array of shape \(dim,\)"),
        (sphere, {"x0": [1, np.nan]}, "x0: 1 of its 2 numbers are not finite"),
        (sphere, {"x0": ["a"]}, "x0: it must be an array of numbers"),
        (sphere, {"x0": None}, "x0: a real search needs a point to start from"),
        (sphere, {"x0": None, "domain": "binary", "method": "ingo_binary"}, "or dim to start from uniform ones"),
        (sphere, {"x0": None, "dim": 0, "domain": "binary", "method": "ingo_binary"}, "dim 0: .* 1 or more"),
        (sphere, {"dim": 3}, r"dim=3, but x0 has shape \(20,\)"),
        (sphere, {"x0": X0 * 2, "domain": "binary", "method": "ingo_binary"}, "starts from probabilities"),
        (sphere, {"choices": 3}, "choices=3 with a real domain: only a categorical one takes it"),
        (sphere, {"sigma0": None}, "sigma0: a real search needs the standard deviation"),
        (sphere, {"sigma0": 0.0}, "sigma0 0.0: it must be one positive number"),
        (sphere, {"sigma0": X0}, "scale the coordinates inside f"),
        (sphere, {"method": "fast_igno"}, "unknown search 'fast_igno': did you mean 'fast_ingo'?"),
        (sphere, {"method": "fast_ingo", "betta": 1}, "fast_ingo: unknown option 'betta': did you mean 'beta'?"),
        (sphere, {"method": "fast_ingo", "budjet": 8}, "fast_ingo: unknown option 'budjet': did you mean 'budget'?"),
        (sphere, {"method": "fast_ingo", "normalise": 1}, "fast_ingo: normalise 1: it must be true or false"),
        (sphere, {"method": "fast_ingo", "noise": ["iid"]}, r"fast_ingo: noise \['iid'\]: it must be a name"),
        (sphere, {"method": "fast_ingo", "beta": "small"}, "fast_ingo: beta 'small': it must be a number"),
        (sphere, {"method": "fast_ingo", "population": "8"}, "fast_ingo: population '8': it must be a whole number"),
        (sphere, {"method": "pycma", "diagonal": "maybe"}, "pycma: diagonal 'maybe': it must be true or false"),
        (sphere, {"x0": [1e308], "sigma0": 0.5}, r"sigma0 0.5 is below the rounding of x0, 2e\+292 at 1e\+308"),
        (sphere, {"x0": [1.0, -1e20], "sigma0": 0.5}, r"sigma0 0.5 is below the rounding of x0, 1.6e\+04 at -1e\+20"),
        (sphere, {"method": "fast_ingo", "beta": -1}, "beta -1: it must be a positive number"),
        (
            sphere,
            {"method": "fast_ingo", "noise": "antithetik"},
            "unknown noise 'antithetik': did you mean 'antithetic'?",
        ),
        (sphere, {"population": 1}, "population 1: it must be a whole number, 2 or more"),
        (
            sphere,
            {"method": "es", "domain": "binary"},
            "searches real domains, not binary ones: use one of ingo_binary, pymoo_ga",
        ),
        (sphere, {"domain": "reel"}, "unknown domain 'reel': did you mean 'real'?"),
        (sphere, {"backend": "numpy"}, "unknown backend 'numpy'"),
        (sphere, {"method": "evosax_snes", "backend": "torch"}, "evosax_snes has no torch backend: use jax"),
        (sphere, {"seed": -1}, "seed -1: it must be a whole number, 0 or more"),
        (sphere, {"target": "low"}, "target 'low': it must be a number"),
        (sphere, {"errors": "ignore"}, "unknown way to treat errors 'ignore'"),
        (sphere, {"callback": 3}, "callback is a int: it must be a function"),
        (sphere, {"noisy": "yes"}, "noisy 'yes': it must be True, False, or None to detect it"),
        (sphere, {"bounds": 3}, r"bounds: they must be \(low, high\), each a number or 20 numbers"),
        (sphere, {"bounds": [(0, 2)] * 20}, "bounds: .*not a pair for each coordinate"),
        (sphere, {"bounds": (0, np.nan)}, "bounds: high must be a number or 20 numbers, infinite where"),
        (sphere, {"bounds": (3, 2)}, "bounds: coordinate 0 has low 3 and high 2: low must be below high"),
        (sphere, {"bounds": (0, 0.5)}, "x0 is outside the bounds: coordinate 0 is 1, not between 0 and 0.5"),
        (sphere, {"x0": X0 / 2, "domain": "binary", "bounds": (0, 1)}, "bounds: only a real search takes bounds"),
    ],
)
def test_one_sentence_for_a_mistake(f, options, message):
    if options.get("method") in PEERS:
        pytest.importorskip(SEARCH.about(options["method"]).packages[0])
    call = {"x0": X0, "sigma0": 0.5, "budget": 100, **options}
    with pytest.raises(UserError, match=message):
        quiet(f, call.pop("x0"), call.pop("sigma0"), **call)


def test_mistakes_of_a_searcher():
    with pytest.raises(UserError, match="bounds: they must be"):
        lowvar.Searcher(X0, 0.5, bounds=(0, 1, 2))
    with pytest.raises(UserError, match="pycma: unknown option 'popsize'"):
        lowvar.Searcher(X0, 0.5, "pycma", popsize=3)
    with pytest.raises(UserError, match="unknown option 'bakend': did you mean 'backend'"):
        lowvar.Searcher(X0, 0.5, bakend="jax")


@pytest.mark.parametrize("method", SEARCH.own)
def test_options_have_names_of_their_own(method):
    """Else ``minimize`` would take for itself what was meant for its method."""
    if method in PEERS:
        pytest.importorskip(SEARCH.about(method).packages[0])
    taken = {*inspect.signature(lowvar.minimize).parameters, *inspect.signature(lowvar.Searcher).parameters}
    assert not (set(SEARCH.options_of(method)) - {"population"}) & taken


def test_a_problem_is_not_told_what_it_is():
    problem = catalogue.build("sphere", backends.get("jax"), dim=3)
    with pytest.raises(UserError, match="domain 'binary': sphere brings its own, real"):
        quiet(problem, budget=100, domain="binary")
    with pytest.raises(UserError, match="batched and workers apply to functions"):
        quiet(problem, budget=100, workers=2)


def test_a_solvers_notes_are_warnings():
    def slow(backend, domain, population=None):
        return replace(SEARCH.get("ingo")(backend, domain, population), notes=("slow in many dimensions",))

    with pytest.warns(UserWarning, match="slow in many dimensions") as caught:
        result = quiet(sphere, np.ones(3), 0.5, slow, budget=100)
    assert caught[0].filename == __file__
    assert result.notes == ("slow in many dimensions",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quiet(sphere, X0, 0.5, "ingo", budget=100).notes == ()


# what users read ----------------------------------------------------------------------------------------------------


def test_the_sessions_in_the_readme(repository):
    failed, tried = doctest.testfile(str(repository / "README.md"), module_relative=False)
    assert tried >= 8
    assert not failed


def test_every_method_is_in_the_readme(repository):
    rows = [line for line in (repository / "README.md").read_text().splitlines() if line.startswith("| `")]
    for name in SEARCH.own:
        assert any(f"`{name}`" in row for row in rows), name


def test_the_example(repository, monkeypatch):
    spec = importlib.util.spec_from_file_location("example_minimize", repository / "examples" / "minimize.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    example.main()
    errors = [
        float(line.split("median error")[1].split("rows")[-1].split(",")[0])
        for line in out.getvalue().splitlines()[-3:]
    ]
    assert errors[1] < 1.2 * errors[2] < errors[0]


def test_an_interrupt_keeps_what_was_found():
    calls = []

    def f(x):
        calls.append(0)
        if len(calls) == 100:
            raise KeyboardInterrupt
        return float(x @ x)

    with pytest.raises(KeyboardInterrupt) as raised:
        lowvar.minimize(f, np.ones(5), 0.5, budget=10_000)
    result = raised.value.result
    assert (result.status, result.success) == ("interrupted", False)
    assert result.fun == float(result.x @ result.x)
    assert result.nfev < len(calls) == 100  # nothing was evaluated afterwards
    assert "`result`" in raised.value.__notes__[0]


def test_an_interrupt_before_the_first_generation_has_no_result():
    def f(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        lowvar.minimize(f, np.ones(5), 0.5, budget=10_000)
    assert not hasattr(raised.value, "result")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process")
def test_ctrl_c_stops_the_program_and_keeps_what_was_found(tmp_path):
    """A real signal: a loop around the search does not go on with the next one."""
    code = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
import numpy as np, lowvar

def f(x):
    f.calls += 1
    if f.calls == 300:
        print("ready", flush=True)
    time.sleep(0.001 if f.calls < 300 else 0.02)
    return float(x @ x)

f.calls = 0
try:
    for seed in range(5):
        lowvar.minimize(f, np.ones(5), 0.5, budget=100_000, seed=seed, progress=False)
except KeyboardInterrupt as stop:
    assert f.calls < 100_000
    print("kept", stop.result.status, stop.result.fun < 2.0, stop.result.nfev <= f.calls, flush=True)
    raise
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert out == "kept interrupted True True\n", err
    assert "KeyboardInterrupt" in err
    assert "has the result so far" in err
    assert process.returncode != 0


def test_a_late_failure_keeps_what_was_found():
    calls = []

    def f(x):
        calls.append(0)
        return float("nan") if len(calls) == 100 else float(x @ x)

    with pytest.raises(UserError) as raised:
        lowvar.minimize(f, np.ones(5), 0.5, budget=10_000)
    assert raised.value.result.status == "failed"
    assert np.isfinite(raised.value.result.fun)


def test_tell_takes_a_list_of_tensors_with_gradients():
    torch = pytest.importorskip("torch")
    solver = lowvar.Searcher(np.ones(3), 0.5)
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    solver.tell([(torch.from_numpy(x) * weight).sum() for x in solver.ask()])
    assert np.isfinite(solver.best)


def test_a_masked_value_is_missing():
    def f(x):
        return np.ma.masked if x[0] < 0 else float(x @ x)

    with pytest.raises(UserError, match="nan"):
        lowvar.minimize(f, np.ones(2), 0.5, budget=300)
    found = lowvar.minimize(f, np.ones(2), 0.5, budget=300, errors="mark")
    assert found.failures > 0
    assert found.x[0] >= 0


def test_a_factory_that_makes_no_search():
    with pytest.raises(UserError, match="the factory returned a int, not a SearchSolver"):
        lowvar.minimize(sphere, np.ones(2), 0.5, budget=100, method=lambda backend, domain, population=None: 3)
