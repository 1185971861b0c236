"""Runs whose number of particles changes: phases, counts, resumption, and the errors that are measured."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from small_runs import DIM, STEP, N, build, one_batch, problem

from lowvar.core import loop
from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.keys import named_key
from lowvar.vi.batches import BATCHES, sampler
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import schedule
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Diagnostics, Method, Settings

FEW = {"kind": "step", "beta": 0.5, "r": 16}  # 4 particles, and 2 from step 17 on
MARK = {"spec": "1"}


@pytest.fixture(scope="module")
def falling():
    """An engine whose programs are of 10 and of 5 particles, and its run."""
    made = build(schedule=STEP, epochs=7)
    return made, loop.complete(made)


def few_points(method, backend):
    """An engine of few programs that goes past a drop of the particles and past a review of them, on to four stops."""
    made = build(
        method, backend, schedule=FEW, epochs=29, particles=3 if method == "mlmc_adaptive" else 4,
        noise="rqmc" if method == "storm" else "iid", diagnostics={"draws": 4, "reference": 16},
    )  # fmt: skip
    made.stops = [0, 1, 20, 27, 29]
    return made


@pytest.fixture(scope="module")
def few():
    """``few_points`` of a method and a backend with its run, made once."""

    @functools.cache
    def made(method, backend):
        found = few_points(method, backend)
        return found, loop.complete(found)

    return made


def test_step_sizes_and_points_follow_one_schedule(falling):
    found, result = falling
    # N_t = ceil(eta_{t-1} N_0): the step sizes fall at t = 3, 6, 9 and the particles a step later
    assert [found.particles(t) for t in range(12)] == [10] * 4 + [5] * 3 + [3] * 3 + [2] * 2
    rows = result.trace[result.trace["repetition"].eq(0) & result.trace["step_size"].eq(1e-2)].set_index("epoch")
    assert rows.loc[[0, 3, 4, 6, 7], "particles"].tolist() == [10, 10, 5, 5, 3]
    assert rows.loc[[0, 4, 6, 7], "gradients"].tolist() == [0, N * (2 * 40 - 10), N * (2 * 50 - 10), N * (2 * 55 - 10)]


# --- the recursion -----------------------------------------------------------------------------------------------


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


@pytest.mark.long
@pytest.mark.parametrize("restart", [None, 4])
def test_the_error_is_a_martingale(restart):
    """``E ||e_t||^2 = V_0 / N_0 + sum_s V_s / N_s`` since the last start, along a path that is given.

    The path is one that plain descent on the exact gradient takes; ``V_s`` come from quadrature, errors from 4000
    independent recursions along the path.
    """
    from numpy.polynomial.hermite_e import hermegauss

    p, first, T, R = problem(), 8, 6, 4000
    gradient = jax.jit(jax.grad(lambda w: -p.exact_elbo(w)))
    path = [{"mu": jnp.zeros(DIM), "log_sigma": jnp.full(DIM, -0.5)}]
    for _ in range(T):
        path.append(jax.tree.map(lambda w, g: w - 0.02 * g, path[-1], gradient(path[-1])))
    batches, eta = BATCHES["reshuffled"](N, N), schedule(**STEP)
    estimator = GRADIENT.get("mlmc")(p, batches, particles=first, schedule=eta, restart=restart)

    t1, weight = hermegauss(24)
    eps = jnp.asarray(np.stack(np.meshgrid(*[t1] * DIM, indexing="ij"), -1).reshape(-1, DIM))
    weights = jnp.asarray(np.prod(np.meshgrid(*[weight / weight.sum()] * DIM, indexing="ij"), axis=0).ravel())
    everything = one_batch(1)(jax.random.key(0))

    def one_point(w, eps):
        g = p.objective_gradient(w, everything._replace(eps=eps[None]))
        return jnp.concatenate([g["mu"], g["log_sigma"]])

    @jax.jit
    def spread(w, before=None):
        g = jax.vmap(lambda e: one_point(w, e) - (0 if before is None else one_point(before, e)))(eps)
        return jnp.sum(weights @ g**2 - (weights @ g) ** 2)

    expected, last = [], 0.0
    for t in range(T):
        fresh = t == 0 or (restart and t % restart == 0)
        taken = estimator.particles(t, None)
        last = (spread(path[t]) if fresh else last * taken + spread(path[t], path[t - 1])) / taken
        expected.append(float(last))

    def errors(key):
        state, found = estimator.init(path[0]), []
        for t in range(T):
            noise = one_batch(estimator.particles(t, None))(jax.random.fold_in(key, t))
            G, state = estimator.estimate(state, path[t], noise)
            exact = gradient(path[t])
            found.append(sum(jnp.sum((G[block] - exact[block]) ** 2) for block in G))
        return jnp.stack(found)

    squares = np.asarray(jax.jit(jax.vmap(errors))(jax.random.split(named_key(0, "martingale"), R)))
    error = squares.std(0, ddof=1) / np.sqrt(R)
    assert (error < 0.05 * np.asarray(expected)).all()
    assert (np.abs(squares.mean(0) - expected) < 5 * error).all(), (squares.mean(0), expected, error)
    if restart is None:
        assert (np.diff(expected) > 0).all()  # it never falls


@pytest.mark.parametrize(("beta", "r", "first"), [(0.5, 100, 100), (0.226316, 458, 100), (0.99, 100, 200)])
def test_rounding_up_stays_within_the_budget_of_theorem_2(beta, r, first):
    """Lemma 2: ``sum_t C_t ceil(eta_{t-1} N_0) < sum_t C_t N_0`` if ``eta_t <= 1 - 2 / N_0`` from ``T / 2`` on."""
    T, eta = 1000, schedule("step", beta=beta, r=r)
    assert all(eta.eta(t) <= 1 - 2 / first for t in range(T // 2, T))
    cost = [1] + [2] * T
    spent = sum(C * eta.particles(t, first) for t, C in enumerate(cost))
    assert spent < sum(cost) * first
    assert eta.particles(T, first) < first


def test_storm_forgets_and_mlmc_is_storm_that_does_not():
    p, batches = problem(), BATCHES["reshuffled"](N, 5)
    draw = sampler(batches, GAUSSIAN["iid"](2), DIM, np.float64)
    noise = draw.epoch(jax.random.key(1))
    w = [{"mu": jnp.full(DIM, 0.1 * t), "log_sigma": jnp.full(DIM, -0.3)} for t in range(4)]
    made = GRADIENT.get("storm")(p, batches, a=0.25)
    gradient, estimate = jax.jit(p.objective_gradient), jax.jit(made.estimate)
    state, G = made.init(w[0]), None
    for t in range(4):
        batch = jax.tree.map(lambda leaf: leaf[t], noise)
        now, before = (gradient(w[s], batch) for s in (t, max(t - 1, 0)))
        G = now if t == 0 else {b: now[b] + 0.75 * (G[b] - before[b]) for b in now}
        found, state = estimate(state, w[t], batch)
        for block in G:
            np.testing.assert_allclose(found[block], G[block], rtol=1e-12)


def test_a_box_and_a_ball_move_points_to_their_border():
    from lowvar.vi.within import Ball, Box, within

    p = problem()
    w = {"mu": jnp.asarray([3.0, 0.0, -0.2]), "log_sigma": jnp.zeros(DIM)}
    noise = one_batch(5)(jax.random.key(3))
    for onto in (Ball(1.5), Box(-1.0, 2.0)):
        bounded = within(p, onto)

        def energy(w, onto=onto):
            def of_point(eps):
                z = w["mu"] + jnp.exp(w["log_sigma"]) * eps
                z = jnp.clip(z, -1.0, 2.0) if isinstance(onto, Box) else z * jnp.minimum(1.0, 1.5 / jnp.linalg.norm(z))
                return p.energy(z, noise.index, noise.weight)

            return jnp.mean(jax.vmap(of_point)(noise.eps)) - jnp.sum(w["log_sigma"])

        expected, found = jax.jit(jax.grad(energy))(w), jax.jit(bounded.objective_gradient)(w, noise)
        for block in found:
            np.testing.assert_allclose(found[block], expected[block], rtol=1e-10, atol=1e-12)
        plain = jax.jit(p.objective_gradient)(w, noise)
        assert np.abs(np.asarray(found["mu"] - plain["mu"])).max() > 0.1  # the border was met


@pytest.mark.parametrize(
    ("method", "backend"),
    [
        ("mlmc_adaptive", "jax"),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (("mlmc", "jax"), ("mlmc", "torch"), ("storm", "torch"))
        ),
    ],
)
def test_a_cut_changes_nothing(few, method, backend):
    """Wherever ``advance`` is called with how many epochs: phases do not depend on it."""
    found, result = few(method, backend)
    state = found.init()
    for first, count in ((0, 0), (0, 2), (2, 3), (5, 21), (26, 3)):
        state = found.advance(state, first, count)
    for block, values in found.params(state, None).items():
        np.testing.assert_array_equal(values, result.params[block])
    assert (result.trace.query("epoch == 29")["particles"] == (4 if method == "storm" else 2)).all()


@pytest.mark.parametrize("method", [pytest.param("mlmc", marks=pytest.mark.long), "mlmc_adaptive"])
def test_a_resumed_run_has_the_same_bytes(few, method, tmp_path, monkeypatch):
    """Killed after the particles have changed, and gone on with by an engine of its own."""
    (found, expected), path = few(method, "jax"), tmp_path / "checkpoint.npz"
    original = found.measure

    def killed(state, position):
        if position > 27:
            raise KeyboardInterrupt
        return original(state, position)

    monkeypatch.setattr(found, "measure", killed)
    with pytest.raises(KeyboardInterrupt):
        loop.complete(found, checkpoint=path, mark=MARK, every=0.0)
    assert path.is_file()
    other = few_points(method, "jax")
    begun = []
    advance = other.advance
    monkeypatch.setattr(
        other, "advance", lambda state, first, count: begun.append(first) or advance(state, first, count)
    )
    again = loop.complete(other, checkpoint=path, mark=MARK, every=0.0)
    assert min(begun) >= 27
    pd.testing.assert_frame_equal(again.trace, expected.trace, check_exact=True)
    for block, values in again.params.items():
        assert values.tobytes() == expected.params[block].tobytes()


@pytest.mark.long
@pytest.mark.parametrize("method", ["mlmc_adaptive", "storm", "mlmc", "mlmc_prox"])
def test_backends_agree_along_a_run(few, method):
    jax_, torch = (few(method, backend)[1].trace for backend in ("jax", "torch"))
    pd.testing.assert_frame_equal(torch, jax_, rtol=1e-7, atol=1e-9)


# --- the errors that are measured ----------------------------------------------------------------------------------


def exact_errors(p, part, particles):
    """Of plain gradients: the variance over ``particles`` and the exact gradient, by quadrature."""
    w = {block: np.asarray(value)[0, 0] for block, value in part.params.items()}
    exact = jax.jit(jax.grad(lambda w: -p.exact_elbo(w)))(w)
    return sum(float(jnp.sum(exact[block] ** 2)) for block in exact)


def test_without_memory_the_error_is_the_variance():
    found = build("naive", epochs=1, step_sizes=(1e-2,), repetitions=2, diagnostics={"draws": 2000, "reference": 2**13})
    trace = loop.complete(found).trace
    ratio = trace["squared_error"] / trace["variance"]
    assert ((ratio - 1).abs() < 0.02).all()
    state = found.init()
    signal = exact_errors(problem(), state[0], 10)
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
    assert importlib.import_module("lowvar.vi.gradient_errors").Diagnostics._fields == tuple(
        name for name in measured.trace if name not in plain.trace
    )


# --- what goes wrong -----------------------------------------------------------------------------------------------


def test_pairs_of_points_stay_pairs():
    found = build("mlmc_adaptive", noise="antithetic", particles=10, epochs=2)
    assert found._sizes() == [2, 4, 6, 8, 10]
    scheduled = build("mlmc", noise="antithetic", particles=10, schedule=STEP, epochs=12)
    assert scheduled._sizes() == [10, 6, 4, 2]


@pytest.mark.long
def test_the_references_error_is_small_beside_a_large_gradient():
    """In single precision: both of its sums are around one of their terms."""
    spec = Settings(step_sizes=(1e-3,), batch_size=N, epochs=1, particles=4, dtype="float32",
                      diagnostics=Diagnostics(4, 2**10))  # fmt: skip
    far = problem(dtype=np.float32)
    runs = engine.build(far, Method("naive"), spec, seed=0, name="far")
    runs.starts = {"mu": np.full((1, DIM), 3e3), "log_sigma": np.full((1, DIM), -3.0)}
    found = runs.measure(runs.init(), 0)
    assert found["signal"] > 1e7
    assert 0 <= found["reference_error"] < 1e-8 * found["signal"]
