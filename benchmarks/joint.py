"""Time and memory of the joint control variate and its competitors on its paper's tasks, beside the published table.

All cases run in this process, in alternation, on one core (or on JAX's GPU); `benchmarks/README.md` says what is
counted and why.
Usage: `python benchmarks/joint.py [--quick | --smallest] [--only SECTION] [--task TASK] [--dtype float32]`.
"""

import os

# one thread; before the libraries are imported
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from performance_sections import aims
from vi_step import STEP_SIZE, Case, add_sizes, environment, sized, summary, write

import lowvar  # noqa: F401  sets up JAX, so it must be imported first

TASKS = ("mnist", "ppca", "tennis", "movielens")  # each has its own experiment
EXPERIMENTS, SWEEPS = Path("workflow/experiments"), "joint"  # the experiment of the sweeps
RESULTS, DATA = Path("results/paper"), Path("data/prepared")
METHODS = (
    "naive", "cv", "joint", "joint, fixed batches", "joint_svrg", "joint_current", "joint_glm", "joint_glm_sigma",
    "smiso", "full_naive", "full_cv", "inc",
)  # fmt: skip
GRID = ("naive", "cv", "joint", "joint_svrg", "joint_glm", "joint_glm_sigma")
FEWEST = ("naive", "joint", "joint_glm")  # methods of the smallest size
PEER, PEER_HANDED_IN = "NumPyro svi.update", "NumPyro svi.update, batches given"
# steps per call: for methods that pass over all rows in every step, and for those that read a vector for every row
FEW = {"inc": 2, "full_naive": 5, "full_cv": 5}
BY_ROW = {"mnist": 200, "ppca": 30, "tennis": 300, "movielens": 10}


# --- the tasks -----------------------------------------------------------------------------------------------


def experiment(name: str):
    """An experiment of `workflow/experiments` at the paper's scale."""
    from lowvar.studies.load import load_experiment

    return load_experiment(EXPERIMENTS / f"{name}.yaml", "paper")


def published_ms(task: str) -> dict[str, float]:
    """Table 3: milliseconds of an iteration on the paper's GPU, by method."""
    from lowvar.studies.variational import published

    spec = experiment(f"joint_{task}").model(task)
    return published.of(published.MILLISECONDS, spec.model, spec.dataset)


def arrays_of(task: str, spec, dtype, size: str) -> tuple[dict, str]:
    """The task's data and their origin: prepared, or simulated in the same shape."""
    from lowvar.datasets.load import load

    path = DATA / f"{spec.dataset}-{spec.scaling}.npz"
    if path.is_file() and size != "smallest":
        arrays, origin = load(path).arrays, str(path)
    else:
        arrays, origin = made(task, size), f"made (not {path})"
    return {k: v.astype(dtype, copy=False) if v.dtype.kind == "f" else v for k, v in arrays.items()}, origin


def made(task: str, size: str) -> dict[str, np.ndarray]:
    """Simulated data of the task's shape and sparsity; for the smallest size a few rows and columns."""
    rng = np.random.default_rng(0)
    if task in ("mnist", "ppca"):
        shape = sized(size, (60000, 784), (60000, 784), (60, 20))
        x = rng.uniform(size=shape) * (rng.uniform(size=shape) < 0.19)
        x = x - x.mean(0) if task == "ppca" else x
        return {"x": x.astype(np.float32), "y": rng.integers(0, 10, len(x))}
    if task == "tennis":
        players, matches = sized(size, (5524, 169405), (5524, 169405), (10, 60))
        popular = rng.zipf(1.3, (4 * matches, 2)) % players
        pairs = popular[popular[:, 0] != popular[:, 1]][:matches].astype(np.int32)
        return {"winner": pairs[:, 0], "loser": pairs[:, 1], "players": np.array(players)}
    users, ratings = sized(size, (943, 100000), (943, 100000), (10, 60))
    user = rng.integers(0, users, ratings).astype(np.int32)
    x = (rng.uniform(size=(ratings, 18)) < 0.12).astype(float)
    return {"user": user, "x": x, "y": rng.integers(0, 5, ratings), "users": np.array(users)}


