"""Verdicts follow from intervals, gaps are compared in pairs, and the optimum is the known one."""

import numpy as np
import pandas as pd
import pytest

from lowvar.analysis.report import summary
from lowvar.errors import UserError
from lowvar.studies import claims as C
from lowvar.studies.variational import convergence as A


def decomposition(**methods):
    rows = [
        {
            "problem": "p",
            "method": name,
            "block": "all",
            "source": "total",
            "end": True,
            "variance": v,
            "low": lo,
            "high": hi,
        }
        for name, (lo, v, hi) in methods.items()
    ]
    return pd.DataFrame(rows)


def quantity(method):
    return {"problem": "p", "method": method}


def judge(test, decomposition=None, ends=None, **tables):
    claim = C.Claim(id="c", statement="s", source="t", test=test)
    return C.judge([claim], {"decomposition": decomposition, "ends": ends, **tables}).iloc[0]


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((95, 100, 105), "holds"),
        ((85, 100, 105), "undecided"),
        ((111, 120, 130), "fails"),
        ((105, 110, 120), "undecided"),
        ((10, 20, 89), "fails"),
    ],
)
def test_value(interval, verdict):
    test = {"kind": "value", "quantity": quantity("naive"), "published": 100.0, "tolerance": 0.1}
    row = judge(test, decomposition(naive=interval))
    assert (row["verdict"], row["ours"], row["published"]) == (verdict, interval[1], 100.0)


@pytest.mark.parametrize(
    ("joint", "naive", "cv", "verdict"),
    [
        ((4.5, 5, 5.5), (9, 10, 11), (8, 9, 10), "holds"),
        ((4.5, 5, 5.5), (9, 10, 11), (3, 10.1, 17), "undecided"),  # the wider rival, not the lower one, decides
        ((12, 13, 14), (9, 10, 11), (20, 21, 22), "fails"),
    ],
)
def test_below(joint, naive, cv, verdict):
    test = {"kind": "below", "quantity": quantity("joint"), "others": [quantity("naive"), quantity("cv")]}
    assert judge(test, decomposition(joint=joint, naive=naive, cv=cv))["verdict"] == verdict


def test_a_claim_of_something_else():
    test = {"kind": "value", "quantity": quantity("nobody"), "published": 1.0}
    with pytest.raises(UserError, match="which the decomposition does not have"):
        judge(test, decomposition(naive=(1, 2, 3)))


