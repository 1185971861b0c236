"""Kept pages: rows that judge and draw again, staleness, one commit, and one claim or figure from nothing."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from lowvar.cli import main
from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar_studies import PAGES
from lowvar_studies.jobs import code, local
from lowvar_studies.jobs import commands as jobs
from lowvar_studies.jobs.common_spec import Data
from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.claims import NOT_MADE, judge, load, parse
from lowvar_studies.reports.front import filled, picture, scoreboard, shown
from lowvar_studies.reports.gathered import Gathered
from lowvar_studies.reports.keep import keep
from lowvar_studies.reports.pages import BESIDE, Page, apart, listed, names
from lowvar_studies.reports.published import draw, ratios
from lowvar_studies.reports.remake import _OF_ALL, Part, _needed, remake, side_by_side
from lowvar_studies.reports.text import claims_table, own_table, pictures, summary

CONTENT = {
    "name": "two",
    "title": "Two functions",
    "family": "search",
    "problems": {"e": {"function": "ellipsoid", "dim": 3}, "l": {"function": "levy", "dim": 3, "methods": ["es"]}},
    "methods": {"fast_ingo": None, "es": None},
    "search": {"budget": 400, "repetitions": 3},
    "draw": ["curves", "effort"],
}
CLAIMS = [
    {"id": "closer", "statement": "fast_ingo ends closer than es on e", "source": "ours",
     "test": {"effect": "final_gap_ratio", "problem": "e", "method": "fast_ingo", "others": ["es"], "below": 1}},
    {"id": "arrives", "statement": "es arrives on l", "source": "ours",
     "test": {"effect": "share", "event": "target", "problem": "l", "method": "es", "at_least": 0.5}},
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of an experiment whose jobs ran, and of its page."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "claims").mkdir()
    (folder / "two.yaml").write_text(yaml.safe_dump(CONTENT))
    (folder / "claims/two.yaml").write_text(yaml.safe_dump(CLAIMS))
    study = Study.load(folder / "two.yaml", "quick", folder / "results")
    for job in study.jobs():
        jobs.run(job)
    keep(study, folder / "pages", draft=True)
    return folder


@pytest.fixture
def page(made, tmp_path):
    """A copy of the page and its experiment that a test may alter."""
    shutil.copytree(made / "pages", tmp_path / "pages")
    shutil.copytree(made / "claims", tmp_path / "claims")
    shutil.copy(made / "two.yaml", tmp_path)
    for path in (tmp_path / "pages/two.md", tmp_path / "pages/rows/two/about.json"):
        path.write_text(path.read_text().replace(str(made), str(tmp_path)))
    return Page.load(tmp_path / "pages", "two")


def test_rows_judge_and_draw_again_without_results(made, page, tmp_path):
    assert names(made / "pages") == ["two"]
    pd.testing.assert_frame_equal(page.judged()[["id", "verdict"]], page.verdicts[["id", "verdict"]])
    assert page.check() == []
    drawn = {path.name: path.read_bytes() for path in page.draw(tmp_path / "drawn") if path.suffix == ".csv"}
    assert {name.removeprefix("two-"): content for name, content in drawn.items()} == {
        f"{kind}.csv": (made / f"results/figures/{kind}.csv").read_bytes() for kind in ("curves", "effort")
    }


def test_pictures_and_tables_are_written_again_from_the_rows_alone(made, page):
    folder = page.folder.parents[1]
    text = (folder / "two.md").read_text()
    kept = {f"two-{kind}.png": (made / f"pages/two-{kind}.png").read_bytes() for kind in ("curves", "effort")}
    for name in kept:
        (folder / name).unlink()
    assert {path.name for path in page.redraw()} == set(kept)
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    assert page.redraw() == []
    title = re.search(r"\n## Ends of the runs.*?(?=\n## )", text, re.DOTALL)
    assert title
    assert "| fast_ingo | 3 |" in title[0]
    older = text.replace(title[0], "").replace("![curves](two-curves.png)\n\n![effort](two-effort.png)", "![x](x.png)")
    (folder / "two.md").write_text(older)
    (folder / "two-curves.png").write_bytes(b"")
    assert {path.name for path in page.redraw()} == {"two.md", "two-curves.png"}
    assert (folder / "two.md").read_text() == text
    (folder / "two.md").unlink()
    for write in (page.redraw, page.judge):
        with pytest.raises(UserError, match=r"two\.md"):
            write()


def test_tables_that_rows_lack_are_not_on_the_page(page):
    (page.folder / "ends.parquet").unlink()
    assert own_table(page.study, page) == []
    for family in FAMILIES.values():
        assert own_table(SimpleNamespace(family=family), {}) == []


def test_pages_of_iterations_open_with_them():
    study = Study.load("workflow/experiments/joint_sgd.yaml", "paper")
    assert study.headline.name == "iterations"
    assert pictures(study, Page.load(PAGES, "joint_sgd"))[:2] == ["iterations", "convergence"]


def test_a_page_of_a_sweep_has_no_figures_with_a_line_for_each_of_its_methods():
    sweep = Study.load("workflow/experiments/mlmc_sensitivity.yaml", "paper")
    assert "steps" in sweep.figures
    assert pictures(sweep, ["sensitivity", "ends"]) == ["sensitivity"]


@pytest.mark.parametrize(("column", "value", "named"), [("verdict", "undecided", "verdict"), ("ours", 0.5, "0.5"),
                                                  ("note", "new", "note"), ("more", 7.5, "7.5"), ("statement", "another", "statement"), ("cause", "paper", "cause")])  # fmt: skip
def test_a_page_that_differs_from_its_rows_is_named(page, column, value, named):
    table = page.verdicts
    table.loc[0, column] = value
    table.to_csv(page.folder / "claims.csv", index=False)
    *of_page, found = page.check()
    assert "'closer'" in found
    assert named in found
    assert of_page
    assert all("two.md" in text for text in of_page)


@pytest.mark.parametrize(
    ("old", "new"),
    [("Verdicts: ", "Verdicts: 99 holds; "), ("# Two functions", "# Two"), (" CPU minutes)", "0 CPU minutes)"),
     ("Made 20", "Made 19"), ("![effort](two-effort.png)\n\n", ""), ("## Figures", "All of it holds.\n\n## Figures"),
     ("## Wall time", "## What else\n\nIt holds.\n\n## Wall time"), ("| arrives |", "| arrived |")],
)  # fmt: skip
def test_a_page_whose_text_is_not_that_of_its_rows_is_named(page, old, new):
    text = page.text.read_text()
    assert text.count(old) == 1
    page.text.write_text(text.replace(old, new))
    assert ["two.md" in said for said in page.check()] == [True]


def test_missing_and_damaged_pictures_are_named(page):
    files = [page.text.with_name(f"two-{kind}.png") for kind in ("curves", "effort")]
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-100])
    assert [[file.name in said for file in files] for said in page.check()] == [[True, False], [False, True]]


def test_claims_are_judged_as_they_are_stated_now(page, tmp_path):
    never = {
        "statement": "fast_ingo's gap is nothing",
        "cause": "setting",
        "test": {**CLAIMS[0]["test"], "below": 1e-12},
    }
    (tmp_path / "claims/two.yaml").write_text(yaml.safe_dump([{**CLAIMS[0], **never}, CLAIMS[1]]))
    assert any("'closer'" in text for text in page.check())
    assert {path.name for path in page.judge()} == {"claims.csv", "two.md"}
    assert page.check() == []
    assert page.verdicts.loc[0, ["statement", "verdict", "cause"]].tolist() == [never["statement"], "fails", "setting"]
    assert "| closer | fails (setting) | fast_ingo's gap is nothing |" in page.text.read_text()
    page.text.unlink()
    with pytest.raises(UserError, match=r"two\.md"):
        page.judge()


def test_the_table_of_claims_says_when_each_holds_and_only_published_numbers_as_such(page):
    both = {"below": None, "published": 0.5, "tolerance": 0.1}
    claims = [
        CLAIMS[0],
        CLAIMS[0] | {"id": "printed", "source": "Table 1", "test": CLAIMS[0]["test"] | both},
        CLAIMS[0] | {"id": "beside", "source": "ours, beside Table 1", "test": CLAIMS[0]["test"] | both},
        CLAIMS[0] | {"id": "own", "source": "ours, for comparison", "test": CLAIMS[0]["test"] | both},
    ]
    page.study.claims.write_text(yaml.safe_dump(claims))
    page.judge()
    lines = claims_table(pd.concat([page.verdicts, page.verdicts.iloc[:1].assign(id="gone")]), page.study).splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    printed = "final gap ratio = 0.5 ± 10 %"
    assert [row["holds if"] for row in cells] == ["final gap ratio < 1", printed, printed, printed, ""]
    assert [row["published"] for row in cells] == ["", "0.5", "0.5", "", ""]


def test_a_page_without_claims_has_none_to_judge(page, tmp_path, capsys):
    text, empty = page.text.read_text(), page.verdicts.iloc[:0]
    without = re.sub(r"## Claims\n.*?(?=## )", "", text, flags=re.DOTALL)
    empty.to_csv(page.folder / "claims.csv", index=False)
    page.text.write_text(without)
    assert page.judge()  # the claims that are stated get their place on it
    assert page.text.read_text() == text
    (tmp_path / "claims/two.yaml").unlink()
    empty.to_csv(page.folder / "claims.csv", index=False)
    page.text.write_text(without)
    assert page.judge() == []
    assert page.check() == []
    assert main(["pages", "--check", "--folder", str(page.text.parent)]) == 0
    assert "no claims" in capsys.readouterr().out.splitlines()[0]


def test_times_of_steps_are_those_beside_the_experiments(tmp_path):
    """A page had a copy of its own, of a file that was measured again since: the two contradicted each other."""
    kept = Path("docs/reproduction/rows/joint_movielens")
    shutil.copytree(kept, tmp_path / "pages/rows/joint_movielens")
    for folder, name in (("experiments", "joint_movielens.yaml"), ("times", "movielens.json")):
        (tmp_path / folder).mkdir()
        shutil.copy(Path("workflow", folder, name), tmp_path / folder)
    (claim,) = (one for one in yaml.safe_load(Path("workflow/claims/joint_movielens.yaml").read_text())
                if one["id"] == "faster-movielens")  # fmt: skip
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/joint_movielens.yaml").write_text(yaml.safe_dump([claim]))
    about = json.loads((kept / "about.json").read_text()) | {
        "experiment": f"{tmp_path}/experiments/joint_movielens.yaml"
    }
    page = Page(tmp_path / "pages/rows/joint_movielens", about)
    before = page.judged()
    before.to_csv(page.folder / "claims.csv", index=False)
    page.text.write_text(f"{summary(before)}\n\n{claims_table(before, page.study)}\n")
    assert not any("'faster-movielens'" in said for said in page.check())
    times = tmp_path / "times/movielens.json"
    content = json.loads(times.read_text())
    for one in content["steps"]:
        one["seconds"] = [value * (0.1 if one["method"] == "joint_svrg" else 1) for value in one["seconds"]]
    times.write_text(json.dumps(content))
    assert any("'faster-movielens'" in said for said in page.check())
    page.judge()
    assert page.verdicts["ours"].tolist() == pytest.approx((before["ours"] / 10).tolist())
    assert page.verdicts["verdict"].tolist() == ["holds"]
    assert not any("'faster-movielens'" in said for said in page.check())
    assert not list(kept.parent.glob("*/times.parquet"))


def test_claims_that_came_or_went_are_named(page):
    page.verdicts.assign(id=["closer", "gone"]).to_csv(page.folder / "claims.csv", index=False)
    assert [text.split("'")[1] for text in page.check()[:2]] == ["gone", "arrives"]


def test_the_command_ends_with_a_failure_where_it_checked_nothing_or_found_a_difference(page, tmp_path, capsys):
    folder = page.folder.parents[1]
    check = ["pages", "--check", "--folder"]
    assert main([*check, str(folder)]) == 0
    of_page, in_all, of_jobs = capsys.readouterr().out.splitlines()
    assert "two: 2 verdicts" in of_page
    assert Page.load(folder, str(page.text)).name == "two"  # a path to it, too
    for line, count in ((of_page, 1), (in_all, 2)):  # seconds: wall, and of CPU too
        assert len(re.findall(r"\d+\.\d (?:CPU seconds|s)\b", line)) == count
    assert {"3", f"{page.minutes:.1f}", "two", "--folder", str(folder)} <= set(of_jobs.split())
    assert main([*check, str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
    page.verdicts.assign(verdict="undecided").to_csv(page.folder / "claims.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main([*check, str(folder)])
    assert ended.value.code == 1


def test_damaged_rows_are_refused(page):
    path = next(page.folder.glob("*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=path.name):
        page[path.stem] if "." not in path.stem else page.rows(path.stem.partition(".")[0])


def test_a_page_is_stale_when_code_that_it_used_changes(page):
    assert page.changed == []
    assert "fast_ingo" not in listed([page])
    about = json.loads((page.folder / "about.json").read_text())
    used = set(about["code"])
    assert {"lowvar.search.solvers.fast_ingo", "lowvar_studies.searches.es"} <= used
    assert not {name for name in used if name.startswith(("lowvar.vi", "lowvar.integrals")) or "figures" in name}
    about["code"]["lowvar.search.solvers.fast_ingo"] = "0" * 16
    about["code"]["lowvar.search.solvers.gone"] = "0" * 16
    again = Page(page.folder, about)
    assert again.changed == ["lowvar.search.solvers.fast_ingo", "lowvar.search.solvers.gone"]
    assert "lowvar.search.solvers.fast_ingo" in listed([again]).splitlines()[1]
    assert "stale: ingo_two" in scoreboard({"ingo_two": again})
    assert "stale: ingo_two" not in scoreboard({"ingo_two": page})


def test_the_scoreboard_names_drafts(page):
    assert "drafts: ingo_two" in scoreboard({"ingo_two": page})  # of scale quick
    for commit, drafts in {"0123abcdef": False, "0123abcdef-dirty": True, "0123, 4567": True}.items():
        other = Page(page.folder, page.about | {"scale": "paper", "commit": commit})
        assert other.draft == drafts


def test_numbers_and_tables_of_other_pages_are_filled_in(page):
    text = "So it is <!-- two:closer -->old<!-- / --> times.\n<!-- scoreboard -->\n<!-- /scoreboard -->\nEnd."
    made = filled(text, {"ingo_two": page, "two": page})
    row = page.verdicts.set_index("id").loc["closer"]
    assert f"<!-- two:closer -->{row['ours']:.3g} [" in made
    assert made.endswith("End.")
    assert filled(made, {"ingo_two": page, "two": page}) == made
    counts = page.verdicts["verdict"].value_counts()
    (line,) = [line for line in made.splitlines() if "Lyu" in line and "| ours |" in line]
    assert f"| ours | {counts.get('holds', 0)} |  |  | {counts.get('fails', 0)} |" in line
    table = page.verdicts
    table["source"] = ["Theorem 1", "ours, beside Theorem 1"]
    table.to_csv(page.folder / "claims.csv", index=False)
    lines = [line.split(" | ")[1:3] for line in scoreboard({"ingo_two": page}).splitlines()[2:4]]
    held = [f"{int(verdict == 'holds')}" for verdict in table["verdict"]]
    assert lines == [["the paper's", held[0]], ["ours", held[1]]]
    for name, wrong in {
        "closr": "two:closr -->1<!-- /",
        "tow": "tow:closer -->1<!-- /",
        "scoreboard": "scoreboard",
    }.items():
        with pytest.raises(UserError, match=name):
            filled(f"<!-- {wrong} -->", {"two": page})


@pytest.mark.parametrize(
    ("text", "line"),
    [("<!-- two:closer -->1\nImportant.\nTwo <!-- two:arrives -->2<!-- / -->", 3),  # the first has no end
     ("<!-- two:closer -->1\nImportant.<!-- / -->", 2), ("a\n<!-- two:closer -->1", 2), ("a\n\n1<!-- / -->", 3),
     ("<!--two:closer-->1<!--/-->", 1), ("<!-- two:clo ser -->1<!-- / -->", 1), ("<!-- later two : x -->1", 1),
     ("\n<!-- two:closer -->1<!-- /-->", 2), ("\n<!-- two:closer ->1<!-- / -->", 2), ("<!-- two:closer", 1),
     ("<!-- later two:new -->1 <!-- two:closer -->2<!-- / -->", 1), ("<!-- later two:new -->1", 1),
     ("\n<!-- scoreboard -->\n<!-- two:closer -->2<!-- / -->\n<!-- /scoreboard -->", 3),
     ("<!--scoreboard-->\n<!--/scoreboard-->", 1), ("<!-- /provenance -->", 1),
     ("<!-- provenance -->\n<!-- /scoreboard -->", 2)],
)  # fmt: skip
def test_no_text_is_lost_between_comments_and_none_stays_unfilled_without_a_word(page, text, line):
    with pytest.raises(UserError, match=rf"a\.md, line {line}: "):
        filled(text, {"two": page}, "a.md")


def test_later_numbers_and_comments_of_other_kinds_stay(page):
    text = "<!-- a note -->\n<!-- later two:new -->1 [0, 2]<!-- / --> and <!-- cells -->x\ny<!-- /cells -->"
    assert filled(text, {"two": page}) == text
    both = filled(f"{text} <!-- two:closer -->?<!-- / --> so.", {"two": page})
    assert both.startswith(text)
    assert both.endswith("]<!-- / --> so.")


@pytest.mark.parametrize("ends", [(1.0254, 1.0252, 1.0258), (0.382, 0.19, 0.7664), (72.8786, 72.8785, 72.8787)])
def test_a_number_lies_within_its_printed_interval(ends):
    value, low, high = (float(word.strip("[],")) for word in shown(*ends).split())
    assert low <= value <= high


def test_fill_leaves_a_file_with_a_mistake_as_it_is(page, tmp_path, capsys):
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    fill = ["pages", "--folder", str(page.folder.parents[1]), "--fill"]
    good.write_text("<!-- two:closer -->?<!-- / -->")
    bad.write_text("<!-- two:closer -->1 and\n<!-- two:arrives -->2<!-- / -->")
    assert main([*fill, str(good)]) == 0
    assert "?" not in good.read_text()
    assert main([*fill, str(bad)]) == 2
    assert f"{bad}, line 2" in capsys.readouterr().err
    assert bad.read_text() == "<!-- two:closer -->1 and\n<!-- two:arrives -->2<!-- / -->"


def test_published_numbers_are_in_one_picture(page, tmp_path):
    numbers = [
        ("Table 1", {"published": 1e-6}),
        ("Figure 2, left", {"published": 2.0, "tolerance": 0.5}),
        ("Table 1", {"at_most": 0.5}),
        ("ours", {"published": 0.5}),
        ("Table 1", {"at_least": 0.1, "published": 0.1}),
        ("Table 1", {"below": 0.9, "published": 0.5}),
    ]
    claims = [
        CLAIMS[0] | {"id": f"c{rank}", "source": source, "test": CLAIMS[0]["test"] | {"below": None} | test}
        for rank, (source, test) in enumerate(numbers)
    ]
    page.study.claims.write_text(yaml.safe_dump(claims))
    page.judge()
    found = ratios({"vvcv_two": page, "two": page})
    assert found[["paper", "source", "claim"]].values.tolist() == [
        ["vv-CV", "Figure 2", "c1"],
        ["vv-CV", "Table 1", "c0"],
    ]
    ours = page.verdicts.set_index("id")
    for row, published in zip(found.itertuples(), (2.0, 1e-6), strict=True):
        assert (row.ratio, row.low, row.high) == tuple(ours.loc[row.claim, ["ours", "low", "high"]] / published)
        assert row.verdict == ours.loc[row.claim, "verdict"]
    (ax,) = draw(found).axes
    places = {str(line.get_label()): np.asarray(line.get_xdata(), float).tolist() for line in ax.lines}
    least, most = ax.get_xlim()
    assert places["c1, tolerance"] == [0.5, 1.5]
    for row in found.itertuples():  # at its place, or named at the edge
        (place,) = places[row.claim]
        assert least < place < most
        far = not 0.2 <= row.ratio <= 5
        assert far == (place != row.ratio) == any(row.claim in text.get_text() for text in ax.texts)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["vv-CV, Figure 2", "vv-CV, Table 1"]
    assert picture("text", {"vvcv_two": page}) == {}
    (name,) = picture(filled("<!-- published -->\n<!-- /published -->", {}), {"vvcv_two": page})
    assert f"]({name})" in filled("<!-- published -->\n<!-- /published -->", {})
    table = page.verdicts
    table["verdict"] = [
        NOT_MADE if name == "c0" else one for name, one in zip(table["id"], table["verdict"], strict=True)
    ]
    table.to_csv(page.folder / "claims.csv", index=False)
    assert list(ratios({"vvcv_two": page})["claim"]) == ["c1"]
    with pytest.raises(UserError, match="published"):
        ratios({"two": page})


def test_standard_errors_of_both_decide_as_they_are_drawn():
    page = Page.load(PAGES, "vvcv_step")
    found = ratios({page.name: page})
    both = found[found["apart_low"].notna() & (found["verdict"] != "undecided")]
    assert len(both) >= 10
    assert both["may_low"].isna().all()
    assert ((both["apart_low"] < both["low"]) & (both["high"] < both["apart_high"])).all()
    verdicts = ["holds" if low <= 1 <= high else "fails" for low, high in both[["apart_low", "apart_high"]].values]
    assert verdicts == list(both["verdict"])


def test_words_and_layout_are_no_code():
    plain = 'x = "# kept"\n\n\ndef f(a):\n    for b in a:\n        c = b\n        a = c + 1\n    return a\n'
    worded = plain.replace("def f(a):\n", 'def f(a):\n    """Adds é\n\n    more."""\n').replace("= b", "= b  # why")
    worded = '"""Doc."""\n# note\n' + worded
    assert code._bare(worded) == code._bare(plain)
    for old, new in (("+ 1", "+ 2"), ("# kept", "#  kept"), ("        a =", "    a ="), ("c = b", "c =  b")):
        assert code._bare(plain.replace(old, new)) != code._bare(plain)
    one_line = 'def f(): "Doc."; return 1\n'
    assert code._bare(one_line) != code._bare(one_line.replace("1", "2"))


def test_pages_do_not_change_the_commit_that_they_are_of(tmp_path):
    def git(*words):
        named = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", tmp_path, *named, *words], check=True, capture_output=True)

    assert artifact.commit(tmp_path) is None
    git("init")
    for folder in ("src", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("1")
    git("add", "-A")
    git("commit", "-m", "code")
    first = artifact.commit(tmp_path)
    (tmp_path / "docs/a").write_text("2")
    assert artifact.commit(tmp_path) == first
    git("commit", "-am", "a page")
    assert artifact.commit(tmp_path) == first
    (tmp_path / "src/a").write_text("2")
    assert artifact.commit(tmp_path) == f"{first}-dirty"
    git("commit", "-am", "code")
    second = artifact.commit(tmp_path)
    assert second not in (first, f"{first}-dirty")
    (tmp_path / "notes").touch()
    assert artifact.commit(tmp_path) == second
    (tmp_path / "src/b").touch()  # it may be imported
    assert artifact.commit(tmp_path) == f"{second}-dirty"


@pytest.mark.parametrize(
    ("at_start", "at_end", "recorded"),
    [("abc1234", "abc1234", "abc1234"), ("abc1234", "def5678", "abc1234-dirty"),
     ("abc1234", "abc1234-dirty", "abc1234-dirty"), ("abc1234-dirty", "def5678", "abc1234-dirty"), (None, None, None)],
)  # fmt: skip
def test_a_job_is_of_the_commit_at_which_it_began(made, tmp_path, monkeypatch, at_start, at_end, recorded):
    asked = iter([at_start, at_end])
    monkeypatch.setattr(artifact, "commit", lambda: next(asked))
    jobs.run(next(Study.load(made / "two.yaml", "quick", made / "results").jobs()), out=tmp_path)
    assert json.loads((tmp_path / "provenance.json").read_text())["commit"] == recorded


def test_a_page_of_the_papers_is_of_their_scale_or_a_draft(made, tmp_path, monkeypatch):
    study = Study.load(made / "two.yaml", "quick", made / "results")
    monkeypatch.chdir(tmp_path)
    for folder in (PAGES, tmp_path / PAGES):
        with pytest.raises(UserError, match=r"--scale"):
            keep(study, folder)
    assert not list(tmp_path.iterdir())
    assert keep(study, PAGES, draft=True)[0] == Path(PAGES, "two.md")


def test_a_page_that_cannot_be_written_leaves_the_former_rows_and_pictures(made, page, tmp_path):
    study = Study.load(made / "two.yaml", "quick", made / "results")
    page.text.unlink()
    page.text.mkdir()
    (page.folder / "claims.csv").write_text("former")
    (page.text.parent / "two-former.png").touch()
    before = {path: path.read_bytes() for path in (tmp_path / "pages").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"two\.md"):
        keep(study, tmp_path / "pages", draft=True)
    assert {path: path.read_bytes() for path in (tmp_path / "pages").rglob("*") if path.is_file()} == before
    page.text.rmdir()
    keep(study, tmp_path / "pages", draft=True)
    assert {path.name for path in page.text.parent.glob("*.png")} == {"two-curves.png", "two-effort.png"}
    assert len(page.verdicts) == 2


@pytest.mark.parametrize("commit", ["abc1234-dirty", "abc1234"])
def test_a_page_is_of_one_commit_without_changes(made, tmp_path, monkeypatch, commit):
    study = Study.load(made / "two.yaml", "quick", made / "results")
    monkeypatch.setattr(artifact, "commit", lambda: commit)  # of this checkout; the jobs have another
    with pytest.raises(UserError, match=commit):
        keep(study, tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_claim_runs_its_jobs_alone_and_agrees(page, made, tmp_path):
    again = remake(page, "arrives", results=str(tmp_path / "results"), data=str(tmp_path / "data"))
    assert again.agree
    assert [path.name for path in (tmp_path / "results/runs").glob("*/*")] == ["es-jax"]
    assert again.ran == ["run l/es-jax"]
    table = page.verdicts
    table.loc[table["id"] == "arrives", "ours"] = 0.4
    table.to_csv(page.folder / "claims.csv", index=False)
    assert not remake(page, "arrives", results=str(tmp_path / "results"), data=str(tmp_path / "data")).agree


def test_another_seed_gives_other_numbers_and_is_judged_by_its_verdict(page, made, tmp_path):
    table = page.verdicts
    with_seed = partial(remake, page, results=str(tmp_path / "results"), seed=7)
    again = with_seed("closer")
    before = table.set_index("id").loc["closer"]
    (now,) = [line for line in again.lines if " now: " in line]
    assert f"{before['ours']:.6g}" not in now
    assert again.agree is (before["verdict"] in now)
    other = next(word for word in ("holds", "fails") if word not in now)
    table.loc[table["id"] == "closer", "verdict"] = other
    table.to_csv(page.folder / "claims.csv", index=False)
    assert not with_seed("closer").agree
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["seed-7"]
    figure = with_seed(figure="curves", out=tmp_path / "drawn")
    assert figure.agree
    rows = pd.read_csv(tmp_path / "drawn/two-curves.csv")
    assert not rows.equals(pd.read_csv(made / "results/figures/curves.csv"))  # and yet they agree: none is expected to
    same = remake(page, "arrives", results=str(tmp_path / "results"), seed=page.experiment.seed)
    assert same.agree
    assert (tmp_path / "results/runs").is_dir()


def test_one_figure_is_compared_row_by_row_and_each_job_named_as_it_begins(page, tmp_path, capsys):
    again = remake(page, figure="effort", results=str(tmp_path / "results"), out=tmp_path / "drawn")
    assert again.agree
    assert (tmp_path / "drawn/two-effort.png").stat().st_size > 5000
    said = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert [words[1:4] for words in said] == [["two:", *label.split()] for label in again.ran]
    assert [re.findall(r"\d+", " ".join(words[4:])) for words in said] == [["1", "3"], ["2", "3"], ["3", "3"]]
    rows = page.folder / "effort.figure.parquet"
    table = artifact.read_table(rows)
    mark = {"spec": page.experiment.hash, "place": rows.name}
    artifact.write_table(rows, table.assign(share=table["share"] + 0.01), mark)
    off = remake(page, figure="effort", results=str(tmp_path / "results"), out=tmp_path / "drawn")
    assert not off.agree
    assert capsys.readouterr().err == ""  # no job begins
    assert any("share" in line for line in off.lines)
    numbers = [f"{value:.7g}" for value in (table["share"].iloc[0] + 0.01, table["share"].iloc[0])]
    assert off.lines[2].split()[-2:] == numbers


def test_a_folder_of_pictures_that_cannot_be_is_refused_before_anything_runs(page, tmp_path):
    (tmp_path / "drawn").touch()
    with pytest.raises(UserError, match=r"--out .*drawn"):
        remake(page, figure="effort", results=str(tmp_path / "results"), out=tmp_path / "drawn")
    assert not (tmp_path / "results").exists()


def test_a_claim_of_the_page_that_is_no_longer_stated_is_named(page, made, tmp_path):
    stated = tmp_path / "claims/two.yaml"
    stated.write_text(yaml.safe_dump(yaml.safe_load(stated.read_text())[:1]))
    again = remake(page, results=str(tmp_path / "results"), out=tmp_path / "drawn")
    assert not again.agree
    assert next(line for line in again.lines if "no longer stated" in line).split("'")[1] == "arrives"


@pytest.mark.parametrize("wrong", [{"claim": "closr"}, {"figure": "curve"}, {"claim": "closer", "figure": "curves"}])
def test_unknown_parts_are_refused_before_anything_runs(page, wrong, tmp_path):
    with pytest.raises(UserError, match=next(iter(wrong))):
        remake(page, **wrong, results=str(tmp_path / "results"))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("part", [{"claim": "arrives"}, {"figure": "effort"}, {}])
def test_a_page_of_other_settings_is_refused_before_anything_runs(page, part, tmp_path):
    (tmp_path / "two.yaml").write_text(yaml.safe_dump({**CONTENT, "search": {"budget": 500, "repetitions": 3}}))
    assert page.changed == [str(tmp_path / "two.yaml")]
    with pytest.raises(UserError, match=r"two\.yaml.*lowvar keep") as refused:
        remake(page, **part, results=str(tmp_path / "results"))
    assert "lowvar remake" not in str(refused.value)
    assert not (tmp_path / "results").exists()
    with pytest.raises(UserError, match=r"two\.yaml.*lowvar keep"):
        page.check()


def test_damaged_kept_rows_are_refused_before_anything_runs(page, tmp_path):
    (page.folder / "effort.figure.parquet").unlink()
    with pytest.raises(UserError, match=r"effort\.figure"):
        remake(page, figure="effort", results=str(tmp_path / "results"))
    assert not (tmp_path / "results").exists()


def test_a_folder_without_pages_is_said_to_be_none_of_a_clone(tmp_path):
    assert names(tmp_path) == []
    with pytest.raises(UserError, match="--folder"):
        Page.load(tmp_path, "two")


def test_a_page_without_rows_is_not_called_unknown(page):
    folder = page.folder.parents[1]
    (folder / "older.md").write_text("# Kept before rows were\n")
    with pytest.raises(UserError, match=r"older\.md"):
        Page.load(folder, "older")
    with pytest.raises(UserError, match="'odler'"):
        Page.load(folder, "odler")


def test_a_part_has_its_problems_methods_and_what_they_read():
    study = Study.load("workflow/experiments/quickstart_integrals.yaml", "smoke")
    within = next(name for name, spec in study.experiment.problems.items() if not spec.within)
    part = Part(study.path, study.scale, study.experiment, study.results, study.data, frozenset({"monte_carlo"}))
    kinds = {(job.kind, job.problem) for job in Study.jobs(part) if part._has(job)}
    assert ("sample", within) in kinds
    assert all(job.names["method"] == "monte_carlo" for job in Study.jobs(part, "run") if part._has(job))


def test_jobs_of_other_code_run_again(page, tmp_path):
    again = partial(remake, page, "arrives", results=str(tmp_path / "results"), data=str(tmp_path / "data"))
    (label,) = again().ran
    assert again().ran == []
    (file,) = (tmp_path / "results").rglob("provenance.json")
    record = json.loads(file.read_text())
    record["code"]["lowvar_studies.searches.es"] = "0" * 16
    file.write_text(json.dumps(record))
    assert again().ran == [label]


def test_cpu_seconds_stand_beside_those_of_the_page(page, tmp_path):
    about = {**page.about, "jobs": {**page.about["jobs"], "run l/es-jax": 7654.3}}
    again = partial(remake, Page(page.folder, about), "arrives", results=str(tmp_path / "results"))
    made = again()
    (file,) = (tmp_path / "results").rglob("provenance.json")
    spent = json.loads(file.read_text())["cpu_seconds"]
    assert made.seconds == {"run l/es-jax": (spent, 7654.3)}
    for said in (made, again()):  # also of jobs that are current
        assert re.findall(r"\d+\.\d", said.lines[-1]) == [f"{spent:.1f}", "7654.3"]
    del about["jobs"]["run l/es-jax"]
    assert re.findall(r"\d+\.\d", again().lines[-1]) == ["0.0", "0.0"]  # the page has none to compare with


def rows_of(count):
    """Rows as a figure has them: cells, a value with its interval, and more numbers."""
    number = [float(i) for i in range(count)]
    names = {"problem": ["a"] * count, "method": [f"m{i}" for i in range(count)], "points": [5] * count}
    values = [one / 3 + 1 for one in number]
    return pd.DataFrame(
        {**names, "noise": [0.5] * count, "mae": values, "mae_se": number, "mae_low": number, "mae_high": values}
    )


def test_a_figure_shows_numbers_that_are_the_same():
    few = side_by_side(rows_of(4), rows_of(4), 10)
    assert [line.split() for line in few[1:]] == [[f"m{i}", *[f"{i / 3 + 1:.7g}"] * 2] for i in range(4)]
    many = side_by_side(rows_of(25), rows_of(25), 10)
    assert len(many) == 12
    assert [many[1].split()[0], many[10].split()[0]] == ["m0", "m24"]
    assert "15" in many[11].split()


def test_a_figure_shows_the_numbers_that_differ_most():
    before = rows_of(25)
    now = before.copy()
    now.loc[[7, 13, 20], "noise"] = [0.6, 0.4, float("nan")]
    now.loc[3, "mae"] += 1e-5
    lines = [line.split() for line in side_by_side(now, before, 3)]
    assert lines[1:4] == [["m7", "0.5", "0.6"], ["m13", "0.5", "0.4"], ["m20", "0.5", "NaN"]]
    assert "22" in lines[4]
    assert [line.split()[0] for line in side_by_side(now, before, 3, compared=False)[1:4]] == ["m0", "m12", "m24"]


def test_a_figure_shows_wall_times_though_they_are_not_compared():
    timed = rows_of(3).assign(seconds=[0.1, 0.2, 0.3])
    assert side_by_side(timed * 1, timed.assign(seconds=9.0), 10, compared=False)[2].split() == ["m1", "9", "0.2"]


@pytest.mark.parametrize("other", [rows_of(3), rows_of(4)[["method", "mae"]], rows_of(4).assign(method=["m9"] * 4)])
def test_rows_of_other_cells_are_not_set_side_by_side(other):
    assert side_by_side(rows_of(4), other, 10) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [("claims.csv", None), ("claims.csv", b"\xff\xfe"), ("claims.csv", b"a,b\n1,2\n"), ("about.json", None),
     ("about.json", b"[]"), ("about.json", b'{"jobs": {"x": "y"}}'),
     ("about.json", "jobs"), ("about.json", "code")],
)  # fmt: skip
def test_damaged_records_are_named(page, name, content):
    path = page.folder / name
    path.unlink()
    if isinstance(content, str):  # an empty record
        path.write_text(json.dumps({**page.about, content: {}}))
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=name):
        listed([Page.load(page.folder.parents[1], page.name)])


def test_check_reads_the_rows_of_figures_and_the_page(page):
    (page.folder.parents[1] / "two.md").unlink()
    (found,) = page.check()
    assert "two.md" in found
    path = page.folder / "effort.figure.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"effort\.figure"):
        page.check()


# --- a small variational experiment ----------------------------------------------------------------------------------

LINEAR = {
    "name": "linear",
    "title": "Logistic regression",
    "problems": {"few": {"model": "logistic_regression", "dataset": "breast_cancer", "scaling": "minmax"}},
    "methods": {"naive": None, "cv": None},
    "solver": {"optimizer": "sgd", "step_sizes": [1e-3, 1e-4], "batch_size": 5, "epochs": 2, "repetitions": 2},
    "decomposition": None,
}
OF_LINEAR = [
    {"id": "gap", "statement": "cv ends nearer to the optimum than naive", "source": "ours",
     "test": {"effect": "gap_ratio", "problem": "few", "method": "cv", "others": ["naive"], "below": 1}},
    {"id": "pace", "statement": "a step of cv takes longer", "source": "ours",
     "test": {"effect": "effort_ratio", "problem": "few", "method": "cv", "others": ["naive"], "unit": "step", "above": 1}},
]  # fmt: skip


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """The folder of an experiment whose jobs ran, and of its page: kept by a process that was in single precision."""
    import jax

    folder, before = tmp_path_factory.mktemp("linear"), jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    steps = [{"method": one, "backend": "jax", "seconds": [0.1 * k, 0.11 * k]} for one, k in (("naive", 1), ("cv", 2))]
    about = {"problem": "few", "model": "logistic_regression", "dataset": "breast_cancer", "optimizer": "sgd"}
    for name in ("claims", "times"):
        (folder / name).mkdir()
    (folder / "linear.yaml").write_text(yaml.safe_dump(LINEAR))
    (folder / "claims/linear.yaml").write_text(yaml.safe_dump(OF_LINEAR))
    (folder / "times/few.json").write_text(json.dumps({**about, "batch_size": 5, "steps": steps}))
    file, where = str(folder / "linear.yaml"), ["--results", str(folder / "results"), "--data", str(folder / "data")]
    try:
        local.make(Study.load(file, "quick", folder / "results", folder / "data"))
        jax.config.update("jax_enable_x64", False)
        assert main(["keep", file, *where, "--draft", "--out", str(folder / "pages")]) == 0
    finally:
        jax.config.update("jax_enable_x64", before)
    return folder


def test_tables_of_a_page_are_made_in_double_precision(linear):
    """An optimum is not found in single precision, and then there are no gaps."""
    import jax

    page, before = Page.load(linear / "pages", "linear"), jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    ours = page.verdicts.set_index("id")["ours"]
    assert 0 < ours["gap"] < 10
    remake = ["remake", "linear", "--claim", "gap", "--folder", str(linear / "pages"), "--data", str(linear / "data")]
    try:
        jax.config.update("jax_enable_x64", False)
        assert main([*remake, "--results", str(linear / "results")]) == 0
    finally:
        jax.config.update("jax_enable_x64", before)


def test_a_page_is_stale_when_code_that_makes_its_data_changes(linear):
    about = json.loads((linear / "pages/rows/linear/about.json").read_text())
    made_by = {f"lowvar_studies.datasets.{name}" for name in ("prepare", "readers", "bundled")}
    assert made_by <= set(about["code"])
    assert "lowvar_studies.datasets.lenet" not in code.of_data([Data(dataset="breast_cancer", scaling="minmax")])
    assert set(code.of_data([Data(dataset="fashion_mnist", scaling="lenet")])) > made_by | {
        "lowvar_studies.datasets.lenet"
    }
    assert code.of_data([]) == {}


def test_times_of_a_changed_checkout_are_on_no_page_and_are_not_made_again(linear, tmp_path, capsys, monkeypatch):
    remake_pace = ["remake", "linear", "--claim", "pace", "--folder", str(linear / "pages")]
    assert main([*remake_pace, "--data", str(linear / "data"), "--results", str(linear / "results")]) == 0
    assert "workflow/times" in capsys.readouterr().out
    copy = shutil.copytree(linear, tmp_path / "copy")
    for path in copy.rglob("provenance.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "commit": "abc1234"}))
    monkeypatch.setattr(artifact, "commit", lambda: "abc1234")
    study, path = Study.load(copy / "linear.yaml", "quick", copy / "results", copy / "data"), copy / "times/few.json"
    for commit, refused in (("abc1234 with edits", True), ("abc1234", False)):
        path.write_text(json.dumps({**json.loads(path.read_text()), "commit": commit}))
        with pytest.raises(UserError, match=r"few\.json") if refused else nullcontext():
            keep(study, tmp_path / "pages")
        assert (tmp_path / "pages").exists() is not refused


def test_rows_have_no_copy_of_times(linear):
    page = Page.load(linear / "pages", "linear")
    assert page.verdicts.set_index("id")["ours"]["pace"] == pytest.approx(2)
    assert {"ends"} <= set(page)
    assert "times" not in set(page)
    assert len(page["times"]) == 4
    assert page.check() == []


# --- what remake runs for one claim ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def integral(tmp_path_factory):
    """The study of integrals for a first try, whose jobs ran."""
    folder = tmp_path_factory.mktemp("integral")
    study = Study.load("workflow/experiments/quickstart_integrals.yaml", "smoke", folder / "results", folder / "data")
    for job in study.jobs():
        getattr(jobs, job.kind)(job)
    return study


VALUE = {"effect": "value", "below": 1}
ONE_METHOD = {
    "linear": {**VALUE, "table": "convergence", "column": "gap_mean", "at": {"problem": "few", "method": "cv"}},
    "made": {**VALUE, "table": "curves", "column": "gap_mean", "at": {"problem": "e", "method": "es"}},
    "integral": {**VALUE, "table": "errors", "column": "to_mc",
                 "at": {"problem": "borehole", "method": "control_functional"}},
}  # fmt: skip


class Reduced(Mapping):
    """Tables without rows of other problems, and of jobs of other methods."""

    def __init__(self, tables, problems, methods):
        self.tables, self.problems, self.methods = tables, problems, methods
        self.of_runs = {one.name for one in tables.study.family.tables if one.rows_of == "run"} - set(BESIDE)

    def __getitem__(self, name):
        table = self.tables[name]
        if self.problems and "problem" in table:
            table = table[table["problem"].isin(self.problems)]
        if self.methods is not None and "method" in table and name in self.of_runs:
            table = table[table["method"].isin(self.methods)]
        return table.reset_index(drop=True)

    def __contains__(self, name):
        return name in self.tables

    def __iter__(self):
        return iter(self.tables)

    def __len__(self):
        return len(self.tables)


@pytest.mark.parametrize("name", ONE_METHOD)
def test_tables_of_the_jobs_of_one_claim_are_those_of_all_jobs(name, request):
    """A table that depends on more methods than a claim names is known to: claims about it need all of them."""
    study = source = request.getfixturevalue(name)
    if name != "integral":
        study = Study.load(next(source.glob("*.yaml")), "quick", source / "results", source / "data")
    problems, methods = _needed(study, parse({"id": "a", "statement": "a", "source": "a", "test": ONE_METHOD[name]}))
    assert methods is not None
    assert methods < set(study.experiment.methods)
    part = Part.reduced(study, problems, methods, 1)
    every, own = (Gathered(study, study.family.tables) for _ in range(2))
    own.study, own.experiment = part, part.experiment
    made = [table.name for table in study.family.tables if table.name in every]
    wanted = Reduced(every, problems, methods)
    assert {name for name in made if not wanted[name].equals(own[name].reset_index(drop=True))} <= set(_OF_ALL)
    assert part.ran == []
    assert len(made) > 4


def test_a_claim_has_the_same_verdict_from_the_rows_of_its_own_jobs():
    """Of each effect the claims of the kept page that has the fewest."""
    found = {}
    for name in names(PAGES):
        page = Page.load(PAGES, name)
        claims = load(page.study.claims) if page.study.claims else []
        claims = [one for one in claims if one.id in set(page.verdicts["id"])]
        for effect in {one.test.effect for one in claims}:
            of_it = [one for one in claims if one.test.effect == effect]
            found.setdefault((page.study.family.name, effect), []).append((len(of_it), name, page, of_it))
    assert len(found) > 15
    for chosen in found.values():
        _, _, page, claims = min(chosen, key=lambda one: one[:2])
        for claim in claims:
            own = Reduced(page, *_needed(page.study, claim))
            now, before = (judge([claim], tables, page.study).iloc[0] for tables in (own, page))
            assert apart(now, before) == [], (page.name, claim.id)
