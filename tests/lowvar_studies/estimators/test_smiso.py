"""SMISO is the iteration that the paper prints, in both backends and with both tables."""

import jax
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import independent
from lowvar.core.keys import named_key
from lowvar.errors import UserError
from lowvar.vi.batches import Noise, fixed, iid, reshuffled, sampler
from lowvar.vi.run.settings import Method, Settings
from lowvar_studies.estimators.smiso import smiso
from lowvar_studies.jobs.study import Study
from lowvar_studies.jobs.variational import engine
from lowvar_studies.models.logistic_regression import problem as logistic_regression

N, DIM, BATCH = 11, 3, 4  # the last batch has three rows
ALPHA, GAMMA, EPOCHS = 0.9, 0.3, 4


def data(dtype=np.float64):
    rng = np.random.default_rng(3)
    return {"x": rng.normal(size=(N, DIM)).astype(dtype), "y": rng.integers(0, 2, N).astype(np.int32)}


def start(backend="jax", dtype=np.float64):
    rng = np.random.default_rng(4)
    values = {"mu": rng.normal(size=DIM), "log_sigma": -1 + 0.1 * rng.normal(size=DIM)}
    return {block: backends.get(backend).asarray(value.astype(dtype)) for block, value in values.items()}


def gradient(w, n, eps):
    """``grad f(w; n, eps)`` of logistic regression with a standard normal prior, by hand."""
    x, sign = data()["x"][n], 2 * data()["y"][n] - 1
    sigma = np.exp(w[DIM:])
    z = w[:DIM] + sigma * eps
    of_z = -N * sign * x / (1 + np.exp(sign * (x @ z))) + z
    return np.concatenate([of_z, of_z * sigma * eps - 1])


def plain(noise, alpha=ALPHA, gamma=GAMMA):
    """Eqs. 18, 19 and 24, with a table of all rows: the means after each epoch."""
    mean = np.concatenate([np.asarray(value) for value in start().values()])
    table, means = np.tile(mean, (N, 1)), []
    for epoch in noise:
        for index, rows, eps in zip(epoch.index, epoch.rows, epoch.eps, strict=True):
            new = {
                n: (1 - alpha) * table[n]
                + alpha * (mean - gamma * np.mean([gradient(mean, n, e) for e in eps], axis=0))
                for n in np.asarray(index)[: int(rows)]
            }
            mean = mean + sum(new[n] - table[n] for n in new) / N
            for n, iterate in new.items():
                table[n] = iterate
        means.append(mean)
    return np.array(means)


def noise_of(draw, epochs=EPOCHS):
    return [draw.epoch(jax.random.fold_in(named_key(0, "smiso"), k)) for k in range(epochs)]


def run(batches, backend="jax", dtype=np.float64, points=1, epochs=EPOCHS, **options):
    """Means after each epoch, and the last state."""
    p, ops = logistic_regression(data(dtype), backend), backends.get(backend)
    draw = sampler(batches, independent(points), DIM, dtype)
    solver = smiso(p, draw, GAMMA, **options)
    state, means = solver.init(start(backend, dtype)), []
    epoch = jax.jit(solver.epoch) if backend == "jax" else solver.epoch
    for noise in noise_of(draw, epochs):
        noise = noise if backend == "jax" else Noise(*(ops.asarray(np.asarray(part)) for part in noise))
        state = epoch(state, noise)
        params = ops.to_numpy(state.params)
        means.append(np.concatenate([params["mu"], params["log_sigma"]]))
    return np.array(means), solver, state


@pytest.mark.parametrize("points", [1, 2])
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(("draw", "table"), [(reshuffled, "rows"), (fixed, "batches")])
def test_it_is_the_printed_iteration(draw, table, backend, points):
    expected = plain(noise_of(sampler(draw(N, BATCH), independent(points), DIM, np.float64)))
    means, solver, state = run(draw(N, BATCH), backend, points=points, table=table)
    np.testing.assert_allclose(means, expected, rtol=1e-10)
    assert np.abs(expected - expected[0]).max() > 0.01
    slots = {"rows": N, "batches": 3}[table]
    assert solver.slots == slots
    assert state.table["mu"].shape == (slots, DIM)
    assert solver.table_bytes == slots * 2 * DIM * 8


def test_other_alpha_and_the_default_table():
    draw = sampler(reshuffled(N, BATCH), independent(), DIM, np.float64)
    means, _, state = run(reshuffled(N, BATCH), alpha=0.5)
    np.testing.assert_allclose(means, plain(noise_of(draw), alpha=0.5), rtol=1e-10)
    assert state.table["mu"].shape == (N, DIM)
    assert run(fixed(N, BATCH), epochs=1)[2].table["mu"].shape == (3, DIM)


