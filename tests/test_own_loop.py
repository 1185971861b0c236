"""The estimators driven by a user's own loop, and by NumPyro's SVI: docs/own-loop.md and what it promises."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI
from numpyro.infer.autoguide import AutoDelta, AutoNormal

import lowvar
from lowvar.noise import reshuffled

N, B = 23, 5  # the last batch has three rows
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
DATA = {"x": jnp.asarray(X), "y": jnp.asarray(RNG.poisson(np.exp(X @ np.array([0.5, -0.3]))))}


def model(x, y=None, batch_size=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.Normal(0.0, scale).expand([2]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(x[i] @ w)), obs=None if y is None else y[i])


@pytest.fixture(scope="module")
def page():
    """The names that the page's code defines."""
    from pathlib import Path

    text = (Path(__file__).parents[1] / "docs" / "own-loop.md").read_text()
    scope: dict = {}
    with jax.numpy_rank_promotion("allow"):
        for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
            exec(compile(block, "own-loop.md", "exec"), scope)
    return scope


def test_both_loops_of_the_page_reach_the_elbo_of_a_fit(page):
    problem, eps = page["problem"], page["eps"]
    fit = lowvar.fit(page["model"], page["data"], batch_size=50, num_steps=400, step_size=0.02, khat_samples=0,
                     progress=False)  # fmt: skip
    found = page["result"].params
    of_svi = {"mu": found["w_auto_loc"], "log_sigma": jnp.log(found["w_auto_scale"])}
    reached, *others = (
        float(problem.elbo(jax.tree.map(jnp.asarray, params), eps)[0])
        for params in (fit.mean_field, page["params"], of_svi)
    )
    np.testing.assert_allclose(others, reached, atol=0.15)  # nats; the start is 20 nats below
    assert float(problem.elbo(jax.tree.map(jnp.asarray, dict(problem.start)), eps)[0]) < reached - 20
    assert set(page["named"]) == {"w_auto_loc", "w_auto_scale"}


@pytest.mark.parametrize("estimator", ["joint", "joint_adaptive", pytest.param("naive", marks=pytest.mark.long)])
def test_the_gradient_of_the_loss_is_the_estimate(estimator):
    """Over two epochs, with the noise drawn again here from the same keys."""
    loss = lowvar.JointELBO(model, DATA, estimator=estimator, batch_size=B, num_particles=2)
    problem = lowvar.problem(model, DATA)
    own, batches = lowvar.estimator(estimator, problem, B), reshuffled(N, B)
    scale, w = problem.sites["scale"], problem.sites["w"]
    state, memory = {"lowvar": loss._before}, None

    @jax.jit
    def of_loss(params, state, key):
        def value(params):
            found = loss.loss_with_mutable_state(key, params | state, None, None)
            return found["loss"], found["mutable_state"]

        return jax.grad(value, has_aux=True)(params)

    estimate = jax.jit(own.estimate)
    for t in range(2 * batches.steps):
        mu, log_sigma = jnp.asarray(RNG.normal(size=3)), jnp.asarray(RNG.normal(size=3) - 1)
        vectors = {"mu": mu, "log_sigma": log_sigma}
        params = {"scale_auto_loc": mu[scale][0], "w_auto_loc": mu[w]}
        params |= {"scale_auto_scale": jnp.exp(log_sigma[scale][0]), "w_auto_scale": jnp.exp(log_sigma[w])}
        key = jax.random.key(t)
        for_rows, for_eps = jax.random.split(key)
        position = t % batches.steps
        if t == 0:
            memory = own.init(vectors)
        if position == 0:
            memory, order = own.begin_epoch(memory, vectors), batches.draw(for_rows)
        rows = np.asarray(order[position])[: int(batches.rows[position])]
        noise = lowvar.batch_noise(for_eps, problem, rows, size=B, particles=2, position=position)
        expected, memory = estimate(memory, vectors, noise)
        if position == batches.steps - 1:
            memory = own.end_epoch(memory, order)
        found, state = of_loss(params, state, key)
        np.testing.assert_allclose(found["w_auto_loc"], expected["mu"][w], rtol=1e-9)
        np.testing.assert_allclose(found["scale_auto_loc"], expected["mu"][scale][0], rtol=1e-9)
        np.testing.assert_allclose(found["w_auto_scale"], expected["log_sigma"][w] / jnp.exp(log_sigma[w]), rtol=1e-9)


def test_mistakes_are_refused():
    loss = lowvar.JointELBO(model, DATA, estimator="naive", batch_size=B)
    with pytest.raises(
        lowvar.UserError, match=r"give SVI the loss's model, SVI\(loss.model, guide, optim, loss=loss\)"
    ):
        SVI(model, AutoNormal(model), optax.adam(0.1), loss=loss).run(jax.random.key(0), 2, progress_bar=False, **DATA)
    svi = SVI(loss.model, AutoDelta(model), optax.adam(0.1), loss=loss)
    with pytest.raises(lowvar.UserError, match="the guide must be an AutoNormal"):
        svi.run(jax.random.key(0), 2, progress_bar=False, **DATA)
    falling = {"kind": "step", "beta": 0.5, "r": 2}
    with pytest.raises(lowvar.UserError, match="'mlmc' changes its number of particles"):
        lowvar.JointELBO(model, DATA, estimator="mlmc", particles=4, schedule=falling)
    problem = lowvar.problem(model, DATA)
    with pytest.raises(lowvar.UserError, match="index has 6 rows; it must have between 1 and 5"):
        lowvar.batch_noise(jax.random.key(0), problem, np.arange(6), size=5)
    with pytest.raises(lowvar.UserError, match="did you mean 'joint'"):
        lowvar.estimator("jiont", problem)

    def with_param(x, y):
        b = numpyro.param("b", 0.0)
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", N, subsample_size=None) as i:
            numpyro.sample("y", dist.Poisson(jnp.exp(x[i, 0] * w + b)), obs=y[i])

    with pytest.raises(lowvar.UserError, match=r"'b' is a numpyro.param.*use lowvar.fit"):
        lowvar.JointELBO(with_param, DATA)
