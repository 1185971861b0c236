"""Models with more structure in the latent variables: scores of persons, mixtures, series, networks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from scipy.special import expit

from .common import as_data, case, rows


@case("item response, two parameters: 60 persons, 20 items, a row for each answer", rows=(1200,))
def items(rng, N):
    person, item = np.divmod(np.arange(N), 20)
    ability, difficulty, slope = rng.normal(size=60), rng.normal(size=20), np.exp(0.3 * rng.normal(size=20))
    y = rng.random(N) < expit(slope[item] * (ability[person % 60] - difficulty[item]))

    def model(person, item, right, batch=None):
        with numpyro.plate("persons", 60):
            ability = numpyro.sample("ability", dist.Normal(0.0, 1.0))
        with numpyro.plate("items", 20):
            difficulty = numpyro.sample("difficulty", dist.Normal(0.0, 2.0))
            slope = numpyro.sample("slope", dist.LogNormal(0.0, 0.5))
        with rows(person.shape[0], batch, "answers") as i:
            logits = slope[item[i]] * (ability[person[i]] - difficulty[item[i]])
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=right[i])

    return model, as_data(person=person % 60, item=item, right=y.astype(np.int64))


@case("counts of six species by site: Dirichlet-multinomial, weights on the simplex", rows=(150,))
def species(rng, N):
    share = rng.dirichlet(np.full(6, 2.0))
    y = np.array([rng.multinomial(n, rng.dirichlet(20 * share)) for n in rng.integers(20, 60, N)])

    def model(counts, batch=None):
        share = numpyro.sample("share", dist.Dirichlet(jnp.ones(6)))
        precision = numpyro.sample("precision", dist.LogNormal(3.0, 1.0))
        with rows(counts.shape[0], batch, "sites") as i:
            y = counts[i]
            numpyro.sample("y", dist.DirichletMultinomial(share * precision, total_count=y.sum(-1)), obs=y)

    return model, as_data(counts=y)


@case("two lines: a mixture of regressions, marginalised, intercepts ordered", rows=(400,))
def two_lines(rng, N):
    x = rng.normal(size=N)
    which = rng.random(N) < 0.35
    y = np.where(which, 2.0 - 1.0 * x, -1.0 + 0.8 * x) + 0.4 * rng.normal(size=N)

    def model(x, y=None, batch=None):
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        start = numpyro.sample("start", dist.TransformedDistribution(
            dist.Normal(0.0, 2.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()))  # fmt: skip
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with rows(x.shape[0], batch) as i:
            loc = start + slope * x[i][:, None]
            mix = dist.Categorical(probs=jnp.stack([1 - p, p]))
            numpyro.sample("y", dist.MixtureSameFamily(mix, dist.Normal(loc, sigma)), obs=y[i])

    return model, as_data(x=x, y=y)


@case("density: mixture of three normals with Dirichlet weights, means free", rows=(500,), alike=True, truth=False)
def three_normals(rng, N):
    y = rng.choice([-3.0, 0.0, 4.0], N, p=[0.3, 0.5, 0.2]) + rng.normal(size=N) * 0.8

    def model(y, batch=None):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(3, 2.0)))
        with numpyro.plate("components", 3):
            mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
            sigma = numpyro.sample("sigma", dist.InverseGamma(3.0, 2.0))
        with rows(y.shape[0], batch) as i:
            mix = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(mean, sigma))
            numpyro.sample("y", mix, obs=y[i])

    return model, as_data(y=y)


@case("AR(1): every row has its predecessor as an input", rows=(600,))
def ar1(rng, N):
    y = np.zeros(N + 1)
    for t in range(N):
        y[t + 1] = 0.5 + 0.7 * y[t] + 0.6 * rng.normal()

    def model(y, batch=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
        phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with rows(y.shape[0] - 1, batch, "time") as t:
            numpyro.sample("y", dist.Normal(mean + phi * y[t], sigma), obs=y[t + 1])

    return model, as_data(y=y)


@case("AR(1) of a batch: residuals by a difference of neighbouring rows", rows=(300,),
      refused="depends on the other rows", truth=False)  # fmt: skip
def differences(rng, N):
    y = np.cumsum(rng.normal(size=N))

    def model(y, batch=None):
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with rows(y.shape[0], batch) as i:
            now = y[i]
            before = jnp.concatenate([jnp.zeros(1), now[:-1]])
            numpyro.sample("y", dist.Normal(before, sigma), obs=now)

    return model, as_data(y=y)


@case("local level: state space by scan, states not centred, 80 times", rows=(80,), plate=False, told="all rows")
def local_level(rng, N):
    y = np.cumsum(0.3 * rng.normal(size=N)) + 0.5 * rng.normal(size=N)

    def model(y):
        drift = numpyro.sample("drift", dist.HalfNormal(0.5))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        first = numpyro.sample("first", dist.Normal(0.0, 1.0))

        def step(level, now):
            level = level + drift * numpyro.sample("move", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(level, noise), obs=now)
            return level, level

        scan(step, first, y)

    return model, as_data(y=y)


@case("random walk of a log rate over 120 days, each day a row", rows=(120,))
def epidemic(rng, N):
    y = rng.poisson(np.exp(2.0 + np.cumsum(0.1 * rng.normal(size=N))))

    def model(cases, batch=None):
        T = cases.shape[0]
        step = numpyro.sample("step", dist.HalfNormal(0.2))
        start = numpyro.sample("start", dist.Normal(2.0, 1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([T]).to_event(1))
        log_rate = numpyro.deterministic("log_rate", start + step * jnp.cumsum(z))
        with rows(T, batch, "days") as t:
            numpyro.sample("y", dist.Poisson(jnp.exp(log_rate[t])), obs=cases[t])

    return model, as_data(cases=y)


@case("GARCH(1, 1): a recursion over time, no plate", rows=(300,), plate=False, told="all rows")
def garch(rng, N):
    y, variance = np.zeros(N), 1.0
    for t in range(N):
        y[t] = np.sqrt(variance) * rng.normal()
        variance = 0.1 + 0.2 * y[t] ** 2 + 0.7 * variance

    def model(y):
        omega = numpyro.sample("omega", dist.HalfNormal(0.5))
        both = numpyro.sample("both", dist.Dirichlet(jnp.array([2.0, 4.0, 2.0])))
        _, variance = jax.lax.scan(
            lambda v, now: (omega + both[0] * now**2 + both[1] * v, v), jnp.var(y), y)  # fmt: skip
        numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(variance)).to_event(1), obs=y)

    return model, as_data(y=y)


@case("Gaussian process on 40 points, all hyperparameters latent", rows=(40,), plate=False, told="all rows")
def process(rng, N):
    x = np.sort(rng.uniform(-3, 3, N))
    y = np.sin(2 * x) + 0.2 * rng.normal(size=N)

    def model(x, y=None):
        height = numpyro.sample("height", dist.LogNormal(0.0, 1.0))
        length = numpyro.sample("length", dist.InverseGamma(5.0, 5.0))
        noise = numpyro.sample("noise", dist.HalfNormal(0.5))
        kernel = height**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
        covariance = kernel + (noise**2 + 1e-4) * jnp.eye(x.shape[0])
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), covariance), obs=y)

    return model, as_data(x=x, y=y)


@case("dose and response: Emax curve with Hill slope", rows=(120,))
def emax(rng, N):
    dose = rng.choice([0.0, 1.0, 3.0, 10.0, 30.0, 100.0], N)
    y = 2.0 + 8.0 * dose**1.4 / (12.0**1.4 + dose**1.4) + rng.normal(size=N)

    def model(dose, y=None, batch=None):
        base = numpyro.sample("base", dist.Normal(0.0, 5.0))
        top = numpyro.sample("top", dist.LogNormal(2.0, 1.0))
        half = numpyro.sample("half", dist.LogNormal(2.0, 1.0))
        hill = numpyro.sample("hill", dist.LogNormal(0.0, 0.5))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        with rows(dose.shape[0], batch) as i:
            power = jnp.exp(hill * (jnp.log(jnp.maximum(dose[i], 1e-6)) - jnp.log(half)))
            numpyro.sample("y", dist.Normal(base + top * power / (1 + power), sigma), obs=y[i])

    return model, as_data(dose=dose, y=y)


@case("three outcomes with LKJ correlations", rows=(300,))
def outcomes(rng, N):
    x = rng.normal(size=(N, 2))
    factor = np.linalg.cholesky([[1.0, 0.6, 0.2], [0.6, 1.0, -0.3], [0.2, -0.3, 1.0]]) * [[1.0], [2.0], [0.5]]
    y = x @ rng.normal(size=(2, 3)) + rng.normal(size=(N, 3)) @ factor.T

    def model(x, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1], 3]).to_event(2))
        scale = numpyro.sample("scale", dist.HalfNormal(2.0).expand([3]).to_event(1))
        corr = numpyro.sample("corr", dist.LKJCholesky(3, 2.0))
        with rows(x.shape[0], batch) as i:
            mean = x[i] @ beta
            numpyro.sample("y", dist.MultivariateNormal(mean, scale_tril=scale[:, None] * corr), obs=y[i])

    return model, as_data(x=x, y=y)


@case("matrix factorisation of rank 3, 80 users and 50 films", rows=(2000, 100_000), truth=False, alike=True)
def films(rng, N):
    user, film = rng.integers(0, 80, N), rng.integers(0, 50, N)
    u, v = rng.normal(size=(80, 3)), rng.normal(size=(50, 3))
    y = 3.0 + 0.5 * (u[user] * v[film]).sum(1) + 0.4 * rng.normal(size=N)

    def model(user, film, stars, batch=None):
        mean = numpyro.sample("mean", dist.Normal(3.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        u = numpyro.sample("u", dist.Normal(0.0, 1.0).expand([80, 3]).to_event(2))
        v = numpyro.sample("v", dist.Normal(0.0, 0.5).expand([50, 3]).to_event(2))
        with rows(user.shape[0], batch) as i:
            loc = mean + (u[user[i]] * v[film[i]]).sum(-1)
            numpyro.sample("y", dist.Normal(loc, sigma), obs=stars[i])

    return model, as_data(user=user, film=film, stars=y)


@case("a flax network of one hidden layer with random weights", rows=(200,), truth=False, alike=True)
def network(rng, N):
    from flax import linen
    from numpyro.contrib.module import random_flax_module

    x = rng.uniform(-2, 2, size=(N, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=N)

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(jnp.tanh(linen.Dense(16)(x)))[..., 0]

    def model(x, y=None, batch=None):
        net = random_flax_module("net", Net(), prior=dist.Normal(0.0, 1.0), input_shape=(1, 2))
        sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(net(x[i]), sigma), obs=y[i])

    return model, as_data(x=x, y=y)


@case("a lognormal effect for every row, in the data plate", rows=(200,))
def row_effects(rng, N):
    x = rng.normal(size=N)
    y = rng.poisson(np.exp(0.7 + 0.5 * x + 0.6 * rng.normal(size=N)))

    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        with rows(x.shape[0], batch) as i:
            effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Poisson(jnp.exp(w[0] + w[1] * x[i] + tau * effect)), obs=y[i])

    return model, as_data(x=x, y=y)
