"""Effects of variances and of runs: gaps and ELBOs in pairs, iterations, steps, sizes, costs, noise schemes."""

import numpy as np
import pandas as pd
import pytest
from traces import runs

from lowvar.errors import UserError
from lowvar_studies.reports.variational import convergence as A

NAN, INF = np.nan, np.inf
AT = {"problem": "p", "method": "joint"}
START = [-90.0, -80.0, -99.0]


def parts(**intervals):
    """A decomposition of ``method=(low, value, high)``; ``method__source`` for parts."""
    rows = []
    for name, (low, value, high) in intervals.items():
        method, _, source = name.partition("__")
        rows.append({"problem": "p", "method": method, "block": "all", "source": source or "total", "end": True,
                     "variance": value, "low": low, "high": high, "batch_size": 2, "runs": 1})  # fmt: skip
    return {"decomposition": pd.DataFrame(rows)}


def designs(ends, **methods):
    """Designs of ``method = {source: single-row values}``, each ``(epochs, runs)``; an epoch before ``ends`` first."""
    rows = []
    for method, sources in methods.items():
        for epoch, run in np.ndindex(np.shape(sources["subsampling"])):
            rows.append({"problem": "p", "method": method, "block": "all", "epoch": epoch, "end": epoch == ends,
                         "run": run, "replicate": 0, "monte_carlo": 0.0, "interaction": 0.0,
                         **{source: float(values[epoch][run]) for source, values in sources.items()}})  # fmt: skip
    return {"designs": pd.DataFrame(rows), **parts(naive=(1, 1, 1))}


def test_variance(judge):
    row = judge("variance", parts(naive=(95, 100, 105)), problem="p", method="naive", published=100, tolerance=0.1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 100, 95, 105)
    with pytest.raises(UserError, match="claim 'c': the table 'decomposition' has no rows of problem p, method nobody"):
        judge("variance", parts(naive=(1, 2, 3)), problem="p", method="nobody", below=1)
    with pytest.raises(UserError, match="needs the table 'decomposition'"):
        judge("variance", {}, problem="p", method="naive", below=1)


def test_variance_at_another_batch_size(judge):
    first = parts(naive=(95, 100, 105))["decomposition"].assign(problem="p")
    both = {"decomposition": pd.concat([first, first.assign(batch_size=10, variance=20.0, low=19.0, high=21.0)])}
    assert judge("variance", both, problem="p", method="naive", below=200)["ours"] == 100
    assert judge("variance", both, problem="p", method="naive", batch_size=10, below=200)["ours"] == 20
    with pytest.raises(UserError, match=r"no rows of .*batch_size 3"):
        judge("variance", both, problem="p", method="naive", batch_size=3, below=200)


SPREAD = np.array([1.0, 10.0, 100.0, 1000.0, 3.0])  # runs differ by a factor of a thousand, methods by two in each


def test_variance_ratio_is_paired(judge):
    """Ratios of totals at batch size 2, over the same runs: pairs decide, means would not."""
    about = SPREAD * [0.99, 1.01, 1.0, 1.0, 1.0]
    both = designs(0, naive={"subsampling": [2 * SPREAD]}, joint={"subsampling": [about]})
    row = judge("variance_ratio", both, **AT, others=["naive"], below=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5, rel=0.01))
    assert row["low"] > 0.45
    assert row["high"] < 0.55
    row = judge("variance_ratio", both, problem="p", method="naive", others=["joint"], below=1)
    assert row["verdict"] == "fails"
    noisy = designs(0, naive={"subsampling": [2 * SPREAD]}, joint={"subsampling": [SPREAD[::-1]]})
    assert judge("variance_ratio", noisy, **AT, others=["naive"], below=1)["verdict"] == "undecided"


def test_variance_ratio_counts_each_source_at_the_batch_size(judge):
    """At batch size 2: 4 / 2 + 1 + 2 / 2 = 4 over parts of 12 / 2 and 5."""
    one = np.ones((1, 5))
    tables = designs(
        0, joint={"subsampling": 4 * one, "monte_carlo": one, "interaction": 2 * one},
        naive={"subsampling": 12 * one, "monte_carlo": 5 * one},
    )  # fmt: skip
    row = judge("variance_ratio", tables, **AT, others=["naive"], parts=["subsampling"], below=1)
    assert row["ours"] == pytest.approx(4 / 6)
    row = judge("variance_ratio", tables, **AT, others=["naive"], parts=["subsampling", "monte_carlo"], below=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(4 / 5))
    row = judge("variance_ratio", tables, **AT, others=["naive"], source="monte_carlo", below=1)
    assert row["ours"] == pytest.approx(1 / 5)
    weights = {"subsampling": 0.25, "monte_carlo": 0.5}
    row = judge("variance_ratio", tables, **AT, others=["naive"], weights=weights, above=0.9)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(4 / (6 / 4 + 5 / 2)))
    assert "weighted parts" in row["note"]


