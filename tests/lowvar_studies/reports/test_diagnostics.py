"""Tables of gradients along runs: the two errors, their ratios, what is left out, and what was chosen."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from traces import GRADIENTS, trace

from lowvar_studies.reports.variational import convergence as C
from lowvar_studies.reports.variational import diagnostics as D
from lowvar_studies.reports.variational import published, selection

STEP = SimpleNamespace(kind="step", beta=0.5, r=10)


def measured(*traces, optima=None):
    whole = pd.concat(traces, ignore_index=True)
    table = C.convergence(whole, optima or {}, dict.fromkeys(whole["problem"].unique(), 100))
    return D.measured(whole, table), table


def test_ratios_are_squared_norms_over_deviations_and_without_a_unit():
    measures, _ = measured(trace(**GRADIENTS))
    end = measures[measures["iteration"] == 20].iloc[0]
    assert end["snr_conditional"] == 16 / 2
    assert end["snr_true"] == 36 / 5
    assert end["snr_conditional_1"] == 4 / 2
    assert end["snr_true_1"] == pytest.approx(6 / 5)
    assert not measures["unresolved"].any()


def test_a_correction_below_zero_is_the_resolution_and_said():
    measures, _ = measured(trace(**GRADIENTS | {"squared_error": [4.0, -2.0, 25.0], "reference_error": 10.0}))
    middle = measures[measures["iteration"] == 10]
    assert (middle["squared_error"] == 1.0).all()
    assert measures.groupby("iteration")["unresolved"].all().to_dict() == {0: False, 10: True, 20: False}
    table = D.diagnostics(measures)
    assert table.groupby("iteration")["unresolved"].max().to_dict() == {0: 0, 10: 3, 20: 0}


def test_means_are_geometric_with_intervals_of_logarithms():
    values = [1.0, 10.0, 100.0]
    measures, _ = measured(trace(**GRADIENTS | {"variance": [4.0, 4.0, values], "test_log_likelihood": -2.0}))
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
    measures, _ = measured(trace(**GRADIENTS | {"squared_error": [4.0, 4.0, errors], "signal": [36.0, 36.0, signals]}))
    table = D.diagnostics(measures).set_index(["iteration", "quantity"])
    error = table.loc[20, "squared_error"]
    assert (error["mean"], error["low"]) == (pytest.approx(37.0), pytest.approx(0.037))  # not below zero
    assert error["high"] == pytest.approx(37 + 4.302652729911275 * np.std(errors, ddof=1) / np.sqrt(3))
    assert table.loc[(20, "signal"), "mean"] == pytest.approx(36.0)
    assert table.loc[(20, "snr_true"), "mean"] == pytest.approx(36 / np.sqrt(37))
    assert table.loc[(20, "snr_true_1"), "mean"] == pytest.approx(np.sqrt(36 / 37))


def test_ratio_of_means_has_a_jackknifed_interval():
    from lowvar_studies.reports.search import variance as search_variance

    a, b = np.random.default_rng(0).exponential(size=(2, 30))
    found = D.ratio_of_means([(1, a), (-1, b)])
    assert found == pytest.approx(search_variance.ratio_of_means(a, b))
    assert D.ratio_of_means([(0.5, a), (-0.5, b)]) == pytest.approx(np.sqrt(found))
    assert np.isnan(D.ratio_of_means([(1, a[:1]), (-1, b[:1])])[1:]).all()
    assert np.isnan(D.ratio_of_means([(1, a), (-1, 0 * b)])).all()


def test_a_mean_below_its_noise_is_the_resolution_of_the_draws():
    measures, _ = measured(trace(**GRADIENTS | {"mean2": [16.0, -0.3, 16.0]}))
    middle = measures[measures["iteration"] == 10]
    np.testing.assert_allclose(middle["mean2"], 0.1 * 4.0 / 100)
    np.testing.assert_allclose(middle["snr_conditional"], 0.004 / 2)
    assert measures.groupby("iteration")["unresolved"].all().to_dict() == {0: False, 10: True, 20: False}


def test_what_was_not_measured_has_no_rows():
    measures, _ = measured(trace(), trace("rqmc", test_log_likelihood=-1.0))
    table = D.diagnostics(measures)
    assert table.groupby("method")["quantity"].unique().map(set).to_dict() == {
        "mc": {"particles"}, "rqmc": {"particles", "test_log_likelihood"}}  # fmt: skip


def test_zeros_are_left_out_and_lost_repetitions_leave_no_mean():
    zero = trace(**GRADIENTS | {"variance": [4.0, 4.0, [0.0, 9.0, 9.0]]})
    lost = trace("rqmc", **GRADIENTS)
    last = (lost["iteration"] == 20) & (lost["repetition"] == 1)
    lost.loc[last, ["elbo", *GRADIENTS]] = np.nan
    lost.loc[last, "status"] = "diverged"
    measures, _ = measured(zero, lost)
    ends = D.diagnostics(measures)
    ends = ends[(ends["iteration"] == 20) & (ends["quantity"] == "variance")].set_index("method")
    assert (ends.loc["mc", "mean"], ends.loc["mc", "repetitions"]) == (pytest.approx(9.0), 2)
    assert np.isnan(ends.loc["rqmc", "mean"])
    assert ends["diverged"].to_dict() == {"mc": 0, "rqmc": 1}
    assert ends["best"].to_dict() == {"mc": True, "rqmc": False}


def test_fractions_are_of_the_largest_of_a_task():
    names = {"all": 1000, "half": 500}
    traces = [trace(problem=name, test_log_likelihood=[-3.0, -2.0, -rows / 1000]) for name, rows in names.items()]
    measures, _ = measured(*traces, trace(problem="other"))
    model = SimpleNamespace(model="m", dataset="d", guide=None)
    models = {**dict.fromkeys(names, model), "other": SimpleNamespace(model="o", dataset="d", guide=None)}
    table = D.fractions(measures, models, {**names, "other": 7}).set_index("problem")
    assert table["fraction"].to_dict() == {"all": 1.0, "half": 0.5}
    assert table["mean"].to_dict() == {"all": -1.0, "half": -0.5}
    assert set(table["task"]) == {"m on d"}


def test_sensitivity_and_selected_have_the_schedules():
    traces = [trace("mlmc_a", step=0.1, elbo=[-5.0, -4.0, -1.0]), trace("mlmc_b", step=0.1, elbo=[-5.0, -4.0, -3.0]),
              trace("mc", step=0.1, elbo=0.0)]  # fmt: skip
    _, table = measured(*traces)
    plans = {("p", "mlmc_a", "jax"): STEP, ("p", "mlmc_b", "jax"): SimpleNamespace(kind="step", beta=0.9, r=20)}
    found = selection.sensitivity(table, plans).set_index("method")
    assert found[["beta", "r", "below"]].to_dict("index") == {
        "mlmc_a": {"beta": 0.5, "r": 10, "below": 0.0}, "mlmc_b": {"beta": 0.9, "r": 20, "below": 2.0}}  # fmt: skip
    model = SimpleNamespace(model="hlr", dataset="toy", guide=None)
    _, table = measured(trace("mlmc"), trace("mc"), trace("storm"))
    chosen = selection.selected(table, {("p", "mlmc", "jax"): STEP}, {"p": model}).set_index("method")
    assert chosen.loc["mlmc", ["step_size", "beta", "r"]].tolist() == [0.1, 0.5, 10.0]
    assert chosen.loc["mlmc", "published_r"] == 221
    assert chosen.loc["mc", "published_step_size"] == 0.39893
    assert chosen.loc["storm", [name for name in chosen if name.startswith("published_")]].isna().all()
    assert published.numbers(published.SELECTED, "hlr", "anything")["mc"] == {"step_size": 0.39893}
    assert published.numbers(published.SELECTED, "logistic_regression", "anything") == {}
