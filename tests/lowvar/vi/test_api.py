"""``lowvar.fit`` and ``lowvar.decompose`` on a user's own model."""

import functools
import importlib.util
import re
import runpy
import sys
import types

import commands
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowvar
from lowvar.errors import UserError
from lowvar.vi.estimators.storm import storm


@pytest.fixture(scope="module")
def example(request):
    path = request.config.rootpath / "examples" / "poisson_regression.py"
    spec = importlib.util.spec_from_file_location("poisson_regression", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data(example):
    return {name: jnp.asarray(value) for name, value in example.simulate(rows=600, features=3).items()}


@pytest.fixture(scope="module")
def fitted(example, data):
    return lowvar.fit(example.model, data, num_steps=3000, batch_size=50, progress=False)


@pytest.mark.long
def test_fit_finds_the_posterior(example, data, fitted):
    """Against NUTS on the same model: means within the posterior's own spread, spreads of its size."""
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(NUTS(example.model), num_warmup=300, num_samples=500, progress_bar=False)
    mcmc.run(jax.random.key(0), **data)
    draws = mcmc.get_samples()
    ours = fitted.sample(4000)
    for site in ("w", "bias"):
        mean, sd = np.mean(draws[site], 0), np.std(draws[site], 0)
        assert (np.abs(ours[site].mean(0) - mean) < 0.3 * sd).all(), site
        assert (ours[site].std(0) < 1.3 * sd).all()
        assert (ours[site].std(0) > 0.5 * sd).all()
    assert (ours["scale"] > 0).all()


@pytest.mark.long
def test_predictive_takes_the_fit(example, data, fitted):
    from numpyro.infer import Predictive

    predictive = Predictive(example.model, guide=fitted.guide, params=fitted.params, num_samples=500)
    draws = jax.jit(predictive)(jax.random.key(1), x=data["x"])
    assert draws["counts"].shape == (500, 600)
    assert float(draws["counts"].mean()) == pytest.approx(float(data["counts"].mean()), rel=0.1)
    posterior = jax.jit(Predictive(fitted.guide, params=fitted.params, num_samples=4000))(jax.random.key(2), **data)
    np.testing.assert_allclose(posterior["w"].mean(0), fitted.sample(4000)["w"].mean(0), atol=0.02)
    np.testing.assert_allclose(posterior["scale"].mean(), fitted.sample(4000)["scale"].mean(), rtol=0.1)


def test_params_have_auto_normals_names_and_shapes(fitted):
    shapes = {name: value.shape for name, value in fitted.params.items()}
    assert shapes == {
        "bias_auto_loc": (), "bias_auto_scale": (), "scale_auto_loc": (), "scale_auto_scale": (),
        "w_auto_loc": (3,), "w_auto_scale": (3,),
    }  # fmt: skip


def test_a_fit_prints_as_one_line(fitted):
    last = fitted.elbo.iloc[-1]
    shown = re.fullmatch(
        r"Fit\(model, dim 5: ELBO (-?[\d.]+) \+- ([\d.]+) nats after 3000 steps, k-hat -?[\d.]+\)", repr(fitted)
    )
    assert shown, repr(fitted)
    assert float(shown[1]) == pytest.approx(last["elbo"], abs=last["elbo_se"] / 5)
    assert float(shown[2]) == pytest.approx(last["elbo_se"], rel=0.06)
    assert str(fitted).splitlines()[:2] == [
        repr(fitted),
        "estimator joint_adaptive, batches of 50 out of 600 rows, adam with step size 0.01",
    ]


SHORT = {"num_steps": 24, "khat_samples": 0, "elbo_samples": 20, "progress": False}


def test_the_seed_decides_and_data_may_be_of_pandas(example, data):
    pandas = pytest.importorskip("pandas")
    frame = {"x": pandas.DataFrame(np.asarray(data["x"])), "counts": pandas.Series(np.asarray(data["counts"]))}
    one, same, other = (
        lowvar.fit(example.model, given, estimator="naive", seed=seed, **SHORT).params["w_auto_loc"]
        for given, seed in ((data, 1), (frame, 1), (data, 2))
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.fixture(scope="module")
def from_zero(example, data):
    def fitted(**kwargs):
        settings = SHORT | {"optimizer": "sgd", "step_size": 1e-3, "num_particles": 4}
        start = {"w": np.zeros(3)}
        return lowvar.fit(example.model, data, estimator="naive", init=start, **settings, **kwargs).params["w_auto_loc"]

    return fitted


@pytest.mark.long
def test_a_schedule_reaches_the_run(from_zero):
    """As that of a resumed fit does, in ``test_fit_life.py``."""
    falling = from_zero(schedule={"kind": "step", "beta": 0.1, "r": 1})
    assert np.linalg.norm(falling) < np.linalg.norm(from_zero())  # with steps that soon stop


def test_noise_reaches_the_run(from_zero):
    assert (from_zero() != from_zero(noise="rqmc")).any()
    for wrong, message in (
        ({"noise": "rqcm"}, "unknown noise 'rqcm': did you mean 'rqmc'"),
        ({"schedule": "step"}, "schedule = 'step': give its settings, such as"),
        ({"particles": 3}, "'particles'.* num_particles"),
    ):
        with pytest.raises(UserError, match=message):
            from_zero(**wrong)


def before_1(posterior=None, *, posterior_predictive=None):
    return posterior


def since_1(data, *, name=None, sample_dims=None):
    return data["posterior"]


@pytest.mark.parametrize("from_dict", [before_1, since_1])
def test_to_arviz_before_and_since_1(fitted, from_dict, monkeypatch):
    """With the two signatures that ``from_dict`` has had; ``test_fit_ends.py`` calls ArviZ itself."""
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
    assert fitted.to_arviz(7)["w"].shape == (1, 7, 3)


@pytest.mark.long
@pytest.mark.parametrize("given", [False, True], ids=["own fit", "given params"])
def test_decompose(example, data, fitted, given):
    found = lowvar.decompose(
        example.model, data, fitted.params if given else None, estimators=("naive", "cv", "joint"),
        batch_size=50, num_steps=None if given else 1500, replicates=8, columns=4, progress=False,
    )  # fmt: skip
    total = found.table[(found.table["block"] == "all") & (found.table["source"] == "total")].set_index("method")
    assert set(total.index) == {"naive", "cv", "joint"}
    assert total.loc["joint", "high"] < total.loc["naive", "low"]
    assert {"mu:w", "log_sigma:scale"} <= set(found.table["block"])
    assert found.time["naive"] == 1.0
    text = str(found)
    assert text.splitlines()[0].startswith("gradient variance of model at")
    assert "`joint` has the least variance x time" in text


@pytest.mark.parametrize("more", [{}, pytest.param({"in use": {"estimator": "joint"}}, marks=pytest.mark.long)])
def test_decompose_takes_labels_and_options(example, data, fitted, tmp_path, more):
    """A table that is not yet in use, as an option says, leaves the naive gradient; labels name the rows."""
    found = lowvar.decompose(
        example.model, data, fitted.params, batch_size=50, replicates=4, columns=2, progress=False,
        estimators={"plain": "naive", "late": {"estimator": "joint", "naive_epochs": 5}} | more,
    )  # fmt: skip
    total = found.table[(found.table["block"] == "all") & (found.table["source"] == "total")]
    variance = total.set_index("method")["variance"]
    assert list(variance.index) == list(found.time) == ["plain", "late", *more]
    assert variance["late"] == pytest.approx(variance["plain"], rel=1e-9)
    assert all(variance[label] != pytest.approx(variance["plain"], rel=1e-2) for label in more)
    assert {"mu:w", "log_sigma:scale"} <= set(found.table["block"])
    assert found.time["plain"] == 1.0
    assert all(f"\n{label}" in str(found) for label in ("late", *more))
    found.plot(tmp_path / "mine")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.csv", "mine.png", "mine.svg"]


def test_a_batch_of_all_rows_has_no_subsampling_noise(example, data, fitted):
    numbers = {"batch_size": np.int64(600), "num_particles": np.int64(1), "seed": np.int32(1)}
    found = lowvar.decompose(example.model, data, fitted, estimators="naive", replicates=4, columns=2, progress=False,
                             **numbers).table  # fmt: skip
    parts = found[found["block"] == "all"].set_index("source")["variance"]
    assert parts["subsampling"] == parts["interaction"] == 0
    assert parts["total"] == parts["monte_carlo"] > 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"estimator": "jiont"}, "estimator 'jiont'.*'joint'"),
        ({"optimizer": "adm"}, "optimizer 'adm'.*'adam'"),
        ({"optimizer": object}, "optimizer"),
        *(({"step_size": one}, "step_size") for one in (0.0, True, np.float32(-1), float("nan"))),
        ({"step_size": 1e4, "optimizer": "sgd", "num_steps": 50}, "diverged; use a smaller step_size"),
        ({"batch_size": 601}, "batch size 601"),
        ({"num_steps": 1.5}, "num_steps 1.5"),
        ({"num_steps": 0}, "num_steps 0"),
        ({"seed": -1}, "seed -1"),
        ({"estimator": "joint", "tabel": "rows"}, "'tabel'.*'table'"),
        ({"tabel": "rows"}, "'tabel'.* estimator="),
        ({"estimator": "smiso"}, "'smiso': it is a solver with its own update"),
        ({"lr": 0.1}, "'lr'.* step_size"),
        ({"epochs": 10, "estimator": "naive"}, "'epochs'.* num_steps"),
        ({"device": "cpu"}, "'device'.* devices"),
        ({"n_samples": 10}, "'n_samples'.* num_particles"),
    ],
    ids=str,
)
def test_bad_input_of_fit(example, data, options, named):
    with pytest.raises(UserError, match=named):
        lowvar.fit(example.model, data, progress=False, **options)


