"""Pages of the repository: their links and the tests and files that they name exist, their examples and numbers are true."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import lowvar
import lowvar.testing

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import common
import performance

from lowvar_studies.reports.front import filled
from lowvar_studies.reports.pages import Page, whole_png
from lowvar_studies.reports.pages import names as kept_pages
from lowvar_studies.reports.published import ratios
from lowvar_studies.reports.text import claims_table

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
PAGES = sorted(
    page.relative_to(REPOSITORY).as_posix()
    for folder in (
        ".",
        "docs",
        "docs/api",
        "docs/notebooks",
        "docs/bbob",
        "docs/reproduction",
        "benchmarks",
        "data",
        "examples",
    )
    for page in (REPOSITORY / folder).glob("*.md")
)

# --- links ---------------------------------------------------------------------------------------------------------


def anchors(text):
    """The anchors that GitHub gives the headings of a page: lower case, hyphens for spaces, no punctuation."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *$", FENCED.sub("", text), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {f"{anchor}-{one}" if one else anchor for anchor, last in found.items() for one in range(last + 1)}


def broken(page):
    """The targets of a page's links that do not exist."""
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    assert list(broken(REPOSITORY / page)) == []


def test_a_broken_anchor_is_noticed(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("# On `x`: a *start*\n\n[good](a.md#on-x-a-start) [here](#on-x-a-start) [bad](#no) [x](b)\n")
    assert list(broken(page)) == ["#no", "b"]


def test_tests_that_pages_name_exist():
    contracts = "".join(file.read_text() for file in (REPOSITORY / "src/lowvar/testing").glob("*.py"))
    for page in PAGES:
        text = (REPOSITORY / page).read_text()
        for path, names in re.findall(r"`((?:tests|src/lowvar/testing)/[\w/]+\.py)((?:::\w+)*)", text):
            assert (REPOSITORY / path).is_file(), (page, path)
            source = (REPOSITORY / path).read_text() + contracts  # which are inherited
            for name in filter(None, names.split("::")):
                assert re.search(rf"(def|class) {name}\b", source), (page, path, name)


# --- the first pages -----------------------------------------------------------------------------------------------

OWN_MODEL = (REPOSITORY / "docs/your-own-model.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", OWN_MODEL, flags=re.DOTALL)


@pytest.mark.long
def test_the_first_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[0], "your-own-model.md", "exec"), scope := {})
    fit, where = scope["fit"], scope["where"]
    assert set(fit.params) == {"scale_auto_loc", "scale_auto_scale", "w_auto_loc", "w_auto_scale"}
    np.testing.assert_allclose(fit.sample()["w"].mean(0), [0.5, -0.3, 0.1], atol=0.15)
    table = where.table
    total = table[(table["block"] == "all") & (table["source"] == "total")].set_index("method")
    assert set(total.index) == {"naive", "stl", "cv", "joint", "joint_svrg", "joint_adaptive"}
    assert total.loc["joint", "high"] < total.loc["naive", "low"]


@pytest.mark.long
def test_the_example_in_pytorch_runs():
    torch.manual_seed(0)
    exec("import lowvar\n" + EXAMPLES[1], scope := {})
    np.testing.assert_allclose(scope["torch_fit"].params["z_auto_loc"], [0.5, -0.3, 0.1], atol=0.15)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120


def test_every_estimator_has_its_row():
    from lowvar.vi.estimators import GRADIENT

    page = (REPOSITORY / "docs/estimators.md").read_text()
    assert not [name for name in GRADIENT if not re.search(rf"(?m)^\| [^|]*`{name}`[^|]*\|", page)]


def test_examples_that_pages_name_exist():
    for page in PAGES:
        named = re.findall(r"`(examples/[^:`\s]+)", (REPOSITORY / page).read_text("utf-8"))
        assert not [path for path in named if not (REPOSITORY / path).exists()], page


@pytest.mark.parametrize("module", [lowvar, lowvar.testing], ids=lambda module: module.__name__)
def test_every_public_name_has_an_example_and_is_in_the_reference(module):
    pages = "".join(page.read_text() for page in (REPOSITORY / "docs/api").glob("*.md"))
    for name in sorted({*module.__all__} - {"__version__"}):
        listed = re.search(rf":: {module.__name__}\.{name}$", pages, re.M)
        assert listed or f".. automodule:: {module.__name__}\n" in pages, name
        assert ">>> " in getattr(module, name).__doc__, name


