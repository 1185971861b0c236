"""A fit from its first step to its last use: stopping, watching, interrupting, saving, resuming, showing."""

import copy
import pickle
import re
import signal
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from jax import monitoring

import lowvar
from lowvar.api.stopping import Plateau, fall_of, late_rise
from lowvar.errors import UserError
from lowvar.studies.variational.spec import ScheduleSpec

N = 200


def made_data(seed=0, n=N):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return {"x": x, "y": 3 + x @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=n)}


DATA = made_data()
QUICK = {"num_steps": 62, "batch_size": 50, "khat_samples": 0, "elbo_samples": 20, "progress": False}
_RUNS_OF_A_FIT = 21


def regression(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, scale), obs=y[index])


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "regression: the fit has not converged")
        yield


def fitted(model=regression, data=DATA, **options):
    return lowvar.fit(model, data, **QUICK | options)


@pytest.fixture(scope="module")
def short():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted()


def assert_equal(one, other):
    """The same parameters, trace and states, to the byte."""
    assert one.params.keys() == other.params.keys()
    for name in one.params:
        np.testing.assert_array_equal(one.params[name], other.params[name])
    assert one.elbo.equals(other.elbo)
    assert (one.run.num_steps, one.run.epochs[1]) == (other.run.num_steps, other.run.epochs[1])
    states = [jax.tree.leaves(fit.run.kept[fit.run.epochs[1]]) for fit in (one, other)]
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations():
    """The number of compilations so far, in a list that grows."""
    seen = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(duration)

    monitoring.register_event_duration_secs_listener(listen)
    yield seen
    monitoring.unregister_event_duration_listener(listen)


def test_how_often_a_first_fit_runs_the_model():
    """Each run is traced and compiled, which is most of the time of a first fit."""
    runs = []

    def counted(x, y, batch_size=None):
        runs.append(x.shape)
        regression(x, y, batch_size)

    fitted(counted, num_steps=64, khat_samples=200)
    assert len(runs) <= _RUNS_OF_A_FIT


def test_a_second_fit_of_the_same_shapes_compiles_nothing(compilations):
    """With another seed, other data, and the model's function made anew, as by a cell of a notebook."""

    def cell():
        def model(x, y, batch_size=None):
            w = numpyro.sample("w", dist.Normal(0, 1.25).expand([2]).to_event(1))
            with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
                numpyro.sample("y", dist.Poisson(jnp.exp(x[index] @ w)), obs=y[index])

        return model

    def counts(seed):
        rng = np.random.default_rng(seed)
        return {"x": rng.normal(size=(N, 2)), "y": rng.poisson(1.0, N)}

    options = QUICK | {"khat_samples": 200}
    first = lowvar.fit(cell(), counts(0), **options)
    assert compilations  # the listener hears
    del compilations[:]
    second = lowvar.fit(cell(), counts(1), seed=1, **options)
    second.resume(20, khat_samples=200, progress=False)
    assert not compilations
    assert not np.array_equal(first.params["w_auto_loc"], second.params["w_auto_loc"])
    jax.clear_caches()
    np.testing.assert_array_equal(
        lowvar.fit(cell(), counts(1), seed=1, **options).params["w_auto_loc"], second.params["w_auto_loc"]
    )


def test_a_changed_global_of_the_model_is_seen():
    """Programs are shared by what a model computes, not by its name: arrays and numbers that it reads are current."""
    world = {"shift": np.zeros(N), "width": 1.0}

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, world["width"]).expand([2]).to_event(1))
        shift = jnp.asarray(world["shift"])
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(x[index] @ w + shift[index], 1.0), obs=y[index])

    first = fitted(model).elbo["elbo"].iloc[0]
    world["shift"] = np.full(N, 3.0)
    shifted = fitted(model).elbo["elbo"].iloc[0]
    assert shifted > first + 100  # the data's mean is 3
    world["width"] = 0.1
    assert abs(fitted(model).elbo["elbo"].iloc[0] - shifted) > 0.1


