"""Whole fits: the first one, how their time grows, rows in files."""

import numpy as np

from . import aims as bounds
from .common import NOT_PROFILED, Aim, Measurement, Section, number, ratio, spread, table
from .figures import DEFAULT, INDEXED, NAIVE, PEER, Line, Panel

# --- a first fit ---------------------------------------------------------------------------------------------


# all that took longer than SVI in one round over the 44 models that are not refused, at commit 147f5be
FIRST_MODELS = (
    "outcomes", "land", "rate", "process", "ar1", "claims", "bounded", "ratings", "traffic", "counties_centred",
    "clicks", "species", "emax", "counties_reparam", "columns",
)  # fmt: skip


def first_kept(found: dict) -> dict:
    """CPU seconds of ``fit`` and of SVI by model, with its rows where it has several numbers of them."""
    models = [name.partition(",")[0] for name in found]
    return {
        name if models.count(model) > 1 else model: of["rounds"]
        for model, (name, of) in zip(models, found.items(), strict=True)
    }


FIRST = Measurement("first_fit", f"thirty.py {' '.join(FIRST_MODELS)} --only rounds", first_kept)
RATE = Measurement("first_fit_parts", "thirty.py rate --only parts", lambda found: found["rate, 100000"]["parts"])


PARTS = ("trace", "lower", "compile")
SLOWEST = 6  # models that the table shows


def first(results: dict, aims: list[Aim]) -> str:
    found, parts = results["first_fit"], results["first_fit_parts"]
    ratios = {name: spread(np.array(one["fit"]) / np.array(one["svi"])) for name, one in found.items()}
    share = {tool: {part: 100 * one[part] / one["all"] for part in PARTS} for tool, one in parts.items()}
    spent = {tool: sum(one.values()) for tool, one in share.items()}
    profiled = (
        f"compilation: of a first fit, {spent['fit']:.0f} % is tracing, lowering and compiling "
        f"{parts['fit']['programs']} programs; of SVI {spent['svi']:.0f} %, for {parts['svi']['programs']} smaller "
        "ones. `fit` has programs for checks, ELBO and k-hat, which SVI does not compute"
    )
    for name, of in ratios.items():
        limit = profiled if name == "rate" else NOT_PROFILED
        aims.append(Aim(f"first fit of `{name}` over SVI", of[0], bounds.FIT, limit=limit))
    order = sorted(ratios, key=lambda name: -ratios[name][0])[:SLOWEST]
    rows = [
        [f"`{name}`", number(np.median(found[name]["fit"])), number(np.median(found[name]["svi"])),
         ratio(ratios[name]) if len(found[name]["fit"]) > 1 else number(ratios[name][0])]
        for name in order
    ]  # fmt: skip
    under = sum(of[0] <= 1 for of in ratios.values())
    return f"""`fit` at its default against NumPyro's `SVI(AutoNormal, Trace_ELBO, Adam(0.01))`, 5000 steps each,
compilation included,
with empty caches. `fit` also checks the model, computes ELBOs along the run, and k-hat. The models are exactly those
of [thirty-models.md](thirty-models.md) that took longer under `fit` than under SVI in an earlier run, one round, over
the 44 that are not refused (commit `147f5be`; no record of it was kept), with all their numbers of rows: the slowest
beside SVI, not a sample of all. {under} of {len(ratios)} cases take at most as long as under SVI; the median ratio of
these is {number(np.median([of[0] for of in ratios.values()]))},
the smallest {number(min(of[0] for of in ratios.values()))}.
The largest:

{table(["model", "`fit`, s", "SVI, s", "ratio"], rows)}

What the time is made of, on `rate`, a model of one latent variable without a plate (shares of wall-clock time):

{table(["", "programs", "tracing", "lowering", "XLA's compilation", "all else"],
       [[name, str(parts[tool]["programs"]), *(f"{share[tool][part]:.0f} %" for part in PARTS),
         f"{100 - spent[tool]:.0f} %"]
        for tool, name in (("fit", "`fit`"), ("svi", "SVI"))])}

A second fit of the same shapes compiles nothing. XLA's optimisation level 0 would save time here, but leaves the
steps
unoptimised."""  # fmt: skip


# --- growth --------------------------------------------------------------------------------------------------


def axis_kept(axis: str):
    return lambda found: {"steps": found["steps"], "runs": found["sections"][axis]}


ROWS = Measurement("growth_rows", "growth.py --only rows", axis_kept("rows"))
FEATURES = Measurement("growth_features", "growth.py --only features --rounds 2", axis_kept("features"))
DEVICES = Measurement("devices", "devices.py --quick")


def of(runs: list[dict], key: str) -> np.ndarray:
    return np.array([run[key] for run in runs])


