"""``lowvar.fit`` and ``lowvar.decompose`` on a user's own model."""

import functools
import importlib.util
import re
import runpy
import sys

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


SHORT = {"num_steps": 24, "khat_samples": 0, "elbo_samples": 20, "progress": False}


@pytest.mark.long
def test_the_seed_decides_and_data_may_be_of_pandas(example, data):
    pandas = pytest.importorskip("pandas")
    frame = {"x": pandas.DataFrame(np.asarray(data["x"])), "counts": pandas.Series(np.asarray(data["counts"]))}
    one, same, other = (
        lowvar.fit(example.model, given, estimator="naive", seed=seed, **SHORT).params["w_auto_loc"]
        for given, seed in ((data, 1), (frame, 1), (data, 2))
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.long
def test_a_batch_of_all_rows_has_no_subsampling_noise(example, data, fitted):
    numbers = {"batch_size": np.int64(600), "num_particles": np.int64(1), "seed": np.int32(1)}
    found = lowvar.decompose(example.model, data, fitted, estimators="naive", replicates=4, columns=2, progress=False,
                             **numbers).table  # fmt: skip
    parts = found[found["block"] == "all"].set_index("source")["variance"]
    assert parts["subsampling"] == parts["interaction"] == 0
    assert parts["total"] == parts["monte_carlo"] > 0


def test_a_single_estimator_is_compared_with_none(example, data, fitted):
    few = {"replicates": 4, "columns": 2, "batch_size": 50, "progress": False}
    one, two = (
        lowvar.decompose(example.model, data, fitted.params, estimators=names, **few).summary()
        for names in (["naive"], ["naive", "cv"])
    )
    assert "`naive`" in one
    assert not {"other", "other,", "compare"} & set(one.split())
    assert "compare" in two.split()


def test_a_fit_has_auto_normals_parameters_and_prints_as_one_line(fitted):
    shapes = {name: value.shape for name, value in fitted.params.items()}
    assert shapes == {f"{site}_auto_{end}": (3,) if site == "w" else () for site in ("bias", "scale", "w")
                      for end in ("loc", "scale")}  # fmt: skip
    last = fitted.elbo.iloc[-1]
    shown = re.fullmatch(
        r"Fit\(model, dim 5: ELBO (-?[\d.]+) \+- ([\d.]+) nats after 3000 steps, k-hat -?[\d.]+\)", repr(fitted)
    )
    assert shown, repr(fitted)
    assert float(shown[1]) == pytest.approx(last["elbo"], abs=last["elbo_se"] / 5)
    assert float(shown[2]) == pytest.approx(last["elbo_se"], rel=0.06)
    assert str(fitted).startswith(f"{fitted!r}\nestimator joint_adaptive, batches of 50 out of 600 rows, adam")


@pytest.mark.long
def test_noise_and_numbers_of_numpy_reach_the_run(example, data):
    def params(**options):
        return lowvar.fit(example.model, data, estimator="naive", **SHORT | options).params["w_auto_loc"]

    step = np.float32(0.02)
    python = params(step_size=float(step), seed=3, batch_size=50, num_particles=2)
    whole = {"seed": np.int64(3), "batch_size": np.int64(50), "num_particles": np.int64(2), "num_steps": np.int64(24)}
    np.testing.assert_array_equal(python, params(step_size=step, **whole))
    np.testing.assert_array_equal(python, params(step_size=step, **whole | {"num_steps": 24.0}))
    assert (python != params(step_size=step, noise="rqmc", **whole)).any()


@pytest.mark.long
def test_decompose_takes_labels_and_options(example, data, fitted, tmp_path):
    """A table that is not yet in use, as an option says, leaves the naive gradient; labels name the rows."""
    found = lowvar.decompose(
        example.model, data, fitted.params, batch_size=50, replicates=4, columns=2, progress=False,
        estimators={"plain": "naive", "late": {"estimator": "joint", "naive_epochs": 5}},
    )  # fmt: skip
    total = found.table[(found.table["block"] == "all") & (found.table["source"] == "total")]
    variance = total.set_index("method")["variance"]
    assert list(variance.index) == list(found.time) == ["plain", "late"]
    assert variance["late"] == pytest.approx(variance["plain"], rel=1e-9)
    assert {"mu:w", "log_sigma:scale"} <= set(found.table["block"])
    assert found.time["plain"] == 1.0
    assert "\nlate" in str(found)
    figure = found.plot(tmp_path / "mine")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.csv", "mine.png", "mine.svg"]
    formatters = pytest.importorskip("IPython.core.formatters")  # of a notebook, before pyplot adds its own
    assert formatters.DisplayFormatter().format(figure)[0]["image/png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"estimator": "jiont"}, "estimator 'jiont'.*'joint'"),
        ({"estimator": lambda problem, batches=None: 3}, "Estimator"),
        ({"estimator": lambda: 3}, "factory"),
        ({"estimator": "joint", "tabel": "rows"}, "'tabel'.*'table'"),
        ({"naive_epoch": 3}, "'naive_epoch'.* estimator="),
        ({"optimizer": "adm"}, "optimizer 'adm'.*'adam'"),
        ({"noise": "rqcm"}, "'rqcm'.*'rqmc'"),
        ({"schedule": "step"}, "schedule"),
        *(({"step_size": one}, "step_size") for one in (0.0, True, float("nan"))),
        ({"step_size": 1e4, "optimizer": "sgd", "num_steps": 50}, "diverged.*step_size"),
        ({"batch_size": 601}, "batch size 601"),
        *(({"num_steps": one}, "num_steps") for one in (1.5, 0)),
        ({"seed": -1}, "seed -1"),
        ({"khat_samples": 5}, "khat_samples 5"),
        *(({"devices": one}, "devices") for one in (9, 0, 1.5)),
        ({"lr": 0.1}, "'lr'.* step_size"),
        ({"epochs": 10, "estimator": "naive"}, "'epochs'.* num_steps"),
        ({"n_samples": 10}, "'n_samples'.* num_particles"),
    ],
)
def test_bad_input_of_fit(example, data, options, named):
    with pytest.raises(UserError, match=named):
        lowvar.fit(example.model, data, progress=False, **options)


