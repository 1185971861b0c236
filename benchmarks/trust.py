"""Is anything silently wrong, do 95 % intervals cover, is the default ever far behind the plain alternative?

Runs `lowvar.integrate`, `lowvar.fit` and `lowvar.minimize` with their defaults on problems that a new user might bring.
Compares the results with known answers and with a plain alternative, and writes `docs/trust.md`.
Usage: `python benchmarks/trust.py [--quick] [--only NAME] [--kind KIND] [--repetitions 100] [--truths]`.
"""

import os

# one thread each; before the libraries are imported
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import argparse
import dataclasses
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import lowvar  # noqa: F401  sets up JAX, so it must be imported first

import numpy as np  # isort: skip
import pandas as pd  # isort: skip
from trust_cases import functions, integrals, judge, models, run, truths  # isort: skip
from trust_cases.common import FULL, QUICK, SMALLEST, Settings, Verdict  # isort: skip
from vi_step import write  # isort: skip

KINDS = {
    "integrals": (integrals.CASES, run.integral, judge.integral, truths.integral),
    "models": (models.CASES, run.model, judge.model, truths.model),
    "functions": (functions.CASES, run.function, judge.function, truths.function),
}
SMALL = ("log_sum_exp_few", "twin_columns", "waves")  # of --smallest
VERDICTS = ("fine", "told", "behind", "silently wrong", "crashed")
PAGE = Path("docs/trust.md")
CALLS = {"integrals": "lowvar.integrate", "models": "lowvar.fit", "functions": "lowvar.minimize"}
PACKAGES = ("lowvar", "jax", "numpyro", "torch", "cma", "numpy", "scipy")


def judged(kind: str, case, settings: Settings) -> Verdict:
    _, bring, verdict, _ = KINDS[kind]
    start = time.perf_counter()
    found = verdict(case, bring(case, settings))
    return dataclasses.replace(found, seconds=time.perf_counter() - start)


def save(verdicts: list[Verdict], out: Path) -> None:
    """Writes `trust.csv`, a row for each case, and `trust_KIND.csv`, a row for each repetition, beside `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"kind": one.kind, "case": one.name, "verdict": one.verdict, "behind": one.behind, "seconds": one.seconds}
        | _flat(one.measured) | {"remark": one.remark, "what": one.what}
        for one in verdicts
    ]  # fmt: skip
    tables = {f"{out.stem}.csv": pd.DataFrame(rows)}
    for kind in KINDS:
        records = [{"case": one.name} | row for one in verdicts if one.kind == kind for row in one.records]
        if records:
            tables[f"{out.stem}_{kind}.csv"] = pd.DataFrame(records)
    for name, table in tables.items():
        partial_path = out.with_name(f".{name}.{os.getpid()}")
        table.to_csv(partial_path, index=False)
        partial_path.replace(out.with_name(name))


def _flat(measured: dict) -> dict:
    flat = {}
    for name, value in measured.items():
        if isinstance(value, tuple):
            flat |= dict(zip((name, f"{name}_low", f"{name}_high"), value, strict=True))
        else:
            flat[name] = value
    return flat


# ------------------------------------------------------------------------------------------------------ the page


def page(verdicts: list[Verdict], settings: Settings) -> str:
    """The document, from the verdicts alone."""
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in verdicts)]
    parts = [_INTRODUCTION.format(cases=len(verdicts)), _counts(verdicts, kinds)]
    wrong = [one for one in verdicts if one.verdict in ("silently wrong", "crashed")]
    parts.append("Nothing is silently wrong." if not wrong else _listed("Silently wrong, or crashed:", wrong))
    slow = [one for one in verdicts if one.behind]
    parts.append("Nothing is behind." if not slow else _listed("Behind the plain alternative:", slow))
    parts.append(_RULES.format(**_limits()))
    for kind in kinds:
        parts.append(_SECTIONS[kind].format(r=settings.repetitions, s=settings.seeds))
        parts.append(_ROWS[kind]([one for one in verdicts if one.kind == kind]))
    versions = ", ".join(f"{name} {number}" for name, number in _versions().items())
    parts.append(f"Measured with {versions}, Python {platform.python_version()}, on {platform.machine()}.")
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """# How far to trust the defaults

{cases} cases test the three calls with default settings on problems that a new user might bring. Is any result silently
wrong? Do the 95 % intervals cover? Is the default ever far behind the plain alternative? `python benchmarks/trust.py`
runs the cases and writes this page. `benchmarks/trust_cases` declares them; `--truths` checks their known answers."""

_RULES = """## Verdicts

| verdict | means |
| --- | --- |
| `fine` | right, and not behind the plain alternative |
| `told` | not fine, but reported: a refusal, a note, a NaN standard error, or Monte Carlo whose interval covers |
| `behind` | right, but the plain alternative does clearly better |
| `silently wrong` | wrong, without any report |
| `crashed` | an error that is not a sentence for the user |

