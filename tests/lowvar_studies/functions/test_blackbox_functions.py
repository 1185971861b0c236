"""The test functions against formulas written out in NumPy, in both backends."""

import itertools

import jax
import numpy as np
import pytest

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar_studies.functions import functions
from lowvar_studies.functions.catalogue import FUNCTIONS, build

DISCRETE = ["binary_reconstruction", "categorical_reconstruction"]
NAMES = [name for name in FUNCTIONS.own if FUNCTIONS.about(name).domain == "real" and FUNCTIONS.about(name).program]


def values(problem, points):
    """In PyTorch without compiling, which is quicker for so many small problems."""
    backend = problem.backend
    function = jax.jit(problem.values) if backend.name == "jax" else problem.values
    return backend.to_numpy(function(backend.asarray(np.asarray(points))))


def literal(name, x):
    """Table 1 of the paper and our two convex functions, coordinate by coordinate."""
    d = len(x)
    power = [10 ** ((i - 1) / (d - 1)) if d > 1 else 1.0 for i in range(1, d + 1)]
    if name == "sphere":
        return sum(v**2 for v in x)
    if name == "elastic_net":
        return sum(v**2 + abs(v) for v in x)
    if name == "discus":
        return 1e6 * x[0] ** 2 + sum(v**2 for v in x[1:])
    if name == "levy":
        w = [1 + (v - 1) / 4 for v in x]
        middle = sum((v - 1) ** 2 * (1 + 10 * np.sin(np.pi * v + 1) ** 2) for v in w[:-1])
        return np.sin(np.pi * w[0]) ** 2 + middle + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    if name == "rastrigin10":
        return 10 * d + sum((s * v) ** 2 - 10 * np.cos(2 * np.pi * s * v) for s, v in zip(power, x, strict=True))
    exponent = {"ellipsoid": 2, "l1_ellipsoid": 1, "l_half_ellipsoid": 0.5}[name]
    return sum(s**6 * abs(v) ** exponent for s, v in zip(power, x, strict=True))


@pytest.mark.parametrize("dim", [1, 2, 7])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_the_paper_s(name, dim):
    points = np.random.default_rng(0).normal(size=(5, dim))
    found = values(build(name, get("torch"), dim=dim), points)
    np.testing.assert_allclose(found, [literal(name, x) for x in points], rtol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_backends_agree(name):
    points = np.random.default_rng(1).normal(size=(6, 20))
    one, two = (
        values(build(name, get(backend), dim=20, rotation=True, shift=0.3), points) for backend in ("jax", "torch")
    )
    np.testing.assert_allclose(one, two, rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"rotation": 3}, {"shift": 2.0}, {"rotation": True, "shift": [1.0, 2.0, 3.0]}])
@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_zero_and_the_least(name, options):
    problem = build(name, get("torch"), dim=3, **options)
    assert values(problem, problem.optimum_at[None, :]) == problem.optimum == 0
    around = problem.optimum_at + np.random.default_rng(2).normal(size=(50, 3)) * 10.0 ** -np.arange(50)[:, None] / 10
    near = values(problem, around)
    assert (near >= 0).all()
    assert (near[:8] > 0).all()


def test_no_digits_are_lost_near_the_optimum():
    small = np.array([[1e-9, 0.0]])
    # 1e-18 disappears beside the 20 of the printed form
    assert values(build("rastrigin10", get("torch"), dim=2), small)[0] == pytest.approx((1 + 20 * np.pi**2) * 1e-18)
    assert values(build("l_half_ellipsoid", get("torch"), dim=2), small)[0] == pytest.approx(1e-9**0.5)
    levy = build("levy", get("torch"), dim=2, rotation=True)
    assert 0 < values(levy, levy.optimum_at[None, :] + np.array([[2.0**-30, 0.0]]))[0] < 1e-17


