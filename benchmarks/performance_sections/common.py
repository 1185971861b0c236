"""What a section is: measurements, each with a record in git, and a function that writes them down."""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).parents[2]
RECORDS = REPOSITORY / "benchmarks/records"
FIGURES = REPOSITORY / "docs/figures"
_PACKAGES = ("lowvar", "jax", "numpyro", "optax", "torch", "pyro-ppl", "numpy", "cma", "cmaes", "evosax")


@dataclass(frozen=True)
class Measurement:
    """One run of a benchmark; its record is ``records/NAME.json``.

    Attributes:
        name: of the record.
        command: a file of ``benchmarks`` and its arguments.
        keep: the part of the benchmark's JSON output that the record holds.
    """

    name: str
    command: str
    keep: Callable[[dict], dict] = lambda found: found

    @property
    def path(self) -> Path:
        return RECORDS / f"{self.name}.json"

    def record(self) -> dict:
        """What was measured, ``{"command", "measured", "result"}``."""
        return json.loads(self.path.read_text("utf-8"))

    def kept(self, found: dict, measured: dict) -> dict:
        """Writes the record of an output that was ``measured`` so: see ``about``."""
        record = {"command": self.command, "measured": measured, "result": rounded(self.keep(found))}
        RECORDS.mkdir(exist_ok=True)
        self.path.write_text(dumped(record), "utf-8")
        return record


NOT_PROFILED = "not profiled"


@dataclass(frozen=True)
class Aim:
    """A number that was aimed at; a missed one needs a limit: what keeps it there, or ``NOT_PROFILED``.

    Attributes:
        what: the number, in words.
        value: as measured.
        bound: as aimed.
        below: whether the value should be at most the bound; else at least.
        limit: why it is missed, by a record of that very case.
    """

    what: str
    value: float
    bound: float
    below: bool = True
    limit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.bound if self.below else self.value >= self.bound

    @property
    def word(self) -> str:
        """For the cell of a table: ``aim 1.5: met``."""
        return f"aim {self.bound:g}: {'met' if self.met else '**missed**'}"


@dataclass
class Section:
    """A part of the page.

    Attributes:
        title: its heading.
        measurements: whose results it shows.
        write: ``(results by name, aims) -> text`` in Markdown; it adds its aims to the list.
        figure: ``(results) -> (stem, panels)``, the stem of its file and what ``figures.draw`` draws; None without one.
    """

    title: str
    measurements: tuple[Measurement, ...]
    write: Callable[[dict[str, Any], list[Aim]], str]
    figure: Callable[[dict[str, Any]], tuple] | None = None

    def results(self) -> dict[str, Any]:
        """The results of its records, by name."""
        return {one.name: one.record()["result"] for one in self.measurements}


OPERATORS = Measurement("operators", "operators.py")


def operators(results: dict[str, Any], *cases: str) -> str:
    """What a step in PyTorch is made of, the first case's beside those of the others."""
    found = results["operators"]
    first, least = found["cases"][cases[0]], found["smallest"]
    kinds = sorted(first["shares"].items(), key=lambda kind: -kind[1])
    shares = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in kinds if share >= 0.05)
    beside = "".join(
        f"; {case.rpartition(': ')[2]}: {number(found['cases'][case]['calls'], 3)} calls, "
        f"{number(found['cases'][case]['microseconds'], 3)} µs" for case in cases[1:]
    )  # fmt: skip
    return (
        f"{number(first['calls'], 3)} calls of PyTorch's operators in {number(first['microseconds'], 3)} µs, where one "
        f"on a single number takes {number(least)} ({shares}){beside}"
    )


def about() -> dict:
    """Where and with what a measurement is made now."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit(),
        "source": source(), "processor": processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(), "packages": packages,
    }  # fmt: skip


# of an output that does not say where it comes from
UNKNOWN = {"date": "unknown", "commit": "unknown", "source": "", "processor": ""}


def commit() -> str:
    """The last commit, and whether ``src`` or the benchmarks differ from it."""
    name = git("rev-parse", "--short", "HEAD")
    edits = git("status", "--porcelain", "src", "benchmarks", ":!benchmarks/records")
    return f"{name} with edits" if edits else name


def source() -> str:
    """The state of ``src``: a measurement of the same state need not be repeated. Empty if it is not committed."""
    return "" if git("status", "--porcelain", "src") else git("rev-parse", "--short", "HEAD:src")


def git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=REPOSITORY, capture_output=True, text=True)
    return done.stdout.strip()


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def rounded(value: Any) -> Any:
    """A tree of JSON with floats of six digits: records are read and compared by people."""
    if isinstance(value, Mapping):
        return {str(key): rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float | np.floating) else value


def dumped(record: dict) -> str:
    """JSON for people: a list of numbers is a line."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


# --- words ---------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float, digits: int = 2) -> str:
    """A number with so many significant digits, without an exponent where it can be read without.

    >>> number(0.0971), number(2.714), number(123.4), number(0.98), number(60000), number(5e-7)
    ('0.097', '2.7', '123', '0.98', '60 000', '5e-7')
    """
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    power = int(np.floor(np.log10(abs(float(f"{value:.{digits - 1}e}")))))
    if power >= digits - 1:
        return f"{value:,.0f}".replace(",", " ")
    if power < -4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.{digits - 1 - power}f}"


def ratio(values, digits: int = 0) -> str:
    """A value with its range, to the decimals of the value; of more numbers, the first three count.

    Two significant digits, three between 1 and 2, or so many ``digits``.

    >>> ratio([1.234, 1.1, 12.3]), ratio([0.0083, 0.008, 0.01]), ratio([17234.0, 16500.0, 18000.0], 3)
    ('1.23 [1.10, 12.30]', '0.0083 [0.0080, 0.0100]', '17 234 [16 500, 18 000]')
    """
    decimals = len(number(values[0], digits or (3 if 1 <= values[0] < 2 else 2)).partition(".")[2])
    middle, low, high = (f"{one:,.{decimals}f}".replace(",", " ") for one in values[:3])
    return f"{middle} [{low}, {high}]"


def spread(values) -> list[float]:
    """Median, smallest and largest."""
    return [float(np.median(values)), float(np.min(values)), float(np.max(values))]


def rows_of(runs: list[dict]) -> dict[str, list[float]]:
    """``{case: [ratio, low, high, microseconds of a step]}`` of the tables of ``vi_step.summary``."""
    keys = ("ratio", "ratio_low", "ratio_high", "microseconds_per_step")
    return {row["case"]: [row[key] for key in keys] for row in runs}
