"""Time of a generation of lowvar's searches beside evosax, pycma and cmaes; how often the default reaches a target.

``time``: the ellipsoid, generations of 18 points in 100 dimensions, float64, on one core, cases in alternation. The
searches of lowvar and evosax run as one compiled loop that draws its noise, lowvar's with a ledger of the best point;
pycma and cmaes are driven from Python, on a NumPy function of a whole generation. Every call begins at the start.

``calls``: ``minimize`` of a Python function of one point beside pycma's ``optimize``, whole calls after a first one.

``default``: functions under a random rotation about an optimum ~ N(0, I), start ~ U(0, 1)^d, sigma0 = 0.5: runs that
reach the target (1e-8; with noise 0.05 for the true value at the mean), and the median of their evaluations.

``restarts``: the 24 BBOB functions in five dimensions, 10 instances, 10 000 evaluations, a start uniform on [-4, 4]^5,
sigma0 = 2: the share of the targets 1e2 to 1e-8 that one search and restarts meet, of ``minimize`` and of pycma. Its
restarts begin at new such starts, those of ``minimize`` around the first one. Intervals of 95 % come from a bootstrap
of functions and of their instances, those of differences in pairs. ``--rows FILE`` keeps the share of each instance.

``drift``: how the width of a search changes where values are random: mean change of log sigma per generation, over 200
generations, with its standard error.

``optuna``: the best value of a study of Optuna, by its sampler, 10 seeds: a turned Rosenbrock function, and one of
real, integer and categorical parameters whose smallest value is 0.
"""

from collections.abc import Callable
from pathlib import Path

import common  # noqa: F401  first: it limits the libraries to one thread
import numpy as np
from common import Case, alternate, arguments, compared, finish, one_core, sized, write

OURS = ("fast_ingo", "ingo", "es")
EVOSAX = {"evosax_snes": "evosax SNES", "evosax_xnes": "evosax xNES", "evosax_open_es": "evosax Open-ES"}
DRIVEN = {
    "pycma": ("pycma", {}),
    "pycma, diagonal": ("pycma", {"diagonal": True}),
    "cmaes CMA": ("cmaes", {}),
    "cmaes SepCMA": ("sep_cmaes", {}),
}
SIGMA0, DIM, RUNS = 0.5, 100, 20
TRACED, AHEAD = 5, 50  # generations in one program of PyTorch, and those whose noise is drawn at once
LIMITS = {"fast_ingo": 40.0, "ingo": 200.0}  # µs of one of the mapped runs
SNES, PYCMA = 1.0, 3.0  # lower limits on the time of a peer's evaluation over that of fast_ingo and ingo


def problem(backend, dim: int):
    """The ellipsoid."""
    from lowvar_studies.functions.catalogue import build

    return build("ellipsoid", backend, dim=dim)


def starts(dim: int, runs: int) -> np.ndarray:
    """Starts ``(runs, dim)``."""
    import jax

    from lowvar.core import backend as backends

    start = problem(backends.get("jax"), dim).start
    return np.stack([np.asarray(start(key), float) for key in jax.random.split(jax.random.key(1), runs)])


def made(name: str, backend, dim: int):
    """A search, its first state of a start, and one generation of it; evosax keeps its own best point."""
    from lowvar.search.problem import open_ledger, record
    from lowvar.search.solvers import SEARCH

    f = problem(backend, dim)
    solver = SEARCH.get(name)(backend, f.domain)

    def begun(x0):
        return solver.init(x0, SIGMA0), None if name in EVOSAX else open_ledger(backend, f.domain, x0)

    def generation(state, noise):
        inside, ledger = state
        points = solver.ask(inside, noise)
        values = f.values(points)
        if ledger is not None:
            ledger = record(backend, ledger, points, values)
        return solver.tell(inside, noise, points, values), ledger

    return solver, begun, generation


