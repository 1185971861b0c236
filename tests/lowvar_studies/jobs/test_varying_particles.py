"""Runs whose number of particles changes: by a schedule, by their own variances, by a pilot run; and measured errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from lowvar.core import loop
from lowvar.core.gaussian import GAUSSIAN
from lowvar.errors import UserError
from lowvar.vi.batches import BATCHES, sampler
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import rounded_up, schedule
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Diagnostics, Method, Settings
from lowvar_studies.models.logistic_regression import problem as logistic_regression

N, DIM = 20, 3
STEP = {"kind": "step", "beta": 0.5, "r": 3}
FEW = {"kind": "step", "beta": 0.5, "r": 16}  # 4 particles, and 2 from step 17 on


def problem(backend="jax", dtype=np.float64):
    rng = np.random.default_rng(0)
    return logistic_regression({"x": rng.normal(size=(N, DIM)).astype(dtype), "y": rng.integers(0, 2, N)}, backend)


def build(method="mlmc", backend="jax", options=None, **settings):
    for key, kind in (("schedule", schedule), ("diagnostics", Diagnostics)):
        if key in settings:
            settings[key] = kind(**settings[key])
    base = {"step_sizes": (1e-2, 1e-3), "batch_size": N, "epochs": 12, "repetitions": 2, "particles": 10}
    spec = Method(method, options or {})
    return engine.build(problem(backend), spec, Settings(**{**base, **settings}), seed=0, name="small")


@functools.cache
def one_batch(particles):
    """``key -> noise`` of an epoch's one step."""
    draw = sampler(BATCHES["reshuffled"](N, N), GAUSSIAN["iid"](particles), DIM, np.float64)
    return jax.jit(lambda key: jax.tree.map(lambda leaf: leaf[0], draw.epoch(key)))


@pytest.fixture(scope="module")
def falling():
    """An engine whose programs are of 10 and of 5 particles, and its run."""
    made = build(schedule=STEP, epochs=7)
    return made, loop.complete(made)


@pytest.fixture(scope="module")
def few():
    """``(method, backend) -> engine, run``: past a drop of the particles and past a review of them, on to four stops."""

    @functools.cache
    def made(method, backend):
        found = build(
            method, backend, schedule=FEW, epochs=29, particles=3 if method == "mlmc_adaptive" else 4,
            noise="rqmc" if method == "storm" else "iid", diagnostics={"draws": 4, "reference": 16},
        )  # fmt: skip
        found.stops = [0, 1, 20, 27, 29]
        return found, loop.complete(found)

    return made


def test_step_sizes_and_points_follow_one_schedule(falling):
    found, result = falling
    # N_t = ceil(eta_{t-1} N_0): the step sizes fall at t = 3, 6, 9 and the particles a step later
    assert [found.particles(t) for t in range(12)] == [10] * 4 + [5] * 3 + [3] * 3 + [2] * 2
    rows = result.trace[result.trace["repetition"].eq(0) & result.trace["step_size"].eq(1e-2)].set_index("epoch")
    assert rows.loc[[0, 3, 4, 6, 7], "particles"].tolist() == [10, 10, 5, 5, 3]
    assert rows.loc[[0, 4, 6, 7], "gradients"].tolist() == [0, N * (2 * 40 - 10), N * (2 * 50 - 10), N * (2 * 55 - 10)]


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
    least, exact = np.ceil(100 * np.array([1, *eta[:3]]) - 1e-9), kind in ("step", "piecewise")
    assert np.equal(particles := [made.particles(t, 100) for t in range(4)], least).all() or not exact
    assert np.greater_equal(particles, least).all()
    many = {made.particles(t, 100) for t in range(3000)}
    assert (min(many), len(many) <= 21) == (10 if kind == "piecewise" else 1, True)
    assert exact or all(n == rounded_up(n) for n in many)


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


@pytest.mark.parametrize(
    ("name", "option", "values"),
    [
        ("mlmc", "particles", (0, 2.5)),
        ("mlmc", "base", ("joint",)),
        ("mlmc", "restart", (7, True)),
        ("storm", "a", (0.0, 1.1, "0.1")),
        ("mlmc_prox", "ball", ("x", 0.0)),
        ("mlmc_prox", "box", (["a", "b"], [1.0, -1.0], 3.0)),
        ("mlmc_optimal", "pilot", (1,)),
        ("mlmc_optimal", "variances", ([[1, 2.0]], [[0, 2.0], [1, 0.0]], [[0, 2.0], [0, 1.0]], [])),
        ("mlmc_optimal", "base", ("cv",)),
    ],
)
def test_impossible_options_are_refused(name, option, values):
    for value in values:
        with pytest.raises(UserError, match=option):
            build(name, options={option: value}, step_sizes=(1e-2,), batch_size=10)


