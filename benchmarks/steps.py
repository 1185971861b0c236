"""Time of a step of lowvar's gradient estimators, of NumPyro's and Pyro's SVI, and of a loop in PyTorch by hand.

All cases of a task run in this process, in alternation, on one core; CPU seconds (on a GPU, wall-clock seconds). A step
has its noise, its share of the shuffle and of full passes; compilation is excluded. The tasks are those of experiments
at scale ``paper``, `logistic` (breast cancer, batches of 5), in PyTorch logistic regression with ten features, and in
JAX Poisson regressions beside a loop by hand: a compiled program of epochs, with gradient and Adam written out.

    python benchmarks/steps.py --task mnist --record                # a task; its case in the record
    python benchmarks/steps.py --task mnist --times workflow/times  # by which claims about time are judged

Processes differ in their times by more than rounds of one, so each round of ``--times`` is the median of a process of
its own.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import common  # noqa: F401  first: it limits the libraries to one thread
import numpy as np
from common import Case, about, alternate, arguments, clock, compared, finish, on_cpu, one_core, positive, sized, write

import lowvar  # sets up JAX, so it must be imported first

JOINT, MLMC, LOGISTIC = ("mnist", "ppca", "tennis", "movielens"), ("hlr", "blr", "bnn"), "logistic"
LOOPS = {  # rows, batch, particles
    "500 rows, batch 50": (500, 50, 1),
    "1000 rows, batch 100": (1000, 100, 1),
    "500 rows, all of them": (500, 500, 1),
    "500 rows, all of them, 100 particles": (500, 500, 100),
}
POISSON = {  # rows, coordinates, batch, dtype; how many times as long NumPyro's step takes at least
    "N = 2e2, d = 7, B = 32": (200, 7, 32, "float32", 10),
    "N = 5e3, d = 120, B = 32": (5_000, 120, 32, "float32", 10),
    "N = 5e3, d = 120, B = 256, float64": (5_000, 120, 256, "float64", 5),
    "N = 5e3, d = 1500, B = 256": (5_000, 1_500, 256, "float32", 5),
    "N = 3e5, d = 7, B = 32": (300_000, 7, 32, "float32", 10),
    "N = 3e5, d = 120, B = 256": (300_000, 120, 256, "float32", 5),
    "N = 3e6, d = 7, B = 256": (3_000_000, 7, 256, "float32", 5),
}
TASKS = (LOGISTIC, *JOINT, *MLMC, "logistic, PyTorch", *LOOPS, *POISSON)
DATA = Path("data/prepared")
STEP_SIZE, STILL = 2e-3, 1e-5  # the second where many particles are timed, at the start
METHODS: dict[str, tuple[str, dict, dict]] = {  # estimator, its options, settings that differ
    **{name: (name, {}, {}) for name in ("naive", "cv", "joint", "joint_svrg", "joint_glm", "joint_glm_sigma")},
    "joint, fixed batches": ("joint", {"table": "batches"}, {"batches": "fixed"}),
    "joint_adaptive": ("joint_adaptive", {}, {}),
    "full_naive": ("naive", {}, {"batch_size": None}),  # null: all rows
    "full_cv": ("cv", {}, {"batch_size": None}),
}
PARTICLES: dict[str, tuple[str, dict, dict]] = {
    "mc": ("naive", {}, {}),
    "rqmc": ("naive", {}, {"noise": "rqmc"}),
    "antithetic": ("naive", {}, {"noise": "antithetic"}),
    **{f"mlmc, N = {n}": ("mlmc", {"particles": None}, {"particles": n}) for n in (100, 50, 25, 10, 1)},
    **{f"mlmc, N = {n}, fixed": ("mlmc", {"particles": None}, {"particles": n, "batches": "fixed"}) for n in (100, 1)},
    "mc, N = 50": ("naive", {}, {"particles": 50}),  # as many as bnn's experiment has
    "storm": ("storm", {}, {}),
    "mlmc_adaptive": ("mlmc_adaptive", {"particles": None}, {}),
}
NUMPYRO, PYRO, HAND = "NumPyro svi.update", "Pyro svi.step", "a loop by hand"
AIMS = {  # upper limits on the time over that of naive
    "mnist": {"joint, fixed batches": 1.8, "joint_svrg": 1.5, "joint_glm": 1.5},
    "ppca": {"joint, fixed batches": 2.5, "joint_svrg": 2.8},
    "tennis": {"joint, fixed batches": 2.5, "joint_svrg": 1.2, "joint_glm": 1.2},
    "movielens": {"joint, fixed batches": 2.5, "joint_svrg": 1.6, "joint_glm": 1.6},
}
SHAPES = {"mnist": (60000, 784), "ppca": (60000, 784), "tennis": (169405, 5524), "movielens": (100000, 943),
          "hlr": (100, 10), "blr": (455, 30), "bnn": (100, 11)}  # fmt: skip


# --- the tasks of experiments ----------------------------------------------------------------------------------


def simulated(task: str, size: str) -> dict[str, np.ndarray]:
    """Data of the task's shape; for the smallest size a few rows and columns."""
    rng = np.random.default_rng(0)
    N, d = sized(size, SHAPES[task], SHAPES[task], (60, 10))
    if task == "tennis":
        pairs = np.stack([rng.permutation(d)[:2] for _ in range(N)]).astype(np.int32)
        return {"winner": pairs[:, 0], "loser": pairs[:, 1], "players": np.array(d)}
    if task == "movielens":
        user, x = rng.integers(0, d, N).astype(np.int32), (rng.uniform(size=(N, 18)) < 0.12).astype(float)
        return {"user": user, "x": x, "y": rng.integers(0, 5, N), "users": np.array(d)}
    if task in ("mnist", "ppca"):
        x = rng.uniform(size=(N, d)) * (rng.uniform(size=(N, d)) < 0.19)
        return {"x": x - x.mean(0) if task == "ppca" else x, "y": rng.integers(0, 10, N)}
    x = rng.normal(size=(N, d))
    y = x @ rng.normal(size=d) + rng.normal(size=N)
    return {"x": x, "y": (y > 0).astype(np.int64) if task == "blr" else y}


