"""Effects of searches: shares, evaluations and final gaps with their intervals; every note has the budget."""

import numpy as np
import pandas as pd
import pytest

from lowvar.errors import UserError

INF = np.inf
AT = {"problem": "p", "method": "m"}


def hits(budget=1_400_000, problem="p", backend="jax", **methods):
    rows = [{"problem": problem, "method": name, "backend": backend, "repetition": r, "target": 1e-10, "of": "mean",
             "evaluations": float(e), "budget": budget}
            for name, each in methods.items() for r, e in enumerate(each)]  # fmt: skip
    return {"hits": pd.DataFrame(rows)}


def joined(*tables):
    return {"hits": pd.concat([one["hits"] for one in tables])}


def ends(optimum=0.0, **methods):
    rows = [{"problem": "p", "method": name, "backend": "jax", "repetition": r, "f": f, "best": f, "start": 10.0,
             "budget": 5e5, "status": "ok" if np.isfinite(f) else "diverged", "optimum": optimum}
            for name, each in methods.items() for r, f in enumerate(each)]  # fmt: skip
    return {"ends": pd.DataFrame(rows)}


@pytest.mark.parametrize(
    ("reached", "bound", "verdict", "low"),
    [(20, {"at_least": 1}, "holds", 0.8316), (19, {"at_least": 1}, "fails", 0.7513),
     (17, {"at_least": 0.9}, "undecided", 0.6211), (18, {"at_least": 0.9}, "undecided", 0.683),
     (19, {"at_least": 0.75}, "holds", 0.7513),
     (0, {"at_most": 0}, "holds", 0), (1, {"at_most": 0}, "fails", 0.0013)],
)  # fmt: skip
def test_success_rate(judge, reached, bound, verdict, low):
    row = judge("share", hits(m=[100] * reached + [INF] * (20 - reached)), **AT, event="target", **bound)
    assert (row["ours"], row["published"], row["verdict"]) == (reached / 20, *bound.values(), verdict)
    assert row["low"] == pytest.approx(low, abs=2e-4)
    assert row["note"] == "mine; budget 1.4e6 evaluations"


SLOW = np.linspace(1000, 1100, 20)


@pytest.mark.parametrize(
    ("mine", "rivals", "below", "ours", "verdict"),
    [(SLOW / 2, {"n": SLOW}, 1, 0.5, "holds"), (SLOW, {"n": SLOW / 2}, 1, 2.0, "fails"),
     (SLOW / 2, {"n": SLOW}, 0.4, 0.5, "fails"), ([1, 1, 1], {"n": [2, 2, 2]}, 1, 0.5, "undecided"),
     (np.r_[np.linspace(500, 900, 10), np.linspace(1200, 2000, 10)], {"n": SLOW, "o": 2 * SLOW}, 1, 1.0, "undecided")],
)  # fmt: skip
def test_evaluation_ratio(judge, mine, rivals, below, ours, verdict):
    row = judge("evaluation_ratio", hits(m=mine, **rivals), **AT, others=list(rivals), below=below)
    assert (row["ours"], row["verdict"]) == (pytest.approx(ours), verdict)
    if len(rivals) == 1 and len(mine) > 5:
        assert row["low"] == row["high"] == pytest.approx(ours)  # pairs share their starts
    assert ("fewer than 5 repetitions, so no interval for n" in row["note"]) == (len(mine) < 5)


