"""Candidates for the default estimator of ``lowvar.fit``: nats and seconds on different models, against ``naive``.

    python benchmarks/defaults.py            # all models, 8 seeds, 5000 steps: about half an hour
    python benchmarks/defaults.py --quick    # 2 seeds, 500 steps
    python benchmarks/defaults.py bnn mixture --methods naive,joint_adaptive

For each seed, all methods share starts, batches and base noise. Final ELBOs use the same 2048 draws; the table has the
mean difference from ``naive``, with the half width of its 95 % interval over the seeds. Times of a step, with full
passes and without compilation, are relative to ``naive``: medians over alternating rounds in one process.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from vi_step import add_sizes, sized, write

from lowvar.analysis.decomposition import mean_interval
from lowvar.noise import named_key
from lowvar.problems.numpyro_model import from_numpyro
from lowvar.studies.variational import engine as engines
from lowvar.vi.run.settings import Method, Settings

METHODS = ("naive", "joint", "joint_current", "joint_svrg", "joint_adaptive")
DRAWS = 2048
MODELS = {}


def entry(**settings):
    """Registers a function that makes ``(model, data)``, with the fit's settings that differ."""

    def put(make):
        MODELS[make.__name__] = (make, settings)
        return make

    return put


def rows(N):
    """The data plate."""
    return numpyro.plate("data", N, subsample_size=min(N, 2))


def features(rng, N, D, correlation=0.5):
    """Correlated features, ``(N, D)``."""
    common = rng.normal(size=(N, 1))
    return np.sqrt(1 - correlation) * rng.normal(size=(N, D)) + np.sqrt(correlation) * common


@entry()
def logistic(rng):
    """30 correlated features."""
    x = features(rng, 600, 30)
    y = (rng.uniform(size=600) < 1 / (1 + np.exp(-x @ rng.normal(size=30) / 2))).astype(float)

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([30]).to_event(1))
        with rows(600) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ w), obs=y[i])

    return model, {"x": x, "y": y}


