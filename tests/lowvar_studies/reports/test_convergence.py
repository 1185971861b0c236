"""Tables out of traces: envelopes, optima that are not known, methods with settings of their own, times, schemes."""

import json

import numpy as np
import pandas as pd
import pytest
from traces import runs

from lowvar.errors import UserError
from lowvar_studies.reports.variational import convergence as A
from lowvar_studies.reports.variational import times as B
from lowvar_studies.reports.variational import variances as V

EPOCHS = (0, 1, 3)


def trace(method, elbos, problem="p", epochs=EPOCHS):
    """``elbos[step size] -> (epochs, repetitions)``."""
    counts = {"problem": problem, "epochs": epochs, "per": 4, "gradients": 20, "hvps": 20}
    return pd.concat([runs(method, values, size, **counts) for size, values in elbos.items()], ignore_index=True)


FAST = {0.1: [[-9, -9], [-3, -4], [-5, -5]], 0.01: [[-9, -9], [-8, -8], [-1, -2]]}


def test_the_envelope_is_the_best_step_at_each_epoch():
    traces = trace("naive", FAST)
    table = A.convergence(traces, {}, {"p": 20})
    found = table[table["envelope"]].set_index("epoch")
    assert found["step_size"].to_dict() == {0: 0.1, 1: 0.1, 3: 0.01}
    assert found["elbo_mean"].to_dict() == {0: -9.0, 1: -3.5, 3: -1.5}
    assert table.loc[table["best"], "step_size"].unique().tolist() == [0.01]
    paths = A.paths(traces, table, {})
    assert paths["elbo"].tolist() == [-9, -9, -3, -4, -1, -2]
    assert paths["step_size"].tolist() == [0.1, 0.1, 0.1, 0.1, 0.01, 0.01]
    assert A.best(table)["step_size"].tolist() == [0.01]


def test_without_a_known_optimum_there_are_no_gaps():
    """The run that saw the most would be its own reference, with a gap of rounding's size."""
    both = pd.concat([trace("naive", FAST), trace("naive", FAST, "q")], ignore_index=True)
    table = A.convergence(both, {"q": 0.0}, {"p": 20, "q": 20})
    gaps = table.groupby("problem")["gap_mean"]
    assert gaps.count().to_dict() == {"p": 0, "q": 6}
    assert A.largest_seen(both, "p") == -1.0
    ends = A.ends(both, table, {"q": 0.0})
    assert ends.loc[ends["problem"] == "p", "gap"].isna().all()
    assert (ends.loc[ends["problem"] == "q", "gap"] == -ends.loc[ends["problem"] == "q", "elbo"]).all()
    marks = table.set_index("problem")[["best", "envelope"]]
    assert (marks.loc["p"].to_numpy() == marks.loc["q"].to_numpy()).all()


def test_methods_have_steps_epochs_and_repetitions_of_their_own():
    few = trace("smiso", {1e-4: [[-9], [-7]], 1e-5: [[-9], [-8]], 1e-6: [[-9], [-9]]}, epochs=(0, 2))
    table = A.convergence(pd.concat([trace("naive", FAST), few], ignore_index=True), {}, {"p": 20})
    assert table.groupby("method")["repetitions"].max().to_dict() == {"naive": 2, "smiso": 1}
    best = A.best(table).set_index("method")
    assert best["step_size"].to_dict() == {"naive": 0.01, "smiso": 1e-4}
    assert best["epoch"].to_dict() == {"naive": 3, "smiso": 2}
    assert np.isnan(best.loc["smiso", "elbo_low"])


def test_a_step_at_which_some_repetitions_diverged_is_nowhere_the_best():
    """A start that is not finite is no reason to leave a line out, either."""
    inf = np.inf
    lost = {0.1: [[-inf, -9], [-3, np.nan], [0, -inf]], 0.01: [[-inf, -9], [-8, -8], [-5, -6]]}
    table = A.convergence(trace("naive", lost), {"p": 0.0}, {"p": 20})
    assert table.set_index(["step_size", "epoch"])["diverged"].to_dict() == {
        (0.1, 0): 1, (0.1, 1): 1, (0.1, 3): 1, (0.01, 0): 1, (0.01, 1): 0, (0.01, 3): 0,
    }  # fmt: skip
    assert table.loc[table["envelope"], ["step_size", "epoch"]].to_numpy().tolist() == [[0.01, 1], [0.01, 3]]
    assert table.loc[table["best"], "step_size"].unique().tolist() == [0.01]
    ends = A.ends(trace("naive", lost), table, {"p": 0.0})
    assert ends.groupby("step_size")["best"].all().to_dict() == {0.01: True, 0.1: False}
    assert ends.loc[ends["step_size"] == 0.1, "status"].tolist() == ["ok", "diverged"]


