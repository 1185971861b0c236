"""What finished jobs asked of a cluster, against what they took: ``python workflow/costs.py [logs/quick]``.

Reads the benchmark records of the workflow (``logs/**/*.tsv``) and prints a line for each rule. A factor is the time or
the memory that a job asked for, divided by what it took; the smallest of a rule is printed. Below 1, a cluster would
kill the job, and it would be retried with more: the exit code is then 1.
"""

import ast
import csv
import re
import sys
from pathlib import Path


def records(folder):
    """The jobs below ``folder`` as (rule, seconds, asked seconds, MB or None, asked MB)."""
    found = []
    for path in sorted(Path(folder).rglob("*.tsv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        for row in rows:
            asked = ast.literal_eval(row.get("resources") or "{}")
            if "runtime" in asked and "mem_mb" in asked:  # else it runs where Snakemake does
                rule = re.sub(r"^.*_(tables|seconds|figures)$", r"\1", row["rule_name"])
                measured = None if row["max_rss"] in ("NA", "-") else float(row["max_rss"])
                found.append((rule, float(row["s"]), 60 * asked["runtime"], measured, asked["mem_mb"]))
    return found


def table(found):
    """Lines of text, and whether a job took more than it asked for."""
    lines = [f"{'rule':<12}{'jobs':>5}{'seconds':>14}{'asked':>8}{'factor':>8}{'MB':>14}{'asked':>8}{'factor':>8}"]
    least = float("inf")
    for rule in sorted({record[0] for record in found}):
        of = [record for record in found if record[0] == rule]
        seconds, memory = [(took, asked) for _, took, asked, *_ in of], [pair[3:] for pair in of if pair[3]]
        line = f"{rule:<12}{len(of):>5}"
        for pairs in (seconds, memory):
            if not pairs:
                line += f"{'-':>14}{'-':>8}{'-':>8}"
                continue
            factor, asked = min((asked / took, asked) for took, asked in pairs)
            least = min(least, factor)
            span = f"{min(pairs)[0]:.0f} to {max(pairs)[0]:.0f}"
            line += f"{span:>14}{asked:>8.0f}{factor:>8.1f}"
        lines.append(line)
    return lines, least < 1


def main(folder="logs"):
    """Prints the table; the exit code."""
    found = records(folder)
    if not found:
        sys.exit(
            f"{folder}: no records of what jobs asked for; run the workflow anew, with --benchmark-extended, which the "
            "profiles set"
        )
    lines, short = table(found)
    print(*lines, sep="\n")
    if short:
        print("a factor is below 1: such a job would be killed and retried with more")
    return int(short)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
