"""Claims about integrals: verdicts follow from intervals, and every note says sizes and repetitions."""

import numpy as np
import pandas as pd
import pytest

from lowvar.errors import UserError
from lowvar.studies import claims as C
from lowvar.studies.integral import errors as A
from lowvar.studies.integral import estimates as E

N = 50
NOISE = np.random.default_rng(4).standard_normal(N)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1)
MAE = np.abs(NOISE).mean()  # of noise with sd 1


def trace(values, method="m", task="f", sizes="20", se=1.0):
    values = np.asarray(values, float)
    return pd.DataFrame(
        {"problem": "p", "method": method, "backend": "torch", "sizes": sizes, "points": 20, "repetition": range(len(values)), "task": task, "m": 20,
         "value": values, "standard_error": se, "flags": "", "status": np.where(np.isfinite(values), "ok", "failed")}
    )  # fmt: skip


def evidence(*traces, truth_error=0.0, value=0.0, derived=()):
    rows = pd.concat(traces, ignore_index=True)
    tasks = list(rows["task"].drop_duplicates())
    truth = pd.DataFrame({"problem": "p", "task": tasks, "truth": value, "truth_error": truth_error, "how": ""})
    rows["derived"] = rows["task"].isin(derived)
    return {make.__name__: make(rows, truth) for make in (A.errors, A.sums, E.estimates)} | {"truth": truth}


def judge(test, tables):
    claim = C.Claim.model_validate({"id": "c", "statement": "s", "source": "t", "note": "mine", "test": test})
    return C.judge([claim], tables).iloc[0]


def at(kind, **more):
    task = {} if kind.startswith("sum") else {"task": "f"}
    return {"kind": kind, "problem": "p", "method": "m", "sizes": 20, **task, **more}


@pytest.mark.parametrize(
    ("published", "se", "verdict"),
    [(1.0, 0.0, "holds"), (1.3, 0.0, "fails"), (1.3, 0.15, "holds"), (1.3, 0.8, "undecided"), (0.05, 0.0, "fails"), (1.25, "ours", "holds")],
)  # fmt: skip
def test_error_against_a_published_one(published, se, verdict):
    tables = evidence(trace(NOISE / MAE))
    row = judge(at("error", published=published, published_se=se), tables)
    ours = tables["errors"].iloc[0]
    assert (row["verdict"], row["published"], row["ours"]) == (verdict, published, pytest.approx(1.0))
    assert (row["low"], row["high"]) == (ours["mae_low"], ours["mae_high"])
    assert row["note"].startswith("mine; ")
    assert row["note"].endswith("combined standard errors apart; sizes 20, 50 repetitions")


def test_error_with_few_failed_or_vague_repetitions():
    assert judge(at("error", published=1.0), evidence(trace([1.0, -1.1, 0.9, 1.0])))["verdict"] == "undecided"
    lost = judge(at("error", published=1.0), evidence(trace([np.nan, *NOISE])))
    assert (lost["verdict"], lost["ours"]) == ("fails", np.inf)
    assert "51 repetitions (1 failed)" in lost["note"]
    vague = evidence(trace(NOISE / MAE), truth_error=0.2)
    assert judge(at("error", published=1.3), vague)["verdict"] == "holds"  # for all we know of the truth


@pytest.mark.parametrize(("below", "verdict"), [(1.5, "holds"), (1.0, "undecided"), (0.5, "fails")])
def test_error_below(below, verdict):
    for kind, tables in (("error_below", evidence(trace(NOISE / MAE))), ("sum_below", evidence(trace(NOISE / MAE / 2), trace(NOISE / MAE / 2, task="g")))):  # fmt: skip
        row = judge(at(kind, below=below), tables)
        assert (row["verdict"], row["ours"], row["published"]) == (verdict, pytest.approx(1.0), below)
    assert judge(at("error_below", below=below), evidence(trace([np.inf, 0.1])))["verdict"] == "fails"


