"""``lowvar.integrate`` and ``lowvar integrate``: users' own samples, and users' mistakes."""

import importlib.util
import pickle

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import torch
from samples_of_normal import normal, smooth

import lowvar
from lowvar.cli import main
from lowvar.errors import UserError

EXACT = np.array([np.exp(0.045), 1.0])
X = normal()


@pytest.mark.parametrize(
    "array", [np.asarray, jnp.asarray, torch.as_tensor, np.ndarray.tolist], ids=["numpy", "jax", "torch", "list"]
)
def test_any_arrays(array):
    found = lowvar.integrate(array(X), array(-X), array(smooth(X)), exact_scores=True)
    assert np.abs(found.value - EXACT).max() < 1e-3
    assert found.table["gain"].min() >= 1


@pytest.mark.parametrize("scalar", [np.float64, jnp.asarray, torch.as_tensor])
def test_lists_of_numbers_are_one_task(scalar):
    x = normal(30, 1)[:, 0]
    lists = [[scalar(float(one)) for one in of] for of in (x, -x, np.sin(x))]
    expected = lowvar.integrate(x, -x, np.sin(x), "zero_variance").value
    assert lowvar.integrate(*lists, "zero_variance").value == pytest.approx(expected, abs=1e-5)


def test_tasks_with_points_of_their_own():
    first, second = normal(12, seed=1), normal(30, seed=2)
    found = lowvar.integrate([first, second], [-first, -second], [smooth(first)[:, 0], 1.1 * smooth(second)[:, 0]])
    assert np.abs(found.value - EXACT[0] * np.array([1, 1.1])).max() < 0.02
    assert found.table["task"].tolist() == ["f0", "f1"]


def test_draws_of_several_chains():
    x = normal(400).reshape(4, 100, 2)
    flat = x.reshape(-1, 2)
    below = lowvar.integrate(flat, -flat, smooth(flat), "zero_variance", chain=True)
    for values in (smooth(flat).reshape(4, 100, 2), smooth(flat)):
        assert np.array_equal(lowvar.integrate(x, -x, values, "zero_variance", chain=True).value, below.value)


def test_fitted_functions():
    x = normal(dim=1)
    found = lowvar.integrate(x, -x, np.sin(x[:, 0]), "control_functional", names="sine")
    assert "sine" in repr(found)
    assert np.abs(found.fitted(np.array([[0.3]]), np.array([[-0.3]])) - np.sin(0.3)) < 1e-3
    plain = lowvar.integrate(x, -x, np.sin(x[:, 0]), "monte_carlo")
    assert plain.fitted(x, -x)[5] == pytest.approx(np.sin(x[:, 0]).mean(), rel=1e-12)
    fitted = lowvar.integrate(X, -X, X[:, 0] ** 2 + X[:, 1], "zero_variance").fitted
    points = np.array([[1.0, 2.0], [3.0, -1.0]])
    np.testing.assert_allclose(fitted(points, -points), [3, 8], rtol=1e-9)
    with pytest.raises(UserError, match="points"):
        fitted(points[:, :1], -points[:, :1])


def test_an_estimate_far_from_monte_carlo_is_noticed():
    x = np.random.default_rng(2).normal(size=(15, 1))  # too few to test the scores
    with pytest.warns(UserWarning, match="standard errors of Monte Carlo away"):
        lowvar.integrate(x, -x + 5, 100 + x[:, 0], "control_functional")


@pytest.mark.parametrize(
    "options", [{"lengthscale": [1.0, 2.0]}, {"lengthscale": 1.0, "trend": False}, {"nugget": 1e-6}]
)
@pytest.mark.parametrize("method", ["control_functional", "vector_valued"])
def test_what_is_given_is_not_learnt(method, options):
    found = lowvar.integrate(X, -X, smooth(X)[:, 0], method, **options)
    assert abs(found.value[0] - EXACT[0]) < 0.02
    if "lengthscale" in options:
        np.testing.assert_allclose(np.ravel(found.info["lengthscale"]), np.broadcast_to(options["lengthscale"], 2))


