"""Local latent variables: a step computes with its batch's rows, and gives the gradient of all of them."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import lowvar
from lowvar.core.gaussian import independent
from lowvar.core.optimizers import optimizer
from lowvar.errors import UserError
from lowvar.vi.batches import Noise, iid, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.guides.gaussian import MeanField
from lowvar.vi.judgement import gain
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.settings import check_by_row, check_transformation, settings_of

LOCAL = "naive", "stl", "cv", "joint_svrg", "joint_adaptive"


def counts(y, batch_size=None):
    """Two sites of the rows, one of them with a Jacobian and a shared parent."""
    m = numpyro.sample("m", dist.Normal(0, 1))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
        a = numpyro.sample("a", dist.Normal(m, spread))
        k = numpyro.sample("k", dist.Gamma(2.0, 2.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Poisson(k.sum(-1) * jnp.exp(a)), obs=y[index])


def effects(y, batch_size=None):
    m = numpyro.sample("m", dist.Normal(0, 3))
    with numpyro.plate("data", y.shape[0], subsample_size=batch_size) as index:
        u = numpyro.sample("u", dist.Normal(m, 1))
        numpyro.sample("y", dist.Normal(u, 1), obs=y[index])


def quiet(model=effects, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(model, progress=False, khat_samples=0, elbo_samples=16, **options)


@functools.cache
def problem_of(N=5):
    return from_numpyro(counts, {"y": np.arange(N)}, key=jax.random.key(0))


def start_of(p):
    return {block: jnp.asarray(value) for block, value in p.start.items()}


def estimate(name, q, params, noise, state=()):
    """An estimator's gradient of a batch, in the coordinates of all rows, as a descent counts it."""
    at = q.rows.coordinates(noise.index)
    here = jax.tree.map(lambda leaf: leaf[at], params)
    made = GRADIENT.get(name)(q, reshuffled(q.N, len(noise.index)))
    state = jax.tree.map(lambda leaf: leaf[at], state)
    gradient, _ = made.estimate(state, here, noise._replace(eps=noise.eps[:, at]))
    counted = q.rows.by_row(q.N * noise.weight)
    return {block: jnp.zeros(q.rows.dim).at[at].add(value * counted) for block, value in gradient.items()}


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.long) for one in LOCAL[:-1]] + ["joint_adaptive"])
def test_gradient_is_that_of_all_rows(name, rng):
    """The mean over all batches, with a snapshot elsewhere, and coefficients of 0.7.

    It is over Gauss-Hermite points too, for which linear and quadratic controls have mean zero as for the normal.
    """
    p = problem_of()
    q = p.of_batch(2)
    assert (q.dim, p.dim) == (2 + 2 * 3, 2 + 5 * 3)
    params = start_of(p)
    old = {block: value + 0.2 * rng.normal(size=value.shape) for block, value in params.items()}
    signs = jax.random.rademacher(jax.random.key(1), (p.noise_dim,), float)
    eps = 3**0.5 * jnp.array([1.0, -1, 0, 0, 0, 0])[:, None] * signs[None]
    every = Noise(jnp.arange(5), jnp.full(5, 0.2), jnp.asarray(5.0), eps, jnp.asarray(0))
    dense, _ = jax.jit(lambda: GRADIENT.get("stl" if name == "stl" else "naive")(p).estimate((), params, every))()
    state = jax.jit(GRADIENT.get(name)(q, reshuffled(5, 2)).init)(old)
    if name == "joint_adaptive":
        one = jax.tree.map(jnp.ones_like, state["products"])
        state = {**state, "products": jax.tree.map(lambda leaf: -0.7 * leaf, one), "squares": one}

    def of_pair(index, eps):
        noise = Noise(index, jnp.full(2, 0.5), jnp.asarray(2.0), eps[None], jnp.asarray(0))
        return estimate(name, q, params, noise, state)

    pairs = jnp.array([(i, j) for i in range(5) for j in range(i)])
    found = jax.jit(jax.vmap(jax.vmap(of_pair, (0, None)), (None, 0)))(pairs, eps)
    assert float(jnp.abs(found["log_sigma"].mean(1) - dense["log_sigma"][None]).max()) > 0.1  # of each point
    found = jax.tree.map(lambda leaf: leaf.mean((0, 1)), found)
    for block, value in dense.items():
        np.testing.assert_allclose(found[block], value, rtol=1e-9, atol=1e-9, err_msg=block)