def test_error_below_the_truths_own_is_undecided():
    assert judge(at("error_below", below=1e-3), evidence(trace(1e-4 * NOISE)))["verdict"] == "holds"
    row = judge(at("error_below", below=1e-3), evidence(trace(1e-4 * NOISE), truth_error=1e-3))
    assert (row["verdict"], row["low"]) == ("undecided", 0.0)


def test_beats_by_pairs():
    tables = evidence(trace(NOISE / 2), trace(NOISE, "n"), trace(NOISE * 3, "o"))
    row = judge(at("beats", others=["n", "o"]), tables)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5))
    assert row["low"] == pytest.approx(row["high"])  # the same noise: pairs have no spread
    assert row["note"] == "mine; sizes 20, 50 repetitions"
    assert judge(at("beats", others=["n"], below=0.4), tables)["verdict"] == "fails"
    assert judge(at("beats", others=["n"], method="o"), tables)["verdict"] == "fails"
    other = evidence(trace(NOISE), trace(NOISE[::-1], "n"), trace(4 * NOISE[::-1], "o"))
    assert judge(at("beats", others=["n", "o"]), other)["verdict"] == "undecided"  # the nearest rival decides
    assert judge(at("beats", others=["o"]), other)["verdict"] == "holds"
    assert judge(at("beats", others=["n"], of="rmse"), other)["ours"] == pytest.approx(1.0)


def test_beats_mae_and_rmse_can_differ():
    rare = np.r_[np.zeros(45), np.full(5, 3.0)]  # seldom wrong, but much
    tables = evidence(trace(rare), trace(0.6 * np.sign(NOISE), "n"))
    assert judge(at("beats", others=["n"]), tables)["ours"] == pytest.approx(0.5)
    assert judge(at("beats", others=["n"], of="rmse"), tables)["ours"] == pytest.approx(np.sqrt(0.9) / 0.6)


def test_beats_of_failed_and_few_repetitions():
    lost = trace([np.nan, *NOISE[1:]], "n")
    row = judge(at("beats", others=["n"]), evidence(trace(NOISE), lost))
    assert (row["verdict"], row["ours"]) == ("holds", 0.0)
    assert "n failed in 1 of 50 repetitions" in row["note"]
    assert judge(at("beats", method="n", others=["m"]), evidence(trace(NOISE), lost))["verdict"] == "fails"
    both = judge(at("beats", others=["n"]), evidence(trace([np.nan] * 6), trace([np.nan] * 6, "n")))
    assert both["verdict"] == "undecided"
    few = judge(at("beats", others=["n"]), evidence(trace([1.0, 1.0]), trace([2.0, 2.0], "n")))
    assert (few["ours"], few["verdict"]) == (0.5, "undecided")
    assert "fewer than 5 repetitions" in few["note"]


def test_sums_leave_out_what_is_derived():
    tables = evidence(trace(NOISE), trace(NOISE, task="g"), trace(99 + NOISE, task="z"), trace(4 * NOISE, "n"), trace(np.zeros(N), "n", "g"), derived=["z"])  # fmt: skip
    row = judge(at("sum_error", published=2 * MAE), tables)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(2 * MAE))
    assert judge(at("sum_error", published=3 * MAE), tables)["verdict"] == "fails"
    row = judge(at("sum_beats", others=["n"]), tables)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5))


@pytest.mark.parametrize(
    ("test", "verdict"),
    [({"below": 1.5}, "holds"), ({"below": 1.0}, "undecided"), ({"below": 0.5}, "fails"), ({"published": 1.0}, "holds"),
     ({"published": 3.0}, "fails"), ({"published": 1.0, "tolerance": 0.1}, "undecided")],
)  # fmt: skip
def test_spread(test, verdict):
    row = judge(at("spread", **test), evidence(trace(7 + NOISE)))
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(1.0))
    assert judge(at("spread", below=9), evidence(trace([np.nan, *NOISE])))["verdict"] == "fails"


