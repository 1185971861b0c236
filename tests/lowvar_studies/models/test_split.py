"""Rows dealt out to fit and to test: every row once, by the seed, as many as asked for."""

import jax
import numpy as np
import pytest

from lowvar.core.keys import named_key
from lowvar.errors import UserError
from lowvar_studies.models.split import split, test_part

N = 41
ARRAYS = {"x": np.arange(2.0 * N).reshape(N, 2), "y": np.arange(N), "users": np.array(3), "table": np.zeros((5, 2))}


@pytest.mark.parametrize("test", [0.01, 0.2, 1 / 3, 0.9])
def test_every_row_is_on_one_side(test):
    parts = split(ARRAYS, 0, test)
    held = int(np.ceil(test * N))
    assert (len(parts["x"]), len(parts["test_x"])) == (N - held, held)
    np.testing.assert_array_equal(np.sort(np.concatenate([parts["y"], parts["test_y"]])), np.arange(N))
    for part in ("", "test_"):  # rows stay together
        np.testing.assert_array_equal(parts[f"{part}x"], ARRAYS["x"][parts[f"{part}y"]])
    assert list(parts) == ["x", "y", "users", "table", "test_x", "test_y"]
    assert (parts["users"], parts["table"].shape, parts["y"].dtype) == (3, (5, 2), ARRAYS["y"].dtype)


def test_a_share_that_divides_is_not_rounded_up():
    rows = {"x": np.zeros((60_000, 1), np.int8)}
    assert [len(split(rows, 0, test)["test_x"]) for test in (0.1, 0.55, 0.7)] == [6_000, 33_000, 42_000]


def test_the_seed_deals():
    a, b, c = (split(ARRAYS, seed, 0.3)["y"].tolist() for seed in (0, 0, 1))
    assert a == b != c
    assert a != sorted(a)
    key = named_key(0, "sonar", "split")
    d = split(ARRAYS, key, 0.3)["y"].tolist()
    assert d == split(ARRAYS, named_key(0, "sonar", "split"), 0.3)["y"].tolist()
    assert d not in (a, c)
    with jax.enable_x64(False):
        assert split(ARRAYS, named_key(0, "sonar", "split"), 0.3)["y"].tolist() == d


@pytest.mark.parametrize(
    ("train", "rows"), [(None, 32), (5, 5), (32, 32), (np.int64(4), 4), (0.5, 16), (1.0, 32), (1e-9, 1)]
)
def test_fewer_rows_to_fit_are_the_first_of_them(train, rows):
    full, part = split(ARRAYS, 7, 0.2), split(ARRAYS, 7, 0.2, train)
    assert len(part["x"]) == len(part["y"]) == rows
    np.testing.assert_array_equal(part["x"], full["x"][:rows])
    np.testing.assert_array_equal(part["test_y"], full["test_y"])


def test_rows_are_those_of_the_first_array_without_x():
    parts = split({"players": 9, "winner": np.arange(6), "loser": np.arange(6)}, 0, 0.5)
    assert {np.size(parts[key]) for key in ("winner", "test_winner", "loser", "test_loser")} == {3}


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"test": 0.999}, "0 are left"),
        ({"train": 33}, "33"),
        ({"train": 0}, "0 rows"),
        ({"arrays": {"x": np.zeros(3), "test_x": np.zeros(2)}}, "test_x"),
        ({"arrays": {"players": 3}}, "players"),
    ],
)
def test_mistakes(change, argument):
    with pytest.raises(UserError, match=f"^split: .*{argument}"):
        split(**({"arrays": ARRAYS, "seed": 0, "test": 0.2} | change))


def test_the_test_part_has_the_type_of_the_rows_to_fit():
    arrays = {"x": np.zeros((3, 2), np.float32), "y": np.arange(3), "test_x": np.zeros((1, 2)), "test_y": np.arange(1)}
    found = test_part(arrays, ("x", "y"), "made")
    assert found is not None
    assert {key: value.dtype for key, value in found.items()} == {"x": np.float32, "y": arrays["y"].dtype}
    assert test_part({"x": arrays["x"]}, ("x",), "made") is None