def test_a_guide_of_ones_own_computes_with_all_rows():
    class Mine(MeanField):
        name = "mine"

    def mine(dim, backend, noiseless, sites):
        return Mine(dim, backend, noiseless)

    p = from_numpyro(counts, {"y": np.arange(5)}, guide=mine)
    assert p.of_batch(2) is p
    assert problem_of().of_batch(2).dim < p.dim


def test_full_pass_and_padding():
    p = problem_of()
    q = p.of_batch(2)
    z = jnp.asarray(p.start["mu"])
    np.testing.assert_allclose(jax.jit(q.full_gradient)(z), jax.jit(p.full_gradient)(z), rtol=1e-9, atol=1e-9)
    params = start_of(p)
    eps = jax.random.normal(jax.random.key(1), (1, p.noise_dim))
    alone = Noise(jnp.array([3]), jnp.ones(1), jnp.asarray(1.0), eps, jnp.asarray(0))
    padded = alone._replace(index=jnp.array([3, 3]), weight=jnp.array([1.0, 0.0]))
    first, second = (jax.jit(lambda n: estimate("naive", q, params, n))(noise) for noise in (alone, padded))
    for block, value in first.items():
        np.testing.assert_allclose(second[block], value, rtol=1e-9, atol=1e-12)


def descent(p):
    """Adam on the part of a batch, ``(part, sampler, solver, state)``."""
    q = p.of_batch(3)
    draw = sampler(reshuffled(7, 3), independent(1), q.noise_dim, p.dtype)
    solver = descend(GRADIENT.get("naive")(q), draw, optimizer("adam", 0.1, p.backend))
    return q, draw, solver, jax.jit(solver.init)(start_of(p))


@pytest.mark.long
def test_rows_and_their_moments_change_at_visits_only():
    q, draw, solver, state = descent(problem_of(7))
    noise = jax.jit(draw.epoch)(jax.random.key(3))
    steps = jax.jit(solver.step)
    moved = steps(state, jax.tree.map(lambda leaf: leaf[0], noise))
    visited = set(np.asarray(noise.index[0]).tolist())
    changed = [
        np.asarray(a != b) for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(state), strict=True) if a.ndim
    ]
    assert len(changed) == 6  # means, scales, and Adam's two moments of each
    for one in changed:
        assert one[q.rows.shared].all()
        assert {n for n in range(7) if one[q.rows.own[n]].all()} == visited
        assert {n for n in range(7) if one[q.rows.own[n]].any()} == visited
    whole, by_hand = jax.jit(solver.epoch)(state, noise), moved  # its last batch is padded
    for k in (1, 2):
        by_hand = steps(by_hand, jax.tree.map(lambda leaf, k=k: leaf[k], noise))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_refusals():
    q = problem_of().of_batch(2)
    for name in (*LOCAL, "joint", "joint_current", "inc", "ensemble", "full_naive", "full_cv", "mlmc", "storm"):
        assert GRADIENT.get(name)(q, reshuffled(5, 2)).properties.local == (name in LOCAL), name
    with pytest.raises(UserError, match="cannot use 'iid'"):
        descend(GRADIENT.get("naive")(q), sampler(iid(5, 2), independent(1), q.noise_dim), None)
    with pytest.raises(UserError, match="'joint' takes no latent variables in the data plate"):
        lowvar.fit(counts, {"y": np.arange(5)}, estimator="joint", num_steps=2)


@pytest.mark.parametrize("transformation", [optax.lamb(0.01), optax.MultiSteps(optax.adam(0.01), 2)])
def test_transformations_that_mix_rows_are_refused(transformation):
    settings = {"optimizer": transformation, "step_size": None, "num_steps": 4, "num_particles": 1, "elbo_samples": 16}
    with pytest.raises(UserError, match="give 'adam', or batch_size=5"):
        check_by_row(transformation, problem_of())
    assert settings_of(problem_of(), batch_size=5, **settings).own["transformation"] is transformation