def by_jax(name: str, dim: int, runs: int, generations: int) -> Case:
    """A loop of generations in one compiled program, mapped over runs."""
    import jax

    from lowvar.core import backend as backends

    solver, begun, generation = made(name, backends.get("jax"), dim)

    @jax.jit
    def advance(states, keys):
        def step(i, states):
            noise = jax.vmap(lambda key: solver.draw(jax.random.fold_in(key, i)))(keys)
            return jax.vmap(generation)(states, noise)

        return jax.lax.fori_loop(0, generations, step, states)

    states = jax.vmap(begun)(jax.numpy.asarray(starts(dim, runs)))
    keys = jax.random.split(jax.random.key(2), runs)
    return Case(
        EVOSAX.get(name, name), lambda _: jax.block_until_ready(advance(states, keys)), None, generations * runs
    )


def by_torch(name: str, dim: int, runs: int, generations: int) -> Case:
    """Programs of a few generations, mapped over runs; JAX draws the noise, so that both backends have the same."""
    import jax
    import torch

    from lowvar.core import backend as backends

    backend = backends.get("torch")
    solver, begun, generation = made(name, backend, dim)
    mapped = backend.vmap(generation)

    @backend.compile
    def advance(states, noise):
        for i in range(TRACED):
            states = mapped(states, noise[i])
        return states

    def drawn(key, i):
        return jax.vmap(solver.draw)(jax.random.split(jax.random.fold_in(key, i), runs))

    draw = jax.jit(lambda key, indices: jax.vmap(lambda i: drawn(key, i))(indices))
    states = backend.tree_map(lambda *leaves: torch.stack(leaves), *map(begun, map(backend.asarray, starts(dim, runs))))

    def call(_):
        now = states
        for first in range(0, generations, AHEAD):
            noise = backend.asarray(np.asarray(draw(jax.random.key(2), first + np.arange(AHEAD))))
            for i in range(0, min(AHEAD, generations - first), TRACED):
                now = advance(now, noise[i : i + TRACED])

    return Case(name, call, None, generations * runs)


def driven(label: str, dim: int, generations: int) -> Case:
    """Driven from Python."""
    from lowvar.search.problem import Domain
    from lowvar.search.solvers import SEARCH

    (name, options), scales = DRIVEN[label], 10.0 ** (6 * np.arange(dim) / (dim - 1))
    x0 = starts(dim, 1)[0]

    def call(_):
        search = SEARCH.get(name)(Domain("real", dim), x0, SIGMA0, seed=1, **options)
        for _ in range(generations):
            x = search.propose()
            search.learn(x, (x * x) @ scales)

    return Case(label, call, None, generations)


