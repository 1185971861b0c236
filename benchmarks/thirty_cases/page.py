"""Verdicts on the cases, and the tables of ``docs/thirty-models.md``, which has their rules."""

import re

import numpy as np
from common import about, table
from scipy import stats

from .common import CASES

_OFF = 0.5  # standard deviations of the posterior: a mean that is farther from NUTS's must come with a note
_SD_OFF = 0.2  # relative error of a standard deviation, of any seed, that must come with a note
_BEHIND = 0.1  # nats that a fit may be below SVI's, beyond its interval
_FLAGS = "k-hat|not converged|too narrow"
COLUMNS = (
    "case", "rows", "verdict", "nats over SVI(0.01)", "over SVI's best", "over SVI's best with a cosine",
    "over SVI(0.01), both from a uniform start", "mean off by", "sds off by, rms and worst",
    "k-hat", "said",
)  # fmt: skip


def difference(ours, theirs) -> tuple[float, float]:
    """The mean difference over seeds, nats, and the half width of its 95 % t interval."""
    off = np.asarray(ours, float) - np.asarray(theirs, float)
    return float(off.mean()), float(stats.t.ppf(0.975, len(off) - 1) * off.std(ddof=1) / np.sqrt(len(off)))


def best(runs: dict) -> str:
    """The step size whose mean ELBO is largest; runs that diverged count as minus infinity."""
    return max(runs, key=lambda size: np.nan_to_num(np.mean(runs[size]), nan=-np.inf))


def verdict(name: str, record: dict) -> str:
    """``fine``, ``told`` (a note says that the guide is poor), ``refused``, or what is wrong."""
    case, first = CASES[name], record.get("outcome", {})
    if "refused" in first:
        return "refused" if case.refused and re.search(case.refused, first["refused"]) else "refused wrongly"
    if case.refused:
        return "**not refused**" if first else ""
    notes = " ".join(first.get("notes", ()))
    if case.told and not re.search(case.told, notes):
        return "**not told**"
    flagged = bool(re.search(_FLAGS, notes))
    if record.get("truth", {}).get("off", 0.0) > _OFF and not flagged:
        return "**wrong**"
    spread = record.get("sds", {"worst": (), "notes": ()})
    for worst, said in zip(spread["worst"], spread["notes"], strict=True):
        if worst > _SD_OFF and not re.search(_FLAGS, " ".join(said)):
            return "**wrong sd**"
    if "nats" in record:
        gap, half = difference(record["nats"]["fit"], record["nats"]["svi"]["constant"]["0.01"])
        if not gap + half > -_BEHIND:
            return "**behind**"
    return "told" if flagged else "fine"


def cells(name: str, N: int, record: dict) -> list[str]:
    """A row of the table; empty where a section has not been measured."""
    first, there = record.get("outcome", {}), record.get("nats")
    row = [f"`{name}`", f"{N:,}".replace(",", " "), verdict(name, record)]
    if there:
        constant, falling = there["svi"]["constant"], there["svi"]["falling"]
        sizes = best(constant), best(falling)
        row.append(_cell(there["fit"], constant["0.01"]))
        row.append(f"{_cell(there['fit'], constant[sizes[0]])} (at {sizes[0]})")
        row.append(f"{_cell(there['fit'], falling[sizes[1]])} (at {sizes[1]})")
        row.append(_cell(record["uniform"]["fit"], constant["0.01"]) if "uniform" in record else "")
    else:
        row += ["", "", "", ""]
    truth = record.get("truth")
    row.append(f"{truth['off']:.2f} sd" if truth else "")
    spread = record.get("sds")
    row.append(f"{np.mean(spread['rms']):.1%}, {max(spread['worst']):.1%}" if spread else "")
    row.append("" if first.get("khat") is None else f"{first['khat']:.2f}")
    said = " ".join((first.get("refused") or " ".join(first.get("notes", ()))).split())
    return [*row, said if len(said) < 110 else said[:107] + "..."]


def _cell(ours, theirs) -> str:
    middle, half = difference(ours, theirs)
    return f"{middle:+.3g} ± {half:.2g}"


def tables(found: dict) -> dict[str, str]:
    """The parts of the page, from the records of ``thirty.py``: all problems, and what the models are."""
    known = [(key.split(", "), record) for key, record in found.items() if record]
    rows = [(name, int(N), record) for (name, N), record in known if name in CASES]
    verdicts = [verdict(name, record).strip("*") for name, _, record in rows]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts) if one)
    now = about()
    packages = ", ".join(f"{name} {number}" for name, number in now["packages"].items() if number)
    problems = [
        f"{len(rows)} problems: {counts}.", table(COLUMNS, [cells(*row) for row in rows]),
        f"{now['date']}, `{now['commit']}`; {packages}.",
    ]  # fmt: skip
    models = [f"* `{name}`: {CASES[name].about}" for name in dict.fromkeys(name for name, *_ in rows)]
    return {"problems": "\n\n".join(problems), "models": "\n".join(models)}
