"""Effects of variances and of runs: gaps and ELBOs in pairs, iterations, steps, sizes, costs, noise schemes."""

import json

import numpy as np
import pandas as pd
import pytest
from traces import runs

from lowvar.errors import UserError
from lowvar.studies.variational import convergence as A
from lowvar.studies.variational import times

NAN, INF = np.nan, np.inf
AT = {"problem": "p", "method": "joint"}
START = [-90.0, -80.0, -99.0]


def parts(**intervals):
    """A decomposition of ``method=(low, value, high)``; ``method__source`` for parts."""
    rows = []
    for name, (low, value, high) in intervals.items():
        method, _, source = name.partition("__")
        rows.append({"problem": "p", "method": method, "block": "all", "source": source or "total", "end": True,
                     "variance": value, "low": low, "high": high})  # fmt: skip
    return {"decomposition": pd.DataFrame(rows)}


def test_variance(judge):
    row = judge("variance", parts(naive=(95, 100, 105)), problem="p", method="naive", published=100, tolerance=0.1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 100, 95, 105)
    with pytest.raises(UserError, match="claim 'c': the table 'decomposition' has no rows of problem p, method nobody"):
        judge("variance", parts(naive=(1, 2, 3)), problem="p", method="nobody", below=1)
    with pytest.raises(UserError, match="needs the table 'decomposition'"):
        judge("variance", {}, problem="p", method="naive", below=1)


@pytest.mark.parametrize(
    ("joint", "naive", "cv", "verdict"),
    [
        ((4.5, 5, 5.5), (9, 10, 11), (8, 9, 10), "holds"),
        ((4.5, 5, 5.5), (9, 10, 11), (3, 10.1, 17), "undecided"),  # the wider rival, not the lower one, decides
        ((12, 13, 14), (9, 10, 11), (20, 21, 22), "fails"),
        ((12, 13, 14), (-1, 5, 11), (20, 21, 22), "fails"),  # no ratio of intervals, but they do not overlap
        ((4.5, 5, 5.5), (-1, 10, 11), (8, 9, 10), "undecided"),
    ],
)
def test_variance_ratio(judge, joint, naive, cv, verdict):
    tables = parts(joint=joint, naive=naive, cv=cv)
    row = judge("variance_ratio", tables, **AT, others=["naive", "cv"], below=1)
    assert (row["verdict"], row["ours"]) == (verdict, joint[1] / min(naive[1], cv[1]))


def test_variance_ratio_to_parts_and_under_the_first_noise_scheme(judge):
    tables = parts(joint=(4.5, 5, 5.5), naive__subsampling=(9, 10, 11), naive__monte_carlo=(5.6, 6, 7))
    iid = tables["decomposition"].assign(noise="iid", particles=1)
    tables = {"decomposition": pd.concat([iid, iid.assign(noise="rqmc", variance=0.0)])}
    row = judge("variance_ratio", tables, **AT, others=["naive"], parts=["subsampling", "monte_carlo"], below=1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 5 / 6, 4.5 / 7, 5.5 / 5.6)


@pytest.mark.parametrize(
    ("share", "verdict"),
    [((0.85, 0.9, 0.95), "holds"), ((0.5, 0.6, 0.7), "fails"), ((0.7, 0.8, 1.2), "undecided"),
     ((-1, 0.9, 1), "undecided")],
)  # fmt: skip
def test_total_to_part(judge, share, verdict):
    """At the end of the run; the share has the interval, not the two variances."""
    rows = [{"problem": "p", "method": "joint", "block": "all", "source": source, "epoch": epoch, "end": epoch == 1,
             "variance": 9.0, "low": 0.0, "high": 99.0, "share": mid, "share_low": low, "share_high": high}
            for source in ("total", "subsampling")
            for epoch, (low, mid, high) in enumerate([(0.1, 0.2, 0.3), share])]  # fmt: skip
    row = judge("total_to_part", {"decomposition": pd.DataFrame(rows)}, **AT, part="subsampling", at_most=1.25)
    assert row["verdict"] == verdict
    assert (share[0] > 0) == (row["low"] == 1 / share[2])


def test_noise_variance_ratio(judge):
    made = {"problem": "p", "method": "joint", "block": "all", "source": "total", "noise": "rqmc", "particles": 8,
            "to_iid": 0.5, "to_iid_low": 0.4, "to_iid_high": 0.6}  # fmt: skip
    tables = {"schemes": pd.DataFrame([made])}
    row = judge("noise_variance_ratio", tables, **AT, noise="rqmc", particles=8, below=1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 0.5, 0.4, 0.6)
    with pytest.raises(UserError, match=r"no rows of .* particles 4"):
        judge("noise_variance_ratio", tables, **AT, noise="rqmc", particles=4, below=1)


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
    with pytest.raises(UserError, match="use elbo_difference"):
        judge("gap_ratio", gathered(naive, joint), **AT, others=["naive"], below=1)


