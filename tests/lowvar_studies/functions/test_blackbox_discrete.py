"""Functions of discrete points against their definitions, in both backends."""

import itertools

import jax
import numpy as np
import pytest

from lowvar.core.backend import get
from lowvar_studies.functions.catalogue import build
from lowvar_studies.functions.functions import generator

NAMES = ["binary_reconstruction", "categorical_reconstruction"]


def values(problem, points):
    backend = problem.backend
    function = jax.jit(problem.values) if backend.name == "jax" else problem.values
    return backend.to_numpy(function(backend.asarray(np.asarray(points, np.int32))))


def everywhere(problem):
    return np.array(list(itertools.product(range(problem.domain.choices), repeat=problem.dim)))


def test_binary_reconstruction_is_the_paper_s():
    w = generator(0, "binary_reconstruction", 6).standard_normal(6)
    problem = build("binary_reconstruction", get("torch"), dim=6)
    points = everywhere(problem)
    expected = ((np.sign(points - 0.5) - w) ** 2).sum(axis=1) - ((np.sign(w) - w) ** 2).sum()
    np.testing.assert_allclose(values(problem, points), expected, atol=1e-12)


def test_categorical_reconstruction_is_its_sum():
    w = generator(2, "categorical_reconstruction", 4, 3).standard_normal((4, 3))
    problem = build("categorical_reconstruction", get("torch"), dim=4, choices=3, seed=2)
    points = everywhere(problem)
    expected = [sum(w[i, j] - w[i].min() for i, j in enumerate(x)) for x in points]
    np.testing.assert_allclose(values(problem, points), expected, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_zero_and_the_least(name, dim):
    problem = build(name, get("torch"), dim=dim)
    assert values(problem, problem.optimum_at[None, :]) == problem.optimum == 0
    assert values(problem, everywhere(problem)).min() == 0
    assert problem.domain.kind == ("binary" if name.startswith("binary") else "categorical")


@pytest.mark.parametrize("name", NAMES)
def test_backends_agree_and_the_seed_tells(name):
    problems = [build(name, get(backend), dim=50) for backend in ("jax", "torch")]
    points = np.random.default_rng(0).integers(problems[0].domain.choices, size=(8, 50))
    one, two = (values(problem, points) for problem in problems)
    np.testing.assert_allclose(one, two, rtol=1e-12)
    assert (values(build(name, get("torch"), dim=50), points) == two).all()
    assert (values(build(name, get("torch"), dim=50, seed=1), points) != two).all()
    np.testing.assert_allclose(jax.jit(jax.vmap(problems[0].values))(points[None])[0], one, rtol=1e-12)
    floating = problems[1].values(get("torch").asarray(points.astype(float)))
    np.testing.assert_allclose(floating, one, rtol=1e-12)
