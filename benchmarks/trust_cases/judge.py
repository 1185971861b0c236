"""Measurements of a case and the verdict on it, by the same rules for all cases.

`fine`: right, and not behind the plain alternative. `told`: not fine, but reported. `behind`: right, but the plain
alternative does clearly better. `crashed`: an error that is not a sentence for the user. `silently wrong`: the rest.
"""

import re
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from trust_cases.common import Verdict, generator

COVERED = 0.90  # minimum upper limit of the coverage's interval
BEHIND = 1.2  # maximum ratio to Monte Carlo's error
NEARLY_ALL = 0.95  # minimum fraction of the bad repetitions with a note
NATS = 0.5  # maximum deficit to the plain alternative
GAP = 5.0  # maximum deficit to the best ELBO, in nats, of a converged fit
KHAT = 0.7  # above it, importance weights cannot correct a guide (Vehtari et al., 2024)
SLOWER = 1.5  # maximum ratio to the evaluations of pycma
NEUTRAL = re.compile(r"duplicate samples|too many for 'auto'|exact_scores")  # notes that cast no doubt on a result
OF_JUMPS = re.compile(r"jumps there")  # nearly always noted where control variates gain: no doubt where nothing jumps
MEAN_FIELD = re.compile(r"mean.?field|k-?hat|pareto|psis", re.IGNORECASE)
SAYS_SO = re.compile(r"plateau|flat|without end|diverged|not reached|budget|unbounded|no(t a)? minimum", re.IGNORECASE)


def doubts(said: str, jumps: bool = False) -> list[str]:
    """The notes that cast doubt on a result, of an integrand that ``jumps`` or not."""
    notes = [note for note in str(said or "").split(" | ") if note and not NEUTRAL.search(note)]
    return [note for note in notes if jumps or not OF_JUMPS.search(note)]


def share(hits: int, count: int) -> tuple[float, float, float]:
    """A proportion with its 95 % interval (Clopper and Pearson)."""
    if not count:
        return np.nan, np.nan, np.nan
    interval = scipy.stats.binomtest(int(hits), int(count)).proportion_ci(0.95)
    return hits / count, interval.low, interval.high


