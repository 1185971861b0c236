"""The wrapped peers keep the contract of driven searches, repeat themselves, and survive values that are not finite."""

import sys

import numpy as np
import pytest

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.search.problem import Domain
from lowvar.search.solvers import SEARCH

REAL, BITS, CHOICES = Domain("real", 5), Domain("binary", 12, 2), Domain("categorical", 6, 4)
GAUSSIAN = [
    ("pycma", {}),
    ("pycma", {"diagonal": True}),
    ("cmaes", {}),
    ("cmaes", {"lr_adapt": True}),
    ("sep_cmaes", {}),
]
DISCRETE = [(BITS, np.full(12, 0.5)), (CHOICES, np.full((6, 4), 0.25))]
EVOSAX = [
    ("evosax_snes", {}),
    ("evosax_xnes", {}),
    ("evosax_open_es", {"step_size": 0.1}),
    ("evosax_open_es", {"optimizer": "adam", "step_size": 0.05}),
]


def label(case):
    return "-".join([case[0], *case[1]]) if isinstance(case[0], str) else f"pymoo_ga-{case[0].kind}"


def factory(name):
    pytest.importorskip(SEARCH.about(name).packages[0])
    return SEARCH.get(name)


def driven(case, seed=0, **more):
    """A peer that is driven from Python, and the function that it is given."""
    if isinstance(case[0], str):
        name, options = case
        return factory(name)(REAL, np.arange(5.0), 0.5, seed=seed, **options, **more), sphere
    domain, x0 = case
    return factory("pymoo_ga")(domain, x0, 0.5, seed=seed, **more), lambda x: (x != 1).sum(1).astype(float)


def sphere(x):
    return ((x - 1) ** 2).sum(-1)


def run(search, function, generations):
    """All the points of so many generations."""
    asked = []
    for _ in range(generations):
        asked.append(search.propose())
        search.learn(asked[-1], function(asked[-1]))
    return np.array(asked)


@pytest.mark.parametrize("case", GAUSSIAN + DISCRETE, ids=label)
def test_a_driven_peer_moves_to_the_optimum(case):
    search, function = driven(case)
    before, real = function(search.mean[None]), search.domain.kind == "real"
    points = run(search, function, 40 if real else 20)
    assert points.shape[1:] == (search.population, search.domain.dim)
    assert search.population == (10 if real else 100)
    assert function(search.mean[None]) < max(0.1 * before, 1e-12)
    if real:
        sigma, condition = search.spread
        assert 0 < sigma < 0.5
        assert condition >= 1
    assert driven(case, population=8)[0].propose().shape == (8, search.domain.dim)