# --- the notebooks, whose cells `make docs` runs -------------------------------------------------------------------

NOTEBOOKS = sorted((REPOSITORY / "docs/notebooks").glob("*.md"))


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_a_notebook_is_on_the_site_and_holds_its_prose_to_its_results(page):
    """The site runs it as a notebook, its cells parse, and cells that readers do not see assert what it says."""
    assert f"\nnotebooks/{page.stem}\n" in (REPOSITORY / "docs/index.md").read_text()
    assert page.read_text().startswith("---\nfile_format: mystnb\n")
    cells = re.findall(r"^```\{code-cell\}\n(:tags: [^\n]*\n)?(.*?)^```", page.read_text(), re.M | re.S)
    cells = [(tags, cell.removeprefix("%matplotlib inline\n")) for tags, cell in cells]
    unseen = [ast.parse(cell) for tags, cell in cells if "remove-cell" in tags]
    assert len(cells) > len(unseen) > 0
    assert all(any(isinstance(node, ast.Assert) for node in ast.walk(cell)) for cell in unseen)
    assert all(ast.parse(cell).body for _, cell in cells)


# --- the benchmarks' numbers ---------------------------------------------------------------------------------------


def test_the_table_of_performance_is_that_of_the_records():
    shown = performance.shown(performance.records())
    assert common.filled(performance.PAGE, "speed") == shown, "fill it: python benchmarks/performance.py"
    met, aims = map(int, re.findall(r"\d+", shown.partition(" aims")[0]))
    assert shown.count("**missed**") == aims - met
    assert shown.count(": met)") == met > aims / 2
    assert {path.stem for path in common.RECORDS.glob("*.json")} == {*common.SPEED, "gpu"}
    on_gpu = performance.record_of("gpu")
    assert common.filled(performance.GPU, "speed") == common.table(common.COLUMNS, map(common.cells, on_gpu))
    for name, cases in [*performance.records().items(), ("gpu", on_gpu)]:
        assert len({case["case"] for case in cases}) == len(cases) > 0, name
        for case in cases:
            assert {"date", "commit", "processor"} <= set(case["measured"]), case["case"]


def test_ratios_are_those_of_the_rounds_and_judged_by_their_median():
    cases = [
        common.Case(name, lambda state: state, seconds=seconds)
        for name, seconds in (("mine", [1.0, 2.0, 4.0]), ("theirs", [2.0, 3.0, 16.0]))
    ]
    case = common.compared("made", cases, "mine", {"theirs": {"least": 2.0}})
    assert case["numbers"] == {"mine": {"value": 2e6}, "theirs": {"ratio": [2.0, 1.5, 4.0], "least": 2.0}}
    assert common.met(case["numbers"]["theirs"])
    assert not common.met({"ratio": [2.0, 1.5, 4.0], "most": 1.9})
    assert common.met({"value": 1.0, "most": 1.0})
    assert common.met({"value": 1.0}) is None


@pytest.mark.parametrize("page", ["performance", "posteriors", "trust", "thirty-models", "integrating-samples"])
def test_every_filled_part_of_a_page_has_both_comments(page):
    text = (REPOSITORY / f"docs/{page}.md").read_text("utf-8")
    names = re.findall(r"<!-- (\w+) -->", text)
    assert names == re.findall(r"<!-- /(\w+) -->", text) != []
    assert all(common.filled(REPOSITORY / f"docs/{page}.md", name) for name in names)


# --- the papers ----------------------------------------------------------------------------------------------------

PAPERS = sorted((REPOSITORY / "docs/reproduction").glob("paper-*.md"))
REPORTS = sorted({*(REPOSITORY / "docs/reproduction").glob("*.md")} - {*PAPERS} - {PAPERS[0].with_name("README.md")})
KEPT = kept_pages(REPOSITORY / "docs/reproduction")  # pages with rows
SAID = "none|as above|the same|the claim|through |their doctests|experiment|claims"  # in place of a file or a test


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_each_line_of_a_paper_has_a_file_and_a_test(page):
    table = [line for line in page.read_text().split("## Line by line\n")[1].splitlines() if line.startswith("|")]
    assert len(table) >= 10
    for row in table[2:]:
        paper, file, test = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
        assert re.search(r"\]\([^)]+\)", file) or re.match(SAID, file), (paper, file)
        assert re.search(r"`(tests|src/lowvar/testing)/", test) or re.match(SAID, test), (paper, test)


