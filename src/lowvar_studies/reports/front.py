"""Numbers of kept pages in other pages: the papers' scoreboard, provenance, and single numbers in sentences.

Each is between two comments of HTML, which a reader does not see, and is filled anew by ``lowvar pages --fill``:

    <!-- published --> ... <!-- /published -->      a picture: our numbers divided by the published ones
    <!-- scoreboard --> ... <!-- /scoreboard -->
    <!-- provenance --> ... <!-- /provenance -->
    <!-- joint_noise:rqmc-8-joint-sonar -->0.824 [0.781, 0.87]<!-- / -->

``<!-- later PAGE:CLAIM -->`` begins a number of a claim that has no rows yet: it stays as it is.
"""

import re
from collections import Counter
from collections.abc import Mapping

from lowvar.errors import UserError, check_known
from lowvar_studies.reports.pages import Page, small
from lowvar_studies.reports.text import digits, interval, markdown, plain

PAPERS = {
    "joint": "Joint control variate (Wang, Geffner, Domke)",
    "mlmc": "Multilevel Monte Carlo VI (Fujisawa, Sato)",
    "ingo": "Implicit natural gradient (Lyu, Tsang)",
    "vvcv": "Vector-valued control variates (Sun, Barp, Briol)",
}
_COMMENT = re.compile(r"<!--(.*?)(-->|\Z)", re.DOTALL)
_NUMBER, _END = re.compile(r"<!-- (later )?(\w+):([\w.-]+) -->"), "<!-- / -->"
_ALIKE = re.compile(
    r"\s*(later\b\s*)?[\w.-]*\s*:|\s*/\s*$|\s*/?\s*(scoreboard|provenance|published)\s*$", re.IGNORECASE
)


def filled(text: str, pages: Mapping[str, Page], file: str = "text") -> str:
    """The text with all of its numbers and tables as the kept pages have them; all else stays.

    Args:
        text: Markdown with pairs of comments, as above.
        pages: the kept pages by name.
        file: the name of the text, for messages.

    Raises:
        UserError: a comment names a page or a claim that is not there, is written in another way, is within another
            pair, or lacks its other half; or a number does not end on the line where it begins.
    """
    parts, at, opener, first = [], 0, None, 0
    for found in _COMMENT.finditer(text):
        comment, line = found[0], 1 + text.count("\n", 0, found.start())
        where = f"{file}, line {line}: {' '.join(comment.split())[:60]}"
        if opener is None:
            end = _end_of(comment, where)
            if end == comment:
                raise UserError(f"{where}: nothing before it begins what it ends, such as <!-- PAGE:CLAIM -->")
            opener, first = (found, line) if end else (None, 0)
            continue
        end = _end_of(opener[0], file)
        if comment != end:
            raise UserError(f"{where}: it is within {opener[0]} of line {first}, which must end first, with {end}")
        if end == _END and line != first:
            raise UserError(f"{where}: it must be on line {first}, as {opener[0]} is: it ends a number, not a text")
        if (content := _content(opener[0], pages, f"{file}, line {first}")) is not None:
            parts += [text[at : opener.end()], content]
            at = found.start()
        opener = None
    if opener is not None:
        raise UserError(f"{file}, line {first}: {opener[0]}: its end {_end_of(opener[0], file)} is missing")
    return "".join([*parts, text[at:]])


def _end_of(comment: str, where: str) -> str | None:
    """The comment that ends what a comment begins, or itself if it is an end; None for one of another kind.

    Raises:
        UserError: a comment that is nearly one of ours.
    """
    if _NUMBER.fullmatch(comment):
        return _END
    ends = {f"<!-- {name} -->": f"<!-- /{name} -->" for name in _TABLES}
    if comment in ends:
        return ends[comment]
    if comment in (_END, *ends.values()):
        return comment
    if not comment.endswith("-->"):
        raise UserError(f"{where}: the comment lacks its -->")
    if _ALIKE.match(comment[4:-3]):
        known = f"<!-- PAGE:CLAIM -->, <!-- later PAGE:CLAIM --> and their end {_END}"
        raise UserError(f"{where}: not written as {known}, nor as {', '.join(ends)} and their ends, space by space")
    return None


