"""Runs the tests of the fault matrix in docs/reliability.md with their long budgets, and writes their counts into it.

    python .ci/faults.py            # all rows
    python .ci/faults.py kill disk  # the rows whose fault has one of these words; those of other rows stay

Each row names its tests. A test records numbers (`record_property`), such as how many files it damaged; the page has
their sums, from the last run of each test, with the commit and the date of that run. Exit code 1 if a test fails.
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
PAGE, RECORD, REPORT = ROOT / "docs/reliability.md", ROOT / "build/faults.json", ROOT / "build/faults.xml"
BEGIN, END = "<!-- counts by .ci/faults.py -->\n", "<!-- end of counts -->\n"
SECONDS = 7200  # of one test, at most
COLUMNS = ("fault", "what happens", "test", "counts", "measured at")


def tests_of(row):
    """The tests that a row names, as ``tests/file.py::name``."""
    return re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", row)


def run(tests):
    """Runs tests, those of a file together, and keeps what they counted; the exit code."""
    code, files, at = 0, {}, f"`{commit()}` {datetime.date.today()}"
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    for file, group in files.items():
        command = f"pytest -q -m '' -o junit_family=xunit1 --timeout={SECONDS} --junitxml={REPORT}"
        print(*group, flush=True)
        REPORT.unlink(missing_ok=True)
        on = [".ci/slurm"] if file.startswith("tests/slurm") else []
        code |= subprocess.run([*on, *shlex.split(command), *group], cwd=ROOT, check=False).returncode
        if REPORT.exists():
            found = {test: {"at": at, "counts": numbers} for test, numbers in cases(REPORT).items()}
            RECORD.write_text(json.dumps(last_runs() | found, indent=1))
    return code


def last_runs():
    """The counts of the last run of each test, and its commit; runs without a commit are left out."""
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {test: last for test, last in found.items() if "at" in last}


def cases(report):
    """The counts of tests: by test, and by ``passed``, ``failed``, ``skipped`` and the names of properties."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        numbers = found.setdefault(test, {"passed": 0, "failed": 0, "skipped": 0})
        bad, skipped = case.find("failure") is not None or case.find("error") is not None, case.find("skipped")
        numbers["failed" if bad else "passed" if skipped is None else "skipped"] += 1
        for one in case.iter("property"):
            numbers[one.get("name")] = numbers.get(one.get("name"), 0) + int(one.get("value"))
    return found


def counted(tests):
    """The counts of tests, and the commits and dates of their last runs, as text; None if none of them has been run."""
    numbers, at = Counter(), {}
    for test, last in last_runs().items():
        if {test, test.partition("::")[0]} & set(tests):
            numbers.update(last["counts"])
            at[last["at"]] = None
    said = ", ".join(f"{number:,} {name}".replace(",", " ") for name, number in numbers.items() if number)
    return [said, ", ".join(at)] if said else None


def commit():
    """The commit that is tested, and whether files other than the page differ from it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    others = ["--", ".", f":!{PAGE.relative_to(ROOT)}"]
    same = subprocess.run([*git, "diff", "--quiet", "HEAD", *others], check=False).returncode == 0
    return name if same else f"{name} with edits"


def machine():
    """In words."""
    release = Path("/etc/os-release")
    system = re.search(r'PRETTY_NAME="([^"]*?)( \(.*)?"', release.read_text()) if release.is_file() else None
    name = f"{system[1] if system else platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    return f"Machine: {name}.\n"


def page():
    """What comes before the table, its rows and what comes after it."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    body, after = rest.split(END)
    return before, [line.strip("| ").split(" | ") for line in body.splitlines() if tests_of(line)], after


def main(words):
    """Runs the rows of the page with these words, or all, and writes their counts."""
    RECORD.parent.mkdir(exist_ok=True)
    chosen = [row for row in page()[1] if not words or any(word in row[0].lower() for word in words)]
    code = run(list(dict.fromkeys(test for row in chosen for test in tests_of(row[2]))))
    before, rows, after = page()  # again: hours have passed
    for row in rows:
        row[3:] = counted(tests_of(row[2])) or [*row[3:], "", ""][:2]
    lines = [machine(), *(f"| {' | '.join(row)} |" for row in (COLUMNS, ["---"] * len(COLUMNS), *rows))]
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main([word.lower() for word in sys.argv[1:]]))
