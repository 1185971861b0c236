"""Runs one part of the tests: ``part.py NAME COMMAND``. Its output goes to logs/test/NAME.log.

Prints one line: the part's seconds and, for pytest, the counts of its tests and the peak memory of its workers; or why
the part was skipped. If the part fails, the end of the log comes first.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

SHOWN = 150  # lines of a failure


def main(name, command):
    """The command's exit code."""
    log = Path("logs/test") / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with log.open("w") as file:
        code = subprocess.run(command, shell=True, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    seconds = time.monotonic() - start
    lines = log.read_text(errors="replace").splitlines()
    counts = [line.strip("= ") for line in lines if re.search(r"\d+ (passed|failed|errors?)\b.* in [\d.]+", line)][-1:]
    memory = [line for line in lines if line.startswith("peak memory")][-1:]
    if code:
        print(*lines[-SHOWN:], sep="\n")
    skipped = [line for line in lines if line.startswith("skipped: ")][-1:]
    note = "; ".join([*counts, *memory, *skipped]) if not code else f"details: {log}"
    print(f"{'FAILED' if code else 'ok':<7}{name:<10}{seconds:6.0f} s   {note}".rstrip(), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], " ".join(sys.argv[2:])))
