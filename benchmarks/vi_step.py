"""Time per step of lowvar's gradient estimators against each other, NumPyro's SVI and Pyro's SVI.

All cases run in this process, in alternation; `benchmarks/README.md` says what is counted and why.
Usage: `python benchmarks/vi_step.py [--quick | --smallest] [--dtype float32] [--only SECTION]`.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from performance_sections import aims

ESTIMATORS = ("naive", "stl", "cv", "joint", "joint_svrg")
SCALE = 0.1  # initial scale of the guide, whose initial mean is zero
STEP_SIZE = 2e-3  # of Adam
RUNS = (9, 5)  # step sizes x seeds of the mapped runs
SIZES = ("full", "quick", "smallest")


def sized(size: str, full, quick, smallest):
    """The value for one of ``SIZES``."""
    return dict(zip(SIZES, (full, quick, smallest), strict=True))[size]


def add_sizes(parser: argparse.ArgumentParser, quick: str) -> None:
    """Adds the common option ``size`` of all benchmarks: how much is timed."""
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--quick", action="store_const", dest="size", const="quick", help=quick)
    some.add_argument("--smallest", action="store_const", dest="size", const="smallest",
                      help="a little of everything, to see that it runs: its numbers mean nothing")  # fmt: skip
    parser.set_defaults(size="full")


@dataclass
class Case:
    """A case to time: ``call(state) -> state`` makes ``steps`` updates and waits for them.

    Attributes:
        name: name in the tables.
        call: see above.
        state: the current state; each call continues from the last.
        steps: updates in a call.
        params: ``state -> {"mu": ..., "log_sigma": ...}``, for the ELBO, or None.
        seconds: seconds of each timed call.
        first: seconds of the first call, which compiles.
    """

    name: str
    call: Callable[[Any], Any]
    state: Any
    steps: int
    params: Callable[[Any], dict] | None = None
    seconds: list[float] = field(default_factory=list)
    first: float = 0.0


def alternate(cases: list[Case], rounds: int, clock: Callable[[], float] = time.perf_counter) -> None:
    """Times ``rounds`` calls of every case, A B C  B C A  C A B ..., after one call of each that compiles."""

    def timed(case):
        start = clock()
        case.state = case.call(case.state)
        return clock() - start

    for case in cases:
        case.first = timed(case)
    for r in range(rounds):
        at = r % len(cases)
        for case in cases[at:] + cases[:at]:
            case.seconds.append(timed(case))


def summary(cases: list[Case], reference: str, peers: tuple[str, ...] = ()) -> list[dict]:
    """A row for each case: steps per second and, round by round against ``reference``, the ratio of times.

    For ``peers`` the ratio is the peer's time per step over the reference's (how many times faster the reference
    is), for the others their own over the reference's (their relative cost).
    """
    base = next(case for case in cases if case.name == reference)
    rows = []
    for case in cases:
        seconds = np.array(case.seconds) / case.steps
        ratio = seconds / (np.array(base.seconds) / base.steps)
        rows.append(
            {
                "case": case.name,
                "kind": "peer" if case.name in peers else "lowvar",
                "steps_per_second": 1 / float(np.median(seconds)),
                "microseconds_per_step": 1e6 * float(np.median(seconds)),
                "ratio": float(np.median(ratio)),
                "ratio_low": float(ratio.min()),
                "ratio_high": float(ratio.max()),
                "compile_seconds": max(0.0, case.first - float(np.median(case.seconds))),
                "steps_per_call": case.steps,
                "calls": len(case.seconds),
            }
        )
    return rows


def show(title: str, rows: list[dict], reference: str, scale: int = 1) -> None:
    """Prints a table; ``scale`` is the number of runs that one step updates."""
    unit = "us/step" if scale == 1 else "us/run/step"
    print(f"\n{title}")
    against = f"time / {reference} [min, max]"
    print(f"{'':34s}{'steps/s':>11s}{unit:>13s}   {against:28s}{'compile s':>10s}  ELBO")
    for row in rows:
        ratio = f"{row['ratio']:.2f} [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
        elbo = f"{row['elbo']:.6g}" if "elbo" in row else ""
        print(
            f"{row['case']:34s}{row['steps_per_second']:11.0f}{row['microseconds_per_step'] / scale:13.2f}"
            f"   {ratio:28s}{row['compile_seconds']:10.1f}  {elbo}"
        )


def verdict(rows: list[dict], peer: str, target: float) -> dict:
    """Prints and returns whether ``peer`` takes at least ``target`` times as long as the reference."""
    row = next(row for row in rows if row["case"] == peer)
    word = "met" if row["ratio"] >= target else "MISSED"
    print(
        f"speed of lowvar naive over {peer}: {row['ratio']:.2f} "
        f"[{row['ratio_low']:.2f}, {row['ratio_high']:.2f}], target {target:g}: {word}"
    )
    return {"peer": peer, "ratio": row["ratio"], "target": target, "met": row["ratio"] >= target}


# --- the problems -------------------------------------------------------------------------------------------


def breast_cancer(dtype, size: str) -> dict[str, np.ndarray]:
    """569 x 30, every column scaled to [-1, 1]; for the smallest size a few rows."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    x = raw.data
    x = 2 * (x - x.min(0)) / (x.max(0) - x.min(0)) - 1
    rows = sized(size, None, None, 20)
    return {"x": x[:rows].astype(dtype), "y": raw.target[:rows].astype(np.int32)}