def test_a_rotation_is_orthogonal_and_turns_around_the_optimum():
    turn = functions.haar(6, 3)
    np.testing.assert_allclose(turn @ turn.T, np.eye(6), atol=1e-14)
    assert (turn == functions.haar(6, 3)).all()
    assert not (turn == functions.haar(6, 4)).any()
    plain, turned = (build("levy", get("torch"), dim=6, rotation=rotation) for rotation in (False, 3))
    points = np.random.default_rng(3).normal(size=(4, 6))
    expected = values(plain, (points - 1) @ turn.T + 1)
    np.testing.assert_allclose(values(turned, points), expected, rtol=1e-12)


def test_haar_has_no_preferred_direction():
    entries = np.array([functions.haar(2, seed)[0, 0] for seed in range(300)])
    # the cosine of a uniform angle: mean 0, variance 1/2, both signs alike
    assert abs(entries.mean()) < 5 * np.sqrt(0.5 / 300)
    assert abs((entries**2).mean() - 0.5) < 5 * np.sqrt(0.125 / 300)


def test_the_start_is_uniform_and_repeats():
    start = build("sphere", get("jax"), dim=500).start(jax.random.key(1))
    assert (start.shape, start.dtype) == ((500,), np.float64)
    assert 0 <= start.min() < start.max() <= 1
    assert abs(start.mean() - 0.5) < 5 / np.sqrt(12 * 500)
    assert (start == build("sphere", get("torch"), dim=500).start(jax.random.key(1))).all()


@pytest.mark.parametrize(
    ("option", "values"),
    [("dim", (0, 2.5)), ("rotate", (True,)), ("rotation", ("yes",)), ("shift", ([1.0, 2.0], "far", float("nan"))), ("seed", ("x",))],
)  # fmt: skip
def test_wrong_options_are_named(option, values):
    for value in values:
        with pytest.raises(UserError, match=option):
            build("ellipsoid", get("torch"), **{"dim": 3, "shift": 1.0, option: value})


# --- discrete points


def everywhere(problem):
    return np.array(list(itertools.product(range(problem.domain.choices), repeat=problem.dim)))


def test_binary_reconstruction_is_the_paper_s():
    w = functions.generator(0, "binary_reconstruction", 6).standard_normal(6)
    problem = build("binary_reconstruction", get("torch"), dim=6)
    points = everywhere(problem)
    expected = ((np.sign(points - 0.5) - w) ** 2).sum(axis=1) - ((np.sign(w) - w) ** 2).sum()
    np.testing.assert_allclose(values(problem, points), expected, atol=1e-12)


def test_categorical_reconstruction_is_its_sum():
    w = functions.generator(2, "categorical_reconstruction", 4, 3).standard_normal((4, 3))
    problem = build("categorical_reconstruction", get("torch"), dim=4, choices=3, seed=2)
    points = everywhere(problem)
    expected = [sum(w[i, j] - w[i].min() for i, j in enumerate(x)) for x in points]
    np.testing.assert_allclose(values(problem, points), expected, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 5])
@pytest.mark.parametrize("name", DISCRETE)
def test_the_optimum_of_discrete_points_is_zero_and_the_least(name, dim):
    problem = build(name, get("torch"), dim=dim)
    assert values(problem, problem.optimum_at[None, :]) == problem.optimum == 0
    assert values(problem, everywhere(problem)).min() == 0
    assert problem.domain.kind == ("binary" if name.startswith("binary") else "categorical")


@pytest.mark.parametrize("name", DISCRETE)
def test_backends_agree_on_discrete_points_and_the_seed_tells(name):
    problems = [build(name, get(backend), dim=50) for backend in ("jax", "torch")]
    points = np.random.default_rng(0).integers(problems[0].domain.choices, size=(8, 50))
    one, two = (values(problem, points) for problem in problems)
    np.testing.assert_allclose(one, two, rtol=1e-12)
    assert (values(build(name, get("torch"), dim=50), points) == two).all()
    assert (values(build(name, get("torch"), dim=50, seed=1), points) != two).all()
    np.testing.assert_allclose(jax.jit(jax.vmap(problems[0].values))(points[None])[0], one, rtol=1e-12)
