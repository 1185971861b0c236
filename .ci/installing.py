"""Runs pip and shows that it goes on: ``installing.py LOG pip ...``. Its output goes to LOG.

Every few seconds, prints the time so far and the last line of pip; if pip fails, the end of its output.
"""

import subprocess
import sys
import time
from pathlib import Path

SECONDS = 20  # between two lines
WIDTH, SHOWN = 72, 20  # of a line, and lines of a failure


def main(log, *command, seconds=SECONDS):
    """The exit code of the command."""
    log, start = Path(log), time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
        while True:
            try:
                code = process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
                last = next((line for line in reversed(lines) if not line.startswith("WARNING")), "starting")
                print(f"  {time.monotonic() - start:4.0f} s  {last[:WIDTH]}", flush=True)
    if code:
        print(*log.read_text(errors="replace").splitlines()[-SHOWN:], f"full output: {log}", sep="\n")
    else:
        print(f"installed in {time.monotonic() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