def digits(dtype, N: int = 60000, pixels: int = 784, classes: int = 10) -> dict[str, np.ndarray]:
    """Simulated data of MNIST's shape and sparsity (19 % of the pixels lit, in [0, 1]), classes from the model."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(N, pixels)) * (rng.uniform(size=(N, pixels)) < 0.19)
    scores = x @ rng.normal(size=(pixels, classes)) + rng.gumbel(size=(N, classes))
    return {"x": x.astype(dtype), "y": scores.argmax(1).astype(np.int32)}


def softmax_regression(x, y, batch_size=None, classes: int = 10):
    """The NumPyro model of the larger problem."""
    import numpyro
    import numpyro.distributions as dist

    weights = numpyro.sample("z", dist.Normal(0, 1).expand([x.shape[1], classes]).to_event(2))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Categorical(logits=x[index] @ weights), obs=y[index])


def handed_in(kind: str):
    """The same models with the mini-batch as data, for NumPyro with given batches."""
    import numpyro
    import numpyro.distributions as dist

    def model(x, y, N, batch_size):
        shape = [x.shape[1]] if kind == "logistic" else [x.shape[1], 10]
        z = numpyro.sample("z", dist.Normal(0, 1).expand(shape).to_event(len(shape)))
        with numpyro.plate("data", N, subsample_size=batch_size):
            law = dist.Bernoulli(logits=x @ z) if kind == "logistic" else dist.Categorical(logits=x @ z)
            numpyro.sample("y", law, obs=y)

    return model


# --- JAX ----------------------------------------------------------------------------------------------------


def start(dim: int, dtype) -> dict[str, np.ndarray]:
    return {"mu": np.zeros(dim, dtype), "log_sigma": np.full(dim, np.log(SCALE), dtype)}


def lowvar_jax(name: str, problem, batch: int, epochs: int) -> Case:
    """``epochs`` reshuffled epochs in one compiled program, which draws the noise of each epoch ahead."""
    import jax

    from lowvar.backends import get
    from lowvar.estimators import GRADIENT
    from lowvar.noise import independent, reshuffled, sampler
    from lowvar.solvers.descent import descend
    from lowvar.solvers.optimizers import optimizer

    batches = reshuffled(problem.N, batch)
    noise = sampler(batches, independent(), problem.dim, problem.dtype)
    adam = optimizer("adam", STEP_SIZE, get("jax"))
    solver = descend(GRADIENT.get(name)(problem, batches), noise, adam)

    @partial(jax.jit, donate_argnums=0)
    def advance(state, key):
        def epoch(i, state):
            return solver.epoch(state, noise.epoch(jax.random.fold_in(key, i)))

        return jax.lax.fori_loop(0, epochs, epoch, state)

    def call(state):
        state, key = state
        key, now = jax.random.split(key)
        return jax.block_until_ready(advance(state, now)), key

    state = jax.jit(solver.init)(start(problem.dim, problem.dtype)), jax.random.key(1)
    return Case(name, call, state, epochs * batches.steps, lambda state: state[0].params)


def numpyro_svi(model, dim: int, shape, dtype):
    """NumPyro's SVI with its mean-field guide and its Adam, from lowvar's start."""
    import jax.numpy as jnp
    from numpyro.infer import SVI, Trace_ELBO, init_to_value
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    origin = init_to_value(values={"z": jnp.zeros(shape, dtype)})
    return SVI(model, AutoNormal(model, init_loc_fn=origin, init_scale=SCALE), Adam(STEP_SIZE), Trace_ELBO())


def numpyro_params(svi):
    def params(state):
        found = svi.get_params(state)
        return {
            "mu": np.asarray(found["z_auto_loc"]).reshape(-1),
            "log_sigma": np.log(np.asarray(found["z_auto_scale"])).reshape(-1),
        }

    return params


def numpyro_jax(name: str, model, arrays, shape, batch: int, steps: int) -> Case:
    """``svi.update`` in a ``lax.scan``: the plate draws each batch."""
    import jax

    svi = numpyro_svi(model, int(np.prod(shape)), shape, arrays["x"].dtype)
    data = {key: jax.numpy.asarray(value) for key, value in arrays.items()}

    @partial(jax.jit, donate_argnums=0)
    def advance(state, data):
        def update(state, _):
            return svi.update(state, **data, batch_size=batch)[0], None

        return jax.lax.scan(update, state, None, length=steps)[0]

    def call(state):
        return jax.block_until_ready(advance(state, data))

    return Case(name, call, svi.init(jax.random.key(1), **data, batch_size=batch), steps, numpyro_params(svi))


def numpyro_jax_handed_in(name: str, kind: str, arrays, shape, batch: int, steps: int) -> Case:
    """As ``numpyro_jax``, with reshuffled batches as data of ``svi.update`` in place of the plate's draw."""
    import jax

    from lowvar.noise import reshuffled

    N = len(arrays["x"])
    batches = reshuffled(N, batch)
    epochs = steps // batches.steps
    svi = numpyro_svi(handed_in(kind), int(np.prod(shape)), shape, arrays["x"].dtype)
    x, y = (jax.numpy.asarray(arrays[key]) for key in ("x", "y"))

    @partial(jax.jit, donate_argnums=0)
    def advance(state, key, x, y):
        def update(state, index):
            return svi.update(state, x[index], y[index], N, batch)[0], None

        def epoch(i, state):
            return jax.lax.scan(update, state, batches.draw(jax.random.fold_in(key, i)))[0]

        return jax.lax.fori_loop(0, epochs, epoch, state)

    def call(state):
        state, key = state
        key, now = jax.random.split(key)
        return jax.block_until_ready(advance(state, now, x, y)), key

    state = svi.init(jax.random.key(1), x[:batch], y[:batch], N, batch), jax.random.key(2)
    read = numpyro_params(svi)
    return Case(name, call, state, epochs * batches.steps, lambda state: read(state[0]))