def test_variance_ratio_along_the_run_is_worst_at_one_moment(judge):
    """Below at the end, above at epoch 1; the start, where memories are empty, does not count."""
    own = np.array([9.0, 3.0, 0.5])[:, None] * SPREAD
    tables = designs(2, naive={"subsampling": np.tile(2 * SPREAD, (3, 1))}, joint={"subsampling": own})
    assert judge("variance_ratio", tables, **AT, others=["naive"], below=1)["verdict"] == "holds"
    row = judge("variance_ratio", tables, **AT, others=["naive"], moment="along", below=1)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(1.5))
    assert "epoch 1, the worst of 2 moments" in row["note"]


def test_variance_ratio_under_the_first_noise_scheme(judge):
    tables = designs(0, naive={"subsampling": [2 * SPREAD]}, joint={"subsampling": [SPREAD]})
    iid = tables["designs"].assign(noise="iid", particles=1)
    tables["designs"] = pd.concat([iid, iid.assign(noise="rqmc", subsampling=1e9)])
    assert judge("variance_ratio", tables, **AT, others=["naive"], below=1)["ours"] == pytest.approx(0.5)
    with pytest.raises(UserError, match="the table 'designs' has no rows of problem p, method nobody"):
        judge("variance_ratio", tables, **AT, others=["nobody"], below=1)


def test_noise_variance_ratio(judge):
    made = {"problem": "p", "method": "joint", "block": "all", "source": "total", "noise": "rqmc", "particles": 8,
            "to_iid": 0.5, "to_iid_low": 0.4, "to_iid_high": 0.6}  # fmt: skip
    tables, ratio = {"schemes": pd.DataFrame([made])}, {"table": "schemes", "column": "to_iid"}
    row = judge("value", tables, **ratio, at=AT | {"noise": "rqmc", "particles": 8}, below=1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 0.5, 0.4, 0.6)
    with pytest.raises(UserError, match=r"no rows of .* particles 4"):
        judge("value", tables, **ratio, at=AT | {"particles": 4}, below=1)


def gathered(*traces, optima=None):
    both = pd.concat(traces, ignore_index=True)
    table = A.convergence(both, optima or {}, {"p": 50})
    return {"convergence": table, "ends": A.ends(both, table, optima or {}), "paths": A.paths(both, table, {})}


NAIVE = runs("naive", [START, [-50.0, -40.0, -60.0], [-30.0, -20.0, -40.0]])
JOINT = runs("joint", [START, [-46.0, -35.0, -54.0], [-25.0, -15.1, -35.0], [0.0, 0.0, 0.0]])
LOST = runs("joint", [START, [NAN] * 3, [-INF] * 3])


def swapped(judge, effect, tables, **test):
    return judge(effect, tables, **{"problem": "p", "method": "naive", "others": ["joint"]} | test)


def test_gap_ratio_is_paired(judge):
    """Repetitions differ by a factor of a thousand, methods by two in each: pairs decide, means would not."""
    spread = np.array([1e-3, 1e-1, 1.0])
    naive, joint = (runs(name, [[-10.0] * 3, list(-spread * factor)])
                    for name, factor in (("naive", 2.0), ("joint", np.array([0.99, 1.0, 1.01]))))  # fmt: skip
    tables = gathered(naive, joint, optima={"p": 0.0})
    row = judge("gap_ratio", tables, **AT, others=["naive"], below=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5, rel=0.01))
    best = A.best(tables["convergence"]).set_index("method")
    assert best.loc["joint", "gap_high"] > best.loc["naive", "gap_low"]
    with pytest.raises(UserError, match="use difference"):
        judge("gap_ratio", gathered(naive, joint), **AT, others=["naive"], below=1)


@pytest.mark.parametrize(
    ("effect", "bound", "ours"),
    [("gap_ratio", {"below": 1}, (INF, 0.0)), ("difference", {"above": 0, "along": "envelope"}, (-INF, INF)),
     ("effort_ratio", {"below": 1}, (INF, 0.0)), ("effort_ratio", {"below": 1, "level": -40.0}, (INF, None)),
     ("step_size_ratio", {"above": 1}, (0.0, INF))],
)  # fmt: skip
def test_a_diverged_method_loses(judge, effect, bound, ours):
    tables = gathered(NAIVE, LOST, optima={"p": 0.0})
    row = judge(effect, tables, **AT, others=["naive"], **bound)
    assert (row["verdict"], row["ours"]) == ("fails", ours[0])
    if ours[1] is not None:
        row = swapped(judge, effect, tables, **bound)
        assert (row["verdict"], row["ours"]) == ("holds", ours[1])
    with pytest.raises(UserError, match="the table 'ends' has no rows of problem p, method nobody"):
        swapped(judge, effect, tables, others=["nobody"], **bound)