def trace(final, method, step_size=1.0, status="ok"):
    """Two epochs of several repetitions that end ``final`` below an optimum of zero."""
    rows = [
        {"problem": "p", "method": method, "backend": "jax", "step_size": step_size, "repetition": r, "epoch": epoch,
         "iteration": 10 * epoch, "gradients": 100 * epoch, "hvps": 50 * epoch, "elbo": -10.0 if epoch == 0 else -gap,
         "elbo_se": 0.0, "status": status if epoch else "ok"}
        for epoch in (0, 1) for r, gap in enumerate(final)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def tables(*traces):
    whole = pd.concat(traces, ignore_index=True)
    table = A.convergence(whole, {"p": 0.0}, {"p": 50})
    return table, A.ends(whole, table, {"p": 0.0})


GAP = {"kind": "gap", "problem": "p", "method": "joint", "others": ["naive"]}


def test_gaps_are_paired():
    """Repetitions differ by a factor of a thousand, methods by two in each: pairs decide, means would not."""
    spread = np.array([1e-3, 1e-1, 1.0])
    table, ends = tables(trace(spread * 2.0, "naive"), trace(spread * np.array([0.99, 1.0, 1.01]), "joint"))
    row = judge(GAP, ends=ends)
    assert row["verdict"] == "holds"
    assert row["ours"] == pytest.approx(0.5, rel=0.01)
    best = A.best(table).set_index("method")
    assert best.loc["joint", "gap_high"] > best.loc["naive", "gap_low"]


def test_convergence_counts_and_best():
    table, ends = tables(trace([1.0, 2.0], "naive", 0.1), trace([0.5, 0.5], "naive", 0.2))
    last = table[table["epoch"] == 1].set_index("step_size")
    assert last.loc[0.1, "gap_mean"] == pytest.approx(np.sqrt(2))
    assert last["best"].to_dict() == {0.1: False, 0.2: True}
    assert (last["oracles"] == 150).all()
    assert (last["passes"] == 3.0).all()
    assert ends.loc[ends["best"], "step_size"].unique().tolist() == [0.2]
    assert ends["step_size"].unique().tolist() == [0.1, 0.2]


def test_diverged_methods():
    nowhere = trace([np.nan, 1.0], "naive", status="diverged")
    table, ends = tables(nowhere, trace([0.5, 0.6], "joint"))
    last = table[(table["epoch"] == 1) & (table["method"] == "naive")].iloc[0]
    assert np.isinf(last["gap_mean"])
    assert not last["best"]
    assert last["diverged"] == 2
    assert judge(GAP, ends=ends)["verdict"] == "holds"
    assert judge(GAP | {"method": "naive", "others": ["joint"]}, ends=ends)["verdict"] == "fails"
    _, none = tables(nowhere)
    assert not none["best"].any()


@pytest.mark.parametrize(
    "content", ["", "a: 1", "- id: x", "[1", "- {id: a, statement: b, source: c, test: {kind: vale}}"]
)
def test_files_of_claims_that_are_none(tmp_path, content):
    path = tmp_path / "claims.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=r"claims\.yaml"):
        C.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "quickstart",
        "quickstart_mlmc",
        "joint",
        "joint_sgd",
        "joint_dropout",
        "joint_noise",
        "mlmc",
        "mlmc_tuned",
        "mlmc_fashion",
        "mlmc_sizes",
        "mlmc_sensitivity",
    ],
)
def test_shipped_claims_load(repository, name):
    """They load, and speak of what their experiments run and take apart."""
    from lowvar.studies.load import load_experiment

    loaded = C.load(repository / "workflow" / "claims" / f"{name}.yaml")
    assert len({claim.id for claim in loaded}) == len(loaded)
    experiment = load_experiment(repository / "workflow" / "experiments" / f"{name}.yaml", "paper")
    for claim in loaded:
        said = claim.test.model_dump()
        measured = [said[key] for key in ("quantity", "floor") if key in said]
        measured += [other for other in said.get("others", ()) if isinstance(other, dict)]
        for quantity in measured:
            assert quantity["method"] in experiment.decomposed_methods(quantity["problem"]), claim.id
        run = [said.get(key) for key in ("method", "other", "reference")] + list(said.get("others", ()))
        for method in run if not measured else ():
            assert method is None or method in experiment.methods_on(said["problem"]), claim.id
            if said["kind"] == "measure":
                assert method is None or experiment.solver_on(said["problem"], method).diagnostics, claim.id
        assert "problem" not in said or said["problem"] in experiment.problems, claim.id


def test_numbers_of_the_claims_are_those_of_the_tables(repository):
    """Tables 1 and 2 of the paper stand in two places, and are the same there."""
    from lowvar.studies.load import load_experiment
    from lowvar.studies.variational import published

    experiment = load_experiment(repository / "workflow" / "experiments" / "joint.yaml", "paper")
    claims = C.load(repository / "workflow" / "claims" / "joint.yaml")
    for name in experiment.problems:
        model = experiment.model(name)
        values = {claim.test.quantity.source: claim.test.published for claim in claims
                  if claim.test.kind == "value" and claim.test.quantity.problem == name}  # fmt: skip
        assert values == published.of(published.VARIANCES, model.model, model.dataset), name
        sizes = {claim.test.of: claim.test.published for claim in claims
                 if claim.test.kind == "size" and claim.test.problem == name}  # fmt: skip
        assert (sizes["rows"], sizes["dim"]) == published.of(published.SIZES, model.model, model.dataset), name
        times = published.of(published.MILLISECONDS, model.model, model.dataset)
        for claim in claims:
            if claim.id.startswith(f"table3-time-{name}"):
                assert claim.test.published == pytest.approx(times[claim.test.method] / times["naive"], rel=5e-3)


def along(method, totals, half=0.05, source="total"):
    """A decomposition's rows at epochs 0, 1, 2 with relative half widths."""
    return pd.DataFrame(
        [{"problem": "p", "method": method, "block": "all", "source": source, "epoch": epoch, "end": epoch == 2,
          "variance": v, "low": v * (1 - half), "high": v * (1 + half)} for epoch, v in enumerate(totals)]
    )  # fmt: skip


FLOOR = {"kind": "floor", "quantity": quantity("cv"), "floor": quantity("naive") | {"source": "subsampling"}}


@pytest.mark.parametrize(
    ("totals", "half", "more", "verdict", "ours"),
    [
        ([30.0, 20.0, 11.0], 0.05, {}, "holds", 1.1),
        ([30.0, 8.0, 11.0], 0.05, {}, "fails", 0.8),  # at one moment alone
        ([30.0, 20.0, 10.0], 0.1, {}, "undecided", 1.0),
        ([30.0, 20.0, 11.0], 0.05, {"within": 1.25}, "holds", 1.1),
        ([30.0, 20.0, 15.0], 0.05, {"within": 1.25}, "fails", 1.5),
    ],
)
def test_floor(totals, half, more, verdict, ours):
    table = pd.concat([along("cv", totals, half), along("naive", [10.0, 10.0, 10.0], half, "subsampling")])
    row = judge(FLOOR | more, table)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(ours))


