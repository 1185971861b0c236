"""Compiled functions share programs exactly where they are equal."""

from collections import OrderedDict

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import jax as own
from lowvar.core.jax import array, compiled, unraveled


def test_equal_programs_are_shared_and_others_are_not(monkeypatch):
    monkeypatch.setattr(own, "_PROGRAMS", OrderedDict())

    def of(array, number):
        return compiled(lambda x: jnp.sum(jax.nn.relu(x) * array) + jnp.where(x.sum() > 0, number, 0 * x.sum()))

    one, array = jnp.ones(3), np.arange(3.0)
    value, programs = float(of(array, 1.0)(one)), len(own._PROGRAMS)
    assert float(of(array + 1, 1.0)(one)) == value + 3
    assert len(own._PROGRAMS) == programs
    assert float(of(array, 2.0)(one)) == value + 1
    assert len(own._PROGRAMS) == programs + 1
    signs = [np.signbit(compiled(lambda x, zero=zero: x * zero)(1.0)) for zero in (0.0, -0.0)]
    assert signs == [False, True]
    grown = compiled(lambda x: x + 1, donate_argnums=0)
    assert grown(grown(jnp.zeros(3))).tolist() == [2.0, 2.0, 2.0]
    assert jax.grad(lambda x: compiled(jnp.sin)(x))(0.0) == 1.0  # inside another transformation


def test_memory_holds_the_programs_that_were_used_last(monkeypatch):
    monkeypatch.setattr(own, "_PROGRAMS", OrderedDict())
    monkeypatch.setattr(own, "_MOST", 8)

    def powers(number):
        return compiled(lambda x: [x + k for k in range(number)])(jnp.ones(3))

    def sizes():
        return [size for _, size in own._PROGRAMS.values()]

    for number in (4, 3, 4):
        powers(number)
    assert sizes() == [3, 4]
    powers(5)  # beyond 8 together with both
    assert sizes() == [5]
    powers(20)
    assert sizes() == [20]  # the last one stays, whatever its size


def test_arguments_of_another_type_have_another_trace():
    bfloat = jnp.bfloat16  # a float16 needs instructions that not every processor has
    half = compiled(lambda x: x / 2 + jnp.zeros((), bfloat))
    for x in (np.float32(3), bfloat(3), np.arange(3, dtype=bfloat), np.arange(3, dtype=np.int32), 3, 3.0,
              jnp.asarray(3.0), jnp.asarray(np.float32(3))):  # fmt: skip
        expected = jax.jit(lambda x: x / 2 + jnp.zeros((), bfloat))(x)
        assert half(x).dtype == expected.dtype
        assert half(x).weak_type == expected.weak_type
        np.testing.assert_array_equal(half(x), expected)


def test_settings_of_jax_are_part_of_a_trace():
    added = compiled(lambda x, y: x + y)
    with jax.numpy_rank_promotion("allow"):
        assert added(np.ones((2, 3)), np.ones(3)).shape == (2, 3)
    with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank_promotion"):
        added(np.ones((2, 3)), np.ones(3))


def test_a_brief_program_is_another_one_with_equal_results(monkeypatch):
    monkeypatch.setattr(own, "_PROGRAMS", OrderedDict())
    x = jnp.linspace(0.1, 2.0, 50)

    def function(x):
        return jax.lax.map(lambda one: jnp.exp(one) * x, x)

    brief, usual = compiled(function, brief=True)(x), compiled(function)(x)
    assert len(own._PROGRAMS) == 2
    np.testing.assert_allclose(brief, usual, rtol=1e-6)


def test_an_array_of_numpy_is_copied_with_its_type():
    memory = np.zeros(4096, np.float32)
    held = array(memory)
    memory[:] = 1.0
    assert not held.any()
    for value in (np.arange(3), np.float64(2), np.array([True])):
        assert array(value).aval == jnp.asarray(value).aval


def test_vectors_are_unraveled_from_shapes_alone():
    tree = {"b": np.zeros((2, 3), np.float32), "a": np.zeros((), np.float32), "none": np.zeros((0, 2), np.float32)}
    vector, unravel = np.arange(7, dtype=np.float32), unraveled(tree)
    expected = jax.flatten_util.ravel_pytree(tree)[1](jnp.asarray(vector))
    for found in (unravel(vector), unravel(jnp.asarray(vector))):
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert isinstance(unravel(vector)["b"], np.ndarray)
    assert unraveled({})(np.zeros(0)) == {}
