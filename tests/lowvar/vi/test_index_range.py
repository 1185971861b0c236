"""Indices beyond the ends of an array, for which JAX takes another entry without a word."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import lowvar
from lowvar.errors import UserError
from lowvar.vi.numpyro.model import from_numpyro

torch = pytest.importorskip("torch")
N, GROUPS = 40, 5
RNG = np.random.default_rng(0)
EVEN = np.arange(GROUPS) % 2 == 0
G, Y, X = np.arange(N) % GROUPS, RNG.normal(size=N), RNG.normal(size=(N, 3))
CODES = pd.Categorical(np.where(np.arange(N) == 7, None, np.array(list("abcde"), object)[G])).codes


def problem_of(mean, **data):
    def model(y, **given):
        with numpyro.plate("groups", GROUPS):
            e = numpyro.sample("e", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", N) as i:
            numpyro.sample("y", dist.Normal(mean(e, i, y=y, **given), 1.0), obs=y[i])

    return from_numpyro(model, {"y": Y, **data})


WRONG = {
    "groups from 1": (lambda e, i, y, g: e[g[i]], {"g": G + 1}, r"row 4, where 'g' is 5"),
    "a missing category": (lambda e, i, y, g: e[g[i]], {"g": CODES}, r"row 7, where 'g' is -1"),
    "before the plate's index": (lambda e, i, y, g: e[g][i], {"g": G + 1}, r"row 4, where 'g' is 5"),
    "a lag of the first row": (lambda e, i, y: e[0] * y[i - 1], {}, "row 0 "),
    "an array that is too short": (lambda e, i, y, t: e[0] * t[i + 0], {"t": Y[:-1]}, "row 39 "),
    "a column": (lambda e, i, y, x, g: e[0] * x[i, g[i]], {"x": X, "g": G}, r"row 3, where 'g' is 3"),
    "under vmap": (lambda e, i, y, g: jax.vmap(lambda k: e[g[k]])(i), {"g": CODES}, r"row 7, where 'g' is -1"),
    "a table of booleans": (lambda e, i, y, g, t: e[0] * t[g[i]], {"g": CODES, "t": EVEN}, "row 7"),
    "a table that a table indexes": (
        lambda e, i, y, g, r, t: e[0] + t[r[g[i]]],
        {"g": CODES, "r": np.array([0, 1, 2, 0, 1]), "t": np.array([0.0, 0.0, 1.5])},
        "row 7",
    ),
    "a table of one entry that a table indexes": (
        lambda e, i, y, g, r, t: e[0] * t[r[g[i]]],
        {"g": CODES, "r": np.zeros(GROUPS, int), "t": np.ones(1)},
        "row 7",
    ),
    "in a jitted function": (lambda e, i, y, g: jax.jit(lambda a, k: a[k])(e, g[i]), {"g": CODES}, "row 7"),
    "by jnp.take": (lambda e, i, y, g: jnp.take(e, g[i]), {"g": CODES}, "row 7"),
}
RIGHT = {
    "groups from 0": (lambda e, i, y, g: e[g[i]], {"g": G}),
    "a missing category that is replaced": (
        lambda e, i, y, g: jnp.where(g[i] < 0, 0.0, e[g[i]]), {"g": CODES},
    ),
    "a lag whose first row is replaced": (lambda e, i, y: jnp.where(i > 0, e[0] * y[i - 1], 0.0), {}),
    "under vmap": (lambda e, i, y, g: jax.vmap(lambda k: e[g[k]])(i), {"g": G}),
    "by jnp.take": (lambda e, i, y, g: jnp.take(e, g[i]), {"g": G}),
    "clipped on purpose": (
        lambda e, i, y, g: jax.vmap(lambda k: e[jnp.clip(g[k], 0, GROUPS - 1)])(i), {"g": G + 1},
    ),
    "a ring": (lambda e, i, y: e[0] * y[(i - 1) % N], {}),
    "the last column": (lambda e, i, y, x: e[-1] * x[i][:, [0, -1]].sum(1) + e[jnp.array([-1])], {"x": X}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_index_out_of_range_is_refused(name):
    mean, data, told = WRONG[name]
    with pytest.raises(UserError, match=told):
        problem_of(mean, **data)


@pytest.mark.long
@pytest.mark.parametrize("name", RIGHT)
def test_an_index_that_is_meant_is_not(name):
    mean, data = RIGHT[name]
    assert problem_of(mean, **data).N == N


def test_without_a_plate():
    def model(g, y):
        e = numpyro.sample("e", dist.Normal(0.0, 1.0).expand([GROUPS]).to_event(1))
        numpyro.sample("y", dist.Normal(e[g], 1.0), obs=y)

    from_numpyro(model, {"g": G, "y": Y})
    with pytest.raises(UserError, match="index"):
        from_numpyro(model, {"g": G + 1, "y": Y})


TABLE, REGION, OFFSET = torch.as_tensor(EVEN), torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0.0, 0.0, 1.5])
IN_TORCH = {
    "groups from 0": (lambda e, g, i: e[g[i]], G, True),
    "a missing category": (lambda e, g, i: e[g[i]], CODES, False),
    "under vmap": (lambda e, g, i: torch.func.vmap(lambda k: e[g[k]])(i), CODES, False),
    "replaced": (lambda e, g, i: torch.where(g[i] < 0, 0.0, e[g[i]]), CODES, True),
    "the last of all groups": (lambda e, g, i: e[[0, -1]].sum() + e[torch.tensor([-1])] + e[g[i]], G, True),
    "a lag of the first row": (lambda e, g, i: e[0] * torch.as_tensor(Y)[i - 1], G, False),
    "a ring": (lambda e, g, i: e[0] * torch.as_tensor(Y)[(i - 1) % N], G, True),
    "a table of booleans": (lambda e, g, i: e[0] * TABLE[g[i]], CODES, False),
    "a table that a table indexes": (lambda e, g, i: e[0] + OFFSET[REGION[g[i]]], CODES, False),
    "a table of one entry that a table indexes": (lambda e, g, i: e[:1][(0 * REGION)[g[i]]], CODES, False),
    "a lag of numbers that the model makes": (
        lambda e, g, i: e[0] * torch.as_tensor(Y)[(torch.arange(N) - 1)[i]],
        G,
        False,
    ),
    "a table, replaced": (lambda e, g, i: e[0] * torch.where(g[i] < 0, False, TABLE[g[i]]), CODES, True),
}


@pytest.mark.parametrize("name", IN_TORCH)
def test_negative_indices_of_a_torch_model(name):
    mean, codes, meant = IN_TORCH[name]
    g, y = torch.as_tensor(np.array(codes, np.int64)), torch.as_tensor(Y)
    model = lowvar.TorchModel(
        lambda e, i: -0.5 * (y[i] - mean(e, g, i)) ** 2, lambda e: -0.5 * (e**2).sum(), N, GROUPS, "groups"
    )
    with contextlib.nullcontext() if meant else pytest.raises(UserError, match=r"row (7|0) reads .*index"):
        model.problem(None)


def test_columns_that_a_torch_model_names_are_no_rows():
    x, y = torch.as_tensor(X[:2]), torch.as_tensor(Y[:2])
    model = lowvar.TorchModel(
        lambda z, i: -0.5 * (y[i] - x[:, [0, -1]][i] @ z) ** 2, lambda z: -0.5 * (z**2).sum(), 2, 2
    )
    assert model.problem().N == 2
