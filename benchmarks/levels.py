"""Seconds until the ELBO at which the plain gradient ends, from what is kept in this repository: nothing is run.

A number of seconds is the product of the iterations on the kept pages of `docs/reproduction` and the median seconds of
a step in `workflow/times`. The ratio to naive's, beside it, takes the geometric mean of the steps' ratios over the
processes; its interval is that of a product of independent factors.
Usage: `python benchmarks/levels.py`; it prints the table of `docs/reproduction/paper-joint.md`.
"""

import json
import math
import re

import numpy as np
from common import REPOSITORY, arguments, write

from lowvar.core.intervals import mean_interval

METHODS = ("cv", "joint_svrg", "joint_adaptive", "joint_glm", "joint_glm_sigma")
TASKS = {"mnist": METHODS, "tennis": METHODS, "ppca": METHODS[:3], "movielens": METHODS}  # ppca is not linear
# the paper's words on joint_svrg, whose row has the same number
OF_SVRG = "joint achieves a given performance in an order of magnitude fewer iterations than naive on"
PAGES, TIMES = REPOSITORY / "docs/reproduction", REPOSITORY / "workflow/times"


def iterations(task: str) -> tuple[int, dict[str, tuple[float, ...]]]:
    """Of ``naive`` to its end; of others to that ELBO, relative to it, with an interval, as the page has them."""
    page = (PAGES / f"joint_{task}.md").read_text(encoding="utf-8")
    end, found = re.search(r"nats ahead of \w+ after (\d+) iterations", page), {}
    for method in TASKS[task]:
        said = f"{method} reaches the final ELBO of naive alone on {task} in fewer iterations"
        said = f"{OF_SVRG} {task}" if method == "joint_svrg" else said
        row = re.search(rf"{said} \|[^|]*\|[^|]*\| ([^|]+) \| \[([^,]+), ([^\]]+)\]", page)
        if row is not None:
            found[method] = tuple(map(float, row.groups()))
    if end is None or not found:
        raise SystemExit(f"joint_{task}.md has no row on iterations to naive's final ELBO")
    return int(end[1]), found


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
