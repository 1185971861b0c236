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
from lowvar import cli
from lowvar.errors import UserError
from lowvar.vi.decompose import COMPARED
from lowvar.vi.estimators.storm import storm
from lowvar.vi.settings import methods_of


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


def test_elbo_trace_rises(fitted):
    elbo = fitted.elbo.set_index("iteration")
    assert elbo["elbo"].iloc[-1] > elbo["elbo"].iloc[0]
    assert (elbo["elbo_se"] > 0).all()


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


def test_the_command_compares_the_default_estimators():
    """Sticking the landing among them: with an exact guide no other takes the Monte Carlo noise away."""
    assert cli.OWN["estimators"] == ",".join(COMPARED)
    assert "stl" in COMPARED


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
    ("options", "message"),
    [
        ({"estimator": "jiont"}, "unknown estimator 'jiont': did you mean 'joint'?"),
        ({"optimizer": "adm"}, "unknown optimizer 'adm': did you mean 'adam'?"),
        ({"step_size": 0.0}, "step_size 0.0: it must be a positive number"),
        (
            {"step_size": 1e4, "optimizer": "sgd", "num_steps": 50},
            "the fit diverged; use a smaller step_size",
        ),
        (
            {"batch_size": 601},
            "batch size 601: it must be a whole number between 1 and the number of rows, 600",
        ),
        ({"num_steps": 1.5}, "num_steps 1.5: it must be a whole number, 1 or more"),
        ({"num_steps": 0}, "num_steps 0: it must be a whole number, 1 or more"),
        ({"optimizer": object()}, "optimizer: give 'adam' or 'sgd', and step_size"),
        ({"estimator": "joint", "tabel": "rows"}, "estimator: joint: unknown option 'tabel': did you mean 'table'"),
        ({"estimator": "adaptive_joint"}, "'adaptive_joint'.* 'joint_adaptive'"),
        ({"lr": 0.1}, "'lr'.* step_size"),
        ({"epochs": 10, "estimator": "naive"}, "'epochs'.* num_steps"),
        ({"device": "cpu"}, "'device'.* devices"),
        ({"rng_key": 0}, "'rng_key'.* seed"),
        ({"n_samples": 10}, "'n_samples'.* num_particles"),
        ({"tabel": "rows"}, "'tabel'.* estimator="),
        (
            {"estimator": "smiso"},
            "'smiso': it is a solver with its own update, which fit and decompose do not run; use an estimator, "
            "such as 'joint_adaptive', or run smiso as a method of an experiment",
        ),
        ({"seed": -1}, "seed -1: it must be a whole number, 0 or more"),
        ({"step_size": True}, "step_size True: it must be a positive number"),
        ({"step_size": np.float32(-1)}, "step_size .*-1.0.*: it must be a positive number"),
        ({"step_size": float("nan")}, "step_size nan: it must be a positive number"),
    ],
)
def test_bad_input_of_fit(example, data, options, message):
    with pytest.raises(UserError, match=message):
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
    ("estimators", "message"),
    [
        (("naive", "smiso"), "'smiso': it is a solver with its own update"),
        ({"mine": "jiont"}, "unknown estimator 'jiont': did you mean 'joint'?"),
        ({"mine": {"naive_epochs": 3}}, "'mine': {'naive_epochs': 3}: a label needs a name such as 'joint', a factory"),
        ({"mine": 3}, "'mine': 3: a label needs a name"),
        ({3: "joint"}, "3: 'joint': a label needs a name"),
        (
            {"mine": {"estimator": "joint", "tabel": "rows"}},
            "estimator: joint: unknown option 'tabel': did you mean 'table'",
        ),
        (
            [{"estimator": "joint"}],
            "a list takes names and factories only, not {'estimator': 'joint'}; give options in a mapping",
        ),
        ({}, "estimators: name at least one"),
        ([], "estimators: name at least one"),
        (3, "give a list of names, or a mapping of labels to names, not int"),
        (
            [functools.partial(storm, a=0.1), "naive", functools.partial(storm, a=0.5)],
            "2 of them have the label 'storm'; give a mapping of labels of your own to estimators",
        ),
        (["joint", "naive", "joint"], "2 of them have the label 'joint'; give a mapping"),
    ],
    ids=lambda value: "" if isinstance(value, list) and any(map(callable, value)) else str(value),
)
def test_bad_estimators_of_decompose(example, data, estimators, message):
    with pytest.raises(UserError, match=message):
        lowvar.decompose(example.model, data, estimators=estimators, progress=False)


def test_a_mapping_separates_estimators_of_one_name():
    slow, fast = functools.partial(storm, a=0.1), functools.partial(storm, a=0.5)
    methods = methods_of({"slow": slow, "fast": fast, "joint": "joint"})
    assert {name: method.factory for name, method in methods.items()} == {"slow": slow, "fast": fast, "joint": "joint"}


def test_bad_input_of_decompose(example, data, fitted):
    for options, message in (({"seed": "x"}, "seed 'x': it must be a whole number"),
                             ({"step_size": True}, "step_size True: it must be a positive number")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            lowvar.decompose(example.model, data, progress=False, **options)
    for params in (fitted, fitted.params):
        with pytest.raises(
            UserError, match="decompose: step_size, num_steps, init: settings of a fit, which is made only"
        ):
            lowvar.decompose(example.model, data, params, step_size=0.1, num_steps=10, init=fitted)
    for name, ours in {
        "lr": "step_size",
        "epochs": "num_steps",
        "patience": "stop.* params",
        "stop": "params=; decompose takes",
        "schedule": "params=; decompose takes",
        "method": "estimators",
    }.items():
        with pytest.raises(UserError, match=f"decompose: .*'{name}'.* {ours}"):
            lowvar.decompose(example.model, data, **{name: 1})
    with pytest.raises(UserError, match="decompose: data is a Fit; give it as params=fit"):
        lowvar.decompose(example.model, fitted)
    with pytest.raises(UserError, match="num_samples 0: it must be a whole number, 1 or more"):
        fitted.sample(0)
    with pytest.raises(UserError, match="unknown estimator 'nave'"):
        lowvar.decompose(example.model, data, estimators=("nave",), progress=False)
    with pytest.raises(UserError, match="params: no value of 'bias_auto_loc', which model needs"):
        lowvar.decompose(example.model, data, {"w_auto_loc": np.zeros(3)}, progress=False)
    with pytest.raises(UserError, match="w_auto_loc has 2 entries, the model needs 3"):
        lowvar.decompose(example.model, data, {**fitted.params, "w_auto_loc": np.zeros(2)}, progress=False)


@pytest.mark.parametrize("estimators", ["naive", pytest.param("naive,joint", marks=pytest.mark.long)])
def test_command_line_on_a_model_file(request, tmp_path, monkeypatch, estimators):
    example = request.config.rootpath / "examples" / "poisson_regression.py"
    monkeypatch.setattr(sys, "argv", [str(example), str(tmp_path / "claims.npz")])
    runpy.run_path(str(example), run_name="__main__")
    with np.load(tmp_path / "claims.npz") as claims:
        assert claims["x"].shape == (12_000, 12)
        few = {name: array[:1200] for name, array in claims.items()}
    np.savez(tmp_path / "claims.npz", **few)
    done = commands.lowvar(
        tmp_path,
        "decompose",
        f"{example}:model",
        "--data",
        "claims.npz",
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
    )
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
