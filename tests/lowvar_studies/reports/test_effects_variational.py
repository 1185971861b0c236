"""Effects of variances and of runs: pairs decide where means would not; methods that diverged lose; notes say why."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from traces import GRADIENTS, runs, trace

from lowvar.errors import UserError
from lowvar_studies.reports.variational import convergence as A
from lowvar_studies.reports.variational import diagnostics as D
from lowvar_studies.reports.variational import selection

NAN, INF = np.nan, np.inf
AT = {"problem": "p", "method": "joint", "others": ["naive"]}
SPREAD = np.array([1.0, 10.0, 100.0, 1000.0, 3.0])  # runs differ by a factor of a thousand, methods by two in each


# variances --------------------------------------------------------------------------------------------------------


def designs(ends, **methods):
    """Designs of ``method = {source: single-row values}``, each ``(epochs, runs)``; an epoch before ``ends`` first."""
    rows = []
    for method, sources in methods.items():
        for epoch, run in np.ndindex(np.shape(sources["subsampling"])):
            rows.append({"problem": "p", "method": method, "block": "all", "epoch": epoch, "end": epoch == ends,
                         "run": run, "replicate": 0, "monte_carlo": 0.0, "interaction": 0.0,
                         **{source: float(values[epoch][run]) for source, values in sources.items()}})  # fmt: skip
    return {"designs": pd.DataFrame(rows), "decomposition": pd.DataFrame([{"problem": "p", "batch_size": 2}])}


def test_a_variance_is_a_value_of_its_table(judge):
    cell = {"problem": "p", "method": "naive", "source": "total", "batch_size": 2, "end": True, "runs": 5}
    table = pd.DataFrame(
        [cell | {"variance": 100.0, "low": 95.0, "high": 105.0}, cell | {"end": False, "variance": 1.0}]
    )
    of = {"table": "decomposition", "column": "variance", "at": {"problem": "p", "method": "naive", "end": True}}
    row = judge("value", {"decomposition": table}, **of, published=100, tolerance=0.1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 100, 95, 105)
    assert row["note"] == "mine; 5 runs"


def test_variance_ratio_is_paired(judge):
    """Ratios of totals at batch size 2, over the same runs, under the first noise scheme."""
    about = SPREAD * [0.99, 1.01, 1.0, 1.0, 1.0]
    tables = designs(0, naive={"subsampling": [2 * SPREAD]}, joint={"subsampling": [about]})
    for rows in (tables["designs"], pd.concat([tables["designs"].assign(noise="iid"),
                                               tables["designs"].assign(noise="rqmc", subsampling=1e9)])):  # fmt: skip
        row = judge("variance_ratio", tables | {"designs": rows}, **AT, below=1)
        assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5, rel=0.01))
        assert 0.45 < row["low"] < row["high"] < 0.55
    assert judge("variance_ratio", tables, problem="p", method="naive", others=["joint"], below=1)["verdict"] == "fails"
    noisy = designs(0, naive={"subsampling": [2 * SPREAD]}, joint={"subsampling": [SPREAD[::-1]]})
    assert judge("variance_ratio", noisy, **AT, below=1)["verdict"] == "undecided"
    with pytest.raises(UserError, match="the table 'designs' has no rows of problem p, method nobody"):
        judge("variance_ratio", tables, **AT | {"others": ["nobody"]}, below=1)


@pytest.mark.parametrize(
    ("more", "ours"),
    [({"parts": ["subsampling"]}, 4 / 6), ({"parts": ["subsampling", "monte_carlo"]}, 4 / 5),
     ({"source": "monte_carlo"}, 1 / 5), ({"weights": {"subsampling": 0.25, "monte_carlo": 0.5}}, 4 / (6 / 4 + 5 / 2))],
)  # fmt: skip
def test_variance_ratio_counts_each_source_at_the_batch_size(judge, more, ours):
    """At batch size 2: 4 / 2 + 1 + 2 / 2 = 4 over parts of 12 / 2 and 5; the larger ratio is worse."""
    one = np.ones((1, 5))
    tables = designs(
        0, joint={"subsampling": 4 * one, "monte_carlo": one, "interaction": 2 * one},
        naive={"subsampling": 12 * one, "monte_carlo": 5 * one},
    )  # fmt: skip
    assert judge("variance_ratio", tables, **AT, **more, below=2)["ours"] == pytest.approx(ours)


def test_variance_ratio_along_the_run_is_worst_at_one_moment(judge):
    """Below at the end, above at epoch 1; the start, where memories are empty, does not count."""
    own = np.array([9.0, 3.0, 0.5])[:, None] * SPREAD
    tables = designs(2, naive={"subsampling": np.tile(2 * SPREAD, (3, 1))}, joint={"subsampling": own})
    assert judge("variance_ratio", tables, **AT, below=1)["verdict"] == "holds"
    row = judge("variance_ratio", tables, **AT, moment="along", below=1)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(1.5))
    assert "epoch 1, the worst of 2 moments" in row["note"]


# ends and paths of runs -------------------------------------------------------------------------------------------

START = [-90.0, -80.0, -99.0]
RISE = [[-50.0, -40.0, -60.0], [-30.0, -20.0, -40.0]]
NAIVE = runs("naive", [START, *RISE])
JOINT = runs("joint", [START, [-46.0, -35.0, -54.0], [-25.0, -15.1, -35.0], [0.0, 0.0, 0.0]])
LOST = runs("joint", [START, [NAN] * 3, [-INF] * 3])


def gathered(*traces, optima=None):
    both = pd.concat(traces, ignore_index=True)
    table = A.convergence(both, optima or {}, {"p": 50})
    return {"convergence": table, "ends": A.ends(both, table, optima or {}), "paths": A.paths(both, table, {})}


def times(**methods):
    """Rounds of a benchmark."""
    rows = [{"problem": "p", "backend": "jax", "method": method, "round": number, "seconds": seconds}
            for method, rounds in methods.items() for number, seconds in enumerate(rounds)]  # fmt: skip
    return pd.DataFrame(rows)


def swapped(judge, effect, tables, **test):
    return judge(effect, tables, **{"problem": "p", "method": "naive", "others": ["joint"]} | test)


def test_gap_ratio_is_paired(judge):
    spread = np.array([1e-3, 1e-1, 1.0])
    naive, joint = (runs(name, [[-10.0] * 3, list(-spread * factor)])
                    for name, factor in (("naive", 2.0), ("joint", np.array([0.99, 1.0, 1.01]))))  # fmt: skip
    row = judge("gap_ratio", gathered(naive, joint, optima={"p": 0.0}), **AT, below=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5, rel=0.01))
    with pytest.raises(UserError, match="use difference"):
        judge("gap_ratio", gathered(naive, joint), **AT, below=1)


@pytest.mark.parametrize(
    ("effect", "bound", "ours"),
    [("gap_ratio", {"below": 1}, (INF, 0.0)), ("difference", {"above": 0, "along": "envelope"}, (-INF, INF)),
     ("effort_ratio", {"below": 1}, (INF, 0.0)), ("effort_ratio", {"below": 1, "level": -40.0}, (INF, None)),
     ("step_size_ratio", {"above": 1}, (0.0, INF))],
)  # fmt: skip
def test_a_diverged_method_loses(judge, effect, bound, ours):
    tables = gathered(NAIVE, LOST, optima={"p": 0.0})
    row = judge(effect, tables, **AT, **bound)
    assert (row["verdict"], row["ours"]) == ("fails", ours[0])
    if ours[1] is not None:
        row = swapped(judge, effect, tables, **bound)
        assert (row["verdict"], row["ours"]) == ("holds", ours[1])
    with pytest.raises(UserError, match="the table 'ends' has no rows of problem p, method nobody"):
        swapped(judge, effect, tables, others=["nobody"], **bound)


def test_elbo_difference_in_pairs_after_the_same_iterations(judge):
    """Repetitions differ by 10, methods by about 5. The longer run is looked at where the other ends."""
    tables, along = gathered(NAIVE, JOINT), {"along": "envelope", "above": 0}
    row = judge("difference", tables, **AT, **along)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(4.97, abs=0.01))
    assert "after 20 iterations; 3 pairs" in row["note"]
    assert swapped(judge, "difference", tables, **along)["verdict"] == "fails"
    few = runs("joint", [[-80.0, -7.0], [-35.0, -7.0], [-15.0, -7.0]], repetitions=[1, 8])
    row = judge("difference", gathered(NAIVE, few), **AT, **along)
    assert (row["verdict"], row["ours"], np.isnan(row["low"])) == ("undecided", pytest.approx(5.0), True)


@pytest.mark.parametrize(("shift", "verdict"), [(1.0, "holds"), (6.0, "fails")])
def test_elbo_fraction(judge, shift, verdict):
    same = [START, [-46.0, -35.0, -54.0]]
    mine, svrg = runs("joint", [*same, [-20, -9, -31]]), runs("svrg", [*same, [v - shift for v in (-20, -9, -31)]])
    row = judge("elbo_fraction", gathered(NAIVE, mine, svrg), problem="p", method="joint", other="svrg",
                reference="naive", above=-0.2, below=0.2)  # fmt: skip
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(shift / 10))


@pytest.mark.parametrize(
    ("elbos", "more", "verdict", "ours"),
    [
        ([[-30.0, -20.0, -39.0], [-1.0, -1.0, -1.0]], {}, "holds", 0.5),
        ([[-30.0, -20.0, -39.0], [-1.0, -1.0, -1.0]], {"below": 0.4}, "fails", 0.5),
        ([[-80.0, -70.0, -80.0], [-70.0, -60.0, -70.0]], {}, "undecided", None),  # nobody gets there, in three pairs
        ([[-80.0, -70.0, -80.0], [-70.0, -60.0, -70.0]], {"of": 5}, "fails", 1.0),  # in five: bounds of all decide
        ([[-25.0, -70.0, -39.0], [-25.0, -60.0, -39.0]], {"of": 5}, "undecided", None),
        ([[-80.0, -70.0, -80.0], [-70.0, -60.0, -70.0]], {"level": 0.0}, "undecided", None),
        ([[-40.0] * 3, [-1.0] * 3], {"level": -40.0}, "undecided", np.exp(np.mean(np.log([10 / 15, 1, 0.5])))),
    ],
)
def test_effort_ratio(judge, elbos, more, verdict, ours):
    of = (more := {"below": 1, **more}).pop("of", 3)
    naive, joint = ([np.resize(one, of) for one in [START, *rest]] for rest in (RISE, elbos))
    row = judge("effort_ratio", gathered(runs("naive", naive), runs("joint", joint)), **AT, **more)
    assert row["verdict"] == verdict
    assert ours is None or row["ours"] == pytest.approx(ours, rel=0.02)
    assert (f"joint misses the level in {of} of {of}" in row["note"]) == (elbos[0][0] == -80)


@pytest.mark.parametrize("repetitions", [[0, 1, 2], [0]])
def test_effort_ratio_in_seconds(judge, repetitions):
    """A step of joint takes three times as long, also where there is one pair."""
    count = len(repetitions)
    tables = gathered(NAIVE, runs("joint", [START[:count], [-40.0] * count, [-1.0] * count], repetitions=repetitions))
    tables["times"] = times(naive=[1.0, 2.0], joint=[3.0, 6.0])
    steps, seconds = (judge("effort_ratio", tables, **AT, level=-40, unit=unit, below=1)
                      for unit in ("iterations", "seconds"))  # fmt: skip
    assert seconds["ours"] == pytest.approx(3 * steps["ours"])
    assert ("fewer than 2: undecided" in seconds["note"]) == (count == 1)


def test_the_time_of_a_step_is_compared_in_rounds_of_a_benchmark(judge):
    """A busy machine slows a whole round: ratios in rounds decide. Without a benchmark there is no verdict."""
    busy = np.array([1.0, 5.0, 1.0, 2.0, 9.0])
    tables = gathered(NAIVE, JOINT) | {"times": times(naive=busy, joint=1.7 * busy * [1.02, 0.99, 1.0, 1.01, 0.98])}
    step = AT | {"unit": "step"}
    row = judge("effort_ratio", tables, **step, published=1.69, tolerance=0.05)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(1.7, rel=0.01))
    assert judge("effort_ratio", tables, **step, below=1.6)["verdict"] == "fails"
    tables["times"] = times(naive=busy, joint=busy[::-1])
    row = judge("effort_ratio", tables, **step, below=1.6)
    assert (row["verdict"], np.isnan(row["more"])) == ("undecided", True)  # no repetitions would decide it
    assert row["note"].endswith("times as many rounds would decide it")
    tables["times"] = times(naive=busy)
    for unit in ("step", "seconds"):
        row = judge("effort_ratio", tables, **AT, unit=unit, below=1.6)
        assert (row["verdict"], "not judged" in row["note"]) == ("undecided", True)


@pytest.mark.parametrize(("unit", "told"), [("iterations", True), ("seconds", False)])
def test_more_runs_alone_do_not_shorten_the_interval_of_seconds(judge, unit, told):
    tables = gathered(NAIVE, runs("joint", [START, [-40.0] * 3, [-1.0] * 3]))
    tables["times"] = times(naive=[1.0, 2.0], joint=[1.0, 2.2])
    row = judge("effort_ratio", tables, **AT, level=-40, unit=unit, below=1)
    assert (row["verdict"], np.isfinite(row["more"])) == ("undecided", told)


def test_seconds_to_a_level_that_runs_miss_have_the_interval_of_the_times_too(judge):
    rise = [[-9.0] * 8, [-8.0] * 8, [-1.0] * 8]
    tables = gathered(runs("naive", rise), runs("joint", [*rise[:2], [-0.5] * 7 + [-4.0]]))
    tables["times"] = times(naive=[1.0, 2.0, 3.0], joint=[1.0, 2.2, 3.0])
    steps, seconds = (judge("effort_ratio", tables, **AT, level=-2.0, unit=unit, below=1)
                      for unit in ("iterations", "seconds"))  # fmt: skip
    pace = judge("effort_ratio", tables, **AT, unit="step", below=1)
    assert (steps["high"], seconds["high"]) == (INF, INF)
    assert seconds["low"] == pytest.approx(steps["low"] * pace["ours"] * pace["ours"] / pace["high"])


@pytest.mark.parametrize("more", [{"level": -5.0}, {"interval": "rank"}])
def test_a_step_has_no_level_and_its_rounds_no_ranks(judge, more):
    tables = gathered(NAIVE, JOINT) | {"times": times(naive=[1.0, 2.0], joint=[1.0, 2.2])}
    with pytest.raises(UserError, match=next(iter(more))):
        judge("effort_ratio", tables, **AT, unit="step", below=1, **more)


@pytest.mark.parametrize("interval", ["t", "rank"])
def test_a_ratio_that_runs_only_bound_says_so(judge, interval):
    """The rival never arrives: at best it does right after its last evaluation. And the other way round."""
    few, most = [[-9.0] * 8, [-8.0] * 8, [-7.0] * 8], [[-9.0] * 8, [-1.0] * 8, [-0.5] * 8]
    tables = gathered(runs("naive", few), runs("joint", most))
    row = judge("effort_ratio", tables, **AT, level=-5.0, interval=interval, below=1)
    assert (row["verdict"], row["low"], row["ours"]) == ("holds", 0, row["high"])
    assert 0 < row["ours"] < 0.5
    assert "upper bound" in row["note"]
    row = swapped(judge, "effort_ratio", tables, level=-5.0, interval=interval, below=1)
    assert (row["verdict"], row["high"], row["ours"]) == ("fails", INF, row["low"])
    assert 2 < row["ours"] < INF
    assert "lower bound" in row["note"]


@pytest.mark.parametrize(("missing", "verdict"), [(9, "fails"), (8, "undecided"), (0, "holds")])  # p = 0.02 and 0.11
def test_ranks_of_iterations_to_a_level(judge, missing, verdict):
    """Most runs never get there, so that no t-interval exists."""
    level = [[-9.0] * 10, [-5.0] * 10, [-1.0] * 10]
    mine = [[-9.0] * 10, [-8.0 if missing else -1.0] * 10, [-0.5] * (10 - missing) + [-4.0] * missing]
    row = judge("effort_ratio", gathered(runs("naive", level), runs("joint", mine)), **AT, interval="rank", below=1)
    assert row["verdict"] == verdict
    assert (f"joint misses the level in {missing} of 10" in row["note"]) == (missing > 0)


def test_step_sizes_and_which_are_stable(judge):
    """naive is best at 1; joint is as good there, at 2 it is too, and at 4 some of it diverged."""
    naive = pd.concat([NAIVE, runs("naive", [START, [-95.0] * 3, [-99.0] * 3], 2.0)])
    good = [START, [-46.0, -35.0, -54.0], [-25.0, -15.0, -35.0]]
    lost = runs("joint", [*good[:2], [-25.0, -15.0, NAN]], 4.0)
    tables = gathered(naive, runs("joint", good), runs("joint", good, 2.0), lost)
    row = judge("step_size_ratio", tables, **AT, above=1)
    assert (row["verdict"], row["ours"], row["low"]) == ("holds", 2.0, 2.0)
    assert swapped(judge, "step_size_ratio", tables, above=1)["verdict"] == "fails"
    row = judge("step_size_ratio", gathered(naive, runs("joint", good)), **AT, above=1)
    assert (row["verdict"], row["note"][-19:]) == ("undecided", "the end of the grid")
    stable = {"ends": "above_start", "above": 1}
    row = judge("step_size_ratio", tables, **AT, **stable)
    assert (row["ours"], row["verdict"]) == (2.0, "holds")  # naive ends below its start at 2
    assert swapped(judge, "step_size_ratio", tables, **stable)["verdict"] == "fails"
    one = tables | {"ends": tables["ends"][tables["ends"]["repetition"] == 0]}
    assert judge("step_size_ratio", one, **AT, **stable)["verdict"] == "undecided"


# gradients along runs ---------------------------------------------------------------------------------------------

MLMC = {"problem": "p", "method": "mlmc"}


def gradients(method, **columns):
    return trace(method, **GRADIENTS | columns)


def measured(*traces):
    both = pd.concat(traces, ignore_index=True)
    table = A.convergence(both, {}, dict.fromkeys(both["problem"].unique(), 100))
    return {"measured": D.measured(both, table)}


def ratio(judge, *traces, **test):
    """Of mlmc's variance to mc's at the end, unless given otherwise."""
    test = {"of": "variance", "moment": "end", "others": ["mc"]} | test
    test = test if {"below", "above"} & set(test) else test | {"below": 1}
    return judge("measured_ratio", measured(*traces), **MLMC | test)


def difference(judge, *traces, **test):
    return judge("difference", measured(*traces), **MLMC | {"others": ["mc"], "above": 0} | test)


@pytest.mark.parametrize(
    ("factors", "test", "verdict"),
    [((0.5, 0.51, 0.49), {}, "holds"), ((2.0, 2.1, 1.9), {}, "fails"), ((0.5, 2.0, 1.0), {}, "undecided"),
     ((0.5, 0.51, 0.49), {"moment": "start"}, "undecided")],  # equal there
)  # fmt: skip
def test_measured_ratio_in_pairs(judge, factors, test, verdict):
    mine = gradients("mlmc", variance=[4.0, 4.0, list(SPREAD[1:4] * factors)])
    row = ratio(judge, mine, gradients("mc", variance=[4.0, 4.0, list(SPREAD[1:4])]), **test)
    assert row["verdict"] == verdict
    if "moment" not in test:
        assert row["ours"] == pytest.approx(np.exp(np.mean(np.log(factors))))
        assert row["note"] == "mine; to variance of mc, up to iteration 20; 3 pairs"


@pytest.mark.parametrize(
    ("test", "ours"), [({"to": "variance"}, 9e5), ({"to_moment": "start"}, 225), ({"to_moment": "first"}, 100)]
)
def test_measured_ratio_to_another_quantity_or_moment_of_its_own(judge, test, ours):
    mine = gradients("mlmc", squared_error=[4.0, 9.0, [890.0, 900.0, 910.0]], variance=1e-3)
    own = {"of": "squared_error", "others": []}
    row = ratio(judge, mine, **own, **test, above=10)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(ours, rel=1e-2))
    with pytest.raises(UserError, match="needs a comparison"):
        ratio(judge, mine, **own)


def test_values_at_the_resolution_are_said(judge):
    both = gradients("mlmc", squared_error=[4.0, 4.0, -1.0], reference_error=1.0), gradients("mc", squared_error=4.0)
    row = ratio(judge, *both, of="squared_error")
    assert (row["ours"], row["verdict"]) == (pytest.approx(0.1 / 4), "holds")
    rival = ratio(judge, *both, of="squared_error", method="mc", others=["mlmc"], above=1)
    for one, said in ((row, True), (rival, True), (ratio(judge, *both), False)):
        assert ("100 % of mlmc's values are at the resolution" in one["note"]) == said


def test_the_worst_rival_decides_and_one_without_a_value_is_the_worst(judge):
    rivals = [gradients("mc", variance=9.0), gradients("rqmc", variance=2.0)]
    row = ratio(judge, gradients("mlmc"), *rivals, others=["mc", "rqmc"])
    assert (row["ours"], row["verdict"], "of rqmc" in row["note"]) == (2.0, "fails", True)
    rivals = [gradients("mc", variance=[4.0, 4.0, 0.0]), gradients("rqmc", variance=1e-3)]
    for bound in ({"below": 1}, {"above": 1}):
        row = ratio(judge, gradients("mlmc"), *rivals, others=["rqmc", "mc"], **bound)
        assert (np.isnan(row["ours"]), "of mc" in row["note"]) == (True, True)


def test_the_rival_that_decides_is_shown(judge):
    """mlmc is ahead of mc by 5 or so, which is not sure, and of rqmc by 3, which is: the first leaves it undecided."""
    rivals = [
        trace("mc", elbo=[-9.0, -9.0, [-25.0, -1.0, -1.0]]),
        trace("rqmc", elbo=[-9.0, -9.0, [-7.0, -6.99, -7.01]]),
    ]
    row = difference(judge, trace("mlmc", elbo=[-9.0, -9.0, -4.0]), *rivals, others=["mc", "rqmc"])
    assert (row["verdict"], row["ours"], "ahead of mc" in row["note"]) == ("undecided", pytest.approx(5.0), True)
    behind = trace("mc", elbo=[-9.0, -9.0, [-3.0, -3.01, -2.99]])
    row = difference(judge, trace("mlmc", elbo=[-9.0, -9.0, -4.0]), behind, rivals[1], others=["mc", "rqmc"])
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(-1.0))


def test_a_difference_at_a_step_size_needs_no_measured_gradients(judge):
    ran = [trace("mlmc", step=step, elbo=[-9.0, -5.0, [-4.0, -3.0 - step, -2.0]]) for step in (0.1, 0.3)]
    ran += [trace("mc", step=step, elbo=[-9.0, -8.0, [-7.0, -6.5, -5.0]]) for step in (0.1, 0.3)]
    for more in ({"step_size": 0.3}, {"step_size": 0.1}, {}):
        test = {**MLMC, "others": ["mc"], "above": 0, **more}
        with_, without = (judge("difference", tables, **test) for tables in (measured(*ran), gathered(*ran)))
        same = ["verdict", "ours", "low", "high", "note"]
        assert list(with_[same]) == list(without[same]), more
    for more, words in (
        ({"of": "test_log_likelihood"}, "was not measured"),
        ({"by": "evaluations"}, "table 'measured'"),
    ):
        with pytest.raises(UserError, match=words):
            judge("difference", gathered(*ran), **MLMC, others=["mc"], above=0, **more)
    gone = gathered(trace("mlmc", step=0.3, lost=True), *ran[2:])
    row = judge("difference", gone, **MLMC, others=["mc"], above=0, step_size=0.3)
    assert (row["verdict"], row["ours"]) == ("fails", -INF)


def test_diverged_methods(judge):
    gone, there = gradients("mlmc", lost=True, test_log_likelihood=-1.0), gradients("mc", test_log_likelihood=-1.0)
    where = "a repetition of mlmc diverged at"
    other_way = {"method": "mc", "others": ["mlmc"]}
    for more, verdict, ours in [
        ({}, "fails", INF), (other_way, "holds", 0.0), ({"of": "snr_true", "below": None, "above": 1}, "fails", 0.0),
        ({"of": "snr_true", "below": None, "above": 1, **other_way}, "holds", INF),
        ({"moment": "start"}, "undecided", np.nan), ({"of": "signal"}, "undecided", np.nan),
    ]:  # fmt: skip
        row = ratio(judge, gone, there, **more)
        assert (row["verdict"], row["note"]) == (verdict, f"mine; {where} every step size")
        assert row["ours"] == pytest.approx(ours, nan_ok=True)
    both = gradients("mc", lost=True, test_log_likelihood=-1.0)
    assert ratio(judge, gone, both)["verdict"] == "undecided"
    for more, verdict, place in [
        ({}, "fails", "every step size"), ({"of": "test_log_likelihood"}, "fails", "every step size"),
        ({"method": "mc", "others": ["mlmc"]}, "holds", "every step size"), ({"step_size": 0.1}, "fails", "step size 0.1"),
    ]:  # fmt: skip
        row = difference(judge, gone, there, **more)
        assert (row["verdict"], row["note"]) == (verdict, f"mine; {where} {place}")
    fine = pd.concat([gone, trace("mlmc", step=0.01, **GRADIENTS, elbo=-9.0)], ignore_index=True)
    row = difference(judge, fine, there)
    assert (row["verdict"], row["ours"]) == ("fails", -6.0)  # behind, at the step size that is left


def test_realised_errors_are_compared_by_arithmetic_means(judge):
    """One run's squared error is a draw; what it is compared with, at the start, is expected. Here they are equal."""
    draws = np.random.default_rng(0).exponential(size=400)
    draws *= 4.0 / draws.mean()
    made = gradients("mlmc", repetitions=400, squared_error=[4.0, 1.0, list(draws)])
    assert np.exp(np.log(draws / 4).mean()) < 0.7  # what a geometric mean would say
    for more in ({"to_moment": "start"}, {"to": "variance"}):
        row = ratio(judge, made, of="squared_error", others=[], above=0.8, **more)
        assert (row["ours"], row["verdict"]) == (pytest.approx(1.0), "holds")
        assert 0.8 < row["low"] < 0.95 < 1.05 < row["high"] < 1.2
    same = ratio(judge, made, of="snr_true", others=[], to="snr_true", to_moment="start", above=0.8)
    assert same["ours"] == pytest.approx(1.0)
    mine = gradients("mlmc", squared_error=[1.0, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    row = ratio(judge, mine, gradients("mc"), of="squared_error", moment="along")  # averaged over iterations
    assert row["ours"] == pytest.approx(np.sqrt(2 / 9 * 20 / 25))


@pytest.mark.parametrize(
    ("ahead", "above", "verdict"),
    [((1.0, 1.1, 0.9), 0, "holds"), ((-1.0, -1.1, -0.9), 0, "fails"), ((1.0, -1.0, 0.1), 0, "undecided"),
     ((-0.3, -0.31, -0.29), -0.5, "holds")],
)  # fmt: skip
def test_measured_difference_after_the_same_iterations(judge, ahead, above, verdict):
    base = np.array([-10.0, -200.0, -3000.0])
    mine = trace("mlmc", elbo=[-9e3, -8e3, list(base + np.array(ahead))])
    row = difference(judge, mine, trace("mc", elbo=[-9e3, -8e3, list(base)]), above=above)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(np.mean(ahead)))
    assert row["note"] == "mine; nats ahead of mc after 20 iterations; 3 pairs"


def test_measured_difference_after_the_same_evaluations(judge):
    """One is ahead after the same iterations and behind after the same gradients, of which it has taken three times."""
    mine = trace("mlmc", elbo=[-9.0, -5.0, [-1.0, -1.1, -0.9]]).assign(gradients=lambda t: 30 * t["iteration"])
    rival = trace("mc", elbo=[-9.0, -3.0, -2.0]).assign(gradients=lambda t: 10 * t["iteration"])
    assert difference(judge, mine, rival)["verdict"] == "holds"
    row = difference(judge, mine, rival, by="evaluations")
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(-5.0))  # between -9 + 2 and -5 + 2
    assert "after 200 evaluations, between -7 and -3" in row["note"]
    hull = difference(judge, mine, rival, by="evaluations", above=-4.0)
    assert (hull["verdict"], np.isnan(hull["more"])) == ("undecided", True)  # of two evaluations, not of repetitions


