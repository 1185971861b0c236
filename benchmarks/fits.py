"""Time and ELBO of a fit beside NumPyro's ``SVI(AutoNormal, Trace_ELBO, Adam(0.01))``, compilation included.

    python benchmarks/fits.py --record                      # 1e2 to 1e7 rows, 5 to 2000 features, first fits: hours
    python benchmarks/fits.py --only rows --at 1000000
    python benchmarks/fits.py --only first --model rate     # a first fit of a model of thirty_cases

``rows`` and ``features``: logistic regression, 20 000 steps with batches of 100; ``first``: 5000 steps of the models
that took longest beside SVI. ``fit`` also checks the model, and computes ELBOs and k-hat. Before every fit, JAX's
caches are cleared; the tools alternate in who is first. CPU seconds, on a GPU wall-clock seconds. Final ELBOs are of
all rows, from the same draws.
"""

import warnings

import common  # noqa: F401  first: it limits the libraries to one thread
import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import thirty
from common import arguments, clock, finish, on_cpu, positive, sized

import lowvar

DIM, ROWS, STEPS = 20, 10_000, 20_000  # features where the rows vary, rows where the features do, and steps
AXES = {"rows": (10**2, 10**3, 10**4, 10**5, 10**6, 10**7), "features": (5, 50, 500, 2000)}
SLOWEST = ("outcomes", "land", "rate", "process", "ar1", "claims", "bounded", "ratings", "traffic", "counties_centred",
           "clicks", "species", "emax", "counties_reparam", "columns")  # fmt: skip
EVALUATED = 2e7  # rows times draws of a final ELBO


def logistic(N: int, dim: int):
    """Logistic regression with ``dim`` features: ``(model, data)``, single precision."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, dim), dtype=np.float32)
    w = rng.normal(size=dim).astype(np.float32) / np.sqrt(dim)
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ w))).astype(np.int32)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([dim]).to_event(1))
        with numpyro.plate("data", N, subsample_size=min(N, 100)) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ b), obs=y[i])

    return model, {"x": x, "y": y}


def svi(model, data, seed, steps):
    """NumPyro's SVI: its parameters."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    data = {name: jax.numpy.asarray(value) for name, value in data.items()}
    run = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO()).run
    return jax.block_until_ready(run(jax.random.key(seed), steps, **data, progress_bar=False).params)


def fitted(estimator):
    """``lowvar.fit`` with an estimator, or with its default."""
    own = {"estimator": estimator} if estimator else {}
    return lambda model, data, seed, steps: (
        lowvar.fit(model, data, seed=seed, num_steps=steps, progress=False, **own).params
    )


TOOLS = {"SVI": svi, "naive": fitted("naive"), "default": fitted(None)}


def elbos(model, data, params, draws: int) -> list[float]:
    """The ELBO of each of ``params``, from the same ``draws``."""
    from lowvar.vi.numpyro.model import from_numpyro

    found = []
    for one in params:
        problem = from_numpyro(model, data, init=jax.tree.map(np.asarray, one))
        eps = jax.random.normal(jax.random.key(1), (draws, problem.dim), problem.dtype)
        start = {block: jax.numpy.asarray(value, problem.dtype) for block, value in problem.start.items()}
        found.append(float(jax.jit(lambda p, e, problem=problem: problem.elbo(p, e)[0])(start, eps)))
    return found


def growth(axis: str, at: int, rounds: int, steps: int) -> list[dict]:
    """CPU seconds and final ELBOs of the tools."""
    N, dim = (at, DIM) if axis == "rows" else (ROWS, at)
    model, data = logistic(N, dim)
    seconds, nats = {tool: [] for tool in TOOLS}, {tool: [] for tool in TOOLS}
    for round_ in range(rounds):
        params = {}
        for tool in sorted(TOOLS, reverse=round_ % 2 == 1):
            jax.clear_caches()
            start = clock()
            params[tool] = TOOLS[tool](model, data, round_, steps)
            seconds[tool].append(clock() - start)
        for tool, nat in zip(params, elbos(model, data, params.values(), int(np.clip(EVALUATED / N, 16, 1024))),
                             strict=True):  # fmt: skip
            nats[tool].append(nat)
    unit = "CPU s" if on_cpu() else "s"
    name, mine = f"{at:,} {axis}".replace(",", " "), ("naive", "default")
    above = {tool: {"value": float(np.mean(np.subtract(nats[tool], nats["SVI"])))} for tool in mine}
    numbers = {"SVI": {"value": float(np.median(seconds["SVI"]))}}
    numbers |= {tool: {"ratio": ratio(seconds[tool], seconds["SVI"]), "most": 1.0} for tool in mine}
    return [{"case": name, "unit": unit, "against": "SVI", "numbers": numbers},
            {"case": f"{name}: final ELBO above that of SVI", "unit": "nats", "numbers": above}]  # fmt: skip


def ratio(ours, theirs) -> list[float]:
    """Of seconds in alternating rounds: the median, the smallest and the largest."""
    ratios = np.array(ours) / np.array(theirs)
    return [float(np.median(ratios)), float(ratios.min()), float(ratios.max())]


def first(names, rounds: int, steps: int) -> dict:
    """CPU seconds of a first fit and of a first ``SVI.run``."""
    numbers = {}
    for name in names:
        for N in thirty.CASES[name].rows:
            seconds = {"fit": [], "svi": []}
            for k in range(rounds):
                for tool, run in (("fit", thirty.outcome), ("svi", thirty.first_svi))[:: -1 if k % 2 else 1]:
                    seconds[tool].append(run(name, N, steps)["seconds"])
            label = name if len(thirty.CASES[name].rows) == 1 else f"{name}, {N}"
            middle = float(np.median(seconds["fit"]))
            numbers[label] = {"value": middle, "ratio": ratio(seconds["fit"], seconds["svi"]), "most": 1.0}
            print(f"{label}: {numbers[label]}", flush=True)
    return {"case": "a first fit by default, of models of thirty.py", "unit": "CPU s, ratio to SVI", "against": "SVI",
            "numbers": numbers}  # fmt: skip


def main() -> None:
    parser = arguments(__doc__, "fits", (*AXES, "first"))
    parser.add_argument("--at", type=float, action="append", help="this number of rows or features (may be repeated)")
    parser.add_argument("--model", action="append", choices=thirty.CASES, help="of `first` (may be repeated)")
    parser.add_argument("--rounds", type=positive, help="default: 2, of `first` 3")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    steps, cases = sized(args.size, STEPS, STEPS, 20), []
    for axis in [one for one in args.only or (*AXES, "first") if one in AXES]:
        for at in map(int, args.at or AXES[axis][: sized(args.size, None, 3, 1)]):
            cases += growth(axis, at, args.rounds or sized(args.size, 2, 1, 1), steps)
            print(cases[-2], flush=True)
    if "first" in (args.only or ["first"]):
        names = args.model or sized(args.size, SLOWEST, SLOWEST[:4], ("rate",))
        cases.append(first(names, args.rounds or sized(args.size, 3, 1, 1), sized(args.size, thirty.STEPS, 5000, 20)))
    finish(args, "fits", cases)


if __name__ == "__main__":
    main()
