"""The estimators driven by a user's own loop, and by NumPyro's SVI: docs/own-loop.md and what it promises."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import (
    AutoBNAFNormal,
    AutoDiagonalNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.util import potential_energy

import lowvar
from lowvar.vi.batches import reshuffled

N, B = 23, 5  # the last batch has three rows
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
DATA = {"x": jnp.asarray(X), "y": jnp.asarray(RNG.poisson(np.exp(X @ np.array([0.5, -0.3]))))}


def model(x, y=None, batch_size=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.Normal(0.0, scale).expand([2]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(x[i] @ w)), obs=None if y is None else y[i])


@pytest.mark.long
def test_both_loops_of_the_page_reach_the_same_elbo(repository):
    page: dict = {}
    with jax.numpy_rank_promotion("allow"):
        for block in re.findall(r"```python\n(.*?)```", (repository / "docs/own-loop.md").read_text(), flags=re.DOTALL):
            exec(compile(block, "own-loop.md", "exec"), page)
    found, elbo = page["result"].params, jax.jit(page["problem"].elbo)
    of_svi = {"mu": found["w_auto_loc"], "log_sigma": jnp.log(found["w_auto_scale"])}
    start, own, svi = (
        float(elbo(jax.tree.map(jnp.asarray, dict(one)), page["eps"])[0])
        for one in (page["problem"].start, page["params"], of_svi)
    )
    assert own == pytest.approx(svi, abs=0.15)  # nats
    assert start < own - 20


@pytest.mark.parametrize("estimator", ["joint", pytest.param("joint_adaptive", marks=pytest.mark.long)])
def test_the_gradient_of_the_loss_is_the_estimate(estimator, rng):
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
        mu, log_sigma = jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.normal(size=3) - 1)
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


ROWS, BATCH = 20, 5  # of a linear regression, whose sites are not in alphabetical order
LX = np.column_stack([RNG.normal(size=(ROWS, 2)), np.ones(ROWS)])
LINEAR = {"x": jnp.asarray(LX), "y": jnp.asarray(LX @ np.array([1.0, -0.5, 2.0]) + RNG.normal(size=ROWS))}


def linear(x, y, batch=BATCH):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", ROWS, subsample_size=batch) as i:
        numpyro.sample("y", dist.Normal(x[i, :2] @ w + bias, 1.0), obs=y[i])


def energy(z):
    """Of ``z`` in the order of NumPyro's joint guides, that of the model."""
    return potential_energy(linear, (), LINEAR | {"batch": ROWS}, {"w": z[:2], "bias": z[2]})


def exact_loss(guide, params):
    """The negative ELBO of a Gaussian on a quadratic energy: ``U(mu) + tr(H C) / 2 - entropy``."""
    posterior = guide.get_posterior(params)
    C = jnp.diag(posterior.variance) if isinstance(guide, AutoDiagonalNormal) else posterior.covariance_matrix
    entropy = 0.5 * jnp.linalg.slogdet(2 * jnp.pi * jnp.e * C)[1]
    hessian = jax.hessian(energy)(jnp.zeros(3))
    return energy(posterior.mean) + 0.5 * jnp.trace(hessian @ C) - entropy


GUIDES = {
    "diagonal": (AutoDiagonalNormal, {}, {"auto_scale": jnp.array([0.3, 0.5, 0.2])}),
    "full": (AutoMultivariateNormal, {}, {"auto_scale_tril": jnp.array([[0.3, 0, 0], [0.2, 0.4, 0], [-0.1, 0.3, 0.2]])}),
    "low": (AutoLowRankMultivariateNormal, {"rank": 1},
            {"auto_scale": jnp.array([0.3, 0.5, 0.2]), "auto_cov_factor": jnp.array([[0.5], [-0.4], [0.8]])}),
}  # fmt: skip


def set_up(form, **options):
    """NumPyro's guide, its parameters, and the gradient of a ``JointELBO``, ``(key, params, state)``."""
    kind, its, scales = GUIDES[form]
    guide = kind(linear, **its)
    with numpyro.handlers.seed(rng_seed=0):
        guide(**LINEAR)
    loss = lowvar.JointELBO(linear, LINEAR, guide=guide, estimator="joint_svrg", **options)

    def gradient(key, params, state):
        def value(params):
            found = loss.loss_with_mutable_state(key, params | state, None, guide)
            return found["loss"], found["mutable_state"]

        return jax.grad(value, has_aux=True)(params)

    return guide, {"auto_loc": jnp.array([0.6, -0.1, 1.2])} | scales, loss, gradient


def lower(gradient):
    """The parameter ``auto_scale_tril`` of NumPyro is a lower triangle."""
    return {name: jnp.tril(value) if "tril" in name else value for name, value in gradient.items()}


@pytest.mark.parametrize("form", ["full", *(pytest.param(one, marks=pytest.mark.long) for one in ("diagonal", "low"))])
def test_the_gradient_under_numpyros_guides_has_the_exact_mean(form):
    """In the parameters of NumPyro's guide, by its own densities.

    Particles at the nodes of a cubature of degree three, with equal weights, integrate the quadratic energy exactly.
    """
    guide, params, loss, gradient = set_up(form, batch_size=ROWS)
    loss._gaussian = SimpleNamespace(
        draw=lambda key, dim, dtype: dim**0.5 * jnp.concatenate([jnp.eye(dim, dtype=dtype), -jnp.eye(dim, dtype=dtype)])
    )
    one, state = jax.jit(gradient), {"lowvar": loss._before}
    _, state = one(jax.random.key(0), jax.tree.map(lambda leaf: 0.9 * leaf, params), state)  # a memory from elsewhere
    found, _ = one(jax.random.key(1), params, state)
    exact = jax.jit(jax.grad(lambda params: exact_loss(guide, params)))(params)
    for name, value in lower(exact).items():
        np.testing.assert_allclose(lower(found)[name], value, rtol=1e-8, atol=1e-9 * float(jnp.abs(value).max()))