def problem_of(task: str, dtype: str | None, size: str):
    """The problem, its data, its settings, and its floating type, to which JAX is set."""
    import jax

    from lowvar.problems.catalogue import build

    found = experiment(f"joint_{task}")
    dtype = dtype or found.dtype(task)
    jax.config.update("jax_enable_x64", dtype == "float64")
    spec = found.model(task)
    arrays, origin = arrays_of(task, spec, np.dtype(dtype), size)
    solver = found.solver_on(task).model_copy(update={"dtype": dtype})
    if size == "smallest":
        solver = solver.model_copy(update={"batch_size": 20, "step_sizes": solver.step_sizes[:2]})
    return build(spec.model, arrays, "jax", task, **spec.options), arrays, solver, f"{dtype}, {origin}"


def solver_of(name: str, problem, settings):
    """``(batches' sampler, step_size -> solver)`` of a method."""
    from lowvar.noise import BATCHES, independent, sampler
    from lowvar.studies.variational.methods import make_solver
    from lowvar.vi.run.settings import Method

    fixed = name in ("smiso", "joint, fixed batches")
    batches = BATCHES["fixed" if fixed else "reshuffled"](problem.N, settings.batch_size)
    noise = sampler(batches, independent(), problem.dim, problem.dtype)
    method = Method(name.partition(",")[0], {"table": "batches"} if fixed else {})
    return noise, make_solver(method, settings.make(), problem, noise)


def start(problem) -> dict[str, np.ndarray]:
    return {k: v.astype(problem.dtype) for k, v in problem.initial("origin", None).items()}


# --- one run -------------------------------------------------------------------------------------------------


def ours(name: str, problem, settings, count: int | None) -> Case:
    """A run's epoch, or its first ``count`` steps, compiled as in the engine: wide noise is drawn batch by batch."""
    import jax

    noise, at = solver_of(name, problem, settings)
    solver = at(STEP_SIZE)

    @partial(jax.jit, donate_argnums=0)
    def advance(state, key):
        batches = noise.plan(key) if noise.wide or count else noise.epoch(key)
        if count is None:
            return solver.epoch(state, batches)
        some = jax.tree.map(lambda leaf: leaf[:count], batches)
        return jax.lax.scan(lambda state, one: (solver.step(state, noise.drawn(one)), None), state, some)[0]

    def call(state):
        state, key = state
        key, now = jax.random.split(key)
        return jax.block_until_ready(advance(state, now)), key

    state = jax.jit(solver.init)(start(problem)), jax.random.key(1)
    return Case(name, call, state, count or noise.batches.steps)


def applies(name: str, task: str, problem, settings) -> str | None:
    """Why a method is not timed on a task; None if it is."""
    from lowvar.problems.linear import LinearProblem

    if name.startswith("joint_glm") and not isinstance(problem, LinearProblem):
        return "no linear predictors"
    if name == "inc" and task == "movielens":
        return "seconds a step; not published either"
    _, at = solver_of(name, problem, settings)
    needed, there = at(STEP_SIZE).table_bytes, available()
    return f"a table of {needed / 1e9:.1f} GB" if needed > there / 6 else None


