"""Means and standard deviations of posteriors, beside a long run of NUTS: which method gets them right, in which time.

    python benchmarks/posteriors.py                  # what --out lacks: an hour or two; fills docs/posteriors.md
    python benchmarks/posteriors.py wages            # some cases
    python benchmarks/posteriors.py --page           # fills the page from --out, without running anything
    python benchmarks/posteriors.py --again "Pathfinder"  # one method anew, beside the rows of the others
    python benchmarks/posteriors.py --out mine.json  # all again; --out is benchmarks/rows/posteriors.json otherwise

The cases of ``thirty_cases`` that NUTS can sample and whose parts cannot be exchanged. Each method starts with empty
caches; CPU seconds, compilation included. The error of a mean is in NUTS's standard deviations, that of a standard
deviation relative to NUTS's; of each model the median over all entries of all sites. NUTS's own error is from the
effective sample sizes of its draws. A silent failure is a model with an entry whose mean is off by more than half a
standard deviation, or whose standard deviation by more than 50 %, of which the method says nothing. A method that takes
longer than ten minutes on a model is stopped there. PyMC is of the extra ``posteriors``; without it its rows say so.
"""

import json
import signal
import warnings

import common  # noqa: F401  first: it limits the libraries to one thread
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import numpyro
from common import REPOSITORY, about, arguments, fill, rounded, sized, table, write_text
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_median, init_to_uniform
from numpyro.infer.util import initialize_model
from thirty import all_rows, made, timed
from thirty_cases.common import CASES

import lowvar

PAGE, PICTURE = REPOSITORY / "docs/posteriors.md", REPOSITORY / "docs/figures/posteriors.png"
ROWS = REPOSITORY / "benchmarks/rows/posteriors.json"
NAMES = [name for name, case in CASES.items() if case.truth and not case.alike and not case.refused]
WRONG = 0.5  # of a mean, in standard deviations, and of a standard deviation, relative
DRAWS, STEPS = 4000, 5000
LEAST = 100  # effective draws of NUTS in every entry
LONGEST = 600  # seconds of a method on a model
FIXED, NARROW = 30, -3.0  # draws of DADVI, and the logarithm of the standard deviations that it starts from


def moments(draws) -> dict[str, list]:
    """Means and standard deviations of draws by site, ``{site: (S, ...)}``, entry by entry."""
    return {site: [np.mean(x, 0).ravel().tolist(), np.std(x, 0).ravel().tolist()] for site, x in draws.items()}


def reference(model, data, size) -> dict:
    """NUTS: two chains, their moments and the effective sizes of means and of squared deviations."""
    draws = sized(size, 2000, 500, 20)
    mcmc = MCMC(NUTS(model, target_accept_prob=0.9), num_warmup=draws // 2, num_samples=draws, num_chains=2,
                chain_method="sequential", progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.key(1), **all_rows(data))
    drawn = {site: np.asarray(x, float) for site, x in mcmc.get_samples(group_by_chain=True).items()}
    flat = {site: x.reshape(-1, *x.shape[2:]) for site, x in drawn.items()}
    worth = {site: [np.ravel(effective_sample_size(x)).tolist(),
                    np.ravel(effective_sample_size((x - x.mean((0, 1))) ** 2)).tolist()]
             for site, x in drawn.items()}  # fmt: skip
    return {"moments": moments(flat), "effective": worth}


def quiet(model, data, **settings):
    """A fit, whose warnings are its notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(model, data, progress=False, **settings)


def of_fit(model, data, **settings) -> dict:
    """``lowvar.fit``."""
    fit = quiet(model, data, **settings)
    return {"moments": moments(fit.sample(DRAWS)), "told": bool(fit.notes)}


def linear_response(model, data) -> dict:
    """The default of ``lowvar.fit``, with standard deviations by linear response."""
    fit = quiet(model, data)
    sites = {site: np.shape(x)[1:] for site, x in fit.sample(1).items()}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = fit.mean_and_sd(lambda z: {site: z[site] for site in sites})
        khat = fit.with_linear_response().khat if len(fit.guide_params["mu"]) <= 512 else None
    ends = np.cumsum([int(np.prod(shape)) for shape in sites.values()])[:-1]
    means, sds = (np.split(found[name].to_numpy(), ends) for name in ("mean", "sd"))
    told = any("not converged" in note or "another mode" in note for note in fit.notes)
    return {"moments": {site: [m.tolist(), s.tolist()] for site, m, s in zip(sites, means, sds, strict=True)},
            "told": told or bool(said), "khat": khat}  # fmt: skip


def svi(model, data, size) -> dict:
    """NumPyro's ``SVI(AutoNormal, Trace_ELBO, Adam(0.01))``, which says nothing of itself."""
    guide = AutoNormal(model)
    run = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    params = run.run(jax.random.key(0), sized(size, STEPS, STEPS, 20), progress_bar=False, **all_rows(data)).params
    draws = guide.sample_posterior(jax.random.key(2), params, sample_shape=(DRAWS,))
    return {"moments": moments({site: np.asarray(x) for site, x in draws.items()}), "told": False}


