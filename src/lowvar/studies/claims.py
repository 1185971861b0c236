"""Published statements against our results: a test, an interval, a verdict."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field

from lowvar.errors import UserError
from lowvar.files import read_yaml
from lowvar.studies.integral import claims as integral
from lowvar.studies.search import claims as search
from lowvar.studies.variational import claims as variational
from lowvar.studies.verdicts import Strict

_COLUMNS = ("id", "statement", "source", "published", "ours", "low", "high", "verdict", "note")
_JUDGES = variational.JUDGES | search.JUDGES | integral.JUDGES


class Claim(Strict):
    """A published statement, where it stands, and how it is tested."""

    id: str
    statement: str
    source: str
    test: Annotated[
        variational.VariationalTest | search.SearchTest | integral.IntegralTest,
        Field(discriminator="kind"),
    ]
    note: str = ""


def load(path: str | Path) -> list[Claim]:
    """The claims of a YAML file.

    Raises:
        UserError: the file is missing or says something that a claim cannot say.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of claims")
    stated = read_yaml(path)
    if not isinstance(stated, list):
        raise UserError(f"{path}: it must be a list of claims")
    try:
        return [Claim.model_validate(entry) for entry in stated]
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def judge(claims: Iterable[Claim], tables: Mapping[str, Any]):
    """A row per claim: ``id, statement, source, published, ours, low, high, verdict, note``.

    The verdict is ``holds`` or ``fails`` where the whole 95 % interval says so, else ``undecided``. For
    ``below``, ``ours`` is the ratio of the claimed lowest variance to the lowest of the others, and the claim
    holds where the two intervals do not overlap. For ``gap`` it is the ratio of the final gaps, a geometric mean
    over pairs of repetitions on the same noise, to the nearest rival; the claim holds where all intervals are
    below one. A method that diverged at every step size is farther than any that did not. Claims about searches
    have the budget of evaluations, within which they were judged, at the end of their note; those on how many
    repetitions meet a target are judged by the count, beside which the share's interval stands: see `claims.search`.
    Those about integrals have sizes and repetitions there: see `claims.integral`. Those about gradients along a
    run, and about held-out rows, say there what was compared, and when: see `claims.diagnostics`.

    Args:
        claims: what ``load`` gave.
        tables: the experiment's tables by name, those that the claims need: ``decomposition, schemes, ends,
            paths, convergence, table2, table3, measured, sensitivity, pace`` for variational problems; ``hits``,
            ``ends`` and ``decomposition`` for searches; ``errors``, ``sums``, ``estimates`` and ``truth`` for
            integrals.

    Raises:
        UserError: a claim speaks of something that the tables do not have.
    """
    import pandas as pd

    rows = []
    for claim in claims:
        judged = _JUDGES[claim.test.kind](claim.test, tables)
        note = "; ".join(text for text in (claim.note, judged.pop("note", "")) if text)
        rows.append({"id": claim.id, "statement": claim.statement, "source": claim.source, **judged, "note": note})
    return pd.DataFrame(rows, columns=list(_COLUMNS))