**Integrals.** Right: the 95 % interval of the coverage reaches {covered:.2f}. Behind: the root mean square error is
more than {behind} times Monte Carlo's. A repetition is bad if its interval misses the true value, or if its error
exceeds what Monte Carlo's may be. `told` requires a note in {nearly:.0%} of the bad repetitions. A Monte Carlo result
counts as `told` only if its own intervals cover. With several tasks, the worst one counts.

**Models.** Behind: {nats} nats below the plain alternative, in the mean over seeds. Wrong: {gap:.0f} nats below the
best ELBO that L-BFGS finds, or a posterior that mean field cannot represent, without a warning or a k-hat above {khat}.
A mistake in a model must be refused.

**Functions.** Found: the noiseless value is at most a given level. Behind: found less often than by pycma, or with
more than {slower} times its evaluations (medians). Wrong: the search claims success without having found the level,
exceeds the budget or the bounds, or reports numbers that contradict each other."""

_SECTIONS = {
    "integrals": "## `lowvar.integrate`\n\n{r} repetitions of each case. `bad (told)` counts bad repetitions and gives "
    "the percentage of them with a note; `noted` is the percentage of all repetitions with a note. Error is relative "
    "to Monte Carlo's. Brackets are 95 % intervals.",
    "models": "## `lowvar.fit`\n\n{s} seeds of each case. Differences of final ELBOs are in nats; positive values "
    "favour lowvar. NumPyro's density evaluates all ELBOs on the same draws. `gap` is the ELBO of the best mean-field "
    "fit less that of lowvar.",
    "functions": "## `lowvar.minimize`\n\n{s} seeds of each case, the same budget for both searches. Evaluations are "
    "medians; `inf` means that fewer than half of the seeds found the level.",
}


def _limits():
    return {"covered": judge.COVERED, "behind": judge.BEHIND, "nearly": judge.NEARLY_ALL, "nats": judge.NATS,
            "gap": judge.GAP, "khat": judge.KHAT, "slower": judge.SLOWER}  # fmt: skip


def _counts(verdicts, kinds):
    rows = []
    for kind in kinds:
        of = [one for one in verdicts if one.kind == kind]
        rows.append([f"`{CALLS[kind]}`", len(of), *(sum(one.verdict == v for one in of) for v in VERDICTS),
                     sum(one.behind for one in of), sum(_alarmed(one) for one in of)])  # fmt: skip
    if len(rows) > 1:
        rows.append(["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    return _table(["call", "cases", *VERDICTS, "worse than the plain alternative", "noted though fine"], rows)


def _alarmed(one):
    """Whether most repetitions of a case that is fine carry a note."""
    return one.verdict == "fine" and one.measured.get("noted", 0.0) > 0.5


def _listed(title, verdicts):
    return "\n".join([title, "", *(f"* `{one.name}` ({one.what}): {one.verdict}" for one in verdicts)])


def _table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _integral_rows(verdicts):
    rows = []
    for one in verdicts:
        m = one.measured
        if not m:
            rows.append([f"`{one.name}`", one.what, one.verdict, *[""] * 6, _short(one.remark)])
            continue
        bad = f"{m['bad']} ({m['told_of_bad']:.0%})" if m["bad"] else "0"
        rows.append([f"`{one.name}`", one.what, one.verdict, _interval(m["coverage"]),
                     _interval(m["monte_carlo_coverage"]), _interval(m["ratio"]), bad, f"{m['noted']:.0%}",
                     m["methods"], _short(one.remark)])  # fmt: skip
    columns = ["case", "what", "verdict", "coverage", "Monte Carlo's", "error", "bad (told)", "noted", "method", "said"]
    return _table(columns, rows)


def _model_rows(verdicts):
    rows = []
    for one in verdicts:
        m = one.measured
        numbers = [_interval(m.get("over_naive", ())), _interval(m.get("over_numpyro", ())), _number(m.get("gap")),
                   _number(m.get("khat")), _percent(m.get("flagged"))]  # fmt: skip
        rows.append([f"`{one.name}`", one.what, one.verdict, *numbers, _short(one.remark)])
    columns = ["case", "what", "verdict", "over `naive`", "over NumPyro's SVI", "gap", "k-hat", "flagged", "said"]
    return _table(columns, rows)


def _function_rows(verdicts):
    rows = []
    for one in verdicts:
        m = one.measured
        if not m:
            rows.append([f"`{one.name}`", one.what, one.verdict, *[""] * 6, _short(one.remark)])
            continue
        rows.append([f"`{one.name}`", one.what, one.verdict, f"{m['found']} of {m['seeds']}",
                     f"{m['pycma_found']} of {m['seeds']}", f"{m['evaluations']:.0f}", f"{m['pycma_evaluations']:.0f}",
                     _number(m["value"]), _number(m["pycma_value"]), _short(one.remark)])  # fmt: skip
    columns = ["case", "what", "verdict", "found", "pycma's", "evaluations", "pycma's", "value", "pycma's", "said"]
    return _table(columns, rows)


_ROWS = {"integrals": _integral_rows, "models": _model_rows, "functions": _function_rows}


def _interval(triple):
    if not triple or np.isnan(triple[0]):
        return ""
    value, low, high = triple
    return _number(value) + ("" if np.isnan(low) else f" [{_number(low)}, {_number(high)}]")


def _number(value):
    return "" if value is None or (isinstance(value, float) and np.isnan(value)) else f"{value:.3g}"


def _percent(value):
    return "" if value is None or np.isnan(value) else f"{value:.0%}"


def _short(text, length=110):
    text = " ".join(str(text).split())
    return text if len(text) <= length else text[: length - 3].rstrip() + "..."


def _versions():
    return {name: version(name) for name in PACKAGES}


def main(argv: list[str] | None = None) -> int:
    names = [case.name for cases, *_ in KINDS.values() for case in cases]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions and seeds")
    parser.add_argument(
        "--smallest", action="store_true", help="a few cases, hardly anything of each: shows that it runs"
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="these cases (may be repeated)")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="this case (may be repeated)")
    parser.add_argument("--repetitions", type=int, help="of each integral (default: 100, or 15)")
    parser.add_argument("--seeds", type=int, help="of each fit and search (default: 5, or 3)")
    parser.add_argument("--truths", action="store_true", help="check the cases instead: truths, scores, known minima")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/trust.json"), help="JSON file; csv beside it")
    parser.add_argument(
        "--keep", action="store_true", help="do not run again what OUT has in the same versions and sizes"
    )
    parser.add_argument("--page", type=Path, help=f"the document ({PAGE} if all cases run in full, else beside --out)")
    args = parser.parse_args(argv)
    settings = SMALLEST if args.smallest else QUICK if args.quick else FULL
    more = {"repetitions": args.repetitions, "seeds": args.seeds}
    settings = dataclasses.replace(settings, **{key: value for key, value in more.items() if value is not None})
    if min(settings.repetitions, args.seeds or 2) < 2:
        parser.error("at least 2 repetitions and 2 seeds are needed for an interval")
    only = args.only or (SMALL if args.smallest else None)
    chosen = [
        (kind, case)
        for kind, (cases, *_) in KINDS.items()
        for case in cases
        if (not args.kind or kind in args.kind) and (not only or case.name in only)
    ]
    if args.truths:
        return check(chosen)
    in_full = len(chosen) == len(names) and settings == FULL
    where = args.page or (PAGE if in_full else args.out.with_suffix(".md"))
    verdicts: list[Verdict] = []
    kept = kept_in(args.out, settings) if args.keep else {}
    for kind, case in chosen:
        if (kind, case.name) in kept:
            verdicts.append(kept[kind, case.name])
            continue
        verdicts.append(judged(kind, case, settings))
        one = verdicts[-1]
        print(f"{kind:10} {one.name:26} {one.verdict:15}{'behind ' if one.behind else '       '}{one.seconds:7.1f} s  "
              f"{_short(one.remark)}", flush=True)  # fmt: skip
        save(verdicts, args.out)
        write(args.out, {"versions": _versions(), "cases": [_stored(one, settings) for one in verdicts]})
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(page(verdicts, settings), encoding="utf-8")
    write(args.out, {"versions": _versions(), "cases": [_stored(one, settings) for one in verdicts]})
    print(f"\nwrote {where}, {args.out}, and csv tables beside it")
    return 0


def _amount(kind: str, settings: Settings) -> dict:
    """The settings that determine how much of a case is run."""
    amount = dataclasses.asdict(settings)
    return {"repetitions": amount.pop("repetitions")} if kind == "integrals" else amount | {"repetitions": None}


def _stored(one: Verdict, settings: Settings) -> dict:
    """A verdict in JSON's types: lists for tuples, strings for numbers that are not finite."""

    def plain(value):
        if isinstance(value, (tuple, list)):
            return [plain(entry) for entry in value]
        return repr(float(value)) if isinstance(value, float) and not np.isfinite(value) else value

    own = {name: getattr(one, name) for name in ("kind", "name", "what", "verdict", "behind", "remark", "seconds")}
    return own | {"amount": _amount(one.kind, settings), "measured": {n: plain(v) for n, v in one.measured.items()}}


def kept_in(out: Path, settings: Settings) -> dict[tuple[str, str], Verdict]:
    """Verdicts of an earlier run with the same versions and sizes, by kind and name."""
    stored = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    if stored.get("versions") != _versions():
        return {}

    def back(value):
        if isinstance(value, list):
            return tuple(back(entry) for entry in value)
        return float(value) if value in ("nan", "inf", "-inf") else value

    found = {}
    for one in stored["cases"]:
        if one.pop("amount") == _amount(one["kind"], settings):
            one["measured"] = {name: back(value) for name, value in one["measured"].items()}
            found[one["kind"], one["name"]] = Verdict(**one)
    return found


def check(chosen) -> int:
    """Checks the declarations of the cases; returns 1 if one is wrong."""
    failed = 0
    for kind, case in chosen:
        right, said = KINDS[kind][3](case)
        failed += not right
        print(f"{kind:10} {case.name:26} {'ok' if right else 'WRONG':6} {said}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
