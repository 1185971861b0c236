"""What steps in PyTorch are made of: calls of operators, and the share of their time that each kind takes.

PyTorch runs a step operator by operator. On small arrays a call takes about as long as on one number, so the number of
calls decides; on large ones the kinds of operators do. Calls and shares are those of PyTorch's profiler, where an
operator that calls another counts as two; the microseconds of a step are CPU time without the profiler, where the cases
of a group alternate. The cases are those of other benchmarks: `torch_loop.py`, `mlmc.py`, `search.py` and the growth of
`integrals.py`.
Usage: `python benchmarks/operators.py [--quick | --smallest]`.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import mlmc  # sets up one thread, and imports lowvar before JAX
import numpy as np
import search
import torch
import torch_loop
from integrals import independent
from torch.profiler import ProfilerActivity, profile
from vi_step import Case, add_sizes, alternate, sized, write

KINDS = {
    "products": ("addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "linear", "matmul", "mm", "mv"),
    "factorisations": ("cholesky_inverse", "cholesky_solve", "linalg_cholesky_ex", "linalg_eigh", "linalg_qr",
                       "linalg_solve_triangular", "triangular_solve"),
    "gathers, copies and new arrays": (
        "_to_copy", "cat", "clone", "contiguous", "copy", "empty", "empty_like", "empty_strided", "fill", "full",
        "gather", "index", "index_select", "new_empty", "new_empty_strided", "ones", "ones_like", "stack", "to",
        "zero", "zeros", "zeros_like",
    ),
    "random numbers and orders": ("normal", "rand", "randn", "randperm", "random", "sort", "uniform"),
}  # fmt: skip
REST = "arithmetic, sums and the rest"


def kind_of(operator: str) -> str:
    """The kind of an operator, ``aten::...``."""
    name = operator.removeprefix("aten::").rstrip("_")
    return next((kind for kind, names in KINDS.items() if name in names), REST)


def alternated(cases: dict[str, tuple[Callable[[int], object], int]], rounds: int) -> dict[str, float]:
    """CPU microseconds of a step of each case, medians over rounds in which the cases alternate."""
    timed = [
        Case(name, lambda _, run=run, steps=steps: run(steps), None, steps) for name, (run, steps) in cases.items()
    ]
    alternate(timed, rounds, time.process_time)
    return {case.name: 1e6 * float(np.median(case.seconds)) / case.steps for case in timed}


def profiled(run: Callable[[int], object], steps: int) -> dict:
    """Of ``run(steps)``: calls of operators a step, and the kinds' shares of the time in operators."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run(steps)
    operators = [one for one in found.key_averages() if one.key.startswith("aten::")]
    total = sum(one.self_cpu_time_total for one in operators)
    shares = dict.fromkeys((*KINDS, REST), 0.0)
    for one in operators:
        shares[kind_of(one.key)] += one.self_cpu_time_total / total
    count = {one.key: one.count / steps for one in operators}
    return {"calls": sum(count.values()), "shares": shares, "factorised": count.get("aten::linalg_cholesky_ex", 0.0)}


def smallest(rounds: int) -> float:
    """CPU microseconds of an operator on one number."""
    number = torch.ones(1)

    def run(calls):
        for _ in range(calls):
            torch.neg(number)

    return alternated({"": (run, 10_000)}, rounds)[""]


def loops(size: str) -> dict[str, tuple[Callable[[int], object], int]]:
    """Runs and their steps: those of ``torch_loop.py``."""
    cases = {}
    for title, (N, batch, particles) in torch_loop.TASKS.items():
        torch.manual_seed(0)
        x = torch.randn(N, torch_loop.DIM)
        y = torch.bernoulli(torch.sigmoid(x @ (torch.randn(torch_loop.DIM) / 2)))
        steps = sized(size, 500, 100, 10)
        cases[f"{title}: by hand"] = torch_loop.by_hand(x, y, batch, particles), steps
        for name in torch_loop.ESTIMATORS[:2]:
            cases[f"{title}: {name}"] = torch_loop.ours(name, x, y, batch, particles), steps
    return cases


def levels(size: str) -> dict[str, tuple[Callable[[int], object], int]]:
    """``mlmc`` on blr, with the most and the fewest particles."""
    problem, _, settings, _ = mlmc.problem_of("blr", "torch", size)
    cases = {}
    for name in ("mlmc, N = 1", "mlmc, N = 100"):
        engine = mlmc.engine_of(name, problem, settings, repetitions=1, step_sizes=(mlmc.STILL,))

        def run(steps, engine=engine):
            engine.wait(engine.advance(engine.init(), 0, steps))

        cases[f"blr: {name}"] = run, sized(size, 400, 100, 10)
    return cases


def searches(size: str) -> dict[str, tuple[Callable[[int], object], int]]:
    """A generation of 20 mapped runs."""
    case, name = search.torch_case("fast_ingo", 100, 20), "fast_ingo, 20 runs mapped"
    generations = sized(size, 10, 2, 1) * search.LEAST
    return {name: (case.call, generations), f"{name}: noise by JAX": (case.noise, generations)}


def integrators(size: str) -> dict[str, tuple[Callable[[int], object], int]]:
    """``vector_valued`` with the tasks of the growth's last point: one run is a step."""
    from lowvar.estimators.integral.options import make

    samples = independent(sized(size, 100, 50, 10), 8, 4)

    def run(steps):
        for _ in range(steps):
            make("vector_valued", {}).integrate(samples, np.array([1]))

    return {"vector_valued, T = 8": (run, 1)}


def main():
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/operators.json"), help="JSON file")
    add_sizes(parser, "fewer and shorter rounds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds, cases = sized(args.size, 7, 3, 1), {}
    print("| | calls of operators a step | us a step | shares of the operators' time |\n" + "|---" * 4 + "|")
    for made in (loops, levels, searches, integrators):
        group = made(args.size)
        spent = alternated(group, 1 if made is integrators else rounds)
        for name, (run, steps) in group.items():
            if name.endswith("noise by JAX"):
                cases[name] = {"microseconds": spent[name]}
                print(f"| {name} | | {spent[name]:.0f} | |", flush=True)
                continue
            one = cases[name] = profiled(run, steps) | {"microseconds": spent[name]}
            shares = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in one["shares"].items())
            print(f"| {name} | {one['calls']:.0f} | {spent[name]:.0f} | {shares} |", flush=True)
    least = smallest(rounds)
    print(f"\nan operator on one number: {least:.2f} us")
    write(args.out, {"cases": cases, "smallest": least})


if __name__ == "__main__":
    main()
