"""Twelve cells of the reproduction, computed again from the papers' formulas by code that imports no estimator.

A referee's check of the laboratory. The cells were drawn by a seed that was fixed beforehand (`cells_cases/draw.py`).
`cells_cases/PAPER.py` computes each, with the equations in its docstrings; settings come from the experiment's YAML,
data from the prepared arrays, and seeds are their own (`table_2_fixed` takes the published draws, as the page does).
Nothing of the library's or the laboratory's estimators, integrators, searches, engines and reports is imported. A cell
agrees with the page if the verdict is the same, and the value at most three standard errors away (both combined; of
ratios, of their logarithms). A standard error is half an interval divided by 1.96: with few runs, whose interval is
Student's, it is too large, by 62 % with four.

    python benchmarks/cells.py --draw                        # the draw
    python benchmarks/cells.py                               # all cells, about an hour; fills the table of the page
    python benchmarks/cells.py vvcv_lotka:table3-paper-cf-5  # one, beside the rows of the others
    python benchmarks/cells.py --page                        # none: compares the rows with the kept pages again
"""

import csv
import json
import os
import sys

import cells_cases
import numpy as np
from cells_cases import draw
from cells_cases.common import claim, standard_error, verdict, worst
from common import REPOSITORY, about, arguments, fill, number, rounded, table, write  # before JAX

ROWS, PAGE = REPOSITORY / "benchmarks/rows/cells.json", REPOSITORY / "docs/reproduction/README.md"
HEADS = ("paper", "cell", "on the page", "independent", "agree")
MOST = 3.0  # combined standard errors
QUICK = ("ingo_steps:normalised-stays-discus", "vvcv_unbalanced:swapped-no-gain-60")  # the cells that take seconds


def computed(cell: str) -> dict:
    """A cell's effect, that of the worst rival or moment, with its interval, verdict and CPU seconds."""
    before = os.times()
    found = cells_cases.function(cell)()
    seconds = sum(os.times()[:4]) - sum(before[:4])  # with other processes
    test, each = claim(cell)["test"], found if isinstance(found, list) else [found]
    verdicts = [verdict(one, test) for one in each]
    judged = "fails" if "fails" in verdicts else "undecided" if "undecided" in verdicts else "holds"
    one = worst(each, test)
    now = {key: value for key, value in about().items() if key in ("date", "commit")}
    record = {"value": one.value, "low": one.low, "high": one.high, "logs": one.logs, "verdict": judged,
              "repetitions": one.repetitions, "note": one.note, "seconds": seconds}  # fmt: skip
    return rounded({name: float(x) if isinstance(x, np.floating) else x for name, x in record.items()}) | {
        "measured": now
    }


def kept(cell: str) -> dict | None:
    """The claim's row of its page; None if the page has no rows."""
    page, name = cell.split(":")
    path = REPOSITORY / f"docs/reproduction/rows/{page}/claims.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as stream:
        row = next((row for row in csv.DictReader(stream) if row["id"] == name), None)
    return row and row | {name: float(row[name] or "nan") for name in ("ours", "low", "high")}


def apart(record: dict, row: dict) -> float:
    """How many combined standard errors lie between the two values."""
    logs = record["logs"]
    values = [record["value"], row["ours"]]
    values = [np.log(one) for one in values] if logs else values
    errors = [standard_error(one["low"], one["high"], logs) for one in (record, row)]
    gap = abs(values[0] - values[1])
    return float(gap / np.hypot(*errors)) if gap else 0.0


def agreement(record: dict, row: dict | None) -> str:
    """Whether a cell agrees with its page, in words."""
    if row is None:
        return "page without rows"
    far, same = apart(record, row), record["verdict"] == row["verdict"]
    return f"{'yes' if far <= MOST and same else '**no**'}, {far:.1f} standard errors"


def shown(one: dict | None, value: str) -> str:
    """A verdict with the value and its interval."""
    if one is None:
        return ""
    ends = f" [{number(one['low'])}, {number(one['high'])}]" if one["low"] == one["low"] else ""
    return f"{one['verdict']}, {number(one[value])}{ends}"


def lines(found: dict) -> list[tuple]:
    """A row of the table for each drawn cell that is computed."""
    rows = []
    for cell in (cell for cell in draw.DRAWN if cell in found):
        row = kept(cell)
        rows.append((cell.split(":")[0].split("_")[0], f"`{cell}`", shown(row, "ours"), shown(found[cell], "value"),
                     agreement(found[cell], row)))  # fmt: skip
    return rows


def main() -> None:
    parser = arguments(__doc__, "cells")
    parser.set_defaults(out=ROWS)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="PAGE:CLAIM of the draw (default: all)")
    parser.add_argument("--draw", action="store_true", help="only print the draw, from the claims files of its commit")
    parser.add_argument("--page", action="store_true", help=f"only fill {PAGE.name} from what is in --out")
    args = parser.parse_args()
    if unknown := [cell for cell in args.cells if cell not in draw.DRAWN]:
        parser.error(f"CELL {unknown[0]!r} was not drawn; drawn were {', '.join(draw.DRAWN)}")
    if args.draw:
        print("\n".join(draw.draw()))
        return
    found = json.loads(args.out.read_text("utf-8")) if args.out.is_file() else {}
    for cell in () if args.page else args.cells or (draw.DRAWN if args.size == "full" else QUICK):
        found[cell] = computed(cell)
        write(args.out, {cell: found[cell] for cell in draw.DRAWN if cell in found})
        print(f"{cell}: {shown(found[cell], 'value')}; {found[cell]['note']}", flush=True)
    print("\n" + (text := table(HEADS, lines(found))))
    if args.out == ROWS:
        fill(PAGE, "cells", text)
        print(f"\nwrote {PAGE}")
    if "**no**" in text:
        sys.exit(1)


if __name__ == "__main__":
    main()
