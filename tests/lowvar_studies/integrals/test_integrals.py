"""Integral problems: truths by two rules, scores by two ways, and mistakes that are said in one sentence."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ndtri
from scipy.stats import qmc

from lowvar.errors import UserError
from lowvar_studies.datasets.load import Prepared, load
from lowvar_studies.datasets.prepare import prepare
from lowvar_studies.integrals import catalogue, ode
from lowvar_studies.integrals.importance import affine, fitted, posterior_means
from lowvar_studies.integrals.lotka_volterra import PRIOR_DEVIATION, PRIOR_MEAN, START
from lowvar_studies.integrals.normal import gauss_hermite
from lowvar_studies.integrals.rowwise import remembered, rowwise
from lowvar_studies.integrals.van_der_pol import LADDER, NOISE, by_quadrature, log_evidence

NORMAL = [("south", {}), ("south", {"variance": 1.1, "swapped": True}), ("step", {}), ("borehole", {})]


@cache
def gauss_legendre(half_width, panels, nodes):
    """As ``trapezoid``, by Gauss-Legendre rules on ``panels`` equal intervals."""
    x, weight = np.polynomial.legendre.leggauss(nodes)
    half = half_width / panels
    middle = half * (2 * np.arange(panels) + 1 - panels)
    z = (middle[:, None] + half * x).ravel()
    return z, -0.5 * z**2 + np.tile(np.log(half * weight), panels) - 0.5 * np.log(2 * np.pi)


@cache
def simulated(name, **options):
    return catalogue.build(name, observations="simulated", **options)


@pytest.mark.parametrize(("name", "options"), [*NORMAL, ("borehole", {"second_arguments": "deviations"})])
def test_truths_of_normal_targets_by_two_rules(name, options):
    problem = catalogue.build(name, **options)
    truth = problem.truth(1)
    assert (truth.error == 0).all()
    for t, target in enumerate(problem.target):
        mean, deviation = problem.gaussian[target]
        if problem.dim == 1:  # an even number of nodes: the step lies between two of them
            second = gauss_hermite(lambda x, t=t: problem.value(t, x), mean, deviation, (80,))
            np.testing.assert_allclose(truth.value[t], second, rtol=1e-10)
            continue
        means = []
        for r in range(8):
            u = qmc.Sobol(problem.dim, rng=np.random.default_rng(r)).random(2**11)
            means.append(problem.value(t, mean + deviation * ndtri(u)).mean())
        error = np.std(means, ddof=1) / np.sqrt(len(means))
        assert error < 2e-3
        assert abs(np.mean(means) - truth.value[t]) < 5 * error


def test_the_borehole_flows_72_8786():
    np.testing.assert_allclose(catalogue.build("borehole").truth(1).value, [57.9948530303, 72.8786041938], atol=1e-9)
    wider = catalogue.build("borehole", second_arguments="deviations").truth(1).value
    np.testing.assert_allclose(wider, [57.9974972066, 72.8819269813], atol=1e-8)


def test_south_pairs_functions_with_targets_as_asked():
    assert catalogue.build("south", variance=1.2).truth(1).value.tolist() == [3, 2.2]
    np.testing.assert_allclose(catalogue.build("south", variance=1.2, swapped=True).truth(1).value, [3.3, 2])
    assert catalogue.build("south", variance=1.2).target == (0, 1)
    assert catalogue.build("south", variance=1.0).one_target


@pytest.mark.parametrize(("name", "options"), NORMAL)
def test_scores_of_normal_targets(name, options):
    problem = catalogue.build(name, **options)
    for k, (mean, deviation) in enumerate(problem.gaussian):
        points = mean + deviation * np.random.default_rng(k).standard_normal((5, problem.dim))
        score = problem.score(k, points)
        exact = jax.vmap(jax.grad(problem.log_densities[k]))(jnp.asarray(points))
        np.testing.assert_allclose(score, exact, rtol=1e-10, atol=1e-12)


def reference_van_der_pol(x, seen):
    field = lambda s, u: [u[1], x * (1 - u[0] ** 2) * u[1] - u[0]]  # noqa: E731
    u = solve_ivp(field, (0, 10), (0, 2), "DOP853", np.arange(11), rtol=1e-11, atol=1e-11).y[0]
    return -0.5 * np.sum(((seen - u) / 0.1) ** 2) - 5.5 * np.log(2 * np.pi * 0.01)


def reference_lotka_volterra(x, seen):
    a, b, d, g = np.exp(x[:4])
    field = lambda s, v: [v[0] * (a - b * v[1]), v[1] * (d * v[0] - g)]  # noqa: E731
    states = solve_ivp(field, (0, 20), np.exp(x[4:6]), "DOP853", np.arange(21), rtol=1e-11, atol=1e-11).y.T
    z = (np.log(seen) - np.log(states)) / np.exp(x[6:])
    return -0.5 * np.sum(z**2) - 21 * x[6:].sum() - 0.5 * np.sum(((x - PRIOR_MEAN) / PRIOR_DEVIATION) ** 2)


def test_van_der_pol_against_another_solver():
    problem, points, h = simulated("van_der_pol"), np.array([[0.7], [1.0], [1.6]]), 1e-5
    seen = problem.about["observations"]
    expected = np.array([reference_van_der_pol(x, seen) for x in points[:, 0]])
    np.testing.assert_allclose(problem.value(4, points), expected, rtol=1e-8)
    np.testing.assert_allclose(problem.value(35, points), expected**2, rtol=1e-8)
    solved = problem.about["solve"](points, problem.about["times"])[:, :, 0]
    misfit = -0.5 * (((seen - solved) / NOISE) ** 2).sum(1) - 11 / 2 * np.log(2 * np.pi * NOISE**2)
    np.testing.assert_allclose(misfit, expected, rtol=1e-8)
    slope = [(reference_van_der_pol(x + h, seen) - reference_van_der_pol(x - h, seen)) / (2 * h) for x in points[:, 0]]
    prior = (-(1 + np.log(points) / 0.0625) / points)[:, 0]
    for k in (0, 20, 30):
        np.testing.assert_allclose(problem.score(k, points)[:, 0], LADDER[k] * np.array(slope) + prior, rtol=1e-5)


@pytest.mark.long
def test_lotka_volterra_against_another_solver():
    problem, x, h = simulated("lotka_volterra"), START + 0.1 * np.cos(np.arange(8)), 1e-5
    seen = problem.about["observations"]
    along = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 3)))[0].T
    slope = [reference_lotka_volterra(x + h * e, seen) - reference_lotka_volterra(x - h * e, seen) for e in along]
    np.testing.assert_allclose(along @ problem.score(0, x[None])[0], np.array(slope) / (2 * h), rtol=1e-4, atol=1e-4)
    states = problem.about["solve"](x[None], np.array([1900, 1910, *problem.about["task_times"]]))
    np.testing.assert_allclose(states[0, 0], np.exp(x[4:6]), rtol=1e-12)
    for column, species in enumerate(problem.about["series"]):
        one = simulated("lotka_volterra", species=species)
        np.testing.assert_allclose(states[0, 2:, column], [one.value(t, x[None])[0] for t in range(2)], rtol=1e-6)
    field = lambda s, v: [v[0] * (r[0] - r[1] * v[1]), v[1] * (r[2] * v[0] - r[3])]  # noqa: E731
    r = np.exp(x)
    other = solve_ivp(field, (0, 10), r[4:6], "DOP853", rtol=1e-10, atol=1e-10).y[:, -1]
    np.testing.assert_allclose(states[0, 1], other, rtol=1e-6)


def test_where_the_solver_gives_up():
    def field(time, state, rate):
        return -rate * state

    times = np.arange(9.0)
    decay = ode.trajectory(field, lambda x: (jnp.ones(1), x), times, tolerance=1e-8, method="tsit5", steps=200)
    both = jax.jit(lambda x: [array[:, 0] for array in jax.jvp(decay, (x,), (jnp.ones(1),))])
    value, slope = both(jnp.ones(1))
    np.testing.assert_allclose(value, np.exp(-times), atol=1e-6)
    np.testing.assert_allclose(slope, -times * np.exp(-times), atol=1e-5)
    value, slope = both(jnp.full(1, 1e4))  # so fast that 200 steps are too few
    assert np.isnan(value).all()
    assert (np.asarray(slope) == 0).all()


@pytest.mark.long
def test_the_evidence_of_van_der_pol_by_two_rules():
    problem = simulated("van_der_pol")
    moments, evidence = by_quadrature(lambda x: problem.value(0, x), *gauss_legendre(8, 100, 12))
    truth = problem.truth(1)
    np.testing.assert_allclose(truth.value, moments, rtol=1e-8)
    assert abs(truth.derived["log_evidence"][0] - evidence) < 1e-8


def test_the_tasks_of_van_der_pol():
    problem = simulated("van_der_pol")
    assert len(problem.tasks) == len(problem.target) == 62
    assert (problem.tasks[6], problem.tasks[37]) == ("mean 07", "square 07")
    assert [len(group) for group in problem.groups] == [4] * 7 + [3] + [4] * 7 + [3]
    assert sorted(t for group in problem.groups for t in group) == list(range(62))


def test_the_thermodynamic_sum_is_exact_for_cubic_means():
    mean = np.stack([LADDER**3, 1 - 2 * LADDER])
    square = np.stack([3 * LADDER**2, np.full(31, -2.0)]) + mean**2
    np.testing.assert_allclose(log_evidence(np.concatenate([mean, square], 1)), [0.25, 0], atol=1e-14)


@pytest.mark.long
def test_the_evidence_of_the_published_observations(tmp_path):
    data = load(prepare("van_der_pol", "none", raw=tmp_path, out=tmp_path / "a.npz"))
    once = catalogue.build("van_der_pol", data)
    twice = catalogue.build("van_der_pol", data, constants=2)
    truth = once.truth(1)
    exact, _ = truth.derived["log_evidence"]
    assert abs(exact - 10.355903) < 1e-6
    shift = once.value(0, np.ones((1, 1))) - twice.value(0, np.ones((1, 1)))
    assert abs(exact - shift[0] - 25.576015) < 1e-6
    (at_exact_means,) = once.derived["log_evidence"](truth.value[None])
    assert 5e-5 < at_exact_means - exact < 2e-4  # the rule's discretisation


def test_rows_do_not_depend_on_each_other():
    calls = []

    def function(x):
        calls.append(x)
        return jnp.sum(jnp.exp(x)), x[:1]

    points = np.random.default_rng(0).standard_normal((11, 3))
    call = rowwise(function, chunk=4)
    total, first = call(points)
    alone = np.concatenate([call(one[None])[0] for one in points])
    np.testing.assert_allclose(total, alone, rtol=1e-14)  # another place in a vector may round differently
    np.testing.assert_array_equal(first, points[:, :1])
    assert [array.shape for array in call(points[:0])] == [(0,), (0, 1)]
    assert len(calls) == 1  # traced once
    seen = []
    look = remembered(lambda x: seen.append(x) or x.sum())
    assert [look(points[:k]) for k in (3, 3, 4, 3)] == [points[:k].sum() for k in (3, 3, 4, 3)]
    assert [len(x) for x in seen] == [3, 4]


def bent(x):
    """A normal density on a parabola: ``x_1 ~ N(0, 1)``, ``x_2 ~ N(x_1^2, exp(x_1 / 2))``."""
    log_density = -0.5 * x[:, 0] ** 2 - 0.5 * (x[:, 1] - x[:, 0] ** 2) ** 2 * np.exp(-x[:, 0] / 2) - x[:, 0] / 4
    return log_density, np.stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]], 1)


def test_importance_sampling_follows_a_bent_density():
    settings = {"points": 1024, "rounds": (4096, 8192, 16384)}
    value, error, effective = posterior_means(bent, np.zeros(2), np.ones(2), **settings)
    assert (np.abs(value - [0, 1, 0]) < 5 * error).all()
    assert (error < 5e-3).all()
    assert effective > 0.95
    again, moved = (posterior_means(bent, np.zeros(2), np.ones(2), **settings, seed=seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(value, again)
    assert (value != moved).all()


def test_densities_of_transport_maps():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((4000, 2))
    points[:, 1] += points[:, 0] ** 2
    h = 1e-5
    for transport in (affine(np.array([1.0, 2.0]), np.array([[2.0, 1.0], [1.0, 3.0]])), fitted(points, np.ones(4000))):
        z = rng.standard_normal((6, 2))
        jacobian = np.stack(
            [(transport.push(z + h * e)[0] - transport.push(z - h * e)[0]) / (2 * h) for e in np.eye(2)], axis=2
        )
        exact = -0.5 * (z**2).sum(1) - np.log(np.abs(np.linalg.det(jacobian)))
        gap = transport.push(z)[1] - exact
        np.testing.assert_allclose(gap, gap[0], atol=1e-8)


def test_the_catalogue():
    for name in catalogue.PROBLEMS:
        problem = simulated(name) if catalogue.dataset_of(name) else catalogue.build(name)
        assert problem.name == name
        assert len(problem.tasks) == len(problem.target)
        assert max(problem.target) + 1 == len(problem.log_densities)
        assert problem.start is not None
        assert {start.shape for start in problem.start} == {(problem.dim,)}
    for second, ends in ((False, {2: (1913.0, 1913.2), 5: (1912.0, 1912.8)}), (True, {10: (1914.0, 1915.8)})):
        for k, (first, last) in ends.items():
            tasks = catalogue.build("lotka_volterra", tasks=k, second=second, observations="simulated").tasks
            assert (tasks[0], tasks[-1]) == (f"hare {first}", f"hare {last}")
    assert catalogue.build("lotka_volterra", species="lynx", observations="simulated").tasks[0] == "lynx 1913.0"


OTHER = Prepared({"x": np.zeros((2, 1)), "y": np.zeros(2)}, {"dataset": "sonar", "scaling": "none"}, "")


@pytest.mark.parametrize(
    ("name", "data", "options", "argument"),
    [
        ("south", None, {"variance": 0}, "variance"),
        ("borehole", None, {"second_arguments": "variance"}, "'variances'"),
        ("van_der_pol", None, {}, "lowvar fetch van_der_pol"),
        ("lotka_volterra", OTHER, {}, "hudson_bay"),
        ("van_der_pol", None, {"constants": 3}, "constants"),
        ("lotka_volterra", None, {"tasks": 3}, "tasks"),
        ("lotka_volterra", None, {"species": "fox"}, "species.*'fox'"),
    ],
)
def test_mistakes_are_one_sentence(name, data, options, argument):
    with pytest.raises(UserError, match=argument):
        catalogue.build(name, data, **options)
