"""One judge for all bounds; what a file of claims may say; the claims that are shipped."""

import inspect
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import binom, nct, t

from lowvar.cli import main
from lowvar.core.intervals import mean_interval, share_interval
from lowvar.errors import UserError
from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports import claims as C
from lowvar_studies.reports.effect import SHARED, Effect, Effects, Missing, compare
from lowvar_studies.reports.search.effects import _share

NAN, INF = np.nan, np.inf
# Wang, Geffner and Domke (2024), by dataset, or the model `ppca`. Table 1: variance of the naive gradient at the end of a run of joint (V, V_n, V_eps)
VARIANCES = {
    "sonar": {"total": 4.04e4, "subsampling": 2.02e4, "monte_carlo": 1.16e4},
    "australian": {"total": 9.16e4, "subsampling": 8.61e4, "monte_carlo": 2.07e3},
    "mnist": {"total": 4.21e8, "subsampling": 3.21e8, "monte_carlo": 1.75e4},
    "ppca": {"total": 1.69e10, "subsampling": 1.68e10, "monte_carlo": 3.73e7},
    "tennis": {"total": 9.96e7, "subsampling": 9.59e7, "monte_carlo": 8.56e4},
    "movielens": {"total": 1.78e9, "subsampling": 1.69e9, "monte_carlo": 1.75e6},
}
# Table 3: milliseconds of an iteration on an Nvidia 2080 Ti; on movielens, joint is its SVRG version
MILLISECONDS = {
    "mnist": {"naive": 10.4, "cv": 12.8, "inc": 328.0, "joint": 17.6, "full_naive": 201.0, "full_cv": 360.0},
    "ppca": {"naive": 12.8, "cv": 18.5, "inc": 897.0, "joint": 31.2, "full_naive": 740.0, "full_cv": 1606.0},
    "tennis": {"naive": 10.2, "cv": 14.6, "inc": 588.0, "joint": 29.6, "full_naive": 203.0, "full_cv": 246.0},
    "movielens": {"naive": 16.3, "cv": 19.6, "joint_svrg": 24.4, "full_naive": 267.0, "full_cv": 702.0},
}


@pytest.fixture
def verdict(monkeypatch, judge):
    """The row of effects under bounds; a name tells what values the effect can have."""

    def verdict(effects, name="given", **bounds):
        monkeypatch.setitem(C.EFFECTS, name, lambda tables: effects)
        return judge(name, {}, **bounds)

    return verdict


@pytest.mark.parametrize(
    ("bounds", "shown", "holding", "undecided", "failing"),
    [
        ({"below": 1}, NAN, (0.5, 0.9), (0.9, 1), (1.1, 2)),
        ({"above": 1}, NAN, (1.1, 2), (1, 1.1), (0.5, 0.9)),
        ({"above": 1, "tolerance": 0.1}, NAN, (0.95, 2), (0.8, 0.99), (0.5, 0.85)),
        ({"below": 1, "tolerance": 0.1}, NAN, (0.5, 1.05), (1.01, 1.2), (1.15, 2)),
        ({"at_most": 1}, 1, (0.5, 1), (1, 1.1), (1.1, 2)),
        ({"at_least": 1}, 1, (1, 2), (0.9, 1), (0.5, 0.9)),
        ({"above": -0.2, "below": 0.2}, NAN, (-0.1, 0.1), (-0.3, 0.1), (0.3, 0.4)),
        ({"published": 100, "tolerance": 0.1}, 100, (95, 105), (85, 105), (111, 130)),
        ({"published": -100, "tolerance": 0.1}, -100, (-105, -95), (-105, -85), (1, 2)),
        ({"published": 72.89, "plus_minus": 0.02}, 72.89, (72.88, 72.9), (72.8, 72.9), (72.92, 73)),
        ({"published": 400}, 400, (400, 400), (399, 401), (401, 402)),
        ({"published": 9, "below": 1}, 9, (0.5, 0.9), (0.5, 1.5), (1.1, 2)),  # for the reader
    ],
)
def test_the_interval_decides(verdict, bounds, shown, holding, undecided, failing):
    for expected, (low, high) in {"holds": holding, "undecided": undecided, "fails": failing}.items():
        row = verdict(Effect((low + high) / 2, low, high), **bounds)
        assert (row["verdict"], row["low"], row["high"], row["note"]) == (expected, low, high, "mine")
        np.testing.assert_equal(float(row["published"]), float(shown))
    assert verdict(Effect(1.0), **bounds)["verdict"] == "undecided"  # no interval


