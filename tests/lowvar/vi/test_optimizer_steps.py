"""Each optimiser of ours, and its schedules, step by step, against transcriptions in plain NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lowvar.core import backend as backends
from lowvar.core.optimizers import optimizer, row_adam
from lowvar.vi.descent import Rows
from lowvar.vi.estimators.base import Schedule
from lowvar.vi.estimators.mlmc_optimal import allocated
from lowvar_studies.integrators.descent import Adam

STEP, B1, B2, EPS = 0.03, 0.9, 0.999, 1e-8


def adam(gradients, rates):
    """The parameter after each step: Kingma and Ba (2015), algorithm 1."""
    w, m, v, found = 0.0, 0.0, 0.0, []
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        w = w - rate * (m / (1 - B1**t)) / (np.sqrt(v / (1 - B2**t)) + EPS)
        found.append(w)
    return np.array(found)


def gradients(count):
    return np.random.default_rng(0).normal(size=(count, 3)) * np.array([1e-3, 1.0, 1e3])


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_steps_are_multiplied_by_the_schedule(name, backend):
    ops, g, eta = backends.get(backend), gradients(6), [1, 0.5, 0.5, 0.25, 0.125, 0.125]
    changes = Schedule("piecewise", values=((1, 0.5), (3, 0.25), (4, 0.125)))
    ours = optimizer(name, STEP, ops, changes.eta)
    state, w = ours.init({"w": ops.asarray(np.zeros(3))}), np.zeros(3)
    expected = adam(g, STEP * np.array(eta)) if name == "adam" else -STEP * (np.array(eta)[:, None] * g).cumsum(0)
    for one, wanted in zip(g, expected, strict=True):
        updates, state = ours.update({"w": ops.asarray(one)}, state, {"w": ops.asarray(w)})
        w = w + np.asarray(updates["w"])
        np.testing.assert_allclose(w, wanted, rtol=1e-9)


def test_adam_of_the_integrals_coasts_on_its_momentum():
    """``coast`` is a step with a gradient of zero, and nothing before the first step."""
    g = gradients(5)
    g[2] = 0
    w = torch.zeros(3, dtype=torch.float64)
    ours = Adam(w)
    ours.coast(STEP)
    assert (w == 0).all()
    for t, (one, wanted) in enumerate(zip(g, adam(g, [STEP] * 5), strict=True)):
        ours.coast(STEP) if t == 2 else ours.step(torch.from_numpy(one), STEP)
        np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-10)


@pytest.mark.parametrize(("kind", "beta", "r", "formula"), [
    ("time", 0.3, None, lambda t: 1 / (1 + 0.3 * t)),
    ("step", 0.5, 3, lambda t: 0.5 ** (t // 3)),
    ("exponential", 0.2, None, lambda t: np.exp(-0.2 * t)),
    ("cosine", 0.5, 8, lambda t: 1.0 if t < 4 else (1 + np.cos(np.pi * (t - 4) / 4)) / 2 if t < 8 else 0.0),
])  # fmt: skip
def test_schedules(kind, beta, r, formula):
    """Fujisawa and Sato (2021), Appendix D; and half a cosine over the last half of the steps."""
    ours = Schedule(kind, beta, r)
    for xp in (np, None):
        found = [float(ours.eta(t) if xp is None else ours.eta(np.asarray(float(t)), xp)) for t in range(11)]
        np.testing.assert_allclose(found, [formula(t) for t in range(11)], atol=1e-15)


def test_adam_by_rows_counts_the_visits_of_each_row():
    """A row's own step is longer by what dense Adam moves it from one visit to the next, for a constant gradient."""
    N, size = 6, 2
    rows = Rows(np.array([0]), np.array([[1], [2], [3], [4], [5], [6]]))
    ours = row_adam(STEP, rows)
    S, w = N // size, jnp.zeros(1 + size)
    state, g = ours.init({"w": w}), gradients(5)
    # by force: gradient 1 at a visit, 0 in the S - 1 steps until the next, in the steady state
    m, v, moved = 0.0, 0.0, 0.0
    for t in range(6000 * S):
        here = t % S == 0
        m, v = B1 * m + (1 - B1) * here, B2 * v + (1 - B2) * here
        moved = m / np.sqrt(v) if here else moved + m / np.sqrt(v)
    expected = np.stack([adam(g[:, 0], [STEP] * 5), *(adam(g[:, k], [STEP * moved] * 5) for k in (1, 2))], axis=1)
    for one, wanted in zip(g, expected, strict=True):
        updates, state = ours.update({"w": jnp.asarray(one)}, state)
        w = w + updates["w"]
        np.testing.assert_allclose(w, wanted, rtol=1e-6)


def test_mlmc_optimal_spends_the_budget_of_theorem_1():
    """``N_t = M sqrt(V_t / C_t) / sum_s sqrt(V_s C_s)``, ``M`` the cost of a run of equal numbers."""
    V = np.array([9.0, 4.0, 1.0, 0.25, 0.25])
    cost = np.array([1, 2, 2, 2, 2])
    exact = 42 * cost.sum() * np.sqrt(V / cost) / np.sqrt(V * cost).sum()
    sizes = np.array([round(10 ** (k / 5)) for k in range(20)])
    nearest = [int(sizes[np.argmin(np.abs(np.log10(n) - np.arange(20) / 5))]) for n in exact]
    assert allocated(list(enumerate(V)), epochs=5, steps=1, particles=42) == nearest


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_average_is_of_the_iterates_after_their_steps(backend, rng):
    """Weights proportional to ``t (t + 1) ... (t + 5)`` of step ``t``, and none for the start."""
    found = backends.get(backend)
    own = optimizer("sgd", 0.1, found, average=True)
    params = {"mu": found.asarray(rng.normal(size=3))}
    state, iterates = own.init(params), []
    for _ in range(6):
        updates, state = own.update({"mu": found.asarray(rng.normal(size=3))}, state, params)
        params = {"mu": params["mu"] + updates["mu"]}
        iterates.append(np.array(found.to_numpy(params["mu"])))
    t = np.arange(1.0, 7.0)
    weights = np.prod(t[:, None] + np.arange(0, 6), axis=1)
    np.testing.assert_allclose(found.to_numpy(state.mean["mu"]), weights @ iterates / weights.sum(), rtol=1e-10)
