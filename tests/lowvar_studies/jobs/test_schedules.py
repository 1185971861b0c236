"""Schedules: their formulas, what they multiply, and which ones are refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import STEP, N, problem

from lowvar.errors import UserError
from lowvar.vi.batches import BATCHES
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.schedules import rounded_up, schedule


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_schedule_multiplies_the_optimizers_steps(optimizer):
    """Each backend against the definition, on gradients that do not change."""
    from lowvar.core import backend as backends
    from lowvar.core.optimizers import optimizer as make

    eta = schedule(**STEP)
    for name in ("jax", "torch"):
        ops = backends.get(name)
        made, plain = make(optimizer, 0.1, ops, eta.eta), make(optimizer, 0.1, ops)
        w = {"mu": ops.asarray(np.ones(2))}
        state, other = made.init(w), plain.init(w)
        for t in range(8):
            updates, state = made.update(w, state, w)
            expected, other = plain.update(w, other, w)
            ratio = ops.to_numpy(updates)["mu"] / ops.to_numpy(expected)["mu"]
            np.testing.assert_allclose(ratio, 0.5 ** (t // 3), rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "settings", "eta"),
    [
        ("time", {"beta": 0.5}, [1, 1 / 1.5, 1 / 2, 1 / 2.5]),
        ("step", {"beta": 0.5, "r": 2}, [1, 1, 0.5, 0.5]),
        ("exponential", {"beta": 0.5}, np.exp([0, -0.5, -1, -1.5])),
        ("piecewise", {"values": [[1, 0.4], [3, 0.1]]}, [1, 0.4, 0.4, 0.1]),
        ("cosine", {"beta": 0.5, "r": 4}, [1, 1, 1, 0.5]),
    ],
)
def test_schedules_are_their_formulas(kind, settings, eta):
    made = schedule(kind, **settings)
    np.testing.assert_allclose([made.eta(t) for t in range(4)], eta, rtol=1e-12)
    np.testing.assert_allclose(made.eta(jnp.arange(4.0), jnp), eta, rtol=1e-12)
    wanted = [1, *eta[:3]]
    for t, factor in enumerate(wanted):
        assert made.particles(t, 100) >= np.ceil(factor * 100 - 1e-9)
        if kind in ("step", "piecewise"):
            assert made.particles(t, 100) == np.ceil(factor * 100 - 1e-9)
    many = {made.particles(t, 100) for t in range(3000)}
    assert min(many) == {"piecewise": 10}.get(kind, 1)
    assert len(many) <= 21
    assert all(n == rounded_up(n) for n in many) or kind in ("step", "piecewise")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "stpe", "beta": 0.5, "r": 3}, "unknown schedule 'stpe': did you mean 'step'"),
        ({"kind": "time", "beta": 0.0}, "beta = 0.0; it must be above 0 and at most 1"),
        ({"kind": "time", "beta": 1.5}, "beta = 1.5; it must be above 0 and at most 1"),
        ({"kind": "step", "beta": 0.5, "r": 0}, "r = 0; it must be a whole number of steps, 1 or more"),
        ({"kind": "step", "beta": 0.5}, "takes beta and r: r is missing"),
        ({"kind": "cosine", "beta": 0.5}, "takes beta and r: r is missing"),
        ({"kind": "time", "beta": 0.5, "r": 3}, "schedule .time. takes beta: r is not one"),
        ({"kind": "piecewise", "values": [[5, 0.5], [9, 0.6]]}, "0.6 from step 9; it must not increase"),
        ({"kind": "piecewise", "values": [[5, 1.1]]}, "1.1 from step 5; it must not increase"),
        ({"kind": "piecewise", "values": [[5, 0.5], [4, 0.4]]}, "steps ascending"),
    ],
)
def test_impossible_schedules_are_refused(given, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        schedule(**given)
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        GRADIENT.get("mlmc")(problem(), BATCHES["reshuffled"](N, N), particles=10, schedule=given)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mlmc", {"particles": 0}, "mlmc: particles 0: it must be a whole number, 1 or more"),
        ("mlmc_adaptive", {"particles": 2.5}, "particles 2.5: it must be a whole number"),
        ("mlmc", {"base": "joint"}, "unknown base 'joint'"),
        ("mlmc", {"restart": 7}, "restart = 7; it must be a number of steps that fills whole epochs, a multiple of 2"),
        ("mlmc", {"schedule": {"sort": "step"}}, "mlmc: schedule = {'sort': 'step'}"),
        ("storm", {"a": 0.0}, "storm: a = 0.0; it must be a number above 0 and at most 1"),
        ("storm", {"a": "0.1"}, "storm: a = '0.1'; it must be a number above 0 and at most 1"),
        ("storm", {"a": 1.1}, "storm: a = 1.1; it must be a number above 0 and at most 1"),
        ("mlmc", {"restart": True}, "restart = True; it must be a number of steps"),
        ("mlmc_prox", {"ball": "x"}, "mlmc_prox: ball = 'x'; give a number"),
        ("mlmc_prox", {"ball": 3, "box": [-1, 1]}, "give a ball or a box, not both"),
        ("mlmc_prox", {"box": ["a", "b"]}, r"box = \['a', 'b'\]; give \[low, high\], two numbers"),
        ("mlmc_prox", {"ball": 0.0}, "ball = 0.0: its radius must be a positive number"),
        ("mlmc_prox", {"box": [1.0, -1.0]}, "the first must be below the second"),
        ("mlmc_prox", {"box": 3.0}, r"box = 3.0; give \[low, high\]"),
    ],
)
def test_impossible_options_are_refused(name, options, message):
    with pytest.raises(UserError, match=message):
        GRADIENT.get(name)(problem(), BATCHES["reshuffled"](N, 10), **options)


def test_numbers_of_numpy_are_numbers():
    batches = BATCHES["reshuffled"](N, 10)
    assert GRADIENT.get("storm")(problem(), batches, a=np.float32(0.25)).properties.carryover == 0.75
    assert GRADIENT.get("mlmc")(problem(), batches, particles=np.int64(4), restart=np.int64(4)).particles(0, None) == 4
    GRADIENT.get("mlmc_prox")(problem(), batches, box=np.array([-5.0, 5.0]))
