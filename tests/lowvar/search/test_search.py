"""Ask and tell: what a user's loop may do, what it may not, and that searches find minima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lowvar
from lowvar.core import backend as backends
from lowvar.core.keys import named_key
from lowvar.errors import UserError
from lowvar.search.problem import Domain
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.base import generation


def search(name="fast_ingo", **options):
    return lowvar.Searcher(np.ones(10), 0.5, name, **options)


def sphere(points):
    return (points**2).sum(axis=1)


def advance(run, generations):
    for _ in range(generations):
        run.tell(sphere(run.ask()))
    return run


def test_what_may_not_be_told():
    run = search(population=6)
    with pytest.raises(UserError, match="fast_ingo: tell without ask"):
        run.tell(np.zeros(6))
    run.ask()
    for wrong in (
        np.zeros(5), np.zeros((6, 1)), 3.0, ["a"] * 6, [[1], [1, 2]], np.zeros(6, complex) + 1j, [None, {}, 1, 2, 3, 4],
    ):  # fmt: skip
        with pytest.raises(UserError, match="tell needs 6 numbers"):
            run.tell(wrong)
    assert run.iteration == 0
    run.tell([1, 2, 3, np.nan, np.inf, -np.inf])
    assert (run.iteration, np.isfinite(run.mean).all()) == (1, True)


def test_the_seed_makes_the_noise():
    base = search().ask()
    np.testing.assert_array_equal(search().ask(), base)
    assert (search(seed=1).ask() != base).all()
    # methods share it, whatever their backend
    np.testing.assert_allclose(search("ingo").ask(), search("fast_ingo").ask(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(search(backend="torch").ask(), base, rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_float64_also_where_jax_is_in_float32():
    inside = advance(search(), 20).mean
    with jax.enable_x64(False):
        outside = advance(search(), 20)
        assert outside.ask().dtype == np.float64
        np.testing.assert_allclose(outside.mean, inside, rtol=1e-12)


def steps_to(solver, values, x0, sigma0, target, steps):
    """Evaluations until the value at the mean is below a target, in a compiled loop; and the last state."""
    one = generation(solver, values)
    key = named_key(0, "quality", "noise")

    def body(state, t):
        state, _, _ = one(state, solver.draw(jax.random.fold_in(key, t)))
        return state, values(solver.mean(state)[None, :])[0]

    state, trace = jax.jit(lambda: jax.lax.scan(body, solver.init(x0, sigma0), jnp.arange(steps)))()
    met = np.asarray(trace) <= target
    return (int(met.argmax()) + 1) * solver.evaluations if met.any() else np.inf, state


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("fast_ingo", 12_000),
        *(pytest.param(*one, marks=pytest.mark.long) for one in (("fast_ingo_adaptive", 12_000), ("ingo", 60_000))),
    ],
)
def test_reaches_1e_10_on_the_ellipsoid(name, within):
    d = 20
    scale = 10.0 ** (6 * np.arange(d) / (d - 1))
    solver = SEARCH.get(name)(backends.get("jax"), Domain("real", d))
    took, _ = steps_to(solver, lambda x: (scale[None, :] * x**2).sum(axis=1), np.full(d, 0.7), 0.5, 1e-10, 5000)
    assert took <= within


@pytest.mark.long
def test_reinforce_diverges_and_ingo_does_not():
    """Appendix K: near the optimum a step of a fixed size on ``(mu, Sigma)`` is too long."""
    d = 10
    ends = {}
    for name in ("reinforce_gd", "fast_ingo"):
        solver = SEARCH.get(name)(backends.get("jax"), Domain("real", d))
        _, state = steps_to(solver, lambda x: (x**2).sum(axis=1), np.ones(d), 0.5, 0.0, 4000)
        ends[name] = float((np.asarray(solver.mean(state)) ** 2).sum())
    assert ends["fast_ingo"] < 1e-20
    assert not ends["reinforce_gd"] < 1e-6


def test_binary_reaches_the_optimum():
    d = 12
    w = np.random.default_rng(0).normal(size=d)
    solver = SEARCH.get("ingo_binary")(backends.get("jax"), Domain("binary", d, 2))
    took, state = steps_to(
        solver, lambda x: ((2 * x - 1 - w[None, :]) ** 2).sum(axis=1), np.full(d, 0.5), 1.0,
        ((np.sign(w) - w) ** 2).sum() + 1e-9, 400,
    )  # fmt: skip
    assert took < 20_000
    np.testing.assert_array_equal(solver.mean(state), w > 0)
    p = 1 / (1 + np.exp(-np.asarray(state.logits)))
    assert p.min() >= 1 / d - 1e-12
    assert p.max() <= 1 - 1 / d + 1e-12


def test_categorical_reaches_the_optimum():
    d, choices = 6, 4
    cost = np.random.default_rng(1).normal(size=(d, choices))
    solver = SEARCH.get("ingo_categorical")(backends.get("jax"), Domain("categorical", d, choices))
    took, state = steps_to(
        solver, lambda x: jnp.asarray(cost)[jnp.arange(d)[None, :], x].sum(axis=1),
        np.full((d, choices), 1 / choices), 1.0, cost.min(axis=1).sum() + 1e-9, 400,
    )  # fmt: skip
    assert took < 20_000
    np.testing.assert_array_equal(solver.mean(state), cost.argmin(axis=1))
    assert np.isfinite(np.asarray(state.logits)).all()


def test_categorical_draws_follow_their_probabilities():
    solver = SEARCH.get("ingo_categorical")(backends.get("jax"), Domain("categorical", 2, 3), 20_000)
    x0 = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    points = np.asarray(solver.ask(solver.init(x0, 1.0), solver.draw(jax.random.key(0))))
    assert points.dtype == np.int32
    shares = np.stack([(points == k).mean(axis=0) for k in range(3)], axis=1)
    eps = 1 / 6
    np.testing.assert_allclose(shares, (1 - eps) * x0 + eps / 3, atol=0.02)
