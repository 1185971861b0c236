"""Policy search: the return is gymnasium's own, and repeats."""

import numpy as np
import pytest

from lowvar.search.evaluator import Evaluator
from lowvar_studies.functions import policy
from lowvar_studies.functions.catalogue import build

SIZES = {"swimmer": 178, "half_cheetah": 390, "inverted_double_pendulum": 177, "humanoid_standup": 5873}


@pytest.fixture(autouse=True)
def _simulator():
    pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")


def points(problem, count=2):
    return 0.3 * np.random.default_rng(0).normal(size=(count, problem.dim))


@pytest.mark.parametrize("task", SIZES)
def test_a_return_is_the_environment_s_own(task):
    problem = build(task, None, max_steps=20)
    assert problem.dim == SIZES[task]
    environment, observations, actions = policy.TASKS[task]
    import gymnasium

    with policy._arena(task).quiet():  # loading a model warns
        env = gymnasium.make(environment)
    (point,) = points(problem, 1)
    first = point[: 16 * (observations + 1)].reshape(16, observations + 1)
    second = point[16 * (observations + 1) :].reshape(actions, 17)
    state, _ = env.reset(seed=11)
    total = 0.0
    for _ in range(20):
        units = np.tanh(first[:, :-1] @ state + first[:, -1])
        action = env.action_space.high * np.tanh(second[:, :-1] @ units + second[:, -1])
        state, reward, over, _, _ = env.unwrapped.step(action)
        total += float(reward)
        if over:
            break
    # the simulation is chaotic: weights summed in another order may move the last digits
    assert policy.loss(task, (11,), 20, point) == pytest.approx(-total, rel=1e-6)


@pytest.mark.parametrize("task", SIZES)
def test_values_repeat(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = build(task, None, max_steps=20)
    evaluate = Evaluator(problem)
    values = evaluate(np.concatenate([points(problem), np.zeros((1, problem.dim))]))
    assert np.isfinite(values).all()
    assert len(set(values)) == 3
    assert (evaluate(points(problem)[::-1]) == values[1::-1]).all()
    assert not list(tmp_path.iterdir())  # the simulator keeps no log


def test_initial_states_come_from_the_seed():
    one, same, other, mean = (
        build("swimmer", None, max_steps=5, **options).values(np.zeros((1, 178)))[0]
        for options in ({}, {"seed": 0}, {"seed": 1}, {"episodes": 2})
    )
    assert one == same
    assert len({one, other, mean}) == 3


def test_workers_see_the_same_function():
    here, there = (build("swimmer", None, max_steps=5, workers=workers) for workers in (1, 2))
    assert (here.values(points(here, 3)) == there.values(points(here, 3))).all()


def test_failures_are_marked():
    problem = build("half_cheetah", None, max_steps=5)
    assert np.isnan(problem.values(np.full((1, problem.dim), np.inf))).all()
