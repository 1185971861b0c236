"""Verdicts on gradients along runs, held-out rows, points, paces and settings follow from paired intervals."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_diagnostics import GRADIENTS, measured, trace

from lowvar.errors import UserError
from lowvar.studies import claims as C
from lowvar.studies.variational import convergence as A
from lowvar.studies.variational import published, schedules

SPREAD = [1e-2, 1.0, 1e2]  # repetitions differ by more than methods do


def judge(test, *traces, **tables):
    claim = C.Claim(id="c", statement="s", source="t", test=test)
    if traces:
        tables["measured"] = measured(*traces)[0]
    return C.judge([claim], tables).iloc[0]


def times(factors):
    return [4.0, 4.0, [one * factor for one, factor in zip(SPREAD, factors, strict=True)]]


BELOW = {"kind": "measure", "problem": "p", "method": "mlmc", "of": "variance", "moment": "end", "others": ["mc"],
         "below": 1.0}  # fmt: skip


@pytest.mark.parametrize(
    ("factors", "test", "verdict"),
    [
        ((0.5, 0.51, 0.49), BELOW, "holds"),
        ((2.0, 2.1, 1.9), BELOW, "fails"),
        ((0.5, 2.0, 1.0), BELOW, "undecided"),
        ((0.5, 0.51, 0.49), BELOW | {"below": 0.2}, "fails"),
        ((2.0, 2.1, 1.9), BELOW | {"below": None, "above": 1.5}, "holds"),
        ((0.5, 0.51, 0.49), BELOW | {"below": None, "above": 1.5}, "fails"),
        ((0.5, 0.51, 0.49), BELOW | {"moment": "start"}, "undecided"),  # equal there: nothing is below
    ],
)
def test_measures_are_compared_in_pairs(factors, test, verdict):
    mine = trace("mlmc", **GRADIENTS | {"variance": times(factors)})
    row = judge(test, mine, trace("mc", **GRADIENTS | {"variance": times((1, 1, 1))}))
    assert row["verdict"] == verdict
    if test is BELOW:
        assert row["ours"] == pytest.approx(np.exp(np.mean(np.log(factors))))
        assert "3 pairs" in row["note"]


def test_a_measure_against_another_of_its_own():
    mine = trace("mlmc", **GRADIENTS | {"squared_error": [4.0, 900.0, [890.0, 900.0, 910.0]], "variance": 1e-3})
    apart = {"kind": "measure", "problem": "p", "method": "mlmc", "of": "squared_error", "moment": "end",
             "to": "variance", "above": 10.0}  # fmt: skip
    row = judge(apart, mine)
    assert row["verdict"] == "holds"
    assert row["ours"] == pytest.approx(9e5, rel=1e-2)
    row = judge(apart | {"to": None, "to_moment": "start", "above": 300.0}, mine)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(225, rel=1e-2))
    assert "at the start" in row["note"]


def test_values_at_the_resolution_are_said():
    mine = trace("mlmc", **GRADIENTS | {"squared_error": [4.0, 4.0, -1.0], "reference_error": 1.0})
    rival = trace("mc", **GRADIENTS | {"squared_error": 4.0})
    row = judge(BELOW | {"of": "squared_error"}, mine, rival)
    assert (row["ours"], row["verdict"]) == (pytest.approx(0.1 / 4), "holds")
    assert "100 % of mlmc's values are at the resolution" in row["note"]
    above = BELOW | {"of": "squared_error", "method": "mc", "others": ["mlmc"], "below": None, "above": 1.0}
    assert "100 % of mlmc's values are at the resolution" in judge(above, mine, rival)["note"]  # the rival's
    assert "resolution" not in judge(BELOW, mine, rival)["note"]


def test_the_worst_rival_decides():
    rivals = [trace(name, **GRADIENTS | {"variance": value}) for name, value in (("mc", 9.0), ("rqmc", 2.0))]
    row = judge(BELOW | {"others": ["mc", "rqmc"]}, trace("mlmc", **GRADIENTS), *rivals)
    assert (row["ours"], row["verdict"]) == (2.0, "fails")
    assert "of rqmc" in row["note"]


def lost(method, **columns):
    made = trace(method, **columns)
    late = made["iteration"] > 0
    made.loc[late, ["elbo", *(name for name in columns if name in made)]] = np.nan
    made.loc[late, "status"] = "diverged"
    return made


def test_diverged_methods():
    gone = lost("mlmc", **GRADIENTS, test_log_likelihood=-1.0)
    there = trace("mc", **GRADIENTS, test_log_likelihood=-1.0)
    assert judge(BELOW, gone, there)["verdict"] == "undecided"
    leads = {"kind": "leads", "problem": "p", "method": "mlmc", "others": ["mc"], "of": "test_log_likelihood"}
    assert judge(leads, gone, there)["verdict"] == "fails"
    assert judge(leads | {"method": "mc", "others": ["mlmc"]}, gone, there)["verdict"] == "holds"
    assert judge(leads | {"step_size": 0.1}, gone, there)["verdict"] == "fails"


LEADS = {"kind": "leads", "problem": "p", "method": "mlmc", "others": ["mc"], "of": "elbo"}


@pytest.mark.parametrize(
    ("ahead", "more", "verdict"),
    [
        ((1.0, 1.1, 0.9), {}, "holds"),
        ((-1.0, -1.1, -0.9), {}, "fails"),
        ((1.0, -1.0, 0.1), {}, "undecided"),
        ((-0.3, -0.31, -0.29), {"margin": 0.5}, "holds"),
        ((-0.7, -0.71, -0.69), {"margin": 0.5}, "fails"),
    ],
)
def test_leads_after_the_same_iterations(ahead, more, verdict):
    base = np.array([-10.0, -200.0, -3000.0])
    mine = trace("mlmc", elbo=[-9e3, -8e3, list(base + np.array(ahead))])
    row = judge(LEADS | more, mine, trace("mc", elbo=[-9e3, -8e3, list(base)]))
    assert row["verdict"] == verdict
    assert row["ours"] == pytest.approx(np.mean(ahead))


def test_leads_after_the_same_evaluations():
    """One is ahead after the same iterations and behind after the same gradients, of which it has taken three times."""
    mine = trace("mlmc", elbo=[-9.0, -5.0, [-1.0, -1.1, -0.9]]).assign(gradients=lambda t: 30 * t["iteration"])
    rival = trace("mc", elbo=[-9.0, -3.0, -2.0]).assign(gradients=lambda t: 10 * t["iteration"])
    assert judge(LEADS, mine, rival)["verdict"] == "holds"
    row = judge(LEADS | {"by": "evaluations"}, mine, rival)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(-5.0))  # between -9 + 2 and -5 + 2
    assert "after 200 evaluations, between -7 and -3" in row["note"]


def test_leads_after_evaluations_that_no_stop_has():
    """On a straight line between sparse stops it would be behind; it may as well have been ahead all the while."""
    mine = trace("mlmc", elbo=[-100.0, [-1.0, -1.1, -0.9], -0.5]).assign(gradients=lambda t: 40 * t["iteration"])
    rival = trace("mc", elbo=[-100.0, -20.0, -10.0]).assign(gradients=lambda t: 10 * t["iteration"])
    row = judge(LEADS | {"by": "evaluations"}, mine, rival)
    assert (row["verdict"], row["low"] <= -90, row["high"] >= 9) == ("undecided", True, True)
    sure = judge(LEADS | {"by": "evaluations"}, mine.assign(elbo=lambda t: t["elbo"].clip(lower=-9)), rival)
    assert (sure["verdict"], sure["ours"]) == ("holds", pytest.approx((1.0 + 9.0) / 2))
    equal = trace("storm", elbo=[-100.0, -20.5, [-1.0, -1.1, -0.9]]).assign(gradients=rival["gradients"])
    row = judge(LEADS | {"by": "evaluations", "method": "storm"}, equal, rival)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(9.0))
    assert "between" not in row["note"]


def test_nothing_is_said_where_only_the_start_is_shared():
    mine = trace("mlmc", **GRADIENTS, elbo=0.0)
    rival = trace("mc", **GRADIENTS | {"variance": 99.0}).assign(iteration=lambda t: t["iteration"] * 1.5)
    mine["iteration"] = mine["iteration"].replace({10: 11, 20: 22})
    for test in (BELOW, BELOW | {"moment": "along"}, BELOW | {"of": "squared_error"}, LEADS):
        row = judge(test, mine, rival)
        assert row["verdict"] == "undecided", test
        assert "nothing past the start was measured of mc after the same iterations" in row["note"]
    assert judge(BELOW | {"moment": "start"}, mine, rival)["verdict"] == "holds"


def test_what_cannot_be_told_is_the_worst_of_both_directions():
    bad = trace("mc", **GRADIENTS | {"variance": [4.0, 4.0, 0.0]})
    rivals = [bad, trace("rqmc", **GRADIENTS | {"variance": 1e-3})]
    mine = trace("mlmc", **GRADIENTS)
    for bound in ({"below": 1.0}, {"below": None, "above": 1.0}):
        row = judge(BELOW | {"others": ["rqmc", "mc"]} | bound, mine, *rivals)
        assert np.isnan(row["ours"])
        assert "of mc" in row["note"]


def test_realised_errors_are_compared_by_arithmetic_means():
    """One run's squared error is a draw; what it is compared with, at the start, is expected. Here they are equal."""
    draws = np.random.default_rng(0).exponential(size=400)
    draws *= 4.0 / draws.mean()
    made = trace("mlmc", repetitions=400, **GRADIENTS | {"squared_error": [4.0, 1.0, list(draws)]})
    test = {"kind": "measure", "problem": "p", "method": "mlmc", "of": "squared_error", "moment": "end",
            "to_moment": "start", "above": 0.8}  # fmt: skip
    row = judge(test, made)
    assert (row["ours"], row["verdict"]) == (pytest.approx(1.0), "holds")
    assert np.exp(np.log(draws / 4).mean()) < 0.7  # what a geometric mean would say
    assert 0.8 < row["low"] < 0.95 < 1.05 < row["high"] < 1.2
    row = judge(test | {"of": "snr_true", "to": "snr_true", "above": 0.8}, made)
    assert row["ours"] == pytest.approx(1.0)
    row = judge(test | {"to": "variance", "to_moment": None, "above": 0.8}, made)
    assert (row["ours"], row["verdict"]) == (pytest.approx(1.0), "holds")