def test_measured_difference_after_evaluations_that_no_stop_has(judge):
    """On a straight line between sparse stops it would be behind; it may as well have been ahead all the while."""
    mine = trace("mlmc", elbo=[-100.0, [-1.0, -1.1, -0.9], -0.5]).assign(gradients=lambda t: 40 * t["iteration"])
    rival = trace("mc", elbo=[-100.0, -20.0, -10.0]).assign(gradients=lambda t: 10 * t["iteration"])
    row = difference(judge, mine, rival, by="evaluations")
    assert (row["verdict"], row["low"] <= -90, row["high"] >= 9) == ("undecided", True, True)
    sure = difference(judge, mine.assign(elbo=lambda t: t["elbo"].clip(lower=-9)), rival, by="evaluations")
    assert (sure["verdict"], sure["ours"]) == ("holds", pytest.approx((1.0 + 9.0) / 2))


def test_measured_difference_from_another_problem(judge):
    mine = trace("mlmc", problem="less", test_log_likelihood=[-3.0, -2.0, [-1.0, -1.01, -0.99]])
    rival = trace("mc", test_log_likelihood=[-3.0, -2.0, [-1.005, -1.0, -0.995]])
    other = {"problem": "less", "others_on": "p", "of": "test_log_likelihood"}
    for above, verdict in ((-0.1, "holds"), (0, "undecided")):
        row = difference(judge, mine, rival, **other, above=above)
        assert row["verdict"] == verdict
        assert "nats per test row ahead of mc on p after 20 iterations; 3 repetitions, not paired" in row["note"]
    with pytest.raises(UserError, match="interval: rank needs pairs, and others_on leaves none"):
        difference(judge, mine, rival, **other, interval="rank")


