"""Seconds until the ELBO at which the plain gradient ends, from what is kept in this repository: nothing is run.

A number of seconds is the product of the iterations on the kept pages of `docs/reproduction` and the median seconds of
a step in `workflow/times`. The ratio to naive's, beside it, takes the geometric mean of the steps' ratios over the
processes; its interval is that of a product of independent factors.
Usage: `python benchmarks/levels.py`; it prints the table of `docs/reproduction/paper-joint.md`.
"""

import contextlib
import json
import math

import numpy as np
from common import REPOSITORY, arguments, write

from lowvar.core.intervals import mean_interval
from lowvar_studies import PAGES
from lowvar_studies.reports.pages import Page

METHODS = ("cv", "joint_svrg", "joint_adaptive", "joint_glm", "joint_glm_sigma")
TASKS = {"mnist": METHODS, "tennis": METHODS, "ppca": METHODS[:3], "movielens": METHODS}  # ppca is not linear
TIMES = REPOSITORY / "workflow/times"


def iterations(task: str) -> tuple[int, dict[str, tuple[float, ...]]]:
    """Of ``naive`` to its end; of others to that ELBO, relative to it, with an interval, as claims of the page."""
    with contextlib.chdir(REPOSITORY):  # where a page finds its experiment
        page = Page.load(PAGES, f"joint_{task}")
        rows, claims, found = page["paths"], page.verdicts.set_index("id"), {}
    for method in TASKS[task]:
        # the paper's own claim is on joint_svrg
        name = "ten-times-fewer" if method == "joint_svrg" else f"to-naive-{method.replace('_', '-')}"
        if (claim := f"{name}-{task}") in claims.index:
            found[method] = tuple(float(claims.loc[claim, column]) for column in ("ours", "low", "high"))
    ends = rows.loc[(rows["problem"] == task) & (rows["method"] == "naive"), "iteration"]
    if not len(ends) or not found:
        raise SystemExit(f"{page.folder}: no rows of naive, or no claims on iterations to its final ELBO")
    return int(ends.max()), found


def level(task: str) -> dict:
    """A task's row of the table; a method without iterations on the page has none."""
    steps = json.loads((TIMES / f"{task}.json").read_text(encoding="utf-8"))["steps"]
    seconds = {one["method"]: np.array(one["seconds"]) for one in steps}
    count, found = iterations(task)
    row = {"task": task, "iterations": count, "naive": count * float(np.median(seconds["naive"]))}
    for method, (fewer, fewest, most) in found.items():
        pace, *_, high = mean_interval(np.log(seconds[method] / seconds["naive"]))
        ratio = fewer * math.exp(pace)
        row[method] = {"seconds": count * fewer * float(np.median(seconds[method])), "ratio": ratio}
        if math.isinf(fewer):  # it was never there
            row[method] |= {"low": fewest * math.exp(2 * pace - high), "high": math.inf}
            continue
        below, above = (math.hypot(math.log(one), high - pace) for one in (fewer / fewest, most / fewer))
        row[method] |= {"low": ratio * math.exp(-below), "high": ratio * math.exp(above)}
    return row


def line(row: dict) -> str:
    """A row in Markdown; a dash where the kept page has no iterations, nothing where the method does not apply."""
    cells = [row["task"], f"{row['iterations']}", f"{row['naive']:.1f} s"]
    for method in METHODS:
        if method in row:
            one = row[method]
            cells.append(f"{one['seconds']:.1f} s: {one['ratio']:.2f} [{one['low']:.2f}, {one['high']:.2f}]")
        else:
            cells.append("-" if method in TASKS[row["task"]] else "")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    args = arguments(__doc__, "levels").parse_args()
    rows = [level(task) for task in TASKS]
    print(f"| task | iterations of naive | naive | {' | '.join(METHODS)} |\n|{'---|' * (3 + len(METHODS))}")
    print("\n".join(map(line, rows)))
    write(args.out, {"runs": rows})


if __name__ == "__main__":
    main()
