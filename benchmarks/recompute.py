"""Verdicts of kept pages, drawn at random and computed again from the raw estimates by code of its own.

Of the package, it uses neither tables nor effects, intervals nor the judge: it reads the claims, the rows of the kept
page, the traces of the runs and the stored true integrals. Intervals are t-intervals, of logarithms for ratios of
iterations and of variances, and Fieller's for ratios of mean errors, where the package resamples.
Usage: `python benchmarks/recompute.py --results results/paper` (may be repeated) draws among all verdicts whose effect
is known here and whose runs are in these folders; `--all` takes every one of them.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.stats import t as student
from vi_step import add_sizes, write

REPOSITORY = Path(__file__).parents[1]
PAGES, WORKFLOW = REPOSITORY / "docs/reproduction", REPOSITORY / "workflow"
BOUNDS = ("below", "above", "at_most", "at_least")
SAME = 2e-3  # largest relative difference of two values; pages have four digits

Interval = tuple[float, float, float]


def t_interval(values) -> Interval:
    """The mean and its 95 % t-interval; a single value has none."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return values.mean(), math.nan, math.nan
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def fieller(a, b) -> Interval:
    """The ratio of two means of paired values, and the ratios ``r`` for which the mean of ``a - r b`` may be zero.

    References:
        Fieller, Some problems in interval estimation, 1954.
    """
    q = student.ppf(0.975, len(a) - 1) ** 2 / len(a)
    (aa, ab), (_, bb) = np.cov(a, b)
    p2, p1, p0 = b.mean() ** 2 - q * bb, a.mean() * b.mean() - q * ab, a.mean() ** 2 - q * aa
    root = math.sqrt(p1**2 - p2 * p0) if p2 > 0 else math.inf
    return a.mean() / b.mean(), (p1 - root) / p2, (p1 + root) / p2


def exponential(interval: Interval) -> Interval:
    """The interval of a quantity from that of its logarithm."""
    middle, low, high = map(math.exp, interval)
    return middle, low, high


class Runs:
    """The raw results of an experiment: ``runs/PROBLEM/METHOD-BACKEND/trace.parquet`` and ``samples``."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.problems = yaml.safe_load((WORKFLOW / f"experiments/{folder.name}.yaml").read_text("utf-8"))["problems"]

    def trace(self, problem: str, method: str) -> pd.DataFrame:
        """The trace of a run; LookupError without one."""
        files = sorted((self.folder / "runs" / problem).glob(f"{method}-*/trace.parquet"))
        if len(files) != 1:
            raise LookupError(f"{self.folder.name}: {len(files)} runs of {method} on {problem}")
        return pd.read_parquet(files[0])

    def truth(self, problem: str) -> pd.DataFrame:
        """True integrals and their errors by task."""
        drawn = self.problems[problem].get("within", problem)
        with np.load(self.folder / f"samples/{drawn}/samples.npz", allow_pickle=False) as stored:
            return pd.DataFrame(json.loads(str(stored["about"]))["truth"]).set_index("task")

    def errors(self, test: dict, method: str) -> tuple[np.ndarray, float]:
        """Absolute errors by repetition, summed over tasks without ``task``, and the standard error of the truth."""
        rows = self.trace(test["problem"], method)
        rows, truth = rows[rows["sizes"] == str(test["sizes"])], self.truth(test["problem"])
        if "task" in test:
            rows = rows[rows["task"] == test["task"]]
        if not len(rows):
            raise LookupError(f"{self.folder.name}: no estimates of a derived quantity in the traces")
        off = (rows["value"] - rows["task"].map(truth["truth"])).abs()
        return off.groupby(rows["repetition"]).sum().to_numpy(), truth.loc[rows["task"].unique(), "truth_error"].sum()

    def path(self, problem: str, method: str) -> pd.DataFrame:
        """ELBOs, ``(iterations, repetitions)``, at the step size with the highest mean ELBO at each iteration."""
        rows = self.trace(problem, method)
        lost = (rows["status"] != "ok").groupby([rows["step_size"], rows["iteration"]]).transform("any")
        rows = rows[~lost]
        means = rows.groupby(["iteration", "step_size"])["elbo"].mean()
        best = means.groupby("iteration").idxmax()
        chosen = pd.MultiIndex.from_frame(rows[["iteration", "step_size"]]).isin(best)
        return rows[chosen].pivot(index="iteration", columns="repetition", values="elbo").astype(float)


# effects: an interval for each rival --------------------------------------------------------------------------------


def error(runs: Runs, test: dict, rival: str) -> Interval:
    """The mean absolute error."""
    return t_interval(runs.errors(test, test["method"])[0])


def error_range(runs: Runs, test: dict, rival: str) -> Interval:
    """The same, widened by the truth's interval."""
    errors, of_truth = runs.errors(test, test["method"])
    mean, low, high = t_interval(errors)
    return mean, low - 1.96 * of_truth, high + 1.96 * of_truth


