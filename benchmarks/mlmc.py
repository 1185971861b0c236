"""Time of a step by noise scheme and number of particles, and the variances that the schemes leave.

All cases run in this process, in alternation, on one core; `benchmarks/README.md` says what is counted and why.
Usage: `python benchmarks/mlmc.py [--quick | --smallest] [--only SECTION] [--task TASK] [--backend jax]`.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joint import alternate, keep_times  # sets up one thread, and imports lowvar before JAX
from performance_sections import aims
from vi_step import Case, add_sizes, environment, sized, summary, write

TASKS, BACKENDS = ("hlr", "blr", "bnn"), ("jax", "torch")
EXPERIMENT, DATA = Path("workflow/experiments/mlmc.yaml"), Path("data/prepared")
DTYPE, POINTS = "float32", 100
STILL = 1e-5  # step size of timed runs, which therefore stay near their start
METHODS = {  # name: estimator, its options, solver settings
    "mc": ("naive", {}, {}),
    "rqmc": ("naive", {}, {"noise": "rqmc"}),
    "antithetic": ("naive", {}, {"noise": "antithetic"}),
    **{f"mlmc, N = {n}": ("mlmc", {"particles": None}, {"particles": n}) for n in (100, 50, 25, 10, 1)},
    **{f"mlmc, N = {n}, fixed": ("mlmc", {"particles": None}, {"particles": n, "batches": "fixed"}) for n in (100, 1)},
    "mc, N = 50": ("naive", {}, {"particles": 50}),  # as many as bnn's experiment has
    "storm": ("storm", {}, {}),
    "mlmc_adaptive": ("mlmc_adaptive", {"particles": None}, {}),
}
FEWEST = ("mc", "mlmc, N = 100", "mlmc, N = 1")  # methods of the smallest size
SCIPY, PEER, PLAIN = "rqmc by SciPy's engine", "NumPyro svi.update", "PyTorch, autograd"
STEPS, STEP_SIZE = 300, 0.01  # of the runs whose variance is measured
PARTICLES = (1, 10, 100, 1000)


# --- the tasks -----------------------------------------------------------------------------------------------


def made(task: str, size: str = "full") -> dict[str, np.ndarray]:
    """Simulated data of the task's shape."""
    rng = np.random.default_rng(0)
    N, d = {"hlr": (100, 10), "blr": (569, 30), "bnn": (1599, 11)}[task]
    N = sized(size, N, N, 20)
    x = rng.normal(size=(N, d))
    y = x @ rng.normal(size=d) + rng.normal(size=N)
    return {"x": x, "y": (y > 0).astype(np.int64) if task == "blr" else y}


def problem_of(task: str, backend: str, size: str):
    """The experiment's problem, its rows, its solver settings with all rows as a batch, and the data's origin."""
    from lowvar.datasets.load import load
    from lowvar.noise import named_key
    from lowvar.problems.catalogue import build
    from lowvar.problems.split import split
    from lowvar.studies.load import load_experiment

    experiment = load_experiment(EXPERIMENT, "paper")
    spec = experiment.model(task)
    path = DATA / f"{spec.dataset}-{spec.scaling}.npz"
    found = path.is_file() and size != "smallest"
    arrays = load(path).arrays if found else made(task, size)
    if spec.split is not None and size != "smallest":
        key = named_key(experiment.seed, spec.dataset, "split")
        arrays = split(arrays, key, spec.split.test, spec.split.train)
    rows = {"x": arrays["x"].astype(DTYPE), "y": arrays["y"]}
    rows["y"] = rows["y"].astype(DTYPE) if rows["y"].dtype.kind == "f" else rows["y"]
    problem = build(spec.model, rows, backend, task, **spec.options)
    settings = experiment.solver_on(task).model_copy(
        update={"particles": POINTS, "batch_size": problem.N, "dtype": DTYPE, "diagnostics": None, "epochs": 10**6}
    )
    return problem, rows, settings, str(path) if found else f"made (not {path})"


def engine_of(name: str, problem, settings, **update):
    """The engine of a method's runs."""
    from lowvar.studies.variational.engine import build
    from lowvar.vi.run.settings import Method

    estimator, options, own = METHODS[name]
    solver = settings.model_copy(update={**own, **update})
    return build(problem, Method(estimator, options), solver.make(), seed=0, name=problem.name)


