"""What steps in PyTorch are made of: operators a step, their time beside that of the smallest operator, and its kinds.

PyTorch runs a step operator by operator. On small arrays an operator takes about as long as on one number, so their
count decides; on large ones their kinds do. Counts and shares are those of PyTorch's profiler, which makes the step
slower; the microseconds are CPU time without it. The cases are those of other benchmarks:
`torch_loop.py`, `mlmc.py`, `search.py` and the growth of `integrals.py`.
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
from vi_step import add_sizes, sized, write

KINDS = {
    "products and factorisations": ("mm", "bmm", "mv", "dot", "baddbmm", "cholesky", "triangular", "qr"),
    "gathers, copies and new arrays": ("index", "copy", "empty", "cat", "stack", "gather", "select", "clone", "fill"),
    "random numbers and orders": ("rand", "normal", "uniform", "sort"),
}  # the rest is elementwise arithmetic and sums
REST = "arithmetic and sums"


def kind_of(operator: str) -> str:
    """The kind of an operator, ``aten::...``."""
    return next((kind for kind, words in KINDS.items() if any(word in operator for word in words)), REST)


def measured(run: Callable[[int], object], steps: int, rounds: int) -> dict:
    """Of ``run(steps)``: operators a step, CPU microseconds a step, and the kinds' shares of the operators' time."""
    run(steps)  # traces
    spent = []
    for _ in range(rounds):
        start = time.process_time()
        run(steps)
        spent.append(time.process_time() - start)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run(steps)
    operators = [one for one in found.key_averages() if one.key.startswith("aten::")]
    total = sum(one.self_cpu_time_total for one in operators)
    kinds = dict.fromkeys((*KINDS, REST), 0.0)
    for one in operators:
        kinds[kind_of(one.key)] += one.self_cpu_time_total / total
    counts = {one.key: one.count / steps for one in operators}
    return {
        "operators": sum(counts.values()), "microseconds": 1e6 * float(np.median(spent)) / steps, "shares": kinds,
        "factorisations": sum(count for key, count in counts.items() if "cholesky_ex" in key),
    }  # fmt: skip


def smallest(rounds: int) -> float:
    """CPU microseconds of an operator on one number."""
    one, number = [], torch.ones(1)
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(10_000):
            torch.neg(number)
        one.append(1e2 * (time.process_time() - start))
    return float(np.median(one))


def loops(size: str) -> dict[str, tuple[Callable[[int], object], int]]:
    """Runs and their steps: those of ``torch_loop.py`` that have all rows in every step."""
    cases = {}
    for title, (N, batch, particles) in torch_loop.TASKS.items():
        if batch < N:
            continue
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
    case = search.torch_case("fast_ingo", 100, 20)
    return {"fast_ingo, 20 runs mapped": (case.call, sized(size, 10, 2, 1) * search.LEAST)}


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
    print("| | operators a step | us a step | us an operator | shares of the operators' time |\n" + "|---" * 5 + "|")
    for made in (loops, levels, searches, integrators):
        for name, (run, steps) in made(args.size).items():
            one = cases[name] = measured(run, steps, 1 if made is integrators else rounds)
            each = one["microseconds"] / one["operators"]
            shares = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in one["shares"].items())
            print(
                f"| {name} | {one['operators']:.0f} | {one['microseconds']:.0f} | {each:.1f} | {shares} |", flush=True
            )
    least = smallest(rounds)
    print(f"\nan operator on one number: {least:.2f} us")
    write(args.out, {"cases": cases, "smallest": least})


if __name__ == "__main__":
    main()