def growth_limit(runs: list[dict], tool: str) -> str:
    """Why a fit takes longer than SVI."""
    if f"{tool} khat" not in runs[0]:
        return NOT_PROFILED
    whole, elbos, khat = (np.median(of(runs, f"{tool} {part}")) for part in ("CPU", "elbos", "khat"))
    return (
        f"of {number(whole)} s, ELBOs along the run take {number(elbos)} and k-hat {number(khat)}, passes over all "
        "rows that SVI does not make"
    )


def growth(results: dict, aims: list[Aim]) -> str:
    lines = []
    for name, axis in (("growth_rows", "rows"), ("growth_features", "features")):
        for at, runs in results[name]["runs"].items():
            svi, many = of(runs, "svi CPU"), len(runs) > 1
            shares = {tool: spread(of(runs, f"{tool} CPU") / svi) for tool in ("naive", "default")}
            count = f"{int(at):,} {axis}".replace(",", " ")
            for tool, share in shares.items():
                what = f"{'`naive`' if tool == 'naive' else 'default'} over SVI, {count}"
                aims.append(Aim(what, share[0], bounds.FIT, limit=growth_limit(runs, tool)))
            nats = [of(runs, f"{tool} elbo") - of(runs, "svi elbo") for tool in ("naive", "default")]
            lines.append(
                [count, number(np.median(svi)), *(ratio(s) if many else number(s[0]) for s in shares.values()),
                 *(f"{np.mean(one):+.3g} [{one.min():+.3g}, {one.max():+.3g}]" if many else f"{one[0]:+.3g}"
                   for one in nats)]
            )  # fmt: skip
    steps = f"{results['growth_rows']['steps']:,}".replace(",", " ")
    return f"""Logistic regression, {steps} steps with batches of 100, compilation included, beside the same SVI: by
rows (20 features)
and by features (10 000 rows). The aim, a ratio of at most 1, is met where this page's first table does not say
otherwise.

![CPU seconds of a fit by rows and by features](figures/growth-fits.svg)

{table(["", "SVI, s", "`naive` / SVI", "default / SVI", "nats above SVI: `naive`", "default"], lines)}

* In fits of less than two passes over the data, the default is `naive`: hence the equal nats at 1e7 rows.
* What grows with the rows: the copy of the data to the device, NumPyro's own first run of the model, and the density
check and
  ELBOs on all rows. An epoch's shuffle sorts random keys up to 2^19 rows; above, it is a bijection without a sort.
SVI draws each
  batch by a permutation of all rows."""  # fmt: skip


def growth_figure(results: dict):
    shown = []
    for name, x in (("growth_rows", "rows N"), ("growth_features", "features d")):
        runs = results[name]["runs"]
        at = [float(one) for one in runs]
        lines = []
        for tool, look in (("svi", PEER), ("naive", NAIVE), ("default", DEFAULT)):
            spans = [spread(of(one, f"{tool} CPU")) for one in runs.values()]
            lines.append(Line(look, at, *(list(part) for part in zip(*spans, strict=True))))
        shown.append(Panel("20 features" if name == "growth_rows" else "10 000 rows", x, "CPU s of a fit", lines))
    return "growth-fits", shown


# --- devices -------------------------------------------------------------------------------------------------


def devices(results: dict, aims: list[Aim]) -> str:
    runs = results["devices"]["runs"]
    tools, names = ("lowvar", "numpyro", "numpyro indexed"), ("lowvar", "NumPyro", "NumPyro with the index")
    rows = [
        [count, *(number(1e3 * float(np.min(one[f"{tool} wall"])), 3) for tool in tools),
         *(number(1e3 * float(np.median(one[f"{tool} cpu"])), 3) for tool in tools)]
        for count, one in runs.items()
    ]  # fmt: skip
    for count, one in runs.items():
        where = f"{count} device{'s' if count != '1' else ''}"
        cpu, same = (float(np.median(one["lowvar cpu"]) / np.median(one[f"{tool} cpu"])) for tool in tools[1:])
        wall, alike = (float(np.min(one["lowvar wall"]) / np.min(one[f"{tool} wall"])) for tool in tools[1:])
        limit = "SVI of a model that reads its rows by the plate's index, as that of `fit` does, takes {} times SVI's "
        limit += "time without the index; `fit` takes {} times that"
        said = limit.format(number(cpu / same), number(same))
        aims.append(Aim(f"CPU time of a step over SVI, {where}", cpu, bounds.DEVICES, limit=said))
        if int(count) <= results["devices"]["cores"]:
            said = limit.format(number(wall / alike), number(alike))
            aims.append(Aim(f"wall time of a step over SVI, {where}", wall, bounds.DEVICES, limit=said))
    return f"""`fit(devices=n)` and NumPyro's SVI with data divided by `NamedSharding`: logistic regression, 100 000
rows of 50
features, all of them in every step. Virtual devices of {results["devices"]["cores"]} cores that other jobs share
show what the
division costs in CPU time; wall-clock time (the smallest of the rounds) needs a core for each device. The aim is at
most the time of SVI: CPU time with every number of devices, wall-clock time with at most {results["devices"]["cores"]}.

![Time of a step by devices](figures/growth-devices.svg)

{table(["devices", *(f"{tool}, {kind} ms" for kind in ("wall", "CPU") for tool in names)], rows)}

`fit` has a copy of all rows
on every device, and gathers its share of a batch by row numbers in every step. SVI
reads its share where it lies, without a plate's index, which suits steps of all rows only; "with the index" is SVI of
the model that `fit` has."""


