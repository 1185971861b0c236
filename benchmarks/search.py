"""Evaluations and time of lowvar's black-box searches against pycma, cmaes and evosax.

All cases run in this process, on one core, in alternation; `benchmarks/README.md` says what is counted and why. The
section `default` measures how often, and in how many evaluations, the default reaches a target on rotated, shifted and
noisy functions, beside `fast_ingo`, `ingo` and pycma.
Usage: `python benchmarks/search.py [--quick | --smallest] [--only SECTION] [--runs 20] [--dim 100]`.
"""

import os

# one thread each; before the libraries are imported
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from performance_sections import aims
from vi_step import add_sizes, sized, write

OURS = ("fast_ingo", "ingo", "ingo_step", "igo", "es")
EVOSAX = ("evosax_snes", "evosax_xnes", "evosax_open_es")
DRIVEN = {
    "pycma": ("pycma", {}),
    "pycma, diagonal": ("pycma", {"diagonal": True}),
    "cmaes": ("cmaes", {}),
    "sep_cmaes": ("sep_cmaes", {}),
}
SIGMA0 = 0.5
TARGET = 1e-10
LONGEST = 2000  # maximum generations of a timed call; each call starts afresh, so that no search has converged
LEAST = 50  # minimum generations of a timed call; PyTorch gets the noise of so many at once
TRACED = 5  # generations in one program of PyTorch; divides LEAST


@dataclass
class Search:
    """A search to time.

    Attributes:
        name: name in the tables.
        call: makes a number of generations of every run, from their start.
        runs: number of mapped runs.
        population: evaluations of a generation of one run.
        project: the project that it belongs to.
        generations: generations of a timed call.
        compiling: CPU seconds of the first call minus those of a later one.
        seconds: CPU seconds of each timed call.
    """

    name: str
    call: Callable[[int], None]
    runs: int
    population: int
    project: str = "lowvar"
    noise: Callable[[int], None] | None = None
    generations: int = 0
    compiling: float = 0.0
    seconds: list[float] = field(default_factory=list)

    @property
    def microseconds(self) -> np.ndarray:
        """Microseconds of one generation of one run, for every timed call."""
        return 1e6 * np.array(self.seconds) / (self.generations * self.runs)


def problem(backend, dim: int):
    from lowvar.problems.blackbox.catalogue import build

    return build("ellipsoid", backend, dim=dim)


def starts(dim: int, runs: int) -> np.ndarray:
    import jax

    from lowvar import backends

    start = problem(backends.get("jax"), dim).start
    return np.stack([np.asarray(start(key), float) for key in jax.random.split(jax.random.key(1), runs)])


def ellipsoid(dim: int) -> Callable[[np.ndarray], np.ndarray]:
    """The same function of NumPy arrays, for peers driven from Python."""
    scales = 10.0 ** (6 * np.arange(dim) / (dim - 1))
    return lambda x: (x * x) @ scales


def built(name: str, backend, dim: int):
    from lowvar.solvers.search import SEARCH

    return SEARCH.get(name)(backend, problem(backend, dim).domain)


def generation(solver, function):
    """One generation of one run, with an update of the best point so far; evosax keeps its own."""
    from lowvar.problems.blackbox.problem import record

    def one(state, noise):
        inside, ledger = state
        points = solver.ask(inside, noise)
        values = function(points)
        if ledger is not None:
            ledger = record(solver.backend, ledger, points, values)
        return solver.tell(inside, noise, points, values), ledger

    return one


def opened(solver, x0):
    from lowvar.problems.blackbox.problem import open_ledger

    ledger = None if solver.name.startswith("evosax") else open_ledger(solver.backend, solver.domain, x0)
    return solver.init(x0, SIGMA0), ledger