def test_the_ratio_to_one_that_never_arrives_is_a_bound(judge):
    late = hits(5e5, n=[INF] * 6, backend="numpy")  # a wrapped peer has a backend of its own
    row = judge("evaluation_ratio", joined(hits(m=[1e5] * 6), late), **AT, others=["n"], below=1)
    assert (row["ours"], row["low"], row["high"], row["verdict"]) == (0.2, 0.0, 0.2, "holds")
    assert "n misses the target within its budget, so its ratio is an upper bound" in row["note"]
    assert row["note"].endswith("budget 1.4e6 evaluations (n 5e5)")
    for tables, ours, high, verdict in [
        (joined(hits(m=[6e5] * 6), late), 1.2, 1.2, "undecided"),  # who knows when the other would have come
        (hits(m=[INF] * 6, n=[INF] * 6), np.nan, INF, "undecided"),
        (joined(hits(m=[INF] * 6), hits(n=[1e5] * 6)), 14.0, INF, "fails"),
    ]:
        row = judge("evaluation_ratio", tables, **AT, others=["n"], below=1)
        np.testing.assert_equal([row["ours"], row["high"]], [ours, high])
        assert row["verdict"] == verdict


@pytest.mark.parametrize(
    ("second", "ours", "verdict"),
    [
        (1.0, 1.0, "holds"),
        (2.0, 2.0, "fails"),
        (0.5, 0.5, "fails"),
        (INF, INF, "fails"),
        ([1, 1.5], 1.5**0.5, "undecided"),
    ],
)
def test_linearity(judge, second, ours, verdict):
    starts, first = np.full(6, 300.0), np.array([80.0, 90, 100, 110, 120, 130])
    ends_at = starts + first * (1 + np.resize(second, 6))
    tables = joined(
        *({"hits": hits(m=at)["hits"].assign(target=gap)}
          for gap, at in [(1.0, starts), (1e-5, starts + first), (1e-10, ends_at)])
    )  # fmt: skip
    row = judge("linearity", tables, problems=["p"], method="m", above=0.8, below=1.25)
    assert (row["ours"], row["verdict"]) == (pytest.approx(ours), verdict)
    assert "p; budget 1.4e6 evaluations" in row["note"]


def test_linearity_is_undecided_where_two_targets_are_met_at_once(judge):
    at_once = {"hits": pd.concat([hits(m=[100] * 6)["hits"].assign(target=gap) for gap in (1.0, 1e-5, 1e-10)])}
    assert judge("linearity", at_once, problems=["p"], method="m", below=1.25)["verdict"] == "undecided"


SPREAD = np.array([1e-3, 1e-1, 1.0, 10.0])


@pytest.mark.parametrize(
    ("mine", "n", "o", "ours", "verdict"),
    [(SPREAD, 2 * SPREAD * [0.99, 1, 1.01, 1], 9 * SPREAD, 0.5, "holds"), (SPREAD, SPREAD / 2, SPREAD, 2.0, "fails"),
     (SPREAD, [INF, 1, 1, 1], [INF] * 4, 0.0, "holds"), ([INF, 1, 1, 1], SPREAD, SPREAD, INF, "fails"),
     ([INF] * 4, [INF] * 4, [INF] * 4, np.nan, "undecided"),
     ([1e-12, 1e-11], [1e-11, 1e-12], [3e-11, 2e-12], 1.0, "undecided")],  # below the target: when a run was stopped
)  # fmt: skip
def test_final_gap_ratio(judge, mine, n, o, ours, verdict):
    row = judge("final_gap_ratio", ends(m=mine, n=n, o=o), **AT, others=["n", "o"], below=1)
    assert (row["ours"], row["verdict"]) == (pytest.approx(ours, rel=0.01, nan_ok=True), verdict)
    assert row["note"] == "mine; budget 5e5 evaluations"


def test_gaps_need_an_optimum_and_comparisons_need_pairs(judge):
    tables = ends(optimum=np.nan, m=[-100, -110, -120], n=[-50, -61, -70])
    with pytest.raises(UserError, match="the optimum of p is unknown"):
        judge("final_gap_ratio", tables, **AT, others=["n"], below=1)
    rows = ends(m=[1, 2, 3], n=[1, 2, 3])["ends"]
    apart = {"ends": rows[(rows["method"] == "m") == (rows["repetition"] == 0)]}
    for effect, more in (("final_gap_ratio", {}), ("share", {"event": "lower"})):
        with pytest.raises(UserError, match="have no common repetitions"):
            judge(effect, apart, **AT, **more, others=["n"], below=0.5)


