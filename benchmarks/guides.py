"""Guides with correlations: ``lowvar.fit`` against NumPyro's SVI of the same family; controls of the scale parameters.

    python benchmarks/guides.py            # 3 posteriors, 4 seeds
    python benchmarks/guides.py --smallest

Both have Adam, the same step size, steps and batch size, and start near 0 with standard deviations of 0.1. Final
ELBOs use the same 4096 draws; the differences have 95 % intervals over the seeds. Variances of the gradient are
measured at the last fit of lowvar, by ``decompose``: ``naive`` is the gradient of NumPyro's ``Trace_ELBO`` with
``AutoMultivariateNormal``. ``none``, ``precision`` and ``hessian`` are ``joint_svrg`` with other controls of the scale
parameters: none; a second-order one too, with the guide's precision or with the Hessian at the snapshot.
"""

import argparse
import json
import os
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO, autoguide, init_to_uniform

import lowvar
from lowvar.analysis.intervals import mean_interval
from lowvar.estimators.gradient.base import Estimator, Properties, minus, plus
from lowvar.problems.guide_forms import started

FAMILIES = {"full_rank": "AutoMultivariateNormal", "low_rank": "AutoLowRankMultivariateNormal"}
STEP_SIZE, BATCH, DRAWS = 0.01, 50, 4096
KINDS = ("none", "precision", "hessian")
ESTIMATORS = ("naive", "stl", "cv", "joint", "joint_svrg", "joint_adaptive", *KINDS)


def logistic(N):
    """Ten features with correlations of 0.9."""
    rng = np.random.default_rng(0)
    x = np.sqrt(0.1) * rng.normal(size=(N, 10)) + np.sqrt(0.9) * rng.normal(size=(N, 1))
    y = (x @ rng.normal(size=10) + rng.logistic(size=N) > 0).astype(np.int32)

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 2).expand([10]).to_event(1))
        with numpyro.plate("rows", N, subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Bernoulli(logits=x[index] @ w), obs=y[index])

    return model, {"x": x.astype(np.float32), "y": y}


def hierarchical(N):
    """A normal model with eight groups, their mean and their spread, not centred."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 8, N).astype(np.int32)
    y = (1 + rng.normal(size=8)[group] + 2 * rng.normal(size=N)).astype(np.float32)

    def model(group, y, batch_size=None):
        mean = numpyro.sample("mean", dist.Normal(0, 5))
        spread = numpyro.sample("spread", dist.HalfNormal(2.0))
        off = numpyro.sample("off", dist.Normal(0, 1).expand([8]).to_event(1))
        sd = numpyro.sample("sd", dist.HalfNormal(5.0))
        with numpyro.plate("rows", N, subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(mean + spread * off[group[index]], sd), obs=y[index])

    return model, {"group": group, "y": y}


def poisson(N):
    """Poisson regression with six features that are not centred."""
    rng = np.random.default_rng(2)
    x = (0.4 * rng.normal(size=(N, 6)) + 0.5).astype(np.float32)
    y = rng.poisson(np.exp(x @ np.array([0.4, -0.3, 0.2, 0.1, 0.5, -0.2]) + 0.5)).astype(np.int32)

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([6]).to_event(1))
        bias = numpyro.sample("bias", dist.Normal(0, 2))
        with numpyro.plate("rows", N, subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Poisson(jnp.exp(x[index] @ w + bias)), obs=y[index])

    return model, {"x": x, "y": y}


def of_numpyro(model, data, guide, steps, seed):
    """The parameters of NumPyro's SVI."""
    data = {key: jnp.asarray(value) for key, value in data.items()} | {"batch_size": BATCH}
    made = getattr(autoguide, FAMILIES[guide])(model, init_loc_fn=init_to_uniform(radius=0.1), init_scale=0.1)
    svi = SVI(model, made, numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())
    return svi.run(jax.random.key(seed), steps, progress_bar=False, **data).params