def mapped_jax(name: str, problem, batch: int, epochs: int) -> Case:
    """45 runs at once, 9 step sizes x 5 seeds; runs of one seed share its noise, as in an experiment."""
    import jax

    from lowvar.backends import get
    from lowvar.estimators import GRADIENT
    from lowvar.noise import Noise, independent, reshuffled, sampler
    from lowvar.solvers.descent import descend
    from lowvar.solvers.optimizers import optimizer

    jnp = jax.numpy
    batches = reshuffled(problem.N, batch)
    noise = sampler(batches, independent(), problem.dim, problem.dtype)
    estimator = GRADIENT.get(name)(problem, batches)
    axes = Noise(index=0, weight=None, rows=None, eps=0, position=None)  # seeds share all but these

    def solver(step_size):
        return descend(estimator, noise, optimizer("adam", step_size, get("jax")))

    def each(function, inner, outer):
        return jax.vmap(jax.vmap(function, inner), outer)

    run = each(lambda size, state, noise: solver(size).epoch(state, noise), (None, 0, axes), (0, 0, None))

    @partial(jax.jit, donate_argnums=0)
    def advance(state, sizes, key):
        def epoch(i, state):
            keys = jax.random.split(jax.random.fold_in(key, i), RUNS[1])
            return run(sizes, state, jax.vmap(noise.epoch, out_axes=axes)(keys))

        return jax.lax.fori_loop(0, epochs, epoch, state)

    def call(state):
        state, key = state
        key, now = jax.random.split(key)
        return jax.block_until_ready(advance(state, sizes, now)), key

    sizes = jnp.geomspace(1e-4, 1e-2, RUNS[0]).astype(problem.dtype)
    origin = start(problem.dim, problem.dtype)
    starts = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*RUNS, problem.dim)), origin)
    initial = jax.jit(each(lambda size, params: solver(size).init(params), (None, 0), (0, 0)))(sizes, starts)
    return Case(name, call, (initial, jax.random.key(1)), epochs * batches.steps)


