"""What decompose makes of a fit: its memory, its noise scheme, and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from short_fits import N, made_data

import lowvar
from lowvar.core.gaussian import independent
from lowvar.vi.batches import reshuffled, sampler
from lowvar.vi.estimators import GRADIENT

X = made_data()["x"]
FAR = {"x": X, "y": X @ np.array([4.0, -4.0]) + np.random.default_rng(1).normal(size=N)}
DESIGN = {"replicates": 8, "columns": 4, "progress": False}


WAY = {"estimator": "joint", "batch_size": 20, "step_size": 0.05}


def moving(x, y, batch_size=None, scale=1.0):
    """A model whose parameters are still on their way."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, scale), obs=y[index])


def fitted(**options):
    settings = {"num_steps": 60, "khat_samples": 0, "elbo_samples": 20, "progress": False} | options
    return lowvar.fit(moving, FAR, **settings)


def total(found, block="all"):
    rows = found.table[(found.table["block"] == block) & (found.table["source"] == "total")]
    return rows.set_index("method")


@pytest.fixture(scope="module")
def fit():
    return fitted(**WAY)


@pytest.fixture(scope="module")
def own(fit):
    return lowvar.decompose(moving, FAR, fit, estimators=("joint",), **DESIGN)


def test_decompose_uses_the_memory_of_the_fit(fit, own):
    """Filled at the fit's point a memory looks far better than the one that the fit has."""
    filled = lowvar.decompose(moving, FAR, fit.params, estimators=("joint",), batch_size=20, **DESIGN)
    assert total(own, "mu").loc["joint", "low"] > 10 * total(filled, "mu").loc["joint", "high"]
    assert total(own)["batch_size"].eq(20).all()
    kinds = [dict(zip(one.table["method"], one.table["memory"], strict=True))["joint"] for one in (own, filled)]
    assert kinds == ["fit", "filled"]


@pytest.mark.long
def test_the_variance_is_that_of_the_next_step(fit, own):
    """Against draws of its gradient, with the state that the fit ended in."""
    batches = reshuffled(N, 20)
    one, draw = GRADIENT.get("joint")(fit.problem, batches), sampler(batches, independent(), 2, np.float64)
    params = jax.tree.map(jnp.asarray, fit.guide_params)

    def gradient(key):
        noise = jax.tree.map(lambda leaf: leaf[0], draw.epoch(key))
        found, _ = one.estimate(fit.run.memory, params, noise)
        return found["mu"]

    draws = jax.jit(jax.vmap(gradient))(jax.random.split(jax.random.key(0), 4000))
    assert float(draws.var(0).sum()) == pytest.approx(total(own, "mu").loc["joint", "variance"], rel=0.15)


@pytest.mark.long
def test_without_params_it_is_at_the_fit_with_these_settings(fit):
    """Its estimator's average still contains the way to the optimum, so the last iterate is the result."""
    given = lowvar.decompose(moving, FAR, fit, estimators=("naive", "joint"), **DESIGN)
    settings = {**WAY, "num_steps": 60} | DESIGN
    del settings["estimator"]
    with pytest.warns(UserWarning, match="converged"):
        own = lowvar.decompose(moving, FAR, estimators=("naive", "joint"), **settings)
    assert fit.params.keys() == own.params.keys()
    for site, value in fit.params.items():
        np.testing.assert_array_equal(own.params[site], value)
    pd.testing.assert_frame_equal(own.table, given.table)


def test_running_along_repeats_the_fit(fit, monkeypatch):
    """The last epochs again, beside another estimator, bring the fit's own memory back."""
    from lowvar.vi.decompose import _along
    from lowvar.vi.run.engine import VariationalEngine
    from lowvar.vi.run.settings import Method

    states, advance = [], VariationalEngine.advance
    monkeypatch.setattr(VariationalEngine, "advance", lambda *args: states.append(advance(*args)) or states[-1])
    _along(fit.problem, {"joint": fit.run.method, "naive": Method("naive")}, "joint", fit.run)
    table = states[-1][0].estimator["joint"]["G"]["mu"][0, 0]
    np.testing.assert_allclose(table, fit.run.memory["G"]["mu"], rtol=1e-6, atol=1e-8)