def test_numbers_of_numpy(example, data):
    """They are taken as Python's are; ``test_a_batch_of_all_rows_has_no_subsampling_noise`` has those of ``decompose``."""
    common = {"estimator": "naive"} | SHORT
    python, numpy, floats = (
        lowvar.fit(example.model, data, step_size=step, seed=whole(3), batch_size=whole(50), num_particles=whole(2),
                   **common | {"num_steps": steps})
        for step, whole, steps in (
            (float(np.float32(0.02)), int, 24), (np.float32(0.02), np.int64, np.int64(24)), (np.float32(0.02), int, 24.0)
        )
    )  # fmt: skip
    np.testing.assert_array_equal(python.params["w_auto_loc"], floats.params["w_auto_loc"])
    np.testing.assert_array_equal(python.params["w_auto_loc"], numpy.params["w_auto_loc"])


@pytest.mark.parametrize(
    ("estimators", "named"),
    [
        (("naive", "smiso"), "'smiso'"),
        ({"mine": "jiont"}, "'jiont'.*'joint'"),
        ({"mine": {"naive_epochs": 3}}, "'mine'"),
        ({3: "joint"}, "3: 'joint'"),
        ({"mine": {"estimator": "joint", "tabel": "rows"}}, "'tabel'"),
        ([{"estimator": "joint"}], "mapping"),
        ({}, "estimators"),
        (3, "estimators"),
        ([functools.partial(storm, a=0.1), functools.partial(storm, a=0.5)], "2 of them have the label 'storm'"),
        (["joint", "naive", "joint"], "2 of them have the label 'joint'"),
    ],
    ids=lambda value: "" if isinstance(value, list) and any(map(callable, value)) else str(value),
)
def test_bad_estimators_of_decompose(example, data, estimators, named):
    with pytest.raises(UserError, match=named):
        lowvar.decompose(example.model, data, estimators=estimators, progress=False)


