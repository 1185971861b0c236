"""Unusual forms: plates, handlers, missing values, types of data, sizes, and models that must be refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import expit

from .common import as_data, case, rows


@case("exams: pupils by tasks, two plates with dim, missing answers under handlers.mask", rows=(150,))
def exams(rng, N):
    y = rng.normal(size=12) + rng.normal(size=(N, 12))
    y[rng.random(y.shape) < 0.2] = np.nan

    def model(y, batch=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        with numpyro.plate("tasks", y.shape[1], dim=-1):
            task = numpyro.sample("task", dist.Normal(mean, 1.0))
        with numpyro.plate("pupils", y.shape[0], subsample_size=batch, dim=-2) as i:
            there = ~jnp.isnan(y[i])
            with numpyro.plate("answers", y.shape[1], dim=-1), numpyro.handlers.mask(mask=there):
                numpyro.sample("y", dist.Normal(task, sigma), obs=jnp.where(there, y[i], 0.0))

    return model, as_data(y=y)


@case("survey: weights of the rows by handlers.scale", rows=(500,))
def survey(rng, N):
    x = rng.normal(size=(N, 2))
    weight = rng.uniform(0.3, 2.0, N)
    y = rng.random(N) < expit(x @ [1.0, -0.5])

    def model(x, weight, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
        with rows(x.shape[0], batch) as i, numpyro.handlers.scale(scale=weight[i]):
            numpyro.sample("y", dist.Bernoulli(logits=w[0] + x[i] @ w[1:]), obs=y[i])

    return model, as_data(x=x, weight=weight, y=y)


@case("two data sets of 300 and 90 rows that share a slope, a plate each", rows=(300,), told="in full")
def two_sets(rng, N):
    a, b = rng.normal(size=N), rng.normal(size=90)

    def model(a, ya, b, yb, batch=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0).expand([2]).to_event(1))
        with rows(a.shape[0], batch, "first") as i:
            numpyro.sample("ya", dist.Normal(slope * a[i], sigma[0]), obs=ya[i])
        with rows(b.shape[0], None, "second") as j:
            numpyro.sample("yb", dist.Poisson(jnp.exp(slope * b[j])), obs=yb[j])

    ya, yb = 0.7 * a + 0.5 * rng.normal(size=N), rng.poisson(np.exp(0.7 * b))
    return model, as_data(a=a, ya=ya, b=b, yb=yb)


@case("a column of shape (N, 1) on both sides, events of length one", rows=(250,))
def columns(rng, N):
    x = rng.normal(size=(N, 1))
    y = 1.0 + 2.0 * x + 0.3 * rng.normal(size=(N, 1))

    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 5.0).expand([1, 1]).to_event(2))
        b = numpyro.sample("b", dist.Normal(0.0, 5.0))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(x[i] @ w + b, sigma).to_event(1), obs=y[i])

    return model, as_data(x=x, y=y)


@case("columns of a pandas frame: bool, uint8, int64 and float64", rows=(350,))
def frame(rng, N):
    import pandas as pd

    table = pd.DataFrame({"age": rng.integers(18, 90, N), "smokes": rng.random(N) < 0.3})
    table["region"], table["dose"] = rng.integers(0, 5, N).astype(np.uint8), rng.gamma(2.0, 1.0, N)
    p = expit(-3.0 + 0.04 * table["age"] + 0.8 * table["smokes"] - 0.2 * table["dose"])
    table["ill"] = rng.random(N) < p

    def model(age, smokes, region, dose, ill, batch=None):
        b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([4]).to_event(1))
        effect = numpyro.sample("effect", dist.Normal(0.0, 0.5).expand([5]).to_event(1))
        with rows(len(age), batch) as i:
            old = (age[i] - 50) / 20
            logits = b[0] + b[1] * old + b[2] * smokes[i] + b[3] * dose[i] + effect[region[i]]
            numpyro.sample("ill", dist.Bernoulli(logits=logits), obs=ill[i])

    return model, {name: table[name] for name in table}


@case("one observation, one latent variable", rows=(1,))
def one(rng, N):
    def model(y, batch=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        with rows(y.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(mean, 0.5), obs=y[i])

    return model, as_data(y=np.array([1.3]))


@case("a rate with its conjugate gamma prior, plate without index", rows=(100_000,), plate=False, told="all rows")
def rate(rng, N):
    y = rng.poisson(3.3, N)

    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    return model, as_data(y=y)


@case("linear regression", rows=(1_000_000,), truth=False)
def sensors(rng, N):
    x = rng.normal(size=(N, 20)).astype(np.float32)
    y = x @ np.linspace(-1, 1, 20) + 0.5 * rng.normal(size=N)

    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(x[i] @ w, sigma), obs=y[i])

    return model, as_data(x=x, y=y)


@case("truncated and bounded: a threshold below all times, a fraction in (0.2, 0.9)", rows=(200,))
def bounded(rng, N):
    y = 0.5 + rng.gamma(2.0, 1.0, N)

    def model(y, batch=None):
        shift = numpyro.sample("shift", dist.Uniform(0.0, 0.49))
        shape = numpyro.sample("shape", dist.TruncatedNormal(2.0, 1.0, low=0.2))
        share = numpyro.sample("share", dist.Uniform(0.2, 0.9))
        with rows(y.shape[0], batch) as i:
            long = dist.Gamma(shape, 0.3).log_prob(y[i] - shift)
            short = dist.Gamma(shape, 1.5).log_prob(y[i] - shift)
            numpyro.factor("y", jnp.logaddexp(jnp.log(share) + short, jnp.log1p(-share) + long))

    return model, as_data(y=y)


@case("ages with gaps: missing values imputed as latent variables", rows=(200,))
def imputed(rng, N):
    age = rng.normal(size=N)
    y = 1.0 + 0.8 * age + 0.4 * rng.normal(size=N)
    gone = np.flatnonzero(rng.random(N) < 0.15)
    seen = age.copy()
    seen[gone] = 0.0

    def model(age, gone, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        missing = numpyro.sample("missing", dist.Normal(0.0, 1.0).expand([gone.shape[0]]).to_event(1))
        full = age.at[gone].set(missing)
        with rows(age.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(w[0] + w[1] * full[i], sigma), obs=y[i])

    return model, as_data(age=seen, gone=gone, y=y)


@case("a missing value left in as NaN", rows=(100,), refused="row 7", truth=False)
def gaps(rng, N):
    x = rng.normal(size=N)
    x[7] = np.nan

    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(w * x[i], 1.0), obs=y[i])

    return model, as_data(x=x, y=rng.normal(size=N))


@case("a class for each row as a discrete latent variable", rows=(100,), refused="discrete", truth=False)
def classes(rng, N):
    def model(y, batch=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        with rows(y.shape[0], batch) as i:
            k = numpyro.sample("k", dist.Categorical(probs=jnp.array([0.4, 0.6])))
            numpyro.sample("y", dist.Normal(mean[k], 1.0), obs=y[i])

    return model, as_data(y=rng.normal(size=N))


@case("a change point as a discrete latent variable outside the plate", rows=(100,), refused="discrete", truth=False)
def change_point(rng, N):
    def model(y, batch=None):
        when = numpyro.sample("when", dist.DiscreteUniform(0, y.shape[0] - 1))
        level = numpyro.sample("level", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        with rows(y.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(jnp.where(i < when, level[0], level[1]), 1.0), obs=y[i])

    return model, as_data(y=np.r_[rng.normal(size=N // 2), 2 + rng.normal(size=N - N // 2)])


@case("features standardised inside the plate", rows=(200,), refused="depends on the other rows", truth=False)
def standardised(rng, N):
    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        with rows(x.shape[0], batch) as i:
            part = x[i]
            numpyro.sample("y", dist.Normal((part - part.mean(0)) / part.std(0) @ w, 1.0), obs=y[i])

    return model, as_data(x=rng.normal(3.0, 2.0, size=(N, 2)), y=rng.normal(size=N))


@case("the likelihood as one numpyro.factor over all rows, no plate", rows=(150,), plate=False, told="all rows")
def one_factor(rng, N):
    x = rng.normal(size=(N, 2))

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        numpyro.factor("likelihood", dist.Bernoulli(logits=x @ w).log_prob(y).sum())

    return model, as_data(x=x, y=rng.random(N) < expit(x @ [1.0, -1.0]))


@case("the sum of a batch as one numpyro.factor in the plate", rows=(150,), refused="row", truth=False)
def summed_factor(rng, N):
    x = rng.normal(size=(N, 2))

    def model(x, y, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        with rows(x.shape[0], batch) as i:
            numpyro.factor("likelihood", dist.Bernoulli(logits=x[i] @ w).log_prob(y[i]).sum())

    return model, as_data(x=x, y=rng.random(N) < expit(x @ [1.0, -1.0]))