def pathfinder(model, data) -> dict:
    """BlackJAX's Pathfinder, of one path, from NumPyro's start."""
    from blackjax.vi import pathfinder as paths

    density, constrain, start = unconstrained(model, data, init_to_uniform)
    state, _ = jax.jit(lambda key, z: paths.approximate(key, density, z))(jax.random.key(3), start)
    draws, _ = paths.sample(jax.random.key(4), state, DRAWS)
    return {"moments": moments(constrain(draws)), "told": False}


def unconstrained(model, data, init):
    """The log density of a vector, as NumPyro has it; ``(S, d)`` vectors to draws of sites; and a start, ``(d,)``.

    In double precision where JAX has it.
    """
    arguments = {name: x.astype(float) if x.dtype == jnp.float32 else x for name, x in all_rows(data).items()}
    whole = initialize_model(jax.random.key(0), model, model_kwargs=arguments, dynamic_args=True, init_strategy=init)
    start, back = jax.flatten_util.ravel_pytree(whole.param_info.z)
    potential, of_sites = whole.potential_fn(**arguments), jax.jit(jax.vmap(whole.postprocess_fn(**arguments)))

    def constrain(draws):
        return {site: np.asarray(x) for site, x in of_sites(jax.vmap(back)(draws)).items()}

    return lambda z: -potential(back(z)), constrain, start


def pymc_advi(model, data, size) -> dict:
    """PyMC's ``fit(method="advi")`` by its defaults, from the medians of the prior, in double precision.

    PyMC starts at centres of the prior too. It has the log density of the NumPyro model and its gradient as one
    operation, so its seconds have a call from PyTensor into JAX in every step; those of PyTensor's compiler, which runs
    in processes of its own and keeps its files, they leave out.
    """
    import pymc
    import pytensor.tensor as pt
    from pytensor.graph.basic import Apply
    from pytensor.graph.op import Op

    with jax.enable_x64(True):
        density, constrain, start = unconstrained(model, data, init_to_median)
        both = jax.jit(jax.value_and_grad(density))

        class LogDensity(Op):
            """The log density of a vector, and its gradient."""

            def make_node(self, z):
                return Apply(self, [pt.as_tensor(z)], [pt.dscalar(), pt.dvector()])

            def perform(self, node, inputs, outputs):
                value, slope = both(inputs[0])
                outputs[0][0], outputs[1][0] = np.asarray(value), np.array(slope)

            def L_op(self, inputs, outputs, output_grads):
                return [output_grads[0] * outputs[1]]

        with pymc.Model():
            z = pymc.Flat("z", shape=len(start), initval=np.asarray(start))
            pymc.Potential("posterior", LogDensity()(z)[0])
            fit = pymc.fit(sized(size, 10_000, 10_000, 20), method="advi", random_seed=0, progressbar=False)
        eps = np.random.default_rng(2).standard_normal((DRAWS, len(start)))
        draws = fit.mean.eval() + fit.std.eval() * eps
        return {"moments": moments(constrain(draws)), "told": False}


def dadvi(model, data, *, linear: bool) -> dict:
    """Mean-field ADVI with fixed draws, by a trust region of Newton steps from the medians of the prior.

    In double precision. It tells of an optimiser that has not converged.

    Args:
        model: of NumPyro.
        data: its arguments.
        linear: whether the covariance is that of linear response, from the Hessian of the same objective, which is a
            matrix in all dimensions that there are here.

    References:
        Giordano, Ingram and Broderick, "Black box variational inference with a deterministic objective", 2024.
    """
    from scipy.optimize import minimize

    with jax.enable_x64(True):
        density, constrain, start = unconstrained(model, data, init_to_median)
        d, rng = len(start), np.random.default_rng(0)
        eps = jnp.asarray(rng.standard_normal((FIXED, d)))

        def loss(params):
            mu, log_sigma = params[:d], params[d:]
            return -jnp.mean(jax.vmap(density)(mu + jnp.exp(log_sigma) * eps)) - jnp.sum(log_sigma)

        product = jax.jit(lambda params, v: jax.jvp(jax.grad(loss), (params,), (v,))[1])
        found = minimize(jax.jit(jax.value_and_grad(loss)), np.append(start, np.full(d, NARROW)), jac=True,
                         hessp=product, method="trust-ncg")  # fmt: skip
        mu, factor = found.x[:d], np.diag(np.exp(found.x[d:]))
        if linear:
            hessian = np.stack([product(found.x, one) for one in np.eye(2 * d)])
            if not np.linalg.eigvalsh((hessian + hessian.T) / 2)[0] > 0:
                return {"refused": "the Hessian is not positive"}
            covariance = np.linalg.inv((hessian + hessian.T) / 2)[:d, :d]
            factor = np.linalg.cholesky((covariance + covariance.T) / 2)
        draws = mu + rng.standard_normal((DRAWS, d)) @ factor.T
        return {"moments": moments(constrain(draws)), "told": not found.success, "says": found.message}