def available() -> int:
    """Bytes of free memory."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def clock():
    """CPU seconds, on which other processes have less influence; on a GPU wall-clock seconds."""
    import jax

    return time.process_time if jax.default_backend() == "cpu" else time.perf_counter


def alternate(cases: list[Case], rounds: int) -> None:
    """Times ``rounds`` calls of every case, A B C  B C A ..., after one that compiles."""
    now = clock()

    def timed(case):
        begin = now()
        case.state = case.call(case.state)
        return now() - begin

    for case in cases:
        case.first = timed(case)
    for r in range(rounds):
        at = r % len(cases)
        for case in cases[at:] + cases[:at]:
            case.seconds.append(timed(case))


# --- NumPyro -------------------------------------------------------------------------------------------------


def models(task: str, arrays, batch: int):
    """NumPyro's model with the plate's batches, the same with batches given, and both their data."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from lowvar.problems import bradley_terry, movielens, ppca, softmax_regression

    names = {"mnist": ("x", "y"), "ppca": ("x",), "tennis": ("winner", "loser"), "movielens": ("user", "x", "y")}
    data = {key: jnp.asarray(arrays[key]) for key in names[task]}
    N = len(next(iter(data.values())))
    # stays a Python number, since shapes depend on it
    players, users = (int(arrays[key]) if key in arrays else 0 for key in ("players", "users"))

    def plate(**rows):
        if task == "mnist":
            return softmax_regression.model(rows["x"], 10, rows["y"], batch)
        if task == "ppca":
            return ppca.model(rows["x"], 16, batch)
        if task == "tennis":
            return bradley_terry.model(rows["winner"], rows["loser"], players, batch)
        return movielens.model(rows["user"], rows["x"], users, 5, rows["y"], batch)

    def latent(name, law, shape):
        return numpyro.sample(name, law.expand(shape).to_event(len(shape)))

    def given(**rows):
        normal = dist.Normal(0, 1)
        if task == "mnist":
            law = dist.Categorical(logits=rows["x"] @ latent("z", normal, [rows["x"].shape[1], 10]))
        elif task == "ppca":
            pixels = rows["x"].shape[1]
            weights = latent("W", normal, [pixels, 16])
            law = dist.LowRankMultivariateNormal(jnp.zeros(pixels), weights, jnp.ones(pixels))
        elif task == "tennis":
            theta = latent("theta", normal, [players])
            law = dist.Bernoulli(logits=theta[rows["winner"]] - theta[rows["loser"]])
        else:
            mu, s = latent("mu", normal, [18, 5]), latent("s", normal, [18, 5])
            Z = latent("Z", dist.Normal(mu, jnp.exp(s)), [users, 18, 5])
            law = dist.Categorical(logits=jnp.sum(rows["x"][:, :, None] * Z[rows["user"]], axis=1))
        seen = {"mnist": "y", "ppca": "x", "movielens": "y"}.get(task)
        with numpyro.handlers.scale(scale=N / batch), numpyro.plate("data", batch):
            numpyro.sample("observed", law, obs=rows[seen] if seen else jnp.ones(batch, jnp.int32))

    return plate, given, data, N


