"""More than thirty models of a practitioner, fitted by stochastic steps and by NumPyro's ``SVI(AutoNormal)`` with Adam.

    python benchmarks/thirty.py                          # what --out lacks: hours; fills docs/thirty-models.md
    python benchmarks/thirty.py items survival           # some cases
    python benchmarks/thirty.py --only nats --only truth # some sections
    python benchmarks/thirty.py --page                   # fills the page from --out, without running anything

Sections: ``outcome`` (a first fit: its notes, or the message that refuses the model), ``nats`` (further seeds, and SVI
at every step size of a grid, constant and falling along a cosine), ``uniform`` (fits from NumPyro's start, of models
with exchangeable parts), ``truth`` (means against NUTS), ``sds`` (standard deviations against those of a long fit along
a cosine), ``fixed`` (the default of ``fit``, at fixed draws, beside these steps). Model, data, steps, batch size,
float32 and the evaluation of the ELBO are the same on both sides; SVI may choose its step size and schedule for each
model. A case is a declaration in ``thirty_cases``.
"""

import json
import time
import warnings

import common  # noqa: F401  first: it limits the libraries to one thread
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.diagnostics
import optax
from common import REPOSITORY, arguments, fill, sized, table, write
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from thirty_cases import forms, latents, regressions  # noqa: F401  registers the cases
from thirty_cases.common import CASES
from thirty_cases.page import COLUMNS, cells, tables

import lowvar
from lowvar.vi.settings import BATCH, STEP_SIZE
from lowvar.vi.variational import elbo

STEPS, SEEDS = 5000, 3
GRID = (0.003, 0.01, 0.03, 0.1)
SHARE = 0.5  # of the steps over which the schedule falls
DRAWS, BUDGET = 2000, 2**23  # of the common ELBOs; maximum of draws x rows
LONG = 8  # times as many steps in the fit whose standard deviations are right
PAGE = REPOSITORY / "docs/thirty-models.md"


def made(name: str, N: int):
    """Model and data of a case."""
    return CASES[name].make(np.random.default_rng([list(CASES).index(name), N]), N)


def all_rows(data) -> dict:
    """The data as JAX arrays."""
    return {key: jnp.asarray(np.asarray(value)) for key, value in data.items()}


def with_batch(name: str, N: int, data) -> dict:
    """The data as SVI's arguments: JAX arrays, and the size of a mini-batch as in ``fit``."""
    return all_rows(data) | ({"batch": BATCH} if CASES[name].plate and N > BATCH else {})


