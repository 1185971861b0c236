"""Decompositions of gradient variance, and integrals."""

from lowvar.studies.drawing.style import Estimator

from . import aims as bounds
from .common import NOT_PROFILED, OPERATORS, Aim, Measurement, Section, number, operators, table
from .figures import Line, Panel

# --- decompose -----------------------------------------------------------------------------------------------

DECOMPOSE = Measurement("decompose", "decompose.py --rows 1e3 --rows 2e5")


def decompose(results: dict, aims: list[Aim]) -> str:
    rows = []
    for count, one in results["decompose"]["rows"].items():
        rest = one["seconds"] - sum(one["parts"].values())
        rows.append([f"{int(count):,}".replace(",", " "), number(one["seconds"], 3), number(one["parts"]["follow"]),
                     number(rest), number(one["parts"]["times"]),
                     f"{100 * max(one['half_widths'].values()):.0f} %"])  # fmt: skip
    found = results["decompose"]
    least, *_, most = found["rows"].values()
    names = ", ".join(f"`{name}`" for name in most["half_widths"])
    return f"""`lowvar.decompose(model, data, fit)` of logistic regression with {found["dim"]} features after
{found["steps"]} steps
with batches of 100: a first call with empty caches, estimators {names}. The precision is the largest half
width of a 95 %
interval of a total variance, relative to it.

{table(["rows", "CPU s", "replay of the fit", "designs", "times of a step", "precision"], rows)}

{number(least["seconds"])} of the {number(most["seconds"])} s are there at the smallest number of rows too: most of
the time is compilation,
of each estimator three times. Above 16 384 rows, the designs have a sample of them. A precision to stop at is
therefore no
argument: fewer designs would save little, and `replicates=128` in place of 32 halves the intervals."""


# --- integrals -----------------------------------------------------------------------------------------------