def numpyro_cases(task: str, arrays, batch: int, count: int) -> list[Case]:
    """``svi.update`` in a ``lax.scan``: with batches drawn by the plate, and with reshuffled batches as data."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO, init_to_uniform
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    from lowvar.noise import reshuffled

    plate, given, data, N = models(task, arrays, batch)
    batches = reshuffled(N, batch)
    init, index = init_to_uniform(radius=0.0), np.arange(batch)
    guides = [AutoNormal(model, init_loc_fn=init, init_scale=0.1) for model in (plate, given)]
    drawn, handed = (
        SVI(model, guide, Adam(STEP_SIZE), Trace_ELBO()) for model, guide in zip((plate, given), guides, strict=True)
    )

    @partial(jax.jit, donate_argnums=0)
    def some(state, data):
        return jax.lax.scan(lambda state, _: (drawn.update(state, **data)[0], None), state, None, length=count)[0]

    @partial(jax.jit, donate_argnums=0)
    def epoch(state, key, data):
        def update(state, index):
            return handed.update(state, **jax.tree.map(lambda leaf: leaf[index], data))[0], None

        return jax.lax.scan(update, state, batches.draw(key))[0]

    def call(state):
        state, key = state
        key, now = jax.random.split(key)
        return jax.block_until_ready(epoch(state, now, data)), key

    first = handed.init(jax.random.key(1), **jax.tree.map(lambda leaf: leaf[index], data))
    return [
        Case(PEER, lambda s: jax.block_until_ready(some(s, data)), drawn.init(jax.random.key(1), **data), count),
        Case(PEER_HANDED_IN, call, (first, jax.random.key(2)), batches.steps),
    ]


# --- sections ------------------------------------------------------------------------------------------------


def steps(task: str, dtype: str | None, size: str, only: tuple[str, ...] = ()) -> dict:
    """Time of a step of every method, and of NumPyro's, in units of ``naive``; or of some methods ``only``."""
    problem, arrays, settings, title = problem_of(task, dtype, size)
    title = f"{task}: {problem.N} rows, {problem.dim} latent dimensions, batch {settings.batch_size}; {title}"
    cases, left_out = [], {}
    for name in only or methods(size, METHODS):
        reason = applies(name, task, problem, settings)
        if reason:
            left_out[name] = reason
            continue
        count = BY_ROW[task] if name in ("joint", "joint_current") else FEW.get(name)
        count = sized(size, count, count, count and 2)
        cases.append(ours(name, problem, settings, count))
    if not only:
        cases += numpyro_cases(task, arrays, settings.batch_size, sized(size, 200, 50, 3))
    alternate(cases, sized(size, 9, 3, 1))
    rows = summary(cases, "naive", (PEER, PEER_HANDED_IN))
    published = published_ms(task)
    print(f"\n{title}")
    print(f"{'':36s}{'us/step':>11s}  {'time / naive [min, max]':26s}{'Table 3: ms':>12s}{'ratio':>8s}  aim")
    for row in rows:
        name, ms = row["case"], published.get(row["case"])
        row |= {"published_ms": ms, "published_ratio": ms and ms / published["naive"]}
        said = f"{row['ratio']:.2f} [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
        table = f"{ms:12g}{ms / published['naive']:8.2f}" if ms else " " * 20
        print(f"{name:36s}{row['microseconds_per_step']:11.1f}  {said:26s}{table}  {judged(row, task)}")
    for name, reason in left_out.items():
        print(f"{name:36s}not timed: {reason}")
    times = {case.name: [one / case.steps for one in case.seconds] for case in cases}
    return {"title": title, "runs": rows, "left_out": left_out, "times": times}


