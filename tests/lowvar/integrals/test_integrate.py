"""``lowvar.integrate``, ``lowvar.scores`` and ``lowvar integrate``: users' own samples, and users' mistakes."""

import importlib.util
import pickle

import commands
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from samples_of_normal import normal, smooth

import lowvar
from lowvar.errors import UserError

EXACT = np.array([np.exp(0.045), 1.0])


@pytest.mark.parametrize(
    "array", [np.asarray, jnp.asarray, torch.as_tensor, list], ids=["numpy", "jax", "torch", "list"]
)
def test_any_arrays(array):
    x = normal()
    given = array(x.tolist() if array is list else x), array(-x), array(smooth(x))
    found = lowvar.integrate(*given, exact_scores=True)
    assert np.abs(found.value - EXACT).max() < 1e-3
    assert found.table["gain"].min() >= 1
    assert ["polynomial" in note for note in found.notes] == [True]  # of a jump alone


def test_tasks_with_points_of_their_own():
    first, second = normal(12, seed=1), normal(30, seed=2)
    found = lowvar.integrate([first, second], [-first, -second], [smooth(first)[:, 0], 1.1 * smooth(second)[:, 0]])
    assert np.abs(found.value - EXACT[0] * np.array([1, 1.1])).max() < 0.02
    assert found.table["task"].tolist() == ["f0", "f1"]


def test_result_prints_and_fits():
    x = normal(dim=1)
    found = lowvar.integrate(x, -x, np.sin(x[:, 0]), "control_functional", names="sine")
    assert "sine" in repr(found)
    assert np.abs(found.fitted(np.array([[0.3]]), np.array([[-0.3]])) - np.sin(0.3)) < 1e-3
    plain = lowvar.integrate(x, -x, np.sin(x[:, 0]), "monte_carlo")
    assert plain.fitted(x, -x)[5] == pytest.approx(np.sin(x[:, 0]).mean(), rel=1e-12)


def test_an_estimate_far_from_monte_carlo_is_noticed():
    x = np.random.default_rng(2).normal(size=(15, 1))  # too few to test the scores
    with pytest.warns(UserWarning, match="standard errors of Monte Carlo away"):
        lowvar.integrate(x, -x + 5, 100 + x[:, 0], "control_functional")


@pytest.mark.parametrize(
    "options",
    [{"lengthscale": 1.0}, {"lengthscale": [1.0, 2.0]}, {"lengthscale": 1.0, "trend": False}, {"nugget": 1e-6}],
)
@pytest.mark.parametrize("method", ["control_functional", "vector_valued"])
def test_what_is_given_is_not_learnt(method, options):
    x = normal()
    found = lowvar.integrate(x, -x, smooth(x)[:, 0], method, **options)
    assert abs(found.value[0] - EXACT[0]) < 0.02
    if "lengthscale" in options:
        np.testing.assert_allclose(np.ravel(found.info["lengthscale"]), np.broadcast_to(options["lengthscale"], 2))


def test_copies_and_constants():
    x = normal()
    again = np.concatenate([x, x[:10]])
    found = lowvar.integrate(again, -again, smooth(again), "control_functional", exact_scores=True)
    assert found.notes[0] == "10 duplicate samples were dropped"
    assert all("polynomial" in note for note in found.notes[1:])
    assert np.allclose(found.value, lowvar.integrate(x, -x, smooth(x), "control_functional").value, rtol=1e-6)
    with pytest.warns(UserWarning, match="equal at all samples"):
        found = lowvar.integrate(x, -x, np.full(60, 2.5))
    assert found.value.tolist() == [2.5]
    assert np.isnan(found.standard_error[0])


X = normal()
NAN = np.where(X.max() == X, np.nan, X)


