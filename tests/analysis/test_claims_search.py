"""Claims about searches: verdicts follow from intervals, and every note says its budget."""

import numpy as np
import pandas as pd
import pytest

from lowvar.errors import UserError
from lowvar.studies import claims as C

INF = np.inf


def hits(budget=1_400_000, problem="p", backend="jax", target=1e-10, **methods):
    return pd.DataFrame(
        [{"problem": problem, "method": name, "backend": backend, "repetition": r, "target": target, "of": "mean", "evaluations": float(e), "budget": budget}
         for name, each in methods.items() for r, e in enumerate(each)]
    )  # fmt: skip


def ends(optimum=0.0, start=10.0, **methods):
    return pd.DataFrame(
        [{"problem": "p", "method": name, "backend": "jax", "repetition": r, "f": f, "best": f, "start": start, "budget": 5e5,
          "status": "ok" if np.isfinite(f) else "diverged", "optimum": optimum} for name, each in methods.items() for r, f in enumerate(each)]
    )  # fmt: skip


def judge(test, **tables):
    claim = C.Claim.model_validate({"id": "c", "statement": "s", "source": "t", "note": "mine", "test": test})
    return C.judge([claim], tables).iloc[0]


def at(kind, **more):
    return {"kind": kind, "problem": "p", "method": "m", **more}


@pytest.mark.parametrize(
    ("reached", "at_least", "verdict", "low"),
    [(20, 1.0, "holds", 0.8316), (19, 1.0, "fails", 0.7513), (17, 0.9, "undecided", 0.6211), (18, 0.9, "holds", 0.683), (5, 0.9, "fails", 0.0866)],
)  # fmt: skip
def test_reaches(reached, at_least, verdict, low):
    table = hits(m=[100] * reached + [INF] * (20 - reached))
    row = judge(at("reaches", at_least=at_least), hits=table)
    assert (row["ours"], row["published"], row["verdict"]) == (reached / 20, at_least, verdict)
    assert row["low"] == pytest.approx(low, abs=2e-4)
    assert row["note"] == "mine; budget 1.4e6 evaluations"


def test_never():
    assert judge(at("never"), hits=hits(m=[INF] * 20))["verdict"] == "holds"
    assert judge(at("never"), hits=hits(m=[INF] * 19 + [1e6]))["verdict"] == "fails"


def test_faster_with_intervals():
    slow = np.linspace(1000, 1100, 20)
    row = judge(at("faster", other="n"), hits=hits(m=slow / 2, n=slow))
    assert row["ours"] == pytest.approx(0.5)
    assert row["low"] == row["high"] == pytest.approx(0.5)  # pairs share their starts
    assert row["verdict"] == "holds"
    assert judge(at("faster", other="n"), hits=hits(m=slow, n=slow / 2))["verdict"] == "fails"
    assert judge(at("faster", other="n", below=0.4), hits=hits(m=slow / 2, n=slow))["verdict"] == "fails"
    mixed = np.r_[np.linspace(500, 900, 10), np.linspace(1200, 2000, 10)]
    row = judge(at("faster", others=["n", "o"]), hits=hits(m=mixed, n=slow, o=2 * slow))
    assert row["verdict"] == "undecided"  # one of them is as fast
    assert row["ours"] == pytest.approx(1.0)


def test_faster_than_one_that_never_arrives_is_a_bound():
    table = pd.concat([hits(m=[1e5] * 6), hits(5e5, n=[INF] * 6, backend="numpy")])
    row = judge(at("faster", other="n"), hits=table)
    assert (row["ours"], row["low"], row["high"], row["verdict"]) == (0.2, 0.0, 0.2, "holds")
    assert "n is not there in its budget, so its ratio is a bound from above" in row["note"]
    assert row["note"].endswith("budget 1.4e6 evaluations (n 5e5)")
    late = judge(at("faster", other="n"), hits=pd.concat([hits(m=[6e5] * 6), hits(5e5, n=[INF] * 6)]))
    assert late["verdict"] == "undecided"  # who knows when the other would have come
    both = judge(at("faster", other="n"), hits=hits(m=[INF] * 6, n=[INF] * 6))
    assert (both["verdict"], both["low"], both["high"]) == ("undecided", 0.0, INF)
    assert np.isnan(both["ours"])
    reverse = judge(at("faster", other="n"), hits=pd.concat([hits(m=[INF] * 6), hits(n=[1e5] * 6)]))
    assert (reverse["ours"], reverse["verdict"], reverse["high"]) == (14.0, "fails", INF)
    few = judge(at("faster", other="n"), hits=hits(m=[1, 1, 1], n=[2, 2, 2]))
    assert (few["ours"], few["verdict"]) == (0.5, "undecided")


@pytest.mark.parametrize(("published", "verdict"), [(1050, "holds"), (1.4e3, "fails"), (1230, "undecided")])
def test_evaluations(published, verdict):
    row = judge(at("evaluations", published=published), hits=hits(m=np.linspace(1000, 1100, 20)))
    assert row["ours"] == 1050
    assert row["low"] == pytest.approx(1000 + 5 * 100 / 19)
    assert row["verdict"] == verdict