def test_bad_input_of_decompose(example, data, fitted):
    few = {"w_auto_loc": np.zeros(3)}
    for params, options, named in (
        (None, {"seed": "x"}, "seed 'x'"),
        (None, {"step_size": True}, "step_size True"),
        (None, {"estimators": ("nave",)}, "'nave'"),
        (fitted, {"step_size": 0.1, "num_steps": 10, "init": fitted}, "step_size, num_steps, init"),
        (fitted.params, {"step_size": 0.1}, "step_size"),
        (None, {"lr": 1}, "'lr'.* step_size"),
        (None, {"patience": 1}, "'patience'.* stop.* params"),
        (None, {"stop": 1}, "'stop'.* params=; decompose takes"),
        (None, {"schedule": 1}, "'schedule'.* params=; decompose takes"),
        (None, {"method": 1}, "'method'.* estimators"),
        (few, {}, "'bias_auto_loc'"),
        ({**fitted.params, "w_auto_loc": np.zeros(2)}, {}, "w_auto_loc has 2 entries"),
    ):
        with pytest.raises(UserError, match=named):
            lowvar.decompose(example.model, data, params, progress=False, **options)
    with pytest.raises(UserError, match="params=fit"):
        lowvar.decompose(example.model, fitted)
    with pytest.raises(UserError, match="num_samples 0"):
        fitted.sample(0)


@pytest.mark.parametrize("estimators", ["naive", pytest.param("naive,joint", marks=pytest.mark.long)])
def test_command_line_on_a_model_file(request, tmp_path, monkeypatch, estimators):
    example = request.config.rootpath / "examples" / "poisson_regression.py"
    monkeypatch.setattr(sys, "argv", [str(example), str(tmp_path / "claims.npz")])
    runpy.run_path(str(example), run_name="__main__")
    with np.load(tmp_path / "claims.npz") as claims:
        assert claims["x"].shape == (12_000, 12)
        few = {name: array[:1200] for name, array in claims.items()}
    np.savez(tmp_path / "claims.npz", **few)
    options = [
        "--batch-size",
        "100",
        "--steps",
        "120",
        "--estimators",
        estimators,
        "--guide",
        "low_rank",
        "--rank",
        "1",
    ]
    done = commands.lowvar(tmp_path, "decompose", f"{example}:model", "--data", "claims.npz", *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("gradient variance of poisson_regression.py:model at its fit (1200 rows, 14 parameters")
    assert "low_rank guide" in lines[0]
    assert lines[-1] == (
        "wrote results/decomposition/poisson_regression.parquet, results/figures/poisson_regression.png"
    )
    assert (tmp_path / "results" / "decomposition" / "poisson_regression.parquet").exists()
    assert (tmp_path / "results" / "figures" / "poisson_regression.png").exists()


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda problem, batches=None: 3, "the factory returned an int, not an Estimator"),
        (lambda: 3, r"its factory must take \(problem, batches\)"),
    ],
)
def test_a_factory_that_makes_no_estimator(example, data, factory, message):
    with pytest.raises(UserError, match=message):
        lowvar.fit(example.model, data, estimator=factory, num_steps=1)
