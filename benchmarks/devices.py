"""Time of a step on one, two and four virtual devices of a CPU: ``lowvar.fit(devices=n)`` and NumPyro's SVI.

    python benchmarks/devices.py
    python benchmarks/devices.py --smallest

Logistic regression with 50 features in which every step uses all rows, float32, Adam. ``fit`` divides the rows by its
argument ``devices``; SVI is given arrays whose rows are divided by ``NamedSharding``, and compiles ``svi.update`` in a
loop: of a model that reads all rows where they lie and, as ``numpyro indexed``, of the model that ``fit`` has, which
reads them by the plate's index. Each number of devices has a process of its own. The time of a step is the difference
between a long and a short fit of the same programs over the difference of their steps: wall-clock seconds (the smallest
of the rounds, since other jobs can only add to it), and CPU seconds of all threads (their median), which show what the
division itself costs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from vi_step import add_sizes, sized, write

DIM, STEP_SIZE = 50, 1e-3
COUNTS = (1, 2, 4)
TOOLS = ("lowvar", "numpyro", "numpyro indexed")


def measured(count: int, size: str) -> dict:
    """Seconds of a step on ``count`` devices."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    import lowvar

    warnings.simplefilter("ignore")
    N, short, rounds = sized(size, 100_000, 100_000, 400), sized(size, 20, 20, 2), sized(size, 5, 3, 1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, DIM), np.float32)
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ rng.normal(size=DIM) / 7))).astype(np.float32)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([DIM]).to_event(1))
        with numpyro.plate("data", N) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ b), obs=y[i])

    def ours(steps):
        lowvar.fit(model, {"x": x, "y": y}, estimator="naive", batch_size=N, num_steps=steps, step_size=STEP_SIZE,
                   devices=count, elbo_samples=2, khat_samples=0, progress=False)  # fmt: skip

    def direct(x, y):  # without the plate's index, which would gather all rows
        b = numpyro.sample("b", dist.Normal(0, 1).expand([DIM]).to_event(1))
        with numpyro.plate("data", N):
            numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)

    by_row = NamedSharding(Mesh(np.array(jax.devices()[:count]), ("rows",)), PartitionSpec("rows"))
    data = {name: jax.device_put(jnp.asarray(value), by_row) for name, value in (("x", x), ("y", y))}

    def theirs(model):
        svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())
        begun = svi.init(jax.random.key(0), **data)
        loop = jax.jit(
            lambda state, data, steps: jax.lax.fori_loop(0, steps, lambda _, state: svi.update(state, **data)[0], state)
        )
        return lambda steps: jax.block_until_ready(loop(begun, data, steps))

    tools, found = {"lowvar": ours, "numpyro": theirs(direct), "numpyro indexed": theirs(model)}, {}
    for run in tools.values():
        run(short)
    for _ in range(rounds):
        for name, run in tools.items():
            clocks = []
            for steps in (short, 11 * short):
                start = time.perf_counter(), time.process_time()
                run(steps)
                clocks.append((time.perf_counter() - start[0], time.process_time() - start[1]))
            for kind, a, b in zip(("wall", "cpu"), *clocks, strict=True):
                found.setdefault(f"{name} {kind}", []).append((b - a) / (10 * short))
    return found


def main():
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/devices.json"), help="JSON file")
    add_sizes(parser, "fewer rounds")
    args = parser.parse_args()
    if args.count:
        print(json.dumps(measured(args.count, args.size)))
        return
    heads = [f"{name}, {kind} ms" for kind in ("wall", "CPU") for name in TOOLS]
    print(f"| devices | {' | '.join(heads)} |\n" + "|---" * (1 + len(heads)) + "|")
    found = {}
    for count in sized(args.size, COUNTS, COUNTS, COUNTS[:2]):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
        flags += f" --xla_force_host_platform_device_count={count}"
        command = [
            sys.executable,
            __file__,
            "--count",
            str(count),
            *sized(args.size, (), ("--quick",), ("--smallest",)),
        ]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "XLA_FLAGS": flags}
        )
        one = found[count] = json.loads(done.stdout.splitlines()[-1])
        cells = [f"{1e3 * np.min(one[f'{name} wall']):.2f}" for name in TOOLS]
        cells += [f"{1e3 * np.median(one[f'{name} cpu']):.2f}" for name in TOOLS]
        print(f"| {count} | " + " | ".join(cells) + " |", flush=True)
    write(args.out, {"cores": os.cpu_count(), "runs": found})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
