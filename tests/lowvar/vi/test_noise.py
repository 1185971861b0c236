"""Batches and base noise have the laws they say they have."""

import jax
import numpy as np
import pytest

from lowvar.core.gaussian import antithetic, independent
from lowvar.core.keys import _folded_in, named_key
from lowvar.errors import UserError
from lowvar.vi.batches import iid, reshuffled, sampler


@pytest.mark.parametrize(
    ("N", "size"), [(7, 3), (5, 5), *(pytest.param(*one, marks=pytest.mark.long) for one in ((6, 3), (5, 1)))]
)
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


@pytest.mark.long
def test_every_row_is_equally_likely_in_every_place():
    draw = jax.jit(jax.vmap(reshuffled(5, 2).draw))
    first = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))[:, 0, 0]
    counts = np.bincount(first, minlength=5)
    assert ((counts - 4000) ** 2 / 4000).sum() < 20  # chi-squared with 4 degrees: 20 is 5e-4


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
    ("make", "message"),
    [
        (lambda: reshuffled(5, 6), "batch size 6: it must be between 1 and the number of rows, 5"),
        (lambda: iid(5, 0), "batch size 0"),
        (lambda: antithetic(3), "antithetic particles 3: it must be an even number"),
        (lambda: independent(0), "particles 0: it must be at least 1"),
    ],
)
def test_bad_sizes(make, message):
    with pytest.raises(UserError, match=message):
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