@pytest.mark.parametrize(("shares", "verdict"), [((0.8, 0.9, 0.95), "holds"), ((1.05, 1.1, 1.15), "fails")])
def test_floor_that_is_a_part_of_it(shares, verdict):
    """Totals of wide intervals: what counts is the share, over the same designs."""
    low, share, high = shares
    part = along("cv", [9.0] * 3, 0.5, "subsampling").assign(share=share, share_low=low, share_high=high)
    own = FLOOR | {"floor": quantity("cv") | {"source": "subsampling"}}
    row = judge(own, pd.concat([along("cv", [10.0] * 3, 0.5), part]))
    assert (row["verdict"], row["ours"], row["low"]) == (verdict, pytest.approx(1 / share), pytest.approx(1 / high))


def test_floor_whose_interval_is_unknown():
    table = pd.concat([along("cv", [3.0] * 3), along("naive", [1.0] * 3, 1.5, "subsampling")])
    assert judge(FLOOR, table)["verdict"] == "undecided"


def test_claims_look_at_the_first_way_of_drawing_noise():
    iid = decomposition(joint=(4.5, 5, 5.5), naive=(9, 10, 11)).assign(eps="iid", samples=1)
    both = pd.concat([iid, iid.assign(eps="rqmc", variance=0.0)])
    test = {"kind": "below", "quantity": quantity("joint"), "others": [quantity("naive")]}
    assert judge(test, both)["ours"] == 0.5


def runs(method, elbos, step_size=1.0, repetitions=None, status="ok", per=10):
    """Traces with ``elbos[epoch][repetition]``."""
    rows = [
        {"problem": "p", "method": method, "backend": "jax", "step_size": step_size,
         "repetition": r if repetitions is None else repetitions[r], "epoch": epoch, "iteration": per * epoch,
         "gradients": 100 * epoch, "hvps": 0, "elbo": elbo, "elbo_se": 0.0,
         "status": status if epoch else "ok"}
        for epoch, here in enumerate(elbos) for r, elbo in enumerate(here)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def gathered(*traces):
    """The tables of traces whose optimum is not known."""
    whole = pd.concat(traces, ignore_index=True)
    table = A.convergence(whole, {}, {"p": 50})
    return {"convergence": table, "ends": A.ends(whole, table, {}), "paths": A.paths(whole, table, {})}


NAIVE = runs("naive", [[-90.0, -80.0, -99.0], [-50.0, -40.0, -60.0], [-30.0, -20.0, -40.0]])
AHEAD = {"kind": "ahead", "problem": "p", "method": "joint", "others": ["naive"]}


def test_ahead_compares_pairs_after_the_same_iterations():
    """Repetitions differ by 10, methods by about 5: pairs decide. The longer run is looked at where the other ends."""
    joint = runs("joint", [[-90.0, -80.0, -99.0], [-46.0, -35.0, -54.0], [-25.0, -15.1, -35.0], [0.0, 0.0, 0.0]])
    row = judge(AHEAD, **gathered(NAIVE, joint))
    assert row["verdict"] == "holds"
    assert row["ours"] == pytest.approx(4.97, abs=0.01)
    assert "after 20 iterations; 3 pairs" in row["note"]
    row = judge(AHEAD | {"iteration": 15}, **gathered(NAIVE, joint))
    assert row["ours"] == pytest.approx(5.0)
    assert judge(AHEAD | {"method": "naive", "others": ["joint"]}, **gathered(NAIVE, joint))["verdict"] == "fails"


def test_ahead_with_few_repetitions():
    joint = runs("joint", [[-80.0, -7.0], [-35.0, -7.0], [-15.0, -7.0]], repetitions=[1, 8])
    row = judge(AHEAD, **gathered(NAIVE, joint))
    assert (row["verdict"], row["ours"]) == ("undecided", pytest.approx(5.0))
    assert "1 pair" in row["note"]
    assert np.isnan(row["low"])


def test_ahead_of_the_diverged():
    lost = runs("cv", [[-1.0] * 3, [np.nan] * 3, [-np.inf] * 3], status="diverged")
    tables = gathered(NAIVE, lost)
    assert judge(AHEAD | {"method": "naive", "others": ["cv"]}, **tables)["verdict"] == "holds"
    assert judge(AHEAD | {"method": "cv", "others": ["naive"]}, **tables)["verdict"] == "fails"
    with pytest.raises(UserError, match="joint on p, which did not run"):
        judge(AHEAD, **tables)


@pytest.mark.parametrize(("shift", "verdict"), [(1.0, "holds"), (6.0, "fails")])
def test_alike(shift, verdict):
    joint = runs("joint", [[-90.0, -80.0, -99.0], [-46.0, -35.0, -54.0], [-20.0, -9.0, -31.0]])
    svrg = runs("joint_svrg", [[-90.0, -80.0, -99.0], [-46.0, -35.0, -54.0], [v - shift for v in (-20, -9, -31)]])
    test = {"kind": "alike", "problem": "p", "method": "joint", "other": "joint_svrg", "reference": "naive"}
    row = judge(test, **gathered(NAIVE, joint, svrg))
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(shift / 10))


