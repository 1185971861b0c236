"""Variances of search gradients against closed forms for linear and quadratic functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from lowvar.core import backend as backends
from lowvar.core.intervals import ratio_of_means
from lowvar.search.problem import BlackBoxProblem, Domain
from lowvar_studies.reports.search import variance as S
from lowvar_studies.reports.search.gathering import DECOMPOSITION

D, N = 6, 4
A = np.array([1.0, -2.0, 0.5, 3.0, 0.0, 1.5])
H = np.array([1.0, 2.0, 4.0, 0.5, 1.0, 3.0])
KEY = jax.random.key(3)


def black_box(values, dim=D, name="test"):
    return BlackBoxProblem(name, Domain("real", dim), values, backends.get("jax"), None, lambda key: np.zeros(dim))


LINEAR = black_box(lambda x: x @ A + 7)
QUADRATIC = black_box(lambda x: (x * x) @ H + 7)


def cell(table, **where):
    (row,) = table[(table[list(where)] == pd.Series(where)).all(axis=1)].itertuples()
    return row


def assert_within(row, exact, column="variance", widest=0.3):
    """The interval covers the exact value, widened to what a fixed seed should never leave, and says something."""
    prefix = "" if column == "variance" else f"{column}_"
    width = np.log(getattr(row, f"{prefix}high") / getattr(row, f"{prefix}low"))
    assert width < widest
    assert abs(np.log(getattr(row, column) / exact)) < width  # four standard errors


@pytest.fixture(scope="module")
def linear():
    return S.search_variance(
        LINEAR, mean=np.ones(D), sigmas=[0.5, 2.0], populations=[N], key=KEY, replicates=5000,
        schemes=["iid", "antithetic", "orthogonal"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def quadratic():
    return S.search_variance(
        QUADRATIC, mean=np.zeros(D), sigmas=[0.5], populations=[N], key=KEY, replicates=5000,
        schemes=["iid", "antithetic"], baselines=["centre"],
    )  # fmt: skip


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_linear_function(linear, sigma):
    """``E |z|^2 (a'z)^2 = (d + 2) |a|^2``, and orthogonal points have uncorrelated ``z a'z`` but for their means."""
    squared = sigma**2 * A @ A  # of the gradient by mu / sigma
    at = {"sigma": sigma, "block": "mu", "source": "total"}
    exact = {"iid": (D + 1) / N, "antithetic": 2 * (D + 1) / N, "orthogonal": (D + 2) / N - 1}
    for scheme, factor in exact.items():
        row = cell(linear, scheme=scheme, baseline="centre", **at)
        assert_within(row, squared * factor)
        if scheme != "iid":
            assert_within(row, factor / exact["iid"], "to_iid")
    f = A.sum() + 7  # the value at the mean is a constant that only a baseline removes
    assert_within(cell(linear, scheme="iid", baseline="none", **at), squared * (D + 1) / N + f * f * D / N)
    assert_within(cell(linear, scheme="iid", baseline="mean", **at), squared * (D + 1) / (N - 1))


def test_linear_function_has_no_even_part_beyond_a_constant(linear):
    even = linear[(linear.block == "mu") & (linear.source == "even") & (linear.baseline != "none")]
    assert (even.variance == 0).all()
    # by sigma there is no gradient: all is noise, and pairs remove all of it
    sigma = linear[(linear.block == "sigma") & (linear.baseline == "centre")]
    assert (sigma.variance[sigma.scheme == "antithetic"] == 0).all()
    # E (a'z)^2 sum (z_k^2 - 1)^2: each k has E z^2 (z^2 - 1)^2 = 10 beside its own a_k^2, and 2 beside the others'
    row = cell(linear, sigma=0.5, population=N, scheme="iid", baseline="centre", block="sigma", source="odd")
    assert_within(row, 0.25 * (10 + 2 * (D - 1)) * (A @ A) / N)


def test_quadratic_function_about_its_optimum(quadratic):
    """No odd part, no gradient by ``mu``: ``E |z|^2 (z'Hz)^2``, by the moments 1, 3, 15 of ``z^2``."""
    at = {"sigma": 0.5, "population": N, "baseline": "centre", "source": "total"}
    rest = H.sum() - H
    moment = (15 * H**2 + 6 * H * rest + rest**2 + 2 * ((H**2).sum() - H**2)).sum()
    row = cell(quadratic, scheme="iid", block="mu", **at)
    assert_within(row, 0.5**4 * moment / N)
    row = cell(quadratic, scheme="antithetic", block="mu", **at)
    assert row.variance == row.low == row.high == row.to_iid == 0
    # by sigma: the gradient of sum h z^2 is 2 h, and z^2 - 1 has E (z^2 - 1)^2 z^4 = 78, .. z^2 = 10, .. 1 = 2
    second = (78 * H**2 + 20 * H * rest + 2 * (rest**2 + 2 * ((H**2).sum() - H**2))).sum()
    squared = (second - 4 * H @ H) * 0.5**4 / N  # of the gradient by sigma
    assert_within(cell(quadratic, scheme="iid", block="sigma", **at), squared, widest=0.5)
    assert_within(cell(quadratic, scheme="antithetic", block="sigma", **at), 2, "to_iid", widest=0.5)


@pytest.mark.long
def test_intervals_cover():
    """Nominal 95 % over independent tables of few replicates."""
    count, batches = 200, 25
    keys = jax.random.split(KEY, (count * batches, 8))
    found = {}
    for scheme in ("iid", "orthogonal"):
        variance, _ = S._cell(LINEAR, scheme, N, ("centre",), 8, 1)(jnp.ones(D), jnp.ones(1), keys)
        found[scheme] = np.asarray(variance)[:, 0, 0, 0, 0].reshape(count, batches)
    iid, orthogonal = found.values()
    exact = {"variance": ((D + 2) / N - 1) * (A @ A), "to_iid": (D + 2 - N) / (D + 1)}
    inside = dict.fromkeys(exact, 0)
    for r in range(count):
        for name, other in (("variance", np.ones(batches)), ("to_iid", iid[r])):
            _, low, high = ratio_of_means([(1, orthogonal[r]), (-1, other)])
            inside[name] += low < exact[name] < high
    assert min(inside.values()) >= 178  # of binomial(200, 0.95): 1e-3


def test_same_key_same_table():
    one, two = (
        S.search_variance(LINEAR, mean=np.ones(D), sigmas=[1.0], populations=[3], schemes=["rqmc"], replicates=50,
                          baselines=["mean"], key=KEY) for _ in range(2)
    )  # fmt: skip
    assert one.equals(two)
    assert set(one) == {column.name for column in DECOMPOSITION.columns}
    assert one.to_iid.isna().all()
