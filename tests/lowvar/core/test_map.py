"""``backend.map`` in groups equals a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core import jax as of_jax


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(("count", "together"), [(1, 5), (7, 1), (12, 64), (13, 5)])
def test_groups_equal_a_loop(backend, count, together):
    ops = backends.get(backend)
    xp, rows = ops.xp, np.random.default_rng(0).normal(size=(count, 3))
    shift = ops.asarray(np.arange(3.0))

    def function(x):
        return {"sum": xp.sum(xp.exp(x["a"] + shift)), "first": x["a"][:2]}

    found = ops.to_numpy(ops.map(function, {"a": ops.asarray(rows)}, together))
    np.testing.assert_allclose(found["sum"], np.exp(rows + np.arange(3.0)).sum(1), rtol=1e-12)
    np.testing.assert_allclose(found["first"], rows[:, :2], rtol=1e-12)


def test_a_group_holds_no_longer_arrays_than_allowed(monkeypatch):
    """A call that computes long arrays, also inside of a loop, is mapped with few others, or alone."""

    def long(x):
        return jax.lax.scan(
            lambda total, i: (total + jnp.sum(jnp.outer(x, jnp.ones(100)) * i), None), 0.0, jnp.ones(2)
        )[0]

    monkeypatch.setattr(of_jax, "_HELD", 1000)
    lengths = of_jax._lengths(jax.make_jaxpr(lambda xs: of_jax.BACKEND.map(long, xs, 64))(jnp.ones((12, 5))).jaxpr)
    assert 500 <= max(lengths) <= 1000


def test_a_callback_is_called_for_one_at_a_time(monkeypatch):
    monkeypatch.setattr(of_jax, "_HELD", 8)

    def doubled(x):
        return jax.pure_callback(lambda x: 2 * x, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    xs = jnp.arange(12.0).reshape(3, 4)
    assert (of_jax.BACKEND.map(doubled, xs, 64) == 2 * xs).all()