RACE = AHEAD | {"kind": "race"}


def test_race_counts_iterations_to_where_the_other_ends():
    joint = runs("joint", [[-90.0, -80.0, -99.0], [-30.0, -20.0, -39.0], [-1.0, -1.0, -1.0]])
    row = judge(RACE, **gathered(NAIVE, joint))
    assert row["verdict"] == "holds"
    assert row["ours"] == pytest.approx(0.5, rel=0.02)
    assert judge(RACE | {"below": 0.4}, **gathered(NAIVE, joint))["verdict"] == "fails"


def test_race_to_where_nobody_comes():
    slow = runs("joint", [[-90.0, -80.0, -99.0], [-80.0, -70.0, -80.0], [-70.0, -60.0, -70.0]])
    row = judge(RACE, **gathered(NAIVE, slow))
    assert row["verdict"] == "fails"
    assert np.isinf(row["ours"])
    assert "joint is not there in 3 of 3" in row["note"]
    some = runs("joint", [[-90.0, -80.0, -99.0], [-25.0, -70.0, -39.0], [-25.0, -60.0, -39.0]])
    assert judge(RACE, **gathered(NAIVE, some))["verdict"] == "undecided"
    assert judge(RACE | {"level": 0.0}, **gathered(NAIVE, slow))["verdict"] == "undecided"


def test_a_race_is_lost_by_a_method_that_diverged():
    lost = runs("joint", [[-90.0, -80.0, -99.0], [np.nan] * 3, [-np.inf] * 3], status="diverged")
    for test in (RACE, RACE | {"level": -40.0}):
        row = judge(test, **gathered(NAIVE, lost))
        assert (row["verdict"], row["ours"]) == ("fails", np.inf)
        assert "joint diverged at every step size" in row["note"]
    assert judge(RACE | {"method": "naive", "others": ["joint"]}, **gathered(NAIVE, lost))["verdict"] == "holds"


def test_race_to_a_level_and_in_seconds():
    joint = runs("joint", [[-90.0, -80.0, -99.0], [-40.0, -40.0, -40.0], [-1.0, -1.0, -1.0]])
    tables = gathered(NAIVE, joint)
    row = judge(RACE | {"level": -40.0}, **tables)
    np.testing.assert_allclose(row["ours"], np.exp(np.mean(np.log([10 / 15, 10 / 10, 10 / 20]))))
    cost = {"problem": "p", "backend": "jax"}
    table3 = pd.DataFrame([cost | {"method": "naive", "seconds": 1.0}, cost | {"method": "joint", "seconds": 3.0}])
    timed = judge(RACE | {"level": -40.0, "unit": "seconds"}, table3=table3, **tables)
    assert timed["ours"] == pytest.approx(3 * row["ours"])


def test_steps_and_what_they_bear():
    """naive is best at 1; joint is as good there, at 2 it is too, and at 4 some of it diverged."""
    naive = pd.concat([NAIVE, runs("naive", [[-90.0, -80.0, -99.0], [-95.0] * 3, [-99.0] * 3], 2.0)])
    good = [[-90.0, -80.0, -99.0], [-46.0, -35.0, -54.0], [-25.0, -15.0, -35.0]]
    lost = runs("joint", [[-90.0, -80.0, -99.0], [-46.0, -35.0, -54.0], [-25.0, -15.0, np.nan]], 4.0)
    lost["status"] = np.where(np.isfinite(lost["elbo"]), "ok", "diverged")
    tables = gathered(naive, runs("joint", good), runs("joint", good, 2.0), lost)
    row = judge(AHEAD | {"kind": "steps"}, **tables)
    assert (row["verdict"], row["ours"], row["low"]) == ("holds", 2.0, 2.0)
    assert judge(AHEAD | {"kind": "steps", "method": "naive", "others": ["joint"]}, **tables)["verdict"] == "fails"
    bears = {"kind": "bears", "problem": "p", "method": "joint", "other": "naive"}
    assert judge(bears, **tables)["ours"] == 2.0  # naive ends below its start at 2
    assert judge(bears | {"method": "naive", "other": "joint"}, **tables)["verdict"] == "fails"