@pytest.mark.parametrize(
    ("effect", "bound", "ours"),
    [("gap_ratio", {"below": 1}, (INF, 0.0)), ("elbo_difference", {"above": 0}, (-INF, INF)),
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
    row = judge("elbo_difference", tables, **AT, others=["naive"], above=0)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(4.97, abs=0.01))
    assert "after 20 iterations; 3 pairs" in row["note"]
    assert judge("elbo_difference", tables, **AT, others=["naive"], iteration=15, above=0)["ours"] == pytest.approx(5.0)
    assert swapped(judge, "elbo_difference", tables, above=0)["verdict"] == "fails"
    few = runs("joint", [[-80.0, -7.0], [-35.0, -7.0], [-15.0, -7.0]], repetitions=[1, 8])
    row = judge("elbo_difference", gathered(NAIVE, few), **AT, others=["naive"], above=0)
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
    tables["table3"] = pd.DataFrame([{"problem": "p", "backend": "jax", "method": method, "seconds": seconds}
                                     for method, seconds in (("naive", 1.0), ("joint", 3.0))])  # fmt: skip
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
    row = judge("stable_step_ratio", tables, **AT, other="naive", above=1)
    assert (row["ours"], row["verdict"]) == (2.0, "holds")  # naive ends below its start at 2
    assert judge("stable_step_ratio", tables, problem="p", method="naive", other="joint", above=1)["verdict"] == "fails"
    one = {name: table[table.get("repetition", 0) == 0] for name, table in tables.items() if name == "ends"}
    assert judge("stable_step_ratio", {**tables, **one}, **AT, other="naive", above=1)["verdict"] == "undecided"


def kept(folder, load=0.2, **runs):
    """A benchmark's output: ``task=[(case, ratio, low, high), ...]``."""
    rows = {task.replace("_", "-"): {"runs": [{"case": case, "ratio": ratio, "ratio_low": low, "ratio_high": high,
            "calls": 9} for case, ratio, low, high in cases]} for task, cases in runs.items()}  # fmt: skip
    text = json.dumps({"environment": {"load_at_start": load}, "sections": {"steps": rows}})
    (folder / "joint.json").write_text(text)
    return {"times": times.times(folder)}


def test_times_are_judged_by_a_kept_benchmark(judge, tmp_path):
    cases = [("naive", 1.0, 1.0, 1.0), ("joint", 1.7, 1.6, 1.75), ("cv", 1.25, 1.2, 1.3)]
    tables = kept(tmp_path, p=cases, q_torch=cases)
    row = judge("time_ratio", tables, **AT, published=1.69, tolerance=0.1)
    assert (row["verdict"], row["ours"], row["low"], row["high"]) == ("holds", 1.7, 1.6, 1.75)
    assert row["note"] == "mine; joint.json: 9 alternating rounds"
    assert judge("time_ratio", tables, **AT, published=4, tolerance=0.25)["verdict"] == "fails"
    row = judge("time_ratio", tables, **AT, other="cv", above=1.2)
    assert (row["verdict"], row["low"], row["high"]) == ("holds", pytest.approx(1.6 / 1.3), pytest.approx(1.75 / 1.2))
    torch = {"problem": "q", "method": "joint", "backend": "torch"}
    assert judge("time_ratio", tables, **torch, above=1)["verdict"] == "holds"


def test_times_without_a_quiet_benchmark_are_not_judged(judge, tmp_path):
    row = judge("time_ratio", {"times": times.times(tmp_path)}, **AT, below=9)
    assert (row["verdict"], row["note"]) == (
        "undecided", "mine; not judged: no kept benchmark times joint and naive on p, jax"
    )  # fmt: skip
    busy = kept(tmp_path, load=3.4, p=[("naive", 1.0, 1.0, 1.0), ("joint", 1.7, 1.6, 1.75)])
    row = judge("time_ratio", busy, **AT, below=9)
    assert (row["verdict"], row["note"]) == ("undecided", "mine; not judged: joint.json began at load 3.4, above 1")
    (tmp_path / "joint.json").write_text('{"environment": {}}')
    with pytest.raises(UserError, match=r"joint\.json: not the output of a benchmark with the section 'steps'"):
        times.times(tmp_path)


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
    row = judge("elbo_difference", gathered(runs("naive", level), runs("joint", mine)), **AT, others=["naive"],
                interval="rank", above=0)  # fmt: skip
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(-1.5))
