"""Numbers of particles that depend on the run: the adaptive ones, and those of Theorem 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import DIM, N, build, one_batch, problem

from lowvar.core import loop
from lowvar.errors import UserError
from lowvar.vi.batches import BATCHES
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import rounded_up
from lowvar.vi.estimators.mlmc_optimal import allocated


def test_adaptive_particles_have_the_theorem_s_proportions():
    """After a review, ``N_t`` is ``N_0 sqrt(V_t / (2 V_0))`` rounded up, of the variances that the state holds."""
    found = build("mlmc_adaptive", epochs=30, particles=20, step_sizes=(4e-2,), repetitions=2)
    assert found.parts == [(slice(0, 1), slice(0, 1)), (slice(0, 1), slice(1, 2))]
    state, chosen = found.advance(found.init(), 0, 25), []
    for part in state:
        of = {name: np.asarray(part.estimator[name])[0, 0] for name in ("V", "V_0", "particles", "taken")}
        wanted = 20 * np.sqrt(of["V"] / (2 * of["V_0"]))
        assert of["particles"] == max(2, rounded_up(int(np.ceil(wanted))))
        assert of["particles"] < 20  # differences of small steps vary little
        assert of["taken"] == 25 * 20
        chosen.append(int(of["particles"]))
    assert max(chosen) > 2, "only the least number was chosen"
    measured = found.measure(found.advance(state, 25, 5), 30)
    last = found.trace([30], {name: values[None] for name, values in measured.items()})
    assert last["particles"].tolist() == chosen
    assert last["gradients"].tolist() == [N * (2 * (25 * 20 + 5 * particles) - 20) for particles in chosen]


def test_adaptive_variance_is_that_between_particles():
    p, batches = problem(), BATCHES["reshuffled"](N, N)
    made = GRADIENT.get("mlmc_adaptive")(p, batches, particles=400)
    noise = one_batch(400)(jax.random.key(0))
    w = {"mu": jnp.zeros(DIM), "log_sigma": jnp.zeros(DIM)}
    _, state = jax.jit(made.estimate)(made.init(w), w, noise)
    each = jax.jit(jax.vmap(lambda e: p.objective_gradient(w, noise._replace(eps=e[None]))))(noise.eps)
    expected = sum(float(jnp.var(each[block], axis=0, ddof=1).sum()) for block in each)
    np.testing.assert_allclose(state["V_0"], expected, rtol=1e-10)


def total(V, N_t):
    """The variance of the sum of all differences, and its cost, as in Theorem 1."""
    return (V / N_t).sum(), (np.r_[1, np.full(len(V) - 1, 2)] * N_t).sum()


def test_theorem_1_spends_the_budget_and_no_other_allocation_does_better():
    """Against the theorem's own formula for ``N_1``, and against a thousand others of the same cost."""
    T, first = 400, 1000
    V = 50.0 / (1 + np.arange(T + 1)) ** 1.5
    counts = np.array(allocated(list(enumerate(V)), T + 1, 1, first), float)
    N_1 = (2 * T + 1) * np.sqrt(V[1]) * first / (np.sqrt(2 * V[0]) + 2 * np.sqrt(V[1:]).sum())
    assert abs(np.log(counts[1] / N_1)) < np.log(10) / 10 + 0.05  # the nearest of five sizes a decade, whole
    least, cost = total(V, counts)
    assert cost == pytest.approx((2 * T + 1) * first, rel=0.1)
    assert total(V, np.full(T + 1, float(first)))[0] > 2 * least
    rng = np.random.default_rng(0)
    for _ in range(1000):
        other = counts * np.exp(0.3 * rng.normal(size=T + 1))
        variance, others = total(V, other)
        assert variance * others > 0.99 * least * cost  # at the same cost; rounding to sizes costs up to a percent


@pytest.mark.parametrize("epochs", [8, pytest.param(40, marks=pytest.mark.long)])
def test_a_pilot_run_measures_what_theorem_1_needs(epochs):
    """The variances are those between particles on the way; the pilot's gradients count."""
    solver = {"epochs": epochs, "step_sizes": (4e-2,), "particles": 30, "per_decade": 2}
    made, plain = build("mlmc_optimal", options={"pilot": 20}, **solver), build("mlmc", **solver)
    counts = np.array([made.particles(epoch) for epoch in range(epochs)])
    cost = counts[0] + 2 * counts[1:].sum()
    assert cost == pytest.approx((2 * epochs - 1) * 30, rel=0.15)
    assert counts[0] > 2 * 30  # most of it goes to the first steps
    assert counts[-1] < counts[1]
    assert made.parts == [(slice(0, 1), slice(0, 2))]  # one plan for all repetitions
    mine, theirs = loop.complete(made).trace, loop.complete(plain).trace
    pilot = mine["gradients"].min()
    # 20 particles until its first review, at least 2 then
    least = min(epochs, 25) * 20 + max(epochs - 25, 0) * 2
    assert N * (2 * least - 20) <= pilot <= N * (2 * epochs * 20 - 20)
    assert mine["gradients"].max() == pilot + N * cost
    assert theirs["gradients"].max() == N * (2 * epochs - 1) * 30  # Theorem 1's budget, (2 T + 1) N_0
    assert (mine.query(f"epoch == {epochs}")["particles"] == counts[-1]).all()
    again = build("mlmc_optimal", options={"pilot": 20}, **{**solver, "repetitions": 1})
    assert [again.particles(epoch) for epoch in range(epochs)] == counts.tolist()


def test_theorem_1_asks_for_one_step_size():
    with pytest.raises(UserError, match="mlmc_optimal: 2 step sizes; its pilot run measures the variances of one"):
        build("mlmc_optimal")


def test_a_pilot_that_diverges_leaves_a_run_that_says_so():
    end = loop.complete(build("mlmc_optimal", step_sizes=(1e6,), epochs=10, particles=4, per_decade=1)).trace
    assert set(end.query("epoch == 10")["status"]) == {"diverged"}


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("pilot", (1,)),
        ("variances", ([[1, 2.0]], [[0, 2.0], [1, 0.0]], [[0, 2.0], [0, 1.0]], [1.0, 2.0], [])),
        ("base", ("cv",)),
    ],
)
def test_wrong_options_of_theorem_1(option, values):
    for value in values:
        with pytest.raises(UserError, match=option):
            build("mlmc_optimal", options={option: value}, step_sizes=(1e-2,))
