"""A first fit against NumPyro's ``SVI(AutoNormal, Trace_ELBO, Adam(0.01))``: nats and seconds, compilation included.

    python benchmarks/first_fit.py                 # ten models, 100 and 10 000 rows, two rounds
    python benchmarks/first_fit.py --quick         # one round, four models
    python benchmarks/first_fit.py dose survival --rows 100

Both make 5000 steps with batches of 100, from the same model function. ``fit`` also evaluates its ELBO along the way
and its k-hat; ``SVI`` does neither. Before every first call, JAX's caches are cleared, and the two alternate in who is
first. ``again`` is a second fit of the same shapes: other data, another seed, no caches cleared; ``SVI.run`` compiles
again, ``fit`` does not. Final ELBOs use the same draws. Ratios are those of CPU seconds, which other jobs disturb less.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from vi_step import add_sizes, sized, write

STEPS, DRAWS = 5000, 1024
MODELS = {}


def entry(make):
    """Registers ``(rng, N) -> (model, data)``."""
    MODELS[make.__name__] = make
    return make


def rows(N):
    """The data plate, for both."""
    return numpyro.plate("data", N, subsample_size=min(N, 100))


@entry
def dose(rng, N):
    """A dose-response curve with a latent slope and threshold."""
    x = rng.uniform(-2, 2, N)
    y = rng.binomial(1, 1 / (1 + np.exp(-3 * (x - 0.4))))

    def model(x, y):
        slope = numpyro.sample("slope", dist.LogNormal(0, 1))
        middle = numpyro.sample("middle", dist.Normal(0, 1))
        with rows(N) as i:
            numpyro.sample("y", dist.Bernoulli(logits=slope * (x[i] - middle)), obs=y[i])

    return model, {"x": x, "y": y}


@entry
def overdispersed(rng, N):
    """Negative binomial counts with an exposure."""
    x, exposure = rng.normal(size=(N, 4)), rng.uniform(0.5, 2, N)
    y = rng.negative_binomial(3, 3 / (3 + exposure * np.exp(0.4 * x[:, 0] + 1)))

    def model(x, exposure, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([5]).to_event(1))
        k = numpyro.sample("k", dist.Gamma(2, 1))
        with rows(N) as i:
            mean = exposure[i] * jnp.exp(b[0] + x[i] @ b[1:])
            numpyro.sample("y", dist.NegativeBinomial2(mean, k), obs=y[i])

    return model, {"x": x, "exposure": exposure, "y": y}


@entry
def fractions(rng, N):
    """Beta regression."""
    x = rng.normal(size=(N, 3))
    m = 1 / (1 + np.exp(-(0.3 + x @ np.array([0.5, -0.5, 0.0]))))
    y = np.clip(rng.beta(8 * m, 8 * (1 - m)), 1e-4, 1 - 1e-4)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([4]).to_event(1))
        precision = numpyro.sample("precision", dist.HalfNormal(10))
        with rows(N) as i:
            m = jax.nn.sigmoid(b[0] + x[i] @ b[1:])
            numpyro.sample("y", dist.BetaProportion(m, precision), obs=y[i])

    return model, {"x": x, "y": y}


@entry
def grades(rng, N):
    """Ordered categories."""
    x = rng.normal(size=(N, 3))
    y = np.digitize(x @ np.array([1.0, -0.5, 0.2]) + rng.logistic(size=N), [-1.5, 0.0, 1.5])

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
        cuts = numpyro.sample(
            "cuts", dist.TransformedDistribution(dist.Normal(0, 2).expand([3]), dist.transforms.OrderedTransform())
        )
        with rows(N) as i:
            numpyro.sample("y", dist.OrderedLogistic(x[i] @ b, cuts), obs=y[i])

    return model, {"x": x, "y": y}


@entry
def survival(rng, N):
    """Weibull times, right-censored."""
    x = rng.normal(size=(N, 2))
    t = np.exp(x @ np.array([0.5, -0.3])) * rng.weibull(1.5, N)
    end = rng.uniform(0.5, 3, N)

    def model(x, t, seen):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
        shape = numpyro.sample("shape", dist.LogNormal(0, 0.5))
        with rows(N) as i:
            scale = jnp.exp(b[0] + x[i] @ b[1:])
            z = (t[i] / scale) ** shape
            numpyro.factor("y", seen[i] * (jnp.log(shape) - jnp.log(t[i]) + jnp.log(z)) - z)

    return model, {"x": x, "t": np.minimum(t, end) + 1e-3, "seen": (t <= end).astype(float)}


@entry
def many_zeros(rng, N):
    """Zero-inflated counts."""
    x = rng.normal(size=(N, 3))
    y = rng.poisson(np.exp(0.5 + 0.4 * x[:, 0])) * (rng.uniform(size=N) > 0.3)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([4]).to_event(1))
        gate = numpyro.sample("gate", dist.Beta(1, 1))
        with rows(N) as i:
            numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(b[0] + x[i] @ b[1:])), obs=y[i])

    return model, {"x": x, "y": y}


@entry
def classes(rng, N):
    """Four classes, five features."""
    x = rng.normal(size=(N, 5))
    y = np.argmax(x @ rng.normal(size=(5, 4)) + rng.gumbel(size=(N, 4)), axis=1)

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([5, 4]).to_event(2))
        with rows(N) as i:
            numpyro.sample("y", dist.Categorical(logits=x[i] @ w), obs=y[i])

    return model, {"x": x, "y": y}


@entry
def crossed(rng, N):
    """Effects of 15 raters and 20 items, non-centred."""
    a, b = rng.integers(0, 15, N), rng.integers(0, 20, N)
    y = 0.7 * rng.normal(size=15)[a] + rng.normal(size=20)[b] + 0.5 * rng.normal(size=N)

    def model(a, b, y):
        spread = numpyro.sample("spread", dist.HalfNormal(1).expand([2]).to_event(1))
        rater = numpyro.sample("rater", dist.Normal(0, 1).expand([15]).to_event(1))
        item = numpyro.sample("item", dist.Normal(0, 1).expand([20]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        with rows(N) as i:
            numpyro.sample("y", dist.Normal(spread[0] * rater[a[i]] + spread[1] * item[b[i]], noise), obs=y[i])

    return model, {"a": a, "b": b, "y": y}


@entry
def seasonal(rng, N):
    """A trend with harmonics."""
    t = np.linspace(0, 4, N)
    basis = np.stack([f(2 * np.pi * k * t) for k in (1, 2, 3) for f in (np.sin, np.cos)], axis=1)
    y = 0.5 * t + basis @ (rng.normal(size=6) / np.array([1, 1, 2, 2, 3, 3])) + 0.3 * rng.normal(size=N)

    def model(t, basis, y):
        line = numpyro.sample("line", dist.Normal(0, 2).expand([2]).to_event(1))
        w = numpyro.sample("w", dist.Normal(0, 1).expand([6]).to_event(1))
        noise = numpyro.sample("noise", dist.Exponential(1))
        with rows(N) as i:
            numpyro.sample("y", dist.Normal(line[0] + line[1] * t[i] + basis[i] @ w, noise), obs=y[i])

    return model, {"t": t, "basis": basis, "y": y}


@entry
def waiting(rng, N):
    """Gamma waiting times with a log link."""
    x = rng.normal(size=(N, 4))
    y = rng.gamma(2.0, np.exp(0.5 + x @ np.array([0.3, -0.2, 0.0, 0.1])) / 2.0)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([5]).to_event(1))
        shape = numpyro.sample("shape", dist.LogNormal(0, 1))
        with rows(N) as i:
            numpyro.sample("y", dist.Gamma(shape, shape * jnp.exp(-(b[0] + x[i] @ b[1:]))), obs=y[i])

    return model, {"x": x, "y": y}


def theirs(model, data, seed, steps):
    """NumPyro's SVI: its parameters."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    data = {name: jnp.asarray(value) for name, value in data.items()}
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())
    return jax.block_until_ready(svi.run(jax.random.key(seed), steps, **data, progress_bar=False).params)


