"""Effects of integrals: errors against published ones and in pairs, spread, coverage; every note has sizes and repetitions."""

import functools

import numpy as np
import pandas as pd
import pytest
from traces import estimates as of_repetitions

from lowvar.errors import UserError
from lowvar_studies.reports.integral import errors as A
from lowvar_studies.reports.integral.estimates import estimates

N = 50
NOISE = np.random.default_rng(4).standard_normal(N)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1)
MAE = np.abs(NOISE).mean()  # of noise with sd 1
SUM = {"problem": "p", "method": "m", "sizes": 20}
AT = SUM | {"task": "f"}
MEAN = {"table": "errors", "column": "mae", "at": AT}
TOTAL = {"table": "sums", "column": "sum_mae", "at": SUM}
trace = functools.partial(of_repetitions, se=1.0)


def evidence(*traces, truth_error=0.0, value=0.0, derived=()):
    rows = pd.concat(traces, ignore_index=True)
    tasks = list(rows["task"].drop_duplicates())
    truth = pd.DataFrame({"problem": "p", "task": tasks, "truth": value, "truth_error": truth_error, "how": ""})
    rows["derived"] = rows["task"].isin(derived)
    made = {"errors": A.errors, "sums": A.sums, "estimates": estimates}
    return {name: make(rows, truth) for name, make in made.items()} | {"truth": truth}


def test_error(judge):
    tables = evidence(trace(NOISE / MAE))
    row, ours = judge("value", tables, **MEAN, published=1.25, published_se="ours"), tables["errors"].iloc[0]
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(1.0))
    assert (row["low"], row["high"]) == (ours["mae_low"], ours["mae_high"])
    assert row["note"].endswith("combined standard errors apart; sizes 20, 50 repetitions")
    lost = judge("value", evidence(trace([np.nan, *NOISE])), **MEAN, published=1, published_se=0)
    assert (lost["verdict"], lost["ours"]) == ("fails", np.inf)
    assert "51 repetitions (1 failed)" in lost["note"]
    vague = evidence(trace(NOISE / MAE), truth_error=0.2)
    assert judge("value", vague, **MEAN, published=1.3, published_se=0)["verdict"] == "holds"


def test_a_published_mean_of_few_repetitions(judge):
    """Of ten repetitions where ours are fifty: its standard error is larger than ours."""
    error = A.mean_interval(np.abs(NOISE / MAE))[2] - 1
    se = error / 2.0096  # t, 49 degrees of freedom
    tables = evidence(trace(NOISE / MAE))
    for times, verdict in ((0.99, "holds"), (1.01, "fails")):
        published = 1 + times * 2 * se * np.sqrt(1 + 5)
        row = judge("value", tables, **MEAN, published=published, published_se="ours", published_repetitions=10)
        assert row["verdict"] == verdict


@pytest.mark.parametrize(("bound", "verdict"), [(1.5, "holds"), (1.0, "undecided"), (0.5, "fails")])
def test_error_range(judge, bound, verdict):
    halves = evidence(trace(NOISE / MAE / 2), trace(NOISE / MAE / 2, task="g"))
    for at, tables in ((MEAN, evidence(trace(NOISE / MAE))), (TOTAL, halves)):
        row = judge("value", tables, **at, truth=True, at_most=bound)
        assert (row["verdict"], row["ours"], row["published"]) == (verdict, pytest.approx(1.0), bound)
    assert judge("value", evidence(trace([np.inf, 0.1])), **MEAN, truth=True, at_most=bound)["verdict"] == "fails"
    row = judge("value", evidence(trace(1e-4 * NOISE), truth_error=1e-3), **MEAN, truth=True, at_most=1e-3)
    assert (row["verdict"], row["low"]) == ("undecided", 0.0)  # below the truth's own


RARE = np.r_[np.zeros(45), np.full(5, 3.0)]  # seldom wrong, but much


