"""Schedules: their formulas, what they multiply, and which ones are refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import STEP, N, problem

from lowvar.errors import UserError
from lowvar.vi.batches import BATCHES
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import rounded_up, schedule


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
    ("given", "name"),
    [
        ({"kind": "stpe", "beta": 0.5, "r": 3}, "'step'"),
        *(({"kind": "time", "beta": beta}, "beta") for beta in (0.0, 1.5)),
        ({"kind": "time", "beta": 0.5, "r": 3}, "r"),
        *(({"kind": "step", "beta": 0.5, **r}, "r") for r in ({"r": 0}, {})),
        *(({"kind": "piecewise", "values": values}, "step")
          for values in ([[5, 0.5], [9, 0.6]], [[5, 1.1]], [[5, 0.5], [4, 0.4]])),
    ],
)  # fmt: skip
def test_impossible_schedules_are_refused(given, name):
    with pytest.raises(UserError, match=rf"\b{name}\b" if name.isalpha() else name):
        schedule(**given)
    with pytest.raises(UserError, match=name):
        GRADIENT.get("mlmc")(problem(), BATCHES["reshuffled"](N, N), particles=10, schedule=given)


@pytest.mark.parametrize(
    ("name", "option", "values"),
    [
        ("mlmc", "particles", (0, 2.5)),
        ("mlmc", "base", ("joint",)),
        ("mlmc", "restart", (7, True)),
        ("mlmc", "schedule", ({"sort": "step"},)),
        ("storm", "a", (0.0, 1.1, "0.1")),
        ("mlmc_prox", "ball", ("x", 0.0)),
        ("mlmc_prox", "box", (["a", "b"], [1.0, -1.0], 3.0)),
    ],
)
def test_impossible_options_are_refused(name, option, values):
    for value in values:
        with pytest.raises(UserError, match=option):
            GRADIENT.get(name)(problem(), BATCHES["reshuffled"](N, 10), **{option: value})
    with pytest.raises(UserError, match="ball or a box"):
        GRADIENT.get("mlmc_prox")(problem(), BATCHES["reshuffled"](N, 10), ball=3, box=[-1, 1])


def test_numbers_of_numpy_are_numbers():
    batches = BATCHES["reshuffled"](N, 10)
    assert GRADIENT.get("storm")(problem(), batches, a=np.float32(0.25)).properties.carryover == 0.75
    assert GRADIENT.get("mlmc")(problem(), batches, particles=np.int64(4), restart=np.int64(4)).particles(0, None) == 4
    GRADIENT.get("mlmc_prox")(problem(), batches, box=np.array([-5.0, 5.0]))
