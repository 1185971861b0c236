"""The table of docs/performance.md is that of the records of the benchmarks."""

import json
import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest

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


def test_cases_alternate_and_steps_count():
    order, now = [], [0.0]

    def case(name, seconds, steps):
        def call(state):
            order.append(name)
            now[0] += seconds
            return state

        return common.Case(name, call, steps=steps)

    cases = [case("a", 1.0, 1), case("b", 6.0, 2)]
    common.alternate(cases, 2, lambda: now[0])
    assert "".join(order) == "ab" + "ab" + "ba"  # the first two compile
    assert cases[1].ratio(cases[0]) == [3.0, 3.0, 3.0]


def test_a_record_replaces_the_cases_that_were_measured_again(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RECORDS", tmp_path)
    args = Namespace(out=tmp_path / "out.json", record=True)
    for value in (1.0, 2.0):
        common.finish(args, "steps", [{"case": "a", "unit": "s", "numbers": {"x": {"value": value}}}])
    common.finish(args, "steps", [{"case": "b", "unit": "s", "numbers": {"x": {"value": 1.23456789}}}])
    found = {case["case"]: case for case in json.loads((tmp_path / "steps.json").read_text())}
    assert {name: case["numbers"]["x"]["value"] for name, case in found.items()} == {"a": 2.0, "b": 1.2346}
    assert found["a"]["measured"]["commit"]


def test_only_what_stands_between_the_comments_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- a -->\n\nold\n\n<!-- /a -->\n\n<!-- b -->\n\nkept\n\n<!-- /b -->\n")
    common.fill(page, "a", "| new |")
    assert common.filled(page, "a") == "| new |"
    assert common.filled(page, "b") == "kept"
    assert page.read_text().startswith("before\n")
    with pytest.raises(SystemExit, match="c"):
        common.fill(page, "c", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.09714, "0.0971"), (2.714, "2.71"), (60000, "60 000"), (9.996, "10.0"), (5e-7, "5e-07"), (0.0, "0")],
)
def test_numbers_have_three_digits(value, text):
    assert common.number(value) == text


def test_every_filled_part_of_a_page_has_both_comments():
    for page in ("docs/performance.md", "docs/trust.md", "docs/thirty-models.md", "docs/integrating-samples.md"):
        text = (common.REPOSITORY / page).read_text("utf-8")
        names = re.findall(r"<!-- (\w+) -->", text)
        assert names, page
        assert names == re.findall(r"<!-- /(\w+) -->", text)
        assert all(common.filled(common.REPOSITORY / page, name) for name in names)
