"""Many particles a step, and PyTorch."""

from . import aims as bounds
from .common import NOT_PROFILED, OPERATORS, Aim, Measurement, Section, number, operators, ratio, rows_of, table
from .figures import NAIVE, PEER, Line, Panel


def steps_kept(found: dict) -> dict:
    """Ratios by task, and that of the step of ``mlmc`` with 100 particles over that with one."""
    sections = found["sections"]["steps"]
    steps = {name.split("-")[0]: rows_of(section["runs"]) for name, section in sections.items()}
    few = {
        name.split("-")[0]: [section["few"]["shuffled"][key] for key in ("ratio", "ratio_low", "ratio_high")]
        for name, section in sections.items()
        if section["few"]["shuffled"]
    }
    noise = {"noise": by_task("noise")(found)} if "noise" in found["sections"] else {}
    return {"steps": steps, "few": few} | noise


def by_task(section: str):
    return lambda found: {name.split("-")[0]: one for name, one in found["sections"][section].items()}


def variance_kept(found: dict) -> dict:
    return {
        task: {row["case"]: [row[key] for key in ("ratio", "ratio_low", "ratio_high")] for row in one["runs"]}
        for task, one in by_task("variance")(found).items()
    }


JAX = Measurement("particles_jax", "mlmc.py --only steps --backend jax", steps_kept)
TORCH = Measurement(
    "particles_torch",
    'mlmc.py --only steps --only noise --backend torch --method mc --method "mlmc, N = 100" --method "mlmc, N = 1"',
    steps_kept,
)
GROWTH = Measurement(
    "particles_growth", "mlmc.py --quick --only growth --task blr --task hlr --backend jax", by_task("growth")
)
NOISE = Measurement(
    "particles_noise", "mlmc.py --quick --only noise --task hlr --task bnn --backend torch", by_task("noise")
)
VARIANCE = Measurement("particles_variance", "mlmc.py --quick --only variance", variance_kept)
LOOP = Measurement("torch_loop", "torch_loop.py --quick", lambda found: {
    task: {name: [row["ratio"], row["low"], row["high"], row["microseconds"]] for name, row in rows.items()}
    for task, rows in found.items()
})  # fmt: skip
TASKS = {"hlr": "hlr (100 rows, 1012 latent)", "blr": "blr (455 rows, 32 latent)", "bnn": "bnn (100 rows, 653 latent)"}
CASES = ("rqmc", "antithetic", "mlmc, N = 100", "mlmc, N = 1", "storm", "mlmc_adaptive")
SCIPY, PEER_CASE, PLAIN = "rqmc by SciPy's engine", "NumPyro svi.update", "PyTorch, autograd"


def limits(results: dict) -> dict[tuple[str, str, str], str]:
    """Why an aim is missed, by backend, task and row of the table."""
    noise, torch = results["particles_torch"]["noise"], results["particles_torch"]["steps"]
    said = {}
    for task in ("hlr", "bnn"):
        of = noise[task]
        said["PyTorch", task, "peer"] = (
            f"noise: both backends see the same, so JAX draws it, {of['JAX']:.0f} µs "
            f"({number(1e3 * of['JAX'] / of['numbers'])} ns a number) of a step of {number(torch[task]['mc'][3], 3)}, "
            f"and {of['copy']:.0f} for a copy; `torch.randn` takes {of['torch']:.0f}. "
            f"Without noise on both sides, the ratio is {number(without(task, results))}"
        )
    one, many = torch["blr"]["mlmc, N = 1"][0], torch["blr"]["mlmc, N = 100"][0]
    mc = torch["blr"]["mc"][3]
    said["PyTorch", "blr", "few"] = (
        f"a part that does not depend on N: a step takes {one * mc:.0f} µs with N = 1 and {many * mc:.0f} with "
        f"N = 100: {operators(results, 'blr: mlmc, N = 1', 'blr: mlmc, N = 100')}"
    )
    of = results["particles_noise"]["bnn"]
    said["JAX", "bnn", "peer"] = (
        f"{NOT_PROFILED}: the parts timed alone, noise {of['JAX']:.0f} µs and gradient {of['gradient']:.0f}, add up to "
        f"{'more' if of['JAX'] + of['gradient'] > of['mc'] else 'less'} than the step of {of['mc']:.0f}, so they do "
        "not say where the rest is"
    )
    return said


def without(task: str, results: dict) -> float:
    """Time of plain PyTorch over ours, less the noise of each."""
    of, step = (results["particles_torch"][part][task] for part in ("noise", "steps"))
    mine = step["mc"][3]
    return (step[PLAIN][0] * mine - of["torch"]) / (mine - of["JAX"] - of["copy"])