def test_numbers_of_numpy_are_numbers():
    batches = BATCHES["reshuffled"](N, 10)
    assert GRADIENT.get("storm")(problem(), batches, a=np.float32(0.25)).properties.carryover == 0.75
    assert GRADIENT.get("mlmc")(problem(), batches, particles=np.int64(4), restart=np.int64(4)).particles(0, None) == 4
    GRADIENT.get("mlmc_prox")(problem(), batches, box=np.array([-5.0, 5.0]))


@pytest.mark.parametrize(
    ("name", "options", "starts"),
    [
        ("mlmc", {"particles": 5, "restart": 6}, (0, 6)),
        ("mlmc_adaptive", {"particles": 5}, (0,)),
        ("storm", {"a": 0.5}, (0,)),
        ("storm", {"base": "cv"}, (0,)),
        ("mlmc_optimal", {}, (0,)),
    ],
)
def test_a_step_that_starts_the_recursion_counts_one_gradient(name, options, starts):
    """Against a sum over steps with batches of 8, 8 and 4 rows: 5 particles each, 2 gradients, or 1 where it starts."""
    batches = BATCHES["reshuffled"](N, 8)
    made = GRADIENT.get(name)(problem(), batches, **options)
    hessian = options.get("base") == "cv"
    for epochs in range(5):
        rows = [(1 if t in starts else 2) * int(batches.rows[t % 3]) for t in range(3 * epochs)]
        assert made.oracles_of_run(epochs, N, 5, 3) == (5 * sum(rows), sum(rows) * hessian)


def test_a_pilot_run_in_mini_batches_counts_the_rows_that_it_visits():
    """Per particle, a step reads a batch, not all rows; the pilot's first step needs one gradient, as the run's does."""
    batches = BATCHES["reshuffled"](N, 8)
    pilot = {"variances": [(0, 1.0), (5, 0.5)], "epochs": 2, "pilot": 4, "pilot_taken": 6 * 4}
    made = GRADIENT.get("mlmc_optimal")(problem(), batches, particles=3, **pilot)
    assert made.oracles_of_run(0, N, 3).gradients == 4 * (2 * 2 * N - 8)
    one = made.particles(0, None)
    assert made.oracles_of_run(1, N, one).gradients == 4 * (2 * 2 * N - 8) + one * (2 * N - 8)


def test_under_sgd_it_is_the_update_of_the_paper(falling):
    """``w_{t+1} = w_t + eta_t / eta_{t-1} (w_t - w_{t-1}) - alpha_t mean [g(w_t) - g(w_{t-1})]``, Algorithm 1."""
    (found, result), eta, size, first = falling, schedule(**STEP), 1e-2, 10
    gradient = jax.jit(problem().objective_gradient)
    w = [{block: jnp.asarray(value[0]) for block, value in found.starts.items()}]
    for t in range(7):
        noise = one_batch(eta.particles(t, first))(jax.random.fold_in(found.keys[0], t))
        g, alpha = gradient(w[-1], noise), size * eta.eta(t)
        if t == 0:
            w.append({block: w[-1][block] - alpha * g[block] for block in g})
            continue
        before, ratio = gradient(w[-2], noise), eta.eta(t) / eta.eta(t - 1)
        w.append({b: w[-1][b] + ratio * (w[-1][b] - w[-2][b]) - alpha * (g[b] - before[b]) for b in g})
    for block, values in result.params.items():
        np.testing.assert_allclose(values[0, 0], w[-1][block], rtol=1e-9)


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


@pytest.mark.parametrize("epochs", [8, pytest.param(40, marks=pytest.mark.long)])
def test_a_pilot_run_measures_what_theorem_1_needs(epochs):
    """The variances are those between particles on the way; the pilot's gradients count."""
    solver = {"epochs": epochs, "step_sizes": (4e-2,), "particles": 30, "per_decade": 2}
    made = build("mlmc_optimal", options={"pilot": 20}, **solver)
    counts = np.array([made.particles(epoch) for epoch in range(epochs)])
    cost = counts[0] + 2 * counts[1:].sum()
    assert cost == pytest.approx((2 * epochs - 1) * 30, rel=0.15)  # Theorem 1's budget, (2 T + 1) N_0
    assert counts[0] > 2 * 30  # most of it goes to the first steps
    assert counts[-1] < counts[1]
    assert made.parts == [(slice(0, 1), slice(0, 2))]  # one plan for all repetitions
    mine = loop.complete(made).trace
    pilot = mine["gradients"].min()
    # 20 particles until its first review, at least 2 then
    least = min(epochs, 25) * 20 + max(epochs - 25, 0) * 2
    assert N * (2 * least - 20) <= pilot <= N * (2 * epochs * 20 - 20)
    assert mine["gradients"].max() == pilot + N * cost
    assert (mine.query(f"epoch == {epochs}")["particles"] == counts[-1]).all()


