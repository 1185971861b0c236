"""Tables of errors of integrals against numbers that were worked out by hand, and against known distributions."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from traces import estimates as trace

from lowvar.errors import UserError
from lowvar_studies.jobs.commands import nested
from lowvar_studies.reports.integral import errors as A
from lowvar_studies.reports.integral import estimates as E
from lowvar_studies.reports.integral.family import metrics, summary
from lowvar_studies.reports.integral.illustrations import predictive

TRUTH = 3.0


def truth(*tasks, error=0.0, problem="p"):
    tasks = tasks or ("f",)
    return pd.DataFrame({"problem": problem, "task": list(tasks), "truth": TRUTH, "truth_error": error, "how": "known"})


def gaussian(bias, sd, n, seed=0):
    return TRUTH + bias + sd * np.random.default_rng(seed).standard_normal(n)


def test_errors_of_a_few_repetitions_by_hand():
    table = A.errors(trace([4.0, 2.0, 6.0, 3.0], se=[1.0, 0.1, 2.0, np.nan], flags=["", "few_points", "", ""]), truth())
    (row,) = table.to_dict("records")  # errors 1, -1, 3, 0
    assert (row["mae"], row["bias"], row["repetitions"], row["failed"]) == (1.25, 0.75, 4, 0)
    assert row["rmse"] == pytest.approx(np.sqrt(11 / 4))
    assert row["sd"] == pytest.approx(np.sqrt((11 - 4 * 0.75**2) / 3))
    assert row["mae_se"] == pytest.approx(np.std([1, 1, 3, 0], ddof=1) / 2)
    assert row["mae_high"] - row["mae"] == pytest.approx(3.182446 * row["mae_se"])  # t with 3 degrees of freedom
    assert row["sd_low"] == pytest.approx(row["sd"] * np.sqrt(3 / 9.348404))  # chi-square with as many
    assert row["sd_high"] == pytest.approx(row["sd"] * np.sqrt(3 / 0.2157953))
    assert row["coverage"] == 0.5  # 1 of 1, 0.1 of -1, 2 of 3; one repetition gave none and counts as not covered
    assert (row["flagged"], row["standard_error_median"], row["resolved"]) == (0.25, 1.0, True)
    assert np.isnan([row["rmse_low"], row["to_mc"]]).all()  # too few for a bootstrap, no Monte Carlo


@pytest.mark.long
def test_intervals_cover_what_they_are_of():
    """Of 120 experiments with known bias and spread, about 95 % of the intervals contain what is estimated."""
    bias, sd, n, count = 0.3, 0.5, 40, 120
    table = [trace(gaussian(bias, sd, n, seed), problem=f"p{seed}") for seed in range(count)]
    true = pd.concat([truth(problem=f"p{seed}") for seed in range(count)])
    table = A.errors(pd.concat(table), true)
    split = A.decomposition(pd.concat([trace(gaussian(bias, sd, n, s), problem=f"p{s}") for s in range(count)]), true)
    from scipy.stats import norm

    folded = sd * np.sqrt(2 / np.pi) * np.exp(-((bias / sd) ** 2) / 2) + bias * (1 - 2 * norm.cdf(-bias / sd))
    for rows, name, known in (
        (table, "bias", bias), (table, "sd", sd), (table, "mae", folded), (table, "rmse", np.hypot(bias, sd)),
        (split, "bias2", bias**2), (split, "variance", sd**2), (split, "mse", bias**2 + sd**2),
    ):  # fmt: skip
        share = ((rows[f"{name}_low"] <= known) & (known <= rows[f"{name}_high"])).mean()
        assert 0.88 <= share <= 0.995, (name, share)
        if name in ("bias2", "variance", "mse"):  # unbiased
            assert abs(rows[name].mean() - known) < 5 * rows[name].std() / np.sqrt(count), name


def test_split_adds_up_and_the_truths_error_is_taken_off():
    rng = np.random.default_rng(1)
    te, n, count = 0.4, 10, 100
    wrong = te * rng.standard_normal(count)  # truths that are known to 0.4 only; estimates are right on the mean
    traces = [trace(TRUTH + 0.5 * rng.standard_normal(n) - wrong[k], problem=f"p{k}") for k in range(count)]
    true = pd.concat([truth(problem=f"p{k}", error=te) for k in range(count)])
    table = A.decomposition(pd.concat(traces), true)
    np.testing.assert_allclose(table["mse"], table["bias2"] + table["variance"], rtol=1e-12)
    assert abs(table["bias2"].mean()) < 5 * table["bias2"].std() / np.sqrt(count)
    assert (table["bias2_low"] == 0).mean() > 0.9  # none is there, and few seem to be
    plain = A.decomposition(pd.concat(traces), true.assign(truth_error=0.0))
    assert (plain["bias2_low"] == 0).mean() < 0.75  # who takes such truths for exact finds one
    errors = A.errors(pd.concat(traces), true)
    assert errors["resolved"].mean() < 0.1


def test_ratio_to_monte_carlo_is_of_pairs():
    noise = gaussian(0, 1, 30)
    half = TRUTH + (noise - TRUTH) / 2
    traces = pd.concat([trace(half), trace(noise, "monte_carlo"), trace(noise, sizes="40", m=40, points=40)])
    table = A.errors(traces, truth()).set_index(["method", "sizes"])
    ends = table.loc[("m", "20"), ["to_mc", "to_mc_low", "to_mc_high"]].to_numpy(float)
    np.testing.assert_allclose(ends, 0.5)  # the same noise: the ratio has no spread
    assert (table.loc[("monte_carlo", "20"), "to_mc"]) == 1.0
    assert np.isnan(table.loc[("m", "40"), "to_mc"])
    low, high = table.loc[("m", "20"), ["rmse_low", "rmse_high"]]
    assert low < table.loc[("m", "20"), "rmse"] < high


def test_a_failed_repetition_is_counted_and_spoils_the_mean():
    values = gaussian(0, 1, 8)
    bad = values.copy()
    bad[3] = np.nan
    traces = pd.concat([trace(bad, se=1.0), trace(values, "monte_carlo"), trace(values, task="g"), trace(values, "monte_carlo", "g")])  # fmt: skip
    row = A.errors(traces, truth("f", "g")).iloc[0]
    assert (row["mae"], row["rmse"], row["to_mc"], row["failed"], row["repetitions"]) == (np.inf, np.inf, np.inf, 1, 8)
    assert row[["bias", "sd", "mae_low", "mae_se"]].isna().all()
    assert row["coverage"] <= 7 / 8
    assert A.decomposition(traces, truth("f", "g")).iloc[0]["mse"] == np.inf
    sums = A.sums(traces, truth("f", "g")).set_index("method")
    assert (sums.loc["m", "sum_mae"], sums.loc["m", "failed"]) == (np.inf, 1)
    assert np.isfinite(sums.loc["monte_carlo", "sum_mae"])
    larger = pd.concat(
        [traces, trace([4.0] * 3, "monte_carlo", sizes="40", points=40)]
    )  # the last task's, at the largest sizes
    found = nested(["p"], metrics({"errors": A.errors(larger, truth("g", "f"))}))
    assert found["p"]["mae"] == {"m-torch": None, "monte_carlo-torch": 1.0}


def test_sums_over_tasks_leave_derived_quantities_out():
    traces = pd.concat([trace([4.0, 2.0], task="f"), trace([5.0, 3.0], task="g"), trace([99.0, 99.0], task="log_evidence")])  # fmt: skip
    traces["derived"] = traces["task"] == "log_evidence"
    known = truth("f", "g", "log_evidence", error=0.1)
    (row,) = A.sums(traces, known).to_dict("records")
    assert (row["tasks"], row["sum_mae"]) == (2, 2.0)  # sums 3 and 1
    assert row["sum_mae_se"] == pytest.approx(1.0)
    assert row["sum_mae_low"] == pytest.approx(2 - 12.7062, abs=1e-3)
    assert row["truth_error"] == pytest.approx(0.2)
    missing = traces[(traces["task"] != "g") | (traces["repetition"] == 0)]
    row = A.sums(missing, known).iloc[0]
    assert (row["sum_mae"], row["failed"], row["repetitions"]) == (np.inf, 1, 2)


def test_the_page_has_the_last_task_and_the_sum_where_tasks_are_of_a_kind():
    traces = pd.concat([trace([4.0, 2.0], task="f"), trace([5.0, 3.0], task="g")])
    known = truth("f", "g")

    def shown(traces):
        return summary({"errors": A.errors(traces, known), "sums": A.sums(traces, known)})[1].set_index("integral")["m"]

    assert [text.split()[0] for text in shown(traces)] == ["1", "2"]
    assert list(shown(traces).index) == ["p: g, m = 20", "p: sum of 2 tasks, m = 20"]
    assert list(shown(traces.assign(derived=traces["task"] == "g")).index) == ["p: g, m = 20"]
    assert list(shown(traces[traces["task"] == "f"]).index) == ["p: f, m = 20"]


def test_order_of_rows_is_of_problems_tasks_methods_and_points():
    traces = pd.concat([
        trace([1.0], "b", "g", sizes="40", points=80), trace([1.0], "b", "f", sizes="5", points=10), trace([1.0], "a", "f", sizes="5", points=10),
        trace([1.0], "b", "f", sizes="40", points=80),
    ])  # fmt: skip
    table = A.errors(traces, truth("f", "g"))
    assert list(zip(table["task"], table["method"], table["sizes"], strict=True)) == [("f", "b", "5"), ("f", "b", "40"), ("f", "a", "5"), ("g", "b", "40")]  # fmt: skip
    shuffled = A.errors(traces.sample(frac=1, random_state=3), truth("f", "g"))
    assert list(shuffled["task"]) == list(table["task"])
    assert list(E.estimates(traces, truth("f", "g"))["error"]) == [-2.0] * 4
    with pytest.raises(UserError, match="no row for task 'g' of 'p'"):
        E.estimates(traces, truth("f"))


def test_derived_quantities_are_tasks_made_of_the_others():
    made = SimpleNamespace(tasks=("g", "f"), derived={"difference": lambda values: values[:, 0] - values[:, 1]})
    traces = pd.concat([trace([4.0, 2.0, 1.0], task="f", flags=["", "few_points", ""]), trace([7.0, np.nan, 9.0], task="g", flags=["at_bound", "", ""]),
                        trace([5.0], problem="q")])  # fmt: skip
    table = E.with_derived(traces.sample(frac=1, random_state=1), {"p": made})
    assert (len(table), table["derived"].sum()) == (10, 3)
    rows = table[table["derived"]].sort_values("repetition")
    np.testing.assert_array_equal(rows["value"], [3.0, np.nan, 8.0])
    assert list(rows["status"]) == ["ok", "failed", "ok"]
    assert list(rows["flags"]) == ["at_bound", "few_points", ""]
    assert (set(rows["task"]), set(rows["m"]), rows["standard_error"].isna().all()) == ({"difference"}, {20}, True)
    errors = A.errors(table, pd.concat([truth("f", "g", "difference"), truth(problem="q")]))
    assert errors.set_index(["problem", "task"])["derived"].to_dict() == {("p", "f"): False, ("p", "g"): False, ("p", "difference"): True, ("q", "f"): False}  # fmt: skip


def test_seconds_of_a_repetition_beside_the_last_tasks_error():
    traces = pd.concat([trace(gaussian(0, 1, 4), task=t, sizes=size, points=points) for size, points in (("5", 5), ("20", 20)) for t in ("f", "g", "z")])  # fmt: skip
    errors = A.errors(traces.assign(derived=traces["task"] == "z"), truth("f", "g", "z"))
    timings = pd.DataFrame(
        [{"problem": "p", "method": "m", "backend": "torch", "sizes": size, "repetitions": r, "seconds": s}
         for size, r, s in (("5", 3, 0.5), ("5", 4, 1.0), ("20", 3, 6.0), ("20", 4, 9.0))]
    )  # fmt: skip
    few, many = A.with_seconds(timings, errors).to_dict("records")
    assert (few["tasks"], few["repetitions"], few["seconds_per_repetition"], many["seconds_per_repetition"]) == (2, 4, 0.25, 2.0)  # fmt: skip
    assert (many["task"], many["mae"], many["points"]) == ("z", errors.iloc[-1]["mae"], 20)
    assert len(A.with_seconds(timings.iloc[:2], errors)) == 1


def test_a_series_under_the_posterior():
    """Of a line with random slope: the points of the task under the posterior count, and one series needs no column."""
    slopes = np.random.default_rng(0).standard_normal((400, 1))
    about = {"solve": lambda x, t: (x * np.asarray(t))[:, :, None], "times": [0.0, 2.0], "observations": [0.5, 1.5],
             "series": ("u",), "task_times": (), "posterior": 1}  # fmt: skip
    problem, draws = SimpleNamespace(name="line", about=about), SimpleNamespace(points=[[99 * slopes], [1 + slopes]])
    rows = predictive(problem, draws, points=5)
    assert list(rows["time"]) == [0, 0.5, 1, 1.5, 2]
    assert not rows["task"].any()
    np.testing.assert_array_equal(rows["observed"], [0.5, np.nan, np.nan, np.nan, 1.5])
    np.testing.assert_allclose(rows["mean"], rows["time"] * (1 + slopes.mean()), atol=1e-12)
    np.testing.assert_allclose(rows["high"], rows["time"] * np.quantile(1 + slopes, 0.975), atol=1e-12)