def mapped_numpyro(name: str, model, arrays, shape, batch: int, steps: int) -> Case:
    """As many runs of NumPyro at once, ``svi.update`` mapped over seeds."""
    import jax

    svi = numpyro_svi(model, int(np.prod(shape)), shape, arrays["x"].dtype)
    data = {key: jax.numpy.asarray(value) for key, value in arrays.items()}

    @partial(jax.jit, donate_argnums=0)
    def advance(state, data):
        def update(state, _):
            return jax.vmap(lambda one: svi.update(one, **data, batch_size=batch)[0])(state), None

        return jax.lax.scan(update, state, None, length=steps)[0]

    keys = jax.random.split(jax.random.key(1), RUNS[0] * RUNS[1])
    initial = jax.vmap(lambda key: svi.init(key, **data, batch_size=batch))(keys)
    return Case(name, lambda state: jax.block_until_ready(advance(state, data)), initial, steps)


def elbos(cases: list[Case], rows: list[dict], elbo: Callable[[dict], float]) -> None:
    """Adds to ``rows`` the final ELBO of each case's timed run (all with the same number of steps)."""
    for case, row in zip(cases, rows, strict=True):
        if case.params is not None:
            row["elbo"] = float(elbo(case.params(case.state)))


def arrived(rounds: int, steps: int, origin) -> None:
    """Prints the meaning of the ELBO column."""
    made = (rounds + 1) * steps
    print(f"ELBO: nats, after the {made} steps of these very runs; at the start {float(origin):.6g}")


def estimators(size: str, fewest: tuple[str, ...] = ("naive",)) -> tuple[str, ...]:
    """The estimators that are timed."""
    return sized(size, ESTIMATORS, ESTIMATORS, fewest)


BREAST_CANCER = "breast cancer, 569 x 30, batch 5"
PEER = "NumPyro svi.update"
PEER_HANDED_IN = "NumPyro svi.update, batches given"