@pytest.mark.parametrize("page", [page for page in REPORTS if page.stem in KEPT], ids=lambda page: page.stem)
def test_a_kept_page_has_the_remarks_of_its_experiment(page):
    """They stand alone between the line of its making and its first section: nothing, where the file has none."""
    declared = yaml.safe_load((REPOSITORY / f"workflow/experiments/{page.stem}.yaml").read_text()).get("remarks", "")
    found = re.search(r"^Made [^\n]*\n\n(.*?)^## ", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert found
    assert found[1].strip() == declared.strip()


@pytest.mark.parametrize("name", KEPT)
def test_the_rows_in_git_give_the_verdicts_of_a_kept_page(name, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    page = Page.load("docs/reproduction", name)
    assert page.check() == []
    text = (REPOSITORY / f"docs/reproduction/{name}.md").read_text()
    assert page.about["commit"] in text
    assert not len(page.verdicts) or claims_table(page.verdicts, page.study) in text


@pytest.mark.parametrize("name", ["joint_table1", "vvcv_coverage", "ingo_rates"])  # one of each family
def test_the_rows_in_git_draw_the_figures_of_a_kept_page(name, monkeypatch, tmp_path):
    monkeypatch.chdir(REPOSITORY)
    page = Page.load("docs/reproduction", name)
    drawn = {path.stem for path in page.draw(tmp_path) if path.suffix == ".png"}
    text = (REPOSITORY / f"docs/reproduction/{name}.md").read_text()
    assert drawn == {path.removesuffix(".png") for path in re.findall(r"!\[\w+\]\(([^)]+)\)", text)}


def test_numbers_in_pages_are_those_of_kept_pages(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    pages = {name: Page.load("docs/reproduction", name) for name in kept_pages("docs/reproduction")}
    for path in sorted((REPOSITORY / "docs/reproduction").glob("*.md")):
        assert filled(path.read_text(), pages) == path.read_text(), f"lowvar pages --fill {path}"


def test_the_picture_of_published_numbers_has_those_of_tables_that_are_judged(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    page = Page.load("docs/reproduction", "vvcv_table2")
    verdicts = page.verdicts[page.verdicts["source"].str.startswith("Table")].set_index("id")
    found = ratios({page.name: page}).set_index("claim")
    assert len(found) == len(verdicts) == 20
    assert ((found["ratio"] * verdicts["published"] / verdicts["ours"] - 1).abs() < 1e-12).all()
    assert whole_png(REPOSITORY / "docs/reproduction/published.png")


def test_every_kept_page_is_on_the_page_of_its_paper():
    linked = {target for page in PAPERS for target in re.findall(r"\]\(([^)#\s/]+\.md)\)", page.read_text())}
    assert {page.name for page in REPORTS} <= linked


def test_seconds_to_a_level_are_those_of_the_kept_files(tmp_path):
    command = [sys.executable, "benchmarks/levels.py", "--out", str(tmp_path / "levels.json")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    printed = [line for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert len(printed) == 4
    text = (REPOSITORY / "docs/reproduction/paper-joint.md").read_text()
    assert not [row for row in printed if row not in text]


# --- what GitHub reads ---------------------------------------------------------------------------------------------


def test_the_citation_is_of_this_version_and_lists_each_paper_once():
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    titles = [one["title"].lower() for one in cited["references"]]
    assert cited["version"] == lowvar.__version__
    assert len(set(titles)) == len(titles)
    venues = {one["title"]: one.get("journal") or one["conference"]["name"] for one in cited["references"]}
    assert all(venues.values())


FORMS = sorted({*(REPOSITORY / ".github/ISSUE_TEMPLATE").glob("*.yml")})


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_an_issue_form_is_one_that_github_takes(file):
    form = yaml.safe_load(file.read_text())
    if file.stem == "config":
        assert [set(one) for one in form["contact_links"]] == [{"name", "url", "about"}]
        return
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "labels", "body"}
    asked = [one for one in form["body"] if one["type"] != "markdown"]
    assert {one["type"] for one in asked} <= {"input", "textarea", "dropdown"}
    assert len({one["id"] for one in asked}) == len({one["attributes"]["label"] for one in asked}) == len(asked) > 3
    assert any(one.get("validations", {}).get("required") is True for one in asked)
    assert all(one["attributes"]["options"] for one in asked if one["type"] == "dropdown")
