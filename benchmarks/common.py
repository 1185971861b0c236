"""Parts that all benchmarks share: sizes, alternating timings, records, and tables in pages.

A record is a list of cases: ``{"case", "unit", "against", "numbers", "measured"}``. ``numbers`` has for each name of
what is compared a ``value`` in the unit, a ``ratio = [median, smallest, largest]`` to that of ``against`` over
alternating rounds, a bound ``most`` or ``least`` (an aim: of the ratio, or of the value where there is no ratio) and a
``note``; each where it applies. ``measured`` has date, commit and processor.
"""

import os

# one thread; before the libraries are imported, so a benchmark imports this module first
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import argparse
import json
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.core.files import write_text

REPOSITORY = Path(__file__).parents[1]
RECORDS = REPOSITORY / "benchmarks/records"
PACKAGES = ("lowvar", "jax", "numpyro", "optax", "torch", "pyro-ppl", "numpy", "scipy", "cma", "cmaes", "evosax")
SPEED = ("answer", "steps", "fits", "decompose", "search", "integrals")  # benchmarks with a record
COLUMNS = ("case", "unit", "value, or ratio to the first [smallest, largest]", "date", "commit")


def one_core() -> None:
    """Keeps all thread pools of this process on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def clock() -> float:
    """CPU seconds, which other jobs influence less; on a GPU, for which a process waits, wall-clock seconds."""
    return time.process_time() if on_cpu() else time.perf_counter()


def on_cpu() -> bool:
    """Whether JAX computes on a CPU."""
    import jax

    return jax.default_backend() == "cpu"


def sized(size: str, full, quick, smallest):
    """The value for one of the sizes ``full``, ``quick`` and ``smallest``."""
    return {"full": full, "quick": quick, "smallest": smallest}[size]


def positive(text: str) -> int:
    """A number of rounds of an option."""
    if (rounds := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{rounds}: it must be 1 or more")
    return rounds


def arguments(text: str | None, name: str, sections: Iterable[str] = ()) -> argparse.ArgumentParser:
    """A parser with the options of all benchmarks: sections, sizes, the JSON file, and whether to record."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--quick", action="store_const", dest="size", const="quick", help="fewer and shorter rounds")
    some.add_argument("--smallest", action="store_const", dest="size", const="smallest",
                      help="a little of everything, to see that it runs: its numbers mean nothing")  # fmt: skip
    if sections:
        parser.add_argument("--only", action="append", choices=tuple(sections), help="this section (may be repeated)")
    parser.add_argument("--out", type=Path, default=Path(f"benchmarks/out/{name}.json"), help="JSON file")
    if name in SPEED:
        parser.add_argument("--record", action="store_true", help=f"put the cases into records/{name}.json")
        parser.add_argument("--machine", metavar="TEXT", help='put them into records/gpu.json, as of "an H200", say')
    parser.set_defaults(size="full")
    return parser


@dataclass
class Case:
    """A case to time: ``call(state) -> state`` makes ``steps`` updates and waits for them.

    Attributes:
        name: name in the tables.
        call: see above.
        state: the current state; each call continues from the last.
        steps: updates in a call.
        seconds: CPU seconds of a step, of each timed call.
    """

    name: str
    call: Callable[[Any], Any]
    state: Any = None
    steps: int = 1
    seconds: list[float] = field(default_factory=list)

    @property
    def microseconds(self) -> float:
        """Median time of a step."""
        return 1e6 * float(np.median(self.seconds))

    def ratio(self, other: "Case") -> list[float]:
        """The time of a step over another's, round by round: the median, the smallest and the largest."""
        ratios = np.array(self.seconds) / np.array(other.seconds)
        return [float(np.median(ratios)), float(ratios.min()), float(ratios.max())]


def alternate(cases: list[Case], rounds: int, clock: Callable[[], float] = time.process_time) -> None:
    """Times ``rounds`` calls of every case, A B C  B C A  C A B ..., after one call of each that compiles.

    Other jobs then slow all cases alike, and CPU seconds, on which they have less influence, are those of one thread.
    """

    def timed(case):
        start = clock()
        case.state = case.call(case.state)
        return (clock() - start) / case.steps

    for case in cases:
        timed(case)
    for r in range(rounds):
        at = r % len(cases)
        for case in cases[at:] + cases[:at]:
            case.seconds.append(timed(case))


