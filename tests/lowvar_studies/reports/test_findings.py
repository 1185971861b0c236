"""Findings in words: the numbers, intervals and verdicts are those of claims.csv."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_claims_of_scales import AT, ERROR, INTEGRAL, written

from lowvar_studies.jobs import commands as jobs
from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.claims import parse
from lowvar_studies.reports.findings import findings, sentence

NAN, INF = np.nan, np.inf
SEARCH = {
    "family": "search",
    "problems": {"sphere": {"function": "sphere", "dim": 2}, "levy": {"function": "levy", "dim": 2}},
    "methods": {"ingo_cma": None, "es": None},
    "search": {"budget": 300, "repetitions": 2},
    "scales": {"smoke": {}, "quick": {}, "paper": {}},
}
LINEAR = {"mc": {"integrator": "monte_carlo"}, "linear": {"integrator": "zero_variance", "options": {"order": 1}}}
VARIANCE = {"effect": "variance_ratio", "problem": "sonar", "method": "joint", "others": ["naive"], "below": 1}
EFFORT = {"effect": "effort_ratio", "problem": "sonar", "method": "joint", "others": ["naive", "cv"], "below": 1}
MEASURED = {"effect": "measured_ratio", "problem": "blr", "method": "mlmc", "of": "squared_error", "to": "variance"}
SHARE = {"effect": "share", "problem": "levy", "method": "es", "event": "target", "at_most": 0}
DIFFERENCE = {"effect": "difference", "problem": "tennis", "method": "joint", "others": ["cv"], "above": 0}


@pytest.mark.parametrize(
    ("test", "numbers", "said"),
    [
        (VARIANCE, (0.25, 0.2, 0.5), "variance 4 [2, 5] times lower"),
        (VARIANCE, (1.5, 1.25, 2), "variance 1.5 [1.25, 2] times as high"),
        (VARIANCE | {"published": 0.2}, (0.25, 0.2, 0.5), "variance 4 [2, 5] times lower; published: 0.2"),
        (
            EFFORT | {"unit": "step", "at_most": 0.4, "published": 0.4, "below": None},
            (2, 1, 4),
            "seconds of a step 2 [1, 4] times as high (against the closest of them); published: at most 0.4",
        ),
        (EFFORT, (0.25, 0, 0.5), "iterations 4 [2, inf] times lower (against the closest of them)"),
        (EFFORT | {"unit": "step"}, (0.5, NAN, NAN), "seconds of a step 2 times lower (against the closest of them)"),
        (EFFORT, (INF, INF, INF), "iterations inf [inf, inf] times as high (against the closest of them)"),
        (MEASURED | {"above": 1000}, (2000, 1500, 2500), "squared error 2000 [1500, 2500] times as high"),
        (SHARE, (0.0, 0.0, 0.31), "0 [0, 31] % of repetitions"),
        (DIFFERENCE, (177, 166, 188), "177 [166, 188]"),
        (DIFFERENCE, (NAN, NAN, NAN), "no value"),
    ],
)
def test_a_sentence_has_the_number_and_its_interval(test, numbers, said):
    claim = parse({"id": "c", "statement": "joint is better", "source": "ours", "test": test})
    value, low, high = numbers
    assert sentence(claim, value, low, high, "holds") == f"joint is better: {said}; holds"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The quick scale of an experiment with verdicts on five claims, three of one effect, and one on rows of no run."""
    errors = [ERROR | {"at": AT | {"method": method, "sizes": sizes}}
              for method, sizes in (("mc", 10), ("mc", 40), ("linear", 40))]  # fmt: skip
    ratio = {"effect": "error_ratio", "problem": "borehole", "method": "linear", "others": ["mc"], "sizes": 40}
    covered = {"effect": "coverage", "problem": "borehole", "method": "mc", "sizes": 40, "task": "high", "above": 0.5}
    folder = tmp_path_factory.mktemp("findings")
    claims = [*errors, ratio | {"below": 1}, covered]
    study = Study.load(written(folder, INTEGRAL | {"methods": LINEAR}, *claims).path, "quick", folder / "results")
    for job in study.jobs():
        {"sample": jobs.sample, "run": jobs.run}[job.kind](job)
    jobs.tables(study)
    jobs.claims(study)
    return study


def test_findings_are_of_several_effects_and_count_the_rest(study):
    ((heading, said),) = findings([study])
    assert heading.startswith("one: ")
    rows = pd.read_csv(study.verdicts).set_index("id")
    assert len(said) == 4
    for one, name in zip(said, ("c0", "c3", "c4"), strict=False):  # an effect each
        assert one.endswith(f"; {rows['verdict'][name]}")
    assert f"error {1 / rows['ours']['c3']:.4g} [" in said[1]
    assert said[-1].startswith("Verdicts: ")
    assert f"{(rows['verdict'] == 'fails').sum()} fails" in said[-1]


def test_what_was_not_judged_is_no_finding(study):
    rows = pd.read_csv(study.verdicts)
    whole = study.verdicts.read_bytes()
    try:
        rows.loc[rows["id"] != "c4", "verdict"] = "not made"
        rows.to_csv(study.verdicts, index=False)
        ((_, said),) = findings([study])
        assert len(said) == 2
        assert "% of repetitions" in said[0]
        study.verdicts.unlink()
        assert findings([study]) == []
    finally:
        study.verdicts.write_bytes(whole)


def made_at_quick(folder, content):
    """The quick scale of an experiment without claims, with all its tables."""
    study = Study.load(written(folder, content).path, "quick", folder / "results")
    study.claims.unlink()
    for job in study.jobs():
        jobs.run(job)
    jobs.tables(study)
    jobs.claims(study)
    return study


def test_without_claims_the_first_rows_of_the_summary(tmp_path):
    study = made_at_quick(tmp_path, SEARCH | {"groups": {"valleys": ["sphere", "levy"]}, "draw": ["groups"]})
    ((heading, (title, *rows)),) = findings([study])
    assert heading.startswith("one: ")
    assert "2 of 2 rows" in title
    shares = study.table("groups").query("of == 'best' and problem == 'all'").groupby("method")["share"].last()
    for row in rows:
        method, *cells = row.split("; ")
        share = next(cell for cell in cells if cell.startswith("all, 150:"))
        assert share == f"all, 150: {100 * shares[method.removeprefix('method: ')]:.0f}"
    assert len(rows) == 2


def test_without_claims_and_groups_the_ends_of_the_runs(tmp_path, monkeypatch):
    study = made_at_quick(tmp_path, SEARCH | {"draw": ["curves"]})
    ((_, (title, *rows)),) = findings([study])
    assert "3 of 4 rows" in title
    assert len(rows) == 3
    monkeypatch.setitem(FAMILIES, "search", replace(FAMILIES["search"], summary=None))
    ((_, said),) = findings([Study.load(study.path, "quick", study.results)])  # of a family without a table of its own
    assert len(said) == 1
    assert "curves" in said[0]


def test_smoke_has_one_line_for_all_experiments(study):
    smoke = Study.load(study.path, "smoke", study.results)
    ((heading, said),) = findings([smoke, smoke])
    assert "smoke" in heading
    assert said == []
