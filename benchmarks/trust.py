"""Is anything silently wrong, do 95 % intervals cover, is the default ever far behind the plain alternative?

Runs `lowvar.integrate`, `lowvar.fit` and `lowvar.minimize` with their defaults on problems that a new user might bring,
compares the results with known answers and with a plain alternative, and fills the tables of `docs/trust.md`, which has
the rules of the verdicts. A case is a declaration in `trust_cases`, and draws its random numbers under its own name.
Usage: `python benchmarks/trust.py [--quick] [--only NAME] [--kind KIND] [--repetitions 100] [--truths]`.
"""

import dataclasses
import json
import sys
import time
from typing import Any

import common  # noqa: F401  first: it limits the libraries to one thread

import lowvar  # noqa: F401  sets up JAX, so it must be imported first

import numpy as np  # isort: skip
from common import REPOSITORY, about, arguments, fill, table, write  # isort: skip
from trust_cases import functions, integrals, judge, models, run, truths  # isort: skip
from trust_cases.common import FULL, QUICK, SMALLEST, Settings, Verdict  # isort: skip

KINDS: dict[str, Any] = {
    "integrals": (integrals.CASES, run.integral, judge.integral, truths.integral),
    "models": (models.CASES, run.model, judge.model, truths.model),
    "functions": (functions.CASES, run.function, judge.function, truths.function),
}
SMALL = ("log_sum_exp_few", "twin_columns", "waves")  # of --smallest
VERDICTS = ("fine", "told", "behind", "silently wrong", "crashed")
PAGE = REPOSITORY / "docs/trust.md"
CALLS = {"integrals": "lowvar.integrate", "models": "lowvar.fit", "functions": "lowvar.minimize"}
COLUMNS = {
    "integrals": ("coverage", "Monte Carlo's", "error", "bad (told)", "noted", "method"),
    "models": ("over `naive`", "over NumPyro's SVI", "gap", "k-hat", "flagged"),
    "functions": ("found", "pycma's", "evaluations", "pycma's", "value", "pycma's"),
}


def judged(kind: str, case, settings: Settings) -> Verdict:
    """The verdict on a case."""
    _, bring, verdict, _ = KINDS[kind]
    start = time.perf_counter()
    found = verdict(case, bring(case, settings))
    return dataclasses.replace(found, seconds=time.perf_counter() - start)


# ------------------------------------------------------------------------------------------------- the tables


def counts(verdicts: list[Verdict], settings: Settings, measured: dict) -> str:
    """Verdicts by call, the cases that are not fine in some way, and what was run where."""
    rows = []
    for kind in KINDS:
        of = [one for one in verdicts if one.kind == kind]
        noted = sum(one.verdict == "fine" and one.measured.get("noted", 0.0) > 0.5 for one in of)
        rows.append([f"`{CALLS[kind]}`", len(of), *(sum(one.verdict == v for one in of) for v in VERDICTS),
                     sum(one.behind for one in of), noted])  # fmt: skip
    rows.append(["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    heads = ["call", "cases", *VERDICTS, "worse than the plain alternative", "noted though fine"]
    bad = [f"* `{one.name}` ({one.what}): {one.verdict}" for one in verdicts
           if one.behind or one.verdict in ("behind", "silently wrong", "crashed")]  # fmt: skip
    packages = ", ".join(f"{name} {number}" for name, number in measured["packages"].items() if number)
    made = (
        f"{measured['date']}, commit `{measured['commit']}`: {settings.repetitions} repetitions, {settings.seeds} seeds"
    )
    return "\n\n".join(filter(None, [table(heads, rows), "\n".join(bad), f"{made}; {packages}."]))


def rows_of(kind: str, verdicts: list[Verdict]) -> str:
    """The table of the cases of a kind."""
    rows = []
    for one in verdicts:
        if one.kind == kind:
            cells = CELLS[kind](one.measured) if one.measured else [""] * len(COLUMNS[kind])
            rows.append([f"`{one.name}`", one.what, one.verdict, *cells, short(one.remark)])
    return table(["case", "what", "verdict", *COLUMNS[kind], "said"], rows)


CELLS = {
    "integrals": lambda m: [
        interval(m["coverage"]), interval(m["monte_carlo_coverage"]), interval(m["ratio"]),
        f"{m['bad']} ({m['told_of_bad']:.0%})" if m["bad"] else "0", percent(m["noted"]), m["methods"],
    ],
    "models": lambda m: [
        interval(m.get("over_naive", ())), interval(m.get("over_numpyro", ())), digits(m.get("gap")),
        digits(m.get("khat")), percent(m.get("flagged")),
    ],
    "functions": lambda m: [
        f"{m['found']} of {m['seeds']}", f"{m['pycma_found']} of {m['seeds']}", f"{m['evaluations']:.0f}",
        f"{m['pycma_evaluations']:.0f}", digits(m["value"]), digits(m["pycma_value"]),
    ],
}  # fmt: skip


def interval(triple) -> str:
    if not triple or np.isnan(triple[0]):
        return ""
    value, low, high = triple
    return digits(value) + ("" if np.isnan(low) else f" [{digits(low)}, {digits(high)}]")


def digits(value) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.3g}"


def percent(value) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.0%}"