def about() -> dict:
    """When, where and with what a measurement is made."""

    def git(*words):
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    edits = " with edits" if git("status", "--porcelain", "--", "src", "benchmarks") else ""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": git("rev-parse", "--short", "HEAD") + edits,
        "processor": processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(), "packages": packages,
    }  # fmt: skip


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def compared(case: str, cases: list[Case], against: str, aims: dict | None = None, unit: str = "µs a step") -> dict:
    """A case of a record: the time of ``against``, and of the others relative to it.

    Args:
        case: its name.
        cases: timed in alternation.
        against: the name of one of them.
        aims: bounds by name, ``{"most": ...}`` or ``{"least": ...}``.
        unit: of the value.
    """
    base, aims = next(one for one in cases if one.name == against), aims or {}
    numbers: dict[str, dict] = {against: {"value": base.microseconds}}
    for one in cases:
        if one is not base:
            numbers[one.name] = {"ratio": one.ratio(base)} | aims.get(one.name, {})
    return {"case": case, "unit": unit, "against": against, "numbers": numbers}


def finish(args: argparse.Namespace, name: str, cases: list[dict], **more) -> None:
    """Prints the cases of a benchmark, writes ``--out``, and records the cases if asked to."""
    now, machine = about(), getattr(args, "machine", None)
    measured = {one: now[one] for one in ("date", "commit", "processor")}
    cases = [case | {"case": f"{case['case']}, {machine}" if machine else case["case"], "measured": measured}
             for case in cases]  # fmt: skip
    if cases:
        print("\n" + table(COLUMNS, map(cells, cases)))
    write(args.out, {"measured": now, "cases": cases, **more})
    if args.record:
        record("gpu" if machine else name, cases)
    print(f"\nwrote {args.out}")


def record(name: str, cases: list[dict]) -> None:
    """Replaces cases of the same name in a record, and adds the others; a case is a line of the file."""
    path = RECORDS / f"{name}.json"
    kept = json.loads(path.read_text("utf-8")) if path.is_file() else []
    of = {one["case"]: one for one in kept} | {one["case"]: rounded(one) for one in cases}
    lines = (json.dumps(one, ensure_ascii=False) for one in of.values())
    write_text(path, "[\n" + ",\n".join(lines) + "\n]\n")


def rounded(value, digits: int = 5):
    """Numbers with so many significant digits, in dictionaries and lists."""
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def met(number: dict) -> bool | None:
    """Whether the aim of a number is met; None without one."""
    value = number["ratio"][0] if "ratio" in number else number.get("value")
    if "most" in number:
        return value <= number["most"]
    return value >= number["least"] if "least" in number else None


def cells(case: dict) -> list[str]:
    """A row of the table, in the order of ``COLUMNS``."""
    measured = case.get("measured", {})
    numbers = "; ".join(f"`{name}` {words(one)}" for name, one in case["numbers"].items())
    return [case["case"], case["unit"], numbers, measured.get("date", ""), f"`{measured.get('commit', '')}`"]


def words(one: dict) -> str:
    """A number with its range, note and aim: ``1.52 [1.36, 1.56] (≤ 1.5: **missed**)``."""
    said, ratio, good = [], one.get("ratio"), met(one)
    if one.get("value") is not None:
        said.append(number(one["value"]))
    if ratio:
        ends = f" [{number(ratio[1])}, {number(ratio[2])}]" if len(ratio) == 3 else ""
        said.append(f"× {number(ratio[0])}{ends}")
    if one.get("note"):
        said.append(one["note"])
    if good is not None:
        sign, bound = ("≤", one["most"]) if "most" in one else ("≥", one["least"])
        said.append(f"({sign} {bound:g}: {'met' if good else '**missed**'})")
    return " ".join(said)


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits: ``0.097``, ``2.71``, ``60 000``, ``5e-07``."""
    if not np.isfinite(value) or value == 0:
        return f"{value:g}"
    value = float(f"{value:.{digits}g}")
    if abs(value) < 1e-3:
        return f"{value:g}"
    places = digits - 1 - int(np.floor(np.log10(abs(value))))
    return f"{value:,.{max(0, places)}f}".replace(",", " ")


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def fill(page: Path, name: str, text: str) -> None:
    """Replaces what stands in a page between the comments ``<!-- NAME -->`` and ``<!-- /NAME -->``."""
    old = page.read_text("utf-8")
    before, begin, rest = old.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not begin or not end:
        raise SystemExit(f"{page} has no comments <!-- {name} --> and <!-- /{name} -->")
    write_text(page, f"{before}{begin}\n{text}\n\n{end}{after}")


def filled(page: Path, name: str) -> str:
    """What stands in a page between the two comments."""
    found = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- /{name} -->", page.read_text("utf-8"), re.DOTALL)
    return found[1] if found else ""


def write(path: Path, result) -> None:
    """Writes JSON, the whole file or nothing."""
    write_text(path, json.dumps(result, indent=1) + "\n")