CHAINS = X.reshape(4, 15, 2)


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ((X, -X[:50], X[:, 0]), {}, "scores: "),
        ((X, -X, X[:40, 0]), {}, "values: "),
        ((X[:2], -X[:2], X[:2, 0]), {}, "2 points are too few"),
        ((NAN, -X, X[:, 0]), {}, "samples: nan at ["),
        ((X, -X, NAN), {}, "values: nan at ["),
        ((X[None], -X[None], X[:, 0]), {}, "samples: the shape is (1, 60, 2); it must be (m, d): set chain=True"),
        ((X, -X, X[:, 0], "control_functionl"), {}, "unknown integrator 'control_functionl'"),
        ((X, -X, X[:, 0], lambda: 3), {}, "not an Integrator"),
        ((X, -X, [["a"]] * 60), {}, "values: cannot be converted"),
        ((X, -X, np.array(["1.0"] * 60)), {}, "values: cannot be converted"),
        ((X, -X, 1e-170 * X), {}, "values: squares of numbers of size 2e-170"),
        ((X, -X, 1j * X), {}, "values: the numbers are complex"),
        (
            (np.repeat(X[:2], 5, 0), -np.repeat(X[:2], 5, 0), np.repeat(X[:2, 0], 5), "vector_valued"),
            {},
            "only 2 of 10",
        ),
        ((np.r_[X, X], -np.r_[X, X], np.r_[X[:, 0], 3 + X[:, 0]], "control_functional"), {}, "values: rows 0 and 60"),
        (([X, X], [-X], [X[:, 0], X[:, 0]]), {}, "scores: give a list of 2 arrays"),
        (([X, X[:, :1]], [-X, -X[:, :1]], [X[:, 0], X[:, 0]]), {}, "they must agree (axis 1)"),
        ((X, -X, X[:, 0]), {"nugget": 1e-6}, "nugget: auto takes no options"),
        ((X, -X, X[:, 0]), {"weights": X[:, 0]}, "importance weights are not supported"),
        ((X, -X, X[:, 0], "zero_variance"), {"weights": X[:, 0]}, "importance weights are not supported"),
        ((X, -X, X[:, 0], "control_functional"), {"nuget": 1e-6}, "unknown option 'nuget'"),
        ((X, -X, X[:, 0], "control_functional"), {"lengthscale": "a"}, "lengthscale"),
        ((X, -X, X[:, 0], "control_functional"), {"steps": 1.5}, "steps"),
        ((X, -X, X[:, 0], "neural"), {"hidden": 20}, "neural"),
        ((X, -X, X[:, 0]), {"names": ["a", "b"]}, "names: there are 2 for 1 integrals"),
        ((X, -X, X[:, 0]), {"folds": 1000}, "folds 1000: there are only 60 samples"),
        ((X.T, -X.T, X.T), {"chain": True}, "samples: with shape (2, 60) they are 2 points of 60 coordinates"),
        ((CHAINS, -CHAINS[:, :9], X[:, 0]), {"chain": True}, "scores: "),
        ((CHAINS, -CHAINS, CHAINS[:3, :, 0]), {"chain": True}, "values: "),
    ],
)
def test_mistakes(words, options, message):
    with pytest.raises(UserError) as raised:
        lowvar.integrate(*words, **options)
    assert message in str(raised.value)


def test_a_system_too_large_is_refused_before_it_is_built():
    sets = [normal(4000, 1, seed) for seed in range(5)]
    values = [np.sin(x[:, 0]) for x in sets]
    with pytest.raises(UserError, match="max_gigabytes"):
        lowvar.integrate(sets, [-x for x in sets], values, "vector_valued")