def test_copies_and_constants():
    again = np.concatenate([X, X[:10]])
    found = lowvar.integrate(again, -again, smooth(again), "control_functional", exact_scores=True)
    assert found.notes[0] == "10 duplicate samples were dropped"
    assert np.allclose(found.value, lowvar.integrate(X, -X, smooth(X), "control_functional").value, rtol=1e-6)
    with pytest.warns(UserWarning, match="equal at all samples"):
        found = lowvar.integrate(X, -X, np.full(60, 2.5))
    assert found.value.tolist() == [2.5]
    assert np.isnan(found.standard_error[0])


NAN = np.where(X.max() == X, np.nan, X)
CHAINS = X.reshape(4, 15, 2)
FIVE = np.repeat(X[:2], 5, 0)


@pytest.mark.parametrize(
    ("words", "options", "argument"),
    [
        ((X, -X[:50], X[:, 0]), {}, "scores"),
        (([X, X], [-X], [X[:, 0], X[:, 0]]), {}, "scores"),
        ((X, -X, X[:40, 0]), {}, "values"),
        ((X, -X, NAN), {}, "values: nan"),
        ((X, -X, [["a"]] * 60), {}, "values"),
        ((X, -X, 1e-170 * X), {}, "values: squares"),
        ((X, -X, 1j * X), {}, "values"),
        ((np.r_[X, X], -np.r_[X, X], np.r_[X[:, 0], 3 + X[:, 0]], "control_functional"), {}, "values: rows 0 and 60"),
        ((NAN, -X, X[:, 0]), {}, "samples: nan"),
        ((X[:2], -X[:2], X[:2, 0]), {}, "too few"),
        ((FIVE, -FIVE, FIVE[:, 0], "vector_valued"), {}, "only 2 of 10"),
        ((X[None], -X[None], X[:, 0]), {}, "samples: .* chain=True"),
        ((X.T, -X.T, X.T), {"chain": True}, "samples"),
        ((CHAINS, -CHAINS[:, :9], X[:, 0]), {"chain": True}, "scores"),
        ((CHAINS, -CHAINS, CHAINS[:3, :, 0]), {"chain": True}, "values"),
        (([X, X[:, :1]], [-X, -X[:, :1]], [X[:, 0], X[:, 0]]), {}, "axis 1"),
        ((X, -X, X[:, 0], "control_functionl"), {}, "control_functionl"),
        ((X, -X, X[:, 0], lambda: 3), {}, "Integrator"),
        ((X, -X, X[:, 0]), {"nugget": 1e-6}, "nugget"),
        ((X, -X, X[:, 0]), {"weights": X[:, 0]}, "weights"),
        ((X, -X, X[:, 0], "zero_variance"), {"weights": X[:, 0]}, "weights"),
        ((X, -X, X[:, 0], "control_functional"), {"lengthscale": "a"}, "lengthscale"),
        ((X, -X, X[:, 0], "control_functional"), {"steps": 1.5}, "steps"),
        ((X, -X, X[:, 0]), {"names": ["a", "b"]}, "names"),
        ((X, -X, X[:, 0]), {"folds": 1000}, "folds"),
        ((X[:26, :1], -X[:26, :1], X[:26, 0], "zero_variance"), {"order": 30}, "order 12 would do"),
    ],
)
def test_mistakes(words, options, argument):
    with pytest.raises(UserError, match=argument):
        lowvar.integrate(*words, **options)


def test_the_order_that_is_advised_leaves_points_to_judge_it():
    x = normal(26, 1)
    assert not lowvar.integrate(x, -x, x[:, 0], "zero_variance", order=12, exact_scores=True, polynomial=True).notes


def test_a_system_too_large_is_refused_before_it_is_built():
    sets = [normal(4000, 1, seed) for seed in range(5)]
    with pytest.raises(UserError, match="max_gigabytes"):
        lowvar.integrate(sets, [-x for x in sets], [np.sin(x[:, 0]) for x in sets], "vector_valued")