@pytest.mark.long
@pytest.mark.parametrize("form", GUIDES)
def test_the_gradient_under_numpyros_guides_has_less_variance_than_numpyros(form):
    """In batches of 5 out of 20 rows; the means of both agree with the exact gradient."""
    guide, params, loss, gradient = set_up(form, batch_size=BATCH)
    one, state = jax.jit(gradient), {"lowvar": loss._before}
    for t in range(ROWS // BATCH):  # an epoch elsewhere, which leaves the memory at other parameters
        _, state = one(jax.random.key(t), jax.tree.map(lambda leaf: 0.9 * leaf, params), state)
    keys = jax.random.split(jax.random.key(99), 4000)

    def of_trace(key):
        return jax.grad(lambda params: Trace_ELBO().loss(key, params, linear, guide, **LINEAR))(params)

    mine = jax.jit(jax.vmap(lambda key: gradient(key, params, state)[0]))(keys)
    theirs = jax.jit(jax.vmap(of_trace))(keys)
    exact = lower(jax.jit(jax.grad(lambda params: exact_loss(guide, params)))(params))
    squares = np.zeros((2, len(keys)))
    for k, found in enumerate((mine, theirs)):
        for name, value in jax.jit(jax.vmap(lower))(found).items():
            away = np.asarray(value) - np.asarray(exact[name])
            assert (np.abs(away.mean(0)) <= 5 * away.std(0) / len(keys) ** 0.5 + 1e-9).all(), (k, name)
            squares[k] += (away**2).reshape(len(keys), -1).sum(1)
    rng = np.random.default_rng(0)
    ratios = [float(np.divide(*squares[:, rng.integers(0, len(keys), len(keys))].mean(1))) for _ in range(200)]
    low, high = np.quantile(ratios, [0.025, 0.975])
    # the mean-field control variates leave the scales alone
    assert high < {"diagonal": 0.9, "full": 0.3, "low": 0.4}[form], (low, high)


def with_param(x, y):
    b = numpyro.param("b", 0.0)
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(x[i, 0] * w + b)), obs=y[i])


FALLING = {"kind": "step", "beta": 0.5, "r": 2}


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (model, {"guide": AutoBNAFNormal(model)}, "AutoBNAFNormal: the guide must be"),
        (model, {"estimator": "mlmc", "particles": 4, "schedule": FALLING}, "number of particles"),
        (with_param, {}, "'b' is a numpyro.param"),
    ],
)
def test_losses_that_are_refused(given, options, message):
    with pytest.raises(lowvar.UserError, match=message):
        lowvar.JointELBO(given, DATA, **options)


def test_a_loss_with_another_model_or_guide_is_refused():
    loss = lowvar.JointELBO(model, DATA, estimator="naive", batch_size=B)
    svi = SVI(model, AutoNormal(model), optax.adam(0.1), loss=loss)
    with pytest.raises(lowvar.UserError, match="SVI"):
        svi.run(jax.random.key(0), 2, progress_bar=False, **DATA)
    of_delta = {"scale_auto_loc": 1.0, "w_auto_loc": np.zeros(2)}
    of_full = {"auto_loc": np.zeros(3), "auto_scale_tril": np.eye(3)}
    for params in (of_delta, of_full):
        with pytest.raises(lowvar.UserError, match="AutoNormal"):
            loss.loss_with_mutable_state(jax.random.key(0), params | {"lowvar": loss._before}, loss.model, None)


@pytest.mark.parametrize(
    ("index", "options", "message"),
    [
        (np.arange(6), {"size": 5}, "index has 6 rows"),
        (np.arange(19, 24), {}, "index has row 23"),  # numbered from 1 on
        ([3, -1, 2, 0, 1], {}, "index has row -1"),
        (jnp.linspace(0.5, 4.5, 5), {}, "index is an array float"),
        (np.zeros((1, 5), int), {}, r"index is an array int64\[1, 5\]"),
        *((np.arange(B), {"position": one}, "position|batches") for one in (5, -1)),
    ],
)
def test_batches_that_are_refused(index, options, message):
    with pytest.raises(lowvar.UserError, match=message):
        lowvar.batch_noise(jax.random.key(0), lowvar.problem(model, DATA), index, **options)


def test_an_estimator_that_covers_epochs_asks_for_positions_and_whole_batches():
    problem, key = lowvar.problem(model, DATA), jax.random.key(0)
    joint, drawn = lowvar.estimator("joint", problem, B), lowvar.estimator("joint", problem, B, batches="iid")
    anywhere, few = (lowvar.batch_noise(key, problem, np.arange(rows)) for rows in (B, 3))
    with pytest.raises(lowvar.UserError, match="position"):
        jax.eval_shape(joint.estimate, (), problem.start, anywhere)
    with pytest.raises(lowvar.UserError, match="size=5"):
        joint.estimate(None, problem.start, few)
    start = jax.tree.map(jnp.asarray, dict(problem.start))
    jax.eval_shape(drawn.estimate, drawn.init(start), start, anywhere)  # needs no position


def test_rows_that_make_no_batches_are_told():
    def without_index(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.warns(UserWarning, match="every step uses all rows"):
        assert lowvar.problem(without_index, {"y": np.ones(9)}).N == 1
