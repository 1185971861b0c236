"""Writes ``docs/performance.md`` and its figures from the records of ``benchmarks/records``, or measures records
anew.

    python benchmarks/performance.py                    # the page, in seconds; measures nothing
    python benchmarks/performance.py --measure          # every record of another state of src: hours
    python benchmarks/performance.py --measure growth_rows devices   # these records
    python benchmarks/performance.py --keep devices benchmarks/out/devices.json  # an output that exists already
    python benchmarks/performance.py --list             # the records, with what measures them

A record is what one run of a benchmark found, with date, commit, processor and versions; the page has no measured
number that comes from elsewhere. An interrupted ``--measure`` continues where it was. ``--keep`` takes date, commit,
processor and load from the entry ``measured`` of the output; without one, they are unknown. ``performance_sections``
declares the sections: their records, text, figure and aims.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from performance_sections import estimators, figures, fits, integrals, particles, searches
from performance_sections.common import (
    NOT_PROFILED,
    REPOSITORY,
    UNKNOWN,
    Aim,
    Measurement,
    Section,
    about,
    source,
    table,
)
from vi_step import add_sizes, write

PAGE = REPOSITORY / "docs/performance.md"
WIDTH = 132
SECTIONS: tuple[Section, ...] = (
    *fits.SECTIONS, *estimators.SECTIONS, *particles.SECTIONS, *searches.SECTIONS, *integrals.SECTIONS,
)  # fmt: skip


def measurements() -> dict[str, Measurement]:
    """All measurements by name, in the order of the page."""
    return {one.name: one for section in SECTIONS for one in section.measurements}


def measure(one: Measurement) -> bool:
    """Runs a benchmark and writes its record; False if it failed, which leaves the old record."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        script, *arguments = shlex.split(one.command)
        command = [sys.executable, f"benchmarks/{script}", *arguments, "--out", str(out)]
        print(f"{one.name}: {' '.join(command)}", flush=True)
        try:
            begun = about()
            subprocess.run(command, cwd=REPOSITORY, check=True)
            one.kept(json.loads(out.read_text()), begun)
        except (subprocess.CalledProcessError, ValueError, KeyError) as error:
            print(f"{one.name}: {error}; its record stays as it was", file=sys.stderr)
            return False
    return True


def keep(one: Measurement, path: Path) -> None:
    """Makes a record of an output that exists; where and when it was measured is what its ``measured`` says."""
    found = json.loads(path.read_text("utf-8"))
    measured = found.pop("measured", UNKNOWN)
    one.kept(found, measured)


def stale(one: Measurement) -> bool:
    """Whether a record is of another state of ``src`` than the last commit's, or of none."""
    if not one.path.is_file():
        return True
    state = one.record()["measured"]["source"]
    return not state or state != source()


def page() -> tuple[str, list[Aim]]:
    """The page in Markdown, and all aims.

    Raises:
        ValueError: an aim is missed, and no profile says why.
    """
    parts, aims = [], []
    for section in SECTIONS:
        parts.append(f"## {section.title}\n\n{section.write(section.results(), aims).strip()}\n")
    missed = [aim for aim in aims if not aim.met]
    if untold := [aim.what for aim in missed if not aim.limit]:
        raise ValueError(f"missed, and no section says what limits it: {'; '.join(untold)}")
    rows = [[aim.what, f"{aim.value:.3g}", f"{'≤' if aim.below else '≥'} {aim.bound:g}", aim.limit] for aim in missed]
    unknown = any(aim.limit == NOT_PROFILED for aim in missed)
    head = _HEAD.format(
        met=len(aims) - len(missed), all=len(aims), missed=table(["", "is", "aim", "limit"], rows),
        but="; where it says so, no part is timed, so why they are missed is not known" if unknown else "",
    )  # fmt: skip
    text = "\n\n".join(one.strip() for one in [head, *parts, f"## Measurements\n\n{_MEASURED}\n\n{measured()}"])
    return flowed(text) + "\n", aims


