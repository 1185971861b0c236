"""Verdicts on the cases, and the page ``docs/thirty-models.md``."""

import platform
import re
from importlib.metadata import version

import numpy as np
from scipy import stats

from .common import CASES

_OFF = 0.5  # standard deviations of the posterior: a mean that is farther from NUTS's must come with a note
_SD_OFF = 0.2  # relative error of a standard deviation, of any seed, that must come with a note
_BEHIND = 0.1  # nats that a fit may be below SVI's, beyond its interval
_FLAGS = "k-hat|not converged|too narrow"
_COLUMNS = (
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
    said = first.get("refused") or " ".join(first.get("notes", ()))
    return [*row, said if len(said) < 110 else said[:107] + "..."]


def _cell(ours, theirs) -> str:
    middle, half = difference(ours, theirs)
    return f"{middle:+.3g} ± {half:.2g}"


def line_of(name: str, N: int, record: dict) -> str:
    """The row as text."""
    return f"| {' | '.join(one.replace('|', '/') for one in cells(name, N, record))} |"


def head() -> list[str]:
    """The lines above the rows."""
    return [f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|"]


def page(found: dict, settings: dict) -> str:
    """The page in Markdown, from the records of ``thirty.py``."""
    known = [(key.split(", "), record) for key, record in found.items() if record]
    rows = [(name, int(N), record) for (name, N), record in known if name in CASES]
    verdicts = [verdict(name, record).strip("*") for name, _, record in rows]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts) if one)
    about = [f"* `{name}`: {CASES[name].about}" for name in dict.fromkeys(name for name, *_ in rows)]
    table = [line_of(name, N, record).replace("\n", " ") for name, N, record in rows]
    packages = ", ".join(f"{one} {version(one)}" for one in ("lowvar", "jax", "numpyro", "optax", "numpy"))
    about_page = _PAGE.format(off=_OFF, sd_off=_SD_OFF, behind=_BEHIND, **settings)
    measured = f"Measured with {packages}, Python {platform.python_version()}, on {platform.machine()}."
    counted = f"{len(rows)} problems: {counts}."
    return "\n".join([about_page, counted, "", *head(), *table, "", "## The models", "", *about, "", measured, ""])


_PAGE = """# Models of a practitioner

Written by `python benchmarks/thirty.py`. Every model is fitted by `lowvar.fit(model, data)` with nothing else given,
and by NumPyro's `SVI(model, AutoNormal(model), Adam, Trace_ELBO())`: {steps} steps each, mini-batches of 100 rows,
{seeds} seeds.

**Nats.** Final ELBOs of both by NumPyro's `Trace_ELBO` on all rows, with the same draws; positive values favour `fit`.
A cell is the mean difference over the seeds with the half width of its 95 % t interval. SVI is given the step size
0.01, the best of {grid} for each model, and the best of these with a cosine schedule over
the second half. `fit` has one step size for all models.

**Starts.** `fit` starts near 0, except in sites of which 0 is a saddle point of the likelihood: these start
uniformly on [-2, 2], as all sites do in SVI. Of these models they are the factors of `films`, and of `network` the
weights and shifts that are multiplied. Models whose parts are alike (factors, hidden units, components) have
several optima: they are also fitted from `init=numpyro.infer.init_to_uniform`, a far start in all sites, from which
some seeds end far below.

**Seconds** of a first fit and of a first `SVI.run`: [performance.md](performance.md#a-first-fit).

**Right.** The largest distance of a posterior mean from that of NUTS, in standard deviations of the posterior. Wrong:
more than {off} without a note that the guide is poor or that the fit has not converged. Behind: the 95 % interval of
the difference from SVI at 0.01 lies more than {behind} nats below 0.

**Standard deviations** of the guide against those of a fit of eight times as many steps along a cosine, the optimum
of the same guide: rms over all coordinates, and the worst of all seeds. Wrong sd: worse than {sd_off} without such a
note.
"""
