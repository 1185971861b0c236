"""Local latent variables: a step computes with its batch's rows, and gives the gradient of all of them."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rows_with_latents import counts, effects

import lowvar
from lowvar.core.gaussian import independent
from lowvar.core.keys import named_key
from lowvar.core.optimizers import optimizer, row_adam
from lowvar.errors import UserError
from lowvar.vi.batches import Noise, iid, reshuffled, sampler
from lowvar.vi.descent import Rows, descend, descents
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.guides.gaussian import MeanField
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.settings import check_by_row, check_transformation, depends_on_batch, solver_of

LOCAL = "naive", "stl", "cv", "joint_svrg", "joint_adaptive"


@functools.cache
def problem_of(N=5):
    return from_numpyro(counts, {"y": np.arange(N)}, key=jax.random.key(0))


def estimate(name, q, params, noise, state=None):
    """An estimator's gradient of a batch, in the coordinates of all rows, as a descent counts it."""
    at = q.rows.of(noise.index)
    here = jax.tree.map(lambda leaf: leaf[at], params)
    made = GRADIENT.get(name)(q, reshuffled(q.N, len(noise.index)))
    state = jax.tree.map(lambda leaf: leaf[at], made.init(params) if state is None else state)
    gradient, _ = made.estimate(state, here, noise._replace(eps=noise.eps[:, at]))
    counted = q.rows.by_row(q.N * noise.weight)
    return {block: jnp.zeros(q.rows.dim).at[at].add(value * counted) for block, value in gradient.items()}


@pytest.mark.long  # the next test has it, with an old snapshot too
@pytest.mark.parametrize("name", LOCAL)
def test_gradient_is_that_of_all_rows(name):
    """The mean over all batches is the dense gradient of all rows, for any noise without which its mean is zero."""
    p = problem_of()
    q = p.of_batch(2)
    assert (q.dim, p.dim) == (2 + 2 * 3, 2 + 5 * 3)
    params = {block: jnp.asarray(value) for block, value in p.start.items()}
    pairs = jnp.array([(i, j) for i in range(5) for j in range(i)])
    eps = jax.random.normal(jax.random.key(1), (1, p.noise_dim))
    eps = jnp.concatenate([eps, -eps])  # linear controls have mean zero

    def of_pair(index):
        noise = Noise(index, jnp.full(2, 0.5), jnp.asarray(2.0), eps, jnp.asarray(0))
        return estimate(name, q, params, noise)

    found = jax.tree.map(lambda leaf: leaf.mean(0), jax.jit(jax.vmap(of_pair))(pairs))
    everything = Noise(jnp.arange(5), jnp.full(5, 0.2), jnp.asarray(5.0), eps, jnp.asarray(0))
    dense, _ = jax.jit(lambda: GRADIENT.get("stl" if name == "stl" else "naive")(p).estimate((), params, everything))()
    for block, value in dense.items():
        np.testing.assert_allclose(found[block], value, rtol=1e-9, atol=1e-9, err_msg=block)


@pytest.mark.parametrize("name", [pytest.param("joint_svrg", marks=pytest.mark.long), "joint_adaptive"])
def test_gradient_is_that_of_all_rows_with_an_old_snapshot(name, rng):
    """The controls are at work: a snapshot elsewhere, and coefficients of 0.7.

    The mean is over Gauss-Hermite points, for which linear and quadratic controls have mean zero as for the normal.
    """
    p = problem_of()
    q = p.of_batch(2)
    params = {block: jnp.asarray(value) for block, value in p.start.items()}
    old = {block: value + 0.2 * rng.normal(size=value.shape) for block, value in params.items()}
    signs = jax.random.rademacher(jax.random.key(1), (p.noise_dim,), float)
    eps = 3**0.5 * jnp.array([1.0, -1, 0, 0, 0, 0])[:, None] * signs[None]
    every = Noise(jnp.arange(5), jnp.full(5, 0.2), jnp.asarray(5.0), eps, jnp.asarray(0))
    dense, _ = jax.jit(lambda: GRADIENT.get("naive")(p).estimate((), params, every))()
    state = jax.jit(GRADIENT.get(name)(q, reshuffled(5, 2)).init)(old)
    if name == "joint_adaptive":
        one = jax.tree.map(jnp.ones_like, state["products"])
        state = {**state, "products": jax.tree.map(lambda leaf: -0.7 * leaf, one), "squares": one}

    def of_pair(index, eps):
        noise = Noise(index, jnp.full(2, 0.5), jnp.asarray(2.0), eps[None], jnp.asarray(0))
        return estimate(name, q, params, noise, state)

    pairs = jnp.array([(i, j) for i in range(5) for j in range(i)])
    found = jax.jit(jax.vmap(jax.vmap(of_pair, (0, None)), (None, 0)))(pairs, eps)
    of_points = found["log_sigma"].mean(1)  # each differs
    assert float(jnp.abs(of_points - dense["log_sigma"][None]).max()) > 0.1
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
    params = {block: jnp.asarray(value) for block, value in p.start.items()}
    eps = jax.random.normal(jax.random.key(1), (1, p.noise_dim))
    alone = Noise(jnp.array([3]), jnp.ones(1), jnp.asarray(1.0), eps, jnp.asarray(0))
    padded = alone._replace(index=jnp.array([3, 3]), weight=jnp.array([1.0, 0.0]))
    first, second = (jax.jit(lambda n: estimate("naive", q, params, n))(noise) for noise in (alone, padded))
    for block, value in first.items():
        np.testing.assert_allclose(second[block], value, rtol=1e-9, atol=1e-12)


