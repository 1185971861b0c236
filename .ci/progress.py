"""Runs Snakemake and shows its progress: ``progress.py LOG snakemake ...``. Snakemake's output goes to LOG.

A terminal shows one line that is updated; a file or a pipe gets a line for each tenth of the jobs.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import yaml

SHOWN = 20  # lines of a failure

TOTAL = re.compile(r"^total +(\d+)$")
STARTED = re.compile(r"^(?:local)?rule (\w+):$")
WILDCARDS = re.compile(r"^    wildcards: (.*)$")
DONE = re.compile(r"^(\d+) of (\d+) steps")
TROUBLE = re.compile(r"^(Error in |\w*(Error|Exception)\b|lowvar: |snakemake: error|lowvar is not)")


def clock(seconds):
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def main(log, *command):
    """Snakemake's exit code."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    params = yaml.safe_load(Path("params.yaml").read_text())
    print(f"making {', '.join(params['experiments'])} at scale {params['scale']}, as params.yaml says", flush=True)
    start, tenth, rule, doing, trouble = time.monotonic(), 0, "", "", []
    in_place = sys.stdout.isatty()
    with (
        Path(log).open("w") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        for line in process.stdout:
            file.write(line)
            file.flush()
            if trouble or TROUBLE.match(line):
                trouble.append(line.rstrip())
            elif found := TOTAL.match(line):
                print(f"{found[1]} jobs; each one's log is in logs/, Snakemake's in {log}", flush=True)
            elif found := STARTED.match(line):
                rule = doing = found[1]
            elif found := WILDCARDS.match(line):
                doing = " ".join([rule, *(part.partition("=")[2] for part in found[1].split(", "))])
            elif found := DONE.match(line):
                done, total = int(found[1]), int(found[2])
                if in_place or 10 * done // total > tenth:
                    tenth = 10 * done // total
                    so_far = clock(time.monotonic() - start)
                    said = f"{100 * done // total:4d} %  {done:4d} of {total} jobs  {so_far:>6}  "
                    said += f"last started: {doing}" if done < total else ""
                    said, end = (f"\r\033[K{said[:100]}", "") if in_place else (said.rstrip(), "\n")
                    print(said, end=end, flush=True)
    took = clock(time.monotonic() - start)
    if in_place and tenth:
        print()
    if process.returncode:
        rest = trouble or Path(log).read_text().splitlines()[-SHOWN:]
        print(*rest[:SHOWN], f"failed after {took}; full output: {log}", sep="\n")
    elif not tenth:
        print(f"nothing to be done: results are up to date ({took})")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