def test_sizes_and_costs():
    table2 = pd.DataFrame([{"problem": "p", "rows": 208, "dim": 60}])
    size = {"kind": "size", "problem": "p", "of": "dim"}
    assert judge(size | {"published": 60}, table2=table2)["verdict"] == "holds"
    assert judge(size | {"published": 61}, table2=table2)["verdict"] == "fails"
    cost = {"problem": "p", "backend": "jax", "runs": 25}
    table3 = pd.DataFrame(
        [cost | {"method": "naive", "evaluations": 1.0, "seconds": 1.0, "seconds_low": 0.9, "seconds_high": 1.1},
         cost | {"method": "joint", "evaluations": 2.97, "seconds": 1.7, "seconds_low": 1.6, "seconds_high": 1.8},
         cost | {"method": "cv", "evaluations": 2.0, "seconds": np.nan, "seconds_low": np.nan, "seconds_high": np.nan}]
    )  # fmt: skip
    counted = {"kind": "gradients", "problem": "p", "method": "joint"}
    assert judge(counted | {"published": 3}, table3=table3)["verdict"] == "holds"
    assert judge(counted | {"published": 4}, table3=table3)["verdict"] == "fails"
    time = {"kind": "time", "problem": "p", "method": "joint"}
    row = judge(time | {"published": 1.69}, table3=table3)
    assert (row["verdict"], row["ours"]) == ("undecided", pytest.approx(1.7))  # jobs at different times
    assert judge(time | {"published": 4.0}, table3=table3)["verdict"] == "fails"
    assert judge(time | {"at_most": 1.6}, table3=table3)["verdict"] == "undecided"
    assert judge(time | {"at_least": 1.0, "at_most": 3.0}, table3=table3)["verdict"] == "holds"
    assert judge(time | {"method": "cv", "published": 1.2}, table3=table3)["verdict"] == "undecided"
    with pytest.raises(ValueError, match="either published"):
        judge(time, table3=table3)


def test_schemes_of_noise():
    schemes = pd.DataFrame(
        [{"problem": "p", "method": "joint", "block": "all", "source": "total", "eps": "rqmc", "samples": 8,
          "to_iid": 0.5, "to_iid_low": 0.4, "to_iid_high": 0.6}]
    )  # fmt: skip
    test = {"kind": "scheme", "quantity": quantity("joint"), "eps": "rqmc", "samples": 8}
    assert judge(test | {"below": 1.0}, schemes=schemes)["verdict"] == "holds"
    assert judge(test | {"below": 0.5}, schemes=schemes)["verdict"] == "undecided"
    assert judge(test | {"above": 1.0}, schemes=schemes)["verdict"] == "fails"
    with pytest.raises(UserError, match="does not have"):
        judge(test | {"below": 1.0, "samples": 4}, schemes=schemes)


@pytest.mark.mirror
@pytest.mark.parametrize(("name", "value"), [("sonar", -154.130), ("australian", -253.816)])
def test_known_optima(mirror, tmp_path, name, value):
    from lowvar.datasets import fetch, load, prepare
    from lowvar.problems.catalogue import build

    fetch(name, raw=tmp_path, mirror=mirror)
    p = build("logistic_regression", load(prepare(name, raw=tmp_path, out=tmp_path / "p.npz")).arrays)
    assert A.optimum(p) == pytest.approx(value, abs=6e-4)


def test_summary_says_what_pays():
    rows = []
    for method, parts in {"naive": (90.0, 8.0, 2.0), "joint": (1.0, 8.0, 1.0)}.items():
        total = sum(parts)
        for source, v in zip(("subsampling", "monte_carlo", "interaction", "total"), (*parts, total), strict=True):
            rows.append(
                {
                    "method": method,
                    "block": "all",
                    "source": source,
                    "variance": v,
                    "low": 0.9 * v,
                    "high": 1.1 * v,
                    "share": v / total,
                }
            )
    text = summary(pd.DataFrame(rows), {"naive": 1.0, "joint": 2.0}, "a model")
    assert (
        "Subsampling dominates the noise of `naive`. `joint` pays: 10 times less variance per step, 5 times less"
        in text
    )
    text = summary(pd.DataFrame(rows), {"naive": 1.0, "joint": 20.0}, "a model")
    assert "None of the others pays" in text