def test_rows_and_their_moments_change_at_visits_only():
    p = problem_of(7)
    q = p.of_batch(3)
    draw = sampler(reshuffled(7, 3), independent(1), q.noise_dim, p.dtype)
    solver = descend(GRADIENT.get("naive")(q), draw, optimizer("adam", 0.1, p.backend))
    state = jax.jit(solver.init)({block: jnp.asarray(value) for block, value in p.start.items()})
    noise = jax.jit(draw.epoch)(jax.random.key(3))
    moved = jax.jit(lambda state: solver.steps(state, noise, (0, 1)))(state)
    visited = set(np.asarray(noise.index[0]).tolist())
    changed = [
        np.asarray(a != b) for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(state), strict=True) if a.ndim
    ]
    assert len(changed) == 6  # means, scales, and Adam's two moments of each
    for one in changed:
        assert one[q.rows.shared].all()
        assert {n for n in range(7) if one[q.rows.own[n]].all()} == visited
        assert {n for n in range(7) if one[q.rows.own[n]].any()} == visited
    whole = jax.jit(solver.epoch)(state, noise)  # its last batch is padded
    steps = jax.jit(lambda s, n: solver.step(s, n))
    by_hand = state
    for k in range(3):
        by_hand = steps(by_hand, jax.tree.map(lambda leaf, k=k: leaf[k], noise))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_adam_moves_a_row_as_dense_adam_would_until_its_next_visit():
    gradient = {"z": jnp.ones(1)}
    for S in (1, 20):
        rows = Rows(np.zeros(0, np.int32), np.arange(S, dtype=np.int32)[:, None])
        own, dense = row_adam(0.1, rows), optax.adam(0.1)

        def visit(carry, _, own=own, dense=dense, S=S):
            z, state, far, dense_state = carry
            update, state = own.update(gradient, state)
            for k in range(S):
                moved, dense_state = dense.update({"z": (k == 0) * gradient["z"]}, dense_state)
                far = far + moved["z"]
            return (z + update["z"], state, far, dense_state), None

        start = (jnp.zeros(1), own.init(gradient), jnp.zeros(1), dense.init(gradient))
        (z, _, far, _), _ = jax.jit(lambda s, visit=visit: jax.lax.scan(visit, s, length=30))(start)
        assert float(far[0]) < -2.9  # 0.1 for each visit, or more
        np.testing.assert_allclose(z, far, rtol=1e-5 if S == 1 else 0.03)