@pytest.mark.parametrize(
    ("mine", "rivals", "more", "ours", "verdict"),
    [
        (NOISE / 2, {"n": NOISE, "o": 3 * NOISE}, {}, 0.5, "holds"),
        (NOISE / 2, {"n": NOISE}, {"below": 0.4}, 0.5, "fails"),
        (3 * NOISE, {"n": NOISE}, {}, 3.0, "fails"),
        (NOISE, {"n": NOISE[::-1], "o": 4 * NOISE[::-1]}, {}, 1.0, "undecided"),  # the nearest rival decides
        (NOISE, {"n": NOISE[::-1]}, {"of": "rmse"}, 1.0, "undecided"),
        (RARE, {"n": 0.6 * np.sign(NOISE)}, {}, 0.5, "holds"),
        (RARE, {"n": 0.6 * np.sign(NOISE)}, {"of": "rmse"}, np.sqrt(0.9) / 0.6, "fails"),
        (NOISE, {"n": [np.nan, *NOISE[1:]]}, {}, 0.0, "holds"),
        ([np.nan, *NOISE[1:]], {"n": NOISE}, {}, np.inf, "fails"),
        ([np.nan] * 6, {"n": [np.nan] * 6}, {}, np.nan, "undecided"),
        ([1.0, 1.0], {"n": [2.0, 2.0]}, {}, 0.5, "undecided"),
    ],
)
def test_error_ratio_by_pairs(judge, mine, rivals, more, ours, verdict):
    tables = evidence(trace(mine), *(trace(values, name) for name, values in rivals.items()))
    row = judge("error_ratio", tables, **AT, others=list(rivals), **{"below": 1, **more})
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(ours, nan_ok=True))
    if ours in (0.5, 3.0) and len(mine) == N and mine is not RARE:
        assert row["low"] == pytest.approx(row["high"])  # the same noise: pairs have no spread
    assert ("n failed in" in row["note"]) == bool(np.isnan(rivals["n"]).any())
    assert ("fewer than 5 repetitions" in row["note"]) == (len(mine) < 5)
    assert f"sizes 20, {len(mine)} repetitions" in row["note"]


def of_two_problems(here, there, truth_error=0.0):
    """Tables of the problems p and q: errors of the methods m and n on each."""
    both = [evidence(trace(a), trace(b, "n"), truth_error=truth_error) for a, b in (here, there)]
    return {
        name: pd.concat([both[0][name], both[1][name].assign(problem="q")], ignore_index=True)
        for name in ("errors", "sums", "estimates")
    }


def test_a_gain_beside_another(judge):
    """Half of the error here and three quarters there; with pairs of independent noise, the interval covers 2/3."""
    rng = np.random.default_rng(0)
    gain = {**AT, "other": "n", "beside": "q", "below": 1}
    exact = judge("gain_ratio", of_two_problems((NOISE / 2, NOISE), (0.75 * NOISE, NOISE)), **gain)
    assert (exact["verdict"], exact["ours"]) == ("holds", pytest.approx(2 / 3))
    assert exact["low"] == pytest.approx(exact["high"]) == pytest.approx(2 / 3)
    covered = 0
    for _ in range(20):
        a, b, c, d = rng.standard_normal((4, 80))
        row = judge("gain_ratio", of_two_problems((a / 2, b), (0.75 * c, d)), **gain)
        covered += row["low"] <= 2 / 3 <= row["high"]
        assert 0.5 < row["high"] / row["low"] / np.exp(2 * 1.96 * np.sqrt(4 * (np.pi / 2 - 1) / 80)) < 2
    assert covered >= 17
    same = judge("gain_ratio", of_two_problems((a / 2, b), (0.75 * a, b)), **gain, paired=True)
    assert same["low"] == pytest.approx(same["high"]) == pytest.approx(2 / 3)
    with pytest.raises(UserError, match="paired"):
        judge("gain_ratio", of_two_problems((a / 2, b), (c[:40], d[:40])), **gain, paired=True)
    hidden = judge("gain_ratio", of_two_problems((NOISE / 2, NOISE), (0.75 * NOISE, NOISE), 1.0), **gain)
    assert hidden["verdict"] == "undecided"
    lost = judge("gain_ratio", of_two_problems(([np.nan, *NOISE[1:]], NOISE), (NOISE, NOISE)), **gain)
    assert lost["verdict"] != "holds"