def devices_figure(results: dict):
    runs = results["devices"]["runs"]
    at, shown = [float(count) for count in runs], []
    for kind, title in (("cpu", "CPU time"), ("wall", "wall-clock time")):
        lines = []
        for tool, look in (("numpyro", PEER), ("numpyro indexed", INDEXED), ("lowvar", NAIVE)):
            spans = [spread(1e3 * np.array(one[f"{tool} {kind}"])) for one in runs.values()]
            lines.append(Line(look, at, *(list(part) for part in zip(*spans, strict=True))))
        shown.append(Panel(title, "devices", "ms a step", lines))
    return "growth-devices", shown


# --- rows in files -------------------------------------------------------------------------------------------

ORDERS = ("a feature", "the outcome", "the gradient", "bound")


def files_kept(found: dict) -> dict:
    """The variances by the number of blocks, a row of the table each."""
    growth, flat = (found["sections"][name] for name in ("growth", "shuffle"))
    counts = dict.fromkeys(key.split()[0] for key in flat)
    return {"growth": growth, "shuffle": {n: [flat[f"{n} {order}"] for order in ORDERS] for n in counts}}


FILES = Measurement("rows_in_files", "rows_in_files.py", files_kept)


def files(results: dict, aims: list[Aim]) -> str:
    found, shuffle = results["rows_in_files"]["growth"], results["rows_in_files"]["shuffle"]
    rows = []
    for name, one in found.items():
        count, estimator, where = name.split()
        rows.append([f"{int(count):.0e}".replace("e+0", "e"), f"`{estimator}`", where, number(one["seconds"], 3),
                     number(one["microseconds"]), number(one["before"], 3), number(one["peak"], 3)])  # fmt: skip
    more = {
        count: [100 * (found[f"100000000 {e} files"]["peak"] / found[f"{count} {e} files"]["peak"] - 1)
                for e in ("naive", "joint_svrg")] for count in ("1000000", "10000000")
    }  # fmt: skip
    small, large = (" % and ".join(f"{one:.0f}" for one in of) for of in more.values())
    of = {count: dict(zip(ORDERS, values, strict=True)) for count, values in shuffle.items()}
    steep = ", ".join(
        f"{number(one['the gradient'])} with {count} ({number(one['bound'])})" for count, one in of.items()
    )
    flat = max(one[order] for one in of.values() for order in ORDERS[:2])
    return f"""One pass of logistic regression with 5 features, 24 bytes a row, in batches of 100, from memory-mapped
files, and with all
rows in memory up to 1e7. Each fit has a process of its own. CPU time is that of the whole fit, with checks and
ELBOs, over its
steps; seconds of a pass are wall-clock time, which other jobs prolong; memory is anonymous, without pages of files.

{table(["rows", "estimator", "rows are in", "s, a pass", "CPU µs a step", "MB before", "largest MB"], rows)}

From 1e6 to 1e8 rows, the largest memory grows by {small} % (`naive`, `joint_svrg`), from 1e7 by {large} %: a fit holds
the window in use, the one that
is read, and copies of both. Density check and ELBOs read all rows in memory, and 32 768 of the files, and a pass in
memory
compiles the program of an epoch within its time: the difference is not that of a step.

Shuffling in blocks: the subsampling variance of the gradient at the truth, over that of batches drawn at random, for
1e6 rows in
{max(map(int, of))} blocks, by the blocks in a window (in brackets the bound that `fit` states), if rows are sorted
by the gradient
itself: {steep}. Sorted by a feature or by the outcome, it is at most {flat:.3f}. A window of memory-mapped rows has
1024 blocks,
where the bound is 1.1."""


SECTIONS = (
    Section("A first fit", (FIRST, RATE), first),
    Section("Growth with rows and features", (ROWS, FEATURES), growth, growth_figure),
    Section("Growth with devices", (DEVICES,), devices, devices_figure),
    Section("Rows in files", (FILES,), files),
)
