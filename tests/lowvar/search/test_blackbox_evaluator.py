"""Python functions as problems, and the count and the budget of their evaluations."""

import os
import threading

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.search.evaluator import BudgetSpent, Evaluator, from_callable
from lowvar.search.problem import Domain
from lowvar_studies.functions.catalogue import build

PLANE = Domain("real", 2)
POINTS = np.array([[3.0, 4.0], [0.0, 1.0], [1.0, 1.0]])
SQUARES = [25.0, 1.0, 2.0]


def square(x):
    return float(x @ x)


@pytest.fixture
def brittle():
    """Not importable, so that workers need not import this module."""

    def brittle(x):
        if x[0] == 0:
            raise ZeroDivisionError("no way")
        return x @ x

    return brittle


def test_one_point_at_a_time_or_all():
    pointwise, batched = from_callable(square, PLANE), from_callable(lambda x: (x**2).sum(axis=1), PLANE, batched=True)
    for problem in (pointwise, batched):
        evaluate = Evaluator(problem)
        values = evaluate(POINTS)
        assert values.dtype == np.float64
        assert values.tolist() == SQUARES
    assert pointwise.name == "square"
    assert pointwise.backend is None


@pytest.mark.parametrize(
    "f",
    [
        lambda x: int(x @ x),
        lambda x: np.array(x @ x),
        lambda x: jnp.sum(jnp.asarray(x) ** 2),
        lambda x: torch.sum(torch.tensor(x, requires_grad=True) ** 2),
    ],
    ids=["int", "numpy", "jax", "torch"],
)
def test_any_scalar_is_a_value(f):
    assert Evaluator(from_callable(f, PLANE))(POINTS).tolist() == SQUARES


def test_a_batched_function_may_return_any_array():
    for f in (jnp.asarray, torch.tensor, list):
        assert Evaluator(from_callable(lambda x: f(x[:, 0]), PLANE, batched=True))(POINTS).tolist() == [3, 0, 1]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_problems_of_a_backend_are_converted(backend):
    evaluate = Evaluator(build("sphere", get(backend), dim=2))
    assert evaluate(POINTS).tolist() == SQUARES
    assert (evaluate.best, evaluate.best_at.tolist()) == (1.0, [0, 1])
    bits = Evaluator(build("binary_reconstruction", get(backend), dim=3))
    assert bits(bits.problem.optimum_at[None, :].astype(float)).tolist() == [0]
    assert bits(np.zeros((0, 3), int)).shape == (0,)


def test_the_budget_holds():
    seen = []
    evaluate = Evaluator(from_callable(lambda x: seen.append(x) or 0.0, PLANE), budget=5)
    evaluate(POINTS)
    assert evaluate.remaining == 2
    with pytest.raises(BudgetSpent, match="3 evaluations requested, 2 left in the budget"):
        evaluate(POINTS)
    assert len(seen) == evaluate.evaluations == 3
    evaluate(POINTS[:2])
    assert evaluate.remaining == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(bad):
    problem = from_callable(lambda x: bad if x[0] == 0 else x @ x, PLANE)
    evaluate = Evaluator(problem, errors="mark")
    np.testing.assert_array_equal(evaluate(POINTS), [25, np.nan, 2])
    strict = Evaluator(problem)
    with pytest.raises(UserError, match="at point 1 of 3"):
        strict(POINTS)
    for one in (evaluate, strict):  # its generation counts
        assert (one.evaluations, one.failures, one.best, one.remaining) == (3, 1, 2, np.inf)
        assert one.best_at.tolist() == [1, 1]
    assert evaluate.measure(POINTS[:1]).tolist() == SQUARES[:1]
    assert evaluate.evaluations == 3


