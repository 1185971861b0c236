"""Black-box searches."""

import numpy as np

from . import aims as bounds
from .common import NOT_PROFILED, OPERATORS, Aim, Measurement, Section, number, operators, ratio, table

NAMES = {"evosax_snes": "evosax SNES", "evosax_xnes": "evosax xNES", "evosax_open_es": "evosax Open-ES"}
DRIVEN = {"pycma": "pycma", "pycma, diagonal": "pycma, diagonal", "cmaes": "cmaes CMA", "sep_cmaes": "cmaes SepCMA"}
RATIOS = {
    "fast_ingo over evosax SNES, both mapped": ("fast_ingo, JAX x {runs}", "evosax_snes, JAX x {runs}"),
    "ingo (full covariance) over pycma": ("ingo, JAX x {runs}", "pycma x 1"),
    "fast_ingo over pycma's diagonal version, one run each": ("fast_ingo, JAX x 1", "pycma, diagonal x 1"),
    "fast_ingo over SepCMA, one run each": ("fast_ingo, JAX x 1", "sep_cmaes x 1"),
}
BOUNDS = {"fast_ingo over evosax SNES, both mapped": bounds.SNES, "ingo (full covariance) over pycma": bounds.PYCMA}
ALIKE = ("ingo_step", "igo")  # which take as long as ingo
COLUMNS = ("JAX, mapped", "JAX", "PyTorch, mapped", "PyTorch")


def time_kept(found: dict) -> dict:
    section = found["sections"]["time"]
    many, each, driven = section["runs"], {}, {}
    for row in section["cases"]:
        values = [row["microseconds_per_iteration"], row["low"], row["high"]]
        name, _, backend = row["case"].partition(", ")
        if row["case"] in DRIVEN:
            driven[DRIVEN[row["case"]]] = values
        else:
            column = f"{backend}, mapped" if row["runs"] == many else backend
            each.setdefault(NAMES.get(name, name), {})[column] = values
    of = {
        (row["ours"], row["theirs"]): [row[key] for key in ("ratio", "ratio_low", "ratio_high")]
        for row in section["ratios"]
    }
    ratios = {name: of[tuple(one.format(runs=many) for one in pair)] for name, pair in RATIOS.items()}
    return {"microseconds": each, "driven": driven, "ratios": ratios}


def default_kept(found: dict) -> dict:
    kept: dict[tuple, dict] = {}
    for row in found["sections"]["default"]["cases"]:
        case = {key: row[key] for key in ("function", "noise", "dim")}
        reached = [row["evaluations"]] if row["successes"] else []
        of = kept.setdefault(tuple(case.values()), case | {"reached": {}})
        of["reached"][row["method"]] = [row["successes"], *reached]
    return {"cases": list(kept.values())}


def noisy_kept(found: dict) -> dict:
    cases = []
    for row in found["cases"]:
        gaps = {
            name: [float(np.mean(g)), float(2 * np.std(g, ddof=1) / len(g) ** 0.5)] for name, g in row["gaps"].items()
        }
        cases.append({key: row[key] for key in ("dim", "per_dimension", "function", "noise")} | gaps)
    return {"cases": cases}


TIME = Measurement("search", "search.py --only time", time_kept)
DEFAULT = Measurement("search_default", "search.py --only default --runs 12", default_kept)
NOISY = Measurement("search_noisy", "noisy_search.py --quick", noisy_kept)


def times(results: dict, aims: list[Aim]) -> str:
    found = results["search"]
    rows = []
    for name, one in found["microseconds"].items():
        if name in ALIKE:
            continue
        cells = [ratio(one[column], 3) if column in one else "" for column in COLUMNS]
        if name in bounds.GENERATION:
            for at in (0, 2):
                what = f"`{name}`, {COLUMNS[at]}: µs a generation"
                aim = Aim(what, one[COLUMNS[at]][0], bounds.GENERATION[name], limit=_by_operators(results, name, at))
                aims.append(aim)
                cells[at] += f", {aim.word}"
        rows.append([name if " " in name else f"`{name}`", *cells])
    ratios = []
    for name, one in found["ratios"].items():
        word = ""
        if name in BOUNDS:
            aim = Aim(f"speed of {name}", one[0], BOUNDS[name], below=False)
            aims.append(aim)
            word = aim.word
        ratios.append([name, ratio(one), word])
    driven = ", ".join(f"{name} {ratio(one, 3)}" for name, one in found["driven"].items())
    return f"""The ellipsoid, d = 100, generations of N = 18 points, float64. Times include noise and function.

{table(["µs a generation of one run", *(f"{one.replace('mapped', '20 runs mapped')}" for one in COLUMNS)], rows)}

Driven from Python, one run, µs: {driven}.

{table(["speed per evaluation", "ratio", "aim"], ratios)}

Not the same on both sides: lowvar draws 24 random bits a number in single precision and computes the rest in double;
evosax draws 53 bits. JAX draws the noise for both backends, so that their runs agree. How many evaluations a
search needs:
[reproduction/ingo.md](reproduction/ingo.md)."""