@entry()
def poisson(rng):
    """Counts with a latent scale of the weights."""
    x = features(rng, 3000, 12, 0.2)
    y = rng.poisson(np.exp(0.3 * x @ rng.normal(size=12)))

    def model(x, y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        w = numpyro.sample("w", dist.Normal(0, scale).expand([12]).to_event(1))
        with rows(3000) as i:
            numpyro.sample("y", dist.Poisson(jnp.exp(x[i] @ w)), obs=y[i])

    return model, {"x": x, "y": y}


@entry()
def hierarchical(rng):
    """Intercepts and slopes of 40 groups, non-centred."""
    g, x = rng.integers(0, 40, 2000), rng.normal(size=2000)
    y = (0.5 + 0.7 * rng.normal(size=40))[g] + (1 + 0.3 * rng.normal(size=40))[g] * x + 0.5 * rng.normal(size=2000)

    def model(g, x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(1).expand([2]).to_event(1))
        off = numpyro.sample("off", dist.Normal(0, 1).expand([40, 2]).to_event(2))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        with rows(2000) as i:
            b = mean + spread * off[g[i]]
            numpyro.sample("y", dist.Normal(b[:, 0] + b[:, 1] * x[i], noise), obs=y[i])

    return model, {"g": g, "x": x, "y": y}


@entry()
def centred(rng):
    """A centred hierarchy with a funnel: 50 small groups, with a latent scale."""
    g = np.repeat(np.arange(50), 4)
    y = 0.5 * rng.normal(size=50)[g] + rng.normal(size=200)

    def model(g, y):
        log_scale = numpyro.sample("log_scale", dist.Normal(0, 1.5))
        b = numpyro.sample("b", dist.Normal(0, jnp.exp(log_scale)).expand([50]).to_event(1))
        with rows(200) as i:
            numpyro.sample("y", dist.Normal(b[g[i]], 1), obs=y[i])

    return model, {"g": g, "y": y}


@entry()
def bnn(rng):
    """A network of one hidden layer of 30, with a latent precision of the noise."""
    x = rng.normal(size=(1000, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=1000)

    def model(x, y):
        first = numpyro.sample("first", dist.Normal(0, 1).expand([4, 30]).to_event(2))
        bias = numpyro.sample("bias", dist.Normal(0, 1).expand([30]).to_event(1))
        second = numpyro.sample("second", dist.Normal(0, 1).expand([30]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        with rows(1000) as i:
            numpyro.sample("y", dist.Normal(jnp.tanh(x[i] @ first + bias) @ second, noise), obs=y[i])

    return model, {"x": x, "y": y}


@entry()
def bnn_relu(rng):
    """A classifier of two layers of rectified units."""
    x = rng.normal(size=(800, 2))
    y = (np.sin(3 * x[:, 0]) + x[:, 1] > 0).astype(float)

    def model(x, y):
        h, width = x, 2
        weights = []
        for layer in range(2):
            weights.append(numpyro.sample(f"w{layer}", dist.Normal(0, 1).expand([width, 16]).to_event(2)))
            width = 16
        last = numpyro.sample("last", dist.Normal(0, 1).expand([16]).to_event(1))
        with rows(800) as i:
            h = x[i]
            for w in weights:
                h = jax.nn.relu(h @ w)
            numpyro.sample("y", dist.Bernoulli(logits=h @ last), obs=y[i])

    return model, {"x": x, "y": y}


@entry()
def factors(rng):
    """Matrix factorisation: 40 by 30, rank 4, 600 observed entries."""
    a, b = rng.integers(0, 40, 600), rng.integers(0, 30, 600)
    y = (rng.normal(size=(40, 4))[a] * rng.normal(size=(30, 4))[b]).sum(1) + 0.3 * rng.normal(size=600)

    def model(a, b, y):
        u = numpyro.sample("u", dist.Normal(0, 1).expand([40, 4]).to_event(2))
        v = numpyro.sample("v", dist.Normal(0, 1).expand([30, 4]).to_event(2))
        with rows(600) as i:
            numpyro.sample("y", dist.Normal((u[a[i]] * v[b[i]]).sum(-1), 0.3), obs=y[i])

    return model, {"a": a, "b": b, "y": y}


@entry()
def mixture(rng):
    """Three normals, with marginalised labels."""
    y = np.array([-3.0, 0.0, 4.0])[rng.integers(0, 3, 800)] + rng.normal(size=800)

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        means = numpyro.sample("means", dist.Normal(0, 5).expand([3]).to_event(1))
        scales = numpyro.sample("scales", dist.LogNormal(0, 0.5).expand([3]).to_event(1))
        with rows(800) as i:
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, scales)), obs=y[i])

    return model, {"y": y}


@entry()
def heteroscedastic(rng):
    """A mean and a log scale, both of radial basis functions."""
    x = np.sort(rng.uniform(-2, 2, 500))
    basis = np.exp(-0.5 * ((x[:, None] - np.linspace(-2, 2, 12)) / 0.5) ** 2)
    y = np.sin(2 * x) + np.exp(0.7 * x - 1) * rng.normal(size=500)

    def model(basis, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([12]).to_event(1))
        v = numpyro.sample("v", dist.Normal(0, 1).expand([12]).to_event(1))
        with rows(500) as i:
            numpyro.sample("y", dist.Normal(basis[i] @ w, jnp.exp(basis[i] @ v)), obs=y[i])

    return model, {"basis": basis, "y": y}


@entry()
def robust(rng):
    """Student-t regression with outliers; degrees of freedom and scale are latent."""
    x = features(rng, 400, 8)
    y = x @ rng.normal(size=8) + 0.3 * rng.standard_t(2, size=400)

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 2).expand([8]).to_event(1))
        nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
        s = numpyro.sample("s", dist.HalfNormal(1))
        with rows(400) as i:
            numpyro.sample("y", dist.StudentT(nu, x[i] @ w, s), obs=y[i])

    return model, {"x": x, "y": y}


@entry()
def horseshoe(rng):
    """Sparse regression, 40 features, 4 of which matter."""
    x = rng.normal(size=(300, 40))
    y = x[:, :4] @ np.array([2.0, -1.5, 1.0, 3.0]) + rng.normal(size=300)

    def model(x, y):
        whole = numpyro.sample("whole", dist.HalfCauchy(1))
        local = numpyro.sample("local", dist.HalfCauchy(1).expand([40]).to_event(1))
        raw = numpyro.sample("raw", dist.Normal(0, 1).expand([40]).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(2))
        with rows(300) as i:
            numpyro.sample("y", dist.Normal(x[i] @ (whole * local * raw), s), obs=y[i])

    return model, {"x": x, "y": y}


@entry()
def overdispersed(rng):
    """Negative binomial counts."""
    x = rng.normal(size=(1500, 5))
    y = rng.poisson(np.exp(1 + 0.5 * x @ rng.normal(size=5)) * rng.gamma(1.5, 1 / 1.5, 1500))

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([5]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0, 3))
        k = numpyro.sample("k", dist.Gamma(2, 1))
        with rows(1500) as i:
            numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(b + x[i] @ w), k), obs=y[i])

    return model, {"x": x, "y": y}