# --- what is timed -------------------------------------------------------------------------------------------


class Lasting(Case):
    """A case whose calls take a given time; ``advance(state, done, count) -> state`` makes ``count`` steps."""

    def __init__(self, name: str, advance: Callable, state):
        super().__init__(name, self._run, (state, 0), 1)
        self._advance = advance

    def _run(self, state):
        state, done = state
        return self._advance(state, done, self.steps), done + self.steps

    def last(self, seconds: float) -> float:
        """Sets ``steps`` for calls of ``seconds`` CPU seconds; returns those of the first call, which compiles."""
        begin = time.process_time()
        self.state = self.call(self.state)
        first = time.process_time() - begin
        spent = 0.0
        while spent < seconds / 4:
            self.steps *= 4
            begin = time.process_time()
            self.state = self.call(self.state)
            spent = time.process_time() - begin
        self.steps = max(1, round(self.steps * seconds / spent))
        return first


def ours(name: str, problem, settings) -> Lasting:
    """One run of a method by the experiment's engine, with shuffling and noise."""
    engine = engine_of(name, problem, settings, repetitions=1, step_sizes=(STILL,))

    def advance(state, done, count):
        state = engine.advance(state, done, count)
        engine.wait(state)
        return state

    return Lasting(name, advance, engine.init())


