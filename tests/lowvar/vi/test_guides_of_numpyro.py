"""Guides of NumPyro's, and their classes, as the guide of ``fit``."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import autoguide, init_to_median, init_to_value

import lowvar
from lowvar.vi.settings import problem_of

X = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
DATA = {"x": X, "y": X[:, 0]}


def model(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with numpyro.plate("rows", 30, subsample_size=10) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, s), obs=y[i])


def another(x, y):
    model(x, y)


class Changed(autoguide.AutoNormal):
    """A guide of which only its own code says what it does."""


@pytest.mark.parametrize(
    ("guide", "name", "options"),
    [
        (autoguide.AutoNormal(model), "mean_field", {}),
        (autoguide.AutoNormal, "mean_field", {}),
        (autoguide.AutoMultivariateNormal(model), "full_rank", {}),
        (partial(autoguide.AutoLowRankMultivariateNormal, rank=1), "low_rank", {"rank": 1}),
    ],
)
def test_the_guide_of_the_same_family(guide, name, options):
    found = problem_of(model, DATA, guide=guide).guide
    assert found.name == name
    assert all(getattr(found, key) == value for key, value in options.items())


def test_its_start():
    at = init_to_value(values={"w": jnp.array([3.0, -2.0]), "s": jnp.array(1.0)})
    problem = problem_of(model, DATA, guide=autoguide.AutoNormal(model, init_loc_fn=at))
    np.testing.assert_allclose(problem.start["mu"][problem.sites["w"]], [3.0, -2.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("guide", "init", "names"),
    [
        (autoguide.AutoDelta(model), None, "AutoDelta"),
        (Changed(model), None, "Changed"),
        (autoguide.AutoNormal(another), None, "another model"),
        (autoguide.AutoNormal(handlers.block(model, hide=["s"])), None, "another model"),
        (autoguide.AutoNormal(model, init_scale=0.01), None, "init_scale"),
        (autoguide.AutoNormal(model, prefix="q"), None, "prefix"),
        (autoguide.AutoNormal(model, init_loc_fn=init_to_median), {"s": 1.0}, "init_loc_fn"),
    ],
)
def test_others_are_refused(guide, init, names):
    with pytest.raises(lowvar.UserError, match=names):
        problem_of(model, DATA, guide=guide, init=init)
