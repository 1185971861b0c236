"""A fit from its first step to its last use: stopping, watching, interrupting, saving, resuming, showing."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from jax import monitoring
from short_fits import QUICK, N, assert_equal, fitted, regression

import lowvar
from lowvar.errors import UserError
from lowvar.vi.estimators.base import schedule
from lowvar.vi.judgement import fall_of, late_rise
from lowvar.vi.numpyro.trace import prototype

_RUNS_OF_A_FIT = 18
pytestmark = pytest.mark.filterwarnings("ignore:regression. the fit has not converged")


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


def cell():
    """A model that is made anew, as by a cell of a notebook."""

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 1.25).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Poisson(jnp.exp(x[index] @ w)), obs=y[index])

    return model


def counts(seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(N, 2)), "y": rng.poisson(1.0, N)}


def test_a_second_fit_of_the_same_shapes_compiles_nothing(compilations):
    """With another seed, other data, and the model's function made anew."""
    options = QUICK | {"khat_samples": 200}
    first = lowvar.fit(cell(), counts(0), **options)
    assert compilations  # the listener hears
    del compilations[:]
    second = lowvar.fit(cell(), counts(1), seed=1, **options)
    second.resume(20, khat_samples=200, progress=False)
    assert not compilations
    assert not np.array_equal(first.params["w_auto_loc"], second.params["w_auto_loc"])


def test_a_changed_global_of_the_model_is_seen():
    """Programs are shared by what a model computes, not by its name: arrays and numbers that it reads are current."""
    world = {"shift": np.zeros(N), "width": 1.0}

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, world["width"]).expand([2]).to_event(1))
        shift = jnp.asarray(world["shift"])
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(x[index] @ w + shift[index], 1.0), obs=y[index])

    def start():
        return fitted(model, estimator="naive", num_steps=1).elbo["elbo"].iloc[0]

    first = start()
    world["shift"] = np.full(N, 3.0)
    shifted = start()
    assert shifted > first + 100  # the data's mean is 3
    world["width"] = 0.1
    assert abs(start() - shifted) > 0.1


# --- resume ----------------------------------------------------------------------------------------------------------

RESUMED = {
    "mlmc": {"estimator": "mlmc", "num_particles": 4, "schedule": {"kind": "step", "beta": 0.5, "r": 20}},
    "antithetic": {"estimator": "joint", "noise": "antithetic", "num_particles": 2,
                   "step_size": optax.cosine_decay_schedule(0.1, 150)},
}  # fmt: skip


@pytest.mark.parametrize("name", ["mlmc", pytest.param("antithetic", marks=pytest.mark.long)])
def test_a_resumed_fit_has_the_bytes_of_a_longer_one(name):
    """From inside an epoch (62 steps of four each), and twice; ``test_fit_files.py`` has the default."""
    long = fitted(num_steps=143, **RESUMED[name])
    again = fitted(**RESUMED[name])
    for more in (40, 41):
        again = again.resume(more, khat_samples=0, progress=False)
    assert_equal(again, long)


def test_what_is_not_resumed():
    fit = fitted(estimator="mlmc_optimal", num_particles=2, num_steps=4)
    with pytest.raises(UserError, match="resume: 'mlmc_optimal' plans its particles for the number of steps"):
        fit.resume(10)
    fit = fitted(estimator="naive", num_steps=1)
    with pytest.raises(UserError, match="num_steps 0"):
        fit.resume(0)
    with jax.enable_x64(False), pytest.raises(UserError, match="float64"):
        fit.resume(1)


def test_a_schedule_that_ends_before_the_steps_is_told():
    with pytest.raises(UserError, match="is 0 from step r = 30 on"):
        fitted(schedule={"kind": "cosine", "beta": 0.5, "r": 30})
    with pytest.raises(UserError, match="beta is missing"):
        fitted(schedule={"kind": "cosine"})
    with pytest.warns(UserWarning, match="no parameter moved"):
        fitted(num_steps=400, estimator="naive", optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 30)))


def test_a_resumed_cosine_is_stretched_to_the_new_end():
    """The step size has fallen to 0 at the end of the first fit, and rises again for the further steps."""
    first = fitted(schedule={"kind": "cosine", "beta": 0.5, "r": 64}, num_steps=64)
    assert first.run.settings.schedule.eta(64) == 0.0
    longer = first.resume(64, khat_samples=0, progress=False)
    assert (longer.run.settings.schedule.r, longer.run.num_steps) == (128, 128)
    moved = longer.params["w_auto_loc"] - first.params["w_auto_loc"]
    assert np.abs(moved).max() > 0.05  # 64 steps of 0.01, half of them falling, could move by 0.48


def test_a_late_rise_is_measured_before_the_step_size_falls():
    """The noise that a falling step size removes raises the ELBO too, and is no sign of a fit that is too short."""
    trace = pd.DataFrame({"iteration": [0, 10, 20, 32, 40, 64], "elbo": [-9.0, -5.0, -4.9, -4.8, -3.0, -1.0]})
    falling = schedule("cosine", beta=0.5, r=64)
    assert fall_of(falling, trace) == 32
    assert late_rise(trace[trace["iteration"] <= 32])[0] == pytest.approx(0.1)
    assert late_rise(trace)[0] == pytest.approx(2.0)
    for plan, rows in ((None, trace), (falling, trace[:4]), (falling, trace.iloc[[0, 5]])):
        assert fall_of(plan, rows) == np.inf


def test_models_in_several_threads_run_one_after_another():
    """NumPyro's handlers are one stack for all threads; without the lock, each run sees the sites of the others."""

    def slow():
        numpyro.sample("mu", dist.Normal())
        time.sleep(0.01)  # the others start
        numpyro.sample("y", dist.Normal(), obs=0.0)

    with ThreadPoolExecutor(4) as pool:
        traces = list(pool.map(lambda _: prototype(slow, {}, "slow"), range(4)))
    assert [list(trace) for trace in traces] == 4 * [["mu", "y"]]