def searches(size: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lowvar's and evosax's searches; for the smallest size those whose times are compared."""
    return sized(size, (OURS, EVOSAX), (OURS, EVOSAX), (OURS[:2], EVOSAX[:2]))


# --- time of a generation -----------------------------------------------------------------------------------


def jax_case(name: str, dim: int, runs: int) -> Search:
    """A loop of generations in one compiled program, mapped over runs; noise is drawn inside."""
    import jax

    from lowvar import backends

    solver = built(name, backends.get("jax"), dim)
    one = generation(solver, problem(solver.backend, dim).values)

    @jax.jit
    def advance(states, keys, generations):
        def step(i, states):
            noise = jax.vmap(lambda key: solver.draw(jax.random.fold_in(key, i)))(keys)
            return jax.vmap(one)(states, noise)

        return jax.lax.fori_loop(0, generations, step, states)

    states = jax.vmap(lambda x0: opened(solver, x0))(jax.numpy.asarray(starts(dim, runs)))
    keys = jax.random.split(jax.random.key(2), runs)

    def call(generations):
        jax.block_until_ready(advance(states, keys, generations))

    return Search(f"{name}, JAX", call, runs, solver.population, "evosax" if name in EVOSAX else "lowvar")


def torch_case(name: str, dim: int, runs: int) -> Search:
    """Traced programs of a few generations, mapped over runs; JAX draws the noise of a call."""
    import jax
    import torch

    from lowvar import backends

    backend = backends.get("torch")
    solver = built(name, backend, dim)
    mapped = backend.vmap(generation(solver, problem(backend, dim).values))

    @backend.compile
    def advance(states, noise):
        for i in range(TRACED):
            states = mapped(states, noise[i])
        return states

    def drawn(key, i):
        keys = jax.random.split(jax.random.fold_in(key, i), runs)
        return jax.vmap(solver.draw)(keys)

    draw = jax.jit(lambda key, indices: jax.vmap(lambda i: drawn(key, i))(indices))
    one = [opened(solver, backend.asarray(x0)) for x0 in starts(dim, runs)]
    states = backend.tree_map(lambda *leaves: torch.stack(leaves), *one)

    def some(first):
        return np.asarray(draw(jax.random.key(2), first + np.arange(LEAST)))

    def call(generations):
        now = states
        for first in range(0, generations, LEAST):
            noise = backend.asarray(some(first))
            for i in range(0, min(LEAST, generations - first), TRACED):
                now = advance(now, noise[i : i + TRACED])

    def noise(generations):
        for first in range(0, generations, LEAST):
            some(first)

    return Search(f"{name}, PyTorch", call, runs, solver.population, noise=noise)


def driven_case(label: str, dim: int) -> Search:
    """Asked and told from Python, the intended use of these packages."""
    from lowvar.problems.blackbox.problem import Domain
    from lowvar.solvers.search import SEARCH

    name, options = DRIVEN[label]
    make, x0, function = SEARCH.get(name), starts(dim, 1)[0], ellipsoid(dim)

    def begin():
        return make(Domain("real", dim), x0, SIGMA0, seed=1, **options)

    def call(generations):
        search = begin()
        for _ in range(generations):
            search.tell(function(search.ask()))

    return Search(label, call, 1, begin().population, SEARCH.about(name).packages[0])


def used(case: Search, generations: int) -> float:
    """CPU seconds of a call; on an otherwise idle core, these are wall-clock seconds."""
    begun = time.process_time()
    case.call(generations)
    return time.process_time() - begun


def alternate(cases: list[Search], rounds: int, seconds: float) -> None:
    """Times calls of about ``seconds`` in turns, A B C, B C A, ..., after two calls of each that are not counted."""
    for case in cases:
        first, second = used(case, LEAST), used(case, LEAST)
        case.compiling = max(0.0, first - second)
        case.generations = int(min(LONGEST, max(LEAST, LEAST * seconds / second))) // LEAST * LEAST
    for r in range(rounds):
        at = r % len(cases)
        for case in cases[at:] + cases[:at]:
            case.seconds.append(used(case, case.generations))


def middle(values: np.ndarray, digits: str = ".1f") -> str:
    return f"{np.median(values):{digits}} [{values.min():{digits}}, {values.max():{digits}}]"


def compare(cases: dict[str, Search], ours: str, theirs: str, target: float | None) -> dict:
    """Prints how many times faster per evaluation ``ours`` is, over the rounds."""
    a, b = cases[ours], cases[theirs]
    ratio = (b.microseconds / b.population) / (a.microseconds / a.population)
    word = "" if target is None else f", target {target:g}: {'met' if np.median(ratio) >= target else 'MISSED'}"
    print(f"speed per evaluation of {ours} over {theirs}: {middle(ratio, '.2f')}{word}")
    return {
        "ours": ours, "theirs": theirs, "ratio": float(np.median(ratio)), "ratio_low": float(ratio.min()),
        "ratio_high": float(ratio.max()), "target": target,
    }  # fmt: skip


def section_time(dim: int, runs: int, size: str) -> dict:
    """Time of a generation, for many mapped runs and for a single one."""
    ours, evosax = searches(size)
    cases = [jax_case(name, dim, count) for count in (runs, 1) for name in (*ours, *evosax)]
    cases += [torch_case(name, dim, count) for count in (runs, 1) for name in ours]
    cases += [driven_case(label, dim) for label in DRIVEN]
    alternate(cases, sized(size, 7, 3, 1), sized(size, 1.0, 0.1, 0.0))
    print(f"\nEllipsoid, d = {dim}, N = {cases[0].population}: time of one generation of one run")
    print(f"{'':26s}{'runs':>5s}   {'us/iteration [min, max]':30s}{'ms/1000 evaluations':>20s}{'compile s':>11s}")
    rows = []
    for case in cases:
        each = case.microseconds
        per = float(np.median(each)) / case.population
        print(f"{case.name:26s}{case.runs:5d}   {middle(each):30s}{per:20.2f}{case.compiling:11.1f}")
        rows.append(
            {
                "case": case.name, "project": case.project, "runs": case.runs, "population": case.population,
                "microseconds_per_iteration": float(np.median(each)), "low": float(each.min()),
                "high": float(each.max()), "milliseconds_per_1000_evaluations": per, "compile_seconds": case.compiling,
                "generations_per_call": case.generations, "calls": len(each),
            }
        )  # fmt: skip
    named = {f"{case.name} x {case.runs}": case for case in cases}
    print()
    found = [
        compare(named, f"fast_ingo, JAX x {runs}", f"evosax_snes, JAX x {runs}", aims.SNES),
        compare(named, "fast_ingo, JAX x 1", "evosax_snes, JAX x 1", None),
        compare(named, f"ingo, JAX x {runs}", "pycma x 1", aims.PYCMA),
        compare(named, "ingo, JAX x 1", "pycma x 1", aims.PYCMA),
        compare(named, f"ingo, JAX x {runs}", f"evosax_xnes, JAX x {runs}", None),
        compare(named, "fast_ingo, JAX x 1", "pycma, diagonal x 1", None),
        compare(named, "fast_ingo, JAX x 1", "sep_cmaes x 1", None),
        compare(named, f"fast_ingo, PyTorch x {runs}", "pycma, diagonal x 1", None),
        compare(named, f"ingo, PyTorch x {runs}", "pycma x 1", None),
    ]
    limits = []
    for name, limit in aims.GENERATION.items():
        for backend in ("JAX", "PyTorch"):
            took = float(np.median(named[f"{name}, {backend} x {runs}"].microseconds))
            word = "met" if took <= limit else "MISSED"
            print(f"{name}, {backend} x {runs}: {took:.1f} us per run and iteration, limit {limit:g}: {word}")
            limits.append({"case": f"{name}, {backend}", "microseconds": took, "limit": limit})
    return {"dim": dim, "runs": runs, "cases": rows, "ratios": found, "limits": limits}


# --- evaluations to a target ----------------------------------------------------------------------------------


def reach_jax(name: str, dim: int, runs: int, budget: int, patience: float) -> dict:
    """Mapped runs until all have ``f(mean) <= 1e-10``, or the budget or ``patience`` is exceeded."""
    import jax

    from lowvar import backends

    solver = built(name, backends.get("jax"), dim)
    function = problem(solver.backend, dim).values
    one = generation(solver, function)
    chunk = 100

    @jax.jit
    def advance(states, keys, first):
        def step(states, i):
            noise = jax.vmap(lambda key: solver.draw(jax.random.fold_in(key, i)))(keys)
            states = jax.vmap(one)(states, noise)
            return states, function(jax.vmap(solver.mean)(states[0]))

        return jax.lax.scan(step, states, first + jax.numpy.arange(chunk))

    states = jax.vmap(lambda x0: opened(solver, x0))(jax.numpy.asarray(starts(dim, runs)))
    keys = jax.random.split(jax.random.key(2), runs)
    jax.block_until_ready(advance(states, keys, 0))
    reached, last = np.full(runs, np.inf), np.zeros(runs)
    spent, made, limit = 0, 0, budget // solver.population
    begun = time.process_time()
    while spent < limit and np.isinf(reached).any() and time.process_time() - begun < patience:
        states, gaps = advance(states, keys, spent)
        gaps = np.asarray(gaps)[: limit - spent]
        hit = gaps <= TARGET
        first = np.where(hit.any(0), (spent + 1 + hit.argmax(0)) * solver.population, np.inf)
        reached, last = np.minimum(reached, first), gaps[-1]
        spent, made = spent + len(gaps), made + chunk
    seconds = (time.process_time() - begun) * spent / made  # the last chunk may exceed the budget
    return reaching(f"{name}, JAX", solver.population, spent, reached, last, seconds)


def reach_driven(label: str, dim: int, runs: int, budget: int, patience: float) -> dict:
    """As ``reach_jax``, one run after another."""
    from lowvar.problems.blackbox.problem import Domain
    from lowvar.solvers.search import SEARCH

    name, options = DRIVEN[label]
    function, reached, last, spent, seconds = ellipsoid(dim), np.full(runs, np.inf), np.zeros(runs), 0, 0.0
    for i, x0 in enumerate(starts(dim, runs)):
        search = SEARCH.get(name)(Domain("real", dim), x0, SIGMA0, seed=1 + i, **options)
        begun = time.process_time()
        while search.evaluations + search.population <= budget and np.isinf(reached[i]):
            if time.process_time() - begun > patience / runs:
                break
            search.tell(function(search.ask()))
            last[i] = function(search.mean)
            if last[i] <= TARGET:
                reached[i] = search.evaluations
        seconds += time.process_time() - begun
        spent += search.iteration / runs
    return reaching(label, search.population, spent, reached, last, seconds)


def reaching(name: str, population: int, generations: float, reached, last, seconds: float) -> dict:
    row = {
        "case": name, "runs": len(reached), "reached": int(np.isfinite(reached).sum()),
        "evaluations": float(np.median(reached)), "low": float(reached.min()), "high": float(reached.max()),
        "gap": float(np.median(last)), "evaluations_spent": generations * population,
        "seconds_per_run": seconds / len(reached),
    }  # fmt: skip
    row["seconds_to_target"] = row["seconds_per_run"] * row["evaluations"] / row["evaluations_spent"]
    each = 1e6 * row["seconds_per_run"] / row["evaluations_spent"]
    share = f"{row['reached']}/{row['runs']}"
    print(
        f"{name:26s}{share:>8s}{row['evaluations']:12.3g}   [{row['low']:.3g}, {row['high']:.3g}]".ljust(70)
        + f"{row['seconds_to_target']:9.2f}{row['gap']:10.1e}{row['evaluations_spent']:10.3g}{each:14.2f}",
        flush=True,
    )
    return row


def section_evaluations(dim: int, runs: int, size: str, budget: int | None) -> dict:
    """Evaluations until ``f(mean) <= 1e-10``, and their time."""
    budget = budget or sized(size, 1_000_000, 60_000, 1000)
    mapped, alone = sized(size, (min(runs, 5), 3), (min(runs, 3), 1), (min(runs, 2), 1))
    patience = sized(size, 300.0, 10.0, 1.0)
    ours, evosax = (OURS[:1], EVOSAX[:1]) if size == "smallest" else searches(size)
    print(f"\nEllipsoid, d = {dim}: until f(mean) <= {TARGET:g}, budget {budget} evaluations a run")
    print(f"(at most {patience:g} seconds for all runs of a case)")
    head = f"{'':26s}{'reached':>8s}{'evaluations':>12s}   [min, max]".ljust(70)
    print(f"{head}{'seconds':>9s}{'f(mean)':>10s}{'spent':>10s}{'us/evaluation':>14s}")
    rows = [reach_jax(name, dim, mapped, budget, patience) for name in (*ours, *evosax)]
    rows += [reach_driven(label, dim, alone, budget, patience) for label in DRIVEN]
    return {"dim": dim, "budget": budget, "patience": patience, "target": TARGET, "cases": rows}


# --- reliability of the default --------------------------------------------------------------------------------

# function, standard deviation of its noise, target, and budget in thousands of evaluations for each of DIMS
CASES = (
    ("ellipsoid", 0.0, 1e-8, (40, 80, 300)),
    ("rosenbrock", 0.0, 1e-8, (40, 80, 300)),
    ("ellipsoid", 0.1, 0.05, (40, 80, 300)),
    ("ellipsoid", 1.0, 0.05, (40, 80, 300)),
    ("rosenbrock", 0.1, 0.05, (80, 200, 300)),
)
DIMS = (10, 20, 50)
COMPARED = ("ingo_cma", "ingo_path", "fast_ingo", "ingo", "pycma")


def turned(function: str, xp, dim: int, turn, moved) -> Callable:
    """``points (n, d) -> (n,)``: rotated about a shifted optimum, where the value is 0."""
    scales = xp.asarray(10.0 ** (6 * np.arange(dim) / (dim - 1)))

    def values(x):
        u = (x - moved[None, :]) @ turn
        if function == "ellipsoid":
            return u**2 @ scales
        y = u + 1
        return xp.sum(100 * (y[:, 1:] - y[:, :-1] ** 2) ** 2 + (1 - y[:, :-1]) ** 2, axis=1)

    return values


def instances(dim: int, runs: int):
    """Rotations ``(runs, d, d)``, optima and starts ``(runs, d)``."""
    rng = np.random.default_rng(dim)
    turns = np.stack([np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(runs)])
    return turns, rng.standard_normal((runs, dim)), rng.uniform(size=(runs, dim))


def default_jax(name, function, sd, dim, runs, target, budget) -> np.ndarray:
    """Evaluations until a point, or with noise the mean's true value, reaches the target; infinite if never."""
    import jax
    import jax.numpy as jnp

    from lowvar import backends

    solver = built(name, backends.get("jax"), dim)

    def run(turn, moved, x0, key):
        f = turned(function, jnp, dim, turn, moved)

        def step(carry):
            state, t, _ = carry
            first, second = jax.random.split(jax.random.fold_in(key, t))
            noise = solver.draw(first)
            points = solver.ask(state, noise)
            true = f(points)
            seen = true + sd * jax.random.normal(second, true.shape) if sd else true
            state = solver.tell(state, noise, points, seen)
            return state, t + 1, jnp.min(f(solver.mean(state)[None, :]) if sd else true)

        def going(carry):
            return (carry[1] < budget // solver.population) & (carry[2] > target)

        _, t, found = jax.lax.while_loop(going, step, (solver.init(x0, SIGMA0), jnp.asarray(0), jnp.asarray(jnp.inf)))
        return jnp.where(found <= target, t * solver.population, jnp.inf)

    keys = jax.random.split(jax.random.key(3), runs)
    return np.asarray(jax.jit(jax.vmap(run))(*map(jnp.asarray, instances(dim, runs)), keys))


def default_pycma(function, sd, dim, runs, target, budget) -> np.ndarray:
    from lowvar.problems.blackbox.problem import Domain
    from lowvar.solvers.search import SEARCH

    reached, rng = np.full(runs, np.inf), np.random.default_rng(4)
    for i, (turn, moved, x0) in enumerate(zip(*instances(dim, runs), strict=True)):
        f, search = (
            turned(function, np, dim, turn, moved),
            SEARCH.get("pycma")(Domain("real", dim), x0, SIGMA0, seed=1 + i),
        )
        while search.evaluations + search.population <= budget:
            true = f(search.ask())
            search.tell(true + sd * rng.standard_normal(len(true)) if sd else true)
            if (f(search.mean[None, :])[0] if sd else true.min()) <= target:
                reached[i] = search.evaluations
                break
    return reached


def section_default(runs: int, size: str) -> dict:
    """Successes, and the median evaluations of successful runs."""
    runs, rows = min(runs, sized(size, 12, 3, 2)), []
    print(f"\nTurned functions with a moved optimum: successes of {runs}, median evaluations of these, ratio to pycma")
    for function, sd, target, budgets in CASES[: sized(size, None, None, 1)]:
        for dim, thousands in list(zip(DIMS, budgets, strict=True))[: sized(size, None, 1, 1)]:
            found = {}
            for name in reversed(COMPARED):
                args = function, sd, dim, runs, target, 1000 * thousands
                found[name] = default_pycma(*args) if name == "pycma" else default_jax(name, *args)
            peer = (
                np.median(found["pycma"][np.isfinite(found["pycma"])]) if np.isfinite(found["pycma"]).any() else np.nan
            )
            for name in COMPARED:
                ok = np.isfinite(found[name])
                middle = float(np.median(found[name][ok])) if ok.any() else float("inf")
                rows.append(
                    {
                        "function": function, "noise": sd, "dim": dim, "target": target, "budget": 1000 * thousands,
                        "method": name, "runs": runs, "successes": int(ok.sum()), "evaluations": middle,
                        "ratio": middle / float(peer),
                    }
                )  # fmt: skip
                print(
                    f"{function:11s} noise {sd:<4g} d {dim:3d}  {name:10s} {ok.sum():3d}/{runs} {middle:10.3g} "
                    f"{middle / peer:8.2f}",
                    flush=True,
                )
    return {"cases": rows}


# --- the command ----------------------------------------------------------------------------------------------


def environment() -> dict:
    packages = {}
    for name in ("lowvar", "jax", "torch", "evosax", "cma", "cmaes", "numpy"):
        packages[name] = version(name)
    return {
        "python": platform.python_version(), "machine": platform.machine(), "system": platform.platform(),
        "cores": os.cpu_count(), "cores_used": 1, "load_at_start": os.getloadavg()[0],
        "XLA_FLAGS": os.environ["XLA_FLAGS"], "dtype": "float64", "packages": packages,
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "short calls, a small budget (about three minutes)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/search.json"), help="JSON file")
    parser.add_argument("--only", action="append", choices=("time", "evaluations", "default"), help="this section")
    parser.add_argument("--dim", type=int, help="default: 100, or 5 with --smallest")
    parser.add_argument("--runs", type=int, help="mapped over in one program (default: 20, or 2 with --smallest)")
    parser.add_argument("--budget", type=int, help="evaluations of a run in the section `evaluations`")
    args = parser.parse_args(argv)
    dim, runs = args.dim or sized(args.size, 100, 100, 5), args.runs or sized(args.size, 20, 20, 2)

    if hasattr(os, "sched_setaffinity"):  # keeps all thread pools on one core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)  # so that compile times are measured
    torch.set_num_threads(1)
    result: dict[str, Any] = {"environment": environment() | {"device": str(jax.devices()[0])}, "sections": {}}
    found = result["environment"]
    print(", ".join(f"{name} {number}" for name, number in found["packages"].items()))
    print(f"one of {found['cores']} cores, JAX on {found['device']}, float64, load {found['load_at_start']:.1f}")
    sections = args.only or ("time", "evaluations", "default")
    if "time" in sections:
        result["sections"]["time"] = section_time(dim, runs, args.size)
    if "evaluations" in sections:
        result["sections"]["evaluations"] = section_evaluations(dim, runs, args.size, args.budget)
    if "default" in sections:
        result["sections"]["default"] = section_default(runs, args.size)
    write(args.out, result)
    print(f"\nwrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