@pytest.mark.parametrize(
    ("effect", "bounds", "expected"),
    [
        (Effect.certain(1.0), {"above": 1}, "fails"),  # no estimate: equality violates a strict bound
        (Effect(1.0, 1.0, 1.0), {"above": 1}, "undecided"),
        (Effect.certain(INF), {"below": 1}, "fails"),
        (Effect.certain(208), {"published": 208}, "holds"),
        (Effect.certain(207), {"published": 208}, "fails"),
        (Effect.undecided("why"), {"below": 1}, "undecided"),
        (Effect(2.0, 1.5, 2.5, bounds=(NAN, NAN)), {"above": 1}, "undecided"),
        (Effect(1.0, 0.7, 1.0, counted=True), {"at_least": 1}, "holds"),  # all repetitions that ran
        (Effect(0.9, 0.7, 0.98, counted=True), {"at_least": 0.9}, "undecided"),
        (Effect(0.9, 0.7, 0.98, counted=True), {"above": 0.6}, "holds"),
        (Effect(0.8, 0.6, 0.92, counted=True), {"at_least": 0.9}, "undecided"),
        (Effect(0.2, 0.1, 0.4, counted=True), {"at_most": 0}, "fails"),
        (Effect(3, 3, 5, counted=True), {"published": 4}, "undecided"),
        (Effect(1.0, 0.16, 1.0, counted=True, reach=(0.16, 0.84)), {"at_least": 1}, "holds"),
        (Effect(1.0, 0.16, 1.0, counted=True, reach=(0.16, 0.84)), {"at_least": 0.5}, "undecided"),  # 0 of 2 would pass
        (Effect(0.0, 0.0, 0.84, counted=True, reach=(0.16, 0.84)), {"at_most": 0}, "holds"),
        (Effect(0.0, 0.0, 0.84, counted=True, reach=(0.16, 0.84)), {"at_most": 0.2}, "undecided"),
        (Effect(6, 6, 6, counted=True, reach=(6, 0)), {"published": 6}, "holds"),
    ],
)
def test_bounds_that_are_no_interval(verdict, effect, bounds, expected):
    assert verdict(effect, **bounds)["verdict"] == expected


def test_a_claim_about_several_holds_for_all_and_shows_the_worst(verdict):
    good, wide, bad = Effect(0.5, 0.4, 0.6, note="good"), Effect(0.9, 0.5, 1.3, note="wide"), Effect(2.0, 1.8, 2.2)
    for effects, bound, expected, shown in [
        ([good, good], {"below": 1}, "holds", 0.5), ([good, wide], {"below": 1}, "undecided", 0.9),
        ([good, bad, wide], {"below": 1}, "fails", 2.0), ([wide, good], {"above": 0.7}, "fails", 0.5),
        ([good, Effect(NAN)], {"below": 1}, "undecided", NAN), ([good, Effect(NAN)], {"above": 0.1}, "undecided", NAN),
        ([good, Effect(NAN, rank=-1)], {"below": 1}, "undecided", 0.5),
    ]:  # fmt: skip
        row = verdict(Effects(effects), **bound)
        assert row["verdict"] == expected
        np.testing.assert_equal(row["ours"], shown)
    assert verdict(Effects([good, wide], before=["a", "b"], after=["c"]), below=1)["note"] == "mine; a; b; wide; c"


@pytest.mark.parametrize(
    ("value", "published", "se", "expected"),
    [(1.0, 1.0, 0, "holds"), (1.0, 1.3, 0, "fails"), (1.0, 1.3, 0.15, "holds"), (1.0, 1.3, 0.8, "undecided"),
     (1.0, 0.05, 0, "fails"), (1.0, 1.25, "ours", "holds"), (INF, 1.0, 0, "fails")],
)  # fmt: skip
def test_agreement_within_two_standard_errors(verdict, value, published, se, expected):
    effect = Effect(value, 0.8, 1.2, pairs=50, errors=(0.1, 0.0), note="sizes")
    row = verdict(effect, published=published, published_se=se)
    assert (row["verdict"], row["published"]) == (expected, published)
    assert row["note"].endswith(" combined standard errors apart; sizes")
    few = Effect(value, 0.8, 1.2, pairs=4, errors=(0.1, 0.0))
    assert verdict(few, published=published, published_se=se)["verdict"] in (
        "undecided",
        "fails" if value == INF else "",
    )
    vague = Effect(1.0, 0.8, 1.2, pairs=50, errors=(0.1, 0.2))  # for all that is known of the truth
    assert verdict(vague, published=1.3, published_se=0)["verdict"] == "holds"
    with pytest.raises(UserError, match="claim 'c': the effect 'given' has no standard errors"):
        verdict(Effect(1.0), published=1.0, published_se=0.1)