def test_elbo_difference_in_pairs_after_the_same_iterations(judge):
    """Repetitions differ by 10, methods by about 5: pairs decide. The longer run is looked at where the other ends."""
    tables = gathered(NAIVE, JOINT)
    row = judge("difference", tables, **AT, along="envelope", others=["naive"], above=0)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(4.97, abs=0.01))
    assert "after 20 iterations; 3 pairs" in row["note"]
    assert judge("difference", tables, **AT, along="envelope", others=["naive"], iteration=15, above=0)[
        "ours"
    ] == pytest.approx(5.0)
    assert swapped(judge, "difference", tables, along="envelope", above=0)["verdict"] == "fails"
    few = runs("joint", [[-80.0, -7.0], [-35.0, -7.0], [-15.0, -7.0]], repetitions=[1, 8])
    row = judge("difference", gathered(NAIVE, few), **AT, along="envelope", others=["naive"], above=0)
    assert (row["verdict"], row["ours"]) == ("undecided", pytest.approx(5.0))
    assert "1 pair" in row["note"]
    assert np.isnan(row["low"])


@pytest.mark.parametrize(("shift", "verdict"), [(1.0, "holds"), (6.0, "fails")])
def test_elbo_fraction(judge, shift, verdict):
    same = [START, [-46.0, -35.0, -54.0]]
    mine, svrg = runs("joint", [*same, [-20, -9, -31]]), runs("svrg", [*same, [v - shift for v in (-20, -9, -31)]])
    tables = gathered(NAIVE, mine, svrg)
    row = judge("elbo_fraction", tables, **AT, other="svrg", reference="naive", above=-0.2, below=0.2)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(shift / 10))


@pytest.mark.parametrize(
    ("elbos", "more", "verdict", "ours"),
    [
        ([[-30.0, -20.0, -39.0], [-1.0, -1.0, -1.0]], {}, "holds", 0.5),
        ([[-30.0, -20.0, -39.0], [-1.0, -1.0, -1.0]], {"below": 0.4}, "fails", 0.5),
        ([[-80.0, -70.0, -80.0], [-70.0, -60.0, -70.0]], {}, "fails", INF),  # nobody gets there
        ([[-25.0, -70.0, -39.0], [-25.0, -60.0, -39.0]], {}, "undecided", None),
        ([[-80.0, -70.0, -80.0], [-70.0, -60.0, -70.0]], {"level": 0.0}, "undecided", None),
        ([[-40.0] * 3, [-1.0] * 3], {"level": -40.0}, "undecided", np.exp(np.mean(np.log([10 / 15, 1, 0.5])))),
    ],
)
def test_effort_ratio(judge, elbos, more, verdict, ours):
    tables = gathered(NAIVE, runs("joint", [START, *elbos]))
    row = judge("effort_ratio", tables, **AT, others=["naive"], **{"below": 1, **more})
    assert row["verdict"] == verdict
    assert ours is None or row["ours"] == pytest.approx(ours, rel=0.02)
    assert ("joint misses the level in 3 of 3" in row["note"]) == (elbos[0][0] == -80)


@pytest.mark.parametrize("repetitions", [[0, 1, 2], [0]])
def test_effort_ratio_in_seconds(judge, repetitions):
    """A step of joint takes three times as long, also where there is one pair."""
    count = len(repetitions)
    tables = gathered(NAIVE, runs("joint", [START[:count], [-40.0] * count, [-1.0] * count], repetitions=repetitions))
    tables["times"] = times(naive=[1.0, 2.0], joint=[3.0, 6.0])
    steps, seconds = (judge("effort_ratio", tables, **AT, others=["naive"], level=-40, unit=unit, below=1, published=0.5)
                      for unit in ("iterations", "seconds"))  # fmt: skip
    assert seconds["ours"] == pytest.approx(3 * steps["ours"])
    assert seconds["published"] == 0.5
    assert ("fewer than 2: undecided" in seconds["note"]) == (count == 1)


