"""Samplers of integral problems: their laws, their keys, and what they refuse."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.errors import UserError
from lowvar_studies.integrals import catalogue, nuts
from lowvar_studies.integrals.lotka_volterra import true_means
from lowvar_studies.integrals.normal import independent_normals
from lowvar_studies.integrals.problem import Tempering, Truth
from lowvar_studies.integrals.samplers import draw
from lowvar_studies.integrals.van_der_pol import trapezoid

POINT = np.array([1.0, -50.0])
WIDTH = np.array([0.01, 30.0])


@cache
def simulated(name, **options):
    return catalogue.build(name, observations="simulated", **options)


def plain(shared=False):
    """Two tasks under one normal target whose coordinates are of very different size."""
    return independent_normals(
        "plain",
        ("a", "b"),
        (0, 0),
        ((POINT, WIDTH),),
        lambda t, points: points[:, t],
        lambda effort: Truth(POINT, np.zeros(2), "exact"),
        shared=shared,
    )


LADDER = np.array([0.0, 0.05, 0.4, 1.0])


def powers():
    """Power posteriors of one parameter, skewed and narrow at the end; in task ``t`` at ``LADDER[t % 4]``."""

    def log_likelihood(z):
        return -2 * (jnp.exp(z[0]) - 2) ** 2 - z[0]

    known = Tempering(LADDER, log_likelihood, lambda z: 3 * z)
    return replace(
        plain(),
        name="powers",
        dim=1,
        tasks=tuple("abcdefgh"),
        target=(0, 1, 2, 3) * 2,
        log_densities=tuple(lambda x, t=t: t * log_likelihood(x / 3) - jnp.sum(x**2) / 18 for t in LADDER),
        value=lambda t, points: points[:, 0] ** (1 + t // 4),
        score=lambda k, points: -points / 9 + LADDER[k] * (-4 * (np.exp(points / 3) - 2) * np.exp(points / 3) - 1) / 3,
        samplers=("tempered",),
        tempering=known,
    )


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("south", "rqmc"),
        ("borehole", "iid"),
        *(pytest.param(*one, marks=pytest.mark.long) for one in (("south", "iid"), ("borehole", "rqmc"))),
    ],
)
def test_the_law_of_normal_points(sampler, name):
    problem = catalogue.build(name)
    samples = draw(problem, sampler, (48, 48), 200, 0, name)
    assert (samples.sizes, samples.repetitions, samples.dim) == ((48, 48), 200, problem.dim)
    assert not samples.shared
    assert not samples.chain
    for t, target in enumerate(problem.target):
        mean, deviation = problem.gaussian[target]
        z = (samples.points[t] - mean) / deviation
        for moment, exact in ((z, 0), (z**2, 1), (samples.scores[t], 0), (z * deviation * samples.scores[t], -1)):
            found = moment.mean(1)
            assert (np.abs(found.mean(0) - exact) < 5 * found.std(0) / np.sqrt(200)).all()
        np.testing.assert_allclose(samples.values[t][3], problem.value(t, samples.points[t][3]), rtol=1e-12)
        np.testing.assert_allclose(samples.scores[t], -z / deviation, rtol=1e-12, atol=1e-12)
    gap = ((samples.points[0] - samples.points[1]) / problem.gaussian[0][1])[:, :, 0]
    assert np.abs(gap).min(1).max() > 1e-3  # every task has its own points


def test_quasi_monte_carlo_has_less_variance():
    problem = catalogue.build("south")
    spread = {s: draw(problem, s, (64, 64), 200, 0, "a").values[1].mean(1).std() for s in ("iid", "rqmc")}
    assert spread["rqmc"] < 0.2 * spread["iid"]


@pytest.mark.parametrize("sampler", ["iid", "rqmc", pytest.param("tempered", marks=pytest.mark.long)])
def test_a_name_and_a_seed_decide_the_points(sampler):
    problem = powers() if sampler == "tempered" else plain()
    tasks = len(problem.tasks)
    large = draw(problem, sampler, (40,) * (tasks - 1) + (25,), 2 if sampler == "tempered" else 3, 5, "a")
    small, again = (draw(problem, sampler, (10,) * tasks, 2, 5, "a") for _ in range(2))
    other = draw(problem, sampler, (10,) * tasks, 2, 6, "a")
    renamed = draw(problem, sampler, (10,) * tasks, 2, 5, "b") if sampler == "iid" else other
    for t in range(tasks):
        for name in ("points", "scores", "values"):
            assert getattr(small, name)[t].tobytes() == getattr(again, name)[t].tobytes()
        first = large.first((10,) * tasks).repetition(slice(2))
        np.testing.assert_allclose(first.points[t], small.points[t], rtol=1e-12)  # fewer lanes round otherwise
        assert (other.points[t] != small.points[t]).all()
        assert (renamed.points[t] != small.points[t]).all()
    assert large.sizes[-1] == 25


def test_scores_of_all_targets():
    samples = draw(catalogue.build("south", variance=2.0), "iid", (5, 7), 3, 0, "a")
    assert samples.cross_scores is not None
    for t, x in enumerate(samples.points):
        assert samples.cross_scores[t].shape == (3, (5, 7)[t], 2, 1)
        np.testing.assert_allclose(samples.cross_scores[t], np.stack([-x, -x / 2], 2), rtol=1e-12)
        np.testing.assert_allclose(samples.cross_scores[t][:, :, t], samples.scores[t], rtol=1e-12)
    assert draw(catalogue.build("south", variance=1.0), "iid", (5, 7), 3, 0, "a").cross_scores is None


def test_tempered_points_have_the_moments_of_their_temperatures():
    problem = powers()
    samples = draw(problem, "tempered", (128,) * 8, 96, 0, "a")
    assert samples.points[1] is samples.points[5]
    assert samples.cross_scores is not None
    assert samples.cross_scores[0].shape == (96, 128, 8, 1)
    np.testing.assert_allclose(samples.cross_scores[2][:, :, 6], samples.scores[2], rtol=1e-10, atol=1e-12)
    z, log_weight = trapezoid(9, 4001)
    likelihood = np.asarray(jax.vmap(problem.tempering.log_likelihood)(jnp.asarray(z[:, None])))
    for k, t in enumerate(LADDER):
        weight = np.exp(log_weight + t * likelihood)
        weight /= weight.sum()
        for task, moment in ((k, 3 * z), (k + 4, 9 * z**2)):
            exact = weight @ moment
            means = samples.values[task].mean(1)
            error = means.std(ddof=1) / np.sqrt(96)
            independent = np.sqrt(weight @ (moment - exact) ** 2 / 128 / 96)
            assert abs(means.mean() - exact) < 5 * max(error, independent)
            assert error < 2 * independent  # the particles are nearly independent
        stein = samples.scores[k].mean(1)[:, 0]
        assert abs(stein.mean()) < 5 * stein.std() / np.sqrt(96)


@pytest.mark.long
def test_tempering_of_van_der_pol_is_that_of_its_densities():
    problem = simulated("van_der_pol")
    z = jnp.array([0.4])
    x = problem.tempering.points(z)
    ours = -0.5 * jnp.sum(z * z) + LADDER_POINT * problem.tempering.log_likelihood(z) - jnp.log(0.25 * x[0])
    other = jnp.zeros(1)
    gap = ours - problem.log_densities[20](x)
    start = LADDER_POINT * problem.tempering.log_likelihood(other) - jnp.log(0.25)
    np.testing.assert_allclose(gap, start - problem.log_densities[20](jnp.ones(1)), atol=1e-9)


LADDER_POINT = (20 / 30) ** 5


@pytest.mark.long
def test_nuts_and_importance_sampling_agree_on_lotka_volterra(monkeypatch):
    monkeypatch.setattr(nuts, "WARMUP", 60)
    monkeypatch.setattr(nuts, "DEPTH", 4)
    problem = simulated("lotka_volterra")
    samples = draw(problem, "nuts", (60, 60), 4, 0, "a")
    assert samples.shared
    assert samples.chain
    assert samples.points[0] is samples.points[1]
    assert samples.scores[0] is samples.scores[1]
    score = samples.scores[0].mean(1)
    assert (np.abs(score.mean(0)) < 5 * score.std(0, ddof=1) / 2).all()
    about = problem.about
    given = about["times"], about["observations"], about["task_times"]
    for column, species in enumerate(about["series"]):
        truth = true_means(*given, column=column, points=512, scrambles=4, rounds=(1024, 2048, 4096))
        same = simulated("lotka_volterra", species=species)
        for t in range(2):
            values = same.value(t, samples.points[0].reshape(-1, 8)).reshape(samples.values[0].shape)
            means = values.mean(1)
            error = np.hypot(means.std(ddof=1) / 2, truth.error[t])
            assert abs(means.mean() - truth.value[t]) < 5 * error
            assert truth.error[t] < 0.02 * values.std()
            assert error < 0.2 * values.std()


@pytest.mark.parametrize(
    ("sampler", "sizes", "name"),
    [
        ("idd", (5, 5), "'idd'.* iid"),
        ("tempered", (5, 5), "'tempered'"),
        ("iid", (5,), "sizes"),
        ("iid", (5, 0), "sizes"),
    ],
)
def test_mistakes_are_named(sampler, sizes, name):
    with pytest.raises(UserError, match=name):
        draw(plain(), sampler, sizes, 2, 0, "a")
    with pytest.raises(UserError, match="sizes"):
        draw(plain(shared=True), "iid", (5, 6), 2, 0, "a")
    shared = draw(plain(shared=True), "rqmc", (5, 5), 2, 0, "a")
    assert shared.points[0] is shared.points[1]
