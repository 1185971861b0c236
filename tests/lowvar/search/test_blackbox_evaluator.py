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


def evaluator(f, budget=None, errors="raise", domain=PLANE, **options):
    return Evaluator(from_callable(f, domain, **options), budget, errors)


@pytest.mark.parametrize(
    ("f", "batched"),
    [
        (lambda x: int(x @ x), False),
        (lambda x: np.array(x @ x), False),
        (lambda x: jnp.sum(jnp.asarray(x) ** 2), False),
        (lambda x: torch.sum(torch.tensor(x, requires_grad=True) ** 2), False),
        *((lambda x, array=array: array((x**2).sum(axis=1)), True) for array in (np.asarray, jnp.asarray, list)),
    ],
)
def test_any_numbers_are_values(f, batched):
    values = evaluator(f, batched=batched)(POINTS)
    assert values.dtype == np.float64
    assert values.tolist() == SQUARES


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
    evaluate = evaluator(lambda x: seen.append(x) or 0.0, 5)
    evaluate(POINTS)
    assert evaluate.remaining == 2
    with pytest.raises(BudgetSpent):
        evaluate(POINTS)
    assert len(seen) == evaluate.evaluations == 3
    evaluate(POINTS[:2])
    assert evaluate.remaining == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(bad):
    evaluate, strict = (evaluator(lambda x: bad if x[0] == 0 else x @ x, errors=errors) for errors in ("mark", "raise"))
    np.testing.assert_array_equal(evaluate(POINTS), [25, np.nan, 2])
    with pytest.raises(UserError, match="at point 1 of 3"):
        strict(POINTS)
    for one in (evaluate, strict):  # its generation counts
        assert (one.evaluations, one.failures, one.best, one.remaining) == (3, 1, 2, np.inf)
        assert one.best_at.tolist() == [1, 1]
    assert evaluate.measure(POINTS[:1]).tolist() == SQUARES[:1]
    assert evaluate.evaluations == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_one_point_that_raises_loses_no_other(workers):
    def brittle(x):
        """Not importable, so that workers need not import this module."""
        if x[0] == 0:
            raise ZeroDivisionError("no way")
        return x @ x

    with pytest.raises(UserError, match=r"brittle raised ZeroDivisionError: no way \(at point 1\)") as caught:
        evaluator(brittle, workers=workers)(POINTS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    evaluate = evaluator(brittle, errors="mark", workers=workers)
    np.testing.assert_array_equal(evaluate(POINTS), [25, np.nan, 2])
    assert (evaluate.evaluations, evaluate.failures, evaluate.best) == (3, 1, 2)


def test_workers_are_processes_and_take_lambdas():
    offset = 10.0
    assert (evaluator(lambda x: offset + os.getpid(), workers=2)(POINTS) != offset + os.getpid()).all()


def test_what_workers_cannot_do():
    class Odd(Exception):
        """It cannot be pickled."""

        def __init__(self, one, two):
            super().__init__(one)

    def odd(x):
        raise Odd("strange", 2)

    lock = threading.Lock()
    for f, message in (
        (lambda x: lock.locked(), "workers=1"),
        (odd, "Odd: strange"),
        (lambda x: os._exit(1), "ended its worker process"),
    ):
        with pytest.raises(UserError, match=message):
            evaluator(f, workers=2)(POINTS)
    # the next generation gets new workers
    assert evaluator(lambda x: x @ x, workers=2)(POINTS).tolist() == SQUARES


@pytest.mark.parametrize("errors", ["raise", "mark"])
@pytest.mark.parametrize(
    ("f", "batched", "message"),
    [
        (lambda x: x, False, r"point 0: f returned an array of shape \(2,\)"),
        (lambda x: None, False, "None"),
        (lambda x: 1j, False, "complex"),
        (lambda x: [1, [2]], False, "a list"),
        (lambda x: x[:, :1], True, r"shape \(3, 1\) for 3 points"),
        (lambda x: 1.0, True, r"shape \(\) for 3 points"),
    ],
)
def test_values_of_a_wrong_shape(f, batched, message, errors):
    with pytest.raises(UserError, match=message):
        evaluator(f, errors=errors, batched=batched)(POINTS)


@pytest.mark.parametrize(
    ("domain", "points"),
    [(PLANE, POINTS[0]), (Domain("categorical", 2, 3), [[0, 3]]), (Domain("binary", 2, 2), [[0, 0.5]])],
)
def test_points_of_a_wrong_shape_or_kind(domain, points):
    with pytest.raises(UserError, match="points"):
        evaluator(lambda x: 0.0, domain=domain)(points)


@pytest.mark.parametrize("batched", [False, True])
def test_a_function_may_change_its_point(batched):
    def rude(x):
        x[:] = 0
        return np.ones(3) if batched else 1.0

    evaluate, points = evaluator(rude, batched=batched), POINTS.copy()
    evaluate(points)
    assert (points == POINTS).all()
    assert evaluate.best_at.tolist() == [3, 4]


def test_points_of_a_discrete_domain_are_recorded():
    evaluate = evaluator(lambda x: float(x.sum()), 100, domain=Domain("categorical", 3, 4))
    assert evaluate.unseen == 64
    evaluate(np.array([[0, 1, 2], [3, 3, 3], [0, 1, 2]]))
    others = evaluate.others(100)
    assert evaluate.unseen == len(others) == 62
    assert len({tuple(x) for x in others} | {(0, 1, 2), (3, 3, 3)}) == 64
    evaluate(others)
    assert (evaluate.unseen, evaluate.evaluations) == (0, 65)
    assert Evaluator(evaluate.problem, 63).unseen == np.inf