def test_problems_solved(judge):
    tables = joined(hits(m=[1, 2]), hits(problem="q", m=[1, INF]), hits(problem="r", m=[1, 1]))
    for published, verdict in ((2, "holds"), (3, "fails")):
        row = judge("problems_solved", tables, method="m", problems=["p", "q", "r"], published=published)
        assert (row["ours"], row["high"], row["verdict"]) == (2, 2, verdict)
        assert row["note"] == "mine; p, r; budget 1.4e6 evaluations"


def test_divergence_rate(judge):
    for last, ours, verdict in ((11, 1.0, "holds"), (9, 2 / 3, "fails")):
        row = judge("share", ends(m=[INF, last, 12]), **AT, event="divergence", at_least=1)
        assert (row["ours"], row["verdict"]) == (ours, verdict)
    row = judge("share", ends(m=[INF, 9999, 10_001, 12]), **AT, event="divergence", times=1000, above=0.5)
    assert (row["ours"], row["verdict"]) == (0.5, "undecided")  # the start is 10
    assert row["note"] == "mine; 2 of 4 repetitions; budget 5e5 evaluations"
    assert judge("share", ends(m=[INF] * 6), **AT, event="divergence", times=1000, above=0.5)["verdict"] == "holds"


def test_remaining_gap(judge):
    row = judge("final_gap_ratio", ends(m=[0.01, 0.02, 0.03]), **AT, at_most=0.01)  # of 10
    assert (row["ours"], row["verdict"]) == (pytest.approx(0.002), "holds")
    assert row["high"] == pytest.approx(0.002 + 4.303 * 0.001 / np.sqrt(3), rel=1e-3)
    assert judge("final_gap_ratio", ends(m=[5, 5.1, 4.9]), **AT, at_most=0.01)["verdict"] == "fails"
    assert judge("final_gap_ratio", ends(m=[INF, 0, 0]), **AT, at_most=0.01)["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("mine", "n", "ours", "verdict"),
    [([1] * 10, [2] * 10, 1.0, "holds"), ([3] * 10, [2] * 10, 0.0, "fails"),
     ([1] * 9 + [3], [2] * 10, 0.9, "holds"), ([1, 1, 3, 3] * 2, [2] * 8, 0.5, "undecided"),
     ([1] * 6 + [2] * 4, [2] * 10, 1.0, "holds"), ([1e-12] * 6, [1e-11] * 6, np.nan, "undecided"),
     ([INF] + [1] * 9, [INF] + [2] * 9, 1.0, "holds")],
)  # fmt: skip
def test_lower_rate(judge, mine, n, ours, verdict):
    """Ties are left out, below the target too."""
    row = judge("share", ends(m=mine, n=n), **AT, event="lower", others=["n"], above=0.5)
    np.testing.assert_equal([row["ours"], row["verdict"]], [ours, verdict])


@pytest.mark.parametrize("event", ["target", "divergence"])
def test_a_share_that_compares_nothing_has_no_rivals(judge, event):
    with pytest.raises(UserError, match="others"):
        judge("share", hits(m=[1], n=[1]) | ends(m=[1], n=[1]), **AT, event=event, others=["n"], below=0.5)


@pytest.mark.parametrize(
    ("event", "method", "words"),
    [("target", "m", "needs the table 'hits'"), ("divergence", "nobody", "'ends' has no rows of .* nobody")],
)
def test_what_the_tables_do_not_have(judge, event, method, words):
    with pytest.raises(UserError, match=words):
        judge("share", ends(m=[1]), problem="p", method=method, event=event, below=0.5)
    with pytest.raises(UserError, match=r"'hits' has no rows of target 0.1"):
        judge("share", hits(m=[1]), **AT, event="target", target=0.1, below=0.5)
