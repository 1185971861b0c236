"""What goes wrong in a search: values that fail or are missing, and settings that are refused."""

import warnings

import numpy as np
import pytest
from searched import X0, Counted, quiet, skip_without_packages, sphere

import lowvar
from lowvar.errors import UserError


def fails_far_out(x):
    if x[0] > 1.2:
        raise ArithmeticError("too far")
    return np.nan if x[1] > 1.3 else sphere(x)


def test_failures_are_marked_where_asked_and_raise_by_default():
    result = quiet(fails_far_out, np.ones(6), 0.3, budget=400, errors="mark")
    assert 380 < result.nfev <= 400
    assert 0 < result.failures < 200
    assert result.status == "budget"
    assert f"{result.failures} of them failed" in repr(result)
    with pytest.raises(UserError, match=r"too far .*errors='mark'") as caught:
        quiet(fails_far_out, np.ones(6), 0.8, budget=400)
    assert isinstance(caught.value.__cause__, ArithmeticError)


def test_a_late_failure_keeps_what_was_found():
    counted = Counted(sphere)
    counted.f = lambda x: np.nan if counted.calls == 100 else sphere(x)
    with pytest.raises(UserError) as raised:
        quiet(counted, np.ones(5), 0.5, budget=10_000)
    assert raised.value.result.status == "failed"
    assert np.isfinite(raised.value.result.fun)


def test_a_masked_value_is_missing():
    def f(x):
        return np.ma.masked if x[0] < 0 else sphere(x)

    with pytest.raises(UserError, match="nan"):
        quiet(f, np.ones(2), 0.5, budget=300)
    found = quiet(f, np.ones(2), 0.5, budget=300, errors="mark")
    assert found.failures > 0
    assert found.x[0] >= 0


def test_an_int_beyond_64_bits_is_a_number():
    result = quiet(lambda x: int(1e30 * sphere(x)), np.ones(2), 0.5, budget=200)
    assert result.fun == int(1e30 * sphere(result.x))
    with pytest.raises(UserError, match="OverflowError"):
        quiet(lambda x: 10**400, np.ones(2), 0.5, budget=200)


def test_a_function_that_never_has_a_value():
    with pytest.raises(UserError, match=r"never returned a finite value: .* in 10 generations.*errors='raise'"):
        quiet(lambda x: np.nan, X0, 0.5, budget=10_000, errors="mark")
    with pytest.raises(UserError, match="never returned a finite value: the budget of 50"):
        quiet(lambda x: 1 / 0, X0, 0.5, budget=50, errors="mark")


def test_a_function_that_stops_having_values():
    counted = Counted(sphere)
    counted.f = lambda x: sphere(x) if counted.calls < 50 else np.nan
    result = quiet(counted, X0, 0.5, budget=5000, errors="mark")
    assert (result.status, result.success) == ("failed", False)
    assert result.nit == 14
    assert 14 * 14 <= result.nfev == counted.calls <= 14 * 14 + 5


def test_a_function_without_a_minimum():
    result = quiet(lambda x: -sphere(x), X0, 0.5, budget=5000)
    assert (result.status, result.mean_fun) == ("failed", -sphere(result.mean))
    assert "f may be unbounded below" in result.message