@pytest.mark.parametrize(
    ("interval", "bounds", "expected"),
    [
        ((0.88, 0.98), {"at_least": 0.95}, "undecided"),
        ((0.88, 0.98), {"at_least": 0.95, "detectable": 0.1}, "holds"),
        ((0.75, 1.0), {"at_least": 0.95, "detectable": 0.1}, "undecided"),  # as wide around 0.85, it would not fail
        ((0.80, 0.94), {"at_least": 0.95, "detectable": 0.1}, "fails"),
        ((0.96, 5.0), {"at_least": 0.95, "detectable": 0.1}, "holds"),  # wholly beyond the bound
        ((0.6, 1.2), {"at_most": 1, "detectable": 0.4}, "holds"),
        ((0.6, 1.6), {"at_most": 1, "detectable": 0.4}, "undecided"),
        ((1.1, 1.2), {"at_most": 1, "detectable": 0.4}, "fails"),
    ],
)
def test_a_bound_that_is_a_hypothesis(verdict, interval, bounds, expected):
    assert verdict(Effect(sum(interval) / 2, *interval), **bounds)["verdict"] == expected
    assert verdict(Effect(1.0), **bounds)["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("n", "detectable", "holds"),
    [
        *((100, 0.1, True), (100, 0.02, False), (20, 0.1, False)),
        pytest.param(1000, 0.02, True, marks=pytest.mark.long),
    ],
)
def test_intervals_that_promise_95_percent_are_held_to_it(monkeypatch, n, detectable, holds):
    """The verdict over the binomial law of coverage: true intervals rarely fail; short ones do, if it can be seen."""

    def covered(tables, k: int):
        return Effect(k / n, *(float(end) for end in share_interval(k, n)))

    monkeypatch.setitem(C.EFFECTS, "covered", covered)
    test = {"effect": "covered", "at_least": 0.95, "detectable": detectable}
    stated = [{"id": str(k), "statement": "s", "source": "t", "test": test | {"k": k}} for k in range(n + 1)]
    each = C.judge(map(C.parse, stated), {})["verdict"]

    def probability(word, coverage):
        return sum(binom.pmf(k, n, coverage) for k, found in enumerate(each) if found == word)

    assert probability("fails", 0.95) < 0.025
    if holds:
        assert probability("holds", 0.95) > 0.9
        assert probability("fails", 0.95 - detectable) > 0.4  # a deviation of that size was detectable
        assert probability("fails", 0.95 - 2 * detectable) > 0.9
    else:
        assert probability("holds", 0.95) < 0.1  # too few repetitions to have failed


def test_agreement_must_have_been_able_to_fail(verdict):
    effect = Effect(1.2, 0.45, 1.95, pairs=20, errors=(0.37, 0.0))
    assert verdict(effect, published=0.938, published_se=0)["verdict"] == "undecided"  # half of 0.938 would agree
    assert verdict(effect, published=0.938, published_se=0, detectable=1.0)["verdict"] == "holds"
    assert (
        verdict(Effect(1.0, 0.8, 1.2, pairs=20, errors=(0.1, 0.0)), published=1.1, published_se=0)["verdict"] == "holds"
    )


