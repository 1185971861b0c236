"""Regressions: hierarchies, counts, survival, outliers, many levels, awkward scales."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.reparam import LocScaleReparam
from scipy.special import expit

from .common import as_data, case, rows

_COUNTIES = 40


def _counties(rng, N):
    county = rng.integers(0, _COUNTIES, N)
    floor = rng.integers(0, 2, N).astype(np.float32)
    intercept, slope = 1.3 + 0.4 * rng.normal(size=_COUNTIES), -0.6 + 0.2 * rng.normal(size=_COUNTIES)
    y = intercept[county] + slope[county] * floor + 0.7 * rng.normal(size=N)
    return as_data(county=county, floor=floor, y=y)


@case("varying intercepts of 40 counties, centred", rows=(900,))
def counties_centred(rng, N):
    def model(county, floor, y=None, batch=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        with numpyro.plate("counties", _COUNTIES):
            intercept = numpyro.sample("intercept", dist.Normal(mean, tau))
        with rows(county.shape[0], batch) as i:
            loc = intercept[county[i]] + slope * floor[i]
            numpyro.sample("y", dist.Normal(loc, sigma), obs=y[i])

    return model, _counties(rng, N)


@case("varying intercepts and slopes of 40 counties, reparameterised by LocScaleReparam(0)", rows=(900,))
def counties_reparam(rng, N):
    away = {"intercept": LocScaleReparam(0.0), "slope": LocScaleReparam(0.0)}

    @numpyro.handlers.reparam(config=away)
    def model(county, floor, y=None, batch=None):
        means = numpyro.sample("means", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        taus = numpyro.sample("taus", dist.HalfCauchy(1.0).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(2.0))
        with numpyro.plate("counties", _COUNTIES):
            intercept = numpyro.sample("intercept", dist.Normal(means[0], taus[0]))
            slope = numpyro.sample("slope", dist.Normal(means[1], taus[1]))
        with rows(county.shape[0], batch) as i:
            loc = numpyro.deterministic("loc", intercept[county[i]] + slope[county[i]] * floor[i])
            numpyro.sample("y", dist.Normal(loc, sigma), obs=y[i])

    return model, _counties(rng, N)


@case("claims: negative binomial with exposure offset", rows=(1000,))
def claims(rng, N):
    x = rng.normal(size=(N, 4))
    exposure = rng.gamma(2.0, 1.0, N)
    mean = exposure * np.exp(-0.5 + x @ [0.4, -0.2, 0.0, 0.3])
    y = rng.poisson(mean * rng.gamma(1.5, 1 / 1.5, N))

    def model(x, exposure, y=None, batch=None):
        alpha = numpyro.sample("alpha", dist.Normal(0.0, 2.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        phi = numpyro.sample("phi", dist.Gamma(2.0, 1.0))
        with rows(x.shape[0], batch) as i:
            mean = exposure[i] * jnp.exp(alpha + x[i] @ beta)
            numpyro.sample("y", dist.NegativeBinomial2(mean, phi), obs=y[i])

    return model, as_data(x=x, exposure=exposure, y=y)


@case("visits: zero-inflated Poisson, both parts with covariates", rows=(800,))
def visits(rng, N):
    x = rng.normal(size=(N, 3))
    y = rng.poisson(np.exp(0.8 + x @ [0.5, -0.4, 0.0])) * (rng.random(N) > expit(-0.5 + x[:, 0]))

    def model(x, y=None, batch=None):
        rate = numpyro.sample("rate", dist.Normal(0.0, 1.5).expand([x.shape[1] + 1]).to_event(1))
        gate = numpyro.sample("gate", dist.Normal(0.0, 1.5).expand([x.shape[1] + 1]).to_event(1))
        with rows(x.shape[0], batch) as i:
            logits, log_rate = gate[0] + x[i] @ gate[1:], rate[0] + x[i] @ rate[1:]
            each = dist.ZeroInflatedDistribution(dist.Poisson(jnp.exp(log_rate)), gate_logits=logits)
            numpyro.sample("y", each, obs=y[i])

    return model, as_data(x=x, y=y)


@case("rating of 1 to 5: ordinal logistic with ordered cutpoints", rows=(600,))
def ratings(rng, N):
    x = rng.normal(size=(N, 3))
    latent = x @ [1.0, -0.7, 0.2] + rng.logistic(size=N)
    y = np.searchsorted([-2.0, -0.5, 0.7, 2.2], latent)

    def model(x, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        cut = numpyro.sample("cut", dist.TransformedDistribution(
            dist.Normal(0.0, 3.0).expand([4]).to_event(1), dist.transforms.OrderedTransform()))  # fmt: skip
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.OrderedLogistic(x[i] @ beta, cut), obs=y[i])

    return model, as_data(x=x, y=y)


@case("survival: Weibull with right censoring, its likelihood by numpyro.factor", rows=(400,))
def survival(rng, N):
    x = rng.normal(size=(N, 2))
    life = rng.weibull(1.6, N) * np.exp(1.0 + x @ [0.5, -0.3])
    limit = rng.exponential(5.0, N)

    def model(x, time, died, batch=None):
        shape = numpyro.sample("shape", dist.LogNormal(0.0, 1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1] + 1]).to_event(1))
        with rows(x.shape[0], batch) as i:
            log_ratio = shape * (jnp.log(time[i]) - beta[0] - x[i] @ beta[1:])
            hazard = jnp.log(shape) - jnp.log(time[i]) + log_ratio
            numpyro.factor("death", jnp.where(died[i], hazard, 0.0) - jnp.exp(log_ratio))

    return model, as_data(x=x, time=np.minimum(life, limit), died=life < limit)


@case("robust: Student t errors with unknown degrees of freedom", rows=(500,))
def robust(rng, N):
    x = rng.normal(size=(N, 5))
    y = x @ rng.normal(size=5) + 0.5 * rng.standard_t(2.5, N)

    def model(x, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([x.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfCauchy(1.0))
        nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.StudentT(nu, x[i] @ beta, sigma), obs=y[i])

    return model, as_data(x=x, y=y)


@case("regularised horseshoe, 40 inputs of which 4 matter", rows=(200,), truth=False)
def horseshoe(rng, N):
    x = rng.normal(size=(N, 40))
    y = x[:, :4] @ [2.0, -1.5, 1.0, 0.7] + rng.normal(size=N)

    def model(x, y=None, batch=None):
        D = x.shape[1]
        tau = numpyro.sample("tau", dist.HalfCauchy(0.1))
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0).expand([D]).to_event(1))
        slab = numpyro.sample("slab", dist.InverseGamma(2.0, 8.0))
        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([D]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        width = jnp.sqrt(slab * lam**2 / (slab + tau**2 * lam**2))
        beta = numpyro.deterministic("beta", raw * tau * width)
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(x[i] @ beta, sigma), obs=y[i])

    return model, as_data(x=x, y=y)


@case("probit with a factor of 100 levels", rows=(2000,))
def shops(rng, N):
    shop, price = rng.integers(0, 100, N), rng.normal(size=N)
    y = rng.normal(size=100)[shop] - 0.8 * price + rng.normal(size=N) > 0

    def model(shop, price, bought, batch=None):
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([100]).to_event(1))
        with rows(shop.shape[0], batch) as i:
            p = jax.scipy.stats.norm.cdf(tau * effect[shop[i]] + slope * price[i])
            numpyro.sample("y", dist.Bernoulli(probs=jnp.clip(p, 1e-6, 1 - 1e-6)), obs=bought[i])

    return model, as_data(shop=shop.astype(np.uint8), price=price, bought=y)


@case("shares of land: beta regression", rows=(300,))
def land(rng, N):
    x = rng.normal(size=(N, 2))
    mean = expit(0.3 + x @ [0.8, -0.5])
    y = np.clip(rng.beta(mean * 12, (1 - mean) * 12), 1e-4, 1 - 1e-4)

    def model(x, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1] + 1]).to_event(1))
        phi = numpyro.sample("phi", dist.HalfCauchy(10.0))
        with rows(x.shape[0], batch) as i:
            mean = jax.nn.sigmoid(beta[0] + x[i] @ beta[1:])
            numpyro.sample("y", dist.BetaProportion(mean, phi), obs=y[i])

    return model, as_data(x=x, y=y)


@case("Poisson with offsets and counts near a million", rows=(300,))
def traffic(rng, N):
    x = rng.normal(size=(N, 2))
    log_size = rng.normal(13.0, 0.7, N)
    y = rng.poisson(np.exp(log_size + x @ [0.05, -0.02]))

    def model(x, log_size, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1] + 1]).to_event(1))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Poisson(jnp.exp(log_size[i] + beta[0] + x[i] @ beta[1:])), obs=y[i])

    return model, as_data(x=x, log_size=log_size, y=y)


@case("columns in units from 1e-6 to 1e6, priors to match, coefficients in the same units", rows=(400,))
def units(rng, N):
    scale = np.array([1e-6, 1e-3, 1.0, 1e3, 1e6])
    x = rng.normal(size=(N, 5)) * scale
    y = x @ (rng.normal(size=5) / scale) + 0.5 * rng.normal(size=N)

    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0 / jnp.asarray(scale, jnp.float32)).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Normal(x[i] @ w, sigma), obs=y[i])

    return model, as_data(x=x, y=y)


@case("median regression: asymmetric Laplace", rows=(500,))
def wages(rng, N):
    x = rng.normal(size=(N, 3))
    y = 2.0 + x @ [0.3, 0.1, -0.2] + rng.exponential(1.0, N)

    def model(x, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 3.0).expand([x.shape[1] + 1]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.AsymmetricLaplaceQuantile(beta[0] + x[i] @ beta[1:], sigma, 0.5), obs=y[i])

    return model, as_data(x=x, y=y)


@case("logistic regression", rows=(100, 100_000, 1_000_000), truth=False)
def clicks(rng, N):
    x = rng.normal(size=(N, 8)).astype(np.float32)
    y = rng.random(N) < expit(x @ np.linspace(-1.0, 1.0, 8) - 1.0)

    def model(x, y=None, batch=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0.0, 3.0))
        with rows(x.shape[0], batch) as i:
            numpyro.sample("y", dist.Bernoulli(logits=x[i] @ w + b), obs=y[i])

    return model, as_data(x=x, y=y)


@case("gamma regression with a hierarchy of 50 regions", rows=(100, 100_000), truth=False)
def costs(rng, N):
    x, region = rng.normal(size=(N, 3)).astype(np.float32), rng.integers(0, 50, N)
    mean = np.exp(1.0 + x @ [0.3, 0.0, -0.2] + 0.3 * rng.normal(size=50)[region])
    y = rng.gamma(2.0, mean / 2.0)

    def model(x, region, y=None, batch=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[1] + 1]).to_event(1))
        tau = numpyro.sample("tau", dist.HalfNormal(0.5))
        shape = numpyro.sample("shape", dist.LogNormal(0.0, 1.0))
        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([50]).to_event(1))
        with rows(x.shape[0], batch) as i:
            mean = jnp.exp(beta[0] + x[i] @ beta[1:] + tau * raw[region[i]])
            numpyro.sample("y", dist.Gamma(shape, shape / mean), obs=y[i])

    return model, as_data(x=x, region=region, y=y)