def test_nothing_is_compared_where_only_the_start_is_shared(judge):
    mine = gradients("mlmc", elbo=0.0).assign(iteration=lambda t: t["iteration"] * 11 // 10)
    rival = gradients("mc", variance=99.0).assign(iteration=lambda t: t["iteration"] * 1.5)
    rows = [ratio(judge, mine, rival, **more) for more in ({}, {"moment": "along"}, {"of": "squared_error"})]
    for row in (*rows, difference(judge, mine, rival)):
        assert row["verdict"] == "undecided"
        assert "mc has no common iteration after the start" in row["note"]
    assert ratio(judge, mine, rival, moment="start")["verdict"] == "holds"


def test_ranks_decide_where_tails_are_heavy(judge):
    """Nine runs end lower and one far below: a t-interval of the mean contains 0."""
    losses = [3.0, 4.0, 5.0, 3.5, 4.5, 5.5, 6.0, 2500.0, 3.2, 4.1]
    mine = gradients("mlmc", elbo=[-9.0, -8.0, [-5.0 - loss for loss in losses]], repetitions=10,
                     squared_error=[4.0, 9.0, [2.0 * loss for loss in losses]])  # fmt: skip
    mc = gradients("mc", elbo=[-9.0, -8.0, -5.0], repetitions=10, squared_error=2.0)
    assert difference(judge, mine, mc)["verdict"] == "undecided"
    row = difference(judge, mine, mc, interval="rank")
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(-np.median(losses)))
    assert (row["low"], row["high"]) == (pytest.approx(-6.0), pytest.approx(-3.2))
    few = [one[one["repetition"] < 5] for one in (mine, mc)]
    assert difference(judge, *few, interval="rank")["verdict"] == "undecided"  # five pairs have no such interval
    row = ratio(judge, mine, mc, of="squared_error", interval="rank", above=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(np.exp(np.median(np.log(losses)))))