ERROR = {"effect": "coverage", "problem": "p", "task": "f", "method": "m", "sizes": 20}
VALUE = {"effect": "value", "table": "errors", "column": "mae", "at": {"sizes": 20}}
SHARE = {"effect": "share", "problem": "p", "method": "m", "event": "target"}
SOLVED = {"effect": "problems_solved", "problems": ["p", "q"], "method": "m"}
PARTS = {"effect": "variance_ratio", "problem": "p", "method": "m", "others": ["m"]}
FRACTION = {"effect": "elbo_fraction", "problem": "p", "method": "m", "other": "n", "reference": "o"}
RATIO = {"effect": "measured_ratio", "problem": "p", "method": "m", "of": "variance", "others": ["n"]}


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"effect": "varianc"}, "claim 1 'a': unknown effect 'varianc': did you mean 'variance_ratio'"),
        ({}, "key 'effect' is missing"),
        (ERROR | {"metod": "m", "published": 1}, "claim 1 'a': test: unknown key 'metod': did you mean 'method'"),
        (ERROR, "a bound is missing"),
        (ERROR | {"below": 1, "at_most": 1}, "at most one upper and one lower bound"),
        (ERROR | {"below": 1, "published_se": 1}, "belong to a published value"),
        (ERROR | {"published": 1, "published_se": "theirs"}, "published_se"),
        (VALUE | {"published": 1, "published_se": 0.1, "published_repetitions": 10}, "published_repetitions belongs"),
        (ERROR | {"published": 1, "detectable": 1}, "detectable belongs to published_se, or to a single bound"),
        (RATIO | {"below": 1, "interval": "ranks"}, "did you mean 'rank'"),
        (ERROR | {"published": 1, "sizes": True}, "sizes = True"),
        ({"effect": "evaluation_ratio", "problem": "p", "method": "m", "below": 1}, "key 'others' is missing"),
        *(
            (RATIO | {key: value}, f"test: {key} = ")
            for key in ("below", "above", "at_most", "at_least", "published")
            for value in (NAN, INF, -INF, True, "1", [1])
        ),
        *(
            (RATIO | {"published": 1, key: value}, f"test: {key}")
            for key in ("tolerance", "plus_minus", "published_se")
            for value in (NAN, INF, True, "1", -1)
        ),
        *(
            (ERROR | {"at_least": 0.95, "detectable": value}, "test: detectable = ")
            for value in (NAN, INF, True, "1", 0)
        ),
        (SHARE | {"at_most": 0.5, "target": INF}, "test: target = "),
        (ERROR | {"published": 0, "published_se": 0.1}, "test: published: .*give detectable"),
        (RATIO | {"above": 2, "below": 1}, "test: below, above: .*no value can meet"),
        (RATIO | {"at_least": 1, "below": 1}, "test: below, at_least: .*no value can meet"),
        (RATIO | {"below": 0}, "test: below: .*no value can meet"),
        (RATIO | {"at_least": 0}, "test: at_least: .*no value can violate"),
        (SHARE | {"below": 1}, "test: below: .*no value can violate"),  # it could never hold
        (SHARE | {"at_most": 0.9, "tolerance": 0.2}, "test: at_most: .*no value can violate"),
        (SHARE | {"above": 1}, "test: above: .*no value can meet"),
        (SHARE | {"published": 1.2}, "test: published: .*no value can meet"),
        (ERROR | {"above": 0}, "test: above: .*no value can violate"),
        (ERROR | {"effect": "same_side", "at_least": 0.5}, "test: at_least: .*no value can violate"),
        (SOLVED | {"at_most": 2}, "test: at_most: .*no value can violate"),
        (SOLVED | {"at_least": 3}, "test: at_least: .*no value can meet"),
        (RATIO | {"below": 1, "others": ["n", "m"]}, "test: others: 'm' is compared with itself"),
        (RATIO | {"below": 1, "others": ["n", "n"]}, "test: others: 'n' is compared with itself"),
        (RATIO | {"below": 1, "others": ["m"], "to": "variance"}, "test: others: 'm'"),
        (RATIO | {"below": 1, "others": ["m"], "to_moment": "along"}, "test: others: 'm'"),
        (PARTS | {"below": 1, "parts": ["total"]}, "test: others: 'm'"),
        (PARTS | {"effect": "difference", "above": 0, "others_on": "p"}, "test: others: 'm'"),
        (FRACTION | {"below": 1, "other": "m"}, "test: other: 'm'"),
        (FRACTION | {"below": 1, "reference": "n"}, "test: reference: 'n'"),
    ],
)
def test_claims_that_say_too_little_or_too_much(tmp_path, test, words):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump([{"id": "a", "statement": "b", "source": "c", "test": test}]))
    with pytest.raises(UserError, match=words) as error:
        C.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "test",
    [
        PARTS | {"source": "monte_carlo", "parts": ["subsampling"]},
        PARTS | {"weights": {"subsampling": 0.5}},
        RATIO | {"others": ["m"], "to": "squared_error"},
        RATIO | {"others": ["m"], "to_moment": "start"},
        PARTS | {"effect": "difference", "others_on": "q"},
        SHARE | {"at_least": 1},
        SHARE | {"below": 1, "above": 0.5},
        SOLVED | {"published": 2},
    ],
)
def test_a_method_beside_another_quantity_of_its_own(test):
    bound = {} if {"published", "above", "at_least"} & set(test) else {"below": 1}
    assert C.parse({"id": "a", "statement": "b", "source": "c", "test": test | bound}).test.method == "m"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "list of claims"),
        ("[]", "list of claims"),
        ("id: a", "list of claims"),
        ([{}, {}], "claim 2 'a': id: claim 1 has it"),
        ([{"id": ""}], "claim 1 '': id: '': it must"),
        ([{}, {"id": "a b"}], "claim 2 'a b': id: 'a b'"),
        ([{"id": 3}], "claim 1 3: id = 3"),
        ([{"statement": " "}], "claim 1 'a': statement: it must not be empty"),
        ([{"source": ""}], "claim 1 'a': source: it must not be empty"),
    ],
)
def test_a_file_without_claims_or_with_claims_without_a_name(tmp_path, content, words):
    (tmp_path / "claims").mkdir()
    path, claim = (
        tmp_path / "claims/one.yaml",
        {"id": "a", "statement": "b", "source": "c", "test": RATIO | {"below": 1}},
    )
    path.write_text(content if isinstance(content, str) else yaml.safe_dump([claim | one for one in content]))
    with pytest.raises(UserError, match=words) as error:
        C.load(path)
    assert str(path) in str(error.value)