def methods(size: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The methods that are timed."""
    return sized(size, names, names, tuple(name for name in names if name in FEWEST))


def judged(row: dict, task: str) -> str:
    """Adds to ``row`` its aim and whether it is met, and returns both as text."""
    name = row["case"]
    if row["kind"] == "peer":
        aim = aims.JOINT_PEER.get(task, 1.0) if name == PEER else 1.0
        row |= {"aim": aim, "met": row["ratio"] >= aim}
        return f">= {aim:g}: {'met' if row['met'] else 'MISSED'}"
    if name not in aims.JOINT[task]:
        return ""
    row |= {"aim": aims.JOINT[task][name], "met": row["ratio"] <= aims.JOINT[task][name]}
    return f"<= {row['aim']:g}: {'met' if row['met'] else 'MISSED'}"


def keep_times(folder: Path, found, task: str, section: dict, about: dict, script: str) -> None:
    """Writes the rounds of an experiment's problem, by which claims about time are judged, but not on made data."""
    times, title = section["times"], section["title"]
    if "made (not" in title:
        print(f"{folder / task}.json is not written: {title[title.index('made (not') :]}")
        return
    model, solver = found.model(task), found.solver_on(task)
    rows = [{"method": name, "backend": "jax", "seconds": [float(f"{one:.5g}") for one in seconds]}
            for name, seconds in times.items()]  # fmt: skip
    clock = "CPU seconds of a process on one core" if "cpu" in about["device"].lower() else "wall-clock seconds"
    made = {
        "problem": task, "model": model.model, "dataset": model.dataset, "optimizer": solver.optimizer,
        "batch_size": solver.batch_size, "made_by": f"benchmarks/{script} --only steps --times",
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "clock": clock, "processor": processor(),
    }  # fmt: skip
    write(folder / f"{task}.json", {**made, **about, "steps": rows})


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def grid(task: str, dtype: str | None, size: str) -> dict:
    """An epoch of five step sizes at once, as in the experiment."""
    import jax

    from lowvar.studies.variational.engine import VariationalEngine

    problem, _, settings, title = problem_of(task, dtype, size)
    settings = settings.model_copy(update={"repetitions": 1, "epochs": 1000})
    runs, cases = len(settings.step_sizes), []
    for name in methods(size, GRID):
        if applies(name, task, problem, settings) or (name == "joint" and task in ("ppca", "movielens")):
            continue  # minutes per call; the time of one run is as informative
        make = lambda problem, noise, name=name: solver_of(name, problem, settings)[1]  # noqa: E731
        origin = {block: value[None] for block, value in start(problem).items()}
        engine = VariationalEngine(problem, make, settings.make(), jax.random.key(1)[None], origin)

        def call(state, engine=engine):
            state, done = state
            state = engine.advance(state, done, 1)
            engine.wait(state)
            return state, done + 1

        cases.append(Case(name, call, (engine.init(), 0), engine.steps))
    alternate(cases, sized(size, 3, 1, 1))
    rows = summary(cases, "naive")
    print(f"\n{task}: {runs} step sizes at once; {title}")
    print(f"{'':36s}{'us/run/step':>12s}  time / naive [min, max]")
    for row in rows:
        said = f"{row['ratio']:.2f} [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
        print(f"{row['case']:36s}{row['microseconds_per_step'] / runs:12.1f}  {said}")
    return {"title": title, "mapped_runs": runs, "runs": rows}


def parts(task: str, dtype: str | None, size: str) -> dict:
    """What a step is made of: each part alone in a loop over an epoch's batches, beside whole steps.

    Every loop reads its part's whole result, which costs a pass over it.
    """
    import jax
    import jax.numpy as jnp

    from lowvar.backends import get
    from lowvar.estimators.gradient.base import plus
    from lowvar.estimators.gradient.tables import of_batches
    from lowvar.solvers.optimizers import optimizer

    problem, _, settings, title = problem_of(task, dtype, size)
    noise, _ = solver_of("naive", problem, settings)
    fixed, _ = solver_of("joint, fixed batches", problem, settings)
    adam, count = optimizer("adam", STEP_SIZE, get("jax")), min(sized(size, 200, 200, 2), noise.batches.steps)
    params = {block: jnp.asarray(value) for block, value in start(problem).items()}
    eps = jax.random.normal(jax.random.key(2), (1, problem.dim), problem.dtype)
    moved = jax.tree.map(lambda leaf: leaf + 1e-3, params)

    def drawn(kept, one):
        return kept + noise.drawn(one).eps[0]

    def gradient(kept, one):
        some = noise.drawn(one)._replace(eps=eps)
        return jax.tree.map(lambda a, b: a - 1e-9 * b, kept, problem.objective_gradient(kept, some))

    def plain(kept, one):
        return kept - 1e-9 * problem.gradient(kept, one.index, one.weight)

    def product(kept, one):
        old, along = problem.gradient_and_hvp(kept, eps[0], one.index, one.weight)
        return kept - 1e-9 * (old + along)

    def updated(kept, one):
        params, state = kept
        change, state = adam.update(moved, state, params)
        return jax.tree.map(jnp.add, params, change), state

    def means(kept, one):
        return tuple(plus(each, moved, one.rows / problem.N) for each in kept)

    def table(kept, plan):
        """An epoch of reads and writes of the table of batches, and what it does at the end of the epoch."""

        def step(kept, one):
            total, state = kept
            return (plus(total, stored.read(state, one.index), 1e-9), stored.write(state, one, total)), None

        (total, state), _ = jax.lax.scan(step, kept, plan)
        return total, stored.end_epoch(state, plan.index)

    stored = of_batches(get("jax"), fixed.batches)
    mu = params["mu"]
    loops = {
        "noise": (drawn, mu), "gradient": (gradient, params), "gradient without noise": (plain, mu),
        "gradient and Hessian-vector product": (product, mu),
        "Adam": (updated, (params, adam.init(params))), "running means": (means, (params, moved)),
    }  # fmt: skip
    plan = jax.tree.map(lambda leaf: leaf[:count], jax.jit(noise.plan)(jax.random.key(1)))

    def case(name, function, state):
        program = jax.jit(lambda kept, plan: jax.lax.scan(lambda k, one: (function(k, one), None), kept, plan)[0])
        return Case(name, lambda kept: jax.block_until_ready(program(kept, plan)), state, count)

    shuffle = jax.jit(noise.plan)
    cases = [
        Case("shuffle", lambda n: (jax.block_until_ready(shuffle(jax.random.key(n))), n + 1)[1], 0, noise.batches.steps)
    ]
    cases += [case(name, *what) for name, what in loops.items()]
    whole_plan, program = jax.jit(fixed.plan)(jax.random.key(1)), jax.jit(table, donate_argnums=0)
    cases.append(
        Case("table of batches", lambda kept: jax.block_until_ready(program(kept, whole_plan)),
             jax.tree.map(jnp.copy, (params, stored.init(params))), fixed.batches.steps)
    )  # fmt: skip
    whole = methods(size, ("naive", "joint, fixed batches", "joint_svrg"))
    cases += [ours(name, problem, settings, None) for name in whole]
    alternate(cases, sized(size, 9, 5, 1))
    rows = summary(cases, "naive")
    print(f"\n{title}: microseconds of a step's parts, each alone, and of whole steps")
    for row in rows:
        print(f"{row['case']:40s}{row['microseconds_per_step']:9.1f}")
    return {"title": title, "microseconds": {row["case"]: row["microseconds_per_step"] for row in rows}}


def memory(dtype: str | None, size: str) -> dict:
    """Peak memory of runs on mnist, each in a separate process."""
    rows, below = [], None
    print("\nmnist: peak memory of a run (one step size, two epochs), in a process of its own")
    print(f"{'':20s}{'whole process':>14s}{'after loading':>15s}{'above naive':>13s}{'table':>9s}   MB")
    for name in methods(size, ("naive", "joint", "joint_current", "joint_svrg", "joint_glm"))[
        : sized(size, None, None, 2)
    ]:
        command = [sys.executable, __file__, "--peak", name, *(("--dtype", dtype) if dtype else ())]
        command += sized(size, [], [], ["--smallest"])
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        below = below or row
        row["above_naive"] = row["running"] - below["running"]
        rows.append(row)
        word = ""
        if name == "joint":
            row |= {"aim": aims.MEMORY, "met": row["above_naive"] <= aims.MEMORY}
            word = f"   aim <= {aims.MEMORY}: {'met' if row['met'] else 'MISSED'}"
        print(
            f"{name:20s}{row['process']:14.0f}{row['running']:15.0f}{row['above_naive']:13.0f}{row['table']:9.0f}{word}"
        )
    each = rows[0]["vector"]
    print(f"a table of N = 60000 rows would hold {60000 * each / 1e3:.2f} GB ({60000 * each * 1e6 / 2**30:.2f} GiB)")
    return {"runs": rows, "table_of_rows_gb": 60000 * each / 1e3}


def peak(name: str, dtype: str | None, size: str) -> None:
    """The child process of ``memory``: prints its peaks as JSON, in MB (10^6 bytes)."""
    import jax

    from lowvar.studies.variational.engine import VariationalEngine

    problem, arrays, settings, _ = problem_of("mnist", dtype, size)
    arrays.clear()
    settings = settings.model_copy(update={"repetitions": 1, "epochs": 2, "step_sizes": (STEP_SIZE,)})
    make = lambda problem, noise: solver_of(name, problem, settings)[1]  # noqa: E731
    origin = {block: value[None] for block, value in start(problem).items()}
    forget_peak()
    engine = VariationalEngine(problem, make, settings.make(), jax.random.key(1)[None], origin)
    state = engine.init()
    for epoch in range(2):
        state = engine.advance(state, epoch, 1)
    engine.wait(state)
    itemsize, solver = np.dtype(settings.dtype).itemsize, engine.at(STEP_SIZE)
    found = {"method": name, "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}
    found |= {"running": highest() / 1e6, "table": solver.table_bytes / 1e6, "vector": 2 * problem.dim * itemsize / 1e6}
    print(json.dumps(found))


def forget_peak() -> None:
    """Resets the peak of memory, if the system can: loading the data takes more than running."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak of memory cannot be reset here: it includes loading", file=sys.stderr)


def highest() -> int:
    """Peak resident memory in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def sweeps(dtype: str | None, size: str) -> dict:
    """Seconds of the sonar and australian sweeps, from the finished runs of the experiment."""
    import pandas as pd

    found, rows, missing = experiment(SWEEPS), [], []
    for task in ("sonar", "australian"):
        for method in found.methods_on(task):
            path = RESULTS / SWEEPS / "runs" / task / f"{method}-jax" / "timing.parquet"
            if not path.is_file():
                missing.append(f"{task} {method}")
                continue
            last = pd.read_parquet(path).iloc[-1]
            rows.append({"task": task, "method": method, "seconds": float(last["seconds"]),
                         "compile_seconds": float(last["compile_seconds"])})  # fmt: skip
    print("\nsonar and australian: 9 step sizes x 10 repetitions x 10000 iterations, seconds of finished runs")
    for row in rows:
        print(f"{row['task']:12s}{row['method']:20s}{row['seconds']:9.1f}  + {row['compile_seconds']:.1f} to compile")
    total = sum(row["seconds"] + row["compile_seconds"] for row in rows)
    cores = [0.0, 0.0]
    for row in sorted(rows, key=lambda row: -row["seconds"]):
        cores[cores.index(min(cores))] += row["seconds"] + row["compile_seconds"]
    result = {"runs": rows, "missing": missing, "total": total, "two_cores": max(cores), "aim": aims.SWEEPS}
    if missing:
        print(f"unfinished: {', '.join(missing)}")
    result["met"] = not missing and max(cores) <= aims.SWEEPS
    word = "unknown" if missing else "met" if result["met"] else "MISSED"
    print(f"together {total:.0f} s, on two cores {max(cores):.0f} s; aim <= {aims.SWEEPS} s: {word}")
    return result


SECTIONS = ("steps", "parts", "grid", "memory", "sweeps")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "fewer and shorter rounds")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section (may be repeated)")
    parser.add_argument("--task", action="append", choices=TASKS, help="this task (may be repeated)")
    parser.add_argument("--method", action="append", choices=METHODS, help="in steps: this one and naive (repeatable)")
    parser.add_argument("--times", type=Path, help="folder for files of times, by which claims are judged")
    parser.add_argument("--dtype", choices=("float64", "float32"), help="default: what the experiment takes")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/joint.json"), help="JSON file")
    parser.add_argument("--peak", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    import jax

    if args.peak:
        peak(args.peak, args.dtype, args.size)
        return 0
    if hasattr(os, "sched_setaffinity") and jax.default_backend() == "cpu":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    result = {"environment": environment(args.dtype or "the experiment's") | {"device": str(jax.devices()[0])}}
    found, sections = result["environment"], result.setdefault("sections", {})
    print(", ".join(f"{name} {number}" for name, number in found["packages"].items() if number))
    print(f"one core, JAX on {found['device']}, XLA_FLAGS={found['XLA_FLAGS']!r}, load {found['load_at_start']:.1f}")
    for name in args.only or SECTIONS:
        if name in ("steps", "parts", "grid"):
            only = ("naive", *(one for one in args.method or () if one != "naive")) if args.method else ()
            for task in args.task or sized(args.size, TASKS, TASKS, ("tennis",)):
                more = (only,) if name == "steps" else ()
                section = globals()[name](task, args.dtype, args.size, *more)
                sections.setdefault(name, {})[task] = section
                if name == "steps" and args.times:
                    kept, about = experiment(f"joint_{task}"), result["environment"]
                    keep_times(args.times, kept, task, section, about, "joint.py")
                write(args.out, result)
        else:
            sections[name] = globals()[name](args.dtype, args.size)
        write(args.out, result)
    print(f"\nwrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