@pytest.mark.long
def test_adam_has_no_bias_at_skewed_gradients_of_rarely_visited_rows():
    """The mean of 8000 coordinates with the gradient ``z + eps^2 - 1``, visited 400 times; dense Adam's is off."""
    S, count = 50, 8000
    rows = Rows(np.zeros(0, np.int32), np.arange(count * S, dtype=np.int32).reshape(S, count))
    own, dense = row_adam(0.01, rows), optax.adam(0.01)

    def gradient(z, key):
        return {"z": z + jax.random.normal(key, (count,)) ** 2 - 1}

    def visit(carry, key):
        z, state, far, dense_state = carry
        update, state = own.update(gradient(z, key), state)
        first, dense_state = dense.update(gradient(far, key), dense_state)

        def later(carry, _):
            far, dense_state = carry
            moved, dense_state = dense.update({"z": jnp.zeros(count)}, dense_state)
            return (far + moved["z"], dense_state), None

        (far, dense_state), _ = jax.lax.scan(later, (far + first["z"], dense_state), length=S - 1)
        return (z + update["z"], state, far, dense_state), None

    zero = jnp.zeros(count)
    start = (zero, own.init({"z": zero}), zero, dense.init({"z": zero}))
    keys = jax.random.split(jax.random.key(0), 400)
    (z, _, far, _), _ = jax.jit(lambda start: jax.lax.scan(visit, start, keys))(start)
    mean, biased, error = float(z.mean()), float(far.mean()), float(z.std()) / count**0.5
    assert biased > 12 * error, (biased, error)
    assert abs(mean) < 5 * error, (mean, error)


def test_refusals():
    q = problem_of().of_batch(2)
    for name in (*LOCAL, "joint", "joint_current", "inc", "ensemble", "full_naive", "full_cv", "mlmc", "storm"):
        assert GRADIENT.get(name)(q, reshuffled(5, 2)).properties.local == (name in LOCAL), name
    with pytest.raises(UserError, match="built for reshuffled batches, cannot use 'iid'"):
        descend(GRADIENT.get("naive")(q), sampler(iid(5, 2), independent(1), q.noise_dim), None)
    with pytest.raises(
        UserError, match="'joint' takes no latent variables in the data plate, as 'counts' has: use naiv"
    ):
        lowvar.fit(counts, {"y": np.arange(5)}, estimator="joint", num_steps=2)


def test_a_schedule_of_ones_own_is_that_of_row_adam():
    p = problem_of(7)
    q, batches = p.of_batch(3), reshuffled(7, 3)
    draw, estimator = sampler(batches, independent(1), q.noise_dim, p.dtype), GRADIENT.get("naive")(q, batches)
    given = {"optimizer": "adam", "num_steps": 3, "batch_size": 3, "num_particles": 1, "elbo_samples": 16}
    named = solver_of(p, step_size=0.02, schedule={"kind": "exponential", "beta": 0.5}, **given)
    own = solver_of(p, step_size=lambda t: 0.02 * jnp.exp(-0.5 * t), **given)
    start = {block: jnp.asarray(value) for block, value in p.start.items()}

    @jax.jit
    def after_an_epoch(noise):
        solvers = [descents(estimator, spec, draw)(spec.step_sizes[0]) for spec in (named, own)]
        return [solver.epoch(solver.init(start), noise).params for solver in solvers]

    one, other = after_an_epoch(draw.epoch(jax.random.key(3)))
    for block, value in one.items():
        np.testing.assert_allclose(other[block], value, rtol=1e-12, err_msg=block)
        assert (np.asarray(value) != start[block]).all()


MIXING = {
    "trust ratio": (optax.lamb(0.01), "depends on other rows than those of the batch"),
    "block norms": (optax.adafactor(0.01), "depends on other rows than those of the batch"),
    "a distance of all": (optax.contrib.dog(), "depends on other rows than those of the batch"),
    "sums of steps": (optax.MultiSteps(optax.adam(0.01), 2), "is held back for later steps"),
}
APART = {
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)),  # the batch's gradient has no other rows
    "warm-up": optax.adamw(optax.linear_schedule(0.0, 0.01, 10)),
    "schedule-free": optax.contrib.schedule_free_adamw(0.01),
    "by block": optax.partition({"a": optax.rmsprop(0.01), "b": optax.lion(0.01)}, {"mu": "a", "log_sigma": "b"}),
}


ALIKE = ("block norms", "a distance of all", "schedule-free", "by block")  # refused or taken as others are: long


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long if one in ALIKE else ()) for one in (*MIXING, *APART)]
)
def test_transformations_that_mix_rows_are_refused(name):
    p = problem_of()
    if name in APART:
        check_by_row(APART[name], p)
        return
    transformation, message = MIXING[name]
    with pytest.raises(UserError, match=f"{message}; give 'adam', or batch_size=5"):
        check_by_row(transformation, p)
    settings = {"optimizer": transformation, "step_size": None, "num_steps": 4, "num_particles": 1, "elbo_samples": 16}
    with pytest.raises(UserError, match="a step moves those of its batch's rows alone"):
        solver_of(p, batch_size=2, **settings)
    assert solver_of(p, batch_size=5, **settings).own["transformation"] is transformation