def test_the_command_refuses_two_claims_of_one_name(repository, tmp_path, capsys):
    shutil.copy(repository / "workflow/experiments/quickstart.yaml", tmp_path)
    claim = {"id": "a", "statement": "b", "source": "c", "test": RATIO | {"below": 1}}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump([claim, claim]))
    words = ["claims", str(tmp_path / "quickstart.yaml"), "--scale", "smoke", "--results", str(tmp_path / "results")]
    assert main([*words, "--claims", str(tmp_path / "two.yaml")]) == 2
    said = capsys.readouterr().err
    assert "two.yaml: claim 2 'a': id" in said
    assert "Traceback" not in said
    assert not (tmp_path / "results").exists()


def interval(effect):
    return effect.value, effect.low, effect.high


def test_comparisons_over_pairs():
    fine, shift = pd.Series([1.0, 2, 1, 2, 1, 3]), pd.Series([0.9, 1.1, 1.0, 1.0, 1.0, 1.0])
    ahead = compare(fine + shift, fine.iloc[::-1], "difference")
    assert interval(ahead) == pytest.approx(mean_interval(shift), rel=1e-12)
    assert interval(compare(fine + shift, fine, "difference", "rank")) == pytest.approx((1.0, 0.9, 1.1))
    ratio = compare(np.log(fine * shift), np.log(fine), "geometric")
    assert interval(ratio) == pytest.approx(np.exp(mean_interval(np.log(shift))), rel=1e-12)
    half = compare(fine, 2 * fine.iloc[:4], "means")  # over the four that both have
    assert (half.value, half.pairs, np.isnan(half.low)) == (0.5, 4, True)
    assert interval(compare(fine, 2 * fine, "means")) == pytest.approx((0.5, 0.5, 0.5))
    assert compare(fine, 0 * fine, "means").value == np.inf


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_lost_repetition_makes_a_ratio_infinite_or_0_and_a_difference_unknown(bad):
    fine, lost = pd.Series([1.0, 2, 1, 2, 1, 3]), pd.Series([1.0, bad, 1, 1, 1, 1])
    for how in ("geometric", "means"):
        assert interval(compare(lost, fine, how)) == (np.inf,) * 3
        assert interval(compare(fine, lost, how)) == (0.0,) * 3
        assert np.isnan(interval(compare(lost, lost, how))).all()
    for a, b in ((-lost, fine), (fine, fine.set_axis(range(7, 13)))):
        assert np.isnan(interval(compare(a, b, "difference"))).all()