def test_equal_programs_are_shared_and_others_are_not(compilations):
    from lowvar.backends.compiled import compiled

    def of(array, number):
        return compiled(lambda x: jnp.sum(jax.nn.relu(x) * array) + jnp.where(x.sum() > 0, number, 0 * x.sum()))

    one, array = jnp.ones(3), np.arange(3.0)
    value = float(of(array, 1.0)(one))
    del compilations[:]
    assert float(of(array + 1, 1.0)(one)) == value + 3
    assert not compilations
    assert float(of(array, 2.0)(one)) == value + 1
    assert compilations
    signs = [np.signbit(compiled(lambda x, zero=zero: x * zero)(1.0)) for zero in (0.0, -0.0)]
    assert signs == [False, True]
    grown = compiled(lambda x: x + 1, donate_argnums=0)
    assert grown(grown(jnp.zeros(3))).tolist() == [2.0, 2.0, 2.0]
    assert jax.grad(lambda x: compiled(jnp.sin)(x))(0.0) == 1.0  # inside another transformation


# --- resume ----------------------------------------------------------------------------------------------------------

RESUMED = [
    {},
    pytest.param({"estimator": "joint"}, marks=pytest.mark.long),
    {"estimator": "mlmc", "num_particles": 4, "schedule": {"kind": "step", "beta": 0.5, "r": 20}},
    {
        "estimator": "naive",
        "noise": "antithetic",
        "num_particles": 2,
        "step_size": optax.cosine_decay_schedule(0.1, 150),
    },
]


@pytest.mark.parametrize("options", RESUMED, ids=lambda one: ",".join(one) or "default")
def test_a_resumed_fit_has_the_bytes_of_a_longer_one(options):
    """From inside an epoch (62 steps of four each), and twice."""
    long = fitted(num_steps=143, **options)
    again = fitted(**options)
    for more in (40, 41):
        again = again.resume(more, khat_samples=0, progress=False)
    assert_equal(again, long)


def test_resume_after_a_callback_and_after_a_plateau():
    long = fitted(num_steps=124)
    ended = fitted(num_steps=124, callback=lambda at: at.iteration >= 40)
    assert ended.run.num_steps == ended.elbo["iteration"].iloc[-1] == 40
    assert ended.run.ended == "callback"
    assert "the callback ended the fit" in str(ended)
    assert_equal(ended.resume(84, khat_samples=0, progress=False), long)


def test_decompose_takes_a_fit_that_ended_early():
    ended = fitted(num_steps=400, callback=lambda at: at.iteration >= 100)
    early, last = ended.run.epochs
    assert early < last == ended.run.num_steps // 4
    found = lowvar.decompose(regression, DATA, ended, estimators=["naive", "joint_adaptive"], replicates=4)
    assert found.memories["joint_adaptive"] == "the fit's own"
    resumed = ended.resume(8, khat_samples=0, progress=False)
    assert set(resumed.run.kept) == set(resumed.run.epochs)


def test_a_resumed_cosine_is_stretched_to_the_new_end():
    """The step size has fallen to 0 at the end of the first fit, and rises again for the further steps."""
    first = fitted(schedule={"kind": "cosine", "beta": 0.5, "r": 64}, num_steps=64)
    assert first.run.solver.schedule.make().eta(64) == 0.0
    longer = first.resume(64, khat_samples=0, progress=False)
    assert (longer.run.solver.schedule.r, longer.run.num_steps) == (128, 128)
    moved = longer.params["w_auto_loc"] - first.params["w_auto_loc"]
    assert np.abs(moved).min() > 0.05  # 64 steps of 0.01, half of them falling, could move by 0.48


def test_a_late_rise_is_measured_before_the_step_size_falls():
    """The noise that a falling step size removes raises the ELBO too, and is no sign of a fit that is too short."""
    trace = pd.DataFrame({"iteration": [0, 10, 20, 32, 40, 64], "elbo": [-9.0, -5.0, -4.9, -4.8, -3.0, -1.0]})
    falling = ScheduleSpec(kind="cosine", beta=0.5, r=64)
    assert fall_of(falling, trace) == 32
    assert late_rise(trace[trace["iteration"] <= 32])[0] == pytest.approx(0.1)
    assert late_rise(trace)[0] == pytest.approx(2.0)
    for schedule, rows in ((None, trace), (falling, trace[:4]), (falling, trace.iloc[[0, 5]])):
        assert fall_of(schedule, rows) == np.inf


def test_an_estimator_that_plans_for_the_length_is_not_resumed():
    fit = fitted(estimator="mlmc_optimal", num_particles=4)
    with pytest.raises(UserError, match="resume: 'mlmc_optimal' plans its particles for the number of steps"):
        fit.resume(10)
    with pytest.raises(UserError, match="num_steps 0: it must be a whole number, 1 or more"):
        fitted().resume(0)


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_saved_fit_continues(short, tmp_path):
    path = tmp_path / "fit.npz"
    short.save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["fit.npz"]
    loaded = lowvar.load(path, regression, DATA)
    assert_equal(loaded, short)
    assert (repr(loaded), str(loaded), loaded.khat) == (repr(short), str(short), short.khat)
    np.testing.assert_array_equal(loaded.sample(5)["w"], short.sample(5)["w"])
    assert_equal(loaded.resume(81, khat_samples=0, progress=False), fitted(num_steps=143))
    again = tmp_path / "again.npz"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def other_model(x, y, batch_size=None):
    with numpyro.handlers.scale(scale=1.0):
        w = numpyro.sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, scale), obs=y[index])