def test_a_gain_beside_another_on_the_same_draws(judge):
    """The interval over pairs covers, and is the narrower one where each method errs alike on both problems."""
    rng, gain = np.random.default_rng(1), {**AT, "other": "n", "beside": "q", "below": 1}
    covered = narrower = 0
    for _ in range(100):
        mine, rivals, *own = rng.standard_normal((6, 60))
        a, b, c, d = (shared + 0.5 * one for shared, one in zip((mine, rivals) * 2, own, strict=True))
        tables = of_two_problems((a / 2, b), (0.75 * c, d))
        row, apart = (judge("gain_ratio", tables, **gain, paired=paired) for paired in (True, False))
        covered += row["low"] <= 2 / 3 <= row["high"]
        narrower += row["high"] / row["low"] < apart["high"] / apart["low"]
    assert 89 <= covered < 100  # 95 % with a standard error of 2.2
    assert narrower >= 99


@pytest.mark.parametrize(
    ("above", "of", "truth_error", "verdict"),
    [(20, 20, 0.0, "holds"), (0, 20, 0.0, "holds"), (10, 20, 0.0, "fails"), (19, 20, 0.0, "holds"),
     (16, 20, 0.0, "undecided"), (4, 4, 0.0, "undecided"), (20, 20, 5.0, "undecided")],
)  # fmt: skip
def test_the_central_half_of_estimates(judge, above, of, truth_error, verdict):
    """Of 20 estimates, 19 on one side say that of many more than three quarters would be, and 16 do not."""
    tables = evidence(trace(np.r_[np.ones(above), -np.ones(of - above)]), truth_error=truth_error)
    row = judge("same_side", tables, **AT, above=0.75)
    assert (row["verdict"], row["ours"]) == (verdict, max(above, of - above) / of)


def test_errors_that_the_truth_hides_have_no_ratio(judge):
    row = judge(
        "error_ratio", evidence(trace(NOISE / 2), trace(NOISE, "n"), truth_error=1.0), **AT, others=["n"], below=1
    )
    assert (row["verdict"], row["ours"]) == ("undecided", pytest.approx(0.5))
    assert "n: errors are at most twice the truth's error, 1.0e+00" in row["note"]


def test_sums_leave_out_what_is_derived(judge):
    tables = evidence(trace(NOISE), trace(NOISE, task="g"), trace(99 + NOISE, task="z"), trace(4 * NOISE, "n"),
                      trace(np.zeros(N), "n", "g"), derived=["z"])  # fmt: skip
    for published, verdict in ((2 * MAE, "holds"), (3 * MAE, "fails")):
        row = judge("value", tables, **TOTAL, published=published, published_se=0)
        assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(2 * MAE))
    row = judge("error_ratio", tables, **SUM, others=["n"], below=1)
    assert (row["verdict"], row["ours"]) == ("holds", pytest.approx(0.5))


def test_spread_and_truth(judge):
    """Any column of a table, with its interval; that of the truth is widened by its error."""
    spread = {"table": "errors", "column": "sd", "at": AT}
    for bound, verdict in (({"at_most": 1.5}, "holds"), ({"published": 1, "tolerance": 0.1}, "undecided")):
        row = judge("value", evidence(trace(7 + NOISE)), **spread, **bound)
        assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(1.0))
        assert judge("value", evidence(trace([np.nan, *NOISE])), **spread, **bound)["verdict"] == "fails"
    truth = {"table": "truth", "column": "truth", "truth": True, "at": {"problem": "p", "task": "f"}}
    tables = evidence(trace(NOISE), value=72.8786, truth_error=0.01)
    row = judge("value", tables, **truth, published=72.8904, plus_minus=0.02)
    assert (row["verdict"], row["ours"]) == ("undecided", 72.8786)
    assert row["high"] - row["ours"] == pytest.approx(0.01959964)