@pytest.mark.long
def test_the_example(repository, capsys):
    spec = importlib.util.spec_from_file_location("posterior_means", repository / "examples" / "posterior_means.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    said = capsys.readouterr().out
    assert "exp w[2]" in said
    errors = [line.split() for line in said.splitlines() if "Monte Carlo " in line and "control variates" in line]
    plain, ours = (np.array([float(line[at].strip(",")) for line in errors]) for at in (-4, -1))
    assert np.log(plain / ours).mean() > np.log(3)


def test_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", samples=X, scores=-X, values=smooth(X))
    assert main(["integrate", "mine.npz", "--out", "table.csv"]) == 0
    assert "--exact-scores" in capsys.readouterr().out
    assert (tmp_path / "table.csv").read_text().startswith("task,method,value,standard_error")
    assert main(["integrate", "mine.npz", "--method", "zero_variance", "--exact-scores", "--polynomial"]) == 0
    assert "--exact-scores" not in capsys.readouterr().out
    np.savez("apart.npz", samples_0=X, samples_1=X[:20], scores_0=-X, scores_1=-X[:20], values_0=X[:, 0],
             values_1=X[:20, 1])  # fmt: skip
    assert main(["integrate", "apart.npz", "--method", "zero_variance"]) == 0
    np.savez("half.npz", samples=X, scores=-X)
    np.savez("odd.npz", samples=X, scores=-X, values=X[:, 0], weights=X[:, 0])
    (tmp_path / "text.npz").write_text("no")
    before = sorted(tmp_path.iterdir())
    for file, named in (("half", "values"), ("nosuch", "nosuch"), ("text", "not an npz file"), ("odd", "weights")):
        capsys.readouterr()
        assert main(["integrate", f"{file}.npz", "--out", "never.csv"]) == 2
        said = capsys.readouterr().err
        assert named in said
        assert len(said.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_data_frames_know_names_and_order():
    x = pd.DataFrame(X, columns=["a", "b"], index=[f"row {i}" for i in range(60)])
    values = pd.DataFrame(smooth(X), columns=["first", "second"], index=x.index)
    found = lowvar.integrate(x, -x, values, "zero_variance")
    assert found.table["task"].tolist() == ["first", "second"]
    assert lowvar.integrate(x, -x, values["second"], "zero_variance").table["task"].tolist() == ["second"]
    numbered = lowvar.integrate(x, -x, values.reset_index(drop=True), "zero_variance", names=["u", "v"])
    assert numbered.table["task"].tolist() == ["u", "v"]
    other = lowvar.integrate(x, (-x).set_axis(["da", "db"], axis=1), values, "zero_variance")
    np.testing.assert_array_equal(other.value, found.value)
    for scores, wrong in (
        (-x, values.sample(frac=1, random_state=0)),
        (-x, values.rename(index=lambda label: f"other {label}")),
        (-x[["b", "a"]], values),
    ):
        with pytest.raises(UserError, match=r"another order|index differs"):
            lowvar.integrate(x, scores, wrong)


def test_a_pickled_result_has_all_but_its_fitted_function():
    found = lowvar.integrate(X, -X, X[:, 0] ** 2, "zero_variance")
    copy = pickle.loads(pickle.dumps(found))
    assert repr(copy) == repr(found)
    np.testing.assert_array_equal(copy.value, found.value)
    with pytest.raises(UserError, match="fitted"):
        copy.fitted(X[:2], -X[:2])


def test_a_refusal_of_a_method_that_auto_tries_is_told(monkeypatch):
    def refuse(method, *rest):
        raise UserError("it needs 12 GB")

    monkeypatch.setattr("lowvar.integrals.auto.cross_fit", refuse)
    with pytest.warns(UserWarning, match="control_functional was not tried: it needs 12 GB"):
        found = lowvar.integrate(X, -X, X[:, 0])
    assert found.method == "monte_carlo"
