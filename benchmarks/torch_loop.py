"""Time of a step of a small model in PyTorch: lowvar's estimators against a loop written by hand.

Logistic regression with 10 features. The loop by hand is reparameterisation, autograd and `torch.optim.Adam`. All cases
run in this process, in alternation, on one thread; times are CPU seconds, without tracing.
Usage: `python benchmarks/torch_loop.py [--quick | --smallest]`.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import torch
from vi_step import add_sizes, sized, write

import lowvar
from lowvar.noise import independent, reshuffled, sampler
from lowvar.solvers.descent import descend
from lowvar.solvers.optimizers import optimizer
from lowvar.studies.variational import programs

DIM, STEP_SIZE = 10, 2e-3
TASKS = {  # rows, batch, particles
    "500 rows, batch 50": (500, 50, 1),
    "1000 rows, batch 100": (1000, 100, 1),
    "500 rows, all of them": (500, 500, 1),
    "500 rows, all of them, 100 particles": (500, 500, 100),
}
ESTIMATORS = ("naive", "joint_adaptive", "joint")
bce = torch.nn.functional.binary_cross_entropy_with_logits


def by_hand(x, y, batch, particles):
    """`(steps) -> None`: the loop of a tutorial, with all particles as one matrix."""
    N = len(x)
    mu, log_sigma = torch.zeros(DIM, requires_grad=True), torch.full((DIM,), -2.3, requires_grad=True)
    adam = torch.optim.Adam([mu, log_sigma], STEP_SIZE)

    def run(steps):
        done = 0
        while done < steps:
            order = torch.randperm(N)
            for t in range(0, N, batch):
                index = order[t : t + batch]
                adam.zero_grad()
                z = mu + log_sigma.exp() * torch.randn(particles, DIM)
                logits = x[index] @ z.T
                labels = y[index][:, None].expand_as(logits)
                data = N / len(index) * bce(logits, labels, reduction="sum")
                loss = (data + 0.5 * (z * z).sum()) / particles - log_sigma.sum()
                loss.backward()
                adam.step()
                done += 1

    return run


def ours(name, x, y, batch, particles):
    """The same by the program that `lowvar.fit` runs."""
    model = lowvar.TorchModel(
        lambda z, index: -bce(x[index] @ z, y[index], reduction="none"), lambda z: -0.5 * (z * z).sum(), len(x), DIM
    )
    problem = model.problem()
    batches = reshuffled(len(x), batch)
    noise = sampler(batches, independent(particles), DIM, problem.dtype)
    estimator = lowvar.estimator(name, problem, batch)
    solver = descend(estimator, noise, optimizer("adam", STEP_SIZE, problem.backend))
    program, keys = programs.program(problem, noise, lambda setting: solver), jax.random.split(jax.random.key(0), 1)
    start = {"mu": torch.zeros(DIM), "log_sigma": torch.full((DIM,), -2.3)}
    setting, at = {"step_size": torch.zeros(1)}, [jax.tree.map(lambda leaf: leaf[None, None], solver.init(start)), 0]

    def run(steps):
        epochs = -(-steps // batches.steps)
        at[:] = program(at[0], setting, keys, at[1], epochs), at[1] + epochs

    return run


def compare(task, rounds, steps):
    """A row for each case: microseconds per step, and the ratio to the loop by hand, round by round."""
    N, batch, particles = task
    torch.manual_seed(0)
    x = torch.randn(N, DIM)
    y = torch.bernoulli(torch.sigmoid(x @ (torch.randn(DIM) / 2)))
    cases = {"by hand": by_hand(x, y, batch, particles)} | {
        name: ours(name, x, y, batch, particles) for name in ESTIMATORS
    }
    seconds = {name: [] for name in cases}
    for r in range(rounds + 1):
        for name, run in cases.items():
            start = time.process_time()
            run(steps)
            if r:  # the first round traces
                seconds[name].append((time.process_time() - start) / steps)
    base = np.array(seconds["by hand"])
    rows = {}
    for name, values in seconds.items():
        ratio = np.array(values) / base
        rows[name] = {"microseconds": 1e6 * float(np.median(values)), "ratio": float(np.median(ratio)),
                      "low": float(ratio.min()), "high": float(ratio.max())}  # fmt: skip
        print(f"{name:16s}{rows[name]['microseconds']:10.0f} us   {rows[name]['ratio']:.2f} "
              f"[{rows[name]['low']:.2f}, {rows[name]['high']:.2f}]")  # fmt: skip
    return rows


def main():
    """Prints a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/torch_loop.json"), help="JSON file")
    add_sizes(parser, "three short rounds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds, steps = sized(args.size, 9, 3, 1), sized(args.size, 2000, 800, 40)
    found = {}
    for title, task in list(TASKS.items())[: sized(args.size, None, None, 1)]:
        print(f"\n{title}: time of a step, and relative to the loop by hand [min, max]")
        found[title] = compare(task, rounds, steps)
    write(args.out, found)


if __name__ == "__main__":
    main()
