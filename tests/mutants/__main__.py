"""Do the tests notice wrong mathematics? Small mutations of it, one at a time, and the default tests that should fail.

    python tests/mutants [--only TEXT ...] [-n PROCESSES]

A mutation replaces a text that occurs once in the files of its name; otherwise it ends at once, since a formula has
moved. The source is copied to a temporary folder, which tests import in place of the tree: the tree is never changed.
First the unchanged source has to pass the tests. A test that takes too long notices too. The exit code is 1 if fewer
than ``LEAST`` of all mutations are noticed.

Libraries are imported once, and each run of tests is a fork that imports lowvar alone: of its seconds, most would
otherwise go to imports.
"""

import argparse
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from listed import MUTANTS

ROOT = Path(__file__).parents[2]
LEAST, SECONDS = 0.95, 300
PASSED, FAILED, INTERRUPTED, LATE = 0, 1, 2, -1  # pytest's exit codes, and that of a run which was ended
CLOCK = iter(range(int(time.time()) + 10, 2**40, 2))  # times of files, so that no byte code is taken for another's
LIBRARIES = ("numpy", "scipy.stats", "pandas", "pyarrow.parquet", "torch", "jax", "optax", "numpyro.infer.autoguide",
             "hypothesis", "yaml", "pydantic", "pytest")  # fmt: skip


class PytestRun(NamedTuple):
    """A run of tests: pytest's exit code, its output, and seconds."""

    code: int
    output: str
    seconds: float


class Copy:
    """A copy of the source in a folder of its own, and the run that uses it."""

    def __init__(self, folder: str):
        self.root = Path(tempfile.mkdtemp(dir=folder))
        shutil.copytree(ROOT / "src", self.root / "src", ignore=shutil.ignore_patterns("__pycache__"))
        self.output = self.root / "output"

    def write(self, file: Path, text: str) -> None:
        """Changes a file of the source."""
        file = self.root / file
        file.write_text(text, encoding="utf-8")
        moment = next(CLOCK)
        os.utime(file, (moment, moment))

    def start(self, test: str) -> None:
        """Begins tests in a process of its own."""
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid:
            return
        code = 99
        try:
            code = self._pytest(located(test))
        finally:
            os._exit(code)

    def _pytest(self, tests: list[str]) -> int:
        import pytest

        os.setsid()
        with self.output.open("wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(ROOT)
        sys.path[0] = str(self.root / "src")
        os.environ["PYTHONPATH"] = sys.path[0]
        import lowvar

        assert Path(lowvar.__file__).is_relative_to(self.root), f"tests would import {lowvar.__file__}"
        at = [str(self.root / one) if one.startswith("src/") else one for one in tests]
        doctests = ["--doctest-modules"] if tests[0].startswith("src/") else []
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *doctests, *at]))

    def ended(self, limit: float) -> PytestRun | None:
        """The run if it has ended, or is ended here as it took longer than ``limit`` seconds."""
        seconds = time.monotonic() - self.began
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and seconds < limit:
            return None
        if not pid:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status) if pid else LATE
        return PytestRun(code, self.output.read_text(errors="replace") if self.output.exists() else "", seconds)


def located(test: str) -> list[str]:
    """pytest's arguments for ``name.py`` or ``name.py:expression``: a file of tests, or of the source with doctests."""
    name, _, expression = test.partition(":")
    under = "tests" if Path(name).name.startswith("test_") else "src"
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
    times = sum(text.count(old) for text in texts.values())
    if times != 1:
        sys.exit(f"mutants: {name}: {old!r} occurs {times} times, not once: the formula has moved")
    ((file, text),) = [(one, text) for one, text in texts.items() if old in text]
    changed = text.replace(old, new)
    compile(changed, name, "exec")
    return file.relative_to(ROOT), changed


def merged(tests: Iterable[str]) -> list[str]:
    """One selection for each file."""
    files: dict[str, set[str]] = {}
    for test in tests:
        name, _, expression = test.partition(":")
        files.setdefault(name, set()).add(expression)
    return [name if "" in some else f"{name}:{' or '.join(sorted(some))}" for name, some in files.items()]


def run_all(copies: list[Copy], works: list, begin: Callable, end: Callable, limit: float) -> None:
    """Runs ``begin(copy, work)`` and, when its tests have ended, ``end(copy, work, run)``, on each copy one at a time."""
    waiting, free, running = deque(works), list(copies), []
    while waiting or running:
        while waiting and free:
            copy, work = free.pop(), waiting.popleft()
            begin(copy, work)
            running.append((copy, work))
        time.sleep(0.02)
        for copy, work in list(running):
            if (run := copy.ended(limit)) is not None:
                running.remove((copy, work))
                free.append(copy)
                end(copy, work, run)


def main() -> int:
    """Runs the mutations that are asked for, and prints each and the share that is noticed."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", default=[""], help="mutations whose file, text or test contains one of these"
    )
    parser.add_argument("-n", type=int, default=1, help="processes at a time")
    parser.add_argument("--list", action="store_true", help="check that every text is there, and end")
    asked = parser.parse_args()
    chosen = [one for one in MUTANTS if any(text in " ".join(one) for text in asked.only)]
    for name, old, new, test in chosen:
        mutated(name, old, new)
        located(test)
    print(f"{len(chosen)} mutations, each text in its place", flush=True)
    if asked.list or not chosen:
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    runpy.run_path(str(ROOT / "conftest.py"))  # the environment of tests, before JAX is imported
    for library in LIBRARIES:
        __import__(library)
    survivors: list[str] = []

    def mutate(copy, mutant):
        copy.write(*mutated(*mutant[:3]))
        copy.start(mutant[3])

    def check(copy, test, run):
        if run.code != PASSED:
            sys.exit(f"mutants: the unchanged source fails {test} ({run.code})\n{run.output[-4000:]}")

    def judge(copy, mutant, run):
        name, old, new, test = mutant
        file, _ = mutated(name, old, new)
        copy.write(file, (ROOT / file).read_text(encoding="utf-8"))
        if run.code not in (PASSED, FAILED, INTERRUPTED, LATE):
            sys.exit(f"mutants: {name}, {test}: pytest ended with {run.code}\n{run.output[-4000:]}")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", run.output, re.M)
        by = "it takes too long" if run.code == LATE else failed[1].rpartition("::")[2] if failed else test
        change = f"{name}: {old!r} -> {new!r}"
        print(f"{'SURVIVED' if run.code == PASSED else 'noticed '} {run.seconds:5.1f} s  {change}  ({by})", flush=True)
        survivors.extend([change] if run.code == PASSED else [])

    with tempfile.TemporaryDirectory(prefix="lowvar-mutants-") as folder:
        copies = [Copy(folder) for _ in range(asked.n)]
        tests = merged(test for *_, test in chosen)
        run_all(copies, tests, Copy.start, check, 10 * SECONDS)
        print(f"the unchanged source passes the tests of {len(tests)} files", flush=True)
        run_all(copies, chosen, mutate, judge, SECONDS)
    share = 1 - len(survivors) / len(chosen)
    print(f"noticed: {len(chosen) - len(survivors)} of {len(chosen)} ({share:.1%}); at least {LEAST:.0%} are asked for")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