def data_of(model) -> Path:
    """The file with the data of an experiment's model."""
    return DATA / f"{model.dataset}-{model.scaling}.npz"


def experiment_of(task: str):
    """The experiment that has a task, at the paper's scale."""
    from lowvar_studies.jobs.load import load_experiment

    name = "mlmc" if task in MLMC else f"joint_{task}"
    return load_experiment(Path(f"workflow/experiments/{name}.yaml"), "paper")


def softmax(x, y, classes, batch_size=None):
    """Softmax regression in NumPyro, with coefficients of all classes."""
    import numpyro
    import numpyro.distributions as dist

    z = numpyro.sample("z", dist.Normal(0, 1).expand([x.shape[1], classes]).to_event(2))
    with numpyro.plate("rows", len(y), subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Categorical(logits=x[i] @ z), obs=y[i])


def built(task: str, size: str, dtype: str | None = None):
    """The problem of a task, its arrays, settings and model; data are simulated where they are not prepared.

    Args:
        task: of ``JOINT`` or ``MLMC``.
        size: of the benchmark.
        dtype: default: the experiment's.
    """
    import jax

    from lowvar.core.keys import named_key
    from lowvar_studies.datasets.load import load
    from lowvar_studies.models.catalogue import MODELS, build
    from lowvar_studies.models.split import split

    found = experiment_of(task)
    spec, dtype = found.model(task), dtype or ("float32" if task in MLMC else found.dtype(task))
    jax.config.update("jax_enable_x64", dtype == "float64")
    path = data_of(spec)
    there = path.is_file() and size != "smallest"
    arrays = load(path).arrays if there else simulated(task, size)
    if there and spec.split is not None:
        arrays = split(arrays, named_key(found.seed, spec.dataset, "split"), spec.split.test, spec.split.train)
    arrays = {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in arrays.items()}
    problem = build(spec.model, arrays, "jax", task, **spec.options)
    settings = replace(found.solver_on(task).make(), dtype=dtype, repetitions=1, epochs=10**6, diagnostics=None)
    if task in MLMC:  # all rows, and so small a step that a run stays at its start
        settings = replace(settings, particles=100, batch_size=problem.N, step_sizes=(STILL,), schedule=None)
    else:
        settings = replace(settings, step_sizes=(STEP_SIZE,), batch_size=min(settings.batch_size, problem.N))
    of = softmax if spec.model == "softmax_regression" else sys.modules[MODELS.get(spec.model).__module__].model
    return problem, arrays, settings, of