def table_kept(found: dict) -> dict:
    kept: dict[str, dict] = {}
    for row in found["sections"]["table"]:
        if row["method"] in METHODS:
            kept.setdefault(str(row["m"]), {})[row["method"]] = [row["mae"], row["seconds"]]
    seconds = sorted(found["sections"]["same_points"][0]["seconds"])
    return {"table": kept, "same_points": [seconds[len(seconds) // 2], seconds[0], seconds[-1]]}


METHODS = {
    "control_functional": Estimator("control functional", "#0072B2", "s", 2.2),
    "vector_valued": Estimator("vector-valued", "#D55E00", "D", 2.2),
    "vector_valued, same points": Estimator("vector-valued, shared points", "#009E73", "^", 2.2),
    "paper_vv": Estimator("peer: the paper's vector-valued", "#767676", "o", 1.8, (0, (4, 1.5))),
}
PUBLISHED = {10: (3.72, 2.6), 20: (1.29, 5), 50: (1.04, 13.5), 100: (1.07, 27.6), 150: (0.85, 49)}  # error, seconds
TABLE = Measurement("integrals", "integrals.py --only table --only same_points", table_kept)
GROWTH = Measurement(
    "integrals_growth", "integrals.py --only growth", lambda found: {"growth": found["sections"]["growth"]}
)


def integrals(results: dict, aims: list[Aim]) -> str:
    found, rows = results["integrals"], []
    for m, (error, seconds) in PUBLISHED.items():
        one, cells = found["table"][str(m)], []
        for method in ("control_functional", "vector_valued"):
            cells.append(number(one[method][0], 3))
            if bound := bounds.INTEGRAL_ERROR[method].get(m):
                aim = Aim(f"error of `{method}`, m = {m}", one[method][0], bound)
                aims.append(aim)
                cells[-1] += f", {aim.word}"
        cells += [number(one[method][1]) for method in ("control_functional", "vector_valued")]
        if bound := bounds.INTEGRAL_SECONDS.get(m):
            aim = Aim(f"seconds of `vector_valued`, m = {m}", one["vector_valued"][1], bound)
            aims.append(aim)
            cells[-1] += f", {aim.word}"
        rows.append(
            [str(m), *cells, f"{number(one['paper_vv'][0])}, {number(one['paper_vv'][1])}", f"{error:g}, {seconds:g}"]
        )
    shared = Aim("seconds of ten tasks at 500 shared points", found["same_points"][0], bounds.SHARED_POINTS)
    aims.append(shared)
    powers: dict[str, list[str]] = {}
    for row in results["integrals_growth"]["growth"]:
        powers.setdefault(row["method"], []).append(
            f"{row['axis'].replace('tasks', 'T').replace('dim', 'd')}^{row['exponent']:.1f}"
        )
    grown = "; ".join(f"{METHODS[name].label.removeprefix('peer: ')} {', '.join(of)}" for name, of in powers.items())
    grows = {(row["method"], row["axis"]): row for row in results["integrals_growth"]["growth"]}
    axes = {"tasks": "T", "m": "m", "dim": "d"}
    for axis, letter in axes.items():
        mine, theirs = (grows[method, axis] for method in ("vector_valued", "paper_vv"))
        for at, *seconds in zip(mine["at"], mine["seconds"], theirs["seconds"], strict=True):
            what = f"seconds of `vector_valued` over `paper_vv`, {letter} = {at}"
            aims.append(Aim(what, seconds[0] / seconds[1], bounds.PAPER, limit=_limit(axis, grows, results)))
    behind = grows["vector_valued", "tasks"]
    return f"""The borehole function in eight dimensions, m points each of a good and a rough model, 100 repetitions:
mean absolute error,
and seconds of a repetition among 25 computed at once. `paper_vv` is the method of the paper (Sun, Barp and Briol),
computed here with the 600 epochs that its Table 2 needs, whatever the problem;
published numbers are from another machine.

{
        table(
            [
                "m",
                "`control_functional`: error",
                "`vector_valued`: error",
                "seconds, `control_functional`",
                "seconds, `vector_valued`",
                "`paper_vv`: error, seconds",
                "published: error, seconds",
            ],
            rows,
        )
    }

Ten tasks at 500 shared points in eight dimensions take {number(shared.value)} s, hyper-parameters included ({
        shared.word
    }; published
3435).

![Seconds by tasks and by points](figures/growth-integrals.svg)

How the time of one repetition grows (exponents of power laws, from m = 100, T = 2, d = 4): {grown}. The
exponents in m are far from 3, the asymptotic one of factorisations: they do not hold for larger m. In T,
`vector_valued` factorises one matrix of T m rows, unless the tasks share their points: with T = {behind["at"][-1]} it
takes {number(behind["seconds"][-1])} s and the paper's method {
        number(grows["paper_vv", "tasks"]["seconds"][-1])
    }. The aim, at most the time of the paper's method, is met where
this page's first table does not say otherwise."""


def _limit(axis: str, grows: dict, results: dict) -> str:
    """What keeps ``vector_valued`` behind the paper's method, from how both grow."""
    if axis != "tasks":
        return NOT_PROFILED
    case = "vector_valued, T = 8"
    found = results["operators"]["cases"][case]
    mine, theirs = (grows[method, axis]["exponent"] for method in ("vector_valued", "paper_vv"))
    return (
        f"seconds grow as T^{mine:.1f}, those of the paper's method as T^{theirs:.1f}: the hyper-parameters are learnt "
        f"with the whole matrix of T m rows, which is factorised {number(found['factorised'] / 2, 3)} times with T = 8 "
        f"(and a small one as often): "
        f"{operators(results, case)}"
    )


def integrals_figure(results: dict):
    shown = []
    for axis, x in (("tasks", "tasks T"), ("m", "points m of a task")):
        lines = []
        for row in results["integrals_growth"]["growth"]:
            if row["axis"] == axis:
                at, seconds = [float(one) for one in row["at"]], row["seconds"]
                lines.append(Line(METHODS[row["method"]], at, seconds, seconds, seconds))
        shown.append(Panel("100 points, d = 4" if axis == "tasks" else "T = 2, d = 4", x, "CPU s", lines))
    return "growth-integrals", shown


SECTIONS = (
    Section("Decompositions", (DECOMPOSE,), decompose),
    Section("Integrals", (TABLE, GROWTH, OPERATORS), integrals, integrals_figure),
)
