"""The pages on the papers name files and tests that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docs/reproduction"
PAPERS = [page.name for page in sorted(FOLDER.glob("paper-*.md"))]
FRONT = 40  # lines
SAID = "none|as above|the same|the claim|through |their doctests|experiment|claims"  # in place of a file or a test


def rows(page):
    """The cells of the rows of the section "Line by line"."""
    text = (FOLDER / page).read_text().split("## Line by line\n")[1]
    table = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[2:]]


def test_each_paper_has_its_page():
    assert PAPERS == ["paper-ingo.md", "paper-joint.md", "paper-mlmc.md", "paper-vvcv.md"]


@pytest.mark.parametrize("page", PAPERS)
def test_line_by_line_names_tests_that_exist(page):
    found = rows(page)
    assert len(found) >= 8
    for paper, file, test in found:
        assert paper, file
        assert re.search(r"\]\([^)]+\)", file) or re.match(SAID, file), (paper, file)
        named = re.findall(r"`((?:tests|src/lowvar/testing)/[^`:]+)(?:::([^`]+))?`", test)
        assert named or re.match(SAID, test), (paper, test)
        for path, name in named:
            files = [FOLDER.parents[1] / path]
            files += (FOLDER.parents[1] / "src/lowvar/testing").glob("*.py") if "tests/lowvar/" in path else ()
            source = "".join(file.read_text() for file in files)  # contracts are inherited
            for part in filter(None, re.split(r"::", re.sub(r"\[.*", "", name))):
                assert re.search(rf"(def|class) {re.escape(part)}\b", source), (paper, path, part)


@pytest.mark.parametrize("page", [page.stem for page in FOLDER.glob("*.md") if page.name not in (*PAPERS, "README.md")])
def test_a_kept_page_has_the_remarks_of_its_experiment(page):
    """They stand alone between the line of its making and its first section: nothing, where the file has none."""
    declared = yaml.safe_load((FOLDER.parents[1] / f"workflow/experiments/{page}.yaml").read_text()).get("remarks", "")
    text = (FOLDER / f"{page}.md").read_text()
    found = re.search(r"^Made [^\n]*\n\n(.*?)^## ", text, flags=re.DOTALL | re.MULTILINE)
    assert found, page
    assert found[1].strip() == declared.strip()


def test_the_front_page_is_short():
    assert len((FOLDER / "README.md").read_text().splitlines()) <= FRONT


def test_every_kept_page_is_on_the_page_of_its_paper():
    kept = {page.name for page in FOLDER.glob("*.md")} - {"README.md", *PAPERS}
    linked = {target for page in PAPERS for target in re.findall(r"\]\(([^)#\s/]+\.md)\)", (FOLDER / page).read_text())}
    assert kept <= linked, sorted(kept - linked)


def test_seconds_to_a_level_are_those_of_the_kept_files(tmp_path):
    command = [sys.executable, "benchmarks/levels.py", "--out", str(tmp_path / "levels.json")]
    done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, check=True)
    printed = [line for line in done.stdout.splitlines() if line.startswith("|")][2:]
    text, front = ((FOLDER / page).read_text() for page in ("paper-joint.md", "README.md"))
    assert len(printed) == 4
    for row in printed:
        assert row in text
        assert row in front
