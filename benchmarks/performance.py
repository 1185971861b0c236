"""Fills the tables of ``docs/performance.md`` and ``docs/gpu.md`` from ``benchmarks/records``; measures nothing.

The speed benchmarks put their cases there: `python benchmarks/steps.py --record`, and so on.
"""

import json

from common import COLUMNS, RECORDS, REPOSITORY, SPEED, arguments, cells, fill, met, table, write

PAGE, GPU = REPOSITORY / "docs/performance.md", REPOSITORY / "docs/gpu.md"


def record_of(name: str) -> list[dict]:
    """The cases of a record."""
    return json.loads((RECORDS / f"{name}.json").read_text("utf-8"))


def records() -> dict[str, list[dict]]:
    """The cases of every record on a CPU, by benchmark."""
    return {name: record_of(name) for name in SPEED}


def shown(found: dict[str, list[dict]]) -> str:
    """The table of all cases, below the count of the aims that are met."""
    numbers = [one for cases in found.values() for case in cases for one in case["numbers"].values()]
    aims = [good for good in map(met, numbers) if good is not None]
    lines = [[f"`{name}`", *cells(case)] for name, cases in found.items() for case in cases]
    return f"{sum(aims)} of {len(aims)} aims are met.\n\n{table(['benchmark', *COLUMNS], lines)}"


def main() -> None:
    args = arguments(__doc__, "performance").parse_args()
    found = records()
    text = shown(found)
    print(text)
    if args.size == "full":
        fill(PAGE, "speed", text)
        fill(GPU, "speed", table(COLUMNS, map(cells, record_of("gpu"))))
    write(args.out, {name: len(cases) for name, cases in found.items()})


if __name__ == "__main__":
    main()
