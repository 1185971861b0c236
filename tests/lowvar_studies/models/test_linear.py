"""Linear predictors of every kind: products against their matrices, and the mean of every control over eps, exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core.backend import get
from lowvar.core.gaussian import independent
from lowvar.core.optimizers import optimizer
from lowvar.vi.batches import Noise, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT
from lowvar_studies.models.linear.designs import Affine, Dense, Grouped, Pairs
from lowvar_studies.models.linear.links import Bernoulli, Categorical
from lowvar_studies.models.linear.problem import linear, standard_normal

N, OPS, RNG = 6, get("jax"), np.random.default_rng(3)
X = jnp.asarray(RNG.normal(size=(N, 2)))
FIRST, SECOND = jnp.asarray([0, 1, 2, 1, 0, 3]), jnp.asarray([1, 2, 0, 1, 3, 3])  # rows 3 and 5: one entry twice
DESIGNS = {
    "dense": (Dense(OPS, X, 3), Categorical(OPS, jnp.asarray([0, 2, 1, 1, 0, 2]), 3)),
    "affine": (Affine(Dense(OPS, X, 3), 2), Categorical(OPS, jnp.asarray([0, 2, 1, 1, 0, 2]), 3)),
    "without": (Affine(Dense(OPS, X), 1, False), Bernoulli(OPS, jnp.asarray([1.0, -1, 1, 1, -1, 1]))),
    "pairs": (Pairs(OPS, FIRST, SECOND, 4), Bernoulli(OPS, jnp.asarray([1.0, -1, 1, 1, -1, 1]))),
    "grouped": (
        Grouped(OPS, X, jnp.asarray([0, 1, 1, 0, 1, 0]), 2, 2, 1, 10),
        Categorical(OPS, jnp.asarray([0, 1, 1, 1, 0, 0]), 2),
    ),
}


@pytest.fixture(params=sorted(DESIGNS))
def made(request):
    return of_design(request.param)


def of_design(name):
    design, link = DESIGNS[name]
    return linear(name, N, np.dtype(float), design, link, *standard_normal(OPS, design.dim),
                  quadratic_prior=True)  # fmt: skip


def matrices(problem):
    """``X_n``, ``(N, C, dim)``."""
    return jax.vmap(lambda e: problem.design.forward(e, None), out_axes=-1)(jnp.eye(problem.dim))


def test_products(made, rng):
    x, index = np.asarray(jax.jit(lambda: matrices(made))()), np.array([4, 1, 3])
    z, rows, r = (rng.normal(size=size) for size in (made.dim, (3, made.dim), (3, x.shape[1])))
    asked = {"forward": z, "back": r, "forward_squares": z, "back_squares": r, "forward_by_row": rows}

    @jax.jit
    def products(asked):
        return {name: getattr(made.design, name)(array, jnp.asarray(index)) for name, array in asked.items()}

    exact = {
        "forward": x[index] @ z,
        "back": np.einsum("bcd,bc->d", x[index], r),
        "forward_squares": x[index] ** 2 @ z,
        "back_squares": np.einsum("bcd,bc->d", x[index] ** 2, r),
        "forward_by_row": np.einsum("bcd,bd->bc", x[index], rows),
    }
    for name, ours in products(asked).items():
        np.testing.assert_allclose(ours, exact[name], atol=1e-14, err_msg=name)


# every product is in `joint_glm_sigma`, and test_products has those of every design
GRID = [
    ("joint_glm_sigma", "grouped"),
    *(pytest.param("joint_glm_sigma", one, marks=pytest.mark.long) for one in ("pairs", "dense", "affine", "without")),
    *(pytest.param(name, "grouped", marks=pytest.mark.long) for name in ("joint", "joint_current", "joint_glm")),
]


@pytest.mark.parametrize(("name", "design"), GRID)
def test_control_has_mean_zero(name, design):
    """What an estimator adds to the naive gradient is quadratic in eps: points ``+- sqrt(dim) e_j`` average it exactly."""
    made, batches = of_design(design), reshuffled(N, 2)
    estimator = GRADIENT.get(name)(made, batches)
    naive = GRADIENT.get("naive")(made, batches)
    draw = np.random.default_rng(4)
    params = {"mu": jnp.asarray(draw.normal(size=made.dim)), "log_sigma": jnp.asarray(-0.5 * draw.random(made.dim))}
    sampled = sampler(batches, independent(), made.dim, made.dtype)
    solver = descend(estimator, sampled, optimizer("sgd", 0.01, OPS))
    epoch = jax.jit(lambda state, key: solver.epoch(state, sampled.epoch(key)))
    state = solver.init(params)
    for key in range(3):
        state = epoch(state, jax.random.key(key))
    corners = np.sqrt(made.dim) * jnp.concatenate([jnp.eye(made.dim), -jnp.eye(made.dim)])

    def control(row, eps):
        noise = Noise(row[None], jnp.ones(1), jnp.asarray(1.0), eps[None], jnp.asarray(0))
        ours, plain = (one.estimate(at, params, noise)[0] for one, at in ((estimator, state.estimator), (naive, ())))
        return {block: ours[block] - plain[block] for block in ours}

    of_all = jax.jit(jax.vmap(jax.vmap(control, (None, 0)), (0, None)))(jnp.arange(N), corners)
    for block, values in of_all.items():
        scale = float(jnp.abs(values).max())
        np.testing.assert_allclose(values.mean((0, 1)), 0, atol=1e-12 * max(scale, 1.0), err_msg=block)