def times(size: str) -> list[dict]:
    """Time of a generation of one run, and ratios."""
    dim, runs, generations = sized(size, (DIM, RUNS, 1000), (DIM, RUNS, 200), (5, 2, AHEAD))
    names = (*sized(size, OURS, OURS, OURS[:2]), *sized(size, EVOSAX, EVOSAX, ("evosax_snes",)))
    ours = [name for name in names if name in OURS]
    groups = {f"JAX, {runs} runs mapped": [by_jax(name, dim, runs, generations) for name in names]}
    groups["JAX"] = [by_jax(name, dim, 1, generations) for name in names]
    groups[f"PyTorch, {runs} runs mapped"] = [by_torch(name, dim, runs, generations) for name in ours]
    groups["PyTorch"] = [by_torch(name, dim, 1, generations) for name in ours]
    groups["driven from Python"] = [driven(label, dim, generations // 10) for label in DRIVEN]
    alternate([case for cases in groups.values() for case in cases], sized(size, 7, 3, 1))
    rows = []
    for title, cases in groups.items():
        aims = {name: {"most": bound} for name, bound in LIMITS.items()} if "mapped" in title else {}
        numbers = {case.name: {"value": case.microseconds} | aims.get(case.name, {}) for case in cases}
        rows.append({"case": title, "unit": "µs a generation", "numbers": numbers})
    mapped, alone, peers = ({case.name: case for case in groups[title]} for title in
                            (f"JAX, {runs} runs mapped", "JAX", "driven from Python"))  # fmt: skip

    def over(title, base, cases, **aim):
        numbers = {case.name: {"ratio": case.ratio(base)} | aim for case in cases}
        return {"case": title, "unit": f"ratio to `{base.name}`", "numbers": numbers}

    title = f"JAX, {runs} runs mapped: an evaluation"
    return [
        *rows,
        over(title, mapped["fast_ingo"], [mapped["evosax SNES"]], least=SNES),
        over("JAX, one run: an evaluation", alone["fast_ingo"], [peers["pycma, diagonal"], peers["cmaes SepCMA"]]),
        over(f"{title} of full covariances", mapped["ingo"], [peers["pycma"]], least=PYCMA),
    ]


# --- whole calls -----------------------------------------------------------------------------------------------

CALLS = {5: 1500, 50: 6000, 500: 4000}  # evaluations in so many dimensions


def whole(evaluations: int, budget: int) -> None:
    """That a search made all of its evaluations."""
    if not 0.95 < evaluations / budget < 1.05:
        raise SystemExit(f"a search ended after {evaluations} of {budget} evaluations: its time is no comparison")


def calls(size: str) -> list[dict]:
    """Time of an evaluation, with all that a call does around it."""
    import cma

    import lowvar

    rows = []
    for dim, budget in list(CALLS.items())[: sized(size, None, None, 1)]:
        scales, seeds = 10.0 ** (3 * np.arange(dim) / (dim - 1)), iter(range(1, 1000))

        def f(x, scales=scales):
            return float(x * x @ scales)

        def ours(_, f=f, dim=dim, budget=budget, seeds=seeds):
            found = lowvar.minimize(f, np.ones(dim), SIGMA0, budget=budget, seed=next(seeds), progress=False)
            whole(found.nfev, budget)

        def pycmas(_, f=f, dim=dim, budget=budget, seeds=seeds):
            unstopped = {"tolfun": 0, "tolfunhist": 0, "tolx": 0, "tolstagnation": 10**9, "tolflatfitness": 10**9}
            options = {"maxfevals": budget, "verbose": -9, "seed": next(seeds), **unstopped}
            whole(cma.CMAEvolutionStrategy(np.ones(dim), SIGMA0, options).optimize(f).result.evaluations, budget)

        cases = [Case("pycma", pycmas, None, budget), Case("minimize", ours, None, budget)]
        alternate(cases, sized(size, 7, 3, 1))
        rows.append(compared(f"a function of one point, d = {dim}", cases, "pycma", {"minimize": {"most": 1.0}},
                             "µs an evaluation"))  # fmt: skip
        print(rows[-1], flush=True)
    return rows


# --- what the default reaches -----------------------------------------------------------------------------------

# function, standard deviation of its noise, target, and budget in thousands of evaluations for each dimension
CASES = (
    ("ellipsoid", 0.0, 1e-8, {10: 40, 20: 80, 50: 300}),
    ("rosenbrock", 0.0, 1e-8, {10: 40, 20: 80, 50: 300}),
    ("ellipsoid", 0.1, 0.05, {10: 40, 20: 80}),
)
COMPARED = ("ingo_cma", "ingo_path", "ingo", "fast_ingo", "pycma")


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


def reached(name, function, sd, dim, runs, target, budget) -> np.ndarray:
    """Evaluations until a point, or with noise the mean's true value, reaches the target; infinite if never."""
    import jax
    import jax.numpy as jnp

    from lowvar.core import backend as backends

    solver = made(name, backends.get("jax"), dim)[0]

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


def reached_by_pycma(function, sd, dim, runs, target, budget) -> np.ndarray:
    """As ``reached``."""
    from lowvar.search.problem import Domain
    from lowvar.search.solvers import SEARCH

    found, rng = np.full(runs, np.inf), np.random.default_rng(4)
    for i, (turn, moved, x0) in enumerate(zip(*instances(dim, runs), strict=True)):
        f = turned(function, np, dim, turn, moved)
        search = SEARCH.get("pycma")(Domain("real", dim), x0, SIGMA0, seed=1 + i)
        for evaluations in range(search.population, budget + 1, search.population):
            points = search.propose()
            true = f(points)
            search.learn(points, true + sd * rng.standard_normal(len(true)) if sd else true)
            if (f(search.mean[None, :])[0] if sd else true.min()) <= target:
                found[i] = evaluations
                break
    return found


def default(size: str) -> list[dict]:
    """Successes, and the median evaluations of successful runs."""
    runs, rows = sized(size, 12, 3, 2), []
    for function, sd, target, budgets in CASES[: sized(size, None, None, 1)]:
        for dim, thousands in list(budgets.items())[: sized(size, None, 1, 1)]:
            numbers = {}
            for name in COMPARED:
                more = function, sd, dim, runs, target, 1000 * thousands
                found = reached_by_pycma(*more) if name == "pycma" else reached(name, *more)
                ok = found[np.isfinite(found)]
                middle = {"value": float(np.median(ok))} if len(ok) else {}
                numbers[name] = middle | {"note": f"({len(ok)} of {runs})"}
            title = f"turned {function}, d = {dim}" + (f", noise {sd:g}" if sd else "")
            rows.append({"case": title, "unit": "evaluations to the target", "numbers": numbers})
            print(rows[-1], flush=True)
    return rows


# --- restarts ---------------------------------------------------------------------------------------------------

GROUPS = {
    "separable": range(1, 6),
    "moderate": range(6, 10),
    "ill-conditioned": range(10, 15),
    "multimodal": range(15, 20),
    "weak structure": range(20, 25),
}
ROWS: dict[str, dict[int, list[float]]] = {}  # the shares of each way: by function, those of its instances
TARGETS = 10.0 ** np.arange(2.0, -8.1, -0.2)
STARTING_AGAIN = {
    "minimize": None, "minimize, ipop": "ipop", "minimize, bipop": "bipop",
    "pycma": (0, False), "pycma, ipop": (9, False), "pycma, bipop": (9, True),
}  # fmt: skip


def met_targets(way, number: int, repetition: int, budget: int) -> float:
    """The share of the targets that a call meets on an instance of a function."""
    import cma
    import jax

    import lowvar
    from lowvar_studies.functions.bbob import bbob

    f, goal = bbob(dim=5, number=number, instance=1 + repetition), float(TARGETS[-1])
    first = f.start(jax.random.key(repetition))
    if not isinstance(way, tuple):
        call = {"budget": budget, "target": goal, "restarts": way, "seed": repetition, "progress": False}
        return float(np.mean(lowvar.minimize(f, first, **call).fun <= TARGETS))
    again, bipop = way
    values, rng, starts = [], np.random.default_rng(repetition), iter([first])

    def value(x):
        values.append(float(f.values(np.asarray(x)[None])[0]))
        return values[-1]

    options = {"maxfevals": budget, "ftarget": goal, "verbose": -9, "seed": repetition + 1}
    cma.fmin2(value, lambda: next(starts, rng.uniform(-4, 4, 5)), f.sigma0, options, restarts=again, bipop=bipop)
    return float(np.mean(min(values[:budget]) <= TARGETS))


def resampled(of: np.ndarray) -> dict:
    """The mean of ``(functions, instances)``, and an interval by 2000 samples of functions and of their instances."""
    rng = np.random.default_rng(0)
    functions = rng.integers(len(of), size=(2000, len(of), 1))
    means = of[functions, rng.integers(of.shape[1], size=(2000, *of.shape))].mean(axis=(1, 2))
    low, high = np.quantile(means, [0.025, 0.975])
    return {"value": round(float(of.mean()), 9), "note": f"[{low:.1f}, {high:.1f}]"}


def restarts(size: str) -> list[dict]:
    """Shares of targets by group of functions, in percent, and differences to pycma."""
    import warnings

    runs, budget, rows = sized(size, 10, 3, 1), sized(size, 10_000, 10_000, 300), []
    shares = ROWS
    for name, way in STARTING_AGAIN.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pycma, on its settings
            for group in GROUPS.values():
                for number in list(group)[: sized(size, None, None, 1)]:
                    shares.setdefault(name, {})[number] = [
                        100 * met_targets(way, number, r, budget) for r in range(runs)
                    ]
    for title, group in {**GROUPS, "all functions": range(1, 25)}.items():
        of = {name: np.array([found[one] for one in group if one in found]) for name, found in shares.items()}
        numbers = {name: resampled(found) for name, found in of.items()}
        rows.append({"case": f"BBOB, d = 5: {title}", "unit": "% of the targets", "numbers": numbers})
        less = {name: resampled(of[name] - of[name.replace("minimize", "pycma")]) for name in of if "pycma" not in name}
        case = f"BBOB, d = 5: {title}, minus pycma's"
        rows.append({"case": case, "unit": "% of the targets", "numbers": less})
        print(*rows[-2:], sep="\n", flush=True)
    return rows


# --- random values ----------------------------------------------------------------------------------------------


def drift(size: str) -> list[dict]:
    """Changes of log sigma in a thousand generations."""
    import lowvar

    runs, generations, rows = sized(size, 40, 10, 2), 200, []
    for dim in sized(size, (2, 5, 10, 40), (2, 10), (2,)):
        numbers = {}
        for name in ("ingo_cma", "ingo_path", "ingo", "pycma"):
            changes = []
            for seed in range(runs):
                search, rng = lowvar.Searcher(np.zeros(dim), 1.0, name, seed=seed), np.random.default_rng(seed)
                for _ in range(generations):
                    search.tell(rng.standard_normal(len(search.ask())))
                changes.append(1000 * np.log(search.sigma) / generations)
            error = np.std(changes, ddof=1) / np.sqrt(runs)
            numbers[name] = {"value": float(np.mean(changes)), "note": f"(SE {error:.2g})"}
        rows.append({"case": f"random values, d = {dim}", "unit": "log sigma, 1000 generations", "numbers": numbers})
        print(rows[-1], flush=True)
    return rows


# --- studies of Optuna ------------------------------------------------------------------------------------------


def turned_valley(trial) -> float:
    """Five reals."""
    turns, _, _ = instances(5, 1)
    x = np.array([trial.suggest_float(f"x{i}", -5, 5) for i in range(5)])[None, :]
    return float(turned("rosenbrock", np, 5, turns[0], np.full(5, 0.7))(x)[0])


def of_all_kinds(trial) -> float:
    """Two reals, one on a log scale, an integer and a category, which interact."""
    x, rate = trial.suggest_float("x", -5, 5), trial.suggest_float("rate", 1e-5, 1, log=True)
    n, kind = trial.suggest_int("n", 1, 20), trial.suggest_categorical("kind", ["a", "b", "c", "d"])
    away = {"a": 2, "b": 0, "c": 1, "d": 3}[kind]
    return (x - 1 - away) ** 2 + np.log10(rate / 1e-3) ** 2 + 0.3 * (n - 13) ** 2 * (1 + away / 3) + away


def optunas(size: str) -> list[dict]:
    """Medians of the best values, with the seconds of a trial."""
    import time
    import warnings

    import optuna

    from lowvar.search.optuna import LowvarSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers, rows = (LowvarSampler, optuna.samplers.CmaEsSampler, optuna.samplers.TPESampler), []
    for f, trials in ((turned_valley, 500), (of_all_kinds, 200)):
        numbers, trials = {}, sized(size, trials, trials, 15)
        for sampler in samplers:
            found, start = [], time.process_time()
            for seed in range(sized(size, 10, 3, 1)):
                study = optuna.create_study(sampler=sampler(seed=seed))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of Optuna, on parameters that CmaEsSampler does not search
                    study.optimize(f, n_trials=trials)
                found.append(study.best_value)
            each = 1e3 * (time.process_time() - start) / len(found) / trials
            low, middle, high = np.quantile(found, [0.1, 0.5, 0.9])
            note = f"(10 % {low:.2g}, 90 % {high:.2g}; {each:.2g} ms a trial)"
            numbers[sampler.__name__] = {"value": float(middle), "note": note}
        title = f"Optuna, {f.__name__.replace('_', ' ')}, {trials} trials"
        rows.append({"case": title, "unit": "best value, median", "numbers": numbers})
        print(rows[-1], flush=True)
    return rows


SECTIONS = {"time": times, "calls": calls, "default": default, "restarts": restarts, "drift": drift, "optuna": optunas}


def main() -> None:
    parser = arguments(__doc__, "search", SECTIONS)
    parser.add_argument("--rows", type=Path, help="JSON file of the shares of restarts")
    args = parser.parse_args()
    one_core()
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    cases = [case for name in args.only or SECTIONS for case in SECTIONS[name](args.size)]
    if args.rows:
        write(args.rows, ROWS)
    finish(args, "search", cases)


if __name__ == "__main__":
    main()
