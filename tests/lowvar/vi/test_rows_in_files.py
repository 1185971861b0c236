"""Fits whose rows stay in files."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pyarrow as pa
import pyarrow.parquet
import pytest
from short_fits import assert_equal, made_data, regression

import lowvar
from lowvar.core import rows as in_files
from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.keys import numpy_generator
from lowvar.core.windows import windows
from lowvar.vi.batches import Noise
from lowvar.vi.fit import starts
from lowvar.vi.judgement import log_weights
from lowvar.vi.numpyro import streamed as numpyro_streamed
from lowvar.vi.own_loop import estimator as make_estimator
from lowvar.vi.run import engine as engines
from lowvar.vi.settings import problem_of

N, SIZE = 530, 50
DATA = made_data(n=N)
QUICK = {"batch_size": SIZE, "khat_samples": 0, "elbo_samples": 20, "progress": False}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of 4 rows, 128 rows to a window."""
    monkeypatch.setattr(in_files, "_BLOCK", 96)
    monkeypatch.setattr(in_files, "_WINDOW", 96 * 32)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, value in DATA.items():
        np.save(folder / f"{name}.npy", value)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in DATA}


@pytest.fixture(scope="module")
def problem(mapped):
    return problem_of(regression, mapped, streams=True)


def by_hand(kind, fit):
    """The parameters of a fit with all rows in memory, whose batches are those of the files."""
    solver, run = fit.run.settings, fit.run
    whole = problem_of(regression, DATA)
    steps, numbers = -(-N // SIZE), {"row": np.arange(N)}
    source = in_files.MappedArrays(DATA)
    order = in_files.MappedArrays(numbers)
    order.sizes, order._starts, order.window = source.sizes, source._starts, source.window
    draw = GAUSSIAN["iid"](1).draw
    estimator = make_estimator(kind, whole, SIZE)
    optimizer = engines.build(whole, run.method, solver, seed=0, name=run.name, starts=starts(whole)).at(0.01).optimizer
    params = {block: jnp.asarray(value) for block, value in fit.problem.start.items()}
    memory, state, done = estimator.init(params), optimizer.init(params), 0

    @jax.jit
    def step(memory, state, params, noise):
        gradient, memory = estimator.estimate(memory, params, noise)
        updates, state = optimizer.update(gradient, state, params)
        return memory, state, jax.tree.map(jnp.add, params, updates)

    begin = jax.jit(estimator.begin_epoch)
    for epoch in range(-(-run.num_steps // steps)):
        key = jax.random.fold_in(engines.noise_keys(0, run.name, 1)[0], epoch)
        for_rows, for_eps = jax.random.split(key)
        memory, position = begin(memory, params), 0
        for window in windows(order, SIZE, numpy_generator(for_rows)):
            for batch in window.rows["row"].reshape(-1, SIZE)[: window.steps]:
                if done == run.num_steps:
                    return params
                real = N - (steps - 1) * SIZE if position == steps - 1 else SIZE
                weight = np.where(np.arange(SIZE) < real, 1 / real, 0)
                eps = draw(jax.random.fold_in(for_eps, position), whole.noise_dim, whole.dtype)
                memory, state, params = step(memory, state, params, Noise(batch, weight, float(real), eps, position))
                position, done = position + 1, done + 1
    return params


@pytest.mark.parametrize(
    ("kind", "num_steps"),
    [("naive", 10), *(pytest.param(kind, 28, marks=pytest.mark.long) for kind in ("joint_svrg", "joint_adaptive"))],
)
def test_identical_batches_give_identical_parameters(kind, num_steps, mapped):
    """A part of an epoch, which is evaluated within; or two epochs and a part of the third. Each has several windows."""
    fit = lowvar.fit(regression, mapped, estimator=kind, num_steps=num_steps, **QUICK)
    assert fit.elbo["iteration"].tolist()[-2:] == ([8, 10] if num_steps == 10 else [22, 28])
    for block, value in by_hand(kind, fit).items():
        np.testing.assert_allclose(fit.guide_params[block], value, rtol=1e-9, atol=1e-12)


def test_a_resumed_fit_has_the_bytes_of_a_longer_one(mapped):
    one = lowvar.fit(regression, mapped, num_steps=28, **QUICK)
    assert one.run.method.estimator == "joint_adaptive"
    short = lowvar.fit(regression, mapped, estimator="joint_adaptive", num_steps=15, **QUICK)
    assert_equal(short.resume(13), one)


@pytest.mark.long
def test_full_passes_are_those_of_rows_in_memory(problem, monkeypatch):
    monkeypatch.setattr(numpyro_streamed, "_CHUNK", 64)
    whole, z = problem_of(regression, DATA), jnp.asarray(problem.start["mu"])
    np.testing.assert_allclose(problem.full_gradient(z), jax.jit(whole.full_gradient)(z), rtol=1e-10)
    assert np.isnan(jax.jit(problem.full_gradient)(z)).all()
    params = {block: jnp.asarray(value) for block, value in problem.start.items()}
    eps = np.random.default_rng(0).normal(size=(70, problem.noise_dim))
    np.testing.assert_allclose(
        problem.log_weights(params, eps), log_weights(whole, params, jnp.asarray(eps)), rtol=1e-9
    )


@pytest.mark.long
def test_the_elbo_of_a_sample_has_the_error_of_its_rows(mapped, monkeypatch):
    monkeypatch.setattr(numpyro_streamed, "_SAMPLE", 90)
    problem, whole = problem_of(regression, mapped, streams=True), problem_of(regression, DATA)
    assert problem.elbo_rows == 90
    params = {block: jnp.asarray(value) for block, value in problem.start.items()}
    eps = jnp.asarray(np.random.default_rng(0).normal(size=(64, problem.noise_dim)))
    value, error = problem.elbo(params, eps)
    exact, of_draws = jax.jit(whole.elbo)(params, eps)
    of_rows_at = jax.jit(jax.vmap(lambda eps: whole.log_likelihood(whole.guide.transform(params, eps), jnp.arange(N))))
    each = np.asarray(of_rows_at(eps)).mean(0)
    of_rows = N * each.std() / 90**0.5 * (1 - 90 / N) ** 0.5
    assert error**2 == pytest.approx(of_draws**2 + of_rows**2, rel=0.5)  # the sample's variances are estimates
    assert abs(value - exact) < 4 * of_rows < 0.5 * abs(exact)  # both have the same draws


def test_parquet_and_memory_mapped_rows_give_the_same_fit(mapped, tmp_path):
    columns = {"a": DATA["x"][:, 0], "b": DATA["x"][:, 1], "y": DATA["y"]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=4)
    rows = lowvar.Parquet(tmp_path / "rows.parquet", x=["a", "b"], y="y", memory=96 * 32)
    readers = lambda: {thread for thread in threading.enumerate() if "ThreadPool" in thread.name}  # noqa: E731
    before = readers()
    one, other = (lowvar.fit(regression, data, num_steps=15, **QUICK) for data in (rows, mapped))
    assert_equal(one, other)
    assert readers() <= before  # both ended within an epoch: its windows are no longer read
    with pytest.raises(ZeroDivisionError):
        lowvar.fit(regression, mapped, num_steps=15, callback=lambda *_: 1 // 0, **QUICK)
    assert readers() <= before


@pytest.mark.long
def test_the_fit_says_how_rows_are_shuffled_and_where_its_elbo_is_from(mapped, monkeypatch):
    monkeypatch.setattr(numpyro_streamed, "_SAMPLE", 200)
    with pytest.warns(UserWarning, match="shuffled in blocks"):
        fit = lowvar.fit(regression, mapped, num_steps=3, **QUICK)
    assert fit.run.method.estimator == "naive"
    assert any("is 2.5 times" in note for note in fit.notes), fit.notes
    assert "ELBOs are from 200 of the 530 rows" in str(fit)
    with pytest.raises(lowvar.UserError, match="cannot be saved"):
        fit.save("never.npz")
    assert lowvar.fit(regression, DATA, init=fit, num_steps=3, **QUICK).problem.N == N
    assert set(fit.sample(5)) == {"w", "bias", "scale"}


def centred(x, y):
    w, x = numpyro.sample("w", _W), x - x.mean(0, keepdims=True)
    with numpyro.plate("rows", x.shape[0]) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, 1), obs=y[index])


def constant(x, y):
    w = numpyro.sample("w", _W)
    with numpyro.plate("rows", N) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, 1), obs=y[index])


