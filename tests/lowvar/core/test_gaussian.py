"""Every scheme of base noise: each point is N(0, I), keys decide, and the scheme is what its name says."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import qmc

from lowvar.core.gaussian import GAUSSIAN, directions, orthogonal, points, rqmc, scrambled_sobol
from lowvar.errors import UserError

SCHEMES = sorted(GAUSSIAN)
KEYS = jax.random.split(jax.random.key(5), 4000)


@cache
def draws(scheme, particles=6, dim=4, keys=4000, dtype=jnp.float64):
    """``(keys, particles, dim)`` as NumPy."""
    draw = GAUSSIAN[scheme](particles).draw
    return np.asarray(jax.jit(jax.vmap(lambda key: draw(key, dim, dtype)))(KEYS[:keys]))


@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        *((scheme, jnp.float64) for scheme in SCHEMES),
        ("rqmc", jnp.float32),
        *(pytest.param(scheme, jnp.float32, marks=pytest.mark.long) for scheme in SCHEMES if scheme != "rqmc"),
    ],
)
def test_each_point_is_standard_normal(scheme, dtype):
    eps = draws(scheme, dtype=dtype)
    assert eps.dtype == dtype
    eps = eps.astype(float)
    assert np.isfinite(eps).all()
    n = len(eps)
    for moment, exact, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        z = ((eps**moment).mean(0) - exact) / np.sqrt(variance / n)
        assert np.abs(z).max() < 5, (moment, z)
    # coordinates of a point are independent: their covariances, and the length of a point is chi
    cross = np.einsum("kia,kib->iab", eps, eps)[:, *np.triu_indices(4, 1)] / np.sqrt(n)
    assert np.abs(cross).max() < 5
    square = (eps**2).sum(-1)
    assert np.abs(((square**2).mean(0) - 24) / (square**2).std(0) * np.sqrt(n)).max() < 5  # d (d + 2)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_means_are_unbiased(scheme):
    found = np.exp(draws(scheme) @ np.full(4, 0.2)).mean(1)  # E exp(a'z) = exp(|a|^2 / 2)
    error = found.std() / np.sqrt(len(found))
    print(scheme, found.mean() - np.exp(0.08), error)
    assert abs(found.mean() - np.exp(0.08)) < 5 * error
    assert error < 0.01


@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_decide(scheme):
    draw = jax.jit(lambda key: GAUSSIAN[scheme](6).draw(key, 4, jnp.float64))
    one = np.asarray(draw(KEYS[0]))
    np.testing.assert_array_equal(one, draw(KEYS[0]))
    assert (one != np.asarray(draw(KEYS[1]))).all()
    np.testing.assert_allclose(one, draws(scheme)[0], rtol=0, atol=1e-13)  # one at a time as many at once


@pytest.mark.parametrize(("particles", "dim"), [(3, 7), (7, 7), (10, 4), (5, 1)])
def test_orthogonal_within_blocks(particles, dim):
    eps = draws("orthogonal", particles, dim, 50)
    assert eps.shape == (50, particles, dim)
    gram = np.einsum("kia,kja->kij", eps, eps)
    length = np.linalg.norm(eps, axis=-1)
    block = np.arange(particles) // dim
    apart = (block[:, None] == block[None, :]) & ~np.eye(particles, dtype=bool)
    cosines = gram / length[:, :, None] / length[:, None, :]
    assert np.abs(cosines[:, apart]).max(initial=0) < 1e-12
    other = block[:, None] != block[None, :]
    if dim > 1 and other.any():
        assert np.abs(cosines[:, other]).max() > 0.5  # blocks know nothing of each other


def test_orthogonal_lengths_are_independent_of_each_other_and_of_the_directions():
    eps = draws("orthogonal", 3, 3)
    square = (eps**2).sum(-1)
    u = eps / np.sqrt(square)[..., None]
    n = len(eps)
    together = np.concatenate([square, (u**2).reshape(n, 9)], axis=1)
    assert np.abs(np.corrcoef(together.T)[:3][np.triu_indices(3, 1, 12)]).max() < 5 / np.sqrt(n)
    exact = 1 / 15  # Haar, d = 3: E u_a^2 v_a^2 = 1 / (d (d + 2)) for orthonormal u and v
    both = u[:, 0, :] ** 2 * u[:, 1, :] ** 2
    assert (np.abs(both.mean(0) - exact) < 5 * both.std(0) / np.sqrt(n)).all()


@pytest.mark.parametrize("dim", [1, 5, 300])
def test_digits_are_those_of_scipy(dim):
    expected = (qmc.Sobol(dim, scramble=False).random(64) * 2**32).astype(np.uint32)
    found = np.asarray(points(jnp.asarray(directions(dim, 6)), 64, jnp.zeros(dim, jnp.uint32)))
    order = np.arange(64)
    np.testing.assert_array_equal(found[order ^ (order >> 1)], expected)  # SciPy's order is Gray's
    np.testing.assert_array_equal(found[:1], 0)


def boxes(x, other, left, bits):
    """Which of ``2^bits`` boxes of equal volume: ``left`` digits of coordinate 0, the others of another one."""
    first, second = (x[:, c].astype(np.uint64) >> np.uint64(32 - b) for c, b in ((0, left), (other, bits - left)))
    return (first << np.uint64(bits - left) | second).astype(int)


def test_a_scramble_keeps_the_net():
    x = np.asarray(jax.jit(jax.vmap(lambda key: scrambled_sobol(key, 64, 5)))(KEYS[:4]))
    plain = (qmc.Sobol(5, scramble=False).random(64) * 2**32).astype(np.uint32)
    for bits, other in itertools.product(range(1, 6), range(1, 5)):
        for left in range(bits + 1):
            expected = np.sort(np.bincount(boxes(plain, other, left, bits), minlength=2**bits))
            for one in x:
                found = np.bincount(boxes(one, other, left, bits), minlength=2**bits)
                np.testing.assert_array_equal(np.sort(found), expected)


def test_scrambled_digits_are_uniform_and_pairwise_as_owen_says():
    x = np.asarray(
        jax.jit(jax.vmap(lambda key: scrambled_sobol(key, 8, 3)))(jax.random.split(jax.random.key(2), 20_000))
    )
    ones = np.stack([((x >> b) & 1).mean(0) for b in range(32)])
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(len(x))
    # two points that part at digit k agree before it, differ at it, and are independent after it
    apart = x[:, 0] ^ x[:, 1]  # the first direction number: they part at once
    assert (apart >> 31 == 1).all()
    after = np.stack([((apart >> b) & 1).mean(0) for b in range(31)])
    assert np.abs(after - 0.5).max() < 5 * 0.5 / np.sqrt(len(x))


def test_variance_falls_as_scipys():
    """A smooth product in 4 dimensions: far below iid, and not above SciPy's scramble."""

    def smooth(u):
        return (1 + 0.5 * (u - 0.5)).prod(-1)

    x = np.asarray(jax.jit(jax.vmap(lambda key: scrambled_sobol(key, 64, 4)))(KEYS[:500]))
    ours = smooth((x + 0.5) / 2**32).mean(1).var(ddof=1)
    rng = np.random.default_rng(0)
    scipys = np.var([smooth(qmc.Sobol(4, rng=rng).random(64)).mean() for _ in range(500)], ddof=1)
    iid = ((1 + 0.25 / 12) ** 4 - 1) / 64
    assert 0.6 < ours / scipys < 1.7
    assert ours < 0.004 * iid, ours / iid


@pytest.mark.long
def test_sobol_variance_of_a_gaussian_mean_vanishes_faster_than_iid():
    means = {n: draws("rqmc", n, 8, 1000).mean(1).var() * n for n in (1, 16, 128)}  # 1, 1, 1 for iid
    assert 0.9 < means[1] < 1.1
    assert means[16] < 0.12
    assert means[128] < 0.03


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.long)])
def test_the_ends_of_the_unit_interval(dtype):
    from lowvar.core.gaussian import _normal

    x = jnp.asarray([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], jnp.uint32)
    z = np.asarray(_normal(x, dtype)).astype(float)
    assert np.isfinite(z).all()
    np.testing.assert_allclose(z, -z[::-1], rtol=4 * np.finfo(dtype).eps)
    assert -6.4 < z[0] < -6.2  # Phi^-1(2^-33) = -6.34


@pytest.mark.parametrize(("make", "particles", "dim"), [(orthogonal, 0, 4), (rqmc, 0, 4), (rqmc, 3, 21202)])
def test_mistakes(make, particles, dim):
    with pytest.raises(UserError, match="particles 0" if dim == 4 else "dimension 21201"):
        make(particles).draw(KEYS[0], dim, jnp.float32)
