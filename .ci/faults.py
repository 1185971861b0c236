"""Runs the tests of the fault matrix in docs/reliability.md with their long budgets, and writes their counts into it.

    python .ci/faults.py            # all rows
    python .ci/faults.py kill disk  # the rows whose fault has one of these words; those of other rows stay

Each row names its tests. A test records numbers (`record_property`), such as how many files it damaged; the page has
their sums, from the last run of each test. Exit code 1 if a test fails.
"""

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, KEPT, REPORT = ROOT / "docs/reliability.md", ROOT / "build/faults.json", ROOT / "build/faults.xml"
BEGIN, END = "<!-- counts by .ci/faults.py -->\n", "<!-- end of counts -->\n"
SECONDS = 7200  # of one test, at most


def tests_of(row):
    """The tests that a row names, as ``tests/file.py::name``."""
    return re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", row)


def run(tests):
    """Runs tests, those of a file together, and keeps what they counted; the exit code."""
    code, files = 0, {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    for file, group in files.items():
        command = f"pytest -q -m '' -o junit_family=xunit1 --timeout={SECONDS} --junitxml={REPORT}"
        print(*group, flush=True)
        REPORT.unlink(missing_ok=True)
        on = [".ci/slurm"] if file.startswith("tests/slurm") else []
        code |= subprocess.run([*on, *shlex.split(command), *group], cwd=ROOT, check=False).returncode
        if REPORT.exists():
            KEPT.write_text(json.dumps(kept() | cases(REPORT), indent=1))
    return code


def kept():
    """What the last run of each test counted."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def cases(report):
    """What tests counted: by test, and by ``passed``, ``failed``, ``skipped`` and the names of properties."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        numbers = found.setdefault(test, {"passed": 0, "failed": 0, "skipped": 0})
        bad, skipped = case.find("failure") is not None or case.find("error") is not None, case.find("skipped")
        numbers["failed" if bad else "passed" if skipped is None else "skipped"] += 1
        for one in case.iter("property"):
            numbers[one.get("name")] = numbers.get(one.get("name"), 0) + int(one.get("value"))
    return found


def counts(tests):
    """What tests counted, as text; None if none of them has been run."""
    numbers = Counter()
    for test, counted in kept().items():
        if {test, test.partition("::")[0]} & set(tests):
            numbers.update(counted)
    said = ", ".join(f"{number:,} {name}".replace(",", " ") for name, number in numbers.items() if number)
    return said or None


def when():
    """Date and machine."""
    release = Path("/etc/os-release")
    system = re.search(r'PRETTY_NAME="([^"]*?)( \(.*)?"', release.read_text()) if release.is_file() else None
    date = datetime.date.today()
    name = f"{system[1] if system else platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    return f"Counts of {date.day} {date:%B %Y} ({name}):\n"


def main(words):
    """Runs the rows of the page with these words, or all, and writes their counts."""
    KEPT.parent.mkdir(exist_ok=True)
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