def particles(results: dict, aims: list[Aim]) -> str:
    said, found = limits(results), {"JAX": results["particles_jax"], "PyTorch": results["particles_torch"]}

    def row(title, cell) -> list[str]:
        return [title, *(cell(backend, task) for backend in found for task in TASKS)]

    def aimed(backend, task, one, name, bound, below=True, limit="") -> str:
        aim = Aim(f"{task}, {backend}: {name}", one[0], bound, below, limit)
        aims.append(aim)
        return f"{ratio(one)}, {aim.word}"

    def scheme(backend, task, case) -> str:
        one = found[backend]["steps"][task].get(case)
        if one and case == "rqmc":
            return aimed(backend, task, one, "`rqmc` over `mc`", bounds.RQMC)
        return ratio(one) if one else ""

    def few(backend, task) -> str:
        one = found[backend]["few"].get(task)
        name, limit = "`mlmc`, N = 100 over N = 1", said.get((backend, task, "few"), NOT_PROFILED)
        return aimed(backend, task, one, name, bounds.FEW, False, limit) if one else ""

    def peer(backend, task) -> str:
        case = PEER_CASE if backend == "JAX" else PLAIN
        name = "NumPyro over `mc`" if backend == "JAX" else "plain PyTorch over `mc`"
        one, limit = found[backend]["steps"][task][case], said.get((backend, task, "peer"), NOT_PROFILED)
        return aimed(backend, task, one, name, bounds.PARTICLES_PEER, False, limit)

    rows = [row("`mc`, µs", lambda backend, task: number(found[backend]["steps"][task]["mc"][3], 3))]
    for case in (*CASES, SCIPY):
        title = f"`mlmc`{case.removeprefix('mlmc')}" if "N =" in case else case if case == SCIPY else f"`{case}`"
        rows.append(row(title, lambda backend, task, case=case: scheme(backend, task, case)))
    rows += [row("`mlmc`, N = 100 over N = 1", few), row("the peer over `mc`", peer)]
    variances = []
    for task, schemes in results["particles_variance"].items():
        for case, one in schemes.items():
            if case == "rqmc" and task in bounds.VARIANCE:
                word = aimed("JAX", task, one, "variance of `rqmc` over that of `mc`", bounds.VARIANCE[task])
            else:
                word = ratio(one)
            if case != "mc":
                variances.append(f"`{case}` on {task} {word}")
    growth = results["particles_growth"]
    ends = "; ".join(
        f"on {task} " + ", ".join(f"{number(one['ratio'])} with {count}" for count, one in counts.items())
        for task, counts in growth.items()
    )
    heads = [*(f"JAX, {name}" for name in TASKS.values()), *(f"PyTorch, {task}" for task in TASKS)]
    return f"""Tasks of multilevel Monte Carlo VI with 100 particles a step unless stated otherwise, all rows as a
batch,
float32; in PyTorch data are simulated in the tasks' shapes. The peer in JAX is NumPyro's `svi.update` with as many
particles, in PyTorch
all particles as one matrix, autograd and `torch.optim.Adam`.

{table(["time of a step over `mc`", *heads], rows)}

Variances of the gradient over that of `mc`, after 300 steps of Adam at 0.01 (geometric means over four runs, with 95
% intervals):
{"; ".join(variances)}.

![Time of a step by particles](figures/growth-particles.svg)

By the number of particles, a step of NumPyro takes this many times that of `mc`: {ends}.

* Each Sobol point is computed independently, so `rqmc` costs no more than independent points; SciPy's engine builds
  them one by one.
* PyTorch could draw its own noise in less time, but runs in JAX and PyTorch have the same noise, and tests compare
  them.
* `torch.compile` is not used; what it would save is in no record."""


def particles_figure(results: dict):
    shown = []
    for task, counts in results["particles_growth"].items():
        at, lines = [float(count) for count in counts], []
        for tool, look in (("numpyro", PEER), ("mc", NAIVE)):
            middle = [one[tool] for one in counts.values()]
            scale = [(1, 1) if tool == "mc" else (one["ratio_low"] / one["ratio"], one["ratio_high"] / one["ratio"])
                     for one in counts.values()]  # fmt: skip
            low, high = ([m * s[end] for m, s in zip(middle, scale, strict=True)] for end in (0, 1))
            lines.append(Line(look, at, middle, low, high))
        shown.append(Panel(TASKS[task], "particles a step", "µs a step", lines))
    return "growth-particles", shown


def loop(results: dict, aims: list[Aim]) -> str:
    rows, names = [], ("naive", "joint_adaptive", "joint")
    for task, found in results["torch_loop"].items():
        cells = [ratio(found[name]) for name in names]
        for at, name in enumerate(names[:2]):
            aim = Aim(f"PyTorch, {task}: `{name}` over a loop by hand", found[name][0], bounds.BY_HAND,
                      limit=_by_operators(results, task, name))  # fmt: skip
            aims.append(aim)
            cells[at] += f", {aim.word}"
        rows.append([task, *cells])
    return f"""Logistic regression with 10 features, float32, against a loop by hand (reparameterisation, autograd,
`torch.optim.Adam`),
which makes as many gradients as `naive`; the other two make more, for less variance. `joint_adaptive` is the default
of `fit`.

{table(["time of a step over the loop by hand", *(f"`{name}`" for name in names)], rows)}

Times are without tracing. The first fit of a process also imports PyTorch's tracer, and compiles the programs that
draw the noise in JAX."""


def _by_operators(results: dict, task: str, name: str) -> str:
    """What a step of an estimator is made of beside one by hand, if it was counted."""
    case, hand = f"{task}: {name}", f"{task}: by hand"
    return operators(results, case, hand) if case in results["operators"]["cases"] else NOT_PROFILED


SECTIONS = (
    Section("Many particles", (JAX, TORCH, GROWTH, NOISE, VARIANCE, OPERATORS), particles, particles_figure),
    Section("A small model in PyTorch", (LOOP, OPERATORS), loop),
)
