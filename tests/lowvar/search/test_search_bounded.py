"""Algorithm 3: its step against the formula, its bounds, its estimates, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.errors import UserError
from lowvar.search.minimize import minimize
from lowvar.search.problem import Domain
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.base import generation
from lowvar.search.solvers.box import Box
from lowvar.testing.searches import SearchContract
from lowvar_studies.jobs.search.engine import build as engine_of
from lowvar_studies.jobs.search.spec import SearchExperiment

D, N = 4, 6
SCALE = np.array([1.0, 2.0, 5.0, 9.0])
BOTH = ("ingo_first_order", "ingo_zeroth_order")


def solver(name, backend="jax", **options):
    return SEARCH.get(name)(backends.get(backend), Domain("real", D), N, **options)


@pytest.mark.parametrize("name", BOTH)
def test_the_estimates_are_unbiased(name):
    """Over 200 000 draws: ``grad_mu E f = 2 s mu`` and ``grad_(sigma^2) E f = s``, for ``f = sum s_i x_i^2``.

    ``G`` is read from the new precision, with bounds too wide to clip its mean but for rare draws.
    """
    raw = {"normalise": False} if name == "ingo_zeroth_order" else {}
    beta, mu, sigma = 1e-3, np.array([1.0, -0.5, 0.3, 0.1]), 0.4
    one = SEARCH.get(name)(backends.get("jax"), Domain("real", D), 4000, beta=beta, b=1e-9, gamma=1e9, **raw)
    single = generation(one, lambda x: jnp.sum(jnp.asarray(SCALE)[None, :] * x * x, axis=-1))

    @jax.jit
    def estimate(key):
        after = single(one.init(mu, sigma), one.draw(key))[0]
        return jnp.concatenate(
            [(mu - after.mean) * after.precision / beta, (after.precision - 1 / sigma**2) / 2 / beta]
        )

    found = np.asarray(jax.vmap(estimate)(jax.random.split(jax.random.key(1), 50)))
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    exact = np.concatenate([2 * SCALE * mu, SCALE])
    assert (error < 0.1 * np.abs(exact).max()).all()  # or the comparison has no power
    assert (np.abs(found.mean(axis=0) - exact) < 5 * error).all(), (found.mean(axis=0), exact, error)


@pytest.mark.parametrize("name", BOTH)
def test_the_variance_falls_between_its_bounds(name):
    """``sigma^2`` after ``t`` generations lies between ``1 / (1/s^2 + beta gamma t)`` and ``1 / (1/s^2 + 2 beta b t)``."""
    one = solver(name, beta=0.5, b=0.2, gamma=3.0)
    single = generation(one, lambda x: jnp.sum(jnp.abs(x), axis=-1))
    state, t = one.init(np.ones(D), 1.0), 60
    for i in range(t):
        state = jax.jit(single)(state, one.draw(jax.random.key(i)))[0]
    assert (np.asarray(state.precision) >= 1 + 2 * 0.5 * 0.2 * t - 1e-9).all()
    assert (np.asarray(state.precision) <= 1 + 0.5 * 3.0 * t + 1e-9).all()


def test_without_information_nothing_changes():
    one = solver("ingo_first_order")
    state = one.init(np.ones(D), 1.0)
    after = generation(one, lambda x: jnp.zeros(x.shape[0]) + 0.0 * jnp.sum(x))(state, one.draw(jax.random.key(0)))[0]
    np.testing.assert_array_equal(after.mean, state.mean)
    np.testing.assert_array_equal(after.precision, state.precision)


@pytest.mark.parametrize(
    "promise", ["test_signature", "test_it_searches_the_domains_that_the_registry_says", "test_bad_settings_are_refused",
                "test_bad_options_of_our_own_are_refused"],
)  # fmt: skip
def test_the_contract_that_does_not_need_ask_and_tell(promise):
    getattr(SearchContract(), promise)("ingo_first_order")


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"b": 2.0, "gamma": 3.0}, "b 2.0: .* gamma"), ({"b": 0}, "b 0"), ({"gamma": -1.0}, "gamma -1.0")],
)  # fmt: skip
def test_bounds_that_are_refused(name, wrong, message):
    with pytest.raises(UserError, match=message):
        solver(name, **wrong)


def test_gradients_are_not_asked_of_a_user():
    with pytest.raises(UserError, match="ingo_first_order needs gradients of f: it runs in experiments"):
        minimize(lambda x: (x**2).sum(), np.zeros(D), 1.0, "ingo_first_order", budget=100)


def experiment(function, **more):
    return SearchExperiment.model_validate(
        {"name": "few", "title": "few", "family": "search", "problems": {"p": {"function": function, **more}},
         "methods": {"ingo_first_order": {"solver": "ingo_first_order", "options": {"beta": 0.5}}},
         "backends": ["jax", "torch"], "search": {"budget": 600, "repetitions": 2}}
    )  # fmt: skip


@pytest.mark.long
def test_backends_agree_over_generations():
    ends = {}
    for backend in ("jax", "torch"):
        engine = engine_of(experiment("elastic_net", dim=3).run("p", "ingo_first_order", backend))
        state = engine.advance(engine.init(), 0, 20)
        ends[backend] = engine.measure(state, 20)
    for name in ("f", "best", "sigma"):
        np.testing.assert_allclose(ends["torch"][name], ends["jax"][name], rtol=1e-9)


def test_a_simulator_has_no_gradients():
    with pytest.raises(
        UserError, match=r"x: problems\.p: method 'ingo_first_order' needs gradients, and swimmer has val"
    ):
        experiment("swimmer").check_names("x")


@pytest.mark.parametrize("bound", [1e10, 1e16, 1e20, 1.7e308])
@pytest.mark.filterwarnings("error")
def test_points_keep_their_digits_between_wide_bounds(bound):
    """Bounds that stand for none: the map is the identity far from them."""
    points = np.array([[1.3, -0.7], [2**-40, 1e5]])
    for bounds in ((-bound, bound), (-bound, None), (None, bound)):
        np.testing.assert_array_equal(Box(bounds, 2, 0.5).inside(points), points)
