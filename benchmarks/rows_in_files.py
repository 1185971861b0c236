"""Fits whose rows are in files: memory and time by the number of rows, and what shuffling in blocks costs.

    python benchmarks/rows_in_files.py                 # 1e6 to 1e8 rows, 2.4 GB of disk: a quarter of an hour
    python benchmarks/rows_in_files.py --rows 1e6 --only growth

Sections:

* ``growth``: a pass of logistic regression with 5 features (24 bytes a row) in batches of 100, from memory-mapped files
  that are written in parts and deleted afterwards, and with all rows in memory up to 1e7. Every fit has a process of
  its own, in which a short one came before: its programs are those of a fit from files, while a pass in memory compiles
  that of an epoch too. CPU seconds of a step, with checks and ELBOs; the largest anonymous memory of the process
  (``RssAnon``, read every hundredth of a second), and that before the fit.
* ``shuffle``: the subsampling variance of the gradient, at the truth, of batches of sorted rows that are shuffled in
  blocks, over that of batches drawn at random, by the blocks of a window; the largest of the coordinates, and the bound
  that ``fit`` states.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np
import numpyro
import numpyro.distributions as dist
from numpy.lib.format import open_memmap
from vi_step import add_sizes, sized, write

DIM, BATCH, PART = 5, 100, 10**6
TRUTH = np.linspace(-1, 1, DIM).astype(np.float32)
METHODS = (("naive", "files"), ("joint_svrg", "files"), ("naive", "memory"), ("joint_svrg", "memory"))
IN_MEMORY = 10**7  # rows, at most


def drawn(rng, N):
    """Features and outcomes of ``N`` rows."""
    x = rng.standard_normal((N, DIM), np.float32)
    return x, rng.random(N) < 1 / (1 + np.exp(-x @ TRUTH))


def model(x, y):
    """Logistic regression."""
    b = numpyro.sample("b", dist.Normal(0, 1).expand([DIM]).to_event(1))
    with numpyro.plate("data", x.shape[0]) as i:
        numpyro.sample("y", dist.Bernoulli(logits=x[i] @ b), obs=y[i])


def files(folder: Path, N: int) -> None:
    """Writes ``x.npy`` and ``y.npy``, a part at a time."""
    x, y = (open_memmap(folder / f"{name}.npy", "w+", np.float32, (N, *shape)) for name, shape in
            (("x", (DIM,)), ("y", ())))  # fmt: skip
    rng = np.random.default_rng(0)
    for first in range(0, N, PART):
        x[first : first + PART], y[first : first + PART] = drawn(rng, min(PART, N - first))


def anonymous() -> float:
    """Anonymous memory of this process, MB: what is in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1e3


def one_fit(folder: Path, estimator: str, where: str) -> dict:
    """Time and memory of a pass, checks and ELBOs included, after a short fit."""
    import lowvar

    warnings.simplefilter("ignore")
    data = {name: np.load(folder / f"{name}.npy", mmap_mode="r" if where == "files" else None) for name in ("x", "y")}
    steps = len(data["y"]) // BATCH
    settings = {"estimator": estimator, "batch_size": BATCH, "khat_samples": 0, "progress": False}
    lowvar.fit(model, data, num_steps=min(steps, 10), **settings)
    before, peak, over = anonymous(), [0.0], threading.Event()

    def watch():
        while not over.wait(0.01):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    lowvar.fit(model, data, num_steps=steps, **settings)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    over.set()
    watcher.join()
    return {"seconds": wall, "microseconds": cpu / steps * 1e6, "before": before, "peak": peak[0]}


def growth(numbers) -> dict:
    """One row of the table for each number of rows and method."""
    print(
        "| rows | estimator | rows are in | s, a pass | CPU us a step | MB before | largest MB |\n" + "|---" * 7 + "|"
    )
    found = {}
    for N in numbers:
        with tempfile.TemporaryDirectory(dir=os.environ.get("LOWVAR_SCRATCH")) as folder:
            files(Path(folder), N)
            for method in METHODS:
                if method[1] == "memory" and N > IN_MEMORY:
                    continue
                command = [sys.executable, __file__, "--fit", folder, *method]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                one = found[f"{N} {' '.join(method)}"] = json.loads(out.splitlines()[-1])
                cells = f"{one['seconds']:.1f} | {one['microseconds']:.0f} | {one['before']:.0f} | {one['peak']:.0f}"
                print(f"| {N:.0e} | `{method[0]}` | {method[1]} | {cells} |".replace("e+0", "e"), flush=True)
    return found


def shuffle(N: int, epochs: int) -> dict:
    """The variance of batches' gradients, by the order of the rows and the number of blocks of a window."""
    from lowvar.datasets.rows import Mapped
    from lowvar.datasets.windows import inflation, windows

    x, y = drawn(np.random.default_rng(0), N)
    gradients = x * (1 / (1 + np.exp(-x @ TRUTH)) - y)[:, None]  # of the rows, up to a factor of N
    keys, found = {"a feature": x[:, -1], "the outcome": y, "the gradient": gradients[:, -1]}, {}
    sources = {name: Mapped({"g": gradients[np.argsort(key, kind="stable")]}) for name, key in keys.items()}
    block, blocks = (of := next(iter(sources.values())).sizes)[0], len(of)
    print(f"\n{N:.0e} rows in {blocks} blocks of {block}; columns: what they are sorted by\n")
    print("| blocks in a window | " + " | ".join(sources) + " | bound |\n" + "|---" * (len(sources) + 2) + "|")
    for count in (1, 4, 16, 64, blocks):
        for name, source in sources.items():
            source.window, means = block * count, []
            for epoch in range(epochs):
                for window in windows(source, BATCH, np.random.default_rng(epoch)):
                    whole = window.length // BATCH * BATCH
                    means.append(window.rows["g"][:whole].reshape(-1, BATCH, DIM).mean(axis=1))
            ratios = np.concatenate(means).var(axis=0) / (gradients.var(axis=0) / BATCH)
            found[f"{count} {name}"] = float(ratios.max())
        found[f"{count} bound"] = inflation(source, BATCH)
        cells = [f"{found[f'{count} {name}']:.3f}" for name in (*sources, "bound")]
        print(f"| {count} | " + " | ".join(cells) + " |", flush=True)
    return found


def main():
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, action="append", help="default: 1e6, 1e7 and 1e8")
    parser.add_argument("--only", choices=("growth", "shuffle"))
    parser.add_argument("--fit", nargs=3, metavar=("FOLDER", "ESTIMATOR", "WHERE"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/rows_in_files.json"), help="JSON file")
    add_sizes(parser, "up to 1e7 rows")
    args = parser.parse_args()
    if args.fit:
        print(json.dumps(one_fit(Path(args.fit[0]), *args.fit[1:])))
        return
    numbers = [int(N) for N in args.rows or sized(args.size, (1e6, 1e7, 1e8), (1e6, 1e7), (1000,))]
    sections = {}
    if args.only != "shuffle":
        sections["growth"] = growth(numbers)
    if args.only != "growth":
        sections["shuffle"] = shuffle(*sized(args.size, (1_000_000, 12), (1_000_000, 2), (10_000, 1)))
    write(args.out, {"sections": sections})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
