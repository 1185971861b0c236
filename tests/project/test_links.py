"""Links of the pages in the repository lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(REPOSITORY).as_posix()
    for folder in (".", "docs", "docs/bbob", "docs/reproduction", "benchmarks", "data", "examples")
    for page in (REPOSITORY / folder).glob("*.md")
)


def anchors(text):
    """The anchors that GitHub gives the headings of a page: lower case, hyphens for spaces, no punctuation."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {f"{anchor}-{one}" if one else anchor for anchor, last in found.items() for one in range(last + 1)}


def broken(page):
    """The targets of a page's links that do not exist."""
    text = re.sub(r"^```.*?^```", "", (REPOSITORY / page).read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (REPOSITORY / page).parent / path if path else REPOSITORY / page
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


def test_pages_are_found():
    assert {"README.md", "docs/performance.md", "docs/reproduction/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    assert list(broken(page)) == []


def test_a_broken_anchor_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("test_links.REPOSITORY", tmp_path)
    (tmp_path / "a.md").write_text(
        "# On `x`: a *start*\n\n[good](a.md#on-x-a-start) [here](#on-x-a-start) [bad](#no) [x](b)\n"
    )
    assert list(broken("a.md")) == ["#no", "b"]
