"""Tables of variational runs: gaps and envelopes, errors of gradients along runs, settings, times, noise schemes."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from traces import GRADIENTS, runs
from traces import trace as stops

from lowvar.errors import UserError
from lowvar_studies.reports.variational import convergence as A
from lowvar_studies.reports.variational import diagnostics as D
from lowvar_studies.reports.variational import selection
from lowvar_studies.reports.variational import times as B
from lowvar_studies.reports.variational import variances as V
from lowvar_studies.reports.variational.family import summary

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
    table = A.convergence(pd.concat([trace("naive", FAST), few], ignore_index=True), {"p": 0.0}, {"p": 20})
    best = A.best(table).set_index("method")
    assert best[["step_size", "epoch", "repetitions"]].T.to_dict("list") == {
        "naive": [0.01, 3, 2],
        "smiso": [1e-4, 2, 1],
    }
    assert best.loc["naive", ["oracles", "passes", "gap_mean"]].tolist() == [120, 6.0, pytest.approx(np.sqrt(2))]
    assert np.isnan(best.loc["smiso", "elbo_low"])


def test_a_step_at_which_some_repetitions_diverged_is_nowhere_the_best():
    """A start that is not finite is no reason to leave a line out, either."""
    inf = np.inf
    lost = {0.1: [[-inf, -9], [-3, np.nan], [0, -inf]], 0.01: [[-inf, -9], [-8, -8], [-5, -6]]}
    table = A.convergence(trace("naive", lost), {"p": 0.0}, {"p": 20})
    gone = A.convergence(trace("naive", {0.1: [[-9, -9], [-2, -2], [np.nan, np.nan]]}), {"p": 0.0}, {"p": 20}).iloc[-1]
    assert (gone["gap_mean"], gone["diverged"], gone["best"]) == (inf, 2, False)  # at every step
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


def designs(runs):
    """The end of ``runs`` as ``{(noise, particles): V_eps of each run}``, with no other noise."""
    return pd.DataFrame(
        {"problem": "p", "method": "joint", "block": "all", "end": end, "noise": noise, "particles": particles,
         "run": run, "replicate": replicate, "subsampling": 0.0, "monte_carlo": v if end else 1e9, "interaction": 0.0}
        for (noise, particles), values in runs.items() for run, v in enumerate(values)
        for replicate in (0, 1) for end in (False, True)
    )  # fmt: skip


def test_schemes_are_relative_to_as_many_independent_points():
    runs = {("iid", 1): [70.0, 90.0], ("iid", 8): [5.0, 15.0], ("rqmc", 8): [1.0, 3.0], ("rqmc", 16): [1.0, 1.0],
            ("antithetic", 8): [-1.0, -1.0]}  # fmt: skip
    found = V.schemes(designs(runs), {"p": (5, 7)})
    found = found[found["source"] == "total"].set_index(["noise", "particles"])
    assert len(found) == 5
    assert found.loc[("iid", 8), ["to_iid", "to_iid_low", "to_iid_high"]].tolist() == [1.0, 1.0, 1.0]
    here, spread = found.loc[("rqmc", 8)], found.loc[("iid", 8)]
    assert here["to_iid"] == pytest.approx(0.2)
    assert here["to_iid_low"] == here["to_iid_high"] == pytest.approx(0.2)  # runs differ, their ratios do not
    assert spread["high"] - spread["low"] > 10
    assert found.loc[[("rqmc", 16), ("antithetic", 8)], "to_iid"].isna().all()


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


# errors of gradients ----------------------------------------------------------------------------------------------

STEP = SimpleNamespace(kind="step", beta=0.5, r=10)


def measured(*traces):
    whole = pd.concat(traces, ignore_index=True)
    table = A.convergence(whole, {}, dict.fromkeys(whole["problem"].unique(), 100))
    return D.measured(whole, table), table


def test_ratios_are_squared_norms_over_deviations_and_without_a_unit():
    measures, _ = measured(stops(**GRADIENTS))
    end = measures[measures["iteration"] == 20].iloc[0]
    assert end["snr_conditional"] == 16 / 2
    assert end["snr_true"] == 36 / 5
    assert end["snr_conditional_1"] == 4 / 2
    assert end["snr_true_1"] == pytest.approx(6 / 5)
    assert not measures["unresolved"].any()


def test_a_correction_below_zero_is_the_resolution_and_said():
    """Of the reference gradient's noise, or of the draws behind a mean."""
    for columns, name, least in (
        ({"squared_error": [4.0, -2.0, 25.0], "reference_error": 10.0}, "squared_error", 1.0),
        ({"mean2": [16.0, -0.3, 16.0]}, "mean2", 0.1 * 4.0 / 100),
    ):
        measures, _ = measured(stops(**GRADIENTS | columns))
        np.testing.assert_allclose(measures.loc[measures["iteration"] == 10, name], least)
        assert measures.groupby("iteration")["unresolved"].all().to_dict() == {0: False, 10: True, 20: False}
        assert D.diagnostics(measures).groupby("iteration")["unresolved"].max().to_dict() == {0: 0, 10: 3, 20: 0}