def test_effects_have_one_name_each_and_typed_arguments():
    assert sum(len(family.effects) for family in FAMILIES.values()) + len(SHARED) == len(C.EFFECTS)
    for name, effect in C.EFFECTS.items():
        tables, *arguments = inspect.signature(effect).parameters.values()
        assert (tables.name, effect.__name__) == ("tables", name)
        assert all(one.annotation is not one.empty for one in arguments), name
        assert not {one.name for one in arguments} & set(dir(C.Test)), name


SHIPPED = ["problem", "method", "backend", "sizes", "population", "sigma", "scheme", "baseline", "batch_size", "noise",
           "particles", "step_size"]  # fmt: skip


def test_shipped_claims_load_and_are_about_what_runs(repository):
    """The paper scale makes their rows, by its settings alone; published numbers are those of the package's tables."""
    number, printed = 0, set()
    for path in sorted((repository / "workflow" / "claims").glob("*.yaml")):
        loaded = C.load(path)
        assert len({claim.id for claim in loaded}) == len(loaded)
        study = Study.load(repository / "workflow/experiments" / path.name, "paper")
        experiment, every = study.experiment, [one.name for one in study.family.tables if one.when(study.experiment)]
        for claim in loaded:
            test = dict(claim.test) | dict(claim.test).get("at", {})
            assert not (claim.cause and claim.source.startswith("ours")), claim.id  # only a paper's claim has a reason
            assert test.get("problem", next(iter(experiment.problems))) in experiment.problems, claim.id
            if experiment.family == "variational":
                printed |= _printed(claim, test, experiment)
            if test.get("unit") == "step":  # by a benchmark, whose cases need not run
                continue
            if test["effect"] == "measured_ratio" and test["of"] != "state_bytes":
                assert experiment.solver_on(test["problem"], test["method"]).diagnostics, claim.id
            tables = ["decomposition"] if test["effect"].startswith("variance") else [test.get("table")]
            tables = tables if any(tables) else every
            others = (test.get("other"), test.get("reference"), *test.get("others", ()))
            for method in dict.fromkeys(filter(None, (test.get("method"), *others))):
                wanted = {key: test[key] for key in SHIPPED if test.get(key) is not None} | {"method": method}
                if "others_on" in test and method != test["method"]:
                    wanted["problem"] = test["others_on"] or test["problem"]
                if experiment.family == "search":  # a peer runs in its own backend
                    wanted.pop("backend", None)
                    assert wanted.pop("method") in experiment.methods
                assert any(C.makes(study, Missing(table, **wanted)) for table in tables), f"{path.name}: {claim.id}"
            number += 1
    assert number > 500
    assert len(printed) == 7 + 4  # ppca in two scalings


def _printed(claim, test, experiment):
    """Effect and problem of a claim about a number of the paper's tables, which is as printed there."""
    model = experiment.model(test["problem"])
    task = "ppca" if model.model == "ppca" else model.dataset
    if test.get("column") == "variance":
        ours = VARIANCES[task][test["source"]]
    elif test.get("unit") == "step" and claim.source == "Table 3":
        times = MILLISECONDS[task]
        ours = times[test["method"] if test["method"] in times else "joint"] / times["naive"]
    else:
        return set()
    assert claim.test.shown == pytest.approx(ours, rel=5e-3), claim.id
    return {(test["effect"], test["problem"])}


def covering(k, n):
    """The effect of ``coverage`` with k of n repetitions."""
    return Effect(k / n, *(float(end) for end in share_interval(k, n)), pairs=n)


def on_a_side(k, n):
    """The effect of ``same_side`` with k of n estimates on a side."""
    row = {"problem": "p", "method": "m", "sizes": "20", "backend": "torch", "task": "f", "error": 1.0}
    estimates = pd.DataFrame([row] * k + [row | {"error": -1.0}] * (n - k))
    errors = pd.DataFrame([row | {"truth_error": 0.0, "repetitions": n, "failed": 0}])
    return C.EFFECTS["same_side"]({"estimates": estimates, "errors": errors}, "p", "m", "20", "f")