def breast_cancer(size: str) -> dict[str, np.ndarray]:
    """569 x 30, every column scaled to [-1, 1]."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    x, rows = raw.data, sized(size, None, None, 20)
    x = 2 * (x - x.min(0)) / (x.max(0) - x.min(0)) - 1
    return {"x": x[:rows], "y": raw.target[:rows].astype(np.int32)}


def logistic(backend: str, size: str):
    """As ``built``, of breast cancer in batches of 5."""
    import jax

    from lowvar.vi.run.settings import Settings
    from lowvar_studies.models import logistic_regression

    jax.config.update("jax_enable_x64", True)
    arrays = breast_cancer(size)
    problem = logistic_regression.problem(arrays, backend)
    settings = Settings(optimizer="adam", step_sizes=(STEP_SIZE,), batch_size=5, epochs=10**6, initial="origin")
    return problem, arrays, settings, logistic_regression.model


# --- what is timed -----------------------------------------------------------------------------------------------


def lasting(name: str, advance, state, steps: int, size: str) -> Case:
    """A case whose calls last 0.15 s at least; ``advance(state, done, count)`` makes ``count`` times ``steps``."""
    count, wanted, spent = [1], sized(size, 0.15, 0.1, 0.0), 0.0
    case = Case(name, lambda at: (advance(at[0], at[1], count[0]), at[1] + count[0]), (state, 0))
    case.state = case.call(case.state)  # which compiles
    while spent <= wanted:
        count[0] *= 2 if spent else 1
        start = clock()
        case.state = case.call(case.state)
        spent = clock() - start
    case.steps = count[0] * steps
    return case


def ours(name: str, methods: dict, problem, settings, size: str) -> Case:
    """A run of a method, as experiments and ``fit`` make it."""
    from lowvar.vi.run.engine import build
    from lowvar.vi.run.settings import Method

    estimator, options, own = methods[name]
    own = own | ({"batch_size": problem.N} if "batch_size" in own else {})
    engine = build(problem, Method(estimator, options), replace(settings, **own), seed=0, name=problem.name)

    return lasting(name, engine.advance, engine.init(), engine.steps, size)


def numpyros(model, arrays: dict, settings, size: str) -> Case:
    """NumPyro's ``svi.update`` of the same model in a compiled loop; the plate draws each batch."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO, init_to_uniform
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    named = inspect.signature(model).parameters
    fixed = {key: int(value) for key, value in arrays.items() if key in named and np.ndim(value) == 0}
    fixed |= {"classes": int(arrays["y"].max()) + 1} if "classes" in named else {}
    data = {key: jax.numpy.asarray(value) for key, value in arrays.items() if key in named and np.ndim(value)}
    rows = len(next(iter(data.values())))
    batch = {"batch_size": settings.batch_size} if settings.batch_size < rows else {}
    model = partial(model, **fixed, **batch)
    guide = AutoNormal(model, init_loc_fn=init_to_uniform(radius=0.0), init_scale=0.1)
    svi = SVI(model, guide, Adam(settings.step_sizes[0]), Trace_ELBO(num_particles=settings.particles))

    @jax.jit
    def some(state, data, count):
        return jax.lax.fori_loop(0, count, lambda _, state: svi.update(state, **data)[0], state)

    def advance(state, done, count):
        return jax.block_until_ready(some(state, data, count))

    return lasting(NUMPYRO, advance, svi.init(jax.random.key(1), **data), 1, size)


def pyros(arrays: dict, settings, size: str) -> Case:
    """Pyro's ``svi.step`` of the logistic regression in a Python loop; the plate draws each batch."""
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
        with pyro.plate("data", x.shape[0], subsample_size=settings.batch_size) as index:
            pyro.sample("y", dist.Bernoulli(logits=x[index] @ z), obs=y[index])

    guide = AutoNormal(model, init_loc_fn=init_to_value(values={"z": zero}), init_scale=0.1)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": STEP_SIZE}), Trace_ELBO())

    def advance(state, done, count):
        for _ in range(count):
            svi.step()

    return lasting(PYRO, advance, None, 1, size)