def test_decompose_takes_a_fit_that_ended_early():
    ended = fitted(num_steps=400, callback=lambda at: at.iteration >= 60, **WAY)
    early, last = ended.run.epochs
    assert 0 < early < last == ended.run.num_steps // 10 < 40
    assert lowvar.decompose(moving, FAR, ended, estimators=("joint",), **DESIGN).memories == {"joint": "the fit's own"}
    resumed = ended.resume(8, khat_samples=0, progress=False)
    assert set(resumed.run.copies) == set(resumed.run.epochs)


def test_another_batch_size_fills_memories(fit):
    found = lowvar.decompose(moving, FAR, fit, estimators=("joint",), batch_size=50, **DESIGN)
    assert found.memories["joint"].startswith("filled at these parameters")


@pytest.mark.long
def test_decompose_takes_the_noise_scheme_of_the_fit():
    """Also where its memory cannot be used; a scheme of one's own replaces it."""
    fit = fitted(estimator="naive", noise="rqmc", num_particles=8, batch_size=20, num_steps=20)
    common = {"estimators": "naive", "batch_size": N} | DESIGN
    own, rqmc, iid = (
        lowvar.decompose(moving, FAR, params, noise=noise, num_particles=8, **common)
        for params, noise in ((fit, None), (fit.params, "rqmc"), (fit, "iid"))
    )
    assert total(own).loc["naive", "variance"] == total(rqmc).loc["naive", "variance"]
    assert total(own).loc["naive", "variance"] < 0.5 * total(iid).loc["naive", "variance"]


def test_the_memory_of_another_model_is_not_used(fit):
    """Its parameters are plain ones; the same model defined again is no other."""
    common = {"estimators": ("joint",)} | DESIGN

    def defined(scale):
        return lambda x, y, batch_size=None: moving(x, y, batch_size, scale)

    assert lowvar.decompose(defined(1.0), FAR, fit, **common).memories == {"joint": "the fit's own"}
    found = lowvar.decompose(defined(2.0), FAR, fit, **common)
    plain = lowvar.decompose(defined(2.0), FAR, fit.params, batch_size=20, **common)
    assert "another model" in found.title
    assert "another model" not in plain.title
    assert found.memories["joint"].startswith("filled at these parameters")
    np.testing.assert_array_equal(total(found)["variance"], total(plain)["variance"])


def test_a_memory_that_adds_noise_is_said_first():
    """Steps so long that the table is far away."""
    fit = fitted(estimator="joint", num_steps=28, batch_size=20, step_size=0.5)
    found = lowvar.decompose(moving, FAR, fit, estimators=("naive", "joint"), **DESIGN)
    assert total(found).loc["joint", "low"] > total(found).loc["naive", "high"], total(found)
    assert str(found).startswith("Careful: the memory of `joint`")


@pytest.mark.long
@pytest.mark.parametrize("estimator", ["joint", "joint_adaptive"])
def test_decompose_of_a_fit_that_completed_no_epoch(estimator):
    """Its memory is that of the start, which the fit itself computes only as its first epoch begins."""
    fit = fitted(estimator=estimator, num_steps=2, batch_size=20)
    found = lowvar.decompose(moving, FAR, fit, estimators=(estimator,), **DESIGN)
    assert np.isfinite(found.table["variance"]).all()


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
@pytest.mark.parametrize("data", [{"x": X, "y": -FAR["y"]}, {"x": X[:50], "y": FAR["y"][:50]}])
def test_data_that_are_not_the_fits_are_told(optimizer, data):
    """Values that differ, and fewer rows; of stochastic steps and of fixed draws."""
    common = {"estimators": ("naive",), "batch_size": 10, **DESIGN}
    fit = fitted(optimizer=optimizer, **(WAY if optimizer == "adam" else {"num_steps": None}))
    assert "other data" in lowvar.decompose(moving, data, fit, **common).title
    copies = {name: one.copy() for name, one in FAR.items()}
    assert "other data" not in lowvar.decompose(moving, copies, fit, **common).title