def section_jax(kind: str, dtype, size: str) -> dict:
    """The estimators and NumPyro on one problem, alone and mapped over runs."""
    import jax

    from lowvar.problems import logistic_regression
    from lowvar.problems.numpyro_model import from_numpyro

    if kind == "logistic":
        arrays, model, batch, shape = breast_cancer(dtype, size), logistic_regression.model, 5, (30,)
        problem = logistic_regression.problem(arrays)
        title, epochs, rounds = BREAST_CANCER, sized(size, 150, 20, 1), sized(size, 9, 3, 1)
        many, mapped = estimators(size), sized(size, 20, 5, 1)

        def elbo(params):
            return problem.elbo(params)[0]
    else:
        N, pixels = sized(size, (60000, 784), (60000, 784), (300, 20))
        arrays, model, batch, shape = digits(dtype, N, pixels), softmax_regression, 100, (pixels, 10)
        problem = from_numpyro(model, {key: jax.numpy.asarray(value) for key, value in arrays.items()})
        title, epochs, rounds = f"softmax regression, {N} x {pixels} x 10, batch 100", 1, sized(size, 5, 2, 1)
        many, mapped = sized(size, ("naive", "cv"), (), ()), 1
        eps = jax.random.normal(jax.random.key(0), (4, problem.dim), problem.dtype)

        def elbo(params):
            return problem.elbo(params, eps)[0]

    cases = [lowvar_jax(name, problem, batch, epochs) for name in estimators(size, ("naive", "joint"))]
    steps = cases[0].steps
    cases += [
        numpyro_jax(PEER, model, arrays, shape, batch, steps),
        numpyro_jax_handed_in(PEER_HANDED_IN, kind, arrays, shape, batch, steps),
    ]
    alternate(cases, rounds, time.process_time)  # one thread: what other jobs take does not count
    rows = summary(cases, "naive", (PEER, PEER_HANDED_IN))
    elbo = jax.jit(elbo)
    elbos(cases, rows, elbo)
    show(f"JAX {np.dtype(dtype)}: {title}", rows, "naive")
    arrived(rounds, steps, elbo(start(problem.dim, dtype)))
    verdicts = [verdict(rows, name, aims.NUMPYRO_STEP) for name in (PEER, PEER_HANDED_IN)]
    result = {"title": title, "runs": rows, "verdicts": verdicts}
    if not many:
        return result

    several = [mapped_jax(name, problem, batch, mapped) for name in many]
    if kind == "logistic":
        several.append(mapped_numpyro(PEER, model, arrays, shape, batch, several[0].steps))
    alternate(several, 2 if kind == "softmax" else sized(size, 5, 2, 1), time.process_time)
    runs = RUNS[0] * RUNS[1]
    together = summary(several, "naive", (PEER,))
    show(f"JAX {np.dtype(dtype)}: {title}, {runs} runs mapped", together, "naive", runs)
    return result | {"mapped_runs": runs, "mapped": together}


# --- PyTorch ------------------------------------------------------------------------------------------------


def lowvar_torch(name: str, problem, batch: int, epochs: int) -> Case:
    """A run's traced programs of a few steps each, with an epoch's noise drawn by JAX."""
    import jax
    import torch

    from lowvar.studies.variational.engine import VariationalEngine
    from lowvar.studies.variational.methods import make_solver
    from lowvar.vi.run.settings import Method, Settings

    solver = Settings(optimizer="adam", step_sizes=(STEP_SIZE,), batch_size=batch, epochs=epochs)
    origin = {block: value[None] for block, value in start(problem.dim, problem.dtype).items()}
    make = partial(make_solver, Method(name), solver)
    runs = VariationalEngine(problem, make, solver, jax.random.key(1)[None], origin)

    def call(state):
        state, done = state
        return runs.advance(state, done, epochs), done + epochs

    def params(state):
        return {block: torch.from_numpy(values[0, 0]) for block, values in runs.params(state[0], {}).items()}

    return Case(name, call, (runs.init(), 0), epochs * runs.steps, params)