@entry(batch_size=10)
def many_rows(rng):
    """20 000 rows in batches of 10: two and a half epochs."""
    x = features(rng, 20_000, 10)
    y = (rng.uniform(size=20_000) < 1 / (1 + np.exp(-x @ rng.normal(size=10)))).astype(float)

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([10]).to_event(1))
        with rows(20_000) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ w), obs=y[i])

    return model, {"x": x, "y": y}


@entry(batch_size=4)
def few_rows(rng):
    """12 rows in batches of 4."""
    x = rng.normal(size=12)
    y = 1 + 2 * x + 0.5 * rng.normal(size=12)

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 5).expand([2]).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1))
        with rows(12) as i:
            numpyro.sample("y", dist.Normal(w[0] + w[1] * x[i], s), obs=y[i])

    return model, {"x": x, "y": y}


def compare(name, methods, seeds, steps):
    """Final ELBOs ``{method: (seeds,)}``, and times relative to naive; ``joint_fixed``: with fixed batches."""
    make, settings = MODELS[name]
    problem = from_numpyro(*make(np.random.default_rng(0)), name=name)
    size = settings.get("batch_size", min(100, problem.N))
    epochs = -(-steps // -(-problem.N // size))
    solver = Settings(optimizer="adam", step_sizes=(0.01,), batch_size=size, epochs=epochs, repetitions=seeds,
                        elbo_samples=2, initial="origin")  # fmt: skip
    keys = jnp.stack([named_key(0, name, "start", r) for r in range(seeds)])
    mu = 0.1 * np.asarray(jax.vmap(lambda key: jax.random.normal(key, (problem.dim,)))(keys))
    starts = {"mu": mu, "log_sigma": np.full_like(mu, np.log(0.1))}
    eps = jax.random.normal(named_key(0, name, "judge"), (DRAWS, problem.dim), problem.dtype)
    judge = jax.jit(lambda params: jax.lax.map(lambda one: problem.elbo(one, eps)[0], params))
    elbos, programs = {}, {}
    for method in methods:
        kind = method.removesuffix("_fixed")
        own = {"batches": "fixed"} if kind != method else {}
        spec = Method(kind, {"table": "batches"} if own else {})
        runs = engines.build(problem, spec, replace(solver, **own), seed=0, name=name, starts=starts)
        state = runs.advance(runs.init(), 0, epochs)
        elbos[method] = np.asarray(judge(jax.tree.map(lambda leaf: leaf[0], state[0].params)), float)
        programs[method] = (runs, state)
    return elbos, times(programs)


def times(programs, rounds=7):
    """Seconds of an epoch of all seeds relative to ``naive``, medians over alternating rounds."""
    import time

    spent = {method: [] for method in programs}
    for _ in range(rounds):
        for method, (runs, state) in programs.items():
            count = max(1, 400 // runs.steps)
            start = time.perf_counter()
            state = runs.advance(state, 0, count)
            runs.wait(state)
            spent[method].append(time.perf_counter() - start)
            programs[method] = (runs, state)
    base = np.array(spent["naive"])
    return {method: float(np.median(np.array(values) / base)) for method, values in spent.items()}


def main():
    """Prints a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"some of: {', '.join(MODELS)} (default: all)")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, help="default: 8")
    parser.add_argument("--steps", type=int, help="default: 5000")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/defaults.json"), help="JSON file")
    add_sizes(parser, "2 seeds, 500 steps")
    args = parser.parse_args()
    if unknown := [name for name in args.models if name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    jax.config.update("jax_enable_x64", True)
    named = "joint_adaptive" if args.size == "smallest" else args.methods
    methods = ["naive", *(name for name in named.split(",") if name != "naive")]
    seeds, steps = args.seeds or sized(args.size, 8, 2, 2), args.steps or sized(args.size, 5000, 500, 20)
    found = {}
    print("| model | naive, nats | " + " | ".join(methods[1:]) + " |")
    print("|---" * (len(methods) + 1) + "|")
    for name in args.models or list(MODELS)[: sized(args.size, None, None, 1)]:
        elbos, ratios = compare(name, methods, seeds, steps)
        found[name] = {"elbo": {method: list(elbos[method]) for method in methods}, "time": ratios}
        cells = []
        for method in methods[1:]:
            mean, low, high = mean_interval(elbos[method] - elbos["naive"])
            cells.append(f"{mean:+.2f} ± {(high - low) / 2:.2f}, {ratios[method]:.2f}x")
        print(f"| {name} | {elbos['naive'].mean():.1f} | " + " | ".join(cells) + " |", flush=True)
    write(args.out, {"seeds": seeds, "steps": steps, "models": found})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