def test_a_batched_function_that_raises_loses_all_points():
    problem = from_callable(lambda x: 1 / 0, PLANE, batched=True)
    with pytest.raises(UserError, match=r"raised ZeroDivisionError: .*at 3 of 3 points") as caught:
        Evaluator(problem)(POINTS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    marking = Evaluator(problem, errors="mark")
    assert np.isnan(marking(POINTS)).all()
    assert (marking.failures, marking.best_at) == (3, None)


@pytest.mark.parametrize("workers", [1, 2])
def test_one_point_that_raises_loses_no_other(brittle, workers):
    problem = from_callable(brittle, PLANE, workers=workers)
    with pytest.raises(UserError, match=r"brittle raised ZeroDivisionError: no way \(at point 1\)") as caught:
        Evaluator(problem)(POINTS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    evaluate = Evaluator(problem, errors="mark")
    np.testing.assert_array_equal(evaluate(POINTS), [25, np.nan, 2])
    assert (evaluate.evaluations, evaluate.failures, evaluate.best) == (3, 1, 2)


def test_workers_are_processes_and_take_lambdas():
    offset = 10.0
    where = Evaluator(from_callable(lambda x: offset + os.getpid(), PLANE, workers=2))(POINTS)
    assert (where != offset + os.getpid()).all()


def test_what_workers_cannot_do():
    lock = threading.Lock()
    with pytest.raises(UserError, match=r"cannot be sent to worker processes .*: use workers=1"):
        Evaluator(from_callable(lambda x: lock.locked(), PLANE, workers=2))(POINTS)

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    def odd(x):
        raise Odd("strange", 2)

    with pytest.raises(UserError, match=r"raised RuntimeError: Odd: strange .at 3 of 3 points, first at point 0"):
        Evaluator(from_callable(odd, PLANE, workers=2))(POINTS)


def test_a_worker_that_dies():
    with pytest.raises(UserError, match="<lambda> ended its worker process"):
        Evaluator(from_callable(lambda x: os._exit(1), PLANE, workers=2))(POINTS)
    # the next generation gets new workers
    assert Evaluator(from_callable(lambda x: x @ x, PLANE, workers=2))(POINTS).tolist() == SQUARES


@pytest.mark.parametrize("errors", ["raise", "mark"])
@pytest.mark.parametrize(
    ("f", "batched", "message"),
    [
        (lambda x: x, False, r"point 0: f returned an array of shape \(2,\): it must return one number"),
        (lambda x: None, False, r"point 0: f returned None"),
        (lambda x: 1j, False, r"f returned complex numbers"),
        (lambda x: [1, [2]], False, r"f returned a list"),
        (
            lambda x: x,
            True,
            r"returned an array of shape \(3, 2\) for 3 points: it must return numbers of shape \(3,\)",
        ),
        (lambda x: x[:, :1], True, r"shape \(3, 1\)"),
        (lambda x: 1.0, True, r"shape \(\) for 3 points"),
    ],
)
def test_values_of_a_wrong_shape(f, batched, message, errors):
    with pytest.raises(UserError, match=message):
        Evaluator(from_callable(f, PLANE, batched=batched), errors=errors)(POINTS)


def test_points_of_a_wrong_shape_or_kind():
    with pytest.raises(UserError, match=r"square: points have shape \(2,\); it must be \(n, 2\)"):
        Evaluator(from_callable(square, PLANE))(POINTS[0])
    with pytest.raises(UserError, match="square: points must hold whole numbers from 0 to 2"):
        Evaluator(from_callable(square, Domain("categorical", 2, 3)))([[0, 3]])
    with pytest.raises(UserError, match="whole numbers from 0 to 1"):
        Evaluator(from_callable(square, Domain("binary", 2, 2)))([[0, 0.5]])


def test_a_function_may_change_its_point():
    def rude(x):
        x[:] = 0
        return 1.0

    for batched in (False, True):
        f = (lambda x: rude(x) * np.ones(3)) if batched else rude
        evaluate, points = Evaluator(from_callable(f, PLANE, batched=batched)), POINTS.copy()
        evaluate(points)
        assert (points == POINTS).all()
        assert evaluate.best_at.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"workers": 0}, "workers"), ({"workers": 2, "batched": True}, "workers=2"), ({"f": 3}, "f is an int")],
)
def test_wrong_options(options, argument):
    with pytest.raises(UserError, match=f"^{argument}"):
        from_callable(**{"f": square, "domain": PLANE, **options})


def test_wrong_settings_of_an_evaluator():
    problem = from_callable(square, PLANE)
    with pytest.raises(UserError, match="budget 0: it must be a whole number, 1 or more"):
        Evaluator(problem, budget=0)
    with pytest.raises(UserError, match="unknown way to treat errors 'skip'"):
        Evaluator(problem, errors="skip")


def test_points_of_a_discrete_domain_are_recorded():
    evaluate = Evaluator(from_callable(lambda x: float(x.sum()), Domain("categorical", 3, 4)), 100)
    assert evaluate.unseen == 64
    evaluate(np.array([[0, 1, 2], [3, 3, 3], [0, 1, 2]]))
    others = evaluate.others(100)
    assert evaluate.unseen == len(others) == 62
    assert len({tuple(x) for x in others} | {(0, 1, 2), (3, 3, 3)}) == 64
    evaluate(others)
    assert (evaluate.unseen, evaluate.evaluations) == (0, 65)
    assert Evaluator(evaluate.problem, 63).unseen == np.inf