def test_shipped_claims_about_shares_can_hold_and_fail_with_their_repetitions(repository):
    """Of the shares that their numbers of repetitions can give, one holds and one fails."""
    number = 0
    for path in sorted((repository / "workflow" / "claims").glob("*.yaml")):
        experiment = Study.load(repository / "workflow/experiments" / path.name, "paper").experiment
        for claim in C.load(path):
            test = dict(claim.test)
            if test["effect"] == "share":
                n = min(experiment.repetitions(one) for one in (test["method"], *test["others"]))
                each = [_share(np.arange(n) < k) for k in range(n + 1)]
            elif test["effect"] in ("coverage", "same_side"):
                n = experiment.repetitions(test["problem"])
                make, least = {"coverage": (covering, 0), "same_side": (on_a_side, (n + 1) // 2)}[test["effect"]]
                each = [make(k, n) for k in range(least, n + 1)]
            else:
                continue
            found = {C._verdict(claim.test, one) for one in each}
            assert {(True, False), (False, True)} <= found, f"{path.name}: {claim.id}, {n} repetitions"
            number += 1
    assert number > 90


def ends(half, value=1.0, **more):
    """An effect with an interval of these halves."""
    return Effect(value, value - half, value + half, **more)


@pytest.mark.parametrize(
    ("effects", "bounds", "times"),
    [
        ([Effect(0.9, 0.7, 1.1)], {"above": -1, "below": 1}, 4.0),  # the half towards the bound is twice the gap
        ([Effect(2.0, 0.5, 8.0)], {"above": 1}, 4.0),  # a ratio: log 4 over log 2
        ([Effect(1.0, 0.5, 2.0)], {"above": 1}, INF),
        ([Effect(1.0)], {"above": 1}, NAN),
        ([Effect(0.5, 0.4, 0.6)], {"below": 1}, NAN),  # decided
        ([ends(3, 1.5)], {"above": -1, "below": 1}, 36.0),  # it fails by one of the bounds
        ([ends(2), ends(3), ends(0.5)], {"above": 0}, 9.0),  # all rivals must be decided for it to hold
        ([ends(2), ends(3, -1), ends(2, -1)], {"above": 0}, 4.0),  # and one for it to fail
        ([ends(2), ends(3, -1)], {"above": 0}, 9.0),
        ([ends(2), ends(3, 0.0)], {"above": 0}, INF),
        ([ends(2), Effect(NAN)], {"above": 0}, NAN),
        ([ends(2), ends(3, bounds=(-2.0, 4.0))], {"above": 0}, NAN),  # of a grid, or a hull
        ([ends(2, -1), ends(3, bounds=(-2.0, 4.0))], {"above": 0}, 4.0),
        ([ends(3, bounds=(NAN, NAN))], {"above": 0}, NAN),
        ([ends(0.2, 0.96)], {"at_least": 0.95, "detectable": 0.1}, 4.0),  # the width, not the distance to the bound
        ([ends(0.2, 0.94)], {"at_least": 0.95, "detectable": 0.1}, 4.0),
        ([ends(0.2, 0.8)], {"at_least": 0.95, "detectable": 0.1}, (0.2 / 0.15) ** 2),
        ([ends(0.2, pairs=50, errors=(0.3, 0.0))], {"published": 1.1, "published_se": 0}, (0.6 / 0.55) ** 2),
        ([ends(0.2, pairs=50, errors=(0.3, 0.0))], {"published": 1.1, "published_se": 0.2}, 0.36 / (0.55**2 - 0.16)),
        ([ends(0.2, pairs=50, errors=(0.3, 0.1))], {"published": 1.1, "published_se": "ours"}, 0.72 / (0.55**2 - 0.04)),
        ([ends(0.2, pairs=50, errors=(0.3, 0.0))], {"published": 1.1, "published_se": 0.3}, NAN),  # theirs is too large
        ([ends(0.2, pairs=2, errors=(0.1, 0.0))], {"published": 1.1, "published_se": 0}, 2.5),  # five repetitions
    ],
)
def test_an_undecided_claim_says_how_many_repetitions_would_decide_it(verdict, effects, bounds, times):
    np.testing.assert_allclose(float(verdict(Effects(effects), **bounds)["more"]), times)


@pytest.mark.parametrize(("low", "times"), [(0.25, 4.0), (0.0, NAN)])
def test_a_ratio_whose_interval_ends_at_0_is_bounded_by_what_did_not_arrive(verdict, low, times):
    row = verdict(Effect(0.5, low, 1.0), "effort_ratio", above=2**-1.5)
    np.testing.assert_allclose(float(row["more"]), times)
    assert np.isnan(verdict(Effect(2.0, 0.5, INF), "effort_ratio", above=1)["more"])


@pytest.mark.parametrize(
    ("k", "n", "bounds", "more", "decided"),
    [
        (1, 6, {"above": 0.5}, (1.5, 2.0), (2, 12, "fails")),
        (2, 2, {"at_least": 0.5}, np.log(0.025) / np.log(0.5) / 2, (6, 6, "holds")),  # none of six would fail
        (0, 5, {"above": 0.3}, np.log(0.025) / np.log(0.7) / 5, (0, 11, "fails")),
    ],
)
def test_a_share_is_decided_by_the_interval_of_so_many_repetitions(verdict, k, n, bounds, more, decided):
    found = verdict(_share(np.arange(n) < k), "share", **bounds)
    assert found["verdict"] == "undecided"
    assert more[0] < found["more"] < more[1] if isinstance(more, tuple) else found["more"] == pytest.approx(more)
    k, n, word = decided
    assert verdict(_share(np.arange(n) < k), "share", **bounds)["verdict"] == word


def test_repetitions_that_two_published_means_need(judge):
    """More of ours shrink our standard error, and not that of a published mean of ten repetitions."""

    def judged(times):
        row = {"k": "a", "x": [1.0], "x_low": 0.8, "x_high": 1.2, "x_se": 0.5 / np.sqrt(times), "truth_error": 0.01,
               "repetitions": 20 * times}  # fmt: skip
        return judge("value", {"t": pd.DataFrame(row)}, table="t", column="x", at={"k": "a"}, published=1.2,
                     published_se="ours", published_repetitions=100)  # fmt: skip

    times = judged(1)["more"]
    assert 1 < times < 10
    assert [judged(times * near)["verdict"] for near in (0.99, 1.01)] == ["undecided", "holds"]


def test_more_repetitions_do_not_shorten_the_error_of_the_truth(judge):
    row = {"k": "a", "x": [1.0], "x_low": 0.5, "x_high": 1.5, "truth_error": 0.1}
    given = {"table": "t", "column": "x", "at": {"k": "a"}, "above": 0.75}
    both = [judge("value", {"t": pd.DataFrame(row)}, **given, truth=truth)["more"] for truth in (False, True)]
    np.testing.assert_allclose(both, [4, NAN])


@pytest.mark.parametrize("shift", [0.3, -0.1])
def test_as_many_repetitions_as_it_says_decide_a_claim_in_about_half_of_all_samples(verdict, shift):
    """Means of fresh normal values, as far from 0 as the first ones were: the share of decided claims is as computed.

    The effect that needs most repetitions (to hold, or fewest of those that violate the bound) is then decided in half
    of all samples; the others, each by itself, as noncentral t distributions say.
    """
    rng, spreads, n, fresh = np.random.default_rng(0), np.array([[0.5], [1.0], [2.0]]), 20, 8
    decided, expected, words = [], [], set()
    while len(expected) < 40:
        few = rng.normal(shift, spreads, (3, n))
        mean, low, _ = np.array([mean_interval(values) for values in few]).T
        row = verdict(means(few), above=0)
        needed = ((mean - low) / mean) ** 2  # of each alone
        times = needed[mean < 0].min() if (mean < 0).any() else needed.max()
        if row["verdict"] != "undecided" or times > 10:
            continue
        deviation, size = few.std(axis=1, ddof=1), math.ceil(n * row["more"])
        found = [verdict(means(rng.normal(mean, deviation, (size, 3)).T), above=0)["verdict"] for _ in range(fresh)]
        decided.append(np.mean([word != "undecided" for word in found]))
        words |= set(found)
        asked = math.ceil(n * times)
        at, centre = t.ppf(0.975, asked - 1), mean / deviation * np.sqrt(asked)
        either = nct.sf(at, asked - 1, centre), nct.cdf(-at, asked - 1, centre)
        holds, fails = (np.nan_to_num(one) for one in either)  # far tails are NaN
        expected.append(holds.prod() + 1 - (1 - fails).prod())
    expected = np.array(expected)
    spread = np.sqrt((expected * (1 - expected)).sum() / fresh) / len(expected)
    assert 0.35 < expected.mean() < 0.8
    assert abs(np.mean(decided) - expected.mean()) < 4 * spread
    assert "undecided" in words
    assert words & {"holds", "fails"}


def means(rows):
    """An effect for each row: the mean with its t-interval."""
    return Effects([Effect(*mean_interval(values)) for values in rows])
