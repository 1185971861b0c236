"""Numbers of kept pages in other pages: the papers' scoreboard, provenance, and single numbers in sentences.

Each is between two comments of HTML, which a reader does not see, and is filled anew by ``lowvar kept --fill``:

    <!-- scoreboard --> ... <!-- /scoreboard -->
    <!-- provenance --> ... <!-- /provenance -->
    <!-- joint_noise:rqmc-8-joint-sonar -->0.824 [0.781, 0.87]<!-- / -->
"""

import re
from collections import Counter
from collections.abc import Mapping

from lowvar.errors import UserError, check_known
from lowvar_studies.reports.kept import Page
from lowvar_studies.reports.text import interval, markdown

PAPERS = {
    "joint": "Joint control variate (Wang, Geffner, Domke)",
    "mlmc": "Multilevel Monte Carlo VI (Fujisawa, Sato)",
    "ingo": "Implicit natural gradient (Lyu, Tsang)",
    "vvcv": "Vector-valued control variates (Sun, Barp, Briol)",
}
_NUMBER = re.compile(r"<!-- (\w+):([\w.-]+) -->.*?<!-- / -->", re.DOTALL)


def filled(text: str, pages: Mapping[str, Page]) -> str:
    """The text with all of its numbers and tables as the kept pages have them.

    Args:
        text: Markdown with pairs of comments, as above.
        pages: the kept pages by name.

    Raises:
        UserError: a comment names a page or a claim that is not there.
    """

    def number(found: re.Match[str]) -> str:
        check_known("page", found[1], pages, where=found[0][:60])
        table = pages[found[1]].verdicts.set_index("id")
        check_known("claim", found[2], table.index, where=found[0][:60])
        row = table.loc[found[2]]
        return f"<!-- {found[1]}:{found[2]} -->{shown(row['ours'], row['low'], row['high'])}<!-- / -->"

    text = _NUMBER.sub(number, text)
    for name, make in (("scoreboard", scoreboard), ("provenance", provenance)):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if text.count(begin) != text.count(end) or text.count(begin) > 1:
            raise UserError(f"{begin}: it needs one {end} behind it")
        if begin in text:
            before, after = text[: text.index(begin)], text[text.index(end) :]
            text = f"{before}{begin}\n\n{make(pages)}\n\n{after}"
    return text


def shown(value: float, low: float, high: float) -> str:
    """A value with its interval, if it has one.

    >>> shown(0.382, 0.19, 0.7664), shown(3, float("nan"), float("nan"))
    ('0.382 [0.19, 0.766]', '3')
    """
    return f"{value:.3g} {interval(value, low, high)}" if low == low else f"{value:.3g}"


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
    heads = ("paper", "claims", "held", "failed, for the paper's reason", "failed, for our setting",
             "failed, cause unknown (ours: the answer is no)", "undecided")  # fmt: skip
    stale = [name for name, page in pages.items() if page.changed]
    said = [f"Of these, claims of pages that are stale: {', '.join(stale)}."] if stale else []
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