def test_state_is_measured_in_bytes(judge):
    tables = measured(gradients("mlmc", state_bytes=772), gradients("mc", state_bytes=256))
    row = judge("measured_ratio", tables, **MLMC, of="state_bytes", others=["mc"], at_most=2)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(772 / 256))


@pytest.mark.parametrize(
    ("effect", "test", "words"),
    [("measured_ratio", {"method": "nobody", "of": "variance"}, "no rows of problem p, method nobody"),
     ("measured_ratio", {"of": "snr_true"}, "need solver.diagnostics"),
     ("measured_ratio", {"of": "state_bytes"}, "state_bytes of mc on p was not measured"),
     ("difference", {"step_size": 0.3}, "no rows of problem p, method mc, .*step_size 0.3"),
     ("difference", {"of": "test_log_likelihood"}, "was not measured")],
)  # fmt: skip
def test_claims_of_what_did_not_run(judge, effect, test, words):
    with pytest.raises(UserError, match=words):
        judge(
            effect,
            measured(trace("mc"), trace("n")),
            **{"problem": "p", "method": "mc", "others": ["n"], "below": 1} | test,
        )


# settings ---------------------------------------------------------------------------------------------------------


def grid(elbo, lose=(), offsets=None, estimator="mlmc"):
    """Settings ``(step, beta, r) -> ELBO`` of four repetitions, or of those with the given offsets."""
    traces, plans = [], {}
    for (step, beta, r), value in elbo.items():
        method = f"{estimator}_{beta}_{r}"
        plans["p", method, "jax"] = SimpleNamespace(kind="step", beta=beta, r=r)
        ends = [value + one for one in (offsets or {}).get((step, beta, r), (0, 0.1, 0, 0.1))]
        made = trace(method, step=step, repetitions=len(ends), elbo=[-999.0, -500.0, ends])
        if (step, beta, r) in lose:
            made.loc[made["iteration"] == 20, ["elbo", "status"]] = [np.nan, "diverged"]
        traces.append(made)
    both = pd.concat(traces, ignore_index=True)
    table = A.convergence(both, {}, {"p": 1})
    estimators = {method: estimator for _, method, _ in plans}
    return {"sensitivity": selection.sensitivity(table, plans, estimators), "ends": A.ends(both, table, {})}