def measured() -> str:
    """The table of records, those of a commit and a day in a row."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name, one in measurements().items():
        about = one.record()["measured"]
        key = about["date"], f"`{about['commit']}`", about["processor"] or "not noted"
        together.setdefault(key, []).append(f"[{name}](../benchmarks/records/{name}.json)")
    rows = [[*key, ", ".join(names)] for key, names in sorted(together.items(), reverse=True)]
    return table(["date", "commit", "processor", "records"], rows)


def flowed(text: str) -> str:
    """Text in Markdown with its paragraphs and items broken into lines of at most ``WIDTH``; tables stay."""
    parts = []
    for part in text.split("\n\n"):
        if not part.startswith(("|", "#", "![")):
            items = re.split(r"\n(?=\* )", part) if part.startswith("* ") else [part]
            indent = "  " if part.startswith("* ") else ""
            style = {"width": WIDTH, "break_long_words": False, "break_on_hyphens": False}
            whole = [
                re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), " ".join(item.split())) for item in items
            ]
            part = "\n".join(textwrap.fill(item, subsequent_indent=indent, **style) for item in whole).replace(
                "\0", " "
            )
        parts.append(part)
    return "\n\n".join(parts)


def drawn() -> dict[str, list[figures.Panel]]:
    """The panels of every figure, by its file's stem."""
    return dict(section.figure(section.results()) for section in SECTIONS if section.figure)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", metavar="RECORD", help="all that are of another state of src, or these")
    parser.add_argument("--keep", nargs=2, metavar=("RECORD", "FILE"), help="make a record of a benchmark's output")
    parser.add_argument("--list", action="store_true", help="list the records")
    parser.add_argument("--out", type=Path, help="JSON file for all aims with their values")
    add_sizes(parser, "the same")
    args = parser.parse_args(argv)
    every = measurements()
    named = [*(args.measure or ()), *(args.keep or ())[:1]]
    if unknown := [name for name in named if name not in every]:
        parser.error(f"no record {unknown[0]!r}; there are {', '.join(every)}")
    if args.list:
        for name, one in every.items():
            print(f"{name:24s}{one.command}")
        return 0
    if args.keep:
        keep(every[args.keep[0]], Path(args.keep[1]))
    chosen = [every[name] for name in args.measure or ()]
    if args.measure == []:
        chosen = [one for one in every.values() if stale(one)]
    failed = [one.name for one in chosen if not measure(one)]
    text, aims = page()
    if args.size == "full":
        PAGE.write_text(text, "utf-8")
        for stem, shown in drawn().items():
            figures.draw(stem, shown)
        print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    for aim in aims:
        print(f"{aim.what}: {aim.value:.3g}, {aim.word.replace('*', '')}")
    if args.out:
        write(args.out, {"aims": [{"what": a.what, "value": a.value, "bound": a.bound, "met": a.met} for a in aims]})
    return 1 if failed else 0


_HEAD = """# Performance

Written by `python benchmarks/performance.py` from the [records](#measurements) of the benchmarks, which say when each
number was measured; `--measure` measures them again. Times are CPU seconds of one thread of a CPU, with noise,
shuffling and full passes; ratios are those of alternating rounds in one process, as medians with the smallest and the
largest round in brackets, unless a table says otherwise. The machines were shared with other jobs, so compare ratios,
not seconds. What is the same on both sides of a comparison, and what is not:
[benchmarks/README.md](../benchmarks/README.md). On a GPU, nothing is measured yet:
`python benchmarks/joint.py --only steps` times the table of [estimators](#cost-of-an-estimator) there.

{met} of {all} aims are met. These are missed. The last column is what limits them, by records of these very cases{but}.

{missed}
"""
_MEASURED = """Each record has the command that made it, date, commit and versions; the newer ones also have processor
and load of the machine, the older ones hold the numbers that the page of their commit had.
`python benchmarks/performance.py --list` lists all commands; `--measure RECORD` measures one again."""


if __name__ == "__main__":
    sys.exit(main())