def _content(comment: str, pages: Mapping[str, Page], where: str) -> str | None:
    """The text behind a comment that begins a number or a table; None for one that stays."""
    found = _NUMBER.fullmatch(comment)
    if not found:
        return f"\n\n{_TABLES[comment.split()[1]](pages)}\n\n"
    later, page, claim = found.groups()
    if later:
        return None
    check_known("page", page, pages, where=f"{where}: {comment}")
    table = pages[page].verdicts.set_index("id")
    check_known("claim", claim, table.index, where=f"{where}: {comment}")
    row = table.loc[claim]
    return shown(row["ours"], row["low"], row["high"])


def shown(value: float, low: float, high: float) -> str:
    """A value with its interval, if it has one, in as many digits as the interval.

    >>> shown(0.382, 0.19, 0.7664), shown(1.0254, 1.0252, 1.0258), shown(3, float("nan"), float("nan"))
    ('0.382 [0.19, 0.766]', '1.025 [1.025, 1.026]', '3')
    """
    if low != low:
        return plain(value, 3)
    return f"{plain(value, digits(value, low, high))} {interval(value, low, high)}"


def scoreboard(pages: Mapping[str, Page]) -> str:
    """How many claims of each paper, and of ours beside it, hold, fail and are undecided; rows without claims go."""
    import pandas as pd

    rows = []
    for prefix, title in PAPERS.items():
        parts = [page.verdicts for name, page in pages.items() if name.split("_")[0] == prefix]
        table = pd.concat(parts) if parts else pd.DataFrame(columns=["source", "verdict", "cause"], dtype=str)
        own = table["source"].str.match(r"ours\b")  # "ours", or "ours, derived in ..."
        for whose, some in (("the paper's", table[~own]), ("ours", table[own])):
            verdicts = Counter(some["verdict"])
            causes = Counter(some.loc[some["verdict"] == "fails", "cause"].fillna(""))
            reasons = (
                ("", "", verdicts["fails"]) if whose == "ours" else (causes["paper"], causes["setting"], causes[""])
            )
            rows += [(title, whose, verdicts["holds"], *reasons, verdicts["undecided"])] if len(some) else []
    heads = ("paper", "claims", "held", "failed, for the paper's reason", "failed, perhaps for our setting",
             "failed, cause unknown (ours: the answer is no)", "undecided")  # fmt: skip
    stale = [name for name, page in pages.items() if page.changed]
    said = [f"Of these, claims of pages that are stale: {', '.join(stale)}."] if stale else []
    drafts = [name for name, page in pages.items() if page.draft]
    said += [f"Of these, claims of drafts: {', '.join(drafts)}."] if drafts else []
    return "\n\n".join([markdown(pd.DataFrame(rows, columns=heads)), *said])


def provenance(pages: Mapping[str, Page]) -> str:
    """Each page with its commit, jobs and CPU minutes, and whether code that it used has changed since."""
    import pandas as pd

    rows = [
        (f"[{name}]({name}.md)", page.about["commit"], len(page.about["jobs"]), f"{page.minutes:.1f}",
         "stale" if page.changed else "")
        for name, page in pages.items()
    ]  # fmt: skip
    return markdown(pd.DataFrame(rows, columns=["page", "commit", "jobs", "CPU minutes", "stale"]))


def _published(pages: Mapping[str, Page]) -> str:
    """The picture in Markdown."""
    return f"![our number divided by the published one, by table and figure]({_PICTURE})"


def picture(text: str, pages: Mapping[str, Page]) -> dict[str, bytes]:
    """The picture that a filled text shows, by the name of its file beside the text."""
    from lowvar.core.drawing import png
    from lowvar_studies.reports.published import draw, ratios

    return {_PICTURE: small(png(draw(ratios(pages))))} if "<!-- published -->" in text else {}


_PICTURE = "published.png"
_TABLES = {"scoreboard": scoreboard, "provenance": provenance, "published": _published}
