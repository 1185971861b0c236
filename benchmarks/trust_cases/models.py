"""NumPyro models with simulated data: suitable for mean field, unsuitable for it, and with mistakes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from trust_cases.common import generator

STEPS_OF_CHECK = 20_000


@dataclass(frozen=True)
class Model:
    """A case.

    Attributes:
        name: name of the case, and of its data.
        what: description for the page.
        model: a model of the data and `batch_size`.
        data: simulates the data from a seed.
        unlike: whether mean field cannot represent the posterior, which must be reported; None if its k-hat is too
            close to 0.7. `--truths` measures it.
        mistake: the mistake in the model or its data, which must be rejected.
    """

    name: str
    what: str
    model: Callable
    data: Callable[[np.random.Generator], dict[str, Any]]
    unlike: bool | None = False
    mistake: str = ""

    def made(self) -> dict[str, Any]:
        return self.data(generator(self.name))


def plate(rows, batch_size, name="data"):
    return numpyro.plate(name, rows, subsample_size=batch_size)


# ------------------------------------------------------------------------------------- suitable for mean field


def overdispersed(x, exposure, y=None, batch_size=None):
    inverse = numpyro.sample("concentration", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    with plate(x.shape[0], batch_size) as i:
        mean = exposure[i] * jnp.exp(x[i] @ w)
        numpyro.sample("y", dist.NegativeBinomial2(mean, inverse), obs=None if y is None else y[i])


def _overdispersed(rng):
    x = np.column_stack([np.ones(800), rng.normal(size=(800, 3))])
    exposure = rng.gamma(2.0, size=800) + 0.1
    mean = exposure * np.exp(x @ np.array([0.3, 0.5, -0.4, 0.0]))
    return {"x": x, "exposure": exposure, "y": rng.poisson(rng.gamma(1.5, mean / 1.5))}


def outliers(x, y=None, batch_size=None):
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    slope = numpyro.sample("slope", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    with plate(len(x), batch_size) as i:
        mean = slope[0] + slope[1] * x[i]
        numpyro.sample("y", dist.StudentT(freedom, mean, scale), obs=None if y is None else y[i])


def _outliers(rng):
    x = rng.uniform(-2, 2, 400)
    return {"x": x, "y": 1 - 2 * x + 0.3 * rng.standard_t(2, 400)}


def schools(group, y=None, batch_size=None, groups=20):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    centre = numpyro.sample("centre", dist.Normal(0.0, 3.0))
    offset = numpyro.sample("offset", dist.Normal(0.0, 1.0).expand([groups]).to_event(1))
    noise = numpyro.sample("noise", dist.Exponential(1.0))
    with plate(len(group), batch_size) as i:
        numpyro.sample("y", dist.Normal(centre + spread * offset[group[i]], noise), obs=None if y is None else y[i])


def _schools(rng):
    group = rng.integers(20, size=160)
    return {"group": group, "y": 2 + 0.6 * rng.normal(size=20)[group] + 1.5 * rng.normal(size=160)}


def zeros(x, y=None, batch_size=None):
    gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate(len(x), batch_size) as i:
        numpyro.sample(
            "y", dist.ZeroInflatedPoisson(gate, jnp.exp(w[0] + w[1] * x[i])), obs=None if y is None else y[i]
        )


def _zeros(rng):
    x = rng.normal(size=1000)
    return {"x": x, "y": rng.poisson(np.exp(0.8 + 0.5 * x)) * (rng.random(1000) > 0.35)}


def local(y=None, batch_size=None, rows=1000):
    centre = numpyro.sample("centre", dist.Normal(0.0, 3.0))
    with plate(rows, batch_size) as i:
        effect = numpyro.sample("effect", dist.Normal(centre, 1.0))
        numpyro.sample("y", dist.Normal(effect, 0.5), obs=None if y is None else y[i])


def units(income, age, y=None, batch_size=None):
    a = numpyro.sample("a", dist.Normal(0.0, 100.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    c = numpyro.sample("c", dist.Normal(0.0, 10.0))
    with plate(len(income), batch_size) as i:
        numpyro.sample("y", dist.Normal(a + b * income[i] + c * age[i], 5.0), obs=None if y is None else y[i])


def _units(rng):
    income, age = rng.gamma(4.0, 8000.0, 500) - 32000, rng.normal(0, 12, 500)
    return {"income": income, "age": age, "y": 140 + 5e-4 * income + 0.6 * age + 5 * rng.normal(size=500)}


def sparse(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Laplace(0.0, 0.3).expand([x.shape[1]]).to_event(1))
    with plate(x.shape[0], batch_size) as i:
        numpyro.sample("y", dist.Bernoulli(logits=x[i] @ w), obs=None if y is None else y[i])


def _sparse(rng):
    x = rng.normal(size=(150, 60))
    chance = 1 / (1 + np.exp(-x[:, :3] @ np.array([2.0, -2.0, 1.0])))
    return {"x": x, "y": (rng.random(150) < chance) * 1}


def survival(x, time, died, batch_size=None):
    shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate(len(x), batch_size) as i:
        log_scale = w[0] + w[1] * x[i]
        power = (time[i] / jnp.exp(log_scale)) ** shape
        hazard = jnp.log(shape) - log_scale + (shape - 1) * (jnp.log(time[i]) - log_scale)
        numpyro.factor("likelihood", died[i] * hazard - power)


def _survival(rng):
    x = rng.normal(size=40)
    life, end = np.exp(1 + 0.5 * x) * rng.weibull(1.5, 40), rng.uniform(0.5, 6, 40)
    return {"x": x, "time": np.minimum(life, end), "died": (life < end) * 1.0}


# ------------------------------------------------------------------------------- unsuitable for mean field


def twins(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    with plate(x.shape[0], batch_size) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, 1.0), obs=None if y is None else y[i])


def _twins(rng):
    first = rng.normal(size=200)
    x = np.column_stack([first, first + 0.03 * rng.normal(size=200)])
    return {"x": x, "y": x.sum(1) + rng.normal(size=200)}


def ridge(y=None, batch_size=None, rows=60):
    a, b = numpyro.sample("a", dist.Normal(0.0, 2.0)), numpyro.sample("b", dist.Normal(0.0, 2.0))
    with plate(rows, batch_size) as i:
        numpyro.sample("y", dist.Normal(a * b, 0.5), obs=None if y is None else y[i])


def centred(group, y=None, batch_size=None, groups=12):
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    effect = numpyro.sample("effect", dist.Normal(0.0, spread).expand([groups]).to_event(1))
    with plate(len(group), batch_size) as i:
        numpyro.sample("y", dist.Normal(effect[group[i]], 3.0), obs=None if y is None else y[i])


def normal(y=None, batch_size=None, rows=60):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    scale = numpyro.sample("scale", dist.HalfNormal(10.0))
    with plate(rows, batch_size) as i:
        numpyro.sample("y", dist.Normal(mu, scale), obs=None if y is None else y[i])


# ------------------------------------------------------------------------------------------------- mistakes


def grouped(group, y=None, batch_size=None, groups=5):
    with numpyro.plate("groups", groups):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    with plate(len(group), batch_size) as i:
        numpyro.sample("y", dist.Normal(effect[group[i]], 1.0), obs=None if y is None else y[i])


def lagged(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with plate(len(x), batch_size) as i:
        numpyro.sample("y", dist.Normal(w * y[i - 1], 1.0), obs=y[i])


def within_batch(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with plate(len(x), batch_size) as i:
        here = x[i]
        scaled = (here - here.mean()) / (here.std() + 1e-3)
        numpyro.sample("y", dist.Normal(w * scaled, 1.0), obs=None if y is None else y[i])


def column(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with plate(x.shape[0], batch_size) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, 1.0), obs=None if y is None else y[i])


def half_indexed(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with plate(len(x), batch_size) as i:
        numpyro.sample("y", dist.Normal(w * x[i], 1.0), obs=y)


def by_place(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with plate(len(x), batch_size) as i:
        numpyro.sample("y", dist.Normal(w * x[i], 1.0), obs=y[: len(i)])


def labelled(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with plate(len(x), batch_size) as i:
        numpyro.sample("y", dist.Bernoulli(logits=w * x[i]), obs=None if y is None else y[i])


def one_row_at_a_time(group, y=None, batch_size=None):
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    with plate(len(group), batch_size) as i:
        mean = jax.vmap(lambda row: effect[group[row]])(i)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=None if y is None else y[i])


def ordered(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 2.0))
    spread = dist.Normal(0.0, 2.0).expand([3]).to_event(1)
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(spread, dist.transforms.OrderedTransform()))
    with plate(len(x), batch_size) as i:
        numpyro.sample("y", dist.OrderedLogistic(w * x[i], cuts), obs=None if y is None else y[i])


def _ordered(rng):
    x = rng.normal(size=300)
    return {"x": x, "y": np.digitize(x + rng.logistic(size=300), [-1.0, 0.0, 1.0])}


def slope(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with plate(len(x), batch_size) as i:
        numpyro.sample("y", dist.Normal(w * x[i], 1.0), obs=None if y is None else y[i])


def _line(rng, rows=300):
    x = rng.normal(size=rows)
    return {"x": x, "y": 0.7 * x + rng.normal(size=rows)}


def _missing(rng):
    made = _line(rng)
    made["y"][17] = np.nan
    return made


def _columns(rng):
    x = rng.normal(size=(300, 2))
    return {"x": x, "y": x @ np.ones((2, 1)) + rng.normal(size=(300, 1))}


CASES = (
    Model("counts_with_exposure", "negative binomial regression with exposures, 800 rows", overdispersed,
          _overdispersed),
    Model("outliers", "Student t regression whose degrees of freedom are unknown, 400 rows", outliers, _outliers),
    Model("groups_not_centred", "20 groups, a hierarchy that is not centred, 160 rows", schools, _schools,
          unlike=None),
    Model("inflated_zeros", "zero-inflated Poisson regression, 1000 rows", zeros, _zeros),
    Model("columns_of_unlike_units", "linear regression on income and age as they are, 500 rows", units, _units),
    Model("ordered_categories", "ordinal regression, whose cut points are correlated, 300 rows", ordered, _ordered,
          unlike=None),
    Model("latent_in_the_plate", "an effect for every row, in the data plate, 1000 rows", local,
          lambda rng: {"y": rng.normal(size=1000)}, unlike=None),
    Model("sparse_prior", "logistic regression with a Laplace prior, 60 inputs, 150 rows", sparse, _sparse,
          unlike=True),
    Model("censored_survival", "Weibull survival with censoring by numpyro.factor, 40 rows", survival, _survival),
    Model("twin_columns", "two inputs that are nearly equal, 200 rows", twins, _twins, unlike=True),
    Model("product_of_two", "only the product of two numbers is seen, 60 rows", ridge,
          lambda rng: {"y": 1.0 + 0.5 * rng.normal(size=60)}, unlike=True),
    Model("groups_centred", "12 groups of two rows, a centred hierarchy that is nearly a funnel", centred,
          lambda rng: {"group": np.arange(24) % 12, "y": 3.0 * rng.normal(size=24)}, unlike=True),
    Model("mean_and_scale", "mean and standard deviation of 60 normal numbers", normal,
          lambda rng: {"y": rng.normal(5.0, 3.0, 60)}),
    Model("groups_from_one", "group numbers from 1 to 5 for 5 groups", grouped,
          lambda rng: {"group": 1 + np.arange(200) % 5, "y": rng.normal(size=200)}, mistake="index out of range"),
    Model("missing_category", "categories of pandas, some missing: their code is -1", grouped,
          lambda rng: {"group": np.where(rng.random(200) < 0.1, -1, np.arange(200) % 5), "y": rng.normal(size=200)},
          mistake="index out of range"),
    Model("lag_before_the_first", "the lag of the first row is the last row", lagged, _line,
          mistake="index out of range"),
    Model("scaled_within_the_batch", "inputs standardised by the batch's own mean", within_batch, _line,
          mistake="rows interact"),
    Model("column_against_vector", "y of shape (N, 1) against means of shape (N,)", column, _columns,
          mistake="shapes broadcast"),
    Model("half_indexed", "x is indexed by the plate, y is not: fitted with all rows at every step", half_indexed,
          lambda rng: _line(rng, 80)),
    Model("labels_from_one", "labels 1 and 2 of a Bernoulli", labelled,
          lambda rng: {"x": rng.normal(size=300), "y": 1 + np.arange(300) % 2}, mistake="outside the support"),
    Model("rows_by_place", "y[:len(index)] in place of y[index]", by_place, _line, mistake="rows interact"),
    Model("missing_category_under_vmap", "rows are read one at a time; a missing category is -1", one_row_at_a_time,
          lambda rng: {"group": np.where(rng.random(200) < 0.1, -1, np.arange(200) % 5), "y": rng.normal(size=200)},
          mistake="index out of range"),
    Model("missing_value", "one y is NaN", slope, _missing, mistake="missing value"),
)  # fmt: skip