def local(x, y):
    with numpyro.plate("rows", x.shape[0]) as index:
        numpyro.sample("y", dist.Normal(numpyro.sample("u", dist.Normal(0, 1)), 1), obs=y[index])


def whole(x, y):
    numpyro.sample("y", dist.Normal(x @ numpyro.sample("w", _W), 1).to_event(1), obs=y)


_W = dist.Normal(0, 1).expand([2]).to_event(1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "options", "name"),
    [
        (centred, {}, "all rows"),
        (constant, {}, r"'rows' has 530 rows.*x.shape\[0\]"),
        (local, {}, "latent variables"),
        (whole, {}, "no data plate"),
        (regression, {"estimator": "joint"}, r"'joint' keeps 22 vectors of 8 numbers of 8 bytes"),
        (regression, {"estimator": "full_naive"}, "all 530 rows in every step"),
        (regression, {"estimator": "mlmc"}, "number of particles"),
        (regression, {"batch_size": 531}, "530"),
    ],
)
def test_what_a_fit_from_files_cannot_do_is_said(model, options, name, mapped, monkeypatch):
    monkeypatch.setattr(numpyro_streamed, "_SAMPLE", 200)
    with pytest.raises(lowvar.UserError, match=name):
        lowvar.fit(model, mapped, num_steps=30, **QUICK | options)