def error_ratio(runs: Runs, test: dict, rival: str) -> Interval:
    """The ratio of two mean absolute or root mean square errors."""
    power = {"mae": 1, "rmse": 2}[test.get("of", "mae")]
    (a, of_truth), (b, _) = (runs.errors(test, one) for one in (test["method"], rival))
    a, b = a**power, b**power
    ratio, low, high = (max(one, 0.0) ** (1 / power) for one in fieller(a, b))
    return (ratio, low, high) if max(a.mean(), b.mean()) ** (1 / power) > 2 * of_truth else (ratio, math.nan, math.nan)


def elbo_difference(runs: Runs, test: dict, rival: str) -> Interval:
    """ELBO less the rival's at the last common iteration; minus infinity if it diverged at every step size."""
    mine, theirs = (runs.path(test["problem"], one) for one in (test["method"], rival))
    if mine.index[-1] < runs.trace(test["problem"], test["method"])["iteration"].max():
        return -math.inf, -math.inf, -math.inf
    at = max(set(mine.index) & set(theirs.index))
    return t_interval((mine.loc[at] - theirs.loc[at]).dropna())


def reached(path: pd.Series, level: float) -> float:
    """Iterations to a level by linear interpolation; infinite if it is never reached."""
    path = path.dropna()
    above = np.flatnonzero(path.to_numpy() >= level)
    if not len(above):
        return math.inf
    at = max(int(above[0]), 1)
    return max(float(np.interp(level, path.iloc[at - 1 : at + 1], path.index[at - 1 : at + 1])), 1.0)


def effort_ratio(runs: Runs, test: dict, rival: str) -> Interval:
    """Iterations to the rival's final ELBO (or ``level``) relative to the rival's, in seconds with ``unit``."""
    mine, theirs = (runs.path(test["problem"], one) for one in (test["method"], rival))
    logs = []
    for one in sorted(set(mine) & set(theirs)):
        level = float(test.get("level", theirs[one].dropna().iloc[-1]))  # YAML reads 1e4 as text
        logs.append(math.log(reached(mine[one], level)) - math.log(reached(theirs[one], level)))
    if not np.isfinite(logs).all():
        raise LookupError(f"{runs.folder.name}: a run misses the level, of which this file knows nothing")
    middle, _, high = t_interval(logs)
    half, pace = high - middle, (0.0, 0.0, 0.0)
    if test.get("unit") == "seconds":
        pace = step_time(test["problem"], test["method"], rival)
    within = math.hypot(half, pace[2] - pace[0])
    return exponential((middle + pace[0], middle + pace[0] - within, middle + pace[0] + within))


def step_time(problem: str, method: str, rival: str) -> Interval:
    """The logarithm of the ratio of the seconds of a step, over the rounds of the kept benchmark."""
    steps = json.loads((WORKFLOW / f"times/{problem}.json").read_text("utf-8"))["steps"]
    seconds = {one["method"]: np.array(one["seconds"]) for one in steps}
    return t_interval(np.log(seconds[method] / seconds[rival]))


def time_ratio(runs: Runs, test: dict, rival: str) -> Interval:
    """The seconds of a step relative to the rival's."""
    return exponential(step_time(test["problem"], test["method"], test.get("other", "naive")))


def measured_ratio(runs: Runs, test: dict, rival: str) -> Interval:
    """The conditional variance relative to the rival's: a geometric mean over iterations and repetitions."""
    logs = []
    for one in (test["method"], rival):
        rows = runs.trace(test["problem"], one)
        if (rows["status"] != "ok").any() or rows["step_size"].nunique() > 1:
            raise LookupError(f"{runs.folder.name}: a diverged run, or several step sizes")
        logs.append(np.log(rows.pivot(index="iteration", columns="repetition", values="variance").astype(float)))
    shared = logs[0].index.intersection(logs[1].index)
    moment = test.get("moment", "along")
    at = {"start": shared[:1], "end": shared[-1:], "along": shared[shared > 0]}[moment]
    return exponential(t_interval((logs[0].loc[at].mean() - logs[1].loc[at].mean()).dropna()))


EFFECTS: dict[str, Callable[[Runs, dict, str], Interval]] = {
    one.__name__: one
    for one in (error, error_range, error_ratio, elbo_difference, effort_ratio, time_ratio, measured_ratio)
}


def known(test: dict) -> bool:
    """Whether this file can compute a claim's effect."""
    if test["effect"] == "measured_ratio":
        return (
            test["of"] == "variance" and bool(test.get("others")) and not {"to", "to_moment", "step_size"} & set(test)
        )
    return test["effect"] in EFFECTS and test.get("interval", "t") == "t" and "iteration" not in test


# verdicts -----------------------------------------------------------------------------------------------------------