def test_step_sizes_and_which_are_stable(judge):
    """naive is best at 1; joint is as good there, at 2 it is too, and at 4 some of it diverged."""
    naive = pd.concat([NAIVE, runs("naive", [START, [-95.0] * 3, [-99.0] * 3], 2.0)])
    good = [START, [-46.0, -35.0, -54.0], [-25.0, -15.0, -35.0]]
    lost = runs("joint", [*good[:2], [-25.0, -15.0, NAN]], 4.0)
    tables = gathered(naive, runs("joint", good), runs("joint", good, 2.0), lost)
    row = judge("step_size_ratio", tables, **AT, others=["naive"], above=1)
    assert (row["verdict"], row["ours"], row["low"]) == ("holds", 2.0, 2.0)
    assert swapped(judge, "step_size_ratio", tables, above=1)["verdict"] == "fails"
    short = gathered(naive, runs("joint", good))
    row = judge("step_size_ratio", short, **AT, others=["naive"], above=1)
    assert (row["verdict"], row["note"][-19:]) == ("undecided", "the end of the grid")
    row = judge("step_size_ratio", tables, **AT, others=["naive"], ends="above_start", above=1)
    assert (row["ours"], row["verdict"]) == (2.0, "holds")  # naive ends below its start at 2
    assert swapped(judge, "step_size_ratio", tables, ends="above_start", above=1)["verdict"] == "fails"
    one = {name: table[table.get("repetition", 0) == 0] for name, table in tables.items() if name == "ends"}
    assert (
        judge("step_size_ratio", {**tables, **one}, **AT, others=["naive"], ends="above_start", above=1)["verdict"]
        == "undecided"
    )


def times(**methods):
    """Rounds of a benchmark."""
    rows = [{"problem": "p", "backend": "jax", "method": method, "round": number, "seconds": seconds}
            for method, rounds in methods.items() for number, seconds in enumerate(rounds)]  # fmt: skip
    return pd.DataFrame(rows)


def test_time_ratio_is_paired_in_rounds(judge):
    """A busy machine slows a whole round: ratios in rounds decide."""
    busy = np.array([1.0, 5.0, 1.0, 2.0, 9.0])
    tables = {"times": times(naive=busy, joint=1.7 * busy * [1.02, 0.99, 1.0, 1.01, 0.98])}
    row = judge("effort_ratio", tables, **AT, others=["naive"], unit="step", published=1.69, tolerance=0.05)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(1.7, rel=0.01))
    assert row["note"].endswith("5 alternating rounds of a benchmark")
    assert judge("effort_ratio", tables, **AT, others=["naive"], unit="step", below=1.6)["verdict"] == "fails"
    noisy = {"times": times(naive=busy, joint=busy[::-1])}
    assert judge("effort_ratio", noisy, **AT, others=["naive"], unit="step", below=1.6)["verdict"] == "undecided"
    row = judge("effort_ratio", tables, problem="p", method="cv", others=["naive"], unit="step", below=1.2)
    assert (row["verdict"], "not judged" in row["note"]) == ("undecided", True)


def test_time_to_a_level_is_not_judged_without_a_benchmark(judge):
    tables = gathered(NAIVE, JOINT) | {"times": times(naive=[1.0])}
    row = judge("effort_ratio", tables, **AT, others=["naive"], unit="seconds", below=1)
    assert (row["verdict"], "not judged" in row["note"]) == ("undecided", True)


@pytest.mark.parametrize(("missing", "verdict"), [(9, "fails"), (8, "undecided")])  # p = 0.02 and 0.11
def test_ranks_of_iterations_to_a_level(judge, missing, verdict):
    """Most runs never get there, so that no t-interval exists."""
    level = [[-9.0] * 10, [-5.0] * 10, [-1.0] * 10]
    mine = [[-9.0] * 10, [-8.0] * 10, [-0.5] * (10 - missing) + [-4.0] * missing]
    row = judge("effort_ratio", gathered(runs("naive", level), runs("joint", mine)), **AT, others=["naive"],
                interval="rank", below=1)  # fmt: skip
    assert row["verdict"] == verdict
    assert f"joint misses the level in {missing} of 10" in row["note"]
    good = [[-9.0] * 10, [-1.0] * 10, [-0.5] * 10]
    row = judge("effort_ratio", gathered(runs("naive", level), runs("joint", good)), **AT, others=["naive"],
                interval="rank", below=1)  # fmt: skip
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5))


def test_ranks_of_elbos(judge):
    level = [[-9.0] * 8, [-1.0] * 8]
    mine = [[-9.0] * 8, [*np.linspace(-3, -2, 8)]]
    row = judge("difference", gathered(runs("naive", level), runs("joint", mine)), **AT, along="envelope", others=["naive"],
                interval="rank", above=0)  # fmt: skip
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(-1.5))