@pytest.mark.parametrize(
    ("other", "truth_error", "verdict"),
    [(NOISE, 0.0, "holds"), (1.5 * NOISE, 0.0, "holds"), (0.5 * NOISE, 0.0, "fails"), (NOISE[::-1], 0.0, "undecided"),
     (NOISE, 1.0, "undecided")],
)  # fmt: skip
def test_size_error_ratio(judge, other, truth_error, verdict):
    tables = evidence(trace(NOISE, sizes="20/20"), trace(other, sizes="60/20"), truth_error=truth_error)
    row = judge("error_ratio", tables, **AT | {"sizes": "20/20", "more": "60/20"}, above=0.9)
    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(np.abs(other).mean() / MAE))
    assert row["note"].endswith("sizes 60/20 against 20/20, 50 repetitions")
    assert ("at most twice the truth's error" in row["note"]) == (truth_error > 0)


PROMISED = {"published": 0.95, "published_se": 0}


def test_coverage(judge):
    values = np.r_[np.full(47, 1.0), np.full(3, 9.0)]
    row = judge("coverage", evidence(trace(values)), **AT, at_least=0.8)
    assert (row["verdict"], row["ours"], row["published"]) == ("holds", 0.94, 0.8)
    assert row["low"] == pytest.approx(0.8345, abs=1e-3)  # Clopper and Pearson, 47 of 50
    assert judge("coverage", evidence(trace(values)), **AT, at_least=0.9)["verdict"] == "undecided"  # not by the count
    for many, verdict in ((47, "holds"), (43, "fails"), (50, "holds")):  # 0.95 +- 2 sqrt(0.95 0.05 / 50)
        row = judge("coverage", evidence(trace(np.r_[np.ones(many), np.full(50 - many, 9.0)])), **AT, **PROMISED)
        assert (row["verdict"], row["ours"]) == (verdict, many / 50)
        assert ("too narrow" in row["note"]) == (verdict == "fails")
    lasting = evidence(trace(np.ones(400)))  # intervals that always contain the truth are too wide
    row = judge("coverage", lasting, **AT, **PROMISED)
    assert (row["verdict"], row["note"].split("; ")[-2]) == ("fails", "intervals are too wide")
    assert judge("coverage", evidence(trace(np.ones(4))), **AT, **PROMISED)["verdict"] == "undecided"
    for tables, words in (
        (evidence(trace(values), truth_error=0.5), "the truth's error, 5.0e-01, is too large"),
        (evidence(trace(values, se=np.nan)), "m gives no standard errors"),
    ):
        for bound in ({"at_least": 0.8}, PROMISED):
            row = judge("coverage", tables, **AT, **bound)
            assert row["verdict"] == "undecided"
            assert words in row["note"]


@pytest.mark.parametrize("more", [{"others": ["linear"]}, {"of": "rmse"}])
def test_errors_at_more_points_are_the_method_s_own_and_absolute(judge, more):
    with pytest.raises(UserError, match=f"more.*{next(iter(more))}"):
        judge("error_ratio", evidence(trace(NOISE)), **AT, more=40, **more, below=1)


@pytest.mark.parametrize(
    ("effect", "more", "words"),
    [("value", MEAN | {"at": AT | {"sizes": 30}}, "'errors' has no rows of .* sizes 30"),
     ("value", MEAN | {"at": {"task": "f"} | {"siez": 20}}, "unknown column 'siez'"),
     ("value", MEAN | {"at": {"backend": "torch"}}, "2 rows of these values, which differ in .'task'"),
     ("error_ratio", AT | {"others": ["nobody"]}, "'estimates' has no rows of .* method nobody"),
     ("value", MEAN | {"column": "task"}, "test: .*text"),
     ("value", MEAN | {"at": AT | {"task": 2.5}}, "test: .*text"),
     ("error_ratio", AT, "at least one method to compare")],
)  # fmt: skip
def test_what_the_tables_do_not_have(judge, effect, more, words):
    with pytest.raises(UserError, match=words):
        judge(effect, evidence(trace(NOISE), trace(NOISE, task="g")), **more, below=1)
    with pytest.raises(UserError, match="needs the table"):
        judge(effect, {}, **more, below=1)
