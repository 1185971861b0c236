"""Batches of matrices on CPUs, see ``lowvar.core.lapack``."""

import os
import re
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import lowvar.core.jax  # noqa: F401  bounds batches
from lowvar.core.lapack import FAULTY

SIZES = [((3, 50), 30), ((4,), 2), ((200,), 12), ((7, 1, 3), 90)]

SECOND_DERIVATIVES = """
import jax, jax.numpy as jnp, numpy as np
import lowvar.core.jax

x = jnp.linspace(-3, 3, 40)

def log_density(z):
    covariance = jnp.exp(2 * z[0] - ((x[:, None] - x) / jnp.exp(z[1])) ** 2) + (jnp.exp(z[2]) + 1e-2) * jnp.eye(40)
    factor = jnp.linalg.cholesky(covariance)
    left = jax.scipy.linalg.solve_triangular(factor, jnp.sin(2 * x), lower=True)
    return -left @ left - jnp.sum(jnp.log(jnp.diag(factor)))

def products(z, directions):
    gradient = jax.grad(log_density)
    return gradient(z), jax.vmap(lambda one: jax.jvp(gradient, (z,), (one,))[1])(directions)

z = np.linspace(-0.1, 0.1, 24, dtype=np.float32).reshape(8, 3)
directions = np.broadcast_to(np.eye(3, dtype=np.float32), (8, 3, 3))
mapped, one = jax.jit(jax.vmap(products)), jax.jit(products)
for _ in range(300):
    found = jax.block_until_ready(mapped(z, directions))
for i, value in enumerate(found):
    expected = np.stack([one(*each)[i] for each in zip(z, directions)])
    assert np.allclose(value, expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())
"""


@pytest.mark.parametrize("threads", [2, 8])
def test_many_batches_at_once_end(threads):
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"NPROC": str(threads)}
    subprocess.run([sys.executable, "-c", SECOND_DERIVATIVES], env=env, check=True, timeout=240)


@pytest.mark.parametrize("function", [jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.eigvalsh, jnp.linalg.svd])
@pytest.mark.skipif(not FAULTY[0] <= jax.__version_info__ < FAULTY[1], reason="this JAX divides no batches")
def test_no_call_has_a_batch_that_is_divided(function):
    text = jax.jit(function).lower(np.ones((500, 20, 20), np.float32)).as_text()
    calls = [line for line in text.splitlines() if "lapack" in line]
    sizes = [int(size) for line in calls for size in re.findall(r"tensor<(\d+)x20x20xf32>", line)]
    assert calls
    assert max(sizes, default=1) <= 200_000 / 20**3


def matrices(rng, batch, n):
    return rng.normal(size=(*batch, n, n)) / n**0.5 + 2 * np.eye(n)


@pytest.mark.parametrize(("batch", "n"), SIZES)
def test_batches_are_as_numpy_has_them(batch, n):
    a = matrices(np.random.default_rng(n), batch, n)
    spd, right = a @ np.swapaxes(a, -1, -2), a[..., :2]
    close = {"rtol": 2e-3, "atol": 2e-3 * np.abs(spd).max()}
    np.testing.assert_allclose(jax.jit(jnp.linalg.cholesky)(spd), np.linalg.cholesky(spd), **close)
    np.testing.assert_allclose(jax.jit(jnp.linalg.solve)(a, right), np.linalg.solve(a, right), **close)
    np.testing.assert_allclose(jax.jit(jnp.linalg.eigvalsh)(spd), np.linalg.eigvalsh(spd), **close)
    np.testing.assert_allclose(jax.jit(jnp.linalg.det)(a), np.linalg.det(a), rtol=2e-3)
    q, r = jax.jit(jnp.linalg.qr)(a)
    np.testing.assert_allclose(q @ r, a, **close)
    u, s, v = jax.jit(jnp.linalg.svd)(a)
    np.testing.assert_allclose(u * s[..., None, :] @ v, a, **close)
    assert u.shape == a.shape
    assert s.shape == (*batch, n)


@pytest.mark.parametrize(("batch", "n"), SIZES)
def test_batches_of_tridiagonal_systems(batch, n):
    rng = np.random.default_rng(100 + n)
    low, high = (rng.normal(size=(*batch, n)) for _ in range(2))
    low[..., 0] = high[..., -1] = 0
    middle, right = 5 + rng.normal(size=(*batch, n)) ** 2, rng.normal(size=(*batch, n, 3))
    found = jax.jit(jax.lax.linalg.tridiagonal_solve)(low, middle, high, right)
    whole = np.zeros((*batch, n, n))
    i = np.arange(n)
    whole[..., i, i] = middle
    whole[..., i[1:], i[:-1]], whole[..., i[:-1], i[1:]] = low[..., 1:], high[..., :-1]
    np.testing.assert_allclose(whole @ np.asarray(found), right, atol=1e-4)


def test_what_is_left_to_jax():
    empty = jax.jit(jnp.linalg.cholesky)(np.zeros((300_000, 0, 0), np.float32))
    assert empty.shape == (300_000, 0, 0)
    batch = jax.export.symbolic_shape("b, 20, 20")
    exported = jax.export.export(jax.jit(jnp.linalg.cholesky))(jax.ShapeDtypeStruct(batch, np.float32))
    a = np.broadcast_to(2 * np.eye(20, dtype=np.float32), (50, 20, 20))
    np.testing.assert_allclose(exported.call(a), np.linalg.cholesky(a), rtol=1e-5)
