"""The permutation that shuffles rows: a bijection, uniform as far as batches can tell."""

import itertools
from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats

from lowvar.vi.batches import permutation, reshuffled

FEW, MANY = 64, 65  # the last N of ranks, the first of the network


@pytest.mark.parametrize(
    "N", [1, FEW, MANY, 81, 65_537, *(pytest.param(N, marks=pytest.mark.long) for N in (2, 256, 1000, 4097, 1_000_003))]
)
def test_every_number_occurs_once(N):
    assert (np.bincount(np.asarray(permutation(jax.random.key(N), N)), minlength=N) == 1).all()


@cache
def permutations(N, count):
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, N)))(jax.random.split(jax.random.key(5), count)))


def test_all_permutations_of_five_are_equally_likely():
    drawn = permutations(5, 60_000) @ 5 ** np.arange(5)
    codes = [np.array(one) @ 5 ** np.arange(5) for one in itertools.permutations(range(5))]
    assert stats.chisquare([(drawn == code).sum() for code in codes]).pvalue > 1e-4


@pytest.mark.parametrize(
    "N", [MANY, pytest.param(FEW, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.long)]
)
def test_numbers_and_pairs_of_them_are_uniform(N):
    """Chi-squared of the places of single numbers and of pairs, neighbours and others; 1e-4 for each of some dozens."""
    drawn = permutations(N, 100_000)
    off = ~np.eye(N, dtype=bool)
    for i, j in ((0, 1), (0, N // 2), (2, N - 1)):
        assert stats.chisquare(np.bincount(drawn[:, i], minlength=N)).pvalue > 1e-4
        pairs = np.bincount(drawn[:, i] * N + drawn[:, j], minlength=N * N).reshape(N, N)
        assert stats.chisquare(pairs[off]).pvalue > 1e-4
        assert (pairs[~off] == 0).all()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sorted", "parity", "blocks"])
def test_batch_means_vary_as_without_replacement(kind):
    """Rows in any order, such as sorted ones: the variance of a batch's mean is S^2 / B (1 - B / N)."""
    N, B = 5000, 50
    rows = np.arange(N)
    values = {"sorted": rows, "parity": rows % 2, "blocks": rows // 70 % 2}[kind].astype(float)
    means = values[permutations(N, 400)].reshape(400, N // B, B).mean(2)
    expected = values.var(ddof=1) / B * (1 - B / N)
    squares = ((means - values.mean()) ** 2).mean(1) / expected
    error = squares.std(ddof=1) / 20
    assert error < 0.01
    assert abs(squares.mean() - 1) < 5 * error


def test_an_epoch_is_shuffled_by_it():
    key = jax.random.key(0)
    np.testing.assert_array_equal(np.asarray(reshuffled(11, 4).draw(key)).ravel()[:11], permutation(key, 11))
