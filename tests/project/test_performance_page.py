"""The table of docs/performance.md is that of the records of the benchmarks."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import common
import performance


def test_the_table_is_that_of_the_records():
    shown = performance.shown(performance.records())
    assert common.filled(performance.PAGE, "speed") == shown, "fill it: python benchmarks/performance.py"
    met, aims = map(int, re.findall(r"\d+", shown.partition(" aims")[0]))
    assert shown.count("**missed**") == aims - met
    assert shown.count(": met)") == met > aims / 2


def test_every_record_is_shown_and_says_when():
    assert {path.stem for path in common.RECORDS.glob("*.json")} == set(common.SPEED)
    for name, cases in performance.records().items():
        assert (common.REPOSITORY / f"benchmarks/{name}.py").is_file()
        assert len({case["case"] for case in cases}) == len(cases) > 0
        for case in cases:
            assert {"date", "commit", "processor"} <= set(case["measured"]), case["case"]
            assert case["numbers"], case["case"]


def timed(name, *seconds):
    return common.Case(name, lambda state: state, seconds=list(seconds))


def test_ratios_are_those_of_the_rounds_and_judged_by_their_median():
    cases = [timed("mine", 1.0, 2.0, 4.0), timed("theirs", 2.0, 3.0, 16.0)]
    case = common.compared("made", cases, "mine", {"theirs": {"least": 2.0}})
    assert case["numbers"] == {"mine": {"value": 2e6}, "theirs": {"ratio": [2.0, 1.5, 4.0], "least": 2.0}}
    assert common.met(case["numbers"]["theirs"])
    assert not common.met({"ratio": [2.0, 1.5, 4.0], "most": 1.9})
    assert common.met({"value": 1.0, "most": 1.0})
    assert common.met({"value": 1.0}) is None
    assert common.words({"ratio": [2.0, 1.5, 4.0], "most": 1.9}) == "× 2.00 [1.50, 4.00] (≤ 1.9: **missed**)"


def test_every_filled_part_of_a_page_has_both_comments():
    for page in ("docs/performance.md", "docs/trust.md", "docs/thirty-models.md", "docs/integrating-samples.md"):
        text = (common.REPOSITORY / page).read_text("utf-8")
        names = re.findall(r"<!-- (\w+) -->", text)
        assert names, page
        assert names == re.findall(r"<!-- /(\w+) -->", text)
        assert all(common.filled(common.REPOSITORY / page, name) for name in names)