def full_rank(model, data, size) -> dict:
    """The full-rank guide, by stochastic steps whose size falls."""
    steps = sized(size, STEPS, STEPS, 20)
    falling = {"kind": "cosine", "beta": 0.5, "r": steps}
    return of_fit(model, data, guide="full_rank", num_steps=steps, schedule=falling)


METHODS = {
    "fit": lambda model, data, size: of_fit(model, data),
    "fit, linear response": lambda model, data, size: linear_response(model, data),
    "fit, full rank": full_rank,
    "NumPyro's SVI": svi,
    "Pathfinder": lambda model, data, size: pathfinder(model, data),
    "PyMC's ADVI": pymc_advi,
    "DADVI, 30 draws": lambda model, data, size: dadvi(model, data, linear=False),
    "DADVI, 30 draws, linear response": lambda model, data, size: dadvi(model, data, linear=True),
}


def in_time(run):
    """The result of a call; ``TimeoutError`` after ``LONGEST`` seconds."""

    def stop(*_):
        raise TimeoutError(f"stopped after {LONGEST // 60} minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST)
    try:
        return run()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measured(run) -> dict:
    """The result of a method with its CPU seconds, or the reason why there is none."""
    try:
        result, seconds = timed(run)
    except (lowvar.UserError, TimeoutError, ImportError) as error:
        return {"refused": str(error)}
    return rounded(result | {"seconds": seconds}, 6)


def keep(path, found: dict) -> None:
    """Writes the rows, a model a line: the whole file or nothing."""
    lines = (f"{json.dumps(name)}: {json.dumps(record)}" for name, record in found.items())
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def errors(found: dict, against: dict) -> tuple[np.ndarray, np.ndarray]:
    """Of all entries: the errors of means, in NUTS's standard deviations, and relative ones of standard deviations."""
    of_means, of_sds = [], []
    for site, (mean, sd) in found["moments"].items():
        if site in against["moments"]:
            right, spread = map(np.array, against["moments"][site])
            moving = spread > 1e-9 * (1 + np.abs(right))  # a deterministic site may be constant
            of_means.append((np.abs(np.array(mean) - right)[moving]) / spread[moving])
            of_sds.append(np.abs(np.array(sd) / np.where(moving, spread, 1) - 1)[moving])
    return np.concatenate(of_means), np.concatenate(of_sds)


def own_error(against: dict) -> tuple[float, float]:
    """NUTS's own errors, alike: medians over entries of standard errors."""
    mean, square = (np.concatenate([worth[i] for worth in against["effective"].values()]) for i in (0, 1))
    return float(np.nanmedian(mean**-0.5)), float(np.nanmedian(square**-0.5) / np.sqrt(2))  # fixed entries: NaN


def good(record: dict) -> bool:
    """Whether NUTS's draws are enough to judge by."""
    worth = record.get("NUTS", {}).get("effective", {})
    return bool(worth) and min(min(map(min, both)) for both in worth.values() if both[0]) >= LEAST


def interval(values: np.ndarray) -> str:
    """The median over models, with a 95 % interval of it by the bootstrap."""
    values = values[np.isfinite(values)]
    draws = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.quantile(np.median(draws, 1), (0.025, 0.975))
    return f"{np.median(values):.3f} [{low:.3f}, {high:.3f}]"


def summaries(found: dict) -> list[list]:
    """A row for each method: models, errors, the worst entries, silent failures and seconds over NUTS's."""
    models, rows = [name for name, record in found.items() if good(record)], []
    nuts = np.array([own_error(found[name]["NUTS"]) for name in models])
    rows.append(["NUTS (its own error)", len(models), interval(nuts[:, 0]), interval(nuts[:, 1]), "", "1"])
    for method in METHODS:
        there = [name for name in models if "moments" in found[name].get(method, {})]
        parts = [errors(found[name][method], found[name]["NUTS"]) for name in there]
        silent = sum(
            not found[name][method]["told"] and bool(np.max(mean) > WRONG or np.max(sd) > WRONG)
            for name, (mean, sd) in zip(there, parts, strict=True)
        )
        times = np.array([found[name][method]["seconds"] / found[name]["NUTS"]["seconds"] for name in there])
        medians = np.array([(np.median(mean), np.median(sd)) for mean, sd in parts]).reshape(-1, 2)
        rows.append(
            [f"`{method}`", len(there), interval(medians[:, 0]), interval(medians[:, 1]), silent, interval(times)]
        )
    return rows


HEADS = ["method", "models", "error of means", "error of standard deviations", "silent failures", "seconds, of NUTS's"]


def by_model(found: dict) -> list[list]:
    """A row for each model: errors of standard deviations, the largest entry's in brackets."""
    rows = []
    for name, record in found.items():
        row = [f"`{name}`"]
        for method in METHODS:
            one = record.get(method, {})
            if "moments" not in one or "NUTS" not in record:
                row.append(one.get("refused", "")[:60])
                continue
            mean, sd = errors(one, record["NUTS"])
            row.append(f"{np.median(sd):.3f} ({np.max(sd):.2f}); {np.median(mean):.3f}" + (" !" if one["told"] else ""))
        rows.append([*row, "" if good(record) else "NUTS has too few effective draws"])
    return rows


def picture(found: dict) -> None:
    """Errors of standard deviations: a dot for each model, a row for each method."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    models = [name for name, record in found.items() if good(record)]
    figure, axis = plt.subplots(figsize=(7, 1 + 0.36 * len(METHODS)), layout="constrained")
    for row, method in enumerate(METHODS):
        there = [name for name in models if "moments" in found[name].get(method, {})]
        values = [np.median(errors(found[name][method], found[name]["NUTS"])[1]) for name in there]
        axis.plot(np.clip(values, 1e-3, None), np.full(len(values), row), "o", color="0.55", alpha=0.5, markersize=4)
        axis.plot(np.median(values), row, "|", color="C3", markersize=18, markeredgewidth=2.5)
    axis.set(xscale="log", yticks=range(len(METHODS)), yticklabels=list(METHODS),
             xlabel="relative error of standard deviations,\nmedian over a model's entries\n"
                    "(red: median over models; blue line: NUTS's own)")  # fmt: skip
    axis.invert_yaxis()
    axis.axvline(np.median([own_error(found[name]["NUTS"])[1] for name in models]), color="C0", zorder=3)
    axis.spines[["top", "right"]].set_visible(False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=160)


def main() -> None:
    parser = arguments(__doc__, "posteriors")
    parser.set_defaults(out=ROWS)
    parser.add_argument("cases", nargs="*", help=f"some of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--page", action="store_true", help=f"only fill {PAGE.name} from what is in --out")
    parser.add_argument("--again", action="append", default=[], choices=METHODS, metavar="METHOD",
                        help="run this method anew, in place of its rows in --out (may be repeated)")  # fmt: skip
    args = parser.parse_args()
    if unknown := [name for name in args.cases if name not in NAMES]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(NAMES)}")
    jax.config.update("jax_enable_compilation_cache", False)
    found = json.loads(args.out.read_text()) if args.out.is_file() else {}
    now = {key: value for key, value in about().items() if key in ("date", "commit")}
    print(table(["model", *METHODS, ""], []))
    for name in [] if args.page else args.cases or sized(args.size, NAMES, NAMES, ["one", "units"]):
        model, data = made(name, CASES[name].rows[0])
        record = found.setdefault(name, {})
        for method, run in {"NUTS": reference, **METHODS}.items():
            if method not in record or method in args.again:
                within = in_time if method in METHODS else lambda run: run()
                result = measured(lambda run=run, within=within: within(lambda: run(model, data, args.size)))
                record[method] = result | {"measured": now}
                keep(args.out, found)
        print(f"| {' | '.join(map(str, by_model({name: record})[0]))} |", flush=True)
    if args.size == "full" and (args.page or not args.cases):
        ran = [one["measured"] for record in found.values() for one in record.values()]
        times = sorted({(one["date"], one["commit"]) for one in ran})
        fill(PAGE, "methods", f"{table(HEADS, summaries(found))}\n\n{', '.join(f'{a}, `{b}`' for a, b in times)}.")
        fill(PAGE, "models", table(["model", *METHODS, ""], by_model(found)))
        picture(found)
        print(f"wrote {PAGE}")
    elif args.size == "full":
        print(table(HEADS, summaries(found)))


if __name__ == "__main__":
    main()
