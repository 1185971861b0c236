"""Effects of gradients along runs, held-out rows, particles, memory and settings: paired intervals, and what notes say."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from traces import GRADIENTS, trace

from lowvar.errors import UserError
from lowvar_studies.reports.variational import convergence as A
from lowvar_studies.reports.variational import diagnostics as D
from lowvar_studies.reports.variational import selection

INF = np.inf
SPREAD = [1e-2, 1.0, 1e2]  # repetitions differ by more than methods do
AT = {"problem": "p", "method": "mlmc"}


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
    return judge("measured_ratio", measured(*traces), **AT | test)


def difference(judge, *traces, **test):
    return judge("difference", measured(*traces), **AT | {"others": ["mc"], "above": 0} | test)


@pytest.mark.parametrize(
    ("factors", "test", "verdict"),
    [((0.5, 0.51, 0.49), {}, "holds"), ((2.0, 2.1, 1.9), {}, "fails"), ((0.5, 2.0, 1.0), {}, "undecided"),
     ((2.0, 2.1, 1.9), {"above": 1.5}, "holds"), ((0.5, 0.51, 0.49), {"moment": "start"}, "undecided")],  # equal there
)  # fmt: skip
def test_measured_ratio_in_pairs(judge, factors, test, verdict):
    mine = gradients("mlmc", variance=[4.0, 4.0, [one * factor for one, factor in zip(SPREAD, factors, strict=True)]])
    row = ratio(judge, mine, gradients("mc", variance=[4.0, 4.0, SPREAD]), **test)
    assert row["verdict"] == verdict
    if "moment" not in test:
        assert row["ours"] == pytest.approx(np.exp(np.mean(np.log(factors))))
        assert row["note"] == "mine; to variance of mc, up to iteration 20; 3 pairs"


def test_measured_ratio_to_another_quantity_or_moment_of_its_own(judge):
    mine = gradients("mlmc", squared_error=[4.0, 900.0, [890.0, 900.0, 910.0]], variance=1e-3)
    own = {"of": "squared_error", "others": []}
    row = ratio(judge, mine, **own, to="variance", above=10)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(9e5, rel=1e-2))
    row = ratio(judge, mine, **own, to_moment="start", above=300)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(225, rel=1e-2))
    assert "to its squared_error at the start" in row["note"]
    with pytest.raises(UserError, match="needs a comparison"):
        ratio(judge, mine, **own)


def test_values_at_the_resolution_are_said(judge):
    mine = gradients("mlmc", squared_error=[4.0, 4.0, -1.0], reference_error=1.0)
    both = mine, gradients("mc", squared_error=4.0)
    row = ratio(judge, *both, of="squared_error")
    assert (row["ours"], row["verdict"]) == (pytest.approx(0.1 / 4), "holds")
    assert "100 % of mlmc's values are at the resolution" in row["note"]
    rival = ratio(judge, *both, of="squared_error", method="mc", others=["mlmc"], above=1)
    assert "100 % of mlmc's values are at the resolution" in rival["note"]
    assert "resolution" not in ratio(judge, *both)["note"]


def test_the_worst_rival_decides_and_one_without_a_value_is_the_worst(judge):
    rivals = [gradients("mc", variance=9.0), gradients("rqmc", variance=2.0)]
    row = ratio(judge, gradients("mlmc"), *rivals, others=["mc", "rqmc"])
    assert (row["ours"], row["verdict"]) == (2.0, "fails")
    assert "of rqmc" in row["note"]
    rivals = [gradients("mc", variance=[4.0, 4.0, 0.0]), gradients("rqmc", variance=1e-3)]
    for bound in ({"below": 1}, {"above": 1}):
        row = ratio(judge, gradients("mlmc"), *rivals, others=["rqmc", "mc"], **bound)
        assert np.isnan(row["ours"])
        assert "of mc" in row["note"]


def test_diverged_methods(judge):
    gone, there = gradients("mlmc", lost=True, test_log_likelihood=-1.0), gradients("mc", test_log_likelihood=-1.0)
    where = "a repetition of mlmc diverged at"
    for row in (ratio(judge, gone, there), ratio(judge, gone, there, method="mc", others=["mlmc"])):
        assert (row["verdict"], row["note"]) == ("undecided", f"mine; {where} every step size")
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


def test_along_a_run_arithmetic_means_are_averaged_over_iterations(judge):
    mine = gradients("mlmc", squared_error=[1.0, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    row = ratio(judge, mine, gradients("mc"), of="squared_error", moment="along")
    assert row["ours"] == pytest.approx(np.sqrt(2 / 9 * 20 / 25))


@pytest.mark.parametrize(
    ("ahead", "above", "verdict"),
    [((1.0, 1.1, 0.9), 0, "holds"), ((-1.0, -1.1, -0.9), 0, "fails"), ((1.0, -1.0, 0.1), 0, "undecided"),
     ((-0.3, -0.31, -0.29), -0.5, "holds"), ((-0.7, -0.71, -0.69), -0.5, "fails")],
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


def test_measured_difference_after_evaluations_that_no_stop_has(judge):
    """On a straight line between sparse stops it would be behind; it may as well have been ahead all the while."""
    mine = trace("mlmc", elbo=[-100.0, [-1.0, -1.1, -0.9], -0.5]).assign(gradients=lambda t: 40 * t["iteration"])
    rival = trace("mc", elbo=[-100.0, -20.0, -10.0]).assign(gradients=lambda t: 10 * t["iteration"])
    row = difference(judge, mine, rival, by="evaluations")
    assert (row["verdict"], row["low"] <= -90, row["high"] >= 9) == ("undecided", True, True)
    sure = difference(judge, mine.assign(elbo=lambda t: t["elbo"].clip(lower=-9)), rival, by="evaluations")
    assert (sure["verdict"], sure["ours"]) == ("holds", pytest.approx((1.0 + 9.0) / 2))
    equal = trace("storm", elbo=[-100.0, -20.5, [-1.0, -1.1, -0.9]]).assign(gradients=rival["gradients"])
    row = difference(judge, equal, rival, by="evaluations", method="storm")
    assert (row["verdict"], row["ours"], "between" in row["note"]) == ("holds", pytest.approx(9.0), False)


def test_measured_difference_from_another_problem(judge):
    mine = trace("mlmc", problem="less", test_log_likelihood=[-3.0, -2.0, [-1.0, -1.01, -0.99]])
    rival = trace("mc", test_log_likelihood=[-3.0, -2.0, [-1.005, -1.0, -0.995]])
    for above, verdict in ((-0.1, "holds"), (0, "undecided")):
        row = difference(judge, mine, rival, problem="less", others_on="p", of="test_log_likelihood", above=above)
        assert row["verdict"] == verdict
        assert "nats per test row ahead of mc on p after 20 iterations; 3 repetitions, not paired" in row["note"]


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
    assert row["note"].endswith("iterations; median and its rank interval; 10 pairs")
    few = [one[one["repetition"] < 5] for one in (mine, mc)]
    assert difference(judge, *few, interval="rank")["verdict"] == "undecided"  # five pairs have no such interval
    row = ratio(judge, mine, mc, of="squared_error", interval="rank", above=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(np.exp(np.median(np.log(losses)))))
    with pytest.raises(UserError, match="interval: rank needs pairs, and others_on leaves none"):
        difference(judge, mine, mc, interval="rank", others_on="p")


def test_the_error_after_the_first_step_is_a_moment(judge):
    mine = gradients("mlmc", squared_error=[4.0, [8.0, 9.0, 10.0], [16.0, 18.0, 20.0]])
    row = ratio(judge, mine, of="squared_error", others=[], to_moment="first", above=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(2.0))


def test_state_is_measured_in_bytes(judge):
    tables = measured(gradients("mlmc", state_bytes=772), gradients("mc", state_bytes=256))
    row = judge("measured_ratio", tables, **AT, of="state_bytes", others=["mc"], at_most=2)
    assert (row["verdict"], row["ours"]) == ("fails", pytest.approx(772 / 256))
    assert row["note"] == "mine; 772 bytes a run against 256 of mc"
    tables = measured(gradients("mlmc"), gradients("mc"))
    with pytest.raises(UserError, match="state_bytes of mlmc on p was not measured"):
        judge("measured_ratio", tables, **AT, of="state_bytes", others=["mc"], at_most=2)


def grid(elbo, lose=(), offsets=None):
    """Settings ``(step, beta, r) -> ELBO`` of four repetitions, or of those with the given offsets."""
    traces, plans = [], {}
    for (step, beta, r), value in elbo.items():
        method = f"mlmc_{beta}_{r}"
        plans["p", method, "jax"] = SimpleNamespace(kind="step", beta=beta, r=r)
        ends = [value + one for one in (offsets or {}).get((step, beta, r), (0, 0.1, 0, 0.1))]
        made = trace(method, step=step, repetitions=len(ends), elbo=[-999.0, -500.0, ends])
        if (step, beta, r) in lose:
            made.loc[made["iteration"] == 20, ["elbo", "status"]] = [np.nan, "diverged"]
        traces.append(made)
    both = pd.concat(traces, ignore_index=True)
    table = A.convergence(both, {}, {"p": 1})
    return {"sensitivity": selection.sensitivity(table, plans), "ends": A.ends(both, table, {})}


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
    row = judge("sensitivity", grid(ELBO, lose), problem="p", to=to, above=1)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(ours, nan_ok=True))
    assert row["note"] == f"mine; {note}"


def test_sensitivity_by_ranks_bears_a_heavy_tail(judge):
    """Differences of about 3 nats in nine runs and of 1e4 in the tenth: their mean is undecided, their median is not."""
    few = np.linspace(-0.1, 0.1, 20)
    offsets = {(0.1, 0.5, 10): 0 * few, (0.01, 0.5, 10): np.r_[few[:19], -1e4]}
    tables = grid({one: ELBO[one] for one in offsets}, offsets=offsets)
    about = {"problem": "p", "to": "alpha0", "above": 1}
    assert judge("sensitivity", tables, **about)["verdict"] == "undecided"
    row = judge("sensitivity", tables, **about, interval="rank")
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(3, abs=0.05))
    assert "median and its rank interval; 10 pairs" in row["note"]
    assert judge("sensitivity", grid(ELBO), **about, interval="rank")["verdict"] == "undecided"  # two pairs


def test_sensitivity_is_not_judged_on_the_runs_that_chose_the_settings(judge):
    """Of two equal settings, the one that is ahead in the choosing half is behind by as much in the other."""
    offsets = {(0.1, 0.5, 10): [1.0, 1.2, -1.0, -1.2], (0.01, 0.5, 10): [-1.0, -1.2, 1.0, 1.2]}
    row = judge("sensitivity", grid(dict.fromkeys(offsets, -5.0), offsets=offsets), problem="p", to="alpha0", above=1)
    assert row["ours"] == pytest.approx(-2.2)
    assert row["verdict"] == "fails"


@pytest.mark.parametrize(
    ("effect", "test", "words"),
    [("measured_ratio", {"method": "nobody", "of": "variance"}, "no rows of problem p, method nobody"),
     ("measured_ratio", {"of": "snr_true"}, "need solver.diagnostics"),
     ("difference", {"step_size": 0.3}, "no rows of problem p, method mc, .*step_size 0.3"),
     ("difference", {"of": "test_log_likelihood"}, "was not measured")],
)  # fmt: skip
def test_claims_of_what_did_not_run(judge, effect, test, words):
    with pytest.raises(UserError, match=words):
        judge(effect, measured(trace("mc")), **{"problem": "p", "method": "mc", "others": ["mc"], "below": 1} | test)
