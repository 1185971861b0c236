"""`benchmarks/cells.py`: its cells are those of the draw, its code imports no estimator, and it judges as it says."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import cells
import cells_cases
import common
from cells_cases import draw
from cells_cases.common import Found, claim, mean, share, verdict

REPOSITORY = Path(__file__).parents[2]
# data arrays, and the key by which the laboratory splits them into rows to fit and test rows
ALLOWED = {"lowvar_studies.datasets.fetch", "lowvar_studies.datasets.prepare", "lowvar.core.keys"}


def test_three_claims_of_each_paper_are_drawn_and_each_has_a_function():
    assert list(cells_cases.FUNCTIONS) == list(draw.DRAWN)
    for paper in draw.PAPERS:
        of_paper = [cell for cell in draw.DRAWN if cell.split(":")[0].split("_")[0] == paper]
        assert len(of_paper) == draw.EACH
    for module, name in cells_cases.FUNCTIONS.values():
        text = (REPOSITORY / f"benchmarks/cells_cases/{module}.py").read_text()
        assert f"\ndef {name}(" in text


def test_the_draw_can_be_made_again():
    there = subprocess.run(["git", "-C", REPOSITORY, "cat-file", "-e", draw.COMMIT], capture_output=True, check=False)
    if there.returncode:
        pytest.skip(f"a checkout without the history up to {draw.COMMIT}")
    assert tuple(draw.draw()) == draw.DRAWN


def test_cells_import_nothing_of_what_they_check():
    for path in (REPOSITORY / "benchmarks/cells_cases").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert {name for name in names if name.startswith("lowvar")} <= ALLOWED, path


@pytest.mark.parametrize(
    ("found", "test", "expected"),
    [
        (Found(0.8, 0.7, 0.9), {"below": 1}, "holds"),
        (Found(0.8, 0.7, 1.1), {"below": 1}, "undecided"),
        (Found(1.3, 1.1, 1.5), {"below": 1}, "fails"),
        (Found(-5, -6, -4), {"above": 0}, "fails"),
        (Found(1.1, 1.05, 1.15), {"at_most": 1, "tolerance": 0.25}, "holds"),
        (Found(1.4, 1.3, 1.5), {"at_most": 1, "tolerance": 0.25}, "fails"),
        (Found(-1.1, -1.2, -1.05), {"at_least": -1, "tolerance": 0.25}, "holds"),
        (Found(1.02, 1.0, 1.04), {"published": 1, "tolerance": 0.05}, "holds"),
        (Found(2.0, 1.9, 2.1), {"published": 1, "tolerance": 0.05}, "fails"),
        (Found(1.3, 1.1, 1.5), {"published": 1.3, "published_se": 0.09}, "holds"),
        (Found(2.0, 1.9, 2.1), {"published": 1.3, "published_se": 0.09}, "fails"),
        (share([False] * 20), {"below": 0.5}, "holds"),
        (share([True] * 4 + [False] * 2), {"above": 0.5}, "holds"),
        (share([True] * 2 + [False] * 4), {"above": 0.5}, "undecided"),
        (share([False] * 6), {"above": 0.5}, "fails"),
    ],
)
def test_verdicts_follow_from_interval_and_bound(found, test, expected):
    assert verdict(found, test) == expected


def test_a_cell_agrees_within_three_standard_errors_and_with_the_same_verdict():
    record = {"value": 1.0, "low": 0.902, "high": 1.098, "logs": False, "verdict": "fails"}  # standard error 0.05
    row = {"ours": 1.2, "low": 1.102, "high": 1.298, "verdict": "fails"}
    assert cells.apart(record, row) == pytest.approx(0.2 / 0.05 / 2**0.5, rel=1e-3)
    assert cells.agreement(record, row).startswith("yes")
    assert cells.agreement(record, row | {"verdict": "holds"}).startswith("**no**")
    assert cells.agreement(record, {"ours": 1.3, "low": 1.202, "high": 1.398, "verdict": "fails"}).startswith("**no**")
    assert cells.agreement(record, None) == "page without rows"
    ratio = {"value": 0.1, "low": 0.05, "high": 0.2, "logs": True, "verdict": "holds"}
    assert cells.apart(ratio, {"ours": 0.2, "low": 0.1, "high": 0.4, "verdict": "holds"}) == pytest.approx(
        1.386, abs=0.01
    )


def test_a_mean_has_the_interval_of_student():
    found = mean([1.0, 2.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, -0.4841, 4.4841), abs=1e-3)


def test_the_table_of_the_page_is_that_of_the_rows_and_all_cells_agree():
    found = json.loads(cells.ROWS.read_text())
    assert {cells.agreement(one, cells.kept(cell)).split(",")[0] for cell, one in found.items()} == {"yes"}
    assert set(found) <= set(draw.DRAWN)
    shown = common.table(cells.HEADS, cells.lines(found))
    assert common.filled(cells.PAGE, "cells") == shown, "fill it: python benchmarks/cells.py --page"
    assert all({"date", "commit"} <= set(one["measured"]) for one in found.values())
    assert all(claim(cell) for cell in found)