def test_oracles_of_a_run():
    _, solver, _ = run(fixed(N, BATCH), points=2, epochs=1)
    assert solver.oracles_of_run(1, N, 2) == (2 * N, 0)
    assert solver.oracles_of_run(np.array([0, 3]), N, 2).hvps.tolist() == [0, 0]


def test_runs_of_the_engine():
    """Mapped over step sizes and repetitions, as one program: the single runs; and both backends."""
    method, grid = Method("smiso"), (0.3, 0.01)
    p = logistic_regression(data())

    def ends(p, **settings):
        spec = Settings(batch_size=BATCH, epochs=3, batches="fixed", **settings)
        runs = engine.build(p, method, spec, seed=0, name="smiso")
        state = runs.advance(runs.init(), 0, 3)
        return np.concatenate([backends.get(p.backend.name).to_numpy(part.params)["mu"] for part in state], axis=1)

    together = ends(p, step_sizes=grid, repetitions=2)
    assert together.shape == (2, 2, DIM)
    np.testing.assert_allclose(ends(p, step_sizes=grid[1:])[0, 0], together[1, 0], rtol=1e-12)
    by_torch = ends(logistic_regression(data(), "torch"), step_sizes=grid, repetitions=2)
    np.testing.assert_allclose(by_torch, together, rtol=1e-10)


@pytest.mark.parametrize(
    ("batches", "options", "name"),
    [
        (reshuffled, {"table": "batches"}, "table 'batches'"),
        (reshuffled, {"table": "row"}, "table 'row'"),
        (iid, {}, "'iid'"),
        *((reshuffled, {"alpha": one}, "alpha") for one in (0, 1.1, float("nan"))),
        *((reshuffled, {"step_size": one}, "step size") for one in (0.0, float("nan"))),
    ],
)
def test_what_it_refuses(batches, options, name):
    draw = sampler(batches(N, BATCH), independent(), DIM, np.float64)
    with pytest.raises(UserError, match=name):
        smiso(logistic_regression(data()), draw, **{"step_size": GAMMA} | options)


@pytest.mark.parametrize(("rows", "size"), [(11, 4), (12, 4), (3, 1)])
def test_fixed_batches(rows, size):
    """The same ones in every epoch, in another order; padding repeats a batch's first row."""
    batches = fixed(rows, size)
    epochs = [np.asarray(batches.draw(jax.random.key(k))) for k in range(6)]
    real = np.arange(size) < np.asarray(batches.rows)[:, None]
    for index in epochs:
        assert sorted(index[real]) == list(range(rows))
        assert (index[~real] == np.broadcast_to(index[:, :1], index.shape)[~real]).all()
    assert all(sorted(map(tuple, index)) == sorted(map(tuple, epochs[0])) for index in epochs)
    assert len({tuple(index.ravel()) for index in epochs}) > 1


def test_in_shuffled_epochs_its_steps_are_longer_than_the_converted_ones():
    """A table's iterate lags behind the mean by 7/12 of an epoch on average, and follows it by ``alpha`` of that.

    So under a constant gradient an epoch moves the mean by ``alpha gamma / (1 - 5 alpha / 12)`` times it, 1.6 times as
    much as eq. 26 says. Steps are so short here that the gradient is constant.
    """
    rows, size, gamma = 600, 10, 1e-6
    rng = np.random.default_rng(5)
    p = logistic_regression({"x": rng.normal(size=(rows, DIM)) + 1, "y": np.ones(rows, np.int32)})

    def moved(name, step):
        spec = Settings(
            batch_size=size, epochs=40, batches="fixed", optimizer="sgd", step_sizes=(step,), initial="origin"
        )
        runs = engine.build(p, Method(name), spec, seed=0, name=name)
        state, mu = runs.init(), []
        for begin, end in ((0, 10), (10, 40)):
            state = runs.advance(state, begin, end)
            mu += [np.ravel(part.params["mu"]) for part in state]
        return mu[1] - mu[0]

    ratio = moved("smiso", gamma) / moved("naive", ALPHA * size * gamma / rows)
    np.testing.assert_allclose(ratio, 1 / (1 - 5 * ALPHA / 12), rtol=0.02)


@pytest.mark.parametrize("problem", ["mnist", "ppca", "tennis", "movielens"])
def test_steps_of_sgd_in_the_experiment_are_the_converted_ones(repository, problem):
    """Eq. 26: ``alpha |B| gamma / N``, for each ``gamma`` of SMISO, to three digits."""
    experiment = Study.load(repository / "workflow/experiments/joint_sgd.yaml", "paper").experiment
    sgd, smiso = (experiment.solver_on(problem, method) for method in ("naive", "smiso"))
    rows = {"mnist": 60_000, "ppca": 60_000, "tennis": 169_405, "movielens": 100_000}[problem]
    converted = [ALPHA * sgd.batch_size / rows * gamma for gamma in smiso.step_sizes]
    np.testing.assert_allclose(sgd.step_sizes, converted, rtol=2e-3)