@pytest.mark.long
def test_the_example(repository, capsys):
    spec = importlib.util.spec_from_file_location("posterior_means", repository / "examples" / "posterior_means.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    said = capsys.readouterr().out
    assert "exp w[2]" in said
    errors = [line.split() for line in said.splitlines() if "Monte Carlo " in line and "control variates" in line]
    plain, ours = (np.array([float(line[at].strip(",")) for line in errors]) for at in (-4, -1))
    assert np.log(plain / ours).mean() > np.log(3)


def test_command_line(tmp_path, monkeypatch, capsys):
    from lowvar.cli import main

    monkeypatch.chdir(tmp_path)
    x = normal()
    np.savez(tmp_path / "mine.npz", samples=x, scores=-x, values=smooth(x))
    done = commands.lowvar(tmp_path, "integrate", "mine.npz", "--out", "table.csv")
    assert done.returncode == 0, done.stderr
    assert "exact_scores" in done.stdout
    sure = commands.lowvar(
        tmp_path, "integrate", "mine.npz", "--method", "zero_variance", "--exact-scores", "--polynomial"
    )
    assert "exact_scores" not in sure.stdout
    assert (tmp_path / "table.csv").read_text().startswith("task,method,value,standard_error")
    np.savez(tmp_path / "apart.npz", samples_0=x, samples_1=x[:20], scores_0=-x, scores_1=-x[:20],
             values_0=x[:, 0], values_1=x[:20, 1])  # fmt: skip
    assert main(["integrate", "apart.npz", "--method", "control_functional"]) == 0
    np.savez(tmp_path / "half.npz", samples=x, scores=-x)
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "odd.npz", samples=x, scores=-x, values=x[:, 0], weights=x[:, 0])
    before = sorted(tmp_path.iterdir())
    for words, message in (
        (["half.npz"], "there is no array 'values'"),
        (["nosuch.npz"], "no such file"),
        (["text.npz"], "not an npz file"),
        (["odd.npz"], "array 'weights'"),
        (["mine.npz", "--method", "cf"], "unknown integrator 'cf'"),
    ):
        capsys.readouterr()
        assert main(["integrate", *words, "--out", "never.csv"]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert len(said.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_what_the_sparse_method_learnt_has_an_axis_of_tasks():
    sets = [normal(40, seed=seed) for seed in range(3)]
    values = [np.sin(x[:, 0]) for x in sets]
    apart = lowvar.integrate(sets, [-x for x in sets], values, "sparse_control_functional").info
    same = lowvar.integrate(sets[0], -sets[0], smooth(sets[0]), "sparse_control_functional").info
    assert (apart["lengthscale"].shape, apart["penalty"].shape) == ((3, 2), (3,))
    assert (same["lengthscale"].shape, same["penalty"].shape) == ((2, 2), (2,))


@pytest.mark.parametrize("scalar", [np.float64, jnp.asarray, torch.as_tensor])
def test_lists_of_numbers_are_one_task(scalar):
    x = normal(30, 1)[:, 0]
    lists = [[scalar(float(one)) for one in of] for of in (x, -x, np.sin(x))]
    assert lowvar.integrate(*lists, "zero_variance").value == pytest.approx(
        lowvar.integrate(x, -x, np.sin(x), "zero_variance").value, abs=1e-5
    )
    rows = [list(x) for x in (normal(30), -normal(30))]
    assert (
        len(lowvar.integrate(*rows, [np.float64(one) for one in smooth(normal(30))[:, 0]], "zero_variance").value) == 1
    )


def test_draws_of_several_chains():
    x = normal(400).reshape(4, 100, 2)
    flat = x.reshape(-1, 2)
    below = lowvar.integrate(flat, -flat, smooth(flat), "zero_variance", chain=True)
    for values in (smooth(flat).reshape(4, 100, 2), smooth(flat)):
        assert np.array_equal(lowvar.integrate(x, -x, values, "zero_variance", chain=True).value, below.value)


def test_the_order_that_is_advised_leaves_points_to_judge_it():
    x = normal(26, 1)
    with pytest.raises(UserError, match="order 12 would do"):
        lowvar.integrate(x, -x, x[:, 0], "zero_variance", order=30)
    assert not lowvar.integrate(x, -x, x[:, 0], "zero_variance", order=12, exact_scores=True, polynomial=True).notes


def test_data_frames_know_names_and_order():
    import pandas as pd

    x = pd.DataFrame(normal(), columns=["a", "b"], index=[f"row {i}" for i in range(60)])
    values = pd.DataFrame(smooth(x.to_numpy()), columns=["first", "second"], index=x.index)
    found = lowvar.integrate(x, -x, values, "zero_variance")
    assert found.table["task"].tolist() == ["first", "second"]
    assert lowvar.integrate(x, -x, values["second"], "zero_variance").table["task"].tolist() == ["second"]
    numbered = lowvar.integrate(x, -x, values.reset_index(drop=True), "zero_variance", names=["u", "v"])
    assert numbered.table["task"].tolist() == ["u", "v"]
    for shuffled in (values.sample(frac=1, random_state=0), values["first"].iloc[::-1]):
        with pytest.raises(UserError, match=r"another order than that of samples; give values.loc\[samples.index\]"):
            lowvar.integrate(x, -x, shuffled)
    with pytest.raises(UserError, match="index differs from that of samples"):
        lowvar.integrate(x, -x, values.rename(index=lambda label: f"other {label}"))
    with pytest.raises(UserError, match=r"scores: its columns have another order .* give scores\[samples.columns\]"):
        lowvar.integrate(x, -x[["b", "a"]], values)
    other = lowvar.integrate(x, (-x).set_axis(["da", "db"], axis=1), values, "zero_variance")
    np.testing.assert_array_equal(other.value, found.value)


def test_a_pickled_result_has_all_but_its_fitted_function():
    x = normal()
    for method in ("zero_variance", "auto"):
        found = lowvar.integrate(x, -x, x[:, 0] ** 2, method=method)
        copy = pickle.loads(pickle.dumps(found))
        assert repr(copy) == repr(found)
        np.testing.assert_array_equal(copy.value, found.value)
        with pytest.raises(UserError, match="has no fitted function"):
            copy.fitted(x[:2], -x[:2])


def test_a_refusal_of_a_method_that_auto_tries_is_told(monkeypatch):
    from lowvar.integrals import auto as module

    def refuse(method, *rest):
        raise UserError("it needs 12 GB")

    monkeypatch.setattr(module, "cross_fit", refuse)
    x = normal()
    with pytest.warns(UserWarning, match="control_functional was not tried: it needs 12 GB"):
        found = lowvar.integrate(x, -x, x[:, 0])
    assert found.method == "monte_carlo"


def test_a_fitted_function_takes_points_of_the_samples_dimension():
    x = np.random.default_rng(0).normal(size=(200, 2))
    fitted = lowvar.integrate(x, -x, x[:, 0] ** 2 + x[:, 1], method="zero_variance").fitted
    points = np.array([[1.0, 2.0], [3.0, -1.0]])
    np.testing.assert_allclose(fitted(points, -points), [3, 8], rtol=1e-9)
    for width in (1, 3):
        other = np.resize(points, (2, width))
        with pytest.raises(UserError, match=f"points: they have {width} coordinates, but the samples have 2"):
            fitted(other, -other)