def svrg(kind):
    """``joint_svrg`` with a control of the scale parameters."""

    def factory(problem, batches):
        guide, xp = problem.guide, problem.backend.xp

        def snapshot(params):
            mean = {"mu": problem.full_gradient(params["mu"])}
            hessian = jax.hessian(problem.full_energy)(params["mu"]) if kind == "hessian" else ()
            return {"mu": params["mu"], "mean": mean, "hessian": hessian}

        def of_scale(gradient):
            return {block: value for block, value in gradient.items() if block != "mu"}

        def estimate(state, params, noise):
            eps = noise.eps[0]
            step = guide.step(guide.point(params), eps)
            old, deviation = problem.gradient_and_hvp(state["mu"], step, noise.index, noise.weight)
            gradient = plus(problem.objective_gradient(params, noise), minus(state["mean"], {"mu": old + deviation}))
            if kind == "none":
                return gradient, state
            gradient = minus(gradient, of_scale(guide.pull_back(params, eps, old)))
            if kind == "precision":
                second = of_scale(guide.pull_back(params, eps, -guide.path_score(params, eps)))
                gradient = plus(minus(gradient, second), of_scale(guide.entropy_gradient(params)))
            if kind == "hessian":
                unit = jnp.eye(problem.noise_dim, dtype=eps.dtype)
                along = jax.vmap(
                    lambda e: guide.pull_back(params, e, state["hessian"] @ guide.step(guide.point(params), e))
                )(unit)
                mean = jax.tree.map(lambda leaf: xp.sum(leaf, axis=0), along)
                gradient = plus(minus(gradient, of_scale(guide.pull_back(params, eps, deviation))), of_scale(mean))
            return gradient, state

        return Estimator(
            f"svrg_{kind}", problem, Properties(unbiased=True, hvps=1, full_passes=1), snapshot, estimate,
            begin_epoch=lambda state, params: snapshot(params),
        )  # fmt: skip

    factory.__name__ = f"svrg_{kind}"
    return factory


def compared(make, guide, rows, steps, seeds, estimators):
    """ELBOs of lowvar and NumPyro at the end, and variances at the last fit."""
    model, data = make(rows)
    found = {"lowvar": [], "numpyro": []}
    for seed in range(seeds):
        fit = lowvar.fit(
            model, data, guide=guide, step_size=STEP_SIZE, num_steps=steps, batch_size=BATCH, seed=seed, khat_samples=0,
            elbo_samples=16, progress=False,
        )  # fmt: skip
        problem = fit.problem
        theirs = {name: np.asarray(value) for name, value in of_numpyro(model, data, guide, steps, seed).items()}
        mu, log_sigma = fit.guide_params["mu"], fit.guide_params["log_sigma"]
        vectors = {"lowvar": fit.guide_params, "numpyro": started(problem, mu, log_sigma, theirs, None, "numpyro")}
        eps = jax.random.normal(jax.random.key(99), (DRAWS, problem.noise_dim), problem.dtype)
        elbo = jax.jit(problem.elbo)
        for who, params in vectors.items():
            params = {block: jnp.asarray(value, problem.dtype) for block, value in params.items()}
            found[who].append(float(elbo(params, eps)[0]))
    ahead = mean_interval(np.subtract(found["lowvar"], found["numpyro"]))
    estimators = {name: svrg(name) if name in KINDS else name for name in estimators}
    noise = lowvar.decompose(model, data, fit, estimators=estimators, replicates=16, columns=8, progress=False)
    table = noise.table[(noise.table["source"] == "total") & ~noise.table["block"].str.contains(":")]
    variance = {f"{row.method} {row.block}": [row.variance, row.low, row.high] for row in table.itertuples(index=False)}
    return {"elbo": found, "ahead": [float(value) for value in ahead], "variance": variance, "time": noise.time}


def main():
    """Runs the comparison and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["logistic", "hierarchical", "poisson"])
    parser.add_argument("--guides", default=",".join(FAMILIES))
    parser.add_argument("--estimators", default=",".join(ESTIMATORS))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--smallest", action="store_true", help="one model, a few steps")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.smallest:
        args.models, args.guides, args.rows, args.steps, args.seeds = ["poisson"], "low_rank", 60, 20, 2
    warnings.simplefilter("ignore")
    results = {}
    for name in args.models:
        for guide in args.guides.split(","):
            one = results[f"{name} {guide}"] = compared(
                globals()[name], guide, args.rows, args.steps, args.seeds, args.estimators.split(",")
            )
            mean, low, high = one["ahead"]
            print(f"{name}, {guide}: ELBO {mean:+.3f} [{low:+.3f}, {high:+.3f}] nats above NumPyro's", flush=True)
            for key, (value, low, high) in one["variance"].items():
                method = key.split()[0]
                print(f"  {key:<28}{value:>10.3g} [{low:.3g}, {high:.3g}]  time {one['time'][method]:.2f}", flush=True)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