def ours(model, data, seed, steps):
    """``lowvar.fit`` at its default: its parameters."""
    import lowvar

    return lowvar.fit(model, data, seed=seed, num_steps=steps, progress=False).params


def judged(model, data, params, draws=DRAWS):
    """The ELBO of each of ``params``, from the same ``draws``."""
    from lowvar.problems.numpyro_model import from_numpyro

    elbos = []
    for one in params:
        problem = from_numpyro(model, data, init=jax.tree.map(np.asarray, one))
        eps = jax.random.normal(jax.random.key(1), (draws, problem.dim), problem.dtype)
        start = {block: jnp.asarray(value, problem.dtype) for block, value in problem.start.items()}
        elbos.append(float(problem.backend.jit(lambda p, e, problem=problem: problem.elbo(p, e)[0])(start, eps)))
    return elbos


def prepared(name, N, round_):
    """Model and data of a round, in single precision."""
    model, data = MODELS[name](np.random.default_rng(round_), N)
    return model, {k: v.astype(np.float32 if v.dtype.kind == "f" else np.int32) for k, v in data.items()}


def compare(name, N, rounds, steps):
    """Nats and seconds of the two, by round."""
    tools, found = {"svi": theirs, "fit": ours}, []
    for round_ in range(rounds):
        row = {}
        for tool in sorted(tools, reverse=round_ % 2 == 0):
            jax.clear_caches()
            for kind, seed in (("", round_), (" again", round_ + 100)):
                model, data = prepared(name, N, seed)
                start = time.perf_counter(), time.process_time()
                params = tools[tool](model, data, seed, steps)
                row[f"{tool}{kind}"] = time.perf_counter() - start[0]
                row[f"{tool} CPU{kind}"] = time.process_time() - start[1]
                row[f"{tool} params{kind}"] = params
        for kind, seed in (("", round_), (" again", round_ + 100)):
            elbos = judged(*prepared(name, N, seed), [row.pop(f"{tool} params{kind}") for tool in tools])
            row |= {f"{tool} elbo{kind}": elbo for tool, elbo in zip(tools, elbos, strict=True)}
        found.append(row)
    return found