def in_sample(size):
    """The rows that are read before a fit."""
    return np.sort(np.random.default_rng(0).choice(N, size, replace=False, shuffle=False))


FIFTH = in_sample(40)[5]
UNSEEN = next(row for row in range(300, N) if row not in in_sample(40))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(N - 1), "indexes 'y' by the row: it has 529 entries"),
        (np.zeros(40), "indexes 'y' by the row: it has 40 entries"),  # as many as the sample
        (np.ma.masked_array(DATA["y"], DATA["y"] > 0), "'y' is a masked array"),
        (np.where(np.arange(N) == UNSEEN, np.nan, DATA["y"]), f"'y' is nan in row {UNSEEN}"),
        (np.where(np.arange(N) == FIFTH, np.nan, DATA["y"]), f"of row {FIFTH} is nan"),
    ],
)
def test_arrays_beside_the_files_that_cannot_be_used(y, message, mapped, monkeypatch):
    """Rows have their numbers in the files."""
    monkeypatch.setattr(numpyro_streamed, "_SAMPLE", 40)
    with numpyro.validation_enabled(False), pytest.raises(lowvar.UserError, match=message):
        lowvar.fit(regression, {"x": mapped["x"], "y": y}, num_steps=11, **QUICK)


def test_parquet_files_that_do_not_fit_together_or_are_damaged(tmp_path):
    def written(name, **columns):
        pa.parquet.write_table(pa.table(columns), tmp_path / name)
        return str(tmp_path / name)

    whole, parts = written("a.parquet", x=[1, 2], y=[1, 2]), written("b.parquet", x=[0.75], y=[1])
    for path, columns, message in (
        ([whole, parts], {"x": "x", "y": "y"}, "b.parquet: column 'x' is double, and int64 in .*a.parquet"),
        ([whole, written("c.parquet", y=[1])], {"x": "x"}, "c.parquet: column 'x' is missing"),
        (whole, {"x": []}, "columns"),
        ("", {"x": "x"}, "path"),
        ([], {"x": "x"}, "list of files is empty"),
        (f"{tmp_path}/*.csv", {"x": "x"}, "glob"),
        ([whole, f"{tmp_path}/../{tmp_path.name}/a.parquet"], {"x": "x"}, "a.parquet is in the list more than once"),
    ):
        with pytest.raises(lowvar.UserError, match=message):
            lowvar.Parquet(path, **columns)
    for one in ([whole], (tmp_path / "a.parquet",), tmp_path.glob("a.*")):
        assert lowvar.Parquet(one, x="x").N == 2
    rows = lowvar.Parquet(whole, x="x", y="y")
    for data, message in (({"x": rows, "y": DATA["y"]}, "'x' is a Parquet"), (rows, r"x \(N,\) of column 'x'")):
        with pytest.raises(lowvar.UserError, match=message):
            lowvar.fit(regression, data, **QUICK | {"batch_size": 1})
    with pytest.raises(lowvar.UserError, match="Parquet"):
        lowvar.decompose(regression, rows)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(lowvar.UserError, match=r"a.parquet"):
        rows.read(0)