@pytest.mark.parametrize(
    ("published", "tolerance", "error", "verdict"),
    [(72.8904, 0.005, 0.0, "fails"), (72.8786, 1e-4, 0.0, "holds"), (72.8904, 0.02, 0.0, "holds"), (72.8904, 0.02, 0.01, "undecided"), (25.58, 1.0, 1.0, "fails")],
)  # fmt: skip
def test_truth(published, tolerance, error, verdict):
    test = {"kind": "truth", "problem": "p", "task": "f", "published": published, "tolerance": tolerance}
    row = judge(test, evidence(trace(NOISE), value=72.8786, truth_error=error))
    assert (row["verdict"], row["ours"]) == (verdict, 72.8786)
    assert row["high"] - row["ours"] == pytest.approx(1.959964 * error)


def test_no_gain():
    def between(scale, other=NOISE, **more):
        return judge(at("no_gain", sizes="20/20", more="60/20"), evidence(trace(NOISE, sizes="20/20"), trace(scale * other, sizes="60/20"), **more))  # fmt: skip

    row = between(1.0)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(1.0))
    assert row["note"] == "mine; sizes 60/20 against 20/20, 50 repetitions"
    assert between(1.5)["verdict"] == "holds"
    assert between(0.5)["verdict"] == "fails"
    assert between(1.0, NOISE[::-1])["verdict"] == "undecided"
    vague = between(1.0, truth_error=1.0)
    assert vague["verdict"] == "undecided"
    assert "not above twice the truth's own" in vague["note"]


def test_coverage():
    values = np.r_[np.full(47, 1.0), np.full(3, 9.0)]
    row = judge(at("coverage", at_least=0.8), evidence(trace(values)))
    assert (row["verdict"], row["ours"], row["published"]) == ("holds", 0.94, 0.8)
    assert row["low"] == pytest.approx(0.8345, abs=1e-3)  # Clopper and Pearson, 47 of 50
    assert judge(at("coverage", at_least=0.9), evidence(trace(values)))["verdict"] == "undecided"
    assert judge(at("coverage", at_least=0.99), evidence(trace(values)))["verdict"] == "fails"
    vague = judge(at("coverage", at_least=0.8), evidence(trace(values), truth_error=0.5))
    assert vague["verdict"] == "undecided"
    assert "the truth is known to 5.0e-01 only" in vague["note"]
    none = judge(at("coverage"), evidence(trace(values, se=np.nan)))
    assert none["verdict"] == "undecided"
    assert "m gives no standard errors" in none["note"]


def test_what_the_tables_do_not_have():
    tables = evidence(trace(NOISE))
    with pytest.raises(UserError, match="task f of p at sizes 30, which the table 'errors'"):
        judge(at("error_below", below=1, sizes=30), tables)
    with pytest.raises(UserError, match="nobody on p at sizes 20, which the table 'estimates'"):
        judge(at("sum_beats", others=["nobody"]), tables)
    with pytest.raises(UserError, match="task h of p, which the table 'truth'"):
        judge({"kind": "truth", "problem": "p", "task": "h", "published": 1, "tolerance": 1}, tables)
    with pytest.raises(UserError, match="needs the table 'errors'"):
        judge(at("coverage"), {})


@pytest.mark.parametrize("test", [at("spread"), at("spread", below=1, published=1), at("beats", others=[]), at("error", published=0), at("coverage", at_least=2), at("error_below", below=1, sizes=True), at("error", published=1, published_se="theirs")])  # fmt: skip
def test_claims_that_say_too_little_or_too_much(tmp_path, test):
    import yaml

    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump([{"id": "a", "statement": "b", "source": "c", "test": test}]))
    with pytest.raises(UserError, match=r"claims\.yaml"):
        C.load(path)


def test_no_kind_has_two_judges():
    kinds = [kind for family in (C.variational, C.search, C.integral) for kind in family.JUDGES]
    assert len(kinds) == len(set(kinds))
