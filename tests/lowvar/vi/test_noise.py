"""Batches, base noise and permutations have the laws they say they have."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats

from lowvar.core.gaussian import antithetic, independent
from lowvar.core.keys import _folded_in, named_key
from lowvar.errors import UserError
from lowvar.vi import batches
from lowvar.vi.batches import iid, permutation, reshuffled, sampler


@pytest.mark.parametrize(("N", "size"), [(7, 3), (5, 5)])
def test_an_epoch_visits_every_row_once(N, size):
    noise = sampler(reshuffled(N, size), independent(), 2).epoch(jax.random.key(0))
    real = np.asarray(noise.weight) > 0
    assert sorted(np.asarray(noise.index)[real]) == list(range(N))
    np.testing.assert_allclose(np.asarray(noise.weight).sum(1), 1)
    assert np.asarray(noise.rows).tolist() == real.sum(1).tolist()
    # padding repeats the batch's own first row, so that table writes of it change nothing
    first = np.asarray(noise.index)[:, :1]
    assert (np.asarray(noise.index)[~real] == np.broadcast_to(first, real.shape)[~real]).all()


def test_orders_differ_from_epoch_to_epoch():
    draw = reshuffled(100, 10).draw
    assert (np.asarray(draw(jax.random.key(0))) != np.asarray(draw(jax.random.key(1)))).mean() > 0.9


def test_iid_batches_are_uniform_with_replacement():
    draw = jax.jit(jax.vmap(iid(5, 2).draw))
    index = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))[:, 0]
    pairs = np.bincount(index[:, 0] * 5 + index[:, 1], minlength=25)
    assert ((pairs - 800) ** 2 / 800).sum() < 57  # chi-squared with 24 degrees: 57 is 2e-4


def test_antithetic_pairs():
    eps = np.asarray(antithetic(4).draw(jax.random.key(0), 3, np.float64))
    np.testing.assert_array_equal(eps[:2], -eps[2:])
    many = np.asarray(
        jax.vmap(lambda k: antithetic(2).draw(k, 1, np.float64))(jax.random.split(jax.random.key(1), 50_000))
    )
    assert abs(many[:, 0].std() - 1) < 0.02  # each point is N(0, 1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: reshuffled(5, 6), "batch size 6"),
        (lambda: iid(5, 0), "batch size 0"),
        (lambda: antithetic(3), "num_particles 3"),
        (lambda: independent(0), "particles 0"),
    ],
)
def test_bad_sizes(make, name):
    with pytest.raises(UserError, match=name):
        make()


@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1])
def test_a_key_is_folded_in_as_by_jax(seed):
    for data in (0, 3, 2**32 - 1):
        expected = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), data)
        assert (_folded_in(seed, data) == jax.random.key_data(expected)).all()


def test_keys_are_by_name():
    data = {str(jax.random.key_data(named_key(0, "sonar", "noise", r))) for r in range(100)}
    assert len(data) == 100
    again = jax.random.key_data(named_key(0, "sonar", "noise", 3))
    assert (again == jax.random.key_data(named_key(0, "sonar", "noise", 3))).all()
    # names are not pasted together: ("a", "bc") is not ("ab", "c")
    assert (jax.random.key_data(named_key(0, "a", "bc")) != jax.random.key_data(named_key(0, "ab", "c"))).any()


@pytest.mark.parametrize("N", [1, 7, 65_537, pytest.param(1_000_003, marks=pytest.mark.long)])
def test_permutations_have_every_number_once(N):
    assert (np.bincount(np.asarray(permutation(jax.random.key(N), N)), minlength=N) == 1).all()


@cache
def permutations(N, count):
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, N)))(jax.random.split(jax.random.key(5), count)))


def test_permutations_have_uniform_numbers_and_pairs():
    """Chi-squared of the places of single numbers and of pairs, neighbours and others; 1e-4 for each of some dozens."""
    N = 6
    drawn = permutations(N, 100_000)
    off = ~np.eye(N, dtype=bool)
    for i, j in ((0, 1), (0, N // 2), (2, N - 1)):
        assert stats.chisquare(np.bincount(drawn[:, i], minlength=N)).pvalue > 1e-4
        pairs = np.bincount(drawn[:, i] * N + drawn[:, j], minlength=N * N).reshape(N, N)
        assert stats.chisquare(pairs[off]).pvalue > 1e-4
        assert (pairs[~off] == 0).all()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sorted", "parity"])
def test_batch_means_vary_as_without_replacement(kind):
    """Rows in any order, such as sorted ones: the variance of a batch's mean is S^2 / B (1 - B / N)."""
    N, B = 5000, 50
    rows = np.arange(N)
    values = {"sorted": rows, "parity": rows % 2}[kind].astype(float)
    means = values[permutations(N, 400)].reshape(400, N // B, B).mean(2)
    expected = values.var(ddof=1) / B * (1 - B / N)
    squares = ((means - values.mean()) ** 2).mean(1) / expected
    error = squares.std(ddof=1) / 20
    assert error < 0.01
    assert abs(squares.mean() - 1) < 5 * error


def test_many_rows_are_shuffled_by_permutations(monkeypatch):
    monkeypatch.setattr(batches, "_SORTED", 10)
    key = jax.random.key(0)
    order = np.asarray(batches.reshuffled(11, 4).draw(key))
    np.testing.assert_array_equal(order.ravel()[:11], permutation(key, 11))
    assert (np.asarray(batches.reshuffled(10, 4).draw(key)).ravel()[:10] != np.asarray(permutation(key, 10))).any()