def test_an_optax_transformation_moves_rows_at_visits_only_and_a_clipped_norm_is_that_of_a_batch_and_both_are_told(rng):
    p = problem_of()
    assert depends_on_batch(APART["clipped"], p)
    assert not any(depends_on_batch(APART[name], p) for name in ("warm-up", "by block"))
    settings = {"batch_size": 5, "num_steps": 8, "optimizer": APART["clipped"], "estimator": "naive"}
    with pytest.warns(UserWarning, match="move when their rows are visited and stand still in between"):
        fit = lowvar.fit(effects, {"y": rng.normal(size=20)}, khat_samples=0, progress=False, **settings)
    assert "depends on all gradients of a step, as under clip_by_global_norm" in str(fit)
    assert "in the latent variables of the rows alone, each of which was visited 2 times" in str(fit)


UPWARD = {
    "masked": (optax.masked(optax.adam(0.01), {"mu": True, "log_sigma": False}), "log_sigma"),
    "no step size": (optax.scale_by_adam(), "log_sigma, mu"),
}


@pytest.mark.parametrize("name", [*UPWARD])
def test_transformations_that_climb_are_refused(name):
    """They would diverge, whatever the step size."""
    p, (transformation, blocks) = problem_of(), UPWARD[name]
    with pytest.raises(UserError, match=f"its updates of {blocks} go up the gradient of a loss"):
        check_transformation(transformation, p)
    frozen = {"mu": "moved", "log_sigma": "frozen"}
    check_transformation(optax.partition({"moved": optax.adam(0.01), "frozen": optax.set_to_zero()}, frozen), p)


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


@pytest.mark.parametrize("name", ["naive", "joint_svrg"])
def test_a_step_computes_with_its_batch(name):
    """All that it does to arrays of all rows, it does by writing those of the batch."""
    p = problem_of(7)
    q, batches = p.of_batch(3), reshuffled(7, 3)
    draw = sampler(batches, independent(1), q.noise_dim, p.dtype)
    solver = descend(GRADIENT.get(name)(q, batches), draw, optimizer("adam", 0.1, p.backend))
    state = jax.eval_shape(solver.init, {block: jnp.asarray(value) for block, value in p.start.items()})
    noise = jax.eval_shape(lambda key: jax.tree.map(lambda leaf: leaf[0], draw.epoch(key)), jax.random.key(3))
    assert q.rows.dim == 2 + 7 * 3
    assert operations(jax.make_jaxpr(solver.step)(state, noise).jaxpr, q.rows.dim) == {"scatter"}


@pytest.mark.long
def test_time_of_a_step_does_not_depend_on_the_rows(rng):
    """CPU time of 1000 steps, in whole epochs; the least of several alternating rounds.

    Dense steps, which touch all rows of ten arrays, take 100 times as long for 100 times the rows. What remains are
    caches: 6 and 23 microseconds were measured.
    """
    programs = {}
    for N, epochs in ((1000, 100), (100_000, 1)):
        p = from_numpyro(effects, {"y": rng.normal(size=N)})
        q = p.of_batch(100)
        draw = sampler(reshuffled(N, 100), independent(1), q.noise_dim, p.dtype)
        solver = descend(GRADIENT.get("naive")(q), draw, optimizer("adam", 0.01, p.backend))
        state = solver.init({block: jnp.asarray(value) for block, value in p.start.items()})
        noise = draw.epoch(named_key(0, "rows"))

        def run(state, noise, epochs=epochs, solver=solver):
            return jax.lax.fori_loop(0, epochs, lambda i, state: solver.epoch(state, noise), state)

        programs[N] = jax.jit(run), state, noise
    least = dict.fromkeys(programs, np.inf)
    for _ in range(5):  # the first round compiles
        for N, (run, state, noise) in programs.items():
            start = time.process_time()
            jax.block_until_ready(run(state, noise))
            least[N] = min(least[N], time.process_time() - start)
    assert least[100_000] < 12 * least[1000], least