def ratio(error: np.ndarray, other: np.ndarray, name: str) -> tuple[float, float, float]:
    """The ratio of root mean squares, with a 95 % bootstrap interval over paired repetitions."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(np.sqrt((error**2).mean() / (other**2).mean()))
        rows = generator(name, 1).integers(len(error), size=(2000, len(error)))
        drawn = np.sqrt((error[rows] ** 2).mean(1) / (other[rows] ** 2).mean(1))
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.quantile(drawn, (0.025, 0.975)) if len(drawn) else (np.nan, np.nan)
    return value, float(low), float(high)


def integral(case, rows: list[dict]) -> Verdict:
    table = pd.DataFrame(rows)
    for column in ("value", "standard_error", "low", "high", "monte_carlo", "monte_carlo_se", "method"):
        if column not in table:
            table[column] = np.nan
    if (table["crashed"] != "").any():
        return _crashed(case, "integrals", table)
    tasks = [_task(case, of) for _, of in table.groupby("task")]
    worst = max(tasks, key=lambda one: _ORDER.index(one["verdict"]) + 0.1 * (1 - np.nan_to_num(one["coverage"][0])))
    behind = max(tasks, key=lambda one: np.nan_to_num(one["ratio"][0]))
    first = table[table["task"] == table["task"].min()]
    noted = first["said"].map(lambda said: bool(doubts(said, case.jumps))) | (first["refused"] != "")
    methods = first["method"].dropna().value_counts()
    measured = {
        "coverage": worst["coverage"], "monte_carlo_coverage": worst["monte_carlo_coverage"], "ratio": behind["ratio"],
        "noted": float(noted.mean()), "told_of_bad": worst["told_of_bad"], "bad": worst["bad"],
        "nan": worst["nan"], "refused": float((first["refused"] != "").mean()),
        "methods": ", ".join(f"{name} {count / len(first):.0%}" for name, count in methods.items()),
    }  # fmt: skip
    is_behind = any(one["behind"] for one in tasks)
    return Verdict(case.name, "integrals", case.what, worst["verdict"], is_behind, measured, _first(first, case.jumps),
                   _seconds(first), rows)  # fmt: skip


_ORDER = ("fine", "told", "behind", "silently wrong")


def _task(case, of: pd.DataFrame) -> dict[str, Any]:
    """The verdict of one integral over its repetitions."""
    given = of[of["refused"] == ""]
    known = given[given["standard_error"].notna() & given["value"].map(np.isfinite)]
    covered = (known["low"] <= known["truth"]) & (known["truth"] <= known["high"])
    coverage = share(covered.sum(), len(known))
    half = 1.96 * given["monte_carlo_se"]
    sure = given["monte_carlo_se"] > 0
    its = ((given["monte_carlo"] - given["truth"]).abs() <= half)[sure]
    plain = share(its.sum(), len(its))
    error = (given["value"] - given["truth"]).to_numpy(float)
    error = np.where(np.isfinite(error), error, np.inf)
    other = (given["monte_carlo"] - given["truth"]).to_numpy(float)
    times = ratio(error, other, case.name) if len(given) else (np.nan,) * 3
    behind = bool(times[0] > BEHIND)
    # a bad repetition: its interval misses the truth, or its error exceeds what is allowed for Monte Carlo
    missed = ~given.index.isin(known.index[covered]) | (np.abs(error) > 1.96 * BEHIND * _root(other))
    plain_is_honest = plain[2] >= COVERED
    told = (
        given["said"].map(lambda said: bool(doubts(said, case.jumps)))
        | given["standard_error"].isna()
        | ((given["method"] == "monte_carlo") & plain_is_honest)
    ).to_numpy()
    bad = int(missed.sum())
    told_of_bad = float(told[missed].mean()) if bad else np.nan
    covers = not len(known) or coverage[2] >= COVERED
    if len(known) and covers and not behind:
        verdict = "fine"
    elif not bad or told_of_bad >= NEARLY_ALL:
        verdict = "told" if bad or not len(known) else "behind"
    else:
        verdict = "behind" if covers else "silently wrong"
    return {
        "verdict": verdict, "coverage": coverage, "monte_carlo_coverage": plain, "ratio": times, "behind": behind,
        "told_of_bad": told_of_bad, "bad": bad,
        "nan": float(given["standard_error"].isna().mean()) if len(given) else 0.0,
    }  # fmt: skip


def _root(values):
    return float(np.sqrt((values**2).mean())) if len(values) else np.nan


def model(case, rows: list[dict]) -> Verdict:
    table = pd.DataFrame(rows)
    for column in ("said", "refused", "crashed"):
        table[column] = table[column].fillna("") if column in table else ""
    own = table[table["way"] == "default"]
    if (own["crashed"] != "").any():
        return _crashed(case, "models", own)
    refused = bool((own["refused"] != "").any())
    if case.mistake:
        verdict = "told" if refused else "silently wrong"
        remark = _first(own) if refused else f"fitted in spite of the mistake: {case.mistake}"
        return Verdict(case.name, "models", case.what, verdict, False, {"refused": float(refused)}, remark, 0.0, rows)
    flagged = (own["khat"] > KHAT) | own["said"].map(lambda said: bool(MEAN_FIELD.search(str(said))))
    said = flagged | own["said"].map(bool) | (own["refused"] != "")
    measured: dict[str, Any] = {
        "flagged": float(flagged.mean()), "khat": float(own["khat"].median()), "refused": float(refused),
        "noted": float(said.mean()) if case.unlike is False else 0.0,
    }  # fmt: skip
    elbo = {way: of.set_index("seed")["elbo"] for way, of in table.groupby("way")} if "elbo" in table else {}
    behind = False
    for way in ("naive", "numpyro"):
        difference = (elbo["default"] - elbo[way]).to_numpy(float) if {"default", way} <= set(elbo) else np.array([])
        difference = difference[~np.isnan(difference)]
        measured[f"over_{way}"] = _mean(difference)
        behind |= bool(len(difference) and difference.mean() < -NATS)
    gap = np.nan
    if "best" in elbo and "default" in elbo:
        gap = float(elbo["best"].iloc[0] - elbo["default"].mean())
    measured["gap"] = gap
    lost = not np.isfinite(elbo["default"]).all() if "default" in elbo else not refused
    if refused:
        verdict = "told"
    elif case.unlike and not flagged.all():
        verdict = "silently wrong"
    elif lost or gap > GAP:
        verdict = "told" if said.all() else "silently wrong"
    elif case.unlike:
        verdict = "told"
    else:
        verdict = "behind" if behind else "fine"
    remark = _first(own)
    if verdict == "silently wrong":
        flags = f"flagged in {flagged.mean():.0%} of the seeds; mean field cannot represent this posterior"
        remark = flags if case.unlike and not flagged.all() else f"{gap:.3g} nats below the best fit, or not finite"
    return Verdict(case.name, "models", case.what, verdict, behind, measured, remark, _seconds(table), rows)


def _mean(values: np.ndarray) -> tuple[float, float, float]:
    """A mean with its t interval (95 %)."""
    if len(values) < 2:
        return (float(values[0]) if len(values) else np.nan), np.nan, np.nan
    half = scipy.stats.t.isf(0.025, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def function(case, rows: list[dict]) -> Verdict:
    table = pd.DataFrame(rows)
    for column in ("success", "status", "message", "true", "nfev", "inside", "same", "fun"):
        if column not in table:
            table[column] = None
    own, peer = (table[table["way"] == way] for way in ("default", "pycma"))
    if (own["crashed"] != "").any():
        return _crashed(case, "functions", own)
    wrong = [sentence for row in own.to_dict("records") if (sentence := _wrong(case, row))]
    counts, medians, values = {}, {}, {}
    for way, of in (("default", own), ("pycma", peer)):
        found = of["true"].map(lambda value: case.level is not None and value is not None and value <= case.level)
        counts[way], needed = int(found.sum()), np.where(found, of["nfev"].astype(float), np.inf)
        medians[way] = float(np.median(needed))
        values[way] = float(pd.to_numeric(of["true"]).median())
    measured = {
        "found": counts["default"], "pycma_found": counts["pycma"], "seeds": len(own),
        "evaluations": medians["default"], "pycma_evaluations": medians["pycma"], "value": values["default"],
        "pycma_value": values["pycma"], "wrong_claims": len(wrong), "refused": float((own["refused"] != "").mean()),
    }  # fmt: skip
    fewer = counts["default"] < counts["pycma"]
    slower = medians["default"] > SLOWER * medians["pycma"] and np.isfinite(medians["pycma"])
    behind = bool(fewer or slower)
    if wrong:
        verdict = "silently wrong"
    elif counts["default"] < len(own):
        verdict = "told"
    else:
        verdict = "behind" if behind else "fine"
    return Verdict(case.name, "functions", case.what, verdict, behind, measured, (wrong or [_first(own)])[0],
                   _seconds(table), rows)  # fmt: skip


def _wrong(case, row) -> str:
    """A false claim of a result, or "" if there is none."""
    if row["calls"] > row["budget"]:
        return f"{row['calls']} evaluations, with a budget of {row['budget']}"
    if row["success"] is None or pd.isna(row["success"]):
        return ""  # refused
    if row["nfev"] != row["calls"]:
        return f"nfev is {row['nfev']}, f was called {row['calls']} times"
    if not row["inside"]:
        return "x lies outside the bounds"
    if not row["same"]:
        return "fun is not the value at x"
    found = case.level is not None and row["true"] <= case.level
    claims = bool(row["success"]) and (row["status"] == "target" or not SAYS_SO.search(row["message"]))
    if claims and not found:
        return f"claims success ({row['message']}), and the value is {row['true']:.3g}"
    return ""


def _crashed(case, kind, table):
    remark = next(one for one in table["crashed"] if one)
    return Verdict(case.name, kind, case.what, "crashed", False, {}, remark, _seconds(table), table.to_dict("records"))


def _first(table: pd.DataFrame, jumps: bool = False) -> str:
    """The first refusal or doubting note, else the most frequent message of a search."""
    for one in table["refused"]:
        if one:
            return one
    for said in table["said"]:
        if doubts(said, jumps):
            return doubts(said, jumps)[0]
    if "message" in table and table["message"].notna().any():
        return str(table["message"].dropna().mode().iloc[0])
    return ""


def _seconds(table: pd.DataFrame) -> float:
    return float(pd.to_numeric(table["seconds"]).sum()) if "seconds" in table else 0.0