def test_the_pilot_run_of_theorem_1_is_of_one_step_size_and_may_diverge():
    with pytest.raises(UserError, match="step sizes"):
        build("mlmc_optimal")
    end = loop.complete(build("mlmc_optimal", step_sizes=(1e6,), epochs=10, particles=4, per_decade=1)).trace
    assert set(end.query("epoch == 10")["status"]) == {"diverged"}


@pytest.mark.parametrize(
    ("method", "backend"),
    [("mlmc_adaptive", "jax"), *(pytest.param(*one, marks=pytest.mark.long) for one in (("mlmc", "jax"), ("storm", "torch")))],
)  # fmt: skip
def test_a_cut_changes_nothing(few, method, backend):
    """Wherever a run is stopped, and gone on with from its arrays."""
    found, result = few(method, backend)
    state = found.init()
    for first, count in ((0, 0), (0, 2), (2, 3), (5, 21), (26, 3)):
        state = found.unflatten(found.flatten(found.advance(state, first, count)))
    for block, values in found.params(state, None).items():
        np.testing.assert_array_equal(values, result.params[block])
    assert (result.trace.query("epoch == 29")["particles"] == (4 if method == "storm" else 2)).all()


@pytest.mark.long
@pytest.mark.parametrize("method", ["mlmc_adaptive", "storm", "mlmc", "mlmc_prox"])
def test_backends_agree_along_a_run(few, method):
    jax_, torch = (few(method, backend)[1].trace for backend in ("jax", "torch"))
    pd.testing.assert_frame_equal(torch, jax_, rtol=1e-7, atol=1e-9)


def test_without_memory_the_error_is_the_variance():
    found = build("naive", epochs=1, step_sizes=(1e-2,), repetitions=2, diagnostics={"draws": 2000, "reference": 2**13})
    trace = loop.complete(found).trace
    ratio = trace["squared_error"] / trace["variance"]
    assert ((ratio - 1).abs() < 0.02).all()
    w = {block: np.asarray(value)[0, 0] for block, value in found.init()[0].params.items()}
    exact = jax.jit(jax.grad(lambda w: -problem().exact_elbo(w)))(w)
    signal = sum(float(jnp.sum(exact[block] ** 2)) for block in exact)
    first = trace[(trace["epoch"] == 0) & (trace["repetition"] == 0)].iloc[0]
    assert abs(first["signal"] / signal - 1) < 1e-3
    assert first["reference_error"] < 1e-3 * first["variance"]
    assert abs(first["mean2"] / signal - 1) < 0.1


@pytest.mark.long
def test_what_is_remembered_is_no_variance():
    """A multilevel estimate at rest: fresh noise moves it by nothing, and its error is that of its first sample."""
    settings = {"epochs": 4, "step_sizes": (1e-4,), "repetitions": 20, "particles": 4, "per_decade": 1}
    settings["diagnostics"] = {"draws": 16, "reference": 2**11}
    found, plain = build(schedule=STEP, **settings), build("naive", **settings)
    mine, theirs = (loop.complete(runs).trace for runs in (found, plain))
    last, mc = mine[mine["epoch"] == 4], theirs[theirs["epoch"] == 4]
    assert (last["variance"] < 1e-3 * last["squared_error"]).all()
    assert 0.5 < last["squared_error"].mean() / mc["squared_error"].mean() < 2


@pytest.mark.long
def test_measuring_moves_nothing(falling):
    plain = falling[1]
    measured = loop.complete(build(schedule=STEP, epochs=7, per_decade=1, diagnostics={"draws": 4, "reference": 16}))
    for block, values in plain.params.items():
        assert values.tobytes() == measured.params[block].tobytes()
    shared = [name for name in plain.trace if name in measured.trace]
    same = plain.trace[plain.trace["epoch"].isin(measured.trace["epoch"])].reset_index(drop=True)
    assert len(same) == 12
    pd.testing.assert_frame_equal(same[shared], measured.trace[shared])


def test_pairs_of_points_stay_pairs():
    found = build("mlmc_adaptive", noise="antithetic", particles=10, epochs=2)
    assert found._sizes() == [2, 4, 6, 8, 10]
    scheduled = build("mlmc", noise="antithetic", particles=10, schedule=STEP, epochs=12)
    assert scheduled._sizes() == [10, 6, 4, 2]
