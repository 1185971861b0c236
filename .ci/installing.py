"""Installs into an environment, and shows that it goes on: ``installing.py LOG PYTHON ARGUMENTS_OF_PIP_INSTALL``.

uv installs, in a quarter of pip's time, with pip's own indexes and certificates (uv reads no settings of pip); where uv
is not to be had, or fails, pip does. Their output goes to LOG. Every few seconds, prints the time so far and the last
line; if pip fails too, the end of the output.

Beside the constraints of ``-c NAME.txt``, ``NAME-hashes.txt`` has the hashes of their files (``make hashes``). uv
checks them, its own too, and a file with another hash ends the installation. pip cannot check them beside an editable
package.
"""

import ast
import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

SECONDS = 20  # between two lines
WIDTH, SHOWN = 72, 20  # of a line, and lines of a failure
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UV = {  # pip's settings as variables of uv's, and what separates the entries of a list
    "cert": ("SSL_CERT_FILE", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "no-index": ("UV_NO_INDEX", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}


def settings(listed):
    """The variables that tell uv what ``pip config list`` says; it prints a line ``section.name='value'`` for each."""
    values = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        values[section, name.removeprefix("default-")] = value
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # of all indexes, as pip
    for section in ("global", "install", ":env:"):  # the later ones win
        for name, (variable, separator) in UV.items():
            if (section, name) in values:
                found[variable] = separator.join(str(ast.literal_eval(values[section, name])).split())
    return found


def hashes_of(arguments):
    """The files of hashes beside the constraints among pip's arguments."""
    beside = (
        Path(name).with_name(f"{Path(name).stem}-hashes.txt") for flag, name in pairwise(arguments) if flag == "-c"
    )
    return [file for file in beside if file.is_file()]


def with_uv(log, python, *arguments):
    """uv's command and environment, if it can be installed; otherwise nothing."""
    constraints = [word for pair in pairwise(arguments) if pair[0] == "-c" for word in pair]
    checks = hashes_of(arguments)
    own = "".join(block for file in checks for block in re.findall(r"^uv==(?:.*\\\n)*.*\n", file.read_text(), re.M))
    wanted = ["--no-deps", "--require-hashes", "-r", "/dev/stdin"] if own else [*constraints, "uv"]
    done = subprocess.run([*PIP, "install", "-q", *wanted], capture_output=True, text=True, input=own, check=False)
    if done.returncode:
        log.write_text(done.stdout + done.stderr)
        return None
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    command = [sys.executable, "-m", "uv", "pip", "install", "--python", python, *arguments]
    return [*command, *(word for file in checks for word in ("-c", str(file)))], os.environ | settings(listed)


def another_file(log):
    """Whether pip or uv refused a file whose hash is another."""
    return bool(re.search("hash mismatch|do not match the hashes", log.read_text(errors="replace"), re.I))


def shown(command, log, start, seconds, **options):
    """The command's exit code."""
    with log.open("a") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options) as process:
        while True:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
                last = next((line for line in reversed(lines) if not line.startswith("WARNING")), "starting")
                print(f"  {time.monotonic() - start:4.0f} s  {last[:WIDTH]}", flush=True)


def main(log, python, *arguments, seconds=SECONDS):
    """The exit code of the installer."""
    log, start = Path(log), time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    uv = with_uv(log, python, *arguments)
    code = shown(uv[0], log, start, seconds, env=uv[1]) if uv else 1
    checks = ", ".join(map(str, hashes_of(arguments)))
    if code and another_file(log):
        print(f"not installed: a file has another hash than in {checks}")
    elif code:
        if checks:
            print("  pip installs, since uv does not: hashes are not checked", flush=True)
        pip = [*PIP, "--python", python, "install", "--no-compile", "--progress-bar", "off", *arguments]
        code = shown(pip, log, start, seconds)
    if code:
        lines = log.read_text(errors="replace").splitlines()
        print(*lines[-SHOWN:], f"full output: {log}", sep="\n")
        return code
    print(f"installed in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