TWICE = [functools.partial(storm, a=0.1), functools.partial(storm, a=0.5)]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        *(({"estimators": estimators}, named) for estimators, named in (
            ("naive,cw", "'cw'"),
            ({"mine": "jiont"}, "'jiont'.*'joint'"),
            ({"mine": {"naive_epochs": 3}}, "'mine'"),
            ({3: "joint"}, "3: 'joint'"),
            ({}, "estimators"),
            (3, "estimators"),
            (TWICE, "label 'storm'"),
            (["joint", "naive", "joint"], "label 'joint'"),
        )),
        ({"seed": "x"}, "seed 'x'"),
        ({"step_size": True}, "step_size True"),
        ({"lr": 1}, "'lr'.* step_size"),
        ({"stop": 1}, "'stop'.* params="),
        ({"params": {"w_auto_loc": np.zeros(2)}}, "'bias_auto_loc'|w_auto_loc has 2"),
    ],
    ids=lambda value: "twice" if value == {"estimators": TWICE} else str(value),
)  # fmt: skip
def test_bad_input_of_decompose(example, data, options, named):
    with pytest.raises(UserError, match=named):
        lowvar.decompose(example.model, data, progress=False, **options)


def test_decompose_at_a_fit_takes_no_options_of_another(example, data, fitted):
    with pytest.raises(UserError, match="step_size, num_steps"):
        lowvar.decompose(example.model, data, fitted, step_size=0.1, num_steps=10)
    with pytest.raises(UserError, match="params=fit"):
        lowvar.decompose(example.model, fitted)


def test_command_line_on_a_model_file(request, tmp_path, monkeypatch):
    example = request.config.rootpath / "examples" / "poisson_regression.py"
    monkeypatch.setattr(sys, "argv", [str(example), str(tmp_path / "claims.npz")])
    runpy.run_path(str(example), run_name="__main__")
    with np.load(tmp_path / "claims.npz") as claims:
        few = {name: array[:1200] for name, array in claims.items()}
    np.savez(tmp_path / "claims.npz", **few)
    options = [
        "--data",
        "claims.npz",
        "--batch-size",
        "100",
        "--steps",
        "120",
        "--estimators",
        "naive",
        "--guide",
        "low_rank",
        "--rank",
        "1",
    ]
    done = commands.lowvar(tmp_path, "decompose", f"{example}:model", *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("gradient variance of poisson_regression.py:model at its fit (1200 rows, 14 parameters")
    assert "low_rank guide" in lines[0]
    written = ["results/decomposition/poisson_regression.parquet", "results/figures/poisson_regression.png"]
    assert lines[-1] == f"wrote {', '.join(written)}"
    assert all((tmp_path / one).exists() for one in written)