ELBO = {(0.1, 0.5, 10): -1.0, (0.01, 0.5, 10): -4.0, (0.1, 0.9, 10): -1.2, (0.01, 0.9, 10): -90.0}


@pytest.mark.parametrize(
    ("to", "lose", "verdict", "ours", "note"),
    [("alpha0", (), "holds", 3.0, "alpha0 0.01 instead of 0.1, chosen by 2 other repetitions; 2 pairs"),  # the others at their best, not their worst
     ("beta", (), "fails", 0.2, "beta 0.9 instead of 0.5, chosen by 2 other repetitions; 2 pairs"),
     ("r", (), "undecided", 0.0, "only one r was tried with the best of the other settings"),
     ("alpha0", {(0.01, 0.5, 10)}, "holds", INF, "alpha0 0.01 instead of 0.1, which diverges"),
     ("alpha0", ELBO, "undecided", np.nan, "every setting diverged")],
)  # fmt: skip
def test_sensitivity(judge, to, lose, verdict, ours, note):
    row = judge("sensitivity", grid(ELBO, lose), problem="p", to=to, estimator="mlmc", above=1)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(ours, nan_ok=True))
    assert row["note"] == f"mine; {note}"


@pytest.mark.parametrize(
    ("factor", "lose", "control_loses", "verdict", "ours"),
    [(0.5, (), (), "holds", 1.5), (1.0, (), (), "fails", 0.0), (1.5, (), (), "fails", -1.5),
     (1.0, {(0.01, 0.5, 10)}, (), "holds", INF), (1.0, (), {(0.01, 0.5, 10)}, "fails", -INF),
     (1.0, {(0.01, 0.5, 10)}, {(0.01, 0.5, 10)}, "undecided", np.nan), (1.0, (), ELBO, "undecided", np.nan)],
)  # fmt: skip
def test_sensitivity_beyond_that_of_a_control(judge, factor, lose, control_loses, verdict, ours):
    """The control's ELBOs are ``factor`` times mlmc's, and so its drop."""
    made = grid(ELBO, lose), grid({one: factor * v for one, v in ELBO.items()}, control_loses, estimator="naive")
    tables = {name: pd.concat([part[name] for part in made], ignore_index=True) for name in made[0]}
    about = {"problem": "p", "to": "alpha0", "estimator": "mlmc", "control": "naive", "above": 1}
    row = judge("sensitivity", tables, **about)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(ours, nan_ok=True))
    assert row["note"].startswith("mine; alpha0 0.01 instead of 0.1" if ours == ours or lose else "mine; naive: every")


def test_sensitivity_is_judged_on_other_runs_than_chose_the_settings_and_by_ranks(judge):
    """Of two equal settings, the one that is ahead in the choosing half is behind by as much in the other."""
    about, (first, second, *_) = {"problem": "p", "to": "alpha0", "estimator": "mlmc", "above": 1}, ELBO
    offsets = {first: [1.0, 1.2, -1.0, -1.2], second: [-1.0, -1.2, 1.0, 1.2]}
    row = judge("sensitivity", grid(dict.fromkeys(offsets, -5.0), offsets=offsets), **about)
    assert (row["ours"], row["verdict"]) == (pytest.approx(-2.2), "fails")
    few = np.linspace(-0.1, 0.1, 20)  # differences of about 3 nats in nine runs and of 1e4 in the tenth
    offsets = {first: 0 * few, second: np.r_[few[:19], -1e4]}
    tables = grid({one: ELBO[one] for one in offsets}, offsets=offsets)
    assert judge("sensitivity", tables, **about)["verdict"] == "undecided"
    row = judge("sensitivity", tables, **about, interval="rank")
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(3, abs=0.05))