def test_along_a_run_arithmetic_means_are_averaged_over_iterations():
    mine = trace("mlmc", **GRADIENTS | {"squared_error": [1.0, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]})
    row = judge(BELOW | {"of": "squared_error", "moment": "along"}, mine, trace("mc", **GRADIENTS))
    assert row["ours"] == pytest.approx(np.sqrt(2 / 9 * 20 / 25))


def test_notes_on_divergence_name_the_step_size():
    gone, there = lost("mlmc", **GRADIENTS), trace("mc", **GRADIENTS)
    assert judge(BELOW, gone, there)["note"] == "a repetition of mlmc diverged at every step size"
    fine = trace("mlmc", step=0.01, **GRADIENTS, elbo=-9.0)
    both = [pd.concat([gone, fine], ignore_index=True), there]
    assert judge(LEADS | {"step_size": 0.1}, *both)["note"] == "a repetition of mlmc diverged at step size 0.1"
    assert judge(LEADS, *both)["verdict"] == "fails"  # behind, at the step size that is left


def test_leads_over_those_of_another_problem():
    mine = trace("mlmc", problem="less", test_log_likelihood=[-3.0, -2.0, [-1.0, -1.01, -0.99]])
    rival = trace("mc", problem="p", test_log_likelihood=[-3.0, -2.0, [-1.005, -1.0, -0.995]])
    test = LEADS | {"problem": "less", "others_on": "p", "of": "test_log_likelihood"}
    assert judge(test | {"margin": 0.1}, mine, rival)["verdict"] == "holds"
    row = judge(test, mine, rival)
    assert row["verdict"] == "undecided"
    assert "no pairs" in row["note"]