def test_means_are_geometric_with_intervals_of_logarithms():
    values = [1.0, 10.0, 100.0]
    measures, _ = measured(stops(**GRADIENTS | {"variance": [4.0, 4.0, values], "test_log_likelihood": -2.0}))
    table = D.diagnostics(measures).set_index(["iteration", "quantity"])
    row = table.loc[20, "variance"]
    low, high = np.exp(np.log(10) * (1 + np.array([-1, 1]) * 4.302652729911275 / np.sqrt(3)))
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((10.0, low, high))
    assert table.loc[(20, "test_log_likelihood"), "mean"] == -2.0
    assert table.loc[(20, "particles"), "mean"] == 8.0
    assert set(table.index.get_level_values("quantity")) == set(D.QUANTITIES)
    assert (table["repetitions"] == 3).all()


def test_means_of_realised_errors_are_arithmetic_and_true_ratios_are_made_of_them():
    errors, signals = [1.0, 10.0, 100.0], [30.0, 36.0, 42.0]
    measures, _ = measured(stops(**GRADIENTS | {"squared_error": [4.0, 4.0, errors], "signal": [36.0, 36.0, signals]}))
    table = D.diagnostics(measures).set_index(["iteration", "quantity"])
    error = table.loc[20, "squared_error"]
    assert (error["mean"], error["low"]) == (pytest.approx(37.0), pytest.approx(0.037))  # not below zero
    assert error["high"] == pytest.approx(37 + 4.302652729911275 * np.std(errors, ddof=1) / np.sqrt(3))
    assert table.loc[(20, "signal"), "mean"] == pytest.approx(36.0)
    assert table.loc[(20, "snr_true"), "mean"] == pytest.approx(36 / np.sqrt(37))
    assert table.loc[(20, "snr_true_1"), "mean"] == pytest.approx(np.sqrt(36 / 37))


def test_ratio_of_means_has_a_jackknifed_interval():
    a, b = np.random.default_rng(0).exponential(size=(2, 30))
    found = D.ratio_of_means([(1, a), (-1, b)])
    assert D.ratio_of_means([(0.5, a), (-0.5, b)]) == pytest.approx(np.sqrt(found))
    assert np.isnan(D.ratio_of_means([(1, a[:1]), (-1, b[:1])])[1:]).all()
    assert np.isnan(D.ratio_of_means([(1, a), (-1, 0 * b)])).all()


def test_what_was_not_measured_has_no_rows():
    measures, _ = measured(stops(), stops("rqmc", test_log_likelihood=-1.0))
    table = D.diagnostics(measures)
    assert table.groupby("method")["quantity"].unique().map(set).to_dict() == {
        "mc": {"particles"}, "rqmc": {"particles", "test_log_likelihood"}}  # fmt: skip