def loop(title: str, size: str) -> list[Case]:
    """Logistic regression with ten features in PyTorch: a loop of a tutorial, and estimators."""
    import torch

    from lowvar.vi.run.settings import Settings

    N, batch, particles = LOOPS[title]
    torch.manual_seed(0)
    bce, dim = torch.nn.functional.binary_cross_entropy_with_logits, 10
    x = torch.randn(N, dim)
    y = torch.bernoulli(torch.sigmoid(x @ (torch.randn(dim) / 2)))
    mu, log_sigma = torch.zeros(dim, requires_grad=True), torch.full((dim,), -2.3, requires_grad=True)
    adam = torch.optim.Adam([mu, log_sigma], STEP_SIZE)

    def by_hand(state, done, count):
        for index in torch.cat([torch.randperm(N) for _ in range(count)]).split(batch):
            adam.zero_grad()
            z = mu + log_sigma.exp() * torch.randn(particles, dim)
            logits = x[index] @ z.T
            data = N / len(index) * bce(logits, y[index][:, None].expand_as(logits), reduction="sum")
            ((data + 0.5 * (z * z).sum()) / particles - log_sigma.sum()).backward()
            adam.step()

    def rows(z, index):
        return -bce(x[index] @ z, y[index], reduction="none")

    problem = lowvar.TorchModel(rows, lambda z: -0.5 * (z * z).sum(), N, dim).problem()
    settings = Settings(optimizer="adam", step_sizes=(STEP_SIZE,), batch_size=batch, epochs=10**6, particles=particles,
                        dtype="float32", initial="origin")  # fmt: skip
    names = ("naive", "joint_adaptive", "joint")
    return [lasting(HAND, by_hand, None, N // batch, size), *(ours(n, METHODS, problem, settings, size) for n in names)]


def poisson(x, y, batch_size=None):
    """Poisson regression in NumPyro."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    z = numpyro.sample("z", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(x[i] @ z)), obs=y[i])


def compiled_loop(title: str, size: str) -> list[Case]:
    """Poisson regression in JAX: a loop by hand, estimators, and NumPyro."""
    import jax
    import jax.numpy as jnp

    from lowvar.vi.run.settings import Settings

    N, dim, batch, dtype, _ = POISSON[title]
    jax.config.update("jax_enable_x64", dtype == "float64")
    random, S = np.random.default_rng(0), N // batch
    epochs = -(-2000 // S)  # in one call of the program
    x = random.standard_normal((N, dim), np.float32).astype(dtype) / dim**0.5
    y = random.poisson(np.exp(0.5 * x[:, 0])).astype(dtype)

    @jax.jit
    def some(state, order, x, y):
        params, m, v, t, key = state
        key, own = jax.random.split(key)

        def epoch(state, at):
            order, key = at
            return jax.lax.scan(step, state, (order, jax.random.normal(key, (S, dim), dtype)))[0], None

        def step(state, at):
            params, m, v, t = state
            index, eps = at
            sigma = jnp.exp(params[1])
            z, rows = params[0] + sigma * eps, x[index]
            g = N / batch * (jnp.exp(rows @ z) - y[index]) @ rows + z
            slope = jnp.stack([g, g * eps * sigma - 1])
            m, v, t = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2, t + 1
            rate = STEP_SIZE * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            return (params - rate * m / (jnp.sqrt(v) + 1e-8), m, v, t), None

        return *jax.lax.scan(epoch, (params, m, v, t), (order, jax.random.split(own, epochs)))[0], key

    on_device = jnp.asarray(x), jnp.asarray(y)

    def by_hand(state, done, count):
        for _ in range(count):
            order = np.stack([random.permutation(N).astype(np.int32)[: S * batch] for _ in range(epochs)])
            state = some(state, order.reshape(epochs, S, batch), *on_device)
        return jax.block_until_ready(state)

    zeros, t = jnp.zeros((2, dim), dtype), jnp.zeros((), dtype)
    start = jnp.stack([zeros[0], zeros[0] - 2.3]), zeros, zeros, t, jax.random.key(0)
    settings = Settings(optimizer="adam", step_sizes=(STEP_SIZE,), batch_size=batch, epochs=10**6, dtype=dtype,
                        initial="origin")  # fmt: skip
    problem = lowvar.problem(poisson, {"x": x, "y": y})
    names = ("naive", "joint_adaptive")
    return [
        lasting(HAND, by_hand, start, epochs * S, size),
        *(ours(name, METHODS, problem, settings, size) for name in names),
        numpyros(poisson, {"x": x, "y": y}, settings, size),
    ]


def timed(task: str, size: str, dtype: str | None = None, rounds: int | None = None) -> tuple[dict, list[Case]]:
    """The case of a task for the record, and the cases that were timed."""
    import jax

    rounds = rounds or sized(size, 5, 3, 1)
    if task in LOOPS:
        jax.config.update("jax_enable_x64", False)
        cases, against, unlike = loop(task, size), HAND, {name: {"most": 1.0} for name in ("naive", "joint_adaptive")}
        title = f"{task}, PyTorch"
    elif task in POISSON:
        cases, against, title = compiled_loop(task, size), HAND, f"{task}, JAX"
        unlike = {"naive": {"most": 1.2}, "joint_adaptive": {"most": 1.8}, NUMPYRO: {"least": POISSON[task][-1]}}
    else:
        torch = task.endswith("PyTorch")
        at = logistic("torch" if torch else "jax", size) if task.startswith(LOGISTIC) else built(task, size, dtype)
        problem, arrays, settings, model = at
        methods = PARTICLES if task in MLMC else METHODS
        names = [name for name in methods if applies(name, task, problem)]
        names = sized(size, names, names, names[:3])
        cases = [ours(name, methods, problem, settings, size) for name in names]
        cases.append(pyros(arrays, settings, size) if torch else numpyros(model, arrays, settings, size))
        against = "mc" if task in MLMC else "naive"
        unlike = {name: {"most": bound} for name, bound in AIMS.get(task, {}).items()} | {"rqmc": {"most": 1.3}}
        unlike |= {NUMPYRO: {"least": 3.0 if task == "mnist" else 1.0}, PYRO: {"least": 10.0}}
        title = task if torch else f"{task}, JAX{', 100 particles' if task in MLMC else ''}"
        title += f", {dtype}" if dtype else ""
    alternate(cases, rounds, clock)
    return compared(title, cases, against, unlike), cases


def applies(name: str, task: str, problem) -> bool:
    """Whether a method is timed on a task."""
    from lowvar_studies.models.linear.problem import LinearProblem

    if task.startswith(LOGISTIC):
        return name in ("naive", "cv", "joint", "joint_svrg")
    if name == "joint" and task == "movielens":  # a hundred seconds an epoch
        return False
    return not name.startswith("joint_glm") or isinstance(problem, LinearProblem)


def device() -> str:
    """The device that JAX computes on."""
    import jax

    return str(jax.devices()[0])


def keep_times(folder: Path, task: str, processes: int) -> None:
    """Writes the times of an experiment's problem, a round from each process, by which claims about time are judged.

    Args:
        folder: beside the experiments.
        task: the problem.
        processes: how many.
    """
    load, rounds = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(processes):
            of_one = Path(scratch) / f"{number}.json"
            subprocess.run([sys.executable, __file__, "--task", task, "--process", of_one], check=True)
            rounds.append(json.loads(of_one.read_text("utf-8")))
    found, on = experiment_of(task), rounds[0]["device"]
    model, solver = found.model(task), found.solver_on(task)
    rows = [{"method": name, "backend": "jax", "seconds": [float(f"{one['seconds'][name]:.5g}") for one in rounds]}
            for name in rounds[0]["seconds"] if name != NUMPYRO]  # fmt: skip
    clock = "CPU seconds of a process on one core" if "cpu" in on.lower() else "wall-clock seconds"
    made = {
        "problem": task, "model": model.model, "dataset": model.dataset, "optimizer": solver.optimizer,
        "batch_size": solver.batch_size, "made_by": "benchmarks/steps.py --times", "clock": clock, "device": on,
    }  # fmt: skip
    write(folder / f"{task}.json", {**made, **about(), "load_at_start": load, "steps": rows})
    print(f"wrote {folder / task}.json")


def main() -> None:
    parser = arguments(__doc__, "steps")
    parser.add_argument("--task", action="append", choices=TASKS, metavar="TASK", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--times", type=Path, help="folder for files of times, by which claims are judged")
    parser.add_argument("--rounds", type=positive, help="default: 5, or 8 processes for --times; more, where undecided")
    parser.add_argument("--process", type=Path, help="file for the times of this process, one round of --times")
    parser.add_argument("--dtype", choices=("float32", "float64"), help="of tasks; default: the experiment's")
    args = parser.parse_args()
    tasks = args.task or sized(
        args.size, TASKS, TASKS, (LOGISTIC, "mnist", "tennis", "blr", next(iter(LOOPS)), next(iter(POISSON)))
    )
    if args.times and not set(tasks) <= {*JOINT, *MLMC}:
        parser.error(f"--times is for --task of {', '.join((*JOINT, *MLMC))}")
    if args.dtype and (args.times or not set(tasks) <= {*JOINT, *MLMC}):
        parser.error(f"--dtype is for the tasks {', '.join((*JOINT, *MLMC))}, without --times")
    for model in (experiment_of(task).model(task) for task in tasks if args.times):
        if not data_of(model).is_file():
            how = f"lowvar fetch {model.dataset} && lowvar prepare {model.dataset} --scaling {model.scaling}"
            parser.error(f"--times: {data_of(model)} is missing; make it: {how}")
    if args.times:  # before JAX takes a device, which the processes need
        for task in tasks:
            keep_times(args.times, task, args.rounds or 8)
        return
    if on_cpu():
        one_core()
    rows = []
    for task in tasks:
        row, cases = timed(task, args.size, args.dtype, args.rounds)
        rows.append(row)
        print(f"{row['case']}: " + ", ".join(f"{case.name} {case.microseconds:.1f} µs" for case in cases), flush=True)
        if args.process:
            seconds = {case.name: float(np.median(case.seconds)) for case in cases}
            write(args.process, {"device": device(), "seconds": seconds})
    finish(args, "steps", rows)


if __name__ == "__main__":
    main()
