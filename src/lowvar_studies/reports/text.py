"""Verdicts and tables as text of pages."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from textwrap import shorten
from typing import Any

from lowvar_studies.reports.claims import NOT_MADE, VERDICTS, load

_NAMES = {"elbo": "ELBO", "mae": "MAE", "rmse": "RMSE", "snr": "SNR", "sd": "standard deviation",
          "to_iid": "variance / that of iid", "same_side": "share on one side"}  # fmt: skip
_UNITS = {"iterations": "iteration", "seconds": "time", "step": "step time"}  # of effort
_OWN = re.compile(r"ours\b(?!, beside)")  # sources of claims whose number nobody published
_LINES = 17  # methods of a problem in a figure of a page, at most: our choice
_MANY = 100  # times as many repetitions, from which a claim counts as a tie


def page_parts(study: Any, about: Mapping[str, Any], claims: Any, own: Sequence[str], kept: Collection[str],
               folder: str) -> list[str]:  # fmt: skip
    """The parts of a kept page, except its wall times, which no rows behind it have.

    Args:
        study: the experiment and its scale.
        about: the content of the page's ``about.json``.
        claims: the verdicts.
        own: the parts of ``own_table``.
        kept: the names of the tables that are kept.
        folder: of the page, if it is not the default one.
    """
    name, elsewhere = study.name, f" --folder {folder}" if folder else ""
    return [
        f"# {study.experiment.title}",
        f"`lowvar remake {name}{elsewhere}` makes all of this page again ({minutes(about)}), with `--claim ID` or "
        f"`--figure NAME` one of it. Experiment `{name}` at scale `{study.scale}`, written by "
        f"`lowvar keep {study.path} --scale {study.scale}`.",
        origin(about),
        *filter(None, [study.experiment.remarks.strip()]),
        *(["## Claims", summary(claims), claims_table(claims, study)] if len(claims) else []),
        *own,
        "## Figures",
        *filter(None, [labels(study)]),
        *(f"![{kind}]({name}-{kind}.png)\n\n`{kind}`: {study.figures[kind].caption}" for kind in pictures(study, kept)),
    ]


def labels(study: Any) -> str:
    """What figures call the methods whose names they do not spell out; nothing if there are none."""
    from lowvar_studies.reports.drawing import style

    family = {"variational": style.estimators, "search": style.searchers, "integral": style.integrators}
    looks = family[study.family.name](study.experiment.methods)
    other = [f'`{name}` is "{look.label}"' for name, look in looks.items() if _plainly(name) != _plainly(look.label)]
    return f"In the figures {'; '.join(other)}." if other else ""


def _plainly(name: str) -> str:
    """Letters and digits of a name.

    >>> _plainly("es_1e_2") == _plainly("ES 1e-2")
    True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def own_table(study: Any, tables: Mapping[str, Any]) -> list[str]:
    """The family's own table of a page, under its title; nothing if it has none."""
    made = study.family.summary(tables) if study.family.summary else None
    return [f"## {made[0]}", markdown(made[1])] if made else []


def pictures(study: Any, kept: Collection[str]) -> list[str]:
    """The figures of a page in their order: the headline, those of kept tables, which claims are about, and others.

    The others have a line for each method, and are not on a page with more methods than a reader can tell apart.
    """
    judged = [kind for kind, figure in study.figures.items() if figure.table in kept]
    methods = Counter(problem for problem, _ in {(problem, method) for problem, method, _ in study.experiment.runs()})
    others = study.figures if max(methods.values(), default=0) <= _LINES else ()
    return list(dict.fromkeys([study.headline.name, *judged, *others]))


def opening(part: str) -> str:
    """The first words of a text."""
    return shorten(part, 300, placeholder=" ...")


def minutes(about) -> str:
    """The CPU minutes of all jobs behind a page, in words."""
    spent = sum(about["jobs"].values()) / 60
    return f"{spent:.0f} CPU minutes" if spent >= 10 else f"{spent:.1f} CPU minutes"


def origin(about):
    """Commit, machines, dates and versions."""
    when = " to ".join(about["dates"])
    return f"Made {when} at {about['commit']}, on {'; '.join(about['machines'])}; {', '.join(about['versions'])}."


def summary(claims):
    """How many claims have each verdict."""
    counts = claims["verdict"].value_counts()
    words = [word for word in VERDICTS if word != NOT_MADE or word in counts]
    return "Verdicts: " + ", ".join(f"{counts.get(word, 0)} {word}" for word in words) + "."


def claims_table(claims, study: Any) -> str:
    """The verdicts as a table of the page; behind one that fails, in brackets, its cause: paper or setting.

    Args:
        claims: the verdicts.
        study: with the claims as they are stated now; of one that is no longer stated, the bound is unknown.
    """
    import pandas as pd

    tests = {one.id: (one.test, one.source) for one in (load(study.claims) if study.claims else ())}
    columns = {table.name: table.columns for table in study.family.tables}
    rows = []
    for row in claims.fillna({"note": "", "cause": ""}).to_dict("records"):
        ours = plain(row["ours"]) if row["ours"] == row["ours"] else ""
        if row["low"] == row["low"]:
            ours += f" {interval(row['ours'], row['low'], row['high'])}"
        verdict, value, bound = row["verdict"], row["published"], ""
        left = verdict == "undecided" and "would decide" not in row["note"]  # of a step: in rounds
        fixed = "more repetitions need not shorten its interval" if left else ""
        if row["id"] in tests:
            test, source = tests[row["id"]]
            value = test.published if test.published is not None and not _OWN.match(source) else math.nan
            bound = condition(test, columns)
        rows.append({
            "id": row["id"],
            "verdict": f"{verdict} ({row['cause']})" if row["cause"] else verdict,
            "statement": row["statement"],
            "source": row["source"],
            "published": plain(value) if value == value else "",
            "holds if": bound,
            "ours": ours,
            "note": "; ".join(filter(None, [row["note"], would_decide(row["more"]) or fixed])),
        })  # fmt: skip
    said = "\n\nSE: the standard errors of the published value and of ours, combined."
    return markdown(pd.DataFrame(rows)) + said * any(" SE " in row["holds if"] for row in rows)