def test_other_transformations_are_taken_and_the_user_is_told_that_rows_stand_still_between_their_visits(rng):
    check_by_row(optax.adamw(optax.linear_schedule(0.0, 0.01, 10)), problem_of())
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01))  # the batch's gradient has no other rows
    settings = {"batch_size": 5, "num_steps": 8, "optimizer": clipped, "estimator": "naive"}
    with pytest.warns(UserWarning, match="stand still in between"):
        lowvar.fit(effects, {"y": rng.normal(size=20)}, khat_samples=0, progress=False, **settings)


def test_transformations_that_climb_are_refused():
    """They would diverge, whatever the step size."""
    with pytest.raises(UserError, match="log_sigma, mu go up the gradient"):
        check_transformation(optax.scale_by_adam(), problem_of())


def operations(jaxpr, size):
    """The names of the operations that give arrays of ``size`` entries."""
    names = set()
    for equation in jaxpr.eqns:
        inner = [part for part in equation.params.values() if hasattr(part, "jaxpr")]
        if any(size in getattr(made.aval, "shape", ()) for made in equation.outvars) and not inner:
            names.add(equation.primitive.name)
        for part in inner:
            names |= operations(part.jaxpr, size)
    return names


def test_a_step_computes_with_its_batch():
    """All that it does to arrays of all rows, it does by writing those of the batch."""
    q, draw, solver, state = descent(problem_of(7))
    noise = jax.eval_shape(lambda key: jax.tree.map(lambda leaf: leaf[0], draw.epoch(key)), jax.random.key(3))
    assert q.rows.dim == 2 + 7 * 3
    assert operations(jax.make_jaxpr(solver.step)(state, noise).jaxpr, q.rows.dim) == {"scatter"}


def best_and_elbo(y):
    """The largest ELBO of a mean-field fit of ``effects``, and the ELBO as a function of a fit's parameters; exact."""
    N, constant = len(y), -0.5 * np.log(2 * np.pi)

    def elbo(p):
        m, sm, u, su = (np.asarray(p[f"{site}_auto_{end}"], float) for site in "mu" for end in ("loc", "scale"))
        prior = constant - np.log(3) - (m**2 + sm**2) / 18
        rows = 2 * constant - 0.5 * ((u - m) ** 2 + su**2 + sm**2) - 0.5 * ((y - u) ** 2 + su**2)
        return prior + rows.sum() + np.log(sm) + np.log(su).sum() - (N + 1) * (constant - 0.5)

    precision = np.diag(np.append(1 / 9 + N, np.full(N, 2.0)))
    precision[0, 1:] = precision[1:, 0] = -1
    mean = np.linalg.solve(precision, np.append(0, y))
    scale = np.diag(precision) ** -0.5
    best = {"m_auto_loc": mean[0], "m_auto_scale": scale[0], "u_auto_loc": mean[1:], "u_auto_scale": scale[1:]}
    return elbo(best), elbo


@pytest.mark.long
def test_mini_batches_reach_the_optimum():
    """In nats of the exact ELBO, with 100 visits to each of 500 rows; 14.5 were lacking with dense moments."""
    rows = np.random.default_rng(0).normal(size=500) * 1.4
    best, elbo = best_and_elbo(rows)
    assert 0 < best - elbo(quiet(data={"y": rows}, batch_size=10, num_steps=5000).params) < 2.5


def test_gain_is_that_of_the_elbo(rng):
    """On a quadratic log density, in the means of the rows, which the shared variable does not move."""
    y = rng.normal(size=40)
    _, elbo = best_and_elbo(y)
    p = from_numpyro(effects, {"y": y})
    params = {"m_auto_loc": np.float64(0.3), "m_auto_scale": 0.2, "u_auto_scale": np.full(40, 0.5**0.5)}
    optimum = (params["m_auto_loc"] + y) / 2
    shift = 0.5 * rng.normal(size=40)
    mean_field = {"mu": jnp.append(0.3, optimum + shift), "log_sigma": jnp.log(jnp.append(0.2, np.full(40, 0.5**0.5)))}
    assert list(p.sites) == ["m", "u"]
    gains, _ = gain(p, mean_field, jax.random.key(0))
    exact = elbo({**params, "u_auto_loc": optimum}) - elbo({**params, "u_auto_loc": optimum + shift})
    assert exact > 5
    assert gains[1:].sum() == pytest.approx(exact, rel=0.1)
    still, _ = gain(p, {**mean_field, "mu": jnp.append(0.3, optimum)}, jax.random.key(0))
    assert abs(still[1:].sum()) < 0.02 * exact


