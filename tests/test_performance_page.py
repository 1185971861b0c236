"""docs/performance.md and its figures say what the records of the benchmarks hold."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import performance
from performance_sections import common, figures
from performance_sections.common import RECORDS, REPOSITORY, Aim, Measurement, number, ratio, rounded

AGAIN = "write it again: python benchmarks/performance.py"


def test_the_page_is_that_of_the_records():
    text, aims = performance.page()
    assert performance.PAGE.read_text("utf-8") == text, AGAIN
    assert any(aim.met for aim in aims)
    assert len({aim.what for aim in aims}) == len(aims)
    of = {aim.what: aim.limit for aim in aims}
    assert [what for what, limit in of.items() if "compilation" in limit] == ["first fit of `rate` over SVI"]
    assert {"CPU time of a step over SVI, 4 devices", "seconds of `vector_valued` over `paper_vv`, T = 8"} <= set(of)


def test_figures_show_the_records():
    found = {stem: figures.csv(shown) for stem, shown in performance.drawn().items()}
    assert len(found) >= 4
    for stem, rows in found.items():
        assert (figures.FIGURES / f"{stem}.csv").read_text("utf-8") == rows, AGAIN
        assert (figures.FIGURES / f"{stem}.svg").is_file()
        assert f"figures/{stem}.svg" in performance.PAGE.read_text("utf-8")
        peers = [line.split(",")[1] for line in rows.splitlines()[1:] if "NumPyro" in line or "peer" in line]
        assert peers, f"{stem} has no line of a peer"


def test_every_record_belongs_to_a_measurement_and_says_when():
    every = performance.measurements()
    assert {path.stem for path in RECORDS.glob("*.json")} == set(every)
    for one in every.values():
        record = json.loads(one.path.read_text("utf-8"))
        assert record["result"], one.name
        assert record["command"] == one.command, f"{one.name} was made by another command: measure it again"
        assert {"date", "commit", "source", "processor"} <= set(record["measured"]), one.name
        assert (REPOSITORY / "benchmarks" / one.command.split()[0]).is_file()


def test_a_record_of_edits_is_marked_and_stale(monkeypatch, tmp_path):
    one = Measurement("made", "made.py")
    monkeypatch.setattr(common, "RECORDS", tmp_path)
    monkeypatch.setattr(common, "git", lambda *arguments: "abc" if arguments[0] == "rev-parse" else "")
    assert performance.stale(one)
    one.kept({"a": 1}, common.about())
    assert not performance.stale(one)
    monkeypatch.setattr(common, "git", lambda *arguments: "abc" if arguments[0] == "rev-parse" else " M src/a.py")
    one.kept({"a": 1}, common.about())
    assert one.record()["measured"]["commit"] == "abc with edits"
    assert performance.stale(one)


def test_an_output_that_exists_keeps_its_own_origin(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RECORDS", tmp_path)
    one = Measurement("made", "made.py")
    out = tmp_path / "out.json"
    out.write_text('{"a": 1, "measured": {"date": "2020-01-01", "commit": "f00", "source": "b", "processor": "c"}}')
    performance.keep(one, out)
    assert one.record()["measured"]["commit"] == "f00"
    assert one.record()["result"] == {"a": 1}
    out.write_text('{"a": 1}')
    performance.keep(one, out)
    assert one.record()["measured"]["date"] == one.record()["measured"]["commit"] == "unknown"
    assert performance.stale(one)


def test_a_missed_aim_without_a_limit_is_an_error(monkeypatch):
    section = performance.SECTIONS[0]

    def write(results, aims):
        aims.append(Aim("made", 2.0, 1.0))
        return "text"

    monkeypatch.setattr(section, "write", write)
    with pytest.raises(ValueError, match="made"):
        performance.page()


def test_a_value_at_its_bound_meets_the_aim():
    assert Aim("", 1.0, 1.0).met
    assert Aim("", 1.0, 1.0, below=False).met
    assert not Aim("", 0.9, 1.0, below=False).met
    assert "missed" in Aim("", 1.1, 1.0).word


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.0971, 2, "0.097"), (2.714, 2, "2.7"), (60000, 2, "60 000"), (9.96, 2, "10"), (5e-7, 2, "5e-7"), (0.0, 2, "0")],
)
def test_numbers_are_written_with_their_digits(value, digits, text):
    assert number(value, digits) == text


def test_ratios_and_records_keep_their_digits():
    assert ratio([1.234, 1.1, 1.3]) == "1.23 [1.10, 1.30]"
    assert ratio([0.0083, 0.008, 0.01]) == "0.0083 [0.0080, 0.0100]"
    assert rounded({1: [0.123456789, 7]}) == {"1": [0.123457, 7]}


def test_paragraphs_are_broken_and_tables_are_not():
    long = "word " * 60
    text = performance.flowed(f"{long}\n\n| {long} |\n| --- |\n\n* {long}\n* b")
    assert max(len(line) for line in text.split("\n") if not line.startswith("|")) <= performance.WIDTH
    assert text.count("\n* b") == 1
    assert sum(line.startswith("|") for line in text.split("\n")) == 2