def test_a_failure_at_the_last_mean_loses_nothing():
    counted = Counted(sphere)
    counted.f = lambda x: sphere(x) if counted.calls <= 28 else np.zeros(2)
    result = quiet(counted, X0, 0.5, budget=29, noisy=False)
    assert result.status == "budget"
    assert "one number" in result.message
    assert np.isfinite(result.fun)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"f": "sphere"}, "f is a str"),
        *(({"budget": budget}, "budget") for budget in (None, 10, 0.5)),
        ({"batched": True, "workers": 2}, "workers"),
        ({"workers": 0}, "workers"),
        *(({"x0": x0}, "x0") for x0 in ([], 1.0, [1, np.nan], ["a"], None, np.zeros((3, 1)))),
        ({"x0": None, "domain": "binary"}, "x0: .* dim"),
        ({"x0": None, "dim": 0, "domain": "binary"}, "dim"),
        ({"dim": 3}, "dim"),
        ({"x0": X0 * 2, "domain": "binary"}, "x0"),
        ({"x0": [[0.5, 0.2, 0.2]], "domain": "categorical"}, "x0"),
        ({"choices": 3}, "choices"),
        *(({"sigma0": sigma0}, "sigma0") for sigma0 in (None, 0.0, -1, np.nan, "wide", X0)),
        *(({"x0": x0}, "sigma0 0.5 is below the rounding of x0") for x0 in ([1e308], [1.0, -1e20])),
        ({"method": "fast_igno"}, "fast_ingo"),
        ({"method": "fast_ingo", "betta": 1}, "'beta'"),
        ({"method": "fast_ingo", "budjet": 8}, "'budget'"),
        ({"tol": 1e-6}, "'tol': .* target="),
        ({"maxiter": 9}, "'maxiter': budget="),
        ({"timeout": 9}, "'timeout': a callback"),
        ({"args": (1.0,)}, "'args': f is called"),
        ({"method": "fast_ingo", "normalise": 1}, "normalise"),
        ({"method": "fast_ingo", "noise": ["iid"]}, "noise"),
        ({"method": "fast_ingo", "beta": "small"}, "beta"),
        ({"population": "8"}, "population"),
        *(
            ({theirs: 8}, f"'{theirs}': {ours}=")
            for theirs, ours in (
                ("popsize", "population"),
                ("ftarget", "target"),
                ("maxfevals", "budget"),
                ("disp", "progress"),
            )
        ),
        ({"method": "pycma", "diagonal": "maybe"}, "diagonal"),
        ({"method": "es", "domain": "binary", "sigma0": None}, "ingo_binary"),
        ({"method": "ingo_first_order"}, "gradients"),
        ({"method": lambda backend, domain, population=None: 3}, "not a SearchSolver"),
        ({"domain": "reel"}, "domain"),
        ({"backend": "tensorflow"}, "backend"),
        ({"method": "evosax_snes", "backend": "torch"}, "evosax_snes has no torch"),
        ({"seed": -1}, "seed"),
        ({"target": "low"}, "target"),
        ({"errors": "ignore"}, "errors"),
        *(({"callback": callback}, "^callback") for callback in (3, lambda: None, lambda x, fun: None)),
        ({"noisy": "yes"}, "noisy"),
        *(({"bounds": bounds}, "bounds") for bounds in (3, [(0, 2)] * 20, (0, np.nan), (3, 2), (0, 1, 2))),
        ({"bounds": (0, 0.5)}, "x0 is outside the bounds"),
        ({"x0": X0 / 2, "domain": "binary", "sigma0": None, "bounds": (0, 1)}, "bounds"),
        *(({"integers": where}, "integers") for where in ([20], [0.5], [True, False])),
        ({"integers": [0], "method": "pycma"}, "pycma"),
        ({"integers": [0], "bounds": (0.2, 0.8), "x0": X0 / 2}, "coordinate 0"),
        ({"integers": [0], "bounds": (0, 5), "x0": 9 * X0}, "coordinate 0"),
        ({"integers": [0], "domain": "binary", "x0": None, "dim": 3, "sigma0": None}, "whole numbers already"),
        ({"domain": "binary", "x0": X0 / 2}, "^sigma0"),
        ({"domain": "categorical", "choices": 3, "x0": None, "dim": 3, "sigma0": 1}, "^sigma0"),
    ],
)
def test_one_sentence_for_a_mistake(options, argument):
    if isinstance(method := options.get("method", "ingo"), str):
        skip_without_packages(method)
    call = {"f": sphere, "x0": X0, "sigma0": 0.5, "budget": 100, **options}
    with pytest.raises(UserError, match=argument):
        quiet(call.pop("f"), call.pop("x0"), call.pop("sigma0"), **call)


def test_steps_whose_squares_are_zero_leak_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = lowvar.minimize(lambda x: float(((x - 0.3) ** 2).sum()), np.zeros(3), 1e-300, budget=3000)
    assert result.failures == 0
    assert "sigma0" in result.notes[0]


def test_an_unknown_option_of_a_searcher():
    with pytest.raises(UserError, match="'backend'"):
        lowvar.Searcher(X0, 0.5, bakend="jax")


@pytest.mark.parametrize(("integers", "scaled"), [(None, True), ([0], True), (True, False)])
def test_only_coordinates_that_can_be_scaled_are_to_be_scaled(integers, scaled):
    """A whole number that is scaled inside ``f`` takes other values."""
    with pytest.raises(UserError, match="sigma0") as refused:
        quiet(sphere, X0, np.ones(len(X0)), budget=100, integers=integers)
    assert ("inside f" in str(refused.value)) == scaled


@pytest.mark.parametrize(
    "bounds", [[[0, 1], [2, 3]], np.array([[0, 1], [2, 3]]), [[0, None], [2, None]], [[0, 3], [0, 3]]]
)
def test_pairs_in_two_dimensions_are_not_guessed(bounds):
    """Both readings leave room and differ; or only that as a pair for each coordinate does, which is not ours."""
    with pytest.raises(UserError, match="bounds"):
        lowvar.Searcher(np.ones(2), 0.5, bounds=bounds)


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ([[0, 0], [2, 3]], [0, 0], [2, 3]),
        (([0, 0], [2, None]), [0, 0], [2, np.inf]),
        ((np.array([0, 1]), np.array([2, 3])), [0, 1], [2, 3]),
        ((0, [2, 3]), [0, 0], [2, 3]),
    ],
)
def test_bounds_in_two_dimensions_with_one_reading(bounds, low, high):
    """As pairs they leave no room or mean the same, or they are in a form that no pairs have."""
    points = lowvar.Searcher(np.array(low) + 0.5, 5.0, bounds=bounds).ask()
    assert ((points >= low) & (points <= high)).all()
    assert (np.ptp(points, axis=0) > 0.1).all()
