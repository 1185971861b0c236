"""Small data for each model of the catalogue, the model in NumPyro, and how tests compare the two."""

import functools

import jax
import numpy as np

from lowvar.core.backend import get
from lowvar.vi.batches import Noise
from lowvar.vi.numpyro.model import NumPyroProblem, from_numpyro
from lowvar_studies.models import (
    blr,
    bnn,
    bradley_terry,
    hlr,
    logistic_regression,
    movielens,
    ppca,
)
from lowvar_studies.models.catalogue import build

RNG = np.random.default_rng(0)
N, TEST = 13, 7
X, TEST_X = RNG.normal(size=(N, 3)), RNG.normal(size=(TEST, 3))
MEASURED = {"x": X, "y": 2 + 3 * RNG.normal(size=(N, 1)), "test_x": TEST_X, "test_y": RNG.normal(size=(TEST, 1))}
BINARY = {"x": X, "y": np.arange(N) % 2, "test_x": TEST_X, "test_y": np.arange(TEST) % 2}
CLASSES = {"x": X, "y": np.arange(N) % 4, "test_x": TEST_X, "test_y": np.arange(TEST) % 4}
WINNER = RNG.permutation(np.arange(N) % 6).astype(np.int32)
PAIRS = {"winner": WINNER, "loser": (WINNER + RNG.integers(1, 6, N).astype(np.int32)) % 6, "players": 6}
RATED = {
    "user": (np.arange(N) % 5).astype(np.int32),
    "x": RNG.integers(0, 2, (N, 3)).astype(float),
    "y": np.arange(N) % 4,
    "users": 5,
}
DATA = {
    "hlr": MEASURED,
    "hlr_sd": MEASURED,
    "blr": BINARY,
    "blr_softmax": CLASSES,
    "blr_softmax_without": CLASSES,
    "bnn": MEASURED,
    "logistic_regression": BINARY,
    "softmax_regression": CLASSES,
    "bradley_terry": PAIRS,
    "movielens": RATED,
    "ppca": {"x": RNG.normal(size=(N, 7)) * np.arange(1, 8), "components": 3},
}
DIMS = {
    "hlr": N * 3 + 3 + 2,
    "hlr_sd": N * 3 + 3 + 2,
    "blr": 5,
    "blr_softmax": 4 * 4 + 2,
    "blr_softmax_without": 14,
    "bnn": 5 * 4 + 1 + 2,
    "logistic_regression": 3,
    "softmax_regression": 12,
    "bradley_terry": 6,
    "movielens": 5 * 12 + 24,
    "ppca": 21,
}
PYRO = {
    "hlr": hlr.model,
    "hlr_sd": functools.partial(hlr.model, intercepts="sd"),
    "blr": blr.model,
    "blr_softmax": functools.partial(blr.softmax_model, classes=4),
    "blr_softmax_without": functools.partial(blr.softmax_model, classes=4, intercept=False),
    "bnn": functools.partial(bnn.model, hidden=4),
    "logistic_regression": logistic_regression.model,
    "softmax_regression": functools.partial(logistic_regression.softmax_model, classes=4),
    "bradley_terry": functools.partial(bradley_terry.model, players=6),
    "movielens": functools.partial(movielens.model, users=5, classes=4),
    "ppca": functools.partial(ppca.model, components=3),
}
OPTIONS = {"bnn": {"hidden": 4}, "blr_softmax_without": {"intercept": False}, "hlr_sd": {"intercepts": "sd"}}
VARIANTS = {"blr_softmax_without": "blr_softmax", "hlr_sd": "hlr"}
MODELS, HELD = sorted(DIMS), sorted(name for name, data in DATA.items() if "test_x" in data)


def made(name, data, backend="jax"):
    """The model on other data."""
    return build(VARIANTS.get(name, name), data, backend, **OPTIONS.get(name, {}))


@functools.cache
def ours(name, backend="jax"):
    return made(name, DATA[name], backend)


def fitted(name):
    """The arrays that the model in NumPyro takes."""
    return {key: v for key, v in DATA[name].items() if isinstance(v, np.ndarray) and not key.startswith("test_")}


@functools.cache
def theirs(name):
    with jax.numpy_rank_promotion("allow"):
        return from_numpyro(PYRO[name], fitted(name), name=name)


def point(name, rows=(), seed=1):
    return 0.4 * np.random.default_rng(seed).normal(size=(*rows, DIMS[name]))


@functools.cache
def noise(name):
    rng = np.random.default_rng(5)
    index, weight = rng.integers(0, N, 5).astype(np.int32), rng.uniform(0.5, 1.5, 5)  # rows may come twice
    return Noise(index, weight / weight.sum(), np.float64(5), rng.normal(size=(2, DIMS[name])), np.arange(5))


def on(backend, tree):
    return get(backend).tree_map(get(backend).asarray, tree)


def close(found, expected, rtol=1e-10):
    scale = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol * scale)


def calls(problem, asked, compiled=False):
    """``{method: its result}`` of ``{method: arguments}``: in JAX by one program, in PyTorch by one only if ``compiled``.

    Of a problem from NumPyro, with the rank promotion that NumPyro makes use of.
    """
    ops = problem.backend
    program = (ops.compile if compiled else ops.jit)(
        lambda given: {name: getattr(problem, name)(*args) for name, args in given.items()}
    )
    with jax.numpy_rank_promotion("allow" if isinstance(problem, NumPyroProblem) else "raise"):
        return ops.to_numpy(program(asked))


def call(problem, method, *args):
    """One method, compiled."""
    return calls(problem, {method: args})[method]