def verdict(test: dict, intervals: list[Interval], runs: Runs) -> str:
    """``holds``, ``fails`` or ``undecided``."""
    if "published_se" in test:
        value, *_ = intervals[0]
        errors, of_truth = runs.errors(test, test["method"])
        own = errors.std(ddof=1) / math.sqrt(len(errors))
        theirs = test["published_se"]
        if theirs == "ours":  # that of as many repetitions as were published
            own = theirs = own * math.sqrt((1 + len(errors) / test.get("published_repetitions", len(errors))) / 2)
        allowed = 2 * math.sqrt(own**2 + theirs**2 + of_truth**2)
        if abs(value - test["published"]) > allowed:
            return "fails"
        return "holds" if allowed < test.get("detectable", abs(test["published"]) / 2) else "undecided"
    inside, outside = [], []
    slack = test.get("tolerance", 0.0)
    for _, low, high in intervals:
        within, beyond = [], []
        for name in BOUNDS:
            if name not in test:
                continue
            sign = 1 if name in ("below", "at_most") else -1
            bottom, top = (low, high) if sign > 0 else (-high, -low)
            limit = sign * float(test[name])
            within.append(top < limit + slack * abs(limit))
            beyond.append(bottom > limit)
        inside.append(all(within))
        outside.append(any(beyond))
    return "holds" if all(inside) else "fails" if any(outside) else "undecided"


def worst(test: dict, intervals: list[Interval]) -> Interval:
    """The interval that is worst for the claim, which its row shows."""
    return (min if {"above", "at_least"} & set(test) else max)(intervals)


def rows_of(page: Path) -> Iterator[list[str]]:
    """The cells of a kept page's claims: verdict, statement, source, published, ours, interval, note."""
    for line in page.read_text("utf-8").splitlines():
        if re.match(r"\| (holds|fails|undecided) \|", line):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def candidates(folders: list[Path]) -> Iterator[tuple[Runs, dict, list[str]]]:
    """Claims of experiments whose results are in ``folders`` and whose kept page has the same claims, with its rows."""
    for folder in folders:
        page, stated = PAGES / f"{folder.name}.md", WORKFLOW / f"claims/{folder.name}.yaml"
        if not (folder / "runs").is_dir() or not page.is_file() or not stated.is_file():
            continue
        claims, kept = yaml.safe_load(stated.read_text("utf-8")), list(rows_of(page))
        if [claim["statement"] for claim in claims] != [row[1].replace("\\|", "|") for row in kept]:
            print(f"left out: the kept page of {folder.name} has other claims than its experiment now")
            continue
        runs = Runs(folder)
        yield from ((runs, claim, row) for claim, row in zip(claims, kept, strict=True) if known(claim["test"]))


def recomputed(runs: Runs, claim: dict, row: list[str]) -> dict:
    """A verdict computed again, beside the kept one."""
    test = claim["test"]
    intervals = [EFFECTS[test["effect"]](runs, test, rival) for rival in test.get("others", ("",))]
    value, low, high = worst(test, intervals)
    kept, found = float(row[4] or "nan"), verdict(test, intervals, runs)
    same = found == row[0] and math.isclose(value, kept, rel_tol=SAME)
    return {
        "experiment": runs.folder.name, "claim": claim["id"], "kept": row[0], "kept_value": kept,
        "kept_interval": row[5], "verdict": found, "value": value, "low": low, "high": high, "agrees": same,
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "the same")
    parser.add_argument("--results", type=Path, action="append", help="folder of experiments' results: results/paper")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    parser.add_argument("--count", type=int, default=3, help="verdicts to draw (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="every verdict in place of a draw")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/recompute.json"), help="JSON file")
    args = parser.parse_args(argv)
    folders = sorted(
        (one for top in args.results or [Path("results/paper")] for one in top.glob("*/")), key=lambda f: f.name
    )
    every = list(candidates(folders))
    order = np.random.default_rng(args.seed).permutation(len(every))
    found, skipped = [], 0
    for place in sorted(order) if args.all else order:
        if len(found) == args.count and not args.all:
            break
        try:
            found.append(recomputed(*every[place]))
        except LookupError as reason:
            skipped += 1
            print(f"not drawn: {reason}")
    print(f"{len(found)} of {len(every)} kept verdicts whose raw estimates are here, seed {args.seed}:\n")
    print("| experiment | claim | kept | computed again | agree |\n|---|---|---|---|---|")
    for one in found:
        mine = f"{one['verdict']}, {one['value']:.4g} [{one['low']:.3g}, {one['high']:.3g}]"
        theirs = f"{one['kept']}, {one['kept_value']:.4g} {one['kept_interval']}"
        print(f"| {one['experiment']} | {one['claim']} | {theirs} | {mine} | {'yes' if one['agrees'] else 'NO'} |")
    write(args.out, {"seed": args.seed, "verdicts": len(every), "recomputed": found, "skipped": skipped})
    return 0 if all(one["agrees"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