def fewer_sites(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, 1.0), obs=y[index])


def more_sites(x, y, batch_size=None):
    numpyro.sample("z", dist.Normal(0, 1))
    regression(x, y, batch_size)


def test_a_file_fits_its_model_and_its_data_only(short, tmp_path):
    path = tmp_path / "fit.npz"
    short.save(path)
    x, y = DATA["x"], DATA["y"]
    wrong = [
        (regression, {"x": x[:150], "y": y[:150]}, r"'x' had shape \(200, 2\) in the fit, and has \(150, 2\) now"),
        (regression, {"x": x.astype(np.float32), "y": y}, "'x' had type float64 in the fit, and has float32 now"),
        (regression, {"x": x, "y": y + 1}, "'y' has other values than in the fit"),
        (regression, {"x": x}, "the fit's data were x, y, not x"),
        (other_model, DATA, "the model's densities differ from those of the saved fit"),
        (fewer_sites, DATA, r"fit\.npz: unknown site 'bias_auto_loc' \(known: w\)"),
        (more_sites, DATA, r"another model: its sites were bias \(1\), scale \(1\), w \(2\) in float64"),
    ]
    for model, data, message in wrong:
        with pytest.raises(UserError, match=message):
            lowvar.load(path, model, data)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"fit.npz: not an array file of lowvar, or damaged"):
        lowvar.load(path, regression, DATA)
    with pytest.raises(UserError, match="no such file"):
        lowvar.load(tmp_path / "none.npz", regression, DATA)
    from lowvar.runs import artifact

    artifact.write_arrays(path, {"a": np.ones(2)}, artifact.stamp("0", {}))
    with pytest.raises(UserError, match="no fit, but another file of lowvar"):
        lowvar.load(path, regression, DATA)


def test_a_users_own_objects_are_given_again(tmp_path):
    """The file holds no code: neither an optimizer of optax nor an estimator's function."""
    schedule = optax.exponential_decay(0.05, 50, 0.5)
    fit, path = fitted(step_size=schedule), tmp_path / "fit.npz"
    fit.save(path)
    alone = lowvar.load(path, regression, DATA)
    np.testing.assert_array_equal(alone.params["w_auto_loc"], fit.params["w_auto_loc"])
    with pytest.raises(
        UserError, match=r"lowvar\.load needs the optimizer or estimator that fit was given as an object"
    ):
        alone.resume(10)
    loaded = lowvar.load(path, regression, DATA, step_size=schedule)
    assert_equal(loaded.resume(38, khat_samples=0, progress=False), fitted(step_size=schedule, num_steps=100))


def test_resume_keeps_the_setting_of_khat(tmp_path):
    fit = fitted(khat_samples=0)
    fit.save(tmp_path / "fit.npz")
    for one in (fit, lowvar.load(tmp_path / "fit.npz", regression, DATA)):
        assert one.resume(10, progress=False).khat is None
        assert one.resume(10, khat_samples=200, progress=False).khat is not None


def test_a_schedule_that_ends_before_the_steps_is_told():
    with pytest.raises(UserError, match="is 0 from step r = 30 on, where nothing would move: set r = num_steps = 62"):
        fitted(schedule={"kind": "cosine", "beta": 0.5, "r": 30})
    with pytest.raises(UserError, match="fit: schedule: 'cosine' takes beta and r: beta is missing"):
        fitted(schedule={"kind": "cosine"})
    ended = optax.cosine_decay_schedule(0.05, 30)
    for given in ({"step_size": ended}, {"optimizer": optax.adam(ended)}):
        with pytest.warns(
            UserWarning, match="no parameter moved in the last .* steps: if the optimizer's step size is 0"
        ):
            fitted(num_steps=400, estimator="naive", **given)


def test_init_names_the_sites_that_a_fit_of_another_model_lacks(short):
    def wider(x, y, batch_size=None):
        regression(x, y + numpyro.sample("shift", dist.Normal(0, 1)), batch_size)

    with pytest.warns(UserWarning, match="wider: init, a fit of regression, has no values of 'shift', which start as"):
        fitted(wider, init=short)


