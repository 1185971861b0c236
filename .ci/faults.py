"""Runs the tests of the fault matrix in docs/reliability.md with their long budgets, and writes their counts into it.

    python .ci/faults.py            # all rows
    python .ci/faults.py kill disk  # the rows whose fault has one of these words; those of other rows stay

Each row names its tests. A test records numbers (`record_property`), such as how many files it damaged; the page has
their sums, from the last run of each test. Exit code 1 if a test fails.
"""

import datetime
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, REPORTS = ROOT / "docs/reliability.md", ROOT / "build/faults"
BEGIN, END = "<!-- counts by .ci/faults.py -->\n", "<!-- end of counts -->\n"
SECONDS = 7200  # of one test, at most


def tests_of(row):
    """The tests that a row names, as ``tests/file.py::name``."""
    return re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", row)


def run(tests):
    """Runs tests, those on Slurm together on a Slurm of their own; the exit code."""
    slurm = [test for test in tests if test.startswith("tests/slurm")]
    code = 0
    for number, group in enumerate([*([test] for test in tests if test not in slurm), slurm]):
        if not group:
            continue
        report = REPORTS / f"{re.sub(r'[^a-z_]+', '-', group[0].removeprefix('tests/'))}.xml"
        report.unlink(missing_ok=True)
        command = ["pytest", "-q", "-m", "", f"--timeout={SECONDS}", f"--junitxml={report}", *group]
        print(f"{number + 1} of {len(tests)}: {' '.join(group)}", flush=True)
        code |= subprocess.run([".ci/slurm", *command] if group == slurm else command, cwd=ROOT, check=False).returncode
    return code


def counts(tests):
    """What the last run of the tests counted, as text; None if they have not been run."""
    ended, numbers, reasons = Counter(), Counter(), set()
    for report in sorted(REPORTS.glob("*.xml")):
        for case in ET.parse(report).iter("testcase"):
            file = case.get("classname", "").replace(".", "/") + ".py"
            if not {file, f"{file}::{case.get('name', '').partition('[')[0]}"} & set(tests):
                continue
            bad, skipped = case.find("failure") is not None or case.find("error") is not None, case.find("skipped")
            ended["failed" if bad else "passed" if skipped is None else "skipped"] += 1
            reasons |= set() if skipped is None else {skipped.get("message", "")}
            for one in case.iter("property"):
                numbers[one.get("name", "")] += int(one.get("value", "0"))
    if not ended:
        return None
    words = [f"{count} {word}" for word, count in sorted(ended.items())]
    words += [f"{count:,} {name}".replace(",", " ") for name, count in numbers.items()]
    return ", ".join(words) + "".join(f" ({reason})" for reason in sorted(reasons))


def when():
    """Date and machine."""
    release = Path("/etc/os-release")
    system = re.search(r'PRETTY_NAME="([^"]*?)( \(.*)?"', release.read_text()) if release.is_file() else None
    date = datetime.date.today()
    name = f"{system[1] if system else platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    return f"Counts of {date.day} {date:%B %Y} ({name}):\n"


def main(words):
    """Runs the rows of the page with these words, or all, and writes their counts."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    body, after = rest.split(END)
    rows = [line.split(" | ") for line in body.splitlines() if tests_of(line)]
    chosen = [row for row in rows if not words or any(word in row[0].lower() for word in words)]
    code = run(list(dict.fromkeys(test for row in chosen for test in tests_of(row[2]))))
    for row in rows:
        if said := counts(tests_of(row[2])):
            row[3:] = [f"{said} |"]
    head = [line for line in body.splitlines() if line.startswith("|") and not tests_of(line)]
    lines = [when(), *head, *(" | ".join(row) for row in rows)]
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main([word.lower() for word in sys.argv[1:]]))
