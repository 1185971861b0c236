"""Why the errors of hares and lynxes differ from those printed: chains as Stan makes them, and single precision.

Tables 3 (hares) and 5 (lynxes) of Sun, Barp and Briol, again, on other chains than the page `vvcv_lotka`: no-U-turn
sampling whose warm-up adapts a diagonal mass matrix, as Stan's does. The page's has the posterior's covariance, with
which states are nearly independent. The control functional is solved in double precision, and as the published code
solves it: its matrix, and the inverse of that, in single precision.

    python benchmarks/hares.py         # half an hour; fills the table of the page
    python benchmarks/hares.py --page  # nothing: fills it from the rows
"""

import csv
import json
from pathlib import Path

import common  # noqa: F401  first: it limits the libraries to one thread
import numpy as np
from common import REPOSITORY, about, arguments, fill, number, rounded, sized, table, write

from lowvar.core.intervals import mean_interval

ROWS, PAGE = REPOSITORY / "benchmarks/rows/hares.json", REPOSITORY / "docs/reproduction/paper-vvcv.md"
EXPERIMENT = "vvcv_lotka"
HEADS = ("table", "T", "method", "printed", "page", "chains as Stan's")
STATES, WARMUP = 500, 500
NAMES = {"monte_carlo": "MCMC", "paper_vv_fixed": "vv-CV, fixed `B`", "paper_vv": "vv-CV, estimated `B`",
         "paper_cf": "CF", "single": "CF, single precision"}  # fmt: skip
PRINTED = {  # of vv-CV with an estimated and a fixed B, of CF, and of MCMC
    (3, 2): (0.462, 0.404, 0.666, 0.568), (3, 5): (0.393, 0.419, 0.521, 0.987), (3, 10): (0.938, 1.031, 2.540, 2.663),
    (5, 2): (0.169, 0.144, 0.242, 0.275), (5, 5): (0.322, 0.245, 1.246, 0.661), (5, 10): (0.916, 0.792, 5.835, 1.797),
}  # fmt: skip
COLUMNS = ("paper_vv", "paper_vv_fixed", "paper_cf", "monte_carlo")
FIRST = {(3, 2): 5, (3, 5): 0, (3, 10): 0, (5, 2): 5, (5, 5): 5, (5, 10): 0}  # of the ten tasks of a table