def main():
    """Prints a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"some of: {', '.join(MODELS)} (default: all)")
    parser.add_argument("--rows", type=int, action="append", help="default: 100 and 10000")
    parser.add_argument("--rounds", type=int, help="default: 2")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/first_fit.json"), help="JSON file")
    add_sizes(parser, "one round, four models")
    args = parser.parse_args()
    if unknown := [name for name in args.models if name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    rounds, steps = args.rounds or sized(args.size, 2, 1, 1), sized(args.size, STEPS, STEPS, 20)
    names = args.models or list(MODELS)[: sized(args.size, None, 4, 1)]
    print("| model | rows | nats above SVI | SVI, s | fit, s | ratio | ratio, again |")
    print("|---" * 7 + "|")
    found = {}
    for name in names:
        for N in args.rows or sized(args.size, (100, 10_000), (100, 10_000), (100,)):
            runs = found[f"{name}, {N}"] = compare(name, N, rounds, steps)
            of = {key: np.array([run[key] for run in runs]) for key in runs[0]}
            more = np.concatenate([of["fit elbo"] - of["svi elbo"], of["fit elbo again"] - of["svi elbo again"]])
            ratio, again = (np.median(of[f"fit CPU{kind}"] / of[f"svi CPU{kind}"]) for kind in ("", " again"))
            cells = [f"{more.mean():+.2f} [{more.min():+.2f}, {more.max():+.2f}]"]
            cells += [f"{np.median(of[tool]):.1f}" for tool in ("svi", "fit")] + [f"{ratio:.2f}", f"{again:.2f}"]
            print(f"| {name} | {N} | " + " | ".join(cells) + " |", flush=True)
            write(args.out, {"rounds": rounds, "steps": steps, "runs": found})
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
