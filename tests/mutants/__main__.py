"""Do the tests notice wrong mathematics? Small mutations of it, one at a time, and the default tests that should fail.

    python tests/mutants [--only TEXT] [-n WORKERS]

A mutation replaces a text that occurs once in the files of its name; otherwise it ends at once, since a formula has
moved. The source is copied to a temporary folder, which tests import in place of the tree: the tree is never changed.
First the unchanged source has to pass the tests. A test that takes too long notices too. The exit code is 1 if fewer
than ``LEAST`` of all mutations are noticed.
"""

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from listed import MUTANTS

ROOT = Path(__file__).parents[2]
LEAST, SECONDS = 0.95, 300
PASSED, FAILED, INTERRUPTED, NOTHING = 0, 1, 2, 5  # pytest's exit codes
CLOCK = iter(
    range(int(time.time()) + 10, 2**40, 2)
)  # times of files, so that no byte code is taken for that of another


class Copy:
    """A copy of the source in a folder of its own."""

    def __init__(self, folder: str):
        self.source = Path(tempfile.mkdtemp(dir=folder)) / "src"
        shutil.copytree(ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = {**os.environ, "PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1"}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        where = self.run([sys.executable, "-c", "import lowvar; print(lowvar.__file__)"]).stdout.strip()
        assert Path(where).is_relative_to(self.source), f"tests would import {where}"

    def run(self, command: list[str], seconds: float = 10 * SECONDS) -> subprocess.CompletedProcess:
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def pytest(self, tests: list[str], seconds: float = 10 * SECONDS) -> subprocess.CompletedProcess:
        """Runs tests as ``located`` gives them; those of the source are its doctests."""
        at = [str(self.source.parent / one) if one.startswith("src/") else one for one in tests]
        doctests = ["--doctest-modules"] if any(one.startswith("src/") for one in tests) else []
        options = ["-q", "-x", "-p", "no:cacheprovider", "--durations=0", "--no-header"]
        return self.run([sys.executable, "-m", "pytest", *options, *doctests, *at], seconds)

    def write(self, file: Path, text: str) -> None:
        file = self.source.parent / file
        file.write_text(text, encoding="utf-8")
        moment = next(CLOCK)
        os.utime(file, (moment, moment))


def located(test: str) -> list[str]:
    """pytest's arguments for ``name.py`` or ``name.py:expression``: a file of tests, or of the source with doctests."""
    name, _, expression = test.partition(":")
    under = "tests" if Path(name).name.startswith("test_") else "src/lowvar"
    found = [one.relative_to(ROOT).as_posix() for one in (ROOT / under).rglob(Path(name).name)]
    found = [one for one in found if one.endswith(f"/{name}")]
    if len(found) != 1:
        sys.exit(
            f"mutants: the test file {name!r} is {found or 'not there'}; name one file, if need be with its folder"
        )
    return [found[0], *(["-k", expression] if expression else [])]


def mutated(name: str, old: str, new: str) -> tuple[Path, str]:
    """The file of this name that has the text ``old``, and its mutated content."""
    files = [one for one in (ROOT / "src").rglob(Path(name).name) if one.as_posix().endswith(f"/{name}")]
    texts = {one: one.read_text(encoding="utf-8") for one in files}
    if sum(text.count(old) for text in texts.values()) != 1:
        times = sum(text.count(old) for text in texts.values())
        sys.exit(f"mutants: {name}: {old!r} occurs {times} times, not once: the formula has moved")
    ((file, text),) = [(one, text) for one, text in texts.items() if old in text]
    changed = text.replace(old, new)
    compile(changed, name, "exec")
    return file.relative_to(ROOT), changed


def noticed(copy: Copy, name: str, old: str, new: str, test: str) -> tuple[bool, str]:
    """Whether the test fails under a mutation, and what it said."""
    file, changed = mutated(name, old, new)
    copy.write(file, changed)
    try:
        done = copy.pytest(located(test), SECONDS)
    except subprocess.TimeoutExpired:
        return True, "it takes too long"
    finally:
        copy.write(file, (ROOT / file).read_text(encoding="utf-8"))
    if done.returncode not in (PASSED, FAILED, INTERRUPTED):
        sys.exit(f"mutants: {name}, {test}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return done.returncode != PASSED, failed[1].rpartition("::")[2] if failed else ""


def merged(tests: Iterable[str]) -> list[str]:
    """One selection for each file."""
    files: dict[str, set[str]] = {}
    for test in tests:
        name, _, expression = test.partition(":")
        files.setdefault(name, set()).add(expression)
    return [name if "" in some else f"{name}:{' or '.join(sorted(some))}" for name, some in files.items()]


def main() -> int:
    """Runs the mutations that are asked for, and prints each and the share that is noticed."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutations whose file, text or test contains this")
    parser.add_argument("-n", type=int, default=1, help="processes at a time")
    parser.add_argument("--list", action="store_true", help="check that every text is there, and end")
    asked = parser.parse_args()
    chosen = [one for one in MUTANTS if asked.only in " ".join(one)]
    for name, old, new, test in chosen:
        mutated(name, old, new)
        located(test)
    print(f"{len(chosen)} mutations, each text in its place")
    if asked.list or not chosen:
        return 0
    with tempfile.TemporaryDirectory(prefix="lowvar-mutants-") as folder, ThreadPoolExecutor(asked.n) as pool:
        copies: queue.Queue[Copy] = queue.Queue()
        for _ in range(asked.n):
            copies.put(Copy(folder))

        def one(work):
            copy = copies.get()
            try:
                start = time.monotonic()
                return work(copy), time.monotonic() - start
            finally:
                copies.put(copy)

        tests = merged(test for *_, test in chosen)
        works = [lambda copy, test=test: copy.pytest(located(test)) for test in tests]
        for test, (done, _) in zip(tests, pool.map(one, works), strict=True):
            if done.returncode != PASSED:
                sys.exit(f"mutants: the unchanged source fails {test} ({done.returncode})\n{done.stdout[-4000:]}")
        print(f"the unchanged source passes the tests of {len(tests)} files", flush=True)
        survivors = []
        works = [lambda copy, mutant=mutant: noticed(copy, *mutant) for mutant in chosen]
        for (name, old, new, test), ((seen, by), seconds) in zip(chosen, pool.map(one, works), strict=True):
            change = f"{name}: {old!r} -> {new!r}"
            print(f"{'noticed ' if seen else 'SURVIVED'} {seconds:5.1f} s  {change}  ({by or test})", flush=True)
            survivors += [] if seen else [change]
    share = 1 - len(survivors) / len(chosen)
    print(f"noticed: {len(chosen) - len(survivors)} of {len(chosen)} ({share:.1%}); at least {LEAST:.0%} are asked for")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