def chains(problem, count: int, states: int, warmup: int) -> np.ndarray:
    """States ``(count, states, d)`` of chains from the normal approximation at the posterior's mode."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    from lowvar_studies.integrals.nuts import normal_covariance

    log_density = problem.log_densities[0]
    starts, steps = jax.random.split(jax.random.key(0))
    noise = jax.random.normal(starts, (count, problem.dim), jnp.float64)
    factor = np.linalg.cholesky(normal_covariance(problem, 0))
    kernel = NUTS(potential_fn=jax.jit(lambda x: -log_density(x)))  # Stan's defaults: 0.8 accepted, trees of depth 10
    sampler = MCMC(kernel, num_warmup=warmup, num_samples=states, num_chains=count, chain_method="vectorized",
                   progress_bar=False)  # fmt: skip
    with jax.numpy_rank_promotion("allow"):
        sampler.run(jax.random.split(steps, count), init_params=problem.start[0] + noise @ factor.T)
    return np.asarray(sampler.get_samples(group_by_chain=True))


def samples(problem, points: np.ndarray):
    """Points with their scores and the values of all tasks."""
    from lowvar.integrals.base import Samples

    rows = points.reshape(-1, problem.dim)
    scores, tasks = problem.score(0, rows).reshape(points.shape), range(len(problem.tasks))
    values = tuple(problem.value(t, rows).reshape(points.shape[:2]) for t in tasks)
    return Samples((points,) * len(tasks), (scores,) * len(tasks), values, shared=True, chain=True)


def single(drawn, options: dict, seeds: np.ndarray) -> np.ndarray:
    """``paper_cf`` with lengthscales tuned as it tunes them, and all else in single precision."""
    import torch

    from lowvar_studies.integrators.columns import columns
    from lowvar_studies.integrators.descent import generators, tune
    from lowvar_studies.integrators.settings import Tuning

    epochs, batch, rate = (options[f"tuning_{name}"] for name in ("epochs", "batch", "rate"))
    tuning = Tuning("squared_exponential", None, 10.0, batch, rate, epochs, 1.0)  # the defaults of paper_cf
    params = {name: one.float() for name, one in tune(columns(drawn), tuning, generators(seeds, 0)).items()}
    points, scores = (torch.tensor(one[0], dtype=torch.float32) for one in (drawn.points, drawn.scores))
    values = torch.tensor(np.stack(drawn.values, -1), dtype=torch.float32)
    gram = tuning.chosen.stein(params, points, points, scores, scores)
    inverse = (gram + 0.001 * torch.eye(gram.shape[-1])).inverse()
    ones = torch.ones(len(gram), 1, gram.shape[-1])
    return ((ones @ inverse @ values) / (ones @ inverse @ ones.mT))[:, 0].double().numpy()


def estimates(drawn, method: str, options: dict) -> np.ndarray:
    """The estimates ``(R, T)`` of a method."""
    from lowvar.integrals.base import make

    seeds = np.arange(len(drawn.points[0]))
    if method == "monte_carlo":
        return np.stack([values.mean(1) for values in drawn.values], -1)
    if method == "single":
        return single(drawn, options, seeds)
    return make(method, options).integrate(drawn, seeds).value


def kept() -> dict[str, str]:
    """The sums of errors of the page, by claim."""
    path = REPOSITORY / f"docs/reproduction/rows/{EXPERIMENT}/claims.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        return {
            row["id"]: shown([float(row[name]) for name in ("ours", "low", "high")]) for row in csv.DictReader(stream)
        }


def shown(values) -> str:
    """A value with its interval."""
    middle, low, high = map(number, values)
    return f"{middle} [{low}, {high}]"


def lines(found: dict[str, list[float]]) -> list[tuple]:
    """The rows of the table of the page."""
    page, rows = kept(), []
    for (printed, tasks), values in PRINTED.items():
        for method, name in NAMES.items():
            if (key := f"table{printed}-{method}-{tasks}") in found:
                of = COLUMNS.index("paper_cf" if method == "single" else method)
                rows.append((printed, tasks, name, values[of], page.get(key.replace("_", "-"), ""), shown(found[key])))
    return rows


def compute(args) -> None:
    """Draws the chains, and writes sums of errors with their intervals to ``--out``."""
    from lowvar_studies.datasets.load import load
    from lowvar_studies.integrals.lotka_volterra import lotka_volterra
    from lowvar_studies.integrals.rowwise import on_host
    from lowvar_studies.jobs.study import Study

    path = Path(REPOSITORY / "data/prepared/hudson_bay-none.npz")
    real = args.size != "smallest"
    if real and not path.is_file():
        raise SystemExit(f"{path}: no such file; make it with: lowvar prepare hudson_bay --scaling none")
    given = {"data": load(path)} if real else {"observations": "simulated"}
    count, states, warmup = sized(args.size, (60, STATES, WARMUP), (10, STATES, WARMUP), (2, 20, 20))
    methods = Study.load(REPOSITORY / f"workflow/experiments/{EXPERIMENT}.yaml", "paper").experiment.methods
    options = {name: dict(methods[name].options) for name in COLUMNS} | {"single": dict(methods["paper_cf"].options)}
    problems = {3: lotka_volterra(tasks=10, **given), 5: lotka_volterra(tasks=10, second=True, species="lynx", **given)}
    with on_host():
        points = chains(problems[3], count, states, warmup)  # both tables have the same posterior
    measured = {key: value for key, value in about().items() if key in ("date", "commit")}
    found: dict[str, list[float]] = {}
    for printed, problem in problems.items():
        truth, drawn = problem.truth(sized(args.size, 1, 1, 0)).value, samples(problem, points)
        for (_, tasks), first in ((key, first) for key, first in FIRST.items() if key[0] == printed):
            chosen = list(range(first, first + tasks))
            part = drawn.of_tasks(chosen)
            for method in sized(args.size, NAMES, NAMES, ("monte_carlo", "single")):
                errors = np.abs(estimates(part, method, options[method]) - truth[chosen]).sum(1)
                found[f"table{printed}-{method}-{tasks}"] = [float(one) for one in mean_interval(errors)]
                write(args.out, {"measured": measured, "chains": count, "sums": rounded(found)})
                print(f"Table {printed}, T = {tasks}, {NAMES[method]}: {shown(mean_interval(errors))}", flush=True)


def main() -> None:
    parser = arguments(__doc__, "hares")
    parser.set_defaults(out=ROWS)
    parser.add_argument("--page", action="store_true", help=f"only fill {PAGE.name} from what is in --out")
    args = parser.parse_args()
    if not args.page:
        compute(args)
    print("\n" + (text := table(HEADS, lines(json.loads(args.out.read_text("utf-8"))["sums"]))))
    if args.out == ROWS:
        fill(PAGE, "hares", text)
        print(f"\nwrote {PAGE}")


if __name__ == "__main__":
    main()
