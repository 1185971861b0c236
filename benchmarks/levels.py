"""Seconds until the ELBO at which the plain gradient ends, from what is kept in this repository: nothing is run.

A number of seconds is the product of the iterations on the kept pages of `docs/reproduction` and the median seconds of
a step in `workflow/times`. The ratio takes the geometric mean of the steps' ratios over the alternating rounds; its
interval is that of a product of independent factors.
Usage: `python benchmarks/levels.py`; it prints the rows of the table in `docs/reproduction/paper-joint.md`.
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
from vi_step import add_sizes, write

from lowvar.analysis.intervals import mean_interval

TASKS = ("mnist", "tennis", "ppca", "movielens")
REPOSITORY = Path(__file__).parents[1]
PAGES, TIMES = REPOSITORY / "docs/reproduction", REPOSITORY / "workflow/times"


def iterations(task: str) -> tuple[int, tuple[float, ...]]:
    """Of ``naive`` to its end, and of ``joint_svrg`` to that ELBO relative to it, with its interval."""
    page = (PAGES / f"joint_{task}.md").read_text(encoding="utf-8")
    row = rf"magnitude fewer iterations than naive on {task} \|[^|]*\|[^|]*\| ([^|]+) \| \[([^,]+), ([^\]]+)\]"
    ratio, end = re.search(row, page), re.search(r"nats ahead of \w+ after (\d+) iterations", page)
    if ratio is None or end is None:
        raise SystemExit(f"joint_{task}.md has no row on iterations to naive's final ELBO")
    return int(end[1]), tuple(map(float, ratio.groups()))


def level(task: str) -> dict:
    """A task's row of the table."""
    steps = json.loads((TIMES / f"{task}.json").read_text(encoding="utf-8"))["steps"]
    naive, svrg = (next(np.array(one["seconds"]) for one in steps if one["method"] == name)
                   for name in ("naive", "joint_svrg"))  # fmt: skip
    (count, (fewer, fewest, most)), (pace, *_, high) = iterations(task), mean_interval(np.log(svrg / naive))
    below, above = (math.hypot(math.log(one), high - pace) for one in (fewer / fewest, most / fewer))
    ratio = fewer * math.exp(pace)
    return {
        "task": task, "iterations": count, "naive": count * float(np.median(naive)),
        "joint_svrg": count * fewer * float(np.median(svrg)), "ratio": ratio,
        "low": ratio * math.exp(-below), "high": ratio * math.exp(above),
    }  # fmt: skip


def line(row: dict) -> str:
    """A row in Markdown."""
    cells = (row["task"], f"{row['iterations']}", f"{row['naive']:.1f} s", f"{row['joint_svrg']:.1f} s",
             f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]")  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "the same")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/levels.json"), help="JSON file")
    args = parser.parse_args(argv)
    rows = [level(task) for task in TASKS]
    print("| task | naive: iterations | naive | joint_svrg | ratio of seconds |\n|---|---|---|---|---|")
    print("\n".join(map(line, rows)))
    write(args.out, {"runs": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