def test_zeros_are_left_out_and_lost_repetitions_leave_no_mean():
    zero = stops(**GRADIENTS | {"variance": [4.0, 4.0, [0.0, 9.0, 9.0]]})
    lost = stops("rqmc", **GRADIENTS)
    last = (lost["iteration"] == 20) & (lost["repetition"] == 1)
    lost.loc[last, ["elbo", *GRADIENTS]] = np.nan
    lost.loc[last, "status"] = "diverged"
    measures, _ = measured(zero, lost)
    ends = D.diagnostics(measures)
    ends = ends[(ends["iteration"] == 20) & (ends["quantity"] == "variance")].set_index("method")
    assert (ends.loc["mc", "mean"], ends.loc["mc", "repetitions"]) == (pytest.approx(9.0), 2)
    assert np.isnan(ends.loc["rqmc", "mean"])
    assert ends["diverged"].to_dict() == {"mc": 0, "rqmc": 1}
    of = D.diagnostics(measures).query("method == 'rqmc' and iteration == 20").set_index("quantity")["mean"]
    assert (np.isnan(of["squared_error"]), of["particles"] > 0) == (True, True)  # the schedule knows N_t
    assert ends["best"].to_dict() == {"mc": True, "rqmc": False}


def test_fractions_are_of_the_largest_of_a_task():
    names = {"all": 1000, "half": 500}
    traces = [stops(problem=name, test_log_likelihood=[-3.0, -2.0, -rows / 1000]) for name, rows in names.items()]
    measures, _ = measured(*traces, stops(problem="other"))
    model = SimpleNamespace(model="m", dataset="d", guide=None)
    models = {**dict.fromkeys(names, model), "other": SimpleNamespace(model="o", dataset="d", guide=None)}
    table = D.fractions(measures, models, {**names, "other": 7}).set_index("problem")
    assert table["fraction"].to_dict() == {"all": 1.0, "half": 0.5}
    assert table["mean"].to_dict() == {"all": -1.0, "half": -0.5}
    assert set(table["task"]) == {"m on d"}


def test_sensitivity_and_selected_have_the_schedules():
    traces = [stops("mlmc_a", step=0.1, elbo=[-5.0, -4.0, -1.0]), stops("mlmc_b", step=0.1, elbo=[-5.0, -4.0, -3.0]),
              stops("mc", step=0.1, elbo=0.0)]  # fmt: skip
    _, table = measured(*traces)
    plans = {("p", "mlmc_a", "jax"): STEP, ("p", "mlmc_b", "jax"): SimpleNamespace(kind="step", beta=0.9, r=20)}
    found = selection.sensitivity(table, plans, {"mlmc_a": "mlmc", "mlmc_b": "mlmc"}).set_index("method")
    apart = selection.sensitivity(table, plans, {"mlmc_a": "mlmc", "mlmc_b": "naive"}).set_index("method")
    assert apart["below"].to_dict() == {"mlmc_a": 0.0, "mlmc_b": 0.0}  # each below its estimator's best
    assert found[["beta", "r", "below"]].to_dict("index") == {
        "mlmc_a": {"beta": 0.5, "r": 10, "below": 0.0}, "mlmc_b": {"beta": 0.9, "r": 20, "below": 2.0}}  # fmt: skip
    model = SimpleNamespace(model="hlr", dataset="toy", guide=None)
    _, table = measured(stops("mlmc"), stops("mc"), stops("storm"))
    chosen = selection.selected(table, {("p", "mlmc", "jax"): STEP}, {"p": model}).set_index("method")
    assert chosen.loc["mlmc", ["step_size", "beta", "r"]].tolist() == [0.1, 0.5, 10.0]
    assert chosen.loc["mlmc", "published_r"] == 221
    assert chosen.loc["mc", "published_step_size"] == 0.39893
    assert chosen.loc["storm", [name for name in chosen if name.startswith("published_")]].isna().all()
    tried = chosen.reset_index().assign(trials=[50.0, np.nan, np.nan])
    shown = summary({"selected": tried})[1].set_index("method")
    assert shown.loc["mlmc", "r"] == "10 (published 221)"
    assert shown.loc["storm", ["step_size", "beta"]].tolist() == ["0.1", ""]
    assert summary({"selected": tried.assign(trials=np.nan)}) is None
    assert summary({}) is None