def pyro_torch(name: str, arrays, batch: int, steps: int, validate: bool) -> Case:
    """Pyro's ``svi.step`` in a Python loop; the plate draws each batch."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoNormal, init_to_value

    x = torch.from_numpy(arrays["x"])
    y = torch.from_numpy(arrays["y"]).to(x.dtype)
    zero, one = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])

    def model():
        z = pyro.sample("z", dist.Normal(zero, one).to_event(1))
        with pyro.plate("data", x.shape[0], subsample_size=batch) as index:
            pyro.sample("y", dist.Bernoulli(logits=x[index] @ z), obs=y[index])

    store = pyro.get_param_store()
    with store.scope() as own:  # separates the parameters of the two Pyro cases
        pyro.set_rng_seed(1)
        guide = AutoNormal(model, init_loc_fn=init_to_value(values={"z": zero}), init_scale=SCALE)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": STEP_SIZE}), Trace_ELBO())

    def call(state):
        with store.scope(state), pyro.validation_enabled(validate):
            for _ in range(steps):
                svi.step()
        return state

    def params(state):
        return {"mu": guide.locs.z.detach(), "log_sigma": guide.scales.z.detach().log()}

    return Case(name, call, own, steps, params)


PYRO = "Pyro svi.step"
PYRO_UNCHECKED = "Pyro svi.step, validation off"


def section_torch(dtype, size: str) -> dict:
    """The estimators and Pyro on breast cancer."""
    import torch

    from lowvar.problems import logistic_regression

    torch.set_num_threads(1)
    arrays, batch = breast_cancer(dtype, size), 5
    problem = logistic_regression.problem(arrays, "torch")
    rounds = sized(size, 7, 2, 1)
    cases = [lowvar_torch(name, problem, batch, 1) for name in estimators(size)]
    steps = cases[0].steps
    cases.append(pyro_torch(PYRO, arrays, batch, steps, validate=True))
    cases.append(pyro_torch(PYRO_UNCHECKED, arrays, batch, steps, validate=False))
    alternate(cases, rounds, time.process_time)
    rows = summary(cases, "naive", (PYRO, PYRO_UNCHECKED))
    elbos(cases, rows, lambda params: problem.elbo(params)[0])
    title = BREAST_CANCER
    show(f"PyTorch {np.dtype(dtype)} (one thread): {title}", rows, "naive")
    origin = {k: torch.from_numpy(v) for k, v in start(problem.dim, dtype).items()}
    arrived(rounds, steps, problem.elbo(origin)[0])
    verdicts = [verdict(rows, name, aims.PYRO_STEP) for name in (PYRO, PYRO_UNCHECKED)]
    return {"title": title, "runs": rows, "verdicts": verdicts}


# --- the command --------------------------------------------------------------------------------------------

SECTIONS = {
    "logistic_jax": partial(section_jax, "logistic"),
    "softmax_jax": partial(section_jax, "softmax"),
    "logistic_torch": section_torch,
}


def environment(dtype: str) -> dict:
    names = ("lowvar", "jax", "numpyro", "optax", "torch", "pyro-ppl", "numpy")
    packages = {}
    for name in names:
        try:
            packages[name] = version(name)
        except ImportError:
            packages[name] = None
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0],
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "dtype": dtype,
        "packages": packages,
    }


def write(path: Path, result: dict) -> None:
    """Writes JSON under a temporary name and renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_name(f".{path.name}.{os.getpid()}")
    partial_path.write_text(json.dumps(result, indent=1) + "\n")
    partial_path.replace(path)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "fewer and shorter rounds (about two minutes)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/vi_step.json"), help="JSON file")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section (may be repeated)")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    args = parser.parse_args(argv)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

    import jax

    jax.config.update("jax_enable_x64", args.dtype == "float64")
    jax.config.update("jax_enable_compilation_cache", False)  # so that compile times are measured
    result = {"environment": environment(args.dtype) | {"device": str(jax.devices()[0])}, "sections": {}}
    found = result["environment"]
    print(", ".join(f"{name} {number}" for name, number in found["packages"].items() if number))
    flags, load = found["XLA_FLAGS"], found["load_at_start"]
    print(f"{found['cores']} cores, JAX on {found['device']}, XLA_FLAGS={flags!r}, load {load:.1f}")
    for name in args.only or SECTIONS:
        result["sections"][name] = SECTIONS[name](np.dtype(args.dtype), args.size)
    write(args.out, result)
    print(f"\nwrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