def test_pickles(short):
    """By pickle with a function of a module, by cloudpickle with any; copies too."""
    import cloudpickle

    assert_equal(pickle.loads(pickle.dumps(short)), short)
    assert_equal(copy.deepcopy(short), short)
    width = 1.5

    def local(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, width).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(x[index] @ w, 1.0), obs=y[index])

    fit = fitted(local, optimizer=optax.adamw(0.01))
    back = pickle.loads(cloudpickle.dumps(fit))
    assert_equal(back.resume(20, khat_samples=0, progress=False), fit.resume(20, khat_samples=0, progress=False))


# --- ends ------------------------------------------------------------------------------------------------------------


def test_the_callback_sees_every_evaluation():
    seen = []
    fit = fitted(callback=seen.append)
    assert [one.iteration for one in seen] == fit.elbo["iteration"].tolist()
    assert [one.elbo for one in seen] == fit.elbo["elbo"].tolist()
    assert [one.elbo_se for one in seen] == fit.elbo["elbo_se"].tolist()
    np.testing.assert_array_equal(seen[-1].params["w_auto_scale"], fit.params["w_auto_scale"])
    assert not np.array_equal(seen[0].params["w_auto_scale"], fit.params["w_auto_scale"])


def test_what_a_callback_may_return():
    def exhausted(_):
        raise StopIteration

    assert fitted(callback=exhausted).run.num_steps == 0
    assert fitted(callback=lambda _: np.False_).run.ended == "budget"
    with pytest.raises(UserError, match="callback: it returned a str; return True to end the fit"):
        fitted(callback=lambda _: "no")
    with pytest.raises(ZeroDivisionError):
        fitted(callback=lambda _: 1 / 0)


INTERRUPTED = """
import signal, sys, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
import numpy as np, numpyro, numpyro.distributions as dist
import lowvar
def model(y, batch_size=None):
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y[index])
def ready(at):
    if at.iteration > 1000:
        print("ready", flush=True)
for attempt in range(2):
    try:
        fit = lowvar.fit(model, {"y": np.ones(20)}, num_steps=10**9, callback=ready, estimator="naive",
                         elbo_samples=2)
        print("fit", fit.run.num_steps, fit.run.ended, fit.notes, flush=True)
        fit.resume(5, khat_samples=0, progress=False)
        print("resumed", flush=True)
    except KeyboardInterrupt:
        print("aborted", flush=True)
"""


def test_ctrl_c():
    """The first returns the fit so far, with a note; two in a row abort."""
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        lines = [line for line in iter(child.stdout.readline, "resumed\n") if line != "ready\n"]
        assert re.match(
            r"fit \d+ interrupted \('model: Ctrl-C ended the fit after \d+ of 1000000000 steps'", lines[0]
        ), lines
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        while child.poll() is None:  # until the first has been noticed, two are one
            child.send_signal(signal.SIGINT)
            try:
                child.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        rest = child.stdout.read().split("\n")
        assert "aborted" in rest or any("interrupted" in line for line in rest), rest
    finally:
        child.kill()
        child.wait()


def test_a_plateau_ends_a_fit():
    fit = fitted(num_steps=6000, step_size=0.05, batch_size=200, stop=True)
    assert fit.run.ended == "converged"
    assert 1000 <= fit.run.num_steps < 6000
    assert "stop: the ELBO no longer rises" in str(fit)
    whole = fitted(num_steps=6000, step_size=0.05, batch_size=200)
    assert whole.elbo["elbo"].iloc[-1] - fit.elbo["elbo"].iloc[-1] < 2 * fit.elbo["elbo_se"].iloc[-1]
    pd_rows = whole.elbo[whole.elbo["iteration"] <= fit.run.num_steps].reset_index(drop=True)
    assert pd_rows.equals(fit.elbo)  # until then, the same run


@pytest.mark.parametrize("stop", [-1.0, "elbo", np.nan, max], ids=str)
def test_wrong_stops(stop):
    with pytest.raises(UserError, match="stop"):
        fitted(stop=stop)