def test_shrinks():
    test = {"kind": "shrinks", "problem": "p", "method": "mlmc"}
    row = judge(test, trace("mlmc", points=[100, 4, 1]))
    assert (row["verdict"], row["ours"]) == ("holds", 1.0)
    assert "from 100; first at iteration 20" in row["note"]
    assert judge(test, trace("mlmc", points=100))["verdict"] == "fails"
    row = judge(test, trace("mlmc", points=[100, 4, [1, 2, 1]]))
    assert (row["verdict"], row["high"]) == ("undecided", 2.0)
    assert "from 100 to 2 after 20 steps, where the run ends" in row["note"]
    assert judge(test | {"to": 5.0}, trace("mlmc", points=[100, 4, 3]))["verdict"] == "holds"


@pytest.mark.parametrize("points", [(8, 4, 2), (8, 8, 8)])
def test_shrinks_says_how_many_steps_a_schedule_needs(points):
    test = {"kind": "shrinks", "problem": "p", "method": "mlmc"}
    plan = SimpleNamespace(kind="step", beta=0.5, r=9)
    made = trace("mlmc", points=list(points))
    measures, table = measured(made)
    chosen = schedules.selected(table, {("p", "mlmc", "jax"): plan}, {"p": SimpleNamespace(model="m", dataset="d")})
    row = judge(test, measured=measures, selected=chosen)
    needed = next(t for t in range(1, 100) if np.ceil(0.5 ** ((t - 1) // 9) * 8) <= 1)
    assert ("undecided" if points[-1] < 8 else "fails") == row["verdict"]
    assert (f"its schedule needs {needed}" in row["note"]) == (points[-1] < 8)
    otherwise = judge(test, measured=measured(trace("mlmc", points=[8, 5, 2]))[0], selected=chosen)
    assert (otherwise["verdict"], "schedule" in otherwise["note"]) == ("undecided", False)  # not what it says


def stretches(method, seconds, points, steps=10):
    return pd.DataFrame({"problem": "p", "method": method, "backend": "jax", "steps": steps, "points": points,
                         "seconds": seconds})  # fmt: skip


PACE = {"kind": "pace", "problem": "p", "method": "mlmc"}


@pytest.mark.parametrize(("late", "verdict"), [(0.1, "holds"), (0.8, "undecided"), (3.0, "fails")])
def test_pace_decides_by_stretches_with_few_points_together(late, verdict):
    """One stretch alone has the least points, as in a run whose last drop is in its last stretch."""
    falls = stretches("mlmc", [1.0, 1.0, 9.0, 9.0, 2 * late, 0.8 * late], [90, 80, 50, 45, 20, 1], [9, 9, 9, 9, 10, 50])
    both = pd.concat([falls, stretches("mc", [1.1, 0.9], 90)])
    row = judge(PACE, pace=both)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(late))
    assert (row["low"], row["high"]) == (pytest.approx(late / 1.5), pytest.approx(late * 1.5))
    row = judge(PACE | {"other": "mc"}, pace=both)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(late))


def test_pace_leaves_out_stretches_of_few_steps_and_weighs_the_others():
    odd = stretches("mlmc", [900.0, 1.0, 0.5, 0.1], [90, 90, 1, 1], [1, 9, 10, 30])
    assert judge(PACE, pace=odd)["ours"] == pytest.approx(0.2)
    short = judge(PACE, pace=odd.assign(steps=1))
    assert (short["verdict"], short["note"]) == ("undecided", "no stretch of 5 steps that was timed")


def test_pace_of_points_that_hardly_fall():
    row = judge(PACE, pace=stretches("mlmc", [1.0, 0.01], [90, 60]))
    assert (row["verdict"], row["note"]) == ("undecided", "the points of mlmc do not fall by half")


def test_pace_where_nothing_was_timed():
    measures, _ = measured(trace("mlmc", points=[8, 2, 2]))
    row = judge(PACE, pace=schedules.pace(measures, None), measured=measures)
    assert (row["verdict"], row["note"]) == ("undecided", "times were not measured here")
    with pytest.raises(UserError, match="mc on p, which did not run"):
        judge(PACE | {"method": "mc"}, pace=schedules.pace(measures, None), measured=measures)


def grid(elbo, lose=()):
    """Settings ``(step, beta, r) -> ELBO`` of three repetitions."""
    traces, plans = [], {}
    for (step, beta, r), value in elbo.items():
        method = f"mlmc_{beta}_{r}"
        plans["p", method, "jax"] = SimpleNamespace(kind="step", beta=beta, r=r)
        made = trace(method, step=step, elbo=[-999.0, -500.0, [value, value + 0.1, value - 0.1]])
        if (step, beta, r) in lose:
            made.loc[made["iteration"] == 20, ["elbo", "status"]] = [np.nan, "diverged"]
        traces.append(made)
    whole = pd.concat(traces, ignore_index=True)
    table = A.convergence(whole, {}, {"p": 1})
    return {"sensitivity": schedules.sensitivity(table, plans), "ends": A.ends(whole, table, {})}


def test_sensitive():
    elbo = {(0.1, 0.5, 10): -1.0, (0.01, 0.5, 10): -4.0, (0.1, 0.9, 10): -1.2, (0.01, 0.9, 10): -90.0}
    test = {"kind": "sensitive", "problem": "p", "to": "alpha0", "by": 1.0}
    row = judge(test, **grid(elbo))
    assert (row["verdict"], row["ours"]) == (
        "holds",
        pytest.approx(3.0),
    )  # the others at their best, not at their worst
    assert "alpha0 0.01 instead of 0.1" in row["note"]
    assert judge(test | {"to": "beta"}, **grid(elbo))["verdict"] == "fails"
    assert judge(test | {"to": "r"}, **grid(elbo))["verdict"] == "undecided"
    gone = judge(test, **grid(elbo, lose={(0.01, 0.5, 10)}))
    assert (gone["verdict"], gone["ours"]) == ("holds", np.inf)
    assert judge(test, **grid(elbo, lose=elbo))["verdict"] == "undecided"


def test_claims_of_what_did_not_run():
    for test, words in (
        (BELOW, "mlmc on p, which did not run there in jax"),
        (BELOW | {"method": "mc", "others": ["mc"], "of": "snr_true"}, "solver needs diagnostics"),
        (LEADS | {"method": "mc", "step_size": 0.3}, "at step size 0.3, which did not run"),
        (LEADS | {"method": "mc", "of": "test_log_likelihood"}, "was not measured"),
    ):
        with pytest.raises(UserError, match=words):
            judge(test, trace("mc"))


def test_a_claim_needs_something_to_compare_with():
    with pytest.raises(ValueError, match="either others must be given"):
        C.Claim(id="c", statement="s", source="t", test=BELOW | {"others": []})
    with pytest.raises(ValueError, match="exactly one"):
        C.Claim(id="c", statement="s", source="t", test=BELOW | {"above": 1.0})


@pytest.mark.parametrize("name", ["mlmc", "mlmc_tuned", "mlmc_fashion", "mlmc_sizes", "mlmc_sensitivity"])
def test_files_of_claims_load_and_their_sizes_are_the_published(repository, name):
    loaded = C.load(repository / "workflow" / "claims" / f"{name}.yaml")
    assert len({claim.id for claim in loaded}) == len(loaded) > 5
    models = {"fashion": "blr_softmax"}
    for claim in loaded:
        if claim.test.kind == "size":
            said = published.of(published.SIZES, models.get(claim.test.problem, claim.test.problem), "any")
            assert claim.test.published == said[("rows", "dim").index(claim.test.of)], claim.id