@pytest.mark.filterwarnings("error")
def test_huge_values():
    elbos = {0.1: [[-1e200, -3e200], [-1e30, -1e31], [-5, -6]]}
    table = A.convergence(trace("naive", elbos), {"p": 0.0}, {"p": 20})
    assert table["elbo_mean"].tolist()[1:] == [-5.5e30, -5.5]
    assert table["gap_mean"].tolist()[2] == pytest.approx(np.sqrt(30))
    assert np.isfinite(table["elbo_mean"]).all()


def test_schemes_are_relative_to_as_many_independent_points():
    rows = [
        {"problem": "p", "method": "joint", "block": "all", "source": "total", "end": end, "noise": eps,
         "particles": samples, "variance": v, "low": v * 0.9, "high": v * 1.1, "batch_size": 5}
        for end in (False, True)
        for eps, samples, v in (("iid", 1, 80.0), ("iid", 8, 10.0), ("rqmc", 8, 2.0), ("rqmc", 16, 1.0), ("antithetic", 8, -1.0))
    ]  # fmt: skip
    found = V.schemes(pd.DataFrame(rows)).set_index(["noise", "particles"])
    assert len(found) == 5
    assert found.loc[("iid", 8), ["to_iid", "to_iid_low", "to_iid_high"]].tolist() == [1.0, 1.0, 1.0]
    here = found.loc[("rqmc", 8)]
    assert here["to_iid"] == pytest.approx(0.2)
    assert here["to_iid_high"] / here["to_iid"] == pytest.approx(np.exp(0.1 * np.sqrt(2)))
    assert found.loc[[("rqmc", 16), ("antithetic", 8)], "to_iid"].isna().all()


def test_counts_gaps_and_the_best_step():
    traces = trace("naive", {0.1: [[-9, -9], [-2, -2], [-1, -2]], 0.2: [[-9, -9], [-2, -2], [-0.5, -0.5]]})
    table = A.convergence(traces, {"p": 0.0}, {"p": 20})
    last = table[table["epoch"] == 3].set_index("step_size")
    assert last.loc[0.1, "gap_mean"] == pytest.approx(np.sqrt(2))
    assert last["best"].to_dict() == {0.1: False, 0.2: True}
    assert (last["oracles"] == 120).all()
    assert (last["passes"] == 6.0).all()
    ends = A.ends(traces, table, {"p": 0.0})
    assert ends.loc[ends["best"], "step_size"].unique().tolist() == [0.2]
    assert ends["step_size"].unique().tolist() == [0.1, 0.2]


def test_a_method_that_diverged_at_every_step():
    traces = trace("naive", {0.1: [[-9, -9], [-2, -2], [np.nan, np.nan]]})
    table = A.convergence(traces, {"p": 0.0}, {"p": 20})
    last = table[table["epoch"] == 3].iloc[0]
    assert (last["gap_mean"], last["diverged"], last["best"]) == (np.inf, 2, False)
    assert not A.ends(traces, table, {"p": 0.0})["best"].any()


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "value"), [("sonar", -154.130), pytest.param("australian", -253.816, marks=pytest.mark.long)]
)
def test_known_optima(mirror, tmp_path, name, value):
    from lowvar_studies.datasets.fetch import fetch
    from lowvar_studies.datasets.load import load
    from lowvar_studies.datasets.prepare import prepare
    from lowvar_studies.models.catalogue import build

    fetch(name, raw=tmp_path, mirror=mirror)
    p = build("logistic_regression", load(prepare(name, raw=tmp_path, out=tmp_path / "p.npz")).arrays)
    assert A.optimum(p) == pytest.approx(value, abs=6e-4)


def test_times_of_a_benchmark_count_for_the_same_problem_and_settings(tmp_path):
    from lowvar_studies.jobs.load import load_experiment

    path = tmp_path / "e.yaml"
    path.write_text(
        "name: e\ntitle: E\nproblems: {mnist: {model: softmax_regression, dataset: mnist, scaling: unit}}\n"
        "methods: {naive: }\nsolver: {optimizer: adam, step_sizes: [1.0e-2], batch_size: 100, epochs: 1}\n"
        "scales: {smoke: {}, quick: {}, paper: {}}\n"
    )
    experiment = load_experiment(path, "paper")
    about = {"problem": "mnist", "model": "softmax_regression", "dataset": "mnist", "optimizer": "adam",
             "batch_size": 100, "steps": [{"method": "naive", "backend": "jax", "seconds": [1, 2.5]}]}  # fmt: skip
    file = tmp_path / "mnist.json"
    for change, count in (({}, 2), ({"batch_size": 10}, 0), ({"optimizer": "sgd"}, 0), ({"problem": "other"}, 0)):
        file.write_text(json.dumps(about | change))
        found = B.times([file], experiment)
        assert len(found) == count, change
        assert list(found) == ["problem", "method", "backend", "round", "seconds"]
    for wrong in ("", "[]", json.dumps(about | {"steps": 3})):
        file.write_text(wrong)
        with pytest.raises(UserError, match=r"mnist\.json: not a file of times"):
            B.times([file], experiment)