def test_false_stops_are_rare(repository, monkeypatch):
    """Of 240 synthetic traces that still rise or not, by kinds: those of concave means are safe."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    import stopping

    counts = stopping.count(240, seed=1)
    concave = sum(counts[kind] for kind in stopping.KINDS if kind not in stopping.RISES_AGAIN)
    traces, stops, soon, late = concave
    assert traces == 160
    assert stops > 20  # the rule does stop
    assert soon == 0
    assert late <= 3
    assert sum(counts.values())[2] <= 8

    def eager(steps, values, errors):
        return steps[-1] >= 1000 and values[-1] - values[-2] < errors[-1]

    hasty = stopping.count(240, seed=1, rule=eager)
    assert sum(hasty.values())[2] > 40  # a rule on the last difference alone would fail


def test_the_plateau_of_a_line():
    steps = np.array([1000, 1200, 1450, 1750, 2100, 2500, 3000, 3600, 4000.0])
    errors = np.full(9, 0.5)
    for slope, stops in ((0.0, True), (0.4, True), (0.6, False), (-3.0, True)):
        assert Plateau()(steps, slope * np.log2(steps), errors) is stops
    assert Plateau(rise=1.0)(steps, 0.6 * np.log2(steps), errors)
    assert not Plateau()(steps, np.where(steps == 2500, np.nan, 0.0), errors)
    assert not Plateau()(steps / 5, 0 * steps, errors)  # too early


# --- shows -----------------------------------------------------------------------------------------------------------


def test_the_summary_is_arvizs(short):
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "InferenceData"):
        pytest.skip("ArviZ 1 names other intervals")
    mine = short.summary()
    theirs = arviz.summary(short.to_arviz(4000), kind="stats", round_to="none")
    assert mine.index.tolist() == theirs.index.tolist() == ["bias", "scale", "w[0]", "w[1]"]
    assert mine.columns.tolist() == ["mean", "sd", "hdi_3%", "hdi_97%", "mcse_mean", "mcse_sd"]
    np.testing.assert_allclose(mine[theirs.columns], theirs, rtol=1e-9)
    by_chains = arviz.summary(short.to_arviz(4000), kind="diagnostics", round_to="none")
    np.testing.assert_allclose(mine["mcse_mean"], by_chains["mcse_mean"], rtol=0.2)
    np.testing.assert_allclose(mine["mcse_sd"], by_chains["mcse_sd"], rtol=0.3)
    tails = short.summary("w", kind="eti", hdi_prob=0.5)
    assert tails.columns[2:4].tolist() == ["eti_25%", "eti_75%"]
    np.testing.assert_allclose(tails["eti_25%"], np.quantile(short.sample(4000)["w"], 0.25, axis=0))
    for wrong in ({"var_names": "v"}, {"kind": "hpd"}, {"hdi_prob": 94}):
        with pytest.raises(UserError, match="summary"):
            short.summary(**wrong)


@pytest.mark.parametrize("steps", [1, 12, 62])
def test_the_plot(short, steps, tmp_path):
    pytest.importorskip("matplotlib")
    fit = short if steps == 62 else fitted(num_steps=steps)
    figure = fit.plot(tmp_path / "elbo")
    assert {one.name for one in tmp_path.iterdir()} == {"elbo.svg", "elbo.png", "elbo.csv"}
    first, last = figure.axes[0], figure.axes[-1]
    assert first.get_ylabel() == "ELBO (nats)"
    for ax in figure.axes:
        assert ax.get_xlabel() == "step"
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            shown = [at for at in axis.get_majorticklocs() if low <= at <= high]
            assert len(shown) >= (3 if steps > 1 or axis is ax.yaxis else 2)
    assert [one.get_text() for one in last.get_legend().get_texts()] == ["± standard error", "ELBO"]
    drawn = first.lines[0].get_xydata()
    np.testing.assert_array_equal(drawn, fit.elbo[["iteration", "elbo"]].to_numpy(float))
    assert last.lines[0].get_xydata()[-1].tolist() == drawn[-1].tolist()
    band = last.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((fit.elbo["elbo"] + fit.elbo["elbo_se"])[-5:].max(), abs=50)


def test_progress_in_a_notebook(monkeypatch):
    """There, and without widgets, a bar is shown although stderr is no terminal."""
    import lowvar.api.fit as module

    shown = []

    class Bar:
        def __init__(self, *args, disable=None, **kwargs):
            shown.append(disable)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, count):
            pass

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    monkeypatch.setattr(module, "in_notebook", lambda: True)
    for progress, disable in ((None, False), (False, True), (True, False)):
        fitted(progress=progress)
        assert shown.pop() is disable
    monkeypatch.setattr(module, "in_notebook", lambda: False)
    fitted(progress=None)
    assert shown == [None]  # tqdm decides: on a terminal only