def condition(test: Any, columns: Mapping[str, Sequence[Any]] = {}) -> str:
    """When a claim holds: the quantity of its effect, the bounds on it, and its unit.

    Args:
        test: of the claim.
        columns: of the family's tables, by the name of the table, for the units of their values.

    >>> from lowvar_studies.reports.claims import parse
    >>> def of(**test):
    ...     return condition(parse({"id": "one", "statement": "it is so", "source": "ours", "test": test}).test)
    >>> of(effect="gap_ratio", problem="sonar", method="joint", others=["naive"], below=1)
    'gap ratio < 1'
    >>> of(effect="difference", problem="sonar", method="joint", others=["naive"], above=-1, below=1)
    'ELBO difference > -1 and < 1 nats'
    >>> of(effect="value", table="errors", column="mae", at={}, published=0.568, published_se=0.1)
    'MAE within 2 SE of 0.568'
    """
    noun, unit = _quantity(test, columns)
    signs = {(1, True): "<", (1, False): "≤", (-1, True): ">", (-1, False): "≥"}
    relative, tolerance = f"{100 * test.tolerance:g} %", ""
    if test.upper or test.lower:
        bounds = []
        for sign, limit, slack, strict in sorted(test.limits(), key=lambda one: one[0]):
            of = f" ({plain(sign * limit)} {'+' if sign > 0 else '-'} {relative})" if slack else ""
            bounds.append(f"{signs[sign, strict]} {plain(sign * (limit + slack) + 0.0)}{of}")  # no -0
        words = " and ".join(bounds)
    elif test.published_se is not None:
        words = f"within 2 SE of {plain(test.published)}"
    else:
        words = f"= {plain(test.published)}"
        tolerance = f"± {relative}" if test.plus_minus is None else f"± {test.plus_minus:g}"
    return " ".join(filter(None, [noun, words, unit, tolerance]))


def _quantity(test: Any, columns: Mapping[str, Sequence[Any]]) -> tuple[str, str]:
    """What an effect measures, and its unit."""
    given = dict(test)
    if test.effect == "value":
        units = {one.name: one.unit for one in columns.get(given["table"], ())}
        unit = units.get(given["column"], "")
        return _words(given["column"]), "" if unit == "f's" else unit
    if test.effect in ("difference", "sensitivity"):
        of = given.get("of", "elbo")
        return f"{_words(of)} {test.effect}", "nats" if of == "elbo" else "nats per row"
    if test.effect == "effort_ratio":
        return f"{_UNITS[given['unit']]} ratio", ""
    return _words(f"{given['of']}_ratio" if test.effect in ("measured_ratio", "error_ratio") else test.effect), ""


def _words(name: str) -> str:
    """A name of a column or an effect as words."""
    return _NAMES.get(name) or " ".join(_NAMES.get(part, part) for part in name.split("_"))


def would_decide(more: float) -> str:
    """How many repetitions would decide a claim, in words; empty for one that is decided.

    >>> would_decide(3.21), would_decide(5000)
    ('3.2 times as many repetitions would decide it', 'the value is too near the bound to decide')
    """
    if more >= _MANY:
        return "the value is too near the bound to decide"
    return f"{max(more, 1.1):.2g} times as many repetitions would decide it" if more == more else ""


def interval(value, low, high):
    """Its ends with as many digits, three or more, as they need to enclose the printed value.

    >>> interval(0.382, 0.19, 0.7664), interval(72.8786, 72.8785, 72.8787), interval(2069.6, 2052, 2087.3)
    ('[0.19, 0.766]', '[72.88, 72.88]', '[2050, 2090]')
    """
    number = digits(value, low, high)
    return f"[{plain(low, number)}, {plain(high, number)}]"


def digits(value, low, high):
    """How many digits the ends of an interval need, three to six, to enclose the value as claims print it.

    As many, if possible, that the ends differ.
    """
    ends = {number: (float(f"{low:.{number}g}"), float(f"{high:.{number}g}")) for number in (3, 4, 5, 6)}
    enclose = [number for number, (a, b) in ends.items() if a <= float(f"{value:.4g}") <= b]
    return next((number for number in enclose if ends[number][0] < ends[number][1]), (enclose or [6])[0])


def plain(value: float, number: int = 4) -> str:
    """A number with so many significant digits, and a power of ten only below 1e-4 and from 1e6 on.

    >>> plain(40400.0, 3), plain(1.23e8), plain(0.382), plain(-2600, 2)
    ('40400', '1.23e+08', '0.382', '-2600')
    """
    text = f"{value:.{number}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def markdown(table) -> str:
    """A table in Markdown."""
    lines = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