def test_evaluations_of_few_or_lost_runs():
    few = judge(at("evaluations", published=100), hits=hits(m=[100] * 5))
    assert few["verdict"] == "undecided"
    assert "fewer than 6" in few["note"]
    assert judge(at("evaluations", published=100), hits=hits(m=[INF] * 6))["verdict"] == "fails"


def test_lowest_compares_pairs():
    spread = np.array([1e-3, 1e-1, 1.0, 10.0])
    test = at("lowest", others=["n", "o"])
    row = judge(test, ends=ends(m=spread, n=2 * spread * [0.99, 1, 1.01, 1], o=9 * spread))
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5, rel=0.01))
    assert row["note"] == "mine; budget 5e5 evaluations"
    assert judge(test, ends=ends(m=spread, n=spread / 2, o=spread))["verdict"] == "fails"
    assert judge(test, ends=ends(m=spread, n=[INF, 1, 1, 1], o=9 * spread))["verdict"] == "holds"
    assert judge(test, ends=ends(m=[INF, 1, 1, 1], n=spread, o=spread))["verdict"] == "fails"
    same = ends(m=[1e-12, 1e-11], n=[1e-11, 1e-12], o=[3e-11, 2e-12])
    assert judge(test, ends=same)["ours"] == 1.0  # below the target gaps say when a run was stopped


def test_lowest_without_an_optimum_is_a_difference():
    table = ends(optimum=np.nan, m=[-100, -110, -120], n=[-50, -61, -70])
    row = judge(at("lowest", others=["n"]), ends=table)
    assert (row["ours"], row["verdict"]) == (pytest.approx(-149 / 3), "holds")
    assert "difference" in row["note"]


def test_count():
    table = pd.concat([hits(problem="p", m=[1, 2]), hits(problem="q", m=[1, INF]), hits(problem="r", m=[1, 1])])
    test = {"kind": "count", "method": "m", "problems": ["p", "q", "r"]}
    row = judge(test | {"published": 2}, hits=table)
    assert (row["ours"], row["low"], row["high"], row["verdict"]) == (2, 2, 2, "holds")
    assert "p, r" in row["note"]
    assert judge(test | {"published": 3}, hits=table)["verdict"] == "fails"
    assert judge(test | {"published": 2, "at_least": 0.75}, hits=table)["verdict"] == "holds"
    assert judge(test | {"published": 3, "at_least": 0.75}, hits=table)["verdict"] == "undecided"


def test_diverges():
    row = judge(at("diverges"), ends=ends(m=[INF, 11, 12]))
    assert (row["ours"], row["verdict"]) == (1.0, "holds")
    assert judge(at("diverges"), ends=ends(m=[INF, 9, 12]))["verdict"] == "fails"


RATIO = {"kind": "variance_ratio", "problem": "p", "scheme": "orthogonal", "baseline": "mean", "population": 100, "sigma": 0.5}  # fmt: skip


@pytest.mark.parametrize(
    ("test", "verdict"),
    [({"below": 0.2}, "holds"), ({"below": 0.1}, "undecided"), ({"below": 0.05}, "fails"), ({"published": 0.1, "tolerance": 0.2}, "holds")],
)  # fmt: skip
def test_variance_ratio(test, verdict):
    row = {"problem": "p", "scheme": "orthogonal", "baseline": "mean", "population": 100, "sigma": 0.5, "block": "mu", "source": "total",
           "to_iid": 0.1, "to_iid_low": 0.09, "to_iid_high": 0.11}  # fmt: skip
    table = pd.DataFrame([row, row | {"block": "sigma"}])
    assert judge(RATIO | test, decomposition=table)["verdict"] == verdict
    with pytest.raises(UserError, match="which the decomposition does not have"):
        judge(RATIO | test | {"population": 99}, decomposition=table)


def test_what_the_tables_do_not_have():
    with pytest.raises(UserError, match="needs the table 'hits'"):
        judge(at("never"), ends=ends(m=[1]))
    with pytest.raises(UserError, match="nobody on p at target 1e-10"):
        judge(at("never", method="nobody"), hits=hits(m=[1]))
    with pytest.raises(UserError, match="nobody on p, which the table 'ends'"):
        judge(at("diverges", method="nobody"), ends=ends(m=[1]))


@pytest.mark.parametrize("test", [at("faster"), at("faster", other="n", others=["o"]), RATIO, RATIO | {"below": 1, "published": 1}, at("reaches", at_least=2)])  # fmt: skip
def test_claims_that_say_too_little_or_too_much(tmp_path, test):
    import yaml

    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump([{"id": "a", "statement": "b", "source": "c", "test": test}]))
    with pytest.raises(UserError, match=r"claims\.yaml"):
        C.load(path)
