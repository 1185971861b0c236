"""Tables of black-box searches against numbers that were worked out by hand, and rates of convergence."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lowvar_studies.reports.declarations import KEYS
from lowvar_studies.reports.search import progress as A
from lowvar_studies.reports.search import rates
from lowvar_studies.reports.search.family import metrics, summary

INF = np.inf
OPTIMA, DIMS = {"p": 1.0, "q": 1.0, "policy": None}, {"p": 10, "q": 10, "policy": 4}


def trace(values, problem="p", method="m", population=10, grid=None, status=None, backend="jax"):
    """A trace of several repetitions: ``values (repetitions, moments)`` of f."""
    rows = []
    for r, series in enumerate(values):
        for k, f in enumerate(series):
            i = k if grid is None else grid[k]
            rows.append(
                {"problem": problem, "method": method, "backend": backend, "repetition": r, "iteration": i, "evaluations": population * i,
                 "f": f, "best": f - 0.5, "sigma": 0.5 / (1 + k), "condition": 2.0, "failures": 0, "status": status[r][k] if status else "ok"}
            )  # fmt: skip
    return pd.DataFrame(rows)


def hits(evaluations, problem="p", method="m", budget=100, of="mean", backend="jax"):
    """Hits: target -> evaluations of every repetition."""
    return pd.DataFrame(
        [{"problem": problem, "method": method, "backend": backend, "repetition": r, "target": target, "of": of, "evaluations": float(e), "budget": budget}
         for target, each in evaluations.items() for r, e in enumerate(each)],
        columns=[*KEYS, "repetition", "target", "of", "evaluations", "budget"],
    )  # fmt: skip


def test_curves_are_quantiles_of_gaps():
    table = A.curves(trace([[11, 2], [21, 3], [31, 4], [41, 6]]), hits({1.0: [INF] * 4}), OPTIMA, DIMS)
    last = table.iloc[1]
    assert (last["evaluations"], last["iteration"], last["dim"], last["budget"]) == (10, 1, 10, 100)
    assert (last["f_median"], last["f_low"], last["f_high"], last["repetitions"]) == (2.5, 1.75, 3.5, 4)


def test_curves_of_unlike_grids_diverged_runs_and_early_ends():
    nan = np.nan
    status = [["ok", "ok", "ok"], ["ok", "diverged", "diverged"], ["ok"]]
    ragged = trace([[11, 5, 3], [11, nan, nan], [1]], grid=[0, 2, 4], status=status)
    table = A.curves(pd.concat([ragged, trace([[7, 6]], method="n", population=4)]), hits({}), OPTIMA, DIMS)
    m = table[table["method"] == "m"]
    assert list(m["evaluations"]) == [0, 20, 40]
    assert list(m["f_median"]) == [10, 4, 2]  # of 2, infinite, and the third's last, 0
    assert list(m["diverged"]) == [0, 1, 1]
    assert list(m["budget"]) == [40, 40, 40]  # what was used, since no target was set
    assert list(table[table["method"] == "n"]["evaluations"]) == [0, 4]


class Study(dict):
    """Tables of a study by name, with its experiment."""

    experiment = SimpleNamespace(search=SimpleNamespace(target=1e-3))


def test_a_page_has_the_ends_of_all_runs():
    status = [["ok", "diverged"], ["ok", "ok"], ["ok", "ok"], ["ok", "ok"]]
    traces = pd.concat([
        trace([[11, np.nan], [21, 3], [31, 4], [41, 1.0004]], "p_10", "es_1", status=status),
        trace([[11, 2]] * 4, "p_10", "es_1", backend="torch"),
        trace([[7, 1]] * 4, "p_2", "es_1"),
        trace([[-50, -100], [-50, -300]], "policy", "es_1"),
    ])  # fmt: skip
    met = pd.concat([hits({1e-3: [INF, INF, INF, 10]}, "p_10", "es_1"), hits({1e-3: [INF] * 4}, "p_10", "es_1", backend="torch"),
                     hits({1e-3: [10] * 4}, "p_2", "es_1")])  # fmt: skip
    optima = {"p_2": 1.0, "p_10": 1.0, "policy": None}
    title, table = summary(Study(ends=A.ends(traces, met, optima, target=1e-3)))
    assert title == "Ends of the runs, target 0.001"
    gap, back = "gap at the end [quartiles]", "return at the end [quartiles]"
    assert table[["problem", "method", "runs", "met the target (%)", "not finite (%)", gap, back]].values.tolist() == [
        ["p_2", "es_1", "4", "100", "0", "0 [0, 0]", ""],
        ["p_10", "es_1", "4", "25", "25", "2.5 [1.5, inf]", ""],  # of 0.0004, 2, 3 and infinite
        ["p_10", "es_1 (torch)", "4", "0", "0", "1 [1, 1]", ""],
        ["policy", "es_1", "2", "", "0", "", "200 [150, 250]"],
    ]
    assert list(table["gap at the start"]) == ["6", "25", "10", ""]
    assert list(table["gap of the best point"]) == ["0", "2", "0.5", ""]
    policies = A.ends(traces[traces["problem"] == "policy"], met[:0], optima)
    title, table = summary(Study(ends=policies))
    assert title == "Ends of the runs"
    assert not {gap, "met the target (%)"} & set(table)
    assert summary(Study()) is None


def test_policies_have_no_gap_and_no_targets():
    t = trace([[-1, -5]], problem="policy")
    h = hits({1.0: [10]}, problem="policy")
    table = A.curves(t, h, OPTIMA, DIMS)
    assert list(table["f_median"]) == [-1, -5]
    assert table["optimum"].isna().all()
    assert A.targets(t, h, OPTIMA, DIMS).empty
    assert A.profiles(h, OPTIMA, DIMS).empty
    end = A.ends(t, h, OPTIMA).iloc[0]
    assert (end["f"], end["start"], end["reached"], end["evaluations_to_target"]) == (-5, -1, False, INF)


def test_targets_medians_intervals_and_expected_running_time():
    t = trace([[9, 9]] * 8, grid=[0, 12])  # every run ended after 120 evaluations
    h = hits({1.0: [10, 20, 30, 40, 50, 60, 70, 80], 1e-10: [10, 20, 30, INF, INF, INF, INF, INF]}, budget=125)
    table = A.targets(t, h, OPTIMA, DIMS).set_index("target")
    easy, hard = table.loc[1.0], table.loc[1e-10]
    assert (easy["evaluations_median"], easy["evaluations_low"], easy["evaluations_high"]) == (45, 10, 80)
    assert (easy["reached"], easy["share"], easy["ert"], easy["budget"]) == (8, 1.0, 45, 125)
    assert (hard["reached"], hard["evaluations_median"], hard["evaluations_low"]) == (3, INF, 10)
    assert hard["ert"] == (10 + 20 + 30 + 5 * 120) / 3
    assert hard["share_low"] == pytest.approx(0.0852, abs=1e-4)  # Clopper and Pearson, 3 of 8
    assert hard["share_high"] == pytest.approx(0.7551, abs=1e-4)
    none = A.targets(t, hits({1.0: [INF] * 8}), OPTIMA, DIMS).iloc[0]
    assert (none["ert"], none["share_high"]) == (INF, pytest.approx(0.3694, abs=1e-4))


def test_ends_are_of_every_repetition():
    t = trace([[11, 3], [21, np.nan]], status=[["ok", "ok"], ["ok", "diverged"]])
    table = A.ends(t, hits({1e-10: [10, INF], 1.0: [1, 1]}), OPTIMA)
    assert list(table["f"]) == [2, INF]
    assert list(table["start"]) == [10, 20]
    assert list(table["reached"]) == [True, False]
    assert list(table["evaluations_to_target"]) == [10, INF]
    assert list(table["status"]) == ["ok", "diverged"]
    assert list(A.ends(t, hits({1.0: [1, 2]}), OPTIMA, target=1.0)["evaluations_to_target"]) == [1, 2]


def test_profiles_count_cases():
    h = pd.concat([
        hits({100.0: [10, 20], 1e-8: [100, INF], 1e-10: [INF, INF]}, "p", budget=200),
        hits({100.0: [INF, INF], 1e-8: [INF, INF]}, "q", budget=200),
        hits({100.0: [10, 10], 1e-8: [10, 10]}, "q", "other", budget=50),
    ])  # fmt: skip
    table = A.profiles(h, OPTIMA, DIMS)
    assert list(table["problem"].drop_duplicates()) == ["all", "p", "q"]
    assert set(table.loc[table["problem"] == "all", "method"]) == {"m"}  # the other was not run on all of them
    p = table[table["problem"] == "p"].set_index(table.loc[table["problem"] == "p", "evaluations_per_dim"].round(6))
    assert p.loc[0.794328, "share"] == 0
    assert p.loc[1.0, "share"] == 0.25
    assert p.loc[1.995262, "share"] == 0.25
    assert p.loc[2.511886, "share"] == 0.5
    assert p.loc[20.0, "share"] == 0.75  # 1e-10 is no target of a profile
    assert p.index.max() == 20.0
    everything = table[table["problem"] == "all"]
    assert (everything["share"].iloc[-1], everything["problems"].iloc[-1], everything["targets"].iloc[-1]) == (
        0.375,
        2,
        2,
    )


def test_seconds_are_shared_out_and_compiling_is_apart():
    table = A.curves(trace([[9, 8, 7]] * 4), hits({}), OPTIMA, DIMS)
    timings = pd.DataFrame({"problem": "p", "method": "m", "backend": "jax", "iteration": [0, 2], "evaluations": [0, 20],
                            "seconds": [0.0, 8.0], "compile_seconds": 3.0, "repetitions": 4})  # fmt: skip
    timed = A.with_seconds(table, timings)
    assert list(timed["seconds"]) == [0, 1, 2]
    assert set(timed["compile_seconds"]) == {3.0}
    assert A.with_seconds(table, timings.assign(method="n")).empty


def test_metrics_are_medians():
    class Tables(dict):
        experiment = SimpleNamespace(search=SimpleNamespace(target=1e-10))

    t = trace([[11, 3]] * 3)
    for third, median in ((INF, 20.0), (10, 10.0)):
        h = hits({1e-10: [10, 20, third]})
        found = metrics(Tables(targets=A.targets(t, h, OPTIMA, DIMS), ends=A.ends(t, h, OPTIMA)))
        assert list(found) == [("p", "final_gap", "m-jax", 2.0), ("p", "evaluations_to_target", "m-jax", median)]


# rates ------------------------------------------------------------------------------------------------------------

AT = np.unique(np.geomspace(1, 1e4, 90).astype(int))


def traces(error, runs=6, method="m", status="ok"):
    """Runs with the gap ``error(T, run)`` above an optimum of 3."""
    rows = [{"problem": "p", "method": method, "backend": "jax", "repetition": r, "iteration": int(t), "status": status,
             "f": 3.0 + error(max(t, 1), r)} for r in range(runs) for t in np.r_[0, AT]]  # fmt: skip
    return pd.DataFrame(rows)


def gathered(frame, first=100, optimum=3.0):
    class One(SimpleNamespace):
        def once(self, make):
            return rates.errors(self.traces, {"p": optimum})

    return One(traces=frame, experiment=SimpleNamespace(rates=SimpleNamespace(first=first)))


def fitted(frame, of="last", **more):
    """The row of an error in the table ``rates``."""
    found = rates.RATES.frame(rates.RATES.make(gathered(frame, **more)))
    return found[found["of"] == of].iloc[0]


def test_a_power_law_has_its_exponent():
    made = traces(lambda t, r: (1 + r) * t**-0.75)
    last, average = fitted(made), fitted(made, "average")
    assert last["slope"] == pytest.approx(-0.75, abs=1e-9)
    assert last["slope_low"] == pytest.approx(last["slope_high"], abs=1e-9)  # all runs have the same exponent
    exact = [np.sum(np.arange(1, t + 1) ** -0.75) / t for t in AT[AT >= 100]]
    assert average["slope"] == pytest.approx(np.polyfit(np.log(AT[AT >= 100]), np.log(exact), 1)[0], abs=0.01)
    assert (last["first"], last["last"], last["repetitions"]) == (AT[AT >= 100][0], 10_000, 6)


def test_log_t_over_t_has_no_excess():
    made = traces(lambda t, r: np.log(t + 1e-12) / t if t > 1 else 0.0)
    assert fitted(made)["excess"] == pytest.approx(0, abs=1e-9)
    assert fitted(made)["slope"] > -1


def test_intervals_cover_the_exponent():
    """300 experiments of ten runs with lognormal factors and exponents that differ from run to run."""
    rng, covered = np.random.default_rng(0), 0
    at = np.geomspace(100, 1e4, 12)
    for _ in range(300):
        exponent = -0.8 + 0.1 * rng.normal(size=10)
        error = np.exp(0.3 * rng.normal(size=(10, 12))) * (at[None, :] / 1e3) ** exponent[:, None]
        _, low, high = rates.interval(at, error)
        # the exponent of the mean error, whose log is quadratic in log T, as fitted to these generations
        true = np.polyfit(np.log(at), -0.8 * np.log(at / 1e3) + 0.005 * np.log(at / 1e3) ** 2, 1)[0]
        covered += low <= true <= high
    assert 0.90 <= covered / 300 <= 0.98


def test_what_diverged_or_arrived_has_no_slope():
    for made in (traces(lambda t, r: 1 / t, status="diverged"), traces(lambda t, r: 0.0)):
        assert np.isnan(fitted(made)["slope"])
    for more in ({"optimum": None}, {"first": 10**6}):
        assert not len(rates.RATES.make(gathered(traces(lambda t, r: 1 / t), **more)))


def test_the_errors_are_those_of_the_trace():
    made = rates.REGRET.frame(rates.REGRET.make(gathered(traces(lambda t, r: 2.0 + r))))
    np.testing.assert_allclose(made["gap_mean"], 4.5)
    assert set(made["of"]) == {"average", "last"}
    assert made["fitted"].tolist() == (made["iteration"] >= 100).tolist()
