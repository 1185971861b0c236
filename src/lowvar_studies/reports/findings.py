"""Findings in words: the sentences that open the report and that ``make`` prints, from the verdicts on claims."""

import math
from collections.abc import Iterable

import pandas as pd

from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.claims import NOT_MADE, Claim, load
from lowvar_studies.reports.gathered import Gathered
from lowvar_studies.reports.text import interval, plain, summary

_MOST = 3  # claims of an experiment
_NOUNS = {"evaluation": "evaluations", "step": "seconds of a step"}


def findings(studies: Iterable[Study]) -> list[tuple[str, list[str]]]:
    """A heading and sentences for each experiment that is made; for scale smoke a heading that says why not.

    The sentences: three of the experiment's claims, those first whose effect is not shown yet, and how many hold. An
    experiment without claims shows the first rows of its family's summary, or says that it has no findings.
    """
    studies = list(studies)
    if any(study.scale == "smoke" for study in studies):
        return [("Scale smoke shows that everything runs; only larger scales have repetitions to judge claims.", [])]
    known = [study for study in studies if study.verdicts.is_file()]
    said = [_of_claims(study) if study.claims else _of_rows(study) for study in known]
    return [(f"{study.name}: {study.experiment.title}", one) for study, one in zip(known, said, strict=True)]


def _of_rows(study):
    made = study.family.summary and study.family.summary(Gathered(study, study.family.tables, made=False))
    if not made:
        return [f"No claims, so no findings; its figures: {', '.join(study.figures)}"]
    title, rows = made
    cells = rows.head(_MOST).astype(str).itertuples(index=False)
    said = ["; ".join(f"{name}: {cell}" for name, cell in zip(rows, row, strict=True) if cell) for row in cells]
    return [f"No claims; {title[:1].lower()}{title[1:]}, {len(said)} of {len(rows)} rows:", *said]


def _of_claims(study):
    stated, judged = {claim.id: claim for claim in load(study.claims)}, pd.read_csv(study.verdicts)
    made = judged[(judged["verdict"] != NOT_MADE) & judged["id"].isin(stated)]
    effects = [stated[name].test.effect for name in made["id"]]
    first = made.groupby(effects).cumcount().sort_values(kind="stable").index[:_MOST]
    said = [sentence(stated[row.id], row.ours, row.low, row.high, row.verdict) for row in made.loc[first].itertuples()]
    return [*said, *([summary(judged)] if len(judged) > len(said) else [])]


def sentence(claim: Claim, value: float, low: float, high: float, verdict: str) -> str:
    """A claim, the value of its effect with its interval, a published value, and the verdict."""
    bound = "" if claim.test.at_most is None else "at most "
    bound += "" if claim.test.at_least is None else "at least "
    published = "" if claim.test.published is None else f"; published: {bound}{plain(claim.test.published)}"
    number = "no value" if math.isnan(value) else _number(claim.test, value, low, high)
    return f"{claim.statement}: {number}{published}; {verdict}"


def _number(test, value, low, high):
    before = after = ""
    if test.effect in ("share", "coverage"):
        value, low, high, after = 100 * value, 100 * low, 100 * high, " % of repetitions"
    elif test.effect.endswith("_ratio"):
        named = {"effort_ratio": "unit", "measured_ratio": "of"}.get(test.effect)
        noun: str = getattr(test, named) if named else test.effect.removesuffix("_ratio")
        before, after = f"{_NOUNS.get(noun, noun).replace('_', ' ')} ", " times as high"
        if 0 < value < 1:
            value, low, high = 1 / value, 1 / high, 1 / low if low else math.inf
            after = " times lower"
    ends = "" if math.isnan(low) else f" {interval(value, low, high)}"
    nearest = " (against the closest of them)" if len(getattr(test, "others", ())) > 1 else ""
    return f"{before}{plain(value)}{ends}{after}{nearest}"