@pytest.mark.parametrize("case", GAUSSIAN + DISCRETE, ids=label)
def test_a_driven_peer_repeats_itself(case, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    first, function = driven(case, seed=3)
    np.random.seed(1)  # noqa: NPY002 (nobody else's draws matter, and nobody else's are touched)
    points = run(first, function, 4)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    second, _ = driven(case, seed=3)
    again = run(second, function, 2)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert np.array_equal(np.concatenate([again, run(second, function, 2)]), points)
    assert not np.array_equal(driven(case, seed=4)[0].propose(), points[0])
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("case", GAUSSIAN + DISCRETE, ids=label)
def test_a_driven_peer_survives_failures(case):
    search, function = driven(case)

    def failing(points):
        values = function(points)
        values[::3], values[1], values[2] = np.nan, np.inf, -np.inf
        return values

    run(search, failing, 20)
    run(search, lambda points: np.full(len(points), np.nan), 3)
    run(search, lambda points: np.zeros(len(points)), 3)
    assert np.isfinite(search.mean).all()
    assert np.isfinite(search.propose()).all()


def test_the_mean_of_pycma_is_in_the_coordinates_of_the_function():
    """At a condition number of 1e12, pycma takes other coordinates, in which its covariance is round."""
    search, _ = driven(GAUSSIAN[0])
    scales = 10.0 ** np.arange(5)

    def ellipsoid(x):
        return (x - 1) ** 2 @ scales

    run(search, ellipsoid, 60)
    (sigma, condition), mean = search.spread, search.mean
    search._strategy.alleviate_conditioning(10)
    assert condition > 100 > 1.1 > search._strategy.condition_number
    np.testing.assert_allclose(search.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(search.spread, (sigma, condition), rtol=1e-3)  # it decomposes lazily
    points = run(search, ellipsoid, 5)[-1]
    assert ellipsoid(search.mean) < np.median(ellipsoid(points))


def test_discrete_points_are_of_their_domain():
    ga, _ = driven(DISCRETE[0])
    points = run(ga, lambda x: x.sum(1).astype(float), 3)
    assert points.dtype == np.int32
    assert set(np.unique(points)) == {0, 1}
    ga, _ = driven(DISCRETE[1])
    assert set(np.unique(run(ga, lambda x: x.sum(1).astype(float), 3))) == {0, 1, 2, 3}
    certain = np.tile(np.eye(4)[2], (6, 1))
    ga = factory("pymoo_ga")(CHOICES, certain)
    assert (ga.propose()[0] == 2).all()
    assert (ga.mean == 2).all()


@pytest.mark.parametrize(
    ("name", "given", "argument"),
    [
        ("pycma", {"domain": BITS}, "binary"),
        ("cmaes", {"sigma0": -1}, "sigma0"),
        ("sep_cmaes", {"seed": -1}, "seed"),
        ("pycma", {"population": 1}, "population"),
        ("pymoo_ga", {}, "real"),
        ("evosax_snes", {"domain": BITS}, "binary"),
        ("evosax_snes", {"population": 1}, "population"),
        ("evosax_open_es", {"population": 7}, "population"),
        ("evosax_open_es", {"optimizer": "adm"}, "'adam'"),
    ],
)
def test_what_a_peer_refuses(name, given, argument):
    given = {"domain": REAL, **given}
    given |= {"backend": get("jax")} if name.startswith("evosax") else {"x0": np.zeros(5), "sigma0": 1.0} | given
    with pytest.raises(UserError, match=argument):
        factory(name)(**given)


def compiled(name, options, domain=REAL, **more):
    return factory(name)(get("jax"), domain, **options, **more)


def compiled_run(solver, function, generations):
    """Two runs at once, in one program: the last states, and the points of each generation."""
    import jax

    def step(state, key):
        noise = solver.draw(key)
        points = solver.ask(state, noise)
        return solver.tell(state, noise, points, function(points)), points

    def one(key):
        return jax.lax.scan(step, solver.init(np.arange(5.0), 0.1), jax.random.split(key, generations))

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 2))


@pytest.mark.parametrize(
    ("name", "options"), [EVOSAX[2], *(pytest.param(*one, marks=pytest.mark.long) for one in (*EVOSAX[:2], EVOSAX[3]))]
)
def test_evosax_does_what_evosax_does(name, options):
    import evosax.algorithms
    import jax
    import optax

    solver = compiled(name, options)
    assert (solver.name, solver.population, solver.evaluations) == (name, 10, 10)
    states, points = compiled_run(solver, sphere, 300)
    assert points.shape == (2, 300, 10, 5)
    assert not np.array_equal(points[0], points[1])
    state = jax.tree.map(lambda leaf: leaf[0], states)
    assert sphere(np.asarray(solver.mean(state))) < 0.3
    sigma, condition = solver.spread(state)
    assert 0 < sigma <= 0.1
    assert condition >= 1
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))

    kind = {"evosax_snes": "SNES", "evosax_xnes": "xNES", "evosax_open_es": "Open_ES"}[name]
    settings = {}
    if kind == "Open_ES":
        optimizer = getattr(optax, options.get("optimizer", "sgd"))(options["step_size"])
        settings = {"optimizer": optimizer, "std_schedule": optax.constant_schedule(0.1)}
    strategy = getattr(evosax.algorithms, kind)(10, np.zeros(5), **settings)
    params = strategy.default_params
    keys = jax.random.split(jax.random.split(jax.random.key(0), 2)[0], 300)
    with jax.numpy_rank_promotion("allow"):
        state = strategy.init(jax.random.key(0), np.arange(5.0), params)
        if kind != "Open_ES":
            state = state.replace(std=state.std * 0.1)
        for key, expected in zip(keys[:3], points[0], strict=False):
            asked, state = strategy.ask(key, state, params)
            np.testing.assert_allclose(asked, expected, rtol=1e-12)
            state, _ = strategy.tell(key, asked, sphere(asked), state, params)


def test_evosax_survives_failures():
    import jax

    solver = compiled("evosax_snes", {})
    states, _ = compiled_run(solver, lambda x: sphere(x).at[::3].set(np.nan).at[1].set(-np.inf), 50)
    assert np.isfinite(jax.vmap(solver.mean)(states)).all()


def test_the_registry_says_what_is_missing(monkeypatch):
    name, package = "pycma", SEARCH.about("pycma").packages[0]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{name} needs {package}: pip install 'lowvar\[peers\]'"):
        SEARCH.get(name)