def _by_operators(results: dict, name: str, column: int) -> str:
    """What a generation of mapped runs in PyTorch is made of, if it was counted."""
    case = f"{name}, 20 runs mapped"
    counted = COLUMNS[column] == "PyTorch, mapped" and case in results["operators"]["cases"]
    if not counted:
        return NOT_PROFILED
    noise = results["operators"]["cases"][f"{case}: noise by JAX"]["microseconds"]
    return f"a generation of 20 runs: {operators(results, case)}; JAX draws the noise in {number(noise, 3)} of them"


def default(results: dict, aims: list[Aim]) -> str:
    methods = ("ingo_cma", "ingo_path", "ingo", "fast_ingo", "pycma")
    rows = []
    for case in results["search_default"]["cases"]:
        one, noise = case["reached"], f", {case['noise']:g}" if case["noise"] else ""
        name = f"{case['function'].replace('rosenbrock', 'Rosenbrock')}{noise}, d = {case['dim']}"
        cells = [", ".join([str(one[m][0]), *(f"{e:.3g}".replace("e+0", "e") for e in one[m][1:])]) for m in methods]
        both = not case["noise"] and len(one["ingo_cma"]) > 1 and len(one["pycma"]) > 1
        rows.append([name, *cells, number(one["ingo_cma"][1] / one["pycma"][1]) if both else ""])
    return f"""Functions under a random rotation about an optimum ~ N(0, I), start ~ U(0, 1)^d, sigma0 = 0.5, 12
runs. Cells show
successes and the median evaluations of the successful runs. The target is 1e-8 without noise (budgets 4e4, 8e4, 3e5
for d = 10, 20,
50), and 0.05 for the true value at the mean with noise of the stated standard deviation.

{table(["function, noise, d", *(f"`{m}`" for m in methods[:-1]), "pycma", "`ingo_cma` / pycma"], rows)}

Rosenbrock has a local minimum, in which the failed runs of `ingo_cma` and pycma may have ended. The default is a
full covariance up
to d = 200: beyond, the cost of its `d x d` matrices and the `O(d^2)` evaluations needed to learn them favour the
diagonal
`fast_ingo`; this limit follows from cost, not from a comparison. If the principal axes of `f` are the coordinate
axes, choose
`fast_ingo` or `fast_ingo_adaptive`."""


def noisy(results: dict, aims: list[Aim]) -> str:
    methods = ("auto", "ingo_cma", "ingo_path", "pycma")
    groups: dict[tuple, list[dict]] = {}
    for row in results["search_noisy"]["cases"]:
        groups.setdefault((row["noise"], row["dim"], row["per_dimension"]), []).append(row)
    rows = [
        [noise, str(dim), str(per), *(" / ".join(f"{case[m][0]:.1f}" for case in cases) for m in methods)]
        for (noise, dim, per), cases in sorted(groups.items())
    ]
    names = " / ".join(case["function"] for case in next(iter(groups.values())))
    worst = max(case[m][1] for case in results["search_noisy"]["cases"] for m in methods)
    usual = np.median([case[m][1] for case in results["search_noisy"]["cases"] for m in methods])

    def gaps(noise: str, functions: str = names) -> list[dict]:
        """The final values of the cells with a kind of noise, and which cell it is."""
        return [
            {m: case[m][0] for m in methods} | {"of": f"{case['function']}, d = {dim}, {per} d evaluations"}
            for (kind, dim, per), cases in groups.items()
            for case in cases
            if kind.startswith(noise) and case["function"] in functions
        ]

    factor, added, convex = gaps("factor"), gaps("added"), gaps("added", "sphere / ellipsoid")
    ahead = sum(one["auto"] < one["ingo_path"] for one in factor)
    near = sum(one["auto"] <= one["ingo_cma"] + 1 for one in factor)
    far = max(factor, key=lambda one: one["auto"] - one["ingo_cma"])
    better = sum(one["ingo_path"] < one["auto"] for one in convex)
    best = max(one["auto"] - one["ingo_path"] for one in convex)
    return f"""The decimal logarithm of the true value at the final mean, averaged over three seeds, for {names}.
Noise is normal with
standard deviation 1 (added), or lognormal (a factor exp(0.5 e)); start 0, `sigma0 = 1`. Two standard errors of a
cell are
{usual:.1f} in the median and {worst:.1f} at most (each is in the record).

{table(["noise", "d", "budget / d", "`auto`", "`ingo_cma`", "`ingo_path`", "pycma"], rows)}

`auto` starts with `ingo_cma`, and changes to `ingo_path` when noise is four fifths of the variance within a
generation, on average
over eight checks. With a factor, which vanishes at the minimum, it is lower than `ingo_path` in {ahead} of the
{len(factor)} cells, and lower than `ingo_cma` or within a factor of ten of it in {near}; it is furthest behind on
{far["of"]}: {far["auto"]:.1f} against {far["ingo_cma"]:.1f}. With added noise, `method="ingo_path"` is lower than
`auto` in {sum(one["ingo_path"] < one["auto"] for one in added)} of the {len(added)} cells, and on sphere and
ellipsoid in {better} of {len(convex)}, by a factor of up to {10**best:.0f}: choose it if you
know that the noise has a constant size and `f` one minimum."""


SECTIONS = (
    Section("Black-box search", (TIME, OPERATORS), times),
    Section("What the default search reaches", (DEFAULT,), default),
    Section("Noisy functions", (NOISY,), noisy),
)