def timed(function):
    """The result and the CPU seconds of a call with empty caches, compilation included."""
    jax.clear_caches()
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def ours(model, data, steps, seed, **options):
    """The fit by stochastic steps, by default where ``steps`` is None, without its warnings; they are its notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(model, data, num_steps=steps, seed=seed, progress=False, **options)


def outcome(name, N, steps) -> dict:
    """A first fit: what it says, its parameters, and its CPU seconds."""
    model, data = made(name, N)
    try:
        fit, seconds = timed(lambda: ours(model, data, steps, 0))
    except lowvar.UserError as error:
        return {"refused": str(error)}
    return {"notes": list(fit.notes), "khat": fit.khat, "seconds": seconds}


def first_svi(name, N, steps) -> dict:
    """A first ``SVI.run`` at the step size of ``fit``: its CPU seconds."""
    model, data = made(name, N)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())
    arguments = with_batch(name, N, data)
    return {"seconds": timed(lambda: jax.block_until_ready(
        svi.run(jax.random.key(0), steps, progress_bar=False, **arguments).params))[1]}  # fmt: skip


def svi_grid(svi, arguments, steps, grid, falls):
    """SVI's final parameters by fall of the schedule, step size and seed, ``{name: (falls, sizes, seeds, ...)}``.

    Args:
        svi: with an optimizer whose learning rate is part of its state.
        arguments: the model's.
        steps: updates.
        grid: step sizes.
        falls: whether the step size falls to 0 over the last ``SHARE`` of the steps, one for each axis.
    """
    states = [svi.init(jax.random.key(seed), **arguments) for seed in range(SEEDS)]
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    size_of_batch = {key: value for key, value in arguments.items() if key == "batch"}
    data = {key: value for key, value in arguments.items() if key != "batch"}

    def run(state, size, falling, data):
        def body(state, t):
            left = jnp.clip((1 - t / steps) / SHARE, 0.0, 1.0)
            rate = size * jnp.where(falling, (1 - jnp.cos(jnp.pi * left)) / 2, 1.0)
            count, (params, inner) = state.optim_state
            inner = inner._replace(hyperparams=inner.hyperparams | {"learning_rate": rate})
            return svi.update(state._replace(optim_state=(count, (params, inner))), **data, **size_of_batch)[0], None

        return svi.get_params(jax.lax.scan(body, state, jnp.arange(steps, dtype=jnp.float32))[0])

    over_sizes = jax.vmap(jax.vmap(run, (0, None, None, None)), (None, 0, None, None))
    program = jax.jit(jax.vmap(over_sizes, (None, None, 0, None)))
    return program(states, jnp.asarray(grid, jnp.float32), jnp.asarray(falls), data)


def elbos_of(model, N, data):
    """``parameters -> ELBOs (draws,)`` by NumPyro's ``Trace_ELBO`` on all rows, with the same draws in every call."""
    guide = AutoNormal(model)
    numpyro.handlers.seed(guide, jax.random.key(0))(**data)  # its plates have all rows
    keys = jax.random.split(jax.random.key(99), int(np.clip(BUDGET // N, 32, DRAWS)))

    @jax.jit
    def values(params, data):
        return -jax.lax.map(lambda key: Trace_ELBO().loss(key, params, model, guide, **data), keys)

    return lambda params: np.asarray(values(jax.tree.map(jnp.asarray, params), data), float)


def nats(name, N, steps) -> dict:
    """Final ELBOs of all runs, and standard errors of a difference by the common draws."""
    model, data = made(name, N)
    optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=STEP_SIZE)
    svi = SVI(model, AutoNormal(model), optimizer, Trace_ELBO())
    falls = (False, True)
    theirs = svi_grid(svi, with_batch(name, N, data), steps, GRID, falls)
    elbos = elbos_of(model, N, all_rows(data))
    fits = [ours(model, data, steps, seed) for seed in range(SEEDS)]

    def run(*at):
        return jax.tree.map(lambda leaf: leaf[at], theirs)

    def of_fit(fit):  # of a network whose weights are random, SVI holds parameters that no guide has
        return run(0, 0, 0) | {key: fit.params[key] for key in theirs if key in fit.params}

    mine = [elbos(of_fit(fit)) for fit in fits]
    of_svi = {
        ("falling" if fall else "constant"): {
            str(size): [float(elbos(run(i, j, seed)).mean()) for seed in range(SEEDS)] for j, size in enumerate(GRID)
        }
        for i, fall in enumerate(falls)
    }
    error = float(np.std(mine[0] - mine[-1]) / np.sqrt(len(mine[0])))
    return {"fit": [float(one.mean()) for one in mine], "svi": of_svi, "error": error}


def uniform(name, N, steps) -> dict:
    """Final ELBOs of fits from NumPyro's start, with the draws of ``nats``."""
    model, data = made(name, N)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())
    first = svi.get_params(svi.init(jax.random.key(0), **with_batch(name, N, data)))
    elbos = elbos_of(model, N, all_rows(data))
    fits = [ours(model, data, steps, seed, init=numpyro.infer.init_to_uniform) for seed in range(SEEDS)]
    return {"fit": [float(elbos(first | {k: fit.params[k] for k in first if k in fit.params}).mean()) for fit in fits]}


def truth(name, N, steps) -> dict:
    """The largest distance of a mean from NUTS's, in standard deviations of the posterior, and its site.

    Also the largest ratio of NUTS's standard deviation to the guide's, and the least effective sample size.
    """
    model, data = made(name, N)
    fit = ours(model, data, steps, 0)
    arguments = all_rows(data)
    mcmc = MCMC(NUTS(model), num_warmup=sized_draws(steps), num_samples=2 * sized_draws(steps), progress_bar=False)
    mcmc.run(jax.random.key(1), **arguments)
    drawn, guide = mcmc.get_samples(group_by_chain=True), fit.sample(4000)
    effective = [np.min(numpyro.diagnostics.effective_sample_size(np.asarray(drawn[site]))) for site in guide]
    worst, ratio = (-1.0, ""), (0.0, "")
    for site, values in guide.items():
        exact = np.asarray(drawn[site])[0]
        spread = exact.std(0) + 1e-12
        worst = max(worst, (float(np.max(np.abs(values.mean(0) - exact.mean(0)) / spread)), site))
        ratio = max(ratio, (float(np.max(spread / (values.std(0) + 1e-12))), site))
    return {"off": worst[0], "site": worst[1], "wider": ratio[0], "ess": float(min(effective))}


def sds(name, N, steps) -> dict:
    """The relative errors of the guide's standard deviations, of each seed: rms, the largest, and what was said.

    Against a fit of ``LONG`` times as many steps whose step size falls to 0, the optimum of the same guide.
    """
    model, data = made(name, N)
    most = LONG * steps
    right = ours(model, data, most, SEEDS, schedule={"kind": "cosine", "beta": SHARE, "r": most}, khat_samples=0)
    free = right.guide_params["log_sigma"] > np.log(1e-6)  # numpyro.param sites have none
    found = {"rms": [], "worst": [], "notes": []}
    for seed in range(SEEDS):
        fit = ours(model, data, steps, seed)
        off = np.abs(np.expm1(fit.guide_params["log_sigma"] - right.guide_params["log_sigma"]))[free]
        found["rms"].append(float(np.sqrt(np.mean(off**2))))
        found["worst"].append(float(off.max()))
        found["notes"].append(list(fit.notes))
    return found


def fixed(name, N, steps) -> dict:
    """The default of ``fit`` beside as many stochastic steps: nats that it is above them, seconds, and how it ended."""
    model, data = made(name, N)
    fits, seconds = zip(*(timed(lambda more=more: ours(model, data, seed=0, **more)) for more in
                          ({"steps": None}, {"steps": steps})), strict=True)  # fmt: skip
    one, problem = fits[0], fits[0].problem
    eps = np.random.default_rng(3).standard_normal((int(np.clip(2e7 // N, 50, 1000)), problem.noise_dim))
    value = elbo(problem)
    nats = [float(value({block: problem.backend.asarray(v) for block, v in fit.guide_params.items()},
                        problem.backend.asarray(eps.astype(problem.dtype)))[0]) for fit in fits]  # fmt: skip
    how = one.fixed and {"draws": one.fixed.draws, "iterations": one.fixed.iterations, "ended": one.fixed.ended}
    return {"above": nats[0] - nats[1], "seconds": seconds, "fixed": how, "notes": [len(fit.notes) for fit in fits]}


def sized_draws(steps: int) -> int:
    """Warm-up steps of NUTS: fewer where the fit is a trial run."""
    return 500 if steps >= STEPS else 10


SECTIONS = {"outcome": outcome, "nats": nats, "uniform": uniform, "truth": truth, "sds": sds, "fixed": fixed}


def needed(name: str, N: int, record: dict, section: str) -> bool:
    """Whether a section is still to be measured for a case."""
    case = CASES[name]
    if section in record or (section != "outcome" and (case.refused or "refused" in record.get("outcome", {}))):
        return False
    # where parts are alike, two fits may end at two optima, whose standard deviations have no order
    return {"truth": case.truth, "uniform": case.alike, "sds": not case.alike}.get(section, True)


def main() -> None:
    parser = arguments(__doc__, "thirty", SECTIONS)
    parser.add_argument("cases", nargs="*", help=f"some of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--rows", type=int, action="append", help="default: those of the case")
    parser.add_argument("--page", action="store_true", help=f"only fill {PAGE.name} from what is in --out")
    args = parser.parse_args()
    if unknown := [name for name in args.cases if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    steps = sized(args.size, STEPS, STEPS, 20)
    names = args.cases or sized(args.size, list(CASES), list(CASES), ["one", "gaps"])
    sections = args.only or sized(args.size, SECTIONS, ("outcome",), SECTIONS)
    found = json.loads(args.out.read_text()) if args.out.is_file() else {}
    print(table(COLUMNS, []))
    for name in [] if args.page else names:
        for N in args.rows or CASES[name].rows:
            record = found.setdefault(f"{name}, {N}", {})
            for section in [one for one in sections if needed(name, N, record, one)]:
                record[section] = SECTIONS[section](name, N, steps)
                write(args.out, found)
            print(f"| {' | '.join(cells(name, N, record))} |", flush=True)
    if args.size == "full" and (args.page or not args.cases):
        for name, text in tables(found).items():
            fill(PAGE, name, text)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