def scipys(problem, settings) -> Lasting:
    """The same compiled step of ``rqmc`` with points of SciPy's engine, newly scrambled for every step."""
    import jax
    from scipy.stats import norm, qmc

    engine = engine_of("rqmc", problem, settings, repetitions=1, step_sizes=(STILL,))
    solver, rng = engine.at(STILL), np.random.default_rng(0)
    noise = jax.tree.map(lambda leaf: leaf[0], engine.sampler.epoch(engine.keys[0]))
    step = jax.jit(lambda state, eps: solver.step(state, noise._replace(eps=eps)), donate_argnums=0)

    def advance(state, done, count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 100 points are no power of two
            for _ in range(count):
                uniform = qmc.Sobol(problem.dim, scramble=True, rng=rng).random(POINTS)
                state = step(state, norm.ppf(uniform).astype(DTYPE))
        return jax.block_until_ready(state)

    return Lasting(SCIPY, advance, solver.init({block: value[0] for block, value in engine.starts.items()}))


def numpyros(task: str, rows: dict, particles: int = POINTS) -> Lasting:
    """``svi.update`` with as many particles, in a compiled loop."""
    import importlib

    import jax
    from numpyro.infer import SVI, Trace_ELBO, init_to_uniform
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    model = importlib.import_module(f"lowvar.problems.{task}").model
    guide = AutoNormal(model, init_loc_fn=init_to_uniform(radius=0.0), init_scale=0.1)
    svi = SVI(model, guide, Adam(STILL), Trace_ELBO(num_particles=particles))
    data = {name: jax.numpy.asarray(value) for name, value in rows.items()}

    @jax.jit
    def some(state, data, count):
        return jax.lax.fori_loop(0, count, lambda _, state: svi.update(state, **data)[0], state)

    def advance(state, done, count):
        return jax.block_until_ready(some(state, data, count))

    return Lasting(PEER, advance, svi.init(jax.random.key(1), **data))


def of_blr(x, y):
    """``log p(x, y, z)`` of points ``z (S, dim)`` up to a constant, as one function of a matrix, and ``dim``."""
    import torch

    d = x.shape[1]

    def log_joint(z):
        u, m, w = z[:, 0], z[:, 1], z[:, 2:]
        squares = ((w - m[:, None]) ** 2).sum(1)
        prior = 0.5 * (1 + d) * u - 0.5 * (u.exp() * (1 + squares) + m * m)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(w @ x.T, y.expand(len(z), -1), reduction="none")
        return prior - loss.sum(1)

    return log_joint, d + 2


def of_hlr(x, y):
    """See ``of_blr``."""
    N, d = x.shape
    cells = N * d

    def log_joint(z):
        b, u, m, s = z[:, :cells].reshape(-1, N, d), z[:, cells], z[:, cells + 1 : -1], z[:, -1]
        apart, squares = y - (x * b).sum(2), ((b - m[:, None]) ** 2).sum((1, 2))
        rows = -0.5 * (-2 * u).exp() * (apart**2).sum(1) - N * u
        return rows - 2 * (u * u + s * s) - 0.005 * (m * m).sum(1) - 0.5 * (cells * s + (-s).exp() * squares)

    return log_joint, cells + d + 2


def of_bnn(x, y, hidden=50):
    """See ``of_blr``."""
    N, d = x.shape
    y, count = (y - y.mean()) / y.std(correction=0), (d + 2) * hidden + 1

    def log_joint(z):
        u, t, w = z[:, 0], z[:, 1], z[:, 2:]
        inside, bias, out, last = w.split([d * hidden, hidden, hidden, 1], 1)
        units = (x @ inside.reshape(-1, d, hidden) + bias[:, None]).relu()
        apart = y - (units @ out[:, :, None])[:, :, 0] - last
        rows = 0.5 * (N * t - t.exp() * (apart**2).sum(1))
        prior = (1 + 0.5 * count) * u + t - 0.1 * (u.exp() + t.exp()) - 0.5 * u.exp() * (w * w).sum(1)
        return rows + prior

    return log_joint, count + 2


def plain_torch(task: str, rows: dict) -> Lasting:
    """The task in idiomatic PyTorch: all particles as one matrix, autograd, ``torch.optim.Adam``."""
    import torch

    arrays = (torch.from_numpy(rows[name].astype(DTYPE)) for name in ("x", "y"))
    log_joint, dim = {"blr": of_blr, "hlr": of_hlr, "bnn": of_bnn}[task](*arrays)
    mu = torch.zeros(dim, requires_grad=True)
    log_sigma = torch.full((dim,), float(np.log(0.1)), requires_grad=True)
    adam = torch.optim.Adam([mu, log_sigma], STILL)

    def advance(state, done, count):
        for _ in range(count):
            adam.zero_grad()
            z = mu + log_sigma.exp() * torch.randn(POINTS, dim)
            (-log_joint(z).mean() - log_sigma.sum()).backward()
            adam.step()
        return state

    return Lasting(PLAIN, advance, None)


# --- sections ------------------------------------------------------------------------------------------------


def steps(task: str, backend: str, size: str, methods=None) -> dict:
    """Time of a step of every method, or of ``mc`` and the given ones, and of the peers, in units of ``mc``."""
    problem, rows, settings, origin = problem_of(task, backend, size)
    title = f"{task}, {backend}: {problem.N} rows, {problem.dim} latent numbers, {POINTS} points; {DTYPE}, {origin}"
    names = ["mc", *methods] if methods else sized(size, METHODS, METHODS, FEWEST)
    cases: list[Any] = [ours(name, problem, settings) for name in dict.fromkeys(names)]
    if backend == "jax":
        cases += [scipys(problem, settings), numpyros(task, rows)]
    else:
        cases.append(plain_torch(task, rows))
    first = [case.last(sized(size, 0.3, 0.05, 1e-6)) for case in cases]
    alternate(cases, sized(size, 15, 5, 1))
    found = summary(cases, "mc", (PEER, PLAIN))
    print(f"\n{title}")
    print(f"{'':28s}{'us/step':>11s}  {'time / mc [min, max]':26s}aim")
    for row, seconds in zip(found, first, strict=True):
        row["compile_seconds"] = seconds
        said = f"{row['ratio']:.3g} [{row['ratio_low']:.3g}, {row['ratio_high']:.3g}]"
        print(f"{row['case']:28s}{row['microseconds_per_step']:11.1f}  {said:26s}{judged(row)}", flush=True)
    of = {case.name: np.array(case.seconds) / case.steps for case in cases}
    few = {}
    for how in ("", ", fixed"):  # the batch of all rows in their order, and in another one
        if not {f"mlmc, N = {POINTS}{how}", f"mlmc, N = 1{how}"} <= of.keys():
            continue
        few[how] = spread(of[f"mlmc, N = {POINTS}{how}"] / of[f"mlmc, N = 1{how}"])
        if task == "blr":
            few[how] |= {"aim": aims.FEW, "met": few[how]["ratio"] >= aims.FEW}
        print(f"mlmc, N = {POINTS} over N = 1{how}: {words(few[how])}{verdict(few[how], '>=')}", flush=True)
    times = {name: seconds.tolist() for name, seconds in of.items() if name in METHODS}
    return {
        "title": title,
        "runs": found,
        "few": {"shuffled": few.get(""), "fixed": few.get(", fixed")},
        "times": times,
    }


def judged(row: dict) -> str:
    """Adds to ``row`` its aim and whether it is met, and returns both as text."""
    if row["case"] == "rqmc":
        row |= {"aim": aims.RQMC, "met": row["ratio"] <= aims.RQMC}
        return verdict(row, "<=")
    if row["kind"] == "peer":
        row |= {"aim": aims.PARTICLES_PEER, "met": row["ratio"] >= aims.PARTICLES_PEER}
        return verdict(row, ">=")
    return ""


def verdict(row: dict, sign: str) -> str:
    return f"  aim {sign} {row['aim']:g}: {'met' if row['met'] else 'MISSED'}" if "aim" in row else ""


def words(row: dict) -> str:
    return f"{row['ratio']:.3g} [{row['ratio_low']:.3g}, {row['ratio_high']:.3g}]"


def spread(ratios: np.ndarray) -> dict:
    """The median of ratios with the smallest and the largest."""
    return {"ratio": float(np.median(ratios)), "ratio_low": float(ratios.min()), "ratio_high": float(ratios.max())}


def growth(task: str, backend: str, size: str, methods=None) -> dict:
    """Time of a step of ``mc`` and of NumPyro's ``svi.update`` by the number of particles."""
    problem, rows, settings, origin = problem_of(task, backend, size)
    print(f"\n{task}, {backend}: {problem.N} rows, {problem.dim} latent numbers; {origin}")
    print(f"{'particles':>10s}{'mc, us':>12s}{'NumPyro, us':>13s}  speed of mc [min, max]")
    found = {}
    for count in sized(size, PARTICLES, PARTICLES, PARTICLES[:2]):
        cases = [ours("mc", problem, settings.model_copy(update={"particles": count})), numpyros(task, rows, count)]
        for case in cases:
            case.last(sized(size, 0.3, 0.05, 1e-6))
        alternate(cases, sized(size, 15, 5, 1))
        mine, theirs = summary(cases, "mc", (PEER,))
        found[count] = {"mc": mine["microseconds_per_step"], "numpyro": theirs["microseconds_per_step"]} | {
            key: theirs[key] for key in ("ratio", "ratio_low", "ratio_high")
        }
        print(f"{count:10d}{found[count]['mc']:12.1f}{found[count]['numpyro']:13.1f}  {words(theirs)}", flush=True)
    return found


def noise(task: str, backend: str, size: str, methods=None) -> dict:
    """What a step of ``mc`` is made of: noise by JAX, its copy, noise by PyTorch, the gradient; and whole steps."""
    import jax
    import torch

    problem, rows, settings, origin = problem_of(task, "jax", size)
    engine = engine_of("mc", problem, settings, repetitions=1, step_sizes=(STILL,))
    epochs = sized(size, 20, 20, 2)  # drawn in one call, as along a run
    draw = jax.jit(lambda key: jax.lax.map(lambda k: engine.sampler.epoch(k).eps, jax.random.split(key, epochs)))
    drawn = jax.block_until_ready(draw(jax.random.key(0)))
    start = {block: value[0] for block, value in engine.starts.items()}
    one = jax.tree.map(lambda leaf: leaf[0], engine.sampler.epoch(engine.keys[0]))

    @jax.jit
    def gradients(params, drawn):
        def body(params, eps):
            found = problem.objective_gradient(params, one._replace(eps=eps[0]))
            return jax.tree.map(lambda a, b: a - 1e-9 * b, params, found), None

        return jax.lax.scan(body, params, drawn)[0]

    cases = [
        Case("JAX", lambda n: (jax.block_until_ready(draw(jax.random.key(n))), n + 1)[1], 1, epochs),
        Case("copy", lambda _: torch.from_dlpack(drawn).clone(), 0, epochs),
        Case("torch", lambda _: torch.randn(epochs, POINTS, problem.dim), 0, epochs),
        Case("gradient", lambda params: jax.block_until_ready(gradients(params, drawn)), start, epochs),
    ]
    whole = [ours("mc", problem, settings), numpyros(task, rows)]
    for case in whole:
        case.last(sized(size, 0.3, 0.05, 1e-6))
    alternate(cases + whole, sized(size, 15, 9, 1))
    numbers = POINTS * problem.dim
    found = {case.name: float(np.median(case.seconds)) / case.steps * 1e6 for case in cases + whole}
    print(f"\n{task}: {numbers} normal numbers a step; {origin}; us:")
    print(", ".join(f"{name} {value:.0f}" for name, value in found.items()))
    print(f"a number takes JAX {1e3 * found['JAX'] / numbers:.1f} ns, PyTorch {1e3 * found['torch'] / numbers:.1f}")
    return found | {"numbers": numbers}


def variance(task: str, backend: str, size: str, methods=None) -> dict:
    """Conditional variance of the gradient at the end of a short run with each scheme, over that of ``mc``."""
    from scipy.stats import t

    from lowvar.studies.variational.spec import DiagnosticsSpec

    problem, _, settings, origin = problem_of(task, backend, size)
    repetitions, steps = sized(size, 10, 4, 2), sized(size, STEPS, STEPS, 2)
    update = {
        "optimizer": "adam", "step_sizes": (STEP_SIZE,), "repetitions": repetitions, "elbo_samples": 2,
        "diagnostics": DiagnosticsSpec(draws=sized(size, 128, 32, 4), reference=sized(size, 256, 256, 16)),
    }  # fmt: skip
    at, found = {}, []
    for name in sized(size, *2 * (("mc", "antithetic", "rqmc"),), ("mc", "rqmc")):
        engine = engine_of(name, problem, settings, **update)
        at[name] = engine.measure(engine.advance(engine.init(), 0, steps), steps)["variance"][0].astype(float)
    print(f"\n{task}, {backend}: variance after {steps} steps of Adam at {STEP_SIZE}, {repetitions} runs; {origin}")
    for name, values in at.items():
        logs = np.log(values / at["mc"])
        half = t.ppf(0.975, repetitions - 1) * logs.std(ddof=1) / np.sqrt(repetitions)
        low, middle, high = np.exp(logs.mean() + half * np.array([-1, 0, 1]))
        row = {
            "case": name,
            "variance": float(np.median(values)),
            "ratio": middle,
            "ratio_low": low,
            "ratio_high": high,
        }
        if name == "rqmc" and task in aims.VARIANCE:
            row |= {"aim": aims.VARIANCE[task], "met": bool(middle <= aims.VARIANCE[task])}
        print(f"{name:28s}{row['variance']:11.4g}  {words(row):26s}{verdict(row, '<=')}", flush=True)
        found.append(row)
    return {"steps": steps, "step_size": STEP_SIZE, "repetitions": repetitions, "runs": found}


SECTIONS = ("steps", "growth", "noise", "variance")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_sizes(parser, "fewer and shorter rounds")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section (may be repeated)")
    parser.add_argument("--task", action="append", choices=TASKS, help="this task (may be repeated)")
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="this backend (may be repeated)")
    parser.add_argument("--method", action="append", choices=METHODS, help="time this method (may be repeated)")
    parser.add_argument("--times", type=Path, help="folder for files of JAX's times, by which claims are judged")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/mlmc.json"), help="JSON file")
    args = parser.parse_args(argv)
    import jax
    import torch

    from lowvar.studies.load import load_experiment

    jax.config.update("jax_enable_x64", False)
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    result: dict[str, dict] = {"environment": environment(DTYPE) | {"device": str(jax.devices()[0])}}
    found, sections = result["environment"], result.setdefault("sections", {})
    print(", ".join(f"{name} {number}" for name, number in found["packages"].items() if number))
    print(f"one core, JAX on {found['device']}, XLA_FLAGS={found['XLA_FLAGS']!r}, load {found['load_at_start']:.1f}")
    for name in args.only or SECTIONS:
        for backend in args.backend or BACKENDS:
            if backend == {"steps": None, "noise": "jax"}.get(name, "torch"):
                continue  # one backend tells all: the noise is the same, and so are the gradients
            for task in args.task or sized(args.size, TASKS, TASKS, ("blr",)):
                section = globals()[name](task, backend, args.size, args.method)
                sections.setdefault(name, {})[f"{task}-{backend}"] = section
                if name == "steps" and args.times and backend == "jax":
                    kept = load_experiment(EXPERIMENT, "paper")
                    keep_times(args.times, kept, task, section, result["environment"], "mlmc.py")
                write(args.out, result)
    print(f"\nwrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