@pytest.mark.long
def test_a_saved_fit_continues_as_if_it_had_not_ended(tmp_path, rng):
    """Under a schedule of one's own."""
    data = {"y": rng.normal(size=23)}
    settings = {"data": data, "batch_size": 5, "step_size": lambda t: 0.05 * jnp.exp(-0.05 * t)}
    half = quiet(num_steps=17, **settings)
    half.save(tmp_path / "fit.npz")
    loaded = lowvar.load(tmp_path / "fit.npz", effects, data, step_size=settings["step_size"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resumed = loaded.resume(13, progress=False)
    assert resumed.khat is None  # as with khat_samples=0 in the fit
    long = quiet(num_steps=30, **settings)
    assert resumed.elbo.equals(long.elbo)
    for block, value in long.guide_params.items():
        np.testing.assert_array_equal(resumed.guide_params[block], value, err_msg=block)
    assert "adam with a schedule of step sizes" in str(long)


@pytest.fixture(scope="module")
def fit():
    data = {"y": np.random.default_rng(1).normal(size=30) * 2}
    return quiet(data=data, batch_size=5, num_steps=60, estimator="cv")


@pytest.mark.long
def test_samples_and_predictions_are_of_the_same_rows(fit):
    """Predictions of other rows are refused in one sentence."""
    from numpyro.infer import Predictive

    y = fit.problem.data["y"]
    assert fit.sample(3)["u"].shape == (3, 30)
    predict = Predictive(effects, guide=fit.guide, params=fit.params, num_samples=3)
    with pytest.raises(UserError, match="30 rows"):
        predict(jax.random.key(0), y=jnp.zeros(4))
    with pytest.raises(UserError, match="a subsample of 5"):
        predict(jax.random.key(0), y=jnp.asarray(y), batch_size=5)
    with pytest.warns(UserWarning, match="'y' has other values"):
        predict(jax.random.key(0), y=jnp.asarray(y + 1))


def test_decomposition_of_what_rows_share(fit):
    data = {"y": np.asarray(fit.problem.data["y"])}
    found = lowvar.decompose(effects, data, fit, estimators=["cv"], replicates=4, columns=3, progress=False)
    assert "1 of 31 parameters, which rows share" in found.title
    table = found.table.set_index(["method", "block", "source"])["variance"]
    assert table["cv", "mu", "subsampling"] > 0
    # the log density is quadratic: its Taylor expansion removes all noise of the means
    assert abs(table["cv", "mu", "monte_carlo"]) < 1e-9 * table["cv", "mu", "total"]
    assert abs(table["cv", "mu", "interaction"]) < 1e-9 * table["cv", "mu", "total"]


@pytest.mark.long
def test_elbo_is_at_least_that_of_numpyros_svi():
    """Ten thousand local variables, 5000 steps of Adam at 0.01 with 100 rows; the same particles for both ELBOs."""
    N, B, steps = 10_000, 100, 5000
    rng = np.random.default_rng(1)
    y = jnp.asarray(rng.poisson(np.exp(0.7 + rng.normal(size=N))), jnp.float32)

    def model(y, batch_size=None):
        m = numpyro.sample("m", dist.Normal(0, 3))
        spread = numpyro.sample("spread", dist.HalfNormal(2))
        with numpyro.plate("data", N, subsample_size=batch_size) as index:
            u = numpyro.sample("u", dist.Normal(m, spread))
            numpyro.sample("y", dist.Poisson(jnp.exp(u)), obs=y[index])

    guide = AutoNormal(model, create_plates=lambda *args, **kw: numpyro.plate("data", N, subsample_size=B))
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    theirs = svi.run(jax.random.key(0), steps, y=y, batch_size=B, progress_bar=False).params
    fit = quiet(model, data={"y": y}, batch_size=B, num_steps=steps)
    p = fit.problem
    eps = jax.random.normal(jax.random.key(9), (16, p.noise_dim), p.dtype)
    elbo = jax.jit(lambda params: p.elbo(params, eps)[0])
    start = from_numpyro(model, {"y": y}, init=dict(theirs)).start
    of = [{block: jnp.asarray(value, p.dtype) for block, value in one.items()} for one in (fit.guide_params, start)]
    own, other = (float(elbo(params)) for params in of)
    assert own > other, (own, other)