def short(text, length=110) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= length else text[: length - 3].rstrip() + "..."


# ------------------------------------------------------------------------------------------------ the command


def kept(out, settings: Settings) -> dict[tuple[str, str], Verdict]:
    """Verdicts of an earlier run with the same versions and sizes, by kind and name."""
    stored = json.loads(out.read_text("utf-8")) if out.exists() else {}
    if stored.get("settings") != dataclasses.asdict(settings) or stored["measured"]["packages"] != about()["packages"]:
        return {}
    return {(one["kind"], one["name"]): Verdict(**one) for one in stored["cases"]}


def check(chosen) -> int:
    """Checks the declarations of the cases; returns 1 if one is wrong."""
    failed = 0
    for kind, case in chosen:
        right, said = KINDS[kind][3](case)
        failed += not right
        print(f"{kind:10} {case.name:26} {'ok' if right else 'WRONG':6} {said}", flush=True)
    return int(bool(failed))


def main(argv: list[str] | None = None) -> int:
    names = [case.name for cases, *_ in KINDS.values() for case in cases]
    parser = arguments(__doc__, "trust")
    parser.add_argument("--kind", action="append", choices=KINDS, help="these cases (may be repeated)")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="this case (may be repeated)")
    parser.add_argument("--repetitions", type=int, help="of each integral (default: 100, or 15)")
    parser.add_argument("--seeds", type=int, help="of each fit and search (default: 5, or 3)")
    parser.add_argument("--truths", action="store_true", help="check the cases instead: truths, scores, known minima")
    parser.add_argument("--keep", action="store_true", help="do not run again what OUT has in these versions and sizes")
    args = parser.parse_args(argv)
    settings = {"smallest": SMALLEST, "quick": QUICK, "full": FULL}[args.size]
    more = {"repetitions": args.repetitions, "seeds": args.seeds}
    settings = dataclasses.replace(settings, **{key: value for key, value in more.items() if value is not None})
    if min(settings.repetitions, args.seeds or 2) < 2:
        parser.error("at least 2 repetitions and 2 seeds are needed for an interval")
    only = args.only or (SMALL if args.size == "smallest" else names)
    chosen = [(kind, case) for kind, (cases, *_) in KINDS.items() for case in cases
              if (not args.kind or kind in args.kind) and case.name in only]  # fmt: skip
    if args.truths:
        return check(chosen)
    there, verdicts, measured = kept(args.out, settings) if args.keep else {}, [], about()
    for kind, case in chosen:
        one = there.get((kind, case.name)) or judged(kind, case, settings)
        verdicts.append(one)
        print(f"{kind:10} {one.name:26} {one.verdict:15}{'behind ' if one.behind else '       '}{one.seconds:7.1f} s  "
              f"{short(one.remark)}", flush=True)  # fmt: skip
        write(args.out, {"measured": measured, "settings": dataclasses.asdict(settings),
                         "cases": [dataclasses.asdict(one) for one in verdicts]})  # fmt: skip
    if len(chosen) == len(names) and args.size == "full":
        fill(PAGE, "counts", counts(verdicts, settings, measured))
        for kind in KINDS:
            fill(PAGE, kind, rows_of(kind, verdicts))
        print(f"wrote {PAGE}")
    print(f"wrote {args.out}, with every repetition")
    return 0


if __name__ == "__main__":
    sys.exit(main())
